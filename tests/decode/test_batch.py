"""`decode_batch` and `decode_iter`: many images at once, or in order, a few at a time."""

from __future__ import annotations

import gc
import io
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cases import examples
from doubles import double, flat, own_registry  # noqa: F401
from encoded import mapped
from hypothesis import example, given, settings
from hypothesis import strategies as st
from PIL import Image as PillowImage
from PIL import ImageOps
from same import assert_raises, assert_same

from fastdecode import (
    BackendUnavailable,
    DecodeError,
    FastDecodeError,
    ImageTooLarge,
    UnknownBackend,
    UnsupportedFormat,
    decode,
    decode_batch,
    decode_iter,
    register,
)
from fastdecode.samples import photo, photos
from fastdecode.testing import drawing, encode

SIZES = tuple((20 + 3 * i, 40 - 2 * i) for i in range(12))
ITEMS = [encode(drawing(*size), "png" if i % 3 == 0 else "jpeg") for i, size in enumerate(SIZES)]
ALIKE = [encode(drawing(24, 16).rotate(90 * i, expand=False)) for i in range(5)]
CUT = ITEMS[1][:-60]
JPEG = encode(drawing(24, 16))
SHAPE = (16, 24, 3)
THREADS = pytest.mark.parametrize("threads", [1, 2, 5, None])
BOTH = pytest.mark.parametrize("function", [decode_batch, decode_iter])


@THREADS
@BOTH
@pytest.mark.parametrize(
    "options", [{}, {"reduce": 2, "mode": "L", "region": (3, 1, 17, 12)}, {"size": (9, 7)}], ids=str
)
def test_results_are_in_order(function: Any, threads: int | None, options: dict[str, Any]) -> None:
    """Result i is the image of item i with all options, for any number of threads."""
    images = list(function(iter(ITEMS), threads=threads, **options))

    assert options or [image.shape for image in images] == [(h, w, 3) for w, h in SIZES]
    alone = [decode(item, **options) for item in ITEMS] if "size" not in options else None
    expected = decode_batch(ITEMS, threads=1, **options) if alone is None else alone
    assert_same(images, list(expected))


WRONG_ITEMS: dict[str, tuple[list[Any], dict[str, Any], type[Exception], str]] = {
    "damaged": ([*ITEMS[:2], CUT, b"", *ITEMS[2:]], {}, DecodeError, "item 2: "),
    "of a size": ([photo, CUT, b""], {"size": 16}, DecodeError, "item 1: "),
    "too large": (ITEMS, {"max_side": 9, "max_pixels": 10}, ImageTooLarge, "item 0: "),
    "outside": ([JPEG, ITEMS[0]], {"region": (0, 0, 24, 16)}, ValueError, "item 1: region"),
    **{
        f"outside, {name}": (
            [photo, ITEMS[0]],
            {name: 16, "region": (0, 0, 200, 100)},
            ValueError,
            "item 1: region",
        )
        for name in ("size", "max_side")
    },
    **{
        type(item).__name__: ([JPEG, JPEG, JPEG, item, JPEG], {}, TypeError, "item 3: data")
        for item in (None, 5, np.zeros(SHAPE, np.uint8))
    },
}
"""Items and options, and the error that decoding them raises."""


@THREADS
@BOTH
@pytest.mark.parametrize("on_error", ["raise", "return"])
@pytest.mark.parametrize("wrong", WRONG_ITEMS)
def test_first_error_is_raised_with_its_number(
    wrong: str, on_error: str, function: Any, threads: int | None
) -> None:
    """The first error has the item's index; one of the caller's is raised for any on_error."""
    items, options, kind, words = WRONG_ITEMS[wrong]
    if on_error == "return" and issubclass(kind, FastDecodeError):
        return

    with pytest.raises(kind, match=f"^{words}"):
        list(function(items, threads=threads, on_error=on_error, **options))


