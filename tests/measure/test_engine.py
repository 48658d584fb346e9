"""The engine with real backends on a few small images, and its figures from known times."""

from __future__ import annotations

import importlib.util
import os
import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from benches import make_photos, photo
from corpus import usable_backends
from doubles import restore_registry
from hypothesis import given
from hypothesis import strategies as st
from same import assert_same

from fastdecode import decode, probe, register
from fastdecode._backends.registry import describe
from fastdecode._system.processor import usable_cores
from fastdecode.measure import _processes, _run
from fastdecode.measure import _run as stats
from fastdecode.measure._collection import collect
from fastdecode.measure._processes import BlockTimes, Examination, examine
from fastdecode.measure._report import movement
from fastdecode.measure._run import (
    Case,
    Round,
    Run,
    RunPlan,
    blocks,
    comparable_files,
    measure,
    measurements,
)
from fastdecode.measure.result import NOTHING, OWN, PILLOW, Measurement, Protocol, Spread
from fastdecode.stores import create_store
from fastdecode.types import Header, Reduce

JPEG = tuple(name for name in ("pillow", "native", "simplejpeg") if name in usable_backends())
PHOTOS: list[Any] = [
    SimpleNamespace(name=name, header=Header("jpeg", 1000, 500), size=2_000_000) for name in "ab"
]
READ, REFUSED = Examination(), Examination(refused="it is damaged")
TORCH = importlib.util.find_spec("torch") is not None


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> tuple[Run, list[float]]:
    """Measure JPEGs, one of them truncated, and a PNG; return the run, and what was done when."""
    folder = make_photos(tmp_path_factory.mktemp("everything"))
    (folder / "a.png").write_bytes(photo(kind="PNG"))
    (folder / "half.jpg").write_bytes(photo(400, 300)[:2000])
    run, done = Run(), list[float]()
    plan = RunPlan(JPEG, (1, 4), every_format=True, seconds=0)
    measure(collect([folder]).photos, plan, run, lambda _, share, total: done.append(share / total))
    return run, done


def test_every_backend_decodes_every_file(found: tuple[Run, list[float]]) -> None:
    """Each case times the backends that read the format, on the files that all of them read."""
    run, done = found

    assert [(one.task.format, one.task.reduce) for one in run.cases] == [
        ("jpeg", 1),
        ("jpeg", 4),
        ("png", 1),
    ]
    assert {one.backend for one in measurements(run.cases[0])} == {*JPEG, OWN}
    assert {one.backend for one in measurements(run.cases[2])} == {*JPEG, OWN} - {"simplejpeg"}
    for case in run.cases:
        visits = Counter(index for one in case.rounds for index in one.block)
        assert min(visits.values()) >= 3
        assert set(visits) == set(case.common)
        assert {frozenset(one.times) for one in case.rounds} == {frozenset(case.compared)}
    assert list(run.infos) == list(JPEG)
    assert run.notes == []
    assert done == sorted(done)
    assert done[-1] == pytest.approx(1)


def test_all_figures_are_there(found: tuple[Run, list[float]]) -> None:
    """Every figure of a configuration is measured, and possible; damaged files are named."""
    for one in found[0].measurements():
        assert one.files == (3 if one.format == "jpeg" else 1)
        assert 0 < one.images_per_s.low <= one.images_per_s.median <= one.images_per_s.high
        assert 0 < one.ratio.low <= one.ratio.median <= one.ratio.high
        assert one.cpu_s_per_1000 > 0
        assert list(one.refused) == (["half.jpg"] if one.format == "jpeg" else [])
        assert not one.differing
        assert bool(one.chosen) == (one.backend == OWN)
        assert one.ratio.median == 1 or one.backend != PILLOW


@pytest.mark.thorough
@pytest.mark.skipif(not TORCH, reason="batches are PyTorch's")
def test_training_batches(tmp_path: Path) -> None:
    """Every installed pipeline makes whole epochs of the files that all decoders read."""
    folder = make_photos(tmp_path)
    (folder / "half.jpg").write_bytes(photo(400, 300)[:2000])
    run = Run()
    plan = RunPlan((PILLOW,), pipelines=(OWN, "pillow", "device"), seconds=0)
    measure(collect([folder]).photos, plan, run)
    trained = {one.backend: one for one in run.measurements() if one.protocol == "train"}

    assert {OWN, "pillow"} <= set(trained)
    why_not = "Not measured: fastdecode on the GPU: "
    assert ("device" in trained) != any(why_not in one for one in run.notes)
    for one in trained.values():
        assert (one.files, one.workers, one.batch) == (3, usable_cores(), 64)
        assert one.images_per_s.median > 0
        assert list(one.refused) == ["half.jpg"]


def test_a_store_is_measured(tmp_path: Path) -> None:
    """Items of a store are decoded and trained on."""
    with create_store(tmp_path / "train.tar") as writer:
        for number in range(3):
            writer.add(f"{number}.jpg", photo(40 + number), number)
    run = Run()
    plan = RunPlan((PILLOW,), pipelines=(OWN,) if TORCH else (), seconds=0, visits=1)
    measure(collect([tmp_path / "train.tar"]).photos, plan, run)
    timed = {(one.protocol, one.backend): one.files for one in run.measurements()}

    trained = {("train", OWN): 3} if TORCH else {}
    assert timed == {("decode", PILLOW): 3, ("decode", OWN): 3, **trained}
    assert run.notes == []


