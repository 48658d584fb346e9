"""`DevicePrefetcher` on any device: order, errors, threads, states, and how epochs end.

What needs a GPU is in `test_prefetcher_gpu.py`.
"""

from __future__ import annotations

import contextlib
import dataclasses
import gc
import threading
import time
from collections import OrderedDict, defaultdict, deque
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import pytest
import torch
from loading import Plain, threaded, wait_until
from loading import SeededLoader as Loader
from torch.utils import _pytree
from torch.utils.data import DataLoader, Dataset

from fastdecode.torch import prefetcher
from fastdecode.torch._loader.transfer import Transfer
from fastdecode.torch.prefetcher import DevicePrefetcher

THREAD = "fastdecode-prefetch"


class Numbers:
    """A loader that records how it is used."""

    def __init__(self, count: int, fail_at: int = -1) -> None:
        self.count = count
        self.fail_at = fail_at
        self.begun_in: list[int] = []
        self.drawn_in: list[int] = []
        self.finished = 0

    def __len__(self) -> int:
        return self.count

    def __iter__(self) -> Iterator[Any]:
        self.begun_in.append(threading.get_ident())
        return self._batches()

    def _batches(self) -> Iterator[Any]:
        try:
            for index in range(self.count):
                if index == self.fail_at:
                    raise KeyError("the dataset's own")
                self.drawn_in.append(threading.get_ident())
                yield torch.full((2,), float(index))
        finally:
            self.finished += 1


MAKES = pytest.mark.parametrize("make", [threaded, lambda loader: DevicePrefetcher(loader, "cpu")])


def values(batches: Any) -> list[float]:
    return [batch[0].item() for batch in batches]


def threads() -> int:
    return sum(thread.name == THREAD for thread in threading.enumerate())


@pytest.fixture(autouse=True)
def no_thread_is_left() -> Iterator[None]:
    """Check after each test that no thread is left."""
    yield
    wait_until(lambda: threads() == 0)


class Failing(Transfer):
    def stage(self, batch: Any) -> Any:
        if batch == 5:
            raise TypeError("an int")
        return batch


# ---- what is moved ----


class Pair(NamedTuple):
    image: Any
    label: Any


@dataclasses.dataclass
class Sample:
    """A class of the caller's, which is registered below."""

    image: Any
    name: str = ""


_pytree.register_pytree_node(
    Sample, lambda one: ([one.image], one.name), lambda children, name: Sample(*children, name)
)


class Boxes:
    """A user's batch type that moves itself, or a new one."""

    def __init__(self, xyxy: Any, in_place: bool = False) -> None:
        self.xyxy, self.in_place = xyxy, in_place

    def to(self, device: Any) -> Boxes | None:
        if not self.in_place:
            return Boxes(self.xyxy.to(device))
        self.xyxy = self.xyxy.to(device)
        return None


ONE = torch.ones(2)
CONTAINERS: dict[str, tuple[Any, Callable[[Any], Any]]] = {
    "tensor": (ONE, lambda d: d),
    "dict": ({"a": ONE}, lambda d: d["a"]),
    "ordered": (OrderedDict(a=ONE), lambda d: d["a"]),
    "defaultdict": (defaultdict(list, a=ONE), lambda d: d["a"] if d["new"] == [] else None),
    "list": ([ONE], lambda d: d[0]),
    "deque": (deque([ONE]), lambda d: d[0]),
    "tuple": ((ONE,), lambda d: d[0]),
    "named tuple": (Pair(ONE, 5), lambda d: d.image if d.label == 5 else None),
    "registered": (Sample(ONE, "x"), lambda d: d.image if d.name == "x" else None),
    "nested": ({"a": [(Pair(Sample(ONE), 1),)]}, lambda d: d["a"][0][0].image.image),
    "moves itself": (Boxes(ONE), lambda d: d.xyxy),
    "torch's result": (torch.return_types.max((ONE, ONE)), lambda d: d.values),
}


@pytest.mark.parametrize("name", CONTAINERS)
def test_every_tensor_of_a_batch_is_moved(name: str) -> None:
    """Tensors at any depth; containers keep their types, and the loader's own are not changed."""
    batch, tensor = CONTAINERS[name]

    (moved,) = DevicePrefetcher([batch], "meta")

    assert type(moved) is type(batch)
    assert tensor(moved).is_meta
    assert tensor(batch) is ONE


def test_what_is_no_tensor_stays_and_what_moves_in_place_is_moved() -> None:
    """Numbers, strings, long ranges, types and objects are those of the loader."""
    others = [3, "text", b"bytes", bytearray(2), None, range(10**12), torch.float32, Boxes, {1, 2}]
    packed = torch.nn.utils.rnn.pack_sequence([torch.ones(3), torch.ones(2)])
    boxes = Boxes(ONE, in_place=True)

    ((found, same, whole),) = DevicePrefetcher([(others, boxes, packed)], "meta")

    assert [one is other for one, other in zip(found, others, strict=True)] == [True] * 9
    assert same is boxes
    assert boxes.xyxy.is_meta
    assert type(whole) is type(packed)  # which is also a named tuple
    assert (whole.data.device.type, whole.batch_sizes.device.type) == ("meta", "cpu")


