"""``fastdecode compare A B``: how two results differ, and whether that is sure."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from fastdecode._files import read_regular
from fastdecode.measure._tables import Column, Table, show
from fastdecode.measure._text import (
    backend,
    backend_versions,
    began,
    device_facts,
    number,
    setting,
    title,
    visible,
)
from fastdecode.measure.result import from_json
from fastdecode.terminal import Parser, paragraph

if TYPE_CHECKING:
    from fastdecode.measure.result import Measurement, Result, Spread

_ABOUT = """\
Compare two results that `python -m fastdecode bench --json FILE` wrote.

b/a is the images/s of the second file over that of the first, by their
medians. "from" and "to" bound it with care: the lower quartile of b over the
upper one of a, and the upper one of b over the lower one of a. Where both are
on one side of 1 the difference is larger than the spread: faster or slower.
Everything else is "no clear difference".

exit status: 0; 2 if a file is missing, damaged or of another version"""

_COLUMNS = (
    Column("backend", widest=16),
    Column("a images/s", right=True),
    Column("b images/s", right=True),
    Column("b/a", right=True),
    Column("from", right=True),
    Column("to", right=True),
    Column("b is"),
)


def add_arguments(parser: Parser) -> None:
    """Declare the arguments of the command."""
    parser.description = _ABOUT
    parser.add_argument("a", type=Path, metavar="A.json", help="the result to compare with")
    parser.add_argument("b", type=Path, metavar="B.json", help="the result that is compared")


def run(options: argparse.Namespace, parser: Parser) -> int:
    """Compare two results and print the ratios; return the exit status."""
    results = []
    for path in (options.a, options.b):
        try:
            results.append(from_json(read_regular(path).decode()))
        except OSError as error:
            parser.fail(f"{path}: {error.strerror or error}")
        except ValueError as error:
            parser.fail(f"{path}: {error}")
    for name, path, one in zip("ab", (options.a, options.b), results, strict=True):
        print(paragraph(f"{name}: {visible(str(path))}, {_about(one)}"))
    _print(*results)
    return 0


def verdict(quotient: Spread) -> str:
    """Say whether a ratio is off 1 by more than its spread."""
    if quotient.low > 1:
        return "faster"
    return "slower" if quotient.high < 1 else "no clear difference"


def _about(result: Result) -> str:
    stopped = ", interrupted" if result.interrupted else ""
    return visible(f"{began(result)}, {result.machine.cpu}{stopped}")


def _print(a: Result, b: Result) -> None:
    warnings = _warnings(a, b)
    for line in warnings:
        print(paragraph(f"Warning: {line}", indent="  ", first=""))
    timed_a, timed_b = _timed(a), _timed(b)
    both = [key for key in timed_a if key in timed_b]
    for table in _tables(a, [(timed_a[key], timed_b[key]) for key in both]):
        print()
        show(table)
    if not both:
        print("\nNothing was measured in both.")
    else:
        print()
        print("b/a: images/s of b over that of a, by their medians.")
        print("from, to: lower quartile of b over upper one of a, and the other way round.")
    for name, result, own, other in (("a", a, timed_a, timed_b), ("b", b, timed_b, timed_a)):
        alone = dict.fromkeys(_name(own[key], result) for key in own if key not in other)
        if alone:
            print("\n".join([f"Only in {name} ({len(alone)}):", *(f"  {one}" for one in alone)]))
    for name, result in (("a", a), ("b", b)):
        wrong = dict.fromkeys(one.backend for one in result.measurements if one.differing)
        if wrong:
            names = visible(", ".join(wrong))
            print(paragraph(f"Pixels DIFFER from the reference in {name}: {names}"))


def _timed(result: Result) -> dict[tuple[object, ...], Measurement]:
    every = (*result.measurements, *result.on_device)
    return {one.key: one for one in every if one.images_per_s.median > 0}


def _tables(a: Result, both: Sequence[tuple[Measurement, Measurement]]) -> list[Table]:
    """Make a table for each protocol and format, a section for each setting."""
    found: dict[str, dict[str, list[tuple[str, ...]]]] = {}
    for one, other in both:
        sections = found.setdefault(title(one, a.device), {})
        sections.setdefault(setting(one), []).append(_row(one, other))
    return [Table(name, _COLUMNS, list(own.items())) for name, own in found.items()]


def _row(one: Measurement, other: Measurement) -> tuple[str, ...]:
    quotient = other.images_per_s.over(one.images_per_s)
    return (
        visible(backend(one)),
        number(one.images_per_s.median),
        number(other.images_per_s.median),
        *(f"{value:.2f}" for value in (quotient.median, quotient.low, quotient.high)),
        verdict(quotient),
    )


def _name(one: Measurement, where: Result) -> str:
    return visible(", ".join((backend(one), title(one, where.device), setting(one))))


def _warnings(a: Result, b: Result) -> list[str]:
    """Say what else differs: then the ratios are not about the decoders alone."""
    found = []
    comparisons: tuple[tuple[str, Callable[[Result], dict[str, object]]], ...] = (
        ("machines", lambda one: {**asdict(one.machine), "load": None}),
        ("collections", _collection),
        ("versions", lambda one: {**backend_versions(one.backends)}),
        ("devices", lambda one: {**device_facts(one)}),
    )
    for what, facts in comparisons:
        left, right = facts(a), facts(b)
        names = [name for name in left if name in right and left[name] != right[name]]
        if names:
            said = "; ".join(f"{name}: {left[name]} and {right[name]}" for name in names)
            found.append(visible(f"the {what} differ ({said})."))
    return found


def _collection(one: Result) -> dict[str, object]:
    formats = ", ".join(f"{n} {name.upper()}" for name, n in sorted(one.collection.formats.items()))
    return {
        "images": one.collection.images,
        "bytes": one.collection.bytes,
        "pixels": one.collection.pixels,
        "formats": formats,
    }
