"""`DecodeDataset`: a dataset that says where its images are, and is given all the rest."""

from __future__ import annotations

import inspect
import os
import sys
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from typing import TYPE_CHECKING, Any, NamedTuple, TypedDict

import torch

from fastdecode._buffers import as_buffer
from fastdecode.native import _library
from fastdecode.native._batch import Pool
from fastdecode.outages import ITEM_ERRORS, is_the_items
from fastdecode.torch._errors import Sample_co, TolerantDataset
from fastdecode.torch._fuse import Fused, put, why_not
from fastdecode.torch._native_batches import EligibleCrop, NativeBatchMaker, fetch_in_order
from fastdecode.torch.mixin import DecodeMixin
from fastdecode.torch.transforms import EncodedTransform, Normalize
from fastdecode.torch.transforms.base import Crop

if TYPE_CHECKING:
    from typing_extensions import Self, Unpack

    from fastdecode.api import Data
    from fastdecode.geometry import Geometry
    from fastdecode.torch._errors import OnError
    from fastdecode.torch.transforms.base import Quality
    from fastdecode.types import Mode, Output

    Source = Data | str | os.PathLike[str]

__all__ = ["DecodeDataset"]

# What a subclass may not have changed where others than the dataset make its samples.
_OF_DATASET = ("__getitem__", "fetch", "load", "_encoded", "_image", "_made")
_OF_CROP = ("__call__", "with_geometry", "reduce_for", "_checked", "_pixels", "core_resize")


_PAIR = "return a pair, the encoded image (bytes or a path) and its target (None if it has none)"


class DatasetOptions(TypedDict, total=False):
    """What every dataset of the package takes by name; `DecodeDataset` says what each is."""

    reduce: int
    min_size: int | tuple[int, int] | None
    mode: Mode
    orient: bool
    backend: str | None
    output: Output | None
    on_error: OnError
    fuse: bool
    quality: Quality
    headroom: float


class _Signature:
    """What `help` and editors show of a class: its own constructor, not the `__new__` before it."""

    def __get__(self, _: object, kind: Any) -> inspect.Signature:
        arguments = list(inspect.signature(kind.__init__).parameters.values())
        return inspect.Signature(arguments[1:])


