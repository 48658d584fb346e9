"""`DecodeMixin`: decoding in a dataset, and the transform that its options resolve to."""

from __future__ import annotations

import os
import sys
from functools import cache
from operator import is_
from typing import TYPE_CHECKING, Any, NamedTuple

from torch.utils.data import get_worker_info

from fastdecode import _selection, api
from fastdecode._arguments import check_options
from fastdecode._pixels import converter
from fastdecode._process import is_worker
from fastdecode._selection import Preference, load_named
from fastdecode.errors import BackendUnavailable, UnknownBackend
from fastdecode.geometry import Geometry
from fastdecode.plan import reduce_for
from fastdecode.torch._fuse import fuse, transform_for_slot
from fastdecode.torch._recognise import flatten, is_albumentations
from fastdecode.torch._threads import limit_threads
from fastdecode.torch.transforms import EncodedTransform
from fastdecode.types import OUTPUTS

if TYPE_CHECKING:
    import torch

    from fastdecode.torch.transforms.base import Quality
    from fastdecode.types import Mode, Output

__all__ = ["DecodeMixin"]

_DECODE_OPTIONS = ("reduce", "min_size", "mode", "backend")
_PREFERENCE_KEY = "_carried_preference"
_converter = cache(converter)
_configured_process: tuple[int, bool] | None = None  # the process, and whether it had loaded OpenCV


class _CarriedBackend(NamedTuple):
    """The backend that `fastdecode.use` had set in the process that pickled a dataset."""

    process: int
    preference: Preference


