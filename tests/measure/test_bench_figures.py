"""The benchmark's figures from known times, and how files are divided into blocks."""

from __future__ import annotations

import random
from collections import Counter
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastdecode._system import usable_cores
from fastdecode.errors import DecodeError
from fastdecode.measure import _stats as stats
from fastdecode.measure._check import Check
from fastdecode.measure._collection import Photo
from fastdecode.measure._run import Case, Plan, Round, blocks, cases, counts_up_to_cores
from fastdecode.measure._stats import measurements
from fastdecode.measure._timing import spread
from fastdecode.measure._workers import BlockTimes
from fastdecode.measure.result import AUTOMATIC, Measurement, Spread
from fastdecode.types import Header

PHOTOS = [Photo(name, Path(name), Header("jpeg", 1000, 500), 2_000_000) for name in "ab"]


def group(rounds: list[dict[str, BlockTimes]], protocol: str = "decode", **checks: Check) -> Case:
    """Return the figures of two files of 2 MB and half a megapixel, with these rounds."""
    names = tuple(rounds[0])
    found = {name: checks.get(name, Check(read={0, 1})) for name in names}
    done = [Round((0, 1), one) for one in rounds]
    usual = Measurement(protocol, "jpeg", 1)
    return Case(usual, PHOTOS, found, "quick", names, (0, 1), done)


def calls(*seconds: float, wall: float | None = None) -> BlockTimes:
    """Return the times of a block with these calls."""
    return BlockTimes(seconds, sum(seconds) if wall is None else wall, 0.5, 0.1, 7.0)


def test_spread_of_known_values() -> None:
    """Median and quartiles are interpolated linearly."""
    assert spread([4, 1, 3, 2, 5]) == Spread(3, 2, 4)
    assert spread([1, 2]) == Spread(1.5, 1.25, 1.75)
    assert spread([7]) == Spread(7, 7, 7)


def test_percentiles_of_known_values() -> None:
    """The percentiles of 0 to 200 are the even numbers; without values there are none."""
    assert stats.percentiles(list(range(200, -1, -1))) == pytest.approx(tuple(range(0, 201, 2)))
    assert stats.percentiles([3.0]) == (3.0,) * 101
    assert stats.percentiles([]) == ()


def test_rate_is_over_median_times() -> None:
    """One slow round does not change the rate; it is part of the spread."""
    rounds = [[("a", 0.1), ("b", 0.3)]] * 4 + [[("a", 9.0), ("b", 9.0)]] * 2
    rate = stats.rate(rounds, 2)

    assert rate.median == pytest.approx(2 / 0.4)
    assert rate.high == pytest.approx(2 / 0.4)
    assert rate.low < rate.median


def test_different_blocks_are_no_spread() -> None:
    """Larger files in one block than in another do not increase the spread."""
    rounds = [[("small", 0.1)], [("large", 0.9)]] * 3

    assert stats.rate(rounds, 2) == Spread(*[pytest.approx(2.0)] * 3)


@given(st.lists(st.lists(st.floats(1e-6, 10), min_size=2, max_size=2), min_size=1, max_size=9))
def test_spread_surrounds_the_rate(times: list[list[float]]) -> None:
    """The median always lies between the quartiles."""
    rate = stats.rate([list(zip("ab", one, strict=True)) for one in times], 2)

    assert 0 < rate.low <= rate.median <= rate.high


def test_ratios_are_paired() -> None:
    """A machine that slows down for a while changes no ratio, because rounds are paired."""
    totals = [("block", {"quick": slow, "half": 2 * slow}) for slow in (1, 5, 1, 9)]

    assert stats.fastest(totals, ["half", "quick"]) == "quick"
    assert stats.ratios(totals, "quick") == {
        "quick": Spread(1, 1, 1),
        "half": Spread(0.5, 0.5, 0.5),
    }


def test_one_spoilt_round_changes_no_ratio() -> None:
    """A disturbance of one backend in one round does not change its ratio."""
    totals = [("block", {"quick": slow, "half": 2}) for slow in (1, 9, 1)]

    assert stats.fastest(totals, ["half", "quick"]) == "quick"
    assert stats.ratios(totals, "quick")["half"].median == pytest.approx(0.5)


def test_longer_blocks_count_for_more() -> None:
    """The ratio over blocks of different files is that of the total times."""
    small, large = {"best": 1.0, "other": 1.0}, {"best": 9.0, "other": 19.0}
    totals = [("small", small), ("large", large)] * 3

    assert stats.ratios(totals, "best")["other"] == Spread(*[pytest.approx(10 / 20)] * 3)


def test_spread_of_ratios() -> None:
    """Better and worse rounds make the quartiles of a ratio."""
    totals = [("block", {"best": 1.0, "other": other}) for other in (1.6, 1.8, 2.0, 2.2, 2.4)]

    assert stats.ratios(totals, "best")["other"] == Spread(
        pytest.approx(1 / 2.0), pytest.approx(1 / 2.2), pytest.approx(1 / 1.8)
    )


