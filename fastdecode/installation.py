"""What a measured ranking depends on, and where it is kept."""

from __future__ import annotations

import hashlib
import importlib.metadata
import os
import sys
from pathlib import Path

import fastdecode
from fastdecode.cores import cpu_model
from fastdecode.registry import BUILTIN

__all__ = ["libraries", "ranking_path"]

_OTHER_OPENCV = ("opencv-python", "opencv-contrib-python", "opencv-contrib-python-headless")


def libraries() -> dict[str, str]:
    """Return the version of every installed library that decodes, by the name pip knows it by.

    Nothing is imported. The package itself is among them: its part of the work counts too.
    """
    found = {"fastdecode": fastdecode.__version__}
    for name in (*(entry.distribution for entry in BUILTIN.values()), *_OTHER_OPENCV):
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:  # not installed: not among them
            continue
    if any((Path(fastdecode.__file__).parent / "native").glob("_core.*")):
        # It comes and goes without another version of anything.
        found["fastdecode's native core"] = fastdecode.__version__
    return found


def ranking_path() -> Path:
    """Return where the ranking of this machine is kept.

    ``FASTDECODE_RANKING`` names the file; else it is in the user's cache directory, one for each
    model of processor, because machines of a cluster often share a home, and for each installation
    of Python, because their libraries differ.
    """
    named = os.environ.get("FASTDECODE_RANKING")
    if named:
        return Path(named)
    import platformdirs  # only here: it is needed once a process

    key = hashlib.sha256(f"{cpu_model()}\n{sys.prefix}".encode()).hexdigest()[:12]
    return platformdirs.user_cache_path("fastdecode", appauthor=False) / f"ranking-{key}.json"
