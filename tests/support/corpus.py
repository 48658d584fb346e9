"""The test images, and the backends that work on this machine."""

from __future__ import annotations

import csv
import os
from contextlib import suppress
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np
import pytest

from fastdecode import decode, registry
from fastdecode.errors import BackendUnavailable, FastDecodeError, UnsupportedFormat
from fastdecode.types import Image, Reduce

TESTS = Path(__file__).parents[1]
DATA = TESTS / "data"
CORPUS = Path(os.environ.get("FASTDECODE_CORPUS") or DATA).resolve()
"""The large collection where the environment names it, else the small one beside the tests."""

NO_RANKING = str(DATA / "there-is-no-ranking.json")
"""Where the tests look for a saved ranking, so that the caller's own has no say in them."""

REQUIRED = "FASTDECODE_REQUIRED_BACKENDS"
"""Environment variable with the names, separated by commas, of backends that must be usable."""

LIBRARIES = "FASTDECODE_REQUIRED_LIBRARIES"
"""Likewise of modules that optional parts need: their tests must not be skipped."""


class Sample(NamedTuple):
    """A line of the collection's manifest."""

    name: str
    format: str
    pillow: str

    @property
    def path(self) -> Path:
        return CORPUS / self.name

    @property
    def decodes_in_pillow(self) -> bool:
        return self.pillow.startswith("ok")


def samples(*folders: str) -> list[Sample]:
    """Return the manifest's files in some folders; folders that are missing have none."""
    with (CORPUS / "manifest.csv").open(newline="") as file:
        rows = [Sample(row["file"], row["format"], row["pillow13"]) for row in csv.DictReader(file)]
    return [row for row in rows if row.name.split("/")[0] in folders]


def usable_backends() -> list[str]:
    """Return the names of the backends that work here."""
    names = []
    for name in registry.BUILTIN:
        try:
            registry.load(name)
        except BackendUnavailable:
            continue
        names.append(name)
    return names


def jpeg_readers(declared: str = "") -> list[str]:
    """Return the backends that read JPEG and declare a property for it, such as "warnings"."""
    kinds = {name: registry.load(name).supports.get("jpeg", ()) for name in usable_backends()}
    return [n for n, kind in kinds.items() if kind and getattr(kind[0], declared or "bits")]


def answers_of_all(data: bytes, **options: Any) -> dict[str, Any]:
    """Decode with each backend that reads the file, and with the automatic choice ("auto")."""
    answers = {}
    for name in (None, *usable_backends()):
        with suppress(UnsupportedFormat):
            answers[name or "auto"] = decode(data, backend=name, **options)
    return answers


def outcome(
    data: bytes, whole: bytes | Image, backend: str | None = None, reduce: Reduce = 1
) -> str:
    """Return what damaged data decodes to: an error, the intact image, or another one."""
    try:
        image = decode(data, reduce, backend=backend)
    except FastDecodeError:
        return "error"
    expected = decode(whole, reduce, backend=backend) if isinstance(whole, bytes) else whole
    return "whole" if np.array_equal(image, expected) else "other pixels"


def native_core() -> ModuleType:
    """Return the binding of the native core; skip the test or its file if it is not installed."""
    from fastdecode.native import _library

    if _library.problem():
        pytest.skip(_library.problem(), allow_module_level=True)
    return _library
