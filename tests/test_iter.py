"""`decode_iter`: any number of images, in order, a few at a time."""

from __future__ import annotations

import gc
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from doubles import double, flat, own_registry  # noqa: F401

from fastdecode import (
    BackendUnavailable,
    DecodeError,
    UnknownBackend,
    decode,
    decode_batch,
    decode_iter,
    register,
)
from fastdecode.samples import photo
from fastdecode.testing import drawing, encode

SIZES = tuple((20 + 3 * i, 40 - 2 * i) for i in range(12))
ITEMS = [encode(drawing(*size), "png" if i % 3 == 0 else "jpeg") for i, size in enumerate(SIZES)]
CUT = ITEMS[1][:-60]
THREADS = pytest.mark.parametrize("threads", [1, 2, 5, None])


class Counted:
    """Gives the same item for ever, and counts how often it was asked."""

    def __init__(self, item: Any = ITEMS[1]) -> None:
        self.item = item
        self.asked = 0

    def __iter__(self) -> Iterator[Any]:
        while True:
            self.asked += 1
            yield self.item


@THREADS
@pytest.mark.parametrize("options", [{}, {"reduce": 2, "mode": "L"}, {"size": (9, 7)}], ids=str)
def test_images_come_in_order(threads: int | None, options: dict[str, Any]) -> None:
    """Image i is that of item i, bit-identical with that of `decode_batch`, with every option."""
    expected = decode_batch(ITEMS, threads=1, **options)

    found = list(decode_iter(iter(ITEMS), threads=threads, **options))

    assert len(found) == len(ITEMS)
    for image, other in zip(found, expected, strict=True):
        np.testing.assert_array_equal(image, other)


@THREADS
def test_items_are_taken_as_images_are_wanted(threads: int | None) -> None:
    """Of an endless generator no more is read than so many ahead of the loop."""
    items = Counted()
    images = decode_iter(items, threads=threads, ahead=3)

    before = items.asked
    for _ in range(10):
        next(images)
    images.close()

    assert before == 0
    assert 10 <= items.asked <= 13


@pytest.mark.usefixtures("own_registry")
@pytest.mark.parametrize("end", ["close", "collect", "error in the loop"])
def test_nothing_goes_on_once_the_loop_is_left(end: str) -> None:
    """Leaving the loop waits for what has begun, and nothing else begins."""
    lock, made = threading.Lock(), [0, 0]

    def answer(data: Any, header: Any, **asked: Any) -> Any:
        with lock:
            made[0] += 1
        threading.Event().wait(0.01)
        image = flat(5)(data, header, **asked)
        with lock:
            made[1] += 1
        return image

    register("slow", double(answer))

    def loop() -> None:
        for _ in decode_iter(Counted(), threads=2, ahead=8, backend="slow"):
            if end == "error in the loop":
                raise RuntimeError("the caller's own")
            if end == "collect":
                return
            break

    if end == "error in the loop":
        with pytest.raises(RuntimeError, match="own"):
            loop()
    else:
        loop()
    gc.collect()

    begun, finished = made
    assert begun == finished
    threading.Event().wait(0.1)
    assert made == [begun, finished]


@THREADS
def test_an_error_comes_in_its_turn(threads: int | None, tmp_path: Path) -> None:
    """The images before it come first; it says which item it is, as that of `decode_batch`."""
    path = tmp_path / "cut.jpg"
    path.write_bytes(CUT)
    images = decode_iter([*ITEMS[:3], path, b"", *ITEMS], threads=threads)

    assert [next(images).shape for _ in range(3)] == [(h, w, 3) for w, h in SIZES[:3]]
    with pytest.raises(DecodeError, match=r"^item 3: .*cut\.jpg: "):
        next(images)
    assert list(images) == []


@THREADS
def test_error_can_stand_in_its_place(threads: int | None, tmp_path: Path) -> None:
    """With on_error="return" an error comes where its image would, and the others follow."""
    items = [ITEMS[0], CUT, tmp_path / "missing.jpg", ITEMS[2]]

    found = list(decode_iter(items, threads=threads, on_error="return", size=8))

    assert [type(one).__name__ for one in found] == [
        "ndarray", "DecodeError", "FileNotFoundError", "ndarray",
    ]  # fmt: skip
    assert found[0].shape == found[3].shape == (8, 8, 3)


