"""Command lines with closed, full or broken terminals, Ctrl-C, and hostile file names."""

from __future__ import annotations

import csv
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from corpus import TESTS
from packed import make_source

import fastdecode
from fastdecode.cli import terminal
from fastdecode.cli.terminal import brief, csv_text, say

if os.name != "posix":
    pytest.skip("needs a POSIX shell and its devices", allow_module_level=True)

HERE = TESTS
SAMPLES = HERE / "data" / "formats"
COMMANDS = {
    "help": "fastdecode --help",
    "info": "fastdecode",
    "check": f"fastdecode check {SAMPLES}",
    "pack": "fastdecode pack source out.tar",
    "bench": f"fastdecode.bench {SAMPLES} --seconds 0 --no-train --backend pillow",
}
NAME = "=cmd|é\x1b[31m.jpg"


def started(
    words: list[str], folder: Path, out: int = subprocess.PIPE, **variables: str
) -> subprocess.CompletedProcess[bytes]:
    """Run a program to its end."""
    # The package that is tested: the tree has no compiled core when the installed one is.
    package = str(Path(fastdecode.__file__).parents[1])
    environment = {"PYTHONPATH": package, **variables}
    return subprocess.run(
        words,
        stdout=out,
        stderr=subprocess.PIPE,
        cwd=folder,
        env={**os.environ, **environment},
        timeout=120,
        check=False,
    )


