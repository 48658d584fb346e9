"""The columns of the tables: what each shows, and what it means."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from fastdecode.bench.result import AUTOMATIC
from fastdecode.bench.words import half_range, number, percent, pixels

if TYPE_CHECKING:
    from fastdecode.bench.result import Measurement

__all__ = ["COST", "READING", "SPEED", "Figure", "costs"]

_NONE = "-"


class Figure(NamedTuple):
    """One column.

    Attributes
    ----------
    title : str
    text : callable
        Takes a `Measurement` and gives the cell.
    meaning : str
        For a reader who sees it for the first time.
    right : bool
        A number, aligned to the right.
    """

    title: str
    text: Callable[[Measurement], str]
    meaning: str
    right: bool = True


def _timed(text: Callable[[Measurement], str]) -> Callable[[Measurement], str]:
    """Leave the cell empty of figures where only the pixels were checked."""
    return lambda one: text(one) if one.images_per_s.median else _NONE


def _latency(percentile: int) -> Callable[[Measurement], str]:
    return lambda one: number(one.latency_ms[percentile]) if one.latency_ms else _NONE


def _ratio(one: Measurement) -> str:
    return f"{one.ratio.median:.2f} ±{(one.ratio.high - one.ratio.low) / 2:.2f}"


_BACKEND = Figure("backend", lambda one: one.backend, "decode() is the automatic choice", False)

SPEED = (
    _BACKEND,
    Figure(
        "images/s", _timed(lambda one: number(one.images_per_s.median)), "median over the blocks"
    ),
    Figure(
        "±",
        _timed(lambda one: percent(half_range(one.images_per_s))),
        "half the distance of its quartiles",
    ),
    Figure(
        "vs best",
        _timed(_ratio),
        "speed over that of the fastest backend with right pixels, paired within blocks",
    ),
    Figure("p50 ms", _latency(50), "half of the images took no longer"),
    Figure("p95 ms", _latency(95), "95 of 100 took no longer"),
    Figure("p99 ms", _latency(99), "99 of 100 took no longer"),
    Figure("pixels", pixels, "whether they are those of the reference decoder", False),
)
"""How fast."""

COST = (
    _BACKEND,
    Figure(
        "MB/s", _timed(lambda one: number(one.mb_per_s)), "encoded bytes, in millions, a second"
    ),
    Figure(
        "MP/s",
        _timed(lambda one: number(one.megapixels_per_s)),
        "pixels of the full-size pictures, in millions, a second",
    ),
    Figure(
        "CPU s/1000",
        _timed(lambda one: number(one.cpu_s_per_1000)),
        "processor seconds for 1000 images, all cores added up",
    ),
    Figure(
        "peak MB",
        lambda one: f"{one.peak_mb:,.0f}" if one.peak_mb else _NONE,
        "memory of the process at its highest, libraries and workers included",
    ),
    Figure("refused", lambda one: str(len(one.refused) or _NONE), "files it did not decode"),
    Figure(
        "fallbacks",
        lambda one: str(one.fallbacks or _NONE) if one.backend == AUTOMATIC else "",
        "files that decode() got from another backend than the first",
    ),
    Figure(
        "max diff",
        lambda one: str(one.max_difference) if pixels(one) != _NONE else _NONE,
        "largest difference of a sample from the reference, of 255",
    ),
)
"""At what cost."""

READING = Figure(
    "reading", _timed(lambda one: percent(one.read_share)), "part of the time that reading took"
)
"""In the protocol that reads files."""


def costs(protocol: str) -> tuple[Figure, ...]:
    """Return the columns about cost: where files are read, that share instead of `max diff`.

    What the pixels are does not depend on where the bytes come from, and a line has 80 characters.
    """
    return (*COST[:-1], READING) if protocol == "file" else COST
