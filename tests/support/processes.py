"""Code that is run in a process of its own, where other libraries are installed, or fewer."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import fastdecode

_BEGIN = """
import json, sys
import fastdecode
from fastdecode import FastDecodeError, backends, decode, use
from fastdecode.testing import drawing, encode

def said(function, *arguments, **options):
    try:
        return function(*arguments, **options).tolist()
    except (FastDecodeError, ValueError) as error:
        return [type(error).__name__, str(error)]

image = drawing(13, 7)
answers = {}
"""
_SETTINGS = ("FASTDECODE_BACKEND", "FASTDECODE_DISABLE")
_END = """
print(json.dumps(answers))
"""


_MEMORY = Path("/proc/self/statm")


def resident() -> int | None:
    """Return how many bytes of memory this process has; None where that is not to be seen.

    AddressSanitizer keeps what was freed, so that there it tells nothing.
    """
    if not _MEMORY.exists() or "libasan" in os.environ.get("LD_PRELOAD", ""):
        return None
    return int(_MEMORY.read_text(encoding="ascii").split()[1]) * os.sysconf("SC_PAGE_SIZE")


def answers(code: str, *folders: Path, **variables: str) -> dict[str, Any]:
    """Run code in a new process, and return what it put into its `answers`.

    `folders` are more places to import from, `variables` its environment's. The code finds the
    package imported, an image as `image`, and `said`: a call's result, or its error in words.
    """
    path = [*map(str, folders), str(Path(fastdecode.__file__).parents[1]), *sys.path]
    inherited = {k: v for k, v in os.environ.items() if k not in _SETTINGS}
    done = subprocess.run(
        [sys.executable, "-c", _BEGIN + code + _END],
        capture_output=True,
        check=False,
        text=True,
        env={**inherited, "PYTHONPATH": os.pathsep.join(path), **variables},
    )
    assert done.returncode == 0, done.stderr
    result: dict[str, Any] = json.loads(done.stdout)
    return result
