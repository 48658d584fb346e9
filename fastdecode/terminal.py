"""What every command line does about its terminal: Ctrl-C, output that nobody reads, odd letters.

A command is a module with a function ``main(arguments)`` that returns an exit status.
"""

from __future__ import annotations

import argparse
import importlib
import io
import os
import signal
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NoReturn

from fastdecode.errors import visible

__all__ = ["INTERRUPTED", "Parser", "run"]

INTERRUPTED = 130
"""Exit status after Ctrl-C, as shells have it: 128 and the signal's number."""

_LOST = 1


class Parser(argparse.ArgumentParser):
    """A parser whose errors may quote anybody's names: none of their letters acts on a terminal."""

    def exit(self, status: int = 0, message: str | None = None) -> NoReturn:
        """End the command, with a message on standard error."""
        super().exit(status, message and "\n".join(map(visible, message.split("\n"))))


class _Output(io.FileIO):
    """A standard file that remembers that it could not be written to, and from then on takes all.

    Python writes what is left in its buffers once more when it ends, and would complain again.

    Parameters
    ----------
    number : int
    silent : bool
        It takes all from the beginning: errors that cannot be printed are no further errors.
    """

    def __init__(self, number: int, *, silent: bool) -> None:
        super().__init__(number, "w", closefd=False)
        self.lost: OSError | None = None
        self.silent = silent

    def write(self, data: Any, /) -> int:
        if self.lost is None:
            try:
                return super().write(data)
            except OSError as error:
                self.lost = error
                if not self.silent:
                    raise
        return len(data)


def run(module: str, arguments: Sequence[str]) -> int:
    """Import a command, and run it.

    Parameters
    ----------
    module : str
    arguments : sequence of str

    Returns
    -------
    int
        Its exit status; 130 after Ctrl-C; 1 if standard output is closed, full, or read no more.
    """
    _open_what_is_closed()
    output = _replaced("stdout", 1)
    _replaced("stderr", 2)
    try:
        with _ending_at_once():
            command = importlib.import_module(module)
        status = _status(command, arguments)
        sys.stdout.flush()
    except KeyboardInterrupt:
        return INTERRUPTED
    except OSError:
        if output.lost is None:
            raise  # it is not about the terminal: a mistake of ours, which should be seen
    finally:
        output.silent = True
    if output.lost is None:
        return status
    if not isinstance(output.lost, BrokenPipeError):
        sys.stderr.write(f"standard output: {output.lost.strerror}\n")
    return _LOST


def _replaced(name: str, number: int) -> _Output:
    """Have a standard file noticed when it fails; it takes letters that its encoding lacks, too."""
    usual = getattr(sys, name)
    raw = _Output(number, silent=number == 2)
    encoding = "utf-8" if usual is None else usual.encoding
    lines = number == 2 or raw.isatty()
    buffered = io.BufferedWriter(raw)
    new = io.TextIOWrapper(buffered, encoding, "backslashreplace", line_buffering=lines)
    setattr(sys, name, new)
    return raw


def _status(command: Any, arguments: Sequence[str]) -> int:
    try:
        return int(command.main(arguments))
    except SystemExit as end:  # argparse's, after --help or a wrong argument
        return end.code if isinstance(end.code, int) else 0


@contextmanager
def _ending_at_once() -> Iterator[None]:
    """End the process on Ctrl-C, without a word, for as long as modules are imported.

    Nothing has been done yet that would be lost; and libraries in C make other errors of it.
    """
    usual = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if not usual or threading.current_thread() is not threading.main_thread():
        yield
        return
    signal.signal(signal.SIGINT, lambda *_: os._exit(INTERRUPTED))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def _open_what_is_closed() -> None:
    """Put something into the place of standard files that the caller closed (``>&-``).

    Else the next file that is opened, a store that is written, say, would be standard output.
    """
    for number, mode in enumerate((os.O_RDONLY, os.O_RDONLY, os.O_WRONLY)):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, mode)  # it takes the lowest number that is free
