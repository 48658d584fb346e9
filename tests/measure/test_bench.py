"""``python -m fastdecode.bench``: what it measures, protocol by protocol."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from benches import DECODE, QUICK, bench, fill, measured, photo

import fastdecode
from fastdecode.measure.result import AUTOMATIC

if TYPE_CHECKING:
    from fastdecode.measure.result import Measurement

ONE = ("--backend", "pillow")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Three JPEG files in two folders, beside files that are no images or hidden."""
    return fill(tmp_path)


def assert_complete(one: Measurement, files: int) -> None:
    """All figures of a configuration are there, and possible."""
    assert one.files == files
    assert 0 < one.images_per_s.low <= one.images_per_s.median <= one.images_per_s.high
    assert one.mb_per_s > 0
    assert one.megapixels_per_s > 0
    assert len(one.latency_ms) == 101
    assert list(one.latency_ms) == sorted(one.latency_ms)
    assert one.cpu_s_per_1000 > 0
    assert one.ratio.median > 0
    assert not one.refused
    assert not one.differing


def test_a_folder_is_measured(folder: Path) -> None:
    """By default every usable backend decodes every image at every size."""
    result = measured(folder, "--seconds", 0, "--protocol", "decode")

    assert result.collection.images == 3
    assert result.collection.formats == {"jpeg": 3}
    assert result.collection.not_images == 1
    assert result.collection.pixels == 3 * 40 * 30
    for reduce in (1, 2, 4, 8):
        names = [one.backend for one in result.measurements if one.reduce == reduce]
        readers = [i.name for i in fastdecode.backends() if i.usable and "jpeg" in i.formats]
        assert sorted(names) == sorted([*readers, AUTOMATIC])
        assert names[-1] == AUTOMATIC
    for one in result.measurements:
        assert_complete(one, 3)
        assert (one.protocol, one.threads, one.workers) == ("decode", 1, 0)
        assert bool(one.chosen) == (one.backend == AUTOMATIC)
    assert result.answer
    assert not result.interrupted


def test_threads(folder: Path) -> None:
    """A pool of each size is measured with every backend."""
    result = measured(folder, *QUICK, *ONE, "--protocol", "threads", "--threads", "1,3")

    assert [(one.threads, one.backend) for one in result.measurements] == [
        (count, name) for count in (1, 3) for name in ("pillow", AUTOMATIC)
    ]
    for one in result.measurements:
        assert_complete(one, 3)


def test_file(folder: Path) -> None:
    """Reading is part of the time, and its share is told."""
    result = measured(folder, *QUICK, *ONE, "--protocol", "file")

    assert {one.backend for one in result.measurements} == {"pillow", AUTOMATIC}
    for one in result.measurements:
        assert_complete(one, 3)
        assert 0 < one.read_share < 1
    assert any("read before" in note for note in result.notes)


@pytest.mark.parametrize(
    ("workers", "asked", "output"),
    [
        ("1,2", (), "array"),
        ("1", ("--output", "pil"), "pil"),
        ("1", ("--output", "tensor"), "tensor"),
        ("1", ("--size", "16"), "tensor"),
    ],
)
def test_loader(folder: Path, workers: str, asked: tuple[str, ...], output: str) -> None:
    """A DataLoader is measured: all backends with the most workers, decode() with fewer too."""
    pytest.importorskip("torch", reason="the DataLoader is PyTorch's")
    result = measured(folder, *QUICK, *ONE, "--protocol", "loader", "--workers", workers, *asked)

    *fewer, most = map(int, workers.split(","))
    assert [(one.workers, one.backend) for one in result.measurements] == [
        *((count, AUTOMATIC) for count in fewer),
        (most, "pillow"),
        (most, AUTOMATIC),
    ]
    for one in result.measurements:
        assert_complete(one, 3)
        assert one.output == output
        assert one.size == (16 if "--size" in asked else 0)
    assert result.measurements[-1].chosen


