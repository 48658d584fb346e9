"""Dealing shards: every sample once, for whatever number of shards, ranks and workers."""

from __future__ import annotations

from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

torch = pytest.importorskip("torch")  # which the package around the module imports

from fastdecode.torch.shards._assignment import (  # noqa: E402
    Consumer,
    ShardSlice,
    assign_counted,
    assign_uncounted,
    rank_range,
)

COUNTS = st.lists(st.integers(0, 30), min_size=1, max_size=9)
RANKS = st.integers(1, 7)
WORKERS = st.integers(1, 5)
ORDER = st.randoms(use_true_random=False)


def shuffled(counts: list[int], draw: object) -> list[int]:
    order = list(range(len(counts)))
    draw.shuffle(order)
    return order


def consumers(ranks: int, workers: int) -> list[list[Consumer]]:
    return [[Consumer(r, ranks, w, workers) for w in range(workers)] for r in range(ranks)]


def samples(pieces: list[ShardSlice], counts: list[int]) -> list[tuple[int, int, int]]:
    """List shard, position and time of each sample."""
    return [
        (piece.shard, at, piece.time)
        for piece in pieces
        for at in range(piece.start, counts[piece.shard] if piece.stop is None else piece.stop)[
            :: piece.step
        ]
    ]


def every(counts: list[int]) -> list[tuple[int, int, int]]:
    return [(shard, at, 0) for shard, count in enumerate(counts) for at in range(count)]


@given(COUNTS, ORDER, RANKS, WORKERS)
@settings(deadline=None)
def test_uncounted_shards_are_dealt_whole_or_shared(
    counts: list[int], draw: object, ranks: int, workers: int
) -> None:
    """Each sample goes to one consumer; all have as many whole shards, and at most one to share."""
    order = shuffled(counts, draw)
    dealt = [assign_uncounted(order, each) for rank in consumers(ranks, workers) for each in rank]

    assert sorted(one for pieces in dealt for one in samples(pieces, counts)) == every(counts)
    assert len({sum(piece.step == 1 for piece in pieces) for pieces in dealt}) <= 2
    assert {len(pieces) for pieces in dealt} == {-(-len(counts) // (ranks * workers))}


def test_no_rank_has_half_a_shard_too_much() -> None:
    """Of uncounted shards of one length, over ranks, workers and shards: which ranks share one."""
    length = 120
    for ranks, workers, count in product(range(1, 9), range(1, 6), range(1, 41)):
        shares = [
            sum(
                piece.count(length)
                for each in rank
                for piece in assign_uncounted(range(count), each)
            )
            for rank in consumers(ranks, workers)
        ]

        assert sum(shares) == count * length
        assert max(shares) < count * length / ranks + length / 2, (ranks, workers, count)


@given(COUNTS, ORDER, RANKS, WORKERS)
@settings(deadline=None)
def test_counted_shards_are_dealt_by_stretches(
    counts: list[int], draw: object, ranks: int, workers: int
) -> None:
    """Each sample goes to one consumer, and ranks differ by one sample at most."""
    order = shuffled(counts, draw)
    shares = [
        [one for each in rank for one in samples(assign_counted(order, counts, each), counts)]
        for rank in consumers(ranks, workers)
    ]
    lengths = [len(share) for share in shares]

    assert sorted(one for share in shares for one in share) == every(counts)
    assert max(lengths) - min(lengths) <= 1


@pytest.mark.parametrize("even", ["drop", "repeat"])
@given(counts=COUNTS, draw=ORDER, ranks=RANKS, workers=WORKERS)
@settings(deadline=None)
def test_even_shares_are_equal(
    even: str, counts: list[int], draw: object, ranks: int, workers: int
) -> None:
    """All ranks have as many samples; only as many are missing, or twice, as must be."""
    order = shuffled(counts, draw)
    total = sum(counts)
    shares = [
        [one for each in rank for one in samples(assign_counted(order, counts, each, even), counts)]
        for rank in consumers(ranks, workers)
    ]
    given_out = [one for share in shares for one in share]

    assert len(set(given_out)) == len(given_out)  # a second time is told apart
    if even == "drop":
        assert {len(share) for share in shares} == {total // ranks}
        assert set(given_out) <= set(every(counts))
    else:
        assert {len(share) for share in shares} == {-(-total // ranks)}
        assert set(every(counts)) <= set(given_out)


@given(COUNTS, RANKS, WORKERS, st.sampled_from([None, "drop", "repeat"]))
@settings(deadline=None)
def test_the_first_workers_have_more(
    counts: list[int], ranks: int, workers: int, even: str | None
) -> None:
    """Workers of a rank differ by one sample at most, and in the order in which batches come."""
    order = list(range(len(counts)))
    for rank in consumers(ranks, workers):
        lengths = [
            sum(
                piece.count(counts[piece.shard])
                for piece in assign_counted(order, counts, each, even)
            )
            for each in rank
        ]

        assert lengths == sorted(lengths, reverse=True)
        assert lengths[0] - lengths[-1] <= 1


def test_more_consumers_than_shards_share_them() -> None:
    """Three consumers of two shards: one reads the second alone, the others each second sample."""
    dealt = [assign_uncounted([0, 1], Consumer(rank, 3)) for rank in range(3)]

    assert dealt == [
        [ShardSlice(0, 0, None, 2)],
        [ShardSlice(1, 0, None, 1)],
        [ShardSlice(0, 1, None, 2)],
    ]


def test_a_few_samples_are_repeated_more_than_once() -> None:
    """With more ranks than samples some come again and again, and each time is counted."""
    shares = [assign_counted([0], [2], Consumer(rank, 5), "repeat") for rank in range(5)]

    assert [pieces[0] for pieces in shares] == [
        ShardSlice(0, 0, 1, 1, 0),
        ShardSlice(0, 1, 2, 1, 0),
        ShardSlice(0, 0, 1, 1, 1),
        ShardSlice(0, 1, 2, 1, 1),
        ShardSlice(0, 0, 1, 1, 2),
    ]
    assert [rank_range(7, rank, 2, "drop") for rank in range(2)] == [(0, 3), (3, 6)]
    assert rank_range(0, 1, 2, "repeat") == (0, 0)
    assert assign_counted([0], [0], Consumer(), "repeat") == []
