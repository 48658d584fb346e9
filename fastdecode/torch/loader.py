"""`Loader`: batches in order, made by threads in the training process."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import torch
from torch.utils.data import (
    BatchSampler,
    RandomSampler,
    Sampler,
    SequentialSampler,
    default_collate,
    default_convert,
)
from torch.utils.data.dataloader import _InfiniteConstantSampler

from fastdecode._arguments import check_names, is_int
from fastdecode._system.process import ForkLock
from fastdecode.torch._errors import SKIPPED
from fastdecode.torch._loader.arguments import (
    BatchWay,
    DataLoaderOptions,
    NormalizeOn,
    Threads,
    check_options,
    choose_way,
    load_decoder,
    resolve_workers,
)
from fastdecode.torch._loader.batch_builder import EpochConfig
from fastdecode.torch._loader.collate import Alone, ReadyBatch, finish_batch
from fastdecode.torch._loader.memory import BatchMemory
from fastdecode.torch._loader.order import Order, Seed, Sharding, world
from fastdecode.torch._loader.position import Position
from fastdecode.torch._loader.sampler import CallersSampler
from fastdecode.torch._loader.samples import SampleSource
from fastdecode.torch._loader.streams import GivenStream, StreamHere
from fastdecode.torch._loader.workers import ProcessWorkers, ThreadWorkers

if TYPE_CHECKING:
    from typing_extensions import Self, Unpack

    from fastdecode.torch._loader.device_batches import Delivery

_ASSIGNABLE = {"channels_last", "collate_fn", "normalize_on", "skipped", "worker_init_fn"}
"""Public attributes that may be assigned: the next epoch begins with them."""


class Loader:
    """A data loader whose threads decode images straight into the memory of the batch.

    Parameters
    ----------
    dataset : Dataset
        Images of this package's datasets are decoded into the memory of the batch; samples of any
        other map-style dataset are collated as in torch's DataLoader. An IterableDataset is read by
        `workers` processes, each of which has a copy and gives its share (see torch's
        ``get_worker_info``), or by this process if there are none; it also shares the samples among
        ranks itself. If it has ``set_epoch``, the loader calls it as that of a `sampler`.
    batch_size : int or None
        How many samples a batch has. None gives single samples, converted as by torch's DataLoader.
    shuffle : bool
        Shuffle the items, differently in each epoch.
    sampler : iterable of indices, optional
        The order of the items, instead of `shuffle`. The loader does not shard it: the sampler
        must. If the sampler has a ``set_epoch`` method, the loader calls it for each epoch that it
        counts itself. Once you have set another epoch of the sampler, the loader stops calling it
        and takes over your epoch as its own `epoch`. The loader reads it from an
        attribute of the sampler, such as ``epoch``, so it cannot see that you set the same again.
        As by torch's DataLoader, it is drawn `prefetch` batches ahead, in the thread that asks for
        batches, so it may be endless or adapt to the training. The draws of an item also depend on
        the rank: that of the sampler if it has one as `rank`, else that of the loader.
    drop_last : bool
        Drop the last batch of an epoch if it is incomplete. All ranks then get the same number of
        batches.
    threads : int or "auto"
        How many threads make batches. ``"auto"`` is one per core that this process may use. It
        starts as many worker processes instead if code of your own makes the samples (a `read`, a
        `target_transform`, a step of the transform, a dataset of another library) and does not say
        ``thread_safe = True``, or if the backend holds the GIL. 0 makes each batch in the calling
        thread, or in the prefetch thread if batches go to a device. If you ask for threads in spite
        of such code, they call it one at a time, and what it draws does not follow from `seed`, as
        with 0 and a device: the whole process shares the global generators.
    workers : int
        Make batches in this many worker processes instead of threads, for datasets whose own
        Python code is slow. The processes start again at each epoch, with the dataset as it is
        then, unless there is ``persistent_workers=True``.
    prefetch : int
        How many batches are made ahead; with `workers`, how many each process makes ahead.
    seed : int, optional
        Seed of the order and of all random draws. By default it is drawn from torch's global
        generator, so it follows from ``torch.manual_seed``; on the ranks of torch.distributed that
        share the items, it is that of rank 0. `state_dict` holds it, and `load_state_dict` takes it
        over if you give none.
    device : str or torch.device, optional
        Copy batches to this device in the background, as `DevicePrefetcher` does. By default they
        stay in host memory.
    decode : str
        What decodes the images. Crops and flips are the same in every case, and pixels are nearly
        the same.

        - ``"cpu"``: the CPU.
        - ``"gpu"``: a batch backend, which decodes and resizes whole batches on `device`: that of
          `use`, or the first that works.
        - The name of a batch backend.

        The CPU decodes the files that a batch backend does not read, with the `backend` of the
        dataset, and the batch keeps its order. A batch backend needs a transform that is done while
        decoding (see `fuse`), no `collate_fn` and no `workers`.
    normalize_on : {"host", "device"}
        Where a transform's floats are computed. ``"device"`` copies uint8, a quarter of the bytes,
        and computes the same floats there; without a `device` it equals ``"host"``. It needs a
        transform that is done while decoding (see `fuse`) and no `collate_fn`. Images that a batch
        backend decodes are always normalised where they were decoded.
    collate_fn : callable, optional
        Makes a batch from a list of samples, as in torch's DataLoader. It runs in the thread that
        waits for the batch, or in a worker process. Its own random draws follow from `seed` only in
        a worker process.
    channels_last : bool
        Lay images out as ``torch.channels_last``.
    rank, world_size : int, optional
        Which share of the items this process reads; by default as in torch.distributed, if that is
        initialised. No item goes to two ranks and none is repeated, so without `drop_last` some
        ranks may have one more.
    timeout : float, optional
        Raise TimeoutError if a batch does not arrive within this many seconds; 0 is no limit. If a
        batch backend decodes, the limit applies to reading the files.
    **dataloader
        Arguments of torch's DataLoader, under the same names:

        - `num_workers` is a number of threads, or of processes where ``threads="auto"`` would use
          processes; 0 is ``threads=0``.
        - `batch_sampler` yields lists of indices, each a batch.
        - ``pin_memory=True`` pins batches that stay on the host, in the background, if there is a
          CUDA device.
        - `prefetch_factor` is `prefetch`.
        - `generator`: the `seed` is drawn from it instead of the global one.
        - `worker_init_fn` prepares worker processes, so these make the batches in the place of
          threads. It and `multiprocessing_context` have no meaning for 0.
        - ``persistent_workers=True`` keeps worker processes for later epochs, with the dataset of
          the first, until its transforms, options or length or the `collate_fn` change. Of your own
          objects they keep what these were. Threads always persist.

        And `max_pixels`, which replaces that option of the dataset (see `DecodeOptions`).
        Arguments that have no meaning here (``in_order=False``, `pin_memory_device`) are refused.

    Attributes
    ----------
    skipped : int
        How many items this epoch has left out so far because of ``on_error="skip"``.
    seed : int
        The seed, as given or drawn.
    epoch : int
        The epoch that is running, or the one that starts next.
    dataset, batch_size, sampler, batch_sampler, num_workers, pin_memory, drop_last, generator
        The attributes that training libraries read from torch's DataLoader. If you gave no sampler,
        `sampler` yields the indices that this rank reads in the epoch, in order, and its
        ``set_epoch`` sets the loader's epoch. `num_workers` is the number of threads or processes,
        whichever make the batches.
    collate_fn, worker_init_fn, channels_last, normalize_on
        You may assign these, for the next epoch. `collate_fn` is torch's ``default_collate`` if you
        gave none. What torch's DataLoader refuses to change, and whatever would have no effect,
        raises a ValueError.
    decoding : str
        What decodes: the name of a batch backend, or ``"cpu"``.

    Raises
    ------
    TypeError, ValueError
        An argument is wrong, or the dataset does not allow it.
    DeviceUnavailable, BackendUnavailable, UnknownBackend
        The device, or the backend that should decode on it, cannot be used.

    Notes
    -----
    What a loader promises; whatever contradicts it is a bug:

    1. A batch depends on `seed`, the epoch and its items alone, not on the number of threads or
       processes. An item that a sampler repeats within an epoch gets draws of its own each time.
    2. It is what torch's DataLoader would give if ``random``, NumPy and torch were seeded for each
       sample from (`seed`, epoch, item).
    3. Each ``iter(loader)`` starts the next epoch, or the one that `set_epoch` named, when its
       first batch is asked for. With worker processes or a device there is one epoch at a time: a
       new one ends the previous one.
    4. An epoch keeps the transforms and options with which it began, whatever you change meanwhile.
    5. `state_dict` in the middle of an epoch, and `load_state_dict`, give exactly the batches that
       were left.
    6. The memory of a batch is reused only when nothing refers to the batch any more, so you may
       keep batches; so is that of each image if a ``collate_fn`` gets several sizes.
    7. Code of your own runs as written, in worker processes, or in threads if it says
       ``thread_safe = True``.
    8. An error comes in the place of its batch, names the item and the file, and has the traceback.
    9. Threads and processes end with the loader, also after an error or Ctrl-C.

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

    def __init__(
        self,
        dataset: Any,
        batch_size: int | None = 1,
        shuffle: bool = False,
        sampler: Iterable[Any] | None = None,
        drop_last: bool = False,
        *,
        threads: Threads = "auto",
        workers: int = 0,
        prefetch: int = 2,
        seed: int | None = None,
        device: str | int | torch.device | None = None,
        decode: str = "cpu",
        normalize_on: NormalizeOn = "host",
        collate_fn: Callable[[list[Any]], Any] | None = None,
        channels_last: bool = False,
        rank: int | None = None,
        world_size: int | None = None,
        timeout: float | None = None,
        **dataloader: Unpack[DataLoaderOptions],
    ) -> None:
        check_names(type(self), dataloader, DataLoaderOptions)
        check_options(dataloader, locals())  # locals() holds exactly the arguments here
        world(rank, world_size)
        self.dataset = dataset
        batches = dataloader.get("batch_sampler")
        self._singly = batch_size is None
        self.batch_size = None if batches is not None or batch_size is None else int(batch_size)
        self.drop_last = drop_last
        self.collate_fn = collate_fn
        self.channels_last = channels_last
        self.prefetch = int(dataloader.get("prefetch_factor") or prefetch)
        self.timeout = timeout or 0
        self._take(dataloader, seed)
        self.device = torch.device("cpu") if device is None else _parse_device(device)
        self.decode = decode
        self.normalize_on: NormalizeOn = normalize_on
        self.skipped = 0
        self._ranks = rank, world_size
        self._options = _decode_options(dataloader)
        self._shuffle = bool(shuffle)
        self._position = Position()
        self._begun = False  # as long as it is, the next iterator begins at that position
        self._told_length: int | None = None
        self.decoding = "cpu" if decode == "cpu" else load_decoder(decode, self.device)
        self._lock = ForkLock()
        self._asked = threads, workers, dataloader.get("num_workers")
        self._prepares = self.worker_init_fn is not None
        self.threads, self.workers = self._look_inside()
        self._given = self._order_giver(sampler, batches)
        self._way()  # raises if arguments and dataset contradict
        self._share_seed()
        self._set_up()
        read = {name for name, kind in vars(Loader).items() if isinstance(kind, property)}
        public = {name for name in {*vars(self), *read} if not name.startswith("_")}
        self._fixed = public - _ASSIGNABLE

    def _order_giver(self, sampler: Any, batches: Any) -> CallersSampler:
        """Return what says which samples come: a sampler of the caller's, or the dataset itself."""
        if not self._source.iterable:
            return CallersSampler(sampler if batches is None else batches, batches is not None)
        lasting = self.persistent_workers or not self.workers
        return GivenStream(self.dataset, self.workers or 1, lasting=lasting)

    def _take(self, options: DataLoaderOptions, seed: int | None) -> None:
        """Store the arguments that only torch's DataLoader has."""
        self.generator = options.get("generator")
        self._seed = Seed(seed, self.generator)
        self.pin_memory = bool(options.get("pin_memory"))
        self.worker_init_fn = options.get("worker_init_fn")
        self.multiprocessing_context = options.get("multiprocessing_context")
        self.persistent_workers = bool(options.get("persistent_workers"))

    def _look_inside(self) -> tuple[int, int]:
        """Find the datasets inside; return how many threads and how many processes suit."""
        self._source = SampleSource(self.dataset, self._options, self._lock)
        self._source.singly = self._singly
        apart = self.decoding != "cpu"
        threads, workers = resolve_workers(self._source, *self._asked, apart=apart)
        if self._prepares and threads:
            if apart or self._asked[0] != "auto":
                raise ValueError(
                    "worker_init_fn prepares worker processes, but threads make the batches: leave "
                    "it out, or give workers= instead of threads or decode"
                )
            threads, workers = 0, threads
        return threads, workers

    def _adapt(self) -> None:
        """Look inside again, because another dataset may be there since the last epoch."""
        made_by = self._look_inside()
        if self.worker_init_fn is not None and made_by[0]:  # it has been assigned since
            warnings.warn(
                "worker_init_fn is not called, because threads make the batches, not worker "
                "processes: for these, give it to the constructor",
                RuntimeWarning,
                stacklevel=4,
            )
        if made_by != (self.threads, self.workers):
            self.close()
            self.__dict__.update(zip(("threads", "workers"), made_by, strict=True))
            self._set_up()

    def _set_up(self) -> None:
        """Create what belongs to this process and cannot be copied or pickled."""
        self._workers: ThreadWorkers | ProcessWorkers | StreamHere
        if self.workers:
            self._workers = ProcessWorkers(
                self.timeout,
                asked=self._asked != ("auto", 0, None),
                num_workers=self.workers,
                prefetch_factor=self.prefetch,
                persistent_workers=self.persistent_workers,
                multiprocessing_context=self.multiprocessing_context,
            )
        elif self._source.iterable:
            self._workers = StreamHere()
        else:
            self._workers = ThreadWorkers(self.threads, self.prefetch, self.timeout or None)
        pinned = self.pin_memory and torch.cuda.is_available()
        self._delivery: Delivery | None = None
        decoder = None if self.decoding == "cpu" else self.decoding
        if pinned or self.device.type != "cpu" or decoder is not None:
            from fastdecode.torch._loader.device_batches import Delivery

            # Created once, so that its streams last; and here, to find a missing device early.
            self._delivery = Delivery(self.device, decoder)
        pinned = pinned or self.device.type == "cuda"
        samples = self.batch_size or 64  # a batch_sampler's may be of any size
        self._memory = BatchMemory(self.prefetch + 2, samples=samples, pinned=pinned)

    def __setattr__(self, name: str, value: Any) -> None:
        if name in self.__dict__.get("_fixed", ()):
            raise ValueError(
                f"{name} of a Loader cannot be changed, as in torch's DataLoader: make another one"
            )
        super().__setattr__(name, value)

    def __getstate__(self) -> dict[str, Any]:
        """Leave out what `_set_up` creates (threads, processes, memory, streams) and the order."""
        state = self.__dict__.copy()
        state["_position"] = self._position.detached(self._given)
        for name in ("_workers", "_delivery", "_memory", "_lock"):
            del state[name]
        # Not every PyTorch can pickle a generator, and the seed has been drawn from it already.
        state["generator"] = None
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._lock = ForkLock()
        self._set_up()

    @property
    def _sharding(self) -> Sharding:
        """How the items of the dataset, at its current length, are shared among the ranks."""
        rank, ranks = world(*self._ranks)
        length = self._source.length(needed=self._given.sampler is None) or 0
        how = self._shuffle, bool(self.drop_last), self.seed
        return Sharding(length, self.batch_size or 1, *how, rank, ranks)

    @property
    def seed(self) -> int:
        """The seed of the order and of all random draws."""
        return self._seed.value

    def _share_seed(self) -> None:
        """Let the ranks agree on a seed, unless a sampler deals the items."""
        if self._given.sampler is None:
            what = f"Loader({self._sharding.length}, {self.batch_size}, shuffle={self._shuffle})"
            self._seed.share(self._ranks, what, shuffle=self._shuffle)

    @property
    def epoch(self) -> int:
        """The epoch that is running, or that the next ``iter(loader)`` starts."""
        return self._at_callers_epoch(self._position).epoch

    @property
    def sampler(self) -> Any:
        """The caller's sampler, or one that yields this rank's indices of the epoch in order."""
        given = self._given.sampler
        if self._source.iterable:
            return _InfiniteConstantSampler()
        if given is None:
            return (_Shuffled if self._shuffle else _InOrder)(self)
        return getattr(given, "sampler", None) if self._given.batches else given

    @property
    def batch_sampler(self) -> Any:
        """The caller's batch sampler, or torch's BatchSampler over `sampler`."""
        if self._given.batches:
            return self._given.sampler
        if self._singly:
            return None
        return BatchSampler(self.sampler, self.batch_size or 1, bool(self.drop_last))

    @property
    def num_workers(self) -> int:
        """The number of threads or processes that make batches."""
        return self.workers or self.threads

    @property
    def prefetch_factor(self) -> int | None:
        """The batches made ahead; None without workers, as in torch's DataLoader."""
        return self.prefetch if self.num_workers else None

    @property
    def collate_fn(self) -> Callable[[list[Any]], Any]:
        """The function that makes a batch from a list of samples."""
        made = self._collate_fn
        return made.convert if isinstance(made, Alone) else made or default_collate

    @collate_fn.setter
    def collate_fn(self, collate_fn: Callable[[list[Any]], Any] | None) -> None:
        if self._singly:
            self._collate_fn: Any = Alone(collate_fn or default_convert)
            return
        # The loader does the same as torch's default_collate, only faster.
        self._collate_fn = None if collate_fn is default_collate else collate_fn

    def __len__(self) -> int:
        """Return the number of batches of an epoch on this rank."""
        sharding = self._sharding
        count = sharding.share if self._given.sampler is None else len(self._given)
        count = count if self._given.batches else sharding.batches(count)
        self._told_length = count
        return count

    def _at_callers_epoch(self, position: Position) -> Position:
        """Return a position, or the start of the epoch that the caller has set of the sampler."""
        epoch = self._given.caller_epoch()
        return position if epoch in (None, position.epoch) else Position(epoch)

    def __iter__(self) -> Iterator[Any]:
        """Start the next epoch, or start where `set_epoch` or `load_state_dict` said."""
        return _LoaderEpoch(self)

    def _begin_epoch(self, ahead: int) -> tuple[Order, Iterator[Any]]:
        """Begin the epoch of an iterator that is up to `ahead` batches behind those it asks for.

        Return its order and its batches.
        """
        self._share_seed()  # torch.distributed may have begun since the loader was made
        self._adapt()
        way = self._way()
        position = Position(self._position.epoch + 1) if self._begun else self._position
        position = self._at_callers_epoch(position)
        sharding = self._sharding
        order, place = position.begin(sharding, self._given)
        self._position, self._begun = position.at(order, place), True
        self.skipped = 0
        delivery = self._delivery
        ahead += self._workers.ahead()
        order.draw(ahead if delivery is None else ahead + delivery.depth)
        config = EpochConfig(
            source=way.source,
            collate_fn=self._collate_fn,
            memory=self._memory,
            channels_last=self.channels_last,
            normalize=way.normalize,
            device_decoding=None if delivery is None else delivery.device_decoding(way.eligible),
            # Seeding the global generators in a background thread would disturb training.
            seed_all=delivery is None and not way.source.isolated,
            worker_seed=sharding.worker_seed(position.epoch),
            worker_init_fn=self.worker_init_fn,
        )
        made = self._workers.epoch(config, order, place)
        return order, made if delivery is None else delivery.begin(made)

    def _way(self) -> BatchWay:
        """Decide how batches of the dataset, as it is at this moment, are made."""
        how = self._collate_fn, self.normalize_on, self.device, self.decoding, self.workers
        return choose_way(self._source, *how)

    def _record_handed_out(self, order: Order, ready: ReadyBatch) -> None:
        """Record that the consumer received a batch."""
        if self._source.iterable and ready.position - 1 == self._told_length:
            name = type(self.dataset).__name__
            warnings.warn(
                f"Length of IterableDataset {name} was reported to be {self._told_length} batches "
                "(by len(loader)), but there are more: its __len__ is wrong, or each worker "
                "process gives all samples instead of a share (see torch's get_worker_info)",
                UserWarning,
                stacklevel=4,
            )
        if order is self._position.order:  # else a later iterator has replaced this one
            self._position = self._position.after(ready.position)
            self.skipped += ready.skipped

    def _record_end(self, order: Order) -> None:
        """Record that the consumer has received all batches of an epoch."""
        if order is self._position.order:
            self._start_at(Position(order.epoch + 1))

    def _start_at(self, position: Position) -> None:
        """Let the next iterator begin at a position."""
        self._position, self._begun = position, False

    def set_epoch(self, epoch: int) -> None:
        """Make the next ``iter(loader)`` start this epoch.

        Parameters
        ----------
        epoch : int
            Counted from 0. If `load_state_dict` restored the middle of this same epoch, the loader
            still continues there, without the batches that were returned before.
        """
        if not is_int(epoch) or epoch < 0:
            raise ValueError(f"epoch must be an integer from 0, not {epoch!r}")
        if self._begun or epoch != self._position.epoch:
            self._start_at(Position(int(epoch)))
        self._given.resume_counting()

    def state_dict(self) -> dict[str, Any]:
        """Return the loader's position as a dict of plain values, even in mid-epoch.

        Returns
        -------
        dict
            For `load_state_dict`. ``torch.save`` can store it.

        Notes
        -----
        A `sampler` resumes from its own ``state_dict``, if it or its iterator has one; any other is
        asked for the same items again, with the random generators as they were when its epoch
        began. The items that it had been drawn for in advance come first in any case.

        An IterableDataset, or its iterator, resumes from its own ``state_dict``, in each worker
        process, with the global generators as they were.

        Raises
        ------
        RuntimeError
            It has no ``state_dict``, and is in the middle of an epoch.
        """
        return self._later_state()()

    def _later_state(self) -> Callable[[], dict[str, Any]]:
        """Return what makes the state of this moment, also later: making it may take time."""
        position = self._at_callers_epoch(self._position)
        return lambda: position.state(self._settings(), self._given)

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Make the next ``iter(loader)`` return exactly the remaining batches of the epoch.

        Parameters
        ----------
        state : dict
            From `state_dict`.

        Raises
        ------
        ValueError
            The state comes from a loader whose batches would differ from this one's.
        """
        settings = self._settings()
        if not self._seed.given:
            del settings["seed"]
        position = Position.from_state(state, settings)
        if self._given.sampler is None and position.batch > len(self):
            raise ValueError(f"the state is of batch {position.batch}, but there are {len(self)}")
        self._start_at(position)
        self._seed.take_over(state["settings"]["seed"])
        self._given.resume_counting()

    def _settings(self) -> dict[str, Any]:
        """Return the settings that determine the batches."""
        batches = "batches" if self._given.batches else True
        settings = self._sharding.settings(sampled=self._given.sampler is not None and batches)
        return {**settings, "num_workers": self.workers} if self._source.iterable else settings

    def close(self) -> None:
        """End the epoch, and stop threads, processes and copies. A later epoch restarts them."""
        self._workers.end()
        if self._delivery is not None:
            self._delivery.close()
        self._workers.close()
        self._memory.clear()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        count: Any = "?"
        with suppress(TypeError):
            count = len(self)
        length = self._source.length(needed=False)
        many, noun = self.num_workers, "process" if self.workers else "thread"
        by = f"{many} {noun}" if many == 1 else f"{many} {noun}{'es' if self.workers else 's'}"
        decodes = "" if self.decoding == "cpu" else f", decode={self.decoding!r}"
        told = (
            f"Loader({type(self.dataset).__name__} of {'?' if length is None else length}, "
            f"batch_size={self.batch_size}, {count} batches, {by}, seed={self.seed}, "
            f"device={str(self.device)!r}{decodes})"
        )
        why = self._source.why_processes if self.workers else ""
        if self.workers and self._prepares:
            why = why or "worker_init_fn prepares them. For threads, leave it out"
        force = f"threads={many} forces them: then random draws depend on chance."
        return f"{told}\n    Processes, because {why}.\n    {force}" if why else told


class _LoaderEpoch:
    """The iterator that ``iter(loader)`` returns.

    The epoch begins when the first batch is asked for: Lightning makes its iterator first and sets
    the epoch afterwards.
    """

    def __init__(self, loader: Loader) -> None:
        self._loader = loader
        self._order: Order | None = None
        self._draws = True
        self._ended = False
        self._left_out = 0
        self._gave_some = False
        self._source: Iterator[Any]

    def begin_epoch(self, ahead: int | None = None) -> Order:
        """Begin the epoch, unless it has begun, and return its order.

        `ahead` is for a consumer that asks for batches in another thread, up to as many ahead. It
        then calls `draw` itself, once for each batch that it hands out.
        """
        if self._order is None:
            self._draws = ahead is None
            self._order, self._source = self._loader._begin_epoch(ahead or 0)
        return self._order

    def draw(self) -> None:
        """Draw another batch: a sampler runs in no thread but that which hands out batches."""
        self.begin_epoch().draw()

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        order = self.begin_epoch()
        while True:
            if self._draws:
                order.draw()
            try:
                ready = next(self._source)
            except StopIteration:
                if not self._ended:  # a consumer may call next() again after the end
                    self._ended = True
                    order.raise_error()
                    self._loader._record_end(order)
                    self._warn_of_nothing()
                raise
            batch = finish_batch(ready)
            self._loader._record_handed_out(order, ready)
            self._left_out += ready.skipped
            if batch is not SKIPPED:  # else all of its items were
                self._gave_some = True
                return batch

    def _warn_of_nothing(self) -> None:
        """Warn if every file of the epoch was damaged: a wrong path looks like that."""
        if self._left_out and not self._gave_some:
            first = self._loader._source.first_error
            warnings.warn(
                f"there was no batch: all {self._left_out} samples were skipped"
                + (f", such as {first}" if first else ""),
                RuntimeWarning,
                stacklevel=3,
            )


class _LoaderSampler(Sampler[int]):
    """The `sampler` of a loader that was given none, for libraries that look at it."""

    generator = None

    def __init__(self, loader: Loader) -> None:
        self._loader = loader
        self.data_source = loader.dataset

    def __iter__(self) -> Iterator[int]:
        self._loader._share_seed()
        return iter(self._loader._sharding.indices(self._loader.epoch).tolist())

    def __len__(self) -> int:
        return self._loader._sharding.share

    def set_epoch(self, epoch: int) -> None:
        """Make the loader's next ``iter`` start this epoch."""
        self._loader.set_epoch(epoch)


class _InOrder(_LoaderSampler, SequentialSampler):
    """Libraries see by its type that the loader does not shuffle."""


class _Shuffled(_LoaderSampler, RandomSampler):
    """Libraries see by its type that the loader shuffles."""

    replacement = False

    @property
    def num_samples(self) -> int:
        return len(self)


def _decode_options(options: DataLoaderOptions) -> dict[str, Any]:
    """Return those arguments that are options of the datasets."""
    return {"max_pixels": options["max_pixels"]} if "max_pixels" in options else {}


def _parse_device(device: str | int | torch.device) -> torch.device:
    from fastdecode.gpu import parse_device

    return parse_device(device)
