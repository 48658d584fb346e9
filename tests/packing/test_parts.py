"""Tests of the parts of a pack: journal, spool, lock, and `map_in_order`."""

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


def test_damaged_record_is_discarded(tmp_path: Path) -> None:
    """A truncated or damaged journal holds exactly the records before the damage."""
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


def test_append_ends_with_fsync(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`append` ends with one fsync of the journal, after the whole record is written."""
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


def test_spool_discards_uncommitted_data(tmp_path: Path) -> None:
    """A reopened spool discards what was written after the last record, whole shards included."""
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


def test_repeated_key_is_refused(tmp_path: Path) -> None:
    """A repeated key is refused, even if an earlier run wrote the first."""
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
    """The spool for kinds other than tar holds the bytes of the items one after the other."""
    spool = Spool(tmp_path, "lmdb")

    assert spool.add("a", b"123", None) == (0, 0, 3)
    assert spool.add("b", b"45", None) == (0, 3, 2)
    spool.finish()
    assert part_path(tmp_path, 0).read_bytes() == b"12345"


def test_lock_has_one_holder_and_is_released(tmp_path: Path) -> None:
    """A lock has one holder at a time and is released, even if its folder is removed."""
    folder = tmp_path / "work"
    with lock_folder(folder):
        with pytest.raises(AlreadyLocked), lock_folder(folder):
            pass
        (folder / "lock").unlink()
        folder.rmdir()
    with lock_folder(folder):
        assert (folder / "lock").exists()


def test_results_are_ordered_and_bounded() -> None:
    """Results come in order, and only a few items are computed in advance."""
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


def test_error_comes_in_order() -> None:
    """An error is raised after the results before it, and no further items start."""
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
