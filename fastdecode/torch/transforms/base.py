"""`EncodedTransform`, and `Recipe`, of which the package's transforms are kinds."""

from __future__ import annotations

import copy
import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from functools import cache, lru_cache, partial
from numbers import Real
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias, TypedDict, get_args
from weakref import WeakKeyDictionary

import numpy as np
import torch
from PIL import Image as PillowImage

from fastdecode import _formats
from fastdecode._arguments import as_buffer, check_word, is_int, shown
from fastdecode._decode.api import decode_part
from fastdecode._decode.plan import DEFAULT_MAX_PIXELS, plan_decode, reduce_for_resize
from fastdecode._decode.resizing import (
    FloatBox,
    ResizePlan,
    core_can_decode,
    core_may_decode,
    resize_in_core,
    resize_unchanged,
    resize_with_pillow,
)
from fastdecode._pixels import seen_size
from fastdecode.errors import DecodeError, ImageTooLarge
from fastdecode.geometry import Geometry
from fastdecode.native import _library
from fastdecode.native._augment import Impossible, Operation, Program, as_operations, fold
from fastdecode.native._library import lib
from fastdecode.native._pool import Recorded
from fastdecode.torch._loader.memory import new_sample
from fastdecode.torch._programs import size_after
from fastdecode.torch.transforms._random_crop import draw_parts, draw_program
from fastdecode.torch.transforms.normalize import Normalize

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from typing_extensions import Self, Unpack

    from fastdecode._decode.api import Data
    from fastdecode.native._library import CoreResize
    from fastdecode.torch._draws import PipelinePart
    from fastdecode.types import Buffer, Header, Image, Reduce

Quality = Literal["fast", "exact"]
Interpolation: TypeAlias = Literal["bilinear", "bicubic"]

SizeLike: TypeAlias = "int | Sequence[int]"
"""A side for both, or (height, width), in pixels."""

_INTERPOLATIONS: dict[Any, Interpolation] = {
    "bilinear": "bilinear",
    "bicubic": "bicubic",
    int(PillowImage.Resampling.BILINEAR): "bilinear",
    int(PillowImage.Resampling.BICUBIC): "bicubic",
}


class EncodedTransform(ABC):
    """Base class of transforms that turn the bytes of an image file straight into a tensor.

    A subclass defines `with_geometry`.

    Attributes
    ----------
    shape : (3, H, W) or None
        The shape of every result; None if it depends on the image. (1, H, W) if it is grey.
    dtype : torch.dtype
        The dtype of every result.
    isolated : bool
        Whether several threads may call it at once, and all random draws come from `generator`. A
        class of your own must say so itself; a `Loader` calls any other in worker processes.

    Examples
    --------
    >>> from fastdecode.torch.transforms import EncodedTransform, Resize
    >>> isinstance(Resize(256), EncodedTransform)
    True
    >>> Resize((192, 256)).shape  # of every result
    (3, 192, 256)
    """

    shape: tuple[int, int, int] | None = None
    dtype: torch.dtype = torch.float32
    isolated: bool = True

    def __call__(self, data: Any, **options: Unpack[TransformOptions]) -> Any:
        """Decode and transform an image; of a decoded one, those of this package make another.

        Parameters
        ----------
        data : bytes-like, PIL.Image.Image, ndarray (H, W, C) or tensor (C, H, W)
            The whole file, as for `fastdecode.decode`; or an image, as for `ImageTransform`, which
            becomes a tensor only if it is to become floats.
        **options
            With a file:

            - `generator`, a torch.Generator for the random draws; by default torch's global one.
            - `out`, where to write the result, such as one image of a batch: a tensor of `shape`
              and `dtype`, with any strides. It is also returned.
            - `backend`, `orient` and `max_pixels`, as for `fastdecode.decode`.

        Returns
        -------
        tensor (3, H, W), or an image
        """
        return self._transformed(data, **options)

    def _transformed(self, data: Any, **options: Unpack[TransformOptions]) -> Any:
        """Return the result of a call. `__call__` itself is overridden by users' classes only."""
        return self.with_geometry(data, **options)[0]

    @abstractmethod
    def with_geometry(
        self, data: Data, **options: Unpack[TransformOptions]
    ) -> tuple[torch.Tensor, Geometry]:
        """Decode and transform an image, and return where the result lies in it.

        The parameters are those of a call.

        Returns
        -------
        tensor : tensor, (3, H, W)
        geometry : Geometry
            Maps boxes, points and masks of the full image.
        """


