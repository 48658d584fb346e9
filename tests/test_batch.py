"""`decode_batch`: many pictures at once."""

from __future__ import annotations

import mmap
import multiprocessing
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fastdecode
from fastdecode import DecodeError, FastDecodeError, decode, decode_batch
from fastdecode.testing import encode, picture

SIZES = tuple((20 + 3 * i, 40 - 2 * i) for i in range(12))
ITEMS = [encode(picture(*size), "png" if i % 3 == 0 else "jpeg") for i, size in enumerate(SIZES)]
ALIKE = [encode(picture(24, 16).rotate(90 * i, expand=False)) for i in range(5)]
CUT = ITEMS[1][:-60]

THREADS = pytest.mark.parametrize("threads", [1, 2, 5, None])


@THREADS
def test_results_are_in_order(threads: int | None) -> None:
    """Result i is the picture of item i, whatever the number of threads."""
    images = decode_batch(ITEMS, threads=threads)

    assert [image.shape for image in images] == [(h, w, 3) for w, h in SIZES]
    for image, item in zip(images, ITEMS, strict=True):
        np.testing.assert_array_equal(image, decode(item))


@THREADS
def test_options_are_those_of_decode(threads: int | None) -> None:
    """Every option is passed on to each item."""
    images = decode_batch(ITEMS, threads=threads, reduce=2, mode="L", region=(3, 1, 17, 12))

    for image, item in zip(images, ITEMS, strict=True):
        expected = decode(item, 2, mode="L", region=(3, 1, 17, 12))
        np.testing.assert_array_equal(image, expected)


@THREADS
def test_paths_and_bytes_may_be_mixed(threads: int | None, tmp_path: Path) -> None:
    """An item is encoded bytes of any kind, or a path given as text or as an object."""
    path = tmp_path / "photo.jpg"
    path.write_bytes(ITEMS[1])
    items = [path, ITEMS[1], str(path), bytearray(ITEMS[1]), np.frombuffer(ITEMS[1], np.uint8)]

    for image in decode_batch(items, threads=threads):
        np.testing.assert_array_equal(image, decode(ITEMS[1]))


@pytest.mark.parametrize("kind", [list, tuple, iter, lambda items: (item for item in items)])
def test_items_may_be_any_iterable(kind) -> None:
    """A generator serves as well as a list."""
    images = decode_batch(kind(ALIKE), threads=2)

    assert len(images) == len(ALIKE)


@THREADS
def test_nothing_gives_nothing(threads: int | None) -> None:
    """An empty batch is an empty list."""
    assert decode_batch([], threads=threads) == []


@THREADS
def test_first_error_is_raised_with_its_number(threads: int | None, tmp_path: Path) -> None:
    """By default the first error in the order of the items is raised, and says which item it is."""
    path = tmp_path / "cut.jpg"
    path.write_bytes(CUT)

    with pytest.raises(DecodeError, match=r"^item 2: "):
        decode_batch([*ITEMS[:2], CUT, b"", *ITEMS[2:]], threads=threads)
    with pytest.raises(DecodeError, match=r"^item 1: .*cut\.jpg: "):
        decode_batch([ITEMS[0], path], threads=threads)


@THREADS
def test_error_can_stand_in_its_place(threads: int | None, tmp_path: Path) -> None:
    """With on_error="return" an error stands where its picture would, and the others decode."""
    items = [ITEMS[0], CUT, ITEMS[1], b"no image at all", tmp_path / "missing.jpg", ITEMS[2]]

    results = decode_batch(items, threads=threads, on_error="return")

    assert [type(result).__name__ for result in results] == [
        "ndarray", "DecodeError", "ndarray", "UnsupportedFormat", "FileNotFoundError", "ndarray",
    ]  # fmt: skip
    for i, item in ((0, 0), (2, 1), (5, 2)):
        np.testing.assert_array_equal(results[i], decode(ITEMS[item]))


@THREADS
def test_missing_file_is_an_os_error_that_names_it(threads: int | None, tmp_path: Path) -> None:
    """A file that cannot be read raises what `open` raises."""
    with pytest.raises(FileNotFoundError, match=r"missing\.jpg"):
        decode_batch([ITEMS[0], tmp_path / "missing.jpg"], threads=threads)


