"""``python -m fastdecode.bench``: what each protocol measures."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from benches import DECODE, QUICK, bench, bench_result, make_photos, photo

import fastdecode
from fastdecode._system import usable_cores
from fastdecode.measure._collection import collect
from fastdecode.measure._run import Plan, Run, measure
from fastdecode.measure.result import AUTOMATIC

if TYPE_CHECKING:
    from fastdecode.measure.result import Measurement, Result

ONE = ("--backend", "pillow")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Create three JPEGs in two folders, next to hidden files and files that are not images."""
    return make_photos(tmp_path)


@pytest.fixture(scope="module")
def everything(tmp_path_factory: pytest.TempPathFactory) -> Result:
    """Run all protocols once, on three JPEGs, a PNG, and two damaged files."""
    folder = make_photos(tmp_path_factory.mktemp("everything"))
    (folder / "a.png").write_bytes(photo(kind="PNG"))
    (folder / "empty.jpg").write_bytes(b"")
    (folder / "half.jpg").write_bytes(photo(400, 300)[:2000])
    return bench_result(folder, "--verbose", *QUICK, *ONE, "--threads", "1,3", "--workers", "1,2")


def of(result: Result, protocol: str, format: str = "jpeg") -> list[Measurement]:
    """Return the measurements of a protocol and a format."""
    return [one for one in result.measurements if (one.protocol, one.format) == (protocol, format)]


def assert_complete(one: Measurement, files: int) -> None:
    """Check that all figures of a configuration are there, and possible."""
    assert one.files == files
    assert 0 < one.images_per_s.low <= one.images_per_s.median <= one.images_per_s.high
    assert one.mb_per_s > 0
    assert one.megapixels_per_s > 0
    assert len(one.latency_ms) == (0 if one.protocol == "train" else 101)
    assert list(one.latency_ms) == sorted(one.latency_ms)
    assert one.cpu_s_per_1000 > 0 or (one.protocol == "train" and not Path("/proc").exists())
    assert one.ratio.median > 0
    assert not one.differing


def test_a_folder_is_measured(folder: Path) -> None:
    """Every usable backend decodes every image, and the fastest comes first."""
    result = bench_result(folder, "--seconds", 0, "--protocol", "decode", "--reduce", 2)

    assert result.collection.images == 3
    assert result.collection.formats == {"jpeg": 3}
    assert result.collection.not_images == 1
    assert result.collection.pixels == 3 * 40 * 30
    names = [one.backend for one in result.measurements]
    readers = [i.name for i in fastdecode.backends() if i.usable and "jpeg" in i.formats]
    assert sorted(names) == sorted([*readers, AUTOMATIC])
    assert names[-1] == AUTOMATIC
    for one in result.measurements:
        assert_complete(one, 3)
        assert not one.refused
        assert (one.protocol, one.threads, one.workers) == ("decode", 1, 0)
        assert bool(one.chosen) == (one.backend == AUTOMATIC)
    assert result.answer
    assert not result.interrupted


def test_threads(everything: Result) -> None:
    """Every backend is measured with a pool of each size."""
    found = of(everything, "threads")

    assert [(one.threads, one.backend) for one in found] == [
        (count, name) for count in (1, 3) for name in ("pillow", AUTOMATIC)
    ]
    for one in found:
        assert_complete(one, 3)


def test_file(everything: Result) -> None:
    """Reading is part of the time, and its share is reported."""
    found = of(everything, "file")

    assert {one.backend for one in found} == {"pillow", AUTOMATIC}
    for one in found:
        assert_complete(one, 3)
        assert 0 < one.read_share < 1
    assert any("read before" in note for note in everything.notes)


def test_train(everything: Result) -> None:
    """Every pipeline whose library is installed makes training batches; others are named."""
    pytest.importorskip("torch", reason="batches are PyTorch's")
    found = of(everything, "train")
    names = {one.backend for one in found}
    notes = " ".join(everything.notes)

    assert {"loader", "dataset", "pillow"} <= names
    for name, word in (("torchvision", "torchvision + DataLoader"), ("dali", "DALI")):
        assert (name in names) != (f"Not measured: {word}" in notes)
    for one in found:
        assert_complete(one, 3)
        assert list(one.refused) == ["half.jpg"]
        assert (one.threads, one.workers) == (usable_cores(), usable_cores())
        assert (one.output, one.size, one.batch) == ("tensor", 224, 64)
    assert "training batches" in everything.answer[0]


def test_loader(everything: Result) -> None:
    """All backends are measured with the most workers, and decode() also with fewer."""
    pytest.importorskip("torch", reason="the DataLoader is PyTorch's")
    found = of(everything, "loader")

    assert [(one.workers, one.backend) for one in found] == [
        (1, AUTOMATIC),
        (2, "pillow"),
        (2, AUTOMATIC),
    ]
    for one in found:
        assert_complete(one, 3)
        assert (one.output, one.size) == ("array", 0)
    assert found[-1].chosen


