"""`EncodedTransform`, and `Crop`, the base class of the package's transforms."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from enum import Enum
from functools import lru_cache, partial
from numbers import Real
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias, TypedDict, get_args
from weakref import WeakKeyDictionary

import numpy as np
import torch
from PIL import Image as PillowImage

from fastdecode import _headers
from fastdecode._arguments import check_word, shown
from fastdecode._buffers import as_buffer
from fastdecode._pixels import seen_size
from fastdecode._resizing import (
    FloatBox,
    Interpolation,
    ResizePlan,
    core_can_decode,
    core_may_decode,
    resize_in_core,
    resize_unchanged,
    resize_with_pillow,
)
from fastdecode.api import decode_part
from fastdecode.geometry import Geometry
from fastdecode.native import _library
from fastdecode.native._augment import DrawnOperations, Impossible, Program, draw_in_core, fold
from fastdecode.plan import DEFAULT_MAX_PIXELS, reduce_for_resize
from fastdecode.torch.transforms._random_crop import SampleGenerator, sample_state
from fastdecode.torch.transforms.normalize import Normalize

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from typing_extensions import Unpack

    from fastdecode.api import Data
    from fastdecode.native._library import CoreResize
    from fastdecode.types import Box, Buffer, Header, Image, Reduce

Quality = Literal["fast", "exact"]
AnyInterpolation: TypeAlias = Interpolation | int | Enum
"""An interpolation as a string, Pillow's constant or torchvision's enumeration."""

_MAX_CANVAS_RATIO = 16
"""How many times the size of the window a canvas may have if it is made as a whole."""

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
        Whether all random draws come from `generator` and none from a global generator. If so,
        results do not depend on the number of threads.

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

    def __call__(self, data: Data, **options: Unpack[TransformOptions]) -> torch.Tensor:
        """Decode and transform an image.

        Parameters
        ----------
        data : bytes-like
            The whole file, as for `fastdecode.decode`.
        **options
            - `generator`, a torch.Generator for the random draws; by default torch's global one.
            - `out`, where to write the result, such as one image of a batch: a tensor of `shape`
              and `dtype`, with any strides. It is also returned.
            - `backend`, `orient` and `max_pixels`, as for `fastdecode.decode`.

        Returns
        -------
        tensor, (3, H, W)
        """
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


class Crop(EncodedTransform):
    """Base class of the package's transforms: plan from the header, decode the part, resize.

    `RandomResizedCrop` describes the options.
    """

    of_tensors = False  # bicubic as torch resizes tensors, not as Pillow resizes images
    channels = 3  # of the result
    interleaved = False  # in memory, as a Pillow image is made from
    program = Program()  # what follows the resize, drawn and done by the core
    resizes = True

    def __init__(
        self,
        interpolation: AnyInterpolation,
        antialias: object,
        *,
        flip: float = 0.0,
        mean: Sequence[float] | None = None,
        std: Sequence[float] | None = None,
        dtype: torch.dtype | None = None,
        quality: Quality = "exact",
        headroom: float = 1.0,
    ) -> None:
        name = interpolation_name(interpolation)
        if name is None:
            raise ValueError(
                f"interpolation must be 'bilinear' or 'bicubic', not {interpolation!r}; for others "
                "decode first, and use torchvision's transforms"
            )
        if antialias is not True:
            raise ValueError(
                f"antialias must be True, not {antialias!r}: resizing is always antialiased here"
            )
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
        # True most likely means "with flips", but as a number it would flip every image.
        if not is_number(flip) or not 0 <= flip <= 1:
            raise ValueError(f"flip must be a probability from 0 to 1, not {flip!r}")
        self.interpolation: Interpolation = name
        self.flip = float(flip)
        self.dtype = dtype
        self.quality: Quality = quality
        self.headroom = float(headroom)
        self.normalize = Normalize(mean, std) if dtype == torch.float32 else None

    @abstractmethod
    def plan(self, width: int, height: int, generator: torch.Generator | None) -> ResizePlan:
        """Return the box, canvas and flip for an image of this size in pixels, with any draws."""

    def with_geometry(
        self,
        data: Data,
        *,
        generator: torch.Generator | None = None,
        out: torch.Tensor | None = None,
        backend: str | None = None,
        orient: bool = False,
        max_pixels: int | None = DEFAULT_MAX_PIXELS,
    ) -> tuple[torch.Tensor, Geometry]:
        """Decode and transform an image, and return where the result lies in it."""
        data = data if type(data) is bytes else as_buffer(data, function="transform")
        header = None
        sides = _core_file_size(data, backend, max_pixels, orient=orient)
        if sides is None:
            header = _headers.probe(data)
            sides = seen_size(header.width, header.height, header.orientation if orient else 1)
        plan = self.plan(*sides, generator)
        drawn = self.draw(plan, generator)
        out = self._prepare_out(out, drawn.size)
        if header is None:
            resize = self.core_resize(plan, *sides, is_jpeg=_is_jpeg(data))
            if resize is not None and self._write(
                out, partial(_library.decode_resized, data), resize, drawn
            ):
                return out, plan_geometry(plan, *sides)
            header = _headers.probe(data)
        pixels = self._decode_and_resize(
            data, header, plan, orient=orient, max_pixels=max_pixels, backend=backend
        )
        return self._finish(pixels, plan, drawn, out), plan_geometry(plan, *sides)

    def make_from(
        self, part: DecodedPart, plan: ResizePlan, drawn: DrawnOperations
    ) -> torch.Tensor:
        """Return the result of a plan without a reduction, from pixels that are decoded already."""
        left, top, right, bottom = plan.box
        box = (left - part.left, top - part.top, right - part.left, bottom - part.top)
        out, (height, width) = self._prepare_out(None, drawn.size), part.image.shape[:2]
        resize = None
        if part.image.strides[1:] == (3, 1):
            resize = self.core_resize(plan._replace(box=box), width, height)
        if resize is not None and self._write(
            out, partial(_library.resize_pixels, part.image), resize, drawn
        ):
            return out
        left, top, right, bottom = map(int, box)  # whole pixels, beyond which nothing may be read
        inside, whole = part.image[top:bottom, left:right], (0, 0, right - left, bottom - top)
        pixels = _resize_and_pad(inside, whole, plan, of_tensors=self.of_tensors)
        return self._finish(pixels, plan, drawn, out)

    def _write(
        self,
        out: torch.Tensor,
        write: Callable[..., bool],
        resize: CoreResize,
        drawn: DrawnOperations,
    ) -> bool:
        """Let the core write one image; return whether it did."""
        operations = drawn.operations
        if len(operations):
            resize, operations = fold(resize, operations, resizes=self.resizes)
        return _write_in_core(out, self.normalize, partial(write, resize), operations)

    def _finish(
        self, pixels: torch.Tensor, plan: ResizePlan, drawn: DrawnOperations, out: torch.Tensor
    ) -> torch.Tensor:
        """Flip, augment and normalise resized pixels (3, H, W), and write them to `out`."""
        if plan.flip:
            pixels = pixels.flip(-1)
        if self.program:
            self._augment_in_core(pixels, drawn, out)
        elif self.normalize is None:
            out.copy_(pixels)
        else:
            self.normalize(pixels, out=out)
        return out

    def draw(self, plan: ResizePlan, generator: torch.Generator | None) -> DrawnOperations:
        """Draw the operations of a sample, after its plan; raise `Impossible` if it has none."""
        if not self.program:
            return DrawnOperations((), 0, plan.size)
        height, width = plan.size
        drawn = draw_in_core(self.program, sample_state(generator), width, height)
        if isinstance(generator, SampleGenerator):
            generator.state = drawn.state
        return drawn

    def _augment_in_core(
        self, pixels: torch.Tensor, drawn: DrawnOperations, out: torch.Tensor
    ) -> None:
        """Augment and normalise pixels (3, H, W) that another backend has made."""
        image = pixels.permute(1, 2, 0).contiguous().numpy()
        whole = resize_unchanged(image.shape[1], image.shape[0])
        if not self._write(out, partial(_library.resize_pixels, image), whole, drawn):
            raise Impossible(f"a step of the transform is not possible for {tuple(pixels.shape)}")

    def _prepare_out(self, out: torch.Tensor | None, size: tuple[int, int]) -> torch.Tensor:
        shape = (self.channels, *size)
        if out is None and self.interleaved:
            rows = torch.empty((*size, self.channels), dtype=self.dtype, device="cpu")
            return rows.permute(2, 0, 1)
        if out is None:
            return torch.empty(shape, dtype=self.dtype, device="cpu")
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
        reduce = self.reduce_for(header, plan)
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
        box = (left - x, top - y, right - x, bottom - y)
        return _resize_and_pad(image, box, plan, of_tensors=self.of_tensors)

    def reduce_for(self, header: Header, plan: ResizePlan) -> Reduce:
        """Return the largest reduction that leaves the box `headroom` times the canvas."""
        # Only JPEG decoders do less work for a reduction; others decode in full, and average.
        return self._jpeg_reduction(plan) if header.format == "jpeg" else 1

    def _jpeg_reduction(self, plan: ResizePlan) -> Reduce:
        if self.quality == "exact":
            return 1
        return reduce_for_resize(plan.box, plan.canvas, self.headroom)

    @property
    def _min_headroom(self) -> float:
        """The headroom that a reduction must leave; 0 forbids any reduction."""
        return self.headroom if self.quality == "fast" and self.resizes else 0.0

    def core_resize(
        self, plan: ResizePlan, width: int, height: int, *, is_jpeg: bool = True
    ) -> CoreResize | None:
        """Return the plan for an image of this size as the core's struct; None if it cannot do it.

        Only a JPEG is reduced.
        """
        if self.of_tensors and plan.interpolation != "bilinear":
            return None
        return plan.for_core(width, height, self._jpeg_reduction(plan) if is_jpeg else 1)

    def front(self) -> Program | None:
        """Return what `plan` says as a program that the core draws; None if only Python can."""
        return None

    def as_core_recipe(self, *, orient: bool, max_pixels: int | None) -> Any:
        """Return this transform as an ``fd_recipe *``; None if the core cannot draw the same.

        The core leaves out images of more than `max_pixels`, and with `orient` those of which the
        Exif orientation might rotate them.
        """
        front = self.front()
        if front is None or self.shape is None:
            return None
        steps = Program([*front, *self.program])
        return core_recipe(steps, self.shape[1:], self._min_headroom, orient, max_pixels)

    def _describe_options(self) -> str:
        """Return the options that all subclasses share, for `repr`."""
        parts = [f"dtype={self.dtype}", f"quality={self.quality!r}"]
        if self.normalize is not None:
            parts.insert(0, f"mean={self.normalize.mean}, std={self.normalize.std}")
        if self.interpolation != "bilinear":
            parts.insert(0, f"interpolation={self.interpolation!r}")
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
    if orient and header.may_turn and _headers.probe(data).orientation != 1:
        return None
    return header.width, header.height


def core_pixel_format(normalize: Normalize | None, *, channels_first: bool, channels: int) -> Any:
    """Return the core's struct for the stored values: normalised, or uint8 without `normalize`."""
    affine = None if normalize is None else normalize.affine
    return _library.stored(affine, channels_first=channels_first, channels=channels)


