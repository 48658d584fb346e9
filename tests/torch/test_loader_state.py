"""`Loader`: its position, and resuming from it."""

from __future__ import annotations

import json
from typing import Any

import pytest
import torch
from loading import Images, copies, indices, same
from loading import SeededLoader as Loader
from torch.utils.data import BatchSampler, RandomSampler, SequentialSampler
from torch.utils.data.distributed import DistributedSampler

import fastdecode.torch


class Turned:
    """A sampler with another start in each epoch, which records its epochs."""

    def __init__(self) -> None:
        self.told: list[int] = []

    def __len__(self) -> int:
        return 10

    def __iter__(self) -> Any:
        return iter(torch.arange(10).roll(-3 * self.told[-1]))

    def set_epoch(self, epoch: int) -> None:
        self.told.append(epoch)


def loader(**options: Any) -> Any:
    usual = {"dataset": Images(), "batch_size": 4, "threads": 2, "seed": 5}
    return Loader(**{**usual, "shuffle": options.get("sampler") is None, **options})


@pytest.mark.parametrize("threads", [0, 1, 3])
def test_resumes_after_every_batch_of_an_epoch(threads: int) -> None:
    """A new loader, with any number of threads, gives exactly the remaining batches."""
    with loader() as first:
        copies(first)
        states, batches = [first.state_dict()], []
        for batch in first:
            batches += copies([batch])
            states.append(first.state_dict())
        following = copies(first)

    for done, state in enumerate(states):
        with loader(threads=threads) as second:
            second.load_state_dict(json.loads(json.dumps(state)))

            assert second.state_dict() == state
            assert same(copies(second), batches[done:])
            assert second.epoch == 2
            if done in (0, len(batches)):
                assert same(copies(second), following)


@pytest.mark.parametrize("done", [2, 6])
def test_the_usual_loop_goes_on_where_it_was(done: int) -> None:
    """With set_epoch for each epoch, also the resumed one, no batch is missing or repeated."""

    def train(begin: int, saved: Any = None, stop: int | None = None) -> tuple[list[Any], Any]:
        seen = []
        with loader() as batches:
            if saved is not None:
                batches.load_state_dict(saved)
            for epoch in range(begin, 3):
                batches.set_epoch(epoch)
                for batch in batches:
                    seen += copies([batch])
                    if len(seen) == stop:
                        return seen, batches.state_dict()
        return seen, None

    whole, _ = train(0)
    part, state = train(0, stop=6 + done)  # within the second epoch, or at its end
    rest, _ = train(state["epoch"], state)

    assert state["epoch"] == 1
    assert same(part + rest, whole)


def test_state_after_an_epoch_is_the_next_ones_beginning() -> None:
    """A state after the loop is the start of the next epoch, also if the iterator goes on."""
    with loader() as batches:
        epoch = iter(batches)
        while next(epoch, None) is not None:
            pass
        next(epoch, None)
        next(epoch, None)

        assert batches.epoch == 1
        assert batches.state_dict()["batch"] == 0


def test_leaving_early_makes_the_next_epoch_another() -> None:
    """After a break, the next loop is the next epoch, and `set_epoch` can go back."""
    with loader() as batches:
        whole = [copies(batches), copies(batches)]
    with loader() as batches:
        first = next(iter(batches))
        second = copies(batches)
        batches.set_epoch(0)

        assert same([first], whole[0][:1])
        assert same(second, whole[1])
        assert same(copies(batches), whole[0])


def test_sampler_is_resumed_in_its_own_order() -> None:
    """The state has the sampler's items, which are not drawn again; later epochs are."""
    with loader(sampler=Turned()) as batches:
        first = copies(batches)
        second = iter(batches)
        next(second)
        state = json.loads(json.dumps(batches.state_dict()))
        rest = copies(second)
        third = copies(batches)

        assert batches.sampler.told == [0, 1, 2]
        assert len(batches) == 3
    assert indices(first) == list(range(10))
    assert indices(rest) == [7, 8, 9, 0, 1, 2]
    with loader(sampler=Turned()) as again:
        again.load_state_dict(state)
        again.set_epoch(1)

        assert same(copies(again), rest)
        assert same(copies(again), third)
        assert again.sampler.told == [2]


@pytest.mark.parametrize("batched", [False, True])
def test_sampler_that_draws_from_torch_can_be_resumed(batched: bool) -> None:
    """The state holds the draws of torch's random samplers, which do not remember them."""

    def drawn() -> Any:
        sampler = RandomSampler(Images())
        if not batched:
            return loader(sampler=sampler)
        return Loader(Images(), batch_sampler=BatchSampler(sampler, 4, drop_last=False), threads=1)

    with drawn() as batches:
        epoch = iter(batches)
        given = copies([next(epoch), next(epoch)])
        state = batches.state_dict()
        rest = copies(epoch)
    with drawn() as again:
        again.load_state_dict(state)

        assert same(copies(again), rest)
    assert sorted(indices(given + rest)) == list(range(23))
    if batched:
        with pytest.raises(ValueError, match="sampler"):
            Loader(Images(), 4, sampler=range(23), threads=1).load_state_dict(state)


def test_samplers_own_type_of_index_does_not_matter() -> None:
    """Tensors and NumPy numbers as indices have the same random draws as plain ones."""
    plain = copies(loader(sampler=[3, 1, 4, 1, 5]))

    assert same(copies(loader(sampler=torch.tensor([3, 1, 4, 1, 5]))), plain)
    assert same(copies(loader(sampler=torch.tensor([3, 1, 4, 1, 5]).numpy())), plain)


