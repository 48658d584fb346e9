"""Every file of the collection, with every backend: pixels, or an error of ours.

The small collection beside the tests is used, or the large one that ``FASTDECODE_CORPUS`` names.
"""

from __future__ import annotations

import io
import warnings
from pathlib import Path

import numpy as np
import PIL
import pytest
from cases import some
from corpus import Sample, needs_tifffile, outcome, samples, usable_backends
from PIL import Image, UnidentifiedImageError
from same import assert_same
from sweep import Case, cases, sweep

from fastdecode import DecodeError, FastDecodeError, UnsupportedFormat, decode, probe

_VALID = [s for s in samples("photos", "formats", "jpeg_kinds") if s.decodes_in_pillow]
_ODD = [s for s in samples("formats", "jpeg_kinds") if not s.decodes_in_pillow]
_DAMAGED = samples("malformed")
_PARTS = 8  # in one part, the whole collection took a busy machine longer than a test may
# Formats that Pillow does not read: the backend made for each, and files that are damaged in a way
# of their own (not standing for what the backend can do).
_MADE_FOR = {"jxl": "imagecodecs", "heif": "pillow_heif"}
# Where Pillow 13 is wrong, or reads what is damaged.
_NOT_AS_PILLOW = frozenset({
    "image_tiff__images_minisblack-2c-8b-alpha.tiff",  # takes the plane of alpha for nothing
    "image_tiff__seq_seq-4c-16b-rgba-5181991f.tiff",  # divides by the high byte of alpha
    "image_tiff__images_hpredict-1c-12b.tiff",  # ignores the predictor of uncompressed samples
    "image_rs_image__images_imagemagick_invalid_run_length_issue_2321.bmp",
    "image_rs_image__lenient_badrle.bmp",  # runs that leave their row
})  # fmt: skip
_SIXTEEN_BIT = ("I;16", "I;16B", "I;16L", "I;16N")


def _pillow(data: bytes) -> Image.Image:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        image = Image.open(io.BytesIO(data))
        image.load()
    return image


_FOREIGN = ("ICO", "CUR", "TGA", "QOI", "PCX", "PSD", "ICNS", "DDS", "SGI")


def _has_colours(data: bytes) -> bool:
    header = probe(data)
    return header.sample == "unsigned" and header.bits <= 16


@pytest.mark.parametrize("sample", _VALID, ids=lambda sample: sample.name)
def test_what_pillow_decodes_decodes_to_the_same(sample: Sample) -> None:
    """Every file that Pillow decodes gives Pillow's RGB; 16-bit grey gives its high byte.

    Formats of other libraries are refused by name, and so are the 8-bit modes of floats.
    """
    data = sample.path.read_bytes()
    try:
        expected = _pillow(data)
    except UnidentifiedImageError:
        pytest.skip(f"Pillow {PIL.__version__} does not read it; the manifest speaks of 13")
    foreign = expected.format in _FOREIGN
    if foreign or not _has_colours(data):
        with pytest.raises(UnsupportedFormat, match=expected.format if foreign else "stored"):
            decode(data)
        return
    if sample.path.name in _NOT_AS_PILLOW:
        pytest.skip("Pillow is not right")
    header = probe(data)
    if header.coding == "arithmetic" or (header.format, header.coding) == ("tiff", "other"):
        with pytest.raises(UnsupportedFormat):
            decode(data)
        return

    needs_tifffile(data)
    image = decode(data)

    if expected.mode in _SIXTEEN_BIT:
        high = np.asarray(expected).astype(int) >> max(probe(data).bits, 9) - 8
        if sample.format == "jpeg2000":  # Pillow widens its samples to 16 bits
            high = np.asarray(expected).astype(int) >> 8
        assert_same(image, np.dstack([high] * 3).astype(np.uint8))
        return
    straight = expected.convert("LA") if expected.mode == "La" else expected
    pixels = np.asarray(straight.convert("RGB")).astype(int)
    assert image.shape == pixels.shape
    assert np.abs(image - pixels).max() <= (1 if expected.mode == "CMYK" else 0)


