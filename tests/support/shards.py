"""Tar shards for the tests, written by Python's own tarfile; worker processes import it, too."""

from __future__ import annotations

import io
import tarfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from loading import COUNT, encoded


def write_shards(
    folder: Path,
    counts: Sequence[int],
    *,
    targets: bool = True,
    damaged: Sequence[int] = (),
) -> list[str]:
    """Write shards with these numbers of samples; a sample's target is its number among all."""
    paths = []
    number = 0
    for shard, count in enumerate(counts):
        path = folder / f"part-{shard:03}.tar"
        with tarfile.open(path, "w") as tar:
            for _ in range(count):
                data = encoded()[number % COUNT]
                add(tar, f"{number:05}.jpg", data[: len(data) // 3] if number in damaged else data)
                if targets:
                    add(tar, f"{number:05}.cls", str(number).encode())
                number += 1
        paths.append(str(path))
    return paths


def add(tar: tarfile.TarFile, name: str, data: bytes) -> None:
    member = tarfile.TarInfo(name)
    member.size = len(data)
    tar.addfile(member, io.BytesIO(data))


def numbers(samples: Any) -> list[int]:
    """List the targets of samples, or of batches."""
    found: list[int] = []
    for _, target in samples:
        found += target.tolist() if hasattr(target, "tolist") else [target]
    return found
