"""Which cases of the tests a run tries: every one with `--all`, otherwise some, drawn by a seed.

By default a parametrised test runs for a few values of each of its parameters, those that the seed
draws, and hypothesis tries fewer examples. So each run of the default tries others.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Sequence
from typing import Any, TypeVar

FEW = 12
"""Of each parameter of a test, the default run tries so many values."""
_FEWER = 8  # times fewer examples of hypothesis
_LEAST = 10  # examples

_Value = TypeVar("_Value")


class Run:
    """What this run of the tests was asked for; `conftest.py` sets it before it imports any."""

    every = True
    seed = 0


def some(values: Sequence[_Value], few: int = FEW) -> list[_Value]:
    """Return so many of the values, in their order; all of them with `--all`."""
    if Run.every or len(values) <= few:
        return list(values)
    drawn = random.Random(Run.seed).sample(range(len(values)), few)
    return [values[place] for place in sorted(drawn)]


def examples(count: int) -> int:
    """Return how many examples hypothesis is to try: `count` of them with `--all`."""
    return count if Run.every else min(count, max(_LEAST, count // _FEWER))


def chosen(items: Sequence[Any]) -> set[Any]:
    """Return the tests that the default run is to try, of all that pytest has collected."""
    cases: defaultdict[str, list[Any]] = defaultdict(list)
    for item in items:
        if item.get_closest_marker("thorough"):
            continue
        cases[item.nodeid.partition("[")[0]].append(item)
    return {item for name, of_one in cases.items() for item in _covering(name, of_one)}


def _covering(name: str, cases: list[Any]) -> list[Any]:
    """Return cases of one test that have each of its parameters' values, or `FEW` of those."""
    order = random.Random(f"{Run.seed} {name}").sample(cases, len(cases))
    tried: defaultdict[str, set[int]] = defaultdict(set)
    kept = []
    for case in order:
        values = case.callspec.indices if hasattr(case, "callspec") else {}
        fresh = [key for key, value in values.items() if value not in tried[key]]
        if not values or any(len(tried[key]) < FEW for key in fresh):
            kept.append(case)
            for key, value in values.items():
                tried[key].add(value)
    return kept
