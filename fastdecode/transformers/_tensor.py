"""The tensor of an image that is not decoded yet, which records what a processor does to it.

To everyone it is a tensor of bytes (3, H, W), or a view of one. It knows torch's functions that
crop, pad and resize an image, those that change each value by itself, and those that cut it into
patches. All others get its values, which the core makes in one go.
"""

from __future__ import annotations

import itertools
import math
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache, lru_cache
from typing import Any, NamedTuple, cast, get_args
from weakref import WeakSet

import numpy as np
import torch
from torch.nn import functional

from fastdecode._decode.resizing import resize_in_core
from fastdecode._system.processor import usable_cores
from fastdecode.errors import begin_with
from fastdecode.native import _library
from fastdecode.native._augment import Operation, as_operations
from fastdecode.native._library import Axis, Patches
from fastdecode.torch._recorded import ANSWERED, LazyTensor
from fastdecode.torch.transforms.base import DrawnSample
from fastdecode.types import Image

_LEVELS = 256
_FILTERS = {"bilinear": 6, "bicubic": 7, "lanczos": 8}
"""The ``fd_resize_filter`` that gives the bytes of each of torch's."""
_BYTES = torch.arange(_LEVELS, dtype=torch.uint8).repeat(3, 1, 1)
_is_alias_of: Callable[[torch.Tensor, torch.Tensor], bool] = torch._C._is_alias_of  # type: ignore[attr-defined]
_FLOATS = (torch.float32, torch.bfloat16)


class ProcessorSettings(NamedTuple):
    """Those of a processor."""

    max_pixels: int | None
    """The most that the header of a file may promise."""
    threads: int | None
    """How many make the images of a batch; None: as many as there are cores."""


class RgbFile(NamedTuple):
    """An RGB image in a file."""

    data: bytes
    """What was in the file when it was opened: it may be another one when the pixels are made."""
    name: str
    """The path, for errors; empty if there is none."""
    sides: tuple[int, int]
    """(width, height)."""
    decode: Callable[[], Image]
    """Returns the pixels (H, W, 3) if the core refuses to."""
    settings: ProcessorSettings