def test_a_measurement_of_known_times() -> None:
    """Every figure follows from two files of 0.1 s and 0.3 s."""
    rounds = [{"quick": calls(0.1, 0.3), AUTOMATIC: calls(0.2, 0.6)}] * 3
    first, last = measurements(group(rounds))

    assert (first.backend, last.backend, last.chosen) == ("quick", AUTOMATIC, "quick")
    assert first.files == 2
    assert first.images_per_s.median == pytest.approx(5)
    assert first.mb_per_s == pytest.approx(10)
    assert first.megapixels_per_s == pytest.approx(2.5)
    assert first.latency_ms[0] == pytest.approx(100)
    assert first.latency_ms[50] == pytest.approx(200)
    assert first.latency_ms[100] == pytest.approx(300)
    assert first.cpu_s_per_1000 == pytest.approx(250)
    assert first.read_share == pytest.approx(0.25)
    assert first.peak_mb == 7
    assert first.ratio.median == pytest.approx(1)
    assert last.ratio.median == pytest.approx(0.5)


def test_threads_count_by_the_wall_clock() -> None:
    """With threads, the rate uses the wall-clock time of the block."""
    rounds = [{"quick": calls(1.0, 1.0, wall=1.0), AUTOMATIC: calls(1.0, 1.0, wall=2.0)}]
    first, last = measurements(group(rounds, "threads"))

    assert first.images_per_s.median == pytest.approx(2)
    assert last.images_per_s.median == pytest.approx(1)
    assert last.ratio.median == pytest.approx(0.5)


def test_best_has_the_right_pixels() -> None:
    """Ratios are to the fastest backend with right pixels; if there is none, to the fastest."""
    rounds = [{"liar": calls(1, 1), "quick": calls(2, 2), AUTOMATIC: calls(2, 2)}]
    liar = Check({0, 1}, differing={0})

    one_lies = {m.backend: m.ratio.median for m in measurements(group(rounds, liar=liar))}
    both = group(rounds, liar=liar, quick=liar)
    both_lie = {m.backend: m.ratio.median for m in measurements(both)}

    assert one_lies == {"liar": 2, "quick": 1, AUTOMATIC: 1}
    assert both_lie == {"liar": 1, "quick": 0.5, AUTOMATIC: 0.5}


def test_a_backend_that_fails_leaves_the_rounds() -> None:
    """If a backend fails, its earlier times are dropped, and all files count as refused."""
    both = group([{"quick": calls(1, 1), AUTOMATIC: calls(2, 2)}] * 2)
    both.remove("quick", DecodeError("it died"))
    last, failed = sorted(measurements(both), key=lambda one: -one.files)

    assert (last.backend, last.ratio.median) == (AUTOMATIC, 1)
    assert failed.refused == {"a": "it died", "b": "it died"}
    assert failed.files == 0


def test_nothing_timed() -> None:
    """A run that was interrupted before its first round has no figures."""
    [one] = measurements(Case(Measurement("decode", "jpeg", 1), PHOTOS, {"quick": Check()}))

    assert one.files == 0
    assert one.images_per_s == Spread(0, 0, 0)


@pytest.mark.parametrize("protocol", ["decode", "file", "threads", "loader"])
@given(
    sizes=st.lists(st.integers(0, 3_000_000), min_size=1, max_size=300), sharers=st.integers(1, 4)
)
def test_blocks_deal_out_all_files(protocol: str, sizes: list[int], sharers: int) -> None:
    """Every file is in a block, all equally often; threads and workers get enough."""
    usual = Measurement(protocol, "jpeg", 1, threads=sharers)
    dealt = blocks(usual, dict(enumerate(sizes)), random.Random(0))
    counts = Counter(index for block in dealt for index in block)

    assert set(counts) == set(range(len(sizes)))
    assert len(set(counts.values())) == 1
    if protocol in ("threads", "loader"):
        assert min(map(len, dealt)) >= 32 * sharers
    assert blocks(usual, dict(enumerate(sizes)), random.Random(0)) == dealt


def test_cases() -> None:
    """Formats are separate, the most frequent first; other protocols use that one."""
    photos = [*PHOTOS, Photo("c", Path("c"), Header("png", 8, 8), 9)]
    plan = Plan(("x", "y"), (2, 4), 1, ("decode", "threads", "loader", "file"), (1, 2), (2, 9))
    found = cases(plan, photos, {"x": ("jpeg", "png"), "y": ("jpeg",)})

    settings = [case.usual for case in found]

    assert [
        (one.protocol, one.format, one.reduce, one.threads, one.workers) for one in settings
    ] == [
        ("decode", "jpeg", 2, 1, 0),
        ("decode", "jpeg", 4, 1, 0),
        ("decode", "png", 2, 1, 0),
        ("decode", "png", 4, 1, 0),
        ("threads", "jpeg", 2, 1, 0),
        ("threads", "jpeg", 2, 2, 0),
        ("loader", "jpeg", 2, 1, 2),
        ("loader", "jpeg", 2, 1, 9),
        ("file", "jpeg", 2, 1, 0),
    ]
    assert tuple(found[2].checks) == ("x", AUTOMATIC)
    assert [tuple(one.checks) for one in found if one.usual.protocol == "loader"] == [
        ("x", "y", AUTOMATIC),
        (AUTOMATIC,),
    ]


def test_counts_end_with_the_cores() -> None:
    """Counts are powers of two up to the number of cores, and that number."""
    counts = counts_up_to_cores()

    assert counts[0] == 1
    assert counts[-1] == usable_cores()
    assert all(after <= 2 * before for before, after in pairwise(counts))
