"""`decode` uses the saved ranking in every process, and warns once if it is not valid."""

from __future__ import annotations

import sys
import warnings
from pathlib import Path
from typing import Any

import pytest
from corpus import usable_backends
from processes import answers

from fastdecode import Ranking, decode, use
from fastdecode._backends import selection
from fastdecode._backends.ranking import libraries
from fastdecode._backends.selection import Want, first
from fastdecode._system.processor import cpu_model
from fastdecode.testing import drawing, encode
from fastdecode.types import Header

JPEG = encode(drawing(80, 64))
HEADER = Header("jpeg", 80, 64, color="ycc", coding="baseline", subsampling="4:2:0")
FULL_SIZE = Want("RGB", 1, strict=False, complete=True)

# Which backend a process chooses, on its own and in the children that a data loader would start.
CHOSEN = """
import warnings
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
import multiprocessing
from chooser import chosen

def children(method):
    with ProcessPoolExecutor(1, multiprocessing.get_context(method)) as pool:
        return pool.submit(chosen).result()

with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    answers["here"] = chosen()
    chosen()
    answers["warnings"] = [str(warning.message) for warning in caught]
with ThreadPoolExecutor(1) as pool:
    answers["thread"] = pool.submit(chosen).result()
answers.update((method, children(method)) for method in METHODS)
"""
CHOOSER = """
from fastdecode import probe
from fastdecode._backends.selection import Want, first
from fastdecode.testing import drawing, encode

def chosen():
    header = probe(encode(drawing(80, 64)))
    return first(None, header, Want("RGB", 1, strict=False, complete=True)).name
"""
EXACT_JPEG = ("pillow", "opencv", "simplejpeg", "turbojpeg")
METHODS = ["fork", "spawn"] if sys.platform == "linux" else ["spawn"]


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return a path for the saved ranking; this test and the next read it again."""
    path = tmp_path / "ranking.json"
    monkeypatch.setenv("FASTDECODE_RANKING", str(path))
    selection.forget_saved()
    yield path
    monkeypatch.undo()
    selection.forget_saved()


def fitting(orders: Any) -> Ranking:
    """Return a ranking that is up to date here."""
    return Ranking(orders, cpu=cpu_model(), libraries=libraries())


def save(ranking: Ranking) -> None:
    """Save a ranking, and forget the one that was read."""
    ranking.save()
    selection.forget_saved()


def chosen() -> str:
    return first(None, HEADER, FULL_SIZE).name


def test_decode_goes_by_the_saved_ranking(place: Path) -> None:
    """The saved ranking decides if nothing else was set."""
    before = chosen()
    others = [name for name in usable_backends() if name in EXACT_JPEG and name != before]
    if not others:
        pytest.skip("with one backend there is no choice")
    fitting({("jpeg", 1): others[:1]}).save()
    assert chosen() == before, "a running process goes on as it began"

    selection.forget_saved()

    assert chosen() == others[0]
    assert decode(JPEG).shape == (64, 80, 3)


def test_precedence_over_the_saved_ranking(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The environment precedes the saved ranking, and `use` precedes both."""
    usual = chosen()
    save(fitting({("jpeg", 1): ("pillow",)}))
    assert chosen() == "pillow"

    with use(Ranking()):
        assert chosen() == usual

    monkeypatch.setenv("FASTDECODE_BACKEND", "nobody")
    selection.forget_saved()
    with pytest.raises(LookupError, match="FASTDECODE_BACKEND=nobody"):
        chosen()


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (None, "Is a directory"),
        ("{", "is no ranking that fastdecode wrote"),
        ('{"schema": 99}', "its schema is 99"),
        ('{"schema": 1, "cpu": "", "libraries": {}, "measured": "", "cells": []}', "schema is 1"),
        (Ranking({("jpeg", 1): ("pillow",)}, cpu="Some CPU"), "another processor"),
        (
            Ranking({("jpeg", 1): ("pillow",)}, cpu=cpu_model(), libraries={"pillow": "1.0"}),
            "pillow 1.0 then",
        ),
    ],
    ids=["folder", "damaged", "schema", "earlier version", "processor", "libraries"],
)
def test_what_is_no_good_is_ignored_with_one_warning(
    content: str | Ranking | None, said: str, place: Path
) -> None:
    """Damaged and stale rankings are ignored; one warning says why, and what to do."""
    before = chosen()
    if isinstance(content, Ranking):
        content.save()
    elif content is None:
        place.mkdir()
    else:
        place.write_text(content)
    selection.forget_saved()

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        assert [chosen(), chosen()] == [before, before]
        decode(JPEG)

    assert len(caught) == 1
    assert "the saved ranking of the backends is ignored" in str(caught[0].message)
    assert said in str(caught[0].message)
    assert "measure again: fastdecode calibrate" in str(caught[0].message)


def test_threads_and_workers_go_by_it(place: Path, tmp_path: Path) -> None:
    """Other threads, and processes, forked or spawned, go by it."""
    (tmp_path / "chooser.py").write_text(CHOOSER)
    pytest.importorskip("cv2")
    fitting({("jpeg", 1): ("opencv",)}).save()

    found = answers(f"METHODS = {METHODS}" + CHOSEN, tmp_path, FASTDECODE_RANKING=str(place))

    assert {found["here"], found["thread"], *(found[method] for method in METHODS)} == {"opencv"}
    assert found["warnings"] == []
