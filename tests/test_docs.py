"""The README and the pages under docs/ say what the package does today."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pages
import pytest
from corpus import TESTS

_ROOT = TESTS.parent
_PAGES = [_ROOT / "README.md", *sorted((_ROOT / "docs").rglob("*.md"))]
_PROGRAMS = [page for page in _PAGES if any(block.runs for block in pages.blocks(page))]
_HERE = "https://github.com/fastdecode/fastdecode/blob/main/"
_RAW = "https://raw.githubusercontent.com/fastdecode/fastdecode/main/"


def _name(page: Path) -> str:
    return page.relative_to(_ROOT).as_posix()


@pytest.mark.parametrize("page", _PAGES, ids=_name)
def test_links_of_a_page_lead_somewhere(page: Path) -> None:
    """Every link to a file of the repository names one, and every mark a heading of it."""
    text = page.read_text(encoding="utf-8")
    links = re.findall(r"\]\(([^)\s]+)\)", text) + re.findall(r' src(?:set)?="([^"]+)"', text)

    for target in links:
        if target.startswith((_HERE, _RAW)):
            name, _, mark = target.removeprefix(_HERE).removeprefix(_RAW).partition("#")
            there = _ROOT / name
        elif target.startswith(("http:", "https:")):
            continue
        else:
            name, _, mark = target.partition("#")
            there = page.parent / name if name else page
        assert there.exists(), target
        assert not mark or mark in _marks(there), target


def _marks(page: Path) -> set[str]:
    headings = re.findall(r"^#+ (.*)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading).lower().replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", _PAGES, ids=_name)
def test_a_block_that_is_not_run_says_why(page: Path) -> None:
    """A block is of a language that runs or is only shown; a reason not to run one is known."""
    for block in pages.blocks(page):
        assert block.language in pages.RUN + pages.SHOWN or block.language[0] == "{", block
        kind, _, reason = block.mark.partition(": ")
        if block.language in pages.RUN and kind == "not run":
            assert reason in pages.REASONS, block
        assert not block.runs or block.language != "sh" or block.is_ours, block


@pytest.mark.parametrize("page", _PROGRAMS, ids=_name)
def test_a_page_runs_as_pasted(page: Path, tmp_path: Path) -> None:
    """The blocks of a page run one after the other, in a folder with the photos that it names."""
    if os.name == "nt" and any(block.language == "sh" for block in pages.blocks(page)):
        pytest.skip("its commands are for a POSIX shell")
    environment = pages.furnish(tmp_path)

    done = subprocess.run(
        [sys.executable, pages.__file__, str(page)],
        capture_output=True,
        check=False,
        cwd=tmp_path,
        env=environment,
        text=True,
    )

    if done.returncode == pages.MISSING:
        pytest.skip(done.stderr.splitlines()[-1])
    assert done.returncode == 0, done.stderr + done.stdout
