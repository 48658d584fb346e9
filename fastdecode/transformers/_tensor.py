"""The tensor of an image that is not decoded yet, which records what a processor does to it.

To everyone it is a tensor (3, H, W) of bytes. It knows torch's functions that crop, pad and resize
an image, and those that change each value by itself; their result is another such tensor. All
others get its values, which the core makes in one go.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from functools import cache, lru_cache
from typing import Any, NamedTuple
from weakref import WeakSet

import numpy as np
import torch
from torch.nn import functional

from fastdecode._decode.resizing import core_may_decode, resize_in_core
from fastdecode._system.processor import usable_cores
from fastdecode.errors import begin_with
from fastdecode.native import _library
from fastdecode.native._augment import Operation, Program, as_operations
from fastdecode.native._library import ffi, lib
from fastdecode.native._pool import Pool, Recorded
from fastdecode.torch._recorded import ANSWERED, LazyTensor
from fastdecode.torch.transforms.base import DrawnSample, core_recipe
from fastdecode.types import Image

_LEVELS = 256
_SEVERAL = 2
_FILTERS = {"bilinear": 6, "bicubic": 7, "lanczos": 8}
"""The ``fd_resize_filter`` that gives the bytes of each of torch's."""
_NOTHING = Program()
_BYTES = torch.arange(_LEVELS, dtype=torch.uint8).repeat(3, 1, 1)


class ProcessorSettings(NamedTuple):
    """Those of a processor, and what it is known to do."""

    max_pixels: int | None
    """The most that the header of a file may promise."""
    threads: int | None
    """How many make the images of a batch; None: as many as there are cores."""
    habits: set[str]
    """What it has done before: "several" if it makes several pictures of one file."""


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
    """What a tensor holds: an image of a file, or of another picture after an operation.

    A picture has three channels. With a `table` (3, 1, 256), its values are those of the table at
    the bytes; each function of single values changes the table.
    """

    def __init__(
        self,
        file: RgbFile,
        before: Picture | None = None,
        operations: tuple[Operation, ...] = (),
        size: tuple[int, int] | None = None,
        table: torch.Tensor | None = None,
    ) -> None:
        self.is_part = False  # of the memory of the picture before it, as a crop
        self.file, self.before, self.operations, self.table = file, before, operations, table
        self.size = file.sides[::-1] if size is None else size  # (height, width)
        self.rows: Image | None = None  # (H, W, 3), of one of which several others are made
        self.values: torch.Tensor | None = None  # (3, H, W)
        self.uses = 0
        self._followers: WeakSet[Picture] = WeakSet()

    def then(
        self, *operations: Operation, size: tuple[int, int] | None = None, table: Any = None
    ) -> Picture:
        """Return the picture after operations."""
        made = Picture(self.file, self, operations, size or self.size, table)
        self.uses += 1
        if self.before is None and self.uses >= _SEVERAL:
            self.file.settings.habits.add("several")
        self._followers.add(made)
        return made

    def with_table(self, table: torch.Tensor) -> Picture:
        """Return a picture of the same bytes with other values."""
        if self.table is None or self.before is None:
            return self.then(table=table)
        made = Picture(self.file, self.before, self.operations, self.size, table)
        self.before._followers.add(made)
        return made

    @property
    def dtype(self) -> torch.dtype:
        return torch.uint8 if self.table is None else self.table.dtype

    def source(self) -> tuple[Picture, tuple[Operation, ...]]:
        """Return the last picture at hand, or of which several are made; and what follows."""
        at: Picture = self
        operations: tuple[Operation, ...] = ()
        while at.before is not None and at.is_new and (at is self or not at.is_for_several):
            at, operations = at.before, at.operations + operations
        return at, operations

    @property
    def is_for_several(self) -> bool:
        """Whether its pixels are to be kept: several pictures are made of it, or will be."""
        return self.uses >= _SEVERAL or (
            self.before is None and "several" in self.file.settings.habits
        )

    @property
    def is_new(self) -> bool:
        return self.rows is None and self.values is None

    def make(self) -> torch.Tensor:
        """Return the values (3, H, W); those of a crop are a part of the same memory."""
        if self.values is None and self.before is not None and self.is_part:
            left, top, width, height = map(int, self.operations[0].value)
            self.values = self.before.make()[:, top : top + height, left : left + width]
        elif self.values is None:
            values = torch.empty((3, *self.size), dtype=self.dtype)
            self.write(values.data_ptr(), _stored(self.table))
            self.values = values
        return self.values

    def write(self, out: int, form: Any) -> None:
        """Write the values to memory; `form` says how, and is from `_stored`."""
        source, operations = self.source()
        rows, file = source._pixels(keep=source is not self), self.file
        if rows is None:
            width, height = file.sides
            drawn = _planned(operations, (width, height), self.size)
            resize = drawn.plan.for_core(width, height, 1)
            if resize and _library.decode_resized(file.data, resize, form, out, drawn.rest):
                return
            rows = self._decoded()
        height, width = rows.shape[:2]
        drawn = _planned(operations, (width, height), self.size)
        resize = drawn.plan.for_core(width, height, 1)
        if resize is None or not _library.resize_pixels(rows, resize, form, out, drawn.rest):
            raise MemoryError(f"{file.name or 'an image'} could not be resized to {self.size}")

    def _pixels(self, *, keep: bool) -> Image | None:
        """Return pixels (H, W, 3) that are at hand; None if they are to come from the file."""
        if self.values is not None:
            values: Image = self.values.permute(1, 2, 0).contiguous().numpy()
            return values
        if self.rows is None and keep and self.is_for_several:
            rows = np.empty((*self.size, 3), np.uint8)
            self.write(rows.ctypes.data, _library.stored(None, channels_first=False))
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

    def settle(self) -> None:
        """Make it, and what is made of it, before somebody changes its values in place."""
        if self.is_part and self.before is not None:
            self.before.settle()
            return
        self.make()
        self._make_followers()

    def _make_followers(self) -> None:
        for one in list(self._followers):
            one.make()
            if one.is_part:
                one._make_followers()


