"""Helpers for the tests of the benchmark: images to measure, and a way to run the command."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

from PIL import Image as PillowImage

from fastdecode.measure.result import (
    SCHEMA,
    CollectionSummary,
    Library,
    Machine,
    Measurement,
    Result,
    Spread,
)

DECODE = ("--seconds", "0", "--no-train")
ONE = ("--backend", "pillow")
WRONG_ARGUMENT = 2
INTERRUPTED = 130
TERMINAL = 80
_VOID = {"meta", "br", "link", "img"}
_SETTINGS = ("FASTDECODE_BACKEND", "FASTDECODE_DISABLE")


def photo(width: int = 40, height: int = 30, kind: str = "JPEG", turn: int = 0) -> bytes:
    """Encode an image whose three channels are gradients in three directions."""
    ramp = PillowImage.linear_gradient("L")
    channels = [ramp.rotate(90 * (step + turn)) for step in range(3)]
    file = io.BytesIO()
    PillowImage.merge("RGB", channels).resize((width, height)).save(file, kind)
    return file.getvalue()


def make_photos(folder: Path) -> Path:
    """Write three JPEGs into two folders, next to a hidden file and one that is not an image."""
    inner = folder / "photos" / "inner"
    inner.mkdir(parents=True)
    for turn, place in enumerate((inner.parent, inner, inner)):
        (place / f"{turn}.jpg").write_bytes(photo(turn=turn))
    (inner / ".hidden.jpg").write_bytes(photo())
    (inner / "notes.txt").write_text("not an image")
    return inner.parent


def environment(**variables: str) -> dict[str, str]:
    """Return the environment of a child process: 80 columns, and no preference for a backend."""
    kept = {name: value for name, value in os.environ.items() if name not in _SETTINGS}
    return {**kept, "COLUMNS": str(TERMINAL), **variables}


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


def read_result(text: str) -> Result:
    """Read the JSON of a result, whose keys are exactly the fields."""
    content = json.loads(text)
    assert content.pop("schema") == SCHEMA
    for one in content["measurements"]:
        one |= {name: Spread(**one[name]) for name in ("images_per_s", "ratio")}
        one["differing"] = tuple(one["differing"])
    content["machine"] = Machine(**content["machine"])
    content["collection"] = CollectionSummary(**content["collection"])
    content["backends"] = tuple(Library(**one) for one in content["backends"])
    content["measurements"] = tuple(Measurement(**one) for one in content["measurements"])
    content["notes"] = tuple(content["notes"])
    return Result(**content)


class Page(HTMLParser):
    """Parse an HTML page: its tags must be balanced."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: set[str] = set()
        self.texts: list[str] = []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        del attrs
        self.tags.add(tag)
        if tag not in _VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.texts.append(data)