class TransformOptions(TypedDict, total=False):
    """The keyword arguments of an `EncodedTransform`."""

    generator: torch.Generator | None
    out: torch.Tensor | None
    backend: str | None
    orient: bool
    max_pixels: int | None


class DecodedPart(NamedTuple):
    """Pixels (H, W, 3) of a part of an image, in full size, and where the part begins."""

    image: Image
    left: int
    top: int


class DrawnSample(NamedTuple):
    """What is drawn for a sample: a resize while decoding, and the operations after it."""

    plan: ResizePlan
    rest: Any  # fd_operation[]
    operations: Any  # fd_operation[]: all of them
    sides: tuple[int, int]  # (width, height) of the image
    size: tuple[int, int]  # (height, width) of the result

    @classmethod
    def of(cls, operations: Any, sides: tuple[int, int], size: tuple[int, int]) -> DrawnSample:
        """Return a sample of operations; the first ones become the resize, if they can."""
        resize, rest = fold(operations, *sides)
        return cls(ResizePlan.from_core(resize), rest, operations, sides, size)

    def behind(self, done: Sequence[Operation], sides: tuple[int, int]) -> DrawnSample:
        """Return a sample of an image (width, height) to which something is done before."""
        return DrawnSample.of(as_operations([*done, *self.operations]), sides, self.size)

    def geometry(self) -> Geometry:
        """Return where the result lies in the image; operations that turn it are left out."""
        plan, (width, height) = self.plan, self.sides
        x, y, (rows, columns) = plan.left, plan.top, plan.size
        left, top, right, bottom = plan.box
        across, down = (right - left) / plan.canvas[1], (bottom - top) / plan.canvas[0]
        flip = plan.flip
        for operation in self.rest:
            kind, value = operation.kind, operation.value
            if kind == lib.FD_MIRROR:
                flip = not flip
            elif kind == lib.FD_RESIZE:
                across, down = across * columns / value[0], down * rows / value[1]
                x, y = x * value[0] / columns, y * value[1] / rows
                columns, rows = int(value[0]), int(value[1])
            elif kind in (lib.FD_CROP, lib.FD_PAD):
                pads = kind == lib.FD_PAD
                begin, above, third, fourth = (-v if pads else v for v in value[0:4])
                wide = columns - begin - third if pads else third
                high = rows - above - fourth if pads else fourth
                x, y = x + (columns - begin - wide if flip else begin), y + above
                columns, rows = int(wide), int(high)
        shown = (
            left + x * across,
            top + y * down,
            left + (x + columns) * across,
            top + (y + rows) * down,
        )
        return Geometry(shown, (rows, columns), flip, (height, width))

    def whole_plan(self) -> ResizePlan | None:
        """Return a plan for all of it, padded with black; None if there is more to do."""
        plan = self.plan
        for operation in self.rest:
            if operation.kind == lib.FD_MIRROR:
                plan = plan._replace(flip=not plan.flip)
            elif operation.kind == lib.FD_PAD and not (operation.filter or any(operation.fill)):
                left, top, right, bottom = map(int, operation.value[0:4])
                size = plan.size[0] + top + bottom, plan.size[1] + left + right
                left = right if plan.flip else left
                plan = plan._replace(top=plan.top - top, left=plan.left - left, size=size)
            else:
                return None
        return plan


