"""`DecodeDataset`: the base class of datasets of encoded images."""

from __future__ import annotations

import inspect
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import replace
from functools import partial
from types import GenericAlias
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch.utils.data import Dataset

from fastdecode._arguments import as_buffer, check_kinds, check_names, is_int, without_row
from fastdecode._decode import api
from fastdecode._decode.lazy import with_pixels
from fastdecode._error_policy import (
    ITEM_ERRORS,
    is_item_error,
    mark_fatal,
    mark_if_folder_vanished,
)
from fastdecode.errors import DecodeError
from fastdecode.geometry import Geometry
from fastdecode.torch._errors import (
    SKIPPED,
    Failure,
    Failures,
    as_failure,
    describe_failures,
    name_sample,
    plain_index,
    record_failure,
    replacement_candidates,
)
from fastdecode.torch._joint import JointPlan, compile_joint
from fastdecode.torch._options import SIZE_OPTIONS, DatasetOptions, DecodeOptions, OnError
from fastdecode.torch._plan import Plan, not_fused_reason, transform_for_slot
from fastdecode.torch._user_code import is_isolated, is_thread_safe, says_thread_safe
from fastdecode.torch._wrappers import asked_by_torch, items_of, outermost
from fastdecode.torch.mixin import (
    DecodeMixin,
    decode_with_geometry,
    read_encoded,
    set_up_process,
)
from fastdecode.torch.transforms import EncodedTransform, Normalize
from fastdecode.torch.transforms.base import Recipe

if TYPE_CHECKING:
    from typing_extensions import Self, TypeVar, Unpack

    from fastdecode._decode.api import Data

    Source = Data | str | os.PathLike[str]
    Sample_co = TypeVar("Sample_co", covariant=True, default=Any)
else:
    from typing import TypeVar

    Sample_co = TypeVar("Sample_co", covariant=True)

_RECIPE_METHODS = (
    "__call__",
    "with_geometry",
    "draw",
    "make",
    "_prepare_out",
    "_decode_and_resize",
    "core_resize",
    "reduction",
)


_RAISE = object()
"""Says that the caller must raise the error where it caught it.

If another frame raised it, its local variable and the traceback would form a cycle, which keeps the
error and a whole batch alive until a garbage collection.
"""
_READ_ADVICE = (
    "return a pair, the encoded image (bytes or a path) and its target (None if it has none)"
)


class Settings(NamedTuple):
    """What a dataset makes its samples with; an epoch of a `Loader` keeps those of its beginning.

    Methods of a subclass are called as they are, and use what is assigned at that moment.
    """

    options: DecodeOptions
    transform: Any
    """As `DecodeDataset._resolved_transform` returns it."""
    target_transform: Any
    joint: Any
    """The transform of images and targets together, as written; None if there is none."""
    loader: Any
    """The `loader` that the user gave to `ImageFolder`."""

    @property
    def shape(self) -> tuple[int, int, int] | None:
        """The shape (3, H, W) of every image, or None if shapes may differ."""
        made_by = self.transform
        return made_by.shape if isinstance(made_by, EncodedTransform) else None

    @property
    def draws_apart(self) -> bool:
        """Whether the transform may run in threads: it draws from the sample's generator alone."""
        transform = self.transform
        if transform is None or isinstance(transform, JointPlan):
            return transform is None or transform.isolated
        return is_isolated(transform)


class EligibleRecipe(NamedTuple):
    """How the core or a device makes the samples of a dataset.

    `image` is as for `Plan`; `maps` says that the dataset has a ``map_target``. `finish` makes the
    sample of what the recipe makes, with the sample's generator, if that is not all.
    """

    recipe: Recipe
    image: type[torch.Tensor] | None
    maps: bool
    finish: Callable[[torch.Tensor, torch.Generator], Any] | None = None


class _Signature:
    """Shows `help` and editors the signature of a class's ``__init__`` instead of ``__new__``."""

    def __get__(self, _: object, kind: Any) -> inspect.Signature:
        arguments = list(inspect.signature(kind.__init__).parameters.values())
        return inspect.Signature(arguments[1:])


