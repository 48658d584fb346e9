"""From bytes to the floats that a network was trained on, for a whole batch on its device."""

from __future__ import annotations

import functools

import torch

__all__ = ["normalized"]


def normalized(
    batch: torch.Tensor,
    mean: tuple[float, ...] | None,
    std: tuple[float, ...] | None,
    dtype: torch.dtype = torch.float32,
    *,
    channels_last: bool | None = None,
) -> torch.Tensor:
    """Compute ``(value / 255 - mean) / std``.

    Parameters
    ----------
    batch : tensor of uint8, (N, C, H, W)
        On any device, with any strides.
    mean, std : tuple of C floats, or None
        Of each channel, on a scale of 0 to 1. A mean of None leaves values of 0 to 1.
    dtype : torch.float32, torch.float16 or torch.bfloat16
        Of the result. All is computed in float32, and rounded once for the others.
    channels_last : bool, optional
        The memory format of the result; by default that of `batch`.

    Returns
    -------
    tensor of `dtype`, (N, C, H, W)
        On the device of `batch`, ready in the order of the current stream.

    Raises
    ------
    ValueError
        If `batch` is not such, `mean` or `std` have not C numbers, or `dtype` is none of these.

    Notes
    -----
    One multiplication and one addition, each rounded to float32: on any device the same bits as
    from `fastdecode.torch.transforms.Normalize` on the CPU.
    """
    if batch.dtype != torch.uint8 or batch.ndim != 4:
        raise ValueError(
            f"batch must be uint8 of shape (N, C, H, W), not {tuple(batch.shape)} of {batch.dtype}"
        )
    if dtype not in (torch.float32, torch.float16, torch.bfloat16):
        raise ValueError(f"dtype must be float32, float16 or bfloat16, not {dtype}")
    channels = batch.shape[1]
    means = (0.0,) * channels if mean is None else tuple(mean)
    stds = (1.0,) * channels if mean is None else tuple(std or ())
    if len(means) != channels or len(stds) != channels or 0 in stds:
        raise ValueError(
            f"mean and std must be {channels} numbers each, and no std 0, not {mean} and {std}"
        )
    factor, summand = _constants(means, stds, batch.device)
    result = _empty_like(batch, dtype, channels_last)
    if dtype == torch.float32:
        # By promotion the bytes become floats on the way: no kernel for that alone.
        return torch.mul(batch, factor, out=result).add_(summand)
    return torch.add(torch.mul(batch, factor), summand, out=result)


def _empty_like(
    batch: torch.Tensor, dtype: torch.dtype, channels_last: bool | None
) -> torch.Tensor:
    if channels_last is None:
        return torch.empty_like(batch, dtype=dtype)
    layout = torch.channels_last if channels_last else torch.contiguous_format
    return torch.empty_like(batch, dtype=dtype, memory_format=layout)


@functools.lru_cache(maxsize=64)
def _constants(
    mean: tuple[float, ...], std: tuple[float, ...], device: torch.device
) -> tuple[torch.Tensor, torch.Tensor]:
    """Keep them on each device: bringing them there waits for it, which no batch must.

    They may be used on any stream, because the copy is over when it returns.
    """
    with torch.inference_mode(mode=False):  # or they could not be used outside of such
        means = torch.tensor(mean, dtype=torch.float64, device="cpu")
        stds = torch.tensor(std, dtype=torch.float64, device="cpu")
        factor = (1 / (255 * stds)).float().view(-1, 1, 1)
        summand = (-means / stds).float().view(-1, 1, 1)
        return factor.to(device), summand.to(device)