def test_pillow_images_are_made_where_they_are_asked_for(folder: Path) -> None:
    """Pillow images are made in one thread and in a DataLoader's worker."""
    pytest.importorskip("torch", reason="the DataLoader is PyTorch's")
    both = ("--protocol", "decode,loader", "--workers", "1", "--output", "pil")
    result = bench_result(folder, *QUICK, *ONE, *both)

    assert {one.protocol for one in result.measurements} == {"decode", "loader"}
    for one in result.measurements:
        assert_complete(one, 3)
        assert (one.output, one.size) == ("pil", 0)


@pytest.mark.parametrize(
    ("size", "asked"),
    [(0, ["--protocol", "decode"]), (16, ["--protocol", "loader", "--workers", "1", "--size=16"])],
)
def test_tensors_are_made_where_they_are_asked_for(
    folder: Path, size: int, asked: list[str]
) -> None:
    """Tensors are made in one thread, and resized and normalised in a DataLoader's worker."""
    pytest.importorskip("torch", reason="tensors are PyTorch's")
    result = bench_result(folder, *QUICK, *ONE, "--output", "tensor", *asked)

    for one in result.measurements:
        assert_complete(one, 3)
        assert (one.output, one.size) == ("tensor", size)


def test_only_what_was_asked_for(folder: Path) -> None:
    """``--backend``, ``--reduce``, ``--limit`` and counts of 0 leave the rest out."""
    result = bench_result(
        folder, *ONE, "--reduce", "4,2", "--limit", 2, "--seconds", 0, "--threads", 0,
        "--workers", 0, "--protocol", "threads,loader,decode",
    )  # fmt: skip

    assert result.collection.images == 2
    assert result.collection.left_out == 2
    assert [(one.protocol, one.reduce, one.backend) for one in result.measurements] == [
        ("decode", reduce, name) for reduce in (2, 4) for name in ("pillow", AUTOMATIC)
    ]


def test_disabled_backends_are_left_out(folder: Path) -> None:
    """``FASTDECODE_DISABLE`` applies to the benchmark as to `decode`."""
    others = [info.name for info in fastdecode.backends() if info.name != "pillow"]
    result = bench_result(folder, *DECODE, FASTDECODE_DISABLE=",".join(others))

    assert {one.backend for one in result.measurements} == {"pillow", AUTOMATIC}
    assert {one.name for one in result.backends} == {"pillow"}
    assert [one.chosen for one in result.measurements] == ["", "pillow"]


def test_formats_are_measured_apart(everything: Result) -> None:
    """Each format has its own comparison; the other protocols use the most frequent one."""
    assert [one.files for one in of(everything, "decode", "png")] == [1, 1]
    assert [one.protocol for one in everything.measurements if one.format == "png"] == [
        "decode",
        "decode",
    ]


def test_damaged_files_are_listed(everything: Result) -> None:
    """A file without a header, and a truncated one, are named; the others are measured."""
    assert list(everything.collection.unreadable) == ["empty.jpg"]
    for one in of(everything, "decode"):
        assert one.files == 3
        assert list(one.refused) == ["half.jpg"]
        assert one.refused["half.jpg"]


def test_nothing_decodes(folder: Path) -> None:
    """If no file can be decoded, the files are named and the exit status is 1."""
    half = folder / "half.jpg"
    half.write_bytes(photo(400, 300)[:2000])
    done = bench(half, *DECODE, *ONE)

    assert done.returncode == 1
    assert "half.jpg" in done.stdout


def test_a_run_that_has_to_end_leaves_files_out(tmp_path: Path) -> None:
    """With a time limit, few files are compared in few rounds, and a note says so."""
    for number in range(20):
        (tmp_path / f"{number}.jpg").write_bytes(photo(40 + number))
    (tmp_path / "a.png").write_bytes(photo(kind="PNG"))
    found = Run()
    measure(collect([tmp_path]).photos, Plan(("pillow",), within=0.001), found)

    assert [(one.format, one.backend) for one in found.measurements()] == [
        ("jpeg", "pillow"),
        ("jpeg", AUTOMATIC),
    ]
    assert {one.files for one in found.measurements()} == {8}
    assert len(found.cases[0].rounds) == 3
    assert "12 files of 20 were left out" in found.notes[0]


def test_samples_are_the_default() -> None:
    """Without a folder the photos of the package are measured."""
    result = bench_result(*ONE, "--reduce", 8, "--seconds", 0, "--protocol", "decode")

    assert result.collection.images == 6
    assert result.collection.samples
    assert result.collection.not_images == 0
