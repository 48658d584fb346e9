"""Tests of HDF5 stores: datasets by their names, links and truncated files."""

from __future__ import annotations

import os
import pickle
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import store_cases
from records import write_hdf5

from fastdecode.stores import Store, StoreError, open_store

h5py = pytest.importorskip("h5py")
np = pytest.importorskip("numpy")


def _write(location: Path, **others: Any) -> list[bytes]:
    """Write images into the dataset ``jpeg``, and others; return the images."""
    photos = [data for _, data in store_cases.images()]
    write_hdf5(location, [("", data, None) for data in photos], images="jpeg", keys=[], **others)
    return photos


def test_a_file_is_read_by_the_names_of_its_datasets(tmp_path: Path) -> None:
    """Options name the datasets; targets may be numbers, texts or arrays."""
    count = len(store_cases.images())
    where = tmp_path / "a.h5"
    names = [f"p{place}" for place in range(count)]
    boxes = np.arange(count * 2).reshape(count, 2)
    photos = _write(where, labels=np.arange(count), names=names, boxes=boxes)

    with open_store(where, images="jpeg", keys="names") as store:
        again = pickle.loads(pickle.dumps(store))
        for one in (store, again):
            assert [bytes(one.read(place)) for place in range(len(one))] == photos
            assert one.key(3) == "p3"
            assert one.target(3) == 3
    with open_store(where, images="jpeg", targets="boxes") as store:
        assert store.key(3) == "00000003"
        assert store.target(3) == [6, 7]
    with open_store(where, images="jpeg", targets="names") as store:
        assert store.target(2) == "p2"


def test_datasets_that_do_not_fit_are_named(tmp_path: Path) -> None:
    """A missing dataset, one of pixels, and one with other rows are errors that name it."""
    _write(tmp_path / "a.h5", labels=[1, 2])

    with pytest.raises(StoreError, match=r"no dataset 'images', only: jpeg, labels"):
        open_store(tmp_path / "a.h5")
    with pytest.raises(StoreError, match="does not have a row for each image"):
        open_store(tmp_path / "a.h5", images="jpeg")
    with h5py.File(tmp_path / "b.h5", "w") as file:
        file["images"] = np.zeros((2, 8, 8, 3), np.uint8)
    with pytest.raises(StoreError, match="does not hold an encoded image"):
        open_store(tmp_path / "b.h5")


def _external_link(file: Any, beside: Path) -> None:
    file["jpeg"] = h5py.ExternalLink(beside, "/jpeg")


def _external_group(file: Any, beside: Path) -> None:
    file["other"] = h5py.ExternalLink(beside, "/")
    file["jpeg"] = h5py.SoftLink("/other/jpeg")


def _soft_link(file: Any, beside: Path) -> None:
    file["deep/jpeg"] = np.zeros(4, "V16")
    file["jpeg"] = h5py.SoftLink("/deep/jpeg")


def _external_storage(file: Any, beside: Path) -> None:
    file.create_dataset("jpeg", (4,), "V16", external=[(str(beside), 0, 64)])


def _virtual(file: Any, beside: Path) -> None:
    layout = h5py.VirtualLayout((4,), "V16")
    layout[:] = h5py.VirtualSource(beside, "jpeg", (4,), "V16")
    file.create_virtual_dataset("jpeg", layout)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs pipes with names")
@pytest.mark.parametrize(
    "link", [_external_link, _external_group, _soft_link, _external_storage, _virtual]
)
def test_links_and_other_files_are_refused(link: Any, tmp_path: Path) -> None:
    """A link, or a dataset in another file, is refused: HDF5 would open any path, even a FIFO."""
    os.mkfifo(tmp_path / "pipe.h5")
    with h5py.File(tmp_path / "a.h5", "w") as file:
        link(file, tmp_path / "pipe.h5")
        file["own"] = file["group/own"] = np.zeros(4, "V16")

    with pytest.raises(StoreError, match=r"a\.h5: .*jpeg.* lies in another file"):
        open_store(tmp_path / "a.h5", images="jpeg")
    with pytest.raises(StoreError, match=r"no dataset 'images', only: .*own"):
        open_store(tmp_path / "a.h5", images="images")
    for name in ("own", "/group//own"):
        assert len(open_store(tmp_path / "a.h5", images=name)) == 4
    for name in ("group", "group/none", "own/jpeg", "/"):
        with pytest.raises(StoreError, match=name):
            open_store(tmp_path / "a.h5", images=name)


def test_reading_during_close_is_a_value_error(tmp_path: Path) -> None:
    """Threads that read while the store is closed get a ValueError, not a damage error."""
    write_hdf5(tmp_path / "a.h5", [("a.jpg", b"1" * 5000, 1)])
    for _ in range(5):
        store = open_store(tmp_path / "a.h5")
        begun = threading.Barrier(4)

        def read(store: Store = store, begun: threading.Barrier = begun) -> str:
            store.read(0)
            begun.wait(30)
            try:
                while store.read(0):
                    pass
            except ValueError as error:
                return str(error)
            return "nothing"

        with ThreadPoolExecutor(3) as threads:
            readers = [threads.submit(read) for _ in range(3)]
            begun.wait(30)
            store.close()
            said = [reader.result() for reader in readers]

        assert said == [f"{tmp_path / 'a.h5'}: the store has been closed"] * 3


def test_truncated_file_is_an_error(tmp_path: Path) -> None:
    """A file that is truncated while open is an error; HDF5 alone would return zeros."""
    path = tmp_path / "a.h5"
    with h5py.File(path, "w") as file:
        file.create_dataset("images", data=np.array([np.void(b"1\0" * 9)] * 5))
        file.create_dataset("labels", data=np.arange(5))
        file.create_dataset("names", data=np.array([b"a", b"b", b"c", b"d", b"e"]))
    with open_store(path, keys="names") as store:
        assert (store.key(1), store.target(1), store.read(1)) == ("b", 1, b"1\0" * 9)
        os.truncate(path, 2048)

        with pytest.raises(StoreError, match=r"a\.h5, item 2.*cut"):
            store.read(2)
