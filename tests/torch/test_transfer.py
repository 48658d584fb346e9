"""In which order a batch gets onto a GPU: by doubles of streams, which write down every request.

The tensors of the device are on torch's "meta", which has shapes and no memory.
"""

from __future__ import annotations

import collections
import dataclasses
import threading
import types
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest
import torch
from loading import PROCESS_WARNINGS, Plain
from loading import SeededLoader as Loader

from fastdecode.torch import _transfer, prefetcher
from fastdecode.torch._transfer import _dense, map_leaves, move

pytestmark = pytest.mark.filterwarnings(*PROCESS_WARNINGS)


class Stream:
    """A double of a CUDA stream."""

    def __init__(self, machine: Machine, name: str) -> None:
        self.machine = machine
        self.name = name

    def wait_stream(self, other: Stream) -> None:
        self.machine.log.append((self.name, "waits for stream", other.name))

    def wait_event(self, event: Event) -> None:
        self.machine.log.append((self.name, "waits for event", event.number))


class Event:
    """A double of a CUDA event, which completes when it is waited for, or on demand."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self.number = len(machine.events)
        self.done = False
        machine.events.append(self)

    def record(self, stream: Stream) -> None:
        self.machine.log.append((stream.name, "records event", self.number))

    def query(self) -> bool:
        return self.done

    def synchronize(self) -> None:
        self.machine.log.append(("host", "waits for event", self.number))
        self.done = True


class Machine:
    """A double of torch.cuda that records the calls."""

    def __init__(self) -> None:
        self.log: list[tuple[Any, ...]] = []
        self.events: list[Event] = []
        self.consumer = self.current = Stream(self, "consumer")

    def parts(self) -> SimpleNamespace:
        return SimpleNamespace(
            Stream=lambda _device: Stream(self, "side"),
            Event=lambda: Event(self),
            current_stream=lambda _device=None: self.current,
            stream=self.entered,
            set_device=lambda _device: None,
        )

    @contextmanager
    def entered(self, stream: Stream) -> Iterator[None]:
        before, self.current = self.current, stream
        yield
        self.current = before


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Machine:
    machine = Machine()
    for name, part in vars(machine.parts()).items():
        monkeypatch.setattr(torch.cuda, name, part)
    monkeypatch.setattr(torch.Tensor, "pin_memory", torch.Tensor.clone)
    monkeypatch.setattr(
        prefetcher,
        "transfer_to",
        lambda device, depth: _transfer.CudaTransfer(device, 2 * depth),
    )

    def copied(target: Any, source: Any, *, non_blocking: bool) -> Any:
        machine.log.append((machine.current.name, "copies", source.flatten()[0].item()))
        assert non_blocking
        assert target.is_meta
        return target

    monkeypatch.setattr(torch.Tensor, "copy_", copied)
    return machine


def test_pin_memory_pins_in_the_background(monkeypatch: pytest.MonkeyPatch) -> None:
    """With a CUDA device, batches that stay on the host are pinned in the background."""
    threads = []

    def pinned(tensor: Any) -> Any:
        threads.append(threading.current_thread())
        return tensor.clone()

    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    monkeypatch.setattr(torch.cuda, "set_device", lambda _device: None)
    monkeypatch.setattr(torch.Tensor, "pin_memory", pinned)
    for workers in (0, 1):
        with Loader(Plain(torch.tensor, 6), 2, num_workers=workers, pin_memory=True) as loader:
            assert [batch.tolist() for batch in loader] == [[0, 1], [2, 3], [4, 5]]
        assert len(threads) == 3
        assert threading.main_thread() not in threads
        threads.clear()


def batches(count: int) -> list[Any]:
    return [torch.full((2, 3), float(number)) for number in range(count)]


def test_the_copy_is_waited_for_before_a_batch_is_handed_out(machine: Machine) -> None:
    """Each batch is copied after the consumer's work, and its event is waited for."""
    handed = []
    for number, batch in enumerate(prefetcher.DevicePrefetcher(batches(4), "meta")):
        assert batch.is_meta
        handed.append((number, len(machine.log)))
    log = machine.log

    for number, until in handed:
        copy = log.index(("side", "copies", float(number)))
        name, what, event = log[copy + 1]

        assert log[copy - 1] == ("side", "waits for stream", "consumer")
        assert (name, what) == ("side", "records event")
        assert ("consumer", "waits for event", event) in log[copy:until]


def test_the_stream_at_hand_out_is_the_one_that_waits(machine: Machine) -> None:
    """If the consumer has changed its stream, the new one waits."""
    drawn = iter(prefetcher.DevicePrefetcher(batches(3), "meta", depth=2))
    next(drawn)
    machine.current = Stream(machine, "other")
    before = len(machine.log)
    next(drawn)
    waits = [entry[0] for entry in machine.log[before:] if entry[1] == "waits for event"]

    assert "other" in waits
    assert "consumer" not in waits


def test_pinned_memory_is_kept_until_its_copy_is_done(machine: Machine) -> None:
    """If too much pinned memory is held by slow copies, the host waits for an event."""
    loader = batches(9)
    drawn = iter(prefetcher.DevicePrefetcher(loader, "meta", depth=1))
    for _ in range(3):
        next(drawn)
    assert not [entry for entry in machine.log if entry[0] == "host"]
    for _ in range(6):
        next(drawn)
    waited = [entry[2] for entry in machine.log if entry[0] == "host"]

    assert waited == sorted(waited)
    assert waited
    drawn.close()
    recorded = [entry[2] for entry in machine.log if entry[1] == "records event"]
    assert {entry[2] for entry in machine.log if entry[0] == "host"} == set(recorded)


