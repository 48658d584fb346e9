"""Batches of the native core: many files, many threads, one status each."""

from __future__ import annotations

import errno
import os
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from corpus import native_core
from fifos import readable_fifo

import fastdecode
from fastdecode import decode
from fastdecode.testing import drawing, encode

_core = native_core()
ffi, lib = _core.ffi, _core.lib

PHOTOS = sorted((Path(fastdecode.__file__).parent / "samples").glob("*.jpg"))
SMALL = [
    encode(drawing(40 + 7 * number, 30 + 5 * number), progressive=number % 3 == 0)
    for number in range(12)
]
SIDE = 24
Make = Callable[[int], Any]


class Items:
    """An array of `fd_item` with the memory that its pointers refer to."""

    def __init__(self, count: int) -> None:
        self.count = count
        self.array = ffi.new("fd_item[]", count)
        self.alive: list[Any] = [None] * count
        self.outs: list[np.ndarray] = [np.empty(0, np.uint8)] * count

    def take(self, sources: list[bytes | Path]) -> None:
        for number, source in enumerate(sources):
            item = self.array[number]
            if isinstance(source, Path):
                self.alive[number] = ffi.new("char[]", os.fsencode(source))
                item.path, item.data, item.size = self.alive[number], ffi.NULL, 0
            else:
                self.alive[number] = ffi.from_buffer("uint8_t[]", source)
                item.path, item.data, item.size = ffi.NULL, self.alive[number], len(source)

    def open(self, pool: Any, sources: list[bytes | Path]) -> list[int]:
        self.take(sources)
        lib.fd_pool_open(pool, self.array, len(sources))
        return self.statuses(len(sources))

    def decode(self, pool: Any, count: int) -> list[int]:
        for number in range(count):
            item = self.array[number]
            item.wanted = item.status == lib.FD_OK
            if item.wanted:
                self.outs[number] = ask(item, resized=False)
        lib.fd_pool_decode(pool, self.array, count, ffi.NULL)
        return self.statuses(count)

    def statuses(self, count: int) -> list[int]:
        return [self.array[number].status for number in range(count)]

    def words(self, number: int) -> str:
        text: bytes = ffi.string(self.array[number].message)
        return text.decode()


def ask(item: Any, *, resized: bool) -> np.ndarray:
    """Fill in the request of an item, and return the array for its result."""
    header = item.header
    item.resized, item.request.reduce, item.request.layout = resized, 1, lib.FD_RGB
    item.request.strict = 1
    if resized:
        resize = item.resize
        resize.right = resize.in_right = header.width
        resize.bottom = resize.in_bottom = header.height
        resize.canvas_width = resize.canvas_height = resize.width = resize.height = SIDE
    out = np.zeros((SIDE, SIDE, 3) if resized else (header.height, header.width, 3), np.uint8)
    item.out, item.stride = ffi.cast("void *", out.ctypes.data), 3 * header.width
    return out


@pytest.fixture
def items() -> Iterator[Make]:
    """Make arrays of items, and free the core's memory in them."""
    made: list[Items] = []

    def make(count: int) -> Items:
        made.append(Items(count))
        return made[-1]

    yield make
    for one in made:
        lib.fd_items_free(one.array, one.count)
        assert {one.array[number].capacity for number in range(one.count)} <= {0}


@pytest.fixture
def pool() -> Iterator[Make]:
    """Make pools, and end their threads."""
    made: list[Any] = []

    def make(threads: int) -> Any:
        made.append(lib.fd_pool_create(threads))
        return made[-1]

    yield make
    for one in made:
        lib.fd_pool_destroy(one)


