"""`DevicePrefetcher` on a GPU: streams, memory and their order, and what arrives.

`torch.cuda._sleep` makes a stream late, so that whoever fails to wait for it is found out.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from gpus import LATE, NEEDS_CUDA, consumer  # noqa: F401 - a fixture
from loading import wait_until
from same import assert_same

from fastdecode.torch.prefetcher import DevicePrefetcher

pytestmark = NEEDS_CUDA
SIDE = 1 << 20
"""Elements of a batch: 4 MB, so that the allocator gives each a block of its own."""
BYTES = 4 * SIDE


class Numbers:
    """A loader whose batch i is filled with i."""

    def __init__(self, count: int, *, pinned: bool = True) -> None:
        self.count = count
        self.pinned = pinned
        self.drawn = 0

    def __iter__(self) -> Iterator[Any]:
        for index in range(self.count):
            batch = torch.full((SIDE,), float(index))
            self.drawn += 1
            yield batch.pin_memory() if self.pinned else batch


def late_copies(prefetcher: DevicePrefetcher, batches: Iterator[Any]) -> Iterator[Any]:
    """Iterate while the copy stream is always late."""
    for batch in batches:
        with torch.cuda.stream(prefetcher._transfer._side):
            torch.cuda._sleep(LATE)
        yield batch


def extremes(batch: Any) -> Any:
    """Return the least and the largest value, still on the device."""
    return torch.stack([batch.min(), batch.max()])


def expected(count: int) -> list[list[float]]:
    return [[float(i), float(i)] for i in range(count)]


class Arena(Numbers):
    """Reuses its own pinned memory once that is free."""

    def __iter__(self) -> Iterator[Any]:
        for index in range(self.count):
            memory = torch.full((SIDE,), float(index)).pin_memory()
            # Not from the allocator's point of view: the memory lives, the batch is a view.
            batch = memory.view(-1)
            weakref.finalize(batch, memory.fill_, -1.0)
            yield batch
            del batch


class OnDevice(Numbers):
    """Makes batches by kernels that are late on its thread's stream."""

    def __iter__(self) -> Iterator[Any]:
        for index in range(self.count):
            torch.cuda._sleep(LATE)
            yield torch.full((SIDE,), float(index), device="cuda")


class Nested(Numbers):
    """Has views and tensors deep in containers."""

    def __iter__(self) -> Iterator[Any]:
        for batch in super().__iter__():
            yield {"a": [batch, (batch[1:],)], "b": batch.view(2, -1).t()}


def parts(batch: Any) -> list[Any]:
    return [batch["a"][0], batch["a"][1][0], batch["b"]] if isinstance(batch, dict) else [batch]


@pytest.mark.usefixtures("consumer")
@pytest.mark.parametrize("depth", [1, 2, 4])
@pytest.mark.parametrize("late", ["copies", "kernels", "both"])
@pytest.mark.parametrize(
    "loader",
    [Numbers(12), Numbers(12, pinned=False), Arena(12), OnDevice(12), Nested(12)],
    ids=["pinned", "not pinned", "arena", "on the device", "nested"],
)
def test_values_are_right_however_late_the_device_is(loader: Any, late: str, depth: int) -> None:
    """Neither is a batch read before it is copied, nor its memory written while a kernel reads."""
    prefetcher = DevicePrefetcher(loader, "cuda", depth=depth)
    batches = iter(prefetcher)
    found = []
    for batch in batches if late == "kernels" else late_copies(prefetcher, batches):
        if late != "copies":
            torch.cuda._sleep(LATE)
        found.append(torch.stack([extremes(part) for part in parts(batch)]))
        del batch

    assert torch.stack(found)[:, 0].tolist() == expected(12)
    for one in found:
        assert_same(one, one[:1].expand_as(one))


def _peak(prefetcher: DevicePrefetcher) -> int:
    """Return the peak device memory of an epoch with a consumer that runs ahead."""
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    for batch in prefetcher:
        torch.cuda._sleep(LATE)
        batch.add_(1)
    torch.cuda.synchronize()
    return int(torch.cuda.max_memory_allocated() - before)