_UNLIMITED = (1 << 63) - 1  # pixels
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


def _write_in_core(
    out: torch.Tensor, normalize: Normalize | None, write: Callable[..., bool], operations: Any
) -> bool:
    """Let the core write one image; return False if another backend must, or report the error."""
    if out.requires_grad:
        return False
    written = out
    first = out.is_contiguous()
    if not first and not out.permute(1, 2, 0).is_contiguous():
        written, first = out.new_empty(out.shape), True
    pixels = core_pixel_format(normalize, channels_first=first, channels=len(out))
    if not write(pixels, written.data_ptr(), operations):
        return False
    if written is not out:
        out.copy_(written)
    return True


def _resize_and_pad(
    image: Image, box: FloatBox, plan: ResizePlan, *, of_tensors: bool
) -> torch.Tensor:
    """Resize an image, and pad it with black where the result exceeds the canvas."""
    height, width = plan.size
    top, left = max(0, plan.top), max(0, plan.left)
    bottom = min(plan.canvas[0], plan.top + height)
    right = min(plan.canvas[1], plan.left + width)
    window = (left, top, right, bottom)
    pixels = _resize_box(image, box, plan.canvas, window, plan.interpolation, of_tensors=of_tensors)
    if pixels.shape[1:] == plan.size:
        return pixels
    padded = torch.zeros((3, height, width), dtype=torch.uint8, device="cpu")
    y, x = top - plan.top, left - plan.left
    padded[:, y : y + bottom - top, x : x + right - left] = pixels
    return padded


