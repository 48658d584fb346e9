"""Who is fastest, found in as little time as possible: rounds of all, and the slow ones drop out.

The time saved goes to those that are close to each other. (The idea is successive halving: Karnin,
Koren and Somekh, "Almost Optimal Exploration in Multi-Armed Bandits", ICML 2013.)
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterable, Sequence

__all__ = ["Contest", "run"]

# After so many rounds, those are out that take so many times as long as the fastest.
_OUT = ((1, 1.8), (2, 1.25), (3, 1.12), (5, 1.06))
_SAFE_ROUNDS = 3  # that the one known to be best is sure of
# After so many rounds, a smaller lead than this may be chance, and the order known before stands.
_CHANCE = ((1, 0.08), (2, 0.04), (3, 0.03), (5, 0.02), (9, 0.01))
_MOST_ROUNDS = 24


class Contest:
    """One kind of work, and the backends that compete at it.

    Parameters
    ----------
    names : sequence of str
        The order known before, best first.
    time_one : callable
        Given a name, does the work once and returns the seconds; None if it cannot.
    cost : float
        A guess of one turn's seconds: cheap contests go first.
    """

    def __init__(
        self, names: Sequence[str], time_one: Callable[[str], float | None], cost: float
    ) -> None:
        self._known = list(names)
        self.names = list(names)
        self.cost = cost
        self._time_one = time_one
        self.rounds = 0
        self._times: dict[str, list[float]] = {}

    def play(self, chance: random.Random) -> None:
        """Let everyone who is left do the work once, in random order; then drop the slow ones."""
        begun = time.monotonic()
        for name in chance.sample(self.names, len(self.names)):
            seconds = self._time_one(name)
            if seconds is None:
                self.names.remove(name)
                continue
            self._times.setdefault(name, []).append(seconds)
        self.cost = (time.monotonic() - begun) / max(1, len(self.names))
        self.rounds += 1
        speeds = self.speeds()
        allowed = min(factor for rounds, factor in _OUT if self.rounds >= rounds)
        safe = self._known[:1] if self.rounds < _SAFE_ROUNDS else []
        self.names = [n for n in self.names if speeds[n] * allowed >= 1 or n in safe]

    def speeds(self) -> dict[str, float]:
        """Speed of each backend beside the fastest, which has 1.0; in the order of preference.

        Each counts with the lower quartile of its times, of few rounds the shortest: whatever else
        the machine does only ever adds to them. First comes the fastest, or the one known to be
        better before, if what lies between them may be chance.
        """
        times = {name: sorted(found) for name, found in self._times.items()}
        typical = {name: found[len(found) // 4] for name, found in times.items()}
        left = [name for name in self.names if name in typical]
        if not left:
            return {}
        best = min(typical[name] for name in left)
        chance = min(share for rounds, share in _CHANCE if self.rounds >= rounds)
        near = [name for name in left if best / typical[name] >= 1 - chance]
        first = min(near, key=self._known.index)
        order = sorted(typical, key=lambda name: (name != first, name not in left, typical[name]))
        return {name: min(best / typical[name], 1.0) for name in order}

    def is_decided(self) -> bool:
        """Whether there is nobody left to beat."""
        return len(self.names) < 2


def run(
    contests: Iterable[Contest], time_left: Callable[[], float], notify: Callable[[], object]
) -> None:
    """Play until all is decided or the time is up; the cheapest is played once in any case.

    Parameters
    ----------
    contests : iterable of Contest
        They are played in turn, the cheap ones first, so that all get as many rounds.
    time_left : callable
        Seconds.
    notify : callable
        Called after each round.
    """
    chance = random.Random(0)  # noqa: S311 - of the order of turns
    open_ones = [contest for contest in contests if not contest.is_decided()]
    waiting = sorted(open_ones, key=lambda contest: contest.cost)
    for contest in waiting[:1]:  # however short the time: something is known then
        contest.play(chance)
        notify()
    for _ in range(_MOST_ROUNDS):
        for contest in waiting:
            if not contest.is_decided() and time_left() > contest.cost * len(contest.names):
                contest.play(chance)
                notify()
