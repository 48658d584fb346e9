"""Order and sharding: every item once, for any number of ranks."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from loading import Images, indices
from loading import SeededLoader as Loader

from fastdecode.torch._order import Sharding, sample_seed


def shares(sharding: Sharding, ranks: int, epoch: int = 0) -> list[list[list[int]]]:
    """Return the batches of each rank."""
    of = [replace(sharding, rank=rank, ranks=ranks) for rank in range(ranks)]
    orders = [each.order(epoch) for each in of]
    return [
        [[item.index for item in order.batch(number)] for number in range(order.count)]
        for order in orders
    ]


def items(batches: list[list[int]]) -> list[int]:
    return [item for batch in batches for item in batch]


@pytest.mark.parametrize("shuffle", [False, True])
@pytest.mark.parametrize("length", [0, 1, 3, 16, 23])
@pytest.mark.parametrize("ranks", [1, 2, 5])
def test_every_item_goes_to_one_rank(length: int, ranks: int, shuffle: bool) -> None:
    """Without drop_last every item comes once; ranks differ by one item at most."""
    dealt = shares(Sharding(length, 3, shuffle, False, 0), ranks)
    counts = [len(items(batches)) for batches in dealt]

    assert sorted(item for batches in dealt for item in items(batches)) == list(range(length))
    assert max(counts) - min(counts) <= 1
    for batches, count in zip(dealt, counts, strict=True):
        assert [len(batch) for batch in batches[:-1]] == [3] * (len(batches) - 1)
        assert len(batches) == -(-count // 3)


@pytest.mark.parametrize("length", [0, 7, 16, 23])
@pytest.mark.parametrize("ranks", [1, 2, 5])
def test_drop_last_gives_all_ranks_as_many_batches(length: int, ranks: int) -> None:
    """All batches are full, all ranks have equally many, and no item is repeated."""
    dealt = shares(Sharding(length, 3, True, True, 0), ranks)

    assert {len(batches) for batches in dealt} == {length // ranks // 3}
    assert {len(batch) for batches in dealt for batch in batches} <= {3}
    seen = [item for batches in dealt for item in items(batches)]
    assert len(set(seen)) == len(seen)


def test_shuffling_follows_from_seed_and_epoch() -> None:
    """Each epoch and each seed has its own permutation, the same in every process."""
    sharding = Sharding(50, 50, True, False, 1)
    other = Sharding(50, 50, True, False, 2)
    state = torch.get_rng_state()

    [[first]], [[second]] = (shares(sharding, 1, epoch) for epoch in (0, 1))

    assert first != second
    assert [[first]] == shares(sharding, 1)
    assert [[first]] != shares(other, 1)
    assert sorted(first) == list(range(50)) != first
    assert torch.equal(torch.get_rng_state(), state)


def test_seeds_of_samples_are_apart() -> None:
    """Neighbouring seeds, epochs and indices share no random numbers, and these never change."""
    seeds = {
        sample_seed(seed, epoch, index)
        for seed in range(5)
        for epoch in range(5)
        for index in range(50)
    }

    assert len(seeds) == 5 * 5 * 50
    assert all(0 <= seed < 2**63 for seed in seeds)
    assert sample_seed(0, 0, 0) == 3150921512212191848
    assert sample_seed(1, 2, "key") != sample_seed(1, 2, "other")


def test_items_that_come_again_draw_anew() -> None:
    """A sampler with replacement gives an item other random numbers each time."""
    order = Sharding(9, 4, False, False, 0).from_sampler(2, [5, 5, 7, 5])

    seeds = [item.seed for item in order.batch(0)]

    assert seeds == [sample_seed(0, 2, 5), sample_seed(0, 2, 5, 1), *seeds[2:]]
    assert len(set(seeds)) == 4
    assert seeds[2] == sample_seed(0, 2, 7)


def test_keys_need_not_be_numbers() -> None:
    """A sampler may give whatever the dataset is indexed with."""
    names = {"one": 1, "two": 2, "three": 3}
    with Loader(names, 2, sampler=["three", "one", "two"], threads=2) as loader:
        assert [batch.tolist() for batch in loader] == [[3, 1], [2]]


def test_length_with_a_sampler_is_the_samplers() -> None:
    """It follows from how many indices there are; a sampler that does not know has no length."""
    dataset = Images()

    assert len(Loader(dataset, 4, sampler=[1, 2, 3, 4, 5], threads=1)) == 2
    assert len(Loader(dataset, 4, sampler=[1, 2, 3, 4, 5], drop_last=True, threads=1)) == 1
    unsized = Loader(dataset, 4, sampler=iter([5, 3]), threads=1)
    with pytest.raises(TypeError, match=r"no len\(\)"):
        len(unsized)
    assert "Images of 23" in repr(unsized)
    assert indices(unsized) == [5, 3]


def test_repr_says_how_batches_are_made() -> None:
    """`repr` shows the dataset, the number of batches, and the threads or processes."""
    assert repr(Loader(Images(), 4, threads=3, seed=9)) == (
        "Loader(Images of 23, batch_size=4, 6 batches, 3 threads, seed=9, device='cpu')"
    )
    assert "2 processes" in repr(Loader(Images(), 4, workers=2))


@pytest.mark.parametrize("shuffle", [False, True])
def test_ranks_given_by_hand_share_the_dataset(shuffle: bool) -> None:
    """Loaders of three ranks give every item once per epoch, in as many batches as they say."""
    loaders = [Loader(Images(), 4, shuffle, rank=r, world_size=3, threads=1) for r in range(3)]

    for _ in range(2):
        batches = [list(loader) for loader in loaders]

        assert sorted(index for share in batches for index in indices(share)) == list(range(23))
        assert [len(loader) for loader in loaders] == [len(share) for share in batches]


def test_draws_do_not_depend_on_the_rank() -> None:
    """A sample is the same crop for any rank and number of ranks."""
    alone = {
        int(index): image
        for images, numbers in Loader(Images(), 4, threads=1)
        for image, index in zip(images, numbers, strict=True)
    }

    for images, numbers in Loader(Images(), 3, True, rank=1, world_size=2, threads=1):
        for image, index in zip(images, numbers, strict=True):
            assert torch.equal(image, alone[int(index)])
