"""The reference has every public name, and an example of each that runs."""

from __future__ import annotations

import importlib
import re
import subprocess
import sys
from pathlib import Path

import pages
import pytest
from corpus import TESTS, native_core

import examples
from fastdecode.stores import create_store, open_store

_ROOT = TESTS.parent
_PAGES = sorted((_ROOT / "docs" / "reference").glob("*.md"))
_NEEDED = {
    "fastdecode": "torch",
    "fastdecode.torch": "torch",
    "fastdecode.torch.transforms": "torch",
    "fastdecode.stores": "",
    "fastdecode.packing": "",
    "fastdecode.ray": "ray.data",
    "fastdecode.native": "",
    "fastdecode.samples": "",
    "fastdecode.testing": "",
}
"""What users import from, and which library the examples need."""


def _described() -> dict[str, str]:
    """Return what the reference says of each name itself, beside its docstring."""
    found = {}
    for page in _PAGES:
        module = ""
        for part in re.split(r"^\.\. ", page.read_text(encoding="utf-8"), flags=re.MULTILINE):
            directive, _, rest = part.partition(":: ")
            name = rest.split("\n")[0]
            if directive == "currentmodule":
                module = name
            elif directive.startswith(("auto", "py:")):
                found[f"{module}.{name}"] = rest
    return found


@pytest.mark.parametrize("module", _NEEDED)
def test_every_public_name_is_in_the_reference(module: str) -> None:
    """Whatever a public module offers is on a page of the reference, with an example."""
    pytest.importorskip(_NEEDED[module] or "fastdecode")
    described, documented = _described(), examples.documented(module)

    for name in importlib.import_module(module).__all__:
        full = f"{module}.{name}"
        other = documented.get(full, "")
        assert full in described or _elsewhere(full, described), full
        assert ">>> " in described.get(full, "") + other, full


def _elsewhere(name: str, described: dict[str, str]) -> bool:
    """Whether the reference has the same object under the path of another module."""
    module, _, last = name.rpartition(".")
    thing = getattr(importlib.import_module(module), last)
    return any(
        each.rpartition(".")[2] == last
        and getattr(importlib.import_module(each.rpartition(".")[0]), last) is thing
        for each in described
        if each.rpartition(".")[2] == last
    )


def _furnish(folder: Path) -> dict[str, str]:
    """Make what the examples begin with: the photos of the documents, listed and packed, too."""
    environment = pages.furnish(folder)
    with open_store(folder / "train") as source:
        with create_store(folder / "train.tar", classes=source.classes) as writer:
            for index in range(len(source)):
                writer.add(source.key(index), source.read(index), source.target(index))
        rows = [f"train/{key},{key.partition('/')[0]}\n" for key in map(source.key, range(6))]
    (folder / "train.csv").write_text("path,label\n" + "".join(rows), encoding="utf-8")
    return environment


@pytest.mark.parametrize("module", _NEEDED)
def test_the_examples_run(module: str, tmp_path: Path) -> None:
    """Every example gives what its docstring, or the reference, says that it gives."""
    pytest.importorskip(_NEEDED[module] or "fastdecode")
    if module == "fastdecode.native":
        native_core()
    own = f".. currentmodule:: {module}\n"
    described = [page for page in _PAGES if own in page.read_text(encoding="utf-8")]

    done = subprocess.run(
        [sys.executable, examples.__file__, module, *map(str, described)],
        capture_output=True,
        check=False,
        cwd=tmp_path,
        env=_furnish(tmp_path),
        text=True,
    )

    assert done.returncode == 0, done.stdout + done.stderr
