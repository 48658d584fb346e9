"""albumentations' pipelines called by name, on images whose pixels are made when they are needed.

albumentations draws, and transforms masks, boxes and keypoints. Of an image that has not been
decoded, it is only recorded which operations the core will do, with the numbers that albumentations
has drawn. A transform that the core does not do gets the pixels, and what it makes of them is
recorded anew.

Notes
-----
Written from albumentations 2.0.8, which is not imported; 2.0.0 and 1.4.24 draw the same numbers
by the same names. The pixels are at most 1 level away from
OpenCV's.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np
import torch
from PIL import Image as PillowImage

from fastdecode._decode.lazy import unmade
from fastdecode._decode.plan import DEFAULT_MAX_PIXELS
from fastdecode.native._augment import Operation, as_operations, resized_by
from fastdecode.native._library import ffi, lib
from fastdecode.native._pool import Recorded
from fastdecode.torch import _albumentations as known
from fastdecode.torch._programs import Unsupported
from fastdecode.torch._recorded import LazyTensor, Recording, make, ppm
from fastdecode.torch.transforms.base import Recipe

if TYPE_CHECKING:
    from fastdecode._decode.lazy import Unmade

_BYTES = Recipe()
_LARGEST_SIDE = 16384  # of what the core warps
_MOST_BYTES = lib.FD_MOST_OPERATIONS * ffi.sizeof("fd_operation")


class LazyArray:
    """An RGB image (H, W, 3) that is an array to albumentations; its pixels are made when used."""

    ndim = 3

    def __init__(
        self,
        file: Unmade | Pixels,
        operations: bytes,
        sides: tuple[int, int],
        form: Recipe = _BYTES,
    ) -> None:
        self._file = file
        self._operations = operations
        self._sides = sides
        """The (height, width)."""
        self._form = form
        """How values are stored: as bytes, or as normalised floats."""
        self._made: np.ndarray[Any, Any] | None = None

    @classmethod
    def of(cls, image: Any) -> LazyArray | None:
        """Return an image of `fastdecode.open`; None if it is not RGB, or decoded already."""
        file = unmade(image)
        if file is None or math.prod(file.sides) > DEFAULT_MAX_PIXELS:  # too large ones are refused
            return None
        begin = cls(file, b"", file.sides[::-1])
        return begin.then(*(Operation(*one) for one in file.done))  # type: ignore[arg-type]

    @classmethod
    def of_pixels(cls, made: Any, name: str) -> Any:
        """Return what a transform has made of a file's image; as it is unless it is RGB bytes."""
        if not isinstance(made, np.ndarray) or made.dtype != np.uint8 or made.shape[2:] != (3,):
            return made
        image = cls(Pixels(made, name), b"", made.shape[:2])
        image._made = made
        return image

    @property  # type: ignore[misc]
    def __class__(self) -> Any:
        return np.ndarray

    @property
    def shape(self) -> tuple[int, int, int]:
        return (*self._sides, 3)

    @property
    def dtype(self) -> Any:
        return np.dtype(np.uint8 if self._form is _BYTES else np.float32)

    def then(self, *operations: Operation) -> LazyArray | None:
        """Return the image after operations; None if the core cannot do them."""
        if self._form is not _BYTES:
            return None
        added = as_operations(operations)
        size = resized_by(added, *self._sides[::-1])
        done = self._operations + bytes(ffi.buffer(added))
        if size is None or max(*self._sides, *size) > _LARGEST_SIDE or len(done) > _MOST_BYTES:
            return None
        return LazyArray(self._file, done, size[::-1])

    def stored_as(self, form: Recipe) -> LazyArray | None:
        """Return the image with its values as floats; None if they are that already."""
        if self._form is not _BYTES:
            return None
        return LazyArray(self._file, self._operations, self._sides, form)

    @property
    def name(self) -> str:
        return self._file.name

    def recording(self) -> Recording:
        width, height = self._file.sides
        recorded = Recorded(width, height, self._operations)
        return Recording(self._file.data, self._file.name, recorded, self._sides, self._form)

    def tensor(self) -> torch.Tensor:
        """Return what ToTensorV2 makes of it, to be made later.

        As many wait as a batch has, so pixels that are larger than their result are not kept.
        """
        if isinstance(self._file, Pixels) and self._file.array.nbytes > self.nbytes:
            return torch.from_numpy(np.ascontiguousarray(self.made().transpose(2, 0, 1)))
        return LazyTensor.of([self.recording()], stacked=False)

    @property
    def nbytes(self) -> int:
        return math.prod(self.shape) * int(self.dtype.itemsize)

    def made(self) -> np.ndarray[Any, Any]:
        """Return the array."""
        if self._made is None:
            made = np.empty(self.shape, self.dtype)
            make([self.recording()], torch.from_numpy(made).permute(2, 0, 1)[None])
            self._made = made
        return self._made

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray[Any, Any]:
        return np.array(self.made(), dtype=dtype, copy=bool(copy))

    def __getattr__(self, name: str) -> Any:
        return getattr(self.made(), name)