@THREADS
@BOTH
@pytest.mark.parametrize("options", [{}, {"size": 8}], ids=str)
def test_error_can_stand_in_its_place(
    function: Any, threads: int | None, options: dict[str, Any], tmp_path: Path
) -> None:
    """With on_error="return" an error is in the place of its image, and the others decode."""
    items = [ITEMS[0], CUT, ITEMS[1], b"no image at all", tmp_path / "missing.jpg", ITEMS[2]]

    results = function(items, threads=threads, on_error="return", **options)

    assert isinstance(results, list) == (function is decode_batch)
    results = list(results)
    assert [type(result).__name__ for result in results] == [
        "ndarray", "DecodeError", "ndarray", "UnsupportedFormat", "FileNotFoundError", "ndarray",
    ]  # fmt: skip
    for i, item in ((0, 0), (2, 1), (5, 2)):
        assert_same(results[i], decode_batch([ITEMS[item]], **options)[0], i)
    with pytest.raises(DecodeError) as caught:
        decode(CUT)
    assert options or str(results[1]) == str(caught.value)  # without the number of an item


@THREADS
@pytest.mark.parametrize("kind", ["array", "list", "of a size"])
def test_out_receives_the_images(threads: int | None, kind: str) -> None:
    """out[i] receives item i, in one array or in a list of arrays; with `size` it is returned."""
    array = np.zeros((len(ALIKE), 16, 24, 3), np.uint8)
    out = list(array) if kind == "list" else array
    options = {"size": (16, 24)} if kind == "of a size" else {}

    images = decode_batch(ALIKE, threads=threads, out=out, **options)

    assert (images is out) == (kind == "of a size")
    for i, item in enumerate(ALIKE):
        assert_same(array[i], decode(item), i)
        assert np.shares_memory(images[i], array[i])


@pytest.mark.parametrize("on_error", ["raise", "return"])
def test_wrong_room_is_raised(on_error: str) -> None:
    """Arrays of the wrong shape, or that overlap, are refused, even if errors are returned."""
    whole = np.zeros((len(ALIKE), *SHAPE), np.uint8)
    memory = np.zeros((17, *SHAPE[1:]), np.uint8)
    wrong: list[tuple[Any, dict[str, Any], str]] = [
        (whole[:2], {}, "out"),
        ([whole[0]] * 9, {}, "out"),
        (np.zeros((5, 9, 9, 3), np.uint8), {}, "out"),
        *(
            (out, {}, r"out\[0\].*out\[1\]")
            for out in ([memory[:16]] * 5, [memory[1:], memory[:16]])
        ),
        *(
            (out, {"size": SHAPE[:2]}, "out")
            for out in (whole[:, :11], whole[:-1], whole[..., 0], whole.astype("f4"), list(whole))
        ),
    ]
    for at, (out, options, told) in enumerate(wrong):
        items = ALIKE[: len(out)] if "0" in told else ALIKE
        call = partial(decode_batch, items, on_error=on_error, out=out, **options)
        assert_raises((TypeError, ValueError), told, call, at)
    assert not memory.any()


WRONG: list[tuple[type[Exception], dict[str, Any]]] = [
    (ValueError, {"on_error": "ignore"}),
    *((ValueError, {"threads": value}) for value in (0, -1, 1.5, "two", True)),
    (TypeError, {"resize": 224}),
    (TypeError, {"data": ALIKE[0]}),
    (ValueError, {"mode": "BGR"}),
    (ValueError, {"size": (4, 0)}),
    (ValueError, {"size": 4, "mode": "RGBA"}),
    (ValueError, {"reduce": 3}),
    *((ValueError, {"max_side": value}) for value in (0, "256", (9, 9), True)),
    *((ValueError, {"max_side": 9, name: 9}) for name in ("size", "min_size")),
    *((ValueError, {"max_side": 9, "reduce": 2}), (ValueError, {"max_side": 9, "mode": "stored"})),
    (ValueError, {"min_size": 0}),
    (ValueError, {"region": (1, 2, 3)}),
    (ValueError, {"max_pixels": -1}),
    (TypeError, {"backend": 5}),
    (UnknownBackend, {"backend": "nobody"}),
]
WRONG_FOR_ITER: list[tuple[type[Exception], dict[str, Any]]] = [
    *WRONG,
    *((ValueError, {"ahead": value}) for value in (0, 1.5)),
    (ValueError, {"out": np.zeros((1, 8, 8, 3), np.uint8)}),
    (TypeError, {"device": "cpu"}),
]