@pytest.mark.parametrize("depth", [1, 3])
def test_memory_is_bounded(depth: int) -> None:
    """The peak is `depth` batches and the one in use, however late the device is."""
    prefetcher = DevicePrefetcher(Numbers(20), "cuda", depth=depth)

    # Blocks of the allocator may be a little larger than what was asked for.
    assert _peak(prefetcher) <= (depth + 1.5) * BYTES
    assert _peak(prefetcher) <= (depth + 1.5) * BYTES


def test_what_is_not_pinned_gets_pinned() -> None:
    """Copies use pinned memory; pinned batches are not copied on the host."""
    transfer = DevicePrefetcher([], "cuda")._transfer
    plain, pinned = torch.ones(5), torch.ones(5).pin_memory()

    staged = transfer.stage({"plain": plain, "pinned": pinned}).batch

    assert staged["plain"].is_pinned()
    assert staged["pinned"] is pinned
    assert not plain.is_pinned()


def test_the_thread_uses_the_device_that_was_asked_for() -> None:
    """In the thread the current device is the prefetcher's, not cuda:0."""
    seen = []

    class Asks:
        def __iter__(self) -> Iterator[Any]:
            seen.append(torch.cuda.current_device())
            yield torch.ones(1)

    last = torch.cuda.device_count() - 1
    (batch,) = DevicePrefetcher(Asks(), last)

    assert seen == [last]
    assert batch.device == torch.device("cuda", last)


def test_what_is_given_up_writes_nowhere_later() -> None:
    """After `break`, running copies end before their memory is reused."""
    loader = Numbers(20)
    prefetcher = DevicePrefetcher(loader, "cuda", depth=4)
    batches = iter(prefetcher)
    next(batches)
    with torch.cuda.stream(prefetcher._transfer._side):
        torch.cuda._sleep(10 * LATE)
    wait_until(lambda: loader.drawn == 5)
    next(batches)  # which begins all copies, and none can have ended

    del batches
    mine = [torch.full((SIDE,), 7.0, device="cuda") for _ in range(8)]
    torch.cuda.synchronize()

    assert torch.stack([extremes(one) for one in mine]).tolist() == [[7, 7]] * 8


@pytest.mark.usefixtures("consumer")
def test_work_on_a_batch_is_in_the_order_of_the_consumers_stream() -> None:
    """Constants that were made on the consumer's stream just before are ready."""
    torch.cuda._sleep(LATE)
    mean = torch.full((1,), 2.0, device="cuda")
    found = [extremes(batch - mean) for batch in DevicePrefetcher(Numbers(5), "cuda")]

    assert torch.stack(found).tolist() == [[i - 2, i - 2] for i in range(5)]


# ---- what arrives ----


@pytest.mark.parametrize(
    "make",
    [
        lambda t: t.to_sparse(),
        lambda t: t.requires_grad_(),
        lambda t: t.to(memory_format=torch.channels_last),
        lambda t: t[:, :, ::2],
        lambda t: t.expand(2, -1, -1, -1),
        lambda t: t[:0],
    ],
)
def test_tensors_of_every_kind_arrive(make: Callable[[Any], Any]) -> None:
    """Sparse, strided, expanded and empty tensors keep their values and layout."""
    tensor = make(torch.arange(3 * 4 * 4, dtype=torch.float32).view(1, 3, 4, 4))

    (moved,) = DevicePrefetcher([tensor], "cuda")

    assert moved.device.type == "cuda"
    assert moved.layout == tensor.layout
    assert_same(moved.cpu().to_dense(), tensor.to_dense())


def test_a_batch_from_a_block_without_gradients_may_be_used_after_it() -> None:
    """A batch that was copied in inference mode is not an inference tensor."""
    batches = iter(DevicePrefetcher([torch.ones(5)] * 4, "cuda"))
    with torch.inference_mode():
        next(batches)
    weight = torch.ones(1, device="cuda", requires_grad=True)

    (next(batches) * weight).sum().backward()

    assert weight.grad.item() == 5
