"""What the commands print and draw: one golden text each, which ``--regenerate`` writes anew."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest
import results
from benches import TERMINAL, Page
from results import measurement, result

from fastdecode.cli import main
from fastdecode.measure import _calibrate_command, _report
from fastdecode.measure._calibrate import make_ranking
from fastdecode.measure._compare import verdict
from fastdecode.measure._summary import (
    caveats,
    number,
    percent,
    sentences,
    timed_files,
    times,
)
from fastdecode.measure.result import OWN, Result, Spread, to_json


def compared(a: Result, b: Result, folder: Path, status: int = 0) -> None:
    """Compare two results in files."""
    for name, one in (("a.json", a), ("b.json", b)):
        (folder / name).write_text(to_json(one), encoding="utf-8")
    assert main(["compare", "a.json", "b.json"]) == status


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


def test_the_card(golden: Callable[..., None]) -> None:
    """The card is valid SVG with the gain and the number of photos that were timed."""
    html = pytest.importorskip("fastdecode.measure._html", reason="needs Jinja2")
    text = html.card(results.full())

    ET.fromstring(text)
    assert "40 JPEG, 6 of 7 PNG timed" in text
    golden("card.svg", text)


def test_the_comparison(
    golden: Callable[..., None],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """`compare` prints ratios with bounds, warns of other circumstances, and lists the rest."""
    monkeypatch.chdir(tmp_path)
    a = results.full()
    b = replace(
        a,
        measurements=(
            *(
                replace(one, images_per_s=results.spread(2 * one.images_per_s.median))
                if one.backend == "pillow"
                else one
                for one in a.measurements
                if one.protocol == "decode"
            ),
            measurement("newcomer"),
        ),
        machine=replace(a.machine, cpu="Another CPU", load=9.0),
        collection=replace(a.collection, digest="d2"),
        backends=(replace(a.backends[0], version="9.9"), *a.backends[1:]),
        interrupted=True,
    )
    compared(a, b, tmp_path)

    golden("compare.txt", capsys.readouterr().out)


def test_the_ranking(
    golden: Callable[..., None],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """`calibrate` prints the order by format and reduction, and what was not measured."""
    made = make_ranking(results.full().measurements)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(_calibrate_command, "rank", lambda *_: (made, ["Not measured: x: it died"]))
    monkeypatch.setattr(_calibrate_command, "busy", lambda _: "")

    assert main(["calibrate", "--to", "r.json"]) == 0

    golden("calibrate.txt", re.sub(r"in [\d.]+ s", "in 1.0 s", capsys.readouterr().out))


def test_the_same_is_no_difference(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A result has no warning and no difference to itself; fewer files are warned of."""
    monkeypatch.chdir(tmp_path)
    compared(results.full(), results.full(), tmp_path)
    said = capsys.readouterr().out

    assert said.count("  unclear\n") == 5 + 6 + 3 + 6
    assert "Warning" not in said
    assert "Only in" not in said
    compared(result(measurement()), result(measurement(files=8)), tmp_path)
    assert "other files" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("low", "high", "word"),
    [
        (1.01, 1.2, "faster"),
        (0.8, 0.99, "slower"),
        (0.9, 1.2, "unclear"),
        (1.0, 1.2, "unclear"),
        (0.8, 1.0, "unclear"),
    ],
)
def test_only_what_exceeds_the_spread_differs(low: float, high: float, word: str) -> None:
    """A ratio whose bounds enclose or touch 1 is no difference."""
    assert verdict(Spread((low + high) / 2, low, high)) == word


def test_nothing_in_common(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Other settings, and what was only checked, are not compared; the exit status is then 1."""
    monkeypatch.chdir(tmp_path)
    checked = replace(measurement(), images_per_s=Spread(0.0, 0.0, 0.0))
    compared(result(checked, measurement(reduce=2)), result(measurement()), tmp_path, status=1)
    said = capsys.readouterr().out

    assert "Nothing was measured in both results" in said
    assert said.count("Only in") == 2


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "No such file or directory"),
        (b"{}", "not a result"),
        (b"\xff\xfe\x00", "not a result"),
        (b'{"schema": 1}', "schema 1"),
        (b'{"schema": 2}', "'measured'"),
    ],
)
def test_what_cannot_be_compared_is_an_error(
    content: bytes | None, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A missing, damaged or older file ends with status 2, its name and the reason."""
    good, bad = tmp_path / "good.json", tmp_path / "bad.json"
    good.write_text(to_json(result()), encoding="utf-8")
    if content is not None:
        bad.write_bytes(content)

    with pytest.raises(SystemExit, match="2"):
        main(["compare", str(bad), str(good)])
    said = capsys.readouterr()

    assert said.out == ""
    assert "bad.json" in said.err
    assert message in said.err


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