class DecodeDataset(DecodeMixin, Dataset[Sample_co]):
    """Base class for your own datasets; it adds decoding, transforms, `on_error` and fast batches.

    A subclass defines ``__len__`` and `read`. For type checkers it may declare what
    ``dataset[index]`` returns, as in ``DecodeDataset[tuple[torch.Tensor, int]]``.

    Parameters
    ----------
    transform : callable, optional
        Called with the file's bytes if it is an `EncodedTransform`, and otherwise with the decoded
        image in the form that `output` names. The leading steps of a torchvision pipeline that
        `fuse` recognises run while decoding. A change to one of its steps takes effect with the
        next sample, in a `Loader` with the next epoch. What is not recognised is called as it is
        written, by a `Loader` in worker processes.
    target_transform : callable, optional
        Called with the target.
    transforms : callable, optional
        Called with the image and its target, and returns both, as a pipeline of torchvision's v2
        for boxes and masks does. It replaces `transform` and `target_transform`. Its leading steps
        run while decoding, like those of `transform`. `map_target`, if a subclass has one, is
        called first, with the geometry of the decoded image.
    **options
        Those of `DecodeOptions`, by name: reduce, min_size, mode, orient, max_pixels, backend,
        output, on_error, fuse, quality, headroom. They replace those of the class's
        `decode_options`.

    Attributes
    ----------
    decode_options : DecodeOptions
        The options. A subclass may set it in its body.
    errors : list of Failure
        Index, path and reason of each damaged sample. Each worker process of PyTorch's DataLoader
        has its own copy of this list, so there each damaged sample also causes a warning.
    has_targets : bool
        If false, ``dataset[index]`` is the image alone.
    thread_safe : bool
        Set it to true in the class that has `read`, `map_target` or another method of your own, or
        for one instance, if they and the functions that you gave may run in several threads at
        once. By default a `Loader` calls them in worker processes, with the global generators
        seeded for each sample; threads share these with your training.

    Raises
    ------
    ValueError
        `reduce`, `min_size`, `mode`, or an `output` but tensors, is set together with an
        `EncodedTransform`, which decides that itself. Or `transforms` is given together with one
        of the other two.

    Notes
    -----
    torchvision is not needed. If ``torchvision.datasets`` was imported before a dataset is created,
    the dataset is also an instance of torchvision's `VisionDataset`.

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
    ...         return self.rows[index]  # a path or the file's bytes, and the target
    >>> Photos(reduce=2)[0]
    (<PIL.Image.Image image mode=RGB size=320x240 ...>, 1)
    """

    transform: Callable[..., Any] | None = None
    target_transform: Callable[..., Any] | None = None
    transforms: Any = None
    has_targets: bool = True
    thread_safe: bool = False
    _loader: Callable[[str], Any] | None = None
    """The `loader` that the user gave to `ImageFolder`."""
    _torchvision_class = "VisionDataset"
    """The class of ``torchvision.datasets`` that this one replaces."""
    _unsupported_options = ()
    if not TYPE_CHECKING:
        # With `typing.Generic` as a base, no class of torchvision could be added as the last base.
        __class_getitem__ = classmethod(GenericAlias)

    __signature__ = _Signature()

    def __new__(cls, *_args: Any, **_options: Any) -> Self:
        """Create an instance; join torchvision's class if torchvision.datasets is imported."""
        for kind in reversed(cls.__mro__):
            if "_torchvision_class" in vars(kind):
                _join_torchvision(kind)
        return super().__new__(cls)

    def __init__(
        self,
        transform: Callable[..., Any] | None = None,
        target_transform: Callable[..., Any] | None = None,
        *,
        transforms: Callable[..., Any] | None = None,
        **options: Unpack[DatasetOptions],
    ) -> None:
        check_kinds({"target_transform": target_transform})
        # Skips the constructors of torchvision's classes, which would list the files themselves.
        known = [kind for kind in type(self).__mro__ if kind.__module__.startswith("torchvision.")]
        last: Any = known[-1] if known else DecodeDataset
        super(last, self).__init__()
        if transform is not None:
            self.transform = transform
        if target_transform is not None:
            self.target_transform = target_transform
        if transforms is not None:
            self.transforms = transforms
            if self._joint() is None:
                raise TypeError(f"{type(self).__name__}() takes no transforms, only transform")
        check_names(type(self), options, DatasetOptions)
        if options:
            self.decode_options = replace(self.decode_options, **options)
        self._resolved_transform()  # raises if options contradict each other

    def __len__(self) -> int:
        raise NotImplementedError(
            f"{type(self).__name__} has no length: write `def __len__(self)`, which returns how "
            "many samples there are"
        )

    def read(self, index: int) -> tuple[Source, Any]:
        """Return the encoded image of a sample and its target; a subclass must define this.

        Parameters
        ----------
        index : int

        Returns
        -------
        source : bytes-like or path
            The bytes of the encoded file, or its path.
        target : object
            Anything; None if there is no target.
        """
        name = type(self).__name__
        raise NotImplementedError(
            f"{name} has no `read` for sample {index}: write `def read(self, index)`; "
            f"{_READ_ADVICE}"
        )

    def _prefetch_batch(self, indices: Sequence[int]) -> AbstractContextManager[object]:  # noqa: ARG002
        """Return a context for fetching a batch; a subclass may read all its items on entry."""
        return nullcontext()

    def map_target(self, target: Any, geometry: Geometry) -> Any:  # noqa: ARG002 - for subclasses
        """Adapt a target to the crop and scale of its image; for subclasses with boxes or masks.

        Parameters
        ----------
        target : object
            As `read` returned it.
        geometry : Geometry
            How the pixels of the result lie in the full-size image. It includes the transform if
            that is an `EncodedTransform` or was fused. Otherwise it describes the decoded image,
            before any transform.

        Returns
        -------
        object
            The target, on which `target_transform` is then called. By default it is unchanged.
        """
        return target

    def _load(
        self,
        index: int,
        settings: Settings,
        generator: torch.Generator | None = None,
        out: torch.Tensor | None = None,
    ) -> tuple[Any, Any]:
        """Read, decode and transform one sample; errors name it."""
        source = None
        try:
            source, target = check_pair(self, index, self.read(index))
            if settings.joint is not None:
                return self._make_pair(source, target, settings, generator)
            image, geometry = self._make_image(source, settings, generator, out)
            return image, map_targets(self, target, geometry, settings.target_transform)
        except ITEM_ERRORS as error:
            if is_item_error(error):
                self._name_sample(error, index, source)
            raise

    def transformed(self, source: Any) -> Any:
        """Decode one image and apply the dataset's `transform`, as for its own samples."""
        return self._make_image(source, self._settings(), None, None)[0]

    def _make_image(
        self,
        source: Any,
        settings: Settings,
        generator: torch.Generator | None,
        out: torch.Tensor | None,
    ) -> tuple[Any, Geometry | None]:
        """Decode and transform; the geometry may be None unless `_maps_targets`."""
        if settings.joint is not None:
            raise ValueError("transforms= takes an image and its target, so not an image alone")
        set_up_process(self)
        transform, options = settings.transform, settings.options
        if isinstance(transform, EncodedTransform):
            dtype = None if out is None else out.dtype
            data, transform = read_source(source, settings), transform_for_slot(transform, dtype)
            make = transform.with_geometry if self._maps_targets() else transform
            made: Any = make(data, generator=generator, out=out, **options.for_transform())
            return with_pixels(made) if self._maps_targets() else (with_pixels(made), None)
        if out is not None:
            raise ValueError("out needs an EncodedTransform: only that knows a sample's shape")
        image, geometry = self._decode_source(source, settings)
        return with_pixels(image if transform is None else transform(image)), geometry

    def _joint(self) -> Any:
        """Return the transform of images and targets together; None if there is none."""
        joint = self.transforms
        if joint is not None and not (self.transform is self.target_transform is None):
            raise ValueError("give transforms, or transform and target_transform, but not both")
        return joint

    def _resolved_transform(self) -> Any:
        joint = self._joint()
        if joint is None:
            return super()._resolved_transform()
        return self._resolve_once(joint, compile_joint)

    def _settings(self) -> Settings:
        """Return what samples are made with at this moment."""
        options, made_by = self.decode_options, self._resolved_transform()
        return Settings(options, made_by, self.target_transform, self._joint(), self._loader)

    def _settings_of_epoch(self, **changed: Any) -> Settings:
        """Return the settings of an epoch that begins, with some options changed."""
        known = self.__dict__.get("_resolved")
        if known is not None and not known.made.is_current_for_epoch():
            del self.__dict__["_resolved"]
        return self._settings()._replace(options=replace(self.decode_options, **changed))

    def _make_pair(
        self, source: Any, target: Any, settings: Settings, generator: torch.Generator | None
    ) -> tuple[Any, Any]:
        """Decode an image, and transform it together with its target."""
        set_up_process(self)
        transforms, options = settings.transform, settings.options
        if not isinstance(transforms, JointPlan):
            image, geometry = self._decode_source(source, settings)
            pair = transforms(image, map_targets(self, target, geometry, None))
            made: tuple[Any, Any] = with_pixels(pair)
            return made
        data = read_source(source, settings)
        if self._maps_targets():
            whole = Geometry.of_decode(api.probe(data), orient=options.orient)
            target = self.map_target(target, whole)
        return transforms.make(data, target, generator=generator, **options.for_transform())

    def _decode_source(self, source: Any, settings: Settings) -> tuple[Any, Geometry | None]:
        """Return the decoded image, and its geometry or None."""
        options = settings.options
        return decode_with_geometry(read_source(source, settings), options, options.output or "pil")

    @property
    def sample_shape(self) -> tuple[int, int, int] | None:
        """The shape (3, H, W) of every image, or None if shapes may differ."""
        return None if self._is_overridden() else self._settings().shape

    @property
    def sample_dtype(self) -> torch.dtype | None:
        """The dtype of every image, or None if `sample_shape` is None."""
        return None if self.sample_shape is None else self._resolved_transform().dtype

    @property
    def isolated(self) -> bool:
        """Whether a `Loader` may make samples in threads.

        There is no code of the user's that has not said ``thread_safe = True``, and all random
        draws come from the sample's generator.
        """
        return not self._why_processes(self._settings())

    def _why_processes(self, settings: Settings) -> str:
        """Say why a `Loader` uses processes, and what would let it use threads; empty if it may."""
        found = next(self._users_code(settings), None)
        if found is None:
            return ""
        return (
            f"{found} is code of your own. For threads, say thread_safe = True in "
            f"{type(self).__name__}, if several may run it at once"
        )

    def _users_code(self, settings: Settings) -> Iterator[str]:
        """Name what makes the samples, is not this package's, and does not say `thread_safe`."""
        for method in ("__getitem__", "read", "map_target"):
            if not is_thread_safe(self, method):
                yield f"{type(self).__name__}.{method}"
        if says_thread_safe(self):
            return
        if settings.loader is not None:
            yield "its loader"
        if settings.target_transform is not None:
            yield "its target_transform"
        if not settings.draws_apart:
            yield "a step of its transform (print(dataset) names it)"

    def extra_repr(self) -> str:
        """Return extra lines for `repr`; a subclass may override this."""
        return ""

    def __repr__(self) -> str:
        lines = [f"Number of datapoints: {len(self)}"]
        root = getattr(self, "root", None)
        if root is not None:
            lines.append(f"Root location: {root}")
        lines += self.extra_repr().splitlines()
        transforms = self._joint() or standard_transform(self)
        lines += [] if transforms is None else [repr(transforms)]
        lines += f"Decoding: {self._describe_decoding()}".splitlines()
        return "\n".join([f"Dataset {type(self).__name__}", *(f"    {line}" for line in lines)])

    def _describe_decoding(self) -> str:
        """Describe in words how images are decoded."""
        resolved = self._resolved_transform()
        if isinstance(resolved, JointPlan):
            return repr(resolved)
        if isinstance(resolved, EncodedTransform):
            return "by the transform" if resolved is self.transform else repr(resolved)
        how = f"whole images, nothing fused{self._not_fused_reason()}"
        options = self.decode_options.describe(*SIZE_OPTIONS, "orient", "max_pixels", "backend")
        return f"{how}, {options}" if options else how

    def _not_fused_reason(self) -> str:
        """Explain in words why the transform is called with decoded images."""
        options, joint = self.decode_options, self._joint()
        given = self.transform if joint is None else joint
        if given is None or not options.fuse:
            return ""
        asked = options.describe(*SIZE_OPTIONS)
        return (
            f" ({asked} was asked for)"
            if asked
            else f" ({not_fused_reason(given, options, joint=given is joint)})"
        )

    def _may_fuse(self) -> bool:
        return self.decode_options.fuse and self._loader is None

    def _eligible_recipe(
        self, settings: Settings, *, finishes: bool = False
    ) -> EligibleRecipe | str:
        """Return the recipe that the core or a device may follow, or the reason why it may not.

        Who `finishes` the samples may follow it, too, if threads call the steps that come after it.
        """
        if settings.loader is not None:
            return "the dataset has a loader of its own"
        if own_way := self._own_way():
            return own_way
        transform, image, finish = settings.transform, None, None
        if settings.joint is not None:
            return "its transforms= also takes the targets"
        if isinstance(transform, Plan):
            moved = transform.moving_part
            if moved is not None and self._maps_targets():
                return f"{type(moved).__name__} moves pixels, so map_target cannot be called"
            if finishes and transform.steps and transform.draws_later:
                finish = transform.finish
            elif transform.steps:
                return f"{type(transform.rest[0]).__name__} comes after what is done while decoding"
            elif transform.form != "tensor":
                return "its transform makes Pillow images"
            else:
                image = transform.image
            transform = transform.head
        if not isinstance(transform, Recipe):
            kind = type(transform).__name__
            return f"its transform ({kind}) is not one that is done while decoding"
        own = [name for name in _RECIPE_METHODS if name in vars(transform)]
        if changed := overridden(type(transform), Recipe, _RECIPE_METHODS) or "".join(own[:1]):
            return f"{type(transform).__name__} has its own {changed}"
        floats = transform.dtype == torch.float32
        if type(transform.normalize) is not (Normalize if floats else type(None)):
            return f"{type(transform.normalize).__name__} is not the package's Normalize"
        if transform.shape is None:
            return "its images differ in size"
        return EligibleRecipe(transform, image, self._maps_targets(), finish)

    def _maps_targets(self) -> bool:
        return type(self).map_target is not DecodeDataset.map_target

    @property
    def errors(self) -> list[Failure]:
        """The damaged samples, one entry per index."""
        failures: Failures = self.__dict__.setdefault("_errors", Failures())
        return failures

    @errors.setter
    def errors(self, failures: Sequence[Failure]) -> None:
        self.__dict__["_errors"] = Failures(failures)

    def _fetch(
        self,
        index: int,
        settings: Settings,
        generator: torch.Generator | None = None,
        out: torch.Tensor | None = None,
        among: Callable[[], Sequence[int]] = tuple,
    ) -> Any:
        """Return one sample, or what `on_error` puts in its place, maybe SKIPPED.

        `out` is the image's slot in a batch; a replacement is one of those `among`.
        """
        make = partial(self._make_sample, settings=settings, generator=generator, out=out)
        try:
            return make(index)
        except ITEM_ERRORS as error:
            sample = self._apply_policy(index, error, make, settings.options.on_error, among)
            if sample is _RAISE:
                raise
            return sample

    def __getitem__(self, index: int) -> Sample_co:
        settings = self._settings()
        load = partial(self._load, settings=settings)  # a subclass's own method would come here
        try:
            sample: Any = load(index)
        except ITEM_ERRORS as error:
            sample = self._apply_policy(index, error, load, settings.options.on_error)
            if sample is SKIPPED or sample is _RAISE:  # a single sample cannot be left out
                raise
        return sample if self.has_targets else sample[0]  # type: ignore[no-any-return]

    def __getitems__(self, indices: Sequence[int]) -> list[Sample_co]:
        """Return the samples of a batch. PyTorch's DataLoader calls this.

        Parameters
        ----------
        indices : sequence of int

        Returns
        -------
        list
            The samples, without those that `on_error` skips.

        Raises
        ------
        DecodeError
            All samples are skipped.
        """
        asked: Any = asked_by_torch(self)
        if asked is not self:
            return [asked[index] for index in indices]
        fetched = self._fetch_all(indices)
        samples = [sample for sample in fetched if sample is not SKIPPED]
        if fetched and not samples:
            asked = {self._number(index) for index in indices}
            named = describe_failures(failure for failure in self.errors if failure.index in asked)
            raise DecodeError(f"all {len(fetched)} samples of a batch are damaged: {named}")
        return [image for image, _ in samples] if self._is_bare() else samples

    def _fetch_all(self, indices: Sequence[int]) -> list[Any]:
        with self._prefetch_batch(indices):
            return [self._fetch(index, self._settings()) for index in indices]

    @property
    def fetches(self) -> bool:
        """Whether a loader asks for single samples: not a class with its own ``__getitems__``."""
        return type(self).__getitems__ is DecodeDataset.__getitems__

    def _is_overridden(self) -> bool:
        """Return whether a subclass has its own ``__getitem__``."""
        return type(self).__getitem__ is not DecodeDataset.__getitem__

    def _own_way(self) -> str:
        """Say that a subclass makes samples by itself; empty if it does not."""
        return f"{type(self).__name__} has its own __getitem__" if self._is_overridden() else ""

    def _is_bare(self) -> bool:
        """Return whether a sample is handed out as the image alone, as there are no targets."""
        # A subclass with its own __getitem__ decides what a sample is.
        return not self.has_targets and not self._is_overridden()

    def _make_sample(
        self,
        index: int,
        settings: Settings,
        generator: torch.Generator | None,
        out: torch.Tensor | None,
    ) -> Any:
        """Make a sample, with the subclass's own ``__getitem__`` if it has one."""
        return self[index] if self._is_overridden() else self._load(index, settings, generator, out)

    def _apply_policy(
        self,
        index: int,
        error: Exception,
        make: Callable[[int], Any],
        on_error: OnError,
        among: Callable[[], Sequence[int]] = tuple,
    ) -> Any:
        """Apply the policy to an error; return what `make` makes instead, SKIPPED or _RAISE."""
        self._mark_if_folder_vanished(error)
        if not is_item_error(error):
            return _RAISE
        first = self._record_failure(index, error, on_error)
        if on_error == "skip":
            return SKIPPED
        if on_error == "replace":
            candidates = among() or items_of(outermost(self), self)
            return self._make_replacement(index, candidates, first, error, make)
        return _RAISE

    def _make_replacement(
        self,
        index: int,
        among: Sequence[int],
        first: Failure,
        error: Exception,
        make: Callable[[int], Any],
    ) -> Any:
        """Return the first candidate that can be made; raise if all fail."""
        failed = [first]
        for candidate in replacement_candidates(self._number(index), among):
            try:
                return make(candidate)
            except ITEM_ERRORS as candidate_error:
                self._mark_if_folder_vanished(candidate_error)
                if not is_item_error(candidate_error):
                    raise
                failed.append(self._record_failure(candidate, candidate_error, "replace"))
        exhausted = mark_fatal(DecodeError(self._no_replacement_message(failed)))
        try:
            raise exhausted from error
        finally:
            del exhausted, error  # else this frame and their tracebacks form a cycle

    def _no_replacement_message(self, failed: list[Failure]) -> str:
        return (
            f"nothing can replace sample {failed[0].index}: {len(failed)} in a row are damaged: "
            f"{describe_failures(failed)}"
        )

    def _mark_if_folder_vanished(self, error: Exception) -> None:
        """Say in the error of a missing file if its whole folder is missing, too."""
        root = getattr(self, "root", None)
        if isinstance(root, (str, os.PathLike)):
            mark_if_folder_vanished(error, os.fspath(root))

    def _name_sample(self, error: Exception, index: int, source: object) -> None:
        """Name the sample in an error; a subclass may know more than the path.

        `source` is what `read` returned, or None if it failed.
        """
        name_sample(error, self._number(index), source)

    def _number(self, index: Any) -> Any:
        """Return the index of a sample counted from 0, as a plain int."""
        plain = plain_index(index)
        return plain % len(self) if is_int(plain) and -len(self) <= plain < 0 else plain

    def _record_failure(self, index: int, error: Exception, on_error: OnError) -> Failure:
        failure = as_failure(error, self._number(index))
        record_failure(self.errors, failure, on_error)  # type: ignore[arg-type]
        return failure


