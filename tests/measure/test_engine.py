"""The engine with real backends on a few small images, and its figures from known times."""

from __future__ import annotations

import importlib.util
import os
import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import cast

import pytest
from benches import make_photos, photo
from corpus import usable_backends
from hypothesis import given
from hypothesis import strategies as st
from same import assert_same

from fastdecode import decode, probe
from fastdecode._backends.registry import describe
from fastdecode._system.processor import usable_cores
from fastdecode.measure import _cases as stats
from fastdecode.measure import _check, _processes
from fastdecode.measure._cases import measurements
from fastdecode.measure._check import (
    Check,
    Examination,
    comparable_files,
    examine,
    reference_digest,
)
from fastdecode.measure._collection import Photo, collect
from fastdecode.measure._processes import BlockTimes, Processes
from fastdecode.measure._run import Case, Round, Run, RunPlan, _Engine, blocks, measure
from fastdecode.measure._summary import movement
from fastdecode.measure.result import NOTHING, OWN, PILLOW, Measurement, Protocol, Spread
from fastdecode.types import Header, Reduce

JPEG = tuple(name for name in ("pillow", "native", "simplejpeg") if name in usable_backends())
PHOTOS = [Photo(name, Path(name), Header("jpeg", 1000, 500), 2_000_000) for name in "ab"]


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Measure three JPEGs, a PNG, and a truncated JPEG with a few real backends."""
    folder = make_photos(tmp_path_factory.mktemp("everything"))
    (folder / "a.png").write_bytes(photo(kind="PNG"))
    (folder / "half.jpg").write_bytes(photo(400, 300)[:2000])
    run = Run()
    plan = RunPlan(JPEG, (1, 4), every_format=True, seconds=0)
    measure(collect([folder]).photos, plan, run)
    return run


@pytest.mark.thorough
def test_every_backend_decodes_every_file(found: Run) -> None:
    """Each case compares the backends that read the format, on the files that all of them read."""
    settings = [(one.task.format, one.task.reduce) for one in found.cases]

    assert settings == [("jpeg", 1), ("jpeg", 4), ("png", 1)]
    assert {one.backend for one in measurements(found.cases[0])} == {*JPEG, OWN}
    assert {one.backend for one in measurements(found.cases[2])} == {*JPEG, OWN} - {"simplejpeg"}
    assert list(found.infos) == list(JPEG)
    assert found.notes == []


def test_all_figures_are_there(found: Run) -> None:
    """Every figure of a configuration is measured, and possible; damaged files are named."""
    for one in found.measurements():
        assert one.files == (3 if one.format == "jpeg" else 1)
        assert 0 < one.images_per_s.low <= one.images_per_s.median <= one.images_per_s.high
        assert 0 < one.ratio.low <= one.ratio.median <= one.ratio.high
        assert min(one.mb_per_s, one.megapixels_per_s, one.cpu_s_per_1000) > 0
        assert len(one.latency_ms) == 101
        assert list(one.latency_ms) == sorted(one.latency_ms)
        assert list(one.refused) == (["half.jpg"] if one.format == "jpeg" else [])
        assert not one.differing
        assert bool(one.chosen) == (one.backend == OWN)
        assert one.ratio.median == 1 or one.backend != PILLOW


def test_every_file_is_timed_three_times(found: Run) -> None:
    """However short the time, each file is timed at least three times, by all in each round."""
    for case in found.cases:
        visits = Counter(index for one in case.rounds for index in one.block)

        assert min(visits.values()) >= 3
        assert set(visits) == set(case.common)
        assert all(set(one.times) == set(case.compared) for one in case.rounds)


def test_progress_ends_with_all(tmp_path: Path) -> None:
    """The share that is done never falls, and ends at 1."""
    shares: list[float] = []
    photos = collect([make_photos(tmp_path)]).photos
    measure(photos, RunPlan(seconds=0), Run(), lambda _what, done, _total: shares.append(done))

    assert shares == sorted(shares)
    assert shares[-1] == pytest.approx(1)


def test_a_run_that_has_to_end_times_all_files(tmp_path: Path) -> None:
    """When the time is over, each file has two visits, and only the commonest format is timed."""
    for number in range(20):
        (tmp_path / f"{number}.jpg").write_bytes(photo(40 + number))
    (tmp_path / "a.png").write_bytes(photo(kind="PNG"))
    run = Run()
    measure(collect([tmp_path]).photos, RunPlan((PILLOW,), seconds=9, within=1e-6), run)

    assert {one.format for one in run.measurements()} == {"jpeg"}
    assert {one.files for one in run.measurements()} == {20}
    assert len(run.cases[0].rounds) == 2


@pytest.mark.thorough
def test_training_batches(tmp_path: Path) -> None:
    """Every installed pipeline makes whole epochs of the files that all decoders read."""
    pytest.importorskip("torch", reason="batches are PyTorch's")
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
        assert one.latency_ms == ()
        assert list(one.refused) == ["half.jpg"]


def test_a_store_is_measured(tmp_path: Path) -> None:
    """Items of a store are decoded and trained on."""
    from fastdecode.stores import create_store

    with create_store(tmp_path / "train.tar") as writer:
        for number in range(3):
            writer.add(f"{number}.jpg", photo(40 + number), number)
    torch = importlib.util.find_spec("torch") is not None
    run = Run()
    plan = RunPlan((PILLOW,), pipelines=(OWN,) if torch else (), seconds=0)
    measure(collect([tmp_path / "train.tar"]).photos, plan, run)
    timed = {(one.protocol, one.backend): one.files for one in run.measurements()}

    trained = {("train", OWN): 3} if torch else {}
    assert timed == {("decode", PILLOW): 3, ("decode", OWN): 3, **trained}
    assert run.notes == []


@pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="needs PyTorch")
def test_the_device_has_a_row_where_there_is_one(tmp_path: Path) -> None:
    """With a CUDA device and a decoder on it, training has a row for batches made there."""
    import torch

    if not torch.cuda.is_available():
        pytest.skip("needs a GPU")
    run = Run()
    plan = RunPlan((PILLOW,), pipelines=(OWN, "device"), seconds=0)
    measure(collect([make_photos(tmp_path)]).photos, plan, run)

    assert "device" in {one.backend for one in run.measurements() if one.images_per_s.median}


def test_one_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What one file comes to: the same pixels, others by so much, averaged, or a reason."""
    from doubles import restore_registry

    from fastdecode import register

    restore_registry(monkeypatch)
    for name in ("swapped", "broken", "averaging"):
        register(name, f"doubles:{name.title()}")
    register("near", "measured_doubles:Near")
    (tmp_path / "a.jpg").write_bytes(photo())
    [one] = collect([tmp_path]).photos
    data = (tmp_path / "a.jpg").read_bytes()
    right, half = reference_digest(data, 1), reference_digest(data, 2)

    assert examine(one, 1, "pillow", right) == Examination()
    assert examine(one, 1, "swapped", right).differs
    assert examine(one, 1, "swapped", None) == Examination()
    assert examine(one, 1, "near", right) == Examination(differs=True, difference=1)
    averaged = examine(one, 2, "averaging", half)
    assert (averaged.averaged, averaged.differs) == (True, False)
    assert averaged.difference > 0
    assert "ValueError: out of order" in examine(one, 1, "broken", right).refused
    (tmp_path / "a.jpg").unlink()
    assert "FileNotFoundError" in examine(one, 1, "pillow", right).refused
    assert reference_digest(b"no image", 1) is None


