"""`Loader`: batches in order, from threads in the training process."""

from __future__ import annotations

import warnings
import weakref
from collections.abc import Callable, Iterable, Iterator, Sized
from typing import TYPE_CHECKING, Any, Generic, overload

import torch
from torch.utils.data import (
    BatchSampler,
    RandomSampler,
    Sampler,
    SequentialSampler,
    default_collate,
)

from fastdecode._arguments import is_int
from fastdecode.errors import BackendUnavailable
from fastdecode.torch._batch_builder import EpochConfig
from fastdecode.torch._collate import Batch, Ready, handed_out
from fastdecode.torch._decoding import NormalizeOn, Plan, plan_of, settle
from fastdecode.torch._loader_arguments import (
    DataLoaderOptions,
    Threads,
    check,
    how_many,
    how_many_read,
    seed_of,
)
from fastdecode.torch._memory import BatchMemory
from fastdecode.torch._order import Sharding, world
from fastdecode.torch._samples import Source
from fastdecode.torch._state import CallersSampler, Position
from fastdecode.torch._workers import Workers

if TYPE_CHECKING:
    from typing import Protocol

    from torch.utils.data import Dataset
    from typing_extensions import Unpack

    from fastdecode.torch._delivery import Delivery
    from fastdecode.torch._loader_arguments import LoaderOptions

    class MapStyle(Protocol):
        """Any dataset with a length and items by their indices."""

        def __len__(self) -> int: ...
        def __getitem__(self, index: int, /) -> Any: ...

    class Unstated:
        """What nothing is but Any: a dataset that does not say what its samples are."""

    Untyped = Dataset[Unstated] | Dataset[tuple[Any, Unstated]]
    Numbered = Dataset[tuple[torch.Tensor, torch.Tensor | float]]

__all__ = ["Loader"]


