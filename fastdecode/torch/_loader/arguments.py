"""Checks the arguments of `Loader`, and decides how it makes its batches.

That is: how many threads or processes do, what decodes, and where images become floats.
"""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Callable, Iterable, Mapping
from multiprocessing.context import BaseContext
from typing import Any, Literal, NamedTuple, TypeAlias, TypedDict, get_args

import torch
from torch.utils.data import IterableDataset

from fastdecode._arguments import (
    FLAG,
    MOST_THREADS,
    Kind,
    check_word,
    is_int,
    is_iterable,
    shown,
    wrong_kind,
)
from fastdecode._system.processor import usable_cores
from fastdecode.stores import Store
from fastdecode.torch._loader.samples import SampleSource
from fastdecode.torch.dataset import EligibleRecipe
from fastdecode.torch.transforms import Normalize
from fastdecode.torch.transforms.base import is_number

Threads: TypeAlias = "int | Literal['auto']"
NormalizeOn: TypeAlias = Literal["host", "device"]


class DataLoaderOptions(TypedDict, total=False):
    """Arguments of torch's DataLoader that `Loader` also accepts but handles in its own way.

    And `max_pixels`, an option of the dataset, because the error of a large image names it.
    """

    max_pixels: int | None
    batch_sampler: Iterable[Any] | None
    num_workers: int | None
    pin_memory: bool
    worker_init_fn: Callable[[int], Any] | None
    multiprocessing_context: str | BaseContext | None
    generator: torch.Generator | None
    prefetch_factor: int | None
    persistent_workers: bool
    pin_memory_device: str
    in_order: bool


_LEAST = {"batch_size": 1, "threads": 0, "workers": 0, "prefetch": 1, "seed": None}
_DEFAULTS: dict[str, tuple[object, ...]] = {
    "threads": ("auto",),
    "seed": (None,),
    "batch_size": (None,),
}
_MIN_OF_TORCHS = {"num_workers": 0, "prefetch_factor": 1}
_MOST = {
    **dict.fromkeys(("threads", "workers", "num_workers"), MOST_THREADS),
    **dict.fromkeys(("prefetch", "prefetch_factor"), 1 << 31),
}
_KINDS: dict[str, Kind] = {
    **dict.fromkeys(
        ("shuffle", "drop_last", "channels_last", "pin_memory", "persistent_workers", "in_order"),
        FLAG,
    ),
    "sampler": ("an iterable of indices", is_iterable),
    "batch_sampler": ("an iterable of lists of indices", is_iterable),
    "collate_fn": ("a function of a list of samples", callable),
    "worker_init_fn": ("a function of the worker's number", callable),
    "multiprocessing_context": (
        "a context of multiprocessing, or its name",
        lambda given: isinstance(given, (str, BaseContext)),
    ),
    "generator": ("a torch.Generator", lambda given: isinstance(given, torch.Generator)),
    "device": (
        "a torch.device, its name or its number",
        lambda given: isinstance(given, (str, torch.device)) or is_int(given),
    ),
    "decode": ("'cpu', 'gpu' or a batch backend's name", lambda given: isinstance(given, str)),
    "pin_memory_device": ("the name of a device", lambda given: isinstance(given, str)),
}
"""What an argument must be, in words, and the check of it."""
_POSITIONAL = ("batch_size", "shuffle", "sampler", "drop_last")


def check_options(options: DataLoaderOptions, own: Mapping[str, Any]) -> None:
    """Refuse arguments that are wrong, contradict each other or have no meaning here.

    `options` holds the arguments of torch's DataLoader, and `own` those of `Loader`, by name.
    """
    given = {**own, **options}
    for name, (kind, fits) in _KINDS.items():
        optional = name != "decode" and given.get(name) is None
        if not (optional or fits(given[name])):
            raise wrong_kind(name + _place(name), kind, given[name], _hint(name, given[name]))
    _check_singly(options, own)
    _check_together(options, own)
    for name, least in _LEAST.items():
        is_default = isinstance(own[name], (str, type(None))) and own[name] in _DEFAULTS.get(
            name, ()
        )
        if not is_default:
            _check_integer(name, own[name], least)
    for name, least in _MIN_OF_TORCHS.items():
        if options.get(name) is not None:
            _check_integer(name, options.get(name), least)
    _check_values(own)


def _place(name: str) -> str:
    return f" (argument {_POSITIONAL.index(name) + 2})" if name in _POSITIONAL else ""


def _hint(name: str, given: Any) -> str:
    hint = "; DataLoader's fifth argument is batch_sampler: give that by its name"
    return hint if name == "drop_last" and is_iterable(given) else ""