class DecodeMixin:
    """Adds decoding to a dataset; set the options as attributes of the class or of an instance.

    Attributes
    ----------
    reduce : {1, 2, 4, 8}
    min_size : int, (height, width) or None
    mode : {"RGB", "L", "RGBA", "stored"}
    orient : bool
    backend : str or None
        All five as for `fastdecode.decode`. If `backend` is None, each process chooses the fastest
        backend when it first decodes.
    output : {"array", "tensor", "pil"} or None
        The form of a decoded image: an ndarray (H, W, C), a tensor (C, H, W) that shares the
        ndarray's memory, or a Pillow image. None means an ndarray from `decode`, and a Pillow image
        where torchvision's datasets use one: in `transformed` and in the samples of a
        `DecodeDataset`.

    Raises
    ------
    TypeError, ValueError
        An option is set to an invalid value. The error is raised at the assignment.
    UnknownBackend, BackendUnavailable
        An instance is given a `backend` that cannot be used. The error is raised at the assignment.

    Notes
    -----
    Instances can be pickled. What `fastdecode.use` had set in the pickling process then also
    applies in a worker process, unless the worker has called `use` itself. In a worker of
    PyTorch's DataLoader, OpenCV and PyTorch are limited to one thread.

    In front of a torchvision dataset class, such as ``ImageFolder``, the mixin replaces
    torchvision's default loader, unless you give a loader: ``class Photos(DecodeMixin, ImageNet)``.

    Examples
    --------
    >>> import torch
    >>> from fastdecode.torch import DecodeMixin
    >>> class Photos(DecodeMixin, torch.utils.data.Dataset):
    ...     min_size = 256
    ...     paths = ["cat.jpg"]
    ...
    ...     def __getitem__(self, index):
    ...         return self.decode(self.paths[index])
    >>> Photos()[0].shape
    (480, 640, 3)
    """

    reduce: int = 1
    min_size: int | tuple[int, int] | None = None
    mode: Mode = "RGB"
    orient: bool = False
    backend: str | None = None
    output: Output | None = None
    _not_pickled: tuple[str, ...] = ("_resolved",)
    """Attributes that are left out of a pickle and created again when needed."""

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        given = {name: getattr(cls, name) for name in (*_DECODE_OPTIONS, "output")}
        # The value of a property is known only in an instance.
        known = {name: value for name, value in given.items() if not hasattr(value, "__get__")}
        _check_output(known.pop("output", None))
        check_options(**known)

    def __setattr__(self, name: str, value: Any) -> None:
        if name == "loader" and _is_torchvision_loader(value) and not hasattr(type(self), "loader"):
            value = self._load_image
        if name in _DECODE_OPTIONS:
            check_options(**{name: value})
            self.__dict__.pop("_resolved", None)
            if name == "backend" and value is not None:
                load_named(value)
        elif name == "output":
            _check_output(value)
        super().__setattr__(name, value)

    def __getstate__(self) -> dict[str, Any]:
        state = {name: v for name, v in self.__dict__.items() if name not in self._not_pickled}
        used = (
            _selection.preference_in_process()
        )  # without the environment, which a worker reads itself
        if used is not None:
            state[_PREFERENCE_KEY] = _CarriedBackend(os.getpid(), used)
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)

    def decode(self, source: Any) -> Any:
        """Decode one image with the options of this dataset, without its `transform`.

        Parameters
        ----------
        source : bytes-like or path
            The bytes of an encoded file, as for `fastdecode.decode`, or its path.

        Returns
        -------
        ndarray, tensor or PIL.Image.Image
            As `output` says; an ndarray if that is None.

        Raises
        ------
        FastDecodeError, OSError
            As from `fastdecode.decode` and `decode_file`. The message names the path, if one was
            given.
        """
        self._set_up_process()
        decode = api.decode_file if isinstance(source, (str, os.PathLike)) else api.decode
        image = decode(
            source,
            self.reduce,
            min_size=self.min_size,
            mode=self.mode,
            orient=self.orient,
            backend=self.backend,
        )
        return _converter(self.output or "array")(image)

    def transformed(self, source: Any) -> Any:
        """Decode one image and apply the `transform` of the dataset, if it has one.

        Parameters
        ----------
        source : bytes-like or path

        Returns
        -------
        object
            The result of `transform`. An `EncodedTransform` is called with the file's bytes. Any
            other transform is called with the image in the form that `output` names, or with a
            Pillow image if `output` is None. Without a transform, that image itself.

        Raises
        ------
        FastDecodeError, OSError
            As from `decode`.
        ValueError
            `reduce`, `min_size` or `mode` is set together with an `EncodedTransform`.
        """
        return self._make_image(source, None, None)[0]

    def _make_image(
        self, source: Any, generator: torch.Generator | None, out: torch.Tensor | None
    ) -> tuple[Any, Geometry | None]:
        """Decode and transform; the geometry may be None unless `_maps_targets`."""
        self._set_up_process()
        transform = self._resolved_transform()
        if isinstance(transform, EncodedTransform):
            data, transform = self._read_encoded(source), transform_for_slot(transform, out)
            make = transform.with_geometry if self._maps_targets() else transform
            made: Any = make(
                data, generator=generator, out=out, backend=self.backend, orient=self.orient
            )
            return made if self._maps_targets() else (made, None)
        if out is not None:
            raise ValueError("out needs an EncodedTransform: only that knows a sample's shape")
        image, geometry = self._decode_source(source)
        return (image if transform is None else transform(image)), geometry

    def _maps_targets(self) -> bool:
        """Return whether targets depend on the geometry of their image."""
        return False

    def _read_encoded(self, source: Any) -> Any:
        """Return the bytes of a file."""
        named = isinstance(source, (str, os.PathLike))
        return api.read_file(os.fspath(source)) if named else source

    def _decode_source(self, source: Any) -> tuple[Any, Geometry | None]:
        """Return the decoded image, and its geometry or None."""
        return self._load_image(source), None

    def _load_image(self, source: Any) -> Any:
        """Decode an image as `output` says; into a Pillow image, as torchvision does, if None."""
        image = self.decode(source)
        return image if self.output is not None else _converter("pil")(image)

    def decode_with_geometry(self, source: Any) -> tuple[Any, Geometry]:
        """Decode one image, and return how its pixels lie in the full-size image.

        Parameters
        ----------
        source : bytes-like or path

        Returns
        -------
        image : ndarray, tensor or PIL.Image.Image
            As from `decode`.
        geometry : Geometry
            Maps boxes, points and masks of the full-size image; if `orient`, of the image as
            viewers show it.

        Raises
        ------
        FastDecodeError, OSError
            As from `decode`.
        """
        return self._decode_bytes(DecodeMixin._read_encoded(self, source), self.output or "array")

    def _decode_bytes(self, data: Any, output: Output) -> tuple[Any, Geometry]:
        """Decode bytes; choose the reduction here, so that the geometry is known."""
        self._set_up_process()
        header = api.probe(data)
        reduce, orient = self.reduce, self.orient
        if self.min_size is not None:
            check_options(reduce=reduce, min_size=self.min_size)
            reduce = reduce_for(header, self.min_size, orient=orient)
        image = api.decode(data, reduce, mode=self.mode, orient=orient, backend=self.backend)
        return _converter(output)(image), Geometry.of_decode(header, reduce, orient=orient)

    def _resolved_transform(self) -> Any:
        """Return the transform to call; fuse again if anything it depends on has changed.

        An `EncodedTransform` takes the file's bytes, any other the decoded image.
        """
        transform = getattr(self, "transform", None)
        known, resolved = self.__dict__.get("_resolved", ((), None))
        # The most common case: a transform of the package has no parts that might have changed.
        if known is None and resolved is transform:
            return resolved
        plain = isinstance(transform, EncodedTransform)
        parts = [] if plain else list(flatten(transform))
        # Attributes count, too: the user may change the size of a part during training.
        states = (value for part in parts for value in getattr(part, "__dict__", {}).values())
        options = (self.reduce, self.min_size, self.mode, self.output, *self._fuse_options())
        dependencies = (transform, *options, *parts, *states)
        if not known or len(known) != len(dependencies) or not all(map(is_, known, dependencies)):
            resolved = self._fuse_if_allowed(transform, parts[0] if parts else transform)
            self.__dict__["_resolved"] = None if plain else dependencies, resolved
        return resolved

    def _fuse_options(self) -> tuple[bool, Quality, float]:
        """Return whether a transform of images may be fused, with which quality and headroom."""
        return False, "fast", 1.0

    def _fuse_if_allowed(self, transform: Any, first: Any) -> Any:
        """Fuse the transform if allowed; refuse invalid transforms and contradicting options."""
        if transform is not None and not callable(transform):
            raise TypeError(f"transform must be callable with an image, not {transform!r}")
        if isinstance(transform, type) and issubclass(transform, EncodedTransform):
            name = transform.__name__
            raise TypeError(f"transform is the class {name}: give an instance of it, with a size")
        if is_albumentations(transform):
            raise TypeError(
                f"albumentations' {type(transform).__name__} is called with image=, and gives a "
                "dict: give transform a function that returns compose(image=image)['image'], and "
                "the dataset output='array'"
            )
        asked = self._requested_size()
        encoded = isinstance(first, EncodedTransform)
        if encoded and asked:
            raise ValueError(
                f"{type(first).__name__} is given the file's bytes and decides by itself how far "
                f"to reduce them, so {asked} can have no effect: leave it out, or use transforms "
                "of decoded images"
            )
        may_fuse, quality, headroom = self._fuse_options()
        # A Compose that begins with an EncodedTransform can only be called with bytes.
        if encoded or (may_fuse and not asked and self.output != "array"):
            return fuse(transform, quality=quality, headroom=headroom)
        return transform

    def _requested_size(self) -> str:
        """Return the options, in words, with which the caller asked for a size or mode."""
        asked = {"reduce": self.reduce, "min_size": self.min_size, "mode": self.mode}
        usual = {"reduce": 1, "min_size": None, "mode": "RGB"}
        return ", ".join(f"{name}={asked[name]!r}" for name in usual if asked[name] != usual[name])

    def _set_up_process(self) -> None:
        """Set up this process before it first decodes."""
        global _configured_process
        if _PREFERENCE_KEY in self.__dict__:
            # Not earlier: a spawned process unpickles its dataset before it counts as a worker.
            _apply_parent_preference(self.__dict__.get(_PREFERENCE_KEY))
            self.__dict__.pop(_PREFERENCE_KEY, None)
        now = (os.getpid(), "cv2" in sys.modules)
        if _configured_process != now:  # OpenCV can be limited only after something has loaded it
            if get_worker_info() is not None:
                limit_threads()
            _configured_process = now


def _apply_parent_preference(carried: _CarriedBackend | None) -> None:
    """Apply the parent's `fastdecode.use` in a worker that has not called `use` itself."""
    if carried is None or carried.process == os.getpid() or not is_worker():
        return
    if _selection.preference_in_process() is not None:
        return
    try:
        _selection.use(carried.preference)
    except (UnknownBackend, BackendUnavailable) as error:
        raise type(error)(
            f"the parent process called use({carried.preference!r}), but here: {error}"
        ) from error


def _is_torchvision_loader(loader: object) -> bool:
    """Return whether `loader` is torchvision's default loader."""
    qualified_name = getattr(loader, "__module__", ""), getattr(loader, "__name__", "")
    return qualified_name == ("torchvision.datasets.folder", "default_loader")


def _check_output(output: object) -> None:
    if output is not None and output not in OUTPUTS:
        raise ValueError(f"output must be one of {', '.join(OUTPUTS)} or None, not {output!r}")
