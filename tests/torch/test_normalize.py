"""Normalize turns bytes into the floats that a network needs, on any device."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest
import torch
from same import assert_same
from torch_reference import MEAN, STD, normalized

from fastdecode.torch.transforms import IMAGENET_MEAN, IMAGENET_STD, Normalize

LEVELS = torch.arange(256, dtype=torch.uint8).view(16, 16).expand(3, 16, 16).contiguous()


def test_every_level_is_normalised_as_by_torchvision() -> None:
    """All 256 levels of all channels are scaled to 0..1, less the mean, divided by the std."""
    assert (IMAGENET_MEAN, IMAGENET_STD) == (MEAN, STD)

    result = Normalize()(LEVELS)

    assert result.dtype == torch.float32
    assert_same(result, normalized(LEVELS), within=1e-6)


def test_without_a_mean_there_are_values_of_0_to_1() -> None:
    """`mean=None` only scales, with black at 0 and white at 1."""
    result = Normalize(None)(LEVELS)

    assert_same(result, LEVELS / 255, within=1e-7)
    assert (result.min(), result.max()) == (0, 1)


@pytest.mark.parametrize("shape", [(3, 1, 1), (2, 3, 4, 5), (2, 1, 3, 4, 5), (0, 3, 4, 5)])
def test_batches_are_normalised_like_their_images(shape: tuple[int, ...]) -> None:
    """Any number of dimensions may come before the channels."""
    pixels = torch.randint(0, 256, shape, dtype=torch.uint8, generator=torch.Generator())

    result = Normalize()(pixels)

    assert result.shape == shape
    for one, drawing in zip(result.view(-1, *shape[-3:]), pixels.view(-1, *shape[-3:])):  # noqa: B905
        assert_same(one, normalized(drawing), within=1e-6)


def test_channels_last_stays_channels_last() -> None:
    """A batch keeps its memory format, and its values are the same."""
    batch = LEVELS.expand(2, 3, 16, 16).contiguous(memory_format=torch.channels_last)

    result = Normalize()(batch)

    assert result.is_contiguous(memory_format=torch.channels_last)
    assert_same(result[0], normalized(LEVELS), within=1e-6)


def test_the_result_goes_where_it_is_wanted() -> None:
    """`out` may have any strides, and is returned; the bytes are not changed."""
    out = torch.zeros((16, 16, 3)).permute(2, 0, 1)
    pixels = LEVELS.clone()

    assert Normalize()(pixels, out=out) is out
    assert_same(out, normalized(LEVELS), within=1e-6)
    assert_same(pixels, LEVELS)


@pytest.mark.parametrize(
    "out",
    [torch.zeros(3, 8, 8), torch.zeros(1, 3, 16, 16), torch.zeros(3, 16, 16, dtype=torch.float64)],
    ids=lambda out: f"{tuple(out.shape)}-{out.dtype}",
)
def test_an_out_that_does_not_fit_is_left_alone(out: Any) -> None:
    """An `out` of another shape or type is an error, and is not written or resized."""
    shape = out.shape

    with pytest.raises(ValueError, match=r"out .*\(3, 16, 16\).*float32"):
        Normalize()(LEVELS, out=out)

    assert out.shape == shape
    assert_same(out, 0)


@pytest.mark.parametrize(
    "pixels",
    [LEVELS.int(), LEVELS[:1], LEVELS.permute(1, 2, 0), LEVELS[0].float()],
    ids=["integers", "one channel", "channels last", "a plane"],
)
def test_other_pixels_are_refused(pixels: Any) -> None:
    """Integers of other types, and wrong shapes, are errors."""
    with pytest.raises(ValueError, match="uint8"):
        Normalize()(pixels)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16])
@pytest.mark.parametrize("inplace", [False, True])
def test_floats_are_normalised_as_they_are(dtype: Any, inplace: bool) -> None:
    """As in torchvision, floats are normalised in their type, without scaling."""
    values = (LEVELS / 255).to(dtype)
    mean, std = (torch.tensor(three, dtype=dtype).view(3, 1, 1) for three in (MEAN, STD))
    given, out = values.clone(), torch.zeros((16, 16, 3), dtype=dtype).permute(2, 0, 1)

    result = Normalize(inplace=inplace)(given)

    assert (result is given) == inplace
    assert_same(given, result if inplace else values)
    assert_same(result, (values - mean) / std)
    assert Normalize()(values, out=out) is out
    assert_same(out, result)
    assert_same(Normalize(None)(values), values)


def test_means_come_as_arrays_too() -> None:
    """Lists, arrays and tensors of three numbers, and a single number, are accepted."""
    assert (
        repr(Normalize([0.5], [0.25])) == "Normalize(mean=(0.5, 0.5, 0.5), std=(0.25, 0.25, 0.25))"
    )
    for kind in (list, np.array, torch.tensor):
        assert repr(Normalize(kind([0.5, 0.25, 0.0]), kind([0.5, 1.0, 2.0]))) == (
            "Normalize(mean=(0.5, 0.25, 0.0), std=(0.5, 1.0, 2.0))"
        )


def test_an_unpickled_one_does_the_same() -> None:
    """It can be pickled."""
    other = pickle.loads(pickle.dumps(Normalize((0.1, 0.2, 0.3), (1, 2, 3))))

    assert_same(other(LEVELS), Normalize((0.1, 0.2, 0.3), (1, 2, 3))(LEVELS))


def test_it_works_on_several_devices_in_turn() -> None:
    """Constants follow the pixels to their device; torch's "meta" stands for a second one."""
    normalize = Normalize()

    for device in ("cpu", "meta", "cpu"):
        result = normalize(LEVELS.to(device))

        assert result.device.type == device
        assert result.shape == LEVELS.shape
    assert_same(result, normalized(LEVELS), within=1e-6)


def test_what_it_keeps_for_a_device_is_not_sent_along() -> None:
    """Constants of other devices are not pickled."""
    normalize = Normalize()
    before = pickle.dumps(normalize)
    normalize(LEVELS.to("meta"))

    other = pickle.loads(pickle.dumps(normalize))

    assert pickle.dumps(normalize) == before
    assert other(LEVELS.to("meta")).device.type == "meta"


@pytest.mark.parametrize(
    ("mean", "std"),
    [(IMAGENET_MEAN, IMAGENET_STD), (None, None), ((-2, 0.5, 9), (1e-3, 40, -0.7))],
)
def test_it_can_be_undone(mean: Any, std: Any) -> None:
    """Every level is restored from its float; other values go to the nearest."""
    normalize = Normalize(mean, std)

    assert_same(normalize.undo(normalize(LEVELS)), LEVELS)
    batch = LEVELS.expand(2, 3, 16, 16)
    assert_same(normalize.undo(normalize(batch)), batch)
    factor, bias = (torch.tensor(three).view(3, 1, 1) for three in normalize.affine)
    for level, expected in ((3.4, 3), (-20.0, 0), (300.0, 255)):
        assert_same(normalize.undo(level * factor + bias), expected, level)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU")
@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
def test_on_a_gpu_the_values_are_the_same(layout: Any) -> None:
    """On a GPU a batch of bytes becomes bit-identical floats with the same layout."""
    batch = LEVELS.expand(2, 3, 16, 16).contiguous(memory_format=layout)

    normalize = Normalize()
    with torch.inference_mode():  # what is kept from here is of use outside
        normalize(batch.cuda())
    result = normalize(batch.cuda())

    assert result.is_cuda
    assert result.stride() == batch.stride()
    assert_same(result.cpu(), Normalize()(batch))
    assert_same(Normalize().undo(result).cpu(), batch)
