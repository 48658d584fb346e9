"""A result as one self-contained HTML page."""

from __future__ import annotations

from pathlib import Path

import jinja2

from fastdecode.cli.terminal import count
from fastdecode.errors import visible
from fastdecode.measure import _report
from fastdecode.measure.result import OWN, Measurement, Result

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


def result_page(result: Result) -> str:
    """Return the result as one self-contained HTML file."""
    settings = {name: value for name, value in result.settings.items() if value is not None}
    return _ENVIRONMENT.get_template("page.html").render(
        result=result,
        report=_report,
        look=_look,
        count=count,
        tables=[(group, _report.figures(group)) for group in _report.groups(result) if group.timed],
        listings=_report.listings(result),
        most=_MAX_FILES,
        facts=_report.facts(result) | settings,
    )


def _look(one: Measurement) -> str:
    """Return the CSS class of a row; empty for a plain backend."""
    return "wrong" if one.differing else "own" if one.backend in (OWN, "device") else ""
