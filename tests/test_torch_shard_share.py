"""A consumer's share of shards: its order, and going on from anywhere in it."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from fastdecode.errors import StoreError

torch = pytest.importorskip("torch")

from shards import write_shards  # noqa: E402

from fastdecode.torch.shards._assignment import ShardSlice, Share, shuffled  # noqa: E402

SIZES = [4, 7, 0, 5, 3]
WHOLE = [ShardSlice(shard) for shard in range(5)]


def share(paths: list[str], counts: dict[int, int], buffer: int = 1, pieces: Any = WHOLE) -> Share:
    return Share(paths, pieces, counts, buffer, 9, {})


def targets(entries: Any) -> list[int]:
    return [entry.sample.target for entry in entries]


def test_shards_are_read_one_after_another(tmp_path: Path) -> None:
    """Without a buffer samples keep their order; how long each shard is, is known afterwards."""
    paths, counts = write_shards(tmp_path, SIZES), {}
    entries = list(share(paths, counts).samples())

    assert targets(entries) == list(range(19))
    assert counts == dict(enumerate(SIZES))
    assert entries[4][:3] == (1, 0, 0)


def test_pieces_are_parts_of_shards(tmp_path: Path) -> None:
    """A piece begins and ends in the middle, or takes each second or third sample."""
    paths, counts = write_shards(tmp_path, SIZES), {1: 7}
    pieces = [ShardSlice(1, 2, 5), ShardSlice(3, 1, None, 2), ShardSlice(0, 2, None, 3)]

    assert targets(share(paths, counts, 1, pieces).samples()) == [6, 7, 8, 12, 14, 2]
    assert counts == {0: 4, 1: 7, 3: 5}


@pytest.mark.parametrize("size", [1, 2, 5, 100])
def test_a_buffer_loses_nothing(size: int) -> None:
    """Whatever its size each item comes once, at most the buffer's size too early."""
    given = list(shuffled(range(50), size, 3))

    assert sorted(given) == list(range(50))
    assert all(item < place + size for place, item in enumerate(given))
    assert (given == list(range(50))) == (size == 1)
    assert given == list(shuffled(range(50), size, 3))
    assert size == 1 or given != list(shuffled(range(50), size, 4))


@pytest.mark.parametrize("buffer", [1, 2, 6, 100])
@pytest.mark.parametrize("known", ["all", "first", "none"])
def test_the_rest_is_the_same_from_any_place(tmp_path: Path, buffer: int, known: str) -> None:
    """Leaving out the first n gives what was behind them, whatever is known of the shards."""
    paths = write_shards(tmp_path, SIZES)
    told = {"all": dict(enumerate(SIZES)), "first": dict(enumerate(SIZES[:2])), "none": {}}[known]
    whole = targets(share(paths, {}, buffer).samples())

    for begin in range(21):
        assert targets(share(paths, dict(told), buffer).samples(begin)) == whole[begin:]


@pytest.mark.parametrize("buffer", [1, 3])
def test_shards_behind_are_not_read_again(tmp_path: Path, buffer: int) -> None:
    """Where lengths are known, a shard that nothing is left of need not even be there."""
    paths, counts = write_shards(tmp_path, [20, 20, 20]), {}
    whole = targets(share(paths, counts, buffer, WHOLE[:3]).samples())
    Path(paths[0]).unlink()

    assert targets(share(paths, counts, buffer, WHOLE[:3]).samples(38)) == whole[38:]
    with pytest.raises(FileNotFoundError):
        list(share(paths, {}, buffer, WHOLE[:3]).samples(38))


@pytest.mark.parametrize(("told", "found"), [(6, "more than the 6"), (8, "7, not the 8")])
def test_a_wrong_count_is_an_error(tmp_path: Path, told: int, found: str) -> None:
    """A shard with more samples than were counted, or fewer, is named."""
    paths = write_shards(tmp_path, SIZES)

    for piece in (ShardSlice(1), ShardSlice(1, 3, told), ShardSlice(1, 1, None, 2)):
        with pytest.raises(StoreError, match=rf"part-001\.tar: it holds {found} samples"):
            list(share(paths, {1: told}, 1, [piece]).samples())


def test_every_place_is_drawn_alike() -> None:
    """Over many seeds the first sample is any of those in the buffer, equally often."""
    first = Counter(next(shuffled(range(9), 4, seed)) for seed in range(4000))

    assert set(first) == {0, 1, 2, 3}
    assert min(first.values()) > 850
