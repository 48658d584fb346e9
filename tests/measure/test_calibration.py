"""`calibrate`: real decoding, in processes of their own."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from corpus import TESTS, usable_backends

from fastdecode import DecodeError, Ranking, calibrate, probe, register
from fastdecode._system import cpu_model, usable_cores
from fastdecode.measure._collection import SAMPLES
from fastdecode.measure._samples import built_in, group_samples
from fastdecode.testing import drawing, encode

SMALL = [encode(drawing(80, 64)), encode(drawing(96, 64), "png")]
HERE = TESTS
SHORT_S = 0.01
PATIENCE_S = (4.0, 12.0, 40.0)

needs_two_jpeg_backends = pytest.mark.skipif(
    len({"simplejpeg", "opencv", "turbojpeg", "jpeg4py"} & set(usable_backends())) < 1,
    reason="with Pillow alone there is nothing to compare",
)
needs_two_cores = pytest.mark.skipif(usable_cores() < 2, reason="needs two cores")


def patiently(enough: Callable[[Ranking], bool], samples: Any, **options: Any) -> Ranking:
    """Measure, and again for longer, until there is enough: a busy machine takes its time."""
    for seconds in PATIENCE_S:
        ranking = calibrate(samples, seconds=seconds, **options)
        if enough(ranking):
            break
    return ranking


def test_the_built_in_samples() -> None:
    """Each has the size that it is said to have, and is the format."""
    wanted = [("jpeg", "small"), ("jpeg", "large"), ("png", "medium"), ("webp", "large")]

    for sample, (format, size) in zip(built_in(wanted), wanted, strict=True):
        files = [photo.data for photo in sample.photos]
        headers = [probe(data) for data in files]
        again = group_samples(files)

        assert {header.format for header in headers} == {format}
        assert [(one.format, one.size) for one in again] == [(format, size)]
        assert sample.pixels == sum(header.width * header.height for header in headers)


def test_own_files_are_grouped() -> None:
    """Paths and bytes are sorted by format and size class; of many alike eight are enough."""
    paths = sorted(SAMPLES.glob("*.jpg"))
    groups = group_samples([*SMALL, *paths, *(encode(drawing(80 + i, 64)) for i in range(39))])

    found = {(sample.format, sample.size): len(sample.photos) for sample in groups}
    assert found == {("jpeg", "small"): 8, ("png", "small"): 1, ("jpeg", "medium"): len(paths)}


@pytest.mark.parametrize(
    ("samples", "error", "said"),
    [
        ([], ValueError, "no samples"),
        ([SMALL[0], b"\xff\xd8\xff"], DecodeError, "sample 1: "),
        ([HERE / "no-such-file.jpg"], FileNotFoundError, "no-such-file"),
        ([5], TypeError, "not int"),
    ],
)
def test_samples_that_cannot_be_used(samples: Any, error: type[Exception], said: str) -> None:
    """Bad samples are an error that says which."""
    with pytest.raises(error, match=said):
        calibrate(samples)


@pytest.mark.parametrize("samples", ["photos.jpg", b"bytes"])
def test_one_file_is_not_several(samples: Any) -> None:
    """A single path or file is told from a list of them."""
    with pytest.raises(TypeError, match="pass a list"):
        calibrate(samples)


@pytest.mark.parametrize(
    "options",
    [
        {"contexts": ("alone",)},
        {"contexts": ()},
        {"contexts": "one"},
        {"outputs": ("list",)},
        {"seconds": 0},
        {"seconds": float("nan")},
        {"seconds": "5"},
    ],
    ids=str,
)
def test_wrong_options(options: Any) -> None:
    """What means nothing is refused before anything is measured."""
    with pytest.raises(ValueError, match=r"must be|not"):
        calibrate(SMALL, **options)


@needs_two_jpeg_backends
@needs_two_cores
def test_every_context_and_output_is_measured(tmp_path: Path) -> None:
    """The ranking has an order of the usable backends for each kind of work, with speeds."""
    shares: list[float] = []

    wanted = {(8, "array", "one"), (1, "array", "threads"), (4, "array", "processes")}

    ranking = patiently(
        lambda found: wanted <= {(cell.reduce, *cell[3:]) for cell in found.orders},
        SMALL[:1],
        notify=shares.append,
    )

    assert wanted <= {(cell.reduce, cell.output, cell.context) for cell in ranking.orders}
    for cell, order in ranking.orders.items():
        assert set(order) <= set(usable_backends())
        assert max(ranking.speeds[cell].values()) == 1.0
        assert list(ranking.speeds[cell]) == list(order)
    assert "imagecodecs" not in ranking.order("jpeg", 8, "small"), "it does not reduce JPEG"
    assert ranking.cpu == cpu_model()
    assert not ranking.stale()
    assert 0 < min(shares) <= max(shares) <= 1
    assert Ranking.load(ranking.save(tmp_path / "ranking.json")) == ranking


@needs_two_jpeg_backends
def test_outputs_and_contexts_can_be_left_out() -> None:
    """Only what is asked for is measured."""
    ranking = calibrate(SMALL, contexts=("one",), outputs=("array",), seconds=SHORT_S)

    assert {(cell.output, cell.context) for cell in ranking.orders} == {("array", "one")}


@needs_two_jpeg_backends
@pytest.mark.usefixtures("_own_backends")
def test_backends_of_others_take_part(monkeypatch: pytest.MonkeyPatch) -> None:
    """A backend by its module's name is measured; a class, or one whose pixels differ, is not."""
    monkeypatch.syspath_prepend(str(HERE / "plugin"))
    register("extra", "calibration_backends:Slow")
    register("inexact", "calibration_backends:Inexact")
    register("by_class", import_module("calibration_backends").Slow)

    ranking = patiently(
        lambda found: any(cell.format == "png" for cell in found.orders),
        SMALL,
        contexts=("one",),
        outputs=("array",),
    )

    order = ranking.order("png", 1, "small")
    assert "extra" in order
    assert not {"inexact", "by_class"}.intersection(order)


@pytest.mark.usefixtures("_own_backends")
def test_a_backend_that_crashes_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """A library that takes its process down is an error with the way out."""
    monkeypatch.syspath_prepend(str(HERE / "plugin"))
    register("crashing", "calibration_backends:Crashing")

    with pytest.raises(RuntimeError, match="FASTDECODE_DISABLE=crashing"):
        calibrate(SMALL[1:], contexts=("one",), seconds=SHORT_S)


@pytest.fixture
def _own_backends(monkeypatch: pytest.MonkeyPatch) -> None:
    from fastdecode import registry

    registry.names()  # looks for installed packages once, and those of the plugin are none
    for name in ("_registered", "_loaded", "_failed"):
        monkeypatch.setattr(registry, name, dict(getattr(registry, name)))
