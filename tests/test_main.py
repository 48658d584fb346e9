"""``python -m fastdecode``: what it says of the backends, the choice and the machine."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import NO_RANKING
from doubles import forget_what_is_registered

import fastdecode
from fastdecode import Ranking
from fastdecode import _info_command as command
from fastdecode.cli import main
from fastdecode.errors import BackendUnavailable

TERMINAL = 80
TWO_WAYS = """\
the library found here is too old. Either take the binding for it:
  pip install 'Binding<2'
or install the new library: https://example.org/a/rather/long/address/of/it"""


def run(*arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run the command in a process of its own, 80 columns wide."""
    kept = {name: value for name, value in os.environ.items() if "FASTDECODE" not in name}
    return subprocess.run(
        [sys.executable, "-m", "fastdecode", *arguments],
        capture_output=True,
        text=True,
        encoding="utf-8",
        env={**kept, "COLUMNS": str(TERMINAL), "FASTDECODE_RANKING": NO_RANKING, **variables},
        timeout=300,
        check=False,
    )


@pytest.fixture
def old_library(monkeypatch: pytest.MonkeyPatch) -> None:
    """Register a backend whose library is too old, for one test."""
    forget_what_is_registered(monkeypatch)

    def construct() -> fastdecode.Backend:
        raise BackendUnavailable(TWO_WAYS)

    fastdecode.register("outdated", construct, distribution="Binding")


def test_says_what_there_is() -> None:
    """Every backend has its row, every format its choice, and the status is 0."""
    done = run()
    lines = [line.split() for line in done.stdout.splitlines()]

    assert done.returncode == 0, done.stderr
    for info in fastdecode.backends():
        row = next(line for line in lines if line[:1] == [info.name])
        assert row[1] == ("yes" if info.usable else "no")
    for kind in ("jpeg", "png", "webp", "gif", "bmp", "tiff", "avif", "heic", "jpeg2000", "jxl"):
        assert any(line[:1] == [kind] and len(line) > 1 for line in lines)
    assert fastdecode.__version__ in done.stdout
    assert "usable core" in done.stdout


def test_fits_a_terminal() -> None:
    """No line is wider than 80 characters."""
    for done in (run(), run("--help"), run(FASTDECODE_BACKEND="nope")):
        assert max(map(len, done.stdout.splitlines())) <= TERMINAL


def test_missing_backends_come_with_a_command() -> None:
    """Each backend that is not usable has its reason, and what installs it."""
    output = run().stdout

    for info in fastdecode.backends():
        if not info.usable:
            assert f"  {info.name}: {info.reason.splitlines()[0][:20]}" in output
            lines = info.install.split(" && ")
            shown = all(line in " ".join(output.split()) for line in lines)
            assert shown or "pip install" in info.reason or "apt" in info.reason


@pytest.mark.usefixtures("old_library")
def test_ways_out_are_printed_whole(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A reason of several lines keeps them, and no general line contradicts it."""
    monkeypatch.setenv("COLUMNS", str(TERMINAL))
    status = main(["info"])
    output = capsys.readouterr().out

    assert status == 0
    assert "\n      pip install 'Binding<2'\n" in output
    assert "https://example.org/a/rather/long/address/of/it" in output
    assert "pip install Binding\n" not in output


def test_environment_is_named() -> None:
    """A variable that changes the choice is shown, and the choice follows it."""
    done = run(FASTDECODE_BACKEND="pillow", FASTDECODE_DISABLE="opencv")

    assert done.returncode == 0, done.stderr
    assert "FASTDECODE_BACKEND=pillow is set." in done.stdout
    assert "FASTDECODE_DISABLE=opencv is set." in done.stdout
    assert "\n  jpeg      pillow\n" in done.stdout


def test_unusable_preference_is_shown() -> None:
    """A wrong ``FASTDECODE_BACKEND`` is told, not raised."""
    done = run(FASTDECODE_BACKEND="nope")

    assert done.returncode == 0, done.stderr
    assert "no backend is called 'nope'" in done.stdout


def test_json_has_the_same_facts() -> None:
    """``--json`` gives every backend and every choice."""
    done = run("--json")
    facts = json.loads(done.stdout)

    assert done.returncode == 0, done.stderr
    assert [one["name"] for one in facts["backends"]] == [
        info.name for info in fastdecode.backends()
    ]
    assert facts["choices"]["jpeg"] == command.gather().choices["jpeg"]
    assert facts["cores"] >= 1


def test_what_would_be_faster() -> None:
    """Only missing backends that would come before the chosen one are recommended."""
    missing = [
        fastdecode.BackendInfo(name, False, "missing", f"pip install {name}")
        for name in ("simplejpeg", "kornia_rs")
    ]

    assert command.faster(missing, ["opencv", "pillow"]) == {"simplejpeg": "pip install simplejpeg"}
    assert command.faster(missing, ["simplejpeg"]) == {}
    assert list(command.faster(missing, [])) == ["simplejpeg", "kornia_rs"]


def test_version() -> None:
    """``--version`` prints the package's version."""
    done = run("--version")

    assert done.returncode == 0
    assert done.stdout == f"fastdecode {fastdecode.__version__}\n"


@pytest.mark.parametrize("argument", ["--what", "something"])
def test_bad_arguments(argument: str) -> None:
    """A wrong argument ends with status 2."""
    done = run(argument)

    assert done.returncode == 2
    assert argument in done.stderr


def test_it_says_what_was_measured(tmp_path: Path) -> None:
    """Without a saved ranking the command to make one is named; with one, where it is from."""
    place = tmp_path / "ranking.json"
    assert "python -m fastdecode calibrate" in run().stdout

    Ranking({("jpeg", 1): ("pillow",)}, measured="2026-01-02T03:04:05+00:00").save(place)
    found = run("--json", FASTDECODE_RANKING=str(place))
    assert json.loads(found.stdout)["choices"]["jpeg"][0] == "pillow"
    assert "2026-01-02" in json.loads(found.stdout)["ranking"]

    Ranking(cpu="Some CPU").save(place)
    shown = run(FASTDECODE_RANKING=str(place))
    assert "The saved ranking is ignored" in shown.stdout
    assert "Warning" not in shown.stderr
