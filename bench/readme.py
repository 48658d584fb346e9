"""Write the tables of the documents anew: what the backends declare, and what was measured.

    python bench/readme.py           rewrite the marked parts of README.md and docs/, and the charts
    python bench/readme.py --check   change nothing; exit status 1 if one of them is out of date

The declarations are read from the adapters' source, not from the classes, so that the tables are
the same whichever libraries are installed.
"""

from __future__ import annotations

import argparse
import ast
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import readme_tables as tables
from _common import RESULTS
from readme_tables import table

from fastdecode.registry import BUILTIN
from fastdecode.types import FORMATS

_ROOT = Path(__file__).parent.parent
_ADAPTERS = _ROOT / "fastdecode" / "adapters"


class Declared(NamedTuple):
    """What a backend's source declares."""

    supports: dict[str, dict[str, str]]  # by format, the arguments of its first `Support`
    releases_gil: bool


def declared(name: str) -> Declared:
    """Read a backend's declarations from its source."""
    target = BUILTIN[name].target
    assert isinstance(target, str)
    module, _, class_name = target.partition(":")
    tree = ast.parse((_ADAPTERS / f"{module.rpartition('.')[2]}.py").read_text(encoding="utf-8"))
    base = ast.parse((_ADAPTERS / "base.py").read_text(encoding="utf-8"))
    shared = {name: value for name, value in _assignments(base.body).items() if name[0] != "_"}
    constants = {**shared, **_assignments(tree.body)}
    body = next(n for n in tree.body if isinstance(n, ast.ClassDef) and n.name == class_name).body
    attributes = _assignments(body)
    table = attributes.get("supports")
    if isinstance(table, ast.Dict):
        supports = {format: _first_support(value, constants) for format, value in _entries(table)}
    else:  # built by the constructor
        supports = dict.fromkeys(BUILTIN[name].formats.split(), _first_support(tree, shared))
    gil = attributes.get("releases_gil")
    return Declared(supports, gil is None or bool(ast.literal_eval(gil)))


def _assignments(body: Sequence[ast.stmt]) -> dict[str, ast.expr]:
    return {
        target.id: node.value
        for node in body
        if isinstance(node, ast.Assign)
        for target in node.targets
        if isinstance(target, ast.Name)
    }


def _entries(table: ast.Dict) -> Iterator[tuple[str, ast.expr]]:
    """Yield formats and values of a literal dict, ``**dict.fromkeys(formats, value)`` included."""
    for key, value in zip(table.keys, table.values, strict=True):
        if key is not None:
            yield ast.literal_eval(key), value
            continue
        assert isinstance(value, ast.Call), ast.unparse(value)
        assert ast.unparse(value.func) == "dict.fromkeys", ast.unparse(value)
        formats, shared = value.args
        for format in ast.literal_eval(formats):
            yield format, shared


def _first_support(node: ast.AST, constants: dict[str, ast.expr]) -> dict[str, str]:
    for child in ast.walk(node):
        if isinstance(child, ast.Call) and ast.unparse(child.func) == "Support":
            return _given(child)
        if isinstance(child, ast.Call) and ast.unparse(child.func) == "replace":
            return {**_first_support(child.args[0], constants), **_given(child)}
        if isinstance(child, ast.Name) and child.id in constants:
            return _first_support(constants[child.id], constants)
    raise ValueError(f"no Support in {ast.unparse(node)}")


def _given(call: ast.Call) -> dict[str, str]:
    return {word.arg or "": ast.unparse(word.value) for word in call.keywords}


def matrix() -> str:
    """Draw what each backend reads, and how."""
    formats = [format for format in FORMATS if format != "other"]
    head = ["backend", *formats, "other"]
    reads = []
    does = []
    for name, entry in BUILTIN.items():
        known = entry.formats.split()
        own = declared(name)
        assert sorted(known) == sorted(own.supports), f"{name}: BUILTIN and its class disagree"
        reads.append([f"`{name}`", *("yes" if f in known else "" for f in [*formats, "other"])])
        reduces = ast.literal_eval(
            own.supports.get("jpeg", {}).get("reduces", "{1}").removeprefix("frozenset")
        )
        warned = [f for f in formats if own.supports.get(f, {}).get("warnings") == "True"]
        does.append(
            [
                f"`{name}`",
                ", ".join(f"1/{n}" for n in sorted(reduces) if n > 1) or "no",
                ", ".join(warned) or "no",
                "yes" if own.releases_gil else "no",
            ]
        )
    columns = ["backend", "reduces JPEG in the decoder", "reports warnings", "releases the GIL"]
    return f"{table(head, reads)}\n\n{table(columns, does)}"


def renewed(path: Path) -> str:
    """Put the tables of today between the marks of a document."""
    text = path.read_text(encoding="utf-8")
    for name, part in _PARTS[path].items():
        begin, end = f"<!-- {name} begin -->\n", f"<!-- {name} end -->"
        before, found, rest = text.partition(begin)
        _, found_end, after = rest.partition(end)
        if not (found and found_end):
            raise SystemExit(f"{path.name} lacks the marks {begin.strip()} and {end}")
        text = f"{before}{begin}\n{part()}\n\n{end}{after}"
    return text


_DOCS = _ROOT / "docs"
_PARTS: dict[Path, dict[str, Callable[[], str]]] = {
    _ROOT / "README.md": {
        "claim": tables.claim_figures,
        "training": tables.training_picture,
        "gains": tables.gain_figures,
    },
    _DOCS / "backends.md": {"matrix": matrix},
    _DOCS / "benchmarks.md": {
        "pipeline": tables.pipeline_figures,
        "figures": tables.decode_figures,
    },
    _DOCS / "pytorch.md": {
        "costs": tables.cost_figures,
        "workers": tables.worker_figures,
        "quality": tables.quality_figures,
    },
    _DOCS / "native.md": {
        "decoder": tables.decoder_figures,
        "limit": tables.limit_figures,
        "regions": tables.region_figures,
        "gil": tables.gil_figures,
    },
    _DOCS / "gpu.md": {"gpu": tables.gpu_figures},
    _DOCS / "stores.md": {"stores": tables.store_figures},
    _DOCS / "scaling.md": {
        "ray": tables.ray_figures,
        "requests": tables.request_figures,
        "billion": tables.billion_figures,
    },
}


def main() -> int:
    parser = argparse.ArgumentParser(description="Write the tables of the documents anew.")
    parser.add_argument("--check", action="store_true", help="only say whether it is up to date")
    options = parser.parse_args()
    files = {path: renewed(path) for path in _PARTS}
    files[RESULTS / "photos.svg"] = tables.chart()
    files[RESULTS / "training.svg"] = tables.training_chart(dark=False)
    files[RESULTS / "training-dark.svg"] = tables.training_chart(dark=True)
    late = [
        path
        for path, text in files.items()
        if not path.exists() or path.read_text(encoding="utf-8") != text
    ]
    if options.check and late:
        names = ", ".join(path.name for path in late)
        print(f"{names} out of date: run python bench/readme.py", file=sys.stderr)
        return 1
    for path in late:
        path.write_text(files[path], encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
