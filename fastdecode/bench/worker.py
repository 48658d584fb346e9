"""What runs in the processes that measure; `fastdecode.child.Child` makes one of these in each."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

from fastdecode.bench import check
from fastdecode.bench.protocols import Decode, File, Threads, Timed
from fastdecode.bench.result import AUTOMATIC
from fastdecode.bench.work import Work
from fastdecode.errors import StoreError

if TYPE_CHECKING:
    from fastdecode.bench.check import Finding
    from fastdecode.bench.loader import Loader
    from fastdecode.bench.work import Setup

__all__ = ["Reference", "Worker"]


class Reference:
    """Decodes for comparison.

    Parameters
    ----------
    setup : Setup
    """

    def __init__(self, setup: Setup) -> None:
        self._work = Work(setup)

    def digest(self, index: int) -> bytes | None:
        """Return what the right pixels of a file come to; None if there are none."""
        try:
            data = self._work.load(index)
        except (OSError, StoreError):  # the backends say so of this file
            return None
        return check.reference_digest(data, self._work.setup.reduce)


class Worker:
    """One configuration.

    Parameters
    ----------
    setup : Setup

    Raises
    ------
    ImportError
        If it needs PyTorch, and that cannot be imported.
    """

    def __init__(self, setup: Setup) -> None:
        self._setup = setup
        self._protocol = _protocol(setup)

    def examine(self, index: int, right: bytes | None) -> Finding:
        """Decode a file and compare its pixels."""
        return check.examine(
            self._setup.photos[index], self._setup.reduce, self._setup.backend, right
        )

    def warm_up(self, block: Sequence[int]) -> str:
        """Do a block whose time does not count.

        Returns
        -------
        str
            What the automatic choice tries first for most of the images; empty for others.
        """
        self._protocol.time(block)
        if self._setup.backend != AUTOMATIC:
            return ""
        choices = Counter(filter(None, self._protocol.choices(range(len(self._setup.photos)))))
        return choices.most_common(1)[0][0] if choices else ""

    def time(self, block: Sequence[int]) -> Timed:
        """Time a block."""
        return self._protocol.time(block)


def _protocol(setup: Setup) -> Decode | Threads | Loader:
    work = Work(setup)
    if setup.protocol == "threads":
        return Threads(work)
    if setup.protocol == "file":
        return File(work)
    if setup.protocol == "loader":
        from fastdecode.bench.loader import Loader  # only here: PyTorch takes a second

        return Loader(work)
    return Decode(work)
