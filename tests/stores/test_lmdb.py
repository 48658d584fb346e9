"""Tests of LMDB stores: files of this package and of others, sharing, forks and damage."""

from __future__ import annotations

import os
import pickle
import random
from pathlib import Path

import pytest
import store_cases
from processes import python
from same import assert_same

from fastdecode.stores import StoreError, create_store, open_store

lmdb = pytest.importorskip("lmdb")


def _foreign(location: Path, items: dict[bytes, bytes], subdir: bool = False) -> None:
    with lmdb.open(str(location), subdir=subdir, lock=False, map_size=1 << 26) as open_environment:
        transaction = open_environment.begin(write=True)
        for key, value in items.items():
            transaction.put(key, value)
        transaction.commit()


def test_the_map_grows(tmp_path: Path) -> None:
    """The writer doubles the map when its items exceed the initial size."""
    block = random.Random(1).randbytes(3 << 20)
    with create_store(tmp_path / "a.lmdb") as writer:
        for place in range(30):
            writer.add(f"{place}.jpg", bytes([place]) + block)

    with open_store(tmp_path / "a.lmdb") as store:
        for place in range(30):
            assert_same(store.read(place), bytes([place]) + block, place)


def test_plain_lmdb_reads_our_files(tmp_path: Path) -> None:
    """Plain lmdb finds the images in order under keys of eight digits."""
    items = store_cases.images()
    store_cases.write(tmp_path / "a.lmdb", items, [0])

    with lmdb.open(str(tmp_path / "a.lmdb"), subdir=False, readonly=True, lock=False) as plain:
        found = list(plain.begin().cursor())
    assert found[:-1] == [(b"%08d" % place, data) for place, (_, data) in enumerate(items)]
    assert found[-1][0] == b"__fastdecode__"


@pytest.mark.parametrize("subdir", [False, True])
def test_a_foreign_lmdb_is_read(tmp_path: Path, subdir: bool) -> None:
    """A foreign LMDB gives its values in key order, without targets or bookkeeping entries."""
    items = {b"img-%03d" % place: data for place, (_, data) in enumerate(store_cases.images())}
    items = {b"__begins": b"first", **items, b"z_ends__": b"last", b"\xff": b"not a text"}
    where = tmp_path / "a.lmdb"
    _foreign(where, {**items, b"__len__": b"16", b"__keys__": b"..."}, subdir)

    with open_store(where) as store:
        again = pickle.loads(pickle.dumps(store))
        for one in (store, again):
            assert [one.key(place) for place in range(len(one))] == [
                k.decode("utf-8", "surrogateescape") for k in items
            ]
            assert [one.read(place) for place in range(len(one))] == list(items.values())
        assert store.target(0) is None
        assert list(store.classes) == []
        again.close()


def test_folder_without_lmdb_is_an_error(tmp_path: Path) -> None:
    """A folder without an LMDB is an error that names it."""
    (tmp_path / "folder.lmdb").mkdir()
    with pytest.raises(FileNotFoundError, match=r"folder\.lmdb"):
        open_store(tmp_path / "folder.lmdb")


def test_full_disk_is_an_error_when_creating(tmp_path: Path) -> None:
    """A full disk is an OSError when the writer is created, as LMDB writes its first pages."""
    pytest.importorskip("resource")
    program = """if True:
        import resource, signal, sys
        from fastdecode.stores import create_store
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (1000, resource.RLIM_INFINITY))
        try:
            create_store(sys.argv[1])
        except OSError as error:
            print(error)
    """
    place = tmp_path / "out.lmdb"
    done = python("-c", program, place)

    assert f"{place} cannot be written" in done.stdout, done.stderr


def test_two_stores_share_an_environment(tmp_path: Path) -> None:
    """Stores of one file share an environment, as a process must not open an LMDB twice."""
    store_cases.write(tmp_path / "a.lmdb", store_cases.images(), [0])
    first, second = open_store(tmp_path / "a.lmdb"), open_store(tmp_path / "a.lmdb")
    first.close()

    assert bytes(second.read(0)) == store_cases.images()[0][1]
    second.close()
    plain = lmdb.open(str(tmp_path / "a.lmdb"), subdir=False, readonly=True, lock=False)
    with plain, pytest.raises(StoreError, match="close that first"):
        open_store(tmp_path / "a.lmdb")


def test_replaced_file_is_refused_while_the_old_one_is_open(tmp_path: Path) -> None:
    """A replaced file is refused while the process has the old one open."""
    for name, data in (("a.lmdb", b"old"), ("b.lmdb", b"new")):
        with create_store(tmp_path / name) as writer:
            writer.add("x.jpg", data)
    with open_store(tmp_path / "a.lmdb") as store:
        (tmp_path / "b.lmdb").replace(tmp_path / "a.lmdb")

        assert store.read(0) == b"old"
        with pytest.raises(StoreError, match="replaced"):
            open_store(tmp_path / "a.lmdb")
    with open_store(tmp_path / "a.lmdb") as store:
        assert store.read(0) == b"new"


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
def test_forked_process_can_close_reopen_and_exit(tmp_path: Path) -> None:
    """A forked child can close its store, open the file again, and exit without hanging."""
    store_cases.write(tmp_path / "a.lmdb", store_cases.images(), [0])
    script = (
        "import os, sys\n"
        "from fastdecode.stores import open_store\n"
        "store = open_store(sys.argv[1])\n"
        "first = bytes(store.read(0))\n"
        "if (child := os.fork()) == 0:\n"
        "    assert store.read(0) == first\n"
        "    store.close()\n"
        "    with open_store(sys.argv[1]) as again:\n"
        "        assert again.read(0) == first\n"
        "    sys.exit(5)\n"
        "assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 5\n"
        "assert store.read(0) == first\n"
    )

    assert python("-c", script, tmp_path / "a.lmdb", timeout=60).returncode == 0