def _check_integer(name: str, value: Any, least: int | None) -> None:
    most = _MOST.get(name)
    right = is_int(value) and (least is None or value >= least) and (most is None or value <= most)
    if not right:
        kind = "an integer" if least is None else f"an integer of at least {least}"
        kind += f" and at most {most}" if most else ""
        kind += ' or "auto"' if name == "threads" else ""
        raise ValueError(f"{name} must be {kind}, not {shown(value)}")


def _check_values(own: Mapping[str, Any]) -> None:
    """Refuse unknown words, times that are none, and what is no dataset."""
    dataset = own["dataset"]
    if isinstance(dataset, (str, bytes, bytearray, os.PathLike, Store)):
        where = f"({dataset!r})" if isinstance(dataset, (str, os.PathLike)) else ""
        raise TypeError(
            f"Loader takes a dataset, not {type(dataset).__name__}: ImageFolder{where} reads a "
            f"folder with one subfolder per class, StoreDataset{where} any folder or store, and "
            "ImageList a list of paths"
        )
    timeout = own["timeout"]
    if timeout is not None and not (is_number(timeout) and timeout >= 0):
        raise ValueError(
            f"timeout must be a number of seconds, 0 or None for no limit, not {timeout!r}"
        )
    check_word("normalize_on", own["normalize_on"], get_args(NormalizeOn))


def _check_singly(options: DataLoaderOptions, own: Mapping[str, Any]) -> None:
    """Refuse what has no meaning for single samples, or for an iterable dataset."""
    uint8 = own["decode"] != "cpu" or own["normalize_on"] != "host"
    ordered = own["shuffle"] or own["sampler"] is not None
    given = ordered or options.get("batch_sampler") is not None
    for wrong, why in (
        (
            own["batch_size"] is None and (own["drop_last"] or uint8),
            (
                "batch_size=None gives single samples, so drop_last, decode and normalize_on have "
                "no meaning: leave them out, or give a batch_size"
            ),
        ),
        (
            isinstance(own["dataset"], IterableDataset) and given,
            (
                "an IterableDataset says itself which samples come, and in which order: leave out "
                "shuffle, sampler and batch_sampler"
            ),
        ),
        (
            isinstance(own["dataset"], IterableDataset) and own["world_size"] is not None,
            (
                "an IterableDataset is not shared among ranks: leave out rank and world_size, and "
                "let the dataset of each rank give its own samples"
            ),
        ),
    ):
        if wrong:
            raise ValueError(why)


def _check_together(options: DataLoaderOptions, own: Mapping[str, Any]) -> None:
    """Refuse arguments that contradict each other or have no meaning here."""
    workers = is_int(own["workers"]) and own["workers"] > 0
    ordered = own["sampler"] is not None or own["shuffle"] or own["drop_last"]
    given = {name for name, value in options.items() if value is not None}
    device, auto = options.get("pin_memory_device"), isinstance(own["threads"], str)
    for wrong, why in (
        (
            "batch_sampler" in given and (own["batch_size"] != 1 or ordered),
            (
                "batch_sampler says what is in each batch: leave out batch_size, shuffle, sampler "
                "and drop_last"
            ),
        ),
        (own["sampler"] is not None and own["shuffle"], "give shuffle or a sampler, not both"),
        (workers and not auto, "give threads or workers, not both"),
        (
            "num_workers" in given and (workers or not auto),
            "num_workers is torch's name for threads or workers: give only one of them",
        ),
        (
            "prefetch_factor" in given and own["prefetch"] != 2,
            "prefetch_factor is torch's name for prefetch: give only one of them",
        ),
        (
            "generator" in given and own["seed"] is not None,
            "generator is only used to draw a seed: give generator or seed, not both",
        ),
        (
            not options.get("in_order", True),
            "in_order=False has no meaning here: batches always come in order, so leave it out",
        ),
        (
            device,
            (
                f"pin_memory_device={device!r} has no meaning here: pin_memory=True pins for the "
                "current CUDA device, and device=… also copies there"
            ),
        ),
    ):
        if wrong:
            raise ValueError(why)


