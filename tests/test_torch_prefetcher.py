"""`DevicePrefetcher`, what it hands over: the known bugs of this pattern that show without a GPU.

Of the 25, the numbers 1, 2, 3, 5, 6, 7, 8 and 21 need one (`test_torch_prefetcher_gpu.py`). From 16
on they are in `test_torch_prefetcher_end.py`. Number 22, a thread that competes for the
interpreter, cannot be shown without timing.
"""

from __future__ import annotations

import contextlib
import gc
import threading
import traceback
from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest

torch = pytest.importorskip("torch")

from prefetching import (  # noqa: E402 - it needs torch
    Numbers,
    Watched,
    eventually,
    threaded,
    threads,
    values,
)
from torch.utils.data import DataLoader, Dataset  # noqa: E402 - it is torch

from fastdecode.torch.prefetcher import DevicePrefetcher  # noqa: E402


@pytest.fixture(autouse=True)
def no_thread_is_left() -> Iterator[None]:
    """After each test the threads are gone."""
    yield
    gc.collect()
    eventually(lambda: threads() == 0)


class Failing(Watched):
    def stage(self, batch: Any) -> Any:
        if batch == 5:
            raise TypeError("an int")
        return batch


class Pair(NamedTuple):
    images: Any
    labels: Any


def test_every_tensor_of_a_nested_batch_is_moved() -> None:
    """Bug 4: tensors at any depth are moved, and containers keep their types."""
    batch = {"pairs": [Pair(torch.ones(2), (torch.ones(3)[1:], "name"))], "n": 5}

    (moved,) = DevicePrefetcher([batch], "meta")

    assert type(moved["pairs"][0]) is Pair
    assert moved["pairs"][0].images.device.type == "meta"
    assert moved["pairs"][0].labels[0].device.type == "meta"
    assert (moved["pairs"][0].labels[1], moved["n"]) == ("name", 5)


def test_what_is_handed_out_is_what_was_moved() -> None:
    """Bug 9: the result of the copy is used, not the batch of the host."""
    assert [batch.device.type for batch in DevicePrefetcher(Numbers(3), "meta")] == ["meta"] * 3


def test_batches_are_drawn_before_they_are_asked_for() -> None:
    """Bug 10: while the consumer works on a batch, `depth` more are made."""
    loader = Numbers(10)
    batches = iter(threaded(loader, depth=3))

    next(batches)

    eventually(lambda: len(loader.drawn_in) == 4)


@pytest.mark.parametrize("depth", [1, 2, 5])
@pytest.mark.parametrize("count", [1, 2, 3, 7])
def test_each_batch_comes_once_and_in_order(count: int, depth: int) -> None:
    """Bug 11: the last batch is handed out once, and then it is the end, for good."""
    batches = iter(threaded(Numbers(count), depth))

    assert values(batches) == list(range(count))
    assert next(batches, "end") == "end"


def test_a_batch_is_finished_when_it_is_handed_out() -> None:
    """Bug 12: containers hold tensors, not generators that would run later and once."""
    (batch,) = threaded([[torch.ones(2), [torch.ones(3)]]])

    assert type(batch) is list
    assert type(batch[1]) is list
    assert [batch[1][0].sum().item() for _ in range(2)] == [3, 3]


def test_the_thread_is_prepared_before_it_draws() -> None:
    """Bug 13: the device is made current in the thread itself, which does not inherit it."""
    transfer = Watched()
    loader = Numbers(3)

    list(threaded(loader, transfer=transfer))

    assert transfer.ran["enter_thread"] == transfer.ran["stage"] == set(loader.drawn_in)


def test_the_consumer_waits_for_the_copy_in_its_own_thread() -> None:
    """Bug 14: what orders the consumer's work after the copy runs in the consumer's thread."""
    transfer = Watched()

    list(threaded(Numbers(3), transfer=transfer))

    assert transfer.ran["start"] == transfer.ran["finish"] == {threading.get_ident()}


def test_an_error_is_raised_where_its_batch_would_be() -> None:
    """Bug 15: the consumer gets the loader's own exception, after the batches before it."""
    batches = iter(threaded(Numbers(5, fail_at=3), depth=4))

    assert [next(batches)[0].item() for _ in range(3)] == [0, 1, 2]
    with pytest.raises(KeyError, match="the dataset's own") as caught:
        next(batches)
    assert "_batches" in "".join(traceback.format_tb(caught.tb))
    assert next(batches, "end") == "end"


def test_a_loader_that_goes_on_after_an_error_is_gone_on_with() -> None:
    """Bug 15: the batches after a bad one still come, if the loader has them."""

    class Bad(Dataset):
        def __len__(self) -> int:
            return 4

        def __getitem__(self, index: int) -> Any:
            if index == 1:
                raise ValueError("damaged")
            return float(index)

    batches = iter(threaded(DataLoader(Bad())))

    assert next(batches).item() == 0
    with pytest.raises(ValueError, match="damaged"):
        next(batches)
    assert values(batches) == [2, 3]


def test_an_error_of_the_copy_is_raised_where_its_batch_would_be() -> None:
    """Bug 15: a batch that cannot be moved does not take the one before it along."""

    class Unmovable:
        def to(self, device: Any) -> None:
            raise MemoryError("no room")

    batches = iter(DevicePrefetcher([torch.ones(1), Unmovable(), torch.ones(2)], "meta", depth=3))

    assert next(batches).shape == (1,)
    with pytest.raises(MemoryError, match="no room"):
        next(batches)
    assert next(batches).shape == (2,)


def test_an_error_of_the_thread_itself_reaches_the_consumer() -> None:
    """Bug 15: a device that fails in the thread is an error, not a wait for ever."""

    class Broken(Watched):
        def enter_thread(self) -> None:
            raise RuntimeError("no such device")

    with pytest.raises(RuntimeError, match="no such device"):
        next(iter(threaded(Numbers(3), transfer=Broken())))


def test_an_error_does_not_keep_the_iterator_alive() -> None:
    """Bug 15: the exception and the iterator do not hold each other, so no thread stays behind."""
    gc.disable()
    try:
        batches = iter(threaded([torch.ones(1), 5, *Numbers(50)], depth=1, transfer=Failing()))
        next(batches)
        with contextlib.suppress(TypeError):  # pytest.raises would hold the error itself
            next(batches)
        del batches
        eventually(lambda: threads() == 0)
    finally:
        gc.enable()
