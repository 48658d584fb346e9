"""Images and helpers to run the benchmark command in tests."""

from __future__ import annotations

import io
import os
import subprocess
import sys
from collections import Counter
from html.parser import HTMLParser
from pathlib import Path

from PIL import Image as PillowImage

from fastdecode.measure.result import Result, from_json

QUICK = ("--seconds", "0", "--reduce", "1")
DECODE = (*QUICK, "--protocol", "decode")
WRONG_ARGUMENT = 2
INTERRUPTED = 130
TERMINAL = 80
_VOID = {"meta", "br", "link", "img"}
_SETTINGS = ("FASTDECODE_BACKEND", "FASTDECODE_DISABLE")


def photo(width: int = 40, height: int = 30, kind: str = "JPEG", turn: int = 0) -> bytes:
    """Encode an image with a gradient of a different direction in each channel."""
    ramp = PillowImage.linear_gradient("L")
    channels = [ramp.rotate(90 * (step + turn)) for step in range(3)]
    file = io.BytesIO()
    PillowImage.merge("RGB", channels).resize((width, height)).save(file, kind)
    return file.getvalue()


def fill(folder: Path) -> Path:
    """Create three JPEGs in two folders, next to hidden files and files that are not images."""
    inner = folder / "photos" / "inner"
    inner.mkdir(parents=True)
    for turn, place in enumerate((inner.parent, inner, inner)):
        (place / f"{turn}.jpg").write_bytes(photo(turn=turn))
    (inner / ".hidden.jpg").write_bytes(photo())
    (inner / "notes.txt").write_text("not an image")
    return inner.parent


def environment(**variables: str) -> dict[str, str]:
    """Return the environment of a child process: 80 columns, and no preferred backend."""
    kept = {name: value for name, value in os.environ.items() if name not in _SETTINGS}
    nowhere = str(Path(__file__).with_name("no-such-ranking.json"))
    return {**kept, "COLUMNS": str(TERMINAL), "FASTDECODE_RANKING": nowhere, **variables}


def bench(*arguments: object, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run the command in a child process."""
    return subprocess.run(
        [sys.executable, "-m", "fastdecode.bench", *map(str, arguments)],
        capture_output=True,
        text=True,
        encoding="utf-8",
        env=environment(**variables),
        timeout=300,
        check=False,
    )


def measured(*arguments: object, **variables: str) -> Result:
    """Run the command, and return the JSON that it prints."""
    done = bench(*arguments, "--json", "-", **variables)
    assert done.returncode == 0, done.stderr
    return from_json(done.stdout)


class Page(HTMLParser):
    """The tags, attributes and texts of a page, whose tags must be balanced."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: Counter[str] = Counter()
        self.attributes: list[tuple[str, str, str]] = []
        self.texts: list[str] = []
        self.rows: list[list[str]] = []
        self.strong: list[str] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags[tag] += 1
        self.attributes += [(tag, name, value or "") for name, value in attrs]
        if tag == "tr":
            self.rows.append([])
        if tag not in _VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags[tag] += 1
        self.attributes += [(tag, name, value or "") for name, value in attrs]

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.texts.append(data)
        if self.open[-1:] == ["strong"]:
            self.strong.append(data)
        if "table" in self.open and data.strip():
            self.rows[-1].append(data)

    def values(self, name: str) -> list[str]:
        return [value for _, key, value in self.attributes if key == name]
