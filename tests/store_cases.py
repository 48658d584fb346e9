"""What every store in one file must do, whatever its kind; each kind's tests go through it."""

from __future__ import annotations

import multiprocessing
import pickle
import random
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from conftest import CORPUS

from fastdecode.stores import Store, StoreError, create_store, open_store

TARGETS: tuple[Any, ...] = (None, 3, -(2**40), 0.1, "a cat", [1, 2.5], {"boxes": [[1, 2]]})
"""One of each sort that a store can hold."""


def pictures() -> list[tuple[str, bytes]]:
    """Return real files of several formats, and bytes of awkward lengths."""
    folders = ("formats", "jpeg_kinds")
    files = [file for folder in folders for file in sorted((CORPUS / folder).iterdir())[:8]]
    odd = [(f"odd/{size}.jpg", random.Random(size).randbytes(size)) for size in (0, 1, 5, 4080)]
    return [(f"{file.parent.name}/{file.name}", file.read_bytes()) for file in files] + odd


def write(location: Path, items: Sequence[tuple[str, bytes]], targets: Sequence[Any]) -> None:
    """Make a store."""
    with create_store(location, classes=["ant", "bee"]) as writer:
        for place, (key, data) in enumerate(items):
            writer.add(key, data, targets[place % len(targets)])


def gives_back_what_was_written(location: Path, targets: Sequence[Any]) -> None:
    """Round trip of keys, targets, classes and bytes; nothing else is left beside."""
    items = pictures()
    write(location, items, targets)

    with open_store(location) as store:
        assert [store.key(place) for place in range(len(store))] == [key for key, _ in items]
        assert [store.read(place) for place in range(len(store))] == [data for _, data in items]
        for place in range(len(store)):
            expected = targets[place % len(targets)]
            assert store.target(place) == expected
            assert type(store.target(place)) is type(expected)
        assert list(store.classes) == ["ant", "bee"]
        assert memoryview(store.read(0)).readonly
        for wrong in (-1, len(items)):
            for method in (store.read, store.key, store.target):
                with pytest.raises(IndexError, match=str(location)):
                    method(wrong)
    assert not [path for path in location.parent.iterdir() if path.name.startswith(".")]


def may_be_empty_or_of_one(location: Path) -> None:
    """No items, and one."""
    for count in (0, 1):
        where = location.with_stem(f"of{count}")
        write(where, pictures()[:count], [None])

        with open_store(where) as store:
            assert len(store) == count
            assert [bytes(store.read(place)) for place in range(count)] == [
                data for _, data in pictures()[:count]
            ]


def makes_the_same_bytes(location: Path, targets: Sequence[Any]) -> None:
    """Two stores of the same items are the same file."""
    other = location.with_stem("other")
    for where in (location, other):
        write(where, pictures(), targets)

    assert location.read_bytes() == other.read_bytes()


def refuses_wrong_items(location: Path) -> None:
    """Keys and targets that no store can hold; the writer then goes on."""
    with create_store(location) as writer:
        writer.add("a/b.jpg", b"1")
        for key in ("", "/a.jpg", "../a.jpg", "a\\b.jpg", "a/b.jpg"):
            with pytest.raises(ValueError):
                writer.add(key, b"2")
        for target in (float("nan"), object()):
            with pytest.raises(ValueError):
                writer.add("c.jpg", b"2", target)
        writer.add("c.jpg", b"3")
    with pytest.raises(ValueError, match="closed"):
        writer.add("d.jpg", b"4")

    with open_store(location) as store:
        assert [bytes(store.read(place)) for place in range(len(store))] == [b"1", b"3"]
    with pytest.raises(FileExistsError):
        create_store(location)


def leaves_nothing_after_an_error(location: Path) -> None:
    """Remove what has been written when the with block fails."""
    writer = create_store(location)
    with pytest.raises(ValueError, match="there already"), writer:  # noqa: PT012 - it is about the block
        writer.add("a.jpg", b"1")
        assert not location.exists()
        writer.add("a.jpg", b"1")

    assert list(location.parent.iterdir()) == []


def is_shared_by_threads_processes_and_pickles(location: Path, targets: Sequence[Any]) -> None:
    """All read the same, at the same time; a child goes on when its copy was open before."""
    items = pictures()
    write(location, items, targets)
    wrong: list[int] = []
    with open_store(location) as store:

        def read() -> None:
            places = list(range(len(items))) * 20
            wrong.extend(place for place in places if store.read(place) != items[place][1])

        threads = [threading.Thread(target=read) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert wrong == []
        _check(pickle.loads(pickle.dumps(store)))
        for method in ("fork", "spawn"):
            if method in multiprocessing.get_all_start_methods():
                child = multiprocessing.get_context(method).Process(target=_check, args=(store,))
                child.start()
                child.join()
                assert child.exitcode == 0
        _check(store)


def _check(store: Store) -> None:
    for place, (key, data) in enumerate(pictures()):
        assert store.key(place) == key
        assert bytes(store.read(place)) == data
    store.close()


def lets_views_live_and_refuses_after_closing(location: Path) -> None:
    """Keep what has been read as it is when the store is closed, which then reads no more."""
    items = pictures()
    write(location, items, [1])
    store = open_store(location)
    views = [store.read(place) for place in range(len(items))]
    store.close()
    store.close()

    assert views == [data for _, data in items]
    assert store.target(0) == 1
    with pytest.raises(ValueError, match="closed"):
        store.read(0)


def never_gives_what_was_not_written(
    location: Path, damages: Callable[[bytes, random.Random], bytes], rounds: int
) -> None:
    """Damage is a StoreError or OSError, or does no harm; another item's bytes never appear."""
    draw = random.Random(5)
    items = [(f"{place}.jpg", draw.randbytes(draw.choice((40, 300, 5000)))) for place in range(60)]
    write(location, items, [7])
    whole = location.read_bytes()
    others = {data for _, data in items}
    for _ in range(rounds):
        # In place of the old file, as its writer would: a mapping of that one stays whole.
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
    """Take the end away."""
    return data[: draw.randrange(len(data))]


def flipped(data: bytes, draw: random.Random) -> bytes:
    """Change a bit."""
    place = draw.randrange(len(data))
    return data[:place] + bytes([data[place] ^ 1 << draw.randrange(8)]) + data[place + 1 :]


def is_exact_when_large(location: Path, count: int) -> None:
    """Every item of many is found."""
    with create_store(location) as writer:
        for place in range(count):
            writer.add(f"{place}.jpg", b"%d" % place, place)

    with open_store(location) as store:
        assert len(store) == count
        for place in (0, 1, count // 2, count - 1, *random.Random(1).sample(range(count), 500)):
            assert bytes(store.read(place)) == b"%d" % place
            assert (store.key(place), store.target(place)) == (f"{place}.jpg", place)