class Recipe(EncodedTransform):
    """How a sample is made of an encoded image: a program, and the form of its result.

    What the first steps of the program leave out of the image is not decoded. `RandomResizedCrop`
    describes the options.
    """

    program: Program = Program()
    form: Literal["pil", "uint8", "float", "levels", "normalised", "erased"] = "uint8"
    """The result: a Pillow image, or a tensor of bytes, of floats from 0 to 1 or 0 to 255, or
    normalised; or one in which boxes may be erased, which comes last."""
    image: Any = None
    """torchvision's ``tv_tensors.Image`` if the tensor is one, ``numpy.ndarray`` if the values are
    an array (H, W, C) instead; None for a plain tensor."""
    channels = 3
    """Of the result: 3, or 1 if it is grey."""
    draws_alike = False
    """Whether only parts may be added that are known to draw as their libraries do."""
    parts: tuple[PipelinePart, ...] | None = ()
    """The transforms whose program it is, which draw as their libraries do; None, or nothing, if
    that is not known of all."""
    joint = False
    """Whether the pipeline is called with an image and its target, which must follow."""

    def __init__(
        self,
        program: Program | None = None,
        *,
        mean: Sequence[float] | None = None,
        std: Sequence[float] | None = None,
        dtype: torch.dtype | None = None,
        quality: Quality = "exact",
        headroom: float = 1.0,
    ) -> None:
        if mean is None and std is not None:
            raise ValueError("std is given without a mean: give both, or neither")
        if dtype is None:
            dtype = torch.uint8 if mean is None else torch.float32
        if not isinstance(dtype, torch.dtype) or dtype not in (torch.float32, torch.uint8):
            raise ValueError(f"dtype must be torch.float32 or torch.uint8, not {shown(dtype)}")
        if dtype == torch.uint8 and mean is not None:
            raise ValueError(
                "bytes cannot be normalised: leave mean and std out, and use Normalize on the "
                "device, or leave dtype out"
            )
        check_quality(quality, headroom)
        if program is not None:
            self.program = program
        self.dtype = dtype
        self.quality: Quality = quality
        self.headroom = float(headroom)
        self.normalize = Normalize(mean, std) if dtype == torch.float32 else None
        if self.normalize is not None:
            self.form = "float" if mean is None else "normalised"
        self.shape = self._shape_after(self.program)

    def but(self, **changes: Any) -> Self:
        """Return a copy with other attributes."""
        made = copy.copy(self)
        vars(made).update(changes)
        return made

    def doing(self, program: Program, part: PipelinePart | None = None) -> Self:
        """Return a copy with the program after a part; raise `Unsupported` if it does not fit."""
        parts = self.parts if self.parts or not self.program else None
        parts = None if part is None or parts is None else (*parts, part)
        return self.but(program=program, shape=self._shape_after(program), parts=parts)

    def _shape_after(self, program: Program) -> tuple[int, int, int] | None:
        size = size_after(program, None)
        return None if size is None else (self.channels, *size)

    def floats(self, mean: Any = None, std: Any = None) -> Self:
        """Return a copy with values as floats from 0 to 1, or normalised."""
        form = "float" if mean is None else "normalised"
        return self.but(dtype=torch.float32, normalize=Normalize(mean, std), form=form)

    def in_bytes(self) -> Self:
        """Return a copy, with the same draws, that returns ``torch.uint8``."""
        return self.but(dtype=torch.uint8, normalize=None)

    def draw(self, width: int, height: int, generator: torch.Generator | None) -> DrawnSample:
        """Draw what is done to an image of this size; raise `Impossible` if that is not known."""
        if max(width, height) > _MOST_SIDE:
            raise ImageTooLarge(
                f"the header promises {width} x {height} pixels, which none can hold"
            )
        drawn = (
            draw_parts(self.parts, width, height)
            if self.parts and generator is None
            else draw_program(self.program, width, height, generator)
        )
        return DrawnSample.of(drawn.operations, (width, height), drawn.size)

    def with_geometry(
        self, data: Data, **options: Unpack[TransformOptions]
    ) -> tuple[torch.Tensor, Geometry]:
        """Decode and transform an image, and return where the result lies in it."""
        made, drawn = self.make(data, **options)
        return made, drawn.geometry()

    def make(
        self,
        data: Data,
        *,
        generator: torch.Generator | None = None,
        out: torch.Tensor | None = None,
        backend: str | None = None,
        orient: bool = False,
        max_pixels: int | None = DEFAULT_MAX_PIXELS,
    ) -> tuple[torch.Tensor, DrawnSample]:
        """Decode and transform an image, and return what was drawn for it."""
        data = data if type(data) is bytes else as_buffer(data, function="transform")
        header = None
        sides = _core_file_size(data, backend, max_pixels, orient=orient)
        if sides is None:
            header = _formats.probe(data)
            plan_decode(header, max_pixels=max_pixels)  # refuses what is too large before the draws
            sides = seen_size(header.width, header.height, header.orientation if orient else 1)
        drawn = self.draw(*sides, generator)
        out = self._prepare_out(out, drawn.size)
        if header is None:
            resize = self.core_resize(drawn, is_jpeg=_is_jpeg(data))
            if self._write(out, partial(_library.decode_resized, data), resize, drawn.rest):
                return out, drawn
            header = _formats.probe(data)
        pixels = self._decode_and_resize(
            data, header, drawn.plan, orient=orient, max_pixels=max_pixels, backend=backend
        )
        return self._finish(pixels, drawn, out), drawn

    def make_drawn(
        self, data: Data, drawn: Recorded, size: tuple[int, int], out: torch.Tensor
    ) -> None:
        """Make a sample in `out` whose operations, and size (height, width), are known already.

        Raises `DecodeError` if they were drawn for an image of another size.
        """
        operations = _library.ffi.from_buffer("fd_operation[]", drawn.operations)
        sides = drawn.width, drawn.height
        data = as_buffer(data, function="transform")
        header = _formats.probe(data)
        if (header.width, header.height) != sides:
            raise DecodeError(
                f"the image has {header.width}x{header.height} pixels, but what is done to it was "
                f"recorded for {sides[0]}x{sides[1]}"
            )
        sample = DrawnSample.of(operations, sides, size)
        resize = self.core_resize(sample, is_jpeg=_is_jpeg(data))
        known = _core_file_size(data, None, DEFAULT_MAX_PIXELS, orient=False) is not None
        if known and self._write(out, partial(_library.decode_resized, data), resize, sample.rest):
            return
        how: dict[str, Any] = {"orient": False, "max_pixels": DEFAULT_MAX_PIXELS, "backend": None}
        pixels = self._decode_and_resize(data, header, sample.plan, **how)
        self._finish(pixels, sample, out)

    def make_from(self, part: DecodedPart, drawn: DrawnSample) -> torch.Tensor:
        """Return the result without a reduction, from pixels that are decoded already."""
        out = self._prepare_out(None, drawn.size)
        left, top, right, bottom = drawn.plan.box
        box = (left - part.left, top - part.top, right - part.left, bottom - part.top)
        if part.image.strides[1:] == (3, 1):
            height, width = part.image.shape[:2]
            resize = drawn.plan._replace(box=box).for_core(width, height, 1)
            if self._write(out, partial(_library.resize_pixels, part.image), resize, drawn.rest):
                return out
        left, top, right, bottom = map(int, box)  # whole pixels, beyond which nothing may be read
        inside, whole = part.image[top:bottom, left:right], (0, 0, right - left, bottom - top)
        return self._finish(self._resize(inside, whole, drawn.plan), drawn, out)

    def _write(
        self,
        out: torch.Tensor,
        write: Callable[..., bool],
        resize: CoreResize | None,
        operations: Any,
    ) -> bool:
        """Let the core write one image; return False if another backend must, or report errors."""
        if out.requires_grad or resize is None:
            return False
        written = out
        first = out.is_contiguous()
        if not first and not out.permute(1, 2, 0).is_contiguous():
            written, first = out.new_empty(out.shape), True
        pixels = core_pixel_format(self.normalize, channels_first=first, channels=len(out))
        if not write(resize, pixels, written.data_ptr(), operations):
            return False
        if written is not out:
            out.copy_(written)
        return True

    def _finish(self, pixels: torch.Tensor, drawn: DrawnSample, out: torch.Tensor) -> torch.Tensor:
        """Flip, augment and normalise resized pixels (3, H, W), and write them to `out`."""
        if drawn.plan.flip:
            pixels = pixels.flip(-1)
        if len(drawn.rest):
            image = pixels.permute(1, 2, 0).contiguous().numpy()
            whole = resize_unchanged(image.shape[1], image.shape[0])
            if not self._write(out, partial(_library.resize_pixels, image), whole, drawn.rest):
                size = tuple(pixels.shape)
                raise Impossible(f"a step of the transform is not possible for {size}")
        elif self.normalize is None:
            out.copy_(pixels)
        else:
            self.normalize(pixels, out=out)
        return out

    def _prepare_out(self, out: torch.Tensor | None, size: tuple[int, int]) -> torch.Tensor:
        shape = (self.channels, *size)
        if out is None and (self.form == "pil" or self.image is np.ndarray):  # interleaved
            rows = new_sample((*size, self.channels), self.dtype)
            return rows.permute(2, 0, 1)
        if out is None:
            return new_sample(shape, self.dtype)
        if not isinstance(out, torch.Tensor):
            raise TypeError(f"out must be a tensor, not {type(out).__name__}")
        if out.shape != shape or out.dtype != self.dtype or out.device.type != "cpu":
            raise ValueError(
                f"out must be a CPU tensor {shape} of {self.dtype}, "
                f"not {tuple(out.shape)} of {out.dtype} on {out.device}"
            )
        return out

    def _decode_and_resize(
        self, data: Any, header: Header, plan: ResizePlan, *, orient: bool, **how: Any
    ) -> torch.Tensor:
        """Decode the box at the best reduction and resize it to a uint8 tensor (3, H, W)."""
        # Only JPEG decoders do less work for a reduction; others decode in full, and average.
        reduce = self.reduction(plan) if header.format == "jpeg" else 1
        whole = Geometry.of_decode(header, reduce, orient=orient)
        # In pixels of the reduced image: the box, and then the window of whole pixels around it.
        above, begin = whole.offset
        left, right = ((side - begin) / reduce for side in plan.box[::2])
        top, bottom = ((side - above) / reduce for side in plan.box[1::2])
        x, y = int(left), int(top)
        window = (x, y, math.ceil(right), math.ceil(bottom))
        everything = window == (0, 0, *whole.size[::-1])
        image = decode_part(
            data, header, reduce, None if everything else window, orient=orient, **how
        )
        return self._resize(image, (left - x, top - y, right - x, bottom - y), plan)

    def _resize(self, image: Image, box: FloatBox, plan: ResizePlan) -> torch.Tensor:
        """Resize a box of an image to a canvas, and return the window of that.

        ``"bilinear"`` is a triangle filter whose half-width is the scale, but at least one pixel.
        Pillow calls it BILINEAR; in torch and torchvision it is ``antialias=True``. Pillow, torch
        and the native core agree to one level. ``"bicubic"`` is Pillow's BICUBIC, which the core
        gives bit for bit, or for tensors that of torch. Pillow resizes what is too large for the
        core.
        """
        height, width = plan.size
        window = (plan.left, plan.top, plan.left + width, plan.top + height)
        arguments = image, box, plan.canvas, window, plan.filter
        resized = resize_in_core(*arguments)
        if resized is None:
            resized = resize_with_pillow(*arguments)
        return torch.from_numpy(resized).permute(2, 0, 1)

    def reduction(self, plan: ResizePlan) -> Reduce:
        """Return the largest reduction of a JPEG that leaves `headroom` times the canvas."""
        if self.quality == "exact":
            return 1
        return reduce_for_resize(plan.box, plan.canvas, self.headroom)

    def core_resize(self, drawn: DrawnSample, *, is_jpeg: bool = True) -> CoreResize | None:
        """Return the resize of what was drawn as the core's struct; None if it cannot do it."""
        reduce = self.reduction(drawn.plan) if is_jpeg else 1
        return drawn.plan.for_core(*drawn.sides, reduce)

    @property
    def resizes(self) -> Iterator[Operation]:
        """How the program resizes."""
        steps = (step.operation for step in self.program)
        return (one for one in steps if one and one.kind == "resize")

    @property
    def augments_pixels(self) -> bool:
        """Whether the program does more than to crop, resize and flip."""
        done = ("resize", "crop", "mirror")
        steps = (step for step in self.program if not step.inner)
        return any(step.operation is None or step.operation.kind not in done for step in steps)

    def as_core_recipe(self, *, orient: bool, max_pixels: int | None) -> Any:
        """Return this transform as an ``fd_recipe *``; None if the core cannot do the same.

        The core leaves out images of more than `max_pixels`, and with `orient` those of which the
        Exif orientation might rotate them.
        """
        if self.shape is None:
            return None
        headroom = self.headroom if self.quality == "fast" else 0.0
        return core_recipe(self.program, self.shape[1:], headroom, orient, max_pixels)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.program!r}; {self._describe_options()})"

    def _describe_options(self) -> str:
        """Return the options that all subclasses share, for `repr`."""
        parts = [f"dtype={self.dtype}", f"quality={self.quality!r}"]
        if self.normalize is not None:
            parts.insert(0, f"mean={self.normalize.mean}, std={self.normalize.std}")
        if self.headroom != 1:
            parts.append(f"headroom={self.headroom}")
        return ", ".join(parts)


