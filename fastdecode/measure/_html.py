"""Results as self-contained HTML pages, and as an SVG card."""

from __future__ import annotations

import base64
import hashlib
import itertools
import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from markupsafe import Markup, escape

from fastdecode.measure._charts import (
    ENVIRONMENT,
    Bar,
    Bars,
    Headline,
    agreement_chart,
    bars,
    latency_chart,
    row_kind,
    scaling_chart,
    throughput_chart,
    with_same_scale,
)
from fastdecode.measure._charts import card as drawn_card
from fastdecode.measure._summary import (
    Group,
    Sheet,
    by_protocol,
    caveats,
    counts,
    device_groups,
    format_times,
    gains,
    groups,
    improvements,
    listings,
    load_sentence,
    main_group,
    most_frequent_format,
    notes,
    other_savings,
    sentences,
    sheet,
)
from fastdecode.measure._text import (
    COST,
    DEVICE_COLUMNS,
    DEVICE_MORE,
    READING,
    SPEED,
    Figure,
    backend,
    backend_versions,
    began,
    device_facts,
    measured_files,
    number,
    protocol,
    setting,
    title,
    visible,
)
from fastdecode.measure.result import AUTOMATIC, CPU, Spread
from fastdecode.terminal import count

if TYPE_CHECKING:
    from fastdecode.measure._compare import Comparison, Pair
    from fastdecode.measure._tables import Column, Table
    from fastdecode.measure.result import Measurement, Result

_MAX_FILES = 200  # file names per list; a phone could not open a page with thousands
_QUARTILES = "The thin line runs from the lower to the upper quartile."
_PILLOW_IS_ONE = f"The dotted line is Pillow, 1x. {_QUARTILES}"
_WORKS = {
    "decode": "at decoding",
    "file": "at reading and decoding",
    "threads": "at decoding in threads",
    "loader": "in a DataLoader",
    "train": "at training batches",
}
_MARKS = re.compile(r"([\\`*_\[\]<>|#&~])")  # characters with a meaning in Markdown


_Named: TypeAlias = "tuple[str, str, Measurement]"
"""The name of a bar, its CSS class, and the measurement that it shows."""


class Drawn(NamedTuple):
    """A table of a page: sections of rows, each row with a CSS class."""

    name: str
    columns: Sequence[Figure | Column]
    sections: Sequence[tuple[str, Sequence[tuple[str, Sequence[str]]]]]


def result_page(result: Result) -> str:
    """Return the result as one self-contained HTML file."""
    here = result.machine
    every = [group for group in groups(result) if group.timed]
    on_device = device_groups(result)
    figures = (*DEVICE_COLUMNS, *DEVICE_MORE)
    place = title(on_device[0].one, result.device) if on_device else ""
    sheets = [_sheet(result, own) for own in by_protocol(every)]
    return render(
        "page.html",
        title=f"fastdecode {here.fastdecode} benchmark",
        facts=_facts(result),
        result=result,
        headlines=headlines(result),
        caveats=caveats(result),
        answer=sentences(result, advise=False),
        improvements=[*improvements(result), *other_savings(result)],
        markdown=markdown(result),
        device_tables=[_drawn(sheet(place, figures, on_device))] if on_device else [],
        tables=[_drawn(own) for own in sheets],
        all_figures=list(dict.fromkeys(figure for own in sheets for figure in own.figures)),
        notes=notes(result),
        listings=listings(result),
        most=_MAX_FILES,
        machine=_machine(result),
        **_charts(result, every, on_device),
    )


def render(template: str, *, markdown: str, **values: Any) -> str:
    """Fill in the template of a page. A browser runs only the script that has this hash."""
    script = ENVIRONMENT.get_template("page.js").render()
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    text: str = ENVIRONMENT.get_template(template).render(
        values,
        script=Markup(script),  # noqa: S704 - a file of this package
        script_hash=f"sha256-{digest}",
        markdown=escape(markdown),  # here, because `finalize` would replace its line breaks
    )
    return text


