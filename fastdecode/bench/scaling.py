"""The chart of what more threads or workers bring."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from fastdecode.bench.result import AUTOMATIC
from fastdecode.bench.svg import PANEL, document, label, line, ticks
from fastdecode.bench.words import count, number, size

if TYPE_CHECKING:
    from fastdecode.bench.groups import Group
    from fastdecode.bench.result import Measurement

__all__ = ["counts", "scaling"]

_LEFT, _RIGHT, _TOP, _BOTTOM = 48, PANEL - 16, 34, 210
_LEGEND = 252

Curve = dict[int, float]


def counts(one: Measurement) -> int:
    """Return how many threads or workers there were."""
    return one.workers if one.protocol == "loader" else one.threads


def scaling(key: str, groups: Sequence[Group], cores: int) -> str:
    """Draw images a second over the count of threads or workers, and the ideal line.

    Parameters
    ----------
    key : str
        Unlike that of any other chart of the page.
    groups : sequence of Group
        Of one protocol, format and reduction, with two counts or more.
    cores : int
        Those of the machine: more cannot help.
    """
    curves: dict[str, Curve] = {}
    for group in groups:
        for one in (*group.right, *([group.automatic] if group.automatic else [])):
            curves.setdefault(one.backend, {})[counts(one)] = one.images_per_s.median
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
        *_lines(curves, main, plot),
    ]
    return document(
        key,
        (PANEL, _LEGEND + 22),
        (f"Images per second, {title}", f"{main}: {said}."),
        body,
    )


class _Plot:
    """Where a count and a speed lie."""

    def __init__(self, most: int, highest: float) -> None:
        self.most, self.highest = most, highest

    def at(self, number_: float, speed: float) -> tuple[float, float]:
        x = _LEFT + (_RIGHT - _LEFT) * number_ / self.most
        return x, _BOTTOM - (_BOTTOM - _TOP) * speed / self.highest

    def axes(self, numbers: Sequence[int], noun: str, cores: int) -> list[str]:
        body = []
        for value in ticks(self.highest):
            y = self.at(0, value)[1]
            body += [
                line((_LEFT, y), (_RIGHT, y), "grid"),
                label((_LEFT - 6, y + 4), f"{value:,g}", "muted", "end"),
            ]
        if cores <= self.most:
            x = self.at(cores, 0)[0]
            anchor = "end" if cores > self.most / 2 else "start"
            body += [
                line((x, _TOP - 6), (x, _BOTTOM), "grid"),
                label(
                    (x - 4 if anchor == "end" else x + 4, _TOP),
                    count(cores, "core"),
                    "muted",
                    anchor,
                ),
            ]
        last = -100.0
        for value in reversed(numbers):  # the largest is always said; its neighbours may not fit
            x = self.at(value, 0)[0]
            if abs(last - x) > 18:
                body.append(label((x, _BOTTOM + 17), value, "muted", "middle"))
                last = x
        return [*body, label((_LEFT, _BOTTOM + 17), f"{noun}s:", "muted", "middle")]


def _lines(curves: dict[str, Curve], main: str, plot: _Plot) -> list[str]:
    """Draw the others faintly, then the ideal, the fastest backend and the automatic choice."""
    backends = [name for name in curves if name != AUTOMATIC and len(curves[name]) > 1]
    best = max(backends, key=lambda name: max(curves[name].values()), default="")
    body = [_line(curves[name], "line other", plot) for name in backends if name != best]
    body.append(_ideal(curves[main], plot))
    names = {"line": best, "line auto": AUTOMATIC if AUTOMATIC in curves else ""}
    shown = {kind: name for kind, name in names.items() if name}
    for kind, name in shown.items():
        body.append(_line(curves[name], kind, plot))
        body += [_mark(plot.at(*point), kind) for point in curves[name].items()]
    words = {**shown, "line ideal": "ideal"}
    if len(backends) > 1:
        words["line other"] = "others"
    x = 0.0
    for kind, name in words.items():
        body += [line((x, _LEGEND), (x + 20, _LEGEND), kind)]
        body += [_mark((x + 10, _LEGEND), kind)] if kind in shown else []
        body += [label((x + 25, _LEGEND + 4), name, "muted", most=15)]
        x += 42 + 6 * min(len(name), 15)
    return body


def _line(curve: Curve, kind: str, plot: _Plot) -> str:
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