@THREADS
def test_an_error_of_the_items_comes_after_the_images_before_it(threads: int | None) -> None:
    """What the caller's own generator raises arrives unchanged, when its turn comes."""

    def items() -> Iterator[bytes]:
        yield from ITEMS[:5]
        raise ConnectionError("the list ends here")

    images = decode_iter(items(), threads=threads)

    assert len([next(images) for _ in range(5)]) == 5
    with pytest.raises(ConnectionError, match="the list ends here"):
        next(images)
    assert list(images) == []


WRONG: dict[str, tuple[type[Exception], str, dict[str, Any]]] = {
    "on_error": (ValueError, "on_error", {"on_error": "ignore"}),
    "threads": (ValueError, "threads", {"threads": 0}),
    "ahead": (ValueError, "ahead", {"ahead": 0}),
    "half": (ValueError, "ahead", {"ahead": 1.5}),
    "size": (ValueError, "size", {"size": 0}),
    "mode": (ValueError, "size needs mode", {"size": 8, "mode": "RGBA"}),
    "unknown": (TypeError, "resize", {"resize": 224}),
    "out": (ValueError, "no out", {"out": np.zeros((1, 8, 8, 3), np.uint8)}),
    "device": (TypeError, "device", {"device": "cpu"}),
    "nobody": (UnknownBackend, "nobody", {"backend": "nobody"}),
}


@pytest.mark.parametrize(("kind", "words", "options"), WRONG.values(), ids=WRONG)
def test_a_wrong_argument_is_raised_at_the_call(
    kind: type[Exception], words: str, options: dict[str, Any]
) -> None:
    """Nobody has to take an image to learn of it."""
    items = Counted()

    with pytest.raises(kind, match=words):
        decode_iter(items, **options)

    assert items.asked == 0


@pytest.mark.parametrize("items", [photo, str(photo), b"bytes", 5], ids=["path", "str", "b", "int"])
def test_one_image_is_no_iterable_of_them(items: Any) -> None:
    """Who passes one image, or no iterable, is told at the call."""
    with pytest.raises(TypeError, match=r"several items|not iterable"):
        decode_iter(items)


@pytest.mark.usefixtures("own_registry")
def test_backend_that_cannot_be_used_is_raised_at_the_call() -> None:
    """A named backend whose library is missing is no error of an item."""
    register("absent", "no_such_module:Thing")

    with pytest.raises(BackendUnavailable, match="no_such_module"):
        decode_iter([], backend="absent", on_error="return")


def _rest_in_child(images: Any, queue: Any) -> None:
    queue.put([image.tobytes() for image in images])


@pytest.mark.skipif(
    "fork" not in multiprocessing.get_all_start_methods(), reason="this system cannot fork"
)
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_forked_child_goes_on() -> None:
    """A child forked in the middle of a loop lacks the threads, and makes the rest by its own."""
    expected = [decode(item).tobytes() for item in ITEMS]
    images = decode_iter(ITEMS, threads=3)
    first = [next(images).tobytes() for _ in range(4)]
    context = multiprocessing.get_context("fork")
    queue = context.Queue()
    child = context.Process(target=_rest_in_child, args=(images, queue))

    child.start()
    try:
        received = queue.get(timeout=60)
    finally:
        child.join(timeout=10)
        child.kill()

    assert first + received == expected
    assert [image.tobytes() for image in images] == expected[4:]


@pytest.mark.skipif(os.name == "nt", reason="signals are sent otherwise there")
def test_ctrl_c_ends_the_loop() -> None:
    """An interrupt arrives in the loop at once, although items without end are left."""
    script = f"""
import itertools
from fastdecode import decode_iter
for number, image in enumerate(decode_iter(itertools.repeat({str(photo)!r}))):
    if number == 5:
        print("running", flush=True)
"""
    run = subprocess.Popen(
        [sys.executable, "-c", script], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert run.stdout is not None
    assert run.stdout.readline() == "running\n"

    run.send_signal(signal.SIGINT)

    _, errors = run.communicate(timeout=60)
    assert "KeyboardInterrupt" in errors
    assert run.returncode in (1, 130, -signal.SIGINT)
