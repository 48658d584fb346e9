"""The command line: subcommands, typing errors, imports, and ``info``."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import results

import fastdecode
from fastdecode._system.files import check_result
from fastdecode.cli import BENCH, COMMANDS, main
from fastdecode.cli import info as command
from fastdecode.measure.result import to_json
from fastdecode.samples import photo
from fastdecode.stores import open_store
from fastdecode.types import FORMATS

TERMINAL = 80
_TAKING = ("bench", "check", "pack a")


@pytest.mark.parametrize("name", COMMANDS)
def test_every_subcommand_has_help(
    name: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """``--help`` shows the usage within 80 columns, and the overview names each subcommand."""
    monkeypatch.setenv("COLUMNS", str(TERMINAL))

    with pytest.raises(SystemExit) as ended:
        main([name, "--help"], "python -m fastdecode")
    out = capsys.readouterr().out
    assert not ended.value.code
    assert out.startswith(f"usage: python -m fastdecode {name} [-h]")
    assert max(map(len, out.splitlines())) <= TERMINAL

    with pytest.raises(SystemExit):
        main(["--help"], "python -m fastdecode")
    out = capsys.readouterr().out
    assert f"\n  {name} " in out
    assert max(map(len, out.splitlines())) <= TERMINAL


def test_help_is_also_a_word(capsys: pytest.CaptureFixture[str]) -> None:
    """``help`` is ``--help``, and ``help pack`` is ``pack --help``."""
    said = []
    for words in (["help"], ["--help"], ["help", "pack"], ["pack", "--help"]):
        with pytest.raises(SystemExit):
            main(words)
        said.append(capsys.readouterr().out)

    assert said[0] == said[1] != said[2] == said[3] != ""


def test_the_version(capsys: pytest.CaptureFixture[str]) -> None:
    """Every subcommand prints the version, and so does the command alone, also as a process."""
    for words in (["--version"], *([name, "--version"] for name in COMMANDS)):
        with pytest.raises(SystemExit):
            main(words)
        assert capsys.readouterr().out == f"fastdecode {fastdecode.__version__}\n"
    assert info("--version").stdout == f"fastdecode {fastdecode.__version__}\n"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["chek", "a"], "did you mean check?"),
        (["--what"], "fastdecode: error: unrecognized arguments: --what"),
        (["photos/"], "info, bench, check, pack, samples"),
        (["pack", "a", "b", "--skipbad"], "did you mean --skip"),
        (["bench", "--hmtl=x"], "did you mean --html?"),
        (["check", "a", "--xyz"], "unrecognized arguments: --xyz\n"),
        (["pack", "a", "b", "--quality", "101"], "101"),
        (["pack", "a", "b", "--shard-size", "0B"], "1 byte"),
        *(([*words.split(), ""], "an argument is empty") for words in _TAKING),
        (["bench", "a", "--html="], "an argument is empty"),
        *(([*words.split(), "--threads", "1025"], "1,024") for words in ("check a", "pack a b")),
        (["bench", "a", "--limit", "-1"], "'-1'"),
        (["bench", "a", "--limit", "²"], "'²'"),
        (["bench", "--reduce", "3"], "--reduce"),
        (["bench", "--reduce", ","], "--reduce"),
        (["bench", "--backend", "nope"], "'nope'"),
        *((["bench", "--seconds", value], "--seconds") for value in ("-1", "nan", "x")),
        (["bench", "--json", "no-such-folder/x.json"], "x.json"),
        (["bench", "--json", "."], "folder"),
        (["bench", "no-such-folder"], "no-such-folder"),
        (["check"], "check"),
        (["bench"], "FASTDECODE_BACKEND=nope"),
        (["check", "utf16.csv"], "utf16.csv, line 1"),
    ],
    ids=str,
)
def test_wrong_arguments_end_with_status_2(
    words: list[str],
    said: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A wrong argument is named before anything is done; an unknown word suggests the right one."""
    monkeypatch.chdir(tmp_path)
    Path("utf16.csv").write_text("path\na.jpg\n", encoding="utf-16")
    if "=nope" in said:
        monkeypatch.setenv("FASTDECODE_BACKEND", "nope")
    try:
        status = main(words)
    except SystemExit as ended:
        status = ended.code  # type: ignore[assignment]

    assert status == 2
    printed = capsys.readouterr()
    assert said in printed.err
    assert not printed.out