class Picture:
    """The memory of a tensor: an image of a file, or of another picture after operations.

    It has three channels of bytes. With a `table` (3, 1, 256), its values are those of the table
    at the bytes; each function of single values changes the table. It may be cut into `patches`.
    """

    def __init__(
        self,
        file: RgbFile,
        size: tuple[int, int],
        before: Picture | None = None,
        operations: tuple[Operation, ...] = (),
        table: torch.Tensor | None = None,
        patches: Patches | None = None,
    ) -> None:
        self.file, self.size = file, size  # (height, width)
        self.before, self.operations, self.table, self.patches = before, operations, table, patches
        self.rows: Image | None = None  # (H, W, 3), of one of which several others are made
        self.values: torch.Tensor | None = None
        self.followers: WeakSet[Picture] = WeakSet()
        if before is not None:
            before.followers.add(self)

    def then(
        self, *operations: Operation, size: tuple[int, int] | None = None, **form: Any
    ) -> Picture:
        """Return the picture after operations, or with another table or other patches."""
        form = {"table": self.table, "patches": self.patches} | form
        if self.before is None or (self.table is None and self.patches is None):
            return Picture(self.file, size or self.size, self, operations, **form)
        return Picture(self.file, self.size, self.before, self.operations, **form)

    @property
    def dtype(self) -> torch.dtype:
        return torch.uint8 if self.table is None else self.table.dtype

    @property
    def shape(self) -> tuple[int, ...]:
        return (3, *self.size) if self.patches is None else self.patches.shape(self.size)

    @property
    def parts(self) -> list[Picture]:
        """The pictures whose values lie here one after the other."""
        return [self]

    def crop(self, left: int, top: int, height: int, width: int) -> Picture:
        """Return a part of the image."""
        if (left, top, height, width) == (0, 0, *self.size) and self.patches is None:
            return self
        crop = Operation("crop", (left, top, width, height), "constant")
        if self.before is None or (self.table is None and self.patches is None):
            return self.then(crop, size=(height, width))
        done = (*self.operations, crop)
        return Picture(self.file, (height, width), self.before, done, self.table)

    def patch(self, number: int) -> Picture:
        """Return a patch as a picture."""
        how = cast("Patches", self.patches)
        (height, width), merge = how.size, how.merge
        square, place = divmod(number, merge * merge)
        row, column = divmod(square, self.size[1] // width // merge)
        top, left = row * merge + place // merge, column * merge + place % merge
        return self.crop(left * width, top * height, height, width)

    def source(self) -> tuple[Picture, tuple[Operation, ...]]:
        """Return the last picture at hand, or of which several are made; and what follows."""
        at: Picture = self
        operations: tuple[Operation, ...] = ()
        while (
            at.before is not None
            and at.rows is None
            and at.values is None
            and (at is self or not at._is_for_several)
        ):
            at, operations = at.before, at.operations + operations
        return at, operations

    @property
    def _is_for_several(self) -> bool:
        return len({one.operations for one in self.followers}) > 1

    def shown(self) -> torch.Tensor:
        """Return the values to somebody who may change them.

        So what is made of them is made before.
        """
        make_all([self, *self.followers])
        return cast("torch.Tensor", self.values)

    def write(self, out: torch.Tensor) -> None:
        """Write the values to memory, one after the other."""
        if self.values is not None:
            out.copy_(self.values.view(-1))
            return
        table = None if self.table is None else self.table.float().numpy().tobytes()
        dtype: Any = str(self.dtype).removeprefix("torch.")
        form = _library.stored(
            None, channels_first=True, dtype=dtype, table=table, patches=self.patches
        )
        self._write(out.data_ptr(), form)

    def _write(self, out: int, form: Any) -> None:
        source, operations = self.source()
        rows = source.pixels() if source is not self else self.rows
        if rows is None:
            resize, rest = _planned(operations, self.file.sides, self.size)
            if resize and _library.decode_resized(self.file.data, resize, form, out, rest):
                return
            rows = self._decoded()
        resize, rest = _planned(operations, (rows.shape[1], rows.shape[0]), self.size)
        if resize is None or not _library.resize_pixels(rows, resize, form, out, rest):
            raise MemoryError(f"{self.file.name or 'an image'} could not become {self.shape}")

    def pixels(self) -> Image | None:
        """Return the pixels (H, W, 3), for what is made of it; None if the file is to be taken."""
        if self.rows is None and self.values is not None:
            values: Image = self.values.permute(1, 2, 0).contiguous().numpy()
            return values
        if self.rows is None and self._is_for_several:
            rows = np.empty((*self.size, 3), np.uint8)
            self._write(rows.ctypes.data, _library.stored(None, channels_first=False))
            self.rows = rows
        return self.rows

    def _decoded(self) -> Image:
        try:
            pixels = self.file.decode()
        except Exception as error:
            if self.file.name and error.args and self.file.name not in str(error.args[0]):
                begin_with(error, self.file.name)
            raise
        return np.ascontiguousarray(pixels)


class Album(Picture):
    """Several pictures of one type, one after the other, as `stack` and `cat` put them."""

    def __init__(self, parts: Sequence[Picture]) -> None:
        first = parts[0]
        super().__init__(first.file, first.size, table=first.table, patches=first.patches)
        self._parts = [*parts]

    def then(self, *_: Operation, size: Any = None, **form: Any) -> Picture:  # noqa: ARG002
        """Return the pictures with another table."""
        return Album([one.then(**form) for one in self._parts])

    @property
    def parts(self) -> list[Picture]:
        return self._parts

    @property
    def shape(self) -> tuple[int, ...]:
        return (sum(math.prod(one.shape) for one in self._parts),)


@lru_cache(maxsize=256)
def _planned(
    operations: tuple[Operation, ...], sides: tuple[int, int], size: tuple[int, int]
) -> tuple[Any, Any]:
    """Return what the core does to an image (width, height): a resize, and the rest."""
    drawn = DrawnSample.of(as_operations(operations), sides, size)
    return drawn.plan.for_core(*sides, 1), drawn.rest


def make_all(pictures: Sequence[Picture]) -> None:
    """Make the values of pictures, in threads."""
    new = [(one, _memory(one)) for one in pictures if one.values is None]
    calls = []
    for one, values in new:
        parts, at = values.view(-1), 0
        for part in one.parts:
            count = math.prod(part.shape)
            calls.append((part, parts[at : at + count]))
            at += count
    sources = {id(one): one for one in (one.source()[0] for one, _ in calls)}
    _in_threads(Picture.pixels, [(one,) for one in sources.values()])
    _in_threads(Picture.write, calls)
    for one, values in new:
        one.values = values


def _memory(picture: Picture) -> torch.Tensor:
    """Return memory for the values: from NumPy, which gets it in large pages."""
    count = math.prod(picture.shape) * picture.dtype.itemsize
    return torch.from_numpy(np.empty(count, np.uint8)).view(picture.dtype).view(picture.shape)


def _in_threads(function: Callable[..., Any], calls: Sequence[tuple[Any, ...]]) -> None:
    threads = calls[0][0].file.settings.threads if calls else 1
    if torch.utils.data.get_worker_info() is not None:
        threads = 1  # a worker process has one core to itself
    if len(calls) < 2 or threads == 1:
        for call in calls:
            function(*call)
    else:
        list(_executor(threads, os.getpid()).map(function, *zip(*calls, strict=True)))


@cache
def _executor(threads: int | None, _process: int) -> ThreadPoolExecutor:
    """Return the threads of this process."""
    return ThreadPoolExecutor(usable_cores() if threads is None else threads, "fastdecode")


class RecordedImage(LazyTensor):
    """A view of a picture, whose values are made when they are used."""

    picture: Picture
    view_: torch.Tensor
    """A tensor without memory that lies in the picture's as this one."""

    @staticmethod
    def view_of(
        picture: Picture, view: torch.Tensor | Sequence[int] | None = None
    ) -> RecordedImage:
        """Return the tensor of a picture: all of it, in a shape, or a view."""
        if not isinstance(view, torch.Tensor):
            view = torch.empty(view or picture.shape, dtype=picture.dtype, device="meta")
        wrapped: Any = torch.Tensor._make_wrapper_subclass
        made: RecordedImage = wrapped(
            RecordedImage,
            *(view.shape, view.stride(), view.storage_offset()),
            dtype=picture.dtype,
            device="cpu",
        )
        made.picture, made.view_ = picture, view
        return made

    def made(self, out: torch.Tensor | None = None) -> torch.Tensor:
        """Return the tensor with its values; written to `out` if that is given."""
        with torch._C._DisableFuncTorch(), torch.inference_mode(mode=False):
            values = self.picture.shown()
        view = self.view_
        values = values.as_strided(view.shape, view.stride(), view.storage_offset())
        return values if out is None else out.copy_(values)

    def image(self) -> Picture | None:
        """Return the picture of an image (..., 3, H, W); None if it is none."""
        view, picture, at = self.view_, self.picture, int(self.view_.storage_offset())
        *ones, channels, height, width = 0, *view.shape
        if channels != 3 or not height or not width or any(one != 1 for one in ones[1:]):
            return None
        if isinstance(picture, Album):
            places = itertools.accumulate(
                (math.prod(one.shape) for one in picture.parts), initial=0
            )
            part = dict(zip(places, picture.parts, strict=False)).get(at)
            known = part is not None and view.is_contiguous() and part.shape == view.shape[-3:]
            return part if known else None
        steps, patches = _steps(picture), picture.patches
        wanted = zip(view.shape[-3:], view.stride()[-3:], _PLANES, strict=True)
        if not all(size == 1 or step == steps[axis] for size, step, axis in wanted):
            return None
        if patches is not None:
            number, rest = divmod(at, steps["patch"])
            return None if rest or patches.size != (height, width) else picture.patch(number)
        top, left = divmod(at, picture.size[1])
        inside = top + height <= picture.size[0] and left + width <= picture.size[1]
        return picture.crop(left, top, height, width) if inside else None

    def own(self) -> Picture | None:
        """Return the picture whose memory has this view's values one after the other."""
        view, picture = self.view_, self.picture
        if view.is_contiguous() and view.numel() == math.prod(picture.shape):
            return picture
        if picture.patches is None and not isinstance(picture, Album):
            patches = _patches(view, picture.size)
            if patches is not None:
                return picture.then(patches=patches)
        if view.dim() < 4:
            return self.image()
        images = (RecordedImage.view_of(picture, one) for one in view.flatten(0, -4))
        parts = [one.image() for one in images]
        return None if None in parts else Album(cast("list[Picture]", parts))

    def _typed_storage(self) -> Any:
        return self.made()._typed_storage()

    def new(self, *args: Any, **kwargs: Any) -> Any:
        return self.made().new(*args, **kwargs)

    def _for_queue(self) -> Any:
        return self.made().__reduce_ex__(2)

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func in ANSWERED and args[0].picture.values is None:
            with torch._C.DisableTorchFunctionSubclass():
                return func(*args, **kwargs)
        record = _RECORDED.get(func)
        if record is not None:
            try:
                made = record(func, *args, **kwargs)
            except (TypeError, ValueError, RuntimeError, IndexError, NotImplementedError):
                made = None  # other arguments: it is called as written
            if made is not None:
                return made
        return func(*_with_values(args), **_with_values(kwargs))

    @classmethod
    def __torch_dispatch__(  # type: ignore[override]
        cls, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        return func(*_with_values(args), **_with_values(kwargs or {}))


def _with_values(found: Any) -> Any:
    """Return arguments of a call with values in place of recorded images."""
    if isinstance(found, LazyTensor):
        return found.made()
    if isinstance(found, dict):
        return {name: _with_values(one) for name, one in found.items()}
    return type(found)(map(_with_values, found)) if type(found) in (list, tuple) else found


def _is_recorded(found: Any) -> bool:
    return isinstance(found, RecordedImage) and found.picture.values is None


# ---- patches

_PLANES: tuple[Axis, ...] = ("channel", "row", "column")


def _steps(picture: Picture) -> dict[Axis, int]:
    """Return how many values lie from one to the next along each axis of a picture."""
    axes = _PLANES if picture.patches is None else picture.patches.order
    return dict(zip(axes, torch.empty(picture.shape, device="meta").stride(), strict=True))


_Dimensions = list[tuple[int, int]]


def _joined(dimensions: _Dimensions) -> _Dimensions:
    """Return dimensions (size, stride) joined where one goes on in steps of the next."""
    made: _Dimensions = []
    for size, stride in dimensions:
        if made and made[-1][1] == size * stride:
            made[-1] = (made[-1][0] * size, stride)
        elif size > 1:
            made.append((size, stride))
    return made


def _patches(view: torch.Tensor, size: tuple[int, int]) -> Patches | None:
    """Return how a view of an image (3, H, W) of this size cuts it; None if it does not."""
    (height, width), channel = size, size[0] * size[1]
    dimensions = [one for one in zip(view.shape, view.stride(), strict=True) if one[0] > 1]
    sizes = {stride: size for size, stride in dimensions}
    names: dict[int, Axis] = {channel: "channel", 0: "repeat", width: "row", 1: "column"}
    order = [*dict.fromkeys(names.get(stride, "patch") for _, stride in dimensions)]
    order += [axis for axis in get_args(Axis) if axis not in order]
    part = down, across = sizes.get(width, 1), sizes.get(1, 1)
    for merge in dict.fromkeys((1, sizes.get(width * down, 1))):
        patches = Patches(part, merge, sizes.get(0, 1), tuple(order))
        if height % (down * merge) or width % (across * merge):
            continue
        of_axis = {
            "patch": [
                (height // down // merge, width * down * merge),
                (width // across // merge, across * merge),
                (merge, width * down),
                (merge, across),
            ],
            "channel": [(3, channel)],
            "repeat": [(patches.repeats, 0)],
            "row": [(down, width)],
            "column": [(across, 1)],
        }
        wanted = [one for axis in patches.order for one in of_axis[axis]]
        if _joined(dimensions) == _joined(wanted) and not view.storage_offset():
            return patches
    return None


# ---- what is recorded; None: something else


def _view(func: Any, image: RecordedImage, *args: Any, **kwargs: Any) -> Any:
    """Record a view, or several; or the memory of one that is copied as `reshape` does it."""
    if not _is_recorded(image):
        return None
    picture, view = image.picture, image.view_
    made = func(view, *args, **kwargs)
    several = made if isinstance(made, (list, tuple)) else [made]
    if all(one.dtype == view.dtype and _is_alias_of(one, view) for one in several):
        if made is view:
            return image
        views = [RecordedImage.view_of(picture, one) for one in several]
        return views[0] if made is several[0] else type(made)(views)
    own = image.own() if func in _COPIES and made.is_contiguous() else None
    return None if own is None else RecordedImage.view_of(own, made.shape)


def _after(
    image: RecordedImage, size: tuple[int, int], *operations: Operation
) -> RecordedImage | None:
    """Record what is done to an image, if the core can do it."""
    before = image.image() if _is_recorded(image) else None
    if before is None or before.table is not None or max(size) > _library.LARGEST_SIDE:
        return None
    made = before.then(*operations, size=size)
    return RecordedImage.view_of(made, (*image.shape[:-3], *made.shape))


def _pad(
    _: Any, image: RecordedImage, pad: Any, mode: str = "constant", value: float | None = None
) -> Any:
    if not any(pad) and _is_recorded(image):
        own = image.own()
        return None if own is None else RecordedImage.view_of(own.then(), image.shape)
    fill = 0.0 if value is None else float(value)
    known = mode == "constant" and fill.is_integer() and 0 <= fill < _LEVELS
    if not known or len(pad) != 4 or min(pad) < 0:
        return None
    left, right, top, bottom = map(int, pad)
    size = (image.shape[-2] + top + bottom, image.shape[-1] + left + right)
    border = (left, top, right, bottom)
    return _after(image, size, Operation("pad", border, "constant", (int(fill),) * 3))


def _interpolate(
    _: Any,
    image: RecordedImage,
    size: Any = None,
    scale_factor: Any = None,
    mode: str = "nearest",
    align_corners: bool | None = None,
    recompute_scale_factor: bool | None = None,  # noqa: ARG001 - it is of no account
    antialias: bool = False,
) -> Any:
    if not (
        image.dim() == 4
        and isinstance(size, (list, tuple))
        and (scale_factor, align_corners, antialias) == (None, False, True)
        and mode in _FILTERS
        and min(size) > 0
        and max(image.shape) <= _library.LARGEST_SIDE
        and _core_resizes_as_torch()
    ):
        return None
    height, width = map(int, size)
    how: Any = f"torch_{mode}"
    return _after(image, (height, width), Operation("resize", (width, height), how))


def _change(func: Any, image: Any, *args: Any, **kwargs: Any) -> Any:
    """Record a function of single values, which is done to those of a table."""
    if not _is_recorded(image) or not all(map(_is_for_all, (*args, *kwargs.values()))):
        return None
    in_place = func.__name__.endswith("_") and not func.__name__.endswith("__")
    by_channel = any(map(torch.is_tensor, (*args, *kwargs.values())))
    whole = image.view_.is_contiguous() and image.view_.numel() == math.prod(image.picture.shape)
    picture = image.picture if in_place else image.own()
    if picture is None or (in_place and not whole):
        return None
    if by_channel and {(3, *image.shape[-2:])} != {one.shape for one in picture.parts}:
        return None
    before = _BYTES if picture.table is None else picture.table
    table = func(before.clone() if in_place else before, *args, **kwargs)
    if table is before:
        return image  # such as `to` of the type that it has
    if table.dtype not in _FLOATS or table.numel() != before.numel() or table.is_cuda:
        return None
    table = table.reshape(before.shape).contiguous()
    if not in_place:
        return RecordedImage.view_of(picture.then(table=table), image.shape)
    if before.dtype != table.dtype:
        return None
    for one in (picture, *picture.parts):
        one.table = table
    return image


def _like(func: Any, image: RecordedImage, *, dtype: torch.dtype | None = None) -> Any:
    """Make a tensor of zeros or ones, for which no values are needed."""
    make: Any = torch.zeros if func is torch.zeros_like else torch.ones
    return make(image.shape, dtype=dtype or image.dtype)


def _is_for_all(value: Any) -> bool:
    """Return whether an argument is the same for all pixels: a number, or one for each channel."""
    if isinstance(value, (torch.device, str)):
        return torch.device(value).type == "cpu"
    if type(value) is not torch.Tensor:
        return value is None or isinstance(value, (int, float, torch.dtype))
    channels = value.dim() == 3 and value.shape[1:] == (1, 1) and len(value) in (1, 3)
    return (value.dim() == 0 or channels) and value.device.type == "cpu" and not value.requires_grad


def _batch(func: Any, tensors: Sequence[Any], dim: int = 0) -> Any:
    """Record a batch, if it is of recorded images alone that lie one after the other in it."""
    if not tensors or not all(map(_is_recorded, tensors)):
        return None
    pictures = [one.own() for one in tensors]
    ahead = {side for one in tensors for side in one.shape[:dim]}
    tables = [_BYTES if one.picture.table is None else one.picture.table for one in tensors]
    alike = all(one is tables[0] or torch.equal(one, tables[0]) for one in tables)
    if dim < 0 or not ahead <= {1} or None in pictures or not alike:
        return None
    parts = [part.then() for one in pictures for part in one.parts]
    return RecordedImage.view_of(Album(parts), func([one.view_ for one in tensors], dim).shape)


_CHANGES = (
    *(torch.Tensor.to, torch.Tensor.float, torch.Tensor.bfloat16),
    *(torch.sub, torch.Tensor.sub, torch.Tensor.sub_, torch.Tensor.__sub__, torch.Tensor.__isub__),
    *(torch.add, torch.Tensor.add, torch.Tensor.add_, torch.Tensor.__add__, torch.Tensor.__iadd__),
    *(torch.mul, torch.Tensor.mul, torch.Tensor.mul_, torch.Tensor.__mul__, torch.Tensor.__imul__),
    *(torch.div, torch.Tensor.div, torch.Tensor.div_, torch.Tensor.__truediv__),
    torch.Tensor.__itruediv__,
)
_COPIES = (torch.Tensor.contiguous, torch.Tensor.reshape, torch.reshape, torch.Tensor.flatten)
_VIEWS = (
    *(torch.unsqueeze, torch.Tensor.unsqueeze, torch.squeeze, torch.Tensor.squeeze),
    *(torch.permute, torch.Tensor.permute, torch.Tensor.transpose, torch.Tensor.movedim),
    *(torch.Tensor.view, torch.Tensor.expand, torch.Tensor.unflatten, torch.Tensor.__getitem__),
    *(
        torch.Tensor.unfold,
        torch.unbind,
        torch.Tensor.unbind,
        torch.split,
        torch.Tensor.split,
        torch.Tensor.chunk,
    ),
)
_RECORDED: dict[Any, Callable[..., Any]] = {
    **dict.fromkeys(_CHANGES, _change),
    **dict.fromkeys((*_VIEWS, *_COPIES), _view),
    **dict.fromkeys((torch.zeros_like, torch.ones_like), _like),
    functional.pad: _pad,
    functional.interpolate: _interpolate,
    torch.stack: _batch,
    torch.cat: _batch,
}


@cache
def _core_resizes_as_torch() -> bool:
    """Return whether the core has the results of the installed torch, tried on a small image."""
    noise = np.random.default_rng(1).integers(0, 256, (61, 47, 3), np.uint8)
    image = torch.from_numpy(noise).permute(2, 0, 1)[None]
    for mode, how in _FILTERS.items():
        for size in ((20, 50), (40, 11), (60, 40), (30, 90), (13, 17)):
            try:
                right = functional.interpolate(
                    image, size, mode=mode, align_corners=False, antialias=True
                )
            except (NotImplementedError, RuntimeError, ValueError):
                continue  # an older torch has no Lanczos
            whole = (0, 0, 47, 61)
            made = resize_in_core(noise, whole, size, (0, 0, *size[::-1]), how)
            if made is None or not np.array_equal(made, right[0].permute(1, 2, 0).numpy()):
                return False
    return True


def with_values(found: Any) -> Any:
    """Return what a processor has returned, with values in place of recorded images.

    Each has memory of its own, so that no more than that is pickled.
    """
    several: list[RecordedImage] = []
    found = _own(found, several)
    make_all([one.picture for one in several])
    return _with_values(found)


def _own(found: Any, several: list[RecordedImage]) -> Any:
    """Return what is found with recorded images that are whole; list these, too."""
    if isinstance(found, dict):
        return {name: _own(one, several) for name, one in found.items()}
    if type(found) in (list, tuple):
        return type(found)(_own(one, several) for one in found)
    if _is_recorded(found):
        picture = found.own()
        several.append(RecordedImage.view_of(picture, found.shape) if picture else found)
        return several[-1]
    return found