def test_loader_without_pytorch(folder: Path, tmp_path: Path) -> None:
    """Without PyTorch the protocol is left out, and a note says what installs it."""
    (tmp_path / "sitecustomize.py").write_text(
        "import importlib.util as u\n"
        "find = u.find_spec\n"
        "u.find_spec = lambda name, *rest: None if name == 'torch' else find(name, *rest)\n"
    )
    path = os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])
    result = measured(folder, *QUICK, *ONE, "--protocol", "decode,loader", PYTHONPATH=path)

    assert {one.protocol for one in result.measurements} == {"decode"}
    assert any("pip install 'fastdecode[torch]'" in note for note in result.notes)
    done = bench(folder, "--size", 8, PYTHONPATH=path)
    assert done.returncode == 2
    assert "pip install 'fastdecode[torch]'" in done.stderr


def test_every_output(folder: Path) -> None:
    """Pillow images are made where they are asked for, and the result says so."""
    result = measured(folder, *DECODE, *ONE, "--output", "pil")

    assert {one.output for one in result.measurements} == {"pil"}
    for one in result.measurements:
        assert_complete(one, 3)


def test_only_what_was_asked_for(folder: Path) -> None:
    """``--backend``, ``--reduce``, ``--limit`` and counts of 0 leave the rest out."""
    result = measured(
        folder, *ONE, "--reduce", "4,2", "--limit", 2, "--seconds", 0, "--threads", 0,
        "--workers", 0, "--protocol", "threads,loader,decode",
    )  # fmt: skip

    assert result.collection.images == 2
    assert result.collection.left_out == 2
    assert [(one.protocol, one.reduce, one.backend) for one in result.measurements] == [
        ("decode", reduce, name) for reduce in (2, 4) for name in ("pillow", AUTOMATIC)
    ]


def test_disabled_backends_are_left_out(folder: Path) -> None:
    """``FASTDECODE_DISABLE`` holds for the benchmark as it does for `decode`."""
    others = [info.name for info in fastdecode.backends() if info.name != "pillow"]
    result = measured(folder, *DECODE, FASTDECODE_DISABLE=",".join(others))

    assert {one.backend for one in result.measurements} == {"pillow", AUTOMATIC}
    assert {one.name for one in result.backends} == {"pillow"}
    assert [one.chosen for one in result.measurements] == ["", "pillow"]


def test_formats_are_measured_apart(folder: Path) -> None:
    """Each format is a comparison of its own; the other protocols take the commonest."""
    (folder / "a.png").write_bytes(photo(kind="PNG"))
    result = measured(folder, *QUICK, *ONE, "--protocol", "decode,file")

    assert {(one.protocol, one.format, one.files) for one in result.measurements} == {
        ("decode", "jpeg", 3),
        ("decode", "png", 1),
        ("file", "jpeg", 3),
    }


def test_damaged_files_are_listed(folder: Path) -> None:
    """A file without a header, and one that ends too soon, are named; the others are measured."""
    (folder / "empty.jpg").write_bytes(b"")
    (folder / "half.jpg").write_bytes(photo(400, 300)[:2000])
    result = measured(folder, *DECODE, *ONE)

    assert list(result.collection.unreadable) == ["empty.jpg"]
    for one in result.measurements:
        assert one.files == 3
        assert list(one.refused) == ["half.jpg"]
        assert one.refused["half.jpg"]


def test_nothing_decodes(folder: Path) -> None:
    """If no file at all can be decoded the status is 1, and the files are named."""
    half = folder / "half.jpg"
    half.write_bytes(photo(400, 300)[:2000])
    done = bench(half, "--reduce", 1)

    assert done.returncode == 1
    assert "half.jpg" in done.stdout


def test_samples_are_the_default() -> None:
    """Without a folder the photos of the package are measured."""
    result = measured(*ONE, "--reduce", 8, "--seconds", 0, "--protocol", "decode")

    assert result.collection.images == 6
    assert result.collection.not_images == 0
