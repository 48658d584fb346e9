"""Which epoch a `ShardStream` gives, and from where on: also in worker processes that persist."""

from __future__ import annotations

from typing import Any

import torch
from torch.utils.data import get_worker_info

from fastdecode._arguments import is_int
from fastdecode.torch.shard_place import Place

__all__ = ["Epochs"]

_EPOCH, _BY_WORKERS, _TAKEN_UP = range(3)


class Epochs:
    """Where iterators begin, and where the last one stands.

    Worker processes have a copy of this, but share its memory: the epoch, whether it is they who
    read, and whether they have gone on from a saved place.
    """

    def __init__(self) -> None:
        self._shared = _shared_zeros(3)
        self._used = _shared_zeros(1)
        self._saved: Place | None = None
        self._place: Place | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_place": None}

    @property
    def epoch(self) -> int:
        """The epoch that the next iterator gives."""
        return int(self._shared[_EPOCH])

    def go_to(self, epoch: int) -> None:
        """Let the next iterators give an epoch: what is left of it, if it is the saved one."""
        if not is_int(epoch) or epoch < 0:
            raise ValueError(f"epoch must be an integer from 0, not {epoch!r}")
        if self._saved is not None and self._saved.epoch != epoch:
            self._saved = None
        self._place = None
        self._shared[:] = torch.tensor([int(epoch), 0, 0])

    def resume(self, place: Place) -> None:
        """Let the next iterators give what is left from a place on, once each."""
        self._saved = place
        self._used = _shared_zeros(place.workers)
        self.go_to(place.epoch)

    def begin(self) -> tuple[Place, int]:
        """Begin an iterator in this process.

        Returns
        -------
        place : Place
            For the iterator to keep up to date. In a worker process it is this worker's alone.
        number : int
            Which of the place's consumers this one is.

        Raises
        ------
        ValueError
            If the saved place is one of another number of workers.
        """
        info = get_worker_info()
        number, workers = (0, 1) if info is None else (info.id, info.num_workers)
        place = self._beginning(number, workers)
        number = (number + place.turn) % workers
        if info is not None:
            given = {number: place.given[number]} if number in place.given else {}
            place = Place(place.epoch, workers, 0, given, place.counts)
        self._place = place
        self._shared[_BY_WORKERS] = int(info is not None)
        return place, number

    def now(self) -> Place:
        """Return where the last iterator stands, or the next one will begin.

        Raises
        ------
        RuntimeError
            If it is in worker processes.
        """
        if self._place is not None:
            return self._place
        if self._shared[_BY_WORKERS] and get_worker_info() is None:
            raise RuntimeError(
                "worker processes read this stream, and are ahead of what you got from them: use "
                "state_after(batches, batch_size, workers)"
            )
        return self._saved or Place(self.epoch)

    def begun(self, workers: int) -> Place:
        """Return where those iterators began that give now, whichever processes they are in.

        Raises
        ------
        ValueError
            If that was a saved place of another number of workers.
        """
        if not self._shared[_TAKEN_UP] or self._saved is None:
            return Place(self.epoch, workers)
        if self._saved.workers != workers:
            raise ValueError(
                f"this epoch was resumed by {self._saved.workers} workers, not {workers}"
            )
        return self._saved

    def _beginning(self, number: int, workers: int) -> Place:
        saved = self._saved
        self._shared[_TAKEN_UP] = 0
        if saved is None or saved.epoch != self.epoch:
            return Place(self.epoch, workers)
        if saved.workers != workers:
            raise ValueError(
                f"the state is one of {saved.workers} worker processes, and here are {workers} (of "
                f"none, the process itself is one): give the DataLoader num_workers={saved.workers}"
            )
        if self._used[number]:
            return Place(self.epoch, workers)
        self._used[number] = self._shared[_TAKEN_UP] = 1
        return Place(saved.epoch, workers, saved.turn, dict(saved.given), dict(saved.counts))


def _shared_zeros(count: int) -> torch.Tensor:
    zeros: Any = torch.zeros(count, dtype=torch.int64, device="cpu")
    shared: torch.Tensor = zeros.share_memory_()
    return shared
