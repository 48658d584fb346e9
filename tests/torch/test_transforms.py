"""The transforms of encoded bytes: the reference's pixels, their use, and clear errors."""

from __future__ import annotations

import copy
import io
import math
import pickle
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
import torch_reference as reference
from cases import examples
from corpus import CORPUS
from encoded import with_orientation
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from loading import SeededLoader, Sources
from PIL import Image
from random_transforms import WITHOUT_SHRINKING, transforms
from same import assert_raises, assert_same
from torch_reference import PHOTOS, center_crop, levels, pixels, resize, seeded

from fastdecode import DecodeError, UnknownBackend, UnsupportedFormat
from fastdecode.testing import encode
from fastdecode.torch import Views
from fastdecode.torch.transforms import (
    Compose,
    EncodedTransform,
    GaussianBlur,
    LetterBox,
    Normalize,
    RandomResizedCrop,
    RandomResizedCropFlipNormalize,
    Resize,
    ResizeCenterCrop,
    ResizeCenterCropNormalize,
    ToTensor,
)

EXACT: dict[str, Any] = {"dtype": torch.uint8, "quality": "exact"}
PHOTO = PHOTOS[0].read_bytes()


def made(name: str) -> bytes:
    """Return a photo as another kind of image."""
    photo = Image.open(PHOTOS[0])
    if name == "cmyk":
        return encode(photo.convert("CMYK"), quality=95)
    if name == "png-rgba":
        return encode(photo.resize((97, 61)).convert("RGBA"), "PNG")
    if name == "webp":
        return encode(photo.resize((130, 87)), "WEBP")
    if "turned" in name:
        exif = with_orientation(int(name[-1]))
        return encode(photo.resize((203, 131)), "PNG" if "png" in name else "JPEG", exif=exif)
    sides = {"1x1": (1, 1), "1x500": (1, 500), "500x1": (500, 1)}[name]
    return encode(photo.resize(sides), quality=95)


IMAGES = {
    **{path.stem: path.read_bytes() for path in PHOTOS},
    **{
        name: made(name)
        for name in (
            *("cmyk", "png-rgba", "webp", "1x1", "1x500", "500x1"),
            *(f"turned by {value}" for value in range(1, 9)),
            "png, turned by 6",
        )
    },
    "png-palette": (CORPUS / "formats/gen_pal_trns.png").read_bytes(),
}


def reference_sample(transform: Any, image: torch.Tensor, generator: torch.Generator) -> Any:
    """Do what a transform does by torchvision's rules; return bytes and the box that is shown."""
    height, width = image.shape[1:]
    box = (0, 0, width, height)
    mode = transform.interpolation
    if isinstance(transform, RandomResizedCrop):
        y, x, h, w = reference.crop_params(
            height, width, transform.scale, transform.ratio, generator
        )
        box = (x, y, x + w, y + h)
        result = resize(image[:, y : y + h, x : x + w].contiguous(), transform.size, mode)
    elif isinstance(transform, Resize):
        result = resize(image, transform.size, mode)
    else:
        result = center_crop(resize(image, transform.resize, mode), transform.size)
    return reference.flip(result, transform.flip, generator), box


@pytest.mark.parametrize(("name", "size"), [("1x500", (1, 4)), ("500x1", (4, 1))])
def test_a_strip_has_the_box_of_the_nearest_ratio(name: str, size: tuple[int, int]) -> None:
    """Where no box that was drawn fits, it is in the middle, as large as the ratios allow."""
    transform = RandomResizedCrop(8, scale=(0.9, 1.0), ratio=(0.25, 4.0), flip=0.0)

    left, top, right, bottom = transform.with_geometry(IMAGES[name])[1].box

    assert (right - left, bottom - top) == size
    assert max(left, top) == 248


