"""Write the generated parts of the documents: what the backends declare, and what was measured.

    python bench/readme.py           rewrite the marked parts of README.md and docs/, and the charts
    python bench/readme.py --seal F  note first which sources folder F's are of, as all.sh does
    python bench/readme.py --check   change nothing; exit status 1 if something is out of date
    python bench/readme.py --release  the same, also if the code has changed since it was measured

The text between the marks of a name is the output of the macro of that name in `readme.jinja`.
Each kind of processor has a folder in `results`, whose `run.json` has the version and a hash of the
core's sources, without their comments. Tables show the newest run; what README.md claims is the
least of all processors that measured its version. A release needs figures of its own.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import math
import re
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from pathlib import Path
from pkgutil import resolve_name
from statistics import median
from typing import Any
from unittest.mock import MagicMock, patch

import jinja2
from jinja2.runtime import Macro

import fastdecode
from fastdecode._backends.base import JPEG_TURBO_3
from fastdecode._backends.registry import BUILTIN
from fastdecode.measure.result import OWN
from fastdecode.types import FORMATS

_ROOT = Path(__file__).parent.parent
_RESULTS = _ROOT / "bench" / "results"
_RUN = "run"  # the result that describes the others
_OTHER_RUNS = ("gpu_", "threads_", "accuracy", "instructions")  # not by all.sh
_COMMENTS = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
_MARKED = re.compile(r"^<!-- (\w+) begin -->\n(.*?)^<!-- \1 end -->", re.MULTILINE | re.DOTALL)
_VERBATIM = ("|", "<", "- ", "!")  # starts of paragraphs that are not joined into one line

Records = Mapping[str, Mapping[str, Any]]
Figures = Mapping[str, float]


# Text


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Write a table in Markdown."""
    lines = [f"| {' | '.join(row)} |" for row in (head, *rows)]
    return "\n".join([lines[0], "|---" * len(head) + "|", *lines[1:]])


def grid(corner: str, titles: Mapping[str, str], columns: Mapping[str, tuple[str, Records]]) -> str:
    """Write a table. Each column has a template, and records by name that fill it in."""
    rows = [
        [title, *(filled(template, found.get(name, {})) for template, found in columns.values())]
        for name, title in titles.items()
        if any(name in found for _, found in columns.values())
    ]
    return table([corner, *columns], rows)


def listing(corner: str, records: Records, columns: Mapping[str, str]) -> str:
    """Write a table whose columns all show the same records."""
    titles = {name: name for name in records}
    return grid(corner, titles, {head: (cell, records) for head, cell in columns.items()})


def compared(corner: str, titles: Mapping[str, str], columns: Mapping[str, Figures]) -> str:
    """Write a table of figures, each with its quotient by the figure of the first title."""
    base = next(iter(titles))

    def text(one: float, found: Figures) -> str:  # a row that is not measured yet has no quotient
        return f"{shown(one)} ({one / found[base]:.2f})" if base in found else shown(one)

    texts = {
        head: {name: {"text": text(one, found)} for name, one in found.items()}
        for head, found in columns.items()
    }
    return grid(corner, titles, {head: ("{text}", found) for head, found in texts.items()})


def shown(figure: float) -> str:
    """Write a figure with at least three digits."""
    return f"{figure:.{0 if figure >= 100 else 1 if figure >= 10 else 2}f}"


def filled(template: str, record: Mapping[str, Any]) -> str:
    """Fill in a template; return an empty text if a figure is missing."""
    try:
        return template.format_map(record).replace("%", " %")
    except (KeyError, TypeError):
        return ""


def measured(content: Mapping[str, Any], script: str, *more: str) -> str:
    """Say when, on which machine and with which script a result was measured."""
    machine = content["machine"]
    where = f"{machine['cpu']}, {machine['cores']} cores, {machine['python']}"
    parts = (content["measured"][:10], where, f"fastdecode {machine['fastdecode']}", *more)
    return f"Measured {', '.join(parts)}, with `bench/{script}`."


