"""README, docs and reference match the package."""

from __future__ import annotations

import configparser
import importlib
import importlib.util
import json
import math
import os
import re
import subprocess
import sys
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path

import docstrings
import pages
import pytest
from corpus import TESTS

import fastdecode
from fastdecode import cli
from fastdecode.stores import create_store, open_store

_ROOT = TESTS.parent
_PAGES = [_ROOT / "README.md", *sorted((_ROOT / "docs").rglob("*.md"))]
_TEXTS = [
    _ROOT / name
    for name in ("CHANGELOG.md", "CITATION.cff", "SECURITY.md", "setup.cfg", "examples/README.md")
]
_PROGRAMS = [page for page in _PAGES if any(block.runs for block in pages.blocks(page))]
_README = (_ROOT / "README.md").read_text(encoding="utf-8")
_REFERENCE = sorted((_ROOT / "docs" / "reference").glob("*.md"))
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
    "fastdecode.transformers": "transformers",
}
"""What users import from, and which library the examples need."""


def _run(folder: Path, environment: dict[str, str], *words: object) -> tuple[int, str]:
    """Run a Python program in a folder; return its exit status and its output."""
    done = subprocess.run(
        [sys.executable, *map(str, words)],
        capture_output=True,
        check=False,
        cwd=folder,
        env=environment,
        text=True,
    )
    return done.returncode, done.stdout + done.stderr


def _name(page: Path) -> str:
    return page.relative_to(_ROOT).as_posix()


@pytest.mark.parametrize("page", _PAGES, ids=_name)
def test_links_of_a_page_lead_somewhere(page: Path) -> None:
    """Every link to a file of the repository exists, and every anchor is one of its headings."""
    text = page.read_text(encoding="utf-8")
    links = re.findall(r"\]\(([^)\s]+)\)", text) + re.findall(r' src(?:set)?="([^"]+)"', text)

    for target in links:
        if target.startswith(("http:", "https:")):
            continue
        name, _, mark = target.partition("#")
        there = page.parent / name if name else page
        assert there.exists(), target
        assert not mark or mark in _marks(there), target


