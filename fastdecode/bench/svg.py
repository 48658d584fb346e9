"""Pieces of SVG as text, and the one style that all charts share."""

from __future__ import annotations

import html
from collections.abc import Iterable
from math import ceil, floor, log10

from fastdecode.bench.words import visible

__all__ = [
    "PANEL",
    "STYLE",
    "document",
    "escape",
    "label",
    "line",
    "log_ticks",
    "rectangle",
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


def escape(text: object) -> str:
    """Write text so that it is text in SVG and HTML, whatever characters it has."""
    return html.escape(visible(str(text)))


def document(
    key: str, size: tuple[float, float], said: tuple[str, str], body: Iterable[str], style: str = ""
) -> str:
    """Put a chart together.

    Parameters
    ----------
    key : str
        Unlike that of any other chart of the page.
    size : (float, float)
        Width and height.
    said : (str, str)
        The title, and the figures as text, for those who do not see the chart.
    body : iterable of str
        Elements.
    style : str
        CSS, in a file of its own; a page has it once for all its charts.
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
