"""How near does a training step come to the speed it has without waiting? A part of `gpu.py`.

A step's kernels lie between two events on the stream; from the last event of a step to the first of
the next is waiting: for a batch, for its copy, and for what is done to it on that stream, such as
normalising. The first quarter of an epoch fills queues and does not count; nothing is waited for
between that and the rest, so that full queues give no feed a lead.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from os import getpid
from pathlib import Path
from time import perf_counter
from typing import Any, NamedTuple

import torch
from gpu_budget import Budget
from gpu_clock import Clock
from gpu_feeds import Feed, Setup, feed_of
from gpu_network import Step
from gpu_race import middle, race, ratio
from processes import cpu_seconds
from reference import SIZE

BASE = "random"
_WARM = 4  # the fourth part of an epoch


class Turn(NamedTuple):
    """What training on a part of an epoch took, in seconds.

    Attributes
    ----------
    images : int
    seconds : float
        From the end of one step to the end of the last, on the device.
    kernels : float
        Of these, within steps.
    asking : float
        In which the host asked for a batch: also while the device was busy with a step.
    cpu : float
        Of the process and its workers.
    loss : float
        Of the last step.
    """

    images: int
    seconds: float
    kernels: float
    asking: float
    cpu: float
    loss: float


def train(feed: Feed, step: Step, clock: Clock) -> Turn:
    """Train for an epoch."""
    begins, ends, asked = [], [], []
    warm = max(1, feed.setup.steps // _WARM)
    loss, cpu = None, 0.0
    batches = feed.batches()
    while True:
        start = perf_counter()
        batch = next(batches, None)
        if batch is None:
            break
        asked.append(perf_counter() - start)
        _check(*batch, feed.setup)
        begins.append(clock.mark())
        loss = step(*batch)
        ends.append(clock.mark())
        if len(ends) == warm:
            cpu = cpu_seconds(getpid())
    clock.wait()
    if loss is None or len(ends) != feed.setup.steps:
        raise RuntimeError(f"an epoch had {len(ends)} batches, not {feed.setup.steps}")
    steps = zip(begins[warm:], ends[warm:], strict=True)
    return Turn(
        images=feed.setup.batch * (len(ends) - warm),
        seconds=clock.between(ends[warm - 1], ends[-1]),
        kernels=sum(clock.between(begin, end) for begin, end in steps),
        asking=sum(asked[warm:]),
        cpu=cpu_seconds(getpid()) - cpu,
        loss=float(loss),
    )


def _check(images: torch.Tensor, labels: torch.Tensor, setup: Setup) -> None:
    assert images.shape == (setup.batch, 3, SIZE, SIZE), images.shape
    assert images.dtype == torch.float32, images.dtype
    assert images.is_contiguous(memory_format=torch.channels_last)
    assert labels.shape == (setup.batch,), labels.shape
    assert images.device == labels.device == setup.device


class Feeds:
    """Feeds by name, made when they are first asked for."""

    def __init__(self, setup: Setup, step: Step, clock: Clock) -> None:
        self._setup, self._step, self._clock = setup, step, clock
        self._made: dict[str, Feed] = {}

    def train(self, name: str) -> Turn:
        if name not in self._made:
            self._made[name] = feed_of(name, self._setup)
        return train(self._made[name], self._step, self._clock)

    def how(self) -> dict[str, str]:
        return {name: how for name, feed in self._made.items() if (how := feed.how())}

    def close(self) -> None:
        for feed in self._made.values():
            feed.close()


def compare(
    names: Sequence[str], setup: Setup, step: Step, clock: Clock, rounds: int, budget: Budget
) -> Iterator[dict[str, Any]]:
    """Train on each feed in turn; yield what is known after each round."""
    feeds = Feeds(setup, step, clock)
    left_out: dict[str, str] = {}
    try:
        lanes = {name: partial(feeds.train, name) for name in names}
        for turns in race(lanes, rounds, budget, left_out):
            yield {"feeds": summary(turns), "chosen": feeds.how(), "left_out": left_out}
    finally:
        feeds.close()


def summary(turns: dict[str, dict[int, Turn]]) -> dict[str, Any]:
    """Sum up the rounds, by feed."""
    speeds = {
        name: {number: turn.images / turn.seconds for number, turn in rounds.items()}
        for name, rounds in turns.items()
    }
    return {
        name: {
            "images_per_s": middle(speeds[name], 1),
            "rounds": [round(speed, 1) for speed in speeds[name].values()],
            "to_random": ratio(speeds[name], speeds.get(BASE, {})),
            "kernels_ms": _each(rounds, "kernels"),
            "waiting_ms": middle({n: _ms(t, t.seconds - t.kernels) for n, t in rounds.items()}, 4),
            "asking_ms": _each(rounds, "asking"),
            "cpu_ms": _each(rounds, "cpu"),
            "loss": middle({n: t.loss for n, t in rounds.items()}),
        }
        for name, rounds in turns.items()
    }


def _each(rounds: dict[int, Turn], what: str) -> float:
    """Return the median of milliseconds for an image."""
    return middle({number: _ms(turn, getattr(turn, what)) for number, turn in rounds.items()}, 4)


def _ms(turn: Turn, seconds: float) -> float:
    return 1000 * seconds / turn.images


def memory_over_epochs(
    name: str, setup: Setup, step: Step, clock: Clock, epochs: int, budget: Budget
) -> dict[str, Any]:
    """Train for many short epochs; return what memory was taken after each."""
    feed = feed_of(name, setup)
    seen: dict[str, list[int]] = {}
    try:
        for _ in range(epochs):
            if not budget.allows(f"memory, {name}"):
                break
            budget.spend(f"memory, {name}", partial(train, feed, step, clock))
            for what, size in {**clock.memory(), "host": _resident()}.items():
                seen.setdefault(what, []).append(size)
    finally:
        feed.close()
    return {
        what: {"first": sizes[0], "last": sizes[-1], "all": sizes} for what, sizes in seen.items()
    }


def _resident() -> int:
    """Return bytes of the host's memory that this process has."""
    for line in Path("/proc/self/status").read_text(encoding="ascii").splitlines():
        if line.startswith("VmRSS:"):
            return 1024 * int(line.split()[1])
    raise RuntimeError("/proc/self/status does not say VmRSS")
