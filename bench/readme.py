"""Write the README's tables anew: what the backends declare, and what was measured.

    python bench/readme.py           rewrite the two marked parts of README.md
    python bench/readme.py --check   change nothing; exit status 1 if README.md is out of date

The declarations are read from the adapters' source, not from the classes, so that the tables are
the same whichever libraries are installed.
"""

from __future__ import annotations

import argparse
import ast
import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from fastdecode.registry import BUILTIN
from fastdecode.types import FORMATS

_ROOT = Path(__file__).parent.parent
_README = _ROOT / "README.md"
_RESULTS = Path(__file__).parent / "results"
_ADAPTERS = _ROOT / "fastdecode" / "adapters"
_AIM_US_AT_10_KB = 12
_AIM_PERCENT = 1


class Declared(NamedTuple):
    """What a backend's source declares.

    Attributes
    ----------
    supports : dict
        The keyword arguments of the first `Support` of each format, as source.
    releases_gil : bool
    """

    supports: dict[str, dict[str, str]]
    releases_gil: bool


def declared(name: str) -> Declared:
    """Read a backend's declarations from its source."""
    target = BUILTIN[name].target
    assert isinstance(target, str)
    module, _, class_name = target.partition(":")
    tree = ast.parse((_ADAPTERS / f"{module.rpartition('.')[2]}.py").read_text(encoding="utf-8"))
    constants = _assignments(tree.body)
    body = next(n for n in tree.body if isinstance(n, ast.ClassDef) and n.name == class_name).body
    attributes = _assignments(body)
    table = attributes.get("supports")
    if isinstance(table, ast.Dict):
        supports = {format: _first_support(value, constants) for format, value in _entries(table)}
    else:  # built by the constructor
        supports = dict.fromkeys(BUILTIN[name].formats.split(), _first_support(tree, {}))
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
            return {word.arg or "": ast.unparse(word.value) for word in child.keywords}
        if isinstance(child, ast.Name) and child.id in constants:
            return _first_support(constants[child.id], constants)
    raise ValueError(f"no Support in {ast.unparse(node)}")


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
    return f"{_table(head, reads)}\n\n{_table(columns, does)}"


def figures() -> str:
    """Draw what was measured."""
    return f"{_order_figures(_load('default_order'))}\n\n{_overhead_figures(_load('overhead'))}"


def _load(name: str) -> dict[str, Any]:
    content: dict[str, Any] = json.loads((_RESULTS / f"{name}.json").read_text(encoding="utf-8"))
    return content


def _where(content: dict[str, Any]) -> str:
    machine = content["machine"]
    return (
        f"{content['measured']}, {machine['cpu']}, {machine['cores']} cores, {machine['system']}, "
        f"{machine['python']}, NumPy {machine['numpy']}"
    )


def _order_figures(content: dict[str, Any]) -> str:
    result = content["result"]
    groups = [group for group in result if group.startswith("jpeg 1/") or group.endswith(" 1/1")]
    rows = []
    for name in (*BUILTIN, "decode()"):
        cells = [result[group].get(name) for group in groups]
        if any(cells):
            rows.append(
                [f"`{name}`", *("" if c is None else f"{c['ratio_to_best']:.2f}" for c in cells)]
            )
    best = [
        max(row["images_per_s"] for row in result[group].values() if isinstance(row, dict))
        for group in groups
    ]
    rows.append(["best, images/s", *(f"{speed:.0f}" for speed in best)])
    rows.append(["files", *(str(result[group]["files"]) for group in groups)])
    versions = ", ".join(f"{name} {what}" for name, what in content["backends"].items())
    return (
        "Speed as a share of the fastest (1.00), one thread, from memory:\n\n"
        f"{_table(['backend', *groups], rows)}\n\n"
        f"Measured {_where(content)}. {versions}."
    )


def _overhead_figures(content: dict[str, Any]) -> str:
    rows = []
    missed = []
    for size, row in content["result"].items():
        rows.append(
            [
                size,
                f"{row['direct_us']:.0f}",
                *(
                    f"{row[f'{way}_more_us']:+.1f} ({row[f'{way}_more_percent']:+.1f} %)"
                    for way in ("named", "automatic")
                ),
            ]
        )
        if max(row["named_more_percent"], row["automatic_more_percent"]) > _AIM_PERCENT and not (
            size == "10 KB"
            and max(row["named_more_us"], row["automatic_more_us"]) <= _AIM_US_AT_10_KB
        ):
            missed.append(size)
    head = ["JPEG of", "simplejpeg, µs", "more when named, µs", "more in automatic choice, µs"]
    verdict = f"missed here at {', '.join(missed)}" if missed else "met here"
    return (
        "What `decode` costs on top of the library it calls, median of paired calls:\n\n"
        f"{_table(head, rows)}\n\n"
        f"The aim is at most {_AIM_US_AT_10_KB} µs more at 10 KB and {_AIM_PERCENT} % more from "
        f"100 KB on: {verdict}. Measured {_where(content)}."
    )


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def renewed(text: str) -> str:
    """Put the tables of today between the markers."""
    for name, part in (("matrix", matrix()), ("figures", figures())):
        begin, end = f"<!-- {name} begin -->\n", f"<!-- {name} end -->"
        before, found, rest = text.partition(begin)
        _, found_end, after = rest.partition(end)
        if not (found and found_end):
            raise SystemExit(f"README.md lacks the marks {begin.strip()} and {end}")
        text = f"{before}{begin}\n{part}\n\n{end}{after}"
    return text


def main() -> int:
    parser = argparse.ArgumentParser(description="Write the README's tables anew.")
    parser.add_argument("--check", action="store_true", help="only say whether it is up to date")
    options = parser.parse_args()
    text = _README.read_text(encoding="utf-8")
    new = renewed(text)
    if new == text:
        return 0
    if options.check:
        print("README.md is out of date: run python bench/readme.py", file=sys.stderr)
        return 1
    _README.write_text(new, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
