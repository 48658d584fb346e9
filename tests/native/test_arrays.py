"""`decode_batch` with the native core: the same arrays and errors."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from corpus import samples
from encoded import turned
from PIL import Image
from same import assert_same

import fastdecode
from fastdecode import FastDecodeError, decode_batch, use
from fastdecode.native._pool import Items
from fastdecode.testing import drawing, encode

PHOTOS = sorted((Path(fastdecode.__file__).parent / "samples").glob("*.jpg"))
PLAIN = PHOTOS[0].read_bytes()
OPTIONS: list[dict[str, Any]] = [
    {},
    {"mode": "L"},
    {"reduce": 2},
    {"min_size": 90},
    {"region": (7, 11, 90, 120)},
    {"region": (0, 0, 33, 47), "reduce": 4, "mode": "L"},
    {"backend": "native", "max_pixels": None},
]


@pytest.fixture(name="made")
def _made(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Record which items the core decodes or resizes."""
    noted: list[bool] = []

    def watch(method: Callable[..., list[bool]]) -> Callable[..., list[bool]]:
        def watched(self: Items, *arguments: Any) -> list[bool]:
            done = method(self, *arguments)
            noted.extend(done)
            return done

        return watched

    for name in ("decode", "resize"):
        monkeypatch.setattr(Items, name, watch(getattr(Items, name)))
    return noted


def one_by_one(items: Any, **options: Any) -> list[Any]:
    found: list[Any] = []
    for item in items:
        decode = fastdecode.decode_file if isinstance(item, (str, Path)) else fastdecode.decode
        try:
            found.append(decode(item, **options))
        except (FastDecodeError, OSError) as error:
            found.append(error)
    return found


@pytest.mark.parametrize("threads", [2, 5])
@pytest.mark.parametrize(
    "options", [{}, {"reduce": 2}, {"min_size": 90}, {"region": (7, 11, 90, 120)}], ids=str
)
def test_one_size_is_made_by_the_core(
    options: dict[str, Any], threads: int, made: list[bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Resizing while decoding is bit-identical with resizing one by one."""
    items: list[Any] = [*PHOTOS, PLAIN, memoryview(PLAIN)] * 7

    batch = decode_batch(items, threads=threads, size=(60, 44), **options)

    assert made == [True] * len(items)
    alone = decode_batch(items, threads=1, size=(60, 44), **options)
    assert_same(batch, alone)
    monkeypatch.setenv("FASTDECODE_DISABLE", "native")
    without = decode_batch(items, threads=threads, size=(60, 44), **options)
    assert made == [True] * len(items)
    assert np.abs(batch.astype(int) - without).max() <= 1


@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize("threads", [2, 5])
def test_arrays_are_those_of_decode(
    options: dict[str, Any], threads: int, made: list[bool]
) -> None:
    """Paths and bytes decode in partial chunks, with every argument that the core supports."""
    items: list[Any] = [*PHOTOS, PLAIN, memoryview(PLAIN), str(PHOTOS[1])] * 7
    expected = one_by_one(items, **options)

    with use("native"):  # whatever the order of the backends is
        arrays = decode_batch(items, threads=threads, **options)

    assert_same(arrays, expected)
    assert {(one.flags.c_contiguous, one.flags.owndata) for one in arrays} == {(True, True)}
    assert made == [True] * len(items)


def test_every_kind_of_file_is_as_before(made: list[bool]) -> None:
    """Damaged, grey, rotated and progressive files, and other formats, decode as before."""
    # What is no JPEG goes the way of `decode` anyhow: a tenth of it is enough.
    items = [one.path for one in (*samples("jpeg_kinds", "malformed"), *samples("formats")[::10])]
    some = 50  # the pixels of all of them would take gigabytes
    for start in range(0, len(items), some):
        part = items[start : start + some]
        expected = one_by_one(part)
        found = decode_batch([PLAIN, *part], threads=2, on_error="return")[1:]
        assert_same(dict(zip(part, found, strict=True)), dict(zip(part, expected, strict=True)))

    assert len(items) > made.count(True) > 10
    assert made.count(False) > 2


@pytest.mark.parametrize("size", [None, (60, 44)])
@pytest.mark.parametrize(
    "data",
    [
        pytest.param(data, id=f"{format} {name}")
        for format in ("JPEG", "PNG")
        for name, data in turned(format, Image.open(PHOTOS[0])).items()
    ],
)
def test_turned_images_are_left_out(
    data: bytes, size: tuple[int, int] | None, made: list[bool]
) -> None:
    """With ``orient=True`` the core decodes only images that are upright already."""
    items = [PLAIN, data, PLAIN]

    with use("native"):
        images = decode_batch(items, threads=2, size=size, orient=True)
        alone = decode_batch(items, threads=1, size=size, orient=True)

    assert_same(images, alone)
    if size is None:
        assert images[1].shape[:2] == images[0].shape[1::-1]
        assert made == [True, True]
    assert not np.array_equal(images[1], decode_batch(items, size=size)[1])


@pytest.mark.parametrize(
    "options", [{"mode": "RGBA"}, {"strict": True}, {"backend": "pillow"}, {}], ids=str
)
def test_what_the_core_is_not_asked_for(
    options: dict[str, Any], monkeypatch: pytest.MonkeyPatch, made: list[bool]
) -> None:
    """Other modes, strict decoding and other backends do not use the core.

    If it is not chosen for the first file, it does not read the others.
    """
    reads: list[int] = []
    read = Items.read
    monkeypatch.setattr(Items, "read", lambda *given: (reads.append(1), read(*given))[1])
    with use(None if options else "pillow"):
        arrays = decode_batch([PLAIN, PHOTOS[1]], threads=2, **options)

    assert_same(arrays, one_by_one([PLAIN, PHOTOS[1]], **options))
    reads.clear()
    for first in (encode(drawing(9, 9), "bmp"), "no such file", 3):
        with pytest.raises((FastDecodeError, OSError, TypeError)):
            decode_batch([first, PLAIN], threads=2, backend="native")
    monkeypatch.setenv("FASTDECODE_DISABLE", "native")
    with use(None):
        decode_batch([PLAIN, PLAIN], threads=2)
    assert not reads
    assert not made
