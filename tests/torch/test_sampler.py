"""Samplers of the caller's: drawn as DataLoader does, resumed exactly, and apart on each rank."""

from __future__ import annotations

import copy
import gc
import itertools
import json
import random
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch
from loading import COUNT, PROCESS_WARNINGS, Images, Plain, copies, threaded
from loading import SeededLoader as Loader
from same import assert_same
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    DistributedSampler,
    RandomSampler,
    Sampler,
    SubsetRandomSampler,
    WeightedRandomSampler,
)

from fastdecode.torch._loader.order import DrawnBatch

pytestmark = [pytest.mark.filterwarnings(warning) for warning in PROCESS_WARNINGS]

SIZE = 4
NUMBERS = Plain(int)

# Ways to make batches, and DataLoader's options for the same distance between draws and batches.
WAYS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "in the caller's thread": ({"threads": 0}, {"num_workers": 0}),
    "threads": ({"threads": 2, "prefetch": 3}, {"num_workers": 1, "prefetch_factor": 3}),
    "processes": ({"workers": 2, "prefetch": 1}, {"num_workers": 2, "prefetch_factor": 1}),
}
EACH_WAY = pytest.mark.parametrize("way", WAYS)


class Given(Sampler[Any]):
    """A sampler that gives what a function yields, each time it is asked."""

    def __init__(self, give: Callable[[], Iterator[Any]]) -> None:
        self.give = give

    def __iter__(self) -> Iterator[Any]:
        return self.give()


class Adaptive(Sampler[Any]):
    """Gives items, or batches of them, by what the training has told; counts those it gave."""

    def __init__(self, batches: bool, count: int) -> None:
        self.batches = batches
        self.count = count
        self.given = self.told = 0

    def __iter__(self) -> Iterator[Any]:
        for _ in range(self.count):
            self.given += 1
            item = (self.told * 5 + self.given) % COUNT
            yield [item, self.told] if self.batches else item


def train(loader: Any, sampler: Adaptive, save: bool = False) -> list[Any]:
    """Tell the sampler of each batch; return the batches, and how many items it had given then."""
    seen = []
    for batch in loader:
        seen.append((batch.tolist(), sampler.given))
        sampler.told += 1
        if save:
            loader.state_dict()
    return seen


@EACH_WAY
@pytest.mark.parametrize("batches", [False, True])
@pytest.mark.parametrize("count", [40, 38, 3, 0])
def test_an_adaptive_sampler_is_drawn_as_by_dataloader(way: str, batches: bool, count: int) -> None:
    """It gives the same items, as far ahead of the training, also if states are saved."""
    ours, theirs = WAYS[way]

    def how(sampler: Any) -> dict[str, Any]:
        return {"batch_sampler": sampler} if batches else {"batch_size": SIZE, "sampler": sampler}

    sampler = Adaptive(batches, count)
    expected = train(DataLoader(NUMBERS, **how(sampler), **theirs), sampler)
    for save in (False, True):
        sampler = Adaptive(batches, count)
        with Loader(NUMBERS, **how(sampler), **ours) as loader:
            assert train(loader, sampler, save) == expected


def endless() -> Iterator[int]:
    for k in itertools.count():
        yield 7 * k % COUNT


@EACH_WAY
@pytest.mark.parametrize("batches", [False, True])
def test_an_endless_sampler(way: str, batches: bool) -> None:
    """It gives batches, has no length, and what was handed out is not kept."""
    drawn = lambda: sum(type(one) is DrawnBatch for one in gc.get_objects())  # noqa: E731
    before = drawn()
    sampler: Any = Given(endless)
    how: dict[str, Any] = {"batch_size": SIZE, "sampler": sampler}
    if batches:
        how = {"batch_sampler": Given(lambda: iter(lambda: [1, 2], None))}
    with Loader(NUMBERS, **how, **WAYS[way][0]) as loader:
        with pytest.raises(TypeError):
            len(loader)
        some = [batch.tolist() for batch in itertools.islice(loader, 40)]
        gc.collect()
        kept = drawn() - before
    found = [index for batch in some for index in batch]

    assert found == ([1, 2] * 40 if batches else list(itertools.islice(endless(), 160)))
    assert kept < 20


def failing() -> Iterator[int]:
    yield from range(3 * SIZE)
    raise LookupError("the sampler's own")


@EACH_WAY
@pytest.mark.parametrize("wrap", [lambda loader: loader, threaded])
def test_an_error_of_a_sampler_comes_in_its_place(way: str, wrap: Any) -> None:
    """The batches that were drawn before it come first; the state stays where it was."""
    with Loader(NUMBERS, SIZE, sampler=Given(failing), **WAYS[way][0]) as loader:
        batches = iter(wrap(loader))
        assert [next(batches)[0].item() for _ in range(3)] == [0, 4, 8]
        with pytest.raises(LookupError):
            next(batches)
        with pytest.raises(StopIteration):
            next(batches)
        assert (loader.epoch, loader.state_dict()["batch"]) == (0, 3)


