"""The parts of a pack: journal, spool, lock, and ordered work."""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path

import pytest

from fastdecode._arrays import map_in_order
from fastdecode.packing._journal import Journal
from fastdecode.packing._lock import AlreadyLocked, lock_folder
from fastdecode.packing._spool import Spool, part_path
from fastdecode.stores import open_store
from fastdecode.testing import drawing, encode


def test_half_a_record_never_was(tmp_path: Path) -> None:
    """A journal that is cut or changed anywhere contains exactly the records before that."""
    path = tmp_path / "journal"
    records = [{"a": 1}, {"b": [1, "é\n"]}, {"c": None}]
    journal = Journal(path)
    ends = [0]
    for record in records:
        journal.append(record)
        ends.append(path.stat().st_size)
    journal.close()
    data = path.read_bytes()
    for cut in range(len(data) + 1):
        path.write_bytes(data[:cut])
        whole = sum(cut >= end for end in ends[1:])

        again = Journal(path)
        assert list(again) == records[:whole]
        again.append("more")
        assert list(again) == [*records[:whole], "more"]
        again.close()
    for at in range(ends[1], ends[2], 5):
        path.write_bytes(data[:at] + bytes([data[at] ^ 4]) + data[at + 1 :])
        again = Journal(path)
        assert list(again) == records[:1]
        again.close()


def test_a_record_is_on_the_disk_before_its_call_returns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`append` writes the whole record, then calls fsync once on the journal's file."""
    path = tmp_path / "journal"
    journal = Journal(path)
    synced: list[tuple[bool, int]] = []
    whole = os.fsync

    def noted(handle: int) -> None:
        status = os.fstat(handle)
        synced.append((os.path.samestat(status, path.stat()), status.st_size))
        whole(handle)

    monkeypatch.setattr(os, "fsync", noted)
    for number in range(3):
        journal.append({"number": number, "text": "x" * 10_000 * number})
        assert synced == [(True, path.stat().st_size)]
        synced.clear()
    journal.close()


def test_a_spool_goes_on_where_it_was_good(tmp_path: Path) -> None:
    """Bytes and shards after the last record are discarded when a spool is resumed."""
    data = encode(drawing(16, 16))
    whole = tmp_path / "whole"
    broken = tmp_path / "broken"
    for folder in (whole, broken):
        folder.mkdir()
        spool = Spool(folder, "tar", 4096)
        for number in range(5):
            spool.add(f"{number}.jpg", data, number)
            if number == 1:
                good = spool.sync()
        spool.finish()
    spool = Spool(broken, "tar", 4096, *good)
    for number in range(2, 5):
        spool.add(f"{number}.jpg", data, number)
    spool.finish()

    shards = sorted(path.name for path in whole.iterdir())
    assert len(shards) > 2
    assert shards == sorted(path.name for path in broken.iterdir())
    for name in shards:
        assert (whole / name).read_bytes() == (broken / name).read_bytes()
    with open_store([str(whole / name) for name in shards], "tar") as store:
        assert [store.target(index) for index in range(5)] == [0, 1, 2, 3, 4]


def test_a_name_that_is_taken(tmp_path: Path) -> None:
    """A key that exists already is refused, also if an earlier run has written it."""
    data = encode(drawing(16, 16))
    spool = Spool(tmp_path, "tar")
    spool.add("a.jpg", data, None)
    good = spool.sync()
    spool.close()
    spool = Spool(tmp_path, "tar", None, *good)

    with pytest.raises(ValueError, match="there already"):
        spool.add("a.jpg", data, None)
    assert spool.sync() == good
    spool.close()


def test_a_plain_spool(tmp_path: Path) -> None:
    """A spool without shards contains the bytes one after another."""
    spool = Spool(tmp_path, "lmdb")

    assert spool.add("a", b"123", None) == (0, 0, 3)
    assert spool.add("b", b"45", None) == (0, 3, 2)
    spool.finish()
    assert part_path(tmp_path, 0).read_bytes() == b"12345"


def test_a_lock_is_let_go(tmp_path: Path) -> None:
    """Only one process holds the lock, also if the folder is removed in the meantime."""
    folder = tmp_path / "work"
    with lock_folder(folder):
        with pytest.raises(AlreadyLocked), lock_folder(folder):
            pass
        (folder / "lock").unlink()
        folder.rmdir()
    with lock_folder(folder):
        assert (folder / "lock").exists()


def test_order_and_memory() -> None:
    """Results come in order, and only a few are made ahead."""
    begun: set[int] = set()
    lock = threading.Lock()

    def work(item: int) -> int:
        with lock:
            begun.add(item)
        time.sleep(0.002 * (item % 3))
        return item

    results = map_in_order(work, range(200), 4)
    first = [next(results) for _ in range(10)]
    time.sleep(0.05)

    assert first == list(range(10))
    assert len(begun) <= 10 + 4 * 4
    assert list(results) == list(range(10, 200))


def test_an_error_comes_in_its_turn() -> None:
    """An error comes after earlier results, and no further work begins."""
    begun = []

    def work(item: int) -> int:
        begun.append(item)
        time.sleep(0.001)
        if item == 5:
            raise OSError("no")
        return item

    results = map_in_order(work, range(1000), 2)
    assert [next(results) for _ in range(5)] == [0, 1, 2, 3, 4]
    with pytest.raises(OSError, match="no"):
        next(results)
    assert len(begun) < 30
