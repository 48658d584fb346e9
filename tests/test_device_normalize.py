"""Bytes on a device become the floats that `Normalize` makes on the host."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")

from fastdecode.device.normalize import _constants, normalized  # noqa: E402 - they need torch
from fastdecode.torch.transforms import IMAGENET_MEAN, IMAGENET_STD, Normalize  # noqa: E402

LEVELS = torch.arange(256, dtype=torch.uint8).view(1, 1, 16, 16).expand(2, 3, 16, 16).contiguous()


@pytest.fixture(
    params=[
        "cpu",
        pytest.param(
            "cuda",
            marks=pytest.mark.skipif(
                not torch.cuda.is_available(),
                reason="needs a CUDA device, and a PyTorch that is built with CUDA",
            ),
        ),
    ]
)
def device(request: pytest.FixtureRequest) -> str:
    """Use each device."""
    return str(request.param)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("mean", [IMAGENET_MEAN, None])
def test_values_are_those_of_the_host(device: str, dtype: Any, mean: Any) -> None:
    """All levels of all channels have the bits of `Normalize`, rounded once for shorter types."""
    result = normalized(LEVELS.to(device), mean, IMAGENET_STD, dtype)

    assert result.device.type == device
    assert torch.equal(result.cpu(), Normalize(mean, IMAGENET_STD)(LEVELS).to(dtype))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
@pytest.mark.parametrize("last", [False, True])
def test_the_memory_format_is_kept_or_chosen(device: str, dtype: Any, last: bool) -> None:
    """Strides are those of the batch, or those that are asked for; values are the same."""
    formats = {False: torch.contiguous_format, True: torch.channels_last}
    batch = LEVELS.to(device).contiguous(memory_format=formats[last])
    want = normalized(LEVELS.to(device), IMAGENET_MEAN, IMAGENET_STD, dtype)
    for asked, expected in ((None, last), (True, True), (False, False)):
        result = normalized(batch, IMAGENET_MEAN, IMAGENET_STD, dtype, channels_last=asked)

        assert result.is_contiguous(memory_format=formats[expected])
        assert torch.equal(result, want)


def test_grey_batches_have_one_mean(device: str) -> None:
    """There are as many means as channels."""
    result = normalized(LEVELS[:, :1].to(device), (0.25,), (0.5,))

    assert result.shape == (2, 1, 16, 16)
    torch.testing.assert_close(result.cpu(), (LEVELS[:, :1] / 255 - 0.25) / 0.5)


def test_no_picture_gives_no_result(device: str) -> None:
    """An empty batch stays one."""
    assert normalized(LEVELS[:0].to(device), IMAGENET_MEAN, IMAGENET_STD).shape == (0, 3, 16, 16)


def test_constants_are_made_once_for_a_device(device: str) -> None:
    """The same tensors serve all batches, in a block for inference and in training."""
    mean, std = (0.125, 0.25, 0.375), (0.5, 1.0, 2.0)
    with torch.inference_mode():
        normalized(LEVELS.to(device), mean, std)
    before = _constants.cache_info().misses
    batch = normalized(LEVELS.to(device), mean, std)

    assert _constants.cache_info().misses == before
    weight = torch.ones(1, device=device, requires_grad=True)
    (batch * weight).sum().backward()
    assert weight.grad is not None


@pytest.mark.parametrize(
    ("batch", "options", "message"),
    [
        (LEVELS.float(), {}, "batch must be uint8 .* of torch.float32"),
        (LEVELS[0], {}, r"batch must be uint8 of shape \(N, C, H, W\), not \(3, 16, 16\)"),
        (LEVELS, {"dtype": torch.float64}, "dtype must be float32"),
        (LEVELS, {"mean": (0.5,)}, "mean and std must be 3 numbers"),
        (LEVELS, {"std": None}, "mean and std must be 3 numbers"),
        (LEVELS, {"std": (1.0, 0.0, 1.0)}, "no std 0"),
    ],
)
def test_what_does_not_fit_is_refused(batch: Any, options: Any, message: str) -> None:
    """Wrong batches, types and means are errors that say so."""
    with pytest.raises(ValueError, match=message):
        normalized(batch, **{"mean": IMAGENET_MEAN, "std": IMAGENET_STD, **options})
