"""What a result says: tables, notes, lists of files and the answer, printed or as one HTML page."""

from __future__ import annotations

import sys
import textwrap
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from fastdecode.cli.terminal import Column, count, paragraph, table
from fastdecode.errors import visible
from fastdecode.measure.result import OWN, PILLOW, label

if TYPE_CHECKING:
    from fastdecode.measure.result import Measurement, Result, Spread

_MANY = 20  # images; fewer say little about other images
_STEP = "Is decoding your bottleneck? Compare these images/s with those of your training step."
_MAX_LISTED = 3  # file names that a list shows; it only counts the others
_MAX_FILES = 200  # file names per list of a page, which a phone could not open with thousands
_MAX_REASON = 150  # characters of a decoder's message: about two lines
_WIDEST = 24  # characters of a backend's name; names from plugins may be longer


def number(value: float) -> str:
    """Format with three significant digits and a whole integer part; at most three decimals."""
    limits = ((99.95, 0), (9.995, 1), (0.0995, 2))
    decimals = next((places for limit, places in limits if value >= limit), 3 if value else 0)
    return f"{value:,.{decimals}f}"


def times(quotient: float) -> str:
    """Format a quotient of speeds, with as many digits as are meaningful."""
    return f"{quotient:.{2 if quotient < 1.2 else 1 if quotient < 9.95 else 0}f}x"


def movement(spread: Spread) -> float:
    """Return how far a figure moves if it is measured again, as a share of it.

    It is as far as the parts of a run lie apart, not half of that: of five runs on a quiet machine,
    14 % of the figures lay further from one of another run, and 38 % further than half of it.
    """
    return (spread.high - spread.low) / spread.median if spread.median else 0.0


@dataclass(frozen=True)
class Group:
    """The measurements with the same settings, fastest first: one table."""

    members: tuple[Measurement, ...]  # those that were only checked, without figures, come last

    @property
    def one(self) -> Measurement:
        """Any member, for the settings that all of them share."""
        return self.members[0]

    @property
    def timed(self) -> tuple[Measurement, ...]:
        """The members that have figures."""
        return tuple(one for one in self.members if one.images_per_s.median > 0)

    @property
    def own(self) -> Measurement:
        """The measurement of this package; the fastest if that was not timed."""
        return next((one for one in self.timed if one.backend == OWN), self.members[0])

    @property
    def base(self) -> str:
        """What all ratios are to: Pillow, or the fastest if Pillow was not timed."""
        return "Pillow" if any(one.backend == PILLOW for one in self.timed) else "best"

    @property
    def title(self) -> str:
        """The settings in words."""
        one = self.one
        if one.protocol == "train":
            workers = f"{count(one.workers, 'thread')} or worker{'s' * (one.workers != 1)}"
            return f"{one.format.upper()}, training batches of {one.batch}, {workers}"
        size = "full size" if one.reduce == 1 else f"1/{one.reduce} size"
        return f"{one.format.upper()}, decoding from memory, {size}, one thread"


def groups(result: Result) -> list[Group]:
    """Group the measurements with the same settings, in the order in which they were measured."""
    found: dict[tuple[object, ...], list[Measurement]] = {}
    for one in result.measurements:
        found.setdefault((*one.key[:3], *one.key[4:]), []).append(one)
    return [
        Group(tuple(sorted(own, key=lambda one: -one.images_per_s.median)))
        for own in found.values()
    ]


def main_groups(result: Result) -> list[Group]:
    """Return the groups of the answer: decoding the most frequent format, and training."""
    found: dict[str, Group] = {}
    for group in groups(result):
        if group.timed:
            found.setdefault(group.one.protocol, group)
    return list(found.values())


class Figure(NamedTuple):
    """One column of a table."""

    title: str
    text: Callable[[Measurement], str]  # returns the text of the cell
    meaning: str = ""  # its explanation, if the title is not clear enough
    right: bool = True  # a number, so aligned to the right


def _percent(share: float) -> str:
    """Format a share of 1 in whole percent; a small share becomes ``<1%``, not ``0%``."""
    return "<1%" if 0 < share < 0.005 else f"{share:.0%}"


