"""LMDB stores, written here and by others: read by both, shared, forked and damaged."""

from __future__ import annotations

import os
import pickle
import random
import subprocess
import sys
from pathlib import Path

import pytest
import store_cases

from fastdecode.stores import StoreError, create_store, open_store

lmdb = pytest.importorskip("lmdb")


def _foreign(location: Path, items: dict[bytes, bytes], subdir: bool = False) -> None:
    with lmdb.open(str(location), subdir=subdir, lock=False, map_size=1 << 26) as open_environment:
        transaction = open_environment.begin(write=True)
        for key, value in items.items():
            transaction.put(key, value)
        transaction.commit()


def test_damage_never_gives_another_items_bytes(tmp_path: Path) -> None:
    """Flipped bits in the tree raise errors that name the item."""

    def entangled(data: bytes, draw: random.Random) -> bytes:
        # Page numbers in the leaves are what leads to the bytes of other items.
        place = data.rfind(b"%08d" % draw.randrange(60)) + 8
        return data[:place] + bytes([data[place] ^ 1 << draw.randrange(5)]) + data[place + 1 :]

    store_cases.damaged_at_random(tmp_path / "a.lmdb", entangled, 40)


def test_the_map_grows(tmp_path: Path) -> None:
    """The map doubles when it is full."""
    block = random.Random(1).randbytes(3 << 20)
    with create_store(tmp_path / "a.lmdb") as writer:
        for place in range(30):
            writer.add(f"{place}.jpg", bytes([place]) + block)

    with open_store(tmp_path / "a.lmdb") as store:
        assert all(store.read(place) == bytes([place]) + block for place in range(30))


def test_large_images_are_not_copied(tmp_path: Path) -> None:
    """A large value is a view of the mapped file, and stays valid after the file is removed."""
    with create_store(tmp_path / "a.lmdb") as writer:
        writer.add("a.jpg", b"a" * 5000)
        writer.add("b.jpg", b"b" * 50)
    with open_store(tmp_path / "a.lmdb") as store:
        views = [store.read(0), store.read(1)]
    (tmp_path / "a.lmdb").unlink()

    assert [type(view) for view in views] == [memoryview, bytes]
    assert views == [b"a" * 5000, b"b" * 50]


def test_plain_lmdb_reads_it(tmp_path: Path) -> None:
    """The lmdb library finds the images in order, under numbers of eight digits."""
    items = store_cases.images()
    store_cases.write(tmp_path / "a.lmdb", items, [0])

    with lmdb.open(str(tmp_path / "a.lmdb"), subdir=False, readonly=True, lock=False) as plain:
        found = list(plain.begin().cursor())
    assert found[:-1] == [(b"%08d" % place, data) for place, (_, data) in enumerate(items)]
    assert found[-1][0] == b"__fastdecode__"


@pytest.mark.parametrize("subdir", [False, True])
def test_a_foreign_lmdb_is_read(tmp_path: Path, subdir: bool) -> None:
    """Values are in the order of their keys, without targets and metadata entries."""
    items = {b"img-%03d" % place: data for place, (_, data) in enumerate(store_cases.images())}
    where = tmp_path / "a.lmdb"
    _foreign(where, {**items, b"__len__": b"16", b"__keys__": b"..."}, subdir)

    with open_store(where) as store:
        again = pickle.loads(pickle.dumps(store))
        for one in (store, again):
            assert [one.key(place) for place in range(len(one))] == [k.decode() for k in items]
            assert [one.read(place) for place in range(len(one))] == list(items.values())
        assert store.target(0) is None
        assert list(store.classes) == []
        again.close()


def test_pickled_values_are_refused(tmp_path: Path) -> None:
    """A pickle is refused and never loaded; the error says what to do."""
    _foreign(tmp_path / "a.lmdb", {b"0": pickle.dumps((b"picture", 3))})

    said = r"item 0 \(0\): it is a pickled object"
    with open_store(tmp_path / "a.lmdb") as store, pytest.raises(StoreError, match=said):
        store.read(0)


def test_what_is_no_lmdb_is_refused(tmp_path: Path) -> None:
    """A folder without an LMDB is an error that names it."""
    (tmp_path / "folder.lmdb").mkdir()
    with pytest.raises(FileNotFoundError, match=r"folder\.lmdb"):
        open_store(tmp_path / "folder.lmdb")


def test_a_full_disk_is_told_at_once(tmp_path: Path) -> None:
    """A full disk is reported in words, also when LMDB writes its first pages on opening."""
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
    done = subprocess.run(
        [sys.executable, "-c", program, place], capture_output=True, text=True, check=False
    )

    assert f"{place} cannot be written" in done.stdout, done.stderr


def test_two_stores_share_an_environment(tmp_path: Path) -> None:
    """Stores of one file share the environment, which LMDB allows to open once per process."""
    store_cases.write(tmp_path / "a.lmdb", store_cases.images(), [0])
    first, second = open_store(tmp_path / "a.lmdb"), open_store(tmp_path / "a.lmdb")
    first.close()

    assert bytes(second.read(0)) == store_cases.images()[0][1]
    second.close()
    plain = lmdb.open(str(tmp_path / "a.lmdb"), subdir=False, readonly=True, lock=False)
    with plain, pytest.raises(StoreError, match="close that first"):
        open_store(tmp_path / "a.lmdb")


def test_a_file_that_was_replaced_is_not_taken_for_the_old_one(tmp_path: Path) -> None:
    """A new file in place of an open one is refused."""
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
def test_a_forked_process_may_open_and_end_as_it_likes(tmp_path: Path) -> None:
    """A child closes what it inherits, opens the file again, and ends without hanging."""
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

    subprocess.run([sys.executable, "-c", script, str(tmp_path / "a.lmdb")], check=True, timeout=60)
