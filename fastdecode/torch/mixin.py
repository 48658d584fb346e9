"""`DecodeMixin`: decoding in a dataset, and the transform that its options resolve to."""

from __future__ import annotations

import os
import sys
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

from torch.utils.data import get_worker_info

from fastdecode._arguments import without_row
from fastdecode._backends import selection
from fastdecode._backends.selection import load_named
from fastdecode._decode import api
from fastdecode._decode.lazy import info_of, open_rgb, with_pixels
from fastdecode._decode.plan import reduce_for
from fastdecode._pixels import converter
from fastdecode._system.process import is_worker
from fastdecode.errors import BackendUnavailable, FastDecodeError, UnknownBackend, begin_with
from fastdecode.geometry import Geometry
from fastdecode.stores._ranges import FileMap
from fastdecode.torch._albumentations import as_transform
from fastdecode.torch._fuse import Fused
from fastdecode.torch._loader.threads import limit_threads
from fastdecode.torch._options import SIZE_OPTIONS, DecodeOptions
from fastdecode.torch._plan import compile_pipeline
from fastdecode.torch._recognise import encoded_head
from fastdecode.torch._snapshot import Snapshot
from fastdecode.torch._views import Views
from fastdecode.torch.transforms import EncodedTransform

if TYPE_CHECKING:
    from collections.abc import Callable

    from fastdecode.types import Output

_PREFERENCE_KEY = "_carried_preference"
_converter = cache(converter)
_configured_process: tuple[int, bool] | None = None  # the process, and whether it had loaded OpenCV


class _CarriedBackend(NamedTuple):
    """The backend that `fastdecode.use` had set in the process that pickled a dataset."""

    process: int
    preference: str | None


class _Resolved(NamedTuple):
    """What a dataset makes its samples with, and what it was made of."""

    transform: Any
    options: DecodeOptions
    resolved: Any
    made: Snapshot

    def is_of(self, transform: Any, options: DecodeOptions) -> bool:
        """Return whether it was made of these, as they are now."""
        same = self.transform is transform and self.options == options
        return same and self.made.is_current()


