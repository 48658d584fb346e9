"""Charts of a result, as SVG: each is a pure function of measurements."""

from __future__ import annotations

import html
from collections.abc import Iterable, Sequence
from math import ceil, floor, log, log10
from typing import TYPE_CHECKING, NamedTuple

from fastdecode.measure._summary import by_count, commonest, groups
from fastdecode.measure._text import (
    count,
    number,
    percent,
    pixels,
    protocol,
    setting,
    size,
    visible,
)
from fastdecode.measure.result import AUTOMATIC, CPU, OnDevice

if TYPE_CHECKING:
    from fastdecode.measure._summary import Group
    from fastdecode.measure.result import Measurement, Result

__all__ = [
    "STYLE",
    "agreement",
    "device_throughput",
    "escape",
    "latency",
    "log_ticks",
    "readme_chart",
    "row_kind",
    "scaling",
    "throughput",
    "ticks",
]

PANEL = 360
"""Width of a chart, in its own units: on a phone one is about a pixel, so that text stays legible.
"""

# Blue, orange and hatching are told apart without seeing red or green; all have words beside them.
STYLE = """
:root { --surface: #ffffff; --ink: #1f2328; --muted: #57606a; --grid: #d0d7de; --bar: #2f6fb5;
  --auto: #b3540a; --agree: #cfe3f7; --averaged: #e6e8eb; --differ: #b42318; --on-differ: #ffffff }
@media (prefers-color-scheme: dark) {
  :root { --surface: #0d1117; --ink: #e6edf3; --muted: #9aa4af; --grid: #363d46; --bar: #5b9ee6;
    --auto: #f0883e; --agree: #17406e; --averaged: #2d333b; --differ: #ff9a8f;
    --on-differ: #0d1117 } }
.chart { font: 12px system-ui, -apple-system, "Segoe UI", sans-serif;
  font-variant-numeric: tabular-nums }
.chart text { fill: var(--ink) }
.chart .muted { fill: var(--muted); font-size: 11px }
.chart .title { font-weight: 600; font-size: 13px }
.chart .surface { fill: var(--surface) }
.chart .grid { stroke: var(--grid) }
.chart .range { stroke: var(--ink); stroke-width: 1.5 }
.chart .bar { fill: var(--bar) } .chart .auto { fill: var(--auto) }
.chart .wrong { fill: var(--surface); stroke: var(--muted); stroke-dasharray: 3 2 }
.chart .line { fill: none; stroke: var(--bar); stroke-width: 2 }
.chart .line.auto { fill: none; stroke: var(--auto); stroke-width: 2.5 }
.chart .line.other { stroke: var(--muted); stroke-width: 1 }
.chart .line.ideal { stroke: var(--muted); stroke-dasharray: 5 4; stroke-width: 1.5 }
.chart .agree { fill: var(--agree) } .chart .averaged { fill: var(--averaged) }
.chart .none { fill: none; stroke: var(--grid) } .chart .differ { fill: var(--differ) }
.chart .on-differ { fill: var(--on-differ); font-weight: 600 }
"""

_LEFT = 104  # where names end
_RIGHT = 234  # where figures begin
_LEAST_MS = 0.001  # of a logarithmic axis: the clock tells no less apart
_ROW = 24
_HEAD = 46
_NAME = 15  # characters of a name that fit
_BAR_END = 250
_DEVICE_END = 240  # where speeds have more digits
_GAP = 28  # between the panels of the README's chart

_AXIS_LEFT, _AXIS_RIGHT, _AXIS_TOP, _AXIS_BOTTOM = 48, PANEL - 16, 34, 210
_LEGEND_TOP = 252

Curve = dict[int, float]


def escape(text: object) -> str:
    """Write text so that it is text in SVG and HTML, whatever characters it has."""
    return html.escape(visible(str(text)))


