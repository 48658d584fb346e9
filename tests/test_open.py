"""`open`: whatever is done to its images, they are Pillow's, with Pillow's pixels."""

from __future__ import annotations

import copy
import io
import pickle
import warnings
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import corpus
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image, ImageDraw, ImageFile, ImageOps, JpegImagePlugin, PngImagePlugin

import fastdecode
from fastdecode import samples
from fastdecode.native import _library

WIDTH, HEIGHT = 83, 57

_KINDS: dict[str, tuple[str, str, dict[str, Any]]] = {
    "jpeg": ("RGB", "JPEG", {}),
    "jpeg-444": ("RGB", "JPEG", {"subsampling": 0, "quality": 98}),
    "jpeg-420-progressive": ("RGB", "JPEG", {"subsampling": 2, "progressive": True}),
    "jpeg-restarts": ("RGB", "JPEG", {"restart_marker_blocks": 3}),
    "jpeg-grey": ("L", "JPEG", {}),
    "jpeg-cmyk": ("CMYK", "JPEG", {}),
    "jpeg-turned": ("RGB", "JPEG", {"exif": 6}),
    "png-1": ("1", "PNG", {}),
    "png-L": ("L", "PNG", {}),
    "png-L-trns": ("L", "PNG", {"transparency": 77}),
    "png-LA": ("LA", "PNG", {}),
    "png-P": ("P", "PNG", {}),
    "png-P-4bits": ("P", "PNG", {"bits": 4}),
    "png-P-trns": ("P", "PNG", {"transparency": bytes(range(256))}),
    "png-P-one-trns": ("P", "PNG", {"transparency": 3}),
    "png-RGB": ("RGB", "PNG", {}),
    "png-RGB-trns": ("RGB", "PNG", {"transparency": (200, 30, 40)}),
    "png-RGBA": ("RGBA", "PNG", {}),
    "png-16": ("I;16", "PNG", {}),
    "png-turned": ("RGB", "PNG", {"exif": 7}),
    "webp": ("RGB", "WEBP", {}),
}


def _drawing(mode: str) -> Image.Image:
    """Return smooth colours with noise, in a mode."""
    y, x = np.mgrid[:HEIGHT, :WIDTH]
    noise = np.random.default_rng(3).integers(0, 40, (HEIGHT, WIDTH, 4))
    channels = np.dstack([x * 2, y * 3, x + y, 255 - x]) + noise
    image = Image.fromarray(np.clip(channels, 0, 255).astype(np.uint8), "RGBA")
    if mode == "I;16":
        return Image.fromarray((channels[:, :, 0] * 201).astype(np.uint16))
    if mode in ("RGBA", "LA"):
        return image.convert(mode)
    rgb = image.convert("RGB")
    return rgb.quantize(16 if mode == "P" else 256) if mode == "P" else rgb.convert(mode)


@cache
def _encoded(kind: str) -> bytes:
    mode, form, options = _KINDS[kind]
    if "exif" in options:
        exif = Image.Exif()
        exif[0x0112] = options["exif"]
        options = {"exif": exif}
    stream = io.BytesIO()
    _drawing(mode).save(stream, form, **options)
    return stream.getvalue()


_Open = Callable[[Any], Image.Image]
_Step = Callable[[Image.Image], Image.Image]


def _pillow(data: bytes) -> Image.Image:
    return Image.open(io.BytesIO(data))


def _result(open_: _Open, data: Any, steps: list[_Step]) -> Any:
    """Return all that can be seen of an image after some steps, or the class of the error."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            image = open_(data)
            for step in steps:
                image = step(image)
            seen = (image.mode, image.size, image.format, image.getpalette(), image.__class__)
            return *seen, image.info, np.asarray(image).tobytes(), image.tobytes()
        except Exception as error:
            return type(error)


def _in_place(name: str, *arguments: Any) -> _Step:
    def step(image: Image.Image) -> Image.Image:
        getattr(image, name)(*arguments)
        return image

    return step


def _call(name: str, *arguments: Any) -> _Step:
    return lambda image: getattr(image, name)(*arguments)


def _crop(box: tuple[float, float, float, float]) -> _Step:
    """Return a crop whose edges are fractions of the image's sides."""
    return lambda image: image.crop(
        tuple(edge * side for edge, side in zip(box, image.size * 2, strict=True))
    )


