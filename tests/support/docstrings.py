"""Run the examples of docstrings, and those of a page of the reference, in a process of their own.

    python docstrings.py MODULE [PAGE]

They run in the current folder, with the names that docs/reference/index.md defines.
"""

from __future__ import annotations

import doctest
import importlib
import inspect
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from fastdecode import registry

_FLAGS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE


def documented(module: str) -> dict[str, str]:
    """Return the docstring of each public class and function of a module."""
    package = importlib.import_module(module)
    things = {name: getattr(package, name) for name in package.__all__}
    return {
        f"{module}.{name}": inspect.getdoc(thing) or ""
        for name, thing in things.items()
        if inspect.isclass(thing) or inspect.isfunction(thing)
    }


def of_page(page: Path) -> str:
    """Return a page of the reference without its fences, which would end an example's output."""
    return page.read_text(encoding="utf-8").replace("```", "")


def _all(module: str, *pages: str) -> Iterator[tuple[str, str]]:
    yield from documented(module).items()
    for page in pages:
        yield page, of_page(Path(page))


def main() -> int:
    """Run the examples one by one, each with its own namespace."""
    data = Path("cat.jpg").read_bytes()
    runner = doctest.DocTestRunner(optionflags=_FLAGS)
    for name, text in _all(*sys.argv[1:]):
        if "torchvision." in text and find_spec("torchvision") is None:
            continue
        names: dict[str, Any] = {"data": data, "__name__": "example"}
        runner.run(doctest.DocTestParser().get_doctest(text, names, name, None, None))
        registry._registered.clear()  # what one example has registered is no other's
    return min(runner.summarize().failed, 1)


if __name__ == "__main__":
    sys.exit(main())
