"""How Sphinx makes the site: `python -m sphinx -W --keep-going docs build/docs`."""

from __future__ import annotations

import re

from sphinx.application import Sphinx

import fastdecode

project = "fastdecode"
author = "the fastdecode authors"
copyright = author
release = version = fastdecode.__version__

extensions = ["myst_parser", "sphinx_copybutton"]

myst_heading_anchors = 4

html_theme = "furo"
pygments_style = "github-light"
pygments_dark_style = "github-dark"
html_title = f"fastdecode {release}"
html_static_path = ["_static"]
html_css_files = ["custom.css"]
html_copy_source = False
copybutton_exclude = ".linenos, .gp, .go"


def _unlink(_app: Sphinx, page: str, source: list[str]) -> None:
    """Keep only the text of links to files of the repository that are not on the site."""
    if "/" not in page:
        source[0] = re.sub(r"(?<!!)\[([^\]]+)\]\(\.\./[^)]+\)", r"\1", source[0])


def setup(app: Sphinx) -> None:
    """Connect the above."""
    app.connect("source-read", _unlink)
