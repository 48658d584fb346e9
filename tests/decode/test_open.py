"""`open`: whatever is done to its images, they are Pillow's, with Pillow's pixels."""

from __future__ import annotations

import copy
import io
import pickle
import warnings
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any

import corpus
import numpy as np
import pytest
from cases import examples
from hypothesis import example, given, settings
from hypothesis import strategies as st
from PIL import Image, ImageDraw, ImageFile, ImageOps
from PIL.JpegImagePlugin import JpegImageFile
from same import assert_same

import fastdecode
from fastdecode.native import _library
from fastdecode.samples import photo
from fastdecode.testing import encode

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
    return rgb.quantize(16) if mode == "P" else rgb.convert(mode)


@cache
def _encoded(kind: str) -> bytes:
    mode, form, options = _KINDS[kind]
    if "exif" in options:
        exif = Image.Exif()
        exif[0x0112] = options["exif"]
        options = {"exif": exif}
    return encode(_drawing(mode), form, **options)


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


def _aside(name: str, *arguments: Any) -> _Step:
    """Return a step whose result is another image: what is done to that changes nothing here."""

    def step(image: Image.Image) -> Image.Image:
        getattr(image, name)(*arguments).info["aside"] = name
        return image

    return step


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
    st.sampled_from([_aside("copy"), _aside("convert", "RGB"), _aside("resize", (9, 7))]),
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
    st.just(pickle.dumps).map(lambda dumps: lambda image: pickle.loads(dumps(image))),
)


_HALF = (0.25, 0.0, 0.75, 1.0)


@settings(max_examples=examples(400))
@given(st.sampled_from([*_KINDS]), st.lists(_STEPS, max_size=5))
@example("jpeg", [_resize((14, 1), None, _HALF, None)])  # the order of passes
@example("png-RGB", [_resize((103, 11), None, (0.22156178581353086, *_HALF[1:]), None)])  # floats
@example("jpeg", [_in_place("draft", "L", (1, 1)), _call("convert", "RGB")])
@example("jpeg", [_aside("resize", (9, 7))])
def test_any_steps_give_pillows_image(kind: str, steps: list[_Step]) -> None:
    """Any steps give the mode, size, class, palette, info and bytes that they give on Pillow's."""
    data = _encoded(kind)

    assert _result(fastdecode.open, data, steps) == _result(_pillow, data, steps)


_REMEMBERED: list[_Step] = [
    *(_call("transpose", turn) for turn in range(7)),
    _crop((0.1, 0.0, 0.8, 0.7)),
    _resize((31, 45), Image.Resampling.BILINEAR, (0.0, 0.2, 0.9, 1.0), None),
    _resize((44, 29), Image.Resampling.NEAREST, None, None),
]


@pytest.mark.parametrize("first", range(len(_REMEMBERED)))
@pytest.mark.parametrize("kind", ["jpeg", "png-L"])
def test_what_is_remembered_is_done_in_its_order(kind: str, first: int) -> None:
    """Each turn, crop and resize after and before each two others, and itself again."""
    data = _encoded(kind)
    for others in product(_REMEMBERED, _REMEMBERED, [_call("copy"), _in_place("load")]):
        steps = [_REMEMBERED[first], *others]

        assert _result(fastdecode.open, data, steps) == _result(_pillow, data, steps)


@settings(max_examples=examples(300))
@given(
    kind=st.sampled_from([*_KINDS]),
    kept=st.just(1.0) | st.floats(0.3, 1),
    damage=st.lists(st.tuples(st.floats(0, 1), st.integers(0, 255)), max_size=3),
    steps=st.lists(_STEPS, max_size=2),
    tolerant=st.booleans(),
)
def test_damage_gives_what_pillow_gives(
    kind: str, kept: float, damage: Any, steps: list[_Step], tolerant: bool
) -> None:
    """Damaged and cut files give Pillow's pixels or the class of its error, as its flag says."""
    data = bytearray(_encoded(kind))
    for place, value in damage:
        data[int(place * (len(data) - 1))] = value
    damaged = bytes(data[: int(kept * len(data))])
    before, ImageFile.LOAD_TRUNCATED_IMAGES = ImageFile.LOAD_TRUNCATED_IMAGES, tolerant
    try:
        assert _result(fastdecode.open, damaged, steps) == _result(_pillow, damaged, steps)
    finally:
        ImageFile.LOAD_TRUNCATED_IMAGES = before


