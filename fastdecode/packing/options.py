"""What a pack was asked for, as far as the result depends on it; and sizes as people write them."""

from __future__ import annotations

import re
from dataclasses import asdict, dataclass
from typing import Any

from fastdecode.errors import BackendUnavailable
from fastdecode.native import library
from fastdecode.selection import disabled

__all__ = ["Options", "as_bytes"]

_MOST = 1 << 62


@dataclass(frozen=True)
class Options:
    """See `pack`."""

    max_side: int | None = None
    quality: int = 90
    reindex: bool = False
    shard_size: int | None = None

    def check(self, kind: str) -> None:
        """Refuse what is wrong, before any work.

        Raises
        ------
        BackendUnavailable
            If `reindex` is asked for, and the native core is not there.
        ValueError
            If a number is out of range, or the kind of store has no shards.
        """
        if self.max_side is not None and self.max_side < 1:
            raise ValueError(f"max_side must be at least 1 pixel, not {self.max_side}")
        if not 1 <= self.quality <= 100:
            raise ValueError(f"quality must be from 1 to 100, not {self.quality}")
        if self.shard_size is not None and self.shard_size < 1:
            raise ValueError(f"shard_size must be at least 1 byte, not {self.shard_size}")
        if self.shard_size is not None and kind != "tar":
            raise ValueError(f"only a tar store has shards, not a {kind} store")
        if self.reindex:
            if "native" in disabled():
                raise BackendUnavailable(
                    "only the native core reindexes, and it is left out by FASTDECODE_DISABLE"
                )
            library.require()

    def to_json(self) -> dict[str, Any]:
        """Return them for the manifest."""
        return asdict(self)


def as_bytes(text: str) -> int:
    """Read a size: ``"500MB"`` is 500 000 000 bytes, ``"1GiB"`` 1 073 741 824.

    Raises
    ------
    ValueError
        If it is none.
    """
    found = re.fullmatch(r"(\d+(?:\.\d+)?) ?(?:([KMGT])(i)?)?B?", text.strip(), re.IGNORECASE)
    if not found:
        raise ValueError(f"{text!r} is not a size such as 500MB or 1GiB")
    number, prefix, binary = found.groups()
    power = 0 if not prefix else "KMGT".index(prefix.upper()) + 1
    size = float(number) * float(1024 if binary else 1000) ** power
    if size > _MOST:
        raise ValueError(f"{text[:20]!r}... is more than any file can be")
    return round(size)
