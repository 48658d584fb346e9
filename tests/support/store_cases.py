"""Stores to write in tests, and damage for which no store may return another item's bytes."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from corpus import CORPUS

from fastdecode.stores import Store, StoreError, create_store, open_store

CLASSES = ["ant", "bee"]
TARGETS: tuple[Any, ...] = (None, 3, -(2**40), 0.1, "a cat", [1, 2.5], {"boxes": [[1, 2]]})
"""One of each sort that a store can hold."""

NUMBERS: tuple[Any, ...] = (None, 3, -4.0, 0.1, [1, 2.5], [7])
"""What RecordIO can hold."""


def images() -> list[tuple[str, bytes]]:
    """Return real files of several formats, and bytes of awkward lengths."""
    folders = ("formats", "jpeg_kinds")
    files = [file for folder in folders for file in sorted((CORPUS / folder).iterdir())[:8]]
    odd = [(f"odd/{size}.jpg", random.Random(size).randbytes(size)) for size in (1, 5, 4080)]
    return [(f"{file.parent.name}/{file.name}", file.read_bytes()) for file in files] + odd


def write(location: Path, items: Sequence[tuple[str, bytes]], targets: Sequence[Any]) -> None:
    """Write a store; it has classes if all targets are class indices."""
    named = all(target in (None, *range(len(CLASSES))) for target in targets)
    with create_store(location, classes=CLASSES if named else ()) as writer:
        for place, (key, data) in enumerate(items):
            writer.add(key, data, targets[place % len(targets)])


def damaged_at_random(
    location: Path, damages: Callable[[bytes, random.Random], bytes], rounds: int
) -> None:
    """Check that damage raises StoreError or OSError, or is harmless, and never mixes up items."""
    draw = random.Random(5)
    items = [(f"{place}.jpg", draw.randbytes(draw.choice((40, 300, 5000)))) for place in range(60)]
    write(location, items, [7])
    whole = location.read_bytes()
    others = {data for _, data in items}
    for _ in range(rounds):
        # Replace the file, as its writer does: mappings of the old file stay intact.
        location.unlink()
        location.write_bytes(damages(whole, draw))
        store = _or_error(open_store, location)
        if isinstance(store, Exception):
            assert str(location) in str(store)
            continue
        with store:
            for place, (_, data) in enumerate(items[: len(store)]):
                found = _or_error(store.read, place)
                if isinstance(found, Exception):
                    assert f"{location}, item {place}" in str(found)
                else:
                    assert found == data or bytes(found) not in others


def _or_error(function: Callable[..., Any], argument: Any) -> Any:
    try:
        return function(argument)
    except (StoreError, OSError) as error:
        return error


def cut(data: bytes, draw: random.Random) -> bytes:
    """Cut off the end."""
    return data[: draw.randrange(len(data))]


def flipped(data: bytes, draw: random.Random) -> bytes:
    """Change a bit."""
    place = draw.randrange(len(data))
    return data[:place] + bytes([data[place] ^ 1 << draw.randrange(8)]) + data[place + 1 :]


def everything(store: Store) -> list[tuple[str, bytes, Any]]:
    """Read all items."""
    return [(store.key(at), bytes(store.read(at)), store.target(at)) for at in range(len(store))]


def reads_and_closes(store: Store, wanted: list[Any]) -> None:
    """Check a store in another process, which can import this module but no tests."""
    assert everything(store) == wanted
    store.close()
