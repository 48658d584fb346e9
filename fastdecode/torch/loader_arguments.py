"""What a `Loader` may be told, and how many threads or processes follow from it."""

from __future__ import annotations

from typing import Literal, TypeAlias

from fastdecode.arguments import is_int
from fastdecode.cores import usable_cores
from fastdecode.torch.read_ahead import READ_THREADS
from fastdecode.torch.source import Source

__all__ = [
    "Threads",
    "check_delivery",
    "check_numbers",
    "check_together",
    "how_many",
    "how_many_read",
]

Threads: TypeAlias = "int | Literal['auto']"


def check_numbers(
    batch_size: int,
    threads: Threads,
    workers: int,
    prefetch: int,
    seed: int,
    timeout: float | None,
) -> None:
    """Refuse what is out of range.

    Raises
    ------
    ValueError
        Names the argument.
    """
    least = {"batch_size": 1, "threads": 0, "workers": 0, "prefetch": 1, "seed": None}
    values = (batch_size, 0 if threads == "auto" else threads, workers, prefetch, seed)
    for (name, at_least), value in zip(least.items(), values, strict=True):
        if not is_int(value) or (at_least is not None and value < at_least):
            kind = "an integer" if at_least is None else f"an integer of at least {at_least}"
            kind += ' or "auto"' if name == "threads" else ""
            raise ValueError(f"{name} must be {kind}, not {value!r}")
    if timeout is not None and not (isinstance(timeout, (int, float)) and timeout > 0):
        raise ValueError(f"timeout must be a positive number of seconds, not {timeout!r}")


def check_together(
    sampler: object, collate_fn: object, *, shuffle: bool, threads: Threads, workers: int
) -> None:
    """Refuse what contradicts itself, or cannot be used at all.

    Raises
    ------
    ValueError, TypeError
        Names the arguments.
    """
    if collate_fn is not None and not callable(collate_fn):
        raise TypeError(f"collate_fn must be a function of a list of samples, not {collate_fn!r}")
    if sampler is not None and shuffle:
        raise ValueError("give shuffle or a sampler, not both")
    if workers and threads != "auto":
        raise ValueError("give threads or workers, not both")


def check_delivery(decode: object, normalize_on: object) -> None:
    """Refuse what is no word for who decodes, or where floats are made.

    Raises
    ------
    TypeError, ValueError
        Names the argument.
    """
    if not isinstance(decode, str):
        raise TypeError(
            f"decode must be 'cpu', 'gpu', 'auto' or a batch backend's name, not {decode!r}"
        )
    if normalize_on not in ("host", "device"):
        raise ValueError(f"normalize_on must be 'host' or 'device', not {normalize_on!r}")


def how_many(
    source: Source, threads: Threads, workers: int, *, apart: bool = False
) -> tuple[int, int]:
    """Settle how many threads and how many worker processes make batches.

    Parameters
    ----------
    source : Source
    threads : int or "auto"
    workers : int
    apart : bool
        Whether pictures are decoded elsewhere, which only threads can hand over.
    """
    if workers:
        return 0, int(workers)
    if threads != "auto":
        return int(threads), 0
    if apart or (source.isolated and not source.holds_gil):
        return usable_cores(), 0
    return 0, usable_cores()


def how_many_read(source: Source, asked: int | None, workers: int) -> int:
    """Settle how many threads read ahead.

    Parameters
    ----------
    source : Source
    asked : int or None
    workers : int
        Processes that make batches.

    Raises
    ------
    ValueError
        If the number is wrong, or nobody may read for the dataset.
    """
    if asked is not None and not (is_int(asked) and asked >= 0):
        raise ValueError(f"read_threads must be an integer of at least 0, not {asked!r}")
    hindrance = "worker processes read by themselves" if workers else source.reads_for_itself
    if hindrance:
        if asked:
            raise ValueError(f"read_threads={asked} is not possible: {hindrance}")
        return 0
    if asked is None:
        return READ_THREADS if source.remote else 0
    return int(asked)
