"""The core's batches from Python: reading, decoding and resizing many images at once."""

from __future__ import annotations

import gc
import mmap
import os
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from itertools import accumulate
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from corpus import TESTS
from processes import answers, resident
from same import assert_same

import fastdecode
from fastdecode.native import _library
from fastdecode.native._augment import resized_to
from fastdecode.native._pool import Items, Pool
from fastdecode.stores._ranges import Ranges
from fastdecode.testing import drawing, encode

_WINDOWS = os.name == "nt"
FILES = sorted((Path(fastdecode.__file__).parent / "samples").glob("*.jpg"))
BYTES = _library.stored(None, channels_first=False)
SIDE = 20


@pytest.fixture(name="pool")
def _pool() -> Any:
    pool = Pool(3)
    yield pool
    pool.close()


def resize_of(width: Any, height: Any) -> _library.CoreResize:
    """Resize the whole image to a small square, from the left edge of a larger canvas."""
    whole = (0, 0, int(width), int(height))
    return _library.CoreResize(1, *whole, *whole, 2 * SIDE, SIDE, 0, 0, SIDE, SIDE, flip=False)


def made(
    pool: Any, items: Items, sources: list[Any], wanted: Any = None
) -> tuple[list[bool], np.ndarray]:
    """Resize all of them, or those that are wanted."""
    headers = items.read(pool, sources)
    out = np.full((len(sources), SIDE, SIDE, 3), 7, np.uint8)
    wanted = np.flatnonzero(headers.readable).tolist() if wanted is None else wanted
    resizes = [resize_of(headers.width[at], headers.height[at]) for at in wanted]
    return items.resize(pool, wanted, resizes, BYTES, out.ctypes.data, out.strides[0]), out


def test_what_cannot_be_read_does_not_touch_the_others(pool: Pool, tmp_path: Path) -> None:
    """Missing files, impossible names and files that are not JPEGs are only not readable.

    Paths may have any letters and length, also on Windows, where the usual functions are for short
    ones in one language.
    """
    paths = [tmp_path / name for name in ("ü 漢字 🙂.jpg", "/".join(["long" * 30] * 6))]
    paths += [] if _WINDOWS else [tmp_path / "with\nnew line and ü"]
    named: list[str] = []
    for path in paths:
        whole = Path(f"\\\\?\\{path}") if _WINDOWS else path
        whole.parent.mkdir(parents=True, exist_ok=True)
        whole.write_bytes(FILES[0].read_bytes())
        named += (str(path), str(whole), os.path.relpath(path))
    wrong: list[Any] = [
        "",
        "no such file",
        "nul\0byte",
        "\udfff\ud800",
        str(tmp_path),
        b"",
        b"GIF8",
    ]
    sources = [str(FILES[0]), *wrong, None, *named, FILES[1].read_bytes()]

    headers = Items().read(pool, sources)

    assert headers.readable.tolist() == [True, *[False] * 8, *[True] * (len(named) + 1)]
    assert {*headers.width[9:-1]} == {headers.width[0]}


