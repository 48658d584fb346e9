"""Every file of the collection, with every backend: pixels, or an error of ours.

The small collection beside the tests is used, or the large one that ``FASTDECODE_CORPUS`` names.
"""

from __future__ import annotations

import io
import subprocess
import sys
import warnings
from pathlib import Path

import numpy as np
import PIL
import pytest
from corpus import CORPUS, Sample, samples, usable_backends
from cuts import honest, outcome, places
from PIL import Image, UnidentifiedImageError

from fastdecode import DecodeError, FastDecodeError, decode, decode_batch, probe

_VALID = [s for s in samples("photos", "formats", "jpeg_kinds") if s.decodes_in_pillow]
_ODD = [s for s in samples("formats", "jpeg_kinds") if not s.decodes_in_pillow]
_DAMAGED = samples("malformed")
# Formats that Pillow does not read: the backend made for each, and files that are damaged in a way
# of their own (not standing for what the backend can do).
_MADE_FOR = {"jxl": "imagecodecs", "heif": "pillow_heif"}
_SIXTEEN_BIT = ("I;16", "I;16B", "I;16L", "I;16N")


def _pillow(data: bytes) -> Image.Image:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        image = Image.open(io.BytesIO(data))
        image.load()
    return image


@pytest.mark.parametrize("sample", _VALID, ids=lambda sample: sample.name)
def test_what_pillow_decodes_decodes_to_the_same(sample: Sample) -> None:
    """Every file that Pillow decodes gives Pillow's RGB; 16-bit grey gives its high byte."""
    data = sample.path.read_bytes()
    try:
        expected = _pillow(data)
    except UnidentifiedImageError:
        pytest.skip(f"Pillow {PIL.__version__} does not read it; the manifest speaks of 13")

    image = decode(data)

    if expected.mode in _SIXTEEN_BIT:
        high = np.asarray(expected).astype(int) >> max(probe(data).bits, 9) - 8
        if sample.format == "jpeg2000":  # Pillow widens its samples to 16 bits
            high = np.asarray(expected).astype(int) >> 8
        np.testing.assert_array_equal(image, np.dstack([high] * 3))
        return
    straight = expected.convert("LA") if expected.mode == "La" else expected
    pixels = np.asarray(straight.convert("RGB")).astype(int)
    assert image.shape == pixels.shape
    assert np.abs(image - pixels).max() <= (1 if expected.mode == "CMYK" else 0)


@pytest.mark.parametrize("sample", [s for s in _ODD if s.format in _MADE_FOR], ids=lambda s: s.name)
def test_formats_beyond_pillow(sample: Sample) -> None:
    """JPEG XL and HEIC decode by the backend that is made for them."""
    if _MADE_FOR[sample.format] not in usable_backends():
        pytest.skip(f"{_MADE_FOR[sample.format]} is not usable here")

    image = decode(sample.path.read_bytes())

    assert image.ndim == 3
    assert image.shape[2] == 3


@pytest.mark.parametrize(
    "sample", honest("photos", "formats", "jpeg_kinds"), ids=lambda sample: sample.name
)
@pytest.mark.filterwarnings("ignore")
def test_what_is_left_of_a_cut_file_is_whole_or_an_error(sample: Sample) -> None:
    """Cut at 30 places, no file decodes to other pixels than before."""
    data = sample.path.read_bytes()
    try:
        whole = decode(data)
    except FastDecodeError as error:
        pytest.skip(f"it does not decode here: {error}")

    outcomes = {end - len(data): outcome(data[:end], whole) for end in places(len(data))}

    assert [end for end, what in outcomes.items() if what == "other pixels"] == []


