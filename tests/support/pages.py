"""Runs the code blocks of a page of the documents in order, each as if pasted alone.

    python pages.py PAGE

The blocks are Python, commands, or diffs, of which the resulting lines run. They share no names,
but run in one folder, with the files of ``fastdecode samples``. A comment such as
``<!-- not run: needs a GPU -->`` before a block excludes it. If a library is not installed, the
page ends early with the exit status `MISSING`.
"""

from __future__ import annotations

import builtins
import importlib.util
import os
import re
import subprocess
import symtable
import sys
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any, NamedTuple

import fastdecode
from fastdecode import cli

MISSING = 77
"""The exit status of a page that needs a library which is not installed."""

REASONS = (
    "installs",
    "needs a GPU",
    "needs a bucket",
    "needs a cluster",
    "measures for minutes",
    "clones the repository",
    "fetches a model",
)
"""The allowed reasons for excluding a block."""

RUN = ("python", "diff", "sh")
"""Languages of the blocks that run."""

_COMMANDS = ("fastdecode", "python -m fastdecode")

SHOWN = ("text", "toml", "json", "bibtex", "py", "pycon")
"""Languages of the blocks that only show something."""

_BLOCK = re.compile(
    r"(?:^<!-- (?P<mark>[^\n]*?) -->\n)?^```(?P<language>[^\n]*)\n(?P<code>.*?)^```$",
    re.DOTALL | re.MULTILINE,
)

_MYLIB = """
import io
import numpy
import PIL.Image

def read(data, gray):
    return numpy.array(PIL.Image.open(io.BytesIO(data)).convert("L" if gray else "RGB"))
"""

# Full measurements would take minutes per page, so the options reduce them to the minimum.
_COMMAND = """#!/bin/sh
case $1 in
bench) set -- "$@" --seconds 0.02 --backend pillow --no-train ;;
esac
exec {python} -m fastdecode "$@"
"""


class Block(NamedTuple):
    """A block of code, with its line and the text of the comment before it."""

    line: int
    language: str
    code: str
    mark: str

    @property
    def runs(self) -> bool:
        return self.language in RUN and not self.mark

    @property
    def is_ours(self) -> bool:
        """Whether every command belongs to this package."""
        lines = (line.partition("#")[0].strip() for line in self.code.splitlines())
        return all(line.startswith(_COMMANDS) for line in lines if line)


def blocks(page: Path) -> list[Block]:
    """Return all fenced blocks of a page."""
    text = page.read_text(encoding="utf-8")
    return [
        Block(
            text[: found.start("code")].count("\n"),
            found["language"],
            found["code"],
            found["mark"] or "",
        )
        for found in _BLOCK.finditer(text)
    ]


def prepare_folder(folder: Path) -> dict[str, str]:
    """Put the files that pages name into a folder; return the environment to run the pages in."""
    (folder / "bin").mkdir(parents=True)
    with redirect_stdout(None):
        cli.main(["samples", str(folder)])
    (folder / "mylib.py").write_text(_MYLIB, encoding="utf-8")
    command = folder / "bin" / "fastdecode"
    command.write_text(_COMMAND.format(python=sys.executable), encoding="utf-8")
    command.chmod(0o755)
    places = (str(folder), str(Path(fastdecode.__file__).parents[1]), os.environ.get("PYTHONPATH"))
    return {
        **os.environ,
        "PATH": os.pathsep.join((str(folder / "bin"), os.environ["PATH"])),
        "PYTHONPATH": os.pathsep.join(filter(None, places)),
        "RAY_ADDRESS": "local",  # not a cluster that already runs on this machine
    }


def _after_diff(diff: str) -> str:
    """Return the code after a diff, with an empty line for each removed one."""
    return "".join(
        "\n" if line.startswith("-") else line[1:] or "\n" for line in diff.splitlines(True)
    )


def undefined_names(code: str) -> set[str]:
    """Return the global names that a program uses and neither imports nor assigns."""
    top = symtable.symtable(code, "block", "exec")
    used, tables = set(), [top]
    for table in tables:
        tables += table.get_children()
        used |= {
            symbol.get_name()
            for symbol in table.get_symbols()
            if symbol.is_referenced() and (symbol.is_global() or table is top)
        }
    bound = {one.get_name() for one in top.get_symbols() if one.is_assigned() or one.is_imported()}
    return used - bound - set(vars(builtins))


def _run(block: Block, page: str) -> None:
    if block.language == "sh":
        if "--html" in block.code and importlib.util.find_spec("jinja2") is None:
            raise ModuleNotFoundError("No module named 'jinja2', which --html needs", name="jinja2")
        subprocess.run(["sh", "-eu", "-c", block.code], check=True)
        return
    names: dict[str, Any] = {"__name__": "page"}
    code = block.code
    if block.language == "diff":  # of a script that has a transform
        from fastdecode.torch.transforms import RandomResizedCropFlipNormalize

        names["transform"] = RandomResizedCropFlipNormalize(224)
        code = _after_diff(code)
    exec(compile("\n" * block.line + code, page, "exec"), names)
    fastdecode.use(None)  # for the next block


def main() -> int:
    """Run a page."""
    page = Path(sys.argv[1])
    for block in blocks(page):
        try:
            if block.runs:
                _run(block, str(page))
        except ImportError as error:
            # A missing library ends the page; a name that the package lacks is the page's error.
            if type(error) is ImportError or (error.name or "").startswith("fastdecode"):
                raise
            sys.stderr.write(f"line {block.line}: {str(error).splitlines()[0]}\n")
            return MISSING
    return 0


if __name__ == "__main__":
    sys.exit(main())