# Walking through batches: what is replaced, and what keeps its type


class Pair(NamedTuple):
    image: Any
    label: Any


@dataclasses.dataclass
class Sample:
    image: Any
    name: str = ""
    length: int = dataclasses.field(init=False, default=3)


@dataclasses.dataclass(frozen=True, slots=True)
class Frozen:
    image: Any


@dataclasses.dataclass
class Late:
    image: Any
    later: Any = dataclasses.field(init=False)


class Boxes:
    """A user's batch type that moves itself."""

    def __init__(self, xyxy: Any) -> None:
        self.xyxy = xyxy
        self.options: dict[str, Any] = {}

    def to(self, device: Any, **options: Any) -> Boxes:
        other = Boxes(self.xyxy.to(device))
        other.options = options
        return other


class InPlace:
    def to(self, device: Any) -> None:
        self.device = device


def doubled(data: Any) -> Any:
    return map_leaves(data, "to", lambda leaf: leaf * 2)


META = torch.device("meta")
ONE = torch.ones(2)
CONTAINERS = {
    "tensor": (ONE, lambda d: d),
    "dict": ({"a": ONE}, lambda d: d["a"]),
    "ordered": (collections.OrderedDict(a=ONE), lambda d: d["a"]),
    "defaultdict": (collections.defaultdict(list, a=ONE), lambda d: d["a"]),
    "user dict": (collections.UserDict(a=ONE), lambda d: d["a"]),
    "mapping proxy": (types.MappingProxyType({"a": ONE}), lambda d: d["a"]),
    "list": ([ONE], lambda d: d[0]),
    "deque": (collections.deque([ONE]), lambda d: d[0]),
    "tuple": ((ONE,), lambda d: d[0]),
    "named tuple": (Pair(ONE, 5), lambda d: d.image),
    "dataclass": (Sample(ONE, "x"), lambda d: d.image),
    "frozen dataclass": (Frozen(ONE), lambda d: d.image),
    "nested": ({"a": [(Pair(Sample(ONE), 1),)]}, lambda d: d["a"][0][0].image.image),
}


@pytest.mark.parametrize("name", CONTAINERS)
def test_tensors_are_replaced_and_containers_keep_their_type(name: str) -> None:
    """New tensors are in place, and the loader's own batch is not changed."""
    data, first = CONTAINERS[name]

    result = doubled(data)

    assert type(result) is type(data)
    assert first(result).tolist() == [2, 2]
    assert first(data) is ONE
    assert map_leaves(data, "to", lambda leaf: leaf) is data


@pytest.mark.parametrize(
    "data", [3, "text", b"bytes", None, range(10**12), torch.float32, torch.Tensor, {1, 2}]
)
def test_what_holds_no_tensor_stays(data: Any) -> None:
    """Numbers, strings, long ranges, types and sets are returned unchanged."""
    assert doubled(data) is data


def test_what_lies_beside_a_tensor_stays() -> None:
    """Names, fields outside the constructor and a default factory are kept."""
    sample = doubled(Sample(ONE, "cat.jpg"))
    mapping = doubled(collections.defaultdict(list, a=ONE, b="cat"))

    assert (sample.name, sample.length) == ("cat.jpg", 3)
    assert mapping["b"] == "cat"
    assert mapping["new"] == []


def test_a_field_that_was_never_set_is_no_error() -> None:
    """A dataclass with an unset field is copied without it."""
    result = doubled(Late(ONE))

    assert result.image.tolist() == [2, 2]
    assert not hasattr(result, "later")


def test_a_sequence_that_cannot_be_rebuilt_becomes_a_list() -> None:
    """As in PyTorch, a type with another constructor becomes a list."""

    class Odd(collections.abc.Sequence):
        def __init__(self, first: Any, second: Any) -> None:
            self.items = [first, second]

        def __getitem__(self, index: Any) -> Any:
            return self.items[index]

        def __len__(self) -> int:
            return 2

    result = doubled(Odd(ONE, "b"))

    assert type(result) is list
    assert (result[0].tolist(), result[1]) == ([2, 2], "b")


def test_results_of_torch_keep_their_type() -> None:
    """The result of `max` along an axis keeps PyTorch's type."""
    result = doubled(torch.max(torch.tensor([[1.0, 3.0]]), dim=1))

    assert type(result) is torch.return_types.max
    assert result.values.tolist() == [6]


def test_an_object_that_moves_itself_is_not_taken_apart() -> None:
    """A PackedSequence, which is also a named tuple, is moved as a whole."""
    packed = torch.nn.utils.rnn.pack_sequence([torch.ones(3), torch.ones(2)])

    result = map_leaves([packed], "to", lambda leaf: move(leaf, META, non_blocking=False))

    assert type(result[0]) is type(packed)
    assert result[0].data.device.type == "meta"
    assert result[0].batch_sizes.device.type == "cpu"


def test_own_types_are_told_not_to_block_if_they_can_be() -> None:
    """`non_blocking` is passed to a `to` that accepts it, and to no other."""
    boxes = move(Boxes(ONE), META, non_blocking=True)
    changed = InPlace()

    assert boxes.options == {"non_blocking": True}
    assert move(changed, META, non_blocking=True) is changed
    assert changed.device == META


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
    """A slice or an expanded tensor is copied; dense memory in any order is not."""
    tensor = make(torch.rand(2, 3, 4, 5))

    dense = _dense(tensor)

    assert (dense is tensor) is same
    assert torch.equal(dense, tensor)
    assert dense.untyped_storage().nbytes() == 4 * dense.numel()