@pytest.mark.parametrize(
    ("name", "shape", "dtype"),
    [
        ("libjpeg_turbo__monkey12.jpg", (227, 149, 3), np.uint16),
        ("twelvemonkeys__gradient_ls.jpg", (256, 256), np.uint16),
        ("twelvemonkeys__testimg_rgb.jpg", (149, 227, 3), np.uint8),
        ("pylibjpeg_14495_JNL_T8NDE3.JLS", (128, 128), np.uint8),
        ("pylibjpeg_14495_JNL_T16E3.JLS", (256, 256), np.uint16),
        ("pylibjpeg_10918_p4_E1.JPG", (257, 255, 4), np.uint16),
    ],
)
def test_rare_jpeg_in_its_own_type(name: str, shape: tuple[int, ...], dtype: type) -> None:
    """12-bit, lossless and JPEG-LS files give what they hold in mode "stored"."""
    path = CORPUS / "jpeg_kinds" / name
    if not path.exists():
        pytest.skip(f"{name} is only in the large collection")
    if "imagecodecs" not in usable_backends():
        pytest.skip("imagecodecs is not usable here")

    image = decode(path.read_bytes(), mode="stored")

    assert image.shape == shape
    assert image.dtype == dtype


@pytest.mark.parametrize("name", [None, *usable_backends()])
def test_every_file_gives_pixels_or_our_error(name: str | None, tmp_path: Path) -> None:
    """No file crashes a backend, hangs it, or makes it raise anything that is not ours.

    In a process of its own, so that a crash is a failure of this test alone.
    """
    script = """
import sys, warnings
from fastdecode import FastDecodeError, decode
warnings.simplefilter("ignore")
name = sys.argv[1] or None
for path in sys.stdin.read().split("\\n"):
    print(path, file=sys.stderr, flush=True)
    with open(path, "rb") as file:
        data = file.read()
    for options in ({}, {"reduce": 4, "mode": "L"}, {"mode": "stored", "strict": True}):
        try:
            image = decode(data, backend=name, **options)
        except FastDecodeError:
            continue
        assert image.flags.c_contiguous and image.flags.writeable, path
"""
    paths = "\n".join(str(s.path) for s in (*_VALID, *_ODD, *_DAMAGED) if "photos" not in s.name)

    done = subprocess.run(
        [sys.executable, "-c", script, name or ""],
        input=paths,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )

    assert done.returncode == 0, done.stderr[-1000:]


def _verdict(data: bytes, name: str) -> str:
    try:
        decode(data, backend=name)
    except DecodeError as error:
        return "missing" if "missing" in str(error) or "remature end" in str(error) else "refused"
    except FastDecodeError:
        return "refused"
    return "pixels"


def test_backends_agree_on_missing_pixels() -> None:
    """Where one backend finds a JPEG's pixels missing, no other shows an image."""
    names = [n for n in usable_backends() if n != "pillow_heif"]
    for sample in (*_DAMAGED, *_ODD, *_VALID):
        if sample.format != "jpeg" or "photos" in sample.name:
            continue
        data = sample.path.read_bytes()

        verdicts = {name: _verdict(data, name) for name in names}

        assert not {"missing", "pixels"} <= set(verdicts.values()), (sample.name, verdicts)


def test_damaged_pixels_are_the_same_everywhere() -> None:
    """Of a damaged JPEG that decodes all the same, every backend shows the same image."""
    names = [n for n in ("simplejpeg", "opencv", "pillow", "imagecodecs") if n in usable_backends()]
    for sample in _DAMAGED:
        if sample.format != "jpeg":
            continue
        data = sample.path.read_bytes()
        images = {}
        for name in names:
            try:
                images[name] = decode(data, backend=name)
            except FastDecodeError:
                continue

        for name, image in images.items():
            first = next(iter(images.values()))
            limit = 1 if "CMYK" in sample.pillow else 0
            assert np.abs(image.astype(int) - first).max() <= limit, (sample.name, name)


def test_a_whole_folder_at_once() -> None:
    """A batch over damaged and sound files gives one answer for each, in order."""
    files = [*_DAMAGED[:60], *_VALID[:60]]

    answers = decode_batch([s.path for s in files], on_error="return", threads=4)

    assert len(answers) == len(files)
    for sample, answer in zip(files, answers, strict=True):
        if sample.name.startswith("malformed"):
            assert isinstance(answer, (np.ndarray, FastDecodeError))
        else:
            assert isinstance(answer, np.ndarray), sample.name
