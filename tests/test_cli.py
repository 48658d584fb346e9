"""The one command: its subcommands, what it says of slips of the finger, and what it imports."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from pathlib import Path

import pytest

import fastdecode
from fastdecode.cli import BENCH, COMMANDS, main

TERMINAL = 80


@pytest.mark.parametrize("name", COMMANDS)
def test_every_subcommand_has_help(
    name: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """``--help`` says how it is called, within 80 columns, and the overview names it."""
    monkeypatch.setenv("COLUMNS", str(TERMINAL))

    with pytest.raises(SystemExit) as ended:
        main([name, "--help"], "python -m fastdecode")
    out = capsys.readouterr().out
    assert not ended.value.code
    assert out.startswith(f"usage: python -m fastdecode {name} [-h]")
    assert max(map(len, out.splitlines())) <= TERMINAL

    with pytest.raises(SystemExit):
        main(["--help"], "python -m fastdecode")
    assert f"\n  {name} " in capsys.readouterr().out


def test_the_version(capsys: pytest.CaptureFixture[str]) -> None:
    """Every subcommand gives it, and so does the command alone."""
    for words in (["--version"], *([name, "--version"] for name in COMMANDS)):
        with pytest.raises(SystemExit):
            main(words)
        assert capsys.readouterr().out == f"fastdecode {fastdecode.__version__}\n"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["chek", "a"], "there is no command 'chek'; did you mean check?"),
        (["photos/"], "the commands are info, bench, compare, calibrate, check, pack, index"),
        (["pack", "a", "b", "--skipbad"], "unrecognized arguments: --skipbad; did you mean --skip"),
        (["bench", "--hmtl=x"], "did you mean --html?"),
        (["check", "a", "--xyz"], "unrecognized arguments: --xyz\n"),
        (["pack", "a", "b", "--quality", "101"], "101 is beyond 100"),
        (["pack", "a", "b", "--shard-size", "0"], "at least 1 byte"),
        (["bench", "a", "--batch", "3"], "--batch is for --device"),
        (["bench", "a", "--limit", "-1"], "'-1' is not 0 or a positive whole number"),
    ],
    ids=str,
)
def test_slips_of_the_finger(
    words: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """A word that nothing is called is told with the one that was meant, and exit status 2."""
    with pytest.raises(SystemExit) as ended:
        main(words)

    assert ended.value.code == 2
    assert said in capsys.readouterr().err


@pytest.mark.parametrize("name", ["check", "pack", "bench", "calibrate"])
def test_no_advice_that_a_command_cannot_take(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A message names no keyword of a function in Python, where the command has none such."""
    shards = tmp_path / "both"
    shards.mkdir()
    (shards / "a.jpg").write_bytes(b"none")
    (shards / "a.tar").write_bytes(b"none")
    (tmp_path / "strange.xyz").write_bytes(b"none")

    for source in ("both", "strange.xyz"):
        with pytest.raises(ValueError, match="kind="):
            opened(tmp_path / source)
        with contextlib.suppress(SystemExit):
            main([name, str(tmp_path / source), *([str(tmp_path / "o.tar")] * (name == "pack"))])
        said = capsys.readouterr().err
        assert "kind=" not in said
        assert source in said or name == "bench"


def opened(location: Path) -> object:
    """Open a store as a program does."""
    from fastdecode.stores import open_store

    return open_store(location)


def test_how_it_was_called(capsys: pytest.CaptureFixture[str]) -> None:
    """Messages begin with the command as it was called, the old way of the benchmark included."""
    for words, prog, said in (
        (["compare"], "fastdecode", "fastdecode compare: error: "),
        (["bench", "compare"], "fastdecode", "fastdecode compare: error: "),
        (["bench", "compare"], BENCH, f"{BENCH} compare: error: "),
        (["bench", "--what"], BENCH, f"{BENCH}: error: "),
    ):
        with pytest.raises(SystemExit):
            main(words, prog)
        assert f"\n{said}" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "kept_out"),
    [
        (["--version"], ("numpy", "fastdecode.registry")),
        (["--help"], ("numpy", "PIL", "torch", "fastdecode.measure", "fastdecode.packing")),
        (["compare", "a", "b"], ("torch", "fastdecode.packing", "fastdecode.stores")),
        (["check", "nothing-here"], ("torch", "fastdecode.measure")),
        (["index", "nothing-here.tar"], ("torch", "fastdecode.measure")),
    ],
    ids=str,
)
def test_only_what_runs_is_imported(words: list[str], kept_out: tuple[str, ...]) -> None:
    """A subcommand does not import the others, nor PyTorch without need."""
    code = (
        "import contextlib, sys\n"
        "from fastdecode.cli import main\n"
        "with contextlib.suppress(SystemExit):\n"
        f"    main({words!r})\n"
        f"print([name for name in {kept_out!r} if name in sys.modules], file=sys.stderr)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert done.stderr.splitlines()[-1] == "[]"