def test_one_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What one file comes to: the same pixels, others by a level, averaged, or a reason."""
    restore_registry(monkeypatch)
    for name in ("swapped", "broken", "averaging"):
        register(name, f"doubles:{name.title()}")
    register("near", "measured_doubles:Near")
    (tmp_path / "a.jpg").write_bytes(photo())
    [one] = collect([tmp_path]).photos

    assert examine(one, 1, PILLOW) == Examination(chosen=PILLOW)
    assert examine(one, 1, "swapped").differs
    assert examine(one, 1, "near") == Examination(chosen="near", differs=True)
    averaged = examine(one, 2, "averaging")
    assert (averaged.averaged, averaged.differs) == (True, False)
    assert "ValueError: out of order" in examine(one, 1, "broken").refused
    (tmp_path / "a.jpg").unlink()
    assert "FileNotFoundError" in examine(one, 1, PILLOW).refused


def test_common_files() -> None:
    """All are compared on the files that all read; one that reads hardly any is left out."""
    checks = {
        "most": {0: READ, 1: READ, 2: READ, 3: REFUSED},
        "all": dict.fromkeys(range(4), READ),
        "few": {0: REFUSED, 3: READ},
    }

    assert comparable_files(checks) == (("most", "all"), (0, 1, 2))
    assert comparable_files({"none": {}}) == ((), ())


@pytest.mark.parametrize("protocol", ["decode", "train"])
@given(sizes=st.lists(st.integers(0, 3_000_000), min_size=1, max_size=300))
def test_blocks_deal_out_all_files(protocol: str, sizes: list[int]) -> None:
    """Every file is in a block; an epoch is one block of whole batches, enough for each worker."""
    task = Measurement(protocol, "jpeg", 1, workers=2, batch=16)
    dealt = blocks(task, dict(enumerate(sizes)), random.Random(0))
    counts = Counter(index for block in dealt for index in block)

    assert set(counts) == set(range(len(sizes)))
    assert blocks(task, dict(enumerate(sizes)), random.Random(0)) == dealt
    if protocol == "train":
        assert len(dealt) == 1
        assert len(dealt[0]) % 16 == 0
        assert len(dealt[0]) >= 3 * 2 * 16
    elif len(sizes) >= 8:
        assert set(counts.values()) == {1}


def case(rounds: list[dict[str, float]]) -> Case:
    """Return a case of two files with rounds that took so many seconds, half of them busy."""
    names = tuple(rounds[0]) if rounds else (PILLOW,)
    checks = {name: {0: Examination(chosen="quick"), 1: READ} for name in names}
    done = [
        Round((0, 1), {name: BlockTimes(wall, wall / 2) for name, wall in one.items()})
        for one in rounds
    ]
    return Case(Measurement("decode", "jpeg", 1), PHOTOS, checks, names, (0, 1), done)


def test_a_measurement_of_known_times() -> None:
    """Every figure follows from two files in 0.4 s; ratios are to Pillow."""
    first, last = measurements(case([{PILLOW: 0.8, "quick": 0.4}] * 3))

    assert (first.backend, last.backend) == ("quick", PILLOW)
    assert first.files == 2
    assert first.images_per_s.median == pytest.approx(5)
    assert first.cpu_s_per_1000 == pytest.approx(100)
    assert (first.ratio.median, last.ratio.median) == (pytest.approx(2), 1)


def test_rate_is_over_median_times() -> None:
    """One slow round, or a block of larger files, does not change the rate; drift is its spread."""
    rounds = [("block", 0.4)] * 4 + [("block", 18.0)] * 2
    rate = stats.rate(rounds, 2)

    assert rate.median == rate.high == pytest.approx(2 / 0.4)
    assert rate.low < rate.median
    apart = stats.rate([("small", 0.1), ("large", 0.9)] * 3, 2)
    assert apart == Spread(*[pytest.approx(2.0)] * 3)


def test_a_spread_covers_what_differs_between_processes() -> None:
    """Only what lies apart between nine parts of the run counts, and that in full."""
    rounds = [("block", 1 / 482)] * 9 + [("block", 1 / 433)] * 2
    found, times = stats.rate(rounds, 1), stats.ratio(rounds, [("block", 1 / 100)] * 11)

    assert (found.low, found.median, found.high) == pytest.approx((433, 482, 482))
    assert (times.low, times.median) == pytest.approx((4.33, 4.82))
    alike = [("block", seconds) for seconds in (1.0, 1.0, 1.3)]
    assert stats.rate(alike * 9, 1) == Spread(1, 1, 1)
    assert movement(stats.rate(alike, 1)) == pytest.approx(1 - 1 / 1.3)


@pytest.mark.parametrize(
    ("protocol", "seconds", "began"),
    [("decode", 12, [0, 4, 8]), ("train", 12, [0]), ("decode", 0, [0, 1, 2])],
)
def test_decoders_are_timed_in_three_processes_for_as_long_each(
    protocol: Protocol, seconds: float, began: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """However often a block comes, each process has as many rounds, and each file its visits."""
    one = replace(case([]), task=Measurement(protocol, "jpeg", 1, workers=1, batch=2))
    new: list[int] = []

    class Steady:
        """In place of processes: each block takes a second."""

        def __init__(self, *_: object) -> None:
            new.append(len(one.rounds))

        def ask(self, names: Sequence[str], *_: object) -> dict[str, BlockTimes]:
            return dict.fromkeys(names, BlockTimes(1.0, 0.5))

        def close(self) -> None:
            pass

    monkeypatch.setattr(_run, "Processes", Steady)
    monkeypatch.setattr(_run, "_PROCESSES", 3)
    engine = _run._Engine(PHOTOS, RunPlan(seconds=seconds), Run(), lambda *_: None)
    engine._time(one, "", {PILLOW: ()})

    assert new == began
    assert len(one.rounds) == (seconds or 3)


def test_ratios_divide_and_are_paired() -> None:
    """The ratio is the quotient of the rates; a slower while of the machine adds nothing."""
    own = [
        (part, slow * size) for slow in (1.0, 5.0, 1.0, 9.0) for part, size in (("a", 1), ("b", 9))
    ]
    half = [(part, 2 * seconds) for part, seconds in own]

    assert stats.ratio(half, own) == Spread(*[pytest.approx(0.5)] * 3)
    spoilt = [*half[:6], ("a", 99.0), ("b", 999.0)]
    found = stats.ratio(spoilt, own)
    assert found.median == pytest.approx(stats.rate(spoilt, 2).median / stats.rate(own, 2).median)
    assert found.low < found.median <= found.high


@given(st.lists(st.tuples(st.sampled_from("ab"), st.floats(1e-6, 10)), min_size=1, max_size=9))
def test_spread_surrounds_the_median(rounds: list[tuple[str, float]]) -> None:
    """The median always lies within the spread."""
    reversed_times = [
        (part, took) for (part, _), (_, took) in zip(rounds, rounds[::-1], strict=True)
    ]
    for found in (stats.rate(rounds, 2), stats.ratio(rounds, reversed_times)):
        assert 0 < found.low <= found.median <= found.high


def test_a_backend_that_fails_leaves_the_rounds() -> None:
    """If a backend fails, its earlier times are dropped, and all files count as refused."""
    both = case([{"quick": 2.0, OWN: 4.0}] * 2)
    both.checks["quick"][0] = REFUSED
    both.remove("quick", "it died")
    last, failed = measurements(both)

    assert (last.backend, last.ratio.median, last.chosen) == (OWN, 1, "quick")
    assert failed.refused == {"a": REFUSED.refused, "b": "it died"}
    assert failed.images_per_s == NOTHING


def test_processor_time_of_a_family(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The processor time of a process includes its children; without /proc it is unknown."""
    if not Path("/proc/self/stat").exists():
        pytest.skip("the system has no /proc")
    assert _processes.cpu_seconds(os.getpid()) > 0
    monkeypatch.setattr(_processes, "_PROC", tmp_path)
    assert _processes.cpu_seconds(1) == 0


