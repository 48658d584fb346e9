"""Processes: what decodes beside this one, what a fork must renew, and fresh children."""

from __future__ import annotations

import importlib
import os
import pickle
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import IO, TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    from typing_extensions import Self

    from fastdecode.types import Context

_main_thread = threading.main_thread().ident
_worker: bool | None = None


def context() -> Context:
    """Return which of the measured situations this call is in.

    It is ``"processes"`` in a child process, such as a DataLoader's worker; ``"threads"`` in any
    thread but the main one, such as those of `decode_batch`; else ``"one"``.
    """
    if _worker or (_worker is None and _is_worker()):
        return "processes"
    return "one" if threading.get_ident() == _main_thread else "threads"


def _is_worker() -> bool:
    """Whether `multiprocessing` started this process.

    Looked up at the first decode, not on import: a spawned child imports this while it is still
    being set up, before it is known as a child.
    """
    global _worker
    if _worker is None:
        process = sys.modules.get("multiprocessing.process")
        _worker = process is not None and process.parent_process() is not None
    return _worker


def speaks_for_all() -> bool:
    """Whether a warning should come from this process: sixteen workers need not say it each."""
    process = sys.modules.get("multiprocessing.process")
    if process is None or not _is_worker():
        return True
    name: str = process.current_process().name
    return name.endswith("-1")


def after_fork(call: Callable[[], None]) -> Callable[[], None]:
    """Call this in every child that is forked, if this system forks."""
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=call)
    return call


@after_fork
def _note_fork() -> None:
    """Know in a forked child that it is one; its only thread is the main one."""
    global _main_thread, _worker
    _main_thread = threading.get_ident()
    _worker = True


class ForkLock:
    """A lock of a module that is free in a forked child, whoever held it in the parent.

    The thread that holds it may take it again.
    """

    def __init__(self) -> None:
        self._renew()
        after_fork(self._renew)

    def _renew(self) -> None:
        self._lock = threading.RLock()

    def __enter__(self) -> None:
        self._lock.acquire()

    def __exit__(self, *error: object) -> None:
        with suppress(RuntimeError):  # it was forked within the block, and has a new lock
            self._lock.release()


# With -c, Python looks into the current folder first: nothing there may get in between.
_PROGRAM = """
import sys
if not sys.path[0]:
    del sys.path[0]
from fastdecode._process import serve
serve()
"""
_PATIENCE_S = 2.0  # for a child that was told to end
_TAIL = 1000  # bytes


class ChildDied(RuntimeError):
    """The child ended without an answer: a library crashed it, or the system killed it.

    Its exit `status` is negative for the signal that killed it.
    """

    def __init__(self, what: str, status: int, last_words: str = "") -> None:
        why = f"signal {-status}" if status < 0 else f"exit status {status}"
        said = f": {last_words}" if last_words else ""
        super().__init__(f"the process that ran {what} died ({why}){said}")
        self.status = status

    def __reduce__(self) -> tuple[Any, ...]:
        return RuntimeError, self.args