def _resize(size: Any, how: Any, box: Any, gap: Any) -> _Step:
    """Return a resize of a box whose edges are fractions of the image's sides."""

    def step(image: Image.Image) -> Image.Image:
        edges = box and tuple(edge * side for edge, side in zip(box, image.size * 2, strict=True))
        return image.resize(size, how, edges, gap)

    return step


def _exif_transpose(image: Image.Image) -> Image.Image:
    return ImageOps.exif_transpose(image)


_SIDES = st.integers(1, 120)
_BOXES = st.tuples(*[st.floats(0, 0.45)] * 2, *[st.floats(0.55, 1)] * 2)
_STEPS: st.SearchStrategy[_Step] = st.one_of(
    st.builds(_call, st.just("convert"), st.sampled_from([None, "RGB", "RGB", "L", "RGBA", "1"])),
    st.builds(_crop, _BOXES | st.just((0.1, -0.2, 0.9, 1.2))),
    st.builds(
        _resize,
        st.tuples(_SIDES, _SIDES),
        st.sampled_from([None, *range(6)]),
        st.none() | _BOXES,
        st.sampled_from([None, None, 1.0, 2.0, 3.0]),
    ),
    st.builds(_call, st.just("transpose"), st.integers(0, 6)),
    st.builds(_call, st.just("copy")),
    st.builds(_in_place, st.just("thumbnail"), st.tuples(_SIDES, _SIDES)),
    st.builds(
        _in_place,
        st.just("draft"),
        st.sampled_from(["L", "RGB", "YCbCr", None]),
        st.tuples(_SIDES, _SIDES),
    ),
    st.builds(_in_place, st.just("load")),
    st.builds(_call, st.just("rotate"), st.just(17)),
    st.just(_exif_transpose),
    st.just(pickle.dumps).map(lambda dumps: lambda image: pickle.loads(dumps(image))),  # noqa: S301
)


@settings(max_examples=400)
@given(st.sampled_from([*_KINDS]), st.lists(_STEPS, max_size=5))
def test_any_steps_give_pillows_image(kind: str, steps: list[_Step]) -> None:
    """Any steps give the mode, size, class, palette, info and bytes that they give on Pillow's."""
    data = _encoded(kind)

    assert _result(fastdecode.open, data, steps) == _result(_pillow, data, steps)


@settings(max_examples=300)
@given(
    kind=st.sampled_from([*_KINDS]),
    cut=st.floats(0, 1),
    damage=st.lists(st.tuples(st.floats(0, 1), st.integers(0, 255)), max_size=3),
    steps=st.lists(_STEPS.filter(lambda step: step is not None), max_size=2),
    tolerant=st.booleans(),
)
def test_damage_gives_pillows_pixels_or_an_error(
    kind: str, cut: float, damage: Any, steps: list[_Step], tolerant: bool
) -> None:
    """A damaged file gives Pillow's pixels, or an error where Pillow gives one for what is shown."""
    data = bytearray(_encoded(kind))
    for place, value in damage:
        data[int(place * (len(data) - 1))] = value
    kept = len(data) if cut < 0.5 else max(1, int(cut * len(data)))
    damaged = bytes(data[:kept])
    before, ImageFile.LOAD_TRUNCATED_IMAGES = ImageFile.LOAD_TRUNCATED_IMAGES, tolerant
    try:
        ours, theirs = _result(fastdecode.open, damaged, steps), _result(_pillow, damaged, steps)
    finally:
        ImageFile.LOAD_TRUNCATED_IMAGES = before
    assert ours == theirs
