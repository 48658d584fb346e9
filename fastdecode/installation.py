"""What a measured ranking depends on, and where it is kept."""

from __future__ import annotations

import hashlib
import importlib.metadata
import os
from pathlib import Path

import fastdecode
from fastdecode.cores import cpu_model
from fastdecode.registry import BUILTIN

__all__ = ["libraries", "ranking_path"]


def libraries() -> dict[str, str]:
    """Return the version of every installed library that decodes, by the name pip knows it by.

    Nothing is imported. The package itself is among them: its part of the work counts too.
    """
    found = {"fastdecode": fastdecode.__version__}
    for entry in BUILTIN.values():
        try:
            found[entry.distribution] = importlib.metadata.version(entry.distribution)
        except importlib.metadata.PackageNotFoundError:  # not installed: not among them
            continue
    return found


def ranking_path() -> Path:
    """Return where the ranking of this machine is kept.

    ``FASTDECODE_RANKING`` names the file; else it is in the user's cache directory, one for each
    model of processor, because machines of a cluster often share a home.
    """
    named = os.environ.get("FASTDECODE_RANKING")
    if named:
        return Path(named)
    import platformdirs  # only here: it is needed once a process

    model = hashlib.sha256(cpu_model().encode()).hexdigest()[:12]
    return platformdirs.user_cache_path("fastdecode", appauthor=False) / f"ranking-{model}.json"
