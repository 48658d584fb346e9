"""The transforms of encoded bytes give the pixels of the reference."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from conftest import CORPUS, usable_backends
from encoded import with_orientation
from PIL import Image

torch = pytest.importorskip("torch")

import torch_reference as reference  # noqa: E402 - they need torch
from torch_reference import PHOTOS, center_crop, encoded, levels, pixels, resize, seeded  # noqa: E402

from fastdecode.torch.transforms import (  # noqa: E402
    RandomResizedCrop,
    RandomResizedCropFlipNormalize,
    Resize,
    ResizeCenterCrop,
    ResizeCenterCropNormalize,
)

EXACT: dict[str, Any] = {"dtype": torch.uint8, "quality": "exact"}
RANGES = (0.08, 1.0), (3 / 4, 4 / 3)
PHOTO = PHOTOS[0].read_bytes()


def made(name: str) -> bytes:
    """Make a picture of another kind out of a photo."""
    photo = Image.open(PHOTOS[0])
    if name == "cmyk":
        return encoded(photo.convert("CMYK"), quality=95)
    if name == "png-rgba":
        return encoded(photo.resize((97, 61)).convert("RGBA"), "PNG")
    if name == "webp":
        return encoded(photo.resize((130, 87)), "WEBP")
    sides = {"1x1": (1, 1), "1x500": (1, 500), "500x1": (500, 1)}[name]
    return encoded(photo.resize(sides), quality=95)


KINDS = ("cmyk", "png-rgba", "webp", "1x1", "1x500", "500x1")
PICTURES = [
    *(pytest.param(path.read_bytes(), id=path.stem) for path in PHOTOS),
    *(pytest.param(made(name), id=name) for name in KINDS),
    pytest.param((CORPUS / "formats/gen_pal_trns.png").read_bytes(), id="png-palette"),
]


@pytest.mark.parametrize("data", PICTURES)
@pytest.mark.parametrize("size", [57, (40, 71)])
def test_a_random_crop_is_the_references(data: bytes, size: Any) -> None:
    """Box, flip and pixels of RandomResizedCrop are those of the same seed, to one level."""
    transform = RandomResizedCrop(size, **EXACT, flip=0.5)
    image = pixels(data)
    sides = (size, size) if isinstance(size, int) else size

    for seed in range(6):
        expected = reference.random_resized_crop(image, sides, seed)

        assert levels(transform(data, generator=seeded(seed)), expected) <= 1


@pytest.mark.parametrize("data", PICTURES)
@pytest.mark.parametrize(
    ("side", "size"),
    [
        (64, (56, 56)),
        (65, (56, 32)),  # odd margins
        (64, (63, 61)),
        ((50, 61), (33, 20)),
        (40, (64, 57)),  # padded with 24 rows, and with columns if it is no wide picture
        ((31, 80), (40, 41)),  # rows are padded, columns are cut
    ],
)
def test_a_central_crop_is_the_references(data: bytes, side: Any, size: tuple[int, int]) -> None:
    """Sides, margins, padding and pixels of ResizeCenterCrop are the reference's, to one level."""
    expected = center_crop(resize(pixels(data), side), size)

    assert levels(ResizeCenterCrop(side, size, **EXACT)(data), expected) <= 1


