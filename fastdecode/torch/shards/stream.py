"""`ShardStream`: the samples of tar shards, read sequentially by any number of processes."""

from __future__ import annotations

import copy
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import torch
from torch.utils.data import IterableDataset, get_worker_info

from fastdecode._arguments import check_kinds, check_names, check_threads, is_int
from fastdecode._system.processor import usable_cores
from fastdecode.errors import FastDecodeError
from fastdecode.native._pool import Pool
from fastdecode.torch._errors import (
    SKIPPED,
    Failure,
    as_failure,
    describe_failures,
    name_sample,
    no_shared_memory,
    record_failure,
)
from fastdecode.torch._loader.arguments import Threads
from fastdecode.torch._loader.native_batches import FALLBACK
from fastdecode.torch._loader.order import Item, Seed, world
from fastdecode.torch._loader.position import check_state, refuse_other
from fastdecode.torch._loader.samples import SampleMaker, SampleSource
from fastdecode.torch._options import DatasetOptions, OnError
from fastdecode.torch._user_code import preserve_generators
from fastdecode.torch.dataset import DecodeDataset
from fastdecode.torch.shards._assignment import (
    Assignment,
    Consumer,
    Even,
    Locations,
    ShardSample,
    make_assignment,
)

if TYPE_CHECKING:
    from typing_extensions import Unpack

_CHUNK_SAMPLES = 32
"""How many samples are decoded together."""

_VERSION = 2
_EPOCH, _BY_WORKERS, _IS_SET, _BEGUN_BY = range(4)


@dataclass
class _Place:
    """Where one process stands in an epoch: how many samples of its share it has given."""

    epoch: int = 0
    worker: int = 0
    workers: int = 0
    """The number of worker processes; 0 if the process itself reads the stream."""
    given: int = 0
    counts: dict[int, int] = field(default_factory=dict)
    """The number of samples in each shard that was read to its end."""

    def state(self, settings: Mapping[str, Any]) -> dict[str, Any]:
        """Return plain values that JSON can store."""
        counts = [list(pair) for pair in sorted(self.counts.items())]
        return {**vars(self), "version": _VERSION, "counts": counts, "settings": dict(settings)}

    @staticmethod
    def from_state(state: Any, settings: Mapping[str, Any]) -> _Place:
        """Restore a state of a stream with the same settings; refuse any other."""
        numbers = ("epoch", "worker", "workers", "given")
        check_state(state, "ShardStream", _VERSION, numbers, "counts")
        refuse_other(state["settings"], settings, "stream", "samples")
        place = _Place(*(state[name] for name in numbers))
        for shard, count in state["counts"]:
            place.counts[int(shard)] = int(count)
        return place


