"""``fastdecode compare A B``: compares two results of ``bench``, and says how sure that is."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fastdecode._files import read_regular
from fastdecode.errors import visible
from fastdecode.measure._summary import Group, busy, number, timed_files
from fastdecode.measure.result import from_json, label
from fastdecode.terminal import Column, Parser, paragraph, table

if TYPE_CHECKING:
    from fastdecode.measure.result import Measurement, Result, Spread

_ABOUT = """\
Compare two results that `fastdecode bench --json FILE` wrote.

b/a is the median images/s of the second file, divided by that of the first.
"from" and "to" are cautious bounds of this ratio: "from" is the lower quartile
of b divided by the upper quartile of a, and "to" is the upper quartile of b
divided by the lower quartile of a. If both bounds are above 1, b is faster; if
both are below 1, it is slower. Otherwise it is unclear.

exit status: 0; 1 if nothing was measured in both results; 2 if a file is
missing, damaged or of another version"""

_COLUMNS = (
    Column("", widest=24),
    *(Column(title, right=True) for title in ("a images/s", "b images/s", "b/a", "from", "to")),
    Column("b is"),
)


def add_arguments(parser: Parser) -> None:
    """Add the arguments of the command to its parser."""
    parser.description = _ABOUT
    parser.add_argument("a", type=Path, metavar="A.json", help="the result to compare with")
    parser.add_argument("b", type=Path, metavar="B.json", help="the result to be compared with it")


def run(options: argparse.Namespace, parser: Parser) -> int:
    """Compare two results and print the ratios; return the exit status."""
    results = {}
    for name, path in (("a", options.a), ("b", options.b)):
        try:
            results[name] = from_json(read_regular(path))
        except OSError as error:
            parser.fail(f"{path}: {error.strerror or error}")
        except ValueError as error:
            parser.fail(f"{path}: {error}")
        stopped = ", interrupted" if results[name].interrupted else ""
        about = f"{results[name].measured[:16]}, {results[name].machine.cpu}{stopped}"
        print(paragraph(visible(f"{name}: {path}, {about}")))
    for line in warnings(results["a"], results["b"]):
        print(paragraph(visible(f"Warning: {line}"), indent="  ", first=""))
    return 0 if _show(results["a"], results["b"]) else 1


def _show(a: Result, b: Result) -> bool:
    """Print a table per setting; return whether anything was measured in both results."""
    timed = [
        {one.key: one for one in each.measurements if one.images_per_s.median > 0}
        for each in (a, b)
    ]
    sections: dict[str, list[list[str]]] = {}
    for key, one in timed[0].items():
        other = timed[1].get(key)
        if other is not None:
            sections.setdefault(Group((one,)).title, []).append(_row(one, other))
    for title, rows in sections.items():
        print("\n".join(["", title, *table(_COLUMNS, rows)]))
    if not sections:
        print("\nNothing was measured in both results.")
    for name, own, others in (("a", timed[0], timed[1]), ("b", timed[1], timed[0])):
        alone = [
            f"{label(one.protocol, one.backend)} ({Group((one,)).title})"
            for key, one in own.items()
            if key not in others
        ]
        if alone:
            print(f"\nOnly in {name}:")
            print("\n".join(paragraph(visible(one), "    ", first="  ") for one in alone))
    for name, each in (("a", a), ("b", b)):
        wrong = dict.fromkeys(one.backend for one in each.measurements if one.differing)
        if wrong:
            print(
                paragraph(visible(f"The pixels DIFFER from Pillow's in {name}: {', '.join(wrong)}"))
            )
    return bool(sections)


def verdict(quotient: Spread) -> str:
    """Return in words whether a ratio differs from 1 by more than its spread."""
    if quotient.low > 1:
        return "faster"
    return "slower" if quotient.high < 1 else "unclear"


def _row(a: Measurement, b: Measurement) -> list[str]:
    quotient = b.images_per_s.over(a.images_per_s)
    return [
        visible(label(a.protocol, a.backend)),
        number(a.images_per_s.median),
        number(b.images_per_s.median),
        *(f"{value:.2f}" for value in (quotient.median, quotient.low, quotient.high)),
        verdict(quotient),
    ]


def warnings(a: Result, b: Result) -> list[str]:
    """List other differences: because of them, the ratios do not depend on the decoders alone."""
    found = []
    comparisons: tuple[tuple[str, Callable[[Result], dict[str, Any]]], ...] = (
        ("machines", lambda one: {**asdict(one.machine), "load": None}),
        ("versions", lambda one: {each.name: each.version for each in one.backends}),
    )
    for what, facts in comparisons:
        left, right = facts(a), facts(b)
        names = [name for name in left if name in right and left[name] != right[name]]
        if names:
            said = "; ".join(f"{name}: {left[name]} and {right[name]}" for name in names)
            found.append(f"the {what} differ ({said}).")
    images = [f"{timed_files(one)}, {number(one.collection.bytes / 1e6)} MB" for one in (a, b)]
    if a.collection.digest != b.collection.digest or images[0] != images[1]:
        found.append(f"they are of other files (a: {images[0]}; b: {images[1]}).")
    for name, one in (("a", a), ("b", b)):
        if remark := busy(one.machine):
            found.append(f"{name}: {remark}")
    return found
