"""`DevicePrefetcher`, what it passes on: the loader's state, epochs, batches on the CPU."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from prefetching import Numbers, eventually, threaded, threads, values  # noqa: E402 - needs torch

from fastdecode.torch._transfer import _dense  # noqa: E402
from fastdecode.torch.prefetcher import DevicePrefetcher  # noqa: E402


@pytest.fixture(autouse=True)
def no_thread_is_left() -> Iterator[None]:
    """After each test the threads are gone."""
    yield
    gc.collect()
    eventually(lambda: threads() == 0)


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


def test_the_loaders_batch_is_not_changed() -> None:
    """What is copied elsewhere leaves the loader's own containers as they were."""
    batch = {"image": torch.ones(2)}

    (moved,) = DevicePrefetcher([batch], "meta")

    assert moved["image"].device.type == "meta"
    assert batch["image"].device.type == "cpu"


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


@pytest.mark.parametrize("depth", [0, -1, 1.5, True, "2", None])
def test_a_wrong_depth_is_refused(depth: Any) -> None:
    """At least one batch is ahead."""
    with pytest.raises(ValueError, match="depth"):
        DevicePrefetcher([], "cpu", depth=depth)


@pytest.mark.parametrize("device", [True, None, 1.0])
def test_a_device_of_a_wrong_type_is_refused(device: Any) -> None:
    """A device is a name, a number or a torch.device."""
    with pytest.raises(TypeError, match="device"):
        DevicePrefetcher([], device)


@pytest.mark.parametrize("device", ["cuda:99", 99, torch.device("cuda", 99)])
def test_a_cuda_device_that_is_not_there_is_refused(device: Any) -> None:
    """The error comes at construction and says what is missing."""
    with pytest.raises(RuntimeError, match=r"'cuda:99' cannot be used: .*(CUDA|driver)"):
        DevicePrefetcher([], device)


@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has a CUDA device")
def test_without_cuda_the_error_says_so() -> None:
    """PyTorch without CUDA, or without a device, is named as the reason."""
    with pytest.raises(RuntimeError, match=r"built without CUDA|no CUDA device"):
        DevicePrefetcher([], "cuda")


@pytest.mark.skipif(torch.backends.mps.is_available(), reason="this machine has such a device")
def test_another_device_that_is_not_there_is_refused() -> None:
    """Any device is tried at construction."""
    with pytest.raises(RuntimeError, match="'mps' cannot be used: "):
        DevicePrefetcher([], "mps")
