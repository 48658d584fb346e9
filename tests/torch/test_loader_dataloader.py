"""`Loader` in place of torch's DataLoader: arguments, attributes, samplers."""

from __future__ import annotations

import copy
import multiprocessing
import os
import pickle
import warnings
from typing import Any

import pytest
import torch
from loading import PROCESS_WARNINGS, Images, Plain, copies, indices, same
from loading import SeededLoader as Loader
from same import assert_same
from torch.utils.data import DataLoader, RandomSampler, get_worker_info

import fastdecode.torch
from fastdecode.torch import DevicePrefetcher

pytestmark = pytest.mark.filterwarnings(*PROCESS_WARNINGS)

READ = (
    "dataset",
    "batch_size",
    "sampler",
    "batch_sampler",
    "num_workers",
    "pin_memory",
    "drop_last",
    "generator",
    "collate_fn",
)


# Arguments


def test_generator_gives_the_seed() -> None:
    """Equal states of a generator give the same batches; one generator gives new ones each time."""

    def epoch(generator: Any) -> list[Any]:
        with Loader(Images(), 4, shuffle=True, threads=1, generator=generator) as loader:
            assert loader.generator is generator
            return copies(loader)

    generator = torch.Generator().manual_seed(7)
    first, second = epoch(generator), epoch(generator)

    assert_same(first, epoch(torch.Generator().manual_seed(7)))
    assert not same(first, second)
    assert not same(first, epoch(torch.Generator().manual_seed(8)))


def test_the_order_follows_from_torchs_seed() -> None:
    """Without `seed=`, `torch.manual_seed` fixes order and draws; each loader has its own seed."""

    def epoch(number: int) -> list[Any]:
        torch.manual_seed(number)
        with fastdecode.torch.Loader(Images(), 4, shuffle=True, threads=1) as loader:
            return copies(loader)

    runs = [epoch(number) for number in range(5)]

    assert len({tuple(indices(run)) for run in runs}) == 5
    assert_same(epoch(3), runs[3])
    first, second = (fastdecode.torch.Loader(Images(), threads=1) for _ in range(2))
    assert first.seed != second.seed


@pytest.mark.parametrize("generator", [None, torch.Generator()])
def test_ranks_that_shuffle_need_a_seed_in_common(generator: Any) -> None:
    """Ranks given by hand would lose items with seeds of their own, so `shuffle` needs `seed=`."""
    options: dict[str, Any] = {"rank": 0, "world_size": 2, "threads": 1, "generator": generator}
    loader = fastdecode.torch.Loader

    with pytest.raises(ValueError, match="seed="):
        loader(Images(), 4, shuffle=True, **options)
    with loader(Images(), 4, sampler=[1, 2], **options) as sampled:
        assert indices(sampled) == [1, 2]
    assert indices(loader(Images(), 4, **options)) == list(range(0, 23, 2))


def test_arguments_of_dataloader_are_taken() -> None:
    """With DataLoader's arguments, `Loader` has as many threads, and its own batches.

    `prefetch_factor` is `prefetch`, `timeout=0` is no limit, and threads always persist; `repr`
    counts them in words.
    """
    usual: dict[str, Any] = {"shuffle": True, "num_workers": 8, "pin_memory": True}
    others: dict[str, Any] = {
        "num_workers": 1,
        "prefetch_factor": 5,
        "timeout": 0,
        "persistent_workers": True,
        "worker_init_fn": None,
        "multiprocessing_context": None,
        "in_order": True,
        "pin_memory_device": "",
        "shuffle": None,
    }
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        loaders = [Loader(Images(), 4, **options) for options in (usual, others)]

    for loader, options in zip(loaders, (usual, others), strict=True):
        assert (loader.threads, loader.workers) == (options["num_workers"], 0)
        with loader, Loader(Images(), 4, shuffle=options["shuffle"], threads=1) as plain:
            assert_same(copies(loader), copies(plain), options)
    assert loaders[1].prefetch == loaders[1].prefetch_factor == 5
    assert loaders[1].timeout == 0
    assert ", 8 threads," in repr(loaders[0])
    assert ", 1 thread," in repr(loaders[1])
    assert ", 1 process," in repr(Loader(Images(), 4, workers=1))


_begun: list[int] = []


def begin(number: int) -> None:
    """As users do in a worker: look at the dataset, prepare it, and keep the number."""
    info = get_worker_info()
    info.dataset.make.salt = 100 * (info.id + 1)
    _begun.append(number)


