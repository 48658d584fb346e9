"""`ShardStream` over damaged pictures and damaged shards."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from fastdecode import DecodeError
from fastdecode.errors import StoreError

torch = pytest.importorskip("torch")

from shards import numbers, write_shards  # noqa: E402

from fastdecode.torch import ShardStream  # noqa: E402
from fastdecode.torch.transforms import ResizeCenterCropNormalize  # noqa: E402

SIZES = [5, 11, 0, 9, 4]
TOTAL = sum(SIZES)
PATTERN = "part-{000..004}.tar"


@pytest.fixture
def shards(tmp_path: Path) -> Path:
    """Write 29 samples in five shards, one of them empty."""
    write_shards(tmp_path, SIZES)
    return tmp_path


def stream(folder: Path, **options: Any) -> ShardStream:
    return ShardStream(str(folder / PATTERN), ResizeCenterCropNormalize(32, 24), **options)


def take_all(samples: Any, given: list[int]) -> None:
    """Put the targets into a list, which has them also when an error comes."""
    for _, target in samples:
        given.append(target)


def test_damaged_pictures_are_treated_as_everywhere(tmp_path: Path) -> None:
    """They are raised, left out, replaced by the same one each time, or the caller's business."""
    write_shards(tmp_path, SIZES, damaged=(7, 18))
    place = f"{tmp_path / 'part-001.tar'}, 00007.jpg"

    raising = stream(tmp_path)
    samples = iter(raising)
    assert [next(samples)[1] for _ in range(7)] == list(range(7))
    with pytest.raises(DecodeError) as caught:
        next(samples)
    assert str(caught.value).startswith(f"{place} (item 2): ")

    skipping = stream(tmp_path, on_error="skip")
    rest = [number for number in range(TOTAL) if number not in (7, 18)]
    assert numbers(skipping) == numbers(skipping) == rest
    assert [failure[:2] for failure in skipping.errors] == [
        (2, place),
        (2, f"{tmp_path / 'part-003.tar'}, 00018.jpg"),
    ]

    replacing = stream(tmp_path, on_error="replace")
    first = numbers(replacing)
    assert len(first) == TOTAL
    assert [number for place, number in enumerate(first) if place not in (7, 18)] == rest
    assert set(first) == set(rest)
    assert first == numbers(replacing)

    asked: list[Any] = []
    calling = stream(tmp_path, on_error=lambda at, error: asked.append((at, type(error))))
    assert numbers(calling) == rest
    assert asked == [(2, DecodeError), (2, DecodeError)]


def test_where_all_are_damaged_nothing_can_replace_one(tmp_path: Path) -> None:
    """The error names those that were tried."""
    write_shards(tmp_path, [3, 0, 0, 0, 0], damaged=range(3))

    with pytest.raises(DecodeError, match=r"nothing can replace .*00000.jpg: 3 samples .*00001"):
        list(stream(tmp_path, on_error="replace"))


@pytest.mark.parametrize("on_error", ["raise", "skip", "replace"])
def test_a_damaged_shard_is_an_error(shards: Path, on_error: Any) -> None:
    """What is before the damage comes; then the error names the shard and the last member."""
    path = shards / "part-001.tar"
    path.write_bytes(path.read_bytes()[: 10 * 1024])
    given: list[int] = []

    with pytest.raises(StoreError, match=r"part-001\.tar.*0000\d\.jpg"):
        take_all(stream(shards, on_error=on_error), given)
    assert len(given) > 5
    assert given == list(range(len(given)))


def test_a_shard_that_was_replaced_is_an_error(shards: Path) -> None:
    """More samples than were counted would be lost, or equal shares not be equal."""
    counted = stream(shards, even="drop")
    write_shards(shards, [5, 12])

    with pytest.raises(StoreError, match=r"part-001\.tar: it holds more than the 11 samples"):
        list(counted)
