"""Several processes by name, started side by side; one that fails leaves the others alone."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from fastdecode.child import Child

if TYPE_CHECKING:
    from types import TracebackType

    from typing_extensions import Self

__all__ = ["Members"]


class Members:
    """One process for each name.

    Parameters
    ----------
    target : str
        ``"module:Class"``; each process makes one.
    arguments : Mapping of str to sequence
        What each makes it of, by name.
    on_loss : callable
        Told who left, and over which error.
    """

    def __init__(
        self,
        target: str,
        arguments: Mapping[str, Sequence[Any]],
        on_loss: Callable[[str, Exception], object],
    ) -> None:
        self._on_loss = on_loss
        self._children: dict[str, Child] = {}
        try:
            for name, own in arguments.items():
                self._children[name] = Child(target, *own)
            for name in arguments:  # meanwhile they import their libraries side by side
                self.receive(name)
        except BaseException:  # Ctrl-C: leave none of them behind
            self.close()
            raise

    @property
    def names(self) -> tuple[str, ...]:
        """Who is left."""
        return tuple(self._children)

    def send(self, name: str, method: str, *arguments: Any) -> bool:
        """Call a method of one without waiting; False if it is lost over that."""
        try:
            self._children[name].send(method, *arguments)
        except Exception as error:  # what cannot be pickled, or a pipe without an end
            self._lose(name, error)
            return False
        return True

    def receive(self, name: str) -> tuple[bool, Any]:
        """Wait for the answer of one; (False, None) if it is lost over that."""
        try:
            return True, self._children[name].receive()
        except Exception as error:  # whatever the library did to the process
            self._lose(name, error)
            return False, None

    def end(self, name: str) -> None:
        """Let one go."""
        self._children.pop(name).close()

    def close(self) -> None:
        """End all processes."""
        for child in self._children.values():
            child.hang_up()  # first all, so that they end side by side
        while self._children:
            self._children.popitem()[1].close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def _lose(self, name: str, error: Exception) -> None:
        self.end(name)
        self._on_loss(name, error)
