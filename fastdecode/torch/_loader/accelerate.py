"""Hugging Face accelerate, for which only torch's DataLoader is a loader.

Its `skip_first_batches` makes a DataLoader of the parts of any loader, and `Accelerator.prepare`
passes by whatever is no DataLoader. accelerate has no hook for loaders of another kind, so this
module replaces three names of it in a process that has made a `Loader`. They act on a `Loader`
alone.
"""

from __future__ import annotations

import sys
import weakref
from collections.abc import Callable
from functools import wraps
from typing import Any

from torch.utils.data import DataLoader

_loaders: weakref.WeakSet[Any] = weakref.WeakSet()


def teach(loader: Any) -> None:
    """Let accelerate know of a `Loader`, if accelerate is imported."""
    _loaders.add(loader)
    module = sys.modules.get("accelerate.accelerator")
    data_loader = sys.modules.get("accelerate.data_loader")
    if module is None or data_loader is None or data_loader.DataLoader is _rebuild:
        return
    accelerator = getattr(module, "Accelerator", None)
    if accelerator is None:  # it is being imported
        return
    data_loader.DataLoader = _rebuild  # type: ignore[attr-defined]
    accelerator.prepare = _checked(accelerator.prepare)
    accelerator.prepare_data_loader = _kept(accelerator.prepare_data_loader)


def _rebuild(dataset: Any, *arguments: Any, **options: Any) -> Any:
    """Make a DataLoader; where `skip_first_batches` makes one of a Loader, return that instead."""
    skips: Any = options.get("batch_sampler")
    if type(skips).__name__ == "SkipBatchSampler":
        for loader in tuple(_loaders):
            if loader.dataset is dataset and loader._has_made(skips.batch_sampler):
                return loader._skip(skips.skip_batches)
    return DataLoader(dataset, *arguments, **options)


def _checked(prepare: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(prepare)
    def checked(accelerator: Any, *arguments: Any, **options: Any) -> Any:
        if any(map(_is_loader, arguments)):
            _check_options(accelerator)
        return prepare(accelerator, *arguments, **options)

    return checked


def _kept(prepare_data_loader: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(prepare_data_loader)
    def kept(accelerator: Any, data_loader: Any, *arguments: Any, **options: Any) -> Any:
        if not _is_loader(data_loader):
            return prepare_data_loader(accelerator, data_loader, *arguments, **options)
        _check_options(accelerator)
        return data_loader

    return kept


def _is_loader(argument: Any) -> bool:
    return any(argument is loader for loader in tuple(_loaders))


def _check_options(accelerator: Any) -> None:
    """Refuse what accelerate does with the batches of a DataLoader, but cannot do here."""
    if accelerator.dispatch_batches:
        raise ValueError(
            "dispatch_batches=True is not possible: the Loader of each process reads the share of "
            "that process, and no process reads for the others. Leave it out"
        )
    if accelerator.split_batches and accelerator.num_processes > 1:
        raise ValueError(
            "split_batches=True is not possible: batch_size of a Loader is that of one process. "
            f"Divide it by the {accelerator.num_processes} processes, and leave split_batches out"
        )
