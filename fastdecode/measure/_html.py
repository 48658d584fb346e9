"""The result as one page: no scripts, nothing from elsewhere, light and dark."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import TYPE_CHECKING

from fastdecode.measure._charts import ENVIRONMENT, agreement, latency, scaling, throughput
from fastdecode.measure._summary import (
    Group,
    busy,
    by_protocol,
    counts,
    device_groups,
    groups,
    listings,
    notes,
    sections,
    sentences,
)
from fastdecode.measure._text import (
    COST,
    DEVICE_COLUMNS,
    DEVICE_MORE,
    READING,
    SPEED,
    Figure,
    backend_versions,
    began,
    count,
    device_facts,
    measured_files,
    protocol,
    title,
)

if TYPE_CHECKING:
    from fastdecode.measure.result import Measurement, Result

_MOST = 200  # names of files in a list: a page of thousands would not open on a phone


def page(result: Result) -> str:
    """Write the result as one self-contained HTML file."""
    here = result.machine
    every = [group for group in groups(result) if group.timed]
    cores = count(here.cores, "core")
    text: str = ENVIRONMENT.get_template("page.html").render(
        title=f"fastdecode {here.fastdecode} benchmark",
        facts=f"{began(result)} · {here.cpu}, {cores} · {measured_files(result.collection)}",
        result=result,
        answer=result.answer or sentences(result),
        device_groups=device_groups(result),
        device_figures=(*DEVICE_COLUMNS, *DEVICE_MORE),
        protocols=by_protocol(every),
        all_figures=(*SPEED, *COST[1:], READING),
        page_figures=_figures,
        notes=notes(result),
        listings=listings(result),
        most=_MOST,
        machine=_machine(result),
        sections=sections,
        table_title=title,
        throughput=throughput,
        **_charts(result, every),
    )
    return text


def _figures(protocol: str) -> tuple[Figure, ...]:
    return (*SPEED, *COST[1:], *((READING,) if protocol == "file" else ()))


def _charts(result: Result, every: Sequence[Group]) -> dict[str, object]:
    """Draw the charts, and say what stands beside them; of a kind there may be none."""
    keys = (f"chart-{number}" for number in itertools.count())
    words = {"": "one backend", "auto": "decode(), which chooses one by itself"}
    if any(one.differing for group in every for one in group.timed):
        words["wrong"] = "its pixels differ from the reference"
    # One thread from memory says most about a decoder; the others have their tables.
    first = [group for group in every if group.one.protocol == every[0].one.protocol]
    timed = [group for group in first if any(one.latency_ms for one in group.timed)]
    formats: dict[str, list[Measurement]] = {group.one.format: [] for group in groups(result)}
    for one in result.measurements:
        if one.protocol != "train":  # whose pixels are resized
            formats[one.format].append(one)
    return {
        "words": words,
        "how": protocol(first[0].one) if first else "",
        "throughputs": [throughput(next(keys), group) for group in first],
        "latencies": [latency(next(keys), group) for group in _smallest(timed)],
        "scalings": [scaling(next(keys), own, result.machine.cores) for own in _scaled(every)],
        "agreements": [agreement(next(keys), name, own) for name, own in formats.items()],
    }


def _smallest(every: Sequence[Group]) -> list[Group]:
    """Return the least reduced group of each format and count."""
    found: dict[tuple[str, int], Group] = {}
    for group in every:
        found.setdefault((group.one.format, counts(group.one)), group)
    return list(found.values())


def _scaled(every: Sequence[Group]) -> list[list[Group]]:
    """Return the groups of several counts that make one chart."""
    found: dict[tuple[object, ...], list[Group]] = {}
    for group in every:
        one = group.one
        if one.protocol in ("threads", "loader") and (group.right or group.automatic):
            place = one.protocol, one.format, one.reduce, one.output, one.size
            found.setdefault(place, []).append(group)
    return [own for own in found.values() if len({counts(group.one) for group in own}) > 1]


def _machine(result: Result) -> dict[str, str]:
    here = result.machine
    return {
        "Processor": here.cpu,
        "Cores usable": str(here.cores),
        "Load": busy(here).removeprefix("Load before the run: "),
        "System": here.system,
        "Python": f"{here.python}, NumPy {here.numpy}",
        **device_facts(result),
        **backend_versions(result.backends),
        **{name.capitalize(): _setting(value) for name, value in result.settings.items()},
    }


def _setting(value: object) -> str:
    if isinstance(value, (list, tuple)):
        return ", ".join(str(one) for one in value)
    return "" if value is None else str(value)
