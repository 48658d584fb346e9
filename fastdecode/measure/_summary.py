"""What a result says: groups of measurements, the answer in sentences, remarks; words, numbers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from fastdecode.cli.terminal import count
from fastdecode.errors import visible
from fastdecode.measure.result import OWN, PILLOW, label

if TYPE_CHECKING:
    from fastdecode.measure.result import Machine, Measurement, Result, Spread

_NEAR = 0.97  # of the best speed; repeated runs differ by more
_WIDE = 0.2  # of a figure: if it moves further, it is shown as a range
_MANY = 20  # images; fewer say little about other images
STEP = "Whether decoding is your bottleneck: compare its images/s with those of your training step."


def number(value: float) -> str:
    """Format with three significant digits and a whole integer part; at most three decimals."""
    limits = ((99.95, 0), (9.995, 1), (0.0995, 2))
    decimals = next((places for limit, places in limits if value >= limit), 3 if value else 0)
    return f"{value:,.{decimals}f}"


def percent(share: float) -> str:
    """Format a share of 1 in whole percent; a small share becomes ``<1%``, not ``0%``."""
    return "<1%" if 0 < share < 0.005 else f"{share:.0%}"


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
    """The backends with the same settings, fastest first."""

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
    def own(self) -> Measurement | None:
        """The measurement of this package, if it was timed."""
        return next((one for one in self.timed if one.backend == OWN), None)

    @property
    def has_pillow(self) -> bool:
        """Whether Pillow was timed, so that all ratios are to its speed."""
        return any(one.backend == PILLOW for one in self.timed)

    @property
    def title(self) -> str:
        """The settings in words."""
        one = self.one
        if one.protocol == "train":
            workers = f"{count(one.workers, 'thread')} or worker{'s' * (one.workers != 1)}"
            recipe = f"recipe {one.recipe}, " * bool(one.recipe)
            return f"{one.format.upper()}, {recipe}training batches of {one.batch}, {workers}"
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
    """Return the groups for the headlines: decoding the most frequent format, and training."""
    every = [group for group in groups(result) if group.timed]
    first = [
        next((group for group in every if group.one.protocol == protocol), None)
        for protocol in ("decode", "train")
    ]
    return [group for group in first if group is not None]


class Figure(NamedTuple):
    """One column of a table."""

    title: str
    text: Callable[[Measurement], str]  # returns the text of the cell
    meaning: str = ""  # its explanation, if the title is not clear enough
    right: bool = True  # a number, so aligned to the right


def _timed(text: Callable[[Measurement], str]) -> Callable[[Measurement], str]:
    """Wrap a column's function to return a dash if only the pixels were checked."""
    return lambda one: text(one) if one.images_per_s.median else "-"


def pixels(one: Measurement) -> str:
    """Return in words whether the pixels are Pillow's."""
    if one.differing:
        return f"{len(one.differing)} differ"
    if one.averaged:
        return "averaged" if one.averaged >= one.files else f"{one.averaged} averaged"
    return "same" if one.images_per_s.median else f"{len(one.refused)} refused"


def figures(group: Group) -> tuple[Figure, ...]:
    """Return the columns of a table."""
    base = "Pillow" if group.has_pillow else "best"
    alone = group.has_pillow and group.one.protocol == "decode"
    found = (
        Figure("", lambda one: label(one.protocol, one.backend), right=False),
        Figure("images/s", _timed(lambda one: number(one.images_per_s.median))),
        Figure(
            "±",
            _timed(lambda one: percent(movement(one.images_per_s))),
            "how far the figure moves if it is measured again: as far as the figures of nine parts "
            "of the run lie apart",
        ),
        Figure(
            f"vs {base}",
            _timed(lambda one: times(one.ratio.median)),
            "libraries are called alone; decode() also checks the files" if alone else "",
        ),
        Figure(
            "CPU s/1000",
            lambda one: number(one.cpu_s_per_1000) if one.cpu_s_per_1000 else "-",
            "processor seconds for 1000 images, summed over all cores",
        ),
        Figure("pixels", pixels, right=False),
    )
    return found[:-1] if group.one.protocol == "train" else found


