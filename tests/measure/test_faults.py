"""What goes wrong: crashes, hangs, wrong pixels, Ctrl-C, full disks, missing libraries."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import results
from benches import (
    DECODE,
    INTERRUPTED,
    ONE,
    WRONG_ARGUMENT,
    bench,
    environment,
    photo,
    read_result,
)
from doubles import restore_registry

import fastdecode
from fastdecode import cli
from fastdecode.measure import _collection, _processes, _run
from fastdecode.measure._run import Run, RunPlan, measure
from fastdecode.measure.result import OWN, PILLOW, Measurement, to_json

WRONG = ("swapped", "fullsize", "shifted", "smaller", "broken", "crashing", "unstable", "averaging")
FILES = {"0.jpg", str(Path("inner", "1.jpg")), str(Path("inner", "2.jpg"))}
FULL = "/dev/full"
needs_full = pytest.mark.skipif(
    not Path(FULL).exists(), reason="the system has no device that is full"
)


@pytest.fixture(autouse=True)
def _wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    """Register the wrong backends for one test."""
    restore_registry(monkeypatch)
    for name in WRONG:
        fastdecode.register(name, f"doubles:{name.title()}")
    fastdecode.register("hanging", "measured_doubles:Hanging")


def measured(folder: Path, *backends: str, reduce: int = 1) -> tuple[dict[str, Measurement], Run]:
    """Measure backends at one reduction; return their measurements by name, and the run."""
    run = Run()
    plan = RunPlan(backends, (reduce,), seconds=0)  # type: ignore[arg-type]
    measure(_collection.collect([folder]).photos, plan, run)
    return {one.backend: one for one in run.measurements()}, run


@pytest.mark.thorough
@pytest.mark.parametrize("reduce", [1, 2])
def test_wrong_pixels_are_flagged(folder: Path, reduce: int) -> None:
    """Swapped channels and a shifted row are called different; a missing row is a refusal."""
    found, _ = measured(folder, "swapped", "shifted", "smaller", PILLOW, reduce=reduce)

    for name in ("swapped", "shifted"):
        assert set(found[name].differing) == FILES
        assert not found[name].refused
    assert set(found["smaller"].refused) == FILES
    for name in (PILLOW, OWN):
        assert not found[name].differing


def test_averaged_pixels_are_told_from_wrong_ones(folder: Path) -> None:
    """Averaged full-size pixels differ by design; wrong ones are found below the averaging."""
    found, _ = measured(folder, "averaging", "fullsize", PILLOW, reduce=2)

    assert (found["averaging"].averaged, found["averaging"].differing) == (3, ())
    assert found["fullsize"].averaged == 3
    assert set(found["fullsize"].differing) == FILES


def test_a_crash_or_hang_ends_nothing(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A backend that crashes or hangs, while checked or timed, is reported with a reason."""
    monkeypatch.setattr(_processes, "PATIENCE_S", 5.0)
    whys = {"crashing": "died", "unstable": "died", "hanging": "TimeoutError"}
    fastdecode.register("missing", "no_such_library:Backend")
    found, run = measured(folder, *whys, "missing", PILLOW)

    for name, why in whys.items():
        assert set(found[name].refused) == FILES
        assert why in found[name].refused["0.jpg"]
        assert found[name].files == 0
        assert any(note.startswith(f"Not measured: {name}: ") for note in run.notes)
    assert "missing" not in found
    assert any(note.startswith("Not measured: missing: ") for note in run.notes)
    assert found[PILLOW].files == found[OWN].files == 3
    assert found[PILLOW].ratio.median == 1