class Pixels(NamedTuple):
    """An image that a transform has made, in place of a file."""

    array: np.ndarray[Any, Any]
    """RGB bytes (H, W, 3)."""
    name: str
    """The path of the file of which it was made."""

    @property
    def sides(self) -> tuple[int, int]:
        height, width, _ = self.array.shape
        return width, height

    @property
    def data(self) -> bytes:
        """The image as a file."""
        return ppm(self.array)


def with_arrays(found: Any) -> Any:
    """Return an image as an array, and a list with images as one of arrays; all else as it is."""
    if type(found) is LazyArray:
        return found.made()
    if isinstance(found, PillowImage.Image):
        return np.array(found)
    if isinstance(found, (list, tuple)) and any(isinstance(one, _IMAGES) for one in found):
        return type(found)(map(with_arrays, found))
    return found


_IMAGES = (PillowImage.Image,)


# ---- a pipeline ----


class Calls:
    """A pipeline of albumentations that is called with images which are not decoded yet."""

    def __init__(self, pipeline: Any) -> None:
        self._pipeline = pipeline
        self._leaves: list[_Leaf] = []
        self._begin = self._node(pipeline)
        targets = getattr(pipeline, "_additional_targets", {})
        self._images = {"image"} | {name for name, kind in targets.items() if kind == "image"}

    def __call__(self, named: Mapping[str, Any]) -> Any:
        """Return what the pipeline does, with tensors that are made later."""
        data = {}
        for name, one in named.items():
            lazy = LazyArray.of(one) if name in self._images else None
            data[name] = with_arrays(one) if lazy is None else lazy
        return {name: with_arrays(one) for name, one in self._begin()(**data).items()}

    def __reduce__(self) -> tuple[Any, ...]:
        return Calls, (self._pipeline,)

    def _node(self, transform: Any) -> Callable[[], Any]:
        """Return what begins a call of a transform: it returns what takes the data."""
        if type(transform).__name__ in _GROUPS and known.is_own_class(transform):
            inner = list(map(self._node, transform.transforms))
            return lambda: _copy_with(transform, [begin() for begin in inner])
        leaf = _Leaf(transform)
        self._leaves.append(leaf)
        return lambda: leaf

    def lines(self) -> list[str]:
        """Return where the transforms run."""
        names: dict[bool, list[str]] = {True: [], False: []}
        for leaf in self._leaves:
            names[leaf.is_recorded].append(leaf.name)
        where = {True: "in the core, with albumentations' draws", False: "in Python, on the pixels"}
        return [f"{where[one]}: {', '.join(found)}" for one, found in names.items() if found]


_GROUPS = ("Compose", "Sequential", "OneOf", "SomeOf", "OneOrOther", "RandomOrder")


def _copy_with(group: Any, transforms: list[Any]) -> Any:
    """Return a group of other transforms, with the same generators."""
    made = object.__new__(type(group))
    vars(made).update(vars(group))
    made.transforms = transforms
    return made


