"""The result as one page: no scripts, nothing from elsewhere, light and dark."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from fastdecode.measure._charts import (
    STYLE,
    agreement,
    device_throughput,
    escape,
    latency,
    row_kind,
    scaling,
    throughput,
)
from fastdecode.measure._summary import (
    Group,
    busy,
    by_batch,
    by_protocol,
    counts,
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
    backend_versions,
    began,
    count,
    device_facts,
    device_section,
    device_title,
    measured_files,
    protocol,
)

if TYPE_CHECKING:
    from fastdecode.measure._text import Figure
    from fastdecode.measure.result import Measurement, OnDevice, Result

__all__ = ["page"]

_STYLE = """
:root { color-scheme: light dark; --panel: #f6f8fa; --accent: #2f6fb5 }
@media (prefers-color-scheme: dark) { :root { --panel: #161b22; --accent: #5b9ee6 } }
* { box-sizing: border-box }
html { -webkit-text-size-adjust: 100%; text-size-adjust: 100% }
body { margin: 0; background: var(--surface); color: var(--ink);
  font: 16px/1.5 system-ui, -apple-system, "Segoe UI", sans-serif }
main { max-width: 1240px; margin: 0 auto; padding: 16px }
h1 { font-size: 1.5rem; line-height: 1.2; margin: 8px 0 }
h2 { font-size: 1.2rem; margin: 40px 0 4px }
h3 { font-size: 1rem; margin: 24px 0 8px }
p { margin: 4px 0 12px; max-width: 75ch }
.muted { color: var(--muted) }
.answer { background: var(--panel); border-left: 4px solid var(--accent); border-radius: 6px;
  padding: 12px 16px; margin: 16px 0; font-size: 1.05rem }
.answer p { margin: 4px 0 }
.warning { border-left: 4px solid var(--differ); background: var(--panel); border-radius: 6px;
  padding: 8px 16px; font-weight: 600 }
.charts { display: grid; gap: 32px 40px; grid-template-columns: repeat(auto-fill,
  minmax(min(100%, 340px), 1fr)) }
.charts svg { display: block; width: 100%; max-width: 480px; height: auto }
.legend { display: flex; flex-wrap: wrap; gap: 4px 20px; padding: 0; margin: 8px 0 16px;
  list-style: none; font-size: .875rem; color: var(--muted) }
.swatch { display: inline-block; width: 14px; height: 14px; border-radius: 2px;
  vertical-align: -2px; margin-right: 7px; background: var(--bar) }
.swatch.auto { background: var(--auto) }
.swatch.wrong { background: none; border: 1px dashed var(--muted) }
.scroll { overflow-x: auto; max-width: 100%; border: 1px solid var(--grid); border-radius: 6px }
.scroll:focus-visible { outline: 2px solid var(--accent); outline-offset: 2px }
table { border-collapse: collapse; font-size: .8125rem; font-variant-numeric: tabular-nums;
  width: 100% }
th, td { padding: 4px 8px; text-align: right; white-space: nowrap }
thead th { border-bottom: 1px solid var(--grid); color: var(--muted); font-weight: 600 }
tbody th { font-weight: 400 }
tbody tr + tr td, tbody tr + tr th { border-top: 1px solid var(--grid) }
th:first-child { text-align: left; position: sticky; left: 0; background: var(--surface) }
td.words, th.words { text-align: left }
tr.section th { background: var(--panel); font-weight: 600; text-align: left }
tr.auto th, tr.auto td { font-weight: 600 }
tr.wrong td.words { color: var(--differ); font-weight: 600 }
dl { display: grid; grid-template-columns: minmax(90px, max-content) 1fr; gap: 2px 16px;
  font-size: .9rem; margin: 8px 0 }
dt { color: var(--muted) }
dd { margin: 0; overflow-wrap: anywhere }
details { margin: 8px 0 }
summary { cursor: pointer; font-weight: 600 }
ul.files { font-size: .875rem; overflow-wrap: anywhere; padding-left: 24px; margin: 4px 0 }
footer { margin: 40px 0 24px; font-size: .875rem }
"""

_MOST = 200  # names of files in a list: a page of thousands would not open on a phone
_POLICY = "default-src 'none'; style-src 'unsafe-inline'"


def page(result: Result) -> str:
    """Write the result as one self-contained HTML file."""
    here = result.machine
    every = [group for group in groups(result) if group.timed]
    title = f"fastdecode {here.fastdecode} benchmark"
    body = [
        f"<h1>{escape(title)}</h1>",
        f'<p class="muted">{escape(_facts(result))}</p>',
        *_answer(result),
        *_device(result),
        *_charts(result, every),
        *_figures(every),
        *_remarks(result),
        *_machine(result),
    ]
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(title)}</title>\n<style>{STYLE}{_STYLE}</style>\n</head>\n"
        f"<body>\n<main>\n{chr(10).join(body)}\n</main>\n</body>\n</html>\n"
    )


def _facts(result: Result) -> str:
    here = result.machine
    cores = count(here.cores, "core")
    return f"{began(result)} · {here.cpu}, {cores} · {measured_files(result.collection)}"


def _answer(result: Result) -> list[str]:
    said = "".join(f"<p>{escape(line)}</p>" for line in result.answer or sentences(result))
    found = [f'<section class="answer" aria-label="The answer">{said}</section>']
    if result.interrupted:
        text = "The run was interrupted: this is what was measured until then."
        found.append(f'<p class="warning">{text}</p>')
    return found


def _device(result: Result) -> list[str]:
    """Draw a chart for each size of batch, and the table; nothing if there is none."""
    if not result.on_device:
        return []
    own = by_batch(result.on_device)
    charts = [device_throughput(f"device-{place}", found) for place, found in enumerate(own)]
    text = (
        "How many images a second come onto the device: decoded there by a batch backend, or by "
        "all cores of the CPU and copied. Every chart has its own scale. The thin line reaches "
        "from the lower to the upper quartile."
    )
    legend = (
        '<ul class="legend"><li><span class="swatch"></span>one batch backend</li>'
        '<li><span class="swatch auto"></span>the CPU path</li></ul>'
    )
    shown = (*DEVICE_COLUMNS, *DEVICE_MORE)
    rows = [(device_section(found), found) for found in own]
    return [
        f"<section><h2>On a device</h2><p>{escape(text)}</p>{legend}",
        f'<div class="charts">{"".join(charts)}</div>',
        _table(device_title(result), shown, rows),
        _meanings(shown),
        "</section>",
    ]


def _charts(result: Result, every: Sequence[Group]) -> list[str]:
    keys = (f"chart-{number}" for number in itertools.count())
    legend = _legend(every)
    found: list[str] = []
    if every:
        # One thread from memory says most about a decoder; the others have their tables.
        first = [group for group in every if group.one.protocol == every[0].one.protocol]
        found += _section(
            "Throughput",
            f"How many images a second, {protocol(first[0].one)}. Every chart has its own "
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
    return [
        "<section><h2>All figures</h2>",
        _meanings((*SPEED, *COST, READING)),
        *(_protocol_table(own) for own in by_protocol(every)),
        "</section>",
    ]


def _meanings(shown: Sequence[Figure]) -> str:
    meaning = _definitions({figure.title: figure.meaning for figure in shown})
    return f"<details><summary>What the columns mean</summary>{meaning}</details>"


def _protocol_table(own: Sequence[Group]) -> str:
    one = own[0].one
    shown = (*SPEED, *COST[1:], *((READING,) if one.protocol == "file" else ()))
    return _table(f"{one.format.upper()}, {protocol(one)}", shown, sections(own))


def _table(
    title: str,
    shown: Sequence[Figure],
    parts: Iterable[tuple[str, Sequence[Measurement | OnDevice]]],
) -> str:
    name = escape(title)
    head = "".join(
        f'<th scope="col"{_words(figure)} title="{escape(figure.meaning)}">'
        f"{escape(figure.title)}</th>"
        for figure in shown
    )
    rows = []
    for said, members in parts:
        rows.append(f'<tr class="section"><th colspan="{len(shown)}">{escape(said)}</th></tr>')
        rows += [_row(member, shown) for member in members]
    return (
        f'<h3>{name}</h3><div class="scroll" tabindex="0" role="region" aria-label="{name}">'
        f"<table><thead><tr>{head}</tr></thead><tbody>{''.join(rows)}</tbody></table></div>"
    )


def _words(figure: Figure) -> str:
    return "" if figure.right else ' class="words"'


def _row(one: Measurement | OnDevice, shown: Sequence[Figure]) -> str:
    cells = "".join(f"<td{_words(f)}>{escape(f.text(one))}</td>" for f in shown[1:])
    return f'<tr class="{row_kind(one)}"><th scope="row">{escape(one.backend)}</th>{cells}</tr>'


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
        summary = escape(f"{title} ({count(len(files), 'file')})")
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
        **device_facts(result),
        **backend_versions(result.backends),
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
