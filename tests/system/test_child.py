"""`Child`, an object in a child process: answers, errors, crashes, and its end."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from fastdecode._system.process import Child, ChildDied
from fastdecode.errors import DecodeError

SUBJECT = """
import atexit
import os
import pathlib
from fastdecode.errors import DecodeError

class Odd(Exception):
    def __init__(self, a, b):
        super().__init__(f"{a} {b}")

class Subject:
    def __init__(self, start):
        if start < 0:
            raise ValueError("below zero")
        print("noise of a library")
        self.value = start

    def add(self, number):
        os.write(1, b"noise of a C library\\n")
        self.value += number
        return self.value

    def pid(self):
        return os.getpid()

    def tell_the_end(self, path):
        atexit.register(pathlib.Path(path).touch)

    def refuse(self):
        raise DecodeError("damaged", backend="mine")

    def odd(self):
        raise Odd(1, 2)

    def leave(self):
        os._exit(3)
"""


@pytest.fixture(autouse=True)
def _importable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "subject_of_a_child.py").write_text(SUBJECT)
    monkeypatch.syspath_prepend(str(tmp_path))


def child(start: int = 1) -> Child:
    """Start a child; the first answer is that of its construction."""
    return Child("subject_of_a_child:Subject", start)


def test_methods_are_called_in_order() -> None:
    """Answers come in the order of the calls, whatever the child prints."""
    with child() as one:
        assert one.receive() is None
        one.send("add", 2)
        one.send("add", 3)

        assert [one.receive(), one.receive(), one.ask("add", 4)] == [3, 6, 10]
        assert one.ask("pid") != os.getpid()


def test_errors_come_back() -> None:
    """As they are, or in words if they cannot be pickled; the child goes on, unless it is new.

    A crash raises ChildDied with the exit status, now and at every later call.
    """
    with child() as one:
        one.receive()
        with pytest.raises(DecodeError) as raised:
            one.ask("refuse")
        with pytest.raises(RuntimeError, match="Odd: 1 2"):
            one.ask("odd")

        assert (raised.value.backend, str(raised.value)) == ("mine", "damaged")
        assert one.ask("add", 1) == 2
        for _ in range(2):
            with pytest.raises(ChildDied) as died:
                one.ask("leave")
        assert died.value.status == 3
    with child(-1) as one, pytest.raises(ValueError, match="below zero"):
        one.receive()


def test_the_current_folder_is_not_searched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file in the current folder with the name of a standard module is not imported."""
    folder = tmp_path / "images"
    folder.mkdir()
    for name in ("pickle", "json", "random", "subject_of_a_child"):
        (folder / f"{name}.py").write_text("raise SystemExit('this is not for you')")
    monkeypatch.chdir(folder)

    with child() as one:
        assert one.receive() is None
        assert one.ask("add", 2) == 3


@pytest.mark.skipif(sys.platform == "win32", reason="has no SIGKILL")
def test_the_end_of_the_parent_is_the_end_of_the_child(tmp_path: Path) -> None:
    """Killing the parent leaves no process behind."""
    ended = tmp_path / "ended"
    code = (
        "import os, signal\n"
        "from fastdecode._system.process import Child\n"
        "one = Child('subject_of_a_child:Subject', 1)\n"
        "one.receive()\n"
        f"one.ask('tell_the_end', {str(ended)!r})\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        check=False,
        timeout=60,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(path or "." for path in sys.path)},
    )

    assert done.returncode == -signal.SIGKILL
    for _ in range(600):
        if ended.exists():
            break
        time.sleep(0.05)
    assert ended.exists()
