"""What a function of the user's comes to that resizes images to one size, and stores them its way.

Such functions call Pillow, OpenCV, NumPy and torch in a hundred ways, and come to the same: one
resize, or none, a factor and a summand for each channel, and a layout. These are measured, on
images of one colour and on noise of several sizes; the code must hold nothing that could do
otherwise to an image of another size.
"""

from __future__ import annotations

import dis
from collections.abc import Iterator
from dataclasses import dataclass
from types import FunctionType, ModuleType
from typing import Any, NamedTuple

import numpy as np
import torch
from PIL import Image as PillowImage

from fastdecode.native._augment import Operation, Program, Resampling, do, resized_to
from fastdecode.torch import _probes
from fastdecode.torch._probes import Form
from fastdecode.torch._user_code import code_of, global_states, may_draw, preserve_generators
from fastdecode.torch.transforms.images import transformed

_NAMES = (
    "BICUBIC BILINEAR COLOR_BGR2RGB COLOR_RGB2BGR Compose HAMMING INTER_AREA INTER_LINEAR "
    "INTER_NEAREST LANCZOS Normalize Resampling Resize ToPILImage ToTensor as_tensor "
    "ascontiguousarray astype cv2 cvtColor div div_ expand_dims float64 from_numpy fromarray "
    "functional mul mul_ ndarray newaxis normalize permute resize squeeze sub sub_ tensor "
    "to_tensor transforms transpose true_divide uint8 unsqueeze view"
)
_STORES = _probes.LOOKS | frozenset(_NAMES.split())
"""Names in code that can resize an image, scale and convert its values, and lay them out."""
_SAME = ("Compose", "Normalize", "PILToTensor", "Resize", "ToPILImage", "ToTensor")
_PICKS = frozenset(["BINARY_SLICE", "BINARY_SUBSCR"])
_CONSTANTS = frozenset(["BUILD_SLICE", "CACHE", "LOAD_CONST", "LOAD_SMALL_INT"])
_SLICES = frozenset(["BINARY_SLICE", "BUILD_SLICE"])
_PILLOWS: tuple[Resampling, ...] = ("bicubic", "bilinear", "lanczos", "hamming")
_OPENCVS: tuple[Resampling, ...] = ("linear", "area", "nearest")
_EXACT, _WITHIN_A_LEVEL = 0.02, 1.02
_WHITE, _CHANNELS = 255.0, 3
_MANY, _LONGEST = 16, _probes.LONG[0][0]
"""By how much images are scaled down to which Pillow's `reducing_gap` makes a difference."""


@dataclass(frozen=True)
class Layout:
    """How a function stores the values of an image."""

    channels_first: bool
    axes: int  # of length 1, in front
    is_reversed: bool  # blue, green, red
    dtype: torch.dtype
    is_array: bool

    def __call__(self, pixels: torch.Tensor) -> Any:
        """Return the values (C, H, W) as they are stored."""
        made = pixels.flip(0) if self.is_reversed else pixels
        made = made if self.channels_first else made.permute(1, 2, 0)
        made = made.to(self.dtype).contiguous()[(None,) * self.axes]
        return made.numpy() if self.is_array else made

    def read(self, made: Any) -> Any:
        """Return what a function made as floats (H, W, C), red first; raise if it is not so."""
        values = made.numpy() if isinstance(made, torch.Tensor) else made
        if type(made) is not (np.ndarray if self.is_array else torch.Tensor) or (
            torch.from_numpy(np.empty(0, values.dtype)).dtype != self.dtype
            or values.shape[: self.axes] != (1,) * self.axes
        ):
            raise ValueError("it is stored in another way")
        image = values.reshape(values.shape[self.axes :]).astype(np.float64)
        image = image.transpose(1, 2, 0) if self.channels_first else image
        return image[..., ::-1] if self.is_reversed else image

    @property
    def image(self) -> Any:
        """What a `Recipe` calls it, to which the common layouts are known."""
        common = not self.axes and not self.is_reversed
        common = common and self.dtype in (torch.uint8, torch.float32)
        if common and self.channels_first is not self.is_array:
            return np.ndarray if self.is_array else None
        return self


class Measured(NamedTuple):
    """A resize, or none, and what becomes of each level: ``factor * level + summand``."""

    program: Program
    factors: tuple[float, ...]
    summands: tuple[float, ...]
    layout: Layout


def measured(part: Any, form: Form) -> Measured | None:
    """Return what a step comes to that does the same to all images; None of any other."""
    code = code_of(part)
    if not code or may_draw(part) or not _probes.only_looks(code[0], _STORES, part):
        return None
    before = global_states()
    try:
        with preserve_generators():
            made = _measured(part, form)
            known = made and _is_alike(code[0], part, made) and not _probes.drawn_since(before)
            return made if known else None
    except Exception:  # of any kind: whatever the user's code raises
        return None


def _measured(part: Any, form: Form) -> Measured | None:
    black, white, red = (
        part(_plain(form, one)) for one in ((0, 0, 0), (255, 255, 255), (255, 0, 0))
    )
    layout = _layout_of(black, red)
    first, last = layout.read(black), layout.read(white)
    if first.ndim != _CHANNELS or first.shape[2] != _CHANNELS:
        return None
    summands = first[0, 0]
    factors = (last[0, 0] - summands) / _WHITE
    if not (factors != 0).all():
        return None
    size = first.shape[:2]
    sizes = [*_probes.SIZES, size, size[::-1], (size[0] + 1, max(1, size[1] - 1))]
    sizes += [(min(_MANY * size[0], _LONGEST), 64), (64, min(_MANY * size[1], _LONGEST))]
    made = [
        (probe, (layout.read(part(probe)) - summands) / factors)
        for probe in _probes.probes(form, _CHANNELS, sizes)
    ]
    for program, tolerance in _candidates(size, form, resizes=_resizes(made)):
        if all(_is_near(_done(program, probe), one, tolerance) for probe, one in made):
            return Measured(
                program, tuple(map(float, factors)), tuple(map(float, summands)), layout
            )
    return None


