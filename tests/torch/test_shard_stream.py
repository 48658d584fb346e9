"""`ShardStream`: samples of tar shards in any number of processes, each once; damage."""

from __future__ import annotations

import json
import sys
import tarfile
import warnings
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
import torch
from cases import examples
from hypothesis import example, given, settings
from hypothesis import strategies as st
from loading import COUNT, PROCESS_WARNINGS, encoded
from random_transforms import WITHOUT_SHRINKING
from same import assert_same
from shards import add, numbers, write_shards
from torch.utils.data import DataLoader
from torch.utils.data._utils.worker import WorkerInfo

from fastdecode import DecodeError
from fastdecode.errors import StoreError
from fastdecode.torch import ShardStream
from fastdecode.torch.transforms import RandomResizedCropFlipNormalize, ResizeCenterCropNormalize

SIZES = [5, 11, 0, 9, 4]
TOTAL = sum(SIZES)
PATTERN = "part-{000..004}.tar"
SMALL = ResizeCenterCropNormalize(32, 24)
pytestmark = pytest.mark.filterwarnings(*PROCESS_WARNINGS, "ignore:this ShardStream gives epoch")


@pytest.fixture(scope="module")
def shards(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write 29 samples in five shards, one of them empty."""
    folder = tmp_path_factory.mktemp("shards")
    write_shards(folder, SIZES)
    return folder


def stream(folder: Path, transform: Any = None, **options: Any) -> ShardStream:
    return ShardStream(str(folder / PATTERN), transform or SMALL, **{"seed": 0, **options})


def test_samples_are_those_of_the_shards_in_order(shards: Path) -> None:
    """Without shuffling, samples come shard by shard, decoded as by any dataset."""
    samples = list(stream(shards))

    assert numbers(samples) == list(range(TOTAL))
    for image, number in samples:
        assert_same(image, SMALL(encoded()[number % COUNT]), int(number))


@contextmanager
def in_worker(number: int, count: int) -> Iterator[None]:
    """Be a worker process of a DataLoader; with a count of 0, be none."""
    info = {"id": number, "num_workers": count, "seed": 7 + number, "dataset": None}
    with pytest.MonkeyPatch.context() as patch:
        name = "torch.utils.data._utils.worker._worker_info"
        patch.setattr(name, WorkerInfo(**info) if count else None)
        yield


@given(
    st.lists(st.integers(0, 9), min_size=1, max_size=6),
    st.tuples(st.integers(1, 4), st.integers(0, 3)),
    st.sampled_from(["uncounted", "counted", "drop"]),
    st.integers(1, 9),
    st.booleans(),
    st.integers(0, 30),
    st.integers(0, 99),
)
@example([5], (2, 0), "counted", 1, False, 0, 0)  # which does not divide
@settings(WITHOUT_SHRINKING, max_examples=examples(200))
def test_each_sample_goes_to_one_worker_of_one_rank(
    sizes: list[int],
    processes: tuple[int, int],
    how: str,
    buffer: int,
    shuffle: bool,
    begin: int,
    seed: int,
) -> None:
    """Of counted shards, shares differ by one sample; the rest is the same from any place."""
    ranks, workers = processes
    options: dict[str, Any] = {"shuffle": shuffle, "buffer": buffer, "seed": seed, "threads": 1}
    options |= {"counted": {"counts": sizes}, "drop": {"even": "drop"}}.get(how, {})
    shares: list[list[list[int]]] = []
    with TemporaryDirectory() as folder:
        paths = write_shards(Path(folder), sizes)
        for rank in range(ranks):
            each = ShardStream(paths, SMALL, rank=rank, world_size=ranks, **options)
            shares.append([])
            for worker in range(max(1, workers)):
                with in_worker(worker, workers):
                    shares[-1].append(numbers(each))
                    samples = iter(each)
                    before = numbers(islice(samples, begin))
                    each.load_state_dict(json.loads(json.dumps(each.state_dict())))
                    assert before + numbers(each) == shares[-1][-1]
            assert how == "uncounted" or len(each) == sum(map(len, shares[-1]))
    total, given_out = sum(sizes), [one for rank in shares for share in rank for one in share]
    lengths = [[len(share) for share in rank] for rank in shares]
    of_ranks = [sum(rank) for rank in lengths]

    assert len(set(given_out)) == len(given_out)
    assert set(given_out) <= set(range(total))
    assert len(given_out) == (total // ranks * ranks if how == "drop" else total)
    if how != "uncounted":
        assert max(of_ranks) - min(of_ranks) <= (how == "counted")
        assert lengths == [sorted(rank, reverse=True) for rank in lengths]
        assert max(rank[0] - rank[-1] for rank in lengths) <= 1
    elif len({*sizes}) == 1 and total:  # no rank has a shard too much
        assert max(of_ranks) < total / ranks + sizes[0]
    if not shuffle:
        assert [share == sorted(share) for rank in shares for share in rank].count(False) == 0


def test_every_place_of_the_buffer_is_drawn_alike(tmp_path: Path) -> None:
    """Over many seeds, each of its items is equally often the first."""
    (path,) = write_shards(tmp_path, [9])
    how: dict[str, Any] = {"shuffle": True, "buffer": 4, "threads": 1, "target_transform": None}
    streams = [ShardStream(path, SMALL, seed=seed, **how) for seed in range(600)]
    first = Counter(next(iter(each))[1] for each in streams)

    assert set(first) == {0, 1, 2, 3}
    assert min(first.values()) > 105


def test_order_and_draws_follow_from_seed_and_epoch(shards: Path) -> None:
    """Each epoch has its own order and crops, and repeats them when it is repeated."""
    crop = RandomResizedCropFlipNormalize(24)
    shuffled = stream(shards, crop, shuffle=True, buffer=6, seed=1)
    epochs = []
    for epoch in (0, 1, 0):
        shuffled.set_epoch(epoch)
        epochs.append(list(shuffled))
    other = list(stream(shards, crop, shuffle=True, buffer=6, seed=2))

    assert shuffled.epoch == 0
    assert_same(epochs[0], epochs[2])
    assert numbers(epochs[0]) != numbers(epochs[1]) != list(range(TOTAL))
    assert sorted(numbers(epochs[1])) == sorted(numbers(other)) == list(range(TOTAL))
    assert numbers(other) != numbers(epochs[0])
    images = [{number: image for image, number in epoch} for epoch in epochs]
    assert not torch.equal(images[0][7], images[1][7])


def test_draws_do_not_depend_on_who_makes_a_sample(shards: Path) -> None:
    """A sample's crop does not depend on ranks, workers and threads."""
    crop = RandomResizedCropFlipNormalize(24)
    alone = {number: image for image, number in stream(shards, crop, threads=3)}
    others = [
        stream(shards, crop, shuffle=True, rank=1, world_size=3, threads=1),
        DataLoader(stream(shards, crop, even="drop"), None, num_workers=2),
    ]

    for samples in others:
        for image, number in samples:
            assert_same(image, alone[int(number)], int(number))
    generator = torch.get_rng_state()
    list(stream(shards, crop))
    assert_same(generator, torch.get_rng_state())


def test_without_shared_memory_it_says_so(shards: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An error names /dev/shm, in which the epoch would be shared with worker processes."""

    def refused(_: object) -> None:
        raise RuntimeError("unable to open shared memory object </torch_1>")

    monkeypatch.setattr("torch.Tensor.share_memory_", refused)
    with pytest.raises(OSError, match="/dev/shm"):
        ShardStream(shards / PATTERN)


def test_samples_without_targets_are_images(tmp_path: Path) -> None:
    """The caller says that there are no targets."""
    write_shards(tmp_path, SIZES, targets=False)
    alone = stream(tmp_path, has_targets=False)

    assert next(iter(stream(tmp_path)))[1] is None
    assert next(iter(alone)).shape == (3, 24, 24)
    assert next(iter(DataLoader(alone, 4))).shape == (4, 3, 24, 24)


def test_shards_on_a_server_are_streamed(tmp_path: Path) -> None:
    """Remote shards need no index to be read or counted; an index makes counting faster."""
    fsspec = pytest.importorskip("fsspec")
    server = fsspec.filesystem("memory")
    for path in map(Path, write_shards(tmp_path, SIZES)):
        server.pipe(f"/stream/{path.name}", path.read_bytes())

    remote = ShardStream(f"memory://stream/{PATTERN}", SMALL, even="drop")

    assert remote.counts == SIZES
    assert numbers(remote) == list(range(TOTAL))


def test_a_manifest_says_how_many_there_are(tmp_path: Path) -> None:
    """A manifest names and counts the shards; they are opened when they are read."""
    write_shards(tmp_path, SIZES)
    names = [f"part-{number:03}.tar" for number in range(5)]
    files = [{"name": name, "items": count} for name, count in zip(names, SIZES, strict=True)]
    manifest = {"kind": "tar", "shards": names, "classes": [], "files": files}
    (tmp_path / "part.tar.json").write_text(json.dumps(manifest))
    for name in names:
        (tmp_path / f"{name}.fdx").write_text("damaged, but nobody reads it")

    for name in ("part.tar", "part.tar.json"):
        packed = ShardStream(tmp_path / name, SMALL, even="drop")

        assert packed.counts == SIZES
        assert numbers(packed) == list(range(TOTAL))


# What it finds out about its shards is the same for all readers


def half_labelled(path: Path) -> Path:
    with tarfile.open(path, "w") as tar:
        for number in range(4):
            add(tar, f"{number}.jpg", encoded()[0])
            if number % 2:
                add(tar, f"{number}.cls", b"%d" % number)
    return path


def test_one_sample_without_a_target_does_not_drop_those_of_others(tmp_path: Path) -> None:
    """Every rank and worker returns pairs, wherever its share begins."""
    path = half_labelled(tmp_path / "a.tar")
    for rank in range(2):
        stream = ShardStream(path, SMALL, rank=rank, world_size=2)

        assert {type(sample) for sample in stream} == {tuple}
    assert [target for _, target in ShardStream(path, SMALL)] == [None, 1, None, 3]
    alone = ShardStream(path, SMALL, has_targets=False)
    assert {type(sample) for sample in alone} == {torch.Tensor}


# Damage


def take_all(samples: Any, given: list[int]) -> None:
    """Append the targets to a list, which also has them after an error."""
    for _, target in samples:
        given.append(target)


def test_damaged_images_are_treated_as_everywhere(tmp_path: Path) -> None:
    """Damaged images are raised, skipped or replaced."""
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


def test_where_all_are_damaged_nothing_can_replace_one(tmp_path: Path) -> None:
    """If all images are damaged, the error names those that were tried."""
    write_shards(tmp_path, [3, 0, 0, 0, 0], damaged=range(3))

    with pytest.raises(DecodeError, match=r"00000.jpg.*00001"):
        list(stream(tmp_path, on_error="replace"))


@pytest.mark.parametrize("on_error", ["raise", "skip", "replace"])
def test_a_damaged_shard_is_an_error(tmp_path: Path, on_error: Any) -> None:
    """Samples before the damage come; then the error names the shard and the last member."""
    path = Path(write_shards(tmp_path, SIZES)[1])
    path.write_bytes(path.read_bytes()[: 10 * 1024])
    given: list[int] = []

    with pytest.raises(StoreError, match=r"part-001\.tar.*0000\d\.jpg"):
        take_all(stream(tmp_path, on_error=on_error), given)
    assert len(given) > 5
    assert given == list(range(len(given)))


@pytest.mark.parametrize("count", [10, 12])
def test_a_shard_that_was_replaced_is_an_error(tmp_path: Path, count: int) -> None:
    """A shard with another number of samples than counted is an error."""
    write_shards(tmp_path, SIZES)
    counted = stream(tmp_path, even="drop")
    write_shards(tmp_path, [5, count])

    with pytest.raises(StoreError, match=r"part-001\.tar.* 11 "):
        list(counted)


def test_labels_that_come_later_are_an_error(tmp_path: Path) -> None:
    """No sample is given without its target: the error comes before those read with it."""
    image = encoded()[0]
    with tarfile.open(tmp_path / "t.tar", "w") as tar:
        for name, data in (("0.jpg", image), ("1.jpg", image), ("0.cls", b"3"), ("1.cls", b"4")):
            add(tar, name, data)

    with pytest.raises(StoreError, match=r"t\.tar"):
        next(iter(ShardStream(str(tmp_path / "t.tar"), SMALL)))


@pytest.mark.parametrize("workers", [0, 2])
def test_an_epoch_that_is_given_again_is_told(
    shards: Path, workers: int, capfd: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever never calls `set_epoch` is warned, unless nothing is drawn."""
    show = lambda message, *_: sys.stderr.write(f"{message}\n")  # noqa: E731
    warnings.simplefilter("always")
    monkeypatch.setattr(warnings, "showwarning", show)
    random = RandomResizedCropFlipNormalize(24)
    for transform, shuffle in ((random, False), (SMALL, True), (SMALL, False)):
        dataset = stream(shards, transform, shuffle=shuffle)
        loader = DataLoader(dataset, 8, num_workers=workers)
        for epoch in range(2):
            dataset.set_epoch(epoch)
            list(loader)
        assert "set_epoch" not in capfd.readouterr().err
        list(loader)
        assert ("set_epoch" in capfd.readouterr().err) == (shuffle or transform is random)