@pytest.mark.parametrize("depth", [1, 2, 5])
@pytest.mark.parametrize("count", [0, 1, 2, 3, 7])
def test_each_batch_comes_once_and_in_order(count: int, depth: int) -> None:
    """The last batch is returned once, and then the iterator has ended."""
    batches = iter(threaded(Numbers(count), depth))

    assert values(batches) == list(range(count))
    assert next(batches, "end") == "end"


def test_batches_are_made_in_one_other_thread() -> None:
    """The consumer begins the epoch, so that worker processes start in its thread."""
    loader = Numbers(5)

    list(threaded(loader))

    assert loader.begun_in == [threading.get_ident()]
    assert len({*loader.drawn_in} - {threading.get_ident()}) == 1


class Damaged(Dataset):
    """Four numbers, of which the second cannot be had."""

    def __len__(self) -> int:
        return 4

    def __getitem__(self, index: int) -> Any:
        if index == 1:
            raise ValueError("damaged")
        return torch.tensor(float(index))


class Unmovable:
    def to(self, device: Any) -> None:
        raise MemoryError("no room")


@pytest.mark.parametrize(
    ("batches", "error"),
    [
        (threaded(DataLoader(Damaged())), ValueError),
        (
            DevicePrefetcher(
                [torch.ones(1) * 0, Unmovable(), *map(torch.tensor, ([2], [3]))], "meta"
            ),
            MemoryError,
        ),
    ],
    ids=["of the loader", "of the copy"],
)
def test_batches_after_an_error_still_come(batches: Any, error: type[Exception]) -> None:
    """An error of the loader or of a copy affects its own batch alone."""
    iterator = iter(batches)

    assert next(iterator).shape == (1,)
    with pytest.raises(error):
        next(iterator)
    assert [batch.shape for batch in iterator] == [(1,), (1,)]


def test_an_error_of_the_thread_itself_reaches_the_consumer() -> None:
    """A device that fails in the thread is an error, not a hang."""

    class Broken(Transfer):
        def enter_thread(self) -> None:
            raise RuntimeError("no such device")

    with pytest.raises(RuntimeError, match="no such device"):
        next(iter(threaded(Numbers(3), transfer=Broken(torch.device("cpu")))))


def test_an_error_does_not_keep_the_iterator_alive() -> None:
    """The exception and the iterator do not refer to each other, so no thread stays."""
    gc.disable()
    try:
        batches = iter(
            threaded(
                [torch.ones(1), 5, *Numbers(50)], depth=1, transfer=Failing(torch.device("cpu"))
            )
        )
        next(batches)
        with contextlib.suppress(TypeError):  # pytest.raises would hold the error itself
            next(batches)
        del batches
        wait_until(lambda: threads() == 0)
    finally:
        gc.enable()


# ---- how epochs begin and end ----


@pytest.mark.parametrize("in_a_cycle", [False, True])
def test_an_iterator_that_is_dropped_ends_its_thread(in_a_cycle: bool) -> None:
    """The thread ends with the iterator, also with one that only the collector finds."""
    loader = Numbers(1000)
    batches = iter(threaded(loader))
    next(batches)
    cycle: list[Any] = [batches] if in_a_cycle else []
    cycle.append(cycle)
    del batches, cycle
    if in_a_cycle:
        gc.collect()

    wait_until(lambda: threads() == 0)
    assert loader.finished == 1
    assert len(loader.drawn_in) <= 3


class Stuck:
    """A loader that gives one batch, and then blocks until it is released."""

    def __init__(self) -> None:
        self.go_on = threading.Event()

    def __iter__(self) -> Iterator[Any]:
        yield torch.ones(2)
        self.go_on.wait()
        yield torch.ones(2)


def test_close_wakes_a_consumer_that_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """It gets an error; a loader that hangs is left behind with a warning, and ends later."""
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
    with pytest.warns(RuntimeWarning):
        batches.close()
    consumer.join(30)
    loader.go_on.set()

    assert errors
    assert "close()" in errors[0]
    wait_until(lambda: threads() == 0)


def test_a_new_iterator_ends_the_one_before() -> None:
    """A second iterator starts from the beginning, and the first raises an error."""
    batches = threaded(Numbers(4))
    first = iter(batches)
    next(first)

    second = iter(batches)

    with pytest.raises(RuntimeError):
        next(first)
    assert values(second) == [0, 1, 2, 3]
    assert next(second, "end") == "end"