@pytest.mark.parametrize("threads", [1, 3])
def test_each_item_has_its_own_fate(threads: int, tmp_path: Path, pool: Make, items: Make) -> None:
    """Good files decode next to damaged, missing and empty ones, a folder, and other files."""
    photo = PHOTOS[0].read_bytes()
    (tmp_path / "empty.jpg").touch()
    (tmp_path / "cut.jpg").write_bytes(photo[: len(photo) // 2])
    gone, empty, cut = (tmp_path / name for name in ("gone.jpg", "empty.jpg", "cut.jpg"))
    png = encode(drawing(9, 9), "png")
    sources = [PHOTOS[0], gone, photo, empty, cut, tmp_path, png, photo[:90]]
    made, ours = items(len(sources)), pool(threads)

    opened = made.open(ours, sources)
    open_words = [made.words(number) for number in range(len(sources))]
    codes = [made.array[number].code for number in range(len(sources))]
    decoded = made.decode(ours, len(sources))

    ok, io, none = lib.FD_OK, lib.FD_IO, lib.FD_UNSUPPORTED
    assert opened == [ok, io, ok, none, ok, io, none, lib.FD_DAMAGED]
    assert codes == [0, errno.ENOENT, 0, 0, 0, errno.EISDIR, 0, 0]
    assert open_words[1::4] == [os.strerror(errno.ENOENT), os.strerror(errno.EISDIR)]
    assert [bool(words) for words in open_words] == [status != ok for status in opened]
    assert decoded[4] in (lib.FD_WARNED, lib.FD_DAMAGED)
    assert decoded == [*opened[:4], decoded[4], *opened[5:]]
    assert "premature" in made.words(4).lower()
    for number in (0, 2):
        np.testing.assert_array_equal(made.outs[number], decode(photo))


def test_an_item_that_is_not_wanted_is_left_alone(pool: Make, items: Make) -> None:
    """The pixels and status of an item that is not wanted do not change."""
    made, ours = items(2), pool(2)
    made.open(ours, SMALL[:2])
    out = ask(made.array[1], resized=False)
    made.array[1].wanted, made.array[1].status = 0, lib.FD_WARNED
    made.outs[0] = ask(made.array[0], resized=False)
    made.array[0].wanted = 1

    lib.fd_pool_decode(ours, made.array, 2, ffi.NULL)

    assert made.statuses(2) == [lib.FD_OK, lib.FD_WARNED]
    assert not out.any()
    np.testing.assert_array_equal(made.outs[0], decode(SMALL[0]))


def test_wrong_items_are_refused(pool: Make, items: Make) -> None:
    """An item without image, memory or kind of pixels fails alone."""
    made, ours = items(4), pool(2)

    assert made.open(ours, SMALL[:3]) == [lib.FD_OK] * 3
    lib.fd_pool_open(ours, made.array + 3, 1)
    assert made.array[3].status == lib.FD_ARGUMENT
    for number in range(4):
        ask(made.array[number], resized=number == 2)
        made.array[number].wanted = 1
    made.array[1].out = ffi.NULL
    made.outs[0] = ask(made.array[0], resized=False)
    lib.fd_pool_decode(ours, made.array, 4, ffi.NULL)

    assert made.statuses(4) == [lib.FD_OK, *[lib.FD_ARGUMENT] * 3]


def test_buffers_are_kept_and_let_go(tmp_path: Path, pool: Make, items: Make) -> None:
    """A buffer is reused for the next file unless it is far too large."""
    made, ours = items(1), pool(1)
    sizes = {"photo": 0, "large": 3 << 20, "huge": 40 << 20}
    capacities = {}
    for name in ("photo", "large", "photo", "huge", "large", "huge", "photo"):
        data = SMALL[5] + bytes(sizes[name])
        (tmp_path / name).write_bytes(data)
        made.open(ours, [tmp_path / name])
        item = made.array[0]
        capacities.setdefault(name, []).append(item.capacity)

        assert (item.status, item.size, item.data) == (lib.FD_OK, len(data), item.buffer)
        assert item.capacity >= len(data) + 16
        assert bytes(ffi.buffer(item.data, item.size)) == data
        assert bytes(ffi.buffer(item.data + item.size, 16)) == bytes(16)

    # The photo fits where the large file was, but what held the huge one is given back.
    assert capacities["photo"][1] == capacities["large"][0]
    assert capacities["large"][1] < capacities["huge"][0]
    assert capacities["photo"][2] < 1 << 20


def test_only_regular_files_are_read(tmp_path: Path, pool: Make, items: Make) -> None:
    """A pipe, device, socket or folder is an error; a file that reports size 0 is read."""
    made, ours = items(1), pool(2)
    (tmp_path / "zero").symlink_to("/dev/zero")
    with readable_fifo(tmp_path / "pipe", SMALL[7]), socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "socket"))
        errors = {"pipe": "EINVAL", "zero": "EINVAL", "socket": "ENXIO", "": "EISDIR"}
        for name, code in errors.items():
            assert made.open(ours, [tmp_path / name]) == [lib.FD_IO]
            assert made.array[0].code == getattr(errno, code)
            assert (made.array[0].data, made.array[0].size) == (ffi.NULL, 0)
    system = Path("/proc/self/status")
    if system.exists():
        assert made.open(ours, [system]) == [lib.FD_UNSUPPORTED]
        assert made.array[0].size > 0


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="there is no /proc here")
def test_nothing_is_left_open(tmp_path: Path, pool: Make, items: Make) -> None:
    """Files are closed in any case, and threads end with their pool."""
    made, files, tasks = items(3), Path("/proc/self/fd"), Path("/proc/self/task")
    before = len(list(files.iterdir())), len(list(tasks.iterdir()))
    for _ in range(20):
        ours = lib.fd_pool_create(5)
        made.open(ours, [PHOTOS[0], tmp_path, tmp_path / "gone.jpg"])
        lib.fd_pool_destroy(ours)

    assert len(list(files.iterdir())) == before[0]
    # The system may list a thread for a moment after its end; there were a hundred.
    assert len(list(tasks.iterdir())) < before[1] + 20


def test_the_smallest_calls(pool: Make) -> None:
    """A pool needs a thread, a call may have no items, and freeing nothing is allowed."""
    assert lib.fd_pool_create(0) == ffi.NULL
    assert lib.fd_pool_create(-3) == ffi.NULL
    ours = pool(1)
    lib.fd_pool_open(ours, ffi.NULL, 0)
    lib.fd_pool_decode(ours, ffi.NULL, 0, ffi.NULL)
    lib.fd_items_free(ffi.NULL, 0)
    lib.fd_pool_destroy(ffi.NULL)
