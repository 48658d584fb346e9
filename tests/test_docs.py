"""The pages under docs/, and the links of the README, say what the package does today."""

from __future__ import annotations

import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from corpus import TESTS

_ROOT = TESTS.parent
_SAMPLES = sorted((_ROOT / "fastdecode" / "samples").glob("*.jpg"))
_PAGES = [_ROOT / "README.md", *sorted((_ROOT / "docs").rglob("*.md"))]


@pytest.mark.parametrize("page", _PAGES, ids=lambda page: page.name)
def test_links_of_a_page_lead_somewhere(page: Path) -> None:
    """Every relative link names a file, and every mark a heading of it, or of the page."""
    text = page.read_text(encoding="utf-8")

    for target in re.findall(r"\]\((?!https?:)([^)]+)\)", text):
        name, _, mark = target.partition("#")
        there = page.parent / name if name else page
        assert there.exists(), target
        assert not mark or mark in _marks(there), target


@pytest.mark.parametrize("page", _PAGES, ids=lambda page: page.name)
def test_links_into_the_repository_lead_somewhere(page: Path) -> None:
    """What a page links on GitHub, because it is not on the site, is in the repository."""
    found = re.findall(
        r"fastdecode/fastdecode/(?:blob|tree)/main/([^)#\s]+)", page.read_text("utf-8")
    )

    assert [name for name in found if not (_ROOT / name).exists()] == []


def _marks(page: Path) -> set[str]:
    headings = re.findall(r"^#+ (.*)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading).lower().replace(" ", "-") for heading in headings}


def test_examples_for_pytorch_run() -> None:
    """The page's examples, one after the other, define a dataset that a Loader reads."""
    pytest.importorskip("torch")
    from fastdecode.torch import Loader

    text = (_ROOT / "docs" / "pytorch.md").read_text(encoding="utf-8")
    names: dict[str, Any] = {"data": _SAMPLES[0].read_bytes(), "__name__": "docs"}

    for block in re.findall(r"^```python\n(.*?)^```$", text, re.DOTALL | re.MULTILINE):
        exec(compile(block, "pytorch.md", "exec"), names)

    dataset = names["Photos"](names["test"])
    dataset.rows = [SimpleNamespace(path=path, label=1) for path in _SAMPLES[:4]]
    batches = list(Loader(dataset, 2, threads=1))

    assert names["image"].shape == (3, 224, 224)
    assert [images.shape for images, _ in batches] == [(2, 3, 224, 224)] * 2