@pytest.mark.parametrize("name", ["check", "pack", "bench"])
def test_messages_of_commands_name_no_keyword_arguments(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """No message of a command mentions a Python keyword argument that the command lacks."""
    shards = tmp_path / "both"
    shards.mkdir()
    (shards / "a.jpg").write_bytes(b"none")
    (shards / "a.tar").write_bytes(b"none")
    (tmp_path / "strange.xyz").write_bytes(b"none")

    writing = [str(tmp_path / "o.tar")] if name == "pack" else []
    for source in ("both", "strange.xyz"):
        with pytest.raises(ValueError, match=r"(kind|targets)="):
            open_store(tmp_path / source)
        with contextlib.suppress(SystemExit):
            main([name, str(tmp_path / source), *writing])
        said = capsys.readouterr().err
        assert "kind=" not in said
        assert "targets=" not in said
        assert source in said or name == "bench"


@pytest.mark.parametrize(
    ("words", "place"),
    [
        ("check l.csv --csv", "l.csv"),
        ("check photos --csv", "l.csv"),
        ("check a.tar --csv", "a.tar"),
        ("check a.tar --csv", "a.tar.json"),
        ("check photos --csv", "photos/1.jpg"),
        ("bench photos --json", "photos/1.jpg"),
        ("bench photos --json", "l.csv"),
        ("bench photos --html", "a.tar"),
        ("bench photos --html", "r.json"),
    ],
)
def test_no_option_loses_a_file(
    words: str,
    place: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """An option replaces no image, list or store, and nothing with another suffix than its own."""
    pytest.importorskip("jinja2")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "photos").mkdir()
    shutil.copy(photo, "photos/1.jpg")
    (tmp_path / "l.csv").write_text("path,label\nphotos/1.jpg,cat\n")
    assert main(["pack", "l.csv", "a.tar"]) == 0
    for name in ("r", "r.json"):
        (tmp_path / name).write_text(to_json(results.result()))
    before = (tmp_path / place).read_bytes()
    capsys.readouterr()

    with contextlib.suppress(SystemExit):
        main([*words.split(), place])
    said = capsys.readouterr()

    assert (tmp_path / place).read_bytes() == before
    command, option = words.split(maxsplit=1)[0], words.rsplit(maxsplit=1)[-1]
    assert said.err.startswith(f"fastdecode {command}: error: {place} is there already: {option} ")
    assert said.out == ""


@pytest.mark.parametrize(("mark", "replaced"), [(b"ours", "only a file"), (b"", "no file")])
def test_an_option_replaces_what_it_has_written(tmp_path: Path, mark: bytes, replaced: str) -> None:
    """A file that begins as what is written is replaced, or an empty one; no other, and no link."""
    for name, data in {"empty": b"", "ours": b"ours too", "mine": b"mine, not ours"}.items():
        (tmp_path / name).write_bytes(data)
    (tmp_path / "link").symlink_to("empty")
    (tmp_path / "dangling").symlink_to("nothing")

    for name in ("empty", *(["ours"] if mark else [])):
        check_result(tmp_path / name, "--it", mark)
    for name in ("mine", "link", "dangling", *([] if mark else ["ours"])):
        with pytest.raises(FileExistsError, match=f"{name} .*--it .*{replaced}"):
            check_result(tmp_path / name, "--it", mark)


def test_a_place_that_cannot_be_written_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The message names the output path: a folder, a read-only one or a full disk."""
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").touch()
    here = str(photo.parent)
    for words, why in (
        (["check", here, "--csv", "folder"], "folder cannot be written: it is a folder"),
        (["check", here, "--csv", "file/c.csv"], "c.csv cannot be written: Not a directory"),
        (["bench", here, "--json", "file/b.json"], "b.json cannot be written: Not a directory"),
    ):
        with contextlib.suppress(SystemExit):
            main([*words[:-1], str(tmp_path / words[-1])])
        said = capsys.readouterr().err
        assert said.startswith(f"fastdecode {words[0]}: error: {tmp_path}")
        assert said.endswith(f"{why}\n")


def test_how_it_was_called(capsys: pytest.CaptureFixture[str]) -> None:
    """Messages begin with the command as the user called it, also for the benchmark's old path."""
    for words, prog, said in (
        (["check"], "fastdecode", "fastdecode check: error: "),
        (["bench", "--what"], BENCH, f"{BENCH}: error: "),
    ):
        with pytest.raises(SystemExit):
            main(words, prog)
        assert f"\n{said}" in capsys.readouterr().err


def info(*arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run the command in a child process, 80 columns wide."""
    kept = {name: value for name, value in os.environ.items() if "FASTDECODE" not in name}
    return subprocess.run(
        [sys.executable, "-m", "fastdecode", *arguments],
        capture_output=True,
        text=True,
        encoding="utf-8",
        env={**kept, "COLUMNS": str(TERMINAL), **variables},
        timeout=300,
        check=True,
    )


@pytest.fixture
def info_here(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Any:
    """Run ``info`` in this process, with arguments and environment variables."""

    def run(*words: str, **variables: str) -> str:
        for name, value in variables.items():
            monkeypatch.setenv(name, value)
        capsys.readouterr()
        assert main(["info", *words]) == 0
        said = capsys.readouterr()
        assert said.err == ""
        return said.out

    monkeypatch.setenv("COLUMNS", str(TERMINAL))
    return run


OUTDATED = """\
the library found here is too old. Either take the binding for it:
  pip install 'Binding<2'
or install the new library: https://example.org/a/rather/long/address/of/it"""
FACTS = command.Facts(
    fastdecode="0.2.0",
    python="CPython 3.12.4",
    platform="Linux x86_64",
    cores=4,
    environment={},
    problem="",
    backends=[
        fastdecode.BackendInfo(
            "pillow", True, "", "", "12.0", "libjpeg-turbo 3.1", True, ("jpeg", "png"), (1, 2, 4, 8)
        ),
        fastdecode.BackendInfo("absent", False, "no Absent", "pip install a", formats=("jxl",)),
        fastdecode.BackendInfo("outdated", False, OUTDATED, "pip install B", devices=("cuda",)),
    ],
    choices={"jpeg": ["pillow"], "png": ["pillow"], "jxl": []},
    devices=command.Inventory(
        {"cpu": "Example"}, {"pillow": ["cpu"], "outdated": []}, {"outdated": "no GPU"}
    ),
)


def test_the_report_of_info(
    golden: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """``info`` prints backends, choices and devices, reasons and advice."""
    preferred = {"FASTDECODE_BACKEND": "nope", "FASTDECODE_DISABLE": "opencv"}
    alone = replace(FACTS, cores=1, devices=None)
    wrong = replace(alone, environment=preferred, problem="no backend is called 'nope'")
    said = ""
    for facts in (FACTS, alone, wrong):
        monkeypatch.setattr(command, "gather", lambda facts=facts: facts)
        assert main([]) == 0
        said += f"{capsys.readouterr().out}\n"

    assert max(map(len, said.splitlines())) <= TERMINAL
    golden("info.txt", said)


def test_info_reports_backends_and_choices(info_here: Any) -> None:
    """Every backend, its choice by format, and the variables that change it."""
    output, facts = info_here(), json.loads(info_here("--json"))
    for each in fastdecode.backends():
        assert re.search(rf"^{each.name} +{'yes' if each.usable else 'no'} ", output, re.MULTILINE)
    assert [one["name"] for one in facts["backends"]] == [
        each.name for each in fastdecode.backends()
    ]
    assert facts["choices"]["jpeg"] == command.gather().choices["jpeg"]
    assert set(facts["choices"]) == {*FORMATS}
    assert max(map(len, output.splitlines())) <= TERMINAL

    facts = json.loads(info_here("--json", FASTDECODE_BACKEND="pillow"))
    assert facts["environment"] == {"FASTDECODE_BACKEND": "pillow"}
    assert facts["choices"]["jpeg"] == ["pillow"]
    facts = json.loads(info_here("--json", FASTDECODE_BACKEND="nope"))
    assert "nope" in facts["problem"]
