"""`decode_batch(device=…)`: regions, sizes, modes, and the CPU alone."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from device_doubles import (  # noqa: F401
    CUT,
    MIXED,
    NO_END,
    OF_CPU,
    PHOTOS,
    PNG,
    array_of,
    honest,
    is_marked,
    own_registry,
    register_double,
    with_the_others,
)
from PIL import Image as PillowImage

from fastdecode import DecodeError, decode, decode_batch, probe
from fastdecode.errors import ImageTooLarge
from fastdecode.gpu._batch import request_of
from fastdecode.testing import drawing, encode

pytestmark = pytest.mark.usefixtures("with_the_others")


@pytest.mark.parametrize("regions", [True, False], ids=["decodes regions", "decodes all"])
def test_a_region_is_cut_out(*, regions: bool) -> None:
    """The region is that of `decode`, whether the backend decodes only it or all."""
    register_double(honest, regions=regions)

    images = decode_batch(MIXED, device="cpu", backend="double", region=(3, 5, 17, 19))

    for image, item in zip(images, MIXED, strict=True):
        np.testing.assert_array_equal(array_of(image), decode(item, region=(3, 5, 17, 19)))


@pytest.mark.parametrize("windows", [True, False])
def test_a_backend_may_be_asked_for_the_whole(*, windows: bool) -> None:
    """Although it decodes regions, it can be asked for all, and the region is what is cut out."""
    backend = register_double(honest, regions=True)(torch.device("cpu"), 1)
    region = (3, 5, 17, 19)

    request = request_of(PHOTOS[0], probe(PHOTOS[0]), backend, {"region": region}, windows=windows)

    assert request is not None
    assert (request.item.window, request.cut) == ((region, None) if windows else (None, region))


def test_grey() -> None:
    """mode="L" gives one channel, from either side."""
    register_double()

    images = decode_batch(MIXED, device="cpu", backend="double", mode="L")

    for image, item in zip(images, MIXED, strict=True):
        np.testing.assert_array_equal(image[0].numpy()[1:], decode(item, mode="L")[1:])
    assert is_marked(images[0])


@pytest.mark.parametrize(
    "options",
    [{"reduce": 2}, {"min_size": 8}, {"strict": True}, {"mode": "RGBA"}, {"mode": "stored"}],
    ids=str,
)
def test_what_it_does_not_do_is_the_cpus(options: dict[str, Any]) -> None:
    """Reductions, strictness and other modes are bit-identical to what `decode` gives."""
    double = register_double()
    items = [item for item in MIXED if item is not NO_END]

    images = decode_batch(items, device="cpu", backend="double", **options)

    assert double.asked == []
    for image, item in zip(images, items, strict=True):
        expected = decode(item, **options)
        np.testing.assert_array_equal(
            array_of(image), expected if expected.ndim == 3 else expected[:, :, None]
        )


def test_an_image_that_lies_on_its_side() -> None:
    """With orient=True it is turned, and the upright ones still go to the backend."""
    register_double()
    exif = PillowImage.Exif()
    exif[0x0112] = 6
    lying = encode(drawing(40, 24), exif=exif)

    stored, plain = decode_batch([lying, PHOTOS[0]], device="cpu", backend="double")
    seen, upright = decode_batch([lying, PHOTOS[0]], device="cpu", backend="double", orient=True)

    assert tuple(stored.shape) == (3, 24, 40)
    assert is_marked(stored)
    np.testing.assert_array_equal(array_of(seen), decode(lying, orient=True))
    assert is_marked(upright)
    assert is_marked(plain)


def test_an_image_over_the_limit_is_not_tried() -> None:
    """max_pixels holds for the batch backend, too."""
    double = register_double()

    with pytest.raises(ImageTooLarge, match=r"^item 0: "):
        decode_batch(PHOTOS[:1], device="cpu", backend="double", max_pixels=100)

    assert double.asked == []


@pytest.mark.parametrize("size", [16, (12, 20), 1, (1, 7), (7, 1)], ids=str)
@pytest.mark.parametrize("backend", ["double", None])
def test_size_gives_one_tensor(size: Any, backend: str | None) -> None:
    """With `size` the batch is one tensor, near Pillow's antialiased resize of each image."""
    register_double(honest)
    height, width = (size, size) if isinstance(size, int) else size

    batch = decode_batch(MIXED, device="cpu", backend=backend, size=size)

    assert tuple(batch.shape) == (len(MIXED), 3, height, width)
    assert batch.dtype == torch.uint8
    for image, item in zip(batch, MIXED, strict=True):
        whole = PillowImage.fromarray(decode(item))
        expected = np.asarray(whole.resize((width, height), PillowImage.Resampling.BILINEAR))
        assert np.abs(array_of(image).astype(int) - expected).max() <= 1


def test_size_with_errors_is_a_list() -> None:
    """With on_error="return" a list is returned, whose images have the size."""
    register_double()

    images = decode_batch(
        [PHOTOS[0], CUT, PNG], device="cpu", backend="double", size=16, on_error="return"
    )

    assert isinstance(images[1], DecodeError)
    assert [tuple(images[at].shape) for at in (0, 2)] == [(3, 16, 16)] * 2


@pytest.mark.parametrize("items", [[], [CUT]], ids=["no items", "only errors"])
def test_nothing_gives_nothing(items: list[bytes]) -> None:
    """No items are an empty list, or an empty tensor of the size; errors alone are a list."""
    register_double()

    images = decode_batch(items, device="cpu", backend="double", on_error="return")

    assert [type(image) for image in images] == [DecodeError] * len(items)
    if not items:
        assert decode_batch([], device="cpu", backend="double", size=8).shape == (0, 3, 8, 8)
        assert decode_batch([], device="cpu", mode="L", size=8).shape == (0, 1, 8, 8)


@pytest.mark.parametrize(
    "options",
    [{"threads": 1}, {"threads": 3}, {"backend": "pillow", "decode": "cpu"}],
    ids=str,
)
def test_without_a_batch_backend_the_cpu_decodes(options: dict[str, Any]) -> None:
    """device="cpu" alone, or a backend that decodes one image at a time, has `decode`'s pixels."""
    images = decode_batch(MIXED, device="cpu", **options)

    for image, item in zip(images, MIXED, strict=True):
        expected = decode(item, backend=options.get("backend"))
        np.testing.assert_array_equal(array_of(image), expected)


@pytest.mark.parametrize("limit", ["_MOST_FILES", "_MOST_PIXELS"])
def test_it_is_done_in_parts(limit: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not all is there in full size at once, and parts make the same batch."""
    double = register_double(honest)
    items = [*MIXED, *PHOTOS, CUT]
    whole = decode_batch(items[:-1], device="cpu", backend="double", size=16)
    monkeypatch.setattr(f"fastdecode.gpu._decode_batch.{limit}", 3)

    batch = decode_batch(items[:-1], device="cpu", backend="double", size=16)
    with pytest.raises(DecodeError, match=f"^item {len(items) - 1}: "):
        decode_batch(items, device="cpu", backend="double", size=16)

    assert torch.equal(batch, whole)
    assert max(double.asked[1:]) <= 3