def test_what_can_be_planned_is_made_in_one_call(pool: Pool, tmp_path: Path) -> None:
    """`crop` reads and decodes, and returns which items are left and which failed."""
    data, large = FILES[0].read_bytes(), tmp_path / "large.jpg"
    large.write_bytes(data + bytes(65 << 20) + data[-2:])
    torn = data[: len(data) // 2] + b"\xff\xd9"
    steps = resized_to((SIDE, SIDE), "own")
    fields = {"program": steps.core, "width": SIDE, "height": SIDE, "pixels": 1 << 24}
    crop = _library.ffi.new("fd_recipe *", fields)
    sources = [data, "no such file", data[:-2], str(FILES[1]), torn, None, str(large)]
    items, out = Items(), np.zeros((len(sources), SIDE, SIDE, 3), np.uint8)
    place = out.ctypes.data, out.strides[0]

    made_of, left = items.make(pool, sources, range(len(sources)), crop, BYTES, *place)

    assert (list(made_of), left) == ([0, 3, 6], [2])  # without an end marker
    for at in made_of:
        alone, headers = np.zeros((SIDE, SIDE, 3), np.uint8), items.headers()
        whole = (0, 0, int(headers.width[at]), int(headers.height[at]))
        resize = _library.CoreResize(1, *whole, *whole, SIDE, SIDE, 0, 0, SIDE, SIDE, flip=False)
        assert _library.decode_resized(bytes(items.data(at)), resize, BYTES, alone.ctypes.data)
        assert_same(out[at], alone, at)
    assert not out[[1, 2, 5]].any()
    before = resident()
    items.clear()
    assert before is None or before - resident() > 60e6  # the large one was there
    assert list(items.make(pool, [data] * 3, [1, 2, 3], crop, BYTES, *place)[0]) == [0, 1, 2]


def test_ranges_of_a_file_are_as_good_as_bytes(pool: Pool, tmp_path: Path) -> None:
    """`crop` makes and leaves the same items, and a file that is cut meanwhile gives no pixels."""
    data = FILES[0].read_bytes()
    parts = [data, data[:-2], data[: len(data) // 2] + b"\xff\xd9", *[FILES[1].read_bytes()] * 5]
    file = tmp_path / "images"
    file.write_bytes(b"".join(parts))
    ranges = Ranges(str(file))
    ends = list(accumulate(map(len, parts)))
    views = [ranges.read(end - len(part), len(part)) for end, part in zip(ends, parts, strict=True)]
    if not _WINDOWS:  # which does not cut a mapped file
        os.truncate(file, ends[-1] - 1)
    steps = resized_to((SIDE, SIDE), "own")
    fields = {"program": steps.core, "width": SIDE, "height": SIDE, "pixels": 1 << 24}
    crop = _library.ffi.new("fd_recipe *", fields)
    results = []
    for sources in (views, [*parts[:-1], parts[-1] if _WINDOWS else None]):
        with pool.items() as items:
            out = np.zeros((len(sources), SIDE, SIDE, 3), np.uint8)
            place = out.ctypes.data, out.strides[0]
            made_of, left = items.make(pool, sources, range(len(sources)), crop, BYTES, *place)
            assert list(made_of) == [0, 3, 4, 5, 6, *([7] if _WINDOWS else [])]
            assert list(left) == [1]
            assert bytes(items.data(1)) == parts[1]
            results.append((items, out))

    (first, ours), (second, theirs) = results
    assert_same(ours, theirs)
    assert ours[-2].any()
    assert ours[-1].any() == _WINDOWS
    assert first is second  # with the buffers that it has


def test_sources_are_let_go(pool: Pool, tmp_path: Path) -> None:
    """After `clear` no mapped file is open."""
    path = tmp_path / "image.jpg"
    path.write_bytes(FILES[0].read_bytes())
    items = Items()
    with path.open("rb") as file:
        mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        assert items.read(pool, [mapped]).readable.all()
        with pytest.raises(BufferError):
            mapped.close()
        items.clear()
        mapped.close()


@pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="there is no /proc here")
def test_a_file_may_be_longer_than_it_says(pool: Pool) -> None:
    """Such as one of /proc, which says that it is empty: all of it is read."""
    words = {name: os.urandom(50_000).hex() for name in "abc"}
    code = "print(flush=True); input()"
    process = subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=words
    )
    with process:
        assert process.stdout is not None
        process.stdout.readline()
        path, items = f"/proc/{process.pid}/environ", Items()
        items.read(pool, [path])
        found = bytes(items.data(0))
        process.communicate(b"\n")

    assert found == b"".join(f"{name}={word}\0".encode() for name, word in words.items())


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="there is no /proc here")
def test_no_file_is_left_open(pool: Pool, tmp_path: Path) -> None:
    """Files are closed whether they can be read or not."""
    sources = [str(FILES[0]), str(tmp_path), str(tmp_path / "gone.jpg"), "/dev/zero"]
    opened, items = Path("/proc/self/fd"), Items()
    items.read(pool, sources)
    before = len(list(opened.iterdir()))
    for _ in range(20):
        assert items.read(pool, sources).readable.tolist() == [True, False, False, False]
        items.clear()

    assert len(list(opened.iterdir())) <= before