def every(values: Iterable[Any], template: str = "{}", between: str = ", ") -> str:
    """Write each value with a template."""
    return between.join(template.format(value) for value in values)


# Figures


def read(folder: Path, name: str) -> dict[str, Any]:
    """Read a saved result."""
    content: dict[str, Any] = json.loads((folder / f"{name}.json").read_text(encoding="utf-8"))
    return content


def release_of(version: str) -> str:
    """Return the release that a version is, or will be: that of 0.3.0.dev0 is 0.3.0."""
    return version.partition(".dev")[0]


def runs() -> list[Path]:
    """Return the folders with a run of the newest release, the newest run first."""
    found = {path.parent: read(path.parent, _RUN) for path in _RESULTS.glob(f"*/{_RUN}.json")}
    order = sorted(found, key=lambda one: found[one]["measured"], reverse=True)
    newest = release_of(found[order[0]]["fastdecode"])
    return [folder for folder in order if release_of(found[folder]["fastdecode"]) == newest]


def load(name: str) -> dict[str, Any]:
    """Read a result of the newest run, or the one that another machine alone has."""
    folders = [*runs(), *sorted(_RESULTS.iterdir())]
    return read(next(one for one in folders if (one / f"{name}.json").exists()), name)


def load_all(name: str) -> list[dict[str, Any]]:
    """Read a result of every processor that measured it with the newest release of any."""
    found = [read(path.parent, name) for path in sorted(_RESULTS.glob(f"*/{name}.json"))]
    newest = release_of(max(found, key=lambda one: one["measured"])["machine"]["fastdecode"])
    return [one for one in found if release_of(one["machine"]["fastdecode"]) == newest]


def pipelines(name: str, kind: str) -> dict[str, Any]:
    """Return the measurements of each pipeline over one collection of photos."""
    found: dict[str, Any] = load(f"pipeline_{name}")["result"][kind]["pipelines"]
    return found


def speeds(records: Records, key: str = "images_per_s") -> dict[str, float]:
    """Return the images/s of each record."""
    return {name: one[key] for name, one in records.items()}


def times(recipe: str, loader: str) -> float | None:
    """Return how many times as fast as torchvision a loader makes the batches of a recipe.

    Of several machines, it is the one on which the loader gains least.
    """
    results = [one["result"] for one in load_all("recipes")]
    every = [speeds(one[recipe]["loaders"]) for one in results if recipe in one]
    return min((one[loader] / one["torchvision"] for one in every if loader in one), default=None)


def gained(way: str, kind: str = "") -> list[float]:
    """Return the gains in CPU time of a way of loading, for each pipeline in `own_dataset.json`.

    They are those whose names begin with `kind`, or else those that also ran in an `ImageFolder`.
    """
    found = [pair for run in load_all("own_dataset") for pair in run["result"].items()]
    chosen = [one for name, one in found if (name.startswith(kind) if kind else "folder" in one)]
    return [one[way]["times"] for one in chosen]


def bars(recipe: str, titles: Mapping[str, str]) -> dict[str, float]:
    """Return the bars of a recipe in the chart: times torchvision, by title, rounded down."""
    found = {title: times(recipe, loader) for loader, title in titles.items()}
    return {title: math.floor(10 * one) / 10 for title, one in found.items() if one is not None}


def by_kind(found: Mapping[str, Any]) -> dict[str, float]:
    """Return images/s of a kind of file: of Pillow, of `decode`, and of the fastest library."""
    rest = [
        one["images_per_s"]
        for name, one in found.items()
        if isinstance(one, dict) and not name.startswith("decode()")
    ]
    pillow = found.get("Pillow alone", found["pillow"])
    figures = {"base": pillow["images_per_s"], "own": found["decode()"]["images_per_s"]}
    return figures | {"other": max(rest)}