def comparison_page(found: Comparison) -> str:
    """Return a comparison as one self-contained HTML file."""
    own = _main_pairs(found.pairs)
    verdicts = Counter(one.verdict for one in found.pairs)
    settings = count(len(found.pairs), "setting")
    counted = f"b is faster in {verdicts['faster']} of {settings}, slower in {verdicts['slower']}"
    answer = [f"{counted}; in the others, the difference is within the spread."]
    answer += [
        f"The pixels DIFFER from the reference in {name}: {', '.join(wrong)}."
        for name, wrong in found.wrong.items()
        if wrong
    ]
    figures = [
        Headline(
            format_times(one.quotient.median),
            f"as fast in b as in a: {backend(one.b)}",
            f"{number(one.b.images_per_s.median)} images/s; a {number(one.a.images_per_s.median)}; "
            f"{one.verdict}",
        )
        for one in own
    ]
    parts = [
        f"**{escaped(one.figure)}** {escaped(one.what)} ({escaped(one.detail)})" for one in figures
    ]
    parts += [escaped(line) for line in answer]
    for table in found.tables:
        parts.append(escaped(f"{table.title}:"))
        head = ["setting", *(column.title for column in table.columns)]
        rows = [(said, *row) for said, own_rows in table.sections for row in own_rows]
        parts.append(markdown_table(head, rows))
    parts += [escaped(f"{name}: {text}") for name, text in found.names.items()]
    return render(
        "compare.html",
        title="fastdecode comparison",
        names=found.names,
        headlines=figures,
        caveats=found.warnings,
        answer=answer if found.pairs else ["Nothing was measured in both results."],
        markdown="\n\n".join(parts) + "\n",
        charts_drawn=_quotient_charts(found.pairs),
        tables=[_drawn_pairs(table) for table in found.tables],
        alone={f"Only in {name}": own for name, own in found.alone.items() if own},
    )


def _main_pairs(pairs: Sequence[Pair]) -> list[Pair]:
    """Choose the headlines of a comparison: `decode`, or else the first pair; and `Loader`."""
    trained = [one for one in pairs if one.b.protocol == "train"]
    others = [one for one in pairs if one.b.protocol != "train"]
    chosen = [one for one in others if one.b.backend == AUTOMATIC] or others
    return [*chosen[:1], *[one for one in trained if one.b.backend == "loader"][:1]]


def _quotient_charts(pairs: Sequence[Pair]) -> list[str]:
    """Draw the speed of b divided by that of a: in one thread, in training, on a device."""
    found: dict[str, list[Bar]] = {}
    for one in pairs:
        if one.b.protocol not in ("decode", "train", "device"):
            continue  # these have only tables
        drawn = one.quotient
        if not math.isfinite(drawn.high):
            drawn = replace(drawn, high=drawn.median)
        speed = number(one.b.images_per_s.median)
        row = Bar(
            backend(one.b), row_kind(one.b) or "bar", drawn, format_times(drawn.median), speed
        )
        name = "Training" if one.b.protocol == "train" else one.b.format.upper()
        found.setdefault(f"{name}, {setting(one.b)}", []).append(row)
    every = with_same_scale([Bars(name, "a", rows) for name, rows in found.items()])
    return [throughput_chart(f"chart-{place}", one) for place, one in enumerate(every)]


def _drawn_pairs(table: Table) -> Drawn:
    parts = [(said, [(row[-1], row) for row in rows]) for said, rows in table.sections]
    return Drawn(table.title, table.columns, parts)


def card(result: Result) -> str:
    """Return the gain as one SVG file, for a README or an issue."""
    here = result.machine
    files = result.collection
    formats = ", ".join(f"{amount:,} {name.upper()}" for name, amount in files.formats.items())
    each = f", {number(files.bytes / files.images / 1000)} KB on average" if files.images else ""
    facts = [
        f"{formats or 'no images'}{each} · measured {began(result)[:10]}",
        f"{here.cpu}, {count(here.cores, 'core')} · fastdecode {here.fastdecode}",
    ]
    return drawn_card(headlines(result), facts, "".join(caveats(result)[:1]))