def _join_torchvision(kind: type[DecodeDataset]) -> None:
    """Make a class a subclass of torchvision's class, last in the method resolution order.

    torchvision's classes allow no virtual subclasses, and importing torchvision for this would take
    longer than all the rest. A class whose bases name torchvision's in another order is unchanged.
    """
    theirs = getattr(sys.modules.get("torchvision.datasets"), kind._torchvision_class, None)
    if isinstance(theirs, type) and not issubclass(kind, theirs):
        general = [base for base in kind.__bases__ if issubclass(theirs, base)]
        others = [base for base in kind.__bases__ if base not in general]
        with suppress(TypeError):
            kind.__bases__ = (*others, theirs, *general)


def read_source(source: Any, settings: Settings) -> Any:
    """Return the bytes of a file, or the result of the user's `loader`."""
    return read_encoded(source) if settings.loader is None else settings.loader(source)


def map_targets(dataset: Any, target: Any, geometry: Geometry | None, transform: Any) -> Any:
    """Return a target after `map_target` and a `target_transform`."""
    maps = geometry is not None and dataset._maps_targets()
    if transform is None and not maps:
        return target
    if maps:
        target = dataset.map_target(target, geometry)
    return target if transform is None else transform(target)


def overridden(kind: type, base: type, names: Sequence[str]) -> str:
    """Return the first of these methods that a class overrides, or an empty string."""
    return next((name for name in names if getattr(kind, name) is not getattr(base, name)), "")