@pytest.mark.parametrize(
    ("function", "kind", "options"),
    [
        *((decode_batch, *wrong) for wrong in WRONG),
        *((decode_iter, *wrong) for wrong in WRONG_FOR_ITER),
    ],
)
@pytest.mark.parametrize(
    "items", [[], [b"damaged"], ["missing.jpg"], ALIKE], ids=["none", "bad", "missing", "good"]
)
@pytest.mark.parametrize("on_error", ["raise", "return"])
def test_a_wrong_option_is_raised_before_any_work(
    function: Any, kind: type[Exception], options: dict[str, Any], items: list[Any], on_error: str
) -> None:
    """A wrong option raises at the call for any items, even for none, and is named."""
    unread = iter(items)

    with pytest.raises(kind, match=next(iter(options))) as caught:
        function(unread, **{"on_error": on_error, **options})

    assert caught.type is kind
    assert list(unread) == items


@BOTH
def test_one_image_is_no_batch(function: Any) -> None:
    """A single image instead of several raises an error that names the function for one."""
    data = ALIKE[0]
    buffers = data, bytearray(data), memoryview(data), mapped(data), np.frombuffer(data, np.uint8)
    for at, one in enumerate((*buffers, "photo.jpg", Path("photo.jpg"), 5)):
        assert_raises(TypeError, "", partial(function, one), at)


def in_a_fork(make: Callable[[], Any]) -> list[bytes]:
    """Return the images that a forked child decodes, as bytes."""
    context = multiprocessing.get_context("fork")
    queue = context.Queue()
    child = context.Process(target=lambda: queue.put([image.tobytes() for image in make()]))
    child.start()
    try:
        received: list[bytes] = queue.get(timeout=60)
    finally:
        child.join(timeout=10)
        child.kill()
    return received


@pytest.mark.skipif(
    "fork" not in multiprocessing.get_all_start_methods(), reason="this system cannot fork"
)
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_forked_child_decodes_too() -> None:
    """A child that is forked after the pool was used, or during a loop, has its own threads."""
    expected = [image.tobytes() for image in decode_batch(ITEMS, threads=3)]
    images = decode_iter(ITEMS, threads=3)
    first = [next(images).tobytes() for _ in range(4)]

    assert in_a_fork(lambda: decode_batch(ITEMS, threads=3)) == expected
    assert [one for one in threading.enumerate() if one.name.startswith("fastdecode")]
    assert first + in_a_fork(lambda: images) == expected
    assert [image.tobytes() for image in images] == expected[4:]


# ---- one size for all ----

SIZED = [*ITEMS, encode(drawing(30, 20).convert("L")), photo, str(photos[-1])]


@THREADS
@pytest.mark.parametrize("size", [16, (12, 20), 1, (1, 7), (700, 90)], ids=str)
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"mode": "L"},
        {"region": (3, 1, 17, 12)},
        {"min_size": 6},
        {"reduce": 2},
        {"strict": True},
    ],
    ids=str,
)
def test_size_gives_one_array(threads: int | None, size: Any, options: dict[str, Any]) -> None:
    """With `size` the batch is one array, close to Pillow's antialiased resize of each image."""
    height, width = (size, size) if isinstance(size, int) else size

    batch = decode_batch(SIZED, threads=threads, size=size, **options)

    channels = () if options.get("mode") == "L" else (3,)
    assert batch.shape == (len(SIZED), height, width, *channels)
    assert batch.dtype == np.uint8
    assert batch.flags.c_contiguous
    for image, one in zip(batch, decode_batch(SIZED, **options), strict=True):
        whole = PillowImage.fromarray(one)
        expected = np.asarray(whole.resize((width, height), PillowImage.Resampling.BILINEAR))
        assert np.abs(image.astype(int) - expected).max() <= 1


def test_no_items_of_a_size_are_an_empty_array() -> None:
    """An empty batch is an empty list, or with `size` an empty array of the right shape."""
    assert decode_batch([]) == []
    assert decode_batch([], size=(4, 6)).shape == (0, 4, 6, 3)
    assert decode_batch([], size=4, mode="L").shape == (0, 4, 4)
    assert decode_batch([], size=4, on_error="return") == []


# ---- thumbnails ----

KINDS = {
    "jpeg": {"format": "jpeg"},
    "progressive": {"format": "jpeg", "progressive": True, "subsampling": 0, "quality": 40},
    "png": {"format": "png"},
    "webp": {"format": "webp", "lossless": True},
}