def _pixels(one: Measurement) -> str:
    """Return in words whether the pixels are Pillow's."""
    if one.differing:
        return f"{len(one.differing)} differ"
    if one.averaged:
        return "averaged" if one.averaged >= one.files else f"{one.averaged} averaged"
    return "same" if one.images_per_s.median else f"{len(one.refused)} refused"


def figures(group: Group) -> tuple[Figure, ...]:
    """Return the columns of a table."""

    def timed(text: Callable[[Measurement], str]) -> Callable[[Measurement], str]:
        return lambda one: text(one) if one.images_per_s.median else "-"

    found = (
        Figure("", lambda one: label(one.protocol, one.backend), right=False),
        Figure("images/s", timed(lambda one: number(one.images_per_s.median))),
        Figure(
            "±",
            timed(lambda one: _percent(movement(one.images_per_s))),
            "how far the figure moves if it is measured again: as far as the figures of nine parts "
            "of the run lie apart",
        ),
        Figure(
            f"vs {group.base}",
            timed(lambda one: times(one.ratio.median)),
            "quotient of images/s; libraries are called alone, decode() also checks the files",
        ),
        Figure(
            "CPU s/1000",
            lambda one: number(one.cpu_s_per_1000) if one.cpu_s_per_1000 else "-",
            "processor seconds for 1000 images, summed over all cores",
        ),
        Figure("pixels", _pixels, "compared with Pillow's; averaged ones differ by design", False),
    )
    return found[:-1] if group.one.protocol == "train" else found


def answer(result: Result) -> list[str]:
    """Return the answer in a few lines. They cover only what was measured."""
    lines = []
    for group in main_groups(result):
        own = group.own
        best = next((one for one in group.timed if not one.differing), own)
        kind = "Training on" if own.protocol == "train" else "Decoding"
        name = label(own.protocol, own.backend) + f" (by {own.chosen})" * bool(own.chosen)
        lines.append(
            f"{kind} {own.format.upper()}: {name} {number(own.images_per_s.median)} images/s, "
            f"{times(own.ratio.median)} {group.base}; fastest: {label(best.protocol, best.backend)}"
        )
    if not lines:
        return ["Nothing was measured."]
    wrong = dict.fromkeys(one.backend for one in result.measurements if one.differing)
    lines.append(f"Pixels that DIFFER from Pillow's: {', '.join(wrong) or 'none'}")
    return [*lines, _STEP]


def caveats(result: Result) -> list[str]:
    """List the reasons why the figures are uncertain."""
    here, found = result.machine, []
    if here.load is not None and here.load > here.cores / 2:
        found.append(f"The machine was busy: load {number(here.load)}, cores {here.cores}.")
    files = [group.one.files for group in main_groups(result)]
    if result.collection.samples:
        found.append("These are the package's own photos; yours may give other figures.")
    elif files and files[0] < _MANY:
        found.append(f"Only {count(files[0], 'image')}: others may give other figures.")
    return found


def notes(result: Result) -> list[str]:
    """Return the notes of the run, and how many files it left out."""
    skipped = result.collection.not_images
    line = f"Skipped, not images: {count(skipped, 'file')}."
    return [*dict.fromkeys(result.notes), *[line] * bool(skipped)]


def listings(result: Result) -> dict[str, dict[str, str]]:
    """List, by title, the files that went wrong, each with a remark that may be empty."""
    found: dict[str, dict[str, str]] = {}
    for group in groups(result):
        if group.one.protocol == "train":
            continue
        for one in group.members:
            for file, why in one.refused.items():
                by_all = all(file in other.refused for other in group.members)
                title = f"Refused by {'all' if by_all else one.backend}"
                found.setdefault(title, {}).setdefault(file, why)
            title = f"Other pixels from {one.backend}, {one.format.upper()} 1/{one.reduce}"
            found.setdefault(title, {}).update(dict.fromkeys(one.differing, ""))
    found["Unreadable"] = result.collection.unreadable
    return {title: files for title, files in found.items() if files}


