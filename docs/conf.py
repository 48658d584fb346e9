"""How Sphinx makes the site: `python -m sphinx -W --keep-going docs build/docs`."""

from __future__ import annotations

import importlib
import inspect
import io
import os
import re
from contextlib import redirect_stdout, suppress
from typing import Any

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective
from sphinx.util.nodes import make_refnode

import fastdecode
from fastdecode import cli

project = "fastdecode"
author = "the fastdecode authors"
copyright = author
release = version = fastdecode.__version__

extensions = [
    "myst_parser",
    "numpydoc",
    "sphinx.ext.autodoc",
    "sphinx_copybutton",
]

myst_heading_anchors = 3

# The types are in the docstrings, with units and shapes: a signature shows names and defaults.
autodoc_typehints = "none"
autodoc_default_options = {"members": True}
autodoc_member_order = "bysource"
maximum_signature_line_length = 84
numpydoc_show_class_members = False
add_module_names = False
default_role = "py:obj"  # in a docstring, `name` is a parameter or an object of the package
python_use_unqualified_type_names = True

html_theme = "furo"
pygments_style = "github-light"
pygments_dark_style = "github-dark"
html_title = f"fastdecode {release}"
html_static_path = ["_static"]
html_css_files = ["custom.css"]
html_copy_source = False
copybutton_exclude = ".linenos, .gp, .go"

MODULES = (
    "fastdecode",
    "fastdecode.torch",
    "fastdecode.torch.transforms",
    "fastdecode.stores",
    "fastdecode.stores.tar",
    "fastdecode.packing",
    "fastdecode.ray",
    "fastdecode.native",
    "fastdecode.samples",
    "fastdecode.testing",
)
"""Where users import from, the first of several places before the others."""


def _public() -> dict[Any, str]:
    """Map each class and function to the first name by which users import it."""
    found: dict[Any, str] = {}
    for module in map(importlib.import_module, MODULES):
        for thing, name in ((getattr(module, name), name) for name in module.__all__):
            if inspect.isclass(thing) or inspect.isfunction(thing):
                found.setdefault(thing, f"{module.__name__}.{name}")
    return found


def _name_bases(*told: Any) -> None:
    """Name base classes as users import them; in place of a private one, name its own bases."""
    bases, public = told[-1], _public()
    while any(_is_private(base, public) for base in bases):
        at = next(at for at, base in enumerate(bases) if _is_private(base, public))
        bases[at : at + 1] = bases[at].__bases__
    bases[:] = [f":py:obj:`~{public[base]}`" if base in public else base for base in bases]


def _is_private(base: type, public: dict[Any, str]) -> bool:
    return base.__module__.startswith("fastdecode.") and base not in public


def _leave_out(*told: Any) -> bool | None:
    """Leave out the fields of named tuples: the docstring of the class describes them."""
    return True if type(told[3]).__name__ == "_tuplegetter" else None


def _find(app: Sphinx, env: Any, node: Any, content: Any) -> Any:
    """Find `name` in the docstring of one module where it is a public name of another."""
    if node.get("refdomain") != "py" or node.get("reftype") != "obj":
        return None
    for module in MODULES:
        there = env.domains.python_domain.objects.get(f"{module}.{node['reftarget']}")
        if there is not None:
            return make_refnode(app.builder, node["refdoc"], there.docname, there.node_id, content)
    return None


def _unlink(_app: Sphinx, page: str, source: list[str]) -> None:
    """Keep only the text of links to files of the repository that are not on the site."""
    if "/" not in page:
        source[0] = re.sub(r"(?<!!)\[([^\]]+)\]\(\.\./[^)]+\)", r"\1", source[0])


class Commands(SphinxDirective):
    """A section for each command, with what its ``--help`` prints."""

    def run(self) -> list[nodes.Node]:
        """Ask each command for its help, as on a terminal of 80 columns."""
        os.environ["COLUMNS"] = "80"
        sections: list[nodes.Node] = []
        for name in cli.COMMANDS:
            with redirect_stdout(io.StringIO()) as printed, suppress(SystemExit):
                cli.main([name, "--help"])
            title = f"fastdecode {name}"
            text = printed.getvalue()
            section = nodes.section(ids=[nodes.make_id(title)], names=[title])
            section += nodes.title(title, title)
            section += nodes.literal_block(text, text, language="none")
            sections.append(section)
        return sections


def setup(app: Sphinx) -> None:
    """Connect the above."""
    app.add_directive("commands", Commands)
    app.connect("autodoc-process-bases", _name_bases)
    app.connect("autodoc-skip-member", _leave_out)
    app.connect("missing-reference", _find)
    app.connect("source-read", _unlink)
