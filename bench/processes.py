"""What a process and its children use, as Linux accounts for it in ``/proc``."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from typing_extensions import Self

_PROC = Path("/proc")
_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
_PAGE = os.sysconf("SC_PAGE_SIZE")


class Peak(NamedTuple):
    """Memory at its highest, in 10^6 bytes.

    Attributes
    ----------
    rss_mb : float
        Resident, summed over the processes: pages that they share count more than once.
    pss_mb : float
        Shared pages divided among those that share them; 0 if it was not looked at.
    """

    rss_mb: float
    pss_mb: float


def family(pid: int) -> Iterator[int]:
    """Yield a process and all that it has started, which live."""
    yield pid
    for task in (_PROC / str(pid) / "task").glob("*"):
        with suppress(OSError):  # the thread has ended meanwhile
            for child in (task / "children").read_text().split():
                yield from family(int(child))


def cpu_seconds(pid: int) -> float:
    """Return the processor time of a process and its children, dead ones included."""
    ticks = 0
    for member in family(pid):
        with suppress(OSError):
            fields = (_PROC / str(member) / "stat").read_text().rpartition(")")[2].split()
            ticks += sum(int(field) for field in fields[11:15])  # own and waited-for children's
    return ticks / _TICKS_PER_S


class PeakMemory:
    """Watches a process and its children from a thread while a `with` block runs.

    Parameters
    ----------
    pid : int
    every : float
        Seconds between two looks.
    pss : bool
        Also find the proportional size. That takes the kernel milliseconds, and holds up the
        process that is looked at: not while the clock runs.
    """

    def __init__(self, pid: int, every: float = 0.1, *, pss: bool = False) -> None:
        self._pid, self._every, self._with_pss = pid, every, pss
        self._rss = self._pss = 0
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_error: object) -> None:
        self._done.set()
        self._thread.join()

    @property
    def peak(self) -> Peak:
        """What has been seen so far."""
        return Peak(self._rss / 1e6, self._pss / 1e6)

    def _watch(self) -> None:
        while True:
            members = list(family(self._pid))
            self._rss = max(self._rss, sum(map(_rss, members)))
            if self._with_pss:
                self._pss = max(self._pss, sum(map(_pss, members)))
            if self._done.wait(self._every):
                return


def _rss(pid: int) -> int:
    try:
        return int((_PROC / str(pid) / "statm").read_text().split()[1]) * _PAGE
    except OSError:  # it has ended meanwhile
        return 0


def _pss(pid: int) -> int:
    try:
        lines = (_PROC / str(pid) / "smaps_rollup").read_text().splitlines()
    except OSError:
        return 0
    return next(1024 * int(line.split()[1]) for line in lines if line.startswith("Pss:"))