def headlines(result: Result) -> list[Headline]:
    """Return the gain in one or two figures."""
    found = []
    for gain in gains(result):
        what = f"as fast as Pillow {_WORKS[gain.own.protocol]}"
        pair = ("Pillow", "bar", gain.pillow), ("fastdecode", "auto", gain.own)
        found.append(_headline(gain.times, what, *pair))
    return found or _other_headlines(result)


def _headline(quotient: Spread, what: str, base: _Named, own: _Named) -> Headline:
    """Return a headline that says how many times as fast as `base` something is."""
    drawn = Spread(1.0, 1.0, 1.0), quotient
    lower, upper = (
        Bar(name, look, length, "", number(one.images_per_s.median))
        for (name, look, one), length in zip((base, own), drawn, strict=True)
    )
    detail = f"{upper.speed} images/s; {lower.name} {lower.speed}"
    return Headline(format_times(quotient.median), what, detail, (lower, upper))


def _other_headlines(result: Result) -> list[Headline]:
    """Compare a device with the CPU, or else give the speed of `decode`, if they were measured."""
    most = max((one.batch for one in result.on_device), default=0)
    own = {one.backend: one for one in result.on_device if one.batch == most}
    cpu = own.pop(CPU, None)
    best = max(own.values(), key=lambda one: one.ratio.median, default=None)
    if cpu and best and best.ratio.median and result.device:
        what = f"as fast onto {result.device.device} as with the CPU"
        return [_headline(best.ratio, what, ("CPU", "auto", cpu), (best.backend, "bar", best))]
    group = main_group(groups(result), most_frequent_format(result))
    if group is None:
        return []
    one = group.automatic or group.right[0]
    what = f"images/s with {one.backend} {_WORKS[one.protocol]}"
    return [Headline(number(one.images_per_s.median), what)]


def markdown(result: Result) -> str:
    """Return the gain, two tables and the machine in Markdown, for an issue or a README."""
    every = groups(result)
    said = [f"{one.figure} {one.what}" for one in headlines(result)]
    parts = [f"**{escaped('; '.join(said))}**"] if said else []
    parts += [escaped(line) for line in result.answer or sentences(result)]
    main = main_group(every, most_frequent_format(result))
    trained = [group for group in every if group.one.protocol == "train"]
    for group in (*([main] if main else []), *trained[:1]):
        rows = [
            (
                backend(one),
                format_times(beside.median) if (beside := group.ratio_to_pillow(one)) else "-",
                number(one.images_per_s.median),
            )
            for one in group.timed
        ]
        parts.append(escaped(f"{title(group.one, None)}, {setting(group.one)}:"))
        parts.append(markdown_table(("backend", "vs Pillow", "images/s"), rows))
    parts += [escaped(line) for line in caveats(result)]
    version = f"fastdecode {result.machine.fastdecode}, {result.machine.python}"
    parts.append(escaped(f"{version} · {_facts(result)}"))
    return "\n\n".join(parts) + "\n"


