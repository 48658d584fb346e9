"""Write the generated parts of the documents: what the backends declare, and what was measured.

    python bench/readme.py           rewrite the marked parts of README.md and docs/, and the charts
    python bench/readme.py --check   change nothing; exit status 1 if one of them is out of date

The text between the marks of a name is the output of the macro of that name in `readme.jinja`.
"""

from __future__ import annotations

import argparse
import json
import re
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
from fastdecode.adapters.base import JPEG_TURBO_3
from fastdecode.measure.result import OWN, Result, from_json
from fastdecode.registry import BUILTIN
from fastdecode.types import FORMATS

_ROOT = Path(__file__).parent.parent
_RESULTS = _ROOT / "bench" / "results"
_MARKED = re.compile(r"^<!-- (\w+) begin -->\n(.*?)^<!-- \1 end -->", re.MULTILINE | re.DOTALL)
_VERBATIM = ("|", "<", "- ", "!")  # starts of paragraphs that are not joined into one line
_BILLION, _CORES = 10**9, 1000

Records = Mapping[str, Mapping[str, Any]]


# Text


def table(head: Iterable[str], rows: Iterable[Sequence[str]]) -> str:
    """Write a table in Markdown."""
    head = [*head]
    return "\n".join(f"| {' | '.join(row)} |" for row in (head, ["---"] * len(head), *rows))


def grid(
    corner: str,
    titles: Mapping[str, str],
    columns: Mapping[str, tuple[str, Records]],
    *last_rows: Sequence[str],
) -> str:
    """Write a table. Each column has a template, and records by name that fill it in."""
    rows = [
        [title, *(filled(template, found.get(name, {})) for template, found in columns.values())]
        for name, title in titles.items()
        if any(name in found for _, found in columns.values())
    ]
    return table([corner, *columns], [*rows, *last_rows])


def listing(
    corner: str,
    records: Records,
    columns: Mapping[str, str],
    titles: Mapping[str, str] | None = None,
) -> str:
    """Write a table whose columns all show the same records."""
    titles = titles or {name: name for name in records}
    return grid(corner, titles, {head: (cell, records) for head, cell in columns.items()})


def filled(template: str, record: Mapping[str, Any]) -> str:
    """Fill in a template; return an empty text if a figure is missing."""
    try:
        return template.format_map(record).replace("%", " %")
    except (KeyError, TypeError):
        return ""


def measured(content: Mapping[str, Any], script: str, *more: str) -> str:
    """Say when, on which machine and with which script a result was measured."""
    machine = content["machine"]
    where = f"{machine['cpu']}, {machine['cores']} cores, {machine['system']}, {machine['python']}"
    parts = (content["measured"], where, f"NumPy {machine['numpy']}", *more)
    return f"Measured {', '.join(parts)}, with `bench/{script}`."


def every(values: Iterable[Any], template: str = "{}", between: str = ", ") -> str:
    """Write each value with a template."""
    return between.join(template.format(value) for value in values)


def shares(groups: Mapping[str, Records], template: str, *more: Sequence[str]) -> str:
    """Write a table of each backend's share of the fastest one, and the images/s of that one."""
    best = (max(one["images_per_s"] for one in found.values()) for found in groups.values())
    last = ["best, images/s", *(f"{speed:.0f}" for speed in best)]
    columns = {head: (template, found) for head, found in groups.items()}
    names = {name: f"`{name}`" for name in (*BUILTIN, "decode()")}
    return grid("backend", names, columns, last, *more)


# Figures


def load(name: str) -> dict[str, Any]:
    """Read a saved result."""
    content: dict[str, Any] = json.loads((_RESULTS / f"{name}.json").read_text(encoding="utf-8"))
    return content


def pipelines(name: str, kind: str) -> dict[str, Any]:
    """Return the measurements of each pipeline, with its speed as text."""
    found: dict[str, Any] = load(f"pipeline_{name}")["result"][kind]["pipelines"]
    for one in found.values():
        speed = one["median_images_per_s"]
        one["speed"] = f"{speed:.{0 if speed >= 100 else 1}f}"
    return found


def gain(speeds: Mapping[str, Any], key: str, own: str = "loader") -> float:
    """Return how many times as fast one is as another: the quotient of the medians shown."""
    ours, others = (speeds[name]["median_images_per_s"] for name in (own, key))
    return float(ours / others)


def gain_range(kind: str, key: str, names: Iterable[str]) -> str:
    """Write the range of `gain` over collections of photos, such as "2.0 to 3.3"."""
    found = [gain(pipelines(name, kind), key) for name in names]
    return f"{min(found):.1f} to {max(found):.1f}"


