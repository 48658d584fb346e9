"""The tensor of an image that is not decoded yet, which records what a processor does to it.

To everyone it is a tensor of bytes (3, H, W), or a view of one. It knows torch's functions that
crop, pad and resize an image, those that change each value by itself, and those that cut it into
patches. All others get its values, which the core makes in one go.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, cast, get_args

import torch
from torch.nn import functional

from fastdecode.native import _library
from fastdecode.native._augment import Operation
from fastdecode.native._library import Axis, Patches
from fastdecode.torch._recorded import ANSWERED, LazyTensor
from fastdecode.torch.transforms.base import core_resizes_as_torch
from fastdecode.transformers._picture import Picture, PixelBox, make_all, together

_LEVELS = 256
_CPU = torch.device("cpu")
_FILTERS = ("bilinear", "bicubic", "lanczos")
"""The ``fd_resize_filter`` that gives the bytes of each of torch's."""
_BYTES = torch.arange(_LEVELS, dtype=torch.uint8).repeat(3, 1, 1)
_is_alias_of: Callable[[torch.Tensor, torch.Tensor], bool] = torch._C._is_alias_of  # type: ignore[attr-defined]
_FLOATS = (torch.float32, torch.bfloat16)


class RecordedImage(LazyTensor):
    """A view of a picture, whose values are made when they are used."""

    picture: Picture
    place: torch.Tensor
    """A tensor without memory that lies in the picture's as this one."""
    # Torch would ask `__torch_function__` for each.
    shape = property(lambda self: self.place.shape)
    ndim = property(lambda self: self.place.ndim)
    dtype = property(lambda self: self.place.dtype)
    device = property(lambda self: _CPU)  # noqa: ARG005

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
        made.picture, made.place = picture, view
        return made

    def made(self, out: torch.Tensor | None = None) -> torch.Tensor:
        """Return the tensor with its values; written to `out` if that is given."""
        with torch._C._DisableFuncTorch(), torch.inference_mode(mode=False):
            values = self.picture.shown()
        view = self.place
        values = values.as_strided(view.shape, view.stride(), view.storage_offset())
        return values if out is None else out.copy_(values)

    def part(self) -> tuple[Picture, PixelBox] | None:
        """Return in which picture an image (..., 3, H, W) is, and where; None if it is none."""
        view = self.place
        *ones, channels, height, width = 0, *view.shape
        if channels != 3 or not height or not width or any(one != 1 for one in ones[1:]):
            return None
        picture, place = self.picture.part_at(int(view.storage_offset()))
        steps = zip(view.shape[-3:], view.stride()[-3:], picture.steps, strict=True)
        box = picture.box_at(place, height, width)
        fits = all(size == 1 or step == own for size, step, own in steps)
        return (picture, box) if box and fits else None

    def image(self) -> Picture | None:
        """Return the picture of an image; None if it is none."""
        found = self.part()
        return None if found is None else found[0].crop(found[1])

    def own(self) -> Picture | None:
        """Return the picture whose memory has this view's values one after the other."""
        view, picture = self.place, self.picture
        if view.is_contiguous() and view.numel() == math.prod(picture.shape):
            return picture
        image = self.image()
        if image is None and picture.is_plain:
            patches = _patches(view, picture.size)
            if patches is not None:
                return picture.then(patches=patches)
        if image is not None or view.dim() < 4:
            return image
        images = (RecordedImage.view_of(picture, one) for one in view.flatten(0, -4))
        parts = [one.image() for one in images]
        return None if None in parts else together(cast("list[Picture]", parts))

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


RecordedImage.__name__ = torch.Tensor.__name__  # as others' errors have it


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
    """Record a view, or several."""
    if not _is_recorded(image):
        return None
    picture, view = image.picture, image.place
    made = func(view, *args, **kwargs)
    several = made if isinstance(made, (list, tuple)) else [made]
    if not all(one.dtype == view.dtype and _is_alias_of(one, view) for one in several):
        return None
    if made is view:
        return image
    views = [RecordedImage.view_of(picture, one) for one in several]
    return views[0] if made is several[0] else type(made)(views)


def _copy(func: Any, image: RecordedImage, *args: Any, **kwargs: Any) -> Any:
    """Record what `reshape` does: a view, or where there is none the memory of a copy."""
    if not _is_recorded(image) or image.place.is_contiguous():
        return _view(func, image, *args, **kwargs)
    made = func(_without_gaps(image.place), *args, **kwargs)
    if func is not torch.Tensor.contiguous:
        with suppress(RuntimeError):
            return RecordedImage.view_of(image.picture, image.place.view(made.shape))
    own = image.own() if made.is_contiguous() else None
    return None if own is None else RecordedImage.view_of(own, made.shape)


def _without_gaps(view: torch.Tensor) -> torch.Tensor:
    return torch.empty(view.shape, dtype=view.dtype, device="meta")


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
        and core_resizes_as_torch()
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
    whole = image.place.is_contiguous() and image.place.numel() == math.prod(image.picture.shape)
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


def _put(_: Any, target: Any, index: Any, image: Any) -> Any:
    """Write an image to a part of ordinary memory, which it fills; or record a box of a colour."""
    if _is_recorded(target):
        return _fill(target, index, image)
    if type(target) is not torch.Tensor or target.requires_grad or not _is_recorded(image):
        return None
    place, own = target[index], image.own()
    form = (image.shape, image.dtype, image.device)
    fits = (place.shape, place.dtype, place.device) == form and place.is_contiguous()
    if own is None or not fits or not _is_alias_of(place, target):
        return None
    make_all([own], [place])
    return place


def _fill(image: RecordedImage, index: Any, colour: Any) -> Any:
    """Record that a part of an image of which nothing was made becomes plain."""
    picture, part = image.picture, RecordedImage.view_of(image.picture, image.place[index]).part()
    levels = torch.as_tensor(colour)
    known = levels.dtype in (torch.uint8, torch.int64) and levels.numel() in (1, 3)
    if part is None or not known or levels.shape[1:].numel() > 1 or not picture.may_change:
        return None
    red, green, blue = levels.flatten().expand(3).tolist()
    fill = Operation("fill", part[1].value, fill=(red, green, blue))
    picture.operations = (*picture.operations, fill)
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
    if not tensors or dim < 0 or not all(map(_is_recorded, tensors)):
        return None
    pictures = [one.own() for one in tensors]
    shapes = [tuple(one.shape) for one in tensors]
    if func is torch.stack:
        shapes = [(*one[:dim], 1, *one[dim:]) for one in shapes]
    [ahead, behind], *others = {(one[:dim], one[dim + 1 :]) for one in shapes}
    tables = [_BYTES if one.picture.table is None else one.picture.table for one in tensors]
    alike = all(one is tables[0] or torch.equal(one, tables[0]) for one in tables)
    if others or not {*ahead} <= {1} or None in pictures or not alike:
        return None
    parts = [part.then() for one in pictures for part in one.parts]
    shape = (*ahead, sum(one[dim] for one in shapes), *behind)
    return RecordedImage.view_of(together(parts), shape)


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
    **dict.fromkeys(_VIEWS, _view),
    **dict.fromkeys(_COPIES, _copy),
    **dict.fromkeys((torch.zeros_like, torch.ones_like), _like),
    functional.pad: _pad,
    functional.interpolate: _interpolate,
    torch.Tensor.__setitem__: _put,
    torch.stack: _batch,
    torch.cat: _batch,
}


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
