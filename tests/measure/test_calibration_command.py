"""``python -m fastdecode calibrate``: what it prints, what it keeps, and how it ends."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from corpus import TESTS, usable_backends

from fastdecode import Ranking
from fastdecode.measure._collection import SAMPLES
from fastdecode.testing import drawing, encode

HERE = TESTS
TERMINAL = 80
BROKEN_S = 60
SHORT = ("--seconds", "0.01")
ENOUGH = ("--seconds", "1")
FULL = Path("/dev/full")

needs_two_jpeg_backends = pytest.mark.skipif(
    len({"simplejpeg", "opencv", "turbojpeg", "jpeg4py"} & set(usable_backends())) < 1,
    reason="with Pillow alone there is nothing to compare",
)


def command(*arguments: object, place: Path) -> subprocess.CompletedProcess[str]:
    """Run ``python -m fastdecode calibrate``."""
    return subprocess.run(
        [sys.executable, "-m", "fastdecode", "calibrate", *map(str, arguments)],
        capture_output=True,
        text=True,
        check=False,
        timeout=BROKEN_S,
        env={**os.environ, "FASTDECODE_RANKING": str(place), "COLUMNS": str(TERMINAL)},
    )


@needs_two_jpeg_backends
def test_the_command_keeps_a_ranking(tmp_path: Path) -> None:
    """It prints what it found, and if the machine was busy; the next process goes by it."""
    place = tmp_path / "cache" / "ranking.json"

    done = command(*ENOUGH, place=place)

    assert done.returncode == 0, done.stderr
    assert "fastest first" in done.stdout
    assert str(place) in done.stdout.replace("\n", "")
    assert max(map(len, done.stdout.splitlines())) <= TERMINAL
    assert Ranking.load(place).order("jpeg", 1)
    busy = "busy with other work" in " ".join(done.stdout.split())
    assert busy == Ranking.load(place).busy


@needs_two_jpeg_backends
def test_the_command_keeps_nothing_when_told_so(tmp_path: Path) -> None:
    """`--no-save` prints only."""
    done = command("--no-save", *SHORT, SAMPLES, place=tmp_path / "ranking.json")

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

    done = command(*SHORT, place=tmp_path / "file" / "ranking.json")

    assert done.returncode == 2
    assert "Traceback" not in done.stderr


@needs_two_jpeg_backends
@pytest.mark.skipif(not FULL.exists(), reason="the system has no device that is full")
def test_a_full_disk_does_not_lose_what_was_measured() -> None:
    """The result is printed all the same, and the error names the file."""
    done = command(*SHORT, place=FULL)

    assert done.returncode == 2
    assert "fastest first" in done.stdout
    assert "Not kept." in done.stdout
    assert f"error: {FULL} cannot be written: No space left on device" in done.stderr


def test_the_help_fits_a_terminal(tmp_path: Path) -> None:
    """No line of it is wider than 80 characters."""
    done = command("--help", place=tmp_path)

    assert done.returncode == 0
    assert max(map(len, done.stdout.splitlines())) <= TERMINAL


def test_nothing_to_compare(tmp_path: Path) -> None:
    """Where no order comes out, that is an error that says why, and nothing is kept."""
    (tmp_path / "one.gif").write_bytes(encode(drawing(20, 20), "gif"))

    done = command(*SHORT, tmp_path / "one.gif", place=tmp_path / "ranking.json")

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
        [sys.executable, "-m", "fastdecode", "calibrate", *SHORT],
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
