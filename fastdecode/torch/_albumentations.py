"""albumentations' transforms of an image as programs of the core; albumentations is not imported.

A Compose that is given as a transform becomes an `OfImage`, which hands it the image by its name;
`steps_of` returns its steps, each as another one. `program_of` has the table.

Notes
-----
Written from albumentations 2.0.8 and OpenCV 5.0. The results are at most 1 level away from
OpenCV's (of CLAHE 99.99 % are), and the draws have albumentations' distributions.
"""

from __future__ import annotations

import copy
import itertools
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
from PIL import Image as PillowImage

from fastdecode.native._augment import (
    NOTHING,
    Draw,
    Erasure,
    Filter,
    Kind,
    Noise,
    Operation,
    Padding,
    Program,
    Resampling,
    Step,
    central_crop,
    do,
    fitted,
    group,
    padded_to,
    random_box,
)
from fastdecode.torch._programs import Size, Unsupported, as_range, made_by, size_after
from fastdecode.torch._unchanged import is_unchanged

_PACKAGE = "albumentations"
_LEVELS = 255.0
_LARGEST_KERNEL = 255  # of blur.c
LARGEST_SQUARE, LARGEST_MEDIAN, MOST_TILES, _LARGEST_SIGMA = 63, 15, 64, 500
_MOST_CASES = 64
_PIPELINES = ("Compose", "Sequential")


class OfImage:
    """A transform of albumentations as a function of one image."""

    def __init__(self, transform: Any) -> None:
        self.transform = transform
        self._copies = threading.local()  # a transform draws from generators of its own

    def __call__(self, image: Any, seed: int | None = None) -> Any:
        """Return the transformed image; from a Pillow image it makes an array.

        A tensor stays one, which most transforms refuse: its rows are not where theirs are. With a
        seed, a copy of the transform draws from it, which is this thread's own.
        """
        given = np.asarray(image) if isinstance(image, PillowImage.Image) else image
        transform = self.transform if seed is None else self._seeded(seed)
        return transform(image=given)["image"]

    def seed(self, seed: int) -> None:
        """Seed the transform itself, in a process in which nothing else draws from it."""
        if hasattr(self.transform, "set_random_seed"):  # not before albumentations 2
            self.transform.set_random_seed(seed)

    def _seeded(self, seed: int) -> Any:
        if not hasattr(self._copies, "transform"):
            self._copies.transform = copy.deepcopy(self.transform)
        self._copies.transform.set_random_seed(seed)
        return self._copies.transform

    @property
    def can_be_seeded(self) -> bool:
        """Whether albumentations alone draws, and calls no function of the user's."""
        return is_its_own(self.transform)

    def __reduce__(self) -> tuple[Any, ...]:
        return OfImage, (self.transform,)

    def __repr__(self) -> str:
        return repr(self.transform)


def is_of_albumentations(transform: Any) -> bool:
    """Return whether a transform is from albumentations: it takes ``image=`` and returns a dict."""
    return type(transform).__module__.partition(".")[0] == _PACKAGE


def as_transform(transform: Any) -> Any:
    """Return what albumentations calls by name as a function, and anything else as it is.

    A processor of transformers is refused: it takes batches, and returns a dictionary.
    """
    names = {(kind.__module__.split(".")[0], kind.__name__) for kind in type(transform).__mro__}
    if ("transformers", "ImageProcessingMixin") in names:
        raise TypeError(
            f"{type(transform).__name__} is no transform of one image: call its like from "
            "fastdecode.transformers.accelerated in a function of your own, such as "
            '`lambda image: processor(image, return_tensors="pt")["pixel_values"][0]`'
        )
    return OfImage(transform) if is_of_albumentations(transform) else transform


def is_known(transform: Any) -> bool:
    """Return whether an object is albumentations' own, and makes nothing but an image."""
    return is_own_class(transform) and not vars(transform).get("processors")


def is_own_class(transform: Any) -> bool:
    """Return whether an object is albumentations' own, and does what its class does."""
    if not is_of_albumentations(transform):
        return False
    own = vars(transform)
    replaced = any(callable(getattr(type(transform), name, None)) for name in own)
    # Those before 2.0 have the first one; the others are of pipelines that are replayed.
    special = ("always_apply", "replay_mode", "deterministic")
    changed = replaced or not is_unchanged(transform)
    return not (changed or any(own.get(name) for name in special))