# Resuming


class Own(Sampler[int]):
    """Draws from a generator of its own, which goes on from epoch to epoch."""

    def __init__(self, generator: Any) -> None:
        self.generator = generator

    def __iter__(self) -> Iterator[int]:
        for _ in range(2 * COUNT):
            if isinstance(self.generator, random.Random):
                yield self.generator.randrange(COUNT)
            else:
                yield int(self.generator.integers(COUNT))


class Stateful(Sampler[int]):
    """Resumes by itself, as samplers of torchdata; each training step changes what comes."""

    def __init__(self) -> None:
        self.level = self.at = 0
        self.saves = 0

    def __iter__(self) -> Iterator[int]:
        while self.at < 3 * COUNT:
            self.at += 1
            yield (self.at * (1 + self.level)) % COUNT
        self.at = 0

    def state_dict(self) -> dict[str, int]:
        self.saves += 1
        return self.__dict__  # which goes on changing

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.__dict__.update(state)


class StatefulIterator:
    """The iterator is what can be resumed."""

    def __init__(self) -> None:
        self.items = list(np.random.permutation(COUNT))  # noqa: NPY002

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        if not self.items:
            raise StopIteration
        return self.items.pop()

    def state_dict(self) -> dict[str, Any]:
        return {"items": [int(item) for item in self.items]}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.items = state["items"]


def shuffled_in_place() -> Iterator[int]:
    items = list(range(COUNT))
    random.shuffle(items)
    return iter(items)


def drawn_one_by_one() -> Iterator[int]:
    return (
        random.choice([int(torch.randint(COUNT, ())), np.random.randint(COUNT)])  # noqa: NPY002
        for _ in range(2 * COUNT)
    )


def permuted_for_ever() -> Iterator[int]:
    while True:
        yield from torch.randperm(11).tolist()


RANDOM: dict[str, Callable[[], Any]] = {
    "RandomSampler": lambda: RandomSampler(NUMBERS),
    "with replacement": lambda: RandomSampler(NUMBERS, replacement=True, num_samples=50),
    "with a generator": lambda: RandomSampler(NUMBERS, generator=torch.Generator().manual_seed(1)),
    "weighted": lambda: WeightedRandomSampler([1.0] * COUNT, 50),
    "of a subset": lambda: SubsetRandomSampler(range(5, COUNT)),
    "distributed": lambda: DistributedSampler(NUMBERS, 1, 0),
    "random.shuffle": lambda: Given(shuffled_in_place),
    "one by one": lambda: Given(drawn_one_by_one),
    "for ever": lambda: Given(permuted_for_ever),
    "a Random": lambda: Own(random.Random(2)),
    "a Generator": lambda: Own(np.random.default_rng(2)),
    "a Generator of another kind": lambda: Own(np.random.Generator(np.random.MT19937(2))),
    "stateful": Stateful,
    "stateful iterator": lambda: Given(StatefulIterator),
}
FOLLOWED = ("with a generator", "distributed", "a Random", "a Generator", "stateful")


def step(sampler: Any) -> None:
    """Draw from all global generators, as training does, and let the sampler adapt."""
    torch.rand(3), random.random(), np.random.rand()  # noqa: NPY002
    for one in (sampler, getattr(sampler, "sampler", None)):
        if hasattr(one, "level"):
            one.level += 1


def run(loader: Any, sampler: Any, batches: Iterator[Any], most: int) -> list[Any]:
    seen = []
    for batch in itertools.islice(batches, most):
        seen += copies([batch])
        step(sampler)
    return seen


@EACH_WAY
@pytest.mark.parametrize(
    "draw",
    [
        lambda: int(torch.randint(2**50, ())),
        lambda: random.getrandbits(50),
        lambda: int(np.random.randint(2**50)),  # noqa: NPY002
    ],
    ids=["torch", "random", "numpy"],
)
def test_no_draws_of_a_sampler_repeat_earlier_ones(draw: Callable[[], int], way: str) -> None:
    """Neither those of other batches, nor of other epochs, nor of the epoch that is resumed."""
    sampler = Given(lambda: (draw() for _ in range(6 * SIZE)))
    how: dict[str, Any] = {"batch_size": SIZE, "sampler": sampler, **WAYS[way][0]}
    with Loader(NUMBERS, **how) as loader, Loader(NUMBERS, **how) as resumed:
        seen = [batch.tolist() for batch in itertools.islice(loader, 2)]
        resumed.load_state_dict(loader.state_dict())
        seen += [batch.tolist() for _ in range(2) for batch in resumed]
    items = [item for batch in seen for item in batch]
    assert len(set(items)) == len(items) == 2 * 6 * SIZE


