"""`DevicePrefetcher`, what it passes on: the loader's state, epochs, processes, wrong arguments."""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from prefetching import (  # noqa: F401
    Numbers,
    eventually,
    no_thread_is_left,
    threaded,
    threads,
    values,
)
from torch.utils.data import DataLoader, Dataset

import fastdecode
from fastdecode.torch._transfer import _dense
from fastdecode.torch.prefetcher import DevicePrefetcher

SAMPLES = sorted((Path(fastdecode.__file__).parent / "samples").glob("*.jpg"))
# Other tests leave threads behind, which Python 3.12 dislikes in a process that forks.
FORKS = pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")


class Resumable:
    """A loader whose state is a live object, as a careless one's may be."""

    def __init__(self, count: int = 6) -> None:
        self.count = count
        self.state = {"position": 0, "epoch": -1}
        self.resumed = False

    def __iter__(self) -> Iterator[Any]:
        if not self.resumed:
            self.state["position"] = 0
            self.state["epoch"] += 1
        self.resumed = False
        return self._batches()

    def _batches(self) -> Iterator[Any]:
        while self.state["position"] < self.count:
            self.state["position"] += 1
            yield torch.full((1,), float(self.state["position"] - 1))

    def state_dict(self) -> dict[str, int]:
        return self.state

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.state = dict(state)
        self.resumed = True


MAKES = pytest.mark.parametrize("make", [threaded, lambda loader: DevicePrefetcher(loader, "cpu")])


@MAKES
@pytest.mark.parametrize("handed", range(7))
def test_the_state_is_that_of_the_batch_last_handed_out(make, handed: int) -> None:
    """Resuming gives exactly the batches that were left, although the loader was ahead."""
    loader = Resumable()
    batches = make(loader)
    epoch = iter(batches)
    before = [next(epoch).item() for _ in range(handed)]
    if make is threaded:
        eventually(lambda: loader.state["position"] == min(6, handed + 2))

    state = dict(batches.state_dict())
    resumed = make(Resumable())
    resumed.load_state_dict(state)

    assert state["position"] == handed
    assert before + values(resumed) == list(range(6))


@MAKES
def test_the_state_after_an_epoch_is_the_loaders(make) -> None:
    """At the end nothing is ahead, and the next epoch is a whole one."""
    batches = make(Resumable())

    assert values(batches) == list(range(6))
    assert batches.state_dict() == {"position": 6, "epoch": 0}
    assert values(batches) == list(range(6))
    assert batches.state_dict() == {"position": 6, "epoch": 1}


@MAKES
def test_the_state_survives_leaving_the_loop(make) -> None:
    """After `break` and `close` the state is still that of the last batch."""
    batches = make(Resumable())
    for batch in batches:
        if batch.item() == 2:
            break
    batches.close()

    assert batches.state_dict()["position"] == 3


@MAKES
def test_loading_a_state_ends_the_epoch_under_way(make) -> None:
    """The thread no longer draws from a loader that was moved; the old iterator says so."""
    batches = make(Resumable())
    epoch = iter(batches)
    next(epoch)

    batches.load_state_dict({"position": 4, "epoch": 0})

    assert threads() == 0
    assert batches.state_dict()["position"] == 4
    with pytest.raises(RuntimeError, match="closed"):
        next(epoch)
    assert values(batches) == [4, 5]


@MAKES
def test_a_loader_without_a_state_has_none(make) -> None:
    """Asking for it is the error that the loader itself would give."""
    batches = make(Numbers(3))
    next(iter(batches))

    with pytest.raises(AttributeError, match="state_dict"):
        batches.state_dict()
    with pytest.raises(AttributeError, match="load_state_dict"):
        batches.load_state_dict({})


class Epochs:
    epoch = 0

    def set_epoch(self, epoch: int) -> None:
        self.epoch = epoch


def test_the_epoch_goes_to_the_loader_or_its_sampler() -> None:
    """`set_epoch` reaches the loader, or the sampler of a loader that has none itself."""
    own, sampled, neither = Epochs(), Numbers(1), Numbers(1)
    sampled.sampler = Epochs()

    DevicePrefetcher(own, "cpu").set_epoch(3)
    DevicePrefetcher(sampled, "cpu").set_epoch(4)

    assert (own.epoch, sampled.sampler.epoch) == (3, 4)
    with pytest.raises(AttributeError):
        DevicePrefetcher(neither, "cpu").set_epoch(5)


