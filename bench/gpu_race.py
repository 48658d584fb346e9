"""Letting several ways of doing the same thing take turns: for `gpu.py`."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping
from statistics import median
from typing import Any

from gpu_budget import Budget, told

_Turns = dict[str, dict[int, Any]]


def race(
    lanes: Mapping[str, Callable[[], Any]],
    rounds: int,
    budget: Budget,
    left_out: dict[str, str],
) -> Iterator[_Turns]:
    """Let lanes take turns, in an order drawn anew in each round.

    Parameters
    ----------
    lanes : mapping of str to callable
        Each does its work once and returns what it measured. In the first round, which is the
        warm-up and does not count, they come in the order of the mapping.
    rounds : int
        After the warm-up.
    budget : Budget
    left_out : dict of str to str
        Gets the names of those that failed, or had no time left, and why.

    Yields
    ------
    dict
        After each round, by name and number of the round, what was measured so far; in the order
        of the mapping.
    """
    turns: _Turns = {}
    running = list(lanes)
    for number in range(rounds + 1):
        order = random.sample(running, len(running)) if number else list(running)
        for name in order:
            if not budget.allows(name):
                left_out.setdefault(name, f"no time was left for round {number}")
                running.remove(name)
                continue
            try:
                one = budget.spend(name, lanes[name])
            except Exception as error:  # its library is not there, or fails: the others go on
                left_out[name] = told(error)
                running.remove(name)
                continue
            if number:
                turns.setdefault(name, {})[number] = one
        yield {name: turns[name] for name in lanes if name in turns}


def ratio(own: Mapping[int, float], base: Mapping[int, float]) -> float | None:
    """Return the median of the ratios within a round; None if they share none."""
    shared = [own[number] / base[number] for number in own if base.get(number)]
    return round(median(shared), 3) if shared else None


def middle(values: Mapping[int, float], digits: int = 3) -> float:
    """Return the median over the rounds."""
    return round(median(values.values()), digits)
