"""Write the reference, `docs/reference/*.md`, from the docstrings of the package.

    python docs/render.py            # write
    python docs/render.py --check    # exit with status 1 if a page is out of date

A page keeps what stands outside of its marks. Between ``<!-- begin MODULE: NAME … -->`` and
``<!-- end -->`` come the docstrings of these names, and between ``<!-- begin commands -->`` and
``<!-- end -->`` the help of the commands. ``<!-- here: MODULE.NAME -->`` says that the page
describes a value by hand, below a heading of its name.
"""

from __future__ import annotations

import importlib
import inspect
import io
import os
import re
import sys
import textwrap
from abc import ABC
from collections.abc import Iterator
from contextlib import redirect_stdout, suppress
from enum import Enum
from functools import cache
from pathlib import Path
from typing import Any, Generic, NamedTuple

from fastdecode import cli

REFERENCE = Path(__file__).parent / "reference"
WIDTH = 84
"""The widest signature in one line."""

_BLOCK = re.compile(r"(<!-- begin (.+?) -->\n).*?(<!-- end -->)", re.DOTALL)
_NAMES = re.compile(r"<!-- begin ([\w.]+): (.+?) -->", re.DOTALL)
_HERE = re.compile(r"<!-- here: ([\w.]+)\.(\w+) -->")
_SECTION = re.compile(r"^(\w[\w ]*)\n-{3,}\n", re.MULTILINE)
_ITEMS = ("Parameters", "Attributes", "Returns", "Yields", "Raises", "See Also")
_TEXTS = ("Notes", "Examples")
_CODE = re.compile(r"``(.+?)``|`([^`]+)`", re.DOTALL)


class Place(NamedTuple):
    """Where something is described."""

    page: str
    anchor: str


def anchor(heading: str) -> str:
    """Return the anchor that GitHub, and MyST after it, give a heading."""
    return re.sub(r"[^\w -]", "", heading).lower().replace(" ", "-")


@cache
def places() -> dict[str, Place]:
    """Return where each public name, and each member of a class, is described."""
    found = {}
    for page in sorted(REFERENCE.glob("*.md")):
        text = page.read_text(encoding="utf-8")
        for module, name in _HERE.findall(text):
            found[f"{module}.{name}"] = Place(page.name, anchor(name))
        for module, names in _NAMES.findall(text):
            for name in names.split():
                found[f"{module}.{name}"] = Place(page.name, anchor(name))
                for member, _ in members(getattr(importlib.import_module(module), name)):
                    title = f"{name}.{member}"
                    found[f"{module}.{title}"] = Place(page.name, anchor(title))
    return found


@cache
def public() -> dict[Any, str]:
    """Return the name by which users import each class and function."""
    found: dict[Any, str] = {}
    for full in places():
        module, _, name = full.rpartition(".")
        if module in modules():
            thing = getattr(importlib.import_module(module), name)
            if inspect.isclass(thing) or inspect.isfunction(thing):
                found.setdefault(thing, full)
    return found


@cache
def modules() -> list[str]:
    """Return where users import from, the shortest name first."""
    pages = [page.read_text(encoding="utf-8") for page in REFERENCE.glob("*.md")]
    found = {
        module for text in pages for module, _ in [*_HERE.findall(text), *_NAMES.findall(text)]
    }
    return sorted(found, key=lambda module: (module.count("."), module))


def members(thing: Any) -> list[tuple[str, Any]]:
    """Return the documented methods and properties that a class itself defines."""
    if not inspect.isclass(thing) or "Contract" in thing.__name__:  # whose methods are tests
        return []
    found = []
    for name, value in vars(thing).items():
        kinds = (property, classmethod, staticmethod)
        function = value if isinstance(value, kinds) else inspect.isfunction(value)
        if function and (name == "__call__" or name[0] != "_") and inspect.getdoc(value):
            found.append((name, value))
    return found


