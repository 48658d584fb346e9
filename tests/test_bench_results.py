"""The benchmark's inside: whether pixels agree, the figures, and how they are printed."""

from __future__ import annotations

import re
import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from PIL import Image as PillowImage

import fastdecode
from fastdecode import Backend, Support, registry
from fastdecode.bench import __main__ as command
from fastdecode.bench import figures, files, report, run, tables
from fastdecode.bench.check import AUTOMATIC, Check
from fastdecode.types import Header

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

QUICK = ("--seconds", "0")
TERMINAL = 80
_QUICK_ROW = ["quick", "1.00", "0.00", "1000", "1.00", "-", "agree"]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Write three pictures whose channels run in three directions."""
    ramp = PillowImage.linear_gradient("L")
    for turn in range(3):
        channels = [ramp.rotate(90 * (step + turn)) for step in range(3)]
        picture = PillowImage.merge("RGB", channels).resize((40, 30))
        picture.save(tmp_path / f"{turn}.jpg")
    return tmp_path


class Wrong(Backend):
    """Pillow's pixels, spoilt."""

    def __init__(self, spoil: Callable[[Any], Any]) -> None:
        self.spoil = spoil
        self.supports = {"jpeg": (Support(reduces=frozenset({1, 2, 4, 8})),)}

    def decode(self, data: Any, header: Header, **options: Any) -> Any:
        """Decode, and spoil."""
        pixels = fastdecode.decode(data, options["reduce"], backend="pillow")
        return np.ascontiguousarray(self.spoil(pixels))


def refuse(pixels: Any) -> Any:
    raise ValueError("out of order")


@pytest.fixture
def wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    """Register decoders that give wrong pixels or none, for one test."""
    for name in ("_registered", "_loaded", "_failed"):
        monkeypatch.setattr(registry, name, dict(getattr(registry, name)))
    for name, spoil in {
        "swapped": lambda pixels: pixels[:, :, ::-1],
        "shifted": lambda pixels: np.roll(pixels, 1, axis=0),
        "smaller": lambda pixels: pixels[1:],
        "broken": refuse,
    }.items():
        fastdecode.register(name, partial(Wrong, spoil))


def group(
    seconds: Mapping[str, Sequence[Sequence[float]]], checks: dict[str, Check] | None = None
) -> Any:
    """Make a group of two files of 1000 bytes, with the given rounds over both of them."""
    photos = [files.Photo(name, bytes(1000), Header("jpeg", 8, 8)) for name in "ab"]
    rounds = [
        run.Round((0, 1), dict(zip(seconds, times, strict=True)))
        for times in zip(*seconds.values(), strict=True)
    ]
    checks = checks or {name: Check(read={0, 1}) for name in seconds}
    return run.Group("jpeg", 1, photos, checks, "quick", tuple(seconds), (0, 1), rounds)


