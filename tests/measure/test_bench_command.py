"""The benchmark's command line: arguments, output files, and exit statuses."""

from __future__ import annotations

import importlib.util
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import results
from benches import (
    DECODE,
    INTERRUPTED,
    QUICK,
    TERMINAL,
    WRONG_ARGUMENT,
    Page,
    bench,
    bench_result,
    environment,
    make_photos,
    photo,
)
from corpus import usable_backends

from fastdecode import cli
from fastdecode.measure import _run
from fastdecode.measure.result import from_json, to_json

ONE = ("--backend", "pillow")
_TWO = [name for name in ("pillow", "native", "simplejpeg") if name in usable_backends()][:2]
_OTHERS = ",".join(name for name in usable_backends() if name not in _TWO)
_WRITTEN = {"json": "result.json", "html": "result.html", "card": "result.svg"}
needs_core = pytest.mark.skipif(
    "native" not in usable_backends(), reason="the native core has not been built"
)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Create three JPEGs in two folders, next to hidden files and files that are not images."""
    return make_photos(tmp_path)


@pytest.fixture(scope="module")
def no_torch(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Return an import path without PyTorch."""
    place = tmp_path_factory.mktemp("path")
    (place / "sitecustomize.py").write_text(
        "import importlib.util as u\n"
        "find = u.find_spec\n"
        "u.find_spec = lambda name, *rest: None if name == 'torch' else find(name, *rest)\n"
    )
    return os.pathsep.join([str(place), os.environ.get("PYTHONPATH", "")])


@pytest.fixture(scope="module")
def short(
    no_torch: str, tmp_path_factory: pytest.TempPathFactory
) -> tuple[subprocess.CompletedProcess[str], Path]:
    """Run the command as fast as possible, with few backends and without PyTorch."""
    pytest.importorskip("jinja2")
    place = tmp_path_factory.mktemp("short")
    files = [f"--{kind}={place / name}" for kind, name in _WRITTEN.items()]
    quick = ("--seconds", 0, "--backend", "pillow,native")
    done = bench(make_photos(place), *quick, *files, PYTHONPATH=no_torch)
    assert done.returncode == 0, done.stderr
    return done, place


@needs_core
def test_the_answer_comes_last(short: tuple[subprocess.CompletedProcess[str], Path]) -> None:
    """A run without options prints what is measured, one table, and the answer with the page."""
    text = short[0].stdout

    assert text.index("3 images") < text.index("images/s") < text.index("On your 3 photos")
    assert text.count("vs Pillow") == 1
    assert "vs best" not in text
    last = text.strip().rpartition("\n\n")[2]
    assert last.startswith("On your 3 photos fastdecode decodes ")
    assert last.splitlines()[-1].endswith("result.html")


@needs_core
def test_what_needs_pytorch_is_left_out(
    short: tuple[subprocess.CompletedProcess[str], Path], no_torch: str
) -> None:
    """Without PyTorch no batches are made: a note says what to install; --size is refused."""
    result = from_json((short[1] / "result.json").read_text(encoding="utf-8"))

    assert {one.protocol for one in result.measurements} == {"decode"}
    assert any("train" in note and "fastdecode[torch]" in note for note in result.notes)
    done = bench("--size", 8, PYTHONPATH=no_torch)
    assert done.returncode == WRONG_ARGUMENT
    assert "pip install 'fastdecode[torch]'" in done.stderr


@needs_core
def test_files_are_written(short: tuple[subprocess.CompletedProcess[str], Path]) -> None:
    """``--json``, ``--html`` and ``--card`` write one result, and the JSON reads back."""
    place = short[1]
    result = from_json((place / "result.json").read_text(encoding="utf-8"))
    page = Page((place / "result.html").read_text(encoding="utf-8"))

    assert result.collection.images == 3
    assert from_json(to_json(result)) == result
    assert result.settings["reduces"] == [1]
    assert {"html", "svg", "table"} <= set(page.tags)
    assert "as fast as Pillow" in (place / "result.svg").read_text(encoding="utf-8")
    assert sorted(path.name for path in place.iterdir()) == [
        "photos",
        "result.html",
        "result.json",
        "result.svg",
    ]