class DecodeMixin:
    """Adds decoding to a dataset; `decode_options` says how.

    Attributes
    ----------
    decode_options : DecodeOptions
        Set it in the body of the class, or for one instance. It is the only attribute that the
        mixin reads besides `transform`, so every other name is free for your own use.

    Raises
    ------
    TypeError, ValueError
        `decode_options` is not a `DecodeOptions`, or holds options that only a `DecodeDataset` has.
    UnknownBackend, BackendUnavailable
        An instance is given options with a `backend` that cannot be used. The error is raised at
        the assignment.

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
    >>> from fastdecode.torch import DecodeMixin, DecodeOptions
    >>> class Photos(DecodeMixin, torch.utils.data.Dataset):
    ...     decode_options = DecodeOptions(min_size=256)
    ...     paths = ["cat.jpg"]
    ...
    ...     def __getitem__(self, index):
    ...         return self.decode(self.paths[index])
    >>> Photos()[0].shape
    (480, 640, 3)
    """

    decode_options: DecodeOptions = DecodeOptions()
    _not_pickled: tuple[str, ...] = ("_resolved",)
    """Attributes that are left out of a pickle and created again when needed."""
    _unsupported_options: tuple[str, ...] = ("on_error", "fuse", "quality", "headroom")
    """Options that this class cannot carry out."""

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        given = cls.decode_options
        if not hasattr(given, "__get__"):  # the value of a property is known only in an instance
            cls._check_decode_options(given)

    def __setattr__(self, name: str, value: Any) -> None:
        if name == "decode_options":
            self._check_decode_options(value)
            if value.backend is not None:
                load_named(value.backend)
        if name == "loader" and _is_torchvision_loader(value) and not hasattr(type(self), "loader"):
            value = self._decode_for_loader
        if name in ("transform", "transforms", "decode_options"):
            self.__dict__.pop("_resolved", None)
        super().__setattr__(name, value)

    @classmethod
    def _check_decode_options(cls, options: object) -> None:
        if not isinstance(options, DecodeOptions):
            raise TypeError(f"decode_options must be DecodeOptions(...), not {options!r}")
        if unsupported := options.describe(*cls._unsupported_options):
            raise ValueError(
                f"decode_options of {cls.__name__} has {unsupported}, which needs DecodeDataset as "
                "the base class: DecodeMixin only decodes"
            )

    def __getstate__(self) -> dict[str, Any]:
        state = {name: v for name, v in self.__dict__.items() if name not in self._not_pickled}
        used = (
            selection.preference_in_process()
        )  # without the environment, which a worker reads itself
        if used is not None:
            state[_PREFERENCE_KEY] = _CarriedBackend(os.getpid(), used)
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)

    def decode(self, source: Any) -> Any:
        """Decode one image as `decode_options` says, without the dataset's `transform`.

        Parameters
        ----------
        source : bytes-like or path
            The bytes of an encoded file, as for `fastdecode.decode`, or its path.

        Returns
        -------
        ndarray, tensor or PIL.Image.Image
            As the option `output` says; an ndarray if that is None.

        Raises
        ------
        FastDecodeError, OSError
            As from `fastdecode.decode` and `decode_file`. The message names the path, if one was
            given.
        """
        return self._decode(source, self.decode_options.output or "array", _as_it_is)

    def _decode(self, source: Any, output: Output, then: Callable[[Any], Any]) -> Any:
        """Return what a function makes of a decoded image; errors of both name the file."""
        set_up_process(self)
        source = without_row(source)
        path = os.fspath(source) if isinstance(source, (str, os.PathLike)) else None
        data = source if path is None else api.read_file(path)
        try:
            return with_pixels(then(decode_with_geometry(data, self.decode_options, output)[0]))
        except FastDecodeError as error:
            if path is not None:
                begin_with(error, path)
            raise

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
            `reduce`, `min_size`, `mode`, or an `output` but tensors, is set together with an
            `EncodedTransform`.
        """
        set_up_process(self)
        transform = self._resolved_transform()
        if isinstance(transform, EncodedTransform):
            return transform(read_encoded(source), **self.decode_options.for_transform())
        output = self.decode_options.output or "pil"
        if type(self).decode is not DecodeMixin.decode:
            image = self._decode_for_loader(source)
            return image if transform is None else transform(image)
        return self._decode(source, output, transform or _as_it_is)

    def _decode_for_loader(self, source: Any) -> Any:
        """Decode an image as `output` says; into a Pillow image, as torchvision does, if None."""
        output = self.decode_options.output
        if type(self).decode is DecodeMixin.decode:
            return self._decode(source, output or "pil", _as_it_is)
        image = self.decode(source)
        return image if output is not None else _converter("pil")(image)

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
        set_up_process(self)
        options = self.decode_options
        output = options.output or "array"
        image, geometry = decode_with_geometry(read_encoded(source), options, output)
        return with_pixels(image), geometry

    def _resolved_transform(self) -> Any:
        """Return the transform to call, which is made once for each `transform` that is assigned.

        An `EncodedTransform` takes the file's bytes, any other the decoded image.
        """
        return self._resolve_once(getattr(self, "transform", None), _resolve)

    def _resolve_once(self, transform: Any, resolve: Callable[..., Any]) -> Any:
        known, given = self.__dict__.get("_resolved"), (transform, self.decode_options)
        if known is None or not known.is_of(*given):
            resolved = resolve(*given, may_fuse=self._may_fuse())
            known = self.__dict__["_resolved"] = _Resolved(*given, resolved, Snapshot(transform))
        return known.resolved

    def _may_fuse(self) -> bool:
        """Return whether a transform of images may be merged with the decoding."""
        return False


def _as_it_is(image: Any) -> Any:
    return image


def read_encoded(source: Any) -> Any:
    """Return the bytes of a file, given as a path, as bytes or as a row of `datasets`.

    Those of a local store are copied, so that a file that is cut meanwhile is an error, and no end
    of the process.
    """
    source = without_row(source)
    mapping = getattr(source, "obj", None)
    if isinstance(mapping, FileMap):
        return mapping.copy(source)
    named = isinstance(source, (str, os.PathLike))
    return api.read_file(os.fspath(source)) if named else source


def decode_with_geometry(data: Any, options: DecodeOptions, output: Output) -> tuple[Any, Geometry]:
    """Decode bytes; choose the reduction here, so that the geometry is known.

    A Pillow image may decode later: see `with_pixels`.
    """
    header = api.probe(data)
    reduce, orient = options.reduce, options.orient
    if options.min_size is not None:
        reduce = reduce_for(header, options.min_size, orient=orient)
    geometry = Geometry.of_decode(header, reduce, orient=orient)
    if output == "pil" and reduce == 1 and options.mode == "RGB":
        return open_rgb(data, **options.for_transform()), geometry
    image = api.decode(
        data,
        reduce,
        mode=options.mode,
        orient=orient,
        max_pixels=options.max_pixels,
        backend=options.backend,
    )
    made = _converter(output)(image)
    if output == "pil":
        made.info = info_of(data, header)
    return made, geometry


def _resolve(transform: Any, options: DecodeOptions, *, may_fuse: bool) -> Any:
    """Fuse the transform if allowed; refuse invalid transforms and contradicting options."""
    if transform is not None and not callable(transform):
        raise TypeError(f"transform must be callable with an image, not {transform!r}")
    if isinstance(transform, type) and issubclass(transform, EncodedTransform):
        name = transform.__name__
        raise TypeError(f"transform is the class {name}: give an instance of it, with a size")
    asked = options.describe(*SIZE_OPTIONS)
    first = encoded_head(transform)
    encoded = first is not None
    made = "pil" if isinstance(first, Views) else "tensor"
    ignored = asked or ("" if options.output == made else options.describe("output"))
    if encoded and ignored:
        raise ValueError(
            f"{type(first).__name__} is given the file's bytes and decides by itself what it makes "
            f"of them, so {ignored} can have no effect: leave it out, or use transforms of decoded "
            "images"
        )
    # A Compose that begins with an EncodedTransform can only be called with bytes.
    if encoded or (may_fuse and not asked):
        if isinstance(transform, Fused):
            return transform.renew(for_epoch=True)
        renews = type(transform) is Views
        return compile_pipeline(transform.renewed(for_epoch=True) if renews else transform, options)
    return as_transform(transform)


def set_up_process(dataset: Any) -> None:
    """Set up this process before a dataset first decodes in it."""
    global _configured_process
    if _PREFERENCE_KEY in dataset.__dict__:
        # Not earlier: a spawned process unpickles its dataset before it counts as a worker.
        _apply_parent_preference(dataset.__dict__.get(_PREFERENCE_KEY))
        dataset.__dict__.pop(_PREFERENCE_KEY, None)
    now = (os.getpid(), "cv2" in sys.modules)
    if _configured_process != now:  # OpenCV can be limited only after something has loaded it
        if get_worker_info() is not None:
            limit_threads()
        _configured_process = now


def _apply_parent_preference(carried: _CarriedBackend | None) -> None:
    """Apply the parent's `fastdecode.use` in a worker that has not called `use` itself."""
    if carried is None or carried.process == os.getpid() or not is_worker():
        return
    if selection.preference_in_process() is not None:
        return
    try:
        selection.use(carried.preference)
    except (UnknownBackend, BackendUnavailable) as error:
        raise type(error)(
            f"the parent process called use({carried.preference!r}), but here: {error}"
        ) from error


def _is_torchvision_loader(loader: object) -> bool:
    """Return whether `loader` is torchvision's default loader."""
    qualified_name = getattr(loader, "__module__", ""), getattr(loader, "__name__", "")
    return qualified_name == ("torchvision.datasets.folder", "default_loader")
