"""Run code in a new process, optionally with other or fewer libraries installed."""

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
    """Return the resident memory of this process in bytes; None if it is unknown.

    It is None under AddressSanitizer, which keeps freed memory.
    """
    if not _MEMORY.exists() or "libasan" in os.environ.get("LD_PRELOAD", ""):
        return None
    return int(_MEMORY.read_text(encoding="ascii").split()[1]) * os.sysconf("SC_PAGE_SIZE")


def answers(code: str, *folders: Path, **variables: str) -> dict[str, Any]:
    """Run code in a new process, and return the dict `answers` that the code fills.

    `folders` are added to the import path, and `variables` to the environment. The code can use the
    imported package, an image `image`, and `said`, which returns a call's result or its error in
    words.
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
