"""`DecodeOptions`: how a dataset decodes its images."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, TypedDict, get_args

from fastdecode._arguments import check_options, check_word
from fastdecode._decode.plan import DEFAULT_MAX_PIXELS
from fastdecode.torch.transforms.base import Quality, check_quality
from fastdecode.types import OUTPUTS

if TYPE_CHECKING:
    from fastdecode.types import Mode, Output

OnError: TypeAlias = Literal["raise", "skip", "replace"]
"""What to do about a damaged sample."""

SIZE_OPTIONS = ("reduce", "min_size", "mode")
"""Options with which the caller asks for a size or mode, and so for whole images."""


@dataclass(frozen=True, kw_only=True)
class DecodeOptions:
    """How a dataset decodes its images: the value of its attribute `decode_options`.

    Parameters
    ----------
    reduce : {1, 2, 4, 8}
    min_size : int, (height, width) or None
    mode : {"RGB", "L", "RGBA", "stored"}
    orient : bool
    max_pixels : int or None
    backend : str or None
        All six as for `fastdecode.decode`. If `backend` is None, each process chooses the fastest
        backend when it first decodes.
    output : {"array", "tensor", "pil"} or None
        The form of a decoded image: an ndarray (H, W, C), a tensor (C, H, W) that shares the
        ndarray's memory, or a Pillow image. None means an ndarray from `decode`, and a Pillow image
        where torchvision's datasets use one: in `transformed` and in the samples of a
        `DecodeDataset`. A `transform` gets images in this form, also where its first steps are
        fused. An `EncodedTransform` makes tensors, so with it other forms are refused.
    on_error : {"raise", "skip", "replace"}
        What to do when a file is damaged or missing (`FastDecodeError`, `OSError`). ``"skip"``
        leaves the sample out of its batch. ``"replace"`` puts another sample in its place, the same
        one each time. When data cannot be reached (permission, connection, time-out, server, disk,
        credentials), fastdecode tries again where that helps, and then raises the error whatever
        `on_error` says. It also always raises any other error, which is a mistake in the program.
    fuse : bool
        Whether `fastdecode.torch.fuse` may merge steps of the transform with the decoding.
    quality, headroom
        As for `fastdecode.torch.fuse`.

    Raises
    ------
    TypeError, ValueError
        An option is invalid, or `reduce` and `min_size` are both given.

    Notes
    -----
    The options cannot be changed, only replaced:
    ``dataset.decode_options = dataclasses.replace(dataset.decode_options, reduce=2)``.

    Only a `DecodeDataset` can do what `on_error`, `fuse`, `quality` and `headroom` say. A class
    that has `DecodeMixin` alone refuses them.

    Examples
    --------
    >>> from fastdecode.torch import DecodeDataset, DecodeOptions
    >>> class Small(DecodeDataset):
    ...     decode_options = DecodeOptions(min_size=256, on_error="skip")
    """

    reduce: int = 1
    min_size: int | tuple[int, int] | None = None
    mode: Mode = "RGB"
    orient: bool = False
    max_pixels: int | None = DEFAULT_MAX_PIXELS
    backend: str | None = None
    output: Output | None = None
    on_error: OnError = "raise"
    fuse: bool = True
    quality: Quality = "exact"
    headroom: float = 1.0

    def __post_init__(self) -> None:
        check_options(
            self.mode,
            self.reduce,
            self.min_size,
            max_pixels=self.max_pixels,
            backend=self.backend,
            orient=self.orient,
            fuse=self.fuse,
        )
        if self.output is not None:
            check_word("output", self.output, OUTPUTS)
        check_word("on_error", self.on_error, get_args(OnError))
        check_quality(self.quality, self.headroom)

    def for_transform(self) -> dict[str, Any]:
        """Return those options that an `EncodedTransform` is called with."""
        options: dict[str, Any] = {"backend": self.backend, "orient": self.orient}
        if self.max_pixels != DEFAULT_MAX_PIXELS:  # a transform of the user's may not know it
            options["max_pixels"] = self.max_pixels
        return options

    def describe(self, *names: str) -> str:
        """Return those of the named options that differ from their defaults, as arguments."""
        defaults = {field.name: field.default for field in fields(self)}
        values = {name: getattr(self, name) for name in names}
        return ", ".join(
            f"{name}={value!r}" for name, value in values.items() if value != defaults[name]
        )


class DatasetOptions(TypedDict, total=False):
    """The fields of `DecodeOptions` as the keyword arguments that every dataset takes."""

    reduce: int
    min_size: int | tuple[int, int] | None
    mode: Mode
    orient: bool
    max_pixels: int | None
    backend: str | None
    output: Output | None
    on_error: OnError
    fuse: bool
    quality: Quality
    headroom: float
