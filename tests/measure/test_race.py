"""The race among backends, with clocks that the test controls."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Sequence

import pytest

from fastdecode.measure import _race as race
from fastdecode.measure._race import Contest


def contest(times: dict[str, Sequence[float] | float | None]) -> tuple[Contest, Counter[str]]:
    """Return a contest whose backends take the given seconds per turn; count the turns."""
    turns: Counter[str] = Counter()

    def time_one(name: str) -> float | None:
        turns[name] += 1
        given = times[name]
        return given[min(turns[name], len(given)) - 1] if isinstance(given, list) else given

    return Contest(list(times), time_one, 0.0), turns


def play(own: Contest, rounds: int) -> None:
    chance = random.Random(0)
    for _ in range(rounds):
        if not own.is_decided():
            own.play(chance)


def rounds_left(count: int) -> Callable[[], float]:
    """Return a clock that runs out after this many calls."""
    left = iter([1.0] * count)
    return lambda: next(left, 0.0)


def test_the_fastest_comes_first() -> None:
    """Speeds are relative to the fastest, in that order."""
    own, _ = contest({"slow": 2.0, "fast": 1.0, "middle": 1.05})

    play(own, 6)

    assert own.speeds() == {"fast": 1.0, "middle": pytest.approx(1 / 1.05), "slow": 0.5}
    assert next(iter(own.speeds())) == "fast"
    assert list(own.speeds()) == ["fast", "middle", "slow"]


def test_slow_ones_drop_out() -> None:
    """Slow backends drop out, and the time goes to those that are close to each other."""
    own, turns = contest({"a": 1.0, "b": 1.01, "far": 3.0, "behind": 1.3})

    play(own, 10)

    assert turns == {"a": 10, "b": 10, "far": 1, "behind": 2}


def test_one_bad_moment_does_not_cost_the_known_best_its_place() -> None:
    """One slow turn does not drop the first of the default order."""
    own, turns = contest({"known": [50.0, 1.0, 1.0, 1.0], "other": 1.2})

    play(own, 4)

    assert turns["known"] >= 3
    assert next(iter(own.speeds())) == "known"


def test_a_small_lead_may_be_chance() -> None:
    """A small lead keeps the default order; with more rounds, the measurement decides."""
    few, _ = contest({"known": 1.03, "new": 1.0})
    many, _ = contest({"known": 1.03, "new": 1.0})

    play(few, 5)
    play(many, 9)

    assert next(iter(few.speeds())) == "known"
    assert next(iter(many.speeds())) == "new"


@pytest.mark.parametrize(
    ("known", "new"),
    [
        ([2.0, 2.0, 2.0], [1.0, 1.0, 1.0]),
        ([1.2, 1.3, 1.25, 1.5, 1.4, 1.6], [1.0, 1.4, 1.1, 1.3, 1.2, 1.5]),
        ([1.1] * 6, [1.0, 1.1, 1.0, 1.2, 1.0, 1.1]),
        ([1.0, 1.3, 1.0, 1.3, 1.0, 1.3, 1.0, 1.3], [1.1] * 8),
    ],
    ids=["few", "spread", "half", "bursts"],
)
def test_a_lead_within_the_spread_is_none(known: list[float], new: list[float]) -> None:
    """A lead must be larger than the spread of a backend's shortest times."""
    own, _ = contest({"known": known, "new": new})

    play(own, len(known))

    assert next(iter(own.speeds())) == "known"


@pytest.mark.parametrize("rounds", [2, 4, 8, 24])
def test_a_busy_machine_changes_no_order_by_chance(rounds: int) -> None:
    """In contests of nearly equal backends under bursts of load, the default order stays."""
    bursts = random.Random(rounds)

    def time_one(name: str) -> float:
        alone = {"known": 1.0, "near": 1.02, "behind": 1.05, "far": 2.0}[name]
        return alone * (1 + bursts.expovariate(1.0) * (bursts.random() < 0.6))

    first = []
    for _ in range(200):
        own = Contest(["known", "near", "behind", "far"], time_one, 0.0)
        play(own, rounds)
        first.append(next(iter(own.speeds())))

    assert first.count("known") >= 196


def test_a_steady_lead_counts_on_a_busy_machine_too() -> None:
    """With enough rounds, the shortest times show which backend is faster."""
    bursts = random.Random(0)

    def time_one(name: str) -> float:
        alone = {"known": 1.15, "new": 1.0}[name]
        return alone * (1 + bursts.expovariate(1.0) * (bursts.random() < 0.5))

    own = Contest(["known", "new"], time_one, 0.0)
    play(own, 24)

    assert list(own.speeds()) == ["new", "known"]
    assert max(own.disturbances()) > 0.1


def test_disturbed_turns_do_not_count() -> None:
    """Disturbed turns do not change the result."""
    own, _ = contest({"a": [1.0, 9.0, 1.0, 9.0, 1.0, 9.0, 1.0, 9.0], "b": 1.05})

    play(own, 8)

    assert own.speeds() == {"a": 1.0, "b": pytest.approx(1 / 1.05)}


def test_who_cannot_decode_is_out() -> None:
    """A backend that refuses the files is not in the result."""
    own, turns = contest({"a": 1.0, "never": None, "b": 1.01})

    play(own, 4)

    assert set(own.speeds()) == {"a", "b"}
    assert turns["never"] == 1


def test_nobody_left() -> None:
    """If all refuse, there is no result."""
    own, _ = contest({"a": None, "b": None})

    play(own, 2)

    assert own.speeds() == {}


def test_something_is_measured_however_short_the_time() -> None:
    """Without time, only the cheapest kind of work has one round."""
    contests = [Contest(["a", "b"], {"a": 1.0, "b": 2.0}.get, cost) for cost in (5.0, 1.0, 9.0)]
    alone = Contest(["a"], {"a": 1.0}.get, 0.1)

    race.run([alone, *contests], lambda: 0.0, lambda: None)

    assert [one.rounds for one in (alone, *contests)] == [0, 0, 1, 0]
    assert contests[1].speeds() == {"a": 1.0, "b": 0.5}


def test_each_is_played_until_something_is_known_of_it() -> None:
    """Each contest has some rounds before the next one: with little time, few are measured well."""
    contests = [contest({"a": 1.0, "b": 1.0}) for _ in range(3)]
    told = []

    race.run([own for own, _ in contests], rounds_left(9), lambda: told.append(1))

    assert [own.rounds for own, _ in contests] == [6, 4, 0]
    assert len(told) == 10


def test_then_all_get_as_many_rounds() -> None:
    """Then the contests take turns until the time is up."""
    contests = [contest({"a": 1.0, "b": 1.0}) for _ in range(3)]

    race.run([own for own, _ in contests], rounds_left(22), lambda: None)

    assert [own.rounds for own, _ in contests] == [8, 8, 7]


def test_what_is_decided_is_not_played_on() -> None:
    """A contest with one backend left takes no more time."""
    own, turns = contest({"a": 1.0, "b": 5.0})

    race.run([own], lambda: 1.0, lambda: None)

    assert turns == {"a": 1, "b": 1}