class _Leaf:
    """A transform whose work on images is recorded if it is known."""

    def __init__(self, transform: Any) -> None:
        self._transform = transform
        self.name = name = type(transform).__name__
        plain = known.is_own_class(transform) and not known.holds_functions(transform)
        plain = plain and all(_is_of_base(transform, one) for one in _CALLED)
        self._record = _RECORDED.get(name, _not_recorded) if plain else None
        scale = known.scale_of(transform) if plain and name in ("Normalize", "ToFloat") else None
        self._form = None if scale is None else Recipe(mean=scale[0], std=scale[1])

    @property  # type: ignore[misc]
    def __class__(self) -> Any:
        """The transform's own, whose name a pipeline may save with what was drawn."""
        return type(self._transform)

    @property
    def is_recorded(self) -> bool:
        """Whether the core does it, with most options."""
        return self._form is not None or self._record not in (None, _not_recorded)

    @property
    def params(self) -> Any:
        """What was drawn last, for those who save it."""
        return self._transform.params

    def __call__(self, *, force_apply: bool = False, **data: Any) -> Any:
        """Do what a transform of albumentations does when it is called."""
        transform, record = self._transform, self._record
        images = [name for name, one in data.items() if type(one) is LazyArray]
        missing = set(getattr(transform, "targets_as_params", ())) - data.keys()
        if record is None or missing or not images:
            arrays = {name: with_arrays(one) for name, one in data.items()}
            made = transform(force_apply=force_apply, **arrays)
            return made | {
                name: LazyArray.of_pixels(made[name], data[name].name)
                for name in images
                if name in made
            }
        transform.params = {}
        if not transform.should_apply(force_apply=force_apply):
            return data
        drawn = transform.update_transform_params(params=transform.get_params(), data=data)
        drawn.update(transform.get_params_dependent_on_data(params=drawn, data=data))
        transform.params = drawn
        rest = {name: one for name, one in data.items() if name not in images}
        made = transform.apply_with_params(drawn, **rest)
        return {
            name: made[name] if name in made else self._image(name, data, drawn) for name in data
        }

    def _image(self, name: str, data: Mapping[str, Any], drawn: Mapping[str, Any]) -> Any:
        """Return a recorded image after the transform."""
        image, function = data[name], self._transform._key2func.get(name)
        if function is None:
            return image
        recorded = None
        if self._form is not None:
            recorded = image.stored_as(self._form)
        elif self._record is not None:
            try:
                recorded = self._record(self._transform, drawn, image)
            except (
                Unsupported,
                AttributeError,
                ArithmeticError,
                LookupError,
                TypeError,
                ValueError,
            ):
                recorded = None
        if recorded is not None:
            return recorded
        made = function(image.made(), **drawn)
        made = np.ascontiguousarray(made) if isinstance(made, np.ndarray) else made
        return LazyArray.of_pixels(made, image.name)


_CALLED = ("__call__", "apply_with_params")


def _is_of_base(transform: Any, name: str) -> bool:
    """Return whether a method of a transform is that of albumentations' base class."""
    owner = next((one for one in type(transform).__mro__ if name in vars(one)), object)
    return owner.__name__ == "BasicTransform"


# ---- what is recorded ----

_Record: TypeAlias = Callable[[Any, Mapping[str, Any], LazyArray], Any]


def _not_recorded(*_: Any) -> None:
    return None


def _operation(kind: Any, *value: float, **how: Any) -> Operation:
    return Operation(kind, tuple(map(float, value)), library="opencv", **how)


def _always(*operations: Operation) -> _Record:
    return lambda _transform, _drawn, image: image.then(*operations)


def _resized(transform: Any, image: LazyArray | None, height: int, width: int) -> LazyArray | None:
    if image is None or (height, width) == image.shape[:2]:
        return image
    area = getattr(transform, "area_for_downscale", None) in ("image", "image_mask")
    shrinks = height < image.shape[0] or width < image.shape[1]
    filter_ = "area" if area and shrinks else known.RESIZES[transform.interpolation]
    return image.then(_operation("resize", width, height, filter=filter_))


def _resize(transform: Any, _: Any, image: LazyArray) -> LazyArray | None:
    return _resized(transform, image, transform.height, transform.width)


def _max_size(transform: Any, drawn: Mapping[str, Any], image: LazyArray) -> LazyArray | None:
    height, width = (max(1, round(side * drawn["scale"])) for side in image.shape[:2])
    return _resized(transform, image, height, width)


def _random_scale(transform: Any, drawn: Mapping[str, Any], image: LazyArray) -> LazyArray | None:
    height, width = (int(side * drawn["scale"]) for side in image.shape[:2])
    return _resized(transform, image, height, width)


def _padded(
    transform: Any, image: LazyArray | None, sides: Mapping[str, Any] | None
) -> LazyArray | None:
    """Return an image with the borders that are in `sides`, if there are any."""
    if image is None or sides is None:
        return image
    borders = [sides[f"pad_{side}"] for side in ("left", "top", "right", "bottom")]
    how = {"filter": known.BORDERS[transform.border_mode], "fill": known.levels(transform.fill)}
    return image.then(_operation("pad", *borders, **how))


