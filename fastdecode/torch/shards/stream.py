"""`ShardStream`: the samples of tar shards, read from front to end, by any number of processes."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from torch.utils.data import IterableDataset, get_worker_info

from fastdecode._arguments import is_int
from fastdecode._system import usable_cores
from fastdecode.errors import FastDecodeError
from fastdecode.native._batch import Pool
from fastdecode.torch._errors import SKIPPED, Failure, failure_of, naming, record, several
from fastdecode.torch._loader_arguments import Threads
from fastdecode.torch._native_batches import FALLBACK
from fastdecode.torch._order import Item, world
from fastdecode.torch._samples import SampleMaker, Source
from fastdecode.torch.dataset import DatasetOptions, DecodeDataset
from fastdecode.torch.shards._assignment import (
    Consumer,
    Even,
    Locations,
    ShardSample,
    agreed_classes,
    assignment_of,
    have_targets,
)
from fastdecode.torch.shards._state import Progress, StreamState, after_batches

if TYPE_CHECKING:
    from typing_extensions import Unpack


__all__ = ["ShardStream"]

_CHUNK = 32
"""Samples that are decoded in one go."""


class ShardStream(IterableDataset[Any]):
    """Samples of tar shards, read sequentially and without an index: for PyTorch's DataLoader.

    Every rank and every worker process takes its own share: each sample comes once in an epoch, in
    whatever number of processes, also where there are more of them than shards.

    Parameters
    ----------
    shards : path, URI, or sequence of these
        ``"train-{000..146}.tar"``, a folder of shards, a manifest, or a list: see `open_store`.
        URIs are read through fsspec.
    transform, target_transform : callable, optional
        As for `DecodeDataset`.
    shuffle : bool
        Draw another order of the shards for each epoch, and of the samples by the buffer.
    buffer : int
        Samples, still encoded, that each process holds to draw the next one from; with 1 those of
        a shard keep their order. Without `shuffle` there is none.
    seed : int
        Of the order and of all random draws of the transform.
    rank, world_size : int, optional
        This process's share; by default from torch.distributed, if that is initialised.
    even : {"drop", "repeat"} or None
        Give all ranks equally many samples, and so batches: ``"drop"`` leaves out up to
        ``world_size - 1`` samples, other ones in each epoch if it shuffles; ``"repeat"`` gives as
        many a second time.
    counts : sequence of int, optional
        How many samples each of `shards` has. By default they are counted if `even` is given: that
        is fast where shards have indexes beside them, and else reads each once.
    has_targets : bool, optional
        Without targets a sample is the image alone. By default samples have one if any of the
        first 64 in one of the first 8 shards has: that is read when the stream is made.
    threads : int or "auto"
        That decode; ``"auto"``: one in a worker process, else one for each usable core.
    image, target : optional
        Which files of a sample are the image and the target: see `fastdecode.stores.tar`.
    storage_options : mapping, optional
        For the file system of URIs.
    **options
        By name, the attributes of `DecodeDataset` and `DecodeMixin`: reduce, min_size, mode,
        orient, backend, output, on_error, fuse, quality, headroom.

    Attributes
    ----------
    shards : list of str
    classes : list of str
        As the indexes beside local shards name them; empty where they name none.
    counts : list of int or None
    epoch : int
    errors : list of Failure
        Position in the shard, name and reason of each damaged sample, as for `DecodeDataset`.

    Raises
    ------
    TypeError, ValueError
        An argument is wrong, or shards have different classes.
    FileNotFoundError, OSError, StoreError
        Shards are not there, or cannot be counted.

    Notes
    -----
    An epoch is the same again until `set_epoch` names another one, as with PyTorch's
    DistributedSampler; workers that persist are told, too. A sample's random draws follow from
    `seed`, the epoch and its place, not from who makes it.

    A damaged shard is a `StoreError` whatever `on_error` says, because what follows in it cannot be
    found. ``"replace"`` puts another one of the samples read with it in a damaged one's place,
    always the same. ``"skip"`` may leave ranks with different numbers of batches.

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
        seed: int = 0,
        rank: int | None = None,
        world_size: int | None = None,
        even: Even = None,
        counts: Sequence[int] | None = None,
        has_targets: bool | None = None,
        threads: Threads = "auto",
        image: str | Sequence[str] | None = None,
        target: str | None = None,
        storage_options: Mapping[str, Any] | None = None,
        **options: Unpack[DatasetOptions],
    ) -> None:
        if threads != "auto" and not (is_int(threads) and threads > 0):
            raise ValueError(f"threads must be 'auto' or an integer from 1, not {threads!r}")
        world(rank, world_size)
        self._assignment = assignment_of(
            shards,
            counts,
            shuffle=shuffle,
            buffer=buffer,
            seed=seed,
            even=even,
            reading={"image": image, "target": target, "storage_options": storage_options},
        )
        self.shards = self._assignment.shards
        self._images = _ShardImages(self.shards, transform, target_transform, **options)
        self.classes = agreed_classes(self.shards)
        if has_targets is None:
            has_targets = have_targets(self.shards, self._assignment.reading)
        self._images.has_targets = has_targets
        self._threads = threads
        self._ranks = rank, world_size
        self._world = 0, 1
        self._progress = Progress()

    def __getstate__(self) -> dict[str, Any]:
        # A worker process that is not forked knows nothing of torch.distributed.
        return {**self.__dict__, "_world": self._world_now()}

    @property
    def counts(self) -> list[int] | None:
        """Samples of each shard, if they are counted."""
        return self._assignment.counts

    @property
    def errors(self) -> list[Failure]:
        """Damaged samples that this process has met."""
        return self._images.errors

    @property
    def epoch(self) -> int:
        """The epoch that the next iterator gives."""
        return self._progress.epoch

    def set_epoch(self, epoch: int) -> None:
        """Let the next iterators give this epoch.

        Parameters
        ----------
        epoch : int
            From 0. If it is the one that `load_state_dict` brought back, what was given before is
            still left out.
        """
        self._progress.set_epoch(epoch)

    def __len__(self) -> int:
        """Count the samples that this rank gives in an epoch, where shards are counted."""
        length = self._assignment.rank_length(*self._world_now())
        if length is None:
            raise TypeError("nobody has counted these shards: give even= or counts=")
        return length

    def __iter__(self) -> Iterator[Any]:
        """Begin an epoch, or what is left of it after `load_state_dict`."""
        state, number = self._progress.begin()
        return self._samples(state, number)

    def _samples(self, state: StreamState, number: int) -> Iterator[Any]:
        consumer = Consumer(*self._world_now(), number, state.workers)
        share = self._assignment.share(consumer, state.epoch, state.counts)
        given = state.given.get(number, 0)
        skip = given % _CHUNK  # so that the same samples are together as without a break
        images = copy.copy(self._images)  # for one iterator alone
        maker = SampleMaker(Source(images), Pool(self._how_many()))
        for images.samples in _chunks(share.samples(given - skip)):
            seeds = [self._assignment.sample_seed(one, state.epoch) for one in images.samples]
            items = list(map(Item, range(len(seeds)), seeds))[skip:]
            skip = 0
            # One after the other: what comes before a damaged sample is given before its error.
            for item, sample in zip(items, maker.batch(items), strict=True):
                made = maker.one(item) if sample is FALLBACK else sample
                given += 1
                state.given[number] = given
                if made is not SKIPPED:
                    yield made

    def _how_many(self) -> int:
        """Return how many threads are to decode."""
        if self._threads != "auto":
            return int(self._threads)
        return usable_cores() if get_worker_info() is None else 1

    def _world_now(self) -> tuple[int, int]:
        """Return rank and world size, in a worker process those of the training process."""
        rank, ranks = world(*self._ranks)
        if ranks == 1 and get_worker_info() is not None:
            return self._world if self._ranks == (None, None) else (rank, ranks)
        return rank, ranks

    def state_dict(self) -> dict[str, Any]:
        """Return plain values that say where the stream stands, also in the middle of an epoch.

        It is behind the last sample that was given. In a worker process it is that worker's place
        alone, as torchdata's StatefulDataLoader wants it.

        Raises
        ------
        RuntimeError
            If worker processes read: they are ahead, and only `state_after` can tell.
        """
        return self._progress.current().as_dict(self._assignment.settings(*self._world_now()))

    def state_after(self, batches: int, batch_size: int, workers: int = 0) -> dict[str, Any]:
        """Return where PyTorch's DataLoader over this stream stands, from what it has handed out.

        Parameters
        ----------
        batches : int
            That the loop has got, since this epoch was begun or resumed.
        batch_size : int
        workers : int
            The DataLoader's ``num_workers``.

        Returns
        -------
        dict
            As from `state_dict`.

        Raises
        ------
        ValueError
            If a worker would have given more than its share, where shards are counted.

        Notes
        -----
        It is exact as long as every worker has more: with `even` or `counts` until the epoch ends,
        without until the first worker is done. With ``on_error="skip"`` it is not.
        """
        begun = self._progress.begun(max(1, workers))
        ranks = self._world_now()
        most = self._assignment.worker_lengths(*ranks, begun.workers, begun.epoch)
        state = after_batches(begun, batches, batch_size, most)
        return state.as_dict(self._assignment.settings(*ranks))

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Let the next iterators give exactly the samples that were left.

        Parameters
        ----------
        state : dict
            From `state_dict` or `state_after`, on the same rank. The DataLoader must have as many
            workers as before.

        Raises
        ------
        ValueError
            If the state is of a stream whose samples would be others.
        """
        settings = self._assignment.settings(*self._world_now())
        self._progress.resume(StreamState.from_dict(state, settings))

    def __repr__(self) -> str:
        assigned = self._assignment
        counted = "" if assigned.counts is None else f" with {sum(assigned.counts)} samples"
        where = self.shards[0] if len(self.shards) == 1 else f"{self.shards[0]} and on"
        return (
            f"ShardStream({len(self.shards)} shards{counted}: {where}; shuffle={assigned.shuffle}, "
            f"buffer={assigned.buffer}, seed={assigned.seed}, even={assigned.even!r})"
        )


class _ShardImages(DecodeDataset):
    """A few samples out of shards, as a dataset; the shards are named in errors."""

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
        """Return the bytes of a sample, and its target."""
        sample = self.samples[index].sample
        return sample.data, sample.target

    def _naming(self, error: Exception, index: int, source: object) -> None:  # noqa: ARG002
        found = self.samples[index]
        naming(error, found.position, f"{self.shards[found.shard]}, {found.sample.key}")

    def _note(self, index: int, error: Exception) -> Failure:
        failure = failure_of(error, self.samples[index].position)
        record(self.errors, failure, self.on_error)  # type: ignore[arg-type]
        return failure

    def _irreplaceable(self, failed: list[Failure]) -> str:
        return (
            f"nothing can replace {failed[0].path}: {len(failed)} samples that were read together "
            f"are damaged: {several(failed)}"
        )


def _chunks(samples: Iterator[ShardSample]) -> Iterator[list[ShardSample]]:
    """Gather samples; those before a damaged place come before its error."""
    chunk: list[ShardSample] = []
    try:
        for sample in samples:
            chunk.append(sample)
            if len(chunk) == _CHUNK:
                yield chunk
                chunk = []
    except (FastDecodeError, OSError):
        if chunk:
            yield chunk
        raise
    if chunk:
        yield chunk
