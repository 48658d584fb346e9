"""`Loader` against a model: whatever is called, and when, each batch follows from the position."""

from __future__ import annotations

import copy
import json
import pickle
from collections import Counter
from contextlib import suppress
from functools import cache
from typing import Any

import pytest
import torch
from cases import examples
from device_doubles import decode_all, own_registry, register_double, registry_with_cpu_backends  # noqa: F401
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    rule,
    run_state_machine_as_test,
)
from loading import EXACT, LEVEL, PROCESS_WARNINGS, Images, copies, device_loader, encoded
from loading import SeededLoader as Loader
from same import assert_same
from torch.utils.data import BatchSampler
from torch.utils.data.distributed import DistributedSampler

from fastdecode.torch._loader.order import sample_seed
from fastdecode.torch.transforms._random_crop import generator_of

pytestmark = pytest.mark.filterwarnings(*PROCESS_WARNINGS, "ignore:there was no batch")
COUNT = 11
STEPS = 20

WAYS: dict[str, dict[str, Any]] = {
    "caller": {"threads": 0},
    "threads": {"threads": 2},
    "without the core": {"threads": 2},
    "processes": {"workers": 1},
    "processes that stay": {"workers": 2, "persistent_workers": True},
    "normalised later": {"threads": 2},
    "backend": {"threads": 2, "decode": "double"},
}
ONE_EPOCH_AT_A_TIME = ("processes", "processes that stay", "backend")


class Endless:
    """A sampler that goes on for ever, and has another name for its epoch."""

    _epoch = 0

    def set_epoch(self, epoch: int) -> None:
        self._epoch = epoch

    def __iter__(self) -> Any:
        generator = torch.Generator().manual_seed(self._epoch)
        while True:
            yield from torch.randperm(COUNT, generator=generator).tolist()


def distributed() -> DistributedSampler[Any]:
    return DistributedSampler(range(COUNT), 1, 0)


ORDERS: dict[str, Any] = {
    "in order": lambda size, drop: {"batch_size": size, "drop_last": drop},
    "shuffled": lambda size, drop: {"batch_size": size, "drop_last": drop, "shuffle": True},
    "ranked": lambda size, drop: ORDERS["shuffled"](size, drop) | {"rank": 0, "world_size": 2},
    "sampler": lambda size, drop: ORDERS["in order"](size, drop) | {"sampler": distributed()},
    "batches": lambda size, drop: {"batch_sampler": BatchSampler(distributed(), size, drop)},
    "endless": lambda size, _: {"batch_size": size, "sampler": Endless()},
}
TROUBLES: dict[str, dict[str, Any]] = {
    "none": {},
    "an error": {"wrong": {7: KeyError("mine")}},
    "damage": {"damaged": (2, 3, 7), "on_error": "skip"},
}
Plan = tuple[str, int, bool, str]


def make(plan: Plan, way: str) -> Loader:
    order, size, drop_last, trouble = plan
    dataset = Images(EXACT, count=COUNT, **TROUBLES[trouble])
    kind = device_loader if way == "normalised later" else Loader
    if order == "batches" and kind is device_loader:
        return kind(dataset, 1, seed=5, **ORDERS[order](size, drop_last), **WAYS[way])
    return kind(dataset, seed=5, **ORDERS[order](size, drop_last), **WAYS[way])


def sampler_of(loader: Loader) -> Any:
    return getattr(loader.batch_sampler, "sampler", loader.sampler)


@cache
def straight(plan: Plan, epoch: int, of_sampler: int) -> list[tuple[int, Any, int]]:
    """Return an epoch's batches, or their errors, from a loader that does nothing else.

    Each has its number, and how many samples it lacks; last comes what stands at the end.
    """
    loader, found, number = make(plan, "caller"), [], 0
    if epoch == of_sampler:
        loader.set_epoch(epoch)
    else:  # the caller set it once, and epochs went by
        for named in (of_sampler + 1, of_sampler, *[None] * (epoch - of_sampler - 1)):
            if named is not None:
                sampler_of(loader).set_epoch(named)
            with suppress(KeyError):
                next(iter(loader))
    batches = iter(loader)
    while len(found) < STEPS + 2:
        before = loader.skipped if found else 0
        try:
            (batch,) = copies([next(batches)])
            number = loader.state_dict()["batch"]
        except StopIteration:
            found.append((number + 1, None, loader.skipped - before))
            break
        except KeyError:
            batch, number = KeyError(), number + 1
        found.append((number, batch, loader.skipped - before))
    check(plan, epoch, of_sampler, [one[1] for one in found if isinstance(one[1], list)])
    return found


