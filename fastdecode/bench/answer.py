"""The answer in words: which backend, how many threads or workers, and what the bottleneck is."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from fastdecode.bench import on_device_words
from fastdecode.bench.groups import Group, commonest, groups, main_group
from fastdecode.bench.result import AUTOMATIC
from fastdecode.bench.words import count, number, percent, series, size

if TYPE_CHECKING:
    from fastdecode.bench.result import Measurement, Result

__all__ = ["enough", "sentences"]

_NEAR = 0.97  # of the best: closer than what repeated runs differ by
_ENOUGH = 0.95  # of the best count: more threads or workers are not worth it
_HARDLY = 0.1  # of the time: reading less than this is not worth a word about both
_BY = {
    "file": " with reading",
    "threads": " in a pool of threads",
    "loader": " in a DataLoader",
}


def sentences(result: Result) -> tuple[str, ...]:
    """Say in plain words what was found; what was not measured is passed over.

    Parameters
    ----------
    result : Result

    Returns
    -------
    tuple of str
        The fastest backend and the choice of `decode`; how many threads and workers are enough;
        who should decode for a device; what the bottleneck is; and, only if there are any, the
        backends whose pixels are wrong.
    """
    every = groups(result)
    kind = commonest(result)
    group = main_group(every, kind)
    found = [_fastest(group, several=len(_formats(every)) > 1)] if group else []
    found += _only_automatic(every, kind) if group is None else []
    found += _counts([one for one in every if one.one.format == kind])
    found += on_device_words.answer(result)
    found += _bottleneck([one for one in every if one.one.protocol == "file"])
    wrong = list(dict.fromkeys(one.backend for one in result.measurements if one.differing))
    if wrong:
        found.append(f"The pixels DIFFER from the reference: {', '.join(wrong)}.")
    return tuple(found) or ("Nothing was measured.",)


def enough(speeds: dict[int, float]) -> int:
    """Return the smallest count whose speed is within 5 % of the best.

    Parameters
    ----------
    speeds : dict of int to float
        Images a second by count of threads or workers; not empty.
    """
    best = max(speeds.values())
    return min(number for number, speed in speeds.items() if speed >= _ENOUGH * best)


def _formats(every: Sequence[Group]) -> set[str]:
    return {group.one.format for group in every if group.timed}


def _what(group: Group, *, several: bool) -> str:
    kind = f"for {group.one.format.upper()} " if several else ""
    return f"{kind}at {size(group.one.reduce)}{_BY.get(group.one.protocol, '')}"


def _fastest(group: Group, *, several: bool) -> str:
    best = group.right[0]
    speed = f"{number(best.images_per_s.median)} images/s"
    near = [one.backend for one in group.right[1:] if _share(one, best) >= _NEAR]
    if near:
        speed += f"; {series(near)} within 3%"
    text = f"Fastest here {_what(group, several=several)}: {best.backend} ({speed})"
    automatic = group.automatic
    if automatic is None:
        return f"{text}."
    chosen = "it too" if automatic.chosen == best.backend else automatic.chosen or "nothing"
    share = _share(automatic, best)
    # More than the fastest is noise: the automatic choice has only more to do.
    close = f"at {percent(share)} of that speed" if share < 0.995 else "just as fast"
    return f"{text}; decode() chooses {chosen}, {close}."


def _share(one: Measurement, best: Measurement) -> float:
    """Divide speeds by way of the ratios, which are paired within blocks."""
    return one.ratio.median / best.ratio.median if best.ratio.median else 0.0


def _only_automatic(every: Sequence[Group], kind: str) -> list[str]:
    """Give the speed of `decode` where no backend has one that it could be compared with."""
    for group in every:
        if group.automatic and group.one.format == kind:
            speed = number(group.automatic.images_per_s.median)
            what = _what(group, several=len(_formats(every)) > 1)
            return [f"Only decode() could be measured {what}: {speed} images/s."]
    return []


def _counts(every: Sequence[Group]) -> list[str]:
    """Say in one sentence how many threads, and how many workers, are enough."""
    said = []
    for protocol, noun in (("threads", "thread"), ("loader", "DataLoader worker")):
        own = [group for group in every if group.one.protocol == protocol]
        reduce = min((group.one.reduce for group in own), default=1)
        speeds = _by_count([group for group in own if group.one.reduce == reduce])
        if len(speeds) > 1:
            said.append(_count(speeds, noun))
    text = "; ".join(said)
    return [f"{text[0].upper()}{text[1:]}."] if text else []


def _by_count(every: Sequence[Group]) -> dict[int, float]:
    """Return the speeds of `decode`, else of the fastest backend that has several counts."""
    by_backend: dict[str, dict[int, float]] = {}
    for group in every:
        for one in (*group.right, *([group.automatic] if group.automatic else [])):
            by_backend.setdefault(one.backend, {})[_workers(one)] = one.images_per_s.median
    scaled = {name: speeds for name, speeds in by_backend.items() if len(speeds) > 1}
    if AUTOMATIC in scaled:
        return scaled[AUTOMATIC]
    return max(scaled.values(), key=lambda speeds: max(speeds.values()), default={})


def _workers(one: Measurement) -> int:
    return one.workers if one.protocol == "loader" else one.threads


def _count(speeds: dict[int, float], noun: str) -> str:
    least = enough(speeds)
    speed = f"{number(speeds[least])} images/s"
    if least == max(speeds):
        return f"{count(least, noun)}, the most that were tried, are the fastest ({speed})"
    verb = "is" if least == 1 else "are"
    return f"{count(least, noun)} {verb} enough ({speed}, within 5% of the best)"


def _bottleneck(every: Sequence[Group]) -> list[str]:
    shares = [
        (group.automatic or group.right[0]).read_share
        for group in every[:1]
        if group.automatic or group.right
    ]
    if not shares:
        return []
    share = shares[0]
    # Every file is read several times, so that the system holds it after the first.
    reading = f"Reading the files, from the system's cache, takes {percent(share)} of the time"
    if share >= 0.5:
        return [f"{reading}: reading is the bottleneck, not decoding."]
    clear = "" if share < _HARDLY else ", though reading counts"
    return [f"{reading}: decoding is the bottleneck{clear}."]