def test_common_files() -> None:
    """All are compared on the files that all read; one that reads hardly any is left out."""
    read = {"most": {0, 1, 2}, "all": {0, 1, 2, 3}, "few": {3}}

    assert comparable_files(read) == (("most", "all"), (0, 1, 2))
    assert comparable_files({"none": set()}) == ((), ())


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


def case(rounds: list[dict[str, BlockTimes]], **checks: Check) -> Case:
    """Return a case of two files of 2 MB and half a megapixel, with these rounds."""
    names = tuple(rounds[0]) if rounds else (PILLOW,)
    checked = {name: checks.get(name, Check(read={0, 1})) for name in names}
    done = [Round((0, 1), one) for one in rounds]
    task = Measurement("decode", "jpeg", 1)
    return Case(task, PHOTOS, checked, "quick", names, (0, 1), done)


def calls(*seconds: float) -> BlockTimes:
    """Return the times of a block with these calls."""
    return BlockTimes(seconds, sum(seconds), 0.5, 7.0)


def test_a_measurement_of_known_times() -> None:
    """Every figure follows from two files of 0.1 s and 0.3 s; ratios are to Pillow."""
    rounds = [{PILLOW: calls(0.2, 0.6), "quick": calls(0.1, 0.3)}] * 3
    first, last = measurements(case(rounds))

    assert (first.backend, last.backend) == ("quick", PILLOW)
    assert first.files == 2
    assert first.images_per_s.median == pytest.approx(5)
    assert first.mb_per_s == pytest.approx(10)
    assert first.megapixels_per_s == pytest.approx(2.5)
    assert [first.latency_ms[n] for n in (0, 50, 100)] == pytest.approx([100, 200, 300])
    assert first.cpu_s_per_1000 == pytest.approx(250)
    assert first.peak_mb == 7
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
    """Rounds that agree within a process, and not between two, say how far a figure moves."""
    rounds = [("block", 1 / 482)] * 9 + [("block", 1 / 433)] * 2
    found, times = stats.rate(rounds, 1), stats.ratio(rounds, [("block", 1 / 100)] * 11)

    assert (found.low, found.median, found.high) == pytest.approx((433, 482, 482))
    assert (times.low, times.median) == pytest.approx((4.33, 4.82))


