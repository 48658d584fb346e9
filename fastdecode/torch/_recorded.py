"""Tensors that are recorded, and made when somebody asks for their values.

A `LazyTensor` has the file of an image and knows what is done to it, with everything drawn. To
everyone it is a torch.Tensor. Several that are stacked become one `LazyTensor` of a batch in a
worker process of a `Loader`, which sends it as it is, and are made in one call of the core
everywhere else.
"""

from __future__ import annotations

import itertools
import os
import pickle
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache, lru_cache
from multiprocessing.reduction import ForkingPickler
from typing import Any, ClassVar, NamedTuple, cast
from weakref import WeakKeyDictionary

import numpy as np
import torch

from fastdecode._decode.resizing import core_may_decode
from fastdecode._system.processor import usable_cores
from fastdecode.errors import begin_with
from fastdecode.native._augment import Program
from fastdecode.native._library import ffi
from fastdecode.native._pool import Pool, Recorded
from fastdecode.torch._loader.memory import BatchMemory
from fastdecode.torch.transforms.base import DrawnSample, Recipe, core_pixel_format, core_recipe

_TELLING = (
    "device dtype grad_fn is_cuda is_cpu is_leaf is_meta is_mps is_nested is_quantized is_sparse "
    "is_sparse_csr is_xpu itemsize layout names nbytes ndim requires_grad shape"
)
ANSWERED = frozenset(
    getattr(torch.Tensor, name).__get__ for name in _TELLING.split() if hasattr(torch.Tensor, name)
) | frozenset(
    (
        *(torch.Tensor.dim, torch.Tensor.size, torch.Tensor.numel, torch.Tensor.__len__),
        *(torch.Tensor.element_size, torch.Tensor.is_floating_point, torch.Tensor.stride),
        *(torch.Tensor.is_contiguous, torch.Tensor.is_complex, torch.Tensor.get_device),
        torch.Tensor.is_shared,
    )
)
"""What a tensor says without its values."""


_NOTHING = Program()


class Recording(NamedTuple):
    """A sample that has still to be made of a file."""

    data: bytes
    """What was in the file when it was opened: it may be another one when the sample is made.
    Of an image that was in memory, `ppm` of it."""
    name: str
    """The path of the file, for errors; empty if there is none."""
    drawn: Recorded
    size: tuple[int, int]
    """The (height, width) of the result."""
    recipe: Recipe
    """The form of the result. Of its program nothing is used."""

    def make_one(self, out: torch.Tensor) -> None:
        """Make the sample in `out`, with whatever decoder can; an error names the file."""
        try:
            self.recipe.make_drawn(self.data, self.drawn, self.size, out)
        except Exception as error:
            if self.name:
                begin_with(error, self.name)
            raise


def ppm(image: np.ndarray[Any, Any]) -> bytes:
    """Return RGB bytes (H, W, 3) as the file that the core reads fastest."""
    height, width, _ = image.shape
    return b"".join((b"P6\n%d %d\n255\n" % (width, height), np.ascontiguousarray(image).data))