def _resizes(made: Any) -> bool:
    return any(_probes.rows_of(probe).shape != one.shape for probe, one in made)


def _candidates(size: Any, form: Form, *, resizes: bool) -> Iterator[tuple[Program, float]]:
    """Yield the programs that a function may come to, and how near its results must then be."""
    if not resizes:
        yield Program(), _EXACT
    elif form == "uint8":
        yield resized_to(size, "bilinear"), _WITHIN_A_LEVEL
    else:
        for filter_ in _PILLOWS:
            yield resized_to(size, filter_), _EXACT
        for filter_ in _OPENCVS:
            sides = size[::-1]
            yield do(Operation("resize", sides, filter_, library="opencv")), _WITHIN_A_LEVEL


def _done(program: Program, image: Any) -> Any:
    """Return the rows of an image after a program; None if that refuses it, as in a `Loader`."""
    try:
        return _probes.rows_of(transformed(image, lambda _: program) if program else image)
    except ValueError:
        return None


def _is_near(ours: Any, theirs: Any, tolerance: float) -> bool:
    """Return whether an image is near another one; one that is refused will be as written."""
    if ours is None:
        return True
    return ours.shape == theirs.shape and bool(abs(ours - theirs).max() <= tolerance)


def _plain(form: Form, colour: tuple[int, int, int]) -> Any:
    """Return an image of one colour, of which no side is 3."""
    rows = np.full((50, 70, _CHANNELS), colour, np.uint8)
    if form == "pil":
        return PillowImage.fromarray(rows)
    return rows if form == "array" else torch.from_numpy(rows).permute(2, 0, 1).contiguous()


def _layout_of(black: Any, red: Any) -> Layout:
    """Return how images are stored, from those of two colours."""
    is_array = isinstance(black, np.ndarray)
    shape = tuple(black.shape)
    axes = len(shape) - _CHANNELS
    dtype = torch.from_numpy(black).dtype if is_array else black.dtype
    first = shape[axes] == _CHANNELS
    layout = Layout(first, axes, False, dtype, is_array)
    changed = abs(layout.read(red) - layout.read(black)).max(axis=(0, 1))
    return Layout(first, axes, bool(changed[2] > changed[0]), dtype, is_array)


def _is_alike(function: FunctionType, part: Any, made: Measured) -> bool:
    """Return whether what a function uses cannot tell images from the probes.

    Without choices and slices, numbers can only be sides and values. Otherwise they are small, or
    sides of the result, of whose sizes there were probes.
    """
    if not _probes.is_straight(function) and _looks_closely(function):
        return False
    used = _probes.used_by(function, part)
    free = _probes.is_straight(function) and all(map(_is_small_slice, _slices(function)))
    size = [side for step in made.program if step.operation for side in step.operation.value[:2]]

    def is_known(one: Any) -> bool:
        if isinstance(one, (np.ndarray, torch.Tensor)):
            return free
        if isinstance(one, (tuple, list)):
            return all(map(is_known, one))
        if isinstance(one, (int, float)):
            return free or one in size or _probes.is_small(one, ())
        if isinstance(one, FunctionType) and one is not function:
            looks = _probes.only_looks(one, _STORES, part)  # whatever its own name is
            return _probes.is_library(one) or (looks and _is_alike(one, part, made))
        return _is_same(one) or _probes.is_library(one) or _probes.is_small(one, ())

    return all(map(is_known, used))


def _looks_closely(function: FunctionType) -> bool:
    """Return whether a function asks which is larger, or picks something but a side."""
    instructions = list(dis.get_instructions(function))
    for at, one in enumerate(instructions):
        if one.opname == "COMPARE_OP" and not {"<", ">"}.isdisjoint(one.argrepr):
            return True
        if one.opname in _PICKS or one.argrepr == "[]":
            before = (other for other in instructions[:at][::-1] if other.opname not in _CONSTANTS)
            if next(before).argval not in ("shape", "size"):
                return True
    return False


def _slices(function: FunctionType) -> Iterator[list[Any]]:
    """Yield the bounds of the slices in a function's code, or where these come from."""
    instructions = list(dis.get_instructions(function))
    for at, one in enumerate(instructions):
        if one.opname in _SLICES:
            yield instructions[at - (one.arg or 2) : at]
    yield from ([one] for one in instructions if isinstance(one.argval, slice))


def _is_small_slice(bounds: list[dis.Instruction]) -> bool:
    """Return whether the bounds of a slice are constants that every image exceeds or has."""
    return all(
        one.opname in ("LOAD_CONST", "LOAD_SMALL_INT") and _probes.is_small(one.argval, ())
        for one in bounds
    )


def _is_same(one: Any) -> bool:
    """Return whether an object is OpenCV, a type of numbers, or torchvision's, without draws."""
    if isinstance(one, ModuleType):
        return one.__name__ in ("cv2", "torch", "numpy")
    if isinstance(one, (torch.dtype, np.dtype, torch.device, PillowImage.Resampling)):
        return True
    known = type(one).__module__.startswith("torchvision.transforms")
    held = getattr(one, "transforms", ())
    return known and type(one).__name__ in _SAME and all(map(_is_same, held))