def facts(result: Result) -> dict[str, str]:
    """Describe the machine, the libraries and the images."""
    here, files = result.machine, result.collection
    formats = ", ".join(f"{amount:,} {name.upper()}" for name, amount in files.formats.items())
    images = f"{formats or 'none'}, {number(files.bytes / 1e6)} MB, {number(files.pixels / 1e6)} MP"
    images += f"; {count(files.left_out, 'file')} left out" if files.left_out else ""
    load = "" if here.load is None else f", load {number(here.load)}"
    libraries = (
        f"{one.name} {one.version}{f' ({one.codec})' if one.codec else ''}"
        for one in result.backends
    )
    found = {
        "Machine": f"{here.cpu}, {count(here.cores, 'core')}, {here.system}{load}",
        "Software": f"fastdecode {here.fastdecode}, {here.python}, NumPy {here.numpy}",
        "Images": images,
        "Measured": f"{result.measured[:16].replace('T', ' ')} UTC",
        "Libraries": ", ".join(libraries),
    }
    return {name: visible(text) for name, text in found.items() if text}


def show_heading(result: Result) -> None:
    """Print the machine and the images, before anything is measured."""
    for name, text in facts(result).items():
        print(paragraph(f"{name}: {text}", indent="  ", first=""))


def show_result(result: Result) -> None:
    """Print the tables, the files that went wrong, and the answer."""
    if result.interrupted:
        print("\nInterrupted: these are the results so far.")
    meanings: dict[str, None] = {}
    for group in groups(result):
        if group.timed:
            shown = figures(group)
            columns = [Column(one.title, one.right, widest=_WIDEST) for one in shown]
            rows = [[one.text(member) for one in shown] for member in group.members]
            print(f"\n{group.title}, {count(group.one.files, 'file')}")
            print("\n".join(table(columns, rows)))
            explained = [one for one in shown if one.meaning]
            meanings |= dict.fromkeys(f"{one.title}: {one.meaning}." for one in explained)
    libraries = facts(result).get("Libraries")
    lines = [*meanings, *notes(result), *([f"Libraries: {libraries}."] if libraries else [])]
    remarks = [paragraph(line, indent="  ", first="") for line in lines]
    remarks += [_listing(title, files) for title, files in listings(result).items()]
    if remarks:
        print("\n" + "\n".join(remarks))
    print()
    for line in (*caveats(result), *answer(result)):
        print(paragraph(visible(line)))


def _listing(heading: str, files: Mapping[str, str]) -> str:
    """List a few files with their remarks, and say how many more there are."""
    title = visible(f"{heading} ({count(len(files), 'file')}):")
    lines = [paragraph(title, indent="  ", first="")]
    for name, reason in sorted(files.items())[:_MAX_LISTED]:
        short = textwrap.shorten(reason, _MAX_REASON, placeholder=" …")
        text = visible(f"{name}: {short}" if short else name)
        lines.append(paragraph(text, indent="      ", first="  "))
    if len(files) > _MAX_LISTED:
        lines.append(f"  … and {len(files) - _MAX_LISTED:,} more")
    return "\n".join(lines)


def page(result: Result) -> str:
    """Return the result as one self-contained HTML file."""
    import jinja2

    environment = jinja2.Environment(
        autoescape=True,
        # Replace the characters of text that could disturb the page.
        finalize=lambda value: visible(value) if type(value) is str else value,
        loader=jinja2.FileSystemLoader(Path(__file__).parent / "templates"),
        lstrip_blocks=True,
        trim_blocks=True,
        undefined=jinja2.StrictUndefined,
    )
    settings = {name: value for name, value in result.settings.items() if value is not None}
    return environment.get_template("page.html").render(
        result=result,
        report=sys.modules[__name__],
        look=_look,
        count=count,
        tables=[(group, figures(group)) for group in groups(result) if group.timed],
        listings=listings(result),
        most=_MAX_FILES,
        facts=facts(result) | settings,
    )


def _look(one: Measurement) -> str:
    """Return the CSS class of a row; empty for a plain backend."""
    return "wrong" if one.differing else "own" if one.backend in (OWN, "device") else ""