@THREADS
@pytest.mark.parametrize("kind", ["array", "list"])
def test_out_receives_the_pictures(threads: int | None, kind: str) -> None:
    """out[i] is filled with item i, in one array of all or in a list of arrays."""
    array = np.zeros((len(ALIKE), 16, 24, 3), np.uint8)
    out = array if kind == "array" else list(array)

    images = decode_batch(ALIKE, threads=threads, out=out)

    for i, item in enumerate(ALIKE):
        np.testing.assert_array_equal(array[i], decode(item))
        assert np.shares_memory(images[i], array[i])


WRONG: dict[str, tuple[type[Exception], str, dict[str, Any]]] = {
    "on_error": (ValueError, "on_error", {"on_error": "ignore"}),
    "no threads": (ValueError, "threads", {"threads": 0}),
    "negative threads": (ValueError, "threads", {"threads": -1}),
    "half a thread": (ValueError, "threads", {"threads": 1.5}),
    "threads in words": (ValueError, "threads", {"threads": "two"}),
    "threads true": (ValueError, "threads", {"threads": True}),
    "too little room": (ValueError, "room", {"out": np.zeros((2, 16, 24, 3), np.uint8)}),
    "too much room": (ValueError, "room", {"out": [np.zeros((16, 24, 3), np.uint8)] * 9}),
    "wrong room": (ValueError, "out must", {"out": np.zeros((5, 9, 9, 3), np.uint8)}),
    "reduce": (ValueError, "reduce", {"reduce": 3}),
    "mode": (ValueError, "mode", {"mode": "BGR"}),
    "unknown option": (TypeError, "resize", {"resize": 224}),
    "backend": (fastdecode.UnknownBackend, "nobody", {"backend": "nobody"}),
}


@pytest.mark.parametrize(("kind", "words", "options"), WRONG.values(), ids=WRONG)
@pytest.mark.parametrize("on_error", ["raise", "return"])
def test_wrong_argument_is_raised(kind, words: str, options, on_error: str) -> None:
    """A mistake of the caller's is raised, also where the errors of items are returned."""
    with pytest.raises(kind, match=words):
        decode_batch(ALIKE, **{"on_error": on_error, **options})


def mapped(data: bytes) -> mmap.mmap:
    memory = mmap.mmap(-1, len(data))
    memory[:] = data
    return memory


SINGLE = {
    "bytes": ALIKE[0],
    "bytearray": bytearray(ALIKE[0]),
    "memoryview": memoryview(ALIKE[0]),
    "mmap": mapped(ALIKE[0]),
    "ndarray": np.frombuffer(ALIKE[0], np.uint8),
    "str": "photo.jpg",
    "PathLike": Path("photo.jpg"),
}


@pytest.mark.parametrize("one", SINGLE.values(), ids=SINGLE)
def test_one_picture_is_no_batch(one) -> None:
    """Who passes one picture instead of several is told of the functions for one."""
    with pytest.raises(TypeError, match=r"use decode\(\) or decode_file\(\)"):
        decode_batch(one)


def test_no_error_prefix_grows() -> None:
    """An error that is returned is the one that `decode` raises, word for word."""
    with pytest.raises(FastDecodeError) as caught:
        decode(CUT)

    [returned] = decode_batch([CUT], on_error="return")

    assert str(returned) == str(caught.value)
    assert returned.errors == caught.value.errors


def test_many_batches_at_once() -> None:
    """Several threads may each decode a batch; every one gets its own pictures in order."""
    results: dict[int, list[Any]] = {}

    def work(shift: int) -> None:
        results[shift] = decode_batch(ITEMS[shift:] + ITEMS[:shift], threads=3)

    threads = [threading.Thread(target=work, args=(shift,)) for shift in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert sorted(results) == list(range(6))
    for shift, images in results.items():
        for image, item in zip(images, ITEMS[shift:] + ITEMS[:shift], strict=True):
            np.testing.assert_array_equal(image, decode(item))


def decode_in_child(queue: Any) -> None:
    queue.put([image.tobytes() for image in decode_batch(ITEMS, threads=3)])


@pytest.mark.skipif(
    "fork" not in multiprocessing.get_all_start_methods(), reason="this system cannot fork"
)
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_forked_child_decodes_too() -> None:
    """A child forked after the parent used its threads, which it lacks, starts its own."""
    expected = [image.tobytes() for image in decode_batch(ITEMS, threads=3)]
    context = multiprocessing.get_context("fork")
    queue = context.Queue()
    child = context.Process(target=decode_in_child, args=(queue,))

    child.start()
    try:
        received = queue.get(timeout=60)
    finally:
        child.join(timeout=10)
        child.kill()

    assert received == expected
    assert [one for one in threading.enumerate() if one.name.startswith("fastdecode")]