class LazyTensor(torch.Tensor):
    """A tensor of one sample, or of a batch of them, whose values are made when they are used."""

    _recordings: list[Recording] | None
    _made: torch.Tensor | None
    _was_stacked: bool
    """Then somebody keeps it for another batch, and so its values, too."""
    _kind: ClassVar[type[torch.Tensor] | None] = None
    """The class of the tensor that it becomes; None for torch's own."""

    @staticmethod
    def of(
        recordings: list[Recording], kind: type[torch.Tensor] | None = None, *, stacked: bool
    ) -> LazyTensor:
        """Return the tensor of a sample (C, H, W), or of several that are `stacked`.

        One sample may be of another `kind`, such as torchvision's ``tv_tensors.Image``.
        """
        first = recordings[0]
        shape: tuple[int, ...] = (first.recipe.channels, *first.size)
        shape = (len(recordings), *shape) if stacked else shape
        made: LazyTensor = torch.Tensor._make_wrapper_subclass(
            LazyTensor if kind is None else _lazy(kind),
            shape,
            dtype=first.recipe.dtype,
            device=torch.device("cpu"),
        )
        made._recordings, made._made, made._was_stacked = recordings, None, False
        if "torch._dynamo" in sys.modules:
            _leave_uncompiled()
        return made

    @staticmethod
    def of_sample(
        data: bytes,
        name: str,
        drawn: DrawnSample,
        recipe: Recipe,
        kind: type[torch.Tensor] | None = None,
    ) -> LazyTensor:
        """Return the tensor of a sample of a file, with everything drawn."""
        operations = bytes(ffi.buffer(drawn.operations)) if len(drawn.operations) else b""
        recorded = Recorded(*drawn.sides, operations)
        form = _without_program(recipe)
        one = Recording(data, name, recorded, drawn.size, form)
        return LazyTensor.of([one], kind, stacked=False)

    def made(self, out: torch.Tensor | None = None) -> torch.Tensor:
        """Return the tensor with its values; written to `out` if that is given."""
        recordings = self._recordings
        if self._made is None and recordings is not None:
            # It is an ordinary tensor also for those who use it outside of what asks for it.
            with torch._C._DisableFuncTorch(), torch.inference_mode(mode=False):
                images = out
                if images is None:
                    images = torch.empty(self.shape, dtype=self.dtype, device="cpu")
                make(recordings, images if self.dim() == 4 else images[None])
                if out is not None:
                    return out
                kind = self._kind
                own = images if kind is None else images.as_subclass(kind)
                if self._made is None:  # another thread may have been faster
                    self._made = own
            self._recordings = None
        made = cast("torch.Tensor", self._made)
        return made if out is None else out.copy_(made)

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        # One that has its values may have been changed in place, to another shape, too.
        if func in ANSWERED and args[0]._made is None:
            with torch._C.DisableTorchFunctionSubclass():
                return func(*args, **(kwargs or {}))
        if func is torch.stack and "axis" not in (kwargs or {}):
            return _stack(*args, **(kwargs or {}))
        return func(*_with_values(args), **_with_values(kwargs or {}))

    @classmethod
    def __torch_dispatch__(  # type: ignore[override]
        cls, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        """Make the values for code that no function of torch's has called, such as a script."""
        return func(*_with_values(args), **_with_values(kwargs or {}))

    def _typed_storage(self) -> Any:
        """Let `default_collate` make shared memory of a storage like this tensor's."""
        if self._made is not None:
            return self._made._typed_storage()
        return (
            _Unneeded(self.dtype)
            if _Here.keeps
            else torch.empty(0, dtype=self.dtype, device="cpu")._typed_storage()
        )

    def new(self, *args: Any, **kwargs: Any) -> Any:
        if args and isinstance(args[0], _Unneeded):
            return args[0]
        return torch.empty(0, dtype=self.dtype, device="cpu").new(*args, **kwargs)

    def as_subclass(self, cls: Any) -> Any:
        return self.made().as_subclass(cls)

    def _for_queue(self) -> Any:
        """Pickle it for another process that gets it at once: as it is recorded."""
        if self._recordings is None:
            return self.made().__reduce_ex__(2)
        sent = [(*one[:-1], _pickled_form(one.recipe)) for one in self._recordings]
        return _restored, (sent, self._kind, self.dim() == 4)

    def __reduce_ex__(self, protocol: Any) -> Any:
        return self.made().__reduce_ex__(protocol)

    def __repr__(self, **how: Any) -> str:  # type: ignore[override]
        made: Any = self.made()
        return str(made.__repr__(**how))

    def __deepcopy__(self, memo: Any) -> torch.Tensor:
        return self.made().clone()


class _Unneeded(NamedTuple):
    """Stands for the shared memory that `default_collate` stacks in, where none is needed."""

    dtype: torch.dtype

    def _new_shared(self, *_: Any, **__: Any) -> _Unneeded:
        return self

    def resize_(self, *_: int) -> None:
        """Return what is given to `torch.stack` as `out`."""


ForkingPickler.register(LazyTensor, lambda tensor: tensor._for_queue())


_forms: WeakKeyDictionary[Recipe, Recipe] = WeakKeyDictionary()


def _without_program(recipe: Recipe) -> Recipe:
    """Return the form of a recipe's results, which is sent with the samples of a batch once."""
    if recipe not in _forms:
        form = Recipe(quality=recipe.quality, headroom=recipe.headroom)
        kept = {name: getattr(recipe, name) for name in ("dtype", "normalize", "form", "channels")}
        _forms[recipe] = form.but(**kept)
    return _forms[recipe]


@lru_cache(maxsize=64)
def _pickled_form(form: Recipe) -> bytes:
    """Return a form pickled: torch would give each of its tensors shared memory in each batch."""
    return pickle.dumps(form)


@lru_cache(maxsize=64)
def _form_of(pickled: bytes) -> Recipe:
    form: Recipe = pickle.loads(pickled)  # noqa: S301 - of our own process
    return form


def _restored(sent: list[Any], kind: type[torch.Tensor] | None, stacked: bool) -> LazyTensor:
    recordings = [Recording._make([*one, _form_of(form)]) for *one, form in sent]
    return LazyTensor.of(recordings, kind, stacked=stacked)


@cache
def _lazy(kind: type[torch.Tensor]) -> type[LazyTensor]:
    """Return the class of recorded tensors that are also of a kind of torchvision's."""
    names = ("shape", "ndim", "device", "dtype")  # which torchvision's class answers by itself
    own = {name: getattr(torch.Tensor, name) for name in names}
    wrap = staticmethod(lambda tensor, *_, **__: tensor.as_subclass(kind))
    made: Any = type(kind.__name__, (LazyTensor, kind), {**own, "_kind": kind, "wrap": wrap})
    ForkingPickler.register(made, LazyTensor._for_queue)
    return cast("type[LazyTensor]", made)


@cache
def _leave_uncompiled() -> None:
    """Let what torch.compile compiles call this class's methods, and not be made of them."""
    for name in ("__torch_function__", "__torch_dispatch__"):
        method = getattr(LazyTensor, name).__func__
        setattr(LazyTensor, name, classmethod(torch.compiler.disable(method)))


def may_be_of(kind: type[torch.Tensor] | None) -> bool:
    """Return whether a recorded tensor may be of a kind: torchvision 0.28 asks it how to wrap."""
    return kind is None or hasattr(kind, "wrap")


class _Here:
    """How this process makes recorded samples."""

    process = 0
    pool: Pool
    keeps = False
    """Whether it leaves batches to the process that gets them."""


def _pool() -> Pool:
    """Return this process's threads; a worker process has one core to itself."""
    if _Here.process != os.getpid():
        worker = torch.utils.data.get_worker_info() is not None
        _Here.pool, _Here.process = Pool(1 if worker else usable_cores()), os.getpid()
    return _Here.pool


@contextmanager
def left_to_others() -> Iterator[None]:
    """Let this process stack recorded samples without making them, within the block."""
    before, _Here.keeps = _Here.keeps, True
    try:
        yield
    finally:
        _Here.keeps = before


def with_values(batch: Any, memory: BatchMemory, *, channels_last: bool) -> Any:
    """Return a batch that has come from a worker process with its recorded parts made."""
    parts = itertools.count()

    def made(found: Any) -> Any:
        if isinstance(found, LazyTensor):
            if found._recordings is None or found.dim() != 4 or found.dtype not in _DTYPES:
                return found.made()
            last, part = channels_last, next(parts)
            out = memory.take(found.shape, found.dtype, channels_last=last, part=part)
            return found.made(out)
        return _mapped(made, found)

    return made(batch)


_DTYPES = (torch.float32, torch.uint8)
_LARGE, _MUCH_LARGER = 2**20, 4


def without_large_files(batch: Any, *, channels_last: bool) -> Any:
    """Return a batch for another process, made where its files are much larger than its values.

    They would be copied several times, and wait in memory, as many batches as are made ahead.
    """

    def made(found: Any) -> Any:
        if not isinstance(found, LazyTensor):
            return _mapped(made, found)
        files = sum(len(one.data) for one in found._recordings or ())
        samples = len(found) if found.dim() == 4 else 1
        if files <= max(_LARGE * samples, _MUCH_LARGER * found.nbytes):
            return found
        if found.dim() != 4:
            return found.made()
        how = torch.channels_last if channels_last else torch.contiguous_format
        out = torch.empty(found.shape, dtype=found.dtype, device="cpu", memory_format=how)
        return found.made(out)

    return made(batch)


def make(recordings: Sequence[Recording], images: torch.Tensor, pool: Pool | None = None) -> None:
    """Make samples of one form in `images` (N, C, H, W)."""
    first = recordings[0]
    alike = all(one.recipe is first.recipe and one.size == first.size for one in recordings)
    in_core = images.is_contiguous() or images.is_contiguous(memory_format=torch.channels_last)
    left: Sequence[int] = range(len(recordings))
    if alike and in_core and core_may_decode(None):
        left = _make_in_core(recordings, images, pool or _pool())
    for at in left:
        recordings[at].make_one(images[at])


def _make_in_core(
    recordings: Sequence[Recording], images: torch.Tensor, pool: Pool
) -> Sequence[int]:
    """Make the samples that the core can make; return the places of the others."""
    recipe = recordings[0].recipe
    channels, height, width = images.shape[1:]
    first, headroom = images.is_contiguous(), recipe.headroom if recipe.quality == "fast" else 0.0
    pixels = core_pixel_format(recipe.normalize, channels_first=first, channels=channels)
    with pool.items() as items:
        made, _ = items.make(
            pool,
            [one.data for one in recordings],
            [one.drawn for one in recordings],
            core_recipe(_NOTHING, (height, width), headroom),
            *(pixels, images.data_ptr(), images.stride(0) * images.element_size()),
        )
    return sorted({*range(len(recordings))}.difference(made))


def _stack(
    tensors: Sequence[torch.Tensor], dim: int = 0, *, out: torch.Tensor | None = None
) -> torch.Tensor:
    """Do what torch.stack does; recorded samples are made in one call, or by another process."""
    recordings = [one for tensor in tensors for one in _recorded_again(tensor)]
    forms = {(one.shape, one.dtype) for one in tensors}
    kind = getattr(tensors[0], "_kind", None)
    if len(recordings) < len(tensors) or len(forms) > 1 or dim != 0 or _stays(kind):
        return torch.stack(_with_values(tensors), dim, out=_with_values(out))
    if _Here.keeps and out is None:
        return LazyTensor.of(recordings, stacked=True)
    shape, dtype = (len(recordings), *tensors[0].shape), tensors[0].dtype
    form = (shape, dtype, "cpu", False)
    if out is None or (out.shape, out.dtype, out.device.type, out.requires_grad) != form:
        images = torch.empty(shape, dtype=dtype, device="cpu")
        make(recordings, images)
        return images if out is None else torch.stack(images.unbind(), out=out)
    make(recordings, out)
    return out


def _stays(kind: type[torch.Tensor] | None) -> bool:
    """Return whether a batch is of the kind, too, as torchvision's `set_return_type` has it."""
    return kind is not None and type(torch.stack([torch.empty(1).as_subclass(kind)])) is kind


def _recorded_again(tensor: torch.Tensor) -> list[Recording]:
    """Return what is recorded of a sample; make it if that is asked for a second time."""
    if not isinstance(tensor, LazyTensor) or tensor.dim() != 3:
        return []
    if tensor._was_stacked:
        tensor.made()
    tensor._was_stacked = True
    return tensor._recordings or []


def _with_values(found: Any) -> Any:
    """Return arguments of a call with values in place of recorded tensors."""
    return found.made() if isinstance(found, LazyTensor) else _mapped(_with_values, found)


def _mapped(change: Callable[[Any], Any], found: Any) -> Any:
    """Return a container with what is in it changed; anything else as it is."""
    if type(found) is dict:
        return {name: change(one) for name, one in found.items()}
    if isinstance(found, tuple) and hasattr(found, "_fields"):
        return type(found)(*map(change, found))
    return type(found)(map(change, found)) if type(found) in (list, tuple) else found