def _marks(page: Path) -> set[str]:
    headings = re.findall(r"^#+ (.*)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading).lower().replace(" ", "-") for heading in headings}


_PUBLISHED = (
    r"pip install \S*fastdecode|/fastdecode/fastdecode|fastdecode\.github\.io|pypi\.org/project/f"
)


@pytest.mark.parametrize("page", [*_PAGES, *_TEXTS], ids=_name)
def test_nothing_is_named_that_is_not_published(page: Path) -> None:
    """No page installs from an index or links to a repository, because neither has the package."""
    found = re.findall(rf".*(?:{_PUBLISHED}).*", page.read_text(encoding="utf-8"))

    assert [line for line in found if "once fastdecode is installed" not in line] == []


def test_one_pitch_in_the_same_words() -> None:
    """README, metadata, citation, recipe and ``--help`` describe the package in the same words."""
    pitch = (fastdecode.__doc__ or "").partition("\n")[0]
    setup = configparser.ConfigParser()
    setup.read(_ROOT / "setup.cfg")
    with redirect_stdout(StringIO()) as printed, pytest.raises(SystemExit):
        cli.main(["--help"])

    assert setup["metadata"]["description"] == pitch
    assert f"\nabstract: {pitch}\n" in (_ROOT / "CITATION.cff").read_text(encoding="utf-8")
    assert f"\n  summary: {pitch}\n" in (_ROOT / "conda/recipe.yaml").read_text(encoding="utf-8")
    assert f"<!-- claim begin -->\n\n{pitch}\n" in _README
    assert f"\n{pitch}\n" in printed.getvalue()


def test_the_chart_is_described_by_its_figures() -> None:
    """The description of the chart has the bars of both its drawings."""
    alt = re.findall(r'<img alt="(.*?)"', _README)[0]
    for chart in ("training", "training-dark"):
        drawn = (_ROOT / f"bench/results/{chart}.svg").read_text(encoding="utf-8")
        bars = re.findall(r">(\d[\d.]*) <tspan>(.*?)</tspan></text>", drawn)

        assert bars
        assert re.findall(r"(fastdecode|DALI on the CPU) (\d[\d.]*)(?=[,.])", alt) == [
            (name, figure) for figure, name in bars
        ]


def test_the_gains_are_those_of_all_recipes() -> None:
    """Batches are so many times as fast, for the published recipes and for all others measured.

    That is the least of the processors that measured the README's version, or its `.dev0`.
    """
    version = re.search(r", fastdecode (\S+), \d{4}-\d\d-\d\d", _README)
    assert version
    gains: dict[str, float] = {}
    for path in (_ROOT / "bench" / "results").glob("*/recipes.json"):
        content = json.loads(path.read_text(encoding="utf-8"))
        if content["machine"]["fastdecode"].partition(".dev")[0] != version[1].partition(".dev")[0]:
            continue
        for name, one in content["result"].items():
            speed, other = (
                one["loaders"][it]["images_per_s"] for it in ("fastdecode", "torchvision")
            )
            gains[name] = min(gains.get(name, math.inf), speed / other)
    source = (_ROOT / "bench" / "_recipes.py").read_text(encoding="utf-8")
    recipes = re.findall(r'^    "([\w-]+)": TrainingRecipe', source, re.MULTILINE)
    published = [gains.pop(name) for name in recipes]
    found = re.search(
        r"Batches ([\d.]+) to ([\d.]+) times as fast as torchvision's\*\* for (\d+) published"
        r" recipes, ([\d.]+) to ([\d.]+) times for (\d+) other styles",
        _README,
    )

    assert found
    for told, figures in ((found.groups()[:3], published), (found.groups()[3:], gains.values())):
        assert int(told[2]) == len(figures)
        for shown, figure in zip(told, (min(figures), max(figures)), strict=False):
            assert 0 <= figure - float(shown) < 0.1  # rounded down


_SAMPLE = re.compile(r"cat\.jpg|\bphotos/|[\"' ]train[\"'/\n]")


@pytest.mark.parametrize("page", _PROGRAMS, ids=_name)
def test_a_page_says_where_its_files_come_from(page: Path) -> None:
    """Whoever pastes a block that needs a sample photo reads on its page which command makes it."""
    needs = any(_SAMPLE.search(block.code) for block in pages.blocks(page) if block.runs)

    assert not needs or "fastdecode samples ." in page.read_text(encoding="utf-8")


_FIGURE = re.compile(
    r"[\d.]+ (?:images/s|times as fast|CPU-s\b)|images/s \(|\d ms per (?:photo|image)"
)
_WITH_FIGURES = ("README.md", "docs/benchmarks.md", "docs/scaling.md")


@pytest.mark.parametrize(
    "page", [page for page in _PAGES if _name(page) not in _WITH_FIGURES], ids=_name
)
def test_figures_are_on_one_page(page: Path) -> None:
    """Only the README and the benchmarks have figures of speed, and scaling has examples."""
    assert _FIGURE.findall(page.read_text(encoding="utf-8")) == []


def test_the_documents_are_short() -> None:
    """README and guides have at most 15 000 words, and scaling 900; the README has 150 lines."""
    pages = [_ROOT / "README.md", *(_ROOT / "docs").glob("*.md")]
    words = {_name(page): len(page.read_text(encoding="utf-8").split()) for page in pages}

    assert sum(words.values()) <= 15_000
    assert words["docs/scaling.md"] <= 900
    assert len(_README.splitlines()) <= 150


@pytest.mark.parametrize("page", _PAGES, ids=_name)
def test_a_block_stands_alone(page: Path) -> None:
    """A block imports or defines what it uses, and is run unless a known reason stands above it."""
    for block in pages.blocks(page):
        if block.language == "python":
            assert pages.undefined_names(block.code) <= {"train"}, block
        assert block.language in pages.RUN + pages.SHOWN or block.language[0] == "{", block
        kind, _, reason = block.mark.partition(": ")
        if block.language in pages.RUN and kind == "not run":
            assert reason in pages.REASONS, block
        assert not block.runs or block.language != "sh" or block.is_ours, block


@pytest.mark.parametrize(
    "page",
    # The page of backends measures all of them.
    [
        pytest.param(page, marks=[pytest.mark.thorough] * (page.name == "backends.md"))
        for page in _PROGRAMS
    ],
    ids=_name,
)
def test_a_page_runs_as_pasted(page: Path, tmp_path: Path) -> None:
    """Each block of a page runs without the others' names, in a folder with the photos it names."""
    if os.name == "nt" and any(block.language == "sh" for block in pages.blocks(page)):
        pytest.skip("its commands are for a POSIX shell")
    status, said = _run(tmp_path, pages.prepare_folder(tmp_path), pages.__file__, page)

    if status == pages.MISSING:
        pytest.skip(said.splitlines()[-1])
    assert status == 0, said


def _described() -> dict[str, str]:
    """Return the text of the reference for each name, apart from its docstring."""
    found = {}
    for page in _REFERENCE:
        text = page.read_text(encoding="utf-8")
        for module, names in re.findall(r"<!-- begin ([\w.]+): (.+?) -->", text):
            found |= {f"{module}.{name}": "" for name in names.split()}
        found |= dict(
            re.findall(r"<!-- here: ([\w.]+) -->\n(.*?)(?=\n#+ |\n<!--|\Z)", text, re.DOTALL)
        )
    return found


@pytest.mark.parametrize("page", _REFERENCE, ids=_name)
def test_the_reference_is_that_of_the_docstrings(page: Path) -> None:
    """Each page shows the docstrings, and the help of the commands, as they are now."""
    for library in ("torch", "ray.data", "transformers"):
        pytest.importorskip(library)
    if page.stem == "commands" and sys.version_info >= (3, 13):
        pytest.skip("from Python 3.13 on, argparse lays its help out in another way")
    spec = importlib.util.spec_from_file_location("render", _ROOT / "docs" / "render.py")
    assert spec is not None
    assert spec.loader is not None
    render = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(render)

    assert render.rendered(page) == page.read_text(encoding="utf-8"), "run python docs/render.py"


@pytest.mark.parametrize("module", _NEEDED)
def test_every_public_name_is_in_the_reference(module: str) -> None:
    """Every name of a public module is on a page of the reference, with an example."""
    pytest.importorskip(_NEEDED[module] or "fastdecode")
    described, documented = _described(), docstrings.docstrings_of(module)

    for name in importlib.import_module(module).__all__:
        full = f"{module}.{name}"
        other = documented.get(full, "")
        assert full in described or _elsewhere(full, described), full
        assert ">>> " in described.get(full, "") + other, full


def _elsewhere(name: str, described: dict[str, str]) -> bool:
    """Return whether the reference has the same object under another module's path."""
    module, _, last = name.rpartition(".")
    thing = getattr(importlib.import_module(module), last)
    return any(
        each.rpartition(".")[2] == last
        and getattr(importlib.import_module(each.rpartition(".")[0]), last) is thing
        for each in described
        if each.rpartition(".")[2] == last
    )


def _furnish(folder: Path) -> dict[str, str]:
    """Create the files that examples use: the photos of the documents, listed and packed."""
    environment = pages.prepare_folder(folder)
    with open_store(folder / "train") as source:
        with create_store(folder / "train.tar", classes=source.classes) as writer:
            for index in range(len(source)):
                writer.add(source.key(index), source.read(index), source.target(index))
        rows = [f"train/{key},{key.partition('/')[0]}\n" for key in map(source.key, range(6))]
    (folder / "train.csv").write_text("path,label\n" + "".join(rows), encoding="utf-8")
    return environment


@pytest.mark.thorough
@pytest.mark.parametrize("module", _NEEDED)
def test_the_examples_run(module: str, tmp_path: Path) -> None:
    """Every example prints what its docstring or the reference shows."""
    pytest.importorskip(_NEEDED[module] or "fastdecode")
    own = f"<!-- here: {module}."
    described = [page for page in _REFERENCE if own in page.read_text(encoding="utf-8")]

    status, said = _run(tmp_path, _furnish(tmp_path), docstrings.__file__, module, *described)

    assert status == 0, said


def test_the_tables_are_those_of_the_declarations_and_results() -> None:
    """Generated tables and charts are up to date with bench/readme.py."""
    pytest.importorskip("jinja2", reason="it draws a chart")
    paths = os.pathsep.join(filter(None, [str(_ROOT), os.environ.get("PYTHONPATH")]))
    script = _ROOT / "bench" / "readme.py"

    status, said = _run(Path.cwd(), {**os.environ, "PYTHONPATH": paths}, script, "--check")

    assert status == 0, said


@pytest.mark.parametrize(
    ("name", "ending"), [("bench", ".venv/bin/fastdecode bench"), ("test", "-m pytest -n 2")]
)
def test_each_command_of_the_readme_stands_alone_behind_its_mark(name: str, ending: str) -> None:
    """Each of the two commands is one line of shell that creates its own environment."""
    found = re.findall(rf"^<!-- command: {name} -->\n```sh\n(.*?)\n```$", _README, re.MULTILINE)

    assert len(found) == 1
    assert found[0].startswith("python3 -m venv ")
    assert found[0].endswith(ending)
