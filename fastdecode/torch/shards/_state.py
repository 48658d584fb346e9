"""Where a `ShardStream` stands: which epoch, from where on, and that as values to be saved."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.utils.data import get_worker_info

from fastdecode._arguments import is_int
from fastdecode.torch._state import refuse_other

_VERSION = 1
_PARTS = {"version", "epoch", "workers", "turn", "given", "counts", "settings"}
_EPOCH, _BY_WORKERS, _RESUMED = range(3)


@dataclass
class StreamState:
    """How far the consumers of one rank have come."""

    epoch: int = 0
    workers: int = 1
    """Consumers of the rank: worker processes, or the process itself."""
    turn: int = 0
    """The consumer that the next batch is from."""
    given: dict[int, int] = field(default_factory=dict)
    """Samples that each consumer has given; none where it is not named."""
    counts: dict[int, int] = field(default_factory=dict)
    """Samples of the shards that were read to their end."""

    def as_dict(self, settings: Mapping[str, Any]) -> dict[str, Any]:
        """Return plain values, that JSON can hold too."""
        return {
            "version": _VERSION,
            "epoch": self.epoch,
            "workers": self.workers,
            "turn": self.turn,
            "given": [list(pair) for pair in sorted(self.given.items())],
            "counts": [list(pair) for pair in sorted(self.counts.items())],
            "settings": dict(settings),
        }

    @classmethod
    def from_dict(cls, saved: Any, settings: Mapping[str, Any]) -> StreamState:
        """Read what `as_dict` returned of a stream with the same settings.

        It is a ValueError if it is no such thing, or if what is left would be something else.
        """
        if not (isinstance(saved, dict) and set(saved) >= _PARTS and saved["version"] == _VERSION):
            raise ValueError("this is no state of a fastdecode ShardStream (of this version)")
        try:
            state = cls(
                saved["epoch"],
                saved["workers"],
                saved["turn"],
                dict(saved["given"]),
                dict(saved["counts"]),
            )
            before = dict(saved["settings"])
        except (TypeError, ValueError) as error:
            raise _damaged() from error
        pairs = [*state.given.items(), *state.counts.items(), (state.epoch, state.workers)]
        sound = all(is_int(number) and number >= 0 for pair in pairs for number in pair)
        if not sound or state.workers < 1 or state.turn not in range(state.workers):
            raise _damaged()
        refuse_other(before, settings, "stream", "samples")
        return state


def _damaged() -> ValueError:
    return ValueError("this state of a ShardStream is damaged")


def after_batches(
    state: StreamState, batches: int, batch_size: int, most: Mapping[int, int] | None
) -> StreamState:
    """Work out where a stream stands from what a DataLoader, which began at `state`, has given.

    `most` is how many samples each consumer's share has, if that is known. It is a ValueError if
    one would have given more: another came in its turns, and nobody knows which.
    """
    given = dict(state.given)
    # A DataLoader takes batches from its workers in turn, as long as all have more.
    for number in range(min(state.workers, batches)):
        worker = (state.turn + number) % state.workers
        turns = len(range(number, batches, state.workers))
        now = given.get(worker, 0) + turns * batch_size
        if most is not None:
            if now - most[worker] >= batch_size:
                raise ValueError(
                    f"{batches} batches of {batch_size} are more than worker {worker} has had: its "
                    f"share are {most[worker]} samples. Save at the end of the epoch instead"
                )
            now = min(now, most[worker])
        given[worker] = now
    turn = (state.turn + batches) % state.workers
    return StreamState(state.epoch, state.workers, turn, given, dict(state.counts))


class Progress:
    """Where iterators begin, and where the last one stands.

    Worker processes have a copy of this, but share its memory: the epoch, whether it is they who
    read, and whether they have gone on from a saved state.
    """

    def __init__(self) -> None:
        self._shared = _shared_zeros(3)
        self._used = _shared_zeros(1)
        self._saved: StreamState | None = None
        self._current: StreamState | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_current": None}

    @property
    def epoch(self) -> int:
        """The epoch that the next iterator gives."""
        return int(self._shared[_EPOCH])

    def set_epoch(self, epoch: int) -> None:
        """Let the next iterators give an epoch: what is left of it, if it is the saved one."""
        if not is_int(epoch) or epoch < 0:
            raise ValueError(f"epoch must be an integer from 0, not {epoch!r}")
        if self._saved is not None and self._saved.epoch != epoch:
            self._saved = None
        self._current = None
        self._shared[:] = torch.tensor([int(epoch), 0, 0])

    def resume(self, state: StreamState) -> None:
        """Let the next iterators give what is left from a state on, once each."""
        self._saved = state
        self._used = _shared_zeros(state.workers)
        self.set_epoch(state.epoch)

    def begin(self) -> tuple[StreamState, int]:
        """Begin an iterator in this process: return its state, and which consumer this one is.

        The iterator keeps the state up to date. In a worker process it is this worker's alone.
        """
        info = get_worker_info()
        number, workers = (0, 1) if info is None else (info.id, info.num_workers)
        state = self._beginning(number, workers)
        number = (number + state.turn) % workers
        if info is not None:
            given = {number: state.given[number]} if number in state.given else {}
            state = StreamState(state.epoch, workers, 0, given, state.counts)
        self._current = state
        self._shared[_BY_WORKERS] = int(info is not None)
        return state, number

    def current(self) -> StreamState:
        """Return where the last iterator of this process stands, or the next one will begin."""
        if self._current is not None:
            return self._current
        if self._shared[_BY_WORKERS] and get_worker_info() is None:
            raise RuntimeError(
                "worker processes read this stream, and are ahead of what you got from them: use "
                "state_after(batches, batch_size, workers)"
            )
        return self._saved or StreamState(self.epoch)

    def begun(self, workers: int) -> StreamState:
        """Return where those iterators began that give now, whichever processes they are in."""
        if not self._shared[_RESUMED] or self._saved is None:
            return StreamState(self.epoch, workers)
        if self._saved.workers != workers:
            raise ValueError(
                f"this epoch was resumed by {self._saved.workers} workers, not {workers}"
            )
        return self._saved

    def _beginning(self, number: int, workers: int) -> StreamState:
        saved = self._saved
        self._shared[_RESUMED] = 0
        if saved is None or saved.epoch != self.epoch:
            return StreamState(self.epoch, workers)
        if saved.workers != workers:
            raise ValueError(
                f"the state is one of {saved.workers} worker processes, and here are {workers} (of "
                f"none, the process itself is one): give the DataLoader num_workers={saved.workers}"
            )
        if self._used[number]:
            return StreamState(self.epoch, workers)
        self._used[number] = self._shared[_RESUMED] = 1
        return StreamState(saved.epoch, workers, saved.turn, dict(saved.given), dict(saved.counts))


def _shared_zeros(count: int) -> torch.Tensor:
    zeros: Any = torch.zeros(count, dtype=torch.int64, device="cpu")
    shared: torch.Tensor = zeros.share_memory_()
    return shared