@lru_cache(maxsize=256)
def _planned(
    operations: tuple[Operation, ...], sides: tuple[int, int], size: tuple[int, int]
) -> DrawnSample:
    return DrawnSample.of(as_operations(operations), sides, size)


def _stored(table: torch.Tensor | None) -> Any:
    """Return an ``fd_pixels *`` for values (3, H, W) of a table, which must live as long."""
    if table is None:
        return _library.stored(None, channels_first=True)
    place = ffi.cast("float *", table.data_ptr())
    form = {"dtype": lib.FD_FLOAT32, "channels": 3, "channels_first": True, "table": place}
    return ffi.new("fd_pixels *", form)


class RecordedImage(LazyTensor):
    """A tensor (..., 3, H, W) of one image, whose values are made when they are used."""

    picture: Picture

    @staticmethod
    def of_picture(picture: Picture, ones: int = 0) -> RecordedImage:
        """Return the tensor of a picture, with so many dimensions of 1 before its own three."""
        shape = (*(1,) * ones, 3, *picture.size)
        wrapped: Any = torch.Tensor._make_wrapper_subclass
        made: RecordedImage = wrapped(RecordedImage, shape, dtype=picture.dtype, device="cpu")
        made.picture = picture
        return made

    def made(self, out: torch.Tensor | None = None) -> torch.Tensor:
        """Return the tensor with its values; written to `out` if that is given."""
        with torch._C._DisableFuncTorch(), torch.inference_mode(mode=False):
            values = self.picture.make()
        with torch._C.DisableTorchFunctionSubclass():
            shape = self.shape
        return values.view(shape) if out is None else out.copy_(values.view(shape))

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
            except TypeError:  # other arguments: it is called as written
                made = None
            if made is not None:
                return made
        name = getattr(func, "__name__", "")
        if (
            (name.endswith("_") and not name.endswith("__"))
            or name == "__setitem__"
            or "out" in kwargs
        ):
            for one in (*args, *kwargs.values()):
                if isinstance(one, RecordedImage):
                    one.picture.settle()
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


# ---- what is recorded; None: something else


def _same(func: Any, image: RecordedImage, *args: Any, **kwargs: Any) -> Any:
    """Record a view of the same values, with more or fewer dimensions of 1 before them."""
    if not _is_recorded(image):
        return None
    if args == (0,) and func in (torch.Tensor.unsqueeze, torch.unsqueeze):
        return RecordedImage.of_picture(image.picture, image.dim() - 2)
    made = func(torch.empty(image.shape, dtype=image.dtype, device="meta"), *args, **kwargs)
    shape = made.shape if made.dtype == image.dtype else ()
    if shape == image.shape:
        return image
    ones = len(shape) - 3
    alike = ones >= 0 and shape == (*(1,) * ones, 3, *image.picture.size)
    return RecordedImage.of_picture(image.picture, ones) if alike else None


def _contiguous(_: Any, image: RecordedImage, memory_format: Any = None) -> Any:
    usual = memory_format in (None, torch.contiguous_format, torch.preserve_format)
    if not usual or not _is_recorded(image):
        return None
    return _after(image, size=image.picture.size) if image.picture.is_part else image


