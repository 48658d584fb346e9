"""What a measured ranking depends on, and where it is kept."""

from __future__ import annotations

import hashlib
import importlib.metadata
import os
import sys
from pathlib import Path

import fastdecode
from fastdecode.cores import cpu_model, usable_cores
from fastdecode.registry import BUILTIN

__all__ = [
    "device_libraries",
    "device_ranking_path",
    "libraries",
    "ranking_is_named",
    "ranking_path",
]

_OTHER_OPENCV = ("opencv-python", "opencv-contrib-python", "opencv-contrib-python-headless")
_FOR_DEVICES = (
    "torch",
    *(f"nvidia-nvimgcodec-cu{cuda}" for cuda in (11, 12, 13)),
    *(f"nvidia-dali-cuda{cuda}" for cuda in (110, 120, 130)),
    *(f"nvidia-nvjpeg{suffix}" for suffix in ("", "-cu11", "-cu12", "-cu13")),
)
"""What decodes on devices, by all the names it has: one for each major version of CUDA."""


def libraries() -> dict[str, str]:
    """Return the version of every installed library that decodes, by the name pip knows it by.

    Nothing is imported. The package itself is among them: its part of the work counts too.
    """
    found = {
        "fastdecode": fastdecode.__version__,
        **_versions(*(entry.distribution for entry in BUILTIN.values()), *_OTHER_OPENCV),
    }
    if any((Path(fastdecode.__file__).parent / "native").glob("_core.*")):
        # It comes and goes without another version of anything.
        found["fastdecode's native core"] = fastdecode.__version__
    return found


def device_libraries() -> dict[str, str]:
    """Return `libraries`, and with them what decoding onto a device depends on."""
    return {**libraries(), **_versions(*_FOR_DEVICES)}


def _versions(*names: str) -> dict[str, str]:
    found = {}
    for name in names:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:  # not installed: not among them
            continue
    return found


def ranking_is_named() -> bool:
    """Whether ``FASTDECODE_RANKING`` says where rankings are: then whoever set it trusts them."""
    return bool(os.environ.get("FASTDECODE_RANKING"))


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


def device_ranking_path(device: str) -> Path:
    """Return where it is kept what was measured for a device.

    Beside `ranking_path`, one for each model of device and of processor, each number of cores that
    may be used, which decides what the CPU is worth, and each installation of Python.

    Parameters
    ----------
    device : str
        The name of its model.
    """
    facts = f"{device}\n{cpu_model()}\n{usable_cores()}\n{sys.prefix}"
    key = hashlib.sha256(facts.encode()).hexdigest()[:12]
    beside = ranking_path()
    return beside.with_name(f"{beside.stem}-device-{key}.json")