def sentences(result: Result) -> tuple[str, ...]:
    """Return the answer in sentences. They cover only what was measured."""
    found = [
        _gain(group) if group.one.protocol == "train" else _fastest(group)
        for group in main_groups(result)
    ]
    if not found:
        return ("Nothing was measured.",)
    return (*found, _pixels(result), STEP)


def _fastest(group: Group) -> str:
    """Say what decodes fastest, what comes near it, and how this package compares with Pillow."""
    right = [one for one in group.timed if not one.differing] or list(group.timed)
    best, own = right[0], group.own
    near = [
        one.backend
        for one in right[1:]
        if one.images_per_s.median >= _NEAR * best.images_per_s.median
    ]
    text = f"Fastest at decoding {best.format.upper()}: {best.backend}, "
    text += f"{number(best.images_per_s.median)} images/s"
    text += f" ({', '.join(near)} within 3%)" if near else ""
    if own and group.has_pillow:
        text += f". fastdecode, which chooses {own.chosen or 'no backend'}, decodes "
        text += f"{_compared(own)} as fast as Pillow, on {_files(own)}"
    return f"{text}."


def _gain(group: Group) -> str:
    """Say what the `Loader` gains over each of the others."""
    own = group.own or group.timed[0]
    others = [
        f"{times(own.images_per_s.median / one.images_per_s.median)} as fast as "
        f"{label('train', one.backend)}"
        for one in group.timed
        if one.backend not in (own.backend, "device")
    ]
    text = f"Training batches: {label('train', own.backend)} makes "
    text += f"{number(own.images_per_s.median)} images/s from {_files(own)}"
    return f"{text}: {', '.join(others)}." if others else f"{text}."


def _pixels(result: Result) -> str:
    wrong = Counter(one.backend for one in result.measurements if one.differing)
    if wrong:
        return f"The pixels DIFFER from Pillow's: {', '.join(wrong)}."
    if any(one.averaged for one in result.measurements):
        return "All decoders that reduce JPEGs themselves give the same pixels."
    return "All decoders give the same pixels."


def _compared(one: Measurement) -> str:
    """Format a ratio, with its spread if that is wide."""
    if movement(one.ratio) <= _WIDE:
        return times(one.ratio.median)
    return f"{times(one.ratio.median)} ({times(one.ratio.low)} to {times(one.ratio.high)})"


def _files(one: Measurement) -> str:
    return count(one.files, "photo" if one.format == "jpeg" else f"{one.format.upper()} image")


def caveats(result: Result) -> list[str]:
    """List the reasons why the figures are uncertain."""
    found = [text for text in [busy(result.machine)] if text]
    timed = [group.one.files for group in main_groups(result)]
    if result.collection.samples:
        found.append("These are the package's own photos; yours may give other figures.")
    elif timed and timed[0] < _MANY:
        found.append(f"Only {count(timed[0], 'image')}: others may give other figures.")
    return found


def busy(here: Machine) -> str:
    """Return a remark if the machine was too busy for reliable figures; empty if it was not."""
    if here.load is None or here.load <= here.cores / 2:
        return ""
    cores = count(here.cores, "core")
    return f"The machine was busy, load {number(here.load)} on {cores}: figures may be unreliable."


def notes(result: Result) -> list[str]:
    """Return the notes of the run, and explain what the tables show and leave out."""
    found = list(dict.fromkeys(result.notes))
    if any(one.averaged for one in result.measurements):
        found.append(
            "averaged: the backend does not reduce these JPEG files inside its decoder, so the "
            "package averages full-size pixels. Their values differ by design."
        )
    if result.collection.not_images:
        found.append(f"Skipped, not images: {count(result.collection.not_images, 'file')}.")
    return found


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
        "Libraries": ", ".join(libraries),
        "Images": images,
        "Measured": f"{result.measured[:16].replace('T', ' ')} UTC",
    }
    return {name: visible(text) for name, text in found.items() if text}


def timed_files(result: Result) -> str:
    """Say how many of the images were timed: "60 of 200 JPEG timed"."""
    parts = []
    for kind, amount in result.collection.formats.items():
        timed = max((one.files for one in result.measurements if one.format == kind), default=0)
        if timed:
            parts.append(f"{timed:,}{f' of {amount:,}' if timed != amount else ''} {kind.upper()}")
    return f"{', '.join(parts) or 'no images'} timed"