def thumbnail(data: bytes, side: int, mode: str = "RGB", region: Any = None) -> Any:
    """Return what Pillow makes: the image in that mode, shrunk, and then turned upright."""
    image = PillowImage.open(io.BytesIO(data))
    exif = image.getexif()
    if image.mode != mode and image.format != "JPEG":  # which reduces in its decoder
        image = image.convert(mode)
    if region is not None:
        image = image.crop(region)
    image.thumbnail((side, side))
    image = image.convert(mode)
    image.getexif().update(exif)
    return np.asarray(ImageOps.exif_transpose(image))


@settings(max_examples=examples(150))
@given(
    st.integers(1, 400),
    st.integers(1, 400),
    st.integers(1, 60),
    st.sampled_from([*KINDS]),
    st.sampled_from(["L", "RGB", "RGBA"]),
    st.integers(1, 8),
    st.sampled_from([decode_batch, decode_iter]),
)
@example(1000, 3, 7, "jpeg", "RGB", 1, decode_batch)  # one row is left
@example(3, 1000, 7, "png", "RGB", 6, decode_batch)
@example(337, 331, 20, "jpeg", "RGB", 3, decode_batch)  # an eighth, and its last blocks first
@example(15, 10, 15, "jpeg", "RGB", 1, decode_batch)  # nothing to shrink
def test_thumbnails_are_those_of_pillow(
    width: int, height: int, side: int, kind: str, mode: str, turn: int, function: Any
) -> None:
    """`max_side` gives the pixels of Pillow's `thumbnail`, which are then turned upright."""
    stored = "RGB" if KINDS[kind]["format"] == "jpeg" else mode
    exif = PillowImage.Exif()
    exif[0x0112] = turn
    data = encode(drawing(width, height, stored), exif=exif, **KINDS[kind])
    shown = mode if stored == mode else "RGB"

    one, two = function([data] * 2, max_side=side, orient=True, mode=shown)

    assert_same(one, thumbnail(data, side, shown))
    assert_same(two, one)
    assert one.flags.c_contiguous
    assert max(one.shape[:2]) == min(side, max(width, height))


@pytest.mark.parametrize("kind", ["jpeg", "png"])
@pytest.mark.parametrize(
    ("turn", "region", "stored"),
    [(1, (30, 7, 95, 61), (30, 7, 95, 61)), (6, (8, 20, 40, 90), (20, 20, 90, 52))],
)
def test_a_region_has_its_thumbnail(kind: str, turn: int, region: Any, stored: Any) -> None:
    """With a region, of the upright image, only that part is shrunk, also between its pixels."""
    exif = PillowImage.Exif()
    exif[0x0112] = turn
    data = encode(drawing(100, 60 if turn == 6 else 70), kind, exif=exif)

    (made,) = decode_batch([data], max_side=40, region=region, orient=True)

    assert_same(made, thumbnail(data, 40, region=stored))
    large = (13, 21, 613, 471)  # edges that are no multiples of the reduction
    (made,) = decode_batch([photo], max_side=40, region=large)
    whole = PillowImage.fromarray(decode(photo.read_bytes(), region=large))
    expected = np.asarray(whole.resize((40, 30), PillowImage.Resampling.BICUBIC))
    assert made.shape == expected.shape
    assert np.abs(made.astype(int) - expected).mean() < 0.7  # a pixel further it is 1.4


@THREADS
def test_thumbnails_tell_damaged_files_from_unsupported_ones(
    threads: int | None, tmp_path: Path
) -> None:
    """Errors are those of `decode_file`, name the file and take the place of its thumbnail."""
    for name, data in (("cut.jpg", CUT), ("notes.txt", b"no image at all"), ("good.jpg", ITEMS[2])):
        (tmp_path / name).write_bytes(data)
    paths = [tmp_path / name for name in ("cut.jpg", "notes.txt", "missing.png", "good.jpg")]

    found = decode_batch(paths, max_side=9, threads=threads, on_error="return")

    kinds = DecodeError, UnsupportedFormat, FileNotFoundError, np.ndarray
    assert [*map(type, found)] == [*kinds]
    assert [path.name for path, error in zip(paths, found[:3], strict=False)
            if path.name not in str(error)] == []  # fmt: skip
    with pytest.raises(DecodeError, match=r"^item 0: .*cut\.jpg: "):
        decode_batch(paths, max_side=9, threads=threads)


