"""What a packed store says of itself, beside it: the manifest, and the list of bad items.

Neither holds a time or the name of a machine: the same pack makes the same bytes.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import fastdecode
from fastdecode import outfile
from fastdecode.packing.tables import csv_text
from fastdecode.stores.index import text_of

if TYPE_CHECKING:
    from fastdecode.packing.results import Packed

__all__ = ["text", "write_bad"]

_FORMAT = 1


def text(
    packed: Packed,
    about: dict[str, Any],
    classes: Sequence[str],
    files: Sequence[dict[str, Any]],
    content: str,
) -> str:
    """Return the manifest, in JSON.

    Parameters
    ----------
    packed : Packed
    about : dict
        The source and the options.
    classes : sequence of str
    files : sequence of dict
        Of each file name, size in bytes, SHA-256; and the number of items, where it is a shard.
    content : str
        Checksum of the items: see `Content`.
    """
    values: dict[str, Any] = {
        "format": _FORMAT,
        "fastdecode": fastdecode.__version__,
        **about,
        "kind": packed.kind,
        "items": packed.items,
        "bytes": packed.bytes_out,
        "content_sha256": content,
        "classes": list(classes),
        "notes": dict(packed.notes),
        "files": list(files),
        "bad": [{"key": key, "reason": reason} for key, reason in packed.bad],
    }
    if packed.kind == "tar":
        values["shards"] = [file["name"] for file in files]
    return text_of(values, indent=1) + "\n"


def write_bad(path: Path, bad: Sequence[tuple[str, str]]) -> None:
    """Write the bad items as CSV, key and reason: see `csv_text`.

    Raises
    ------
    OSError
        If it cannot be written.
    """
    outfile.write(path, csv_text([("key", "reason"), *bad]), follow=False)
