"""What the commands print and draw: one golden text each, which ``--regenerate`` writes anew."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace

import pytest
import results
from benches import TERMINAL, Page, read_result
from results import measurement, result

from fastdecode.measure import _report
from fastdecode.measure._summary import (
    caveats,
    number,
    percent,
    sentences,
    timed_files,
    times,
)
from fastdecode.measure.result import OWN, SCHEMA, to_json


def test_the_terminal(golden: Callable[..., None], capsys: pytest.CaptureFixture[str]) -> None:
    """`bench` prints tables, remarks, files that went wrong and the answer, in 80 columns."""
    one = results.full()
    _report.heading(one)
    _report.show_result(one)
    said = capsys.readouterr().out

    assert max(map(len, said.splitlines())) <= TERMINAL
    golden("bench.txt", said)


@pytest.mark.parametrize(
    "name", ["x" * 60, "backend with a rather long name of several words"], ids=["one", "many"]
)
def test_long_names_fit(
    name: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """No line is wider than the terminal, however long the names of plugins and files are."""
    monkeypatch.setenv("COLUMNS", str(TERMINAL))
    long = measurement(name, differing=("long name " * 30,), refused={"y" * 200: "because " * 50})
    _report.show_result(result(long, measurement()))

    assert max(map(len, capsys.readouterr().out.splitlines())) <= TERMINAL


def test_the_page(golden: Callable[..., None]) -> None:
    """The page is valid, escapes what strangers wrote, and needs no other file or script."""
    html = pytest.importorskip("fastdecode.measure._html", reason="needs Jinja2")
    text = html.result_page(results.full())
    page = Page(text)

    assert "script" not in page.tags
    assert results.EVIL.replace("\x1b", "\\x1b") in page.texts
    assert not re.search(r"(src|href)=", text)
    golden("page.html", text)


def test_the_json() -> None:
    """The JSON begins with the version of its schema, and holds all of the result."""
    text = to_json(results.full())

    assert text.split()[1:3] == ['"schema":', f"{SCHEMA},"]
    assert read_result(text) == results.full()


def test_the_key_tells_configurations_apart() -> None:
    """The key of a measurement contains its settings and none of its figures."""
    settings = {"protocol": "train", "format": "png", "reduce": 2, "workers": 2, "batch": 8}
    others = [measurement(**{name: value}) for name, value in settings.items()]

    assert len({measurement().key, measurement("opencv").key, *(one.key for one in others)}) == 7
    assert measurement(speed=3.0).key == measurement().key


def test_near_is_said_only_where_it_is_so() -> None:
    """A backend is "within 3%" if its images/s are, and never for being faster."""

    def said(*speeds: float) -> str:
        names = (OWN, "opencv", "pillow")
        every = (measurement(name, speed) for name, speed in zip(names, speeds, strict=True))
        return sentences(result(*every))[0]

    assert "fastdecode, 100 images/s (opencv within 3%)" in said(100, 97.1, 40)
    assert "within" not in said(100, 96.9, 40)
    assert "opencv, 150 images/s" in said(100, 150, 40)
    assert "within" not in said(100, 150, 40)


def test_what_makes_figures_uncertain() -> None:
    """A busy machine, few images and the package's own photos are said."""
    one = result(measurement(files=19))

    assert "19 images" in caveats(one)[0]
    assert caveats(result(measurement(files=20))) == []
    busy = replace(one, machine=replace(one.machine, load=2.1))
    assert "load 2.10 on 4 cores" in caveats(busy)[0]
    samples = replace(one, collection=replace(one.collection, samples=True))
    assert "own photos" in caveats(samples)[0]
    assert timed_files(one) == "19 of 40 JPEG timed"


def test_numbers() -> None:
    """Numbers have three digits; a quotient has as many as mean something."""
    assert [number(value) for value in (0, 0.0123, 0.5, 9.994, 12.34, 99.96, 1234.5)] == [
        "0", "0.012", "0.50", "9.99", "12.3", "100", "1,234",
    ]  # fmt: skip
    assert [percent(share) for share in (0, 0.001, 0.005, 0.123)] == ["0%", "<1%", "0%", "12%"]
    assert [times(value) for value in (0.98, 1.19, 1.2, 9.94, 9.96)] == [
        "0.98x", "1.19x", "1.2x", "9.9x", "10x",
    ]  # fmt: skip