def document(
    key: str, size: tuple[float, float], said: tuple[str, str], body: Iterable[str], style: str = ""
) -> str:
    """Put a chart together.

    `said` is the title, and the figures as text for those who do not see the chart; `key` is unlike
    that of any other chart of the page, which has the `style` once for all.
    """
    width, height = size
    title, description = (escape(one) for one in said)
    css = f"<style>{style}</style>" if style else ""
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" class="chart" viewBox="0 0 {width:g} {height:g}" '
        f'role="img" aria-labelledby="{key}-title {key}-desc">'
        f'<title id="{key}-title">{title}</title><desc id="{key}-desc">{description}</desc>'
        f"{css}{''.join(body)}</svg>"
    )


def label(
    place: tuple[float, float], text: object, kind: str = "", anchor: str = "start", most: int = 0
) -> str:
    """Write a line of text; what has more characters than `most` is cut."""
    words = str(text)
    if most and len(words) > most:
        words = f"{words[: most - 1]}…"
    return (
        f'<text x="{place[0]:g}" y="{place[1]:g}" class="{kind}" text-anchor="{anchor}">'
        f"{escape(words)}</text>"
    )


def rectangle(place: tuple[float, float], size: tuple[float, float], kind: str) -> str:
    """Draw a rectangle with slightly round corners."""
    (x, y), (width, height) = place, size
    return (
        f'<rect x="{x:.5g}" y="{y:.5g}" width="{max(width, 0):.5g}" height="{height:.5g}" rx="2" '
        f'class="{kind}"/>'
    )


def line(start: tuple[float, float], end: tuple[float, float], kind: str) -> str:
    """Draw a straight line."""
    return (
        f'<line x1="{start[0]:.5g}" y1="{start[1]:.5g}" x2="{end[0]:.5g}" y2="{end[1]:.5g}" '
        f'class="{kind}"/>'
    )


def ticks(highest: float) -> list[float]:
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


def throughput(key: str, group: Group) -> str:
    """Draw the speed of every backend at one setting, as bars; `key` is the chart's on its page."""
    title = f"{group.one.format.upper()}, {setting(group.one)}"
    return _chart_of_bars(key, title, "vs best", _bars_of(group))


def device_throughput(key: str, own: Sequence[OnDevice]) -> str:
    """Draw the speed of each way of decoding the same batches onto a device, as bars."""
    title = f"{own[0].format.upper()}, batches of {own[0].batch}"
    bars = [_Bar(one, f"{one.ratio.median:.2f}") for one in own]
    return _chart_of_bars(key, title, "vs CPU", bars, _DEVICE_END)


class _Bar(NamedTuple):
    one: Measurement | OnDevice
    beside: str


def _bars_of(group: Group) -> list[_Bar]:
    return [_Bar(one, percent(one.ratio.median)) for one in group.timed]


def _chart_of_bars(
    key: str, title: str, beside: str, bars: Sequence[_Bar], end: float = _BAR_END
) -> str:
    figures = (f"{one.backend} {number(one.images_per_s.median)}" for one, _ in bars)
    said = (f"Images per second, {title}", f"{'; '.join(figures)}.")
    return document(key, (PANEL, _height(bars)), said, _bars(title, beside, bars, end))


def _height(bars: Sequence[_Bar]) -> int:
    return _HEAD + _ROW * len(bars) + 4


def _bars(title: str, beside: str, bars: Sequence[_Bar], end: float = _BAR_END) -> list[str]:
    highest = max(one.images_per_s.high for one, _ in bars) or 1.0
    scale = (end - _LEFT) / highest
    body = [
        label((0, 14), title, "title"),
        label((304, 36), "images/s", "muted", "end"),
        label((PANEL, 36), beside, "muted", "end"),
    ]
    for row, (one, text) in enumerate(bars):
        y = _HEAD + _ROW * row
        speed = one.images_per_s
        ends = (_LEFT + speed.low * scale, y + 12), (_LEFT + speed.high * scale, y + 12)
        body += [
            _name(y, one),
            rectangle((_LEFT, y + 4), (speed.median * scale, 16), row_kind(one) or "bar"),
            line(*ends, "range"),
            label((304, y + 16), number(speed.median), "", "end"),
            label((PANEL, y + 16), text, "", "end"),
        ]
    return body


def _name(y: float, one: Measurement | OnDevice) -> str:
    return label((_LEFT - 8, y + 16), one.backend, "", "end", _NAME)