@pytest.mark.parametrize("name", JPEG)
def test_a_library_is_timed_alone(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without what `decode` does more, unless it refuses a file that `decode` repairs."""
    cut, whole = tmp_path / "cut.jpg", tmp_path / "whole.jpg"
    whole.write_bytes(photo(64, 48))
    cut.write_bytes(photo(64, 48)[:-2])  # without an end marker
    files = collect([whole, cut]).photos
    decoded: list[bytes] = []

    def noted(data: bytes, reduce: Reduce, *, backend: str | None = None) -> object:
        decoded.append(data)
        return decode(data, reduce, backend=backend)

    monkeypatch.setattr(_processes, "decode", noted)
    _processes.Decoder({}, files, name).time([0, 1], 1)
    assert whole.read_bytes() not in decoded
    if name == PILLOW:
        assert set(decoded) == {cut.read_bytes()}
    _processes.Decoder({}, files, OWN).time([1], 1)
    assert whole.read_bytes() in decoded


@pytest.mark.parametrize("reduce", [1, 2, 4, 8])
@pytest.mark.parametrize("kind", ["JPEG", "PNG"])
@pytest.mark.parametrize("name", usable_backends())
def test_a_library_alone_does_the_same_work(name: str, kind: str, reduce: Reduce) -> None:
    """It gives the pixels that are checked, also where the package reduces or converts them."""
    data = photo(643, 427, kind)
    header = probe(data)
    if header.format not in describe(name).formats:
        pytest.skip("another format")
    alone = _processes.decode_alone(data, header, reduce, name)
    assert_same(alone, decode(data, reduce, backend=name))


def test_differences_do_not_wrap_round() -> None:
    """A level more is as far as a level less."""
    one, two = (np.full((1, 1), level, np.uint8) for level in (1, 2))
    assert _processes._difference(one, two) == _processes._difference(two, one) == 1
