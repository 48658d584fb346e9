"""That a run of `gpu.py` ends in time, and that what it has found by then is kept."""

from __future__ import annotations

import dataclasses
import datetime as dt
import importlib.metadata
import json
import traceback
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from time import perf_counter
from typing import Any, TypeVar

from gpu_clock import Clock

from fastdecode import _files
from fastdecode.bench.result import machine

_T = TypeVar("_T")
_LIBRARIES = (
    "torch",
    "torchvision",
    "torchcodec",
    "nvidia-nvimgcodec-cu13",
    "nvidia-nvimgcodec-cu12",
    "nvidia-dali-cuda130",
    "nvidia-dali-cuda120",
    "pillow",
)
_MARGIN = 1.5


class Budget:
    """Minutes that a run may take: no turn is begun that would, by the longest before, end later.

    Parameters
    ----------
    minutes : float
    """

    def __init__(self, minutes: float) -> None:
        self._end = perf_counter() + 60 * minutes
        self._took: dict[str, float] = {}

    def allows(self, what: str) -> bool:
        """Whether there is time for it, once more."""
        return perf_counter() + _MARGIN * self._took.get(what, 0.0) < self._end

    def spend(self, what: str, work: Callable[[], _T]) -> _T:
        """Do it, and remember how long it took at most."""
        start = perf_counter()
        try:
            return work()
        finally:
            self._took[what] = max(self._took.get(what, 0.0), perf_counter() - start)


class Keeper:
    """The file that the results go to. Each part that is measured again replaces the older one.

    Parameters
    ----------
    path : Path or None
        None: nothing is written.
    clock : Clock
    """

    def __init__(self, path: Path | None, clock: Clock) -> None:
        self.path = path
        self._content: dict[str, Any] = {
            "machine": dataclasses.asdict(machine()),
            "device": clock.describe(),
            "libraries": versions(_LIBRARIES),
        }
        self._parts = self._earlier()

    def _earlier(self) -> dict[str, Any]:
        """Return the other parts of the file, if they were measured with the same things."""
        if self.path is None or not self.path.exists():
            return {}
        before = json.loads(self.path.read_text(encoding="utf-8"))
        same = all(before.get(key) == self._content[key] for key in ("device", "libraries"))
        return before["result"] if same else {}

    def part(self, name: str) -> dict[str, Any]:
        """Return a part as it was kept."""
        return self._parts[name]

    def keep(self, part: str, settings: dict[str, Any], found: dict[str, Any]) -> None:
        """Write a part as it stands now: all of the file, or nothing."""
        today = dt.datetime.now(tz=dt.timezone.utc).date().isoformat()
        self._parts[part] = {"measured": today, "settings": settings, **found}
        if self.path is not None:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            content = {**self._content, "result": self._parts}
            _files.write_text(self.path, json.dumps(content, indent=1) + "\n")


def versions(names: Sequence[str]) -> dict[str, str]:
    """Say which of these are installed."""
    found = {}
    for name in names:
        with suppress(importlib.metadata.PackageNotFoundError):
            found[name] = importlib.metadata.version(name)
    return found


def told(error: BaseException) -> str:
    """Return what failed in a line; where it happened is shown, unless a library is missing."""
    if not isinstance(error, ModuleNotFoundError):
        traceback.print_exception(error)
    return f"{type(error).__name__}: {error}".partition("\n")[0]