@pytest.mark.usefixtures("wrong")
def test_wrong_pixels_are_flagged(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Swapped channels and a shift by a row are called different; a missing row is a refusal."""
    names = "swapped,shifted,smaller,pillow"
    status = command.main([str(folder), "--backend", names, "--reduce", "1,2", *QUICK])
    output = capsys.readouterr().out

    assert status == 0
    assert "The pixels DIFFER from the reference: swapped, shifted." in output
    for name in ("swapped", "shifted"):
        assert len(re.findall(rf"^{name} .* 3 differ, max \d+$", output, re.MULTILINE)) == 2
        assert f"Pixels differ, {name}, jpeg full size (3 files):\n  0.jpg" in output
    assert "Refused by smaller (3 files)" in output
    assert len(re.findall(r"^pillow .* agree$", output, re.MULTILINE)) == 2


@pytest.mark.usefixtures("wrong")
def test_wrong_pixels_are_not_the_best(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A backend with wrong pixels is not called the fastest, however fast it is."""
    command.main([str(folder), "--backend", "swapped,pillow", "--reduce", "1", *QUICK])

    assert "Fastest here at full size: pillow" in capsys.readouterr().out


@pytest.mark.usefixtures("wrong")
def test_a_broken_backend_ends_nothing(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """One that refuses every file is not timed, and its files still count for the others."""
    status = command.main([str(folder), "--backend", "broken,pillow", "--reduce", "1", *QUICK])
    output = capsys.readouterr().out

    assert status == 0
    assert "full size, 3 files" in output
    assert "Not timed: broken, which refuses most jpeg files" in output
    assert "Refused by broken (3 files):\n  0.jpg: broken: ValueError: out of order" in output


def test_averaged_is_not_differing() -> None:
    """Averaged full-size pixels are not those of a reduced DCT, and nobody says they should be."""
    groups = [group({"slow": [[1, 1]]}, {"slow": Check({0, 1}, averaged={0, 1}, max_difference=9)})]

    assert "The pixels agree, wherever they should." in report.answer(groups)
    assert report.table(groups).sections[0][1][0][-1] == "averaged, max 9"


def test_rates() -> None:
    """Rates are over the files' median times, so one slow round does not spoil them."""
    rows = figures.rows(group({"quick": [[0.1, 0.3], [0.1, 0.3], [9.0, 9.0]]}))

    assert [row.backend for row in rows] == ["quick"]
    assert rows[0].images_per_s == pytest.approx(2 / 0.4)
    assert rows[0].mb_per_s == pytest.approx(0.002 / 0.4)
    assert rows[0].ms == pytest.approx(200)
    assert rows[0].ratio == 1


def test_ratios_are_paired() -> None:
    """A machine that slows down for a while changes no ratio: it slows both of a round."""
    slow_phase = {"quick": [[1, 1], [5, 5], [1, 1]], "half": [[2, 2], [10, 10], [2, 2]]}
    rows = {row.backend: row for row in figures.rows(group(slow_phase))}

    assert rows["half"].ratio == pytest.approx(0.5)


def test_one_spoilt_round_changes_no_ratio() -> None:
    """What hits one backend in one of the rounds does not count against it."""
    times = {"quick": [[1, 1], [9, 9], [1, 1]], "half": [[2, 2], [2, 2], [2, 2]]}

    assert figures.fastest(group(times)) == "quick"
    assert {row.backend: row.ratio for row in figures.rows(group(times))} == {
        "quick": 1,
        "half": pytest.approx(0.5),
    }


def test_order_of_rows() -> None:
    """The fastest comes first, the automatic choice last, and it is not itself the best."""
    times = {AUTOMATIC: [[1, 1]], "slow": [[3, 3]], "quick": [[2, 2]]}
    rows = figures.rows(group(times))

    assert [row.backend for row in rows] == ["quick", "slow", AUTOMATIC]
    assert [row.ratio for row in rows] == pytest.approx([1, 2 / 3, 2])


def test_best_has_the_right_pixels() -> None:
    """Ratios are to the fastest of those that agree; only if none does, to the fastest."""
    times = {"liar": [[1, 1]], "quick": [[2, 2]]}
    liar, honest = Check({0, 1}, differing={0}), Check({0, 1})

    assert figures.fastest(group(times, {"liar": liar, "quick": honest})) == "quick"
    assert figures.fastest(group(times, {"liar": liar, "quick": liar})) == "liar"


def test_no_rounds_no_rows() -> None:
    """What was interrupted before its first round has no figures."""
    assert figures.rows(group({})) == []
    assert report.answer([group({})]) == ["Nothing was measured."]


def test_common_files() -> None:
    """All are compared on the files that all read; one that reads hardly any is left out."""
    checks = {"most": Check({0, 1, 2}), "all": Check({0, 1, 2, 3}), "few": Check({3})}

    assert run.compared(checks) == (("most", "all"), (0, 1, 2))
    assert run.compared({"none": Check()}) == ((), ())


def test_interrupted_group_is_kept(folder: Path) -> None:
    """Whole rounds that were measured before an interruption stay in the results."""
    groups: list[run.Group] = []

    def interrupt(what: str, share: float) -> None:
        if what.startswith("timing"):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run.measure(
            files.collect([folder]).photos, run.Plan(("pillow",), (1, 2), 9), groups, interrupt
        )

    assert [len(one.rounds) for one in groups] == [1]
    assert {row.backend for row in figures.rows(groups[0])} == {"pillow", AUTOMATIC}


def test_every_file_is_timed(folder: Path) -> None:
    """However short the time, each file is timed; the progress ends at 1."""
    groups: list[run.Group] = []
    shares: list[float] = []
    photos = files.collect([folder]).photos
    run.measure(
        photos, run.Plan(("pillow",), (1,), 0), groups, lambda what, share: shares.append(share)
    )

    assert figures.timed_files(groups[0]) == len(photos)
    assert shares == sorted(shares)
    assert shares[-1] == pytest.approx(1)


def test_rich_table(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """On a terminal rich draws the table, with the same cells, within the width."""
    pytest.importorskip("rich", reason="rich is optional: the extra `bench` brings it")
    monkeypatch.setenv("COLUMNS", str(TERMINAL))
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    tables.show(report.table([group({"quick": [[1, 1]]})]))
    lines = re.sub(r"\x1b\[[0-9;]*m", "", capsys.readouterr().out).splitlines()

    assert lines[0].split() == ["JPEG,", "full", "size,", "2", "files"]
    assert any(line.split() == _QUICK_ROW for line in lines)
    assert max(map(len, lines)) <= TERMINAL


def test_plain_table_without_rich(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without rich the table is plain text, on a terminal too."""
    monkeypatch.setattr(tables, "HAS_RICH", False)
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    tables.show(report.table([group({"quick": [[1, 1]]})]))

    assert "\x1b" not in capsys.readouterr().out


def test_wide_cells_are_wrapped(monkeypatch: pytest.MonkeyPatch) -> None:
    """Columns that may be wrapped give way until the table fits; no word is lost."""
    monkeypatch.setenv("COLUMNS", "50")
    columns = (tables.Column("name", widest=40), tables.Column("text"))
    row = ("a-rather-long-name-" * 2, "some words " * 10)
    lines = list(tables.plain(tables.Table("", columns, [("", [row])])))

    assert max(map(len, lines)) <= 50
    assert " ".join(lines).count("words") == 10