class Child:
    """An object in a fresh interpreter, whose methods are called over a pipe.

    The child imports `target`, ``"module:Class"``, and makes one, of `arguments`. Measurements need
    processes in which nothing else has happened. `multiprocessing` imports the caller's main module
    again in each of its children, which a script without a ``__main__`` guard does not survive;
    this does not. Messages are pickles, over the child's standard input and output. What libraries
    print is kept aside: libjpeg, for one, prints a line for every damaged file. If the child dies,
    the last line of it is told.
    """

    def __init__(self, target: str, *arguments: Any) -> None:
        self._target = target
        self._printed = tempfile.TemporaryFile()  # noqa: SIM115 - open as long as the child is
        self._process = subprocess.Popen(
            [sys.executable, "-c", _PROGRAM],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._printed,
            # The caller's import path, so that both find the same modules.
            env={**os.environ, "PYTHONPATH": os.pathsep.join(path or "." for path in sys.path)},
            start_new_session=True,  # Ctrl-C is for the parent, which closes its children
        )
        self._requests = cast("IO[bytes]", self._process.stdin)
        self._answers = cast("IO[bytes]", self._process.stdout)
        self._send((target, arguments))

    def send(self, method: str, *arguments: Any) -> None:
        """Call a method without waiting; `receive` gives the answer."""
        self._send((method, arguments))

    def receive(self) -> Any:
        """Wait for the answer to the earliest call that has none yet, or raise what it raised.

        The first answer is the construction's: None. If the child crashed, it is a `ChildDied`.
        """
        try:
            good, value = pickle.load(self._answers)
        except (EOFError, pickle.UnpicklingError) as error:
            raise self._died() from error
        if not good:
            raise value
        return value

    def ask(self, method: str, *arguments: Any) -> Any:
        """Call a method and wait for its answer."""
        self.send(method, *arguments)
        return self.receive()

    def hang_up(self) -> None:
        """Tell the child to end, without waiting until it has: several can end side by side."""
        for pipe in (self._requests, self._answers):
            try:
                pipe.close()
            except OSError:  # it is dead already
                continue

    def close(self) -> None:
        """End the child; one that does not within seconds is killed, with its own children."""
        self.hang_up()
        self._end()
        self._printed.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def _send(self, message: object) -> None:
        pickled = pickle.dumps(message)  # if that fails, nothing has been sent
        try:
            self._requests.write(pickled)
            self._requests.flush()
        except OSError as error:  # a broken pipe, by whatever name the system has for it
            raise self._died() from error

    def _died(self) -> ChildDied:
        status = self._end()
        size = self._printed.seek(0, os.SEEK_END)
        self._printed.seek(max(0, size - _TAIL))
        lines = self._printed.read().decode(errors="replace").strip().splitlines()
        return ChildDied(self._target, status, lines[-1] if lines else "")

    def _end(self) -> int:
        """Wait for the end, and bring it about if need be; return the exit status."""
        try:
            return self._process.wait(_PATIENCE_S)
        except subprocess.TimeoutExpired:
            if hasattr(os, "killpg"):
                os.killpg(self._process.pid, signal.SIGKILL)  # it leads a session of its own
            else:
                self._process.kill()
            return self._process.wait()


def serve() -> None:
    """Be the child: make the object, then answer one call after the other until the pipe closes."""
    requests = sys.stdin.buffer
    answers = os.fdopen(os.dup(1), "wb")
    # A child of this child must not hold the pipe open when this one has died.
    after_fork(answers.close)
    os.dup2(2, 1)  # whatever a library prints must not get between the answers
    try:
        subject = _answer(answers, _construct, *pickle.load(requests))
        while True:
            method, arguments = pickle.load(requests)
            _answer(answers, _call, subject, method, arguments)
    except (EOFError, BrokenPipeError, KeyboardInterrupt):
        pass  # the parent is done, or gone
    with suppress(BrokenPipeError):
        answers.close()  # else the interpreter would complain of what nobody reads any more


def _call(subject: Any, method: str, arguments: tuple[Any, ...]) -> Any:
    return getattr(subject, method)(*arguments)


def _construct(target: str, arguments: tuple[Any, ...]) -> Any:
    module, _, name = target.partition(":")
    return getattr(importlib.import_module(module), name)(*arguments)


def _answer(answers: IO[bytes], function: Any, *arguments: Any) -> Any:
    """Call, and send back what came of it; an exception is the parent's to deal with."""
    try:
        value = function(*arguments)
        message = pickle.dumps((True, None if function is _construct else value))
    except Exception as error:
        value = None
        message = pickle.dumps((False, _portable(error)))
    answers.write(message)
    answers.flush()
    return value


def _portable(error: Exception) -> Exception:
    """Give the error itself, if it survives pickling."""
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:
        return RuntimeError(f"{type(error).__name__}: {error}")
    return error