def check_quality(quality: object, headroom: Any) -> None:
    """Check how closely a JPEG is to be decoded."""
    check_word("quality", quality, get_args(Quality))
    if not is_number(headroom) or not headroom >= 1:
        raise ValueError(f"headroom must be a number of at least 1, not {headroom!r}")


def interpolation_name(value: Any) -> Interpolation | None:
    """Return the name of an interpolation in any of its forms; None for other modes."""
    value = getattr(value, "value", value)
    known = isinstance(value, (str, int)) and not isinstance(value, bool)
    return _INTERPOLATIONS.get(value) if known else None


def is_number(value: Any) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool)


def check_size(name: str, size: SizeLike | None) -> int | tuple[int, int]:
    """Check a size; return an int if it is one number, alone or in a list."""
    sides: tuple[Any, ...] = tuple(size) if isinstance(size, Sequence) else (size,)
    if not 1 <= len(sides) <= 2 or not all(is_int(side) and side > 0 for side in sides):
        raise ValueError(f"{name} must be a positive integer or (height, width), not {size!r}")
    return int(sides[0]) if len(sides) == 1 else (int(sides[0]), int(sides[1]))


def check_size_pair(name: str, size: SizeLike) -> tuple[int, int]:
    checked = check_size(name, size)
    return (checked, checked) if isinstance(checked, int) else checked