@pytest.mark.parametrize("depth", [1, 2, 4])
def test_no_more_than_depth_batches_are_made_ahead(depth: int) -> None:
    """A slow consumer finds `depth` batches ahead, not the whole epoch."""
    loader = Numbers(500)
    batches = iter(threaded(loader, depth))

    for handed in range(1, 4):
        next(batches)
        wait_until(lambda handed=handed: len(loader.drawn_in) >= handed + depth)
        time.sleep(0.02)  # for the thread to go too far, if it would

        assert len(loader.drawn_in) == handed + depth


# ---- states, epochs, wrong arguments ----


class Resumable:
    """A loader whose state is an object that it goes on changing."""

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


@MAKES
@pytest.mark.parametrize("handed", range(7))
def test_the_state_is_that_of_the_batch_last_handed_out(make, handed: int) -> None:
    """Resuming gives exactly the remaining batches, although the loader was ahead."""
    loader = Resumable()
    batches = make(loader)
    epoch = iter(batches)
    before = [next(epoch).item() for _ in range(handed)]
    if make is threaded:
        wait_until(lambda: loader.state["position"] == min(6, handed + 2))

    state = dict(batches.state_dict())
    resumed = make(Resumable())
    resumed.load_state_dict(state)

    assert state["position"] == handed
    assert before + values(resumed) == list(range(6))


@MAKES
def test_the_state_after_an_epoch_or_a_break(make) -> None:
    """At the end nothing is ahead; after `break` and `close` the last batch counts."""
    batches = make(Resumable())
    for epoch in range(2):
        assert values(batches) == list(range(6))
        assert batches.state_dict() == {"position": 6, "epoch": epoch}
    for batch in batches:
        if batch.item() == 2:
            break
    batches.close()

    assert batches.state_dict()["position"] == 3


@MAKES
def test_the_state_after_an_epoch_of_a_loader_is_the_beginning_of_the_next(make) -> None:
    """That is where the loader itself goes on, and where a resumed one does."""
    with Loader(Plain(int), 4, True, threads=0) as loader, Loader(Plain(int), 4, True) as other:
        batches, resumed = make(loader), make(other)
        for epoch in range(3):
            before = [batch.tolist() for batch in batches]
            state = batches.state_dict()
            assert (state["epoch"], state["batch"]) == (epoch + 1, 0)
            resumed.load_state_dict(state)
        loader.set_epoch(2)
        assert [batch.tolist() for batch in batches] == before
        assert [batch.tolist() for batch in resumed] == [batch.tolist() for batch in batches]


def test_a_state_is_loaded_when_the_thread_has_left_the_loader() -> None:
    """A loader that is making a batch would go on from its old state, or lose the new one.

    The thread no longer uses the loader, and the old iterator says so.
    """
    busy, go_on, loaded = threading.Event(), threading.Event(), []

    class Slow(Resumable):
        def _batches(self) -> Iterator[Any]:
            for batch in super()._batches():
                if batch.item() == 1:
                    busy.set()
                    go_on.wait(30)
                    busy.clear()
                yield batch

        def load_state_dict(self, state: dict[str, int]) -> None:
            loaded.append(busy.is_set())
            super().load_state_dict(state)

    batches = threaded(Slow())
    epoch = iter(batches)
    next(epoch)
    assert busy.wait(30)
    timer = threading.Timer(0.2, go_on.set)
    timer.start()
    batches.load_state_dict({"position": 4, "epoch": 0})
    timer.join()

    assert loaded == [False]
    assert threads() == 0
    assert batches.state_dict()["position"] == 4
    with pytest.raises(RuntimeError):
        next(epoch)
    assert values(batches) == [4, 5]


class Epochs:
    epoch = 0

    def set_epoch(self, epoch: int) -> None:
        self.epoch = epoch


def test_the_epoch_goes_to_the_loader_or_its_sampler() -> None:
    """`set_epoch` reaches the loader, or the sampler of a loader without one."""
    own, sampled, neither = Epochs(), Numbers(1), Numbers(1)
    sampled.sampler = Epochs()

    DevicePrefetcher(own, "cpu").set_epoch(3)
    DevicePrefetcher(sampled, "cpu").set_epoch(4)

    assert (own.epoch, sampled.sampler.epoch) == (3, 4)
    with pytest.raises(AttributeError):
        DevicePrefetcher(neither, "cpu").set_epoch(5)


def test_on_the_cpu_batches_pass_through() -> None:
    """On the CPU, batches are the loader's own objects, made when they are requested."""
    batches = [torch.ones(2), {"a": torch.ones(1)}, "text"]
    loader = Numbers(5)

    for found, batch in zip(DevicePrefetcher(batches, "cpu"), batches, strict=True):
        assert found is batch
    epoch = iter(DevicePrefetcher(loader, torch.device("cpu")))
    next(epoch)

    assert len(loader.drawn_in) == 1
    assert threads() == 0


# ---- processes ----
