"""`DevicePrefetcher`: the known bugs of this pattern that show without a GPU.

Of the 25, the numbers 1, 2, 3, 5, 6, 7, 8 and 21 need one (`test_torch_prefetcher_gpu.py`). Number
22, a thread that competes for the interpreter, cannot be shown without timing.
"""

from __future__ import annotations

import contextlib
import gc
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest
import torch
from prefetching import (  # noqa: F401
    Closable,
    Numbers,
    Watched,
    eventually,
    no_thread_is_left,
    threaded,
    threads,
    values,
)
from torch.utils.data import DataLoader, Dataset, IterableDataset

from fastdecode.torch import prefetcher
from fastdecode.torch.prefetcher import DevicePrefetcher


class Failing(Watched):
    def stage(self, batch: Any) -> Any:
        if batch == 5:
            raise TypeError("an int")
        return batch


class Pair(NamedTuple):
    images: Any
    labels: Any


def test_every_tensor_of_a_nested_batch_is_moved() -> None:
    """Bugs 4 and 9: tensors at any depth are moved, and what is handed out is what was moved.

    Containers keep their types, and the loader's own are left as they were.
    """
    images = torch.ones(2)
    batch = {"pairs": [Pair(images, (torch.ones(3)[1:], "name"))], "n": 5}

    (moved,) = DevicePrefetcher([batch], "meta")

    assert type(moved["pairs"][0]) is Pair
    assert moved["pairs"][0].images.device.type == "meta"
    assert moved["pairs"][0].labels[0].device.type == "meta"
    assert (moved["pairs"][0].labels[1], moved["n"]) == ("name", 5)
    assert batch["pairs"][0].images is images
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


def test_each_step_runs_in_its_thread() -> None:
    """Bugs 13, 14, 23 and 24: batches are made and staged in one other thread, prepared for that.

    The device is made current in that thread, which does not inherit it. The consumer begins the
    epoch, so that worker processes start there, and orders its own work after the copy.
    """
    transfer = Watched()
    loader = Numbers(5)

    list(threaded(loader, transfer=transfer))

    mine, others = {threading.get_ident()}, set(loader.drawn_in)
    assert len(others) == 1
    assert transfer.ran["enter_thread"] == transfer.ran["stage"] == others != mine
    assert transfer.ran["start"] == transfer.ran["finish"] == mine
    assert loader.begun_in == list(mine)


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


# ---- how epochs begin and end ----


def test_leaving_the_loop_early_ends_the_thread() -> None:
    """Bug 16: `break` is enough; the loader's own iterator is closed too."""
    loader = Numbers(1000)
    batches = threaded(loader)

    for _ in batches:
        break

    eventually(lambda: threads() == 0)
    assert loader.finished == 1
    assert len(loader.drawn_in) <= 3


def test_an_iterator_that_becomes_garbage_ends_its_thread() -> None:
    """Bug 16: an iterator in a cycle of references ends its thread when it is collected."""
    batches = iter(threaded(Numbers(1000)))
    next(batches)
    cycle: list[Any] = [batches]
    cycle.append(cycle)
    del batches, cycle

    gc.collect()

    eventually(lambda: threads() == 0)


def test_close_ends_the_epoch_and_its_thread() -> None:
    """Bug 16: after `close`, or the `with` block, no thread runs and the iterator says so."""
    with threaded(Numbers(1000)) as batches:
        epoch = iter(batches)
        next(epoch)

    assert threads() == 0
    with pytest.raises(RuntimeError, match=r"close\(\)"):
        next(epoch)
    batches.close()
    assert len(list(batches)) == 1000


class Closables:
    def __init__(self) -> None:
        self.batches = Closable()

    def __iter__(self) -> Closable:
        return self.batches


def test_an_iterator_of_the_loader_is_closed_by_the_thread() -> None:
    """Bug 16: what the loader holds for an epoch is released, not while a batch is being made."""
    loader = Closables()
    batches = iter(threaded(loader))
    next(batches)
    del batches

    eventually(lambda: len(loader.batches.closed_in) == 1)
    assert loader.batches.closed_in != [threading.get_ident()]


def test_a_loader_that_is_its_own_iterator_is_not_closed() -> None:
    """Leaving the loop ends an epoch, not the loader."""
    loader = Closable()
    with threaded(loader) as batches:
        next(iter(batches))

    assert loader.closed_in == []


class Stuck:
    """Gives one batch, then none until it is told to go on."""

    def __init__(self) -> None:
        self.go_on = threading.Event()

    def __iter__(self) -> Iterator[Any]:
        yield torch.ones(2)
        self.go_on.wait()
        yield torch.ones(2)


