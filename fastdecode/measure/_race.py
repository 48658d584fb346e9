"""Find the fastest backend in little time: time all in rounds, and drop the slow ones early.

The time that is saved goes to backends that are close to each other. (The idea is successive
halving: Karnin, Koren and Somekh, "Almost Optimal Exploration in Multi-Armed Bandits", ICML 2013.)

Other work on the machine only ever adds to a time, so the shortest times are compared, separately
for even and odd rounds. A lead counts only if both show it, and if it is larger than the spread of
the shortest times of a single backend. Otherwise the default order stays.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterable, Sequence
from statistics import median

from fastdecode.ranking import move_faster_forward

# (rounds, factor): drop a backend after so many rounds if it is slower than the fastest by this.
_DROP_AFTER = ((1, 1.8), (2, 1.25))
_SAFE_ROUNDS = 4  # rounds before the first of the default order may be dropped
# (rounds, lead): after so many rounds of two backends, a smaller lead may be chance. With fewer
# rounds, any lead may be.
_MIN_LEAD = ((4, 0.1), (5, 0.06), (6, 0.04), (8, 0.02))
_SPREAD_TIMES = 4  # the spread of so many shortest times must be smaller than the lead
_FIRST_ROUNDS = 6  # of one contest before the next one begins: fewer say little
_MAX_ROUNDS = 24


class Contest:
    """One kind of work, and the backends that compete at it, in the default order.

    `time_one` does the work once with the named backend, and returns the seconds, or None if the
    backend cannot do it. `cost` is an estimate of these seconds: cheap contests go first.
    """

    def __init__(
        self, names: Sequence[str], time_one: Callable[[str], float | None], cost: float
    ) -> None:
        self._known = list(names)
        self.names = list(names)
        self.cost = cost
        self._time_one = time_one
        self.rounds = 0
        self._times: dict[str, dict[int, float]] = {}

    def play(self, chance: random.Random) -> None:
        """Time each remaining backend once, in random order; then drop the slow ones."""
        begun = time.monotonic()
        for name in chance.sample(self.names, len(self.names)):
            seconds = self._time_one(name)
            if seconds is None:
                self.names.remove(name)
                continue
            self._times.setdefault(name, {})[self.rounds] = seconds
        self.cost = (time.monotonic() - begun) / max(1, len(self.names))
        self.rounds += 1
        self.names = [name for name in self.names if not self._is_dropped(name)]

    def speeds(self) -> dict[str, float]:
        """Return speeds relative to the fastest, which is 1.0, in the order of preference.

        The shortest time of each counts. The order is the default one, except that clearly faster
        backends move forward; so it need not be the order of the speeds.
        """
        shortest = self._shortest()
        order = move_faster_forward([name for name in self._known if name in shortest], self._beats)
        return {name: min(shortest.values()) / shortest[name] for name in order}

    def disturbances(self) -> list[float]:
        """Return by what share the median time of each backend exceeds its shortest."""
        times = [list(found.values()) for found in self._times.values()]
        return [median(own) / min(own) - 1 for own in times if len(own) > 1]

    def _shortest(self) -> dict[str, float]:
        return {name: min(found.values()) for name, found in self._times.items()}

    def _is_dropped(self, name: str) -> bool:
        if name == self._known[0] and self.rounds < _SAFE_ROUNDS:
            return False
        shortest = self._shortest()
        allowed = min(factor for rounds, factor in _DROP_AFTER if self.rounds >= rounds)
        far = shortest[name] > allowed * min(shortest[each] for each in self.names)
        return far or any(self._beats(other, name) for other in self.names if other != name)

    def _beats(self, one: str, other: str) -> bool:
        """Return whether one is clearly faster than another."""
        both = sorted(self._times[one].keys() & self._times[other].keys())
        if len(both) < _MIN_LEAD[0][0]:
            return False
        own, its = ([self._times[name][number] for number in both] for name in (one, other))
        lead = min(min(its[half::2]) / min(own[half::2]) for half in (0, 1)) - 1
        chance = min(share for rounds, share in _MIN_LEAD if len(both) >= rounds)
        return lead > max(chance, _spread(own), _spread(its))

    def is_decided(self) -> bool:
        """Return whether fewer than two backends are left."""
        return len(self.names) < 2


def _spread(times: Sequence[float]) -> float:
    """Return by what share the shortest times of one backend differ."""
    shortest = sorted(times)[:_SPREAD_TIMES]
    return shortest[-1] / shortest[0] - 1


def run(
    contests: Iterable[Contest], time_left: Callable[[], float], notify: Callable[[], object]
) -> None:
    """Play contests until all are decided or the time is up; play the cheapest at least once.

    First each contest gets some rounds, the cheap ones first; then they take turns.
    """
    chance = random.Random(0)
    open_ones = [contest for contest in contests if not contest.is_decided()]
    waiting = sorted(open_ones, key=lambda contest: contest.cost)
    for contest in waiting[:1]:  # even without time, so that there is a result
        contest.play(chance)
        notify()
    for most in (_FIRST_ROUNDS, *range(_FIRST_ROUNDS + 1, _MAX_ROUNDS + 1)):
        for contest in waiting:
            while (
                contest.rounds < most
                and not contest.is_decided()
                and time_left() > contest.cost * len(contest.names)
            ):
                contest.play(chance)
                notify()
