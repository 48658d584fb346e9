"""A ranking is plain data: its order, its file, and which files are not rankings."""

from __future__ import annotations

import json
import pickle
from pathlib import Path
from typing import Any

import pytest

from fastdecode import Ranking, backends
from fastdecode._backends.ranking import DEFAULT, libraries, ranking_path
from fastdecode._system.processor import cpu_model

FULL = Ranking(
    {("jpeg", 1): ("simplejpeg", "pillow"), ("jpeg", 8): ("opencv",)},
    "Some CPU",
    {"pillow": "12.0"},
    "2026-01-01T00:00:00+00:00",
)
OPENCV = ("opencv-python", "opencv-contrib-python", "opencv-contrib-python-headless")


def test_it_comes_back_from_its_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All of it is saved, folders are made, and nothing else is left beside the file.

    Without a path it goes where every later process looks; to others it goes as a pickle.
    """
    path = FULL.save(tmp_path / "some" / "folder" / "ranking.json")
    monkeypatch.setenv("FASTDECODE_RANKING", str(tmp_path / "mine.json"))

    assert Ranking.load(path) == FULL
    assert list(path.parent.iterdir()) == [path]
    assert FULL.save() == tmp_path / "mine.json"
    assert Ranking.load() == FULL
    assert pickle.loads(pickle.dumps(FULL)) == FULL


def test_the_usual_place_is_the_users_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a variable, rankings lie in the user's cache folder, one file per processor."""
    monkeypatch.delenv("FASTDECODE_RANKING")
    here = ranking_path()
    monkeypatch.setattr("fastdecode._backends.ranking.cpu_model", lambda: "another")

    assert "fastdecode" in here.parts
    assert ranking_path().parent == here.parent
    assert ranking_path() != here


def test_a_failed_write_leaves_the_old_file(tmp_path: Path) -> None:
    """An error while writing, such as a full disk, keeps the old file and leaves no partial one."""
    resource = pytest.importorskip("resource")
    path = FULL.save(tmp_path / "ranking.json")
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)

    resource.setrlimit(resource.RLIMIT_FSIZE, (20, hard))  # bytes of any file
    try:
        with pytest.raises(OSError, match="File too large"):
            Ranking().save(path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))

    assert Ranking.load(path) == FULL
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        "{}",
        '{"schema": 0}',
        json.dumps({"schema": 1, "cpu": "", "libraries": {}, "measured": "", "cells": []}),
        json.dumps({"schema": 2, "cpu": "", "libraries": {}, "measured": "", "orders": [[]]}),
        json.dumps({"schema": 2, "cpu": "", "libraries": {}, "measured": "", "orders": 5}),
        json.dumps({"schema": 2, "cpu": None, "libraries": {}, "measured": "", "orders": []}),
        json.dumps({"schema": 2, "cpu": "\x1b[2J", "libraries": {}, "measured": "", "orders": []}),
        json.dumps({"schema": 2, "cpu": "", "libraries": {"a": 1}, "measured": "", "orders": []}),
        json.dumps({"schema": 2, "cpu": "", "libraries": {}, "measured": 5, "orders": []}),
        "[" * 100_000,
    ],
)
def test_damaged_files_are_an_error_that_names_them(text: str, tmp_path: Path) -> None:
    """A damaged file, or one of an earlier version, raises a ValueError with the path."""
    path = tmp_path / "ranking.json"
    path.write_text(text)

    with pytest.raises(ValueError, match=r"ranking\.json"):
        Ranking.load(path)


@pytest.mark.parametrize(
    ("orders", "error"),
    [
        ({"jpeg": ("pillow",)}, TypeError),
        ({(): ("pillow",)}, TypeError),
        ({("jpeg",): ("pillow",)}, TypeError),
        ({("jpeg", 1, "medium"): ("pillow",)}, TypeError),
        ({("jpg", 1): ("pillow",)}, ValueError),
        ({("jpeg", 3): ("pillow",)}, ValueError),
        ({("jpeg", 1): "pillow"}, TypeError),
        ({("jpeg", 1): 5}, TypeError),
        ({("jpeg", 1): (5,)}, TypeError),
        ("simplejpeg", TypeError),
        (None, TypeError),
    ],
    ids=str,
)
def test_wrong_orders_are_refused(orders: Any, error: type[Exception]) -> None:
    """An invalid key is refused, because it would silently never be used."""
    with pytest.raises(error):
        Ranking(orders)


def test_stale_says_what_has_changed() -> None:
    """A ranking of another processor or other libraries is out of date, and says which."""
    here = libraries()

    assert not Ranking().stale()
    assert not Ranking(cpu=cpu_model(), libraries=here).stale()
    assert "Some CPU" in Ranking(cpu="Some CPU", libraries=here).stale()
    older = Ranking(cpu=cpu_model(), libraries={**here, "pillow": "1.0"}).stale()
    assert f"pillow 1.0 then, {here['pillow']} now" in older
    more = Ranking(cpu=cpu_model(), libraries={**here, "gone": "2.0"}).stale()
    assert "gone 2.0 then, missing now" in more


def test_a_library_that_comes_or_goes_makes_it_stale(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Installing or removing a library makes a ranking out of date."""
    name = next(name for name in OPENCV if name not in libraries())
    without = Ranking(cpu=cpu_model(), libraries=libraries())
    about = tmp_path / f"{name.replace('-', '_')}-4.2.dist-info" / "METADATA"
    about.parent.mkdir()
    about.write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 4.2\n")
    with monkeypatch.context() as installed:
        installed.syspath_prepend(str(tmp_path))
        with_it = Ranking(cpu=cpu_model(), libraries=libraries())

        assert not with_it.stale()
        assert f"{name} missing then, 4.2 now" in without.stale()

    assert f"{name} 4.2 then, missing now" in with_it.stale()
    assert not without.stale()


def test_what_holds_the_gil_for_a_format_comes_last() -> None:
    """In the default order; only backends that import PyTorch come behind it."""
    held = {info.name: info.holds_gil for info in backends()}
    for (format, _), names in DEFAULT.orders.items():
        order = [name for name in names if name not in ("torchcodec", "torchvision")]
        holding = [name for name in order if format in held[name]]

        assert order[len(order) - len(holding) :] == holding
    assert held["pillow"] == ("jpeg2000",)
    assert held["imagecodecs"] == ()
