"""Boxes of many images resized to one size: a few large matrix products on their device.

Notes
-----
A resize is two matrix products, with the weights of the columns and with those of the rows. Images
of like size are copied into one padded buffer, whose padding weighs nothing, and the products of
all of them are two launches. So what is launched for each image is a copy, and nothing waits for
the device.

The weights are those of Pillow's `Image.resize(size, BILINEAR, box=box)` and of the native core, a
triangle: result i has its centre at ``start + (i + 0.5) * step`` and reaches ``max(|step|, 1)``
pixels to each side. It ends where the image ends, and its weights add up to 1. A negative step
mirrors.

On CUDA the factors are float16, for tensor cores, and sums are float32. Bytes are exact in float16.
Weights are rounded by a share of 2**-11 at most, and add up to 1: that is 0.13 levels for each
product. The rows in between, and the results, are rounded to an eighth of a level. That makes less
than 0.4 levels before results become bytes. Pillow rounds its rows to bytes, which is half a level.
Together it is less than 1: so both are at most 1 level apart, whatever is in the image. (bfloat16
would be up to 3 levels apart, and white could become black.)
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from numbers import Real
from typing import Any, NamedTuple, TypeAlias

import torch

__all__ = ["FloatBox", "grouped", "in_parts", "resized"]

FloatBox: TypeAlias = tuple[float, float, float, float]

_MOST = 1 << 28
"""How many elements the buffers of one pass have at most, but for an image that needs more."""

_NOTHING = 1 << 22
"""So many pixels take a GPU no longer than it takes to begin another group."""

_DTYPES = {"cuda": torch.float16}
"""Of the products, by type of device; elsewhere it is float32."""

_NUMBERS = 4
"""How many numbers a device is told of an axis."""

_STEP = 8
"""Rows of matrices begin at multiples of so many elements, as tensor cores like them."""


class _Axis(NamedTuple):
    """One axis of one image.

    Attributes
    ----------
    first, end : int
        The pixels that results are made of.
    start : float
        The edge of the box at which results begin, in pixels from `first`.
    step : float
        From one result to the next, in pixels; negative where the image is mirrored.
    taps : int
        How many pixels one result is made of, at most.
    sticks_out : bool
        Whether the box reaches beyond the image.
    """

    first: int
    end: int
    start: float
    step: float
    taps: int
    sticks_out: bool

    @property
    def side(self) -> int:
        """How many pixels results are made of."""
        return self.end - self.first

    @property
    def numbers(self) -> tuple[float, float, float, float]:
        """Start, from pixel centre to pixel centre; step; support; and the last pixel's index."""
        return self.start - 0.5, self.step, max(abs(self.step), 1.0), float(self.side - 1)


class _Pass(NamedTuple):
    """What is resized at once.

    `places` are those of the images in the batch, `across` and `down` their axes, `height` and
    `width` the sides of a padded image. `numbers` are float64, (N, 2 * _NUMBERS + 1), on the
    device: of each image the numbers of both axes, and its place.
    """

    places: Sequence[int]
    across: list[_Axis]
    down: list[_Axis]
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
    """Resize a box of each image, antialiased, and mirror some.

    Parameters
    ----------
    images : sequence of tensor, each (C, H, W)
        uint8, with any strides and of any size, on one device and with one C.
    size : (height, width)
        Of every result, in pixels.
    boxes : sequence of (left, top, right, bottom), optional
        What is resized of each image, in its pixels; edges may be fractions. By default all.
        Where a box sticks out of its image, the result is black.
    flips : sequence of bool, optional
        Which results to mirror from left to right.
    out : tensor of uint8, (N, C, height, width), optional
        Where to write, with any strides, on the device of the images.
    channels_last : bool
        The memory format of the result, where there is no `out`.

    Returns
    -------
    tensor of uint8, (N, C, height, width)
        `out` if there is one. On CUDA it is ready in the order of the current stream, on which
        all work is launched. Of no image at all it is (0, 3, height, width), on the CPU.

    Raises
    ------
    TypeError
        If an image is not a tensor, or a box not four numbers.
    ValueError
        If an image has another shape, type or device, a box is empty or lies outside its image,
        there are more or fewer boxes or flips than images, or `size` or `out` do not fit. The
        message says which.

    Notes
    -----
    At most 1 level from Pillow's ``resize(size, BILINEAR, box=box)``; a box of whole pixels and of
    the result's size is copied. As with Pillow, results at the edges of a box are also made of
    pixels next to it. To leave these out, hand over ``image[:, top:bottom, left:right]``.
    """
    _check_size(size)
    _check_images(images)
    edges, mirrored = _boxes_of(boxes, images), _flips_of(flips, images)
    result = _result_of(images, size, out, channels_last=channels_last)
    if not images:
        return result
    height, width = size
    across, down = [], []
    for image, (left, top, right, bottom), flip in zip(images, edges, mirrored, strict=True):
        across.append(_axis_of(left, right, image.shape[2], width, flip=bool(flip)))
        down.append(_axis_of(top, bottom, image.shape[1], height, flip=False))
    # Autocast would turn the products into those of bfloat16, which has 8 bits.
    with torch.autocast(result.device.type, enabled=False):
        for one in _passes(across, down, result):
            _write(images, one, result)
    return result