def test_what_lacks_its_first_scans_is_an_error() -> None:
    """A progressive file without the first scan of some coefficients is missing data."""
    lacking = [sample for sample in _ODD if sample.lacks_data]
    assert lacking
    for sample in lacking:
        with pytest.raises(DecodeError):
            decode(sample.path.read_bytes())


@pytest.mark.parametrize("sample", [s for s in _ODD if s.format in _MADE_FOR], ids=lambda s: s.name)
def test_formats_beyond_pillow(sample: Sample) -> None:
    """JPEG XL and HEIC decode with their own backends, but for what comes in linear light."""
    if _MADE_FOR[sample.format] not in usable_backends():
        pytest.skip(f"{_MADE_FOR[sample.format]} is not usable here")

    if sample.name.endswith(_LINEAR):
        with pytest.raises(UnsupportedFormat):
            decode(sample.path.read_bytes())
        return
    image = decode(sample.path.read_bytes())

    assert image.ndim == 3
    assert image.shape[2] == 3


_LINEAR = ("__grayscale_input.jxl", "__patches_input.jxl")
_PLACES = 20
# Most of what a decoder might forgive stands at the very end: an end marker, a checksum, a byte.
_BEFORE_THE_END = (1, 2, 3, 4, 5, 6, 8, 12, 16, 24, 32, 64, 128)


def _places(size: int) -> list[int]:
    """Choose `_PLACES` lengths to cut to: some just below the size, the others anywhere."""
    ends = {size - before for before in _BEFORE_THE_END}
    spread = np.linspace(1, size - 1, _PLACES + len(ends)).astype(int).tolist()
    for end in spread[::2] + spread[1::2]:
        if len(ends) < _PLACES:
            ends.add(end)
    return sorted(end for end in ends if 0 < end < size)


@pytest.mark.parametrize(
    "sample",
    [*_VALID, *(s for s in _ODD if s.format in ("jxl", "heif", "jpeg"))],
    ids=lambda sample: sample.name,
)
@pytest.mark.filterwarnings("ignore")
def test_what_is_left_of_a_cut_file_is_whole_or_an_error(sample: Sample) -> None:
    """A file that is cut at 20 places never decodes to other pixels than before."""
    data = sample.path.read_bytes()
    try:
        whole = decode(data)
    except FastDecodeError as error:
        pytest.skip(f"it does not decode here: {error}")

    outcomes = {end - len(data): outcome(data[:end], whole) for end in _places(len(data))}

    assert [end for end, what in outcomes.items() if what == "other pixels"] == []


@pytest.mark.parametrize("part", some(range(_PARTS), 1))
def test_every_backend_gives_the_same_pixels_or_our_error(part: int) -> None:
    """No file crashes a backend, hangs it, or makes it raise anything that is not ours.

    Of a JPEG all exact ones show the same, and none shows an image where one finds pixels missing.
    """
    every = [s for s in (*_VALID, *_ODD, *_DAMAGED) if "photos" not in s.name]
    files = some(every[part::_PARTS], 24)

    report = sweep([Case(str(one.path), 0) for one in files], methods=("agree",))

    assert not report.faults, "\n".join(report.faults)
    assert report.answers["pixels"] > sum(one not in _DAMAGED for one in files)
    assert report.answers["DecodeError"] > sum(one in _DAMAGED for one in files)


@pytest.mark.thorough
def test_a_sample_of_the_sweep_finds_nothing(tmp_path: Path) -> None:
    """Files of every kind, intact and damaged, cause no fault in any way of decoding."""
    report = sweep(list(cases(60, tmp_path, files=60)))

    assert not report.faults, "\n".join(report.faults)
    assert report.answers["pixels"] > 150
    assert report.answers["DecodeError"] > 150
    assert report.answers["batch: ndarray"] > 50
    assert report.answers["pack: packed"] > 20