def markdown_table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table in Markdown, with numbers aligned to the right."""
    lines = [head, ["---", *["---:"] * (len(head) - 1)]]
    lines += [[escaped(cell) for cell in row] for row in rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def escaped(text: str) -> str:
    """Escape the characters that have a meaning in Markdown or in HTML."""
    return _MARKS.sub(r"\\\1", visible(text))


def _facts(result: Result) -> str:
    here = result.machine
    cores = count(here.cores, "core")
    return f"{began(result)} · {here.cpu}, {cores} · {measured_files(result.collection)}"


def _sheet(result: Result, own: Sequence[Group]) -> Sheet:
    """Return one table of speed and cost for a protocol and format."""
    reading = (READING,) if own[0].one.protocol == "file" else ()
    return sheet(title(own[0].one, result.device), (*SPEED, *COST[1:], *reading), own)


def _drawn(own: Sheet) -> Drawn:
    parts = [
        (said, [(row_kind(one), [figure.text(one) for figure in own.figures]) for one in members])
        for said, members in own.sections
    ]
    return Drawn(own.title, own.figures, parts)


def _charts(
    result: Result, every: Sequence[Group], on_device: Sequence[Group]
) -> dict[str, object]:
    """Draw the charts and choose the words around them. Any kind of chart may be missing."""
    keys = (f"chart-{number}" for number in itertools.count())
    words = {"": "one backend", "auto": "decode(), which chooses a backend"}
    if any(one.differing for group in every for one in group.timed):
        words["wrong"] = "its pixels differ from the reference"
    trained = [group for group in every if group.one.protocol == "train"]
    others = [group for group in every if group.one.protocol != "train"]
    # One thread from memory says most about a decoder; the other protocols have tables only.
    first = [group for group in others if group.one.protocol == others[0].one.protocol]
    timed = [group for group in first if any(one.latency_ms for one in group.timed)]
    formats: dict[str, list[Measurement]] = {group.one.format: [] for group in groups(result)}
    for one in result.measurements:
        if one.protocol != "train":  # its pixels are resized
            formats[one.format].append(one)
    return {
        "words": words,
        "how": protocol(first[0].one) if first else "",
        "how_drawn": _PILLOW_IS_ONE if any(group.pillow for group in every) else _QUARTILES,
        "device_charts": _throughput_charts(keys, [group for group in on_device if group.timed]),
        "trainings": _throughput_charts(keys, trained),
        "throughputs": _throughput_charts(keys, first),
        "latencies": [latency_chart(next(keys), group) for group in _least_reduced(timed)],
        "scalings": [
            scaling_chart(next(keys), own, result.machine.cores) for own in _by_configuration(every)
        ],
        "agreements": [
            agreement_chart(next(keys), name, own) for name, own in formats.items() if own
        ],
    }


def _throughput_charts(keys: Iterator[str], every: Iterable[Group]) -> list[str]:
    return [
        throughput_chart(next(keys), one)
        for one in with_same_scale([bars(group) for group in every])
    ]


def _least_reduced(every: Sequence[Group]) -> list[Group]:
    """Return the group with the least reduction for each format and count."""
    found: dict[tuple[str, int], Group] = {}
    for group in every:
        found.setdefault((group.one.format, counts(group.one)), group)
    return list(found.values())


def _by_configuration(every: Sequence[Group]) -> list[list[Group]]:
    """Return groups that differ only in their count, one list per chart."""
    found: dict[tuple[object, ...], list[Group]] = {}
    for group in every:
        one = group.one
        if one.protocol in ("threads", "loader") and (group.right or group.automatic):
            place = one.protocol, one.format, one.reduce, one.output, one.size
            found.setdefault(place, []).append(group)
    return [own for own in found.values() if len({counts(group.one) for group in own}) > 1]


_SETTINGS = {
    "seconds": "Seconds per backend",
    "size": "Resized to",
    "reduces": "Reduced by",
    "threads": "Threads tried",
    "workers": "Workers tried",
    "limit": "Maximum number of images",
}
"""The labels of settings whose names are not clear enough."""


def _machine(result: Result) -> dict[str, str]:
    here = result.machine
    return {
        "Processor": here.cpu,
        "Cores usable": str(here.cores),
        "Load": load_sentence(here).removeprefix("Load before the run: ").removesuffix("."),
        "System": here.system,
        "Python": f"{here.python}, NumPy {here.numpy}",
        **device_facts(result),
        **backend_versions(result.backends),
        **{
            _SETTINGS.get(name, name.capitalize()): _setting(value)
            for name, value in result.settings.items()
            if value not in (None, 0, [], ())
        },
    }


def _setting(value: object) -> str:
    if isinstance(value, (list, tuple)):
        return ", ".join(str(one) for one in value)
    return "" if value is None else str(value)