@needs_core
def test_results_are_compared(short: tuple[subprocess.CompletedProcess[str], Path]) -> None:
    """``compare`` as the first word compares two results."""
    done = bench("compare", *[short[1] / "result.json"] * 2)

    assert done.returncode == 0, done.stderr
    assert "pillow" in done.stdout


def test_json_on_standard_output_is_alone(folder: Path) -> None:
    """With ``--json -`` the tables go to standard error."""
    done = bench(folder, *DECODE, *ONE, "--json", "-")

    assert from_json(done.stdout).collection.images == 3
    assert "Fastest here" in done.stderr


def test_list_measures_nothing(folder: Path) -> None:
    """``--list`` names the images with their sizes, and unreadable ones, and ends."""
    (folder / "empty.jpg").write_bytes(b"")
    done = bench(folder, "--list")

    assert done.returncode == 0, done.stderr
    assert "0.jpg" in done.stdout
    assert str(Path("inner", "1.jpg")) in done.stdout
    assert "40 x 30" in done.stdout
    assert "3 images\nUnreadable: 1\n  empty.jpg: " in done.stdout


def test_empty_folder(tmp_path: Path) -> None:
    """A folder without images is an error."""
    done = bench(tmp_path)

    assert done.returncode == WRONG_ARGUMENT
    assert "no readable images" in done.stderr
    assert not done.stdout


@pytest.mark.parametrize("option", ["html", "card"])
def test_a_page_needs_another_file_and_a_library(
    option: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """``--html`` is refused for the file of ``--json``, and without Jinja2, which is named."""
    if importlib.util.find_spec("jinja2"):
        with pytest.raises(SystemExit, match=str(WRONG_ARGUMENT)):
            cli.main(["bench", "--json", "x", f"--{option}", "x"])
        assert f"--json and --{option} are the same file" in capsys.readouterr().err
    monkeypatch.setitem(sys.modules, "jinja2", None)

    for command in (["bench"], *([["compare", "a.json", "b.json"]] if option == "html" else [])):
        with pytest.raises(SystemExit, match=str(WRONG_ARGUMENT)):
            cli.main([*command, f"--{option}", "x"])
        assert "pip install 'fastdecode[bench]'" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--reduce", "3"], "1, 2, 4 and 8"),
        (["--reduce", ","], "empty"),
        (["--backend", "nope"], "no backend is called 'nope'"),
        (["--limit", "-1"], "positive"),
        (["--limit", "²"], "positive"),
        (["--seconds", "-1"], "seconds"),
        (["--seconds", "nan"], "seconds"),
        (["--threads", "1,0"], "positive"),
        (["--workers", "many"], "positive"),
        (["--protocol", "decode,what"], "decode, train, threads"),
        (["--output", "gif"], "invalid choice"),
        (["--size", "-3"], "positive"),
        (["--size", "8", "--output", "pil"], "--size gives tensors"),
        (["--json", "no-such-folder/x.json"], "cannot be written"),
        (["--json", "."], "cannot be written: it is a folder"),
        (["--save", "--backend", "pillow"], "not with --backend"),
        (["--save", "--output", "pil"], "not with --output pil"),
        (["--what"], "unrecognized"),
        (["no-such-folder"], "no file or folder"),
        (["compare"], "compare"),
    ],
)
def test_bad_arguments(
    arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """A wrong argument ends with status 2 and a message before anything is measured."""
    with pytest.raises(SystemExit, match=str(WRONG_ARGUMENT)):
        cli.main(["bench", *arguments])
    said = capsys.readouterr()

    assert words in said.err
    assert not said.out


def test_unusable_preference(folder: Path) -> None:
    """A wrong ``FASTDECODE_BACKEND`` is an error before anything is measured."""
    done = bench(folder, FASTDECODE_BACKEND="nope")

    assert done.returncode == WRONG_ARGUMENT
    assert "FASTDECODE_BACKEND=nope" in done.stderr


def test_help_has_examples() -> None:
    """``--help`` has examples, within 80 columns, and in ASCII if necessary."""
    done = bench("--help", PYTHONIOENCODING="ascii")

    assert done.returncode == 0
    assert "python -m fastdecode.bench photos/" in done.stdout
    assert max(map(len, done.stdout.splitlines())) <= TERMINAL


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="there are no named pipes here")
def test_pipes_are_no_images(folder: Path) -> None:
    """A named pipe is listed as unreadable, and does not block the run."""
    os.mkfifo(folder / "pipe.jpg")
    done = bench(folder / "pipe.jpg")

    assert done.returncode == WRONG_ARGUMENT
    assert "not a regular file" in done.stderr


