"""Assigning shards: every sample once; and reading a share from any position."""

from __future__ import annotations

from collections import Counter
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from shards import write_shards

from fastdecode.errors import StoreError
from fastdecode.torch.shards._assignment import (
    Consumer,
    ShardSlice,
    Share,
    assign_counted,
    assign_uncounted,
    rank_range,
    shuffled,
)

COUNTS = st.lists(st.integers(0, 30), min_size=1, max_size=9)
RANKS = st.integers(1, 7)
WORKERS = st.integers(1, 5)
ORDER = st.randoms(use_true_random=False)


def some_order(counts: list[int], draw: object) -> list[int]:
    order = list(range(len(counts)))
    draw.shuffle(order)
    return order


def consumers(ranks: int, workers: int) -> list[list[Consumer]]:
    return [[Consumer(r, ranks, w, workers) for w in range(workers)] for r in range(ranks)]


def samples(pieces: list[ShardSlice], counts: list[int]) -> list[tuple[int, int]]:
    """Return shard and position of each sample."""
    return [
        (piece.shard, at)
        for piece in pieces
        for at in range(piece.start, counts[piece.shard] if piece.stop is None else piece.stop)[
            :: piece.step
        ]
    ]


def shares_of(assign: Any, ranks: int, workers: int, counts: list[int]) -> list[list[Any]]:
    """Return the samples of each rank."""
    return [
        [one for each in rank for one in samples(assign(each), counts)]
        for rank in consumers(ranks, workers)
    ]


def every(counts: list[int]) -> list[tuple[int, int]]:
    return [(shard, at) for shard, count in enumerate(counts) for at in range(count)]


@given(COUNTS, ORDER, RANKS, WORKERS)
@settings(deadline=None)
def test_uncounted_shards_are_dealt_whole_or_shared(
    counts: list[int], draw: object, ranks: int, workers: int
) -> None:
    """Each sample goes to one consumer, which has whole shards or a part of one."""
    order = some_order(counts, draw)
    dealt = [assign_uncounted(order, each) for rank in consumers(ranks, workers) for each in rank]

    assert sorted(one for pieces in dealt for one in samples(pieces, counts)) == every(counts)
    lengths = [len(pieces) for pieces in dealt]
    assert max(lengths) - min(lengths) <= 1
    if len(counts) >= len(dealt):
        pieces = [piece for one in dealt for piece in one]
        assert pieces == [ShardSlice(piece.shard) for piece in pieces]
    else:
        assert set(lengths) == {1}


def test_no_rank_has_a_shard_too_much() -> None:
    """With uncounted shards of one length, no rank has a shard more than its share."""
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
        assert max(shares) < count * length / ranks + length, (ranks, workers, count)


@given(COUNTS, ORDER, RANKS, WORKERS)
@settings(deadline=None)
def test_counted_shards_are_dealt_by_stretches(
    counts: list[int], draw: object, ranks: int, workers: int
) -> None:
    """Each sample goes to one consumer, and ranks differ by one sample at most."""
    order = some_order(counts, draw)
    shares = shares_of(partial(assign_counted, order, counts), ranks, workers, counts)
    lengths = [len(share) for share in shares]

    assert sorted(one for share in shares for one in share) == every(counts)
    assert max(lengths) - min(lengths) <= 1