@pytest.mark.parametrize("disabled", ["", "native"], ids=["core", "no core"])
@settings(WITHOUT_SHRINKING, max_examples=examples(100))
@given(data=st.data())
def test_samples_are_the_references(
    data: Any, disabled: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Box, flip, pixels and further draws are those of torchvision's rules for the same seed.

    Bilinear pixels are within one level, bicubic ones within two; floats are normalised bytes.
    """
    monkeypatch.setenv("FASTDECODE_DISABLE", disabled)
    file = data.draw(st.sampled_from(sorted(IMAGES)), "file")
    # torch cannot resize to a single pixel.
    transform = data.draw(transforms(("exact",), (0.05, 2), (0.5, 2), least=2), "transform")
    orient = data.draw(st.booleans(), "orient")
    seed = data.draw(st.integers(0, 2**40), "seed")
    ours, theirs = seeded(seed), seeded(seed)

    result, geometry = transform.with_geometry(IMAGES[file], generator=ours, orient=orient)
    image = pixels(IMAGES[file], orient=orient)
    try:
        expected, box = reference_sample(transform, image, theirs)
    except RuntimeError as error:  # of torchvision's rules, the crop of a strip can be empty
        assume("sizes should be greater than 0" not in str(error))
        raise

    most = 2 if transform.interpolation == "bicubic" else 1
    if transform.dtype == torch.uint8:
        assert levels(result, expected) <= most
    else:
        mean, std = (0.0,) * 3, (1.0,) * 3
        if transform.normalize is not None and transform.normalize.mean is not None:
            mean, std = transform.normalize.mean, transform.normalize.std
        scale = 255 * torch.tensor(std).view(3, 1, 1)
        difference = (result - reference.normalized(expected, mean, std)) * scale
        assert difference.abs().max() <= most + 0.01
    if isinstance(transform, RandomResizedCrop):
        assert geometry.box == pytest.approx(box)
    assert_same(ours.get_state(), theirs.get_state())


@pytest.mark.parametrize("disabled", ["", "native"])
@pytest.mark.parametrize("upright", [True, False])
def test_of_a_strip_only_what_is_shown_is_resized(
    upright: bool, disabled: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The centre of a strip is right although the whole, 2000 x 1 800 000, fits no memory."""
    monkeypatch.setenv("FASTDECODE_DISABLE", disabled)
    levels_of = np.random.default_rng(1).integers(0, 256, (900, 1, 3), np.uint8)
    strip = levels_of if upright else levels_of.transpose(1, 0, 2)
    shown = (np.arange(899_972, 900_028) + 0.5) / 2000 - 0.5
    along = [np.interp(shown, np.arange(900), levels_of[:, 0, channel]) for channel in range(3)]
    expected = torch.from_numpy(np.stack(along)).round().to(torch.uint8)[:, :, None]

    size = (56, 50) if upright else (50, 56)
    result = ResizeCenterCrop(2000, size, **EXACT)(encode(Image.fromarray(strip), "PNG"))

    expected = expected if upright else expected.permute(0, 2, 1)
    assert result.shape == (3, *size)
    assert levels(result, expected.expand(3, *size)) <= 1


@pytest.mark.parametrize("size", [48, [48], 51])
def test_resize_rounds_the_longer_side_as_torchvision(size: Any) -> None:
    """With one side given, the other follows; pixels are within one level."""
    for data in IMAGES.values():
        expected = resize(pixels(data), size[0] if isinstance(size, list) else size)

        assert levels(Resize(size, **EXACT)(data), expected) <= 1


TRANSFORMS = [
    RandomResizedCropFlipNormalize(40),
    RandomResizedCrop((24, 40), (0.5, 1), (1, 2), flip=0.2, quality="fast", headroom=2),
    ResizeCenterCrop(44, 40, dtype=torch.float32, quality="fast"),
    ResizeCenterCrop(30, (40, 20), flip=0.5, dtype=torch.uint8),
    Resize((33, 40), flip=0.5, dtype=torch.float32, quality="fast"),
    Resize((33, 40), dtype=torch.uint8),
    Resize((333, 500), dtype=torch.uint8),  # the size of the photo
]


def named(transform: EncodedTransform) -> str:
    return type(transform).__name__


@pytest.mark.parametrize("transform", TRANSFORMS, ids=named)
def test_results_go_into_a_slot_of_a_batch(transform: Any) -> None:
    """With `out` of any strides the values are equal, and neighbouring slots are unchanged."""
    expected = transform(PHOTO, generator=seeded(1))
    assert tuple(expected.shape) == transform.shape
    assert expected.dtype == transform.dtype

    for layout in (torch.contiguous_format, torch.channels_last):
        batch = torch.full((3, *transform.shape), 7, dtype=transform.dtype)
        batch = batch.contiguous(memory_format=layout)
        slot = batch[1]
        result, _ = transform.with_geometry(PHOTO, generator=seeded(1), out=slot)

        assert result is slot
        assert_same(batch[1], expected, layout)
        assert_same(batch[0], 7)
        assert_same(batch[2], 7)


@pytest.mark.parametrize("transform", TRANSFORMS, ids=named)
def test_the_result_follows_from_file_and_seed_alone(transform: Any) -> None:
    """Of any buffer, from either generator, on any default device, and by a copy."""
    expected = transform(PHOTO, generator=seeded(11))
    kept = expected.clone()
    torch.manual_seed(11)
    made = {"global": transform(memoryview(PHOTO))}
    with torch.device("meta"):
        made["meta"] = transform(bytearray(PHOTO), generator=torch.Generator("cpu").manual_seed(11))
    for other in (copy.deepcopy(transform), pickle.loads(pickle.dumps(transform))):
        made[repr(other)] = other(io.BytesIO(PHOTO).getbuffer(), generator=seeded(11))
        assert (repr(other), other.shape) == (repr(transform), transform.shape)

    assert_same(made, dict.fromkeys(made, expected))
    assert_same(expected, kept)
    assert transform.isolated


REPRS = {
    1: "RandomResizedCrop(size=(24, 40), scale=(0.5, 1.0), ratio=(1.0, 2.0), flip=0.2, "
    "dtype=torch.uint8, quality='fast', headroom=2.0)",
    2: "ResizeCenterCrop(resize=44, size=(40, 40), flip=0.0, mean=None, std=None, "
    "dtype=torch.float32, quality='fast')",
}


def test_what_a_transform_says_of_itself() -> None:
    """Its arguments, as they were given or by default, and the shape of its results, if known.

    Those with torchvision's names return bytes; others flip or normalise as they are named.
    """
    assert {at: repr(TRANSFORMS[at]) for at in REPRS} == REPRS
    crop, named_so = RandomResizedCrop(8), RandomResizedCropFlipNormalize((np.int64(5), 6))
    assert (crop.flip, crop.dtype, crop.normalize) == (0, torch.uint8, None)
    assert (Resize(8).flip, Resize(8).dtype) == (0, torch.uint8)
    assert (ResizeCenterCrop(9, 8).flip, ResizeCenterCrop(9, 8).dtype) == (0, torch.uint8)
    assert (named_so.flip, named_so.dtype) == (0.5, torch.float32)
    for transform in (named_so, ResizeCenterCropNormalize(9, 8)):
        assert "mean=(0.485, 0.456, 0.406), std=(0.229, 0.224, 0.225)" in repr(transform)
    assert type(named_so.size[0]) is int
    assert named_so.shape == ResizeCenterCropNormalize(9, (5, 6)).shape == (3, 5, 6)
    assert (Resize((5, 6)).shape, Resize(5).shape) == ((3, 5, 6), None)
    assert Resize(100)(PHOTO).shape == (3, 100, 150)


@pytest.mark.parametrize(
    ("named_so", "kind", "sizes"),
    [
        (RandomResizedCropFlipNormalize, RandomResizedCrop, (9,)),
        (ResizeCenterCropNormalize, ResizeCenterCrop, (9, 8)),
    ],
)
def test_those_with_names_of_what_they_do_pass_every_option_on(
    named_so: Any, kind: Any, sizes: tuple[int, ...]
) -> None:
    """They are the transform with the same options, none of which has its default here."""
    options: dict[str, Any] = {
        "interpolation": "bicubic", "flip": 0.3, "mean": (0.1, 0.2, 0.3), "std": (0.4, 0.5, 0.6),
        "quality": "fast", "headroom": 3.0,
    }  # fmt: skip
    if kind is RandomResizedCrop:
        options |= {"scale": (0.2, 0.9), "ratio": (0.5, 1.5)}

    assert repr(named_so(*sizes, **options)) == repr(kind(*sizes, dtype=torch.float32, **options))


NAN = math.nan
NORMALISING = [
    RandomResizedCropFlipNormalize(16),
    ResizeCenterCropNormalize(20, 16),
    Resize((16, 16), dtype=torch.float32),
]

WRONG: list[tuple[Any, dict[str, Any], type[Exception], str]] = [
    # A box of a photo is decoded from all of its bytes, so that damage anywhere is found.
    *(
        (data, {}, DecodeError, "")
        for data in (PHOTO[: len(PHOTO) // 2], PHOTO[:700], PHOTO[:100], b"")
    ),
    (PHOTO[:9000] + bytes(len(PHOTO) - 9000), {}, DecodeError, ""),
    *((data, {}, UnsupportedFormat, "") for data in (b"no image", bytes(1000))),
    *((data, {}, TypeError, "path") for data in (str(PHOTOS[0]), PHOTOS[0])),
    (None, {}, TypeError, "NoneType"),
    (PHOTO, {"backend": "nonesuch"}, UnknownBackend, "nonesuch"),
    (PHOTO, {"out": np.zeros((3, 16, 16), np.float32)}, TypeError, "out"),
    *(
        (PHOTO, {"out": torch.zeros(shape, **how)}, ValueError, "out")
        for shape, how in (
            ((3, 16, 15), {}),
            ((1, 3, 16, 16), {}),
            ((16, 16, 3), {}),
            ((3, 16, 16), {"dtype": torch.uint8}),
            ((3, 16, 16), {"device": "meta"}),
        )
    ),
]


@pytest.mark.parametrize("transform", NORMALISING, ids=named)
def test_wrong_files_and_slots_are_errors(transform: Any) -> None:
    """Damage, what is no image, other types, and an `out` that does not fit: nothing is written."""
    for at, (data, how, error, told) in enumerate(WRONG):
        options = {"out": torch.zeros(3, 16, 16), **how}
        call = partial(transform, data, **options)
        assert_raises(error, told, call, f"WRONG[{at}]")
        assert getattr(options["out"], "is_meta", False) or not options["out"].any()


WRONG_SIZES = [0, -1, "a", "ab", (), (1, 2, 3), (5, 0), 5.5, (5.0, 5), None, True]
WRONG_RANGES = [(1, 0.5), (NAN, 1), (0.1, NAN), (0, 1), (-1, 1), (0.5,), 0.5, "ab", (0.1, math.inf)]
OF_ALL: list[tuple[str, dict[str, Any]]] = [
    *(("flip", {"flip": wrong}) for wrong in (2, -0.1, NAN, True, False, "yes", None)),
    *(("headroom", {"headroom": wrong}) for wrong in (0.5, NAN, "2")),
    ("quality", {"quality": "best"}),
    *(("dtype", {"dtype": wrong}) for wrong in (torch.float16, "uint8")),
    ("std", {"mean": (0.5,), "std": (0.2, 0, 0.2)}),
    ("mean", {"mean": (0.5, 0.5), "std": (0.2,)}),
    ("std", {"mean": (0.5,)}),
    ("std", {"std": (0.2,)}),
    ("normalised", {"mean": (0.5,), "std": (0.2,), "dtype": torch.uint8}),
    *(("interpolation", {"interpolation": wrong}) for wrong in ("cubic", 0.5, True)),
    *(("antialias", {"antialias": wrong}) for wrong in (False, None)),
]
REFUSED: list[tuple[Any, str, dict[str, Any]]] = [
    *((RandomResizedCrop, "size", {"size": wrong}) for wrong in WRONG_SIZES),
    *((Resize, "size", {"size": wrong}) for wrong in WRONG_SIZES),
    *((ResizeCenterCrop, "size", {"resize": 8, "size": wrong}) for wrong in WRONG_SIZES),
    *((ResizeCenterCrop, "resize", {"resize": wrong, "size": 8}) for wrong in WRONG_SIZES),
    *((RandomResizedCrop, "scale", {"size": 8, "scale": wrong}) for wrong in WRONG_RANGES),
    *((RandomResizedCrop, "ratio", {"size": 8, "ratio": wrong}) for wrong in WRONG_RANGES),
    *((RandomResizedCrop, name, {"size": 8, **options}) for name, options in OF_ALL),
    *((Resize, name, {"size": 8, **options}) for name, options in OF_ALL),
    *((ResizeCenterCrop, name, {"resize": 8, "size": 8, **options}) for name, options in OF_ALL),
    *((Normalize, "std", {"std": wrong}) for wrong in (None, (0.2, 0, 0.2), (0.5, 0.5, math.inf))),
    *((Normalize, "mean", {"mean": wrong}) for wrong in (0.5, (0.5, 0.5), (0.5, 0.5, NAN))),
    *((GaussianBlur, "p", {"p": wrong}) for wrong in (-0.1, 1.5, NAN)),
    (GaussianBlur, "radius_min", {"p": 0.5, "radius_min": -1}),
    (GaussianBlur, "radius_min", {"p": 0.5, "radius_min": 2, "radius_max": 1}),
    (GaussianBlur, "radius_max", {"p": 0.5, "radius_min": 0.1, "radius_max": 2000}),
    *((Views, "views", {"views": wrong}) for wrong in ([], [Resize(8), 3])),
    (Views, "count", {"views": Resize(8)}),
    *((Views, "count", {"views": Resize(8), "count": wrong}) for wrong in (0, Resize(8), True)),
    (Views, "count", {"views": [Resize(8)], "count": 2}),
]


def test_wrong_arguments_are_refused() -> None:
    """A transform checks its arguments when it is created; the error names the wrong one."""
    for kind, name, options in REFUSED:
        assert_raises(ValueError, rf"\b{name}\b", partial(kind, **options), (kind, options))


def test_a_crop_with_a_mean_is_one_in_a_pipeline() -> None:
    """It makes floats in a Loader and of an image as it does of a file."""
    crop = Resize((36, 44), mean=(0.4, 0.5, 0.6), std=(0.2, 0.3, 0.4), flip=1.0)
    file = PHOTOS[0].read_bytes()
    dataset = Sources(file, transform=Compose([crop]))
    with SeededLoader(dataset, 1, threads=0) as loader:
        (batch,) = [images for images, _ in loader]

    assert_same(batch[0], crop(file))
    assert torch.allclose(Compose([crop])(file), crop(file), atol=1.01 / 255 / 0.2)


def test_a_pipeline_needs_no_torchvision() -> None:
    """A Loader does all of it in the core; what is called with a file is the same."""
    steps = [Resize((36, 44)), LetterBox((40, 50)), ToTensor(), Normalize((0.4,) * 3, (0.2,) * 3)]
    pipeline = Compose(steps)
    files = [photo.read_bytes() for photo in PHOTOS[:3]]
    dataset = Sources(*files, transform=pipeline)
    with SeededLoader(dataset, 3, threads=2) as loader:
        (batch,) = [images for images, _ in loader]

    assert dataset.isolated
    for made, file in zip(batch, files, strict=True):
        assert_same(made, pipeline(file), within=1.01 / 255 / 0.2)
    assert repr(pipeline).splitlines()[:2] == ["Compose(", f"    {steps[0]!r}"]