def holds_functions(transform: Any) -> bool:
    """Return whether a transform was given a function of the user's."""
    return any(map(callable, vars(transform).values()))


def is_its_own(transform: Any) -> bool:
    """Return whether a transform, and all that it holds, is albumentations' own code."""
    held = vars(transform).get("transforms") or ()
    own = is_known(transform) and not holds_functions(transform)
    return own and all(map(is_its_own, held))


def steps_of(transform: OfImage) -> list[OfImage]:
    """Return the transforms that are always called, one after another."""
    return list(map(OfImage, _flat(transform.transform)))


def _flat(transform: Any) -> Iterator[Any]:
    """Yield the transforms that are always called, one after another."""
    if type(transform).__name__ in _PIPELINES and is_known(transform) and transform.p >= 1:
        for one in transform.transforms:
            yield from _flat(one)
    else:
        yield transform


def program_of(transform: Any, size: Size) -> Program:
    """Return the program of a transform of bytes, or raise `Unsupported`."""
    return _program(transform, size)


def float_program_of(transform: Any, size: Size) -> Program:
    """Do the same for floats that are bytes in the core: it moves pixels, and fills nothing."""
    if type(transform).__name__ not in _MOVES or getattr(transform, "pad_if_needed", False):
        raise Unsupported(f"{type(transform).__name__} is not done with floats in the core")
    return _program(transform, size)