def row_kind(one: Measurement | OnDevice) -> str:
    """Return the CSS class of what is not just one backend; empty for all others."""
    if isinstance(one, OnDevice):
        return "auto" if one.backend == CPU else ""
    return "wrong" if one.differing else "auto" if one.backend == AUTOMATIC else ""


def latency(key: str, group: Group) -> str:
    """Draw how long single images took, by backend: percentiles 5, 25, 50, 75, 95 and 99.

    The axis is logarithmic.
    """
    shown = [one for one in group.timed if one.latency_ms]
    lowest = max(_LEAST_MS, min(one.latency_ms[5] for one in shown))
    axis = _Logarithmic(lowest, max(lowest, *(one.latency_ms[99] for one in shown)))
    title = f"{group.one.format.upper()}, {setting(group.one)}"
    bottom = _HEAD + _ROW * len(shown)
    body = [label((0, 14), title, "title")]
    heads = ((276, "p50 ms"), (318, "p95"), (PANEL, "p99"))
    body += [label((x, 36), word, "muted", "end") for x, word in heads]
    for value in log_ticks(axis.low, axis.high):
        x = axis.place(value)
        body += [
            line((x, _HEAD), (x, bottom), "grid"),
            label((x, bottom + 16), f"{value:g}", "muted", "middle"),
        ]
    for row, one in enumerate(shown):
        body += _distribution(_HEAD + _ROW * row, one, axis)
    figures = (
        f"{one.backend} " + "/".join(number(one.latency_ms[part]) for part in (50, 95, 99))
        for one in shown
    )
    said = (f"Milliseconds an image, {title}", f"p50/p95/p99: {'; '.join(figures)}.")
    return document(key, (PANEL, bottom + 22), said, body)


class _Logarithmic(NamedTuple):
    """An axis on which twice as long is as far everywhere: one large photo hides no small ones."""

    low: float
    high: float

    def place(self, value: float) -> float:
        """Return where a value stands, in the chart's units."""
        if self.high <= self.low:
            return _LEFT
        share = log(max(value, self.low) / self.low) / log(self.high / self.low)
        return _LEFT + (_RIGHT - _LEFT) * share


def _distribution(y: float, one: Measurement, axis: _Logarithmic) -> list[str]:
    places = {part: axis.place(one.latency_ms[part]) for part in (5, 25, 50, 75, 95, 99)}
    middle = y + 12
    kind = row_kind(one) or "bar"
    numbers = [
        label((x, y + 16), number(one.latency_ms[part]), "", "end")
        for x, part in ((276, 50), (318, 95), (PANEL, 99))
    ]
    return [
        _name(y, one),
        line((places[5], middle), (places[95], middle), "range"),
        rectangle((places[25], y + 5), (places[75] - places[25], 14), kind),
        line((places[50], y + 3), (places[50], y + 21), "range"),
        f'<circle cx="{places[99]:.5g}" cy="{middle:g}" r="2.5" class="{kind}"/>',
        *numbers,
    ]


