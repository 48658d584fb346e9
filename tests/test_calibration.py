"""`calibrate` and ``python -m fastdecode calibrate``: real decoding, in processes of their own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from conftest import usable_backends

from fastdecode import DecodeError, Ranking, calibrate, probe, register
from fastdecode.calibration.samples import FOLDER, Sample, built_in, common, grouped
from fastdecode.cores import cpu_model, usable_cores
from fastdecode.testing import encode, picture

SMALL = [encode(picture(80, 64)), encode(picture(96, 64), "png")]
HERE = Path(__file__).parent
ENOUGH_S = 6.0
BROKEN_S = 60

needs_two_jpeg_backends = pytest.mark.skipif(
    len({"simplejpeg", "opencv", "turbojpeg", "jpeg4py"} & set(usable_backends())) < 1,
    reason="with Pillow alone there is nothing to compare",
)
needs_two_cores = pytest.mark.skipif(usable_cores() < 2, reason="needs two cores")


def test_the_built_in_samples() -> None:
    """Each has the size that it is said to have, and is the format."""
    wanted = [("jpeg", "small"), ("jpeg", "large"), ("png", "medium"), ("webp", "large")]

    for sample, (format, size) in zip(built_in(wanted), wanted, strict=True):
        headers = [probe(item) for item in sample.items]
        again = grouped(sample.items)

        assert {header.format for header in headers} == {format}
        assert [(one.format, one.size) for one in again] == [(format, size)]
        assert sample.pixels == sum(header.width * header.height for header in headers)


def test_own_files_are_grouped() -> None:
    """Paths and bytes are sorted by format and size class; of many alike eight are enough."""
    paths = sorted(FOLDER.glob("*.jpg"))
    groups = grouped([*SMALL, *paths, *(encode(picture(80 + i, 64)) for i in range(39))])

    found = {(sample.format, sample.size): len(sample.items) for sample in groups}
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


def test_odd_files_do_not_put_a_backend_out() -> None:
    """Compared is what those read that read at least half."""
    three = tuple(encode(picture(16 + step, 16)) for step in range(3))
    sample = Sample("jpeg", "small", three, 30)

    kept = common(sample, {"all": {0, 1, 2}, "most": {0, 1}, "one": {2}, "none": set()})

    assert kept is not None
    assert kept.items == three[:2]
    assert kept.pixels == 16 * 16 + 17 * 16
    assert common(sample, {"none": set()}) is None


@needs_two_jpeg_backends
@needs_two_cores
def test_every_context_and_output_is_measured(tmp_path: Path) -> None:
    """The ranking has an order of the usable backends for each kind of work, with speeds."""
    shares: list[float] = []

    ranking = calibrate(SMALL[:1], seconds=ENOUGH_S, notify=shares.append)

    cells = {(cell.reduce, cell.output, cell.context) for cell in ranking.orders}
    assert cells >= {(8, "array", "one"), (1, "array", "threads"), (4, "array", "processes")}
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
    ranking = calibrate(SMALL, contexts=("one",), outputs=("array",), seconds=ENOUGH_S)

    assert {(cell.output, cell.context) for cell in ranking.orders} == {("array", "one")}


@needs_two_jpeg_backends
@pytest.mark.usefixtures("_own_backends")
def test_backends_of_others_take_part(monkeypatch: pytest.MonkeyPatch) -> None:
    """One that was registered as a module's class is measured; one whose pixels differ is not."""
    monkeypatch.syspath_prepend(str(HERE / "plugin"))
    register("extra", "calibration_backends:Slow")
    register("inexact", "calibration_backends:Inexact")

    ranking = calibrate(SMALL, contexts=("one",), outputs=("array",), seconds=ENOUGH_S)

    order = ranking.order("png", 1, "small")
    assert "extra" in order
    assert "inexact" not in order


@pytest.mark.usefixtures("_own_backends")
def test_a_backend_that_crashes_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """A library that takes its process down is an error with the way out."""
    monkeypatch.syspath_prepend(str(HERE / "plugin"))
    register("crashing", "calibration_backends:Crashing")

    with pytest.raises(RuntimeError, match="FASTDECODE_DISABLE=crashing"):
        calibrate(SMALL[1:], contexts=("one",), seconds=ENOUGH_S)


