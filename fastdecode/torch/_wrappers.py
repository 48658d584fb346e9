"""torch's Subset and ConcatDataset around datasets: what lies where, and which of them is asked."""

from __future__ import annotations

import copy
import sys
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from typing import Any

from torch.utils.data import ConcatDataset, Subset

_NAMES = frozenset(("indices", "datasets", "__getitems__"))
"""One of these attributes is named by each method that asks what is inside for an item."""


def inside(dataset: Any) -> list[Any]:
    """Return the datasets directly inside one of torch's wrappers; none inside any other."""
    if type(dataset) is Subset:
        return [dataset.dataset]
    return list(dataset.datasets) if type(dataset) is ConcatDataset else []


def unwrap(dataset: Any) -> Iterator[Any]:
    """Yield a dataset, and what is inside at any depth."""
    yield dataset
    for one in inside(dataset):
        yield from unwrap(one)


def snapshot(dataset: Any) -> Any:
    """Copy the wrappers, but not what is inside: another dataset may take its place there later."""
    held = [snapshot(one) for one in inside(dataset)]
    if not held:
        return dataset
    copied = copy.copy(dataset)
    if type(dataset) is Subset:
        copied.dataset = held[0]
    else:
        copied.datasets = held
    return copied


def locate(dataset: Any, index: Any) -> tuple[Any, Any]:
    """Return the dataset inside that has an item, and its index there."""
    while True:
        if type(dataset) is Subset:
            index, dataset = dataset.indices[index], dataset.dataset
        elif type(dataset) is ConcatDataset:
            if not -len(dataset) <= index < len(dataset):
                raise IndexError(f"index {index} is out of range: there are {len(dataset)}")
            index, ends = index % len(dataset), dataset.cumulative_sizes
            part = bisect_right(ends, index)
            index, dataset = index - (ends[part - 1] if part else 0), dataset.datasets[part]
        else:
            return dataset, index


def items_of(outer: Any, dataset: Any) -> Sequence[int]:
    """Return the items of a dataset that a wrapper around it gives; none if it is elsewhere."""
    parts = list(_reached(outer, None, dataset))
    return parts[0] if len(parts) == 1 else [index for part in parts for index in part]


def _reached(one: Any, indices: Any, dataset: Any) -> Iterator[Sequence[int]]:
    """Yield the items of a dataset that lie at these indices of a wrapper; None is all."""
    if one is dataset:
        yield range(len(dataset)) if indices is None else indices
    elif isinstance(one, Subset):
        chosen = one.indices if indices is None else [one.indices[index] for index in indices]
        yield from _reached(one.dataset, chosen, dataset)
    elif isinstance(one, ConcatDataset):
        start = 0
        for part, end in zip(one.datasets, one.cumulative_sizes, strict=False):
            mine = indices and [
                index % len(one) - start for index in indices if start <= index % len(one) < end
            ]
            yield from _reached(part, mine, dataset)
            start = end


def asked_by_torch(dataset: Any) -> Any:
    """Return what torch asks for the items that it has just asked a dataset for; else the dataset.

    Torch's fetcher and Subset take ``__getitems__`` from a wrapper whose ``__getattr__`` hands on
    that of the dataset inside, and would pass its ``__getitem__`` by.
    """
    frame = sys._getframe(2)
    if not str(frame.f_globals.get("__name__")).startswith("torch.utils.data."):
        return dataset
    return getattr(frame.f_locals.get("self"), "dataset", dataset)


def outermost(dataset: Any) -> Any:
    """Return the outermost of torch's wrappers through which a dataset is being asked for an item.

    A dataset does not know in which subsets it lies, so they are found among the callers.
    """
    frame: Any = sys._getframe(1)
    while frame is not None:
        # Others are left alone: to look into a frame keeps its variables, such as an error.
        if not _NAMES.isdisjoint(frame.f_code.co_names):
            caller = frame.f_locals.get("self")
            joined = caller.datasets if isinstance(caller, ConcatDataset) else ()
            alone = (caller.dataset,) if isinstance(caller, Subset) else ()
            if any(one is dataset for one in (*joined, *alone)):
                dataset = caller
        frame = frame.f_back
    return dataset
