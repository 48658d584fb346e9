"""Charts of a result, as SVG: each is a pure function of measurements."""

from __future__ import annotations

from collections.abc import Sequence
from math import log
from typing import TYPE_CHECKING, NamedTuple

from fastdecode.bench.groups import Group, commonest, groups
from fastdecode.bench.result import AUTOMATIC
from fastdecode.bench.svg import PANEL, STYLE, document, label, line, log_ticks, rectangle
from fastdecode.bench.words import number, percent, pixels, protocol, setting, size

if TYPE_CHECKING:
    from fastdecode.bench.result import Measurement, Result

__all__ = ["agreement", "latency", "readme_chart", "throughput"]

_LEFT = 104  # where names end
_RIGHT = 234  # where figures begin
_LEAST_MS = 0.001  # of a logarithmic axis: the clock tells no less apart
_ROW = 24
_HEAD = 46
_NAME = 15  # characters of a name that fit
_GAP = 28  # between the panels of the README's chart


def throughput(key: str, group: Group) -> str:
    """Draw the speed of every backend at one setting, as bars.

    Parameters
    ----------
    key : str
        Unlike that of any other chart of the page.
    group : Group
        With at least one that was timed.
    """
    title = f"{group.one.format.upper()}, {setting(group.one)}"
    figures = (f"{one.backend} {number(one.images_per_s.median)}" for one in group.timed)
    said = (f"Images per second, {title}", f"{'; '.join(figures)}.")
    return document(key, (PANEL, _height(group)), said, _bars(group, title))


def _height(group: Group) -> int:
    return _HEAD + _ROW * len(group.timed) + 4


def _bars(group: Group, title: str) -> list[str]:
    highest = max(one.images_per_s.high for one in group.timed)
    scale = (250 - _LEFT) / highest
    body = [
        label((0, 14), title, "title"),
        label((304, 36), "images/s", "muted", "end"),
        label((PANEL, 36), "vs best", "muted", "end"),
    ]
    for row, one in enumerate(group.timed):
        y = _HEAD + _ROW * row
        speed = one.images_per_s
        body += [
            _name(y, one),
            rectangle((_LEFT, y + 4), (speed.median * scale, 16), _kind(one)),
            line(
                (_LEFT + speed.low * scale, y + 12), (_LEFT + speed.high * scale, y + 12), "range"
            ),
            label((304, y + 16), number(speed.median), "", "end"),
            label((PANEL, y + 16), percent(one.ratio.median), "", "end"),
        ]
    return body


def _name(y: float, one: Measurement) -> str:
    return label((_LEFT - 8, y + 16), one.backend, "", "end", _NAME)


def _kind(one: Measurement) -> str:
    if one.differing:
        return "wrong"
    return "auto" if one.backend == AUTOMATIC else "bar"


def latency(key: str, group: Group) -> str:
    """Draw how long single images took, by backend: percentiles 5, 25, 50, 75, 95 and 99.

    The axis is logarithmic.

    Parameters
    ----------
    key : str
    group : Group
        With at least one that has latencies.
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
    numbers = [
        label((x, y + 16), number(one.latency_ms[part]), "", "end")
        for x, part in ((276, 50), (318, 95), (PANEL, 99))
    ]
    return [
        _name(y, one),
        line((places[5], middle), (places[95], middle), "range"),
        rectangle((places[25], y + 5), (places[75] - places[25], 14), _kind(one)),
        line((places[50], y + 3), (places[50], y + 21), "range"),
        f'<circle cx="{places[99]:.5g}" cy="{middle:g}" r="2.5" class="{_kind(one)}"/>',
        *numbers,
    ]


def agreement(key: str, format: str, measurements: Sequence[Measurement]) -> str:
    """Draw whose pixels are those of the reference: a row a backend, a column a reduction.

    Parameters
    ----------
    key : str
    format : str
    measurements : sequence of Measurement
        Of that format, of one protocol or of several.
    """
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
    """Draw the speed of every backend at each reduction, as one file of its own.

    Parameters
    ----------
    result : Result
        With the protocol ``decode``, or another; the commonest format is drawn.

    Returns
    -------
    str
        SVG with its own style, for light and dark.

    Raises
    ------
    ValueError
        If nothing was timed.
    """
    kind = commonest(result)
    every = [group for group in groups(result) if group.one.format == kind and group.timed]
    if not every:
        raise ValueError("the result holds no figures to draw")
    # A chart compares reductions: other protocols and counts would be charts of their own.
    drawn = [group for group in every if group.one.key[4:] == every[0].one.key[4:]]
    drawn = [group for group in drawn if group.one.protocol == every[0].one.protocol]
    height = max(_height(group) for group in drawn) + 16
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
        own = "".join(_bars(group, setting(group.one)))
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