def _check_size(size: tuple[int, int]) -> None:
    """Refuse what is not a positive height and width."""
    sides = tuple(size)
    if len(sides) != 2 or not all(isinstance(side, int) and side > 0 for side in sides):
        raise ValueError(f"size must be (height, width) in pixels, not {size!r}")


def _check_images(images: Sequence[torch.Tensor]) -> None:
    """Refuse images that are not uint8 (C, H, W), with one C and on one device."""
    for index, image in enumerate(images):
        if not isinstance(image, torch.Tensor):
            raise TypeError(f"images[{index}] must be a tensor, not {type(image).__name__}")
        if image.dtype != torch.uint8 or image.ndim != 3 or 0 in image.shape:
            raise ValueError(
                f"images[{index}] must be uint8 of shape (C, H, W), "
                f"not {tuple(image.shape)} of {image.dtype}"
            )
        first = images[0]
        if image.device != first.device or image.shape[0] != first.shape[0]:
            raise ValueError(
                f"images[{index}] has {image.shape[0]} channels on {image.device}, "
                f"but images[0] has {first.shape[0]} on {first.device}"
            )


def _boxes_of(
    boxes: Sequence[FloatBox] | None, images: Sequence[torch.Tensor]
) -> Sequence[FloatBox]:
    """Return a box for each image: all of it, if there are none."""
    if boxes is None:
        return [(0.0, 0.0, image.shape[2], image.shape[1]) for image in images]
    _check_count("boxes", boxes, images)
    for index, (box, image) in enumerate(zip(boxes, images, strict=True)):
        if len(box) != 4 or not all(isinstance(edge, Real) for edge in box):
            raise TypeError(f"boxes[{index}] must be four numbers, not {box!r}")
        left, top, right, bottom = box
        height, width = image.shape[1:]
        if not (0 < right - left < math.inf and 0 < bottom - top < math.inf):
            raise ValueError(f"boxes[{index}] must be (left, top, right, bottom), not {box}")
        if left >= width or top >= height or right <= 0 or bottom <= 0:
            raise ValueError(f"boxes[{index}] {box} lies outside of its image, {width} x {height}")
    return boxes


def _flips_of(flips: Sequence[bool] | None, images: Sequence[torch.Tensor]) -> Sequence[bool]:
    """Return for each image whether to mirror it: none, if it is not said."""
    if flips is None:
        return [False] * len(images)
    _check_count("flips", flips, images)
    return flips


def _result_of(
    images: Sequence[torch.Tensor],
    size: tuple[int, int],
    out: torch.Tensor | None,
    *,
    channels_last: bool,
) -> torch.Tensor:
    """Return `out`, if it fits, or a fresh result."""
    if not images:
        channels, device = (3, torch.device("cpu")) if out is None else (out.shape[1], out.device)
    else:
        channels, device = images[0].shape[0], images[0].device
    shape = (len(images), channels, *size)
    if out is None:
        layout = torch.channels_last if channels_last else torch.contiguous_format
        return torch.empty(shape, dtype=torch.uint8, device=device, memory_format=layout)
    if out.shape != shape or out.dtype != torch.uint8 or out.device != device:
        raise ValueError(
            f"out must be {shape} of torch.uint8 on {device}, "
            f"not {tuple(out.shape)} of {out.dtype} on {out.device}"
        )
    return out


def _check_count(name: str, values: Sequence[Any], images: Sequence[torch.Tensor]) -> None:
    if len(values) != len(images):
        raise ValueError(f"there are {len(images)} images, but {len(values)} {name}")


def _passes(across: list[_Axis], down: list[_Axis], result: torch.Tensor) -> Iterator[_Pass]:
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
    numbers = _on_device(rows, result.device).view(-1, 2 * _NUMBERS + 1)
    begin = 0
    for part in parts:
        axes = [across[place] for place in part], [down[place] for place in part]
        some = numbers[begin : begin + len(part)]
        yield _Pass(part, *axes, *_padded_sides(sides, part), some)
        begin += len(part)


def _padded_sides(sides: Sequence[tuple[int, int]], some: Sequence[int]) -> tuple[int, int]:
    heights, widths = zip(*(sides[place] for place in some), strict=True)
    return _rounded_up(max(heights)), _rounded_up(max(widths))


def _on_device(numbers: list[float], device: torch.device) -> torch.Tensor:
    """Copy numbers to a device without waiting for it."""
    if device.type != "cuda":
        return torch.tensor(numbers, dtype=torch.float64, device="cpu").to(device)
    # PyTorch's allocator of pinned memory hands this out again only after the copy.
    with torch.cuda.device(device):
        pinned = torch.tensor(numbers, dtype=torch.float64, device="cpu", pin_memory=True)
        return pinned.to(device, non_blocking=True)