class DecodeDataset(DecodeMixin, TolerantDataset[Sample_co]):
    """A dataset that gets decoding, transforms, error policy and whole batches for nothing.

    A subclass writes ``__len__`` and `read`. Options are attributes of the class, or of an
    instance, or arguments of the constructor. For type checkers it may say what ``dataset[index]``
    is, ``DecodeDataset[tuple[torch.Tensor, int]]``: a `Loader` then knows its batches.

    Parameters
    ----------
    transform : callable, optional
        An `EncodedTransform` is given the file's bytes. Any other is given the decoded image, in
        the form of `output`; the parts of a torchvision pipeline that are known for certain are
        done while decoding (see `fuse`).
    target_transform : callable, optional
    **options
        Any of the attributes below by its name, and those of `DecodeMixin`.

    Attributes
    ----------
    on_error : {"raise", "skip", "replace"} or callable
        What to do when one file is damaged or missing (`FastDecodeError`, `OSError`).
        ``"skip"`` leaves the sample out of its batch. ``"replace"`` puts another in its place, the
        same one each time. A callable, or a method of this name, is called with the index and the
        error, and returns what ``dataset[index]`` should give, or None to skip. What cannot be
        reached (permission, connection, time-out, server, disk, credentials) is tried again where
        that helps, and then raised whatever this says; and so is any other error, a mistake in
        the program.
    errors : list of Failure
        Index, path and reason of each damaged sample. In a worker process of PyTorch's DataLoader
        this is the worker's own copy: there, each is reported by a warning, too.
    fuse : bool
        Let `fastdecode.torch.fuse` look at the transform.
    quality, headroom
        For `fuse`.
    has_targets : bool
        Without, ``dataset[index]`` is the image alone, and the target `load` returns is None.

    Raises
    ------
    ValueError
        If `reduce`, `min_size` or `mode` is set beside an `EncodedTransform`, which does its own
        choosing.

    Notes
    -----
    Nothing here needs torchvision. Where ``torchvision.datasets`` has been imported when a dataset
    is made, that is one of torchvision's `VisionDataset`, too, for code that asks ``isinstance``.

    Examples
    --------
    >>> from fastdecode.torch import DecodeDataset
    >>> class Photos(DecodeDataset):
    ...     rows = [("cat.jpg", 1)]
    ...
    ...     def __len__(self):
    ...         return len(self.rows)
    ...
    ...     def read(self, index):
    ...         return self.rows[index]  # path, or the file's bytes, and target
    >>> Photos(reduce=2)[0]
    (<PIL.Image.Image image mode=RGB size=320x240 ...>, 1)
    """

    transform: Callable[..., Any] | None = None
    target_transform: Callable[..., Any] | None = None
    fuse: bool = True
    quality: Quality = "fast"
    headroom: float = 1.0
    _loader: Callable[[str], Any] | None = None
    """What makes something of a path instead: of `ImageFolder`."""
    _of_torchvision = "VisionDataset"
    """The class there that this one stands for."""
    _made_when_needed = (*DecodeMixin._made_when_needed, "_native_batches")

    __signature__ = _Signature()

    def __new__(cls, *_args: Any, **_options: Any) -> Self:
        """Make an instance, which is one of torchvision's class, too, if that is there."""
        for kind in reversed(cls.__mro__):
            if "_of_torchvision" in vars(kind):
                _join_torchvision(kind)
        return super().__new__(cls)

    def __init__(
        self,
        transform: Callable[..., Any] | None = None,
        target_transform: Callable[..., Any] | None = None,
        **options: Unpack[DatasetOptions],
    ) -> None:
        # Goes on behind torchvision's classes, which would list files for themselves.
        known = [kind for kind in type(self).__mro__ if kind.__module__.startswith("torchvision.")]
        last: Any = known[-1] if known else DecodeDataset
        super(last, self).__init__()
        if transform is not None:
            self.transform = transform
        if target_transform is not None:
            self.target_transform = target_transform
        for name, value in options.items():
            if name not in DatasetOptions.__annotations__:
                raise TypeError(f"{type(self).__name__}() has no option {name!r}")
            setattr(self, name, value)
        self._resolved_transform()  # which says at once what does not go together

    def read(self, index: int) -> tuple[Source, Any]:
        """Return the encoded image of a sample and its target: for a subclass to write.

        Parameters
        ----------
        index : int

        Returns
        -------
        source : bytes-like or path
        target : object
        """
        name = type(self).__name__
        raise NotImplementedError(
            f"{name} has no `read` for sample {index}: write `def read(self, index)`; {_PAIR}"
        )

    def _together(self, indices: Sequence[int]) -> AbstractContextManager[object]:  # noqa: ARG002
        """Read the items of a batch, which is fetched within: for a subclass that had to wait."""
        return nullcontext()

    def _groups(self, indices: Sequence[int]) -> list[list[int]]:
        """Part the places in a list of indices into those that `_read_group` reads in one go."""
        return [[at] for at in range(len(indices))]

    def _read_group(self, indices: Sequence[int]) -> list[Any]:
        """Return what `read` gives for each, or the error that it raises: in threads of others."""
        found: list[Any] = []
        for index in indices:
            try:
                found.append(self.read(index))
            except Exception as error:  # of whatever kind: it is raised where the item is made
                found.append(error)
        return found

    def map_target(self, target: Any, geometry: Geometry) -> Any:  # noqa: ARG002 - for subclasses
        """Adapt a target to what became of its image: for a subclass that has boxes or masks.

        Parameters
        ----------
        target : object
            From `read`.
        geometry : Geometry
            Of the transform, if it is an `EncodedTransform` or was fused; otherwise of the decoded
            image, before any transform.

        Returns
        -------
        object
            What `target_transform` is given.
        """
        return target

    def load(
        self,
        index: int,
        *,
        generator: torch.Generator | None = None,
        out: torch.Tensor | None = None,
    ) -> tuple[Any, Any]:
        """Read, decode and transform one sample; errors are raised, whatever `on_error` says.

        Parameters
        ----------
        index : int
        generator : torch.Generator, optional
            For the draws of an `EncodedTransform`; by default torch's global one.
        out : tensor, optional
            Of `sample_shape` and `sample_dtype`, or torch.uint8, for what is not yet normalised.

        Returns
        -------
        image, target

        Raises
        ------
        FastDecodeError, OSError
            The message names the file, where there is one, and the index.
        ValueError
            If `out` is given, but there is no `sample_shape`.
        """
        source = None
        try:
            source, target = pair_of(self, index, self.read(index))
            image, geometry = self._image(source, generator, out)
            return image, finished(self, target, geometry)
        except ITEM_ERRORS as error:
            if is_the_items(error):
                self._naming(error, index, source)
            raise

    @property
    def sample_shape(self) -> tuple[int, int, int] | None:
        """(3, H, W) of every image, or None where they may differ."""
        transform = None if self._is_overridden() else self._resolved_transform()
        return transform.shape if isinstance(transform, EncodedTransform) else None

    @property
    def sample_dtype(self) -> torch.dtype | None:
        """Type of every image where there is a `sample_shape`, else None."""
        return None if self.sample_shape is None else self._resolved_transform().dtype

    @property
    def isolated(self) -> bool:
        """Whether all random draws of a sample come from `load`'s `generator`.

        Nothing is known of a subclass with its own ``__getitem__``. Targets are taken to be no
        matter of chance.
        """
        if self._is_overridden() or type(self).load is not DecodeDataset.load:
            return False
        transform = self._resolved_transform()
        return transform is None or getattr(transform, "isolated", False) is True

    def extra_repr(self) -> str:
        """Return lines to be shown by `repr`: for a subclass to write."""
        return ""

    def __repr__(self) -> str:
        lines = [f"Number of datapoints: {len(self)}"]
        root = getattr(self, "root", None)
        if root is not None:
            lines.append(f"Root location: {root}")
        lines += self.extra_repr().splitlines()
        transforms = standard_transform(self)
        lines += [] if transforms is None else [repr(transforms)]
        lines += f"Decoding: {self._decoding()}".splitlines()
        return "\n".join([f"Dataset {type(self).__name__}", *(f"    {line}" for line in lines)])

    def _decoding(self) -> str:
        """Say in words how images are decoded."""
        resolved = self._resolved_transform()
        if isinstance(resolved, EncodedTransform):
            return "by the transform" if resolved is self.transform else repr(resolved)
        options = [
            f"{name}={getattr(self, name)!r}"
            for name in ("reduce", "min_size", "mode", "orient", "backend")
            if getattr(self, name) != getattr(DecodeMixin, name)
        ]
        return ", ".join([f"whole images, nothing fused{self._why_not()}", *options])

    def _why_not(self) -> str:
        """Say in words why the transform is called with decoded images."""
        if self.transform is None or not self.fuse:
            return ""
        if self.output == "array":
            return " (output='array' is for transforms of arrays)"
        asked = self._reduction_asked()
        return f" ({asked} was asked for)" if asked else f" ({why_not(self.transform)})"

    def _fusing(self) -> tuple[bool, Quality, float]:
        return self.fuse and self._loader is None, self.quality, self.headroom

    def _eligible_crop(self) -> EligibleCrop | str:
        """Return the crop by which the core or a device may make samples, or why not, in words."""
        if self._loader is not None:
            return "the dataset has a loader of its own"
        if changed := overridden(type(self), DecodeDataset, _OF_DATASET):
            return f"{type(self).__name__} has its own {changed}"
        transform, draws, image = self._resolved_transform(), 0, None
        if type(transform) is Fused:
            if transform.rest:
                return f"{type(transform.rest[0]).__name__} comes after what is done while decoding"
            if transform.form != "tensor":
                return "its transform makes Pillow images"
            draws, image, transform = transform.draws, transform.image, transform.head
        if not isinstance(transform, Crop):
            kind = type(transform).__name__
            return f"its transform ({kind}) is not one that is done while decoding"
        if changed := overridden(type(transform), Crop, _OF_CROP):
            return f"{type(transform).__name__} has its own {changed}"
        floats = transform.dtype == torch.float32
        if type(transform.normalize) is not (Normalize if floats else type(None)):
            return f"{type(transform.normalize).__name__} is not the package's Normalize"
        if transform.shape is None:
            return "its images differ in size"
        return EligibleCrop(transform, draws, image, self._maps_targets())

    def _maps_targets(self) -> bool:
        return type(self).map_target is not DecodeDataset.map_target

    def _put(self, image: Any, out: torch.Tensor) -> torch.Tensor:
        return put(image, out, self._resolved_transform())

    def _fetch_all(self, indices: Sequence[int]) -> list[Any]:
        native: NativeBatchMaker | None = self.__dict__.get("_native_batches")
        if native is None and _library.lib is not None:
            # One thread: a worker process has one core for itself.
            native = self.__dict__["_native_batches"] = NativeBatchMaker(self, Pool(1))
        with self._together(indices):
            return fetch_in_order(self, indices, native)

    def _encoded(self, source: Any) -> Any:
        """Return a file's bytes, or what the loader makes of it."""
        return super()._encoded(source) if self._loader is None else self._loader(source)

    def _decoded_image(self, source: Any) -> tuple[Any, Geometry | None]:
        return self._decoded(self._encoded(source), self.output or "pil")