@pytest.mark.thorough
def test_a_pipeline_that_fails_ends_nothing(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A pipeline whose library is missing is noted, and the others are timed."""
    pytest.importorskip("torch", reason="batches are PyTorch's")
    for module in [name for name in sys.modules if name.partition(".")[0] == "torchvision"]:
        monkeypatch.delitem(sys.modules, module)
    monkeypatch.setitem(sys.modules, "torchvision", None)
    run = Run()
    plan = RunPlan((PILLOW,), pipelines=(OWN, "torchvision"), seconds=0)
    measure(_collection.collect([folder]).photos, plan, run)

    assert {one.backend for one in run.measurements() if one.protocol == "train"} == {OWN}
    assert any("torchvision + DataLoader: " in note for note in run.notes)


def test_an_interruption_keeps_whole_rounds(folder: Path) -> None:
    """Whole rounds that were measured before an interruption stay in the results."""
    run = Run()

    def interrupt(what: str, share: float, total: float) -> None:
        if what.startswith("timing") and run.cases[-1].rounds:
            raise KeyboardInterrupt

    photos = _collection.collect([folder]).photos
    with pytest.raises(KeyboardInterrupt):
        measure(photos, RunPlan((PILLOW,), (1, 2), seconds=9), run, interrupt)

    assert [len(case.rounds) for case in run.cases] == [1]
    assert {one.backend: one.files for one in run.measurements()} == {PILLOW: 3, OWN: 3}


@pytest.mark.skipif(sys.platform == "win32", reason="Windows cannot send Ctrl-C to one process")
def test_control_c_prints_what_there_is(folder: Path, tmp_path: Path) -> None:
    """Ctrl-C ends a long run with the figures so far and status 130; files are still written."""
    kept = tmp_path / "part.json"
    words = [str(folder), "--seconds", "1000", "--no-train", "--json", str(kept), *ONE]
    with subprocess.Popen(
        [sys.executable, "-m", "fastdecode.bench", *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        encoding="utf-8",
        env=environment(),
        # Where the tests themselves run in the background, children are born deaf to Ctrl-C.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # noqa: PLW1509
    ) as process:
        assert process.stderr is not None
        assert any(line.startswith("timing") for line in iter(process.stderr.readline, ""))
        time.sleep(2)  # some rounds
        process.send_signal(signal.SIGINT)
        output, errors = process.communicate(timeout=60)
    result = read_result(kept.read_text(encoding="utf-8"))

    assert process.returncode == INTERRUPTED, errors
    assert "nterrupted" in output
    assert "Traceback" not in errors
    assert result.interrupted
    assert [one.files for one in result.measurements] == [3, 3]


def test_nothing_measured_is_nothing_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """After Ctrl-C before the first figure, an earlier result stays, and a message says so."""
    pytest.importorskip("jinja2")

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(_run, "measure", interrupted)
    monkeypatch.chdir(tmp_path)
    kept = to_json(results.result())
    Path("old.json").write_text(kept)

    assert cli.main(["bench", "--json", "old.json", "--html", "new.html"]) == INTERRUPTED

    assert Path("old.json").read_text() == kept
    assert not Path("new.html").exists()
    said = capsys.readouterr().out
    assert "old.json is left as it was." in said
    assert "new.html is not written." in said


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="there are no named pipes here")
@pytest.mark.parametrize(
    ("words", "status", "said"),
    [
        (["half.jpg"], 1, "Nothing was measured.|half.jpg"),
        (["empty"], WRONG_ARGUMENT, "empty"),
        (["pipe.jpg"], WRONG_ARGUMENT, "pipe.jpg"),
        pytest.param(
            [".", "--json", FULL],
            WRONG_ARGUMENT,
            f"error: {FULL} cannot be written: No space left on device",
            marks=needs_full,
        ),
    ],
    ids=str,
)
def test_what_has_no_result_is_named(
    words: list[str],
    status: int,
    said: str,
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    """Files that nothing decodes, no images, a pipe, which would never end, and a full disk."""
    monkeypatch.chdir(folder)
    (folder / "half.jpg").write_bytes(photo(400, 300)[:2000])
    os.mkfifo(folder / "pipe.jpg")
    (folder / "empty").mkdir()
    try:
        found = cli.main(["bench", *words, *DECODE, *ONE])
    except SystemExit as ended:
        found = int(ended.code or 0)

    assert found == status
    printed = capfd.readouterr()
    for words_said in said.split("|"):
        assert words_said in f"{printed.out} {printed.err}"


def test_without_pytorch(folder: Path, tmp_path: Path) -> None:
    """Without PyTorch no batches are made, and a note says what to install."""
    (tmp_path / "sitecustomize.py").write_text(
        "import importlib.util as u\n"
        "find = u.find_spec\n"
        "u.find_spec = lambda name, *rest: None if name == 'torch' else find(name, *rest)\n"
    )
    path = os.pathsep.join([str(tmp_path), *sys.path])
    done = bench(folder, "--seconds", "0", *ONE, PYTHONPATH=path)

    assert done.returncode == 0, done.stderr
    assert "training batches of" not in done.stdout
    assert "pip install 'fastdecode[torch]'" in done.stdout.replace("\n  ", " ")
