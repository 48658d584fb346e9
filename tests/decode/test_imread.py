"""`imread`: the arrays of ``cv2.imread``, with and without OpenCV."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import corpus
import numpy as np
import pytest
from PIL import Image
from same import assert_same

import fastdecode
from fastdecode._decode import imread
from fastdecode.errors import DecodeError, FastDecodeError
from fastdecode.samples import photo

_FLAGS = {
    "UNCHANGED": -1,
    "GRAYSCALE": 0,
    "COLOR": 1,
    "ANYDEPTH": 2,
    "ANYDEPTH|COLOR": 3,
    "ANYCOLOR": 4,
    "ANYDEPTH|ANYCOLOR": 6,
    "all": 7,
    "COLOR_RGB": 256,
    "IGNORE_ORIENTATION": 128 | 1,
    "REDUCED_COLOR_2": 17,
    "REDUCED_GRAYSCALE_4": 32,
    "REDUCED_COLOR_8": 65,
    "REDUCED_GRAYSCALE_2|IGNORE_ORIENTATION": 16 | 128,
}
XMP = b'<x:xmpmeta xmlns:x="adobe:ns:meta/"><a tiff:Orientation="6"/></x:xmpmeta>'
_WHOLE = [
    path
    for path in sorted(corpus.CORPUS.glob("*/*"))
    if path.suffix.lower() in (".jpg", ".jpeg", ".png", ".webp", ".bmp")
    and "malformed" not in path.parts  # on some of which OpenCV crashes
    and "trunc" not in path.name
]


def _made(folder: Path, mode: str, form: str, **options: Any) -> str:
    """Save noise in a mode, and return the path."""
    noise = np.random.default_rng(5).integers(0, 256, (37, 53, 4), np.uint8)
    image = Image.fromarray(noise, "RGBA")
    if "exif" in options:
        exif = Image.Exif()
        exif[0x0112] = options["exif"]
        options["exif"] = exif
    made = image.convert("RGB").quantize(16) if mode == "P" else image.convert(mode)
    path = folder / f"image.{form}"
    made.save(path, **options)
    return str(path)


def _read_by_cv2(path: str, flags: int) -> Any:
    cv2 = pytest.importorskip("cv2")
    try:
        return cv2.imread(path, flags)
    except cv2.error:
        return None  # of COLOR_RGB with a reduction, for example


@pytest.mark.parametrize("path", _WHOLE, ids=lambda path: path.name)
def test_each_file_is_as_cv2_reads_it(path: Path) -> None:
    """Every file of the collection that OpenCV reads gives its array, for all flags."""
    for flags in _FLAGS.values():
        theirs = _read_by_cv2(str(path), flags)
        if theirs is None:
            continue
        ours = fastdecode.imread(path, flags)

        assert ours is not None
        assert ours.dtype == theirs.dtype
        assert_same(ours, theirs, flags)


@pytest.mark.parametrize("flags", _FLAGS.values(), ids=_FLAGS)
@pytest.mark.parametrize(
    ("mode", "form", "options"),
    [
        ("RGB", "jpg", {"exif": 6}),
        ("L", "jpg", {"exif": 5}),
        ("CMYK", "jpg", {}),
        ("RGB", "png", {"exif": 8}),
        ("RGB", "png", {"transparency": (1, 2, 3)}),
        ("RGBA", "png", {}),
        ("LA", "png", {}),
        ("L", "png", {}),
        ("L", "png", {"transparency": 7}),
        ("1", "png", {}),
        ("P", "png", {}),
        ("P", "png", {"transparency": bytes(range(100, 116))}),
        ("RGB", "bmp", {}),
        ("RGB", "jpg", {"xmp": XMP}),  # by which OpenCV turns no image
    ],
)
def test_each_kind_is_as_cv2_reads_it(
    mode: str, form: str, options: dict[str, Any], flags: int, tmp_path: Path
) -> None:
    """Each kind of file gives OpenCV's array, turned by EXIF where OpenCV turns it."""
    path = _made(tmp_path, mode, form, **options)
    theirs = _read_by_cv2(path, flags)
    ours = fastdecode.imread(path, flags)

    assert ours is not None
    assert ours.shape == theirs.shape
    assert_same(ours, theirs)
    assert ours.flags.c_contiguous
    assert ours.flags.writeable


def test_it_works_without_cv2(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Without OpenCV the flags have the same meaning, and colour JPEG and PNG the same values."""
    monkeypatch.setattr(imread, "_cv2", lambda: None)
    rgb = np.asarray(Image.open(io.BytesIO(photo.read_bytes())))
    for flags, expected in ((1, rgb[..., ::-1]), (-1, rgb[..., ::-1]), (256, rgb)):
        assert_same(fastdecode.imread(photo, flags), expected, flags)
    for form in ("png", "bmp"):
        made = np.asarray(Image.open(_made(tmp_path, "RGB", form)))
        path = tmp_path / f"image.{form}"

        assert_same(fastdecode.imread(path), made[..., ::-1], form)
        grey, half = fastdecode.imread(path, 0), fastdecode.imread(path, 17)
        assert grey is not None
        assert grey.shape == (37, 53)
        assert half is not None
        assert half.shape == (18, 26, 3)
    alpha = fastdecode.imread(_made(tmp_path, "RGBA", "png"), -1)
    assert alpha is not None
    assert alpha.shape == (37, 53, 4)


def test_a_file_that_cannot_be_read_raises_or_is_none(tmp_path: Path) -> None:
    """Missing and damaged files raise an error that names them, or give None if asked."""
    cut = tmp_path / "cut.jpg"
    cut.write_bytes(photo.read_bytes()[:9000])
    text = tmp_path / "text.jpg"
    text.write_text("no image")

    for path, error in (
        (cut, DecodeError),
        (text, FastDecodeError),
        (tmp_path / "no.jpg", OSError),
    ):
        with pytest.raises(error, match=path.name):
            fastdecode.imread(path)
        assert fastdecode.imread(path, on_error="none") is None
    with pytest.raises(ValueError, match="on_error"):
        fastdecode.imread(photo, on_error="skip")  # type: ignore[arg-type]


@pytest.mark.parametrize("form", ["PNG", "JPEG", "BMP", "WEBP", "TIFF"])
@pytest.mark.parametrize("size", [(3, 40), (40, 1), (1, 1), (7, 7)], ids=str)
def test_a_tiny_image_keeps_a_pixel(form: str, size: tuple[int, int], tmp_path: Path) -> None:
    """A reduction that would leave none, of which OpenCV makes an error, leaves one."""
    path, colour = tmp_path / "image", (9, 90, 200)
    Image.new("RGB", size, colour).save(path, form, **({"quality": 100} if form == "JPEG" else {}))
    for flags, reduce in ((17, 2), (65, 8), (32, 4), (32 | 2, 4)):
        made, theirs = fastdecode.imread(path, flags), _read_by_cv2(str(path), flags)

        assert made is not None
        sides = [max(1, side // reduce) for side in size[::-1]]
        assert [*made.shape[:2]] == (sides if theirs is None else [*theirs.shape[:2]])