def _item(_: Any, image: RecordedImage, index: Any) -> Any:
    """Record a crop; or the only image of a batch."""
    if not _is_recorded(image):
        return None
    if index == 0 and image.dim() > 3:
        return RecordedImage.of_picture(image.picture, image.dim() - 4)
    index = index if isinstance(index, tuple) else (index,)
    given = [one for one in index if one is not Ellipsis]
    missing = image.dim() - len(given)
    if len(index) - len(given) > 1 or missing < 0:
        return None
    at = index.index(Ellipsis) if len(index) > len(given) else len(given)
    full = [*given[:at], *[slice(None)] * missing, *given[at:]]
    if not all(isinstance(one, slice) and one.step in (None, 1) for one in full):
        return None
    sides = [one.indices(side)[:2] for one, side in zip(full, image.shape, strict=True)]
    *others, (top, bottom), (left, right) = sides
    whole = all(side == (0, n) for side, n in zip(others, image.shape, strict=False))
    height, width = image.picture.size
    if not whole or image.picture.table is not None or bottom <= top or right <= left:
        return None
    if (top, left, bottom, right) == (0, 0, height, width):
        return image
    crop = Operation("crop", (left, top, right - left, bottom - top), "constant")
    made = _after(image, crop, size=(bottom - top, right - left))
    made.picture.is_part = True
    return made


def _after(image: RecordedImage, *operations: Operation, size: tuple[int, int]) -> RecordedImage:
    made = image.picture.then(*operations, size=size)
    return RecordedImage.of_picture(made, image.dim() - 3)


def _pad(
    _: Any, image: RecordedImage, pad: Any, mode: str = "constant", value: float | None = None
) -> Any:
    if not _is_recorded(image) or image.picture.table is not None or mode != "constant":
        return None
    fill = 0.0 if value is None else float(value)
    if len(pad) != 4 or min(pad) < 0 or not fill.is_integer() or not 0 <= fill < _LEVELS:
        return None
    left, right, top, bottom = map(int, pad)
    height, width = image.picture.size
    size = (height + top + bottom, width + left + right)
    if max(size) > _library.LARGEST_SIDE:
        return None
    border = (left, top, right, bottom)
    return _after(image, Operation("pad", border, "constant", (int(fill),) * 3), size=size)


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
        _is_recorded(image)
        and image.picture.table is None
        and image.dim() == 4
        and isinstance(size, (list, tuple))
        and (scale_factor, align_corners, antialias) == (None, False, True)
        and mode in _FILTERS
        and 0 < min(size) <= max(*size, *image.picture.size) <= _library.LARGEST_SIDE
        and _core_resizes_as_torch()
    ):
        return None
    height, width = map(int, size)
    resize = Operation("resize", (width, height), f"torch_{mode}")  # type: ignore[arg-type]
    return _after(image, resize, size=(height, width))


def _change(func: Any, image: Any, *args: Any, **kwargs: Any) -> Any:
    """Record a function of single values, which is done to those of a table."""
    if not _is_recorded(image) or not all(map(_is_for_all, (*args, *kwargs.values()))):
        return None
    picture = image.picture
    before = picture.table
    in_place = func.__name__.endswith("_") and not func.__name__.endswith("__")
    if before is None:
        if in_place:
            return None
        before = _BYTES
    table = func(before if not in_place else before.clone(), *args, **kwargs)
    if table.dtype is torch.uint8 and picture.table is None:
        return image if torch.equal(table, before) and func is torch.Tensor.to else None
    if table.dtype is not torch.float32 or table.numel() != before.numel() or table.is_cuda:
        return None
    table = table.reshape(3, 1, _LEVELS).contiguous()
    if in_place:
        picture.table = table
        return image
    if table.data_ptr() == before.data_ptr():
        return image  # such as `to` of the type that it has
    return RecordedImage.of_picture(picture.with_table(table), image.dim() - 3)


def _is_for_all(value: Any) -> bool:
    """Return whether an argument is the same for all pixels: a number, or one for each channel."""
    if isinstance(value, (torch.device, str)):
        return torch.device(value).type == "cpu"
    if type(value) is not torch.Tensor:
        return value is None or isinstance(value, (int, float, torch.dtype))
    channels = value.dim() == 3 and value.shape[1:] == (1, 1) and len(value) in (1, 3)
    return (value.dim() == 0 or channels) and value.device.type == "cpu" and not value.requires_grad