def shell(line: str, folder: Path, **variables: str) -> subprocess.CompletedProcess[bytes]:
    """Run a shell line, in which PYTHON is the interpreter."""
    line = "set -o pipefail; " + line.replace("PYTHON", f"'{sys.executable}' -m")
    return started(["bash", "-c", line], folder, **variables)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Create a folder with a file whose name contains control characters."""
    place = tmp_path_factory.mktemp("terminal")
    make_source(place / "source")
    (place / "source" / "cats" / NAME).write_bytes(b"none")
    from tars import numbered, write_tar

    write_tar(place / "shard.tar", numbered(3))
    return place


@pytest.mark.parametrize("name", ["check", "bench"])
@pytest.mark.parametrize(
    ("to", "said"),
    [
        (">/dev/full", rb"python -m \S+( check)?: error: standard output: No space left on .+\n"),
        ("| exec 0<&-", rb""),
    ],
    ids=["full", "gone"],
)
def test_output_that_nobody_reads(folder: Path, name: str, to: str, said: bytes) -> None:
    """The exit status is 1 with one line of error, or none if the reader has closed the pipe."""
    if "full" in to and not Path("/dev/full").exists():
        pytest.skip("the system has no device that is full")
    if "exec" in to:  # a reader that is gone for certain
        reading, writing = os.pipe()
        os.close(reading)
        done = started([sys.executable, "-m", *COMMANDS[name].split()], folder, writing)
        os.close(writing)
    else:
        done = shell(f"PYTHON {COMMANDS[name]} {to}", folder)

    assert done.returncode == 1
    assert re.fullmatch(said, done.stderr), done.stderr


def test_errors_that_nobody_reads(folder: Path) -> None:
    """The exit status is that of the error if standard error is closed."""
    assert shell("PYTHON fastdecode check nothing-here <&- >&- 2>&-", folder).returncode == 2


def test_files_are_not_written_over_by_what_is_printed(folder: Path, tmp_path: Path) -> None:
    """With all standard streams closed, a store is complete and has nothing printed into it."""
    line = "PYTHON fastdecode pack source {}/out.tar --skip-bad"
    assert shell(line.format(tmp_path), folder).returncode == 0
    whole = (tmp_path / "out.tar").read_bytes()
    (tmp_path / "closed").mkdir()

    done = shell(line.format(tmp_path / "closed") + " <&- >&- 2>&-", folder)

    assert done.returncode == 0
    assert (tmp_path / "closed" / "out.tar").read_bytes() == whole


_INTERRUPTED_IMPORT = """
import importlib.abc, os, runpy, signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)
class Interrupting(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name == MODULE:
            os.kill(os.getpid(), signal.SIGINT)
sys.meta_path.insert(0, Interrupting())
sys.argv = ARGUMENTS
runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
"""


@pytest.mark.parametrize("name", COMMANDS)
def test_control_c_while_it_is_imported(folder: Path, name: str) -> None:
    """Ctrl-C during any import ends the command silently with status 130."""
    code = _INTERRUPTED_IMPORT.replace("ARGUMENTS", repr(COMMANDS[name].split()))
    module = {
        "info": "fastdecode._backends.selection",
        "help": "fastdecode.cli.terminal",
    }.get(name, "numpy")
    done = started([sys.executable, "-c", code.replace("MODULE", repr(module))], folder)

    assert (done.returncode, done.stdout, done.stderr) == (130, b"", b"")


@pytest.mark.parametrize(
    "variables",
    [
        {"LC_ALL": "C", "PYTHONIOENCODING": "ascii:strict"},
        {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"},
    ],
    ids=["C", "ASCII"],
)
def test_names_beyond_the_locale(folder: Path, tmp_path: Path, variables: dict[str, str]) -> None:
    """Files are found, read and named by their bytes, whatever the locale."""
    (tmp_path / "sé" / "ü").mkdir(parents=True)
    for name in ("ä.jpg", "b.jpg"):
        data = (folder / "source" / "cats" / "0.jpg").read_bytes()
        (tmp_path / "sé" / "ü" / name).write_bytes(data)
    (tmp_path / "sé" / "ü" / "ö.jpg").write_bytes(b"none")

    found = shell("PYTHON fastdecode check sé --csv fé.csv", tmp_path, **variables)
    made = shell("PYTHON fastdecode pack sé oé.tar --skip-bad", tmp_path, **variables)

    statuses = [done.returncode for done in (found, made)]
    assert statuses == [1, 0], [found.stderr, made.stderr]
    assert b"2 images" in made.stdout
    with (tmp_path / "fé.csv").open(newline="", encoding="utf-8") as file:
        assert [row["key"] for row in csv.DictReader(file)] == ["ü/b.jpg", "ü/ä.jpg", "ü/ö.jpg"]


@pytest.mark.parametrize("name", ["check", "pack", "bench"])
def test_names_that_act_on_a_terminal(folder: Path, tmp_path: Path, name: str) -> None:
    """No control character of a file's name is printed, in a table or an error."""
    strange = tmp_path / "a\x1b]0;x\x07b"
    strange.mkdir()
    (strange / NAME).write_bytes(b"none")
    (strange / "x\x9b.tar").write_bytes(b"none")
    line = {
        "check": "PYTHON fastdecode check .",
        "pack": "PYTHON fastdecode pack . ../out.tar",
        "bench": "PYTHON fastdecode.bench .; PYTHON fastdecode.bench x*.tar",
    }[name]

    done = shell(line, strange)

    printed = done.stdout.decode() + done.stderr.decode()
    assert printed
    assert not [letter for letter in printed if not letter.isprintable() and letter != "\n"]
    assert b"Traceback" not in done.stderr


def test_words_on_any_terminal(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Control characters and invalid bytes are escaped, and no line is too wide."""
    monkeypatch.setenv("COLUMNS", "200")
    say("bad: a\udcff\x1b[31m.jpg: é " + "words " * 20, indent="  ")
    lines = capsys.readouterr().out.splitlines()

    assert lines[0].startswith("bad: a\\udcff\\x1b[31m.jpg: é words")
    assert lines[1].startswith("  words")
    assert max(map(len, lines)) <= 80
    assert len(brief("x" * 1000)) < 120


def test_progress_ends_at_its_total(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The line of counted work shows the last count, however soon it comes after another."""
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    with terminal.progress(counted=True) as notify:
        for done in range(2001):
            notify("reading", done, 2000)

    assert capsys.readouterr().err.endswith("\rreading 2,000 of 2,000\n")


def test_a_table_of_strangers_words_reads_back() -> None:
    """CSV cells read back unchanged, except for control characters and spreadsheet formulas."""
    keys = {
        "plain.jpg": "plain.jpg",
        'a,"b"\n.jpg': 'a,"b"\\n.jpg',
        "=1+1": "'=1+1",
        "-2.jpg": "'-2.jpg",
        "@x": "'@x",
        "a\x1b[31m": "a\\x1b[31m",
        "é 漢\u3000字": "é 漢\u3000字",
        "\u202egpj": "\\u202egpj",
        "'x": "'x",
        "": "",
    }

    text = csv_text([("key", "number"), *((key, 7) for key in keys)])
    rows = list(csv.reader(text.splitlines()))

    assert rows == [["key", "number"], *([key, "7"] for key in keys.values())]