def test_thumbnails_go_where_they_are_wanted() -> None:
    """`out` takes thumbnails of the right shape, and a device returns tensors of them."""
    room = [np.zeros((8, 12, 3), np.uint8) for _ in ALIKE]

    made = decode_batch(ALIKE, max_side=12, out=room)

    assert [id(image) for image in made] == [id(place) for place in room]
    assert_same(made, [thumbnail(data, 12) for data in ALIKE])
    with pytest.raises(ValueError, match="shape"):
        decode_batch(ALIKE, max_side=12, out=[np.zeros((1, 12, 3), np.uint8) for _ in ALIKE])


def test_an_error_holds_no_images() -> None:
    """A kept error does not keep the batch's images in memory."""
    *_, error = decode_batch([JPEG, JPEG, JPEG[:-60]], on_error="return")

    assert isinstance(error, DecodeError)
    causes: list[BaseException | None] = [error]
    while (last := causes[-1]) is not None:
        assert last.__traceback__ is None
        causes.append(last.__cause__ or last.__context__)


# ---- what ends a batch, and what is left behind ----


@pytest.mark.usefixtures("own_registry")
def test_nothing_is_written_once_the_batch_has_failed() -> None:
    """The error is raised only after all running items have ended."""
    begun, done = threading.Event(), threading.Event()

    def answer(data: Any, header: Any, **asked: Any) -> Any:
        if header.width == 24:
            begun.wait(30)
            raise ValueError("the first item fails while the second is at work")
        begun.set()
        threading.Event().wait(0.3)  # for an error that does not wait to overtake it
        done.set()
        return flat(5)(data, header, **asked)

    register("slow", double(answer))
    out = [np.zeros(SHAPE, np.uint8), np.zeros((8, 8, 3), np.uint8)]

    with pytest.raises(DecodeError, match=r"^item 0: "):
        decode_batch([JPEG, encode(drawing(8, 8))], threads=2, out=out)

    assert done.is_set()
    assert_same(out[1], 5)


@pytest.mark.usefixtures("own_registry")
@BOTH
def test_backend_that_cannot_be_used_is_raised_for_no_items(function: Any) -> None:
    """A named backend whose library is missing raises at the call, even for an empty batch."""
    register("absent", "no_such_module:Thing")

    with pytest.raises(BackendUnavailable, match="no_such_module"):
        function([], backend="absent", on_error="return")


# ---- a few at a time ----


class Counted:
    """Yields the same item for ever, and counts how often it was asked."""

    def __init__(self, item: Any = ITEMS[1]) -> None:
        self.item = item
        self.asked = 0

    def __iter__(self) -> Iterator[Any]:
        while True:
            self.asked += 1
            yield self.item


@THREADS
def test_items_are_taken_as_images_are_wanted(threads: int | None) -> None:
    """Of an endless generator, no more items are read than `ahead` allows."""
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
    """Leaving the loop waits for running items, and starts no others."""
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
        with pytest.raises(RuntimeError):
            loop()
    else:
        loop()
    gc.collect()

    begun, finished = made
    assert begun == finished
    threading.Event().wait(0.1)
    assert made == [begun, finished]


@THREADS
@pytest.mark.parametrize("whose", ["item", "generator"])
def test_an_error_comes_in_its_turn(threads: int | None, whose: str, tmp_path: Path) -> None:
    """It comes after the images before it, and names its item; the caller's arrives unchanged."""
    path = tmp_path / "cut.jpg"
    path.write_bytes(CUT)

    def items() -> Iterator[Any]:
        yield from ITEMS[:3]
        if whose == "generator":
            raise ConnectionError("the list ends here")
        yield from (path, b"", *ITEMS)

    images = decode_iter(items(), threads=threads)

    assert [next(images).shape for _ in range(3)] == [(h, w, 3) for w, h in SIZES[:3]]
    kind, told = (
        (DecodeError, r"^item 3: .*cut\.jpg: ") if whose == "item" else (ConnectionError, "ends")
    )
    with pytest.raises(kind, match=told):
        next(images)
    assert list(images) == []
    with pytest.raises(kind, match=told):
        decode_batch(items(), threads=threads)


@pytest.mark.skipif(os.name == "nt", reason="signals are sent otherwise there")
def test_ctrl_c_ends_the_loop() -> None:
    """Ctrl-C interrupts the loop at once, even with endless items."""
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