def resolve_workers(
    source: SampleSource,
    threads: Threads,
    workers: int,
    num_workers: int | None = None,
    *,
    apart: bool = False,
) -> tuple[int, int]:
    """Decide how many threads and how many worker processes make batches.

    `num_workers` gives the number of threads or of processes, whichever suit the dataset better.
    `apart` says that a device decodes the images, for which only threads can make the batches.
    """
    if source.iterable:
        if threads not in ("auto", 0):
            raise ValueError(
                f"threads={threads!r} is not possible: this process reads an IterableDataset, or "
                "worker processes do. Give workers= instead"
            )
        return 0, int(workers or num_workers or 0)
    if workers:
        return 0, int(workers)
    if threads != "auto":
        return int(threads), 0
    count = usable_cores() if num_workers is None else int(num_workers)
    if apart or not source.why_processes:
        return count, 0
    if num_workers is None and multiprocessing.current_process().daemon:
        return 0, 0  # a worker process of another loader cannot have any
    return 0, count


_TRANSFORM_REMEDY = (
    "Give one of the package's datasets a transform that it does while decoding (see "
    "fastdecode.torch.fuse), without anything after it"
)


class BatchWay(NamedTuple):
    """The way in which the batches of an epoch are made.

    If `normalize` makes the floats later, `source` makes uint8 images. `eligible` says how a
    device makes the samples if it decodes whole batches; else it is None.
    """

    source: SampleSource
    normalize: Normalize | None
    eligible: EligibleRecipe | None = None


def load_decoder(decode: str, device: torch.device) -> str:
    """Return the name of the batch backend that ``decode="gpu"`` or a name means, and load it."""
    from fastdecode.gpu import check_device, choose

    loaded = choose(check_device(device), decode)
    return "cpu" if loaded is None else loaded.name


def _whole_batch_recipe(
    source: SampleSource, collate_fn: Callable[..., Any] | None, decoder: str, workers: int
) -> EligibleRecipe:
    """Return how a device decodes the dataset's batches; raise if it cannot."""
    what, instead = f"decoding with {decoder}", "decode='cpu'"
    if workers:
        why = "worker processes make samples one by one"
        raise _impossible(what, why, "Leave out workers", instead)
    if collate_fn is not None:
        why = "collate_fn wants samples one by one"
        raise _impossible(what, why, "Leave out collate_fn", instead)
    eligible = source.eligible
    if isinstance(eligible, str):
        raise _impossible(what, eligible, _TRANSFORM_REMEDY, instead)
    if not source.settings(source.ours).draws_apart:
        why = "its transform does not say that it draws from the generator it is given"
        raise _impossible(what, why, "Say isolated = True in its class", instead)
    if eligible.recipe.augments_pixels:
        why = "its augmentations run in the core, on the CPU"
        raise _impossible(what, why, "Leave them out", instead)
    if any(one.filter != "own" for one in eligible.recipe.resizes):
        why = "devices only resize bilinearly"
        raise _impossible(what, why, "Use interpolation='bilinear'", instead)
    return eligible


def _device_normalize(source: SampleSource, collate_fn: Callable[..., Any] | None) -> Normalize:
    """Return the transform that makes the dataset's floats later; raise if none can."""
    what, instead = "normalize_on='device'", "normalize_on='host'"
    if collate_fn is not None:
        why = "collate_fn gets samples, and only it knows where their images go"
        raise _impossible(what, why, "Leave out collate_fn", instead)
    eligible = source.eligible
    if isinstance(eligible, str):
        raise _impossible(what, eligible, _TRANSFORM_REMEDY, instead)
    if any(step.kind == "erasure" for step in eligible.recipe.program):
        why = "RandomErasing fills normalised values"
        raise _impossible(what, why, "Erase on the device instead", instead)
    if eligible.recipe.normalize is None:
        why = "its transform makes bytes and normalises nothing"
        raise _impossible(what, why, "Let it make torch.float32", instead)
    return eligible.recipe.normalize


def choose_way(
    source: SampleSource,
    collate_fn: Callable[..., Any] | None,
    normalize_on: NormalizeOn,
    device: torch.device,
    decoder: str,
    workers: int,
) -> BatchWay:
    """Decide how batches are made from the dataset in its present state.

    `decoder` is a batch backend, or ``"cpu"``. Raises ValueError if the dataset does not allow it.
    """
    if decoder != "cpu":
        eligible = _whole_batch_recipe(source, collate_fn, decoder, workers)
        return BatchWay(source.as_uint8_source(), eligible.recipe.normalize, eligible)
    normalize = None if normalize_on == "host" else _device_normalize(source, collate_fn)
    # On the host the floats are the same, and are made faster along with the pixels.
    if normalize is None or device.type == "cpu":
        return BatchWay(source, None)
    return BatchWay(source.as_uint8_source(), normalize)


def _impossible(what: str, why: str, remedy: str, instead: str) -> ValueError:
    return ValueError(f"{what} is not possible: {why}. {remedy}, or leave it at {instead}")