def test_a_reader_that_leaves(folder: Path) -> None:
    """``... | head`` ends the command quietly."""
    reading, writing = os.pipe()
    os.close(reading)
    done = subprocess.run(
        [sys.executable, "-m", "fastdecode.bench", str(folder), "--list"],
        stdout=writing,
        stderr=subprocess.PIPE,
        env=environment(),
        check=False,
    )
    os.close(writing)

    assert done.returncode == 1
    assert not done.stderr


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no full device here")
def test_a_full_disk(folder: Path) -> None:
    """A full standard output is reported in one line."""
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "fastdecode.bench", str(folder), "--list"],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            env=environment(),
            check=False,
        )

    assert done.returncode == 1
    assert re.fullmatch(r"python -m fastdecode\.bench: error: standard output: .+\n", done.stderr)


@pytest.mark.skipif(sys.platform == "win32", reason="Windows cannot send Ctrl-C to one process")
def test_interrupt_prints_what_there_is(folder: Path, tmp_path: Path) -> None:
    """Ctrl-C ends a long run with the figures so far and status 130; files are still written."""
    kept = tmp_path / "part.json"
    command = [sys.executable, "-m", "fastdecode.bench", str(folder), "--seconds", "1000"]
    with subprocess.Popen(
        [*command, "--json", str(kept), *ONE],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        encoding="utf-8",
        env=environment(),
        # Where the tests themselves run in the background, children are born deaf to Ctrl-C.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # noqa: PLW1509
    ) as process:
        assert process.stderr is not None
        # The line comes after the first round.
        assert any(line.startswith("timing") for line in iter(process.stderr.readline, ""))
        process.send_signal(signal.SIGINT)
        output, errors = process.communicate(timeout=60)
    result = from_json(kept.read_text(encoding="utf-8"))

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
    assert said.endswith("old.json is left as it was.\nnew.html is not written.\n")


def test_output_fits_a_terminal(folder: Path) -> None:
    """No line is wider than 80 characters, even with long names and reasons."""
    (folder / f"{'long-name-' * 20}.jpg").write_bytes(photo(400, 300)[:2000])
    (folder / f"{'long name ' * 20}.jpg").write_bytes(b"")
    protocols = ("--protocol", "decode,threads,file", "--threads", 1)
    done = bench(folder, *QUICK, *ONE, *protocols)

    assert done.returncode == 0, done.stderr
    assert max(map(len, done.stdout.splitlines())) <= TERMINAL


def test_saving_keeps_the_ranking(folder: Path, tmp_path: Path) -> None:
    """``--save`` writes the ranking where later processes read it."""
    ranking = tmp_path / "ranking.json"
    bench_result(
        folder, *DECODE, "--save", FASTDECODE_RANKING=str(ranking), FASTDECODE_DISABLE=_OTHERS
    )

    assert ranking.exists() == (len(_TWO) > 1)


def test_nothing_to_save(folder: Path, tmp_path: Path) -> None:
    """A result without an order of backends is not saved as a ranking."""
    ranking = tmp_path / "ranking.json"
    done = bench(
        folder, "--seconds", "0", "--reduce", "1", "--protocol", "file", "--save",
        FASTDECODE_RANKING=str(ranking), FASTDECODE_DISABLE=_OTHERS,
    )  # fmt: skip

    assert done.returncode == 0
    assert "Nothing to save" in done.stderr
    assert not ranking.exists()


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="the system has no device that is full")
def test_a_full_disk_is_named(folder: Path) -> None:
    """A file that cannot be written at the end is named, after the figures."""
    done = bench(folder, *DECODE, *ONE, "--json", "/dev/full")

    assert done.returncode == WRONG_ARGUMENT
    assert "Fastest here" in done.stdout
    assert "error: /dev/full cannot be written: No space left on device" in done.stderr