class Salted:
    """A dataset that uses what `worker_init_fn` has prepared."""

    salt = 0

    def __call__(self, index: int) -> Any:
        spawned = "Spawn" in type(multiprocessing.current_process()).__name__
        return torch.tensor([index, self.salt, len(_begun), spawned])


@pytest.mark.parametrize(
    ("context", "workers", "rows"),
    [
        ("spawn", 1, [[0, 100, 1, 1], [1, 100, 1, 1]]),
        pytest.param(
            multiprocessing.get_context("fork") if hasattr(os, "fork") else None,
            2,
            [[0, 100, 1, 0], [1, 200, 1, 0], [2, 100, 1, 0], [3, 200, 1, 0]],
            marks=pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork"),
        ),
    ],
)
def test_worker_init_fn_prepares_worker_processes(
    context: Any, workers: int, rows: list[list[int]]
) -> None:
    """`worker_init_fn` is called once per worker process, with the user's dataset there."""
    with Loader(
        Plain(Salted(), len(rows)),
        1,
        num_workers=workers,
        worker_init_fn=begin,
        multiprocessing_context=context,
        persistent_workers=True,
    ) as loader:
        found = [batch[0].tolist() for batch in loader]

    assert found == rows
    assert _begun == []  # not here: it was another process


# What others read


FIXED_BY_TORCH = (
    "batch_size",
    "batch_sampler",
    "sampler",
    "drop_last",
    "dataset",
    "persistent_workers",
)
WITHOUT_EFFECT = ("threads", "workers", "num_workers", "prefetch", "prefetch_factor", "timeout")


def test_what_torch_fixes_and_what_would_have_no_effect_cannot_be_assigned() -> None:
    """Such an assignment is an error that names the attribute, in a copy as well."""
    first = Loader(Images(count=6), 3)
    for batches in (first, copy.copy(first), pickle.loads(pickle.dumps(first))):
        for name in (*FIXED_BY_TORCH, *WITHOUT_EFFECT, "device", "decode", "seed", "epoch"):
            with pytest.raises(ValueError, match=name):
                setattr(batches, name, getattr(batches, name))
        batches.note = "a name of one's own"
        assert indices(batches) == list(range(6))
    theirs = DataLoader(range(3))
    for name in FIXED_BY_TORCH:
        with pytest.raises(ValueError, match=name):
            setattr(theirs, name, getattr(theirs, name))


def test_what_can_be_assigned_begins_with_the_next_epoch() -> None:
    """`worker_init_fn`, `collate_fn` and the layout of later epochs are what was assigned last."""
    for persistent in (False, True):
        how = {"workers": 1, "persistent_workers": persistent}
        with Loader(Plain(Salted(), 2), 2, **how) as loader:
            loader.worker_init_fn = begin
            assert [row[1] for batch in loader for row in batch.tolist()] == [100, 100]
            loader.collate_fn = len
            assert list(loader) == [2]
        with Loader(Images(count=2), 2, **how) as loader:
            for last in (False, True):
                loader.channels_last = last
                ((images, _),) = loader
                assert images.is_contiguous(memory_format=torch.channels_last) == last
    assert Loader(Images(), num_workers=2, worker_init_fn=begin).workers == 2  # which it asks for
    with Loader(Images(count=2), 2, threads=1) as loader:
        loader.worker_init_fn = begin  # as Lightning does
        with pytest.warns(RuntimeWarning, match="worker_init_fn"):
            assert indices(loader) == [0, 1]


def test_attributes_are_those_of_dataloader() -> None:
    """`Loader` and a `DevicePrefetcher` around it have the attributes of torch's DataLoader."""
    images = Images()
    for options in ({}, {"shuffle": True, "drop_last": True}, {"sampler": RandomSampler(images)}):
        ours = Loader(images, 4, threads=2, **options)
        theirs = DataLoader(images, 4, num_workers=2, **options)
        wrapped = DevicePrefetcher(ours, "cpu")

        for name in READ:
            value, wanted = getattr(ours, name), getattr(theirs, name)
            if name in ("sampler", "batch_sampler"):
                assert len(value) == len(wanted) or options.get("drop_last")
                assert isinstance(value, type(wanted))
                assert type(getattr(wrapped, name)) is type(value)
            else:
                assert value == wanted, name
                assert getattr(wrapped, name) == value
    with pytest.raises(AttributeError, match="shuffle"):
        _ = wrapped.shuffle
    assert not hasattr(DevicePrefetcher([1, 2], "cpu"), "sampler")


# Samplers of the caller's
