"""``fastdecode.bench compare``: ratios with their spread, and results that differ otherwise."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest
import results
from benches import Page
from results import measurement, says

from fastdecode.cli import main
from fastdecode.measure import _compare as compare
from fastdecode.measure.result import Result, Spread, to_json


@pytest.fixture
def shown(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    """Compare two results in files, and return the output."""

    def run(a: Result, b: Result, *options: str, status: int = 0) -> str:
        paths = [tmp_path / "a.json", tmp_path / "b.json"]
        for path, one in zip(paths, (a, b), strict=True):
            path.write_text(to_json(one), encoding="utf-8")
        assert main(["compare", *(str(path) for path in paths), *options]) == status
        return capsys.readouterr().out

    return run


def rows(text: str, name: str) -> list[list[str]]:
    """Return the cells of each row of a backend."""
    return [re.split(r" {2,}", line) for line in text.splitlines() if line.startswith(f"{name}  ")]


def test_the_bounds_hold_whichever_way_both_were_off() -> None:
    """The ratio is of the medians; its bounds are of the opposite quartiles."""
    quotient = Spread(200.0, 150.0, 240.0).over(Spread(100.0, 80.0, 125.0))

    assert quotient == Spread(2.0, 150 / 125, 240 / 80)


@pytest.mark.parametrize(
    ("low", "high", "word"),
    [
        (1.01, 1.2, "faster"),
        (0.8, 0.99, "slower"),
        (0.9, 1.1, "no clear difference"),
        (1.0, 1.1, "no clear difference"),
        (0.9, 1.0, "no clear difference"),
    ],
)
def test_only_what_exceeds_the_spread_differs(low: float, high: float, word: str) -> None:
    """A ratio whose bounds enclose or touch 1 is no difference."""
    assert compare.verdict(Spread(1.0, low, high)) == word


def test_ratios_are_printed_with_their_spread(shown) -> None:
    """Each backend has both speeds, the ratio, its bounds, and the verdict."""
    a = results.result(measurement("pillow", 100.0), measurement("opencv", 200.0))
    b = results.result(measurement("opencv", 150.0), measurement("pillow", 102.0))
    text = shown(a, b)

    assert rows(text, "pillow") == [
        ["pillow", "100", "102", "1.02", "0.96", "1.08", "no clear difference"]
    ]
    assert rows(text, "opencv") == [["opencv", "200", "150", "0.75", "0.71", "0.80", "slower"]]
    assert says(text, "lower quartile of b", "upper quartile of a")
    assert "Warning" not in text
    assert "Only in" not in text


def test_only_the_same_settings_are_compared(shown) -> None:
    """A measurement with other threads, size or output has no partner, and is listed."""
    a = results.result(measurement(), measurement(protocol="threads", threads=2))
    b = results.result(
        measurement(), measurement(protocol="threads", threads=4), measurement(size=224)
    )
    text = shown(a, b)

    assert len(rows(text, "pillow")) == 1
    assert says(text, "Only in a", "1", "pillow", "JPEG", "pool of threads", "full size", "2")
    assert says(text, "Only in b", "2", "224 px")


def test_what_was_only_checked_is_not_compared(shown) -> None:
    """A configuration without figures has no ratio; without any ratio the exit status is 1."""
    checked = replace(measurement(), images_per_s=Spread(0.0, 0.0, 0.0))

    text = shown(results.result(checked), results.result(measurement()), status=1)

    assert says(text, "Nothing", "both")
    assert rows(text, "pillow") == []


def test_a_result_is_the_same_as_itself(shown) -> None:
    """Compared with itself, a result has only ratios of 1, none is different, all lines fit."""
    text = shown(results.full(), results.full())
    found = [row for name in results.SPEEDS for row in rows(text, name)]

    assert len(found) == 4 * (4 + 4 + 4 + 1) + 4
    assert {(row[3], row[6]) for row in found} == {("1.00", "no clear difference")}
    table = text[text.index("JPEG, from memory") :]
    assert max(len(line) for line in table.splitlines()) <= 80


def test_other_circumstances_are_warned_of(shown) -> None:
    """Another machine, other files and other versions are reported."""
    a = results.full()
    b = replace(
        a,
        machine=replace(a.machine, cpu="Another CPU", load=9.0),
        collection=replace(a.collection, images=46),
        backends=(replace(a.backends[0], version="9.9"), *a.backends[1:]),
        interrupted=True,
    )
    text = " ".join(shown(a, b).split())

    warned = text.split("Warning: ")[1:]
    assert len(warned) == 4
    assert says(warned[0], "machines", "cpu", "Example CPU 3000", "Another CPU")
    assert "load" not in warned[0]
    assert says(warned[1], "collections", "images", "47", "46")
    assert says(warned[2], "versions", "simplejpeg", "1.2.3", "9.9")
    assert says(warned[3], "b: the machine was busy, load 9")
    assert says(text, "Another CPU, interrupted")
    assert says(text, "DIFFER", "in b", "swapped")


def test_the_comparison_as_a_page(tmp_path: Path, shown) -> None:
    """``--html`` writes a page with the same rows, charts, warnings and unpaired measurements."""
    pytest.importorskip("jinja2", reason="the extra `bench` brings it")
    name = '<b onclick="x">'
    a = results.full()
    b = results.result(
        *(
            replace(one, images_per_s=results.spread(2 * one.images_per_s.median))
            for one in a.measurements
            if one.images_per_s.median and one.protocol != "loader"
        ),
        machine=replace(a.machine, cpu=name),
    )
    place = tmp_path / "compare.html"
    text = shown(a, b, "--html", str(place))
    page = Page(place.read_text(encoding="utf-8"))

    assert page.open == []
    assert page.strong[:2] == ["2.0x", "2.0x"]
    assert "b" not in page.tags
    assert name in "".join(page.texts)
    assert page.tags["svg"] == 7
    rows = [row for row in page.rows if row[-1] == "faster"]
    assert len(rows) == text.count("  faster\n") > 30
    assert "Only in a" in "".join(page.texts)


def test_a_page_that_cannot_be_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A page that cannot be written is named with the reason before anything is compared."""
    pytest.importorskip("jinja2", reason="the extra `bench` brings it")
    with pytest.raises(SystemExit, match="2"):
        main(["compare", "a.json", "b.json", "--html", str(tmp_path / "none" / "x.html")])

    assert "x.html cannot be written" in " ".join(capsys.readouterr().err.split())


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "No such file or directory"),
        (b"{}", "this is not a result that"),
        (b"\xff\xfe\x00", "this is not a result that"),
        (b"\x89PNG\xa2", "this is not a result that"),
        (b'{"schema": 99}', "has schema 99, and this version reads 1"),
        (b'{"schema": 1}', "the result is damaged: result has no 'measured'"),
    ],
)
def test_what_cannot_be_read_is_an_error(
    content: bytes | None, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Missing, damaged or newer files end with status 2 and the reason."""
    good, bad = tmp_path / "good.json", tmp_path / "bad.json"
    good.write_text(to_json(results.result()), encoding="utf-8")
    if content is not None:
        bad.write_bytes(content)

    with pytest.raises(SystemExit) as caught:
        main(["compare", str(good), str(bad)])
    said = capsys.readouterr()

    assert caught.value.code == 2
    assert said.out == ""
    assert "compare: error: " in said.err
    assert "bad.json" in said.err
    assert message in said.err


def test_two_files_are_needed(capsys: pytest.CaptureFixture[str]) -> None:
    """A single file is a wrong call."""
    with pytest.raises(SystemExit) as caught:
        main(["compare", "a.json"])

    assert caught.value.code == 2
    assert "B.json" in capsys.readouterr().err
