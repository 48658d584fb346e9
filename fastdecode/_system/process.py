"""Processes: the situation of the caller, cleaning up after a fork, and fresh child processes."""

from __future__ import annotations

import importlib
import os
import pickle
import signal
import subprocess
import sys
import tempfile
import threading
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import IO, TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    from typing_extensions import Self

_worker: bool | None = None


def is_worker() -> bool:
    """Return whether `multiprocessing` started this process.

    The first decode looks this up, not the import: a spawned child imports this module before
    `multiprocessing` has set its parent.
    """
    global _worker
    if _worker is None:
        process = sys.modules.get("multiprocessing.process")
        _worker = process is not None and process.parent_process() is not None
    return _worker


def check_process(process: int) -> None:
    """Raise an error if an iterator of another process is used in this one."""
    if process != os.getpid():
        raise RuntimeError("this iterator belongs to the process that this one was forked from")


def after_fork(call: Callable[[], None]) -> Callable[[], None]:
    """Register a function to run in every forked child; for use as a decorator."""
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=call)
    return call


@after_fork
def _note_fork() -> None:
    """Note in a forked child that it is a worker."""
    global _worker
    _worker = True


@contextmanager
def late_interrupt() -> Iterator[None]:
    """Let Ctrl-C take effect after a block that forks: Python drops what is raised in its hooks."""
    usual = signal.getsignal(signal.SIGINT)
    if not callable(usual) or threading.current_thread() is not threading.main_thread():
        yield
        return
    process, late = os.getpid(), []

    def note(number: int, frame: FrameType | None) -> None:
        if os.getpid() == process:
            late.append(number)
        else:  # in a child, which has inherited this handler
            usual(number, frame)

    signal.signal(signal.SIGINT, note)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, usual)
        if late:
            signal.raise_signal(signal.SIGINT)


def raised_by_signal(error: BaseException) -> bool:
    """Return whether the handler of a signal raised an error, whatever it has interrupted."""
    if isinstance(error, KeyboardInterrupt):
        return True
    handlers = [signal.getsignal(number) for number in signal.valid_signals()]
    functions: list[Any] = [*handlers, *(vars(type(one)).get("__call__") for one in handlers)]
    codes = [one.__code__ for one in functions if hasattr(one, "__code__")]
    where = error.__traceback__
    while where is not None:
        if where.tb_frame.f_code in codes:
            return True
        where = where.tb_next
    return False


class ForkLock:
    """A re-entrant lock that is free in a forked child, whoever held it in the parent."""

    def __init__(self) -> None:
        self._renew()
        _locks.add(self)

    def _renew(self) -> None:
        self._lock = threading.RLock()

    def __enter__(self) -> None:
        self._lock.acquire()

    def __exit__(self, *error: object) -> None:
        with suppress(RuntimeError):  # a child forked within the block has a new lock
            self._lock.release()


_locks: weakref.WeakSet[ForkLock] = weakref.WeakSet()


@after_fork
def _free_locks() -> None:
    """Free in a forked child what other threads of the parent held."""
    for lock in tuple(_locks):
        lock._renew()


# With -c, Python puts the current folder first on its path: modules there must not shadow others.
_PROGRAM = """
import sys
if not sys.path[0]:
    del sys.path[0]
from fastdecode._system.process import serve
serve()
"""
_EXIT_TIMEOUT_S = 2.0  # how long a child may take to exit
_TAIL_BYTES = 1000  # bytes of a child's output


class ChildDied(RuntimeError):
    """The child process ended without an answer: a library crashed, or the system killed it.

    A negative exit `status` is the number of the signal.
    """

    def __init__(self, what: str, status: int, last_words: str = "") -> None:
        why = f"signal {-status}" if status < 0 else f"exit status {status}"
        said = f": {last_words}" if last_words else ""
        super().__init__(f"the process that ran {what} died ({why}){said}")
        self.status = status

    def __reduce__(self) -> tuple[Any, ...]:
        return RuntimeError, self.args


class Child:
    """An object in a fresh interpreter; its methods are called over a pipe.

    The child imports `target`, ``"module:Class"``, and constructs the object from `arguments`.
    Measurements need processes in which nothing else has run. Unlike `multiprocessing`, this does
    not import the caller's main module again, so scripts without a ``__main__`` guard work.
    Messages are pickles over the child's standard input and output. The output of libraries goes
    to a temporary file: libjpeg, for one, prints a line for every damaged file. If the child dies,
    the error quotes its last line.
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
        """Call a method without waiting; `receive` returns its answer."""
        self._send((method, arguments))

    def receive(self) -> Any:
        """Return the answer to the earliest open call, or raise its error.

        The first answer is that of the constructor: None. Raises `ChildDied` if the child crashed.
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

    def close_pipes(self) -> None:
        """Tell the child to exit without waiting for it, so several children exit in parallel."""
        for pipe in (self._requests, self._answers):
            try:
                pipe.close()
            except OSError:  # it is dead already
                continue

    def close(self) -> None:
        """End the child; after two seconds, kill it and its own children."""
        self.close_pipes()
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
        except OSError as error:  # a broken pipe, whose errno depends on the system
            raise self._died() from error

    def _died(self) -> ChildDied:
        status = self._end()
        size = self._printed.seek(0, os.SEEK_END)
        self._printed.seek(max(0, size - _TAIL_BYTES))
        lines = self._printed.read().decode(errors="replace").strip().splitlines()
        return ChildDied(self._target, status, lines[-1] if lines else "")

    def kill(self) -> None:
        """Kill the child and its own children at once; a pending `receive` raises `ChildDied`."""
        if not hasattr(os, "killpg"):
            self._process.kill()
            return
        with suppress(ProcessLookupError):  # it has ended in the meantime
            os.killpg(self._process.pid, signal.SIGKILL)  # it leads a session of its own

    def _end(self) -> int:
        """Wait until the child exits, killing it if need be; return its exit status."""
        try:
            return self._process.wait(_EXIT_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self.kill()
            return self._process.wait()


def serve() -> None:
    """Run in the child: construct the object, then answer calls until the pipe closes."""
    requests = sys.stdin.buffer
    answers = os.fdopen(os.dup(1), "wb")
    # A forked child must not hold the pipe open after this process has died.
    after_fork(answers.close)
    os.dup2(2, 1)  # the output of libraries must not mix with the answers
    try:
        subject = _reply(answers, _construct, *pickle.load(requests))
        while True:
            method, arguments = pickle.load(requests)
            _reply(answers, _call, subject, method, arguments)
    except (EOFError, BrokenPipeError, KeyboardInterrupt):
        pass  # the parent has closed the pipe, or has ended
    with suppress(BrokenPipeError):
        answers.close()  # else the interpreter reports the broken pipe at exit


def _call(subject: Any, method: str, arguments: tuple[Any, ...]) -> Any:
    return getattr(subject, method)(*arguments)


def _construct(target: str, arguments: tuple[Any, ...]) -> Any:
    module, _, name = target.partition(":")
    return getattr(importlib.import_module(module), name)(*arguments)


def _reply(answers: IO[bytes], function: Any, *arguments: Any) -> Any:
    """Call a function and send its result, or its exception, to the parent."""
    try:
        value = function(*arguments)
        message = pickle.dumps((True, None if function is _construct else value))
    except Exception as error:
        value = None
        message = pickle.dumps((False, _picklable(error)))
    answers.write(message)
    answers.flush()
    return value


def _picklable(error: Exception) -> Exception:
    """Return the error, or a RuntimeError with its text if it cannot be pickled."""
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:
        return RuntimeError(f"{type(error).__name__}: {error}")
    return error
