"""`calibrate`: the order that it makes of figures, real decoding, and the command."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from benches import TERMINAL, make_photos
from corpus import TESTS, usable_backends
from doubles import restore_registry
from PIL import Image
from processes import python
from results import measurement

from fastdecode import DecodeError, Ranking, calibrate, register
from fastdecode._backends import registry
from fastdecode._system.processor import cpu_model
from fastdecode.measure._calibrate import make_ranking, sample_photos
from fastdecode.measure.result import OWN, Spread
from fastdecode.testing import drawing, encode

SMALL = [encode(drawing(80, 64)), encode(drawing(96, 64), "png")]
SHORT = ("--seconds", "0.01")
BROKEN_S = 120
FULL = Path("/dev/full")

needs_two_jpeg_backends = pytest.mark.skipif(
    len({"simplejpeg", "opencv", "turbojpeg", "jpeg4py"} & set(usable_backends())) < 1,
    reason="with Pillow alone there is nothing to compare",
)


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave three JPEG backends, for speed, and restore the registry."""
    registry.names()  # looks for installed packages once
    restore_registry(monkeypatch)
    rest = set(registry.BUILTIN) - {"pillow", "native", "simplejpeg", "opencv"}
    monkeypatch.setenv("FASTDECODE_DISABLE", ",".join(rest))


