"""How far the transforms let the decoder shrink, and what that costs in quality."""

from __future__ import annotations

from typing import Any

import pytest
from PIL import Image

torch = pytest.importorskip("torch")

import torch_reference as reference  # noqa: E402 - they need torch
from torch_reference import (  # noqa: E402
    PHOTOS,
    center_crop,
    decibels,
    encoded,
    levels,
    pixels,
    resize,
    seeded,
)

from fastdecode import probe  # noqa: E402
from fastdecode.torch.transforms import (  # noqa: E402
    RandomResizedCrop,
    Resize,
    ResizeCenterCrop,
    base,
)

BYTES: dict[str, Any] = {"dtype": torch.uint8}
FILES = [path.read_bytes() for path in PHOTOS]


@pytest.fixture(name="asked")
def _asked(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, Any]]:
    """Note each reduction, and each window of the reduced image, that is asked for."""
    monkeypatch.setenv("FASTDECODE_DISABLE", "native")  # which is asked in another way
    calls: list[tuple[int, Any]] = []
    decode = base.decode_part

    def noted(data: Any, header: Any, reduce: Any, window: Any, **options: Any) -> Any:
        calls.append((reduce, window))
        return decode(data, header, reduce, window, **options)

    monkeypatch.setattr(base, "decode_part", noted)
    return calls


@pytest.mark.parametrize(
    ("size", "options", "reduce"),
    [
        (41, {}, 8),  # 333 rows are 41.6 times 8
        (42, {}, 4),
        (83, {}, 4),
        (84, {}, 2),
        (166, {}, 2),
        (167, {}, 1),
        (41, {"headroom": 2}, 4),
        (41, {"headroom": 1.1}, 4),
        (83, {"headroom": 2}, 2),
        (40, {"headroom": 9}, 1),
        (41, {"quality": "exact"}, 1),
    ],
)
def test_the_decoder_shrinks_as_far_as_it_may(
    asked: list[Any], size: int, options: dict[str, Any], reduce: int
) -> None:
    """The largest reduction that leaves `headroom` times the result; none for exact quality."""
    result = Resize(size, **options, **BYTES)(FILES[0])

    assert asked == [(reduce, None)]
    assert result.shape == (3, size, int(size * 500 / 333))


def test_each_side_must_suffice(asked: list[Any]) -> None:
    """A result that is narrow but high is not made of too few rows."""
    Resize((200, 10), **BYTES)(FILES[0])
    Resize((10, 200), **BYTES)(FILES[0])
    ResizeCenterCrop(160, 8, **BYTES)(FILES[0])  # it is the whole that is resized to 160

    assert [reduce for reduce, _ in asked] == [1, 2, 2]


def test_only_the_box_is_decoded(asked: list[Any]) -> None:
    """A random crop asks for its own pixels, widened to whole blocks where it is reduced."""
    exact = RandomResizedCrop(16, (0.1, 0.3), quality="exact", **BYTES, flip=0.5)
    default = RandomResizedCrop(16, (0.1, 0.3), **BYTES, flip=0.5)
    for seed in range(8):
        asked.clear()
        box = exact.plan(500, 333, seeded(seed)).box
        exact(FILES[0], generator=seeded(seed))
        default(FILES[0], generator=seeded(seed))
        (_, whole), (reduce, window) = asked

        assert whole == box
        assert reduce > 1
        region = [reduce * side for side in window]
        widened = [a - b for a, b in zip(region, box, strict=True)]
        assert all(-reduce < n <= 0 for n in widened[:2])
        assert all(0 <= n < reduce for n in widened[2:])


@pytest.mark.parametrize("kind", ["PNG", "WEBP", "BMP"])
def test_only_a_jpeg_is_reduced(asked: list[Any], kind: str) -> None:
    """Reducing any other format saves no work, so that its pixels are the exact ones."""
    data = encoded(Image.open(PHOTOS[0]), kind)

    result = Resize(30, **BYTES)(data)

    assert [reduce for reduce, _ in asked] == [1]
    assert levels(result, resize(pixels(data), 30)) <= 1


def qualities(data: bytes, headroom: float) -> list[float]:
    """Hold reduced results against the reference, in decibels."""
    image, header = pixels(data), probe(data)
    options = {**BYTES, "headroom": headroom}
    found = []
    for side, size in ((64, 56), (41, 36), (80, 80)):
        central = ResizeCenterCrop(side, size, **options)
        if headroom == 1:
            plan = central.plan(header.width, header.height, None)
            assert central.reduce_for(header, plan) > 1
        expected = center_crop(resize(image, side), (size, size))
        found.append(decibels(central(data), expected))
    for seed in range(6):
        crop = RandomResizedCrop(32, (0.3, 1.0), flip=0.5, **options)
        expected = reference.random_resized_crop(image, (32, 32), seed, scale=(0.3, 1.0))
        found.append(decibels(crop(data, generator=seeded(seed)), expected))
    return found


def test_the_default_quality_is_good() -> None:
    """Over the sample photos reduced results are above 40 dB on average, each above 30 dB."""
    found = [value for data in FILES for value in qualities(data, 1)]

    assert sum(found) / len(found) > 40
    assert min(found) > 30


@pytest.mark.parametrize("data", FILES, ids=[path.stem for path in PHOTOS])
def test_headroom_buys_quality(data: bytes) -> None:
    """With twice the pixels left the results of every photo come nearer to the reference."""
    plain, ample = qualities(data, 1), qualities(data, 2)

    assert sum(ample) / len(ample) > sum(plain) / len(plain) + 3


@pytest.mark.parametrize("value", range(1, 9))
def test_a_turned_picture_is_as_good(value: int) -> None:
    """With orient=True a reduced image whose sides are no multiple of 8 is not shifted."""
    photo = Image.open(PHOTOS[1]).convert("RGB").resize((627, 469))
    tags = Image.Exif()
    tags[0x0112] = value
    data = encoded(photo, quality=95, exif=tags)
    transform = Resize((50, 60), **BYTES)

    result = transform(data, orient=True)

    assert decibels(result, resize(pixels(data, orient=True), (50, 60))) > 38
