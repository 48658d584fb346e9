"""What the commands print and draw: one golden text each, which ``--regenerate`` writes anew."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace

import pytest
import results
from benches import TERMINAL, Page, read_result
from results import measurement, result

from fastdecode.measure._report import (
    answer,
    caveats,
    number,
    page,
    show_heading,
    show_result,
    times,
)
from fastdecode.measure.result import SCHEMA, to_json


def test_the_terminal(golden: Callable[..., None], capsys: pytest.CaptureFixture[str]) -> None:
    """`bench` prints tables, remarks, files that went wrong and the answer, in 80 columns."""
    one = results.full()
    show_heading(one)
    show_result(one)
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
    show_result(result(long, measurement()))

    assert max(map(len, capsys.readouterr().out.splitlines())) <= TERMINAL


def test_the_page(golden: Callable[..., None]) -> None:
    """The page is valid, escapes what strangers wrote, and needs no other file or script."""
    pytest.importorskip("jinja2")
    text = page(results.full())
    parsed = Page(text)

    assert "script" not in parsed.tags
    assert results.EVIL.replace("\x1b", "\\x1b") in parsed.texts
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


def test_the_fastest_has_the_right_pixels() -> None:
    """A backend whose pixels differ is never called the fastest, and is named."""
    lines = answer(result(measurement("wrong", 900, differing=("a",)), measurement("pillow", 40)))

    assert "fastest: pillow" in lines[0]
    assert "DIFFER" in lines[1]
    assert "wrong" in lines[1]
    assert answer(result()) == ["Nothing was measured."]


def test_what_makes_figures_uncertain() -> None:
    """A busy machine, few images and the package's own photos are said."""
    one = result(measurement(files=19))

    assert "19 images" in caveats(one)[0]
    assert caveats(result(measurement(files=20))) == []
    busy = replace(one, machine=replace(one.machine, load=2.1))
    assert "load 2.10, cores 4" in caveats(busy)[0]
    samples = replace(one, collection=replace(one.collection, samples=True))
    assert "own photos" in caveats(samples)[0]


def test_numbers() -> None:
    """Numbers have three digits; a quotient has as many as mean something."""
    assert [number(value) for value in (0, 0.0123, 0.5, 9.994, 12.34, 99.96, 1234.5)] == [
        "0", "0.012", "0.50", "9.99", "12.3", "100", "1,234",
    ]  # fmt: skip
    assert [times(value) for value in (0.98, 1.19, 1.2, 9.94, 9.96)] == [
        "0.98x", "1.19x", "1.2x", "9.9x", "10x",
    ]  # fmt: skip