@pytest.mark.skipif(resident() is None, reason="memory is looked up in /proc")
def test_much_memory_is_not_kept(tmp_path: Path) -> None:
    """Buffers of large files are freed after the batch, and others are kept."""
    code = """
import gc
from processes import resident
from fastdecode.native._pool import Items, Pool
pool = Pool(2)
for size in (40 << 20, 65 << 20):
    items = Items()
    items.read(pool, [f"{size}.jpg"])
    read = resident()
    items.clear()
    freed_by_clear = (read - resident()) / size
    del items
    gc.collect()
    answers[str(size >> 20)] = freed_by_clear, (read - resident()) / size
"""
    for size in (40 << 20, 65 << 20):
        (tmp_path / f"{size}.jpg").write_bytes(FILES[0].read_bytes() + bytes(size))

    # In a process of its own: libraries may have told malloc to keep what is freed.
    code = f"import os\nos.chdir({str(tmp_path)!r})\n{code}"
    found = answers(code, TESTS / "support")

    assert found["40"][0] < 0.9 < found["40"][1]
    assert found["65"][0] > 0.9


@pytest.mark.parametrize("most", [_library.lib.FD_SCANS, 5])
def test_the_core_is_as_strict_and_as_limited_as_decode(most: int, pool: Pool) -> None:
    """The core refuses truncated files, warnings of the codec, and too many scans."""
    plain = encode(drawing(32, 32))
    odd = plain[:-2] + b"\x11" * 40 + plain[-2:]
    torn = plain[: len(plain) // 2] + b"\xff\xd9"
    progressive = encode(drawing(32, 32), progressive=True)  # in ten scans
    sources, expected = [plain, torn, odd, progressive], [True, False, False, most > 10]
    items, outs = Items(), [np.zeros((32, 32, 3), np.uint8) for _ in sources]
    items.read(pool, sources)
    items._rows["scans"] = most
    part = (0, 0, 32, 32, 1, _library.LAYOUTS["RGB"])

    assert items.decode(pool, range(4), [part] * 4, outs) == expected
    assert made(pool, items, sources)[0] == expected


@pytest.mark.parametrize("threads", [1, 4])
def test_many_threads_use_a_pool_at_once(threads: int) -> None:
    """Batches of several Python threads do not mix, for any size and source.

    It may be closed at any time: a later call starts the threads again. Items that are not wanted
    keep their memory.
    """
    pool, together = Pool(threads), threading.Barrier(6)
    datas = [path.read_bytes() for path in FILES]
    wholes = [fastdecode.decode(data) for data in datas]
    expected = made(pool, Items(), datas)[1]

    def use(turn: int) -> None:
        items, random = Items(), np.random.default_rng(turn)
        together.wait()
        for count in (1, 5, 12, 1, 3) * 2:
            chosen = random.integers(len(FILES), size=count).tolist()
            sources = [datas[at] if random.integers(2) else str(FILES[at]) for at in chosen]
            some = sorted(random.choice(count, max(1, count // 2), replace=False).tolist())
            done, out = made(pool, items, sources, some)
            whole = [np.zeros_like(wholes[at]) for at in chosen]
            parts = [(0, 0, 0, 0, 1, _library.LAYOUTS["RGB"])] * count

            assert done == [True] * len(some)
            assert items.decode(pool, range(count), parts, whole) == [True] * count
            for at, number in enumerate(chosen):
                assert_same(out[at], expected[number] if at in some else np.full_like(out[at], 7))
                assert_same(whole[at], wholes[number], at)
            if turn == 0:
                pool.close()

    with ThreadPoolExecutor(6) as callers:
        for done in [callers.submit(use, turn) for turn in range(6)]:
            done.result()
    pool.close()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")
@pytest.mark.filterwarnings("ignore:.*use of fork.*:DeprecationWarning")
def test_a_forked_child_has_threads_of_its_own(pool: Pool) -> None:
    """A forked child can use the parent's pool, and ends without hanging."""
    items = Items()
    expected = made(pool, items, [str(path) for path in FILES])[1]
    pid = os.fork()
    if not pid:
        try:
            same = np.array_equal(made(pool, items, [str(path) for path in FILES])[1], expected)
            pool.close()
            gc.collect()
        finally:
            os._exit(0 if same else 1)

    assert os.waitpid(pid, 0)[1] == 0


@pytest.mark.skipif(sys.platform != "linux", reason="threads are counted by /proc")
def test_threads_are_started_late_and_end() -> None:
    """No thread runs before the first call, or after `close`."""
    code = """
import os, time
from fastdecode.native._pool import Items, Pool
count = lambda: len(os.listdir("/proc/self/task"))
pool, before = Pool(3), count()
Items().read(pool, [None])
answers["started"] = count() - before
pool.close()
limit = time.monotonic() + 60
while count() > before:
    assert time.monotonic() < limit
    time.sleep(0.01)
"""
    assert answers(code)["started"] == 6
