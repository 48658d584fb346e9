"""`Loader` of iterable datasets, and of single samples: as torch's DataLoader, and resumed."""

from __future__ import annotations

import json
import random
import warnings
from collections.abc import Iterator
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from loading import PROCESS_WARNINGS, Images, Plain, generator_states, wait_until
from same import assert_same
from shards import write_shards
from torch.utils.data import DataLoader, IterableDataset, get_worker_info
from torch.utils.data.datapipes.iter import IterableWrapper

import fastdecode
from fastdecode.torch import DevicePrefetcher, Loader, ShardStream, fuse
from fastdecode.torch._loader.order import sample_seed
from fastdecode.torch._user_code import preserve_generators, seed_global_generators
from fastdecode.torch.transforms import RandomResizedCropFlipNormalize

pytestmark = pytest.mark.filterwarnings(*PROCESS_WARNINGS)

TRANSFORM = RandomResizedCropFlipNormalize(24)


class Numbers(IterableDataset[Any]):
    """Gives this worker's share of numbers, each with draws from all generators."""

    def __init__(self, count: int = 23) -> None:
        self.count = count
        self.first = 0

    def __iter__(self) -> Iterator[Any]:
        info = get_worker_info()
        at, step = (0, 1) if info is None else (info.id, info.num_workers)
        for number in range(self.first + at, self.count, step):
            yield self.sample(number)

    def sample(self, number: int) -> Any:
        draws = random.random(), torch.rand(2), np.random.rand(2)  # noqa: NPY002
        return {"number": number, "draws": draws, "name": f"{number}"}


class Sized(Numbers):
    """Says how many there are."""

    def __len__(self) -> int:
        return self.count


class Photos(Numbers):
    """Opens photos, whose pixels a `fuse` leaves for whoever gets the batch."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.folder = folder
        self.fused = fuse(TRANSFORM)

    def sample(self, number: int) -> Any:
        image = fastdecode.open(self.folder / f"{number}.jpg").convert("RGB")
        return self.fused(image), number, random.random()


class Seeded(IterableDataset[Any]):
    """What a `Loader` gives of a dataset, in torch's DataLoader."""

    def __init__(self, dataset: Any, seed: int, epoch: int = 0) -> None:
        self.dataset, self.seed = dataset, sample_seed(seed, epoch, "workers")

    def __iter__(self) -> Iterator[Any]:
        info = get_worker_info()
        seed_global_generators(self.seed + (0 if info is None else info.id))
        return iter(self.dataset)


def _expected(dataset: Any, *arguments: Any, epoch: int = 0, **options: Any) -> list[Any]:
    with preserve_generators():
        return [*DataLoader(Seeded(dataset, 7, epoch), *arguments, **options)]


@pytest.mark.parametrize("workers", [0, 1, 3])
@pytest.mark.parametrize(
    "how", [{}, {"drop_last": True}, {"batch_size": None}, {"collate_fn": list}], ids=str
)
def test_it_gives_what_dataloader_gives(folder: Path, workers: int, how: dict[str, Any]) -> None:
    """Bit for bit, epoch after epoch; the generators of the training stay as they are."""
    how = {"batch_size": 4, "num_workers": workers, **how}
    for dataset in (Numbers(), Photos(folder)):
        before = generator_states()
        keeps = [False, True] if workers else [False]
        for persistent in keeps:
            with Loader(dataset, seed=7, persistent_workers=persistent, **how) as loader:
                made = [[*loader], [*loader]]
                assert loader.epoch == 2
        after = generator_states()

        assert_same(after, before)
        assert_same(made, [_expected(dataset, epoch=epoch, **how) for epoch in range(2)])


@pytest.mark.parametrize("how", [{"threads": 0}, {"threads": 2}, {"workers": 2}], ids=str)
def test_single_samples_of_a_map_style_dataset(how: dict[str, Any]) -> None:
    """They are those of batches of one, and converted as by torch's DataLoader."""

    def sample(index: int) -> Any:
        return np.full(3, index), (index, f"{index}")

    for dataset in (Plain(sample), Images(), Images(damaged=(3,), on_error="skip")):
        single = Loader(dataset, None, shuffle=True, seed=1, collate_fn=None, **how)
        with single, Loader(dataset, 1, shuffle=True, seed=1, collate_fn=list, **how) as ones:
            made = [*single]
            convert = torch.utils.data.default_convert
            assert_same(made, [convert(batch[0]) for batch in ones])
            assert (len(single), single.batch_size, single.batch_sampler) == (23, None, None)
    with Loader(Plain(sample), None, collate_fn=lambda one: one[1][1], **how) as loader:
        assert [*loader] == [f"{index}" for index in range(23)]
    lists = [[0, 1], [2]]
    with Loader(Plain(add_all), None, sampler=lists, **how) as loader:
        assert [*loader] == [1, 2]