class ShardStream(IterableDataset[Any]):
    """Samples of tar shards, read sequentially and without an index, for PyTorch's DataLoader.

    Every rank and every worker process reads its own share. Each sample comes once per epoch,
    whatever the number of processes, even if there are more processes than shards.

    Parameters
    ----------
    shards : path, URI, or sequence of these
        ``"train-{000..146}.tar"``, a folder of shards, a manifest, or a list: see `open_store`.
        URIs are read through fsspec.
    transform, target_transform : callable, optional
        The same as for `DecodeDataset`.
    shuffle : bool
        Draw a new order of the shards for each epoch, and shuffle the samples with a buffer.
    buffer : int
        How many encoded samples each process holds; the next sample is drawn from these. With 1,
        the samples of a shard keep their order. Without `shuffle`, there is no buffer.
    seed : int, optional
        The seed of the order and of all random draws of the transform. By default it is drawn from
        torch's global generator; with `shuffle`, ranks of torch.distributed take over that of rank
        0. `state_dict` holds it, and `load_state_dict` takes it over if you give none.
    rank, world_size : int, optional
        Which share this process reads. By default they come from torch.distributed, if that is
        initialised.
    even : {"drop"} or None
        ``"drop"`` gives every rank the same number of samples, and so of batches: it leaves out up
        to ``world_size - 1`` samples, and with `shuffle` different ones in each epoch. None gives
        whole shards to each process, so some have one more, unless there are `counts`.
    counts : sequence of int, optional
        The number of samples in each of `shards`. By default they are counted if `even` is given.
        Counting is fast where shards have indexes next to them; otherwise it reads each shard once.
    has_targets : bool
        If false, a sample is the image alone. If true, the target is None where there is none.
    threads : int or "auto"
        How many threads decode. ``"auto"`` means one in a worker process, and otherwise one per
        usable core.
    image, target : optional
        Which files of a sample are the image and the target: see `fastdecode.stores.tar`.
    storage_options : mapping, optional
        Options for the file system of URIs.
    **options
        Those of `DecodeOptions`, by name: reduce, min_size, mode, orient, max_pixels, backend,
        output, on_error, fuse, quality, headroom.

    Attributes
    ----------
    shards : list of str
    counts : list of int or None
        The number of samples in each shard; None if the shards are not counted.
    epoch : int
        The epoch that the next iterator gives.
    errors : list of Failure
        Position in the shard, name and reason of each damaged sample, as for `DecodeDataset`.

    Raises
    ------
    TypeError, ValueError
        If an argument is wrong.
    FileNotFoundError, OSError, StoreError
        If shards do not exist, or cannot be counted.

    Notes
    -----
    Every iterator gives the same epoch until `set_epoch` sets another one, as with PyTorch's
    DistributedSampler; the second one warns of it if epochs differ. `set_epoch` also reaches
    persistent workers. A sample's random draws depend on `seed`, the epoch and the sample's place
    in the shards, not on the process that makes it.

    `state_dict` and `load_state_dict` save and resume the position inside an epoch. Where worker
    processes read the stream, torchdata's StatefulDataLoader calls them in each worker.

    A damaged shard raises `StoreError` whatever `on_error` says, because the samples behind the
    damage cannot be found. ``"replace"`` replaces a damaged sample with another one of the samples
    read with it, always the same one. ``"skip"`` may leave ranks with different numbers of batches.

    An iterator that has raised an error raises it again, so that no epoch seems to be over. Begin
    another one, after `load_state_dict` if it should go on there.

    Examples
    --------
    >>> from torch.utils.data import DataLoader
    >>> from fastdecode.torch import ShardStream
    >>> from fastdecode.torch.transforms import RandomResizedCropFlipNormalize
    >>> stream = ShardStream("train.tar", RandomResizedCropFlipNormalize(224), shuffle=True)
    >>> for epoch in range(2):
    ...     stream.set_epoch(epoch)
    ...     for images, labels in DataLoader(stream, 6):
    ...         print(images.shape)
    torch.Size([6, 3, 224, 224])
    torch.Size([6, 3, 224, 224])
    """

    def __init__(
        self,
        shards: Locations,
        transform: Callable[..., Any] | None = None,
        target_transform: Callable[..., Any] | None = None,
        *,
        shuffle: bool = False,
        buffer: int = 1000,
        seed: int | None = None,
        rank: int | None = None,
        world_size: int | None = None,
        even: Even = None,
        counts: Sequence[int] | None = None,
        has_targets: bool = True,
        threads: Threads = "auto",
        image: str | Sequence[str] | None = None,
        target: str | None = None,
        storage_options: Mapping[str, Any] | None = None,
        **options: Unpack[DatasetOptions],
    ) -> None:
        check_names(type(self), options, DatasetOptions)
        if not isinstance(threads, str) or threads != "auto":
            check_threads(threads)
        check_kinds(
            {
                "shuffle": shuffle,
                "counts": counts,
                "has_targets": has_targets,
                "image": image,
                "target": target,
                "storage_options": storage_options,
            }
        )
        world(rank, world_size)
        if not (seed is None or is_int(seed)):
            raise TypeError(f"seed must be an integer or None, not {seed!r}")
        self._seed = Seed(seed)
        assignment = make_assignment(
            shards,
            counts,
            shuffle=shuffle,
            buffer=buffer,
            seed=self._seed.value,
            even=even,
            reading={"image": image, "target": target, "storage_options": storage_options},
        )
        self._ranks = rank, world_size
        self._assignment = self._agreed(assignment)
        self.shards = self._assignment.shards
        self._images = _ShardImages(self.shards, transform, target_transform, **options)
        self._images.has_targets = has_targets
        self._threads = threads
        self._world = 0, 1
        # Shared with worker processes, also persistent ones: the epoch, whether they read, whether
        # `set_epoch` has set it, and the iterator that has given samples of it.
        self._shared: torch.Tensor = _shared_zeros(4)
        self._begins = 0
        self._saved: _Place | None = None
        self._current: _Place | None = None

    def _agreed(self, assignment: Assignment) -> Assignment:
        """Return the assignment with the seed that all ranks have."""
        if assignment.shuffle:
            what = f"ShardStream({len(assignment.shards)} shards)"
            self._seed.share(self._ranks, what, shuffle=True)
        return replace(assignment, seed=self._seed.value)

    def __getstate__(self) -> dict[str, Any]:
        # In a worker process that is not forked, torch.distributed is not initialised.
        self._assignment = self._agreed(self._assignment)
        return {**self.__dict__, "_world": self._current_world(), "_current": None}

    @property
    def counts(self) -> list[int] | None:
        """The number of samples in each shard; None if they are not counted."""
        return self._assignment.counts

    @property
    def errors(self) -> list[Failure]:
        """The damaged samples that this process has found."""
        return self._images.errors

    @property
    def epoch(self) -> int:
        """The epoch that the next iterator gives."""
        return int(self._shared[_EPOCH])

    def set_epoch(self, epoch: int) -> None:
        """Set the epoch that the next iterators give.

        Parameters
        ----------
        epoch : int
            An integer from 0. If it is the epoch that `load_state_dict` restored, the samples given
            before that state was saved are still left out.
        """
        if not is_int(epoch) or epoch < 0:
            raise ValueError(f"epoch must be an integer from 0, not {epoch!r}")
        if self._saved is not None and self._saved.epoch != epoch:
            self._saved = None
        self._current = None
        self._shared[:] = torch.tensor([int(epoch), 0, 1, 0])

    def __len__(self) -> int:
        """Return how many samples this rank gives in an epoch, if the shards are counted."""
        length = self._assignment.rank_length(*self._current_world())
        if length is None:
            raise TypeError("nobody has counted these shards: give even= or counts=")
        return length

    def __iter__(self) -> Iterator[Any]:
        """Begin an epoch, or the rest of it after `load_state_dict`."""
        self._assignment = self._agreed(self._assignment)
        mine = self._iterator()
        self._current = self._begin()
        return _Samples(self._iterate_samples(self._current, mine))

    def _begin(self) -> _Place:
        """Return where this process begins; a state that was loaded is used once."""
        info = get_worker_info()
        worker, workers = (0, 0) if info is None else (info.id, info.num_workers)
        self._shared[_BY_WORKERS] = int(info is not None)
        if self._was_given_by_another() and self._draws():
            warnings.warn(
                f"this ShardStream gives epoch {self.epoch} again, in the same order and with the "
                "same crops: call set_epoch before each epoch",
                RuntimeWarning,
                stacklevel=3,
            )
        self._begins += 1
        saved = self._saved
        if saved is None or saved.epoch != self.epoch:
            return _Place(self.epoch, worker, workers)
        if (saved.worker, saved.workers) != (worker, workers):
            raise ValueError(
                f"the state is that of {_reader(saved.worker, saved.workers)}, but this is "
                f"{_reader(worker, workers)}: give the DataLoader num_workers={saved.workers}. "
                "With worker processes, torchdata's StatefulDataLoader resumes each of them"
            )
        self._saved = None
        return saved

    def _iterator(self) -> int:
        """Return a number of the iterator that begins next, in all of its worker processes."""
        info = get_worker_info()
        return (-1 if info is None else info.seed - info.id) - self._begins

    def _was_given_by_another(self) -> bool:
        """Return whether another iterator has given samples of this epoch since it was set."""
        return int(self._shared[_BEGUN_BY]) not in (0, self._iterator())

    def _draws(self) -> bool:
        """Return whether epochs differ, as far as that is known."""
        transform = self._images._resolved_transform()
        program = getattr(getattr(transform, "head", transform), "program", None)
        parts = () if program is None else program.parts
        return self._assignment.shuffle or not all(part.is_steady for part in parts)

    def _iterate_samples(self, place: _Place, mine: int) -> Iterator[Any]:
        consumer = Consumer(*self._current_world(), place.worker, max(1, place.workers))
        share = self._assignment.share(consumer, place.epoch, place.counts)
        given = place.given
        skip = given % _CHUNK_SAMPLES  # chunks hold the same samples as in an uninterrupted epoch
        images = copy.copy(self._images)  # each iterator has its own
        source = SampleSource(images)
        maker = SampleMaker(source, Pool(self._thread_count()), alone=not source.isolated)
        trains_here = get_worker_info() is None and not source.isolated
        kept = preserve_generators if trains_here else nullcontext
        for images.samples in _group_chunks(share.samples(given - skip)):
            seeds = [self._assignment.sample_seed(one, place.epoch) for one in images.samples]
            items = list(map(Item, range(len(seeds)), seeds))[skip:]
            skip = 0
            # One by one, so samples before a damaged one are given before its error is raised.
            with kept():
                begun = maker.make_batch(items)
            for item, sample in zip(items, begun, strict=True):
                with kept():
                    made = maker.make_one(item) if sample is FALLBACK else sample
                given += 1
                place.given = given
                if made is not SKIPPED:
                    if place.epoch == self.epoch:
                        self._shared[_BEGUN_BY] = mine
                    yield made

    def _thread_count(self) -> int:
        """Return how many threads decode."""
        if self._threads != "auto":
            return int(self._threads)
        return usable_cores() if get_worker_info() is None else 1

    def _current_world(self) -> tuple[int, int]:
        """Return rank and world size; a worker process has those of the training process."""
        rank, ranks = world(*self._ranks)
        if ranks == 1 and get_worker_info() is not None:
            return self._world if self._ranks == (None, None) else (rank, ranks)
        return rank, ranks

    def state_dict(self) -> dict[str, Any]:
        """Return the position of the stream as plain values, also in the middle of an epoch.

        The position is right after the last sample that was given. In a worker process, the state
        covers that worker alone, as torchdata's StatefulDataLoader expects.

        Raises
        ------
        RuntimeError
            If worker processes read the stream, ahead of the batches that you have received.
        """
        place = self._current or self._saved
        if place is None and self._shared[_BY_WORKERS] and get_worker_info() is None:
            raise RuntimeError(
                "worker processes read this stream, ahead of the batches that you have received: "
                "use torchdata's StatefulDataLoader, which saves the position of each"
            )
        settings = self._assignment.settings(*self._current_world())
        return (place or _Place(self.epoch)).state(settings)

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Resume from a state: the next iterators give exactly the remaining samples.

        Parameters
        ----------
        state : dict
            From `state_dict`, on the same rank and in the same worker of as many.

        Raises
        ------
        ValueError
            If the state is from a stream that gives other samples.
        """
        settings = self._assignment.settings(*self._current_world())
        if not self._seed.given:
            del settings["seed"]
        place = _Place.from_state(state, settings)
        # torchdata's StatefulDataLoader calls this late, when its iterator begins.
        late = str(sys._getframe(1).f_globals.get("__name__")).startswith("torchdata.")
        newer = bool(self._shared[_IS_SET]) and not self._was_given_by_another()
        if not (late and newer and place.epoch != self.epoch):
            self.set_epoch(place.epoch)
            self._saved = place
        self._seed.take_over(state["settings"]["seed"])
        self._assignment = replace(self._assignment, seed=self._seed.value)

    def __repr__(self) -> str:
        assigned = self._assignment
        counted = "" if assigned.counts is None else f" with {sum(assigned.counts)} samples"
        where = self.shards[0] if len(self.shards) == 1 else f"{self.shards[0]} and on"
        return (
            f"ShardStream({len(self.shards)} shards{counted}: {where}; shuffle={assigned.shuffle}, "
            f"buffer={assigned.buffer}, seed={assigned.seed}, even={assigned.even!r})"
        )


class _Samples(Iterator[Any]):
    """The samples of a generator, whose error is raised again if the consumer asks for more.

    A generator would just end after it, so whoever goes on after an outage would take a part of the
    epoch for all of it.
    """

    def __init__(self, samples: Iterator[Any]) -> None:
        self._samples = samples
        self._error: BaseException | None = None

    def __next__(self) -> Any:
        if self._error is not None:
            raise self._error
        try:
            return next(self._samples)
        except StopIteration:
            raise
        except BaseException as error:
            self._error = error
            raise


class _ShardImages(DecodeDataset):
    """A few samples from shards as a dataset; its errors name the shard."""

    def __init__(
        self,
        shards: Sequence[str],
        transform: Callable[..., Any] | None,
        target_transform: Callable[..., Any] | None,
        **options: Unpack[DatasetOptions],
    ) -> None:
        super().__init__(transform, target_transform, **options)
        self.shards = shards
        self.samples: Sequence[ShardSample] = ()
        self.errors = []

    def __len__(self) -> int:
        return len(self.samples)

    def read(self, index: int) -> tuple[Any, Any]:
        """Return the bytes and the target of a sample."""
        sample = self.samples[index].sample
        return sample.data, sample.target

    def _name_sample(self, error: Exception, index: int, source: object) -> None:  # noqa: ARG002
        found = self.samples[index]
        name_sample(error, found.position, f"{self.shards[found.shard]}, {found.sample.key}")

    def _record_failure(self, index: int, error: Exception, on_error: OnError) -> Failure:
        failure = as_failure(error, self.samples[index].position)
        record_failure(self.errors, failure, on_error)  # type: ignore[arg-type]
        return failure

    def _no_replacement_message(self, failed: list[Failure]) -> str:
        return (
            f"nothing can replace {failed[0].path}: {len(failed)} samples that were read together "
            f"are damaged: {describe_failures(failed)}"
        )


def _reader(worker: int, workers: int) -> str:
    return f"worker {worker} of {workers}" if workers else "a process without workers"


def _group_chunks(samples: Iterator[ShardSample]) -> Iterator[list[ShardSample]]:
    """Group samples into chunks; samples before a damaged place are given before its error.

    But not before one that says that their targets come later.
    """
    chunk: list[ShardSample] = []
    try:
        for sample in samples:
            chunk.append(sample)
            if len(chunk) == _CHUNK_SAMPLES:
                yield chunk
                chunk = []
    except (FastDecodeError, OSError) as error:
        if chunk and not getattr(error, "is_fatal", False):
            yield chunk
        raise
    if chunk:
        yield chunk


def _shared_zeros(count: int) -> torch.Tensor:
    """Return integers in memory that worker processes share."""
    zeros = torch.zeros(count, dtype=torch.int64, device="cpu")
    try:
        zeros.share_memory_()
    except RuntimeError as error:
        raise no_shared_memory(error) from error
    return zeros
