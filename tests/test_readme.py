"""The README says what the package does today."""

from __future__ import annotations

import os
import re
import subprocess
import sys

import pytest
from corpus import TESTS

_ROOT = TESTS.parent
_TEXT = (_ROOT / "README.md").read_text(encoding="utf-8")


def _check_readme() -> subprocess.CompletedProcess[str]:
    paths = [str(_ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    return subprocess.run(
        [sys.executable, str(_ROOT / "bench" / "readme.py"), "--check"],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
    )


def test_the_tables_are_those_of_the_declarations_and_results() -> None:
    """The tables and charts are what bench/readme.py would write now."""
    pytest.importorskip("jinja2", reason="it draws a chart")
    done = _check_readme()

    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("name", "ending"), [("bench", ".venv/bin/fastdecode bench"), ("test", "-m pytest -n 2")]
)
def test_each_command_stands_alone_behind_its_mark(name: str, ending: str) -> None:
    """Each of the two commands is one line of shell that begins with its own environment."""
    found = re.findall(rf"^<!-- command: {name} -->\n```sh\n(.*?)\n```$", _TEXT, re.MULTILINE)

    assert len(found) == 1
    assert found[0].startswith("python3 -m venv ")
    assert found[0].endswith(ending)


def test_it_fits_on_a_few_screens() -> None:
    """It has at most 150 lines: the rest is in docs/."""
    assert len(_TEXT.splitlines()) <= 150