_FILES = sorted(
    path
    for path in corpus.CORPUS.glob("*/*")
    if path.suffix.lower() in (".jpg", ".jpeg", ".png", ".gif", ".webp")
)
_USES: list[list[_Step]] = [
    [],
    [_call("convert", "RGB"), _crop((0.2, 0.1, 0.7, 0.9)), _resize((64, 48), 2, None, None)],
    [_call("resize", (77, 50)), _call("crop", (3, 2, 70, 40)), _call("transpose", 0)],
    [_in_place("draft", "L", (100, 100)), _call("convert", "RGB")],
    [_in_place("thumbnail", (60, 60))],
]


@pytest.mark.parametrize("path", _FILES, ids=lambda path: path.name)
def test_each_file_of_the_corpus_is_pillows(path: Path) -> None:
    """The files of the collection, of every kind and damage, give Pillow's image or error."""
    data = path.read_bytes()

    for steps in _USES:
        assert _result(fastdecode.open, data, steps) == _result(_pillow, data, steps)


def test_paths_bytes_and_files_are_opened(tmp_path: Path) -> None:
    """A path, its name, bytes, a row of `datasets` and an open file are the same image."""
    data = photo.read_bytes()
    row = {"bytes": None, "path": str(photo)}

    for given_ in (photo, str(photo), data, bytearray(data), memoryview(data), row):
        assert fastdecode.open(given_).convert("RGB") == Image.open(photo).convert("RGB")
    with photo.open("rb") as file:
        image = fastdecode.open(file).convert("RGB")
    assert image == Image.open(photo).convert("RGB")  # although the file is closed


def test_images_look_like_pillows() -> None:
    """They have Pillow's classes, comparison and text, before and after they are decoded.

    What `pickle` and `copy` make is an image of Pillow's. An array of an image cannot change it,
    and outlives it.
    """
    ours, theirs = fastdecode.open(photo), Image.open(photo)
    cropped = ours.crop((3, 4, 100, 90))

    assert isinstance(ours, JpegImageFile)
    assert repr(ours).partition(" at ")[0] == repr(theirs).partition(" at ")[0]
    assert repr(cropped).startswith("<PIL.Image.Image image mode=RGB size=97x86 at ")
    assert cropped == theirs.crop((3, 4, 100, 90))
    assert theirs == ours
    assert ours.__class__ is JpegImageFile
    assert cropped.__class__ is Image.Image
    for made in (pickle.loads(pickle.dumps(cropped)), copy.copy(cropped), copy.deepcopy(cropped)):
        assert type(made) is Image.Image
        assert made == theirs.crop((3, 4, 100, 90))
    assert type(pickle.loads(pickle.dumps(fastdecode.open(photo)))) is JpegImageFile
    array = np.asarray(fastdecode.open(photo).crop((0, 0, 40, 30)))
    assert not array.flags.writeable
    assert_same(array, np.asarray(theirs.crop((0, 0, 40, 30))))


def test_only_the_part_that_shows_is_decoded(monkeypatch: pytest.MonkeyPatch) -> None:
    """A crop of a crop, resized and turned, costs one call of the core, for that window."""
    windows: list[Any] = []
    decode, resized = _library.decode, _library.decode_resized

    def note(data: Any, out: Any, reduce: Any, layout: Any, window: Any, **options: Any) -> int:
        windows.append(window)
        return decode(data, out, reduce, layout, window, **options)

    def note_resize(data: Any, resize: Any, *arguments: Any) -> bool:
        windows.append((resize.in_left, resize.in_top, resize.in_right, resize.in_bottom))
        return resized(data, resize, *arguments)

    monkeypatch.setattr(_library, "decode", note)
    monkeypatch.setattr(_library, "decode_resized", note_resize)
    image = fastdecode.open(photo).convert("RGB").crop((100, 50, 300, 250))

    np.asarray(image.transpose(Image.Transpose.ROTATE_90).crop((10, 20, 60, 90)))
    np.asarray(image.crop((10, 20, 110, 140)).resize((50, 60)).transpose(0))

    assert windows == [(210, 60, 280, 110), (110, 70, 210, 190)]


