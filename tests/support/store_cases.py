"""Items for the tests of stores, and a check that damage never yields another item's bytes."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from corpus import CORPUS
from records import write_hdf5, write_records

from fastdecode.stores import Store, StoreError, create_store, open_store

CLASSES = ["ant", "bee"]
TARGETS: tuple[Any, ...] = (None, 3, -(2**40), 0.1, "a cat", [1, 2.5], {"boxes": [[1, 2]]})
"""One target of each type that a store can hold."""

NUMBERS: tuple[Any, ...] = (0, 3, -4, 0.5, [1.0, 2.5], [7.0])
"""Targets that RecordIO can hold."""

LABELS = (0, 3, -(2**40))
"""Targets that a column of HDF5 can hold."""


def images() -> list[tuple[str, bytes]]:
    """Return real files of several formats, and random bytes of awkward lengths."""
    folders = ("formats", "jpeg_kinds")
    files = [file for folder in folders for file in sorted((CORPUS / folder).iterdir())[:8]]
    odd = [(f"odd/{size}.jpg", random.Random(size).randbytes(size)) for size in (1, 5, 4080)]
    return [(f"{file.parent.name}/{file.name}", file.read_bytes()) for file in files] + odd


def write(location: Path, items: Sequence[tuple[str, bytes]], targets: Sequence[Any]) -> None:
    """Write a store, with classes if every target is a class index or None."""
    named = all(target in (None, *range(len(CLASSES))) for target in targets)
    classes = CLASSES if named else ()
    whole = [(*item, targets[place % len(targets)]) for place, item in enumerate(items)]
    make(location, whole, classes)


def make(
    location: Path, items: Sequence[tuple[str, bytes, Any]], classes: Sequence[str] = ()
) -> None:
    """Write a store of any kind from keys, images and targets."""
    if location.suffix in (".rec", ".h5"):
        (write_records if location.suffix == ".rec" else write_hdf5)(location, items)
        return
    with create_store(location, classes=classes) as writer:
        for item in items:
            writer.add(*item)


def check_random_damage(
    location: Path, damages: Callable[[bytes, random.Random], bytes], rounds: int
) -> None:
    """Check that damage raises StoreError or OSError, or never yields another item's bytes."""
    draw = random.Random(5)
    items = [(f"{place}.jpg", draw.randbytes(draw.choice((40, 300, 5000)))) for place in range(60)]
    write(location, items, [7])
    whole = location.read_bytes()
    others = {data for _, data in items}
    for _ in range(rounds):
        # Replace the file instead of changing it, as a writer does: old mappings stay valid.
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


def truncated(data: bytes, draw: random.Random) -> bytes:
    """Cut the data at a random offset."""
    return data[: draw.randrange(len(data))]


def all_items(store: Store) -> list[tuple[str, bytes, Any]]:
    """Read the key, data and target of every item."""
    return [(store.key(at), bytes(store.read(at)), store.target(at)) for at in range(len(store))]


def check_and_close(store: Store, wanted: list[Any]) -> None:
    """Check a store in a child process, which can import this module but no test file."""
    assert all_items(store) == wanted
    store.close()


def write_together(place: str, number: int, barrier: Any, done: Any) -> None:
    """Write a store whose images all have this number, together with another process."""
    writer = create_store(place)
    for key in range(3):
        writer.add(f"{key}.jpg", b"%d" % number, key)
    barrier.wait()
    try:
        writer.close()
    except FileExistsError:
        number = -1
    done.put(number)