def command(*arguments: object, place: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run ``python -m fastdecode calibrate``."""
    variables |= {"FASTDECODE_RANKING": str(place), "COLUMNS": str(TERMINAL)}
    return python("-m", "fastdecode", "calibrate", *arguments, timeout=BROKEN_S, **variables)


def test_a_lead_that_may_be_chance_is_not_kept() -> None:
    """The default order stays where spreads overlap, and changes where they do not."""
    default = measurement("native", ratio=Spread(1.0, 0.97, 1.05))
    near = measurement("simplejpeg", ratio=Spread(1.06, 1.02, 1.1))
    ahead = measurement("pillow", ratio=Spread(1.3, 1.2, 1.4))
    own = measurement(OWN, ratio=Spread(9.0, 9.0, 9.0))

    both = make_ranking([near, default, own])
    assert both.orders == {("jpeg", 1): ("native", "simplejpeg")}
    every = make_ranking([near, default, ahead])
    assert every.order("jpeg", 1) == ("pillow", "native", "simplejpeg")
    assert not every.stale()
    held = make_ranking([near, default, ahead], holding={("pillow", "jpeg")})
    assert held.order("jpeg", 1) == ("native", "simplejpeg", "pillow")


@pytest.mark.parametrize(
    "more", [{"differing": ("x.jpg",)}, {"averaged": 3}, {"protocol": "train"}, {"speed": 0.0}]
)
def test_what_says_nothing_of_the_order_is_left_out(more: Any) -> None:
    """Wrong or averaged pixels, batches, and what was only checked give no order."""
    one = replace(measurement("native"), **{k: v for k, v in more.items() if k != "speed"})
    if "speed" in more:
        one = replace(one, images_per_s=Spread(0.0, 0.0, 0.0))

    assert not make_ranking([one, measurement("pillow")]).orders


def test_the_samples() -> None:
    """The package's photos are measured as JPEG, and some of them as other formats."""
    formats = [photo.header.format for photo in sample_photos()]

    assert formats == ["jpeg"] * 6 + ["png"] * 2 + ["webp"] * 2 + ["jpeg2000"] * 2


@needs_two_jpeg_backends
@pytest.mark.usefixtures("few")
def test_every_kind_of_work_is_measured(tmp_path: Path) -> None:
    """The ranking has an order of the usable backends for each format and reduction."""
    shares: list[float] = []
    ranking = calibrate(SMALL[:1], seconds=0.1, notify=shares.append)

    assert set(ranking.orders) == {("jpeg", reduce) for reduce in (1, 2, 4, 8)}
    for order in ranking.orders.values():
        assert set(order) <= {"pillow", "native", "simplejpeg", "opencv"} & set(usable_backends())
    assert ranking.cpu == cpu_model()
    assert not ranking.stale()
    assert 0 <= min(shares) <= max(shares) == 1
    assert Ranking.load(ranking.save(tmp_path / "ranking.json")) == ranking


@pytest.mark.usefixtures("few")
def test_backends_of_others_take_part() -> None:
    """A backend by its module's name is measured; a class, an inexact and a crashing one are not.

    The crash is a warning.
    """
    register("extra", "measured_doubles:Slow")
    register("inexact", "measured_doubles:Inexact")
    register("crashing", "measured_doubles:Crashing")
    register("by_class", import_module("measured_doubles").Slow)
    black = encode(Image.new("RGB", (96, 64)), "png")

    with pytest.warns(UserWarning, match="crashing"):
        ranking = calibrate([black], seconds=0.1)

    assert {"extra", "pillow"} <= set(ranking.order("png", 1))
    assert not {"inexact", "by_class", "crashing"}.intersection(ranking.order("png", 1))


@pytest.mark.parametrize(
    ("samples", "error", "said"),
    [
        ([], ValueError, "no samples"),
        ([SMALL[0], b"\xff\xd8\xff"], DecodeError, "sample 1: "),
        ([TESTS / "no-such-file.jpg"], FileNotFoundError, "no-such-file"),
        ([5], TypeError, "not int"),
        ("photos.jpg", TypeError, "list"),
        (b"bytes", TypeError, "list"),
    ],
)
def test_samples_that_cannot_be_used(samples: Any, error: type[Exception], said: str) -> None:
    """Bad samples are an error that says which."""
    with pytest.raises(error, match=said):
        calibrate(samples)


@pytest.mark.parametrize("seconds", [0, -1, float("nan"), float("inf"), "5"])
def test_seconds_that_mean_nothing(seconds: Any) -> None:
    """A wrong number of seconds is refused before anything is measured."""
    with pytest.raises(ValueError, match="seconds"):
        calibrate(SMALL, seconds=seconds)


@needs_two_jpeg_backends
@pytest.mark.usefixtures("few")
def test_the_command_keeps_a_ranking(tmp_path: Path) -> None:
    """It measures a folder, prints the order within 80 columns, and the next process goes by it."""
    place = tmp_path / "cache" / "ranking.json"
    done = command(*SHORT, make_photos(tmp_path), place=place)

    assert done.returncode == 0, done.stderr
    assert "fastest first" in done.stdout
    assert str(place) in done.stdout.replace("\n", "")
    assert max(map(len, done.stdout.splitlines())) <= TERMINAL
    assert Ranking.load(place).order("jpeg", 1)

    place.unlink()
    done = command("--no-save", *SHORT, tmp_path / "photos" / "0.jpg", place=place)
    assert done.returncode == 0, done.stderr
    assert "Not kept." in done.stdout
    assert not place.exists()


@needs_two_jpeg_backends
@pytest.mark.usefixtures("few")
@pytest.mark.skipif(not FULL.exists(), reason="the system has no device that is full")
def test_a_full_disk_loses_no_figures(tmp_path: Path) -> None:
    """A ranking that cannot be written is printed at least, and the file is named."""
    done = command(*SHORT, make_photos(tmp_path), place=FULL)

    assert done.returncode == 2
    assert "fastest first" in done.stdout
    assert "Not kept." in done.stdout
    assert f"error: {FULL} cannot be written: No space left on device" in done.stderr


@pytest.mark.usefixtures("few")
def test_nothing_to_compare(tmp_path: Path) -> None:
    """Where no order comes out, that is an error that says why, and nothing is kept."""
    (tmp_path / "one.gif").write_bytes(encode(drawing(20, 20), "gif"))
    for source in (tmp_path / "one.gif", TESTS / "plugin"):
        done = command(*SHORT, source, place=tmp_path / "ranking.json")

        assert done.returncode == 2
        assert "error: " in done.stderr
        assert "Traceback" not in done.stderr
    assert not (tmp_path / "ranking.json").exists()


@needs_two_jpeg_backends
@pytest.mark.skipif(sys.platform == "win32", reason="sends a signal")
def test_ctrl_c_keeps_nothing(tmp_path: Path) -> None:
    """It ends soon, with status 130, and leaves the old ranking alone."""
    place = tmp_path / "ranking.json"
    running = subprocess.Popen(
        [sys.executable, "-m", "fastdecode", "calibrate", "--seconds", "600"],
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