def check(plan: Plan, epoch: int, of_sampler: int, batches: list[Any]) -> None:
    """Fail unless the items are those of the order, each with the draws of seed, epoch and item."""
    order, size, drop_last, trouble = plan
    given = [index for _, numbers in batches for index in numbers.tolist()]
    if trouble == "none" and order != "endless":
        loader = make(plan, "caller")
        sampler_of(loader).set_epoch(of_sampler)
        wanted = [*range(COUNT)] if order == "in order" else [*sampler_of(loader)]
        assert given == (wanted[: len(wanted) // size * size] if drop_last else wanted)
        assert len(batches) == len(loader)
    if order == "endless" and trouble != "none":  # of which some items are not seen here
        return
    seen: Counter[int] = Counter()
    for images, numbers in batches[:12]:
        for image, index in zip(images, numbers.tolist(), strict=True):
            generator = generator_of(sample_seed(5, epoch, index, seen[index]))
            assert_same(image, EXACT(encoded()[index], generator=generator), (plan, index))
            seen[index] += 1


class Epoch:
    """An iterator of a loader, and what the model says that it gives."""

    def __init__(self, loader: Loader, number: int, way: str) -> None:
        self.batches, self.loader, self.way = iter(loader), number, way
        self.left: list[tuple[int, Any, int]] | None = None
        self.stopped = False


class Model:
    """What a loader promises of its position, which the latest iterator moves."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.at = (0, 0)
        self.begun, self.latest, self.skipped = False, None, 0
        self.sampler = self.seen = 0  # the sampler's epoch, and what it was when last looked at
        self.counts = True  # the loader tells the sampler its epochs

    @property
    def position(self) -> tuple[int, int]:
        """The loader's own, or the epoch that the caller has set of the sampler."""
        return self.at if self.sampler in (self.seen, self.at[0]) else (self.sampler, 0)

    def go(self, position: tuple[int, int]) -> None:
        self.at, self.begun, self.latest = position, False, None

    def set_epoch(self, epoch: int) -> None:
        if self.begun or epoch != self.at[0]:
            self.go((epoch, 0))
        self.take_over()

    def take_over(self) -> None:
        self.counts, self.seen = True, self.sampler

    def begin(self, epoch: Epoch) -> None:
        self.at = (self.at[0] + 1, 0) if self.begun else self.at
        self.counts, self.at = self.counts and self.sampler == self.seen, self.position
        self.sampler = self.seen = self.at[0] if self.counts else self.sampler
        whole = straight(self.plan, self.at[0], self.sampler)
        epoch.left = [one for one in whole if one[0] > self.at[1]]
        self.begun, self.latest, self.skipped = True, epoch, 0

    def next(self, epoch: Epoch) -> Any:
        """Return the batch that an iterator gives next, or its error; None at its end."""
        if epoch.left is None:
            self.begin(epoch)
        if not epoch.left:
            return None
        number, batch, skipped = epoch.left.pop(0)
        if epoch is self.latest:
            self.skipped += skipped
            if batch is None:
                self.go((self.at[0] + 1, 0))
            elif not isinstance(batch, Exception):
                self.at = self.at[0], number
        return batch


WHICH = st.sampled_from([0, 0, 0, 1, None, None])


class Machine(RuleBasedStateMachine):
    """Calls a loader's methods in any order, and the model's; takes a batch after each."""

    way = ""

    @initialize(
        order=st.sampled_from([*ORDERS]),
        size=st.sampled_from([1, 4]),
        drop_last=st.booleans(),
        trouble=st.sampled_from([*TROUBLES]),
    )
    def begin(self, order: str, size: int, drop_last: bool, trouble: str) -> None:
        self.plan: Plan = (order, size, drop_last, trouble)
        self.callers = order in ("sampler", "batches", "endless")
        self.model, self.number = Model(self.plan), 0
        self.loaders, self.epochs = [make(self.plan, self.way)], []
        self.states = [(self.loader.state_dict(), (0, 0))]
        self.ways = [self.way]

    @property
    def loader(self) -> Loader:
        return self.loaders[-1]

    def take(self, which: int | None, times: int = 1) -> None:
        """Take batches of one of the last iterators, or of another one, for None."""
        if which is None or not self.epochs:
            self.epochs = [*self.epochs[-2:], Epoch(self.loader, len(self.loaders), self.ways[-1])]
            which = 0
        for _ in range(times):
            self._next(self.epochs[-1 - which % len(self.epochs)])

    @rule(which=WHICH, times=st.sampled_from([1, 1, 2, 3, STEPS]))
    def go_on(self, which: int | None, times: int) -> None:
        self.take(which, times)

    def _next(self, epoch: Epoch) -> None:
        if epoch.stopped:
            left = len(epoch.left or ())
            if left > 1:
                with pytest.raises(RuntimeError):
                    next(epoch.batches)
            elif left:  # only the end, of which it may know already
                with suppress(RuntimeError):
                    assert next(epoch.batches, None) is None
                    self.model.next(epoch)
            return
        begins, newest = epoch.left is None, epoch.loader == len(self.loaders)
        if begins and not newest:
            return  # it would begin an epoch of a loader that was replaced
        place = self.model.position[1] if begins else STEPS - len(epoch.left or ())
        if self.plan[0] == "endless" and place >= STEPS:
            return  # nobody has looked further
        expected = self.model.next(epoch)
        if begins and epoch.way in ONE_EPOCH_AT_A_TIME:
            self._stop(but=epoch)
        if isinstance(expected, KeyError):
            with pytest.raises(KeyError, match="mine"):
                next(epoch.batches)
            return
        found = next(epoch.batches, None)
        within = LEVEL if epoch.way == "backend" else 0
        assert_same(found and list(found), expected, epoch.way, within=within)

    def _stop(self, but: Epoch | None = None) -> None:
        for one in self.epochs:
            if one is not but and one.loader == len(self.loaders) and one.left:
                one.stopped = True

    @rule(which=WHICH)
    def save(self, which: int | None) -> None:
        if self.model.counts or self.model.position[0] == self.model.sampler:
            state = json.loads(json.dumps(self.loader.state_dict()))
            self.states = [*self.states[-2:], (state, self.model.position)]
        self.take(which)

    @rule(
        which=WHICH,
        back=st.integers(0, 2),
        way=st.sampled_from(["", "", "self", "caller"]),
        named=st.sampled_from([None, False, True]),
    )
    def load(self, which: int | None, back: int, way: str, named: bool | None) -> None:
        """Load a state, and name its epoch to the loader or its sampler, as training loops do."""
        if way:
            self.ways.append(self.way if way == "self" else way)
            self.loaders.append(make(self.plan, self.ways[-1]))
            self.model = Model(self.plan)
        state, position = self.states[-1 - back % len(self.states)]
        self.loader.load_state_dict(state)
        self.model.go(position)
        self.model.take_over()
        if named is not None:
            self._set_epoch(position[0], of_sampler=named)
        self.take(which)

    @rule(which=WHICH, pickled=st.booleans())
    def copy(self, which: int | None, pickled: bool) -> None:
        if self.ways[-1] != "normalised later":  # the double of a device is not copied
            loader = self.loader
            copied = pickle.loads(pickle.dumps(loader)) if pickled else copy.deepcopy(loader)
            self.loaders.append(copied)
            self.ways.append(self.ways[-1])
            self.model.latest = None
        self.take(which)

    @rule(which=WHICH, epoch=st.integers(0, 2), of_sampler=st.booleans(), more=st.integers(0, 2))
    def set_epoch(self, which: int | None, epoch: int, of_sampler: bool, more: int) -> None:
        """Set an epoch, and let others follow it."""
        self._set_epoch(epoch, of_sampler=of_sampler)
        for one in (which, *[None] * more):
            self.take(one)

    def _set_epoch(self, epoch: int, *, of_sampler: bool) -> None:
        (sampler_of(self.loader) if of_sampler else self.loader).set_epoch(epoch)
        if of_sampler and self.callers:
            self.model.sampler = epoch
        else:
            self.model.set_epoch(epoch)
        self.position()

    @rule(which=WHICH)
    def close(self, which: int | None) -> None:
        self.loader.close()
        self._stop()
        self.take(which)

    @invariant()
    def position(self) -> None:
        if hasattr(self, "loaders"):
            state = self.loader.state_dict()
            assert (state["epoch"], state["batch"]) == self.model.position
            assert self.loader.epoch == self.model.position[0]
            assert self.loader.skipped == self.model.skipped

    def teardown(self) -> None:
        for loader in getattr(self, "loaders", ()):
            loader.close()
        self.__dict__.clear()  # hypothesis may keep it


@pytest.mark.parametrize("way", WAYS)
def test_any_order_of_calls_gives_what_a_plain_model_says(
    way: str, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Batches, errors, ends, positions and counts of skipped samples are those of the model."""
    if way == "backend":
        request.getfixturevalue("registry_with_cpu_backends")
        register_double(decode_all)
    if way == "without the core":
        monkeypatch.setenv("FASTDECODE_DISABLE", "native")
    starts = way.startswith("processes")  # which takes time
    many = examples(120) if way == "caller" else examples(60) // (2 if starts else 1)
    run_state_machine_as_test(
        type("Machine", (Machine,), {"way": way}),
        settings=settings(
            max_examples=many,
            stateful_step_count=STEPS // 3 if starts else STEPS,
            phases=[Phase.generate],  # to shrink what fails would take minutes
            suppress_health_check=list(HealthCheck),
        ),
    )