def _resize_box(
    image: Image,
    box: FloatBox,
    canvas: tuple[int, int],
    window: Box,
    interpolation: Interpolation,
    *,
    of_tensors: bool,
) -> torch.Tensor:
    """Resize a box of an image to a canvas, and return the window of that.

    ``"bilinear"`` is a triangle filter whose half-width is the scale, but at least one pixel.
    Pillow calls it BILINEAR; in torch and torchvision it is ``antialias=True``. Pillow, torch and
    the native core agree to one level. ``"bicubic"`` is Pillow's BICUBIC, which the core gives bit
    for bit, or for tensors that of torch. Pillow resizes what is too large for the core. If there
    is nothing to resize, the result may share the memory of the image.
    """
    unchanged = box == (0, 0, image.shape[1], image.shape[0]) and image.shape[:2] == canvas
    by_torch = of_tensors and interpolation != "bilinear"
    left, top, right, bottom = whole = tuple(map(int, box))
    if unchanged or (by_torch and whole == box and not _is_huge(canvas, window)):
        return _resize_with_torch(image[top:bottom, left:right], canvas, window, interpolation)
    arguments = image, box, canvas, window, interpolation
    resized = None if by_torch else resize_in_core(*arguments)
    if resized is None:
        resized = resize_with_pillow(*arguments)
    return torch.from_numpy(resized).permute(2, 0, 1)