def _stack(func: Any, tensors: Sequence[Any], dim: int = 0) -> Any:
    """Make a batch, if it is of recorded images alone."""
    recorded = dim == 0 and len(tensors) > 0 and all(map(_is_recorded, tensors))
    if not recorded or len({(one.shape, one.dtype) for one in tensors}) > 1:
        return None
    if func is torch.cat and tensors[0].dim() == 3:
        return None
    images = torch.empty((len(tensors), 3, *tensors[0].picture.size), dtype=tensors[0].dtype)
    make_all([one.picture for one in tensors], images)
    shape = func([torch.empty(one.shape, device="meta") for one in tensors], 0).shape
    return images.view(shape)


_CHANGES = (
    *(torch.Tensor.to, torch.Tensor.float),
    *(torch.sub, torch.Tensor.sub, torch.Tensor.sub_, torch.Tensor.__sub__, torch.Tensor.__isub__),
    *(torch.add, torch.Tensor.add, torch.Tensor.add_, torch.Tensor.__add__, torch.Tensor.__iadd__),
    *(torch.mul, torch.Tensor.mul, torch.Tensor.mul_, torch.Tensor.__mul__, torch.Tensor.__imul__),
    *(torch.div, torch.Tensor.div, torch.Tensor.div_, torch.Tensor.__truediv__),
    torch.Tensor.__itruediv__,
)
_VIEWS = (
    *(torch.unsqueeze, torch.Tensor.unsqueeze, torch.squeeze, torch.Tensor.squeeze),
    *(torch.reshape, torch.Tensor.reshape, torch.Tensor.view),
)
_RECORDED: dict[Any, Callable[..., Any]] = {
    **dict.fromkeys(_CHANGES, _change),
    **dict.fromkeys(_VIEWS, _same),
    torch.Tensor.contiguous: _contiguous,
    torch.Tensor.__getitem__: _item,
    functional.pad: _pad,
    functional.interpolate: _interpolate,
    torch.stack: _stack,
    torch.cat: _stack,
}


# ---- many images


@cache
def _pool(threads: int | None, _process: int) -> Pool:
    """Return the threads of this process."""
    return Pool(usable_cores() if threads is None else threads)


def make_all(pictures: Sequence[Picture], out: torch.Tensor) -> None:
    """Make pictures of one size and type in a batch (N, 3, H, W)."""
    table = pictures[0].table
    alike = all(
        one.table is table
        or (one.table is not None and table is not None and torch.equal(one.table, table))
        for one in pictures
    )
    sources = [one.source() for one in pictures]
    fresh = all(one.before is None and one.is_new and not one.is_for_several for one, _ in sources)
    made: set[int] = set()
    if alike and fresh and len(pictures) > 1 and core_may_decode(None):
        made = _make_in_core(pictures, [operations for _, operations in sources], out)
    for at, picture in enumerate(pictures):
        if at not in made:
            picture.write(out[at].data_ptr(), _stored(picture.table))


def _make_in_core(
    pictures: Sequence[Picture], done: Sequence[tuple[Operation, ...]], out: torch.Tensor
) -> set[int]:
    """Let the core's threads make them; return which ones it has made."""
    files = [one.file for one in pictures]
    drawn = []
    for file, operations in zip(files, done, strict=True):
        planned = _planned(operations, file.sides, pictures[0].size).operations
        drawn.append(Recorded(*file.sides, bytes(ffi.buffer(planned)) if operations else b""))
    pool = _pool(files[0].settings.threads, os.getpid())
    with pool.items() as items:
        made, _ = items.make(
            pool,
            [one.data for one in files],
            drawn,
            core_recipe(_NOTHING, pictures[0].size),
            *(_stored(pictures[0].table), out.data_ptr(), out.stride(0) * out.element_size()),
        )
    return set(made)


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
    """Return what a processor has returned, with values in place of recorded images."""
    if isinstance(found, RecordedImage):
        return found.made()
    if isinstance(found, (list, tuple)) and any(map(_is_recorded, found)):
        together: dict[Any, list[Picture]] = {}
        for one in found:
            if _is_recorded(one):
                together.setdefault((one.shape, one.dtype), []).append(one.picture)
        for pictures in together.values():
            first = pictures[0]
            images = torch.empty((len(pictures), 3, *first.size), dtype=first.dtype)
            make_all(pictures, images)
            for picture, image in zip(pictures, images, strict=True):
                picture.values = image.clone()  # pickled, it is to be one image
    if isinstance(found, dict):
        for name, one in found.items():
            found[name] = with_values(one)
        return found
    return type(found)(map(with_values, found)) if type(found) in (list, tuple) else found
