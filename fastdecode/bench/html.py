"""The result as one page: no scripts, nothing from elsewhere, light and dark."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import count
from typing import TYPE_CHECKING

from fastdecode.bench import columns, on_device_page, on_device_words, words
from fastdecode.bench.answer import sentences
from fastdecode.bench.charts import agreement, latency, throughput
from fastdecode.bench.groups import Group, by_protocol, groups
from fastdecode.bench.remarks import busy, listings, notes
from fastdecode.bench.result import AUTOMATIC
from fastdecode.bench.scaling import counts, scaling
from fastdecode.bench.style import PAGE
from fastdecode.bench.svg import STYLE, escape

if TYPE_CHECKING:
    from fastdecode.bench.columns import Figure
    from fastdecode.bench.result import Measurement, Result

__all__ = ["page"]

_MOST = 200  # names of files in a list: a page of thousands would not open on a phone
_POLICY = "default-src 'none'; style-src 'unsafe-inline'"


def page(result: Result) -> str:
    """Write the result as one self-contained HTML file.

    Parameters
    ----------
    result : Result

    Returns
    -------
    str
        To be saved as UTF-8.
    """
    here = result.machine
    every = [group for group in groups(result) if group.timed]
    title = f"fastdecode {here.fastdecode} benchmark"
    body = [
        f"<h1>{escape(title)}</h1>",
        f'<p class="muted">{escape(_facts(result))}</p>',
        *_answer(result),
        *on_device_page.sections(result),
        *_charts(result, every),
        *_figures(every),
        *_remarks(result),
        *_machine(result),
    ]
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(title)}</title>\n<style>{STYLE}{PAGE}</style>\n</head>\n"
        f"<body>\n<main>\n{chr(10).join(body)}\n</main>\n</body>\n</html>\n"
    )


def _facts(result: Result) -> str:
    here = result.machine
    when = result.measured[:16].replace("T", " ")  # to the minute, of ISO 8601
    cores = words.count(here.cores, "core")
    return f"{when} UTC · {here.cpu}, {cores} · {words.measured_files(result.collection)}"


def _answer(result: Result) -> list[str]:
    said = "".join(f"<p>{escape(line)}</p>" for line in result.answer or sentences(result))
    found = [f'<section class="answer" aria-label="The answer">{said}</section>']
    if result.interrupted:
        text = "The run was interrupted: this is what was measured until then."
        found.append(f'<p class="warning">{text}</p>')
    return found


def _charts(result: Result, every: Sequence[Group]) -> list[str]:
    keys = (f"chart-{number}" for number in count())
    legend = _legend(every)
    found: list[str] = []
    if every:
        # One thread from memory says most about a decoder; the others have their tables.
        first = [group for group in every if group.one.protocol == every[0].one.protocol]
        found += _section(
            "Throughput",
            f"How many images a second, {words.protocol(first[0].one)}. Every chart has its own "
            "scale. The thin line reaches from the lower to the upper quartile.",
            legend,
            (throughput(next(keys), group) for group in first),
        )
        timed = [group for group in first if any(one.latency_ms for one in group.timed)]
        found += _section(
            "Latency",
            "How long single images took. The box holds the middle half of them with the median "
            "as a mark, the line 90 of 100, the dot is the 99th percentile. The scale is "
            "logarithmic.",
            legend,
            (latency(next(keys), group) for group in _smallest(timed)),
        )
    found += _section(
        "Scaling",
        "What more threads, or more worker processes of a DataLoader, bring. The dashed line is "
        "the ideal: twice as many, twice as fast.",
        "",
        (scaling(next(keys), own, result.machine.cores) for own in _scaled(every)),
    )
    formats = dict.fromkeys(group.one.format for group in groups(result))
    found += _section(
        "Pixels",
        "Whether each backend's pixels are those of the reference decoder. Averaged: the backend "
        "does not reduce inside its decoder, so other values are expected.",
        "",
        (agreement(next(keys), name, _of_format(result, name)) for name in formats),
    )
    return found


def _section(title: str, text: str, legend: str, charts: Iterable[str]) -> list[str]:
    drawn = list(charts)
    if not drawn:
        return []
    return [
        f"<section><h2>{title}</h2><p>{escape(text)}</p>{legend}",
        f'<div class="charts">{"".join(drawn)}</div></section>',
    ]


def _legend(every: Sequence[Group]) -> str:
    said = {"": "one backend", "auto": "decode(), which chooses one by itself"}
    if any(one.differing for group in every for one in group.timed):
        said["wrong"] = "its pixels differ from the reference"
    items = (f'<li><span class="swatch {k}"></span>{text}</li>' for k, text in said.items())
    return f'<ul class="legend">{"".join(items)}</ul>'


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


def _of_format(result: Result, name: str) -> list[Measurement]:
    return [one for one in result.measurements if one.format == name]


def _figures(every: Sequence[Group]) -> list[str]:
    if not every:
        return []
    tables = [_table(own) for own in by_protocol(every)]
    shown = {figure.title: figure.meaning for figure in (*columns.SPEED, *columns.COST)}
    shown[columns.READING.title] = columns.READING.meaning
    meaning = _definitions(shown)
    return [
        "<section><h2>All figures</h2>",
        f"<details><summary>What the columns mean</summary>{meaning}</details>",
        *tables,
        "</section>",
    ]


def _table(own: Sequence[Group]) -> str:
    one = own[0].one
    title = escape(f"{one.format.upper()}, {words.protocol(one)}")
    reading = (columns.READING,) if one.protocol == "file" else ()
    shown = (*columns.SPEED, *columns.COST[1:], *reading)
    head = "".join(
        f'<th scope="col"{_words(figure)} title="{escape(figure.meaning)}">'
        f"{escape(figure.title)}</th>"
        for figure in shown
    )
    rows = []
    for group in own:
        files = words.count(group.timed[0].files, "file")
        name = escape(f"{words.setting(group.one)}, {files}")
        rows.append(f'<tr class="section"><th colspan="{len(shown)}">{name}</th></tr>')
        rows += [_row(member, shown) for member in group.members]
    return (
        f'<h3>{title}</h3><div class="scroll" tabindex="0" role="region" aria-label="{title}">'
        f"<table><thead><tr>{head}</tr></thead><tbody>{''.join(rows)}</tbody></table></div>"
    )


def _words(figure: Figure) -> str:
    return "" if figure.right else ' class="words"'


def _row(one: Measurement, shown: Sequence[Figure]) -> str:
    kind = "wrong" if one.differing else "auto" if one.backend == AUTOMATIC else ""
    cells = "".join(f"<td{_words(f)}>{escape(f.text(one))}</td>" for f in shown[1:])
    return f'<tr class="{kind}"><th scope="row">{escape(one.backend)}</th>{cells}</tr>'


def _remarks(result: Result) -> list[str]:
    said = notes(result)
    found = [f"<p>{escape(line)}</p>" for line in said]
    for title, files in listings(result):
        names = [
            f"<li>{escape(f'{name}: {reason}' if reason else name)}</li>"
            for name, reason in sorted(files.items())[:_MOST]
        ]
        if len(files) > _MOST:
            names.append(f"<li>… and {len(files) - _MOST:,} more</li>")
        summary = escape(f"{title} ({words.count(len(files), 'file')})")
        items = "".join(names)
        found.append(
            f'<details><summary>{summary}</summary><ul class="files">{items}</ul></details>'
        )
    return ["<section><h2>Notes and files</h2>", *found, "</section>"] if found else []


def _machine(result: Result) -> list[str]:
    here = result.machine
    facts = {
        "Processor": here.cpu,
        "Cores usable": str(here.cores),
        "Load": busy(here).removeprefix("Load before the run: "),
        "System": here.system,
        "Python": f"{here.python}, NumPy {here.numpy}",
        **on_device_words.facts(result),
        **words.backends(result.backends),
        **{name.capitalize(): _setting(value) for name, value in result.settings.items()},
    }
    said = _definitions({name: text for name, text in facts.items() if text})
    return [f"<section><h2>Machine, versions and settings</h2>{said}</section>"]


def _setting(value: object) -> str:
    if isinstance(value, (list, tuple)):
        return ", ".join(str(one) for one in value)
    return "" if value is None else str(value)


def _definitions(pairs: Mapping[str, str]) -> str:
    items = (f"<dt>{escape(name)}</dt><dd>{escape(text)}</dd>" for name, text in pairs.items())
    return f"<dl>{''.join(items)}</dl>"
