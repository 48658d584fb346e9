"""What a batch backend is asked for and tries out, what the CPU takes instead, how the two join."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from corpus import CORPUS
from device_doubles import (  # noqa: F401
    CPU_INDICES,
    CUT,
    MIXED,
    NO_END,
    PHOTOS,
    array_of,
    batch_double,
    decode_all,
    decode_and_mark,
    is_marked,
    own_registry,
    raising,
    refusing,
    register_double,
    registry_with_cpu_backends,
    tensor_of,
)
from PIL import Image as PillowImage
from same import assert_same

from fastdecode import DecodeError, decode, decode_batch, probe, stats
from fastdecode._backends.batch_base import BatchItem, try_out
from fastdecode.errors import BackendUnavailable
from fastdecode.gpu import load
from fastdecode.testing import drawing, encode, photo
from fastdecode.testing._batch_backend import decode_together

pytestmark = pytest.mark.usefixtures("registry_with_cpu_backends")


def together(items: list[bytes], **options: Any) -> list[Any]:
    """Let the double decode, and the CPU what the double does not."""
    return decode_together(load("double", torch.device("cpu")), items, **options)


def test_the_kinds_that_it_declares_go_to_it() -> None:
    """Baseline JPEGs go to the batch backend in one call, others to the CPU, and order is kept."""
    double = register_double()

    images = together([*MIXED, CUT])

    assert double.asked == [len(MIXED) - len(CPU_INDICES)]
    assert isinstance(images.pop(), DecodeError)
    assert [at for at, image in enumerate(images) if not is_marked(image)] == CPU_INDICES
    assert stats().fallbacks == {}
    assert_same([array_of(image)[1:] for image in images], [decode(item)[1:] for item in MIXED])


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"layout": "L"},
        {"region": (3, 5, 17, 19)},
        {"reduce": 2},
        {"min_size": 8},
        {"strict": True},
        {"backend": "pillow"},
    ],
    ids=str,
)
def test_pixels_are_those_of_decode(options: dict[str, Any]) -> None:
    """Every option gives the pixels of `decode`, and the CPU does what reduces or is strict."""
    double = register_double(decode_all)
    items = [item for item in MIXED if not ("strict" in options and item is NO_END)]

    images = together(items, **options)

    assert bool(double.asked) == (not {"reduce", "min_size", "strict"} & options.keys())
    how = {("mode" if name == "layout" else name): value for name, value in options.items()}
    for image, item in zip(images, items, strict=True):
        expected = decode(item, **how)
        assert_same(array_of(image).reshape(expected.shape), expected)


def test_an_image_that_lies_on_its_side() -> None:
    """With orient=True rotated images go to the CPU, and upright ones to the backend."""
    register_double()
    exif = PillowImage.Exif()
    exif[0x0112] = 6
    lying = encode(drawing(40, 24), exif=exif)

    stored, plain = together([lying, PHOTOS[0]])
    seen, upright = together([lying, PHOTOS[0]], orient=True)

    assert tuple(stored.shape) == (3, 24, 40)
    assert_same(array_of(seen), decode(lying, orient=True))
    assert [is_marked(image) for image in (stored, plain, seen, upright)] == [1, 1, 0, 1]


@pytest.mark.parametrize(("how", "on_cpu"), [(refusing, [1, 7]), (raising, list(range(9)))])
def test_what_it_refuses_is_the_cpus(how: Any, on_cpu: list[int]) -> None:
    """Refused items, or all of a batch that failed, are decoded on the CPU and counted."""
    double = register_double(how(lambda item: item.header.width in (43, 61)))

    images = together(PHOTOS)

    assert [at for at, image in enumerate(images) if not is_marked(image)] == on_cpu
    assert_same([array_of(image)[1:] for image in images], [decode(item)[1:] for item in PHOTOS])
    assert stats().fallbacks == {("double", "cpu"): len(on_cpu)}
    assert double.asked == [len(PHOTOS)]


@pytest.mark.parametrize(
    ("lie", "words"),
    [
        (lambda images: [image.float() for image in images], "float32"),
        (lambda images: [image[:, 1:] for image in images], "gave"),
        (lambda images: [image[:1] for image in images], "gave"),
        (lambda images: [image.numpy() for image in images], "not a tensor"),
        (lambda images: images[1:], "gave 2 images for 3"),
    ],
    ids=["type", "height", "channels", "array", "count"],
)
def test_what_is_not_of_the_right_form_is_refused(lie: Any, words: str) -> None:
    """A result of the wrong shape or type counts as a refusal."""
    register_double(lambda items, layout: lie(decode_and_mark(items, layout)))

    images = together(PHOTOS[:3])

    assert_same([*map(array_of, images)], [*map(decode, PHOTOS[:3])])
    assert words in stats().recent[0]


@pytest.mark.parametrize(
    "error",
    [
        RuntimeError("CUDA error: an illegal memory access was encountered"),
        torch.cuda.OutOfMemoryError("Tried to allocate 20 GiB"),
        getattr(torch, "AcceleratorError", torch.cuda.OutOfMemoryError)("misaligned address"),
    ],
    ids=["text", "memory", "class"],
)
def test_a_device_that_failed_is_no_refusal(error: Exception) -> None:
    """A failure of the device is raised, and the CPU does not decode the images instead."""

    def fails(items: Any, layout: str) -> list[Any]:
        raise error

    double = register_double(fails)

    with pytest.raises(type(error)):  # nor is it unavailable: a later attempt may succeed
        try_out(batch_double(fails)(torch.device("cpu"), 1))
    with pytest.raises(type(error)):
        together(PHOTOS)

    assert double.asked == [len(PHOTOS)]
    assert stats().fallbacks == {}


@pytest.mark.parametrize("shown", [None, (128, 128, 128), (0, 135, 0)], ids=str)
@pytest.mark.parametrize("share", [0.0, 0.3, 0.9, 0.999])
def test_missing_data_is_found_before_a_device_shows_other_pixels(
    shown: tuple[int, ...] | None, share: float
) -> None:
    """Whatever a device shows for a JPEG that lacks data, such as another photo, it is an error."""
    whole = encode(photo(101, 67))
    begin = probe(whole).scan_offset
    forged = whole[: begin + int(share * (len(whole) - 2 - begin))] + whole[-2:]
    with pytest.raises(DecodeError):
        decode(forged)

    def other(items: Any, layout: str) -> list[Any]:
        blank = torch.tensor(shown or 0, dtype=torch.uint8).reshape(-1, 1, 1).expand(3, 67, 101)
        stale = tensor_of(BatchItem(whole, probe(whole)), layout) if shown is None else blank
        return [stale if item.data == forged else tensor_of(item, layout) for item in items]

    register_double(other)
    images = together([PHOTOS[0], forged, PHOTOS[1]])

    assert [type(image) for image in images] == [torch.Tensor, DecodeError, torch.Tensor]


def test_every_file_of_the_collection() -> None:
    """Every file gives its pixels or the error of `decode`, in its place."""
    register_double(decode_all)
    files = sorted(path for path in (CORPUS / "malformed").rglob("*") if path.is_file())[:200]
    files += sorted((CORPUS / "jpeg_kinds").glob("*.jpg"))[:100]

    images = together([path.read_bytes() for path in files])

    [*alone] = decode_batch(files, on_error="return")
    for path, image, expected in zip(files, images, alone, strict=True):
        if isinstance(expected, np.ndarray):
            assert_same(array_of(image).reshape(expected.shape), expected, str(path))
        else:
            assert type(image) is type(expected), path


def raise_always(items: Any, layout: str) -> Any:
    raise OSError("no nvJPEG here")


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (raise_always, "no nvJPEG here"),
        (refusing(lambda _: True, decode_all), "does not say why"),
        (
            lambda items, layout: [image[:, 1:] for image in decode_all(items, layout)],
            r"\(3, 95, 96\)",
        ),
    ],
    ids=["raises", "refuses", "gives another shape"],
)
def test_what_decodes_nothing_is_unavailable(answer: Any, words: str) -> None:
    """A library that decodes nothing raises an error at once, in its own words."""
    with pytest.raises(BackendUnavailable, match=words):
        try_out(batch_double(answer)(torch.device("cpu"), 1))