def _is_jpeg(data: Buffer) -> bool:
    return bytes(data[:2]) == b"\xff\xd8"


def _core_file_size(
    data: Buffer, backend: str | None, max_pixels: int | None, *, orient: bool
) -> tuple[int, int] | None:
    """Return (width, height) of a file that the core may decode, or None for any other."""
    if not core_may_decode(backend):
        return None
    header = _library.probe(data)
    if header is None or not core_can_decode(header, max_pixels):
        return None
    if orient and header.may_turn and _formats.probe(data).orientation != 1:
        return None
    return header.width, header.height


def core_pixel_format(normalize: Normalize | None, *, channels_first: bool, channels: int) -> Any:
    """Return the core's struct for the stored values: normalised, or uint8 without `normalize`."""
    affine = None if normalize is None else normalize.affine
    return _library.stored(affine, channels_first=channels_first, channels=channels)


_UNLIMITED = (1 << 63) - 1  # pixels
_MOST_SIDE = (1 << 31) - 1
_pointed_to: WeakKeyDictionary[Any, Any] = WeakKeyDictionary()  # the programs of these structs


@lru_cache(maxsize=64)
def core_recipe(
    steps: Program,
    size: tuple[int, int],
    headroom: float = 0.0,
    upright: bool = False,
    max_pixels: int | None = None,
) -> Any:
    """Return a cached, so read-only, ``fd_recipe *``, whose results have this (height, width)."""
    struct = _library.ffi.new("fd_recipe *")
    struct.program = _pointed_to[struct] = steps.core
    struct.height, struct.width = size
    struct.headroom = headroom
    struct.upright = upright
    struct.pixels = _UNLIMITED if max_pixels is None else min(max_pixels, _UNLIMITED)
    return struct


_TORCHS = {"bilinear": 6, "bicubic": 7, "lanczos": 8}
"""torch's filters, each with its ``fd_resize_filter``."""


@cache
def core_resizes_as_torch() -> bool:
    """Return whether the core has the results of the installed torch, tried on a small image."""
    noise = np.random.default_rng(1).integers(0, 256, (61, 47, 3), np.uint8)
    image = torch.from_numpy(noise).permute(2, 0, 1)[None]
    for mode, how in _TORCHS.items():
        for size in ((20, 50), (40, 11), (60, 40), (30, 90), (13, 17)):
            try:
                right = torch.nn.functional.interpolate(
                    image, size, mode=mode, align_corners=False, antialias=True
                )
            except (NotImplementedError, RuntimeError, ValueError):
                continue  # an older torch has no Lanczos
            whole = (0, 0, 47, 61)
            made = resize_in_core(noise, whole, size, (0, 0, *size[::-1]), how)
            if made is None or not np.array_equal(made, right[0].permute(1, 2, 0).numpy()):
                return False
    return True
