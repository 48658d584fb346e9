"""Run the examples in a module's docstrings and in a page of the reference.

    python docstrings.py MODULE [PAGE]

They run in the current folder, with the names that docs/reference/index.md promises.
"""

from __future__ import annotations

import doctest
import importlib
import inspect
import re
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from fastdecode._backends import registry

_FLAGS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE


def docstrings_of(module: str) -> dict[str, str]:
    """Return the docstring of each public class and function of a module."""
    package = importlib.import_module(module)
    things = {name: getattr(package, name) for name in package.__all__}
    return {
        f"{module}.{name}": inspect.getdoc(thing) or ""
        for name, thing in things.items()
        if inspect.isclass(thing) or inspect.isfunction(thing)
    }


def page_text(page: Path) -> str:
    """Return what is not from docstrings, without fences, which doctest would take for output."""
    text = re.sub(
        r"<!-- begin .*?<!-- end -->", "", page.read_text(encoding="utf-8"), flags=re.DOTALL
    )
    return re.sub(r"^```.*$", "", text, flags=re.MULTILINE)


def _all(module: str, *pages: str) -> Iterator[tuple[str, str]]:
    yield from docstrings_of(module).items()
    for page in pages:
        yield page, page_text(Path(page))


def main() -> int:
    """Run the examples, each docstring and page with its own namespace."""
    data = Path("cat.jpg").read_bytes()
    runner = doctest.DocTestRunner(optionflags=_FLAGS)
    for name, text in _all(*sys.argv[1:]):
        if "torchvision." in text and find_spec("torchvision") is None:
            continue
        names: dict[str, Any] = {"data": data, "__name__": "example"}
        runner.run(doctest.DocTestParser().get_doctest(text, names, name, None, None))
        registry._registered.clear()  # so that no example sees the backends of another
    return min(runner.summarize().failed, 1)


if __name__ == "__main__":
    sys.exit(main())
