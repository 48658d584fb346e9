"""In which order a batch gets onto a GPU: by doubles of streams, which write down every request.

The tensors of the device are on torch's "meta", which has shapes and no memory.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from loading import PROCESSES, Plain

from fastdecode.torch import _transfer, prefetcher
from fastdecode.torch.loader import Loader

pytestmark = pytest.mark.filterwarnings(*PROCESSES)


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
    """A double of a CUDA event, which comes when it is waited for, or the machine says so."""

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
    """What torch.cuda is asked for."""

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
    """With a CUDA device, batches that stay on the host are pinned before they are asked for."""
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
    """Each batch is copied behind what the consumer asked for, and its event is waited for."""
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
    """A consumer that has changed its stream meanwhile waits on the new one."""
    drawn = iter(prefetcher.DevicePrefetcher(batches(3), "meta", depth=2))
    next(drawn)
    machine.current = Stream(machine, "other")
    before = len(machine.log)
    next(drawn)
    waits = [entry[0] for entry in machine.log[before:] if entry[1] == "waits for event"]

    assert "other" in waits
    assert "consumer" not in waits


def test_pinned_memory_is_kept_until_its_copy_is_done(machine: Machine) -> None:
    """Of a copy that takes long, the host waits for the event where too much memory is held."""
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