@given(counts=COUNTS, draw=ORDER, ranks=RANKS, workers=WORKERS)
@settings(deadline=None)
def test_even_shares_are_equal(counts: list[int], draw: object, ranks: int, workers: int) -> None:
    """All ranks have equally many samples, with as few missing as possible."""
    order = some_order(counts, draw)
    assign = partial(assign_counted, order, counts, even="drop")
    shares = shares_of(assign, ranks, workers, counts)
    given_out = [one for share in shares for one in share]

    assert len(set(given_out)) == len(given_out)
    assert {len(share) for share in shares} == {sum(counts) // ranks}
    assert set(given_out) <= set(every(counts))


@given(COUNTS, RANKS, WORKERS, st.sampled_from([None, "drop"]))
@settings(deadline=None)
def test_the_first_workers_have_more(
    counts: list[int], ranks: int, workers: int, even: str | None
) -> None:
    """Workers of a rank differ by at most one sample, in the order of the batches."""
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


def test_ranks_that_have_nothing() -> None:
    """With fewer samples than ranks, `even` leaves all of them out."""
    assert [rank_range(7, rank, 2, "drop") for rank in range(2)] == [(0, 3), (3, 6)]
    assert assign_counted([0], [2], Consumer(1, 5), "drop") == []
    assert assign_counted([0], [0], Consumer()) == []


# Reading a share

SIZES = [4, 7, 0, 5, 3]
WHOLE = [ShardSlice(shard) for shard in range(5)]


def share(paths: list[str], counts: dict[int, int], buffer: int = 1, pieces: Any = WHOLE) -> Share:
    return Share(paths, pieces, counts, buffer, 9, {})


def targets(entries: Any) -> list[int]:
    return [entry.sample.target for entry in entries]


def test_shards_are_read_one_after_another(tmp_path: Path) -> None:
    """Without a buffer samples keep their order; the lengths of shards become known."""
    paths, counts = write_shards(tmp_path, SIZES), {}
    entries = list(share(paths, counts).samples())

    assert targets(entries) == list(range(19))
    assert counts == dict(enumerate(SIZES))
    assert entries[4][:2] == (1, 0)


def test_pieces_are_parts_of_shards(tmp_path: Path) -> None:
    """A slice begins and ends inside a shard, or takes each second or third sample."""
    paths, counts = write_shards(tmp_path, SIZES), {1: 7}
    pieces = [ShardSlice(1, 2, 5), ShardSlice(3, 1, None, 2), ShardSlice(0, 2, None, 3)]

    assert targets(share(paths, counts, 1, pieces).samples()) == [6, 7, 8, 12, 14, 2]
    assert counts == {0: 4, 1: 7, 3: 5}


@pytest.mark.parametrize("size", [1, 2, 5, 100])
def test_a_buffer_loses_nothing(size: int) -> None:
    """With any buffer each item comes once, earlier by at most the size of the buffer."""
    given = list(shuffled(range(50), size, 3))

    assert sorted(given) == list(range(50))
    assert max(item - place for place, item in enumerate(given)) < size
    assert (given == list(range(50))) == (size == 1)
    assert given == list(shuffled(range(50), size, 3))
    assert size == 1 or given != list(shuffled(range(50), size, 4))


@pytest.mark.parametrize("buffer", [1, 2, 6, 100])
@pytest.mark.parametrize("known", ["all", "first", "none"])
def test_the_rest_is_the_same_from_any_place(tmp_path: Path, buffer: int, known: str) -> None:
    """Skipping n samples gives the rest of the share, whatever is known of the shards."""
    paths = write_shards(tmp_path, SIZES)
    told = {"all": dict(enumerate(SIZES)), "first": dict(enumerate(SIZES[:2])), "none": {}}[known]
    whole = targets(share(paths, {}, buffer).samples())

    for begin in range(21):
        assert targets(share(paths, dict(told), buffer).samples(begin)) == whole[begin:]


@pytest.mark.parametrize("buffer", [1, 3])
def test_shards_behind_are_not_read_again(tmp_path: Path, buffer: int) -> None:
    """With known lengths, a shard that is done need not even exist."""
    paths, counts = write_shards(tmp_path, [20, 20, 20]), {}
    whole = targets(share(paths, counts, buffer, WHOLE[:3]).samples())
    Path(paths[0]).unlink()

    assert targets(share(paths, counts, buffer, WHOLE[:3]).samples(38)) == whole[38:]
    with pytest.raises(FileNotFoundError):
        list(share(paths, {}, buffer, WHOLE[:3]).samples(38))


@pytest.mark.parametrize("told", [6, 8])
def test_a_wrong_count_is_an_error(tmp_path: Path, told: int) -> None:
    """A shard with more or fewer samples than counted is named."""
    paths = write_shards(tmp_path, SIZES)

    for piece in (ShardSlice(1), ShardSlice(1, 3, told), ShardSlice(1, 1, None, 2)):
        with pytest.raises(StoreError, match=rf"part-001\.tar.* {told} "):
            list(share(paths, {1: told}, 1, [piece]).samples())


def test_every_place_is_drawn_alike() -> None:
    """Over many seeds, all items of the buffer are equally often first."""
    first = Counter(next(shuffled(range(9), 4, seed)) for seed in range(4000))

    assert set(first) == {0, 1, 2, 3}
    assert min(first.values()) > 850
