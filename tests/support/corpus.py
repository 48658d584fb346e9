"""The image files that all tests share, and the backends that work on this machine."""

from __future__ import annotations

import csv
import os
import re
from contextlib import suppress
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np
import pytest

from fastdecode import decode, probe
from fastdecode._backends import registry
from fastdecode.errors import BackendUnavailable, FastDecodeError, UnsupportedFormat
from fastdecode.types import Image, Reduce

TESTS = Path(__file__).parents[1]
DATA = TESTS / "data"
CORPUS = Path(os.environ.get("FASTDECODE_CORPUS") or DATA).resolve()
"""The large collection if the environment names it, otherwise the small one in tests/data."""

REQUIRED = "FASTDECODE_REQUIRED_BACKENDS"
"""Environment variable that names, separated by commas, the backends that must be usable."""

LIBRARIES = "FASTDECODE_REQUIRED_LIBRARIES"
"""Environment variable that names the optional modules whose tests must not be skipped."""


_WITHOUT_FIRST_SCANS = re.compile(
    r"gen_prog_scans[1-4]\.jpg|progressive-missing-[ad]c\.jpg|progressive\.scan00[0-3]\.jpeg"
)


class Sample(NamedTuple):
    """A row of the collection's manifest."""

    name: str
    format: str
    pillow: str

    @property
    def path(self) -> Path:
        return CORPUS / self.name

    @property
    def lacks_data(self) -> bool:
        """Whether it is progressive, and whole scans are missing, which Pillow does not mind."""
        return _WITHOUT_FIRST_SCANS.search(self.name) is not None

    @property
    def decodes_in_pillow(self) -> bool:
        return self.pillow.startswith("ok") and not self.lacks_data


def samples(*folders: str) -> list[Sample]:
    """List the manifest's files in these folders; a folder that the collection lacks has none."""
    with (CORPUS / "manifest.csv").open(newline="") as file:
        rows = [Sample(row["file"], row["format"], row["pillow13"]) for row in csv.DictReader(file)]
    return [row for row in rows if row.name.split("/")[0] in folders]


def usable_backends() -> list[str]:
    """Name the backends that work on this machine."""
    names = []
    for name in registry.BUILTIN:
        try:
            registry.load(name)
        except BackendUnavailable:
            continue
        names.append(name)
    return names


def leave_only(monkeypatch: pytest.MonkeyPatch, *names: str) -> None:
    """Leave the automatic choice no other backends."""
    monkeypatch.setenv("FASTDECODE_DISABLE", ",".join({*registry.BUILTIN} - {*names}))
    registry.generation += 1  # invalidates choices that are cached


def needs_tifffile(data: bytes) -> None:
    """Skip the test of a TIFF that only tifffile reads, where that is not installed."""
    header, pillow = probe(data), registry.load("pillow").supports["tiff"]
    plain = header.format != "tiff" or not all(kind.refusal(header) for kind in pillow)
    if not plain and "tifffile" not in usable_backends():
        pytest.skip("tifffile is not installed")


def jpeg_backends(declared: str = "") -> list[str]:
    """Name the usable backends that read JPEG and declare a feature, such as "warnings"."""
    kinds = {name: registry.load(name).supports.get("jpeg", ()) for name in usable_backends()}
    return [n for n, kind in kinds.items() if kind and getattr(kind[0], declared or "bits")]


def decode_by_all(data: bytes, **options: Any) -> dict[str, Any]:
    """Decode with each backend that accepts the file, and with the automatic choice ("auto")."""
    answers = {}
    for name in (None, *usable_backends()):
        with suppress(UnsupportedFormat):
            answers[name or "auto"] = decode(data, backend=name, **options)
    return answers


def outcome(
    data: bytes, whole: bytes | Image, backend: str | None = None, reduce: Reduce = 1
) -> str:
    """Decode damaged data; return "error", "whole" for the pixels of `whole`, or "other pixels"."""
    try:
        image = decode(data, reduce, backend=backend)
    except FastDecodeError:
        return "error"
    expected = decode(whole, reduce, backend=backend) if isinstance(whole, bytes) else whole
    return "whole" if np.array_equal(image, expected) else "other pixels"


def native_core() -> ModuleType:
    """Return the binding of the native core; skip the test, or its file, if there is no core."""
    from fastdecode.native import _library

    return _library
