"""Only regular files are read; a FIFO, a socket or a device is refused at once."""

from __future__ import annotations

import os
import pickle
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fifos import readable_fifo
from processes import python
from same import assert_same
from store_cases import make

from fastdecode import (
    ImageTooLarge,
    StoreError,
    decode,
    decode_batch,
    decode_file,
)
from fastdecode._error_policy import is_item_error
from fastdecode.packing import pack, survey
from fastdecode.stores import open_store
from fastdecode.stores.tar import index_tar, stream_tar
from fastdecode.testing import drawing, encode

pytestmark = pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="there are no FIFOs here")

JPEG = encode(drawing(45, 30))


@pytest.fixture
def pipe(tmp_path: Path) -> Iterator[Path]:
    """Create a FIFO that sends an intact JPEG."""
    with readable_fifo(tmp_path / "pipe.jpg", JPEG) as path:
        yield path


READERS = {
    "decode_file": decode_file,
    "decode_batch": lambda path: decode_batch([JPEG, path], threads=2),
    "decode_batch in a thread": lambda path: decode_batch([path], threads=1),
}


@pytest.mark.parametrize("read", READERS.values(), ids=READERS)
def test_only_regular_files_are_read(
    read: Callable[[Path], Any], tmp_path: Path, pipe: Path
) -> None:
    """A FIFO, a socket, an endless device or a folder raises an OSError that names it."""
    (tmp_path / "zero").symlink_to("/dev/zero")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "socket"))
        for path in (pipe, tmp_path / "socket", tmp_path / "zero", tmp_path):
            with pytest.raises(OSError, match="FIFO" if path == pipe else path.name) as caught:
                read(path)
            assert is_item_error(caught.value)
            assert caught.value.filename == str(path)
            again = pickle.loads(pickle.dumps(caught.value))
            assert (type(again), str(again)) == (type(caught.value), str(caught.value))
    for count in (2, 40):  # whether or not the core takes the batch
        items = [tmp_path / "photo.jpg", pipe, *[tmp_path / "photo.jpg"] * (count - 2)]
        items[0].write_bytes(JPEG)
        made = decode_batch(items, threads=2, on_error="return")
        assert isinstance(made.pop(1), OSError)
        assert_same(made, [decode(JPEG)] * (count - 1))


@pytest.mark.parametrize("scheme", ["", "file://", "local://"])
def test_a_fifo_in_a_store_is_its_items_error(scheme: str, tmp_path: Path) -> None:
    """A FIFO in a folder is left out; in place of a listed image it is that item's error."""
    folder = tmp_path / "photos"
    folder.mkdir()
    listed = [folder / "a.jpg", folder / "b.jpg"]
    for path in listed:
        path.write_bytes(JPEG)
    table = tmp_path / "list.csv"
    table.write_text("".join(f"{scheme}{path},0\n" for path in listed))
    with readable_fifo(folder / "c.jpg", JPEG):
        store = open_store(f"{scheme}{folder}", targets=False)
        assert [store.key(place) for place in range(len(store))] == ["a.jpg", "b.jpg"]
    with readable_fifo(folder / "b.jpg", JPEG):
        for one in (store, open_store(f"{scheme}{table}"), open_store(listed)):
            assert bytes(one.read(0)) == JPEG
            with pytest.raises(StoreError, match=r"item 1 .*FIFO"):
                one.read(1)


@pytest.fixture
def little_memory() -> Iterator[None]:
    """Allow no more than 4 TiB of memory, whatever the system would grant."""
    resource = pytest.importorskip("resource")
    before = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (1 << 42, before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_AS, before)


@pytest.mark.usefixtures("little_memory")
def test_a_file_that_no_memory_holds_is_an_error_of_that_file(tmp_path: Path) -> None:
    """A file too large for the memory is named with its size, and skipped like any bad file."""
    folder = tmp_path / "photos"
    folder.mkdir()
    (folder / "photo.jpg").write_bytes(JPEG)
    with (folder / "video.jpg").open("wb") as file:
        file.truncate(1 << 43)

    with pytest.raises(ImageTooLarge, match=r"video\.jpg: .* 8,796,093,022,208 bytes"):
        decode_file(folder / "video.jpg")
    good, bad = decode_batch(sorted(folder.iterdir()), on_error="return")
    assert isinstance(good, np.ndarray)
    assert type(bad) is ImageTooLarge
    with open_store(folder) as store:
        assert [one.status for one in survey(store, 2)] == ["good", "unreadable"]
    packed = pack(folder, tmp_path / "photos.tar", skip_bad=True)
    assert packed.items == 1
    assert "8,796,093,022,208 bytes" in packed.bad[0][1]


FOUND: dict[str, tuple[str, str, Callable[[Path], object]]] = {
    "index of a tar": ("t-00000.tar", "t-00000.tar.fdx", lambda folder: folder / "t-00000.tar"),
    "manifest": ("t-00000.tar", "t.tar.json", lambda folder: folder / "t.tar"),
    "index of a folder": ("images", "images/fastdecode.fdx", lambda folder: folder / "images"),
    "lines of a RecordIO": ("r.rec", "r.idx", lambda folder: folder / "r.rec"),
    "shard": (
        "t-00000.tar",
        "t-00000.tar",
        lambda folder: list(stream_tar(folder / "t-00000.tar")),
    ),
    **{
        name: ("", name, lambda folder, name=name: folder / name)
        for name in ("p.tar", "p.rec", "p.csv", "p.tsv", "p.h5", "p.lmdb")
    },
    "folder of LMDB": ("", "store/data.mdb", lambda folder: folder / "store"),
}
"""A store that is made, what of it a FIFO takes the place of, and how that is read."""


@pytest.mark.parametrize(("made", "found", "read"), FOUND.values(), ids=FOUND)
def test_a_fifo_in_place_of_a_file_is_refused(
    made: str, found: str, read: Callable[[Path], Any], tmp_path: Path
) -> None:
    """Stores, their indexes, manifests and shards must be regular files."""
    if found.endswith((".h5", ".lmdb", ".mdb")):
        pytest.importorskip("h5py" if found.endswith(".h5") else "lmdb")
    if made:
        make(tmp_path / made, [("a.jpg", JPEG, 1 if made.endswith("tar") else None)])
    if found.endswith("tar.fdx"):
        index_tar(tmp_path / made)
    path = tmp_path / found
    path.parent.mkdir(exist_ok=True)
    content = path.read_bytes() if path.exists() else b'{"shards": ["t-00000.tar"]}'
    refused = pytest.raises((OSError, ValueError), match="FIFO")
    with readable_fifo(path, content), refused:
        opened = read(tmp_path)
        open_store(opened)


@pytest.mark.parametrize(
    "command",
    [
        ("pack", "{pipe}", "{folder}/out.tar"),
        ("check", "{pipe}"),
        ("bench", "{pipe}"),
    ],
    ids=lambda command: command[0],
)
def test_no_command_waits_for_a_fifo(command: tuple[str, ...], tmp_path: Path) -> None:
    """A FIFO on the command line is an error without a traceback, and no command waits for it."""
    (tmp_path / "a.jpg").write_bytes(JPEG)
    with readable_fifo(tmp_path / "list.csv", b"a.jpg,1\n") as pipe:
        words = [word.format(pipe=pipe, folder=tmp_path) for word in command]
        module = ["fastdecode.bench", *words[1:]] if words[0] == "bench" else ["fastdecode", *words]
        done = python("-m", *module)

    assert done.returncode in (1, 2)
    assert "FIFO" in done.stderr
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "out.tar").exists()