def test_on_the_cpu_batches_pass_through() -> None:
    """They are the loader's own objects, made in the calling thread when they are asked for."""
    batches = [torch.ones(2), {"a": torch.ones(1)}, "text"]
    loader = Numbers(5)

    assert all(a is b for a, b in zip(DevicePrefetcher(batches, "cpu"), batches, strict=True))
    epoch = iter(DevicePrefetcher(loader, torch.device("cpu")))
    next(epoch)

    assert len(loader.drawn_in) == 1
    assert threads() == 0


@pytest.mark.parametrize(
    ("make", "same"),
    [
        (lambda t: t, True),
        (lambda t: t.to(memory_format=torch.channels_last), True),
        (lambda t: t.transpose(1, 2), True),
        (lambda t: t[:, :, ::2], False),
        (lambda t: t[:1].expand(2, -1, -1, -1), False),
    ],
)
def test_only_tensors_with_gaps_are_copied_before_they_are_pinned(make, same: bool) -> None:
    """A slice or an expanded tensor is written out; any order of dense memory stays as it is."""
    tensor = make(torch.rand(2, 3, 4, 5))

    dense = _dense(tensor)

    assert (dense is tensor) is same
    assert torch.equal(dense, tensor)
    assert dense.untyped_storage().nbytes() == 4 * dense.numel()


NO_CUDA = r"'cuda:99' cannot be used: .*(CUDA|driver)"
HERE = torch.cuda.is_available(), torch.backends.mps.is_available()


@pytest.mark.parametrize("depth", [0, -1, 1.5, True, "2", None])
def test_a_wrong_depth_is_refused(depth: Any) -> None:
    """At least one batch is ahead."""
    with pytest.raises(ValueError, match="depth"):
        DevicePrefetcher([], "cpu", depth=depth)


@pytest.mark.parametrize(
    ("device", "error", "words", "is_here"),
    [
        *[(device, TypeError, "device", False) for device in (True, None, 1.0)],
        *[
            (device, RuntimeError, NO_CUDA, False)
            for device in ("cuda:99", 99, torch.device("cuda", 99))
        ],
        ("cuda", RuntimeError, "built without CUDA|no CUDA device", HERE[0]),
        ("mps", RuntimeError, "'mps' cannot be used: ", HERE[1]),
    ],
    ids=str,
)
def test_a_device_that_cannot_be_used_is_refused(
    device: Any, error: type[Exception], words: str, is_here: bool
) -> None:
    """What is no device, or is not there, is an error at construction that says what is missing."""
    if is_here:
        pytest.skip("this machine has such a device")
    with pytest.raises(error, match=words):
        DevicePrefetcher([], device)


# ---- processes ----


class Photos(Dataset):
    """The sample photos, decoded small."""

    def __len__(self) -> int:
        return len(SAMPLES)

    def __getitem__(self, index: int) -> Any:
        image = fastdecode.decode_file(SAMPLES[index], 8, region=(0, 0, 64, 64))
        return torch.from_numpy(image), index


@FORKS
@pytest.mark.parametrize(
    "options", [{}, {"num_workers": 2}, {"num_workers": 1, "persistent_workers": True}]
)
def test_torchs_loader_gives_the_same_batches(options: dict[str, Any]) -> None:
    """A DataLoader of photos gives through the prefetcher what it gives alone, epoch for epoch."""
    loader = DataLoader(Photos(), batch_size=2, **options)
    batches = threaded(loader)

    for _ in range(2):
        for (images, indices), (expected, numbers) in zip(
            batches, DataLoader(Photos(), 2), strict=True
        ):
            assert torch.equal(images, expected)
            assert torch.equal(indices, numbers)


@FORKS
def test_torchs_loader_can_be_left_early() -> None:
    """Leaving an epoch of a DataLoader with lasting workers leaves the next one whole."""
    loader = DataLoader(Photos(), num_workers=1, persistent_workers=True)
    batches = threaded(loader)

    next(iter(batches))

    assert [index.item() for _, index in batches] == list(range(len(SAMPLES)))


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@FORKS
def test_an_iterator_is_of_no_use_in_a_forked_process() -> None:
    """A child of a fork has no thread; asking its copy is an error, not a wait for ever."""
    batches = iter(threaded(Numbers(50)))
    next(batches)

    def child() -> None:
        with pytest.raises(RuntimeError, match="forked"):
            next(batches)

    process = multiprocessing.get_context("fork").Process(target=child)
    process.start()
    process.join(60)

    assert process.exitcode == 0
    assert next(batches)[0] == 1
