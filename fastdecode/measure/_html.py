"""A result as one self-contained HTML page."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import jinja2

from fastdecode.cli.terminal import count
from fastdecode.errors import visible
from fastdecode.measure._summary import (
    Group,
    caveats,
    facts,
    figures,
    groups,
    listings,
    main_groups,
    notes,
    number,
    sentences,
    timed_files,
    times,
)
from fastdecode.measure.result import OWN, PILLOW, Measurement, Result, label

_OURS = (OWN, "device")
_MAX_FILES = 200  # file names per list; a phone could not open a page with thousands
_ENVIRONMENT = jinja2.Environment(
    autoescape=True,
    # Replace the characters of text that could disturb the page.
    finalize=lambda value: visible(value) if type(value) is str else value,
    loader=jinja2.FileSystemLoader(Path(__file__).parent / "templates"),
    lstrip_blocks=True,
    trim_blocks=True,
    undefined=jinja2.StrictUndefined,
)
_ENVIRONMENT.filters["cut"] = lambda text, most: (
    text if len(text) <= most else f"{text[: most - 1]}…"
)
_ENVIRONMENT.globals["count"] = count


class Bar(NamedTuple):
    """One bar of a chart; its lengths are in percent of the longest."""

    name: str
    look: str  # its CSS class
    speed: str
    times: str  # the speed compared with Pillow's
    share: float
    low: float  # the spread
    high: float


class Chart(NamedTuple):
    """The bars of one group, fastest first."""

    title: str
    base: str
    bars: Sequence[Bar]


class Headline(NamedTuple):
    """A figure in large type, its meaning, and the speeds behind it."""

    figure: str
    what: str
    bars: Sequence[Bar]


def result_page(result: Result) -> str:
    """Return the result as one self-contained HTML file."""
    return _ENVIRONMENT.get_template("page.html").render(
        result=result,
        lines=_lines(result),
        headlines=_headlines(result),
        caveats=caveats(result),
        answer=result.answer or sentences(result),
        charts=[_chart(group) for group in main_groups(result)],
        tables=[_table(group) for group in groups(result) if group.timed],
        notes=notes(result),
        listings=listings(result),
        most=_MAX_FILES,
        facts=facts(result) | _settings(result),
    )


def _settings(result: Result) -> dict[str, str]:
    """Return the options in words, without those that were left at "no value"."""
    words = []
    for name, value in result.settings.items():
        parts = [str(one) for one in (value if isinstance(value, list) else [value])]
        listed = " and ".join(filter(None, (", ".join(parts[:-1]), *parts[-1:])))
        if value is not None:
            words.append(f"{name} {listed}")
    return {"Settings": "; ".join(words)} if words else {}


def _lines(result: Result) -> tuple[str, str]:
    """Describe the photos and the machine in a line each."""
    here, files = result.machine, result.collection
    each = f", {number(files.bytes / files.images / 1000)} KB on average" if files.images else ""
    return (
        f"{timed_files(result)}{each} · measured {result.measured[:10]}",
        f"{here.cpu}, {count(here.cores, 'core')} · fastdecode {here.fastdecode}",
    )


def _headlines(result: Result) -> list[Headline]:
    """Return the gain over Pillow in one or two figures; without Pillow, the speed."""
    found = []
    for group in main_groups(result):
        train = group.one.protocol == "train"
        own = group.own or group.timed[0]
        what = "at training batches" if train else "at decoding"
        pair = [one for one in group.timed if one.backend in (own.backend, PILLOW)]
        bars = _bars(pair)
        if group.own and group.has_pillow:
            bars = [bar._replace(name=OWN if bar.look == "own" else "Pillow") for bar in bars]
            found.append(Headline(times(own.ratio.median), f"as fast as Pillow {what}", bars))
        else:
            speed = number(own.images_per_s.median)
            found.append(Headline(speed, f"images/s {what}: {label('decode', own.backend)}", bars))
    return found


def _chart(group: Group) -> Chart:
    return Chart(group.title, "Pillow" if group.has_pillow else "the fastest", _bars(group.timed))


def _bars(shown: Sequence[Measurement]) -> list[Bar]:
    most = max(one.images_per_s.high for one in shown)
    return [
        Bar(
            label(one.protocol, one.backend),
            _look(one) or "other",
            number(one.images_per_s.median),
            times(one.ratio.median),
            *(100 * speed / most for speed in vars(one.images_per_s).values()),
        )
        for one in shown
    ]


def _table(group: Group) -> tuple[Group, Sequence[object], Sequence[object]]:
    columns = figures(group)
    rows = [(_look(one), [column.text(one) for column in columns]) for one in group.members]
    return group, columns, rows


def _look(one: Measurement) -> str:
    """Return the CSS class of a row; empty for a plain backend."""
    return "wrong" if one.differing else "own" if one.backend in _OURS else ""
