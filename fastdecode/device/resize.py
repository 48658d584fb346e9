"""Boxes of many pictures resized to one size: a few large matrix products on their device.

Notes
-----
A resize is two matrix products, with the weights of the columns and with those of the rows (see
`fastdecode.device.weights`). Pictures of like size are copied into one padded buffer, whose padding
weighs nothing, and the products of all of them are two launches. So what is launched for each
picture is a copy, and nothing waits for the device.

On CUDA the factors are float16, for tensor cores, and sums are float32. Bytes are exact in float16.
Weights are rounded by a share of 2**-11 at most, and add up to 1: that is 0.13 levels for each
product. The rows in between, and the results, are rounded to an eighth of a level. That makes less
than 0.4 levels before results become bytes. Pillow rounds its rows to bytes, which is half a level.
Together it is less than 1: so both are at most 1 level apart, whatever is in the picture. (bfloat16
would be up to 3 levels apart, and white could become black.)
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import torch

from fastdecode.device.groups import grouped, in_parts
from fastdecode.device.resize_arguments import (
    FloatBox,
    boxes_of,
    check_images,
    check_size,
    flips_of,
    result_of,
)
from fastdecode.device.weights import NUMBERS, Axis, axis_of, matrices, rounded_up

__all__ = ["resized"]

_MOST = 1 << 28
"""How many elements the buffers of one pass have at most, but for a picture that needs more."""

_DTYPES = {"cuda": torch.float16}
"""Of the products, by type of device; elsewhere it is float32."""


class _Pass(NamedTuple):
    """What is resized at once.

    Attributes
    ----------
    places : sequence of int
        Of the pictures, in the batch.
    across, down : list of Axis
        Of each picture.
    height, width : int
        Of a padded picture.
    numbers : tensor of float64, (N, 2 * NUMBERS + 1)
        On the device: of each picture the numbers of both axes, and its place.
    """

    places: Sequence[int]
    across: list[Axis]
    down: list[Axis]
    height: int
    width: int
    numbers: torch.Tensor


def resized(
    images: Sequence[torch.Tensor],
    size: tuple[int, int],
    *,
    boxes: Sequence[FloatBox] | None = None,
    flips: Sequence[bool] | None = None,
    out: torch.Tensor | None = None,
    channels_last: bool = False,
) -> torch.Tensor:
    """Resize a box of each picture, antialiased, and mirror some.

    Parameters
    ----------
    images : sequence of tensor, each (C, H, W)
        uint8, with any strides and of any size, on one device and with one C.
    size : (height, width)
        Of every result, in pixels.
    boxes : sequence of (left, top, right, bottom), optional
        What is resized of each picture, in its pixels; edges may be fractions. By default all.
        Where a box sticks out of its picture, the result is black.
    flips : sequence of bool, optional
        Which results to mirror from left to right.
    out : tensor of uint8, (N, C, height, width), optional
        Where to write, with any strides, on the device of the pictures.
    channels_last : bool
        The memory format of the result, where there is no `out`.

    Returns
    -------
    tensor of uint8, (N, C, height, width)
        `out` if there is one. On CUDA it is ready in the order of the current stream, on which
        all work is launched. Of no picture at all it is (0, 3, height, width), on the CPU.

    Raises
    ------
    TypeError
        If a picture is not a tensor, or a box not four numbers.
    ValueError
        If a picture has another shape, type or device, a box is empty or lies outside its picture,
        there are more or fewer boxes or flips than pictures, or `size` or `out` do not fit. The
        message says which.

    Notes
    -----
    At most 1 level from Pillow's ``resize(size, BILINEAR, box=box)``; a box of whole pixels and of
    the result's size is copied. As with Pillow, results at the edges of a box are also made of
    pixels next to it. To leave these out, hand over ``image[:, top:bottom, left:right]``.
    """
    check_size(size)
    check_images(images)
    edges, mirrored = boxes_of(boxes, images), flips_of(flips, images)
    result = result_of(images, size, out, channels_last=channels_last)
    if not images:
        return result
    height, width = size
    across, down = [], []
    for image, (left, top, right, bottom), flip in zip(images, edges, mirrored, strict=True):
        across.append(axis_of(left, right, image.shape[2], width, flip=bool(flip)))
        down.append(axis_of(top, bottom, image.shape[1], height, flip=False))
    # Autocast would turn the products into those of bfloat16, which has 8 bits.
    with torch.autocast(result.device.type, enabled=False):
        for one in _passes(across, down, result):
            _write(images, one, result)
    return result


def _passes(across: list[Axis], down: list[Axis], result: torch.Tensor) -> Iterator[_Pass]:
    """Decide what is resized at once, and bring the numbers of all to the device in one go."""
    channels, height, width = result.shape[1:]
    sides = [(rows.side, columns.side) for rows, columns in zip(down, across, strict=True)]
    parts: list[Sequence[int]] = []
    for group in grouped(sides):
        tall, wide = _padded_sides(sides, group)
        needed = channels * (tall + height) * (wide + width) + width * wide + height * tall
        parts += in_parts(group, _MOST // needed)
    rows = []
    for place in (place for part in parts for place in part):
        rows += [*across[place].numbers, *down[place].numbers, float(place)]
    numbers = _on_device(rows, result.device).view(-1, 2 * NUMBERS + 1)
    begin = 0
    for part in parts:
        axes = [across[place] for place in part], [down[place] for place in part]
        some = numbers[begin : begin + len(part)]
        yield _Pass(part, *axes, *_padded_sides(sides, part), some)
        begin += len(part)


def _padded_sides(sides: Sequence[tuple[int, int]], some: Sequence[int]) -> tuple[int, int]:
    heights, widths = zip(*(sides[place] for place in some), strict=True)
    return rounded_up(max(heights)), rounded_up(max(widths))


def _on_device(numbers: list[float], device: torch.device) -> torch.Tensor:
    """Copy numbers to a device without waiting for it."""
    if device.type != "cuda":
        return torch.tensor(numbers, dtype=torch.float64, device="cpu").to(device)
    # PyTorch's allocator of pinned memory hands this out again only after the copy.
    with torch.cuda.device(device):
        pinned = torch.tensor(numbers, dtype=torch.float64, device="cpu", pin_memory=True)
        return pinned.to(device, non_blocking=True)


def _write(images: Sequence[torch.Tensor], one: _Pass, result: torch.Tensor) -> None:
    """Resize pictures, and put the results in their places."""
    count, (channels, height, width) = len(one.places), result.shape[1:]
    dtype = _dtype(result.device)
    columns = matrices(one.numbers[:, :NUMBERS], one.across, width, one.width, dtype)
    rows = matrices(one.numbers[:, NUMBERS:-1], one.down, height, one.height, dtype)
    pixels = _padded(images, one, channels, dtype)
    # A row of all channels lies side by side, so that one product serves them all.
    narrow = torch.bmm(pixels.view(count, -1, one.width), columns.transpose(1, 2))
    made = torch.bmm(rows[:, :height], narrow.view(count, one.height, -1))
    # Weights are so exact that nothing is rounded to 256, which is no byte.
    levels = made.round_().view(count, height, channels, -1)[..., :width].permute(0, 2, 1, 3)
    first, last = one.places[0], one.places[-1]
    if last - first + 1 == count:  # they ascend
        result[first : last + 1].copy_(levels)
    else:
        result.index_copy_(0, one.numbers[:, -1].long(), levels.to(torch.uint8))


def _padded(
    images: Sequence[torch.Tensor], one: _Pass, channels: int, dtype: torch.dtype
) -> torch.Tensor:
    """Copy what is needed of each picture into one buffer of zeros, (N, H, C, W)."""
    shape = (len(one.places), one.height, channels, one.width)
    pixels = torch.zeros(shape, dtype=dtype, device=one.numbers.device)
    each = zip(one.places, pixels.transpose(1, 2), one.across, one.down, strict=True)
    for place, room, across, down in each:
        window = images[place][:, down.first : down.end, across.first : across.end]
        room[:, : down.side, : across.side].copy_(window)
    return pixels


def _dtype(device: torch.device) -> torch.dtype:
    # Someone may have allowed sums in float16, which are wrong by several levels.
    if device.type == "cuda" and getattr(
        torch.backends.cuda.matmul, "allow_fp16_accumulation", False
    ):
        return torch.float32
    return _DTYPES.get(device.type, torch.float32)
