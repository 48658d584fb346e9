"""Tables in the terminal: by rich, and without it."""

from __future__ import annotations

import re
import sys

import pytest
import results

from fastdecode.measure import _report as report
from fastdecode.measure import _tables as tables

TERMINAL = 80


def unstyled(text: str) -> list[str]:
    """Return the lines without what makes them bold."""
    return re.sub(r"\x1b\[[0-9;]*m", "", text).splitlines()


def test_rich_table(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """On a terminal rich draws the tables, with the same cells, within the width."""
    pytest.importorskip("rich", reason="rich is optional: the extra `bench` brings it")
    monkeypatch.setenv("COLUMNS", str(TERMINAL))
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    report.show_result(results.full())
    lines = unstyled(capsys.readouterr().out)
    cells = [line.split() for line in lines]

    assert "JPEG, from memory, one thread: speed, full size, 40 files" in map(str.strip, lines)
    assert ["pillow", "120", "3%", "0.60", "±0.01", "8.37", "17.6", "20.1", "agree"] in cells
    assert max(map(len, lines)) <= TERMINAL


def test_plain_tables_have_the_cells_of_rich_ones(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without rich the tables are plain text, on a terminal too, and say the same."""
    monkeypatch.setenv("COLUMNS", str(TERMINAL))
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    report.show_result(results.full())
    drawn = {tuple(line.split()) for line in unstyled(capsys.readouterr().out)}
    monkeypatch.setattr(tables, "HAS_RICH", False)
    report.show_result(results.full())
    text = capsys.readouterr().out
    rows = {tuple(line.split()) for line in text.splitlines() if line.startswith("simplejpeg")}

    assert "\x1b" not in text
    assert len(rows) >= 13  # of speed and cost for 4 + 4 + 4 + 1 settings; some are the same
    assert rows <= drawn


def test_wide_cells_are_wrapped(monkeypatch: pytest.MonkeyPatch) -> None:
    """Columns that may be wrapped give way until the table fits; no word is lost."""
    monkeypatch.setenv("COLUMNS", "50")
    columns = (tables.Column("name", widest=40), tables.Column("text"))
    row = ("a-rather-long-name-" * 2, "some words " * 10)
    lines = list(tables.plain(tables.Table("", columns, [("", [row])])))

    assert max(map(len, lines)) <= 50
    assert " ".join(lines).count("words") == 10


def test_long_names_of_backends_keep_the_width(monkeypatch: pytest.MonkeyPatch) -> None:
    """A backend of another package may have a long name, and large figures: all still fits."""
    monkeypatch.setenv("COLUMNS", str(TERMINAL))
    name = "decoder_of_another_package"
    one = results.measurement(name, 54321.0, peak_mb=12345.0, differing=("a",) * 1234)
    lines = [line for table in report.tables(results.result(one)) for line in tables.plain(table)]

    assert max(map(len, lines)) <= TERMINAL
    assert "54,321" in " ".join(lines)
