"""The benchmark's command line: what it measures, its arguments and its files."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import pytest
from benches import (
    DECODE,
    ONE,
    WRONG_ARGUMENT,
    Page,
    bench,
    photo,
    read_result,
)
from corpus import usable_backends

import fastdecode
from fastdecode import cli
from fastdecode._backends.selection import default_order
from fastdecode.measure import _run
from fastdecode.measure._collection import USUAL_LIMIT
from fastdecode.measure._run import RunPlan
from fastdecode.measure.result import OWN, PILLOW

_WRITTEN = {"json": "result.json", "html": "result.html"}


@pytest.fixture
def plans(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, RunPlan]]:
    """Collect the number of photos and the plan of each run, in which nothing is measured."""
    found: list[tuple[int, RunPlan]] = []
    monkeypatch.setattr(_run, "measure", lambda photos, plan, *_: found.append((len(photos), plan)))
    return found


def test_a_run_writes_what_it_prints(folder: Path, tmp_path: Path) -> None:
    """``--json`` and ``--html`` write one result, and name their files."""
    pytest.importorskip("jinja2")
    files = [f"--{kind}={tmp_path / name}" for kind, name in _WRITTEN.items()]
    done = bench(folder, *DECODE, *ONE, *files)
    assert done.returncode == 0, done.stderr
    result = read_result((tmp_path / "result.json").read_text(encoding="utf-8"))
    text = done.stdout

    assert text.index("3 JPEG") < text.index("images/s") < text.index("Decoding JPEG: ")
    for name in _WRITTEN.values():
        assert str(tmp_path / name) in text.replace("\n", "")
    assert {(one.protocol, one.backend) for one in result.measurements} == {
        ("decode", PILLOW),
        ("decode", OWN),
    }
    assert {one.name for one in result.backends} >= {PILLOW}
    assert "table" in Page((tmp_path / "result.html").read_text(encoding="utf-8")).tags
    assert {path.name for path in tmp_path.iterdir()} == {"photos", *_WRITTEN.values()}


def test_json_on_standard_output_is_alone() -> None:
    """The tables go to standard error; disabled backends are left out, and samples the default."""
    others = {info.name for info in fastdecode.backends()} - {PILLOW}
    words = (*DECODE, "--reduce", 8, "--json", "-")
    done = bench(*words, FASTDECODE_DISABLE=",".join(others))
    result = read_result(done.stdout)

    assert "Decoding JPEG: " in done.stderr
    assert {one.backend: one.chosen for one in result.measurements} == {PILLOW: "", OWN: PILLOW}
    assert result.collection.samples
    assert (result.collection.images, result.collection.not_images) == (6, 0)


def test_a_short_run_compares_few(folder: Path, plans: list[tuple[int, RunPlan]]) -> None:
    """Without options: Pillow, the usually fastest other library, torchvision; the time is set."""
    cli.main(["bench", str(folder)])
    [(count, plan)] = plans
    others = [name for name in default_order("jpeg", 1) if name in usable_backends()]
    best = [name for name in others if name not in ("native", PILLOW, "torchvision")][:1]
    vision = ["torchvision"] if importlib.util.find_spec("torchvision") else []

    assert count == 3
    assert plan.backends == (PILLOW, *best, *vision)
    assert plan.visits == 2
    assert (plan.reduces, plan.every_format) == ((1,), False)
    if importlib.util.find_spec("torch"):
        assert plan.pipelines[0] == OWN
        assert "pillow" in plan.pipelines


@pytest.mark.parametrize(
    "words", [["--backend", "pillow,opencv"], ["--backend", "pillow", "--backend", "opencv"]]
)
def test_backends_add_up(words: list[str], folder: Path, plans: list[tuple[int, RunPlan]]) -> None:
    """``--backend`` takes several names, and may be given several times; others are left out."""
    pytest.importorskip("cv2")
    cli.main(["bench", str(folder), *words, "--reduce", "4,2"])
    [(_, plan)] = plans

    assert plan.backends == ("pillow", "opencv")
    assert plan.reduces == (2, 4)
    assert set(plan.pipelines) <= {OWN, "pillow", "device"}


@pytest.mark.parametrize(
    ("size", "words", "expected"),
    [
        ((40, 30), [], USUAL_LIMIT),
        ((40, 30), ["--limit", "210"], 210),
        ((40, 30), ["--limit", "0"], 220),
        ((2000, 1000), [], 50),
        ((2000, 1000), ["--limit", "60"], 60),
        ((2000, 1000), ["--seconds", "1"], USUAL_LIMIT),
        ((5000, 4000), [], 8),
    ],
)
def test_the_limit_is_honoured(
    size: tuple[int, int],
    words: list[str],
    expected: int,
    tmp_path: Path,
    plans: list[tuple[int, RunPlan]],
) -> None:
    """A short run times fifty photos of ordinary size, fewer large ones, or what is asked for."""
    data = photo(*size)
    for number in range(220):
        (tmp_path / f"{number}.jpg").write_bytes(data)

    cli.main(["bench", str(tmp_path), "--no-train", *words])

    [(count, plan)] = plans
    assert count == expected
    assert plan.visits == (3 if words else 2)


def test_a_page_needs_another_file_and_a_library(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """``--html`` is refused for the file of ``--json``, and without Jinja2, which is named."""
    if importlib.util.find_spec("jinja2"):
        with pytest.raises(SystemExit, match=str(WRONG_ARGUMENT)):
            cli.main(["bench", "--json", "x", "--html", "x"])
        assert "--json and --html are the same file" in capsys.readouterr().err
    monkeypatch.setitem(sys.modules, "jinja2", None)

    with pytest.raises(SystemExit, match=str(WRONG_ARGUMENT)):
        cli.main(["bench", "--html", "x"])
    assert "pip install 'fastdecode[bench]'" in capsys.readouterr().err
