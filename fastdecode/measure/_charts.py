"""Charts of a result, as SVG: the data and coordinates for `templates/charts.svg`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from math import ceil, floor, log, log10
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import jinja2

from fastdecode.measure._summary import by_count, format_times, groups, most_frequent_format
from fastdecode.measure._text import (
    backend,
    number,
    percent,
    pixels,
    protocol,
    setting,
    size,
    visible,
)
from fastdecode.measure.result import AUTOMATIC, CPU, PILLOW
from fastdecode.terminal import count

if TYPE_CHECKING:
    from fastdecode.measure._summary import Group
    from fastdecode.measure.result import Measurement, Result, Spread

_LEFT = 104  # where names end
_RIGHT = 234  # where figures begin
_BARS_END = 256
_WIDEST_NAME = 176
_MIN_MS = 0.001  # of a logarithmic axis; the clock is no finer


def _visible(value: object) -> object:
    """Replace characters in text that could disturb the page, but not in markup."""
    return visible(value) if type(value) is str else value


ENVIRONMENT = jinja2.Environment(
    autoescape=True,
    finalize=_visible,
    loader=jinja2.FileSystemLoader(Path(__file__).parent / "templates"),
    lstrip_blocks=True,
    trim_blocks=True,
    undefined=jinja2.StrictUndefined,
)


def axis_ticks(highest: float) -> list[float]:
    """Return three to six round numbers from 0 to at most the highest value."""
    if highest <= 0:
        return [0.0]
    power = 1.0
    while power * 10 <= highest:
        power *= 10
    while power > highest:
        power /= 10
    step = next(power * part for part in (0.2, 0.5, 1, 2) if highest / (power * part) <= 5)
    return [step * number for number in range(int(highest / step + 1e-9) + 1)]


def log_ticks(low: float, high: float) -> list[float]:
    """Return a few round numbers between two positive ones, for a logarithmic axis."""
    powers = [10.0**power for power in range(floor(log10(low)), ceil(log10(high)) + 1)]
    for parts in ((1,), (1, 3), (1, 2, 5)):
        marks = [round(power * part, 9) for power in powers for part in parts]
        found = [mark for mark in marks if low <= mark <= high]
        if len(found) > 1:
            return found
    return [low, high] if high > low else [low]


def row_kind(one: Measurement) -> str:
    """Return the CSS class of a row; empty for a plain backend."""
    if one.protocol == "train":
        return "auto" if one.backend == "loader" else ""
    return "wrong" if one.differing else "auto" if one.backend in (AUTOMATIC, CPU) else ""


def _latency_label(shown: Sequence[Measurement]) -> str:
    told = (
        f"{one.backend} " + "/".join(number(one.latency_ms[part]) for part in (50, 95, 99))
        for one in shown
    )
    return f"p50/p95/p99: {'; '.join(told)}."


def _agreement_label(verdicts: dict[str, dict[int, str]]) -> str:
    told = (
        f"{name} {size(reduce)}: {word}"
        for name, words in verdicts.items()
        for reduce, word in words.items()
    )
    return f"{'; '.join(told)}."


ENVIRONMENT.filters |= {
    "cut": lambda text, most: text if len(text) <= most else f"{text[: most - 1]}…",
    "gained": lambda share: (
        f"+{percent(share)}" if share < 1 else f"{format_times(1 + share)} as fast"
    ),
    "sentence": lambda text: f"{text[:1].upper()}{text[1:]}",
    "g": lambda value: f"{value:g}",
    "g5": lambda value: f"{value:.5g}",
    "whole": lambda value: f"{value:,.3g}" if value < 1000 else f"{value:,.0f}",
}
ENVIRONMENT.globals |= {
    "agreements": _agreement_label,
    "backend": backend,
    "count": count,
    "kind": row_kind,
    "latencies": _latency_label,
    "number": number,
    "setting": setting,
    "size": size,
}


def _draw(macro: str, *values: Any) -> str:
    drawn: str = getattr(ENVIRONMENT.get_template("charts.svg").module, macro)(*values)
    return drawn  # markup, which the page does not escape again


class Bar(NamedTuple):
    """One row of a bar chart."""

    name: str
    look: str  # its CSS class
    drawn: Spread  # its length, in multiples of the base; in images per second without a base
    times: str  # the same as text; empty without a base
    speed: str


@dataclass
class Bars:
    """A bar chart, in multiples of `base`; in images per second if `base` is empty."""

    title: str
    base: str
    rows: Sequence[Bar]
    most: float = 0.0  # the value at the right end of the axis; `with_same_scale` may raise it

    def __post_init__(self) -> None:
        longest = max(len(row.name) for row in self.rows)
        self.left = min(max(_LEFT, 7 * longest + 8), _WIDEST_NAME)
        self.most = self.most or max(row.drawn.high for row in self.rows)
        told = (f"{row.name} {row.speed}{f' ({row.times})' * bool(row.times)}" for row in self.rows)
        self.said = f"{'; '.join(told)}."

    @property
    def scale(self) -> float:
        return (_BARS_END - self.left) / (self.most or 1.0)


def bars(group: Group, *, alone: bool = False) -> Bars:
    """Make the bars of a group; with `alone`, the title does not name the format."""
    base = "CPU" if group.one.protocol == "device" else "Pillow"
    beside = {one.backend: group.ratio_to_base(one) for one in group.timed}
    rows = []
    for one in group.timed:
        own, look = beside[one.backend], row_kind(one) or "bar"
        speed = number(one.images_per_s.median)
        said = format_times(own.median) if own else ""
        rows.append(Bar(backend(one), look, own or one.images_per_s, said, speed))
    name = setting(group.one) if alone else f"{group.one.format.upper()}, {setting(group.one)}"
    return Bars(name, base if all(beside.values()) else "", rows)


def with_same_scale(every: Sequence[Bars]) -> Sequence[Bars]:
    """Give charts with the same base the same scale, so their bars can be compared."""
    for one in every:
        if one.base:
            one.most = max(other.most for other in every if other.base == one.base)
    return every


def throughput_chart(key: str, drawn: Bars) -> str:
    """Draw the speed of every backend of a chart; `key` must be unique on the page."""
    return _draw("throughput", key, drawn)


def latency_chart(key: str, group: Group) -> str:
    """Draw how long single images took with each backend."""
    shown = [one.latency_ms for one in group.timed if one.latency_ms]
    lowest = max(_MIN_MS, min(one[5] for one in shown))
    axis = _Logarithmic(lowest, max(lowest, *(one[99] for one in shown)))
    return _draw("latency", key, group, axis)


class _Logarithmic(NamedTuple):
    """A logarithmic axis, on which a large photo leaves room to see small ones."""

    low: float
    high: float

    def place(self, value: float) -> float:
        """Return the position of a value, in the units of the chart."""
        if self.high <= self.low:
            return _LEFT
        share = log(max(value, self.low) / self.low) / log(self.high / self.low)
        return _LEFT + (_RIGHT - _LEFT) * share

    def ticks(self) -> list[float]:
        return log_ticks(self.low, self.high)


def agreement_chart(key: str, format: str, measurements: Sequence[Measurement]) -> str:
    """Draw which backends give the pixels of the reference."""
    verdicts: dict[str, dict[int, str]] = {one.backend: {} for one in measurements}
    for one in measurements:
        word = "refused" if pixels(one) == "-" and one.refused else pixels(one)
        own = verdicts[one.backend]
        if one.differing or own.get(one.reduce, "-") == "-":
            own[one.reduce] = word
    reduces = sorted({one.reduce for one in measurements})
    return _draw("agreement", key, format, reduces, verdicts)


def readme_chart(result: Result) -> str:
    """Draw the speed of every backend at each reduction, as a separate file."""
    kind = most_frequent_format(result)
    every = [group for group in groups(result) if group.one.format == kind and group.timed]
    if not every:
        raise ValueError("the result holds no figures to draw")
    # The chart compares reductions only, so leave out other protocols and counts.
    drawn = [group for group in every if group.one.key[4:] == every[0].one.key[4:]]
    drawn = [group for group in drawn if group.one.protocol == every[0].one.protocol]
    words = {"bar": "one backend", "auto": "decode(), which chooses one"}
    if any(one.differing for group in drawn for one in group.timed):
        words["wrong"] = "pixels differ from the reference"
    fastest = "; ".join(
        f"{setting(group.one)}: {group.timed[0].backend} "
        f"{number(group.timed[0].images_per_s.median)}"
        for group in drawn
    )
    title = f"Images per second: {kind.upper()}, {protocol(drawn[0].one)}"
    panels = with_same_scale([bars(group, alone=True) for group in drawn])
    return _draw("readme", title, panels, f"Fastest at {fastest}.", words)


class Headline(NamedTuple):
    """A figure in large type, its meaning, and the speeds behind it."""

    figure: str
    what: str
    detail: str = ""
    bars: Sequence[Bar] = ()  # of the card


def card(headlines: Sequence[Headline], facts: Sequence[str], caveat: str) -> str:
    """Draw the gain as a separate file, for a README or an issue."""
    return _draw("card", headlines, facts, caveat)


def scaling_chart(key: str, every: Sequence[Group], cores: int) -> str:
    """Draw images per second against the number of threads or workers, and the ideal line."""
    return _draw("scaling", key, _Plot(every, cores))


@dataclass
class _Plot:
    """Curves of speed against the number of threads or workers, and their coordinates."""

    every: Sequence[Group]
    cores: int
    left, right, top, bottom = 48, 324, 34, 210

    def __post_init__(self) -> None:
        one = self.every[0].one
        self.curves = by_count(self.every)
        self.noun = "worker" if one.protocol == "loader" else "thread"
        self.title = f"{one.format.upper()}, {size(one.reduce)}, by {self.noun}s"
        self.most = max(max(curve) for curve in self.curves.values())
        self._highest = max(max(curve.values()) for curve in self.curves.values()) * 1.08
        fastest = max(self.curves, key=lambda name: max(self.curves[name]))
        self._main = AUTOMATIC if AUTOMATIC in self.curves else fastest
        # images per second of Pillow with the smallest count that was measured; 0 if none was
        self.base = min(self.curves.get(PILLOW, {}).items(), default=(0, 0.0))[1]
        told = sorted(self.curves[self._main].items())
        said = "; ".join(f"{count(n, self.noun)} {number(speed)}" for n, speed in told)
        self.said = f"{self._main}: {said}."

    def at(self, amount: float, speed: float) -> tuple[float, float]:
        x = self.left + (self.right - self.left) * amount / self.most
        return x, self.bottom - (self.bottom - self.top) * speed / self._highest

    def ticks(self) -> list[float]:
        unit = self.base or 1.0
        return [value * unit for value in axis_ticks(self._highest / unit)]

    def numbers(self) -> list[int]:
        """Choose the counts to label: always the largest, the others if they fit."""
        found: list[int] = []
        for value in sorted({n for curve in self.curves.values() for n in curve}, reverse=True):
            if not found or self.at(found[-1], 0)[0] - self.at(value, 0)[0] > 18:
                found.append(value)
        return found

    @cached_property
    def _scaled(self) -> list[str]:
        return [name for name in self.curves if name != AUTOMATIC and len(self.curves[name]) > 1]

    @cached_property
    def _best(self) -> str:
        return max(self._scaled, key=lambda name: max(self.curves[name].values()), default="")

    def lines(self) -> list[tuple[str, str]]:
        """Return the lines in drawing order: others, ideal, fastest, automatic choice."""
        found = [("line other", name) for name in self._scaled if name != self._best]
        found.append(("line ideal", ""))
        found += [("line", self._best)] if self._best else []
        return [*found, ("line auto", AUTOMATIC)] if AUTOMATIC in self.curves else found

    def ideal(self) -> tuple[tuple[float, float], tuple[float, float]]:
        """Return the ends of the ideal line. It stops at the right or the top of the chart."""
        curve = self.curves[self._main]
        least = min(curve)
        each = curve[least] / least
        end = min(self.most, self._highest / each)
        return self.at(least, curve[least]), self.at(end, each * end)

    def words(self) -> list[tuple[float, str, str]]:
        """Return the legend: the position, the kind of line and the name of each entry."""
        told = {"line": self._best} if self._best else {}
        if AUTOMATIC in self.curves:
            told["line auto"] = AUTOMATIC
        told["line ideal"] = "ideal"
        if len(self._scaled) > 1:
            told["line other"] = "others"
        if self.base:
            told["base"] = "Pillow"
        found, x = [], 0
        for kind, name in told.items():
            found.append((float(x), kind, name))
            x += 26 + 6 * min(len(name), 13)
        return found