def add_all(indices: list[int]) -> int:
    return sum(indices)


class Counting(Numbers):
    """Says where it is, itself or by its iterator."""

    at = 0

    def __init__(self, by_iterator: bool = False) -> None:
        super().__init__()
        self.by_iterator = by_iterator

    def __iter__(self) -> Any:
        info = get_worker_info()
        share = (0, 1) if info is None else (info.id, info.num_workers)
        if self.by_iterator:
            return Place(self, *share)
        return self.samples(*share)

    def samples(self, first: int, step: int) -> Iterator[Any]:
        while first + self.at * step < self.count:
            self.at += 1
            yield self.sample(first + (self.at - 1) * step)
        self.at = 0


class OfDataset(Counting):
    def state_dict(self) -> dict[str, int]:
        return {"at": self.at}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.at = state["at"]


class Own(Counting):
    """Is its own iterator, whose state fits only after it has begun."""

    def __iter__(self) -> Own:
        info = get_worker_info()
        self.place = Place(self, *((0, 1) if info is None else (info.id, info.num_workers)))
        return self

    def __next__(self) -> Any:
        return next(self.place)

    def state_dict(self) -> dict[str, int]:
        return self.place.state_dict()

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.place.load_state_dict(state)


class Place:
    """An iterator that says where it is."""

    def __init__(self, dataset: Numbers, first: int, step: int) -> None:
        self.dataset, self.next, self.step = dataset, first, step

    def __iter__(self) -> Place:
        return self

    def __next__(self) -> Any:
        if self.next >= self.dataset.count:
            raise StopIteration
        self.next += self.step
        return self.dataset.sample(self.next - self.step)

    def state_dict(self) -> dict[str, int]:
        return {"next": self.next}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.next = state["next"]


def _shards(folder: Path) -> ShardStream:
    return ShardStream(str(folder / "part-{000..002}.tar"), TRANSFORM, shuffle=True, seed=3)


@pytest.mark.parametrize("workers", [0, 3])
@pytest.mark.parametrize("kind", [OfDataset, Own, partial(Counting, by_iterator=True), _shards])
def test_what_is_left_is_what_was_left(workers: int, kind: Any, tmp_path: Path) -> None:
    """A state after any number of batches, as JSON, gives the others; the next epoch is whole."""
    if kind is _shards:
        write_shards(tmp_path, [9, 3, 11])
    make = partial(kind, tmp_path) if kind is _shards else kind
    how: dict[str, Any] = {"num_workers": workers, "persistent_workers": workers > 0}
    for given in (0, 1, 2, 5, 8):
        with Loader(make(), 3, **how) as loader:
            loader.set_epoch(2)
            batches = iter(loader)
            [*islice(batches, given)]
            state = json.loads(json.dumps(loader.state_dict()))
            rest, following = [*batches], [*loader]

        with Loader(make(), 3, **how) as again:
            again.load_state_dict(state)
            assert again.state_dict() == state
            assert_same([[*again], [*again]], [rest, following], f"after {given}")


class Live(Numbers):
    """Gives its own dictionary as its state, and goes on changing it."""

    def __init__(self) -> None:
        super().__init__()
        self.place = {"at": 0}

    def __iter__(self) -> Iterator[Any]:
        while self.place["at"] < self.count:
            self.place["at"] += 1
            yield self.sample(self.place["at"] - 1)

    def state_dict(self) -> dict[str, int]:
        return self.place

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.place.update(state)


def test_a_state_is_that_of_its_batch() -> None:
    """Although the thread of a prefetcher has read on."""
    dataset = Live()
    with DevicePrefetcher(Loader(dataset, 2), "meta") as prefetcher:
        next(iter(prefetcher))
        wait_until(lambda: dataset.place["at"] > 2)
        (process,) = prefetcher.state_dict()["sampler"]["processes"]
        assert process["dataset"] == {"at": 2}


