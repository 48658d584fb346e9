"""What was measured on a device, on the page."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from fastdecode.bench.on_device import CPU, OnDevice, by_batch
from fastdecode.bench.on_device_words import COLUMNS, MORE, section, title
from fastdecode.bench.svg import PANEL, document, escape, label, line, rectangle
from fastdecode.bench.words import number

if TYPE_CHECKING:
    from fastdecode.bench.result import Result

__all__ = ["bars", "sections"]

_LEFT = 104  # where names end
_HEAD = 46
_ROW = 24
_NAME = 15  # characters of a name that fit
_END = 240  # where the longest bar ends, so that its figures have room


def sections(result: Result) -> list[str]:
    """Draw a chart for each size of batch, and the table; nothing if there is none.

    Parameters
    ----------
    result : Result
    """
    if not result.on_device:
        return []
    groups = by_batch(result.on_device)
    charts = [bars(f"device-{place}", own) for place, own in enumerate(groups)]
    text = (
        "How many images a second come onto the device: decoded there by a batch backend, or by "
        "all cores of the CPU and copied. Every chart has its own scale. The thin line reaches "
        "from the lower to the upper quartile."
    )
    legend = (
        '<ul class="legend"><li><span class="swatch"></span>one batch backend</li>'
        '<li><span class="swatch auto"></span>the CPU path</li></ul>'
    )
    return [
        f"<section><h2>On a device</h2><p>{escape(text)}</p>{legend}",
        f'<div class="charts">{"".join(charts)}</div>',
        _table(result),
        _meanings(),
        "</section>",
    ]


def bars(key: str, own: list[OnDevice]) -> str:
    """Draw the speed of each way of decoding, as bars.

    Parameters
    ----------
    key : str
        Unlike that of any other chart of the page.
    own : list of OnDevice
        Of the same batches.
    """
    name = f"{own[0].format.upper()}, batches of {own[0].batch}"
    highest = max(one.images_per_s.high for one in own) or 1.0
    scale = (_END - _LEFT) / highest
    body = [
        label((0, 14), name, "title"),
        label((304, 36), "images/s", "muted", "end"),
        label((PANEL, 36), "vs CPU", "muted", "end"),
    ]
    for row, one in enumerate(own):
        y = _HEAD + _ROW * row
        speed = one.images_per_s
        ends = (_LEFT + speed.low * scale, y + 12), (_LEFT + speed.high * scale, y + 12)
        body += [
            label((_LEFT - 8, y + 16), one.backend, "", "end", _NAME),
            rectangle((_LEFT, y + 4), (speed.median * scale, 16), _kind(one)),
            line(*ends, "range"),
            label((304, y + 16), number(speed.median), "", "end"),
            label((PANEL, y + 16), f"{one.ratio.median:.2f}", "", "end"),
        ]
    said = "; ".join(f"{one.backend} {number(one.images_per_s.median)}" for one in own)
    height = _HEAD + _ROW * len(own) + 4
    return document(key, (PANEL, height), (f"Images per second, {name}", f"{said}."), body)


def _kind(one: OnDevice) -> str:
    return "auto" if one.backend == CPU else "bar"


def _table(result: Result) -> str:
    shown = (*COLUMNS, *MORE)
    name = escape(title(result))
    head = "".join(
        f'<th scope="col" title="{escape(figure.meaning)}">{escape(figure.title)}</th>'
        for figure in shown
    )
    rows = "".join(_rows(result))
    return (
        f'<h3>{name}</h3><div class="scroll" tabindex="0" role="region" aria-label="{name}">'
        f"<table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table></div>"
    )


def _rows(result: Result) -> Iterator[str]:
    shown = (*COLUMNS[1:], *MORE)
    for own in by_batch(result.on_device):
        yield (
            f'<tr class="section"><th colspan="{len(shown) + 1}">{escape(section(own))}</th></tr>'
        )
        for one in own:
            cells = "".join(f"<td>{escape(figure.text(one))}</td>" for figure in shown)
            kind = "auto" if one.backend == CPU else ""
            yield f'<tr class="{kind}"><th scope="row">{escape(one.backend)}</th>{cells}</tr>'


def _meanings() -> str:
    items = "".join(
        f"<dt>{escape(one.title)}</dt><dd>{escape(one.meaning)}</dd>" for one in (*COLUMNS, *MORE)
    )
    return f"<details><summary>What the columns mean</summary><dl>{items}</dl></details>"