def least(figures: Iterable[float]) -> str:
    """Write the least of some figures, rounded down."""
    return f"{math.floor(10 * min(figures)) / 10:.1f}"


def span(figures: Sequence[float]) -> str:
    """Write the least and the greatest of some figures, both rounded down, or what both are."""
    return " to ".join(dict.fromkeys((least(figures), least([max(figures)]))))


def typical(figures: Sequence[float]) -> str:
    """Write the median of some figures, the least and the greatest, all rounded down."""
    return f"{least([median(figures)])} ({span(figures)})"


def photo_speeds(result: Mapping[str, Any]) -> dict[str, dict[str, float]]:
    """Return the images/s of each backend by reduction."""
    found: dict[str, dict[str, float]] = {}
    for one in result["measurements"]:
        speed = one["images_per_s"]["median"]
        if (one["protocol"], one["format"]) == ("decode", "jpeg") and speed:
            name = "decode()" if one["backend"] == OWN else one["backend"]
            found.setdefault(f"1/{one['reduce']}", {})[name] = speed
    return found


# What was measured


def sources() -> str:
    """Return a hash of the core's C code, without comments and white space."""
    found = hashlib.sha256()
    native = (_ROOT / "fastdecode" / "native").rglob("*.[ch]")
    for path in sorted(native, key=lambda path: path.name):
        code = _COMMENTS.sub("", path.read_text(encoding="utf-8"))
        found.update(f"{path.name}:{''.join(code.split())}\n".encode())
    return found.hexdigest()


def seal(folder: Path) -> None:
    """Note which version and sources the results are of; refuse those of several machines."""
    names = [path.stem for path in folder.glob("*.json") if path.stem != _RUN]
    found = {name: read(folder, name) for name in names if not name.startswith(_OTHER_RUNS)}
    machines = {tuple(one["machine"][key] for key in ("cpu", "cores")) for one in found.values()}
    days = sorted({one["measured"][:10] for one in found.values()})
    if len(machines) != 1:
        raise SystemExit(f"the results are not of one machine: {machines}")
    commit = subprocess.run(
        ["git", "rev-parse", "HEAD"], capture_output=True, check=True, cwd=_ROOT, text=True
    )
    content = {
        "commit": commit.stdout.strip(),
        "fastdecode": fastdecode.__version__,
        "sources": sources(),
        "measured": days[0],
    }
    (folder / f"{_RUN}.json").write_text(f"{json.dumps(content, indent=1)}\n", encoding="utf-8")


def why_stale() -> str:
    """Return why the results are not those of this tree; empty if they are."""
    run = load(_RUN)
    if run["fastdecode"] != fastdecode.__version__:
        return f"the results are those of fastdecode {run['fastdecode']}"
    if run["sources"] != sources():
        return "the core's C code has changed since the results were measured"
    return ""


# What the backends declare


class _Absent(MetaPathFinder, Loader):
    """Replaces every decoding library with a mock until this process ends.

    So the tables are the same whichever libraries are installed.
    """

    def find_spec(self, name: str, _path: object = None, _of: object = None) -> ModuleSpec | None:
        first = name.partition(".")[0]
        ours = {"fastdecode", "numpy", "PIL", "cffi", "_cffi_backend", *sys.stdlib_module_names}
        return None if first in ours else ModuleSpec(name, self)

    def create_module(self, spec: ModuleSpec) -> Any:
        return MagicMock(__path__=[], __spec__=spec, __version__="9.0")

    def exec_module(self, module: object) -> None:
        pass


