"""Limits of this process, and code in a child process, such as one with other libraries."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import fastdecode

_BEGIN = """
import json, sys
import fastdecode
from fastdecode import FastDecodeError, backends, decode, use
from fastdecode.testing import drawing, encode

def call(function, *arguments, **options):
    try:
        return function(*arguments, **options).tolist()
    except (FastDecodeError, ValueError) as error:
        return [type(error).__name__, str(error)]

def peak():
    with open("/proc/self/status", encoding="ascii") as lines:
        return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM"))

image = drawing(13, 7)
answers = {}
"""
_SETTINGS = ("FASTDECODE_BACKEND", "FASTDECODE_DISABLE")
_END = """
print(json.dumps(answers))
"""


_MEMORY = Path("/proc/self/statm")


def resident() -> int | None:
    """Return the resident memory of this process in bytes, or None if it cannot be measured.

    It means nothing under AddressSanitizer, which keeps freed memory.
    """
    if not _MEMORY.exists() or "libasan" in os.environ.get("LD_PRELOAD", ""):
        return None
    return int(_MEMORY.read_text(encoding="ascii").split()[1]) * os.sysconf("SC_PAGE_SIZE")


@contextmanager
def few_files(count: int) -> Iterator[None]:
    """Let this process and its children open only so many files more."""
    resource = pytest.importorskip("resource")
    if not Path("/dev/fd").exists():
        pytest.skip("this system does not list open files")
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (len(os.listdir("/dev/fd")) + count, hard))  # noqa: PTH208
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


_SHARED = Path("/dev/shm")
HAS_SHARED_MEMORY = sys.platform != "linux" or (
    os.access(_SHARED, os.W_OK) and shutil.disk_usage(_SHARED).total >= 16 << 20
)


def skip_without_shared_memory(*_: object, **__: object) -> None:
    """Skip the test where worker processes cannot share memory, or little."""
    if not HAS_SHARED_MEMORY:
        pytest.skip("/dev/shm is missing, read-only or smaller than 16 MB")


def python(
    *words: object, cwd: Path | None = None, timeout: float = 300, **variables: str
) -> subprocess.CompletedProcess[str]:
    """Run Python to its end, with these variables of the environment besides those that are."""
    return subprocess.run(
        [sys.executable, *map(str, words)],
        cwd=cwd,
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )


def answers(code: str, *folders: Path, **variables: str) -> dict[str, Any]:
    """Run code in a new process and return what it put into its dict `answers`.

    `folders` are added to the import path, and `variables` to the environment. The code can use the
    package, an image named `image`, `call`, which returns a result or the name and message of an
    error, and `peak`, the most memory so far in KB.
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
