"""`DecodeDataset`: a dataset that says where its pictures are, and is given all the rest."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from fastdecode import api
from fastdecode.native import library
from fastdecode.native.batch import Pool
from fastdecode.outages import ITEM_ERRORS, is_the_items
from fastdecode.torch.as_bytes import for_slot, put
from fastdecode.torch.chosen import Chosen, Settings, choose
from fastdecode.torch.dataset_options import DatasetOptions
from fastdecode.torch.found import finished
from fastdecode.torch.fusing import why_not
from fastdecode.torch.in_order import fetch_in_order
from fastdecode.torch.lane import Lane
from fastdecode.torch.mixin import DecodeMixin
from fastdecode.torch.standard import standard_transform
from fastdecode.torch.tolerant import TolerantDataset
from fastdecode.torch.transforms import EncodedTransform

if TYPE_CHECKING:
    import torch
    from typing_extensions import Self, Unpack

    from fastdecode.geometry import Geometry
    from fastdecode.torch.transforms.base import Quality

__all__ = ["DatasetOptions", "DecodeDataset"]

_settings_of = attrgetter(*Settings._fields)


class DecodeDataset(DecodeMixin, TolerantDataset):
    """A dataset that gets decoding, transforms, error policy and whole batches for nothing.

    A subclass writes ``__len__`` and `read`. Options are attributes of the class, or of an
    instance, or arguments of the constructor.

    Parameters
    ----------
    transform : callable, optional
        An `EncodedTransform` is given the file's bytes. Any other is given the decoded picture, in
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
        Without, ``dataset[index]`` is the picture alone, and the target `load` returns is None.

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
    >>> class Photos(DecodeDataset):
    ...     def __len__(self):
    ...         return len(self.rows)
    ...
    ...     def read(self, index):
    ...         return self.rows[index].path, self.rows[index].label  # doctest: +SKIP
    """

    transform: Callable[..., Any] | None = None
    target_transform: Callable[..., Any] | None = None
    fuse: bool = True
    quality: Quality = "default"
    headroom: float = 1.0
    _loader: Callable[[str], Any] | None = None
    """What makes something of a path instead: of `DecodeImageFolder`."""
    _of_torchvision = "VisionDataset"
    """The class there that this one stands for."""

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
        self._chosen()  # which says at once what does not go together

    def __setattr__(self, name: str, value: Any) -> None:
        super().__setattr__(name, value)
        if name in Settings._fields:
            self.__dict__.pop("_choice", None)

    def __getstate__(self) -> dict[str, Any]:
        state = super().__getstate__()
        for made_when_needed in ("_choice", "_lane"):
            state.pop(made_when_needed, None)
        return state

    def read(self, index: int) -> tuple[Any, Any]:
        """Return the encoded picture of a sample and its target: for a subclass to write.

        Parameters
        ----------
        index : int

        Returns
        -------
        source : bytes-like or path
        target : object
        """
        raise NotImplementedError(f"{type(self).__name__} must say where sample {index} is")

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
        """Adapt a target to what became of its picture: for a subclass that has boxes or masks.

        Parameters
        ----------
        target : object
            From `read`.
        geometry : Geometry
            Of the transform, if it is an `EncodedTransform` or was fused; otherwise of the decoded
            picture, before any transform.

        Returns
        -------
        object
            What `target_transform` is given.
        """
        return target

    def transformed(self, source: Any) -> Any:
        """As of `DecodeMixin`, with what could be fused of the transform."""
        return self._image(source, None, None)[0]

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
            source, target = self.read(index)
            image, geometry = self._image(source, generator, out)
            return image, finished(self, target, geometry)
        except ITEM_ERRORS as error:
            if is_the_items(error):
                self._naming(error, index, source)
            raise

    @property
    def sample_shape(self) -> tuple[int, int, int] | None:
        """(3, H, W) of every picture, or None where they may differ."""
        transform = None if self._is_overridden() else self._chosen().transform
        return transform.shape if isinstance(transform, EncodedTransform) else None

    @property
    def sample_dtype(self) -> torch.dtype | None:
        """Type of every picture where there is a `sample_shape`, else None."""
        return None if self.sample_shape is None else self._chosen().transform.dtype

    @property
    def isolated(self) -> bool:
        """Whether all random draws of a sample come from `load`'s `generator`.

        Nothing is known of a subclass with its own ``__getitem__``. Targets are taken to be no
        matter of chance.
        """
        if self._is_overridden() or type(self).load is not DecodeDataset.load:
            return False
        transform = self._chosen().transform
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
        transforms = standard_transform(self.transform, self.target_transform)
        lines += [] if transforms is None else [repr(transforms)]
        lines += f"Decoding: {self._decoding()}".splitlines()
        return "\n".join([f"Dataset {type(self).__name__}", *(f"    {line}" for line in lines)])

    def _decoding(self) -> str:
        """Say in words how pictures are decoded."""
        chosen = self._chosen()
        if isinstance(chosen.transform, EncodedTransform):
            return repr(chosen.transform) if chosen.fused else "by the transform"
        options = [
            f"{name}={getattr(self, name)!r}"
            for name in ("reduce", "min_size", "mode", "orient", "backend")
            if getattr(self, name) != getattr(DecodeMixin, name)
        ]
        return ", ".join([f"whole pictures, nothing fused{self._why_not()}", *options])

    def _why_not(self) -> str:
        """Say in words why the transform is called with decoded images."""
        settings = self._settings()
        if settings.transform is None or not settings.fuse:
            return ""
        if settings.output == "array":
            return " (output='array' is for transforms of arrays)"
        asked = settings.reduces()
        return f" ({asked} was asked for)" if asked else f" ({why_not(settings.transform)})"

    def _settings(self) -> Settings:
        return Settings(*_settings_of(self))

    def _chosen(self) -> Chosen:
        """Return the transform that is called; fuse again if anything it depends on has changed."""
        known: Chosen | None = self.__dict__.get("_choice")
        # The commonest case, a transform of our own, has no parts that might have changed.
        if known is not None and known.plain and known.transform is self.transform:
            return known
        chosen = choose(self._settings(), known)
        self.__dict__["_choice"] = chosen
        return chosen

    def _maps_targets(self) -> bool:
        return type(self).map_target is not DecodeDataset.map_target

    def _image(
        self, source: Any, generator: torch.Generator | None, out: torch.Tensor | None
    ) -> tuple[Any, Geometry | None]:
        """Decode and transform; the geometry may be missing where nobody asks for it."""
        self._settle()
        transform = self._chosen().transform
        if isinstance(transform, EncodedTransform):
            data, transform = self._encoded(source), for_slot(transform, out)
            make = transform.with_geometry if self._maps_targets() else transform
            made: Any = make(
                data, generator=generator, out=out, backend=self.backend, orient=self.orient
            )
            return made if self._maps_targets() else (made, None)
        if out is not None:
            raise ValueError("out needs an EncodedTransform: only that tells a sample's shape")
        image, geometry = self._picture(source)
        return (image if transform is None else transform(image)), geometry

    def _put(self, image: Any, out: torch.Tensor) -> torch.Tensor:
        return put(image, out, self._chosen().transform)

    def _fetch_all(self, indices: Sequence[int]) -> list[Any]:
        lane: Lane | None = self.__dict__.get("_lane")
        if lane is None and library.lib is not None:
            # One thread: a worker process has one core for itself.
            lane = self.__dict__["_lane"] = Lane(self, DecodeDataset, Pool(1))
        with self._together(indices):
            return fetch_in_order(self, indices, lane)

    def _encoded(self, source: Any) -> Any:
        """Return a file's bytes, or what the loader makes of it."""
        if self._loader is not None:
            return self._loader(source)
        named = isinstance(source, (str, os.PathLike))
        return api.read_file(os.fspath(source)) if named else source

    def _picture(self, source: Any) -> tuple[Any, Geometry | None]:
        """Return the decoded picture, and its geometry where it is known."""
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