def _join_torchvision(kind: type[DecodeDataset]) -> None:
    """Make a class a subclass of torchvision's, whose methods all come behind its own.

    torchvision's classes allow no virtual subclasses, and importing them for this would take longer
    than all the rest. A subclass with bases of torchvision's in another order stays as it is.
    """
    theirs = getattr(sys.modules.get("torchvision.datasets"), kind._of_torchvision, None)
    if isinstance(theirs, type) and not issubclass(kind, theirs):
        with suppress(TypeError):
            kind.__bases__ = (*kind.__bases__, theirs)


def overridden(kind: type, base: type, names: Sequence[str]) -> str:
    """Name the first of these methods that a class has made its own."""
    return next((name for name in names if getattr(kind, name) is not getattr(base, name)), "")


def pair_of(dataset: Any, index: int, found: Any) -> tuple[Any, Any]:
    """Return what a dataset's ``read`` has given; refuse what is not a source and a target."""
    called = f"{type(dataset).__name__}.read({index}) returned"
    if not isinstance(found, (tuple, list)) or len(found) != 2:
        several = isinstance(found, (tuple, list))
        what = f"a {_kind(found)} of {len(found)}" if several else _kind(found)
        raise TypeError(f"{called} {what}: {_PAIR}")
    source, target = found
    known = isinstance(source, (bytes, str, memoryview, os.PathLike))
    if not known and getattr(dataset, "_loader", None) is None:  # which takes anything
        try:
            as_buffer(source)
        except TypeError as error:
            raise TypeError(f"{called} {_kind(source)} as the image: {_PAIR} ({error})") from None
    return source, target