def _is_huge(canvas: tuple[int, int], window: Box) -> bool:
    """Return whether most of a canvas lies outside the window, as for an image one pixel wide."""
    left, top, right, bottom = window
    return canvas[0] * canvas[1] > _MAX_CANVAS_RATIO * (right - left) * (bottom - top)


def _resize_with_torch(
    image: Image, canvas: tuple[int, int], window: Box, interpolation: Interpolation
) -> torch.Tensor:
    """Resize an image with torch, whose kernel is the fastest for uint8 but takes no box."""
    if min(image.strides) < 0:  # a view rotated by `orient`; torch takes no negative strides
        image = np.ascontiguousarray(image)
    source = torch.from_numpy(image).permute(2, 0, 1)
    left, top, right, bottom = window
    if image.shape[:2] != canvas:
        source = torch.nn.functional.interpolate(
            source[None], size=canvas, mode=interpolation, antialias=True
        )[0]
    return source[:, top:bottom, left:right]


def plan_geometry(plan: ResizePlan, width: int, height: int) -> Geometry:
    """Return where the result of a plan lies in an image of this size."""
    left, top, right, bottom = plan.box
    across, down = (right - left) / plan.canvas[1], (bottom - top) / plan.canvas[0]
    rows, columns = plan.size
    shown = (
        left + plan.left * across,
        top + plan.top * down,
        left + (plan.left + columns) * across,
        top + (plan.top + rows) * down,
    )
    return Geometry(shown, plan.size, plan.flip, (height, width))