def check_pair(dataset: Any, index: int, found: Any) -> tuple[Any, Any]:
    """Check that a dataset's ``read`` returned a source and a target, and return both."""
    called = f"{type(dataset).__name__}.read({index}) returned"
    if not isinstance(found, (tuple, list)) or len(found) != 2:
        several = isinstance(found, (tuple, list))
        what = f"a {_type_name(found)} of {len(found)}" if several else _type_name(found)
        raise TypeError(f"{called} {what}: {_READ_ADVICE}")
    source, target = without_row(found[0]), found[1]
    known = isinstance(source, (bytes, str, memoryview, os.PathLike))
    if not known and getattr(dataset, "_loader", None) is None:  # a user's loader takes anything
        try:
            as_buffer(source)
        except TypeError as error:
            raise TypeError(
                f"{called} {_type_name(source)} as the image: {_READ_ADVICE} ({error})"
            ) from None
    return source, target


def _type_name(value: object) -> str:
    return "None" if value is None else type(value).__name__


class StandardTransform:
    """An image transform and a target transform as one, like torchvision's class of this name."""

    def __init__(
        self,
        transform: Callable[..., Any] | None = None,
        target_transform: Callable[..., Any] | None = None,
    ) -> None:
        self.transform = transform
        self.target_transform = target_transform

    def __call__(self, image: Any, target: Any) -> tuple[Any, Any]:
        """Transform an image and its target."""
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
    """Return both transforms of a dataset as one, or None if it has neither."""
    if dataset.transform is None and dataset.target_transform is None:
        return None
    return StandardTransform(dataset.transform, dataset.target_transform)
