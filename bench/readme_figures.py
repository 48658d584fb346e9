"""The README's figures: drawn from the results that are kept beside this."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Any

from fastdecode.bench.charts import readme_chart
from fastdecode.bench.result import Measurement, Result, from_json
from fastdecode.registry import BUILTIN

RESULTS = Path(__file__).parent / "results"
_AIM_US_AT_10_KB = 12
_AIM_PERCENT = 1
_OTHER_FORMATS = ("png 1/1", "webp 1/1", "jpeg2000 1/1")


def figures() -> str:
    """Draw what was measured."""
    parts = (
        photo_figures(_photos()),
        _order_figures(load("default_order")),
        _regret_figures(load("regret")),
        _overhead_figures(load("overhead")),
    )
    return "\n\n".join(parts)


def chart() -> str:
    """Draw the chart of the run over the photos."""
    return readme_chart(_photos())


def _photos() -> Result:
    return from_json((RESULTS / "photos.json").read_text(encoding="utf-8"))


def photo_figures(result: Result) -> str:
    """Draw the table of the run over the photos: a column for each way of asking."""
    ways: dict[tuple[str, int, int], str] = {}
    cells: dict[tuple[str, int, int], dict[str, Measurement]] = {}
    most = {
        protocol: max(m.threads + m.workers for m in result.measurements if m.protocol == protocol)
        for protocol in {m.protocol for m in result.measurements}
    }
    for one in result.measurements:
        crowd = one.threads + one.workers
        if one.format != "jpeg" or crowd != most[one.protocol] or not one.images_per_s.median:
            continue
        key = (one.protocol, one.reduce, crowd)
        ways[key] = _way(one)
        cells.setdefault(key, {})[one.backend] = one
    rows = []
    for name in (*BUILTIN, "decode()"):
        found = [cells[key].get(name) for key in ways]
        if any(found):
            rows.append(
                [f"`{name}`", *("" if m is None else f"{m.ratio.median:.2f}" for m in found)]
            )
    best = [max(m.images_per_s.median for m in cells[key].values()) for key in ways]
    rows.append(["best, images/s", *(f"{speed:.0f}" for speed in best)])
    here = result.machine
    versions = ", ".join(f"{b.name} {b.version}" for b in result.backends)
    wrong = sorted({m.backend for m in result.measurements if m.differing})
    files = result.collection
    return (
        "![Images/s by backend and reduction](bench/results/photos.svg)\n\n"
        f"Speed as a share of the fastest (1.00) on {files.images} photos of "
        f"{files.bytes / files.images / 1000:.0f} KB on average:\n\n"
        f"{table(['backend', *ways.values()], rows)}\n\n"
        f"{' '.join(result.answer)}\n\n"
        f"Pixels: {'they differ for ' + ', '.join(wrong) if wrong else 'the same from all'}, where "
        "the decoder reduces by itself. "
        f"Measured {result.measured[:10]} by `fastdecode bench`, {here.cpu}, "
        f"{here.cores} cores, {here.system}, {here.python}, NumPy {here.numpy}, load before "
        f"{here.load}. {versions}. All figures: `bench/results/photos.json`."
    )


def _way(one: Measurement) -> str:
    """Head a column."""
    if one.protocol == "decode":
        return f"1/{one.reduce}"
    if one.protocol == "threads":
        return f"1/{one.reduce}, {one.threads} threads"
    if one.protocol == "loader":
        return f"1/{one.reduce}, DataLoader, {one.workers} workers"
    return f"1/{one.reduce}, from files"


def _regret_figures(content: dict[str, Any]) -> str:
    result = content["result"]
    names = {"decode()": "calibrated", "quick": "quickly calibrated", "default": "default order"}
    pillow = sorted(1 / cell["speeds"]["pillow"] - 1 for cell in result["cells"].values())
    rows = [
        [
            name,
            f"{100 * result[way]['within_3_percent']:.0f} %",
            f"{100 * result[way]['median']:.1f} %",
            f"{100 * result[way]['worst']:.1f} %, {result[way]['worst_cell']}",
        ]
        for way, name in names.items()
    ]
    near = sum(regret <= 0.03 for regret in pillow) / len(pillow)
    rows.append(
        [
            "Pillow always",
            f"{100 * near:.0f} %",
            f"{100 * median(pillow):.1f} %",
            f"{100 * pillow[-1]:.0f} %",
        ]
    )
    took = result["calibration_s"]
    head = ["choice", "within 3 % of the best", "median", "worst"]
    return (
        "How much slower `decode` is than the best backend for the same work, over "
        f"{len(result['cells'])} kinds of work (JPEG of 10 KB to 5 MB, PNG, WebP, each `reduce`, "
        "one thread and all cores), on photos that calibration has not seen:\n\n"
        f"{table(head, rows)}\n\n"
        f"Calibration took {took['full']:.0f} s in full and {took['quick']:.1f} s with `--quick`. "
        f"Measured {where(content)}."
    )


def load(name: str) -> dict[str, Any]:
    """Read a result that is kept."""
    content: dict[str, Any] = json.loads((RESULTS / f"{name}.json").read_text(encoding="utf-8"))
    return content


def where(content: dict[str, Any]) -> str:
    """Say when and on what it was measured."""
    machine = content["machine"]
    return (
        f"{content['measured']}, {machine['cpu']}, {machine['cores']} cores, {machine['system']}, "
        f"{machine['python']}, NumPy {machine['numpy']}"
    )


def _order_figures(content: dict[str, Any]) -> str:
    result = content["result"]
    groups = [group for group in _OTHER_FORMATS if group in result]
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
        "The same for other formats, at full size, one thread, from memory:\n\n"
        f"{table(['backend', *groups], rows)}\n\n"
        f"Measured {where(content)}. {versions}."
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
        f"{table(head, rows)}\n\n"
        f"The aim is at most {_AIM_US_AT_10_KB} µs more at 10 KB and {_AIM_PERCENT} % more from "
        f"100 KB on: {verdict}. Measured {where(content)}."
    )


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Write a table in Markdown."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)