def _cropped(image: LazyArray | None, corners: Sequence[Any]) -> LazyArray | None:
    left, top, right, bottom = map(int, corners)
    return None if image is None else image.then(_crop(left, top, right - left, bottom - top))


def _crop(*box: int) -> Operation:
    return Operation("crop", tuple(map(float, box)), "constant")


def _crop_and_pad(transform: Any, drawn: Mapping[str, Any], image: LazyArray) -> LazyArray | None:
    padded = _padded(transform, image, drawn.get("pad_params"))
    return _cropped(padded, drawn["crop_coords"])


def _sized_crop(transform: Any, drawn: Mapping[str, Any], image: LazyArray) -> LazyArray | None:
    return _resized(transform, _cropped(image, drawn["crop_coords"]), *transform.size)


def _turned(quarters: int, *then: Any) -> list[Operation]:
    turned = [Operation("rotate", (90.0 * quarters, 1.0))] if quarters else []
    return [*turned, *map(Operation, then)]


_SYMMETRIES: Mapping[str, list[Operation]] = {
    "e": [], "r90": _turned(1), "r180": _turned(2), "r270": _turned(3),
    "v": _turned(0, "turn_over"), "h": _turned(0, "mirror"),
    "t": _turned(1, "turn_over"), "hvt": _turned(1, "mirror"),
}  # fmt: skip


def _warped(transform: Any, drawn: Mapping[str, Any], image: LazyArray) -> LazyArray | None:
    """Return an image that is moved by a matrix, which maps it to the result."""
    (a, b, c), (d, e, f) = ([float(one) for one in row] for row in drawn["matrix"][:2])
    size, other = image.shape[:2], drawn.get("output_shape")
    area = a * e - b * d
    if not (area and math.isfinite(area)) or (other is not None and tuple(other) != size):
        return None
    if (a, b, c, d, e, f) == (1.0, 0.0, 0.0, 0.0, 1.0, 0.0):
        return image
    # The core maps the result to the image, and pixels have their centres at halves.
    a, b, d, e = e / area, -b / area, -d / area, a / area
    c, f = -(a * c + b * f), -(d * c + e * f)
    matrix = (a, b, c + (1 - a - b) / 2, d, e, f + (1 - d - e) / 2)
    border = known.PADDINGS.index(known.BORDERS[transform.border_mode])
    how = {"filter": known.WARPS[transform.interpolation], "fill": known.levels(transform.fill)}
    return image.then(_operation("warp", *matrix, 0.0, border, **how))


def _rotated(transform: Any, drawn: Mapping[str, Any], image: LazyArray) -> LazyArray | None:
    warped = _warped(transform, drawn, image)
    corners = [drawn[one] for one in ("x_min", "y_min", "x_max", "y_max")]
    return _cropped(warped, corners) if transform.crop_border else warped


def _with_holes(transform: Any, drawn: Mapping[str, Any], image: LazyArray) -> LazyArray | None:
    fill, holes = known.levels(transform.fill), np.asarray(drawn["holes"]).tolist()
    boxes = [(left, top, right - left, bottom - top) for left, top, right, bottom in holes]
    return image.then(*(_operation("fill", *box, fill=fill) for box in boxes))


def _jittered(_: Any, drawn: Mapping[str, Any], image: LazyArray) -> LazyArray | None:
    parts = (
        _operation("levels", drawn["brightness"]),
        _operation("contrast", drawn["contrast"]),
        _operation("saturation", drawn["saturation"]),
        _operation("shift_colours", 180 * drawn["hue"]),
    )
    return image.then(*(parts[at] for at in drawn["order"]))


def _grey(transform: Any, _: Any, image: LazyArray) -> LazyArray | None:
    usual = transform.num_output_channels == 3 and transform.method == "weighted_average"
    return image.then(_operation("grey")) if usual else None


def _equalize(transform: Any, _: Any, image: LazyArray) -> LazyArray | None:
    usual = transform.mode == "cv" and transform.by_channels and transform.mask is None
    return image.then(_operation("equalize")) if usual else None