@pytest.mark.parametrize("workers", [0, 2])
def test_a_dataset_without_a_state_is_saved_between_epochs(workers: int) -> None:
    """In the middle of one, the error says what it needs."""
    with Loader(Numbers(), 4, seed=7, num_workers=workers) as loader:
        batches = iter(loader)
        next(batches)
        with pytest.raises(RuntimeError, match="Numbers"):
            loader.state_dict()
        list(batches)
        state = loader.state_dict()
    with Loader(Numbers(), 4, num_workers=workers) as again:
        again.load_state_dict(state)
        assert_same([*again], _expected(Numbers(), 4, num_workers=workers, epoch=1))


@pytest.mark.parametrize("workers", [0, 2])
def test_shards_are_shuffled_anew_in_each_epoch(workers: int, tmp_path: Path) -> None:
    """A `Loader` tells a dataset its epochs, unless the training loop does."""
    write_shards(tmp_path, [9, 3, 11])
    how: dict[str, Any] = {"num_workers": workers, "persistent_workers": workers > 0}
    with Loader(_shards(tmp_path), 4, **how) as loader, warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)
        made = [[*loader] for _ in range(3)]
    stream, expected = _shards(tmp_path), []
    for epoch in (0, 1, 2):
        stream.set_epoch(epoch)
        expected.append([*DataLoader(stream, 4, num_workers=workers)])
    with Loader(stream, 4, **how) as loader:
        stream.set_epoch(1)
        assert_same([*loader], expected[1])
        assert loader.state_dict()["epoch"] == 2

    assert_same(made, expected)


@pytest.mark.filterwarnings("ignore:.*WebDataset:UserWarning")
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # webdataset's
@pytest.mark.parametrize("workers", [0, 2])
def test_webdataset(workers: int, tmp_path: Path) -> None:
    """Its pipelines, which split shards among workers and make batches themselves."""
    webdataset = pytest.importorskip("webdataset")
    write_shards(tmp_path, [9, 3, 11])
    urls = [str(path) for path in sorted(tmp_path.glob("*.tar"))]

    def pipeline() -> Any:
        found = webdataset.WebDataset(urls, shardshuffle=3, seed=1)
        return (
            found.shuffle(4, rng=random.Random(1))
            .to_tuple("jpg", "cls")
            .map_tuple(_recorded, int)
            .batched(4)
        )

    with Loader(pipeline(), None, num_workers=workers, seed=7) as loader:
        made = [*loader]

    assert sorted(target for _, targets in made for target in targets) == [*range(23)]
    assert_same(made, _expected(pipeline(), None, num_workers=workers))


def _recorded(data: bytes) -> Any:
    return fuse(TRANSFORM)(fastdecode.open(data))


class Whole(Sized):
    """Gives all numbers in each worker."""

    def __iter__(self) -> Iterator[Any]:
        return iter(range(self.count))


def test_length() -> None:
    """It is DataLoader's; more batches than that are warned of once."""
    for how in ({}, {"drop_last": True}, {"batch_size": None}):
        options = {"batch_size": 4, **how}
        assert len(Loader(Sized(), **options)) == len(DataLoader(Sized(), **options))
    with pytest.raises(TypeError, match="Numbers"):
        len(Loader(Numbers()))
    assert "Numbers of ?, batch_size=1, ? batches" in repr(Loader(Numbers()))
    with Loader(Whole(), 4, num_workers=2) as loader:
        assert len(list(iter(loader))) == 12
        with pytest.warns(UserWarning, match="Whole") as told:
            assert len(list(loader)) == 12  # `list` asks for the length
    # Newer Pythons also warn of forking a process with threads.
    assert sum("Length of IterableDataset" in str(one.message) for one in told) == 1


@pytest.mark.parametrize(
    "how",
    [
        {"shuffle": True},
        {"sampler": [1]},
        {"batch_sampler": [[1]]},
        {"rank": 0, "world_size": 2},
        {"threads": 2},
        {"drop_last": True, "batch_size": None},
        {"normalize_on": "device", "batch_size": None},
        {"normalize_on": "device", "device": "meta"},
    ],
    ids=str,
)
def test_what_has_no_meaning_is_refused(how: dict[str, Any]) -> None:
    """The error names the argument."""
    with pytest.raises(ValueError, match=next(iter(how))):
        Loader(Numbers(), **how)


def test_what_is_no_dataset_of_its_own_is_refused() -> None:
    """A DataPipe relies on DataLoader to share it among workers; an iterator begins only once."""
    for one in (IterableWrapper(range(3)), iter([1])):
        with pytest.raises(TypeError):
            Loader(one)
