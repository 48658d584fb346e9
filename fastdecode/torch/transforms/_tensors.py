"""What torchvision's functions make of tensors, operation by operation.

They are the same calls of torch in the same order, so the results are the same, bit for bit. The
core, which is faster, rounds some of them elsewhere.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
from torch.nn import functional

from fastdecode.native._augment import Kind, Operation, as_operation

_RGB = 3


def changed(image: torch.Tensor, operations: Any) -> torch.Tensor:
    """Return a tensor (C, H, W), of bytes or floats, after an ``fd_operation[]``."""
    for operation in map(as_operation, operations):
        image = _FUNCTIONS[operation.kind](image, operation)
    return image


def scaled(image: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """Return a tensor with another dtype: bytes become floats from 0 to 1, and back."""
    if image.is_floating_point() and not dtype.is_floating_point:
        image = image.mul(255 + 1 - 1e-3)  # so each level has an equal share
    elif dtype.is_floating_point and not image.is_floating_point():
        return image.to(dtype).mul_(1 / 255)
    return image.to(dtype)


# ---- what changes its place ----


def _cropped(image: torch.Tensor, operation: Operation) -> torch.Tensor:
    left, top, width, height = map(int, operation.value[:4])
    return image[:, top : top + height, left : left + width]


def _resized(image: torch.Tensor, operation: Operation) -> torch.Tensor:
    name = "bilinear" if operation.filter == "own" else operation.filter
    exact = name == "nearest" and operation.library != "torchvision"
    made: torch.Tensor = functional.interpolate(
        image[None],
        (int(operation.value[1]), int(operation.value[0])),
        mode="nearest-exact" if exact else name,
        antialias=name != "nearest",
    )[0]
    return made


def _padded(image: torch.Tensor, operation: Operation) -> torch.Tensor:
    mode: Any = operation.filter
    left, top, right, bottom = map(int, operation.value[:4])
    counts, around = image.shape[1:], ((top, bottom), (left, right))
    rows, columns = (
        torch.from_numpy(np.pad(np.arange(count), sides, "edge" if mode == "constant" else mode))
        for count, sides in zip(counts, around, strict=True)
    )
    padded = image[:, rows][:, :, columns]
    if mode == "constant":
        for channel, level in zip(padded, operation.fill, strict=False):
            inside = channel[top : top + counts[0], left : left + counts[1]].clone()
            channel.fill_(level)[top : top + counts[0], left : left + counts[1]] = inside
    return padded


_Matrix = tuple[float, ...]


def _inverse(angle: float, by: _Matrix, scale: float, shear: _Matrix, center: _Matrix) -> _Matrix:
    """Return the matrix from result to source; places are as far as they are from the middle."""
    turn, (x, y), (cx, cy) = math.radians(angle), map(math.radians, shear), center
    a, c = math.cos(turn - y) / math.cos(y), math.sin(turn - y) / math.cos(y)
    b, d = -(a * math.tan(x) + math.sin(turn)), math.cos(turn) - c * math.tan(x)
    a, b, c, d = d / scale, -b / scale, -c / scale, a / scale
    to_x, to_y = cx + by[0], cy + by[1]
    return a, b, cx - a * to_x - b * to_y, c, d, cy - c * to_x - d * to_y


def _affine(image: torch.Tensor, operation: Operation) -> torch.Tensor:
    angle, right, down, scale, *rest = operation.value
    matrix = _inverse(angle, (right, down), scale, tuple(rest[:2]), tuple(rest[2:]))
    return _warped(image, matrix, image.shape[1:], operation)


def _rotated(image: torch.Tensor, operation: Operation) -> torch.Tensor:
    angle, grows, *center = operation.value[:4]
    quarters, rest = divmod(angle % 360, 90)
    square = image.shape[1] == image.shape[2]
    if rest == 0 and not any(center) and (quarters % 2 == 0 or grows or square):
        return torch.rot90(image, int(quarters), (1, 2))
    matrix, size = _inverse(-angle, (0.0, 0.0), 1.0, (0.0, 0.0), tuple(center)), image.shape[1:]
    if grows:
        halves = torch.tensor([size[1] / 2, size[0] / 2])
        corners = torch.tensor([[-1.0, -1], [-1, 1], [1, 1], [1, -1]]) * halves
        ends = torch.cat([corners, torch.ones(4, 1)], 1) @ torch.tensor(matrix).view(2, 3).T
        low, high = (
            end.add_(halves).mul_(1 / 1e-4).trunc_().mul_(1e-4) for end in ends.aminmax(dim=0)
        )
        width, height = high.ceil_().sub_(low.floor_()).int().tolist()
        size = torch.Size([height, width])
    return _warped(image, matrix, size, operation)


def _moved(image: torch.Tensor, operation: Operation) -> torch.Tensor:
    """Return it after a matrix of places from the left top corner."""
    a, b, right, c, d, down = operation.value[:6]
    across, along = image.shape[2] * 0.5, image.shape[1] * 0.5
    right += a * across - across + b * along
    down += c * across - along + d * along
    return _warped(image, (a, b, right, c, d, down), image.shape[1:], operation)


def _grid(size: torch.Size, like: torch.Tensor, *, from_middle: bool) -> torch.Tensor:
    """Return the places (1, height * width, 3) of the pixels, from the middle or a corner."""
    grid = like.new_empty((1, *size, 3))
    for axis, count in enumerate(size[::-1]):
        first = (1.0 - count) * 0.5 if from_middle else 0.5
        places = torch.linspace(first, first + count - 1, count, device=like.device)
        grid[..., axis] = places if axis == 0 else places[:, None]
    grid[..., 2] = 1
    return grid.view(1, -1, 3)


def _warped(
    image: torch.Tensor, matrix: _Matrix, size: torch.Size, operation: Operation
) -> torch.Tensor:
    floats = image if image.is_floating_point() else image.float()
    halves = floats.new_tensor([0.5 * image.shape[2], 0.5 * image.shape[1]])
    theta = floats.new_tensor(matrix).view(1, 2, 3).transpose(1, 2).div_(halves)
    grid = _grid(size, floats, from_middle=True).bmm(theta).view(1, *size, 2)
    return _sampled(image, floats, grid, operation)


def _seen_from_aside(image: torch.Tensor, operation: Operation) -> torch.Tensor:
    floats, size = image if image.is_floating_point() else image.float(), image.shape[1:]
    halves = floats.new_tensor([0.5 * size[1], 0.5 * size[0]])
    above = floats.new_tensor(operation.value[:6]).view(1, 2, 3).transpose(1, 2).div_(halves)
    below = floats.new_tensor([[*operation.value[6:8], 1.0]] * 2)[None].transpose(1, 2)
    places = _grid(size, floats, from_middle=False)
    grid = places.bmm(above).div_(places.bmm(below)).sub_(1.0).view(1, *size, 2)
    return _sampled(image, floats, grid, operation)


def _sampled(
    image: torch.Tensor, floats: torch.Tensor, grid: torch.Tensor, operation: Operation
) -> torch.Tensor:
    """Return an image at the places of a grid; its fill is blended with the edges."""
    mode, fills = operation.filter, operation.blends
    if mode == "bicubic":
        raise ValueError("tensors are warped with nearest or bilinear interpolation, not bicubic")
    if fills:
        floats = torch.cat((floats, torch.ones_like(floats[:1])))
    made = functional.grid_sample(floats[None], grid, mode, "zeros", align_corners=False)[0]
    if fills:
        made, covered = made[:-1], made[-1:].expand_as(made[:-1])
        fill = made.new_tensor(operation.fill[: len(made)]).view(-1, 1, 1)
        if mode == "nearest":
            made = torch.where(covered < 0.5, fill.expand_as(made), made)
        else:
            made = made.sub_(fill).mul_(covered).add_(fill)
    return made if image.is_floating_point() else made.round_().to(image.dtype)


def _blurred(image: torch.Tensor, operation: Operation) -> torch.Tensor:
    across, sigma_x, sigma_y, down = operation.value[:4]
    sides, floats = (int(across), int(down)), image if image.is_floating_point() else image.float()
    if sides[0] // 2 >= image.shape[2] or sides[1] // 2 >= image.shape[1]:
        raise ValueError(f"a kernel of {sides} is too large for an image of {tuple(image.shape)}")
    weights = []
    for side, sigma in zip(sides, (sigma_x, sigma_y), strict=True):
        limit = (side - 1) / (2.0 * math.sqrt(2.0))
        places = torch.linspace(-limit, limit, side, dtype=floats.dtype, device=floats.device)
        weights.append(torch.softmax(places.div(sigma).pow(2).neg(), 0))
    kernel = (weights[1][:, None] * weights[0]).expand(len(image), 1, -1, -1)
    borders = [sides[0] // 2] * 2 + [sides[1] // 2] * 2
    padded = functional.pad(floats[None], borders, "reflect")
    made = functional.conv2d(padded, kernel, groups=len(image))[0]
    return made if image.is_floating_point() else made.round_().to(image.dtype)


# ---- colours ----


def _most(image: torch.Tensor) -> float:
    return 1.0 if image.is_floating_point() else 255.0


def _limited(values: torch.Tensor, image: torch.Tensor) -> torch.Tensor:
    return values.clamp_(0, _most(image)).to(image.dtype)


def _blend(image: torch.Tensor, other: torch.Tensor, share: float) -> torch.Tensor:
    return _limited(image.mul(share).add_(other, alpha=1.0 - share), image)


def _luminance(image: torch.Tensor) -> torch.Tensor:
    """Return it in floats; that of bytes is whole."""
    if len(image) != _RGB:
        return image if image.is_floating_point() else image.float()
    red, green, blue = image
    made: torch.Tensor = red.mul(0.2989).add_(green, alpha=0.587).add_(blue, alpha=0.114)[None]
    return made if image.is_floating_point() else made.floor_()


def _grey(image: torch.Tensor, _: Operation) -> torch.Tensor:
    return _luminance(image).to(image.dtype)


def _brightness(image: torch.Tensor, operation: Operation) -> torch.Tensor:
    return _limited(image.mul(operation.value[0]), image)


def _saturation(image: torch.Tensor, operation: Operation) -> torch.Tensor:
    return _blend(image, _luminance(image), operation.value[0]) if len(image) == _RGB else image


def _contrast(image: torch.Tensor, operation: Operation) -> torch.Tensor:
    mean = torch.mean(_luminance(image), dim=(-3, -2, -1), keepdim=True)
    return _blend(image, mean, operation.value[0])


def _sharpness(image: torch.Tensor, operation: Operation) -> torch.Tensor:
    if min(image.shape[1:]) < _RGB:
        return image
    made = image.to(image.dtype if image.is_floating_point() else torch.float32, copy=True)
    kernel = made.new_full((3, 3), 1.0 / 13.0)
    kernel[1, 1] = 5.0 / 13.0
    smooth = functional.conv2d(made[None], kernel.expand(len(made), 1, 3, 3), groups=len(made))[0]
    inside = made[:, 1:-1, 1:-1]
    smooth = smooth if image.is_floating_point() else smooth.round_()
    inside.add_(smooth.sub_(inside), alpha=1.0 - operation.value[0])
    return _limited(made, image)


def _hue(image: torch.Tensor, operation: Operation) -> torch.Tensor:
    if len(image) != _RGB:
        return image
    floats = scaled(image, torch.float32)
    least, most = torch.aminmax(floats, dim=0)
    is_grey, spread, one = most == least, most - least, torch.ones_like(most)
    share = spread / torch.where(is_grey, one, most)
    red, green, blue = (most - floats) / torch.where(is_grey, one, spread)
    is_red, is_green = most == floats[0], most == floats[1]
    by_green = red.add(2.0).sub_(blue).mul_(is_green & ~is_red)
    by_red = blue.sub(green).mul_(is_red)
    by_blue = green.add(4.0).sub_(red).mul_(~is_red & ~is_green)
    hue = by_red.add_(by_green).add_(by_blue).mul_(1.0 / 6.0).add_(1.0).fmod_(1.0)
    place = hue.add_(operation.value[0]).remainder_(1.0).mul(6)
    sixth = torch.floor(place)
    part, rest = share * place.sub_(sixth), 1.0 - share
    falling = (1.0 - part).mul_(most).clamp_(0.0, 1.0)
    rising = part.add_(rest).mul_(most).clamp_(0.0, 1.0)
    levels = torch.stack((most, rest.mul_(most).clamp_(0.0, 1.0), falling, rising))
    chosen = torch.tensor(_OF_SIXTHS, device=image.device)[:, sixth.int().remainder_(6)]
    return scaled(levels.gather(0, chosen), image.dtype)


_OF_SIXTHS = [[0, 2, 1, 1, 3, 0], [3, 0, 0, 2, 1, 1], [1, 1, 3, 0, 0, 2]]
"""Which level red, green and blue have in each sixth of the circle."""


def _inverted(image: torch.Tensor, _: Operation) -> torch.Tensor:
    return 1.0 - image if image.is_floating_point() else image.bitwise_not()


def _solarized(image: torch.Tensor, operation: Operation) -> torch.Tensor:
    least = operation.value[0]
    if least > _most(image):
        raise ValueError(f"threshold={least:g} is more than any value of {image.dtype}")
    return torch.where(image >= least, _inverted(image, operation), image)


def _posterized(image: torch.Tensor, operation: Operation) -> torch.Tensor:
    bits = int(operation.value[0])
    if not image.is_floating_point():
        return image & (0xFF00 >> bits & 0xFF)
    levels = 1 << bits
    return image.mul(levels).floor_().clamp_(0, levels - 1).mul_(1.0 / levels)


def _contrasted(image: torch.Tensor, _: Operation) -> torch.Tensor:
    floats = image if image.is_floating_point() else image.float()
    least, most = (end(floats, (-2, -1), keepdim=True) for end in (torch.amin, torch.amax))
    is_flat, scale = most == least, (most - least).mul_(1.0 / _most(image))
    scaled = floats.sub(least.masked_fill(is_flat, 0)).div_(scale.masked_fill(is_flat, 1))
    return _limited(scaled, image)


def _equalized(image: torch.Tensor, _: Operation) -> torch.Tensor:
    levels = scaled(image, torch.uint8)
    flat = levels.flatten(1).long()
    counts = flat.new_zeros(len(flat), 256).scatter_add_(1, flat, torch.ones_like(flat))
    sums = counts.cumsum(1)
    steps = (flat.shape[1] - counts.gather(1, sums.argmax(1, keepdim=True))) // 255
    table = ((sums - counts + steps // 2) // steps.clamp(min=1)).clamp_(0, 255)
    made = torch.where(steps > 0, table.gather(1, flat), flat).to(torch.uint8)
    return scaled(made.view_as(levels), image.dtype)


_FUNCTIONS: Mapping[Kind, Callable[[torch.Tensor, Operation], torch.Tensor]] = {
    "affine": _affine,
    "autocontrast": _contrasted,
    "blur": _blurred,
    "brightness": _brightness,
    "contrast": _contrast,
    "crop": _cropped,
    "equalize": _equalized,
    "grey": _grey,
    "hue": _hue,
    "invert": _inverted,
    "mirror": lambda image, _: image.flip(-1),
    "pad": _padded,
    "perspective": _seen_from_aside,
    "posterize": _posterized,
    "resize": _resized,
    "rotate": _rotated,
    "saturation": _saturation,
    "sharpness": _sharpness,
    "solarize": _solarized,
    "turn_over": lambda image, _: image.flip(-2),
    "warp": _moved,
}