def _kind(value: object) -> str:
    return "None" if value is None else type(value).__name__


class EncodedSample(NamedTuple):
    """A sample that was read already, so that whoever makes it next need not read it again."""

    source: Any  # from the dataset's ``read``: errors name it
    data: Any  # the encoded image
    target: Any
    finished: bool = False  # the target is as the dataset hands it out, not as ``read`` gave it
    error: Exception | None = None  # what ``read`` raised instead

    def made(
        self, dataset: Any, index: int, generator: torch.Generator | None, out: torch.Tensor | None
    ) -> tuple[Any, Any]:
        """Make the sample as the dataset's ``load`` does."""
        try:
            if self.error is not None:
                raise self.error
            image, geometry = dataset._image(self.data, generator, out)
            target = self.target
            return image, target if self.finished else finished(dataset, target, geometry)
        except ITEM_ERRORS as error:
            if is_the_items(error):
                dataset._naming(error, index, self.source)
            raise


def finished(dataset: Any, target: Any, geometry: Geometry | None) -> Any:
    """Adapt a target to what became of its image, if it depends on that, and transform it."""
    if geometry is not None and dataset._maps_targets():
        target = dataset.map_target(target, geometry)
    transform = dataset.target_transform
    return target if transform is None else transform(target)


class StandardTransform:
    """A transform of images and one of targets, called with both: as torchvision's of that name."""

    def __init__(
        self,
        transform: Callable[..., Any] | None = None,
        target_transform: Callable[..., Any] | None = None,
    ) -> None:
        self.transform = transform
        self.target_transform = target_transform

    def __call__(self, image: Any, target: Any) -> tuple[Any, Any]:
        """Apply each to its own."""
        if self.transform is not None:
            image = self.transform(image)
        if self.target_transform is not None:
            target = self.target_transform(target)
        return image, target

    def __repr__(self) -> str:
        lines = [type(self).__name__]
        for head, transform in (
            ("Transform: ", self.transform),
            ("Target transform: ", self.target_transform),
        ):
            if transform is not None:
                lines.append(head + repr(transform).replace("\n", "\n" + " " * len(head)))
        return "\n".join(lines)


def standard_transform(dataset: Any) -> StandardTransform | None:
    """Pair the transforms of a dataset, as torchvision does; None where there is neither."""
    if dataset.transform is None and dataset.target_transform is None:
        return None
    return StandardTransform(dataset.transform, dataset.target_transform)