def agreement(key: str, format: str, measurements: Sequence[Measurement]) -> str:
    """Draw whose pixels are those of the reference: a row a backend, a column a reduction."""
    reduces = sorted({one.reduce for one in measurements})
    names = list(dict.fromkeys(one.backend for one in measurements))
    verdicts: dict[tuple[str, int], str] = {}
    for one in measurements:
        word = "refused" if pixels(one) == "-" and one.refused else pixels(one)
        place = one.backend, one.reduce
        if one.differing or verdicts.get(place, "-") == "-":
            verdicts[place] = word
    column = min(84, (PANEL - _LEFT) // len(reduces))
    body = [label((0, 14), format.upper(), "title")]
    for number_, reduce in enumerate(reduces):
        middle = _LEFT + column * (number_ + 0.5)
        body.append(label((middle, 36), size(reduce), "muted", "middle"))
    for row, name in enumerate(names):
        y = _HEAD + _ROW * row
        body.append(label((_LEFT - 8, y + 16), name, "", "end", _NAME))
        for number_, reduce in enumerate(reduces):
            word = verdicts.get((name, reduce), "-")
            body += _cell((_LEFT + column * number_, y), column, word)
    said = "; ".join(f"{name} {size(reduce)}: {word}" for (name, reduce), word in verdicts.items())
    height = _HEAD + _ROW * len(names) + 4
    return document(key, (PANEL, height), (f"Pixels, {format.upper()}", f"{said}."), body)


def _cell(place: tuple[float, float], width: float, word: str) -> list[str]:
    kind = {"agree": "agree", "refused": "none", "-": "none"}.get(word, "averaged")
    kind = "differ" if word.endswith("differ") else kind
    x, y = place
    text = "on-differ" if kind == "differ" else ""
    return [
        rectangle((x + 1, y + 1), (width - 2, _ROW - 2), kind),
        label((x + width / 2, y + 16), word, text, "middle", 10),
    ]


def readme_chart(result: Result) -> str:
    """Draw the speed of every backend at each reduction, as one file of its own."""
    kind = commonest(result)
    every = [group for group in groups(result) if group.one.format == kind and group.timed]
    if not every:
        raise ValueError("the result holds no figures to draw")
    # A chart compares reductions: other protocols and counts would be charts of their own.
    drawn = [group for group in every if group.one.key[4:] == every[0].one.key[4:]]
    drawn = [group for group in drawn if group.one.protocol == every[0].one.protocol]
    height = max(_height(_bars_of(group)) for group in drawn) + 16
    columns = min(2, len(drawn))
    width = columns * PANEL + (columns - 1) * _GAP + 2 * _GAP
    depth = 84 + height * -(-len(drawn) // columns)
    title = f"Images per second: {kind.upper()}, {protocol(drawn[0].one)}"
    body = [
        f'<rect width="{width}" height="{depth}" rx="6" class="surface"/>',
        label((_GAP, 30), title, "title"),
        *_legend((_GAP, 54), drawn),
    ]
    for place, group in enumerate(drawn):
        x, y = _GAP + (PANEL + _GAP) * (place % columns), 76 + height * (place // columns)
        own = "".join(_bars(setting(group.one), "vs best", _bars_of(group)))
        body.append(f'<g transform="translate({x} {y})">{own}</g>')
    said = "; ".join(
        f"{setting(group.one)}: {group.timed[0].backend} "
        f"{number(group.timed[0].images_per_s.median)}"
        for group in drawn
    )
    return document("throughput", (width, depth), (title, f"Fastest at {said}."), body, STYLE)


def _legend(place: tuple[float, float], drawn: Sequence[Group]) -> list[str]:
    x, y = place
    words = {"bar": "one backend", "auto": "decode(), which chooses one"}
    if any(one.differing for group in drawn for one in group.timed):
        words["wrong"] = "pixels differ from the reference"
    body = []
    for kind, word in words.items():
        body += [rectangle((x, y - 10), (12, 12), kind), label((x + 18, y), word, "muted")]
        x += 40 + 6 * len(word)
    return body


def scaling(key: str, groups: Sequence[Group], cores: int) -> str:
    """Draw images a second over the count of threads or workers, and the ideal line."""
    curves = by_count(groups)
    one = groups[0].one
    noun = "worker" if one.protocol == "loader" else "thread"
    title = f"{one.format.upper()}, {size(one.reduce)}, by {noun}s"
    main = AUTOMATIC if AUTOMATIC in curves else max(curves, key=lambda name: max(curves[name]))
    said = "; ".join(f"{count(n, noun)} {number(v)}" for n, v in sorted(curves[main].items()))
    most = max(max(curve) for curve in curves.values())
    highest = max(max(curve.values()) for curve in curves.values()) * 1.08
    plot = _Plot(most, highest)
    body = [
        label((0, 14), f"{title}: images/s", "title"),
        *plot.axes(sorted({n for curve in curves.values() for n in curve}), noun, cores),
        *_curves(curves, main, plot),
    ]
    return document(
        key,
        (PANEL, _LEGEND_TOP + 22),
        (f"Images per second, {title}", f"{main}: {said}."),
        body,
    )


class _Plot:
    """Where a count and a speed lie."""

    def __init__(self, most: int, highest: float) -> None:
        self.most, self.highest = most, highest

    def at(self, number_: float, speed: float) -> tuple[float, float]:
        x = _AXIS_LEFT + (_AXIS_RIGHT - _AXIS_LEFT) * number_ / self.most
        return x, _AXIS_BOTTOM - (_AXIS_BOTTOM - _AXIS_TOP) * speed / self.highest

    def axes(self, numbers: Sequence[int], noun: str, cores: int) -> list[str]:
        body = []
        for value in ticks(self.highest):
            y = self.at(0, value)[1]
            body += [
                line((_AXIS_LEFT, y), (_AXIS_RIGHT, y), "grid"),
                label((_AXIS_LEFT - 6, y + 4), f"{value:,g}", "muted", "end"),
            ]
        if cores <= self.most:
            x = self.at(cores, 0)[0]
            anchor = "end" if cores > self.most / 2 else "start"
            body += [
                line((x, _AXIS_TOP - 6), (x, _AXIS_BOTTOM), "grid"),
                label(
                    (x - 4 if anchor == "end" else x + 4, _AXIS_TOP),
                    count(cores, "core"),
                    "muted",
                    anchor,
                ),
            ]
        last = -100.0
        for value in reversed(numbers):  # the largest is always said; its neighbours may not fit
            x = self.at(value, 0)[0]
            if abs(last - x) > 18:
                body.append(label((x, _AXIS_BOTTOM + 17), value, "muted", "middle"))
                last = x
        return [*body, label((_AXIS_LEFT, _AXIS_BOTTOM + 17), f"{noun}s:", "muted", "middle")]


def _curves(curves: dict[str, Curve], main: str, plot: _Plot) -> list[str]:
    """Draw the others faintly, then the ideal, the fastest backend and the automatic choice."""
    backends = [name for name in curves if name != AUTOMATIC and len(curves[name]) > 1]
    best = max(backends, key=lambda name: max(curves[name].values()), default="")
    body = [_curve(curves[name], "line other", plot) for name in backends if name != best]
    body.append(_ideal(curves[main], plot))
    names = {"line": best, "line auto": AUTOMATIC if AUTOMATIC in curves else ""}
    shown = {kind: name for kind, name in names.items() if name}
    for kind, name in shown.items():
        body.append(_curve(curves[name], kind, plot))
        body += [_mark(plot.at(*point), kind) for point in curves[name].items()]
    words = {**shown, "line ideal": "ideal"}
    if len(backends) > 1:
        words["line other"] = "others"
    x = 0.0
    for kind, name in words.items():
        body += [line((x, _LEGEND_TOP), (x + 20, _LEGEND_TOP), kind)]
        body += [_mark((x + 10, _LEGEND_TOP), kind)] if kind in shown else []
        body += [label((x + 25, _LEGEND_TOP + 4), name, "muted", most=15)]
        x += 42 + 6 * min(len(name), 15)
    return body


def _curve(curve: Curve, kind: str, plot: _Plot) -> str:
    points = (plot.at(*point) for point in sorted(curve.items()))
    text = " ".join(f"{x:.5g},{y:.5g}" for x, y in points)
    return f'<polyline points="{text}" class="{kind}"/>'


def _mark(place: tuple[float, float], kind: str) -> str:
    """Draw a square for the automatic choice and a dot for a backend: not by colour alone."""
    x, y = place
    if kind == "line auto":
        return f'<rect x="{x - 3.5:.5g}" y="{y - 3.5:.5g}" width="7" height="7" class="auto"/>'
    return f'<circle cx="{x:.5g}" cy="{y:.5g}" r="3.5" class="bar"/>'


def _ideal(curve: Curve, plot: _Plot) -> str:
    """Draw the speed that grows with the count, up to the top of the chart."""
    least = min(curve)
    each = curve[least] / least
    end = min(plot.most, plot.highest / each)
    return line(plot.at(least, curve[least]), plot.at(end, each * end), "line ideal")