class Writer:
    """Writes the description of one object, on one page."""

    def __init__(self, page: str, module: str, name: str, level: int) -> None:
        self.page, self.module, self.name, self.level = page, module, name, level
        self.thing = getattr(importlib.import_module(module), name)
        self.own: set[str] = set()

    def parts(self) -> Iterator[str]:
        """Yield the object and its members."""
        yield f"{'#' * self.level} {self.name}"
        if not (inspect.isclass(self.thing) and issubclass(self.thing, (BaseException, Enum))):
            yield from self.signature(self.name, self.thing)
        bases = self.bases()
        if bases:
            yield f"Bases: {', '.join(bases)}"
        yield from self.body(self.thing)
        for name, value in members(self.thing):
            yield f"{'#' * self.level}# {self.name}.{name}"
            if isinstance(value, property):
                self.own = set()
                yield "*Property*"
            else:
                # `getattr` binds a class method; of others, `self` is left out by hand.
                unbound = inspect.isfunction(value)
                bound = value if unbound else getattr(self.thing, name)
                yield from self.signature(f"{self.name}.{name}", bound, without_self=unbound)
            yield from self.body(value)

    def signature(self, name: str, thing: Any, *, without_self: bool = False) -> Iterator[str]:
        """Yield the call with names and defaults; the types are in the docstring, with units."""
        try:
            found = inspect.signature(thing)
        except ValueError:
            return
        parameters = [
            each.replace(annotation=inspect.Parameter.empty) for each in found.parameters.values()
        ][int(without_self) :]
        self.own = {each.name for each in parameters}
        bare = found.replace(parameters=parameters, return_annotation=inspect.Signature.empty)
        word = "class " if inspect.isclass(thing) else ""
        line = f"{word}{name}{bare}"
        if " at 0x" in line:
            raise ValueError(f"a default of {name} has no lasting form: {line}")
        if len(line) > WIDTH:
            stars = ["*"] if "(*, " in line or ", *, " in line else []
            inside = [str(each) for each in parameters]
            at = next((i for i, e in enumerate(parameters) if e.kind is e.KEYWORD_ONLY), 0)
            inside[at:at] = stars
            line = f"{word}{name}(\n" + "".join(f"    {each},\n" for each in inside) + ")"
        yield f"```py\n{line}\n```"

    def bases(self) -> list[str]:
        """Return links to the base classes; in place of a private one stand its own bases."""
        found = list(self.thing.__bases__) if inspect.isclass(self.thing) else []
        while hidden := [each for each in found if _is_private(each)]:
            at = found.index(hidden[0])
            found[at : at + 1] = hidden[0].__bases__
        # torchvision's class is a base of the datasets as soon as torchvision is imported.
        kept = [
            each
            for each in dict.fromkeys(found)
            if each not in (object, tuple, ABC, Generic)
            and each.__module__.partition(".")[0] != "torchvision"
        ]
        return [
            self.link(public().get(each, each.__qualname__).rpartition(".")[2]) for each in kept
        ]

    def body(self, thing: Any) -> Iterator[str]:
        """Yield a docstring, section by section."""
        text, *sections = _SECTION.split(inspect.getdoc(thing) or "")
        yield from self.prose(text)
        for title, content in zip(sections[::2], sections[1::2], strict=True):
            yield f"**{title}**"
            if title in _ITEMS:
                yield from self.items(content)
            elif title in _TEXTS:
                yield from self.prose(content)
            else:
                raise ValueError(f"{self.module}.{self.name}: there is no section {title!r}")

    def items(self, content: str) -> Iterator[str]:
        """Yield a list of what stands at the margin, each with the indented text below it."""
        for part in re.split(r"^(?=\S)", content.strip("\n"), flags=re.MULTILINE):
            if not part:
                continue
            head, _, text = part.partition("\n")
            name, colon, kind = head.partition(" : ")
            # No parameter is a link, but a class that is raised or returned is.
            shown = f"`{name}`: {self.inline(kind)}" if colon else self.types(head)
            yield f"- {shown}"
            for line in self.prose(textwrap.dedent(text)):
                yield textwrap.indent(line, "  ")

    def types(self, head: str) -> str:
        """Return the head of an item without a name, with links to the classes in it."""
        return re.sub(
            r"\b[A-Z]\w+\b",
            lambda word: self.link(word[0]) if self.place(word[0]) else word[0],
            self.inline(head) if "`" in head else head.replace("*", r"\*"),
        )

    def prose(self, text: str) -> Iterator[str]:
        """Yield paragraphs, and the examples in them as blocks of code."""
        for part in re.split(r"\n\s*\n", text.strip("\n")):
            if not part.strip():
                continue
            if part.lstrip().startswith(">>> "):
                yield f"```pycon\n{textwrap.dedent(part)}\n```"
            else:
                yield self.inline(part)

    def inline(self, text: str) -> str:
        """Return a paragraph of the docstring in Markdown."""
        done, at = [], 0
        for code in _CODE.finditer(text):
            done.append(text[at : code.start()].replace("*", r"\*").replace("<", r"\<"))
            literal, name = code.groups()
            done.append(f"`{literal}`" if literal else self.link(name))
            at = code.end()
        done.append(text[at:].replace("*", r"\*").replace("<", r"\<"))
        return "".join(done)

    def link(self, name: str) -> str:
        """Return a name as code, with a link if it is described, and not here."""
        place = self.place(name)
        if place is None:
            return f"`{name}`"
        return f"[`{name}`]({'' if place.page == self.page else place.page}#{place.anchor})"

    def place(self, name: str) -> Place | None:
        """Return where a name that this docstring mentions is described, unless it is its own."""
        if name in self.own or name == self.name:
            return None
        tries = [f"{self.module}.{self.name}.{name}", f"{self.module}.{name}", name]
        tries += [f"{module}.{name}" for module in modules()]
        return next((places()[each] for each in tries if each in places()), None)


def _is_private(base: type) -> bool:
    return base.__module__.startswith("fastdecode.") and base not in public()


def commands() -> Iterator[str]:
    """Yield what each command prints with ``--help`` on a terminal of 80 columns."""
    os.environ |= {"COLUMNS": "80", "NO_COLOR": "1"}
    for name in cli.COMMANDS:
        with redirect_stdout(io.StringIO()) as printed, suppress(SystemExit):
            cli.main([name, "--help"])
        yield f"## fastdecode {name}\n\n```text\n{printed.getvalue()}```"


def rendered(page: Path) -> str:
    """Return a page with its parts between the marks written anew."""
    text = page.read_text(encoding="utf-8")

    def part(block: re.Match[str]) -> str:
        if block[2] == "commands":
            made = list(commands())
        else:
            module, _, names = block[2].partition(": ")
            above = re.findall(r"^(#+) ", _BLOCK.sub("", text[: block.start()]), re.MULTILINE)
            level = 1 + len(above[-1])
            writers = [Writer(page.name, module, name, level) for name in names.split()]
            made = [part for writer in writers for part in writer.parts()]
        return "\n\n".join([block[1].rstrip("\n"), *made, block[3]])

    return _BLOCK.sub(part, text)


def main() -> None:
    """Write all pages, or name those that are out of date."""
    for page in sorted(REFERENCE.glob("*.md")):
        text = rendered(page)
        if "--check" in sys.argv:
            if text != page.read_text(encoding="utf-8"):
                sys.exit(f"{page} is out of date: run python docs/render.py")
        else:
            page.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