def decoding() -> dict[str, float]:
    """Return, for each backend, how many times as fast `decode` decodes a whole JPEG."""
    speeds = photo_speeds(photos())["1/1"]
    own = speeds["decode()"]["images_per_s"]
    return {name: own / one["images_per_s"] for name, one in speeds.items()}


def photos() -> Result:
    """Read the run of ``fastdecode bench`` over the photos."""
    return from_json((_RESULTS / "photos.json").read_text(encoding="utf-8"))


def photo_speeds(result: Result) -> dict[str, dict[str, dict[str, float]]]:
    """Return the images/s of each backend by reduction, and its share of the fastest."""
    found: dict[str, dict[str, dict[str, float]]] = {}
    for one in result.measurements:
        if (one.protocol, one.format) == ("decode", "jpeg") and one.images_per_s.median:
            name = "decode()" if one.backend == OWN else one.backend
            figures = {"images_per_s": one.images_per_s.median}
            found.setdefault(f"1/{one.reduce}", {})[name] = figures
    for speeds in found.values():
        best = max(figures["images_per_s"] for figures in speeds.values())
        for figures in speeds.values():
            figures["share"] = figures["images_per_s"] / best
    return found


def always(name: str, cells: Records) -> dict[str, Any]:
    """Calculate how much slower than the best it is to always use one backend."""
    regrets = {title: 1 / cell["speeds"][name] - 1 for title, cell in cells.items()}
    worst = max(regrets, key=lambda title: regrets[title])
    return {
        "within_3_percent": sum(regret <= 0.03 for regret in regrets.values()) / len(regrets),
        "median": median(regrets.values()),
        "worst": regrets[worst],
        "worst_cell": worst,
    }


def missed(result: Records, us_at_10_kb: float, percent: float) -> list[str]:
    """List the sizes at which `decode` costs more than the aim."""
    found = []
    for size, row in result.items():
        us, share = (
            max(row[f"{way}_more_{of}"] for way in ("named", "automatic"))
            for of in ("us", "percent")
        )
        if share > percent and (size != "10 KB" or us > us_at_10_kb):
            found.append(size)
    return found


def pass_of(run: Mapping[str, Any]) -> dict[str, float]:
    """Calculate a pass over a billion images on 1000 cores."""
    cost = run["result"]["1"]["fastdecode"]["cpu_s_per_1000"]
    seconds = _BILLION * cost / 1000 / _CORES
    size = _BILLION * run["settings"]["bytes_per_photo"]
    return {
        "cost": cost,
        "terabytes": size / 1e12,
        "core_hours": _CORES * seconds / 3600,
        "hours": seconds / 3600,
        "thousands": _BILLION / seconds / 1000,
        "gigabytes": size / seconds / 1e9,
    }


def machine_figures(content: dict[str, Any]) -> str:
    """Write what `gpu.py` measured on one machine."""
    return drawn("machine", content)


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
    """Write the tables of what each backend reads, and how."""
    formats = [format for format in FORMATS if format != "other"]
    reads, does = [], []
    for name, entry in BUILTIN.items():
        known = entry.formats.split()
        with patch.object(sys, "meta_path", [_Absent(), *sys.meta_path]):
            kind = resolve_name(str(entry.target))
        # turbojpeg declares in its constructor what its version does.
        own = getattr(kind, "supports", {"jpeg": (JPEG_TURBO_3,)})
        assert sorted(known) == sorted(own), f"{name}: BUILTIN and its class disagree"
        reads.append([f"`{name}`", *("yes" if f in known else "" for f in (*formats, "other"))])
        reduces = sorted(own["jpeg"][0].reduces - {1}) if "jpeg" in own else []
        warned = [f for f in formats if f in own and own[f][0].warnings]
        does.append(
            [
                f"`{name}`",
                every(reduces, "1/{}") or "no",
                every(warned) or "no",
                "yes" if kind.releases_gil else "no",
            ]
        )
    columns = ["backend", "reduces JPEG in the decoder", "reports warnings", "releases the GIL"]
    return f"{table(['backend', *formats, 'other'], reads)}\n\n{table(columns, does)}"


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
    "results": sorted(path.stem for path in _RESULTS.glob("*.json")),
    "PITCH": (fastdecode.__doc__ or "").partition("\n")[0],
    "machines": sorted(path.stem for path in _RESULTS.glob("gpu_*.json")),
    **{
        one.__name__: one
        for one in (
            *(always, declared, decoding, gain, gain_range, grid, listing, load, measured, missed),
            *(pass_of, photo_speeds, photos, pipelines, shares, sorted, zip),
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
    options = parser.parse_args()
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
    if options.check and late:
        names = ", ".join(path.name for path in late)
        print(f"{names} out of date: run python bench/readme.py", file=sys.stderr)
        return 1
    for path in late:
        path.write_text(files[path], encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
