"""Order and sharding: every item once, for any number of ranks; which states are refused."""

from __future__ import annotations

import json
from typing import Any

import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st
from loading import Images, Plain, copies
from loading import SeededLoader as Loader
from same import assert_same
from torch.utils.data import SequentialSampler

import fastdecode.torch
from fastdecode.torch._loader.order import sample_seed


@given(
    length=st.integers(0, 60),
    ranks=st.integers(1, 6),
    batch_size=st.integers(1, 9),
    shuffle=st.booleans(),
    drop_last=st.booleans(),
)
@example(length=11, ranks=2, batch_size=1, shuffle=True, drop_last=True)  # one has an item more
def test_ranks_share_the_items(
    length: int, ranks: int, batch_size: int, shuffle: bool, drop_last: bool
) -> None:
    """Every item comes once, and ranks differ by one item at most.

    With drop_last all batches are full, and all ranks have equally many; no item is repeated.
    """
    numbers, how = Plain(int, length), (batch_size, shuffle)
    loaders = [
        Loader(numbers, *how, drop_last=drop_last, rank=rank, world_size=ranks, threads=0)
        for rank in range(ranks)
    ]
    dealt = [[batch.tolist() for batch in loader] for loader in loaders]
    counts = [sum(map(len, batches)) for batches in dealt]
    seen = [item for batches in dealt for batch in batches for item in batch]

    assert len(set(seen)) == len(seen)
    for loader, batches, count in zip(loaders, dealt, counts, strict=True):
        assert len(loader) == len(batches)
        assert [len(batch) for batch in batches[:-1]] == [batch_size] * (len(batches) - 1)
        loader.set_epoch(0)
        assert list(loader.batch_sampler) == batches
        assert drop_last or len(loader.sampler) == count
    if drop_last:
        assert {len(batches) for batches in dealt} == {length // ranks // batch_size}
        assert {len(batch) for batches in dealt for batch in batches} <= {batch_size}
    else:
        assert sorted(seen) == list(range(length))
        assert max(counts) - min(counts) <= 1


def test_shuffling_follows_from_seed_and_epoch() -> None:
    """Each epoch and each seed has its own permutation, the same in every process."""
    state = torch.get_rng_state()

    def order(epoch: int, seed: int) -> list[int]:
        with Loader(Plain(int, 50), 7, True, seed=seed, threads=0) as loader:
            loader.set_epoch(epoch)
            return list(loader.sampler)

    first = order(0, 1)
    assert first == order(0, 1)
    assert len({tuple(order(epoch, seed)) for epoch in range(3) for seed in range(3)}) == 9
    assert sorted(first) == list(range(50)) != first
    assert_same(torch.get_rng_state(), state)


def test_seeds_of_samples_are_apart() -> None:
    """Neighbours in any number share no draws; those of seed, epoch and index never change."""
    some, many = range(5), range(50)
    seeds = {
        *(sample_seed(seed, epoch, index) for seed in some for epoch in some for index in many),
        *(sample_seed(s, 0, 55, t, r) for s in some for t in some for r in some),
    }

    assert len(seeds) == 5 * 5 * 50 + 5 * 5 * 5
    assert 0 <= min(seeds) <= max(seeds) < 2**63
    assert sample_seed(0, 0, 0) == sample_seed(0, 0, 0, 0, 0) == 3150921512212191848
    assert sample_seed(1, 2, "key") != sample_seed(1, 2, "other")


def test_keys_need_not_be_numbers() -> None:
    """A sampler may give whatever the dataset is indexed with."""
    names = {"one": 1, "two": 2, "three": 3}
    with Loader(names, 2, sampler=["three", "one", "two"], threads=2) as loader:
        assert [batch.tolist() for batch in loader] == [[3, 1], [2]]


# Positions, and resuming from them


def loader(**options: Any) -> Any:
    usual = {"dataset": Images(), "batch_size": 4, "threads": 2, "seed": 5}
    return Loader(**{**usual, "shuffle": options.get("sampler") is None, **options})


def test_samplers_own_type_of_index_does_not_matter() -> None:
    """Tensors and NumPy numbers as indices have the same random draws as plain ones."""
    plain = copies(loader(sampler=[3, 1, 4, 1, 5]))

    assert_same(copies(loader(sampler=torch.tensor([3, 1, 4, 1, 5]))), plain)
    assert_same(copies(loader(sampler=torch.tensor([3, 1, 4, 1, 5]).numpy())), plain)


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
        assert_same(copies(second), following)
        for _ in second:
            state = second.state_dict()
        second.load_state_dict(state)  # of the last batch
        assert list(second) == []


OTHER_SETTINGS: list[tuple[dict[str, Any], dict[str, Any], str]] = [
    ({}, {"seed": 6}, "seed="),
    ({}, {"shuffle": False}, "shuffle="),
    ({}, {"drop_last": True}, "drop_last="),
    ({}, {"rank": 0, "world_size": 2}, "world_size="),
    ({}, {"sampler": SequentialSampler(Images())}, "sampler="),
    ({}, {"batch_size": 5}, "batch_size=4"),
    ({}, {"dataset": Images(count=9)}, "length=23"),
    # With a sampler, the state has one rank's items.
    (
        {"sampler": [1, 2], "rank": 0, "world_size": 2},
        {"sampler": [4, 5], "rank": 1, "world_size": 2},
        "rank=0",
    ),
    ({"batch_size": 1, "shuffle": False, "batch_sampler": [[1]]}, {"sampler": [1]}, "sampler="),
]


@pytest.mark.parametrize(("saved", "options", "named"), OTHER_SETTINGS)
def test_state_of_other_batches_is_refused(
    saved: dict[str, Any], options: dict[str, Any], named: str
) -> None:
    """A state that was saved with another setting is an error that names the setting."""
    batches = loader(**options)

    with pytest.raises(ValueError, match=named):
        batches.load_state_dict(loader(**saved).state_dict())
    assert batches.state_dict()["batch"] == 0


def test_a_state_is_of_all_ranks_unless_a_sampler_deals() -> None:
    """Ranks that share the dataset themselves take each other's states."""
    ranked = [loader(rank=rank, world_size=2) for rank in range(2)]
    ranked[1].load_state_dict(ranked[0].state_dict())


OF_A_SAMPLER = [("items", 5), ("sampler", None), ("sampler", [1])]
DAMAGED = [
    *(("batch", wrong) for wrong in (-1, 99)),
    ("epoch", "x"),
    *(("settings", wrong) for wrong in (None, {"seed": "x"})),
    ("version", 99),
    *OF_A_SAMPLER,
]


@pytest.mark.parametrize("damage", [*DAMAGED, None, {}, {"version": 1}], ids=str)
def test_damaged_state_is_refused(damage: Any) -> None:
    """A state with a damaged field, or none, is a ValueError, and the loader goes on as it was."""
    sampler = range(6) if damage in OF_A_SAMPLER else None
    with Loader(Images(count=6), 2, sampler=sampler, threads=1) as batches:
        next(iter(batches))
        before = batches.state_dict()
        state = {**before, damage[0]: damage[1]} if damage in DAMAGED else damage

        with pytest.raises(ValueError, match="state"):
            batches.load_state_dict(state)
        assert batches.state_dict() == before


@pytest.mark.parametrize("epoch", [-1, 1.0, True])
def test_wrong_epochs_are_refused(epoch: Any) -> None:
    """An epoch is an integer from 0."""
    with pytest.raises(ValueError, match="epoch"):
        loader().set_epoch(epoch)
