"""The processes of one group: one for each backend, all alive, of which one works at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from fastdecode.bench.check import reason
from fastdecode.child import Child, ChildDied

if TYPE_CHECKING:
    from types import TracebackType

    from typing_extensions import Self

    from fastdecode.bench.work import Setup

__all__ = ["Referee", "Team"]

_WORKER = "fastdecode.bench.worker:Worker"
_REFERENCE = "fastdecode.bench.worker:Reference"


class Team:
    """One process for each configuration; one that fails leaves, and the others go on.

    Parameters
    ----------
    setups : Mapping of str to Setup
        By backend.
    on_loss : callable
        Told which backend left, and why.
    """

    def __init__(self, setups: Mapping[str, Setup], on_loss: Callable[[str, str], object]) -> None:
        self.setup = next(iter(setups.values()))
        self._on_loss = on_loss
        self._members: dict[str, Child] = {}
        try:
            for name, setup in setups.items():
                self._members[name] = Child(_WORKER, setup)
            for name in list(self._members):  # meanwhile they import their libraries side by side
                self._receive(name)
        except BaseException:  # Ctrl-C: leave none of them behind
            self.close()
            raise

    @property
    def names(self) -> tuple[str, ...]:
        """The backends that are left."""
        return tuple(self._members)

    def ask(self, names: Iterable[str], method: str, *arguments: Any) -> dict[str, Any]:
        """Call a method of some members side by side.

        Returns
        -------
        dict of str to object
            The answers, by backend; without those that left over this.
        """
        asked = []
        for name in names:
            try:
                self._members[name].send(method, *arguments)
            except Exception as error:
                self._lose(name, error)
            else:
                asked.append(name)
        answers = {}
        for name in asked:
            good, value = self._receive(name)
            if good:
                answers[name] = value
        return answers

    def close(self) -> None:
        """End all processes."""
        for child in self._members.values():
            child.hang_up()  # first all, so that they end side by side
        while self._members:
            self._members.popitem()[1].close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def _receive(self, name: str) -> tuple[bool, Any]:
        try:
            return True, self._members[name].receive()
        except Exception as error:  # whatever the library did to the process
            self._lose(name, error)
            return False, None

    def _lose(self, name: str, error: Exception) -> None:
        self._members.pop(name).close()
        self._on_loss(name, reason(error))


class Referee:
    """The process that decodes for comparison; a new one, where a file has crashed it.

    Parameters
    ----------
    setup : Setup

    Attributes
    ----------
    crashes : int
    """

    def __init__(self, setup: Setup) -> None:
        self.crashes = 0
        self._setup = setup
        self._child = self._start()

    def digest(self, index: int) -> bytes | None:
        """Return what the right pixels of a file come to; None if there are none."""
        try:
            digest: bytes | None = self._child.ask("digest", index)
        except ChildDied:
            self.crashes += 1
            self._child.close()
            self._child = self._start()
            return None
        return digest

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._child.close()

    def _start(self) -> Child:
        child = Child(_REFERENCE, self._setup)
        child.receive()
        return child
