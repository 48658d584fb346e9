"""What the terminal shows of a result; tables with rich, and without it."""

from __future__ import annotations

import re
import sys
from dataclasses import replace

import pytest
import results
from results import automatic, measurement, says

from fastdecode.measure import _report as report
from fastdecode.measure import _tables as tables
from fastdecode.measure._text import COST, READING, SPEED, number

WIDE = 80


def printed(capsys: pytest.CaptureFixture[str], result: object) -> str:
    """Print a result and return the output."""
    report.show_result(result)
    return capsys.readouterr().out


def row(text: str, name: str) -> list[str]:
    """Return the cells of a backend's first row, split at two spaces."""
    line = next(line for line in text.splitlines() if line.startswith(name))
    return re.split(r" {2,}", line)


def test_everything_fits_the_terminal(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """No line of a full report is wider than 80 characters."""
    monkeypatch.setenv("COLUMNS", str(WIDE))
    result = results.full()
    report.heading(result)
    report.show_result(result)

    lines = capsys.readouterr().out.splitlines()

    assert len(lines) > 100
    assert max(len(line) for line in lines) <= WIDE


def test_the_heading_says_what_and_where(capsys: pytest.CaptureFixture[str]) -> None:
    """Machine, versions with codecs, load and files are above the result."""
    report.heading(results.full())
    text = " ".join(capsys.readouterr().out.split())

    assert says(text, "fastdecode 0.2.0", "Example CPU 3000", "4 cores", "Linux")
    assert says(text, "CPython 3.12.4", "NumPy 2.1.0")
    assert says(text, "opencv 1.2.3", "libjpeg-turbo 3.1")
    assert says(text, "Load", "0.31")
    assert says(text, "47 images", "7 PNG", "40 JPEG", "7.40 MB", "42.0 megapixels", "12 files")


@pytest.mark.parametrize(("load", "disturbed"), [(2.0, False), (2.1, True), (None, False)])
def test_a_busy_machine_is_warned_of(
    load: float | None, disturbed: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    """A load above half the cores is reported; an unknown load is not."""
    report.heading(results.result(machine=replace(results.MACHINE, load=load)))
    text = " ".join(capsys.readouterr().out.split())

    assert says(text, "busy", "4 cores", "unreliable") is disturbed
    assert ("unreliable" in text) is disturbed
    assert ("Load" in text) is (load is not None)


def test_the_answer_comes_last(capsys: pytest.CaptureFixture[str]) -> None:
    """The sentences of the answer are below all tables, as the result contains them."""
    text = printed(capsys, results.result(measurement(), answer=("Forty-two.",)))

    assert text.endswith("\n\nForty-two.\n")
    assert says(text, "JPEG, from memory, one thread: speed", "Forty-two.")


def test_a_short_run_is_one_table(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Decoding and training batches are in one table, compared with Pillow, within the width."""
    monkeypatch.setenv("COLUMNS", str(WIDE))
    report.show_result(results.result(*results.jpeg()[:7], *results.training()), brief=True)
    text = capsys.readouterr().out

    assert text.count("vs Pillow") == 1
    assert row(text, "simplejpeg")[:4] == ["simplejpeg", "200", "3%", "1.7x"]
    assert "\nJPEG, training batches of 64, 4 threads or workers, 40 files\n" in text
    assert row(text, "fastdecode Loader")[:4] == ["fastdecode Loader", "520", "3%", "4.0x"]
    assert row(text, "Pillow + DataLoader")[3] == "1.00x"
    assert max(len(line) for line in text.splitlines()) <= WIDE


def test_every_column_has_its_figure(capsys: pytest.CaptureFixture[str]) -> None:
    """Both tables show the figures of the measurement under their titles."""
    one = automatic(
        198.0, best=200.0, mb_per_s=35.64, megapixels_per_s=178.2, cpu_s_per_1000=5.05,
        latency_ms=tuple(float(n) for n in range(101)), max_difference=1,
        refused={"a.jpg": "no"}, peak_mb=1234.0,
    )  # fmt: skip
    speed, cost = printed(capsys, results.result(one)).split(": cost")

    assert row(speed, "backend") == [figure.title for figure in SPEED]
    assert row(speed, "decode()") == [
        "decode()", "198", "3%", "0.99 ±0.01", "50.0", "95.0", "99.0", "agree",
    ]  # fmt: skip
    assert row(cost, "backend") == [figure.title for figure in COST]
    assert row(cost, "decode()") == ["decode()", "35.6", "178", "5.05", "1,234", "1", "2", "1"]


def test_reading_has_its_column(capsys: pytest.CaptureFixture[str]) -> None:
    """If files are read, the table of costs has the share of reading."""
    text = printed(capsys, results.result(*results.reading(0.25)))
    cost = text.split(": cost")[1]

    assert row(cost, "backend")[-1] == READING.title
    assert row(cost, "pillow")[-1] == "25%"


def test_sections_are_named_by_what_differs(capsys: pytest.CaptureFixture[str]) -> None:
    """Reductions, threads and workers are sections, with the fastest first."""
    text = printed(capsys, results.full())

    for title in ("1/8 size, 40 files", "full size, 8 threads, 40 files",
                  "full size, 1 worker, 40 files", "full size, 7 files"):  # fmt: skip
        assert f"\n{title}\n" in text
    place = text.index("full size, 2 threads")
    order = re.findall(r"^[a-z]+(?=\b.* agree$)", text[place:], re.MULTILINE)

    assert order[:5] == ["simplejpeg", "decode", "turbojpeg", "opencv", "pillow"]


def test_output_and_size_are_in_the_title(capsys: pytest.CaptureFixture[str]) -> None:
    """The title of a table names the output and size, if not an array."""
    tensors = printed(capsys, results.result(measurement(output="tensor")))
    resized = printed(capsys, results.result(measurement(output="tensor", size=224)))

    assert "JPEG, from memory, one thread, as a tensor: speed" in tensors
    assert "one thread, resized to 224 px and normalised: speed" in resized


def test_an_interrupted_run_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    """The figures of an interrupted run are printed, and called incomplete."""
    text = printed(capsys, results.result(measurement(), interrupted=True))

    assert text.strip().startswith("Interrupted")
    assert row(text, "pillow")[1] == "100"


def test_nothing_measured_is_said_without_tables(capsys: pytest.CaptureFixture[str]) -> None:
    """An empty result prints one sentence, and no empty table or legend."""
    text = printed(capsys, results.result(interrupted=True))

    assert says(text, "Interrupted", "Nothing was measured")
    assert len(text.split("\n\n")) == 2
    assert SPEED[0].title not in text


def test_what_went_wrong_is_listed(capsys: pytest.CaptureFixture[str]) -> None:
    """Refused, differing and unreadable files are listed with reasons, before the notes."""
    text = printed(capsys, results.full())
    flat = " ".join(text.split())

    assert says(flat, "by all", "1 file", "drawings/broken.png: the data ends within the image")
    assert says(flat, "by nojpeg", "40 files", "photos/0.jpg: nojpeg: ValueError: out of order")
    assert says(flat, "photos/0.jpg", "37 more")
    assert "Refused by pillow" not in text
    assert says(flat, "Pixels differ", "swapped", "JPEG 1/8 size", "2 files")
    assert "this is no image: <b>&" in text
    assert says(flat, "Not timed", "nojpeg", "JPEG")
    assert says(flat, "Skipped", "not images", "3 files")
    assert "A note <of> the run." in text
    assert says(flat, "averaged", "does not reduce")


def test_a_file_that_one_backend_reads_is_not_refused_by_all(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A crash of the automatic choice does not make a file unreadable for the others."""
    refused = {"a.jpg": "it died"}
    text = printed(capsys, results.result(automatic(9.0, refused=refused), measurement()))

    assert says(text, "by decode()", "1 file", "a.jpg: it died")
    assert "Refused by all" not in text


def test_names_cannot_upset_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    """Control characters of file names and reasons are not printed."""
    text = printed(capsys, results.full())

    assert "\x1b" not in text
    assert "?[31m.jpg" in text


def unstyled(text: str) -> list[str]:
    """Return the lines without the codes for bold."""
    return re.sub(r"\x1b\[[0-9;]*m", "", text).splitlines()


def test_rich_table(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """On a terminal rich draws the tables with the same cells, within the width."""
    pytest.importorskip("rich", reason="rich is optional: the extra `bench` brings it")
    monkeypatch.setenv("COLUMNS", str(WIDE))
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    report.show_result(results.full())
    lines = unstyled(capsys.readouterr().out)
    cells = [line.split() for line in lines]

    assert "JPEG, from memory, one thread: speed, full size, 40 files" in map(str.strip, lines)
    assert ["pillow", "120", "3%", "1.00", "±0.00", "8.37", "17.6", "20.1", "agree"] in cells
    assert max(map(len, lines)) <= WIDE


def test_plain_tables_have_the_cells_of_rich_ones(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without rich the tables are plain text with the same cells."""
    monkeypatch.setenv("COLUMNS", str(WIDE))
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
    """Columns that may wrap get narrower until the table fits; no word is lost."""
    monkeypatch.setenv("COLUMNS", "50")
    columns = (tables.Column("name", widest=40), tables.Column("text"))
    row = ("a-rather-long-name-" * 2, "some words " * 10)
    lines = list(tables.plain(tables.Table("", columns, [("", [row])])))

    assert max(map(len, lines)) <= 50
    assert " ".join(lines).count("words") == 10


def test_long_names_of_backends_keep_the_width(monkeypatch: pytest.MonkeyPatch) -> None:
    """Long names of backends and large figures still fit the width."""
    monkeypatch.setenv("COLUMNS", str(WIDE))
    name = "decoder_of_another_package"
    one = results.measurement(name, 54321.0, peak_mb=12345.0, differing=("a",) * 1234)
    lines = [line for table in report.tables(results.result(one)) for line in tables.plain(table)]

    assert max(map(len, lines)) <= WIDE
    assert "54,321" in " ".join(lines)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.0, "0"), (0.0123, "0.012"), (0.123, "0.12"), (1.0, "1.00"), (9.994, "9.99"),
        (9.996, "10.0"), (99.94, "99.9"), (99.96, "100"), (12345.6, "12,346"),
    ],
)  # fmt: skip
def test_numbers_have_three_digits_or_all_before_the_point(value: float, text: str) -> None:
    """Figures have three significant digits, or the whole integer part."""
    assert number(value) == text
