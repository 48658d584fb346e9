"""The position of a `ShardStream` in an epoch, and how it is saved and resumed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.utils.data import get_worker_info

from fastdecode._arguments import is_int
from fastdecode.torch._state import refuse_other

_VERSION = 1
_STATE_KEYS = {"version", "epoch", "workers", "turn", "given", "counts", "settings"}
_EPOCH, _BY_WORKERS, _RESUMED = range(3)


@dataclass
class StreamState:
    """How many samples the consumers of one rank have given in an epoch."""

    epoch: int = 0
    workers: int = 1
    """The number of consumers: the worker processes, or 1 for the process itself."""
    turn: int = 0
    """The consumer that gives the next batch."""
    given: dict[int, int] = field(default_factory=dict)
    """Samples that each consumer has given; a consumer that is missing here has given none."""
    counts: dict[int, int] = field(default_factory=dict)
    """The number of samples in each shard that was read to its end."""

    def as_dict(self, settings: Mapping[str, Any]) -> dict[str, Any]:
        """Return plain values that JSON can store."""
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
        """Restore a state that `as_dict` returned for a stream with the same settings.

        Anything else is a ValueError, and so are settings that change the remaining samples.
        """
        if not (
            isinstance(saved, dict) and set(saved) >= _STATE_KEYS and saved["version"] == _VERSION
        ):
            raise ValueError("this is not a state of a fastdecode ShardStream (of this version)")
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
            raise _damage_error() from error
        pairs = [*state.given.items(), *state.counts.items(), (state.epoch, state.workers)]
        valid = all(is_int(number) and number >= 0 for pair in pairs for number in pair)
        if (
            not valid
            or not is_int(before.get("seed"))
            or state.workers < 1
            or state.turn not in range(state.workers)
        ):
            raise _damage_error()
        refuse_other(before, settings, "stream", "samples")
        return state


def _damage_error() -> ValueError:
    return ValueError("this state of a ShardStream is damaged")


def state_after_batches(
    state: StreamState, batches: int, batch_size: int, max_samples: Mapping[int, int] | None
) -> StreamState:
    """Return the state after a DataLoader that began at `state` has given `batches` batches.

    `max_samples` is the number of samples in each consumer's share, if known. If a consumer would
    have given more, it is a ValueError: other consumers took its turns, and the count does not
    show which.
    """
    given = dict(state.given)
    # A DataLoader takes batches from its workers in turn while all of them have more.
    for number in range(min(state.workers, batches)):
        worker = (state.turn + number) % state.workers
        turns = len(range(number, batches, state.workers))
        now = given.get(worker, 0) + turns * batch_size
        if max_samples is not None:
            if now - max_samples[worker] >= batch_size:
                raise ValueError(
                    f"{batches} batches of {batch_size} are more than worker {worker} can give: "
                    f"its share is {max_samples[worker]} samples. Save at the end of the epoch "
                    "instead"
                )
            now = min(now, max_samples[worker])
        given[worker] = now
    turn = (state.turn + batches) % state.workers
    return StreamState(state.epoch, state.workers, turn, given, dict(state.counts))


class Progress:
    """Where iterators begin, and where the last one stands.

    Each worker process has a copy. All copies share memory for the epoch, whether worker processes
    read the stream, and whether they have resumed from a saved state.
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
        """Set the epoch of the next iterators; the saved epoch continues where it stopped."""
        if not is_int(epoch) or epoch < 0:
            raise ValueError(f"epoch must be an integer from 0, not {epoch!r}")
        if self._saved is not None and self._saved.epoch != epoch:
            self._saved = None
        self._current = None
        self._shared[:] = torch.tensor([int(epoch), 0, 0])

    def resume(self, state: StreamState) -> None:
        """Make the next iterator of each consumer continue from a state, once."""
        self._saved = state
        self._used = _shared_zeros(state.workers)
        self.set_epoch(state.epoch)

    def begin(self) -> tuple[StreamState, int]:
        """Begin an iterator in this process; return its state and the number of its consumer.

        The iterator keeps the state up to date. In a worker process, the state covers this worker
        alone.
        """
        info = get_worker_info()
        number, workers = (0, 1) if info is None else (info.id, info.num_workers)
        state = self._initial_state(number, workers)
        number = (number + state.turn) % workers
        if info is not None:
            given = {number: state.given[number]} if number in state.given else {}
            state = StreamState(state.epoch, workers, 0, given, state.counts)
        self._current = state
        self._shared[_BY_WORKERS] = int(info is not None)
        return state, number

    def current(self) -> StreamState:
        """Return the state of this process's last iterator, or where the next one will begin."""
        if self._current is not None:
            return self._current
        if self._shared[_BY_WORKERS] and get_worker_info() is None:
            raise RuntimeError(
                "worker processes read this stream, ahead of the batches that you have received: "
                "use state_after(batches, batch_size, workers)"
            )
        return self._saved or StreamState(self.epoch)

    def start_state(self, workers: int) -> StreamState:
        """Return where the running iterators began, in whichever processes they are."""
        if not self._shared[_RESUMED] or self._saved is None:
            return StreamState(self.epoch, workers)
        if self._saved.workers != workers:
            raise ValueError(
                f"this epoch was resumed with {self._saved.workers} workers, not {workers}"
            )
        return self._saved

    def _initial_state(self, number: int, workers: int) -> StreamState:
        saved = self._saved
        self._shared[_RESUMED] = 0
        if saved is None or saved.epoch != self.epoch:
            return StreamState(self.epoch, workers)
        if saved.workers != workers:
            raise ValueError(
                f"the state was saved with {saved.workers} worker processes, but this epoch has "
                f"{workers} (without workers, the process itself counts as one): give the "
                f"DataLoader num_workers={saved.workers}"
            )
        if self._used[number]:
            return StreamState(self.epoch, workers)
        self._used[number] = self._shared[_RESUMED] = 1
        return StreamState(saved.epoch, workers, saved.turn, dict(saved.given), dict(saved.counts))


def _shared_zeros(count: int) -> torch.Tensor:
    zeros: Any = torch.zeros(count, dtype=torch.int64, device="cpu")
    shared: torch.Tensor = zeros.share_memory_()
    return shared