def test_rounds_that_differ_alike_everywhere_move_nothing() -> None:
    """Only what lies apart between nine parts counts; if there are few rounds, each is a part."""
    rounds = [("block", seconds) for seconds in (1.0, 1.0, 1.3)]

    assert stats.rate(rounds * 9, 1) == Spread(1, 1, 1)
    assert movement(stats.rate(rounds, 1)) == pytest.approx(1 - 1 / 1.3)


class Steady:
    """In place of processes: a block takes a second. Notes after how many rounds they are new."""

    def __init__(self, own: Case) -> None:
        self.own = own
        self.new: list[int] = []

    def restart(self, _names: Sequence[str]) -> None:
        """Note the round."""
        self.new.append(len(self.own.rounds))

    def ask_in_turn(self, names: Sequence[str], *_arguments: object) -> dict[str, BlockTimes]:
        """Give every backend the same time."""
        return dict.fromkeys(names, calls(1.0))


@pytest.mark.parametrize(
    ("settings", "protocol", "new"),
    [({}, "decode", [4, 8]), ({"automatic": True}, "decode", []), ({}, "train", [])],
)
def test_decoders_are_timed_in_three_processes_for_as_long_each(
    settings: dict[str, bool], protocol: Protocol, new: list[int]
) -> None:
    """However often a block comes, each process has as many rounds."""
    one = replace(case([]), task=Measurement(protocol, "jpeg", 1, workers=1, batch=2))
    members = Steady(one)
    engine = _Engine(PHOTOS, RunPlan(seconds=12, **settings), Run(), lambda *_: None)
    engine._time(one, cast("Processes", members))

    assert members.new == new
    assert len(one.rounds) == 12


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
    both = case([{"quick": calls(1, 1), OWN: calls(2, 2)}] * 2)
    both.remove("quick", "it died")
    last, failed = measurements(both)

    assert (last.backend, last.ratio.median, last.chosen) == (OWN, 1, "quick")
    assert failed.refused == {"a": "it died", "b": "it died"}
    assert failed.images_per_s == NOTHING


def test_nothing_timed() -> None:
    """A case that was interrupted before its first round has no figures."""
    [one] = measurements(Case(Measurement("decode", "jpeg", 1), PHOTOS, {"quick": Check()}))

    assert (one.files, one.images_per_s) == (0, NOTHING)


def test_processor_time_of_a_family(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The processor time of a process includes its children; without /proc it is unknown."""
    from fastdecode.measure import _processes

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

    def noted(data: bytes, reduce: Reduce, *, backend: str | None) -> object:
        decoded.append(data)
        return decode(data, reduce, backend=backend)

    for module in (_processes, _check):
        monkeypatch.setattr(module, "decode", noted)
    process = _processes.Decoder({}, files, name)
    process.time([0, 1], 1, True)
    assert whole.read_bytes() not in decoded
    if name == PILLOW:
        assert set(decoded) == {cut.read_bytes()}

    decoded.clear()
    process.time([1], 1, False)
    assert set(decoded) == {whole.read_bytes()}


@pytest.mark.parametrize("reduce", [1, 2, 4, 8])
@pytest.mark.parametrize("kind", ["JPEG", "PNG"])
@pytest.mark.parametrize("name", usable_backends())
def test_a_library_alone_does_the_same_work(name: str, kind: str, reduce: Reduce) -> None:
    """It gives the pixels that are checked, also where the package reduces or converts them."""
    data = photo(643, 427, kind)
    header = probe(data)
    if header.format not in describe(name).formats:
        pytest.skip("another format")
    alone = _check.decode_alone(data, header, reduce, name)
    assert_same(alone, decode(data, reduce, backend=name))