@pytest.mark.parametrize("batches", [False, True])
@pytest.mark.parametrize("way", ["in the caller's thread", "threads"])
@pytest.mark.parametrize("done", [1, 2, 4])
@pytest.mark.parametrize("kind", RANDOM)
def test_a_random_sampler_goes_on_with_the_same_items(
    kind: str, done: int, way: str, batches: bool
) -> None:
    """A new process has the batches that were left, of an epoch and of a state by DevicePrefetcher.

    That is so whatever else draws random numbers, and for draws from a generator of the sampler's
    own the following epoch is the same as well.
    """

    def made() -> tuple[Any, Any]:
        sampler = RANDOM[kind]()
        if batches:
            sampler = BatchSampler(sampler, SIZE, drop_last=False)
            return Loader(Images(), batch_sampler=sampler, **WAYS[way][0]), sampler
        return Loader(Images(), SIZE, sampler=sampler, **WAYS[way][0]), sampler

    first, sampler = made()
    with first:
        run(first, sampler, iter(first), 100 if kind != "for ever" else 3)
        epoch = iter(first)
        run(first, sampler, epoch, done)
        state = json.loads(json.dumps(first.state_dict()))
        rest = [run(first, sampler, epoch, 12)]
        if kind in FOLLOWED:
            rest.append(run(first, sampler, epoch, 100) + run(first, sampler, iter(first), 100))
    torch.manual_seed(77), random.seed(77), np.random.seed(77)  # noqa: NPY002
    second, sampler = made()
    with second:
        second.load_state_dict(state)
        again = iter(second)
        assert_same(run(second, sampler, again, 12), rest[0])
        if kind in FOLLOWED:
            following = run(second, sampler, again, 100) + run(second, sampler, iter(second), 100)
            assert_same(following, rest[1])


@EACH_WAY
@pytest.mark.parametrize("kind", sorted(RANDOM.keys() - {"stateful", "stateful iterator"}))
def test_draws_of_a_resumed_sampler_leave_the_generators_alone(kind: str, way: str) -> None:
    """Where an epoch goes on, even its first batch draws nothing from those of training."""
    with Loader(Images(), SIZE, sampler=RANDOM[kind](), **WAYS[way][0]) as loader:
        epoch = iter(loader)
        next(epoch)
        state = loader.state_dict()
    with Loader(Images(), SIZE, sampler=RANDOM[kind](), **WAYS[way][0]) as loader:
        loader.load_state_dict(state)
        step(None)
        before = generators()
        for _, _ in zip(range(3), loader, strict=False):
            assert generators() == before


def generators() -> tuple[str, ...]:
    """Return the states of all global generators."""
    numpys = repr(np.random.get_state())  # noqa: NPY002
    return str(torch.get_rng_state().tolist()), repr(random.getstate()), numpys


def test_a_sampler_that_gives_other_items_again_is_a_warning() -> None:
    """What had been drawn comes first, and the warning says that what follows is not exact."""

    class Counting(Sampler[int]):
        begun = 0

        def __iter__(self) -> Iterator[int]:
            self.begun += 1
            return iter(torch.arange(COUNT).roll(self.begun).tolist())

    with Loader(NUMBERS, SIZE, sampler=Counting(), threads=1) as loader:
        list(loader)
        epoch = iter(loader)
        next(epoch)
        state = loader.state_dict()
        pending = [next(epoch).tolist(), next(epoch).tolist()]
    with Loader(NUMBERS, SIZE, sampler=Counting(), threads=1) as loader:
        loader.load_state_dict(state)
        epoch = iter(loader)
        with pytest.warns(RuntimeWarning, match="Counting"):
            first = next(epoch)
        assert [first.tolist(), next(epoch).tolist()] == pending


@pytest.mark.parametrize("threads", [0, 2])
def test_the_state_between_two_epochs_is_the_samplers(threads: int) -> None:
    """What a stateful sampler has learned is saved there, and a position at its end is no end."""
    for sampler in (Stateful(), Positions()):
        with Loader(NUMBERS, SIZE, sampler=sampler, threads=threads) as loader:
            run_numbers(loader, sampler)
            state = json.loads(json.dumps(loader.state_dict()))
            expected = run_numbers(loader, sampler)
        again = type(sampler)()
        with Loader(NUMBERS, SIZE, sampler=again, threads=threads) as loader:
            loader.load_state_dict(state)
            assert run_numbers(loader, again) == expected != []