@pytest.fixture
def _own_backends(monkeypatch: pytest.MonkeyPatch) -> None:
    from fastdecode import registry

    for name in ("_registered", "_loaded", "_failed"):
        monkeypatch.setattr(registry, name, dict(getattr(registry, name)))


def command(*arguments: object, place: Path) -> subprocess.CompletedProcess[str]:
    """Run ``python -m fastdecode calibrate``."""
    return subprocess.run(
        [sys.executable, "-m", "fastdecode", "calibrate", *map(str, arguments)],
        capture_output=True,
        text=True,
        check=False,
        timeout=BROKEN_S,
        env={**os.environ, "FASTDECODE_RANKING": str(place), "COLUMNS": "80"},
    )


@needs_two_jpeg_backends
def test_the_command_keeps_a_ranking(tmp_path: Path) -> None:
    """It prints what it found, and the next process goes by it."""
    place = tmp_path / "cache" / "ranking.json"

    done = command("--seconds", "4", place=place)

    assert done.returncode == 0, done.stderr
    assert "fastest first" in done.stdout
    assert str(place) in done.stdout.replace("\n", "")
    assert max(map(len, done.stdout.splitlines())) <= 80
    assert Ranking.load(place).order("jpeg", 1)


@needs_two_jpeg_backends
def test_the_command_keeps_nothing_when_told_so(tmp_path: Path) -> None:
    """`--no-save` prints only."""
    done = command("--no-save", "--seconds", str(ENOUGH_S), FOLDER, place=tmp_path / "ranking.json")

    assert done.returncode == 0, done.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "arguments",
    [("--seconds", "0"), ("--seconds", "x"), ("no-such-folder",), (str(HERE / "plugin"),)],
    ids=str,
)
def test_wrong_arguments_of_the_command(arguments: tuple[str, ...], tmp_path: Path) -> None:
    """Exit status 2, and a message instead of a traceback."""
    done = command(*arguments, place=tmp_path / "ranking.json")

    assert done.returncode == 2
    assert "error: " in done.stderr
    assert "Traceback" not in done.stderr


@needs_two_jpeg_backends
def test_a_place_that_cannot_be_written(tmp_path: Path) -> None:
    """It says so, with exit status 2."""
    (tmp_path / "file").write_text("")

    done = command("--seconds", "1", place=tmp_path / "file" / "ranking.json")

    assert done.returncode == 2
    assert "Traceback" not in done.stderr


def test_nothing_to_compare(tmp_path: Path) -> None:
    """Where no order comes out, that is an error that says why, and nothing is kept."""
    (tmp_path / "one.gif").write_bytes(encode(picture(20, 20), "gif"))

    done = command("--seconds", "2", tmp_path / "one.gif", place=tmp_path / "ranking.json")

    assert done.returncode == 2
    assert "nothing was compared" in done.stderr
    assert not (tmp_path / "ranking.json").exists()


@needs_two_jpeg_backends
@pytest.mark.skipif(sys.platform == "win32", reason="has other pipes")
def test_a_closed_pipe_does_not_lose_the_ranking(tmp_path: Path) -> None:
    """The ranking is kept before anything is printed, and there is no traceback."""
    place = tmp_path / "ranking.json"
    reading, writing = os.pipe()
    os.close(reading)

    done = subprocess.run(
        [sys.executable, "-m", "fastdecode", "calibrate", "--seconds", "4"],
        stdout=writing,
        stderr=subprocess.PIPE,
        text=True,
        check=False,
        timeout=BROKEN_S,
        env={**os.environ, "FASTDECODE_RANKING": str(place)},
    )
    os.close(writing)

    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    assert Ranking.load(place).orders


@needs_two_jpeg_backends
@pytest.mark.skipif(sys.platform == "win32", reason="sends a signal")
def test_ctrl_c_keeps_nothing(tmp_path: Path) -> None:
    """It ends soon, with status 130, and leaves the old ranking alone."""
    place = tmp_path / "ranking.json"
    running = subprocess.Popen(
        [sys.executable, "-m", "fastdecode", "calibrate", "--seconds", "60"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "FASTDECODE_RANKING": str(place)},
    )
    assert running.stderr is not None
    running.stderr.readline()  # it has begun to measure
    time.sleep(0.5)
    running.send_signal(signal.SIGINT)
    _, said = running.communicate(timeout=BROKEN_S)

    assert running.returncode == 130
    assert "nothing is kept" in said
    assert not place.exists()
