"""The transforms of encoded bytes: the reference's pixels, their use, and clear errors."""

from __future__ import annotations

import copy
import io
import math
import pickle
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
import torch
import torch_reference as reference
from corpus import CORPUS, usable_backends
from encoded import with_orientation
from PIL import Image
from torch_reference import PHOTOS, center_crop, levels, pixels, resize, seeded

from fastdecode import DecodeError, UnknownBackend, UnsupportedFormat, probe
from fastdecode.testing import encode
from fastdecode.torch.transforms import (
    EncodedTransform,
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
    """Return a photo as another kind of image."""
    photo = Image.open(PHOTOS[0])
    if name == "cmyk":
        return encode(photo.convert("CMYK"), quality=95)
    if name == "png-rgba":
        return encode(photo.resize((97, 61)).convert("RGBA"), "PNG")
    if name == "webp":
        return encode(photo.resize((130, 87)), "WEBP")
    sides = {"1x1": (1, 1), "1x500": (1, 500), "500x1": (500, 1)}[name]
    return encode(photo.resize(sides), quality=95)


KINDS = ("cmyk", "png-rgba", "webp", "1x1", "1x500", "500x1")
IMAGES = [
    *(pytest.param(path.read_bytes(), id=path.stem) for path in PHOTOS),
    *(pytest.param(made(name), id=name) for name in KINDS),
    pytest.param((CORPUS / "formats/gen_pal_trns.png").read_bytes(), id="png-palette"),
]


@pytest.mark.parametrize("data", IMAGES)
@pytest.mark.parametrize("size", [57, (40, 71)])
def test_a_random_crop_is_the_references(data: bytes, size: Any) -> None:
    """Box, flip and pixels are those of the reference for the same seed, within one level."""
    transform = RandomResizedCrop(size, **EXACT, flip=0.5)
    image = pixels(data)
    sides = (size, size) if isinstance(size, int) else size

    for seed in range(6):
        expected = reference.random_resized_crop(image, sides, seed)

        assert levels(transform(data, generator=seeded(seed)), expected) <= 1


@pytest.mark.parametrize("data", IMAGES)
@pytest.mark.parametrize(
    ("side", "size"),
    [
        (64, (56, 56)),
        (65, (56, 32)),  # odd margins
        (64, (63, 61)),
        ((50, 61), (33, 20)),
        (40, (64, 57)),  # padded with 24 rows, and with columns if it is no wide image
        ((31, 80), (40, 41)),  # rows are padded, columns are cut
    ],
)
def test_a_central_crop_is_the_references(data: bytes, side: Any, size: tuple[int, int]) -> None:
    """Sides, margins, padding and pixels are the reference's, within one level."""
    expected = center_crop(resize(pixels(data), side), size)

    assert levels(ResizeCenterCrop(side, size, **EXACT)(data), expected) <= 1


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


@pytest.mark.parametrize("data", IMAGES)
@pytest.mark.parametrize("size", [48, [48], 51, (40, 71)])
def test_a_resized_image_is_the_references(data: bytes, size: Any) -> None:
    """Resize rounds the long side as torchvision does; pixels are within one level."""
    expected = resize(pixels(data), size[0] if isinstance(size, list) else size)

    assert levels(Resize(size, **EXACT)(data), expected) <= 1


@pytest.mark.parametrize("value", range(1, 9))
def test_the_orientation_is_applied_on_request(value: int) -> None:
    """With orient=True all transforms use the upright image, otherwise the stored one."""
    data = encode(Image.open(PHOTOS[0]).resize((203, 131)), exif=with_orientation(value))
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
    """With the core and without, orient=True gives the same part, within a level."""
    image = Image.open(PHOTOS[0]).resize((203, 131))
    data = encode(image, kind, exif=with_orientation(value))
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
    """A named backend decodes."""
    if backend == "pillow_heif":
        data = (CORPUS / "formats/pillow_heif__heif_RGB_8__29x100.heif").read_bytes()
        expected = Resize((20, 30), **EXACT)(data)
    else:
        data = PHOTO
        expected = resize(pixels(data), (20, 30))

    assert levels(Resize((20, 30), **EXACT)(data, backend=backend), expected) <= 1


def test_flips_happen_as_often_as_asked_for() -> None:
    """With a probability of 1 every result is flipped, with 0 none."""
    plain = Resize((30, 41), **EXACT)(PHOTO)

    assert torch.equal(Resize((30, 41), flip=1, **EXACT)(PHOTO), plain.flip(-1))
    assert torch.equal(
        ResizeCenterCrop((30, 41), (30, 41), flip=1.0, **EXACT)(PHOTO), plain.flip(-1)
    )
    some = [Resize((30, 41), flip=0.5, **EXACT)(PHOTO, generator=seeded(n)) for n in range(20)]
    assert {torch.equal(one, plain) for one in some} == {True, False}


def test_floats_are_normalised_as_asked_for() -> None:
    """ImageNet's mean and std are the default; others, and values of 0 to 1, are possible."""
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
    """Transforms with torchvision's names return bytes, and neither flip nor normalise."""
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


@pytest.mark.parametrize("data", IMAGES)
def test_bicubic_is_torchs(data: bytes) -> None:
    """Bicubic results, of boxes and whole images, are torch's and Pillow's, within two levels."""
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


TRANSFORMS = [
    RandomResizedCropFlipNormalize(40),
    RandomResizedCrop((24, 40), (0.5, 1), (1, 2), flip=0.2, quality="fast", headroom=2),
    ResizeCenterCrop(44, 40, dtype=torch.float32, quality="fast"),
    ResizeCenterCrop(30, (40, 20), flip=0.5, dtype=torch.uint8),
    Resize((33, 40), flip=0.5, dtype=torch.float32, quality="fast"),
    Resize((33, 40), dtype=torch.uint8),
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
        assert torch.equal(batch[1], expected)
        assert (batch[0] == 7).all()
        assert (batch[2] == 7).all()


def test_the_unnormalised_result_is_a_new_one_each_time() -> None:
    """A result does not change when the next image is decoded, even without resizing."""
    header = probe(PHOTO)
    transform = Resize((header.height, header.width), **EXACT)

    first = transform(PHOTO)
    kept = first.clone()
    transform(encode(Image.open(PHOTOS[1]).resize((header.width, header.height))))

    assert torch.equal(first, kept)
    assert torch.equal(first, pixels(PHOTO))


@pytest.mark.parametrize("transform", TRANSFORMS, ids=named)
def test_the_generator_draws_as_the_global_one(transform: Any) -> None:
    """A generator and torch's global one of the same seed give the same result."""
    torch.manual_seed(11)
    state = torch.random.get_rng_state()
    by_global = transform(PHOTO)
    torch.random.set_rng_state(state)
    by_generator = transform(PHOTO, generator=seeded(11))

    assert torch.equal(by_global, by_generator)
    assert torch.equal(torch.random.get_rng_state(), state)
    assert transform.isolated


@pytest.mark.parametrize(
    "make",
    [
        lambda: RandomResizedCropFlipNormalize(40, ratio=(0.7, 1.3)),
        lambda: ResizeCenterCropNormalize(30, (40, 20), flip=0.5),
        lambda: Resize((33, 40), dtype=torch.uint8),
    ],
)
def test_another_default_device_changes_nothing(make: Any) -> None:
    """Draws use the generator, and results are on the CPU, whatever the default device."""
    with torch.device("meta"):
        result = make()(PHOTO, generator=torch.Generator("cpu").manual_seed(11))

    assert result.device.type == "cpu"
    assert torch.equal(result, make()(PHOTO, generator=seeded(11)))


def test_many_threads_give_what_one_gives() -> None:
    """Threads can share transforms."""
    files = [path.read_bytes() for path in PHOTOS]
    tasks = [(t, d, n) for n in range(4) for t in TRANSFORMS for d in files]

    def run(task: Any) -> Any:
        transform, data, seed = task
        return transform(data, generator=seeded(seed))

    alone = [run(task) for task in tasks]
    with ThreadPoolExecutor(8) as pool:
        together = list(pool.map(run, tasks))

    assert all(torch.equal(a, b) for a, b in zip(alone, together, strict=True))


@pytest.mark.parametrize("transform", TRANSFORMS, ids=named)
def test_a_copy_and_an_unpickled_one_do_the_same(transform: Any) -> None:
    """A copy and an unpickled transform give the same results."""
    expected = transform(PHOTO, generator=seeded(2))

    for other in (copy.deepcopy(transform), pickle.loads(pickle.dumps(transform))):
        assert torch.equal(other(PHOTO, generator=seeded(2)), expected)
        assert repr(other) == repr(transform)
        assert other.shape == transform.shape


@pytest.mark.parametrize("kind", [bytearray, memoryview, io.BytesIO])
def test_the_bytes_come_in_many_types(kind: Any) -> None:
    """All inputs of `decode` are accepted."""
    data = kind(PHOTO).getbuffer() if kind is io.BytesIO else kind(PHOTO)

    assert torch.equal(Resize(20)(data), Resize(20)(PHOTO))


def test_repr_says_what_was_asked_for() -> None:
    """Every argument that changes the result is in the repr."""
    assert repr(TRANSFORMS[1]) == (
        "RandomResizedCrop(size=(24, 40), scale=(0.5, 1.0), ratio=(1, 2), flip=0.2, "
        "dtype=torch.uint8, quality='fast', headroom=2.0)"
    )
    assert repr(TRANSFORMS[2]) == (
        "ResizeCenterCrop(resize=44, size=(40, 40), flip=0.0, mean=None, std=None, "
        "dtype=torch.float32, quality='fast')"
    )
    assert "mean=(0.485, 0.456, 0.406), std=(0.229, 0.224, 0.225)" in repr(
        ResizeCenterCropNormalize(8, 8)
    )


def test_the_shape_is_told_where_it_is_known() -> None:
    """Only Resize of one side gives results of different shapes."""
    assert RandomResizedCropFlipNormalize(5).shape == (3, 5, 5)
    assert ResizeCenterCropNormalize(9, (5, 6)).shape == (3, 5, 6)
    assert Resize((5, 6)).shape == (3, 5, 6)
    assert Resize(5).shape is None
    assert Resize(100)(PHOTO).shape == (3, 100, 150)


NAN = math.nan
NORMALISING = [
    RandomResizedCropFlipNormalize(16),
    ResizeCenterCropNormalize(20, 16),
    Resize((16, 16), dtype=torch.float32),
]

# A box of a photo is decoded from all of its bytes, so that damage anywhere is found.
DAMAGED = {
    "truncated": PHOTO[: len(PHOTO) // 2],
    "header only": PHOTO[:700],
    "no header": PHOTO[:100],
    "zeros": PHOTO[:9000] + bytes(len(PHOTO) - 9000),
}


@pytest.mark.parametrize("transform", NORMALISING, ids=named)
@pytest.mark.parametrize("data", DAMAGED.values(), ids=DAMAGED.keys())
def test_damaged_files_are_errors(transform: Any, data: bytes) -> None:
    """Bytes with missing pixels raise DecodeError, and nothing is written."""
    out = torch.full((3, 16, 16), 5.0)

    with pytest.raises(DecodeError):
        transform(data, out=out)

    assert (out == 5).all()


@pytest.mark.parametrize("data", [b"", b"no image", bytes(1000)])
def test_what_is_no_image_is_an_error(data: bytes) -> None:
    """Bytes that are not an image raise the errors of `decode`."""
    with pytest.raises((DecodeError, UnsupportedFormat)):
        Resize(8)(data)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (str(PHOTOS[0]), "transform\\(\\) takes the bytes of an image, not a path: transform"),
        (PHOTOS[0], "transform\\(\\) takes the bytes of an image, not a path: transform"),
        (Image.new("RGB", (9, 9)), "not Image. This transform decodes the file by itself"),
        (None, "data must be bytes.*, not NoneType"),
        (np.zeros((9, 9, 3), np.uint8), "has it been decoded already"),
        (torch.zeros((3, 9, 9), dtype=torch.uint8), "has it been decoded already"),
    ],
    ids=["str", "path", "image", "none", "array", "tensor"],
)
@pytest.mark.parametrize("transform", NORMALISING, ids=named)
def test_what_are_no_bytes_is_an_error(transform: Any, data: Any, message: str) -> None:
    """A path, a Pillow image and decoded pixels raise clear errors."""
    with pytest.raises(TypeError, match=message):
        transform(data)


@pytest.mark.parametrize("transform", NORMALISING, ids=named)
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
    """An `out` of another shape, type or device is an error, and is not written."""
    with pytest.raises(ValueError, match=r"out must be a CPU tensor \(3, 16, 16\) of torch.float"):
        transform(PHOTO, out=out)

    assert out.is_meta or (out == 0).all()


def test_an_out_that_is_no_tensor_is_refused() -> None:
    """An `out` that is an array is refused."""
    out = np.zeros((3, 16, 16), np.float32)

    with pytest.raises(TypeError, match="out must be a tensor, not ndarray"):
        Resize((16, 16), dtype=torch.float32)(PHOTO, out=out)

    assert not out.any()


def test_an_unknown_backend_is_refused() -> None:
    """An unknown backend raises the error of `decode`, and nothing is written."""
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
    """NumPy integers are accepted as sizes, and kept as plain integers."""
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
    """A flip is a number from 0 to 1, and True is refused."""
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
    """All transforms check their common arguments when they are created."""
    for make in (
        lambda: RandomResizedCrop(8, **options),
        lambda: ResizeCenterCrop(8, 8, **options),
        lambda: Resize(8, **options),
    ):
        with pytest.raises(ValueError, match=message):
            make()