def test_a_loaded_state_is_not_changed() -> None:
    """A sampler may go on with the very lists of a state, which stays what the caller has."""
    for loads in (1, 2):
        with Loader(NUMBERS, SIZE, sampler=Given(StatefulIterator), threads=1) as loader:
            next(iter(loader))
            state = loader.state_dict()
            before = copy.deepcopy(state)
            for _ in range(loads):
                loader.load_state_dict(state)
                list(loader)
            assert state == before


def test_a_state_counts_keys_by_what_has_been_handed_out() -> None:
    """What has been drawn ahead does not count yet, also of keys that are no numbers."""

    class Keyed(Stateful):
        def __iter__(self) -> Iterator[Any]:
            return ((index, "train") for index in super().__iter__())

    class Keys:
        def __getitem__(self, key: tuple[int, str]) -> int:
            return key[0]

    with Loader(Keys(), SIZE, sampler=Keyed(), threads=2) as loader:
        epoch = iter(loader)
        shown = [index for _ in range(2) for index in next(epoch).tolist()]
        counts = loader.state_dict()["sampler"]["counts"]
    assert dict(counts) == Counter(repr((index, "train")) for index in shown)


class Positions(Sampler[int]):
    """Saves its position alone, as torchdata's StatefulDistributedSampler."""

    def __init__(self) -> None:
        self.given, self.skip = 0, 0

    def __iter__(self) -> Iterator[int]:
        self.given, self.skip = self.skip, 0
        for index in range(self.given, COUNT):
            self.given += 1
            yield index

    def state_dict(self) -> dict[str, int]:
        return {"given": self.given}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.skip = state["given"]


def run_numbers(loader: Any, sampler: Any) -> list[Any]:
    seen = []
    for batch in loader:
        seen.append(batch.tolist())
        step(sampler)
    return seen


# Ranks


class Repeated(Sampler[int]):
    """Gives each item three times, spread over the ranks, as timm's RepeatAugSampler.

    It may say its rank.
    """

    def __init__(self, own: int, ranks: int, says: bool) -> None:
        self.own, self.ranks = own, ranks
        if says:
            self.rank = own

    def __iter__(self) -> Iterator[int]:
        return iter(torch.arange(COUNT).repeat_interleave(3)[self.own :: self.ranks].tolist())


@pytest.mark.parametrize("ranks", [1, 2, 3, 4])
@pytest.mark.parametrize("says", [False, True])
def test_the_same_item_has_other_draws_on_each_rank(ranks: int, says: bool) -> None:
    """All occurrences over all ranks differ, in each epoch; the rank is the sampler's or ours."""
    seen: dict[int, list[Any]] = {}
    for rank in range(ranks):
        place = {} if says else {"rank": rank, "world_size": ranks}
        sampler = Repeated(rank, ranks, says)
        with Loader(Images(), SIZE, sampler=sampler, threads=2, **place) as loader:
            for images, numbers in [*loader, *loader]:
                for image, index in zip(images.clone(), numbers.tolist(), strict=True):
                    seen.setdefault(index, []).append(image)
    for images in seen.values():
        assert len({image.numpy().tobytes() for image in images}) == len(images) == 6


def test_ranks_with_the_same_share_have_the_same_batches() -> None:
    """Where several processes share a model, the sampler's rank counts, not the process's."""
    made = []
    for rank in (2, 3):
        sampler = DistributedSampler(range(COUNT), 2, 1)
        with Loader(Images(), SIZE, sampler=sampler, threads=1, rank=rank, world_size=4) as loader:
            made.append(copies(loader))
    assert_same(*made)


# Datasets and epochs


class Keys:
    """A dataset as people write one when only their sampler knows what there is."""

    def __getitem__(self, index: int) -> int:
        return index * 10


class Unsized(Keys):
    """One whose length is not known."""

    def __len__(self) -> int:
        raise NotImplementedError


@EACH_WAY
@pytest.mark.parametrize("dataset", [Keys(), Unsized()])
@pytest.mark.parametrize(
    "how", [{"batch_size": 2, "sampler": [3, 1, 2]}, {"batch_sampler": [[3, 1], [2]]}], ids=str
)
def test_a_dataset_without_a_length_needs_a_sampler(way: str, dataset: Any, how: Any) -> None:
    """With a sampler it works, is saved and resumed; without, it is refused, as by DataLoader."""
    with Loader(dataset, **how, **WAYS[way][0]) as loader:
        for _ in range(2):
            assert [batch.tolist() for batch in loader] == [[30, 10], [20]]
        assert len(loader) == 2
        loader.set_epoch(0)
        next(iter(loader))
        loader.load_state_dict(loader.state_dict())
        assert [batch.tolist() for batch in loader] == [[20]]
        assert type(dataset) is Unsized or "Keys of ?" in repr(loader)
    with pytest.raises((TypeError, NotImplementedError)):
        list(Loader(dataset, 2, **WAYS[way][0]))