def _posterize(_: Any, drawn: Mapping[str, Any], image: LazyArray) -> LazyArray | None:
    bits = drawn["num_bits"]
    return image.then(_operation("posterize", bits)) if isinstance(bits, int) else None


def _clahe(transform: Any, drawn: Mapping[str, Any], image: LazyArray) -> LazyArray | None:
    columns, rows = transform.tile_grid_size
    few = max(columns, rows) <= known.MOST_TILES
    return image.then(_operation("clahe", drawn["clip_limit"], columns, rows)) if few else None


def _dropped(transform: Any, drawn: Mapping[str, Any], image: LazyArray) -> LazyArray | None:
    dropped, fill = drawn["channels_to_drop"], known.levels(transform.fill)[0]
    factors = [float(channel not in dropped) for channel in range(3)]
    summands = [float(fill) if channel in dropped else 0.0 for channel in range(3)]
    return image.then(_operation("channels", *factors, *summands))


def _of(kind: Any, *names: str, scale: float = 1.0) -> _Record:
    """Return what records an operation of drawn numbers."""

    def record(_: Any, drawn: Mapping[str, Any], image: LazyArray) -> LazyArray | None:
        return image.then(_operation(kind, *(scale * drawn[name] for name in names)))

    return record


def _square(kind: Any, most: int, *value: float) -> _Record:
    """Return what records an operation on squares of a drawn size."""

    def record(_: Any, drawn: Mapping[str, Any], image: LazyArray) -> LazyArray | None:
        side = int(drawn["kernel"])
        return image.then(_operation(kind, side, *value)) if 3 <= side <= most else None

    return record


_RECORDED: Mapping[str, _Record] = {
    **dict.fromkeys(("LongestMaxSize", "SmallestMaxSize"), _max_size),
    **dict.fromkeys(("RandomResizedCrop", "RandomSizedCrop"), _sized_crop),
    **dict.fromkeys(("Affine", "SafeRotate", "ShiftScaleRotate"), _warped),
    **dict.fromkeys(("CoarseDropout", "GridDropout"), _with_holes),
    **dict.fromkeys(("CenterCrop", "Crop", "RandomCrop"), _crop_and_pad),
    **dict.fromkeys(("BBoxSafeRandomCrop", "RandomCropFromBorders"), _crop_and_pad),
    **dict.fromkeys(
        ("D4", "SquareSymmetry"),
        lambda _, drawn, image: image.then(*_SYMMETRIES[drawn["group_element"]]),
    ),
    "Blur": _square("mean_blur", known.LARGEST_SQUARE, 0.0, 0.0, 0.0, 0.0, 1.0),
    "CLAHE": _clahe,
    "ChannelDropout": _dropped,
    "ChannelShuffle": lambda _, drawn, image: image.then(
        Operation("permute", tuple(map(float, drawn["channels_shuffled"])))
    ),
    "ColorJitter": _jittered,
    "Equalize": _equalize,
    "HorizontalFlip": _always(Operation("mirror")),
    "HueSaturationValue": _of("shift_colours", "hue_shift", "sat_shift", "val_shift"),
    "InvertImg": _always(Operation("invert")),
    "MedianBlur": _square("median", known.LARGEST_MEDIAN),
    "NoOp": _always(),
    "Normalize": _not_recorded,
    "Pad": lambda transform, drawn, image: _padded(transform, image, drawn),
    "PadIfNeeded": lambda transform, drawn, image: _padded(transform, image, drawn),
    "Posterize": _posterize,
    "RandomBrightnessContrast": _of("levels", "alpha", "beta"),
    "RandomGamma": _of("gamma", "gamma"),
    "RandomRotate90": lambda _, drawn, image: image.then(*_turned(drawn["factor"])),
    "RandomScale": _random_scale,
    "RandomSizedBBoxSafeCrop": lambda transform, drawn, image: _resized(
        transform, _cropped(image, drawn["crop_coords"]), transform.height, transform.width
    ),
    "Resize": _resize,
    "Rotate": _rotated,
    "Solarize": _of("solarize", "threshold", scale=255.0),
    "ToFloat": _not_recorded,
    "ToGray": _grey,
    "ToTensorV2": lambda _transform, _drawn, image: image.tensor(),
    "Transpose": _always(*_turned(1, "turn_over")),
    "VerticalFlip": _always(Operation("turn_over")),
}
"""By class, what becomes of a recorded image; None where the core does not do it."""
