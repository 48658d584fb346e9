"""Measurements that belong together: those whose only difference is the backend."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from fastdecode.bench.result import AUTOMATIC

if TYPE_CHECKING:
    from fastdecode.bench.result import Measurement, Protocol, Result

__all__ = ["Group", "by_protocol", "commonest", "groups", "main_group"]

_ORDER: tuple[Protocol, ...] = ("decode", "threads", "loader", "file")


@dataclass(frozen=True)
class Group:
    """The backends at one setting, the fastest first.

    Attributes
    ----------
    members : tuple of Measurement
        Those without figures, which were only checked, come last.
    """

    members: tuple[Measurement, ...]

    @property
    def one(self) -> Measurement:
        """Any of them: it has the settings that all of them have."""
        return self.members[0]

    @property
    def timed(self) -> tuple[Measurement, ...]:
        """Those that have figures."""
        return tuple(one for one in self.members if one.images_per_s.median > 0)

    @property
    def automatic(self) -> Measurement | None:
        """The automatic choice, if it was timed."""
        return next((one for one in self.timed if one.backend == AUTOMATIC), None)

    @property
    def right(self) -> tuple[Measurement, ...]:
        """Backends that were timed and whose pixels agree, without the automatic choice."""
        return tuple(one for one in self.timed if one.backend != AUTOMATIC and not one.differing)


def groups(result: Result) -> list[Group]:
    """Put measurements with the same settings together.

    Returns
    -------
    list of Group
        By protocol, by format (the commonest first), by counts, by reduction.
    """
    found: dict[tuple[object, ...], list[Measurement]] = {}
    for one in result.measurements:
        found.setdefault((*one.key[:3], *one.key[4:]), []).append(one)
    formats = _by_frequency(result)
    ranked = [Group(tuple(sorted(members, key=_speed, reverse=True))) for members in found.values()]
    return sorted(ranked, key=lambda group: _place(group.one, formats))


def by_protocol(every: Iterable[Group]) -> list[list[Group]]:
    """Collect what stands in one table: the same protocol, format, output and size."""
    found: dict[tuple[object, ...], list[Group]] = {}
    for group in every:
        one = group.one
        found.setdefault((one.protocol, one.format, one.output, one.size), []).append(group)
    return list(found.values())


def commonest(result: Result) -> str:
    """Return the format that most files have; of the files that were measured."""
    measured = {one.format for one in result.measurements}
    return next((name for name in _by_frequency(result) if name in measured), "")


def main_group(every: Sequence[Group], format: str) -> Group | None:
    """Return the group that speaks for the run: one thread, from memory, as large as was asked.

    What was not measured is replaced by what comes nearest: files, then threads, then workers.
    """
    own = [group for group in every if group.one.format == format and group.right]
    for wanted in ("decode", "file", "threads", "loader"):
        candidates = [group for group in own if group.one.protocol == wanted]
        if candidates:
            return min(candidates, key=lambda group: group.one.reduce)
    return None


def _by_frequency(result: Result) -> list[str]:
    formats = result.collection.formats
    others = (one.format for one in result.measurements)
    return list(dict.fromkeys([*sorted(formats, key=lambda name: -formats[name]), *others]))


def _speed(one: Measurement) -> tuple[float, float]:
    return one.ratio.median if one.images_per_s.median else -1.0, one.images_per_s.median


def _place(one: Measurement, formats: Sequence[str]) -> tuple[object, ...]:
    protocol = _ORDER.index(one.protocol)
    return protocol, formats.index(one.format), one.threads, one.workers, one.reduce, one.key[6:]
