"""Every file of the collection, with every backend: pixels, or an error of ours.

The small collection beside the tests is used, or the large one that ``FASTDECODE_CORPUS`` names.
"""

from __future__ import annotations

import io
import re
import traceback
import warnings
from collections import Counter
from contextlib import suppress
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import PIL
import pytest
from cases import some
from corpus import CORPUS, Sample, needs_tifffile, outcome, samples, usable_backends
from deep import FILES as DEEP
from PIL import Image, UnidentifiedImageError
from same import assert_same

import fastdecode
from fastdecode import DecodeError, FastDecodeError, UnsupportedFormat, decode, decode_batch, probe
from fastdecode._backends import registry
from fastdecode.packing import pack, survey
from fastdecode.stores import open_store
from fastdecode.testing import drawing, encode

_PACKAGE = Path(fastdecode.__file__).parent

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
    if (header.format, header.coding) == ("tiff", "other"):
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
    """No file makes a backend raise anything that is not ours, or give what was not asked for.

    Of a JPEG all exact ones show the same, and none shows an image where one finds pixels missing.
    """
    every = [s for s in (*_VALID, *_ODD, *_DAMAGED) if "photos" not in s.name]
    files = some(every[part::_PARTS], 24)
    answers: Counter[str] = Counter()
    for sample in files:
        data, found = sample.path.read_bytes(), {}
        for name in (None, *usable_backends()):
            for options in ({"reduce": 4, "mode": "L"}, {"mode": "stored", "strict": True}, {}):
                found[name] = _checked(data, {"backend": name, **options}, sample.name)
                answers[type(found[name]).__name__] += 1
        if sample.format == "jpeg":
            _check_agreement(sample.name, found)

    assert answers["ndarray"] > sum(one not in _DAMAGED for one in files)
    assert answers["DecodeError"] > sum(one in _DAMAGED for one in files)