def test_torchs_distributed_sampler_is_told_the_epoch() -> None:
    """Its shuffling changes with each epoch without a call, and it does the sharding."""
    shares = []
    for rank in (0, 1):
        sampler = DistributedSampler(Images(), 2, rank, drop_last=True)
        with loader(sampler=sampler) as batches:
            shares.append([indices(batches), indices(batches)])

    for epoch in (0, 1):
        assert len({*shares[0][epoch], *shares[1][epoch]}) == 22
    assert shares[0][0] != shares[0][1]


def test_a_fresh_process_takes_over_the_seed_of_a_state() -> None:
    """Loaders without `seed=` resume with each other's states, and go on with that seed."""
    with fastdecode.torch.Loader(Images(), 4, True, threads=1) as first:
        next(iter(first))
        state = json.loads(json.dumps(first.state_dict()))
        following = copies(first)
    with fastdecode.torch.Loader(Images(), 4, True, threads=1) as second:
        assert second.seed != first.seed
        second.load_state_dict(state)

        assert second.seed == first.seed
        assert second.state_dict() == state
        assert len(copies(second)) == 5
        assert same(copies(second), following)


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("seed=", {"seed": 6}),
        ("shuffle=", {"shuffle": False}),
        ("drop_last=", {"drop_last": True}),
        ("world_size=", {"rank": 0, "world_size": 2}),
        ("sampler=", {"sampler": SequentialSampler(Images())}),
        ("batch_size=4.* has 5", {"batch_size": 5}),
        ("length=23.* has 9", {"dataset": Images(count=9)}),
    ],
)
def test_state_of_other_batches_is_refused(name: str, options: dict[str, Any]) -> None:
    """A state that was saved with another setting is an error that names the setting."""
    state = loader().state_dict()
    batches = loader(**options)

    with pytest.raises(ValueError, match=f"saved with {name}"):
        batches.load_state_dict(state)
    assert batches.state_dict()["batch"] == 0


def test_state_of_another_rank_is_refused_where_a_sampler_deals() -> None:
    """With a sampler, the state has one rank's items, and other ranks refuse it."""

    def ranked(rank: int, sampler: Any) -> Any:
        return loader(sampler=sampler, shuffle=sampler is None, rank=rank, world_size=2)

    ranked(1, None).load_state_dict(ranked(0, None).state_dict())
    state = ranked(0, [1, 2, 3]).state_dict()

    with pytest.raises(ValueError, match="rank=0"):
        ranked(1, [4, 5, 6]).load_state_dict(state)


@pytest.mark.parametrize("state", [None, {}, {"version": 99}, {"version": 1}])
def test_what_is_no_state_is_refused(state: Any) -> None:
    """Anything but a state of a loader is a ValueError."""
    with pytest.raises(ValueError, match="not a state of a fastdecode Loader"):
        loader().load_state_dict(state)


@pytest.mark.parametrize("epoch", [-1, 1.0, True])
def test_wrong_epochs_are_refused(epoch: Any) -> None:
    """An epoch is an integer from 0."""
    with pytest.raises(ValueError, match="epoch must be an integer"):
        loader().set_epoch(epoch)


@pytest.mark.parametrize(
    "wrong",
    [{"batch": -1}, {"batch": 99}, {"epoch": "x"}, {"settings": None}, {"settings": {"seed": "x"}}],
)
def test_damaged_state_is_refused(wrong: dict[str, object]) -> None:
    """A damaged state is a ValueError."""
    with Loader(Images(count=6), 3, threads=1) as loader:
        state = {**loader.state_dict(), **wrong}

        with pytest.raises(ValueError, match="state"):
            loader.load_state_dict(state)
        assert len(list(loader)) == 2


RUBBISH = ["items", 5, {"a": 1}, b"12", [None], [1.5], [True], [[1], [2]], [1, {}], [6], [-7]]


@pytest.mark.parametrize("items", [*RUBBISH, None])
def test_damaged_items_of_a_sampler_are_refused(items: Any) -> None:
    """Items of a state that are no indices of the dataset are a ValueError."""
    with Loader(Images(count=6), 2, sampler=[5, 3, 1, 0], threads=1) as loader:
        next(iter(loader))
        state = {**loader.state_dict(), "items": items}

        with pytest.raises(ValueError, match="items"):
            loader.load_state_dict(state)


@pytest.mark.parametrize("items", ["items", 5, {"a": 1}, [1, 2], [[1], []], [[1], [6]], [[None]]])
def test_damaged_items_of_a_batch_sampler_are_refused(items: Any) -> None:
    """Items of a state that are no batches of indices are a ValueError."""
    with Loader(Images(count=6), batch_sampler=[[5, 3], [1]], threads=1) as loader:
        next(iter(loader))
        state = {**loader.state_dict(), "items": items}

        with pytest.raises(ValueError, match="items"):
            loader.load_state_dict(state)


def test_items_without_a_sampler_are_refused() -> None:
    """A loader with an order of its own refuses a state with items."""
    with loader() as batches, pytest.raises(ValueError, match="items"):
        batches.load_state_dict({**batches.state_dict(), "items": [1, 2]})


def test_sampler_is_not_asked_before_its_epoch() -> None:
    """Loading the state of an epoch that has not begun draws nothing from torch's generator."""
    photos = Images(count=6)
    with Loader(photos, 3, sampler=RandomSampler(photos), threads=1) as loader:
        state = loader.state_dict()
        before = torch.get_rng_state()

        loader.load_state_dict(state)

    assert torch.equal(torch.get_rng_state(), before)