def scale_of(transform: Any) -> tuple[Sequence[float], Sequence[float]] | None:
    """Return the mean and the deviation, on a scale of 0 to 1, with which bytes become floats.

    None of a transform that does not always do that, or in another way.
    """
    try:
        mean, std = _scale(transform)
    except (AttributeError, ArithmeticError, TypeError, ValueError):
        return None  # it holds whatever it was given; as written, it raises an error of its own
    known = len(mean) in (1, 3) and len(std) in (1, 3) and np.isfinite([*mean, *std]).all()
    return (mean * (3 // len(mean)), std * (3 // len(std))) if known and 0 not in std else None


def _scale(transform: Any) -> tuple[list[float], list[float]]:
    """Return the numbers of `scale_of` as they are given; none of another transform."""
    name = type(transform).__name__
    if name not in ("Normalize", "ToFloat") or transform.p < 1:
        return [], []
    if name == "ToFloat":
        most = _LEVELS if transform.max_value is None else float(transform.max_value)
        return [0.0], [most / _LEVELS]
    if transform.normalization != "standard":
        return [], []
    scale = float(transform.max_pixel_value) / _LEVELS
    given = (transform.mean, transform.std)
    mean, std = (list(one) if isinstance(one, (list, tuple)) else [one] for one in given)
    return [scale * float(value) for value in mean], [scale * float(value) for value in std]


def _program(transform: Any, size: Size, *, certain: bool = False) -> Program:
    name = type(transform).__name__
    if name not in _MAKERS or not is_known(transform):
        raise Unsupported(f"{name} is not done in the core")
    made = made_by(_MAKERS[name], transform, size)
    always = name == "OneOrOther" or (certain and name not in _OF_SEVERAL)
    probability = 1.0 if always else float(transform.p)
    return made if probability >= 1 else group("sequence", [made], probability=probability)


# ---- parts ----

_Maker: TypeAlias = Callable[[Any, Size], Program]
RESIZES: Mapping[int, Resampling] = {0: "nearest", 1: "linear", 3: "area", 5: "linear"}
WARPS: Mapping[int, Filter] = {0: "nearest", 1: "bilinear", 3: "bilinear"}
BORDERS: Mapping[int, Padding] = {0: "constant", 1: "edge", 2: "symmetric", 4: "reflect"}
"""By OpenCV's numbers, which its INTER_ and BORDER_ names have."""


def _operation(kind: Kind, *value: float, **how: Any) -> Operation:
    return Operation(kind, value, library="opencv", **how)


def levels(fill: Any) -> tuple[int, int, int]:
    """Return the three levels of a `fill`."""
    levels = list(fill) if isinstance(fill, (list, tuple)) else [fill] * 3
    if len(levels) != 3 or not all(0 <= one <= _LEVELS and one == int(one) for one in levels):
        raise Unsupported(f"fill={fill!r} is not three levels")
    red, green, blue = map(int, levels)
    return red, green, blue


def _drawn(at: int, limits: Sequence[float], scale: float = 1.0, **how: Any) -> Draw:
    low, high = (scale * float(limit) for limit in limits)
    return Draw(at, low, high - low, **how)


def _whole_numbers(limits: Sequence[float]) -> range:
    low, high = limits
    return range(int(low), int(high) + 1)


# ---- sizes ----


def _resizing(transform: Any) -> tuple[Resampling, float]:
    """Return the filter, and 1 if that becomes INTER_AREA where the image shrinks."""
    return RESIZES[transform.interpolation], float(transform.area_for_downscale is not None)


def _resize_to(transform: Any, height: int, width: int) -> Program:
    filter_, area = _resizing(transform)
    return do(_operation("resize", width, height, area, filter=filter_))


def _resize(transform: Any, _: Size) -> Program:
    return _resize_to(transform, transform.height, transform.width)


def _max_size(*, covers: bool) -> _Maker:
    def make(transform: Any, _: Size) -> Program:
        filter_, area = _resizing(transform)
        sides = transform.max_size
        if sides is None:
            height, width = transform.max_size_hw
            return fitted((height or 0, width or 0), filter_, covers=covers, area=area)
        several = sides if isinstance(sides, (list, tuple)) else [sides]
        fits = [fitted((one, one), filter_, covers=covers, area=area) for one in several]
        return fits[0] if len(fits) == 1 else group("choice", fits)

    return make


def _random_resized_crop(transform: Any, _: Size) -> Program:
    scale, ratio = as_range(transform.scale), as_range(transform.ratio)
    if scale is None or ratio is None:
        raise Unsupported("its scale or ratio is not known")
    return group("sequence", [random_box(scale, ratio), _resize_to(transform, *transform.size)])


def _random_scale(transform: Any, _: Size) -> Program:
    filter_, area = _resizing(transform)
    low, high = (1.0 + float(limit) for limit in transform.scale_limit)
    to = Operation("resize", (0.0, 0.0, area), filter_, library="opencv")
    by = Erasure((low, high), (1.0, 1.0))
    return Program([Step("scale_by", operation=to, erasure=by, picks=0)])


def _random_sized_crop(transform: Any, _: Size) -> Program:
    heights = tuple(map(int, transform.min_max_height))
    crop = Operation("crop", (*heights, float(transform.w2h_ratio)), "constant")
    cropped = Program([Step("random_crop", operation=crop, picks=3)])
    return group("sequence", [cropped, _resize_to(transform, *transform.size)])


_POSITIONS: Mapping[str, tuple[float, float]] = {
    "center": (0.5, 0.5), "top_left": (0.0, 0.0), "top_right": (0.0, 1.0),
    "bottom_left": (1.0, 0.0), "bottom_right": (1.0, 1.0), "random": (-1.0, -1.0),
}  # fmt: skip


def _pad_if_needed(transform: Any, _: Size) -> Program:
    return padded_to(
        (transform.min_height or 0, transform.min_width or 0),
        BORDERS[transform.border_mode],
        levels(transform.fill),
        multiples=(transform.pad_height_divisor or 0, transform.pad_width_divisor or 0),
        before=_POSITIONS[transform.position],
    )


def _pad(transform: Any, _: Size) -> Program:
    given = transform.padding
    sides = list(given) if isinstance(given, (list, tuple)) else [given]
    left, top, right, bottom = (sides * 4)[:4]
    how = {"filter": BORDERS[transform.border_mode], "fill": levels(transform.fill)}
    return do(_operation("pad", left, top, right, bottom, **how))


def _padded_crop(transform: Any, crop: Program) -> Program:
    """Return a crop, after the padding that it may need."""
    if not transform.pad_if_needed:
        return crop
    how = BORDERS[transform.border_mode], levels(transform.fill)
    size, before = (transform.height, transform.width), _POSITIONS[transform.pad_position]
    return group("sequence", [padded_to(size, *how, before=before), crop])


def _center_crop(transform: Any, _: Size) -> Program:
    crop = central_crop((transform.height, transform.width), rounds_down=True)
    return _padded_crop(transform, crop)


def _random_crop(transform: Any, _: Size) -> Program:
    crop = Operation("crop", (transform.width, transform.height), "constant")
    return _padded_crop(transform, Program([Step("random_crop", operation=crop, picks=0)]))


# ---- turning and warping ----


def _turned(quarters: int) -> Program:
    return do(Operation("rotate", (90.0 * quarters, 1.0)))


_TURNS = [NOTHING, *map(_turned, (1, 2, 3))]
_TRANSPOSED = group("sequence", [_turned(1), do(Operation("turn_over"))])
_ACROSS = group("sequence", [_turned(1), do(Operation("mirror"))])
_FLIPS = [do(Operation("mirror")), do(Operation("turn_over"))]
_SYMMETRIES = group("choice", [*_TURNS, *_FLIPS, _TRANSPOSED, _ACROSS])


def _always(program: Program) -> _Maker:
    return lambda _transform, _size: program


def _warp(transform: Any, *draws: Draw) -> Program:
    """Return an affine transformation of which some numbers are drawn."""
    border = float(list(PADDINGS).index(BORDERS[transform.border_mode]))
    how = {"filter": WARPS[transform.interpolation], "fill": levels(transform.fill)}
    return do(_operation("affine", 0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 1.0, border, **how), *draws)


PADDINGS: tuple[Padding, ...] = ("constant", "edge", "reflect", "symmetric")


def _rotate(transform: Any, _: Size) -> Program:
    if transform.crop_border:
        raise Unsupported("cropping the border is not done in the core")
    return _warp(transform, _drawn(0, transform.limit))


def _affine(transform: Any, _: Size) -> Program:
    scales, shears = transform.scale, transform.shear
    if transform.fit_output or transform.balanced_scale:
        raise Unsupported("fit_output and balanced_scale are not done in the core")
    draws = [_drawn(0, transform.rotate)]
    for at, axis, unit in ((1, "x", "width"), (2, "y", "height")):
        if transform.translate_px is not None:
            pixels = _whole_numbers(transform.translate_px[axis])
            draws.append(Draw(at, pixels.start, len(pixels), is_whole=True))
        elif transform.translate_percent is not None:
            draws.append(_drawn(at, transform.translate_percent[axis], is_cut=True, of=unit))
    if min(*scales["x"], *scales["y"]) <= 0:
        raise Unsupported("a scale of 0 is not done in the core")
    draws.append(_drawn(3, scales["x"], copied=6 if transform.keep_ratio else -1))
    draws += [] if transform.keep_ratio else [_drawn(6, scales["y"])]
    draws += [_drawn(at, shears[axis], -1.0) for at, axis in ((4, "x"), (5, "y"))]
    return _warp(transform, *draws)


def _bent(kind: Kind, transform: Any, *value: float, draws: Sequence[Draw] = ()) -> Program:
    border = float(list(PADDINGS).index(BORDERS[transform.border_mode]))
    numbers = (*value, *[0.0] * (7 - len(value)), border)
    return do(_operation(kind, *numbers, **_first_filled(transform)), *draws)


def _first_filled(transform: Any) -> dict[str, Any]:
    """Return how a transform interpolates and fills: OpenCV takes one number for red alone."""
    fill = transform.fill
    given = fill if isinstance(fill, (list, tuple)) else [fill, 0, 0]
    return {"filter": WARPS[transform.interpolation], "fill": levels(given)}


def _optical(transform: Any, _: Size) -> Program:
    is_fisheye = transform.mode == "fisheye"
    return _bent("lens", transform, 0.0, is_fisheye, draws=[_drawn(0, transform.distort_limit)])


def _grid(transform: Any, size: Size) -> Program:
    steps, (low, high) = int(transform.num_steps), transform.distort_limit
    if not 1 <= steps <= MOST_TILES or steps > min(size or (steps,)):
        raise Unsupported("such a grid is not done in the core")
    return _bent("grid", transform, steps, low, high - low, transform.normalized)


def _elastic(transform: Any, _: Size) -> Program:
    sigma = float(transform.sigma)
    if not 0 < sigma <= _LARGEST_SIGMA:
        raise Unsupported("so small or large a blur is not done in the core")
    reach = 8 if transform.approximate else (round(8 * sigma + 1) | 1) // 2
    uniform = transform.noise_distribution == "uniform"
    numbers = (transform.alpha, sigma, transform.same_dxdy, uniform, reach)
    return _bent("elastic", transform, *map(float, numbers))


def _perspective(transform: Any, _: Size) -> Program:
    if transform.fit_output or not transform.keep_size or transform.border_mode != 0:
        raise Unsupported("another size, or border, is not done in the core")
    low, high = map(float, transform.scale)
    operation = _operation("perspective", **_first_filled(transform))
    change = Step("perspective_change", operation=operation)
    return Program([change._replace(erasure=Erasure((low, high), (1.0, 1.0)))])


# ---- colours ----


def _drawn_once(kind: Kind, limits: str, scale: float = 1.0, **how: Any) -> _Maker:
    """Return the maker of an operation of which one number is drawn."""

    def make(transform: Any, _: Size) -> Program:
        return do(_operation(kind), _drawn(0, getattr(transform, limits), scale, **how))

    return make


def _posterize(transform: Any, _: Size) -> Program:
    low, high = transform.num_bits
    if isinstance(low, (list, tuple)):
        raise Unsupported("other bits for each channel are not done in the core")
    return do(_operation("posterize"), Draw(0, low, high - low + 1, is_whole=True))


def _rgb_shift(transform: Any, _: Size) -> Program:
    draws = [
        _drawn(3 + at, one, _LEVELS) for at, one in enumerate(transform.noise_params["ranges"])
    ]
    return do(_operation("channels", 1.0, 1.0, 1.0), *draws)


def _multiplied(transform: Any, _: Size) -> Program:
    if transform.elementwise:
        raise Unsupported("other factors for each pixel are not done in the core")
    if not transform.per_channel:
        return _levels(transform.multiplier)
    return do(_operation("channels"), *(_drawn(at, transform.multiplier) for at in range(3)))


def _channel_dropout(transform: Any, _: Size) -> Program:
    low, high = transform.channel_drop_range
    if high >= 3:
        raise Unsupported("albumentations drops no more than two channels")
    fill = float(levels(transform.fill)[0])

    def without(dropped: Sequence[int]) -> Program:
        factors, summands = [0.0 if c in dropped else 1.0 for c in range(3)], [0.0] * 3
        for channel in dropped:
            summands[channel] = fill
        return do(_operation("channels", *factors, *summands))

    counts = (itertools.combinations(range(3), count) for count in range(low, high + 1))
    return group("choice", [group("choice", list(map(without, some))) for some in counts])


def _convolved(strength: str, which: float) -> _Maker:
    """Return the maker of Sharpen (0) or Emboss (1)."""

    def make(transform: Any, _: Size) -> Program:
        if getattr(transform, "method", "kernel") != "kernel":
            raise Unsupported("sharpening with a Gaussian is not done in the core")
        draws = _drawn(0, transform.alpha), _drawn(1, getattr(transform, strength))
        return do(_operation("convolve", 0.0, 0.0, which), *draws)

    return make


def _equalize(transform: Any, _: Size) -> Program:
    plain = transform.mode == "cv" and transform.by_channels and transform.mask is None
    if not plain:
        raise Unsupported("to equalize in another way is not done in the core")
    return do(_operation("equalize"))


def _auto_contrast(transform: Any, _: Size) -> Program:
    if transform.cutoff or transform.ignore is not None or transform.method != "cdf":
        raise Unsupported("other ways of AutoContrast are not done in the core")
    return do(_operation("equalize", 1.0))


def _downscale(transform: Any, _: Size) -> Program:
    if any(transform.interpolation_pair.values()):
        raise Unsupported("interpolation is not done in the core")
    return do(_operation("downscale"), _drawn(0, transform.scale_range))


def _levels(factor: Sequence[float]) -> Program:
    return do(_operation("levels", 1.0), _drawn(0, factor))


def _brightness_contrast(transform: Any, _: Size) -> Program:
    if transform.ensure_safe_range:
        raise Unsupported("ensure_safe_range is not done in the core")
    low, high = transform.contrast_limit
    at, scale = (1, _LEVELS) if transform.brightness_by_max else (2, 1.0)
    draws = _drawn(0, (1 + low, 1 + high)), _drawn(at, transform.brightness_limit, scale)
    return do(_operation("levels", 1.0), *draws)


def _hue_saturation(transform: Any, _: Size) -> Program:
    limits = transform.hue_shift_limit, transform.sat_shift_limit, transform.val_shift_limit
    return do(_operation("shift_colours"), *map(_drawn, range(3), limits))


def _jitter(transform: Any, _: Size) -> Program:
    half_circle = 180.0
    parts = [
        _levels(transform.brightness),
        do(_operation("contrast", 1.0), _drawn(0, transform.contrast)),
        do(_operation("saturation", 1.0), _drawn(0, transform.saturation)),
        do(_operation("shift_colours"), _drawn(0, transform.hue, half_circle)),
    ]
    return group("shuffle", parts)


def _grey(transform: Any, _: Size) -> Program:
    if transform.num_output_channels != 3 or transform.method != "weighted_average":
        raise Unsupported("another way to grey, or number of channels, is not done in the core")
    return do(_operation("grey"))


def _blur(transform: Any, size: Size) -> Program:
    low, high = transform.sigma_limit
    sides = [side + (side > 0 and side % 2 == 0) for side in _whole_numbers(transform.blur_limit)]
    largest = max(*sides, int(high * 3.5) * 2 + 1 if 0 in sides else 1)
    if not low > 0 or largest > _LARGEST_KERNEL:
        raise Unsupported("so small or large a blur is not done in the core")
    if size is not None and largest // 2 >= min(size):
        raise Unsupported("the kernel of the blur is larger than the image")
    draw = _drawn(1, (low, high), copied=2)
    return group("choice", [do(_operation("blur", side, low, low), draw) for side in sides])


def _square(
    kind: Kind, most: int, transform: Any, *value: float, draws: Sequence[Draw] = ()
) -> Program:
    """Return an operation on the neighbours in squares of any odd size."""
    low, high = (max(3, int(one) + (int(one) % 2 == 0)) for one in transform.blur_limit)
    sides = range(low, max(low, high) + 1, 2)
    if sides[-1] > most:
        raise Unsupported("so large a blur is not done in the core")
    return group("choice", [do(_operation(kind, side, *value), *draws) for side in sides])


def _box_blur(transform: Any, _: Size) -> Program:
    return _square("mean_blur", LARGEST_SQUARE, transform, 0.0, 0.0, 0.0, 0.0, 1.0)


def _median_blur(transform: Any, _: Size) -> Program:
    return _square("median", LARGEST_MEDIAN, transform)


def _motion_blur(transform: Any, _: Size) -> Program:
    draws = [_drawn(1, transform.angle_range), _drawn(2, transform.direction_range)]
    draws += [_drawn(at, (-1.0, 1.0)) for at in (3, 4) if transform.allow_shifted]
    return _square("mean_blur", LARGEST_SQUARE, transform, draws=draws)


def _clahe(transform: Any, _: Size) -> Program:
    columns, rows = transform.tile_grid_size
    if not 1 <= min(columns, rows) <= max(columns, rows) <= MOST_TILES:
        raise Unsupported("so many tiles are not done in the core")
    return do(_operation("clahe", 1.0, columns, rows), _drawn(0, transform.clip_limit))


def _noise(transform: Any, _: Size) -> Program:
    if transform.noise_scale_factor != 1:
        raise Unsupported("coarse noise is not done in the core")
    noise: Noise = "pixel" if transform.per_channel else "channel"
    draws = [_drawn(0, transform.std_range, _LEVELS), _drawn(1, transform.mean_range, _LEVELS)]
    return do(_operation("noise", noise=noise), *draws)


def _dropout(transform: Any, _: Size) -> Program:
    heights, widths = transform.hole_height_range, transform.hole_width_range
    shares, counts = heights[1] < 1, _whole_numbers(transform.num_holes_range)
    limits = [*widths, *heights] if shares else map(int, (*widths, *heights))
    fill = _operation("fill", *map(float, limits), fill=levels(transform.fill))
    hole = Program([Step("hole", operation=fill, picks=shares)])
    return group("choice", [group("sequence", [hole] * count) for count in counts])


# ---- several ----


def _in_turn(transform: Any, size: Size) -> Program:
    made: list[Program] = []
    for one in transform.transforms:
        made.append(_program(one, size))
        size = size_after(made[-1], size)
    return group("sequence", made)


def _one_of(transform: Any, size: Size) -> Program:
    cases = [_program(one, size, certain=True) for one in transform.transforms]
    return group("choice", cases, weights=transform.transforms_ps)


def _one_or_other(transform: Any, size: Size) -> Program:
    """Return the first one or else the other; its probability is that of the first."""
    ends = transform.transforms[0], transform.transforms[-1]
    first, other = (_program(one, size, certain=True) for one in ends)
    p = float(transform.p)
    return group("choice", [first, other], weights=[p, 1 - p])


def _some_of(transform: Any, size: Size) -> Program:
    """Return those that are drawn, in the order in which they are given."""
    cases = [_program(one, size) for one in transform.transforms]
    sets = itertools.combinations_with_replacement if transform.replace else itertools.combinations
    chosen = list(itertools.islice(sets(range(len(cases)), transform.n), _MOST_CASES + 1))
    if len(chosen) > _MOST_CASES or transform.replace:
        raise Unsupported("so many sets of transforms are not done in the core")
    return group("choice", [group("sequence", [cases[at] for at in some]) for some in chosen])


def _random_order(transform: Any, size: Size) -> Program:
    if transform.replace:
        raise Unsupported("to draw one twice is not done in the core")
    cases = [_program(one, size) for one in transform.transforms]
    return group("choice", cases, picks=transform.n)


_MOVES: Mapping[str, _Maker] = {
    "CenterCrop": _center_crop,
    "D4": _always(_SYMMETRIES),
    "HorizontalFlip": _always(_FLIPS[0]),
    "NoOp": _always(NOTHING),
    "RandomCrop": _random_crop,
    "RandomRotate90": _always(group("choice", _TURNS)),
    "RandomScale": _random_scale,
    "RandomSizedCrop": _random_sized_crop,
    "SquareSymmetry": _always(_SYMMETRIES),
    "Transpose": _always(_TRANSPOSED),
    "VerticalFlip": _always(_FLIPS[1]),
}
_OF_SEVERAL: Mapping[str, _Maker] = {"SomeOf": _some_of, "RandomOrder": _random_order}
_MAKERS: Mapping[str, _Maker] = {
    **_MOVES,
    **_OF_SEVERAL,
    "Affine": _affine,
    "AutoContrast": _auto_contrast,
    "Blur": _box_blur,
    "CLAHE": _clahe,
    "ChannelDropout": _channel_dropout,
    "ChannelShuffle": _always(
        group("choice", [do(Operation("permute", o)) for o in itertools.permutations((0.0, 1, 2))])
    ),
    "CoarseDropout": _dropout,
    "ColorJitter": _jitter,
    "Compose": _in_turn,
    "Downscale": _downscale,
    "ElasticTransform": _elastic,
    "Emboss": _convolved("strength", 1.0),
    "Equalize": _equalize,
    "GaussNoise": _noise,
    "GaussianBlur": _blur,
    "GridDistortion": _grid,
    "HueSaturationValue": _hue_saturation,
    "InvertImg": _always(do(Operation("invert"))),
    "LongestMaxSize": _max_size(covers=False),
    "MedianBlur": _median_blur,
    "MotionBlur": _motion_blur,
    "MultiplicativeNoise": _multiplied,
    "OneOf": _one_of,
    "OneOrOther": _one_or_other,
    "OpticalDistortion": _optical,
    "Pad": _pad,
    "PadIfNeeded": _pad_if_needed,
    "Perspective": _perspective,
    "Posterize": _posterize,
    "RGBShift": _rgb_shift,
    "RandomBrightnessContrast": _brightness_contrast,
    "RandomGamma": _drawn_once("gamma", "gamma_limit", 0.01),
    "RandomResizedCrop": _random_resized_crop,
    "Resize": _resize,
    "Rotate": _rotate,
    "Sequential": _in_turn,
    "Sharpen": _convolved("lightness", 0.0),
    "ShiftScaleRotate": _affine,
    "SmallestMaxSize": _max_size(covers=True),
    "Solarize": _drawn_once("solarize", "threshold_range", _LEVELS),
    "ToGray": _grey,
}
"""By class, how a transform becomes a program; its probability is added."""
