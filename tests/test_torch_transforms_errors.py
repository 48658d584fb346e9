"""Wrong arguments and damaged files are clear errors, and nothing is written."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from PIL import Image

torch = pytest.importorskip("torch")

from torch_reference import PHOTOS  # noqa: E402 - it needs torch

from fastdecode import (  # noqa: E402
    DecodeError,
    UnknownBackend,
    UnsupportedFormat,
)
from fastdecode.torch.transforms import (  # noqa: E402
    RandomResizedCrop,
    RandomResizedCropFlipNormalize,
    Resize,
    ResizeCenterCrop,
    ResizeCenterCropNormalize,
)

PHOTO = PHOTOS[0].read_bytes()
NAN = math.nan
TRANSFORMS = [
    RandomResizedCropFlipNormalize(16),
    ResizeCenterCropNormalize(20, 16),
    Resize((16, 16), dtype=torch.float32),
]

# A box of a photo is decoded from all of its bytes, so that damage anywhere is found.
DAMAGED = {
    "cut short": PHOTO[: len(PHOTO) // 2],
    "header only": PHOTO[:700],
    "no header": PHOTO[:100],
    "zeros": PHOTO[:9000] + bytes(len(PHOTO) - 9000),
}


def named(transform: Any) -> str:
    return type(transform).__name__


@pytest.mark.parametrize("transform", TRANSFORMS, ids=named)
@pytest.mark.parametrize("data", DAMAGED.values(), ids=DAMAGED.keys())
def test_damaged_files_are_errors(transform: Any, data: bytes) -> None:
    """Bytes that lack pixels raise DecodeError, and nothing is written."""
    out = torch.full((3, 16, 16), 5.0)

    with pytest.raises(DecodeError):
        transform(data, out=out)

    assert (out == 5).all()


@pytest.mark.parametrize("data", [b"", b"no image", bytes(1000)])
def test_what_is_no_image_is_an_error(data: bytes) -> None:
    """Bytes of something else raise as they do from decode()."""
    with pytest.raises((DecodeError, UnsupportedFormat)):
        Resize(8)(data)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (str(PHOTOS[0]), "takes the bytes of an image, not a path"),
        (PHOTOS[0], "takes the bytes of an image, not a path"),
        (Image.new("RGB", (9, 9)), "data must be bytes.*, not Image"),
        (None, "data must be bytes.*, not NoneType"),
        (np.zeros((9, 9, 3), np.uint8), "has it been decoded already"),
        (torch.zeros((3, 9, 9), dtype=torch.uint8), "has it been decoded already"),
    ],
    ids=["str", "path", "image", "none", "array", "tensor"],
)
@pytest.mark.parametrize("transform", TRANSFORMS, ids=named)
def test_what_are_no_bytes_is_an_error(transform: Any, data: Any, message: str) -> None:
    """A path, a Pillow image and decoded pixels are told from encoded bytes."""
    with pytest.raises(TypeError, match=message):
        transform(data)


@pytest.mark.parametrize("transform", TRANSFORMS, ids=named)
@pytest.mark.parametrize(
    "out",
    [
        torch.zeros(3, 16, 15),
        torch.zeros(1, 3, 16, 16),
        torch.zeros(16, 16, 3),
        torch.zeros(3, 16, 16, dtype=torch.uint8),
        torch.zeros(3, 16, 16, device="meta"),
    ],
    ids=lambda out: f"{tuple(out.shape)}-{out.dtype}-{out.device}",
)
def test_an_out_that_does_not_fit_is_refused(transform: Any, out: Any) -> None:
    """Another shape, type or device is an error that names both, and nothing is written."""
    with pytest.raises(ValueError, match=r"out must be a CPU tensor \(3, 16, 16\) of torch.float"):
        transform(PHOTO, out=out)

    assert out.is_meta or (out == 0).all()


def test_an_out_that_is_no_tensor_is_refused() -> None:
    """An array is not taken for a tensor."""
    out = np.zeros((3, 16, 16), np.float32)

    with pytest.raises(TypeError, match="out must be a tensor, not ndarray"):
        Resize((16, 16), dtype=torch.float32)(PHOTO, out=out)

    assert not out.any()


def test_an_unknown_backend_is_refused() -> None:
    """The name goes to decode(), which knows them; nothing is written."""
    out = torch.zeros(3, 16, 16)

    with pytest.raises(UnknownBackend, match="nonesuch"):
        Resize((16, 16), dtype=torch.float32)(PHOTO, out=out, backend="nonesuch")

    assert (out == 0).all()


@pytest.mark.parametrize(
    "size", [0, -1, "a", "ab", (), (1, 2, 3), (5, 0), 5.5, (5.0, 5), None, True]
)
def test_sizes_are_checked(size: Any) -> None:
    """A size is one positive integer, or two; the error names the argument and its value."""
    for name, make in (
        ("size", lambda: RandomResizedCropFlipNormalize(size)),
        ("size", lambda: Resize(size)),
        ("size", lambda: ResizeCenterCropNormalize(8, size)),
        ("resize", lambda: ResizeCenterCropNormalize(size, 8)),
    ):
        with pytest.raises(ValueError, match=f"^{name} must be a positive integer or") as caught:
            make()
        assert str(caught.value).endswith(f"not {size!r}")


def test_integers_of_numpy_are_sizes() -> None:
    """Sides computed by NumPy are as good as others, and kept as plain integers."""
    transform = RandomResizedCropFlipNormalize((np.int64(5), np.uint8(6)))

    assert transform.size == (5, 6)
    assert type(transform.size[0]) is int
    assert Resize(np.int32(5)).size == 5


WRONG_RANGES = [(1, 0.5), (NAN, 1), (0.1, NAN), (0, 1), (-1, 1), (0.5,), 0.5, "ab", (0.1, math.inf)]


@pytest.mark.parametrize("values", WRONG_RANGES, ids=repr)
def test_ranges_are_checked(values: Any) -> None:
    """Scale and ratio are two positive, finite numbers in order."""
    with pytest.raises(ValueError, match=r"^scale must be \(low, high\) with 0 < low <= high"):
        RandomResizedCropFlipNormalize(8, scale=values)
    with pytest.raises(ValueError, match=r"^ratio must be \(low, high\) with 0 < low <= high"):
        RandomResizedCropFlipNormalize(8, ratio=values)


@pytest.mark.parametrize("flip", [2, -0.1, NAN, True, False, "yes", None])
def test_probabilities_are_checked(flip: Any) -> None:
    """A flip is a number from 0 to 1: True would flip all pictures, which is hardly meant."""
    for make in (
        lambda: RandomResizedCropFlipNormalize(8, flip=flip),
        lambda: ResizeCenterCropNormalize(8, 8, flip=flip),
        lambda: Resize(8, flip=flip),
    ):
        with pytest.raises(ValueError, match="flip must be a probability from 0 to 1, not"):
            make()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"headroom": 0.5}, "headroom must be a number of at least 1, not 0.5"),
        ({"headroom": NAN}, "headroom must be a number of at least 1, not nan"),
        ({"headroom": "2"}, "headroom must be a number of at least 1, not '2'"),
        ({"quality": "best"}, "quality must be 'fast' or 'exact', not 'best'"),
        ({"dtype": torch.float16}, "dtype must be torch.float32 or torch.uint8, not torch.float16"),
        ({"dtype": "uint8"}, "dtype must be torch.float32 or torch.uint8, not uint8"),
        ({"mean": (0.5,), "std": (0.2, 0, 0.2)}, "std must not hold a zero"),
        ({"mean": (0.5, 0.5), "std": (0.2,)}, "mean must be three numbers"),
        ({"mean": (0.5,)}, "std must be three numbers"),
        ({"std": (0.2,)}, "std is given without a mean: give both, or neither"),
        (
            {"mean": (0.5,), "std": (0.2,), "dtype": torch.uint8},
            "bytes cannot be normalised: leave",
        ),
        (
            {"interpolation": "nearest"},
            "interpolation must be 'bilinear' or 'bicubic', not 'nearest'",
        ),
        ({"interpolation": 0.5}, "interpolation must be 'bilinear' or 'bicubic', not 0.5"),
        ({"interpolation": True}, "interpolation must be 'bilinear' or 'bicubic', not True"),
        ({"antialias": False}, "antialias must be True, not False"),
        ({"antialias": None}, "antialias must be True, not None"),
    ],
)
def test_options_are_checked(options: dict[str, Any], message: str) -> None:
    """All three of them check what they have in common when they are made."""
    for make in (
        lambda: RandomResizedCrop(8, **options),
        lambda: ResizeCenterCrop(8, 8, **options),
        lambda: Resize(8, **options),
    ):
        with pytest.raises(ValueError, match=message):
            make()
