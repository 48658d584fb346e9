"""What all tests share: the files, and the backends that must not be skipped."""

from __future__ import annotations

import csv
import gc
import importlib.util
import os
import signal
import sys
from pathlib import Path
from types import ModuleType
from typing import NamedTuple

import pytest

from fastdecode import registry
from fastdecode.errors import BackendUnavailable

CORPUS = Path(os.environ.get("FASTDECODE_CORPUS") or Path(__file__).parent / "data").resolve()
"""The large collection where the environment names it, else the small one beside the tests."""

NO_RANKING = str(Path(__file__).parent / "data" / "there-is-no-ranking.json")
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
    """List the manifest's files in some folders; those that the collection lacks give none."""
    with (CORPUS / "manifest.csv").open(newline="") as file:
        rows = [Sample(row["file"], row["format"], row["pillow13"]) for row in csv.DictReader(file)]
    return [row for row in rows if row.name.split("/")[0] in folders]


def usable_backends() -> list[str]:
    """Name the backends that work here."""
    names = []
    for name in registry.BUILTIN:
        try:
            registry.load(name)
        except BackendUnavailable:
            continue
        names.append(name)
    return names


def jpeg_readers(declared: str = "") -> list[str]:
    """Name those of them that read JPEG, and declare a thing of it, such as "warnings"."""
    kinds = {name: registry.load(name).supports.get("jpeg", ()) for name in usable_backends()}
    return [n for n, kind in kinds.items() if kind and getattr(kind[0], declared or "bits")]


def native_core() -> ModuleType:
    """Return the binding of the native core; skip the test, or its file, where there is none."""
    from fastdecode.native import _library

    if _library.problem():
        pytest.skip(_library.problem(), allow_module_level=True)
    return _library


def pytest_configure() -> None:
    """Let Ctrl-C reach what the tests start: the shell ignores it for what it runs aside."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_finish() -> None:
    """Take the many objects there are by now out of every later `gc.collect()`."""
    gc.collect()
    gc.freeze()


def pytest_sessionstart(session: pytest.Session) -> None:
    """End the run at once when a backend is missing that this machine is said to have."""
    required = [name for name in os.environ.get(REQUIRED, "").split(",") if name]
    missing = sorted(set(required) - set(usable_backends()))
    if missing:
        pytest.exit(f"{REQUIRED} lists {', '.join(missing)}, which cannot be used here", 3)
    for name in filter(None, os.environ.get(LIBRARIES, "").split(",")):
        if importlib.util.find_spec(name) is None:
            pytest.exit(f"{LIBRARIES} lists {name}, which is not installed", 3)


@pytest.fixture(autouse=True)
def _environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep the caller's own settings out of the tests."""
    for name in ("FASTDECODE_BACKEND", "FASTDECODE_DISABLE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("FASTDECODE_RANKING", NO_RANKING)


@pytest.fixture(autouse=True)
def _patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a busy machine take its time to end a thread: tests of what is too long set their own."""
    if "fastdecode.torch.prefetcher" in sys.modules:
        monkeypatch.setattr("fastdecode.torch.prefetcher._PATIENCE_S", 60.0)