@pytest.mark.parametrize("kind", [*_KINDS])
def test_images_can_be_changed(kind: str) -> None:
    """Pixels that are written, pasted and drawn stay, and change no copy made before."""

    def change(image: Image.Image) -> list[bytes]:
        before = image.copy()
        image.putpixel((1, 2), image.getpixel((5, 5)))
        pixels = image.load()
        assert pixels is not None
        pixels[3, 3] = pixels[7, 7]
        ImageDraw.Draw(image).line((0, 0, 30, 30))
        image.paste(before.crop((0, 0, 9, 9)), (20, 20))
        return [image.tobytes(), before.tobytes(), image.transpose(1).tobytes()]

    assert change(fastdecode.open(_encoded(kind))) == change(_pillow(_encoded(kind)))


def test_threads_may_share_an_image() -> None:
    """An image that several threads use at once gives all of them Pillow's pixels."""
    steps = [_call("rotate", 5), _call("crop", (3, 4, 90, 80)), _call("resize", (30, 20))]
    expected = [step(Image.open(io.BytesIO(photo.read_bytes()))).tobytes() for step in steps]
    with ThreadPoolExecutor(6) as pool:
        for _ in range(30):
            shared = fastdecode.open(photo).convert("RGB")
            made = pool.map(lambda step, image=shared: step(image).tobytes(), steps * 2)

            assert [*made] == expected * 2


def test_files_are_closed_as_pillow_does() -> None:
    """A file is closed by the first call that needs it; a closed image raises Pillow's error."""
    image = fastdecode.open(photo)
    file: Any = image.fp  # type: ignore[attr-defined]
    part = image.crop((0, 0, 9, 9))
    assert file.closed
    image.close()

    assert part == Image.open(photo).crop((0, 0, 9, 9))
    with pytest.raises(ValueError, match="closed"):
        image.getpixel((0, 0))
    with fastdecode.open(photo) as image:
        image.verify()


def test_late_errors_name_the_file(tmp_path: Path) -> None:
    """An error that shows only when pixels are asked for names the file, and comes each time."""
    path = tmp_path / "damaged.png"
    data = bytearray(_encoded("png-RGB"))
    data[len(data) // 2] ^= 0xFF
    path.write_bytes(data)
    image = fastdecode.open(path).convert("RGB").resize((20, 20))

    for _ in range(2):
        with pytest.raises(OSError, match=r"damaged\.png"):
            image.load()
    cut = fastdecode.open(_encoded("jpeg")[:-90])  # which shows at once
    with pytest.raises(OSError, match="truncated"):
        cut.convert("RGB")


def test_open_may_stand_in_pillows_place(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever assigns it to `PIL.Image.open` gets it everywhere, or Pillow's without the core."""
    monkeypatch.setattr(Image, "open", fastdecode.open)
    assert type(Image.open(io.BytesIO(_encoded("jpeg"))).resize((3, 3))) is not Image.Image
    monkeypatch.setenv("FASTDECODE_DISABLE", "native")

    assert type(Image.open(io.BytesIO(_encoded("jpeg")))) is JpegImageFile


def test_exif_and_text_behind_the_pixels_are_found() -> None:
    """EXIF and texts that follow the pixels of a PNG are there after `convert`, as with Pillow."""
    data = _encoded("png-turned")
    start = data.index(b"eXIf") - 4
    end = start + 12 + int.from_bytes(data[start : start + 4], "big")
    moved = data[:start] + data[end:-12] + data[start:end] + data[-12:]

    for step in (_exif_transpose, _call("convert", "RGB")):
        assert _result(fastdecode.open, moved, [step]) == _result(_pillow, moved, [step])
    assert fastdecode.open(moved).getexif()[0x0112] == 7