def _checked(data: bytes, options: dict[str, Any], of: str) -> Any:
    """Return the pixels or an allowed error of `decode`; fail for a wrong result."""
    try:
        image = decode(data, **options)
    except FastDecodeError as error:
        hidden: BaseException | None = error.__cause__
        while hidden is not None:  # an adapter may let through what its library raises
            last = traceback.extract_tb(hidden.__traceback__)[-1:] if hidden.__traceback__ else []
            place = Path(last[0].filename) if last else Path()
            ours = _PACKAGE in place.parents and place.stem not in registry.BUILTIN
            assert isinstance(hidden, FastDecodeError) or not ours, f"{of}, {options}: {hidden!r}"
            hidden = hidden.__cause__
        return error
    except ValueError as error:
        if "region" not in options or "outside" not in str(error):
            raise
        return error
    except MemoryError as error:
        return error
    assert (image.flags.c_contiguous, image.flags.writeable) == (True, True), f"{of}, {options}"
    assert image.dtype == np.uint8 or options.get("mode") == "stored", f"{of}, {options}"
    assert image.dtype.kind in "buif", f"{of}, {options}"
    header = probe(data)
    sides = [-(-side // options.get("reduce", 1)) for side in (header.height, header.width)]
    turned = options.get("orient") and header.orientation > 4
    if not {"region", "min_size"} & {*options}:
        assert [*image.shape[:2]] == (sides[::-1] if turned else sides), f"{of}, {options}"
    return image


def _check_agreement(of: str, found: dict[str | None, Any]) -> None:
    """Check that exact backends agree on a JPEG, and none decodes it if one misses pixels."""
    images = {name: one for name, one in found.items() if isinstance(one, np.ndarray)}
    said = [str(one) for one in found.values() if isinstance(one, DecodeError)]
    assert not images or not re.search("missing|remature end", " ".join(said)), (of, said)
    exact = [one for name, one in images.items() if not name or registry.load(name).exact]
    limit = 1 if exact and probe((CORPUS / of).read_bytes()).color == "cmyk" else 0
    for image in exact:
        assert_same(image, exact[0], of, within=limit)


_FORMATS = ("PNG", "TIFF", "BMP", "GIF", "WEBP", "AVIF", "JPEG2000", "JPEG", "PPM", "ICO", "TGA")
_MODES = ("1", "L", "LA", "La", "P", "PA", "RGB", "RGBA", "RGBa", "RGBX", "CMYK", "YCbCr", "LAB")
_CODECS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("jpeg2k_encode", {"codecformat": "j2k", "level": 0}),
    ("jpeg2k_encode", {"codecformat": "jp2", "level": 0}),
    ("jpegxl_encode", {"lossless": True}),
    ("avif_encode", {"level": 90}),
    ("jpegls_encode", {}),
    ("jpeg_encode", {}),
)


def _kinds() -> dict[str, bytes]:
    """Encode a small image in every format, mode, depth and channel count that an encoder takes."""
    found = {name: data for name, (_, data) in DEEP.items()}
    for form, mode in product(_FORMATS, (*_MODES, "HSV", "I", "I;16", "F")):
        with suppress(Exception):  # Pillow cannot write every mode in every format
            found[f"{form} {mode}"] = encode(drawing(23, 17).convert(mode), form)
    with suppress(ImportError):
        import imagecodecs

        for channels, bits in product((1, 2, 3, 4, 5, 9), (1, 4, 8, 10, 12, 16)):
            dtype = np.uint8 if bits <= 8 else np.uint16
            shape = (17, 23, channels) if channels > 1 else (17, 23)
            image = np.random.default_rng(bits).integers(0, 1 << bits, shape, dtype)
            for number, (name, options) in enumerate(_CODECS):
                with suppress(Exception):  # no codec has all depths and channel counts
                    found[f"{name} {number} {channels} {bits}"] = getattr(imagecodecs, name)(
                        image, bitspersample=bits, **options
                    )
    return found


_ODD_BYTES = (0, 1, 2, 3, 5, 7, 8, 9, 16, 17, 32, 64, 127, 128, 254, 255)


def _damage(data: bytes, random: np.random.Generator) -> bytes:
    """Damage the data one to four times, half of the times in the first 256 bytes."""
    changed = bytearray(data)
    for _ in range(random.integers(1, 5)):
        near = min(len(changed), 256 if random.random() < 0.5 else len(changed))
        if near < 8:
            break
        at, length = int(random.integers(2, near)), int(random.integers(1, 64))
        match random.choice(6, p=(0.3, 0.4, 0.08, 0.08, 0.08, 0.06)):
            case 0:
                changed[at] ^= 1 << int(random.integers(8))
            case 1:
                changed[at] = random.choice(_ODD_BYTES)
            case 2:
                start = int(random.integers(len(changed)))
                changed[at:at] = changed[start : start + length]
            case 3:
                del changed[at : at + length]
            case 4:
                changed[at : at + length] = bytes(min(length, len(changed) - at))
            case _:
                del changed[int(random.integers(at, len(changed))) :]
    return bytes(changed)


_MOST = 4_000_000  # pixels: a damaged header may promise any number of them


def _settings(data: bytes, number: int) -> list[dict[str, Any]]:
    """Return options for each way of decoding; the last four name a backend."""
    random, box = np.random.default_rng(number), (0, 0, 1, 1)
    with suppress(FastDecodeError):
        header = probe(data)
        left, top = (int(random.integers(side)) for side in (header.width, header.height))
        right = int(random.integers(left, header.width)) + 1
        box = left, top, right, int(random.integers(top, header.height)) + 1
    named = {"backend": usable_backends()[number % len(usable_backends())]}
    return [
        {},
        {"reduce": 4, "mode": "L"},
        {"reduce": 2, "mode": "stored"},
        {"mode": "stored", "strict": True},
        {"mode": "RGBA", "orient": True},
        {"min_size": 9, "orient": True},
        {"region": box},
        {"region": box, "reduce": 8, "mode": "stored", "orient": True},
        {"reduce": 8, "strict": True},
        named,
        {**named, "mode": "stored"},
        {**named, "mode": "RGBA", "reduce": 2},
        {**named, "mode": "L", "reduce": 8, "orient": True},
    ]


@pytest.mark.thorough
@pytest.mark.filterwarnings("ignore")
def test_files_of_every_kind_intact_and_damaged(tmp_path: Path) -> None:
    """In each way of decoding, alone, in a batch, a `Loader`, `survey` and `pack`: our errors."""
    every = {one.name: one.path.read_bytes() for one in (*_VALID, *_ODD)} | _kinds()
    some_files = dict([*every.items()][:: max(1, len(every) // 60)])
    small = [data for data in every.values() if 8 < len(data) <= 60_000]
    cases = [(name, data, {}) for name, data in some_files.items()]
    for number in range(1, 61):
        data = _damage(small[number * 7 % len(small)], np.random.default_rng(number))
        cases.append((f"damage {number}", data, {"max_pixels": _MOST}))
    answers: Counter[str] = Counter()
    for number, (name, data, limit) in enumerate(cases):
        for options in _settings(data, number):
            answers[type(_checked(data, {**options, **limit}, name)).__name__] += 1
        with suppress(FastDecodeError):
            header = probe(data)
            if not limit or header.width * header.height <= _MOST:
                (tmp_path / f"{number:03}.jpg").write_bytes(data)
    assert min(answers["ndarray"], answers["DecodeError"]) > 150

    files = sorted(tmp_path.iterdir())
    for options in ({}, {"mode": "stored", "reduce": 2}, {"mode": "L", "strict": True}):
        made = decode_batch(files, on_error="return", threads=2, **options)
        assert {*map(type, made)} <= {np.ndarray, DecodeError, UnsupportedFormat}
    with open_store(tmp_path) as store:
        assert len([*survey(store, 2)]) == len(store) == len(files)
    for options in ({}, {"max_side": 24, "restart_markers": True}):
        target = tmp_path.with_suffix(f".{len(options)}.tar")
        packed = pack(tmp_path, target, skip_bad=True, threads=2, **options)
        assert packed.items + len(packed.bad) == len(files)
        assert packed.items > 20
    torch_data = pytest.importorskip("fastdecode.torch")
    for crop in ("ResizeCenterCrop", "RandomResizedCrop"):
        sides = (32, 24) if crop == "ResizeCenterCrop" else (24,)
        transform = getattr(torch_data.transforms, crop)(*sides)
        dataset = torch_data.ImageList(files, transform=transform, on_error="skip")
        loader = torch_data.Loader(dataset, 16, threads=2)
        assert sum(map(len, loader)) + loader.skipped == len(files)
