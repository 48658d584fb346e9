"""Measuring: every backend on the same files, in rounds, so that drift hits all of them alike."""

from __future__ import annotations

import gc
import random
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

from fastdecode import decode, registry, selection
from fastdecode.bench.check import AUTOMATIC, Check, check, named
from fastdecode.errors import FastDecodeError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from fastdecode.bench.files import Photo
    from fastdecode.types import Format, Reduce

__all__ = ["Group", "Plan", "Round", "measure"]

_BLOCK_FILES = 64
_BLOCK_BYTES = 1 << 20  # a round of one block takes about 10 ms to 100 ms for each backend
_VISITS = 3  # to each file at least: the median of three passes over one interruption
_MIN_SHARE = 0.5  # of the files, read by a backend: one that reads fewer is not compared

Notify = Callable[[str, float], object]
"""Told what is being done, in words, and what share of the whole run is behind."""


@dataclass(frozen=True)
class Plan:
    """What to measure.

    Attributes
    ----------
    backends : tuple of str
        Usable ones, by name; `decode` by itself is always measured too.
    reduces : tuple of {1, 2, 4, 8}
    seconds : float
        Time each backend is measured for at least, at each reduction, in seconds.
    seed : int
        Of the random order.
    """

    backends: tuple[str, ...]
    reduces: tuple[Reduce, ...]
    seconds: float
    seed: int = 0


@dataclass(frozen=True)
class Round:
    """The same files, decoded once by each backend, one backend right after the other.

    Attributes
    ----------
    files : tuple of int
        Indexes into `Group.photos`.
    seconds : Mapping of str to sequence of float
        By backend, the time each of the files took.
    """

    files: tuple[int, ...]
    seconds: Mapping[str, Sequence[float]]


@dataclass
class Group:
    """One format at one reduction: what there was to decode, and how long it took.

    Attributes
    ----------
    format : Format
    reduce : {1, 2, 4, 8}
    photos : sequence of Photo
        All files of the format.
    checks : dict of str to Check
        By backend; `AUTOMATIC` is one of them.
    chosen : str
        What `decode` chooses for most of the files; empty if it reads none.
    compared : tuple of str
        Backends that are timed.
    common : tuple of int
        Files that all of these read, by index: only they are timed.
    rounds : list of Round
        Complete rounds only.
    """

    format: Format
    reduce: Reduce
    photos: Sequence[Photo]
    checks: dict[str, Check]
    chosen: str = ""
    compared: tuple[str, ...] = ()
    common: tuple[int, ...] = ()
    rounds: list[Round] = field(default_factory=list)


def measure(
    photos: Sequence[Photo],
    plan: Plan,
    groups: list[Group],
    notify: Notify = lambda _what, _share: None,
) -> None:
    """Measure every format and reduction.

    Parameters
    ----------
    photos : sequence of Photo
    plan : Plan
    groups : list of Group
        Results are appended as they come, so that what was measured so far is there if this is
        interrupted.
    notify : callable, optional
    """
    formats = Counter(photo.header.format for photo in photos)
    work = [(kind, reduce) for kind, _ in formats.most_common() for reduce in plan.reduces]
    for done, (kind, reduce) in enumerate(work):
        size = "full size" if reduce == 1 else f"1/{reduce} size"

        def step(what: str, share: float, done: int = done, of: str = f"{kind} {size}") -> None:
            notify(f"{what} {of}", (done + share) / len(work))

        own = [photo for photo in photos if photo.header.format == kind]
        readers = [name for name in plan.backends if kind in registry.load(name).supports]
        group = Group(kind, reduce, own, {name: Check() for name in (*readers, AUTOMATIC)})
        groups.append(group)
        _validate(group, step)
        if group.common:
            _time(group, plan, step)


def _validate(group: Group, step: Notify) -> None:
    """Decode everything once, outside the clock: it is the check, and the warm-up."""
    seen = 0

    def tick() -> None:
        nonlocal seen
        seen += 1
        step("checking", 0.3 * seen / len(group.photos))

    step("checking", 0)
    group.chosen = _usual_choice(group)
    check(group.photos, group.reduce, group.checks, tick)
    group.compared, group.common = compared(group.checks)


def compared(checks: Mapping[str, Check]) -> tuple[tuple[str, ...], tuple[int, ...]]:
    """Decide which backends are compared, and on which files.

    Parameters
    ----------
    checks : Mapping of str to Check

    Returns
    -------
    backends : tuple of str
        Those that read at least half of the files that anything reads. One that reads hardly any
        would otherwise leave hardly any to compare the others on.
    files : tuple of int
        Those that all of these backends read.
    """
    readable: set[int] = set().union(*(result.read for result in checks.values()))
    able = tuple(
        name
        for name, result in checks.items()
        if readable and len(result.read) >= _MIN_SHARE * len(readable)
    )
    common = set.intersection(readable, *(checks[name].read for name in able))
    return able, tuple(sorted(common))


def _usual_choice(group: Group) -> str:
    """Name the backend that `decode` tries first for most of the files."""
    choices: Counter[str] = Counter()
    want = selection.Want("RGB", group.reduce, strict=False, complete=True)
    for photo in group.photos:
        try:
            choices[selection.first(None, photo.header, want).name] += 1
        except FastDecodeError:  # nothing reads such a file: `check` notes why
            continue
    return choices.most_common(1)[0][0] if choices else ""


def _time(group: Group, plan: Plan, step: Notify) -> None:
    """Time rounds until every backend was measured long enough and every file often enough."""
    chance = random.Random(plan.seed)
    blocks = _blocks(group, chance)
    smallest = min((group.photos[index].data for index in group.common), key=len)
    calls = {
        name: partial(decode, reduce=group.reduce, backend=named(name)) for name in group.compared
    }
    spent = dict.fromkeys(calls, 0.0)
    needed = _VISITS * len(blocks)
    while len(group.rounds) < needed or min(spent.values()) < plan.seconds:
        block = blocks[len(group.rounds) % len(blocks)]
        data = [group.photos[index].data for index in block]
        times = {}
        for name in chance.sample(group.compared, len(group.compared)):
            times[name] = time_calls(calls[name], data, smallest)
            spent[name] += sum(times[name])
        group.rounds.append(Round(block, times))
        long_enough = min(spent.values()) / plan.seconds if plan.seconds else 1
        share = min(len(group.rounds) / needed, long_enough, 1)
        step("timing", 0.3 + 0.7 * share)


def _blocks(group: Group, chance: random.Random) -> list[tuple[int, ...]]:
    """Cut the files, in random order, into the shares of one round each."""
    blocks: list[list[int]] = []
    room = 0
    for index in chance.sample(group.common, len(group.common)):
        size = len(group.photos[index].data)
        if not blocks or size > room or len(blocks[-1]) == _BLOCK_FILES:
            blocks.append([])
            room = _BLOCK_BYTES
        blocks[-1].append(index)
        room -= size
    return [tuple(block) for block in blocks]


def time_calls(call: Callable[[Any], object], items: Sequence[Any], warm_up: Any) -> list[float]:
    """Time one call for each item.

    Parameters
    ----------
    call : callable
    items : sequence
    warm_up : object
        Given to the call first, unmeasured: the call before it belonged to another backend.

    Returns
    -------
    list of float
        Seconds for each item, garbage collection off.
    """
    clock = time.perf_counter
    times = []
    with _no_garbage_collection():
        call(warm_up)
        for item in items:
            start = clock()
            call(item)
            times.append(clock() - start)
    return times


@contextmanager
def _no_garbage_collection() -> Iterator[None]:
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()