@pytest.mark.parametrize("disabled", ["", "native"])
@pytest.mark.parametrize("upright", [True, False])
def test_of_a_strip_only_what_is_shown_is_resized(
    upright: bool, disabled: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The centre of a strip is right where the whole, 2000 x 1 800 000 pixels, fits no memory."""
    monkeypatch.setenv("FASTDECODE_DISABLE", disabled)
    levels_of = np.random.default_rng(1).integers(0, 256, (900, 1, 3), np.uint8)
    strip = levels_of if upright else levels_of.transpose(1, 0, 2)
    shown = (np.arange(899_972, 900_028) + 0.5) / 2000 - 0.5
    along = [np.interp(shown, np.arange(900), levels_of[:, 0, channel]) for channel in range(3)]
    expected = torch.from_numpy(np.stack(along)).round().to(torch.uint8)[:, :, None]

    size = (56, 50) if upright else (50, 56)
    result = ResizeCenterCrop(2000, size, **EXACT)(encoded(Image.fromarray(strip), "PNG"))

    expected = expected if upright else expected.permute(0, 2, 1)
    assert result.shape == (3, *size)
    assert levels(result, expected.expand(3, *size)) <= 1


@pytest.mark.parametrize("data", PICTURES)
@pytest.mark.parametrize("size", [48, [48], 51, (40, 71)])
def test_a_resized_picture_is_the_references(data: bytes, size: Any) -> None:
    """Resize rounds the long side as torchvision does, and its pixels are right to one level."""
    expected = resize(pixels(data), size[0] if isinstance(size, list) else size)

    assert levels(Resize(size, **EXACT)(data), expected) <= 1


@pytest.mark.parametrize("value", range(1, 9))
def test_the_orientation_is_applied_on_request(value: int) -> None:
    """With orient=True all of them see the picture upright, else as it is stored."""
    data = encoded(Image.open(PHOTOS[0]).resize((203, 131)), exif=with_orientation(value))
    crop, central = (
        RandomResizedCrop(40, **EXACT, flip=0.5),
        ResizeCenterCrop(47, (40, 33), **EXACT),
    )

    for orient in (True, False):
        image = pixels(data, orient=orient)
        expected = reference.random_resized_crop(image, (40, 40), 3)

        assert levels(crop(data, generator=seeded(3), orient=orient), expected) <= 1
        expected = center_crop(resize(image, 47), (40, 33))
        assert levels(central(data, orient=orient), expected) <= 1


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "WEBP"])
@pytest.mark.parametrize("value", range(1, 9))
def test_a_turned_image_is_the_same_without_the_core(
    value: int, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Called on one image with orient=True, core or not: the same part, as seen, to a level."""
    image = Image.open(PHOTOS[0]).resize((203, 131))
    data = encoded(image, kind, exif=with_orientation(value))
    transforms = [
        RandomResizedCrop((40, 31), flip=0.5, **EXACT),
        ResizeCenterCrop(47, (40, 33), **EXACT),
        Resize((40, 64), **EXACT),
        Resize(39, **EXACT),
    ]
    found = []
    for disabled in ("", "native"):
        monkeypatch.setenv("FASTDECODE_DISABLE", disabled)
        found.append(
            [one.with_geometry(data, generator=seeded(4), orient=True) for one in transforms]
        )

    for (result, geometry), (other, theirs) in zip(*found, strict=True):
        assert geometry == theirs
        assert levels(result, other) <= 1
    whole = found[0][2][0]
    assert levels(whole, resize(pixels(data, orient=True), (40, 64))) <= (
        8 if kind == "WEBP" else 1
    )


@pytest.mark.parametrize("backend", usable_backends())
def test_every_backend_gives_the_same(backend: str) -> None:
    """A backend that is named does the decoding."""
    if backend == "pillow_heif":
        data = (CORPUS / "formats/pillow_heif__heif_RGB_8__29x100.heif").read_bytes()
        expected = Resize((20, 30), **EXACT)(data)
    else:
        data = PHOTO
        expected = resize(pixels(data), (20, 30))

    assert levels(Resize((20, 30), **EXACT)(data, backend=backend), expected) <= 1


def test_flips_happen_as_often_as_asked_for() -> None:
    """A probability of 1 mirrors every result, 0 none."""
    plain = Resize((30, 41), **EXACT)(PHOTO)

    assert torch.equal(Resize((30, 41), flip=1, **EXACT)(PHOTO), plain.flip(-1))
    assert torch.equal(
        ResizeCenterCrop((30, 41), (30, 41), flip=1.0, **EXACT)(PHOTO), plain.flip(-1)
    )
    some = [Resize((30, 41), flip=0.5, **EXACT)(PHOTO, generator=seeded(n)) for n in range(20)]
    assert {torch.equal(one, plain) for one in some} == {True, False}


def test_floats_are_normalised_as_asked_for() -> None:
    """ImageNet's mean and std by default, one's own, or values of 0 to 1."""
    image = Resize((30, 41), **EXACT)(PHOTO)

    usual = ResizeCenterCropNormalize((30, 41), (30, 41), quality="exact")(PHOTO)
    own = Resize((30, 41), mean=(0.1, 0.2, 0.3), std=(2, 3, 4), quality="exact")(PHOTO)
    plain = Resize((30, 41), dtype=torch.float32, quality="exact")(PHOTO)

    assert usual.dtype == own.dtype == plain.dtype == torch.float32
    torch.testing.assert_close(usual, reference.normalized(image), rtol=0, atol=1e-5)
    expected = reference.normalized(image, (0.1, 0.2, 0.3), (2.0, 3.0, 4.0))
    torch.testing.assert_close(own, expected, rtol=0, atol=1e-6)
    torch.testing.assert_close(plain, image / 255, rtol=0, atol=1e-6)
    assert 0 <= plain.min() < plain.max() <= 1


@pytest.mark.parametrize("path", PHOTOS, ids=lambda path: path.stem)
def test_by_default_only_the_geometry_changes(path: Any) -> None:
    """What is named like torchvision's makes bytes, and neither flips nor normalises."""
    data, image = path.read_bytes(), pixels(path.read_bytes())
    for seed in range(8):
        result = RandomResizedCrop(40, quality="exact")(data, generator=seeded(seed))
        top, left, height, width = reference.crop_params(*image.shape[1:], *RANGES, seeded(seed))
        part = image[:, top : top + height, left : left + width]
        assert levels(result, resize(part, (40, 40))) <= 1
    assert levels(Resize((40, 50), quality="exact")(data), resize(image, (40, 50))) <= 1
    central = ResizeCenterCrop(50, 40, quality="exact")(data)
    assert levels(central, center_crop(resize(image, 50), (40, 40))) <= 1


def test_a_name_that_says_so_does_all_three() -> None:
    """RandomResizedCropFlipNormalize flips every other image, and normalises for ImageNet."""
    whole: dict[str, Any] = {"scale": (1, 1), "ratio": (1.5, 1.5), "quality": "exact"}
    plain = reference.normalized(RandomResizedCrop((40, 60), **whole)(PHOTO))
    transform = RandomResizedCropFlipNormalize((40, 60), **whole)
    found = [transform(PHOTO, generator=seeded(seed)) for seed in range(20)]

    flipped = [torch.allclose(one, plain.flip(-1), atol=1e-5) for one in found]
    as_it_is = [torch.allclose(one, plain, atol=1e-5) for one in found]
    assert {*zip(flipped, as_it_is, strict=True)} == {(True, False), (False, True)}


@pytest.mark.parametrize("data", PICTURES)
def test_bicubic_is_torchs(data: bytes) -> None:
    """The other filter, of boxes and of the whole, is that of torch and Pillow, to two levels."""
    image = pixels(data)
    for size in ((40, 71), (90, 31)):
        expected = torch.nn.functional.interpolate(
            image[None], size, mode="bicubic", antialias=True
        )[0]
        assert levels(Resize(size, "bicubic", **EXACT)(data), expected) <= 2
    for seed in range(4):
        top, left, height, width = reference.crop_params(*image.shape[1:], *RANGES, seeded(seed))
        part = image[:, top : top + height, left : left + width].contiguous()
        expected = torch.nn.functional.interpolate(
            part[None], (31, 40), mode="bicubic", antialias=True
        )[0]
        crop = RandomResizedCrop((31, 40), interpolation="bicubic", **EXACT)
        assert levels(crop(data, generator=seeded(seed)), expected) <= 2