def test_close_does_not_wait_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    """Bug 16: a loader that hangs is left behind with a warning, and its thread ends later."""
    monkeypatch.setattr(prefetcher, "_PATIENCE_S", 0.01)
    loader = Stuck()
    batches = threaded(loader)
    epoch = iter(batches)
    next(epoch)

    with pytest.warns(RuntimeWarning, match="still busy"):
        batches.close()
    loader.go_on.set()

    eventually(lambda: threads() == 0)


def test_close_wakes_a_consumer_that_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Bug 16: a consumer in another thread gets an error, although the loader gives nothing."""
    monkeypatch.setattr(prefetcher, "_PATIENCE_S", 0.01)
    loader = Stuck()
    batches = threaded(loader)
    got_one = threading.Event()
    errors = []

    def consume() -> None:
        try:
            for _ in batches:
                got_one.set()
        except RuntimeError as error:
            errors.append(str(error))

    consumer = threading.Thread(target=consume)
    consumer.start()
    assert got_one.wait(30)
    with pytest.warns(RuntimeWarning, match="still busy"):
        batches.close()
    consumer.join(30)
    loader.go_on.set()

    assert errors
    assert "close()" in errors[0]


SCRIPT = """
import time, torch
from fastdecode.torch import prefetcher
from fastdecode.torch.prefetcher import DevicePrefetcher

class Loader:
    def __iter__(self):
        try:
            yield torch.ones(1)
            {then}
            while True:
                yield torch.ones(1)
        finally:
            print("closed", flush=True)

prefetcher._PATIENCE_S = {patience}
batches = iter(DevicePrefetcher(Loader(), "meta"))
next(batches)
{last}
"""


def run(**parts: Any) -> tuple[int, str, str]:
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT.format(**parts)],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    return done.returncode, done.stdout, done.stderr


@pytest.mark.parametrize(("last", "code"), [("", 0), ("raise SystemExit(3)", 3)])
def test_the_interpreter_exits_in_the_middle_of_an_epoch(last: str, code: int) -> None:
    """Bug 16: the thread has ended before the interpreter does, without a word."""
    assert run(then="", patience=60, last=last) == (code, "closed\n", "")


def test_the_interpreter_exits_although_the_loader_hangs() -> None:
    """Bug 16: a thread that is stuck in the loader does not keep the process."""
    assert run(then="time.sleep(1000)", patience=0.1, last="") == (0, "", "")


def test_an_epoch_begins_when_it_is_asked_for() -> None:
    """Bug 17: the loader is not asked for the next epoch when one ends, but by the next `iter`."""
    loader = Numbers(3)
    batches = threaded(loader)

    assert loader.begun_in == []
    for epoch in range(3):
        assert values(batches) == [0, 1, 2]
        assert len(loader.begun_in) == epoch + 1
        assert threads() == 0


def test_a_loader_without_a_length_is_no_problem() -> None:
    """Bug 18: the end is the loader's end, not a count; `len` is the loader's own."""

    class Stream(IterableDataset):
        def __iter__(self) -> Iterator[Any]:
            return iter(range(5))

    batches = threaded(DataLoader(Stream(), batch_size=2))

    assert [batch.tolist() for batch in batches] == [[0, 1], [2, 3], [4]]
    assert len(threaded(Numbers(7))) == 7
    with pytest.raises(TypeError):
        len(batches)


@pytest.mark.parametrize("make", [threaded, lambda loader: DevicePrefetcher(loader, "cpu")])
def test_a_new_iterator_ends_the_one_before(make) -> None:
    """Bug 18: a second iterator starts from the beginning, and the first says that it is over."""
    batches = make(Numbers(4))
    first = iter(batches)
    next(first)

    second = iter(batches)

    with pytest.raises(RuntimeError, match="newer iterator"):
        next(first)
    assert values(second) == [0, 1, 2, 3]
    assert next(second, "end") == "end"


@pytest.mark.parametrize("depth", [1, 2, 4])
def test_no_more_is_drawn_than_was_asked_for(depth: int) -> None:
    """Bug 19: a consumer that is slow finds `depth` batches ahead, not the whole epoch."""
    loader = Numbers(500)
    batches = iter(threaded(loader, depth))

    for handed in range(1, 4):
        next(batches)
        eventually(lambda handed=handed: len(loader.drawn_in) >= handed + depth)
        time.sleep(0.02)  # for the thread to go too far, if it would

        assert len(loader.drawn_in) == handed + depth


@pytest.mark.parametrize("make", [threaded, lambda loader: DevicePrefetcher(loader, "cpu")])
def test_an_empty_loader_gives_nothing(make) -> None:
    """Bug 20: no batch is no error."""
    assert list(make([])) == []
    assert list(make(Numbers(0))) == []


def test_the_thread_does_not_keep_the_process() -> None:
    """Bug 25: it is a daemon, by its constructor: `setDaemon` would be a DeprecationWarning."""
    batches = iter(threaded(Numbers(50)))
    next(batches)

    assert [t.daemon for t in threading.enumerate() if t.name == "fastdecode-prefetch"] == [True]
