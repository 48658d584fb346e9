"""The processes of one group: one for each backend, all alive, of which one works at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from fastdecode.bench.check import reason
from fastdecode.calibration.members import Members
from fastdecode.child import Child, ChildDied

if TYPE_CHECKING:
    from types import TracebackType

    from typing_extensions import Self

    from fastdecode.bench.work import Setup

__all__ = ["Referee", "Team"]

_WORKER = "fastdecode.bench.worker:Worker"
_REFERENCE = "fastdecode.bench.worker:Reference"


class Team(Members):
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
        super().__init__(
            _WORKER,
            {name: (setup,) for name, setup in setups.items()},
            lambda name, error: on_loss(name, reason(error)),
        )

    def ask(self, names: Iterable[str], method: str, *arguments: Any) -> dict[str, Any]:
        """Call a method of some members side by side.

        Returns
        -------
        dict of str to object
            The answers, by backend; without those that left over this.
        """
        asked = [name for name in names if self.send(name, method, *arguments)]
        answers = {}
        for name in asked:
            good, value = self.receive(name)
            if good:
                answers[name] = value
        return answers


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