def _write(images: Sequence[torch.Tensor], one: _Pass, result: torch.Tensor) -> None:
    """Resize images, and put the results in their places."""
    count, (channels, height, width) = len(one.places), result.shape[1:]
    dtype = _dtype(result.device)
    columns = _matrices(one.numbers[:, :_NUMBERS], one.across, width, one.width, dtype)
    rows = _matrices(one.numbers[:, _NUMBERS:-1], one.down, height, one.height, dtype)
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
    """Copy what is needed of each image into one buffer of zeros, (N, H, C, W)."""
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


def grouped(sides: Sequence[tuple[int, int]]) -> list[list[int]]:
    """Put images of like (height, width) together: return indices, ascending within a group.

    If all images of a group are padded to its largest height and its largest width, that at most
    doubles the pixels, unless they are few.
    """
    return list(_split(sides, list(range(len(sides))))) if sides else []


def _split(sides: Sequence[tuple[int, int]], group: list[int]) -> Iterator[list[int]]:
    heights, widths = zip(*(sides[index] for index in group), strict=True)
    padded = len(group) * max(heights) * max(widths)
    own = sum(height * width for height, width in zip(heights, widths, strict=True))
    if padded <= max(2 * own, _NOTHING):
        yield group
        return
    # Along the axis on which they differ more, at the geometric mean of its extremes.
    tall = max(heights) * min(widths) > max(widths) * min(heights)
    along = heights if tall else widths
    limit = math.sqrt(max(along) * min(along))
    for small in (True, False):
        part = zip(group, along, strict=True)
        yield from _split(sides, [index for index, side in part if (side <= limit) == small])


def in_parts(group: Sequence[int], most: int) -> Iterator[Sequence[int]]:
    """Cut a group into parts of at most so many, which are about equal; at least one each."""
    count = math.ceil(len(group) / max(1, most))
    size = math.ceil(len(group) / count)
    for begin in range(0, len(group), size):
        yield group[begin : begin + size]


def _axis_of(low: float, high: float, side: int, results: int, *, flip: bool) -> _Axis:
    """Describe how a box from low to high of an image of `side` pixels becomes results.

    With `flip` the first result is to be the last.
    """
    scale = (high - low) / results
    support = max(scale, 1.0)
    reach = support - scale / 2  # beyond the edges of the box
    first = min(max(math.floor(low - reach), 0), side - 1)
    end = max(min(math.ceil(high + reach), side), first + 1)
    start, step = (high, -scale) if flip else (low, scale)
    # A box may be so much larger than the image that most of its pixels are not there.
    taps = min(math.ceil(2 * support) + 1, end - first)
    return _Axis(first, end, start - first, step, taps, low < 0 or high > side)


def _matrices(
    numbers: torch.Tensor, axes: list[_Axis], results: int, side: int, dtype: torch.dtype
) -> torch.Tensor:
    """Make the weights of an axis for many images, (N, R, side), on the device of their numbers.

    Row i has the weights of result i; R is `results` or a little more, with rows of zeros. `side`
    is that of a padded image. A result whose centre lies outside of its image has nothing but
    zeros: it becomes black.

    What is computed for each result are a few taps, in double precision: the distance to a centre
    far from the first pixel is a small difference of large numbers. They are then put in their
    places in a matrix of zeros.
    """
    device = numbers.device
    start, step, support, last = numbers[:, :, None].unbind(1)
    count = max(axis.taps for axis in axes)
    halves = torch.arange(results, dtype=torch.float64, device=device).add_(0.5)
    taps = torch.arange(count, dtype=torch.float64, device=device)
    centre = torch.addcmul(start, step, halves)
    first = (centre - support).add_(1.0).floor_().relu_().minimum(last)
    place = first[..., None] + taps
    weights = (place - centre[..., None]).abs_().div_(support[..., None]).neg_().add_(1.0).relu_()
    weights.masked_fill_(place > last[..., None], 0.0)
    weights /= weights.sum(-1, keepdim=True)
    if any(axis.sticks_out for axis in axes):
        outside = (centre < -0.5) | (centre > last + 0.5)
        weights.masked_fill_(outside[..., None], 0.0)
    # Taps beyond the last pixel, which weigh nothing, have places of their own behind it: so no
    # two go to the same place, and it does not matter which is written last.
    shape = (len(axes), _rounded_up(results), _rounded_up(side + count))
    matrix = torch.zeros(shape, dtype=dtype, device=device)
    matrix[:, :results].scatter_(2, place.long(), weights.to(dtype))
    return matrix[:, :, :side]


def _rounded_up(count: int) -> int:
    """Return the next multiple of the length at which matrices are fast."""
    return -(-count // _STEP) * _STEP