class Loader(Generic[Batch]):
    """Batches of a dataset, decoded by a pool of threads straight into the batch's memory.

    What a batch holds depends on `seed`, the epoch and the items alone: not on how many threads or
    processes there are. An item that a sampler gives twice is drawn for twice.

    Parameters
    ----------
    dataset : Dataset
        Map-style. One of this package decodes into the batch's memory; any other is collated as by
        torch's DataLoader.
    batch_size : int
    shuffle : bool
        Draw another order for each epoch.
    sampler : iterable of indices, optional
        Instead of `shuffle`; sharding is its business. If it has a `set_epoch`, that is called for
        each epoch, but never again once you have called it yourself (which its attribute ``epoch``
        shows): its epochs are then yours to count, and the loader's `epoch` follows.
    drop_last : bool
        Leave out an incomplete batch. All ranks then have equally many.
    threads : int or "auto"
        ``"auto"``: one for each core that this process may use; but worker processes instead, as
        many, for a dataset that threads cannot help: one whose random draws are not its own to
        control, such as a transform of the user's, or a backend that holds the GIL. 0 makes each
        batch in the calling thread or, on its way to a device, in the one that prefetches. If you
        ask for threads in spite of that, or for 0 on the way to a device, such draws come from the
        generators that the whole process shares: they do not follow from `seed`.
    workers : int
        Make batches in so many processes instead, for datasets whose own Python is slow. They are
        started at each epoch, with the dataset as it is then.
    prefetch : int
        Batches that are made ahead (with `workers`: by each).
    read_threads : int, optional
        Threads that only read, some batches ahead: by default 32 for a store behind a URI, whose
        every read waits for the network, else 0. What lies side by side in a shard is one request.
        With a number of your own they call `read` of any `DecodeDataset`, which may then draw
        nothing at random; 0 leaves reading to those that decode.
    seed : int
        Of the order and of all random draws.
    device : str or torch.device, optional
        Copy batches there in the background, as `DevicePrefetcher` does. By default they stay in
        the host's memory.
    decode : str
        ``"cpu"``; ``"gpu"``: a batch backend decodes whole batches on the device, and resizes them
        there; ``"auto"``: what ``calibrate(device=…)`` measured to be fastest, else the GPU if that
        is possible; or the name of a batch backend, whatever the dataset's own `backend` is, which
        then decodes only what the CPU does: what a batch backend does not read, joined in order.
        Crops and flips are the same, pixels nearly. Like `normalize_on`, it needs a transform that
        is done while decoding (see `fuse`), and no `collate_fn`; besides, no `workers`.
    normalize_on : {"host", "device"}
        Where a transform's floats are made. ``"device"``: bytes are copied, a quarter as many, and
        the floats are the same; without a device it is as ``"host"``. What a batch backend decodes
        is always normalised where it is.
    collate_fn : callable, optional
        From a list of samples to a batch, as for torch's DataLoader. It is called where the batch
        is asked for, or in a worker process; only there its own random draws follow from `seed`.
    channels_last : bool
        Lay images out as ``torch.channels_last``.
    rank, world_size : int, optional
        This process's share; by default from torch.distributed, if that is initialised. No item
        goes to two ranks and none is repeated, so without `drop_last` some ranks may have one more.
    timeout : float, optional
        Seconds after which a batch that is still missing is a TimeoutError; 0 is no limit. Where a
        batch backend decodes, that is for files that are not read in time.
    progress : bool
        Show a bar (needs rich).
    **dataloader
        Arguments of torch's DataLoader, by their names there. ``num_workers=n`` asks for n threads,
        or for n processes where ``threads="auto"`` would take processes; 0 is ``threads=0``.
        `batch_sampler` gives lists of indices, each a batch. ``pin_memory=True`` pins batches that
        stay on the host, in the background, if there is a CUDA device. `prefetch_factor` is
        `prefetch`, and from a `generator` the `seed` is drawn. `worker_init_fn` and
        `multiprocessing_context` are for worker processes. `persistent_workers` is what threads
        are; processes begin anew with each epoch, for the dataset as it is then. What has no
        meaning here (``in_order=False``, `pin_memory_device`) is refused.

    Attributes
    ----------
    skipped : int
        Items that this epoch has left out so far, for ``on_error="skip"``.
    epoch : int
        The one that is running, or that comes next.
    dataset, batch_size, sampler, batch_sampler, num_workers, pin_memory, drop_last, generator
        As training libraries read them of torch's DataLoader. Without a sampler of yours, `sampler`
        gives what this rank reads of the epoch, in order; its ``set_epoch`` is the loader's.
        `num_workers` counts threads or processes, whichever there are.
    collate_fn : callable
        It may be set; torch's ``default_collate`` stands for none.
    decoding : Decoding
        Its `backend` is the name of the batch backend that decodes, or None for the CPU; `why` says
        why, in words. It is settled when the loader is made; where the dataset does not allow it in
        a later epoch, ``"auto"`` lets the CPU decode that, and this says so once it has begun.

    Raises
    ------
    TypeError, ValueError
        An argument is wrong, or the dataset does not allow it.
    DeviceUnavailable, BackendUnavailable, UnknownBackend
        The device, or what is to decode on it, cannot be used.

    Notes
    -----
    Each ``iter(loader)`` begins the next epoch, or the one that `set_epoch` named. Memory of a
    batch is used again only when nothing refers to the batch any more. With worker processes or a
    device there is one iterator at a time: a new one ends the one before.

    Examples
    --------
    >>> from fastdecode.torch import ImageFolder, Loader
    >>> from fastdecode.torch.transforms import RandomResizedCropFlipNormalize
    >>> dataset = ImageFolder("train", transform=RandomResizedCropFlipNormalize(224))
    >>> for images, labels in Loader(dataset, 2, shuffle=True):
    ...     print(images.shape, images.dtype)
    torch.Size([2, 3, 224, 224]) torch.float32
    torch.Size([2, 3, 224, 224]) torch.float32
    torch.Size([2, 3, 224, 224]) torch.float32
    """

    # With a collate_fn a batch is what that returns. Of other datasets that say what their samples
    # are, images and numbers are tensors.
    @overload
    def __init__(
        self: Loader[Batch],
        dataset: Dataset[Any] | MapStyle,
        batch_size: int = 1,
        shuffle: bool = False,
        sampler: Iterable[Any] | None = None,
        drop_last: bool = False,
        *,
        collate_fn: Callable[[list[Any]], Batch],
        **options: Unpack[LoaderOptions],
    ) -> None: ...

    @overload
    def __init__(
        self: Loader[Any],
        dataset: Untyped,
        batch_size: int = 1,
        shuffle: bool = False,
        sampler: Iterable[Any] | None = None,
        drop_last: bool = False,
        *,
        collate_fn: None = None,
        **options: Unpack[LoaderOptions],
    ) -> None: ...

    @overload
    def __init__(
        self: Loader[list[torch.Tensor]],
        dataset: Numbered,
        batch_size: int = 1,
        shuffle: bool = False,
        sampler: Iterable[Any] | None = None,
        drop_last: bool = False,
        *,
        collate_fn: None = None,
        **options: Unpack[LoaderOptions],
    ) -> None: ...

    @overload
    def __init__(
        self: Loader[torch.Tensor],
        dataset: Dataset[torch.Tensor],
        batch_size: int = 1,
        shuffle: bool = False,
        sampler: Iterable[Any] | None = None,
        drop_last: bool = False,
        *,
        collate_fn: None = None,
        **options: Unpack[LoaderOptions],
    ) -> None: ...

    @overload
    def __init__(
        self: Loader[Any],
        dataset: Dataset[Any] | MapStyle,
        batch_size: int = 1,
        shuffle: bool = False,
        sampler: Iterable[Any] | None = None,
        drop_last: bool = False,
        *,
        collate_fn: None = None,
        **options: Unpack[LoaderOptions],
    ) -> None: ...

    def __init__(
        self,
        dataset: Any,
        batch_size: int = 1,
        shuffle: bool = False,
        sampler: Iterable[Any] | None = None,
        drop_last: bool = False,
        *,
        threads: Threads = "auto",
        workers: int = 0,
        prefetch: int = 2,
        read_threads: int | None = None,
        seed: int = 0,
        device: str | int | torch.device | None = None,
        decode: str = "cpu",
        normalize_on: NormalizeOn = "host",
        collate_fn: Callable[[list[Any]], Any] | None = None,
        channels_last: bool = False,
        rank: int | None = None,
        world_size: int | None = None,
        timeout: float | None = None,
        progress: bool = False,
        **dataloader: Unpack[DataLoaderOptions],
    ) -> None:
        check(dataloader, locals())  # which are the arguments
        world(rank, world_size)
        self.dataset = dataset
        batches = dataloader.get("batch_sampler")
        self.batch_size = int(batch_size) if batches is None else None
        self._given = CallersSampler(sampler if batches is None else batches, batches is not None)
        self.drop_last = drop_last
        self.collate_fn = collate_fn
        self.channels_last = channels_last
        self.prefetch = int(dataloader.get("prefetch_factor") or prefetch)
        self.timeout = timeout or 0
        self.progress = progress
        self._take(dataloader, seed)
        self.device = torch.device("cpu") if device is None else _parse_device(device)
        self.decode = decode
        self.normalize_on: NormalizeOn = normalize_on
        self.skipped = 0
        self._ranks = rank, world_size
        self._source = Source(dataset)
        self._shuffle = bool(shuffle)
        self._position = Position()
        self._count = 0
        self._settled = settle(decode, self.device, self._source, self._collate_fn, workers)
        apart = self._settled.backend is not None
        self.threads, self.workers = how_many(
            self._source, threads, workers, dataloader.get("num_workers"), apart=apart
        )
        self.read_threads = how_many_read(self._source, read_threads, self.workers)
        self.decoding = self._plan().decoding  # which says at once what does not go together
        self._set_up()

    def _take(self, options: DataLoaderOptions, seed: int) -> None:
        """Keep what is torch's DataLoader's alone."""
        self.generator = options.get("generator")
        self.seed = int(seed) if self.generator is None else seed_of(self.generator)
        self.pin_memory = bool(options.get("pin_memory"))
        self.worker_init_fn = options.get("worker_init_fn")
        self.multiprocessing_context = options.get("multiprocessing_context")
        self.persistent_workers = bool(options.get("persistent_workers"))

    def _set_up(self) -> None:
        """Make what belongs to this process, and cannot be copied or pickled."""
        self._workers = Workers(
            self.threads, self.workers, self.prefetch, self.timeout or None, self.read_threads
        )
        pinned = self.pin_memory and torch.cuda.is_available()
        self._delivery: Delivery | None = None
        if pinned or self.device.type != "cpu" or self._settled.backend is not None:
            from fastdecode.torch._delivery import Delivery

            # Once, because its streams are to last; and now, because the device may be missing.
            self._delivery = Delivery(self.device, self._settled.backend)
        pinned = pinned or self.device.type == "cuda"
        self._memory = BatchMemory(self.prefetch + 2, pinned=pinned)

    def __getstate__(self) -> dict[str, Any]:
        """Leave out what `_set_up` makes: threads, processes, memory, streams."""
        state = self.__dict__.copy()
        for name in ("_workers", "_delivery", "_memory"):
            del state[name]
        state["generator"] = None  # not every PyTorch can pickle one, and the seed is drawn
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._set_up()

    @property
    def _sharding(self) -> Sharding:
        """How items are dealt out, for the dataset as long as it is now, and the ranks there are.

        All ranks have to shuffle alike.
        """
        rank, ranks = world(*self._ranks)
        if ranks > 1 and self._shuffle and self.generator is not None:
            raise ValueError(
                "each rank would shuffle by a seed of its own generator, and items be lost: give "
                "all ranks the same seed= instead of a generator, or a sampler that deals them out"
            )
        length, size = len(self._source), self.batch_size or 1
        how = self._shuffle, bool(self.drop_last), self.seed
        return Sharding(length, size, *how, rank, ranks)

    @property
    def epoch(self) -> int:
        """The epoch that is running, or that the next ``iter(loader)`` begins."""
        return self._place().epoch

    @property
    def sampler(self) -> Any:
        """The caller's sampler; without one, the indices of the epoch on this rank, in order."""
        given = self._given.sampler
        if given is None:
            return (_Shuffled if self._shuffle else _InOrder)(self)
        return getattr(given, "sampler", None) if self._given.batches else given

    @sampler.setter
    def sampler(self, sampler: Iterable[Any] | None) -> None:
        self._given = CallersSampler(sampler)

    @property
    def batch_sampler(self) -> Any:
        """The caller's batch sampler; without one, `sampler` in batches, as torch makes them."""
        if self._given.batches:
            return self._given.sampler
        return BatchSampler(self.sampler, self.batch_size or 1, bool(self.drop_last))

    @property
    def num_workers(self) -> int:
        """How many threads or processes make batches."""
        return self.workers or self.threads

    @property
    def prefetch_factor(self) -> int | None:
        """As of torch's DataLoader, which has none without workers."""
        return self.prefetch if self.num_workers else None

    @property
    def collate_fn(self) -> Callable[[list[Any]], Any]:
        """What makes a batch of samples."""
        return self._collate_fn or default_collate

    @collate_fn.setter
    def collate_fn(self, collate_fn: Callable[[list[Any]], Any] | None) -> None:
        # What torch's does is done anyway, and faster.
        self._collate_fn = None if collate_fn is default_collate else collate_fn

    def __len__(self) -> int:
        """Count the batches of an epoch, on this rank."""
        sharding = self._sharding
        count = sharding.share if self._given.sampler is None else len(self._given)
        return count if self._given.batches else sharding.batches(count)

    def _place(self) -> Position:
        """Return where the loader stands, after what the caller has told the sampler."""
        told = self._given.told()
        return self._position if told is None else self._position.moved_to(told)

    def __iter__(self) -> Iterator[Batch]:
        """Begin an epoch: the next one, or where `set_epoch` or `load_state_dict` said."""
        made = _Epoch(self)
        if not self.progress:
            return made
        position = self._position
        title = f"epoch {position.epoch}"
        return _Shown(made, done=position.batch, total=self._count, title=title)

    def _begun(self, before: Position | None) -> tuple[Iterator[Any], Position] | None:
        """Begin the epoch of an iterator; or again, if another was named before it was used."""
        if before is not None:
            told = self._given.told()
            moved = self._position is not before and self._position is before.last()
            if not moved and (self._position is not before or told in (None, before.epoch)):
                return None
        plan = self._plan()
        self.decoding = plan.decoding
        position = self._position = self._place().begun()
        self._given.begin()
        self.skipped = 0
        order = position.order(self._sharding, self._given)
        delivery = self._delivery
        config = EpochConfig(
            source=plan.source,
            collate_fn=self._collate_fn,
            memory=self._memory,
            channels_last=self.channels_last,
            normalize=plan.normalize,
            at_once=None if delivery is None else delivery.at_once(plan.eligible),
            worker_init_fn=self.worker_init_fn,
            multiprocessing_context=self.multiprocessing_context,
            # A background thread would disturb what training draws.
            seed_all=delivery is None and not plan.source.isolated,
        )
        self._count = order.count
        made = self._workers.epoch(config, order, position.batch)
        return made if delivery is None else delivery.begin(made), position

    def _plan(self) -> Plan:
        """Look how batches are made of the dataset as it is now."""
        how = self._collate_fn, self.normalize_on, self.device, self.decode, self._settled
        return plan_of(self._source, *how)

    def _handed(self, position: Position, ready: Ready) -> None:
        """Keep account of what the consumer has got."""
        position.batch = ready.position
        if position is self._position:  # not of an iterator that a later one has replaced
            self.skipped += ready.skipped

    def set_epoch(self, epoch: int) -> None:
        """Let the next ``iter(loader)`` begin this epoch.

        Parameters
        ----------
        epoch : int
            From 0. If it is the one that `load_state_dict` brought back, the batches that were
            handed out before are still left out.
        """
        if not is_int(epoch) or epoch < 0:
            raise ValueError(f"epoch must be an integer from 0, not {epoch!r}")
        self._position = self._position.moved_to(int(epoch))
        self._given.counted()

    def state_dict(self) -> dict[str, Any]:
        """Return plain values that say where the loader stands, also in the middle of an epoch."""
        return self._place().state(self._settings())

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Let the next ``iter(loader)`` give exactly the batches that were left.

        Raises
        ------
        ValueError
            If the state is of a loader whose batches would be others.
        """
        position = Position.of_state(state, self._settings())
        # At an epoch's beginning there is nothing to check, and no sampler is to be asked yet.
        if position.batch:
            most = position.order(self._sharding, self._given).count
            if position.batch > most:
                raise ValueError(f"the state is of batch {position.batch}, but an epoch has {most}")
        self._position = position
        self._given.counted()

    def _settings(self) -> dict[str, Any]:
        """Return all that the batches follow from."""
        batches = "batches" if self._given.batches else True
        return self._sharding.settings(sampled=self._given.sampler is not None and batches)

    def close(self) -> None:
        """End the threads, the processes, the copying, and the epoch. A later one starts anew."""
        self._workers.end()
        if self._delivery is not None:
            self._delivery.close()
        self._workers.close()

    def __enter__(self) -> Loader[Batch]:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        sized = isinstance(self._given.sampler, (Sized, type(None)))
        count = len(self) if sized else "?"
        by = f"{self.workers} processes" if self.workers else f"{self.threads} threads"
        name, why = self.decoding
        decodes = "" if self.decode == "cpu" else f", decode={name or 'cpu'!r} ({why})"
        return (
            f"Loader({type(self.dataset).__name__} of {len(self._source)}, "
            f"batch_size={self.batch_size}, {count} batches, {by}, seed={self.seed}, "
            f"device={str(self.device)!r}{decodes})"
        )


class _Epoch:
    """What a consumer iterates over."""

    def __init__(self, loader: Loader[Any]) -> None:
        self._loader = loader
        self._ended = False
        self._left_out = 0
        self._gave_some = False
        self._source: Iterator[Any]
        self._position: Position
        self._take(None)

    def _take(self, position: Position | None) -> None:
        """Begin, if that is needed, another epoch than the one that was begun at a position."""
        begun = self._loader._begun(position)
        if begun is not None:
            self._source, self._position = begun

    def __iter__(self) -> Iterator[Any]:
        return self

    def __del__(self) -> None:
        if hasattr(self, "_position"):
            self._position.unasked()

    def __next__(self) -> Any:
        if not self._position.asked:
            # Lightning makes its iterator first, and then says which epoch that is to be.
            self._take(self._position)
            self._position.asked = True
        while True:
            try:
                ready = next(self._source)
            except StopIteration:
                if not self._ended:  # it may be asked again
                    self._ended = True
                    self._position.end()
                    self._warn_of_nothing()
                raise
            batch = handed_out(ready)
            self._loader._handed(self._position, ready)
            self._left_out += ready.skipped
            if batch is not None:  # else every item of it was left out
                self._gave_some = True
                return batch

    def _warn_of_nothing(self) -> None:
        """Tell of an epoch of nothing but damaged files: a wrong path looks like that."""
        errors = self._loader._source.errors
        if self._left_out and not self._gave_some:
            warnings.warn(
                f"there was no batch: all {self._left_out} samples were skipped"
                + (f", such as {errors[0]}" if errors else ""),
                RuntimeWarning,
                stacklevel=3,
            )


class _Shown:
    """Yields what an iterator yields, and shows on the terminal how many there have been."""

    def __init__(self, batches: Iterator[Any], *, done: int, total: int, title: str) -> None:
        try:
            from rich import progress
        except ImportError as error:
            raise BackendUnavailable("progress=True needs rich: pip install rich") from error
        self._batches = batches
        self._bar = progress.Progress(
            progress.TextColumn("{task.description}"),
            progress.BarColumn(),
            progress.MofNCompleteColumn(),
            progress.TimeElapsedColumn(),
            progress.TimeRemainingColumn(),
        )
        self._task = self._bar.add_task(title, total=total, completed=done)
        self._bar.start()
        # A consumer that leaves early drops this object; the terminal must be given back then, too.
        self._stop = weakref.finalize(self, self._bar.stop)

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        try:
            batch = next(self._batches)
        except BaseException:
            self._stop()
            raise
        self._bar.advance(self._task)
        return batch


class _Own(Sampler[int]):
    """What a loader without a sampler of the caller's reads, for those who look for one."""

    generator = None

    def __init__(self, loader: Loader[Any]) -> None:
        self._loader = loader
        self.data_source = loader.dataset

    def __iter__(self) -> Iterator[int]:
        return iter(self._loader._sharding.order(self._loader.epoch).indices.tolist())

    def __len__(self) -> int:
        return self._loader._sharding.share

    def set_epoch(self, epoch: int) -> None:
        """Let the loader's next ``iter`` begin this epoch."""
        self._loader.set_epoch(epoch)


class _InOrder(_Own, SequentialSampler):
    """Known by its type not to shuffle."""


class _Shuffled(_Own, RandomSampler):
    """Known by its type to shuffle."""

    replacement = False

    @property
    def num_samples(self) -> int:
        return len(self)


def _parse_device(device: str | int | torch.device) -> torch.device:
    from fastdecode.gpu._devices import parse_device

    return parse_device(device)