def declared() -> str:
    """Write the table of what each backend reads, and how."""
    rows = []
    for name, entry in BUILTIN.items():
        known = entry.formats.split()
        with patch.object(sys, "meta_path", [_Absent(), *sys.meta_path]):
            kind = resolve_name(str(entry.target))
        # turbojpeg declares in its constructor what its version does.
        own = getattr(kind, "supports", {"jpeg": (JPEG_TURBO_3,)})
        assert sorted(known) == sorted(own), f"{name}: BUILTIN and its class disagree"
        formats = [format for format in FORMATS if format in known]
        reduces = "yes" if "jpeg" in own and own["jpeg"][0].reduces - {1} else ""
        warned = [format for format in formats if own[format][0].warnings]
        held = [f"`{format}`" for format in formats if format in kind.holds_gil]
        free = (
            f"yes, except for {', '.join(held)}" if held else "yes" if kind.releases_gil else "no"
        )
        rows.append([f"`{name}`", every(formats), reduces, every(warned), free])
    head = ["backend", "reads", "reduces JPEG in the decoder", "reports warnings for"]
    return table([*head, "releases the GIL"], rows)


# The documents


def folded(text: str) -> str:
    """Join the lines of each paragraph, except those of tables, lists and markup."""
    parts = re.split(r"\n{2,}", text.strip())
    return "\n\n".join(
        part if part.startswith(_VERBATIM) else " ".join(part.split()) for part in parts
    )


_ENVIRONMENT = jinja2.Environment(
    loader=jinja2.FileSystemLoader(Path(__file__).parent),
    undefined=jinja2.StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
    extensions=["jinja2.ext.do"],
)
_ENVIRONMENT.filters |= {"f": format, "every": every, "folded": folded, "load": load}
_ENVIRONMENT.globals |= {
    "BUILTIN": BUILTIN,
    "PITCH": (fastdecode.__doc__ or "").partition("\n")[0],
    "machines": sorted(path.stem for path in _RESULTS.glob("*/gpu_*.json")),
    **{
        one.__name__: one
        for one in (
            *(bars, by_kind, compared, declared, gained, grid, least, listing, load, load_all),
            *(measured, photo_speeds, pipelines, shown, sorted, span, speeds, times, typical),
        )
    },
}


def drawn(name: str, *values: Any) -> str:
    """Return the text of a macro of `readme.jinja`."""
    if name not in (macros := _macros()):
        raise SystemExit(f"readme.jinja has no macro {name}")
    return folded(macros[name](*values))


def _macros() -> dict[str, Macro]:
    found = vars(_ENVIRONMENT.get_template("readme.jinja").module)
    return {name: one for name, one in found.items() if isinstance(one, Macro)}


def main() -> int:
    parser = argparse.ArgumentParser(description="Write the generated parts of the documents.")
    parser.add_argument("--check", action="store_true", help="only check whether they are current")
    parser.add_argument("--release", action="store_true", help="also that they are of this code")
    parser.add_argument("--seal", type=Path, help="note what the results of a folder are of")
    options = parser.parse_args()
    if options.seal:
        seal(options.seal)
    files, marked = {}, set()
    for path in (_ROOT / "README.md", *sorted((_ROOT / "docs").glob("*.md"))):
        text = path.read_text(encoding="utf-8")
        for found in reversed([*_MARKED.finditer(text)]):
            marked.add(found[1])
            text = f"{text[: found.start(2)]}\n{drawn(found[1])}\n\n{text[found.end(2) :]}"
        files[path] = text
    if lost := {name for name, macro in _macros().items() if not macro.arguments} - marked:
        raise SystemExit(f"no document has the marks of {every(sorted(lost))}")
    for name, dark in (("training", False), ("training-dark", True)):
        files[_RESULTS / f"{name}.svg"] = f"{drawn('training_chart', dark)}\n"
    late = [
        path
        for path, text in files.items()
        if not path.exists() or path.read_text(encoding="utf-8") != text
    ]
    if (options.check or options.release) and (stale := why_stale()):
        print(f"{stale}: before a release, run bench/all.sh", file=sys.stderr)
        if options.release:
            return 1
    if (options.check or options.release) and late:
        names = ", ".join(path.name for path in late)
        print(f"{names} out of date: run python bench/readme.py", file=sys.stderr)
        return 1
    for path in late:
        path.write_text(files[path], encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
