"""``fastdecode compare A B``: compares two results of ``bench``, and says how sure that is."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from fastdecode._files import check_result, name_in_errors, read_regular, write_text
from fastdecode.measure._summary import busy_remark
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
Compare two results that `fastdecode bench --json FILE` wrote.

b/a is the median images/s of the second file, divided by that of the first.
"from" and "to" are cautious bounds of this ratio: "from" is the lower quartile
of b divided by the upper quartile of a, and "to" is the upper quartile of b
divided by the lower quartile of a. If both bounds are above 1, b is faster; if
both are below 1, it is slower. Otherwise there is "no clear difference".

exit status: 0; 1 if nothing was measured in both results; 2 if a file is
missing, damaged or of another version"""

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
    """Add the arguments of the command to its parser."""
    parser.description = _ABOUT
    parser.add_argument("a", type=Path, metavar="A.json", help="the result to compare with")
    parser.add_argument("b", type=Path, metavar="B.json", help="the result to be compared with it")
    parser.add_argument("--html", metavar="FILE", help="also write a page with charts")


def run(options: argparse.Namespace, parser: Parser) -> int:
    """Compare two results and print the ratios; return the exit status."""
    if options.html:
        parser.need("jinja2", "--html", "fastdecode[bench]")
        from fastdecode.measure import _html

        try:
            check_result(options.html, "--html", ".html")
        except OSError as error:
            parser.fail(error)
    results = []
    for path in (options.a, options.b):
        try:
            results.append(from_json(read_regular(path)))
        except OSError as error:
            parser.fail(f"{path}: {error.strerror or error}")
        except ValueError as error:
            parser.fail(f"{path}: {error}")
    found = compare(results[0], results[1], (str(options.a), str(options.b)))
    _print(found)
    if options.html:
        try:
            with name_in_errors(options.html):
                write_text(options.html, _html.comparison_page(found))
        except OSError as error:
            parser.fail(error)
    return 0 if found.pairs else 1


class Pair(NamedTuple):
    """One configuration that was measured in both results."""

    a: Measurement
    b: Measurement
    quotient: Spread  # speed of b divided by that of a

    @property
    def verdict(self) -> str:
        return verdict(self.quotient)


@dataclass(frozen=True)
class Comparison:
    """What a comparison of two results reports."""

    names: dict[str, str]  # for "a" and "b": the file, the time and the processor
    warnings: list[str]  # other differences: machines, images, versions, devices
    pairs: list[Pair]
    tables: list[Table]
    alone: dict[str, list[str]]  # what was measured in only one of them
    wrong: dict[str, list[str]]  # backends whose pixels differ from the reference


def compare(a: Result, b: Result, files: tuple[str, str]) -> Comparison:
    """Compare two results."""
    timed = {"a": _timed(a), "b": _timed(b)}
    results = {"a": a, "b": b}
    pairs = [
        Pair(one, other, other.images_per_s.over(one.images_per_s))
        for key, one in timed["a"].items()
        if (other := timed["b"].get(key))
    ]
    alone = {
        name: list(
            dict.fromkeys(_name(own[key], results[name]) for key in own if key not in timed[other])
        )
        for (name, own), other in zip(timed.items(), "ba", strict=True)
    }
    wrong = {
        name: list(dict.fromkeys(one.backend for one in own.measurements if one.differing))
        for name, own in results.items()
    }
    names = {
        name: visible(f"{file}, {_describe(own)}")
        for (name, own), file in zip(results.items(), files, strict=True)
    }
    return Comparison(names, _warnings(a, b), pairs, _tables(a, pairs), alone, wrong)


def verdict(quotient: Spread) -> str:
    """Return in words whether a ratio differs from 1 by more than its spread."""
    if quotient.low > 1:
        return "faster"
    return "slower" if quotient.high < 1 else "no clear difference"


def _describe(result: Result) -> str:
    stopped = ", interrupted" if result.interrupted else ""
    return visible(f"{began(result)}, {result.machine.cpu}{stopped}")


def _print(found: Comparison) -> None:
    for name, text in found.names.items():
        print(paragraph(f"{name}: {text}"))
    for line in found.warnings:
        print(paragraph(f"Warning: {line}", indent="  ", first=""))
    for table in found.tables:
        print()
        show(table)
    if found.pairs:
        print()
        print("b/a: median images/s of b, divided by that of a.")
        print("from: lower quartile of b, divided by the upper quartile of a.")
        print("to: upper quartile of b, divided by the lower quartile of a.")
    else:
        print("\nNothing was measured in both results.")
    for name, alone in found.alone.items():
        if alone:
            print("\n".join([f"Only in {name} ({len(alone)}):", *(f"  {one}" for one in alone)]))
    for name, wrong in found.wrong.items():
        if wrong:
            names = visible(", ".join(wrong))
            print(paragraph(f"Pixels DIFFER from the reference in {name}: {names}"))


def _timed(result: Result) -> dict[tuple[object, ...], Measurement]:
    every = (*result.measurements, *result.on_device)
    return {one.key: one for one in every if one.images_per_s.median > 0}


def _tables(a: Result, pairs: Sequence[Pair]) -> list[Table]:
    """Make one table per protocol and format, with one section per setting."""
    found: dict[str, dict[str, list[tuple[str, ...]]]] = {}
    for one in pairs:
        sections = found.setdefault(title(one.a, a.device), {})
        sections.setdefault(setting(one.a), []).append(_row(one))
    return [Table(name, _COLUMNS, list(own.items())) for name, own in found.items()]


def _row(one: Pair) -> tuple[str, ...]:
    return (
        visible(backend(one.a)),
        number(one.a.images_per_s.median),
        number(one.b.images_per_s.median),
        *(f"{value:.2f}" for value in (one.quotient.median, one.quotient.low, one.quotient.high)),
        one.verdict,
    )


def _name(one: Measurement, where: Result) -> str:
    return visible(", ".join((backend(one), title(one, where.device), setting(one))))


def _warnings(a: Result, b: Result) -> list[str]:
    """List other differences: because of them, the ratios do not depend on the decoders alone."""
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
    for name, one in (("a", a), ("b", b)):
        if remark := busy_remark(one.machine):
            found.append(f"{name}: {remark}.")
    return found


def _collection(one: Result) -> dict[str, object]:
    formats = ", ".join(f"{n} {name.upper()}" for name, n in sorted(one.collection.formats.items()))
    return {
        "images": one.collection.images,
        "bytes": one.collection.bytes,
        "pixels": one.collection.pixels,
        "formats": formats,
    }
