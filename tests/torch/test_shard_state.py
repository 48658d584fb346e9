"""`ShardStream` resumed inside an epoch gives exactly the remaining samples."""

from __future__ import annotations

import json
import traceback
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
from loading import PROCESS_WARNINGS, same
from shards import numbers, write_shards
from torch.utils.data import DataLoader

from fastdecode.torch import ShardStream
from fastdecode.torch.shards._state import StreamState, state_after_batches
from fastdecode.torch.transforms import RandomResizedCropFlipNormalize

SIZES = [9, 31, 0, 24, 16]
TOTAL = sum(SIZES)
PATTERN = "part-{000..004}.tar"
pytestmark = pytest.mark.filterwarnings(*PROCESS_WARNINGS)


@pytest.fixture(scope="module")
def shards(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write 80 samples in five shards."""
    folder = tmp_path_factory.mktemp("shards")
    write_shards(folder, SIZES)
    return folder


def stream(folder: Path, **options: Any) -> ShardStream:
    options = {"shuffle": True, "buffer": 8, "seed": 5, **options}
    options = {"seed": 0, **options}
    return ShardStream(str(folder / PATTERN), RandomResizedCropFlipNormalize(24), **options)


def saved(state: dict[str, Any]) -> dict[str, Any]:
    """Write a state as JSON and read it again."""
    return json.loads(json.dumps(state))


@pytest.mark.parametrize("options", [{}, {"even": "drop"}, {"shuffle": False}])
@pytest.mark.parametrize("given", [0, 1, 31, 32, 33, 79, 80])
def test_what_is_left_is_what_was_left(shards: Path, options: Any, given: int) -> None:
    """A state after any number of samples gives the others, bit-identical, and only once."""
    first = stream(shards, **options)
    first.set_epoch(3)
    samples = iter(first)
    before = list(islice(samples, given))
    state = saved(first.state_dict())
    rest = list(samples)
    again = stream(shards, **options)
    again.load_state_dict(state)
    again.set_epoch(3)

    assert again.state_dict()["given"] == state["given"]
    assert same(list(again), rest)
    assert same(list(again), before + rest)
    again.set_epoch(4)
    assert len(list(again)) == TOTAL


def test_another_epoch_begins_at_its_beginning(shards: Path) -> None:
    """A loaded state does not apply to another epoch."""
    first, again = stream(shards), stream(shards)
    next(iter(first))
    again.load_state_dict(first.state_dict())
    again.set_epoch(1)
    again.set_epoch(0)

    assert len(list(again)) == TOTAL


def test_a_resumed_epoch_can_be_saved_again(shards: Path) -> None:
    """A state after a resume also counts the samples before it."""
    whole = list(stream(shards))
    state = None
    given: list[Any] = []
    for count in (7, 30, 1, 42):
        part = stream(shards)
        if state is not None:
            part.load_state_dict(state)
        given += islice(iter(part), count)
        state = saved(part.state_dict())

    assert same(given, whole)


def test_a_damaged_image_is_replaced_by_the_same_after_a_resume(tmp_path: Path) -> None:
    """The replacement of a sample does not depend on where reading began."""
    write_shards(tmp_path, SIZES, damaged=range(40, 50))
    whole = numbers(stream(tmp_path, on_error="replace"))

    for count in (5, 37, 60):
        first, again = (stream(tmp_path, on_error="replace") for _ in range(2))
        list(islice(iter(first), count))
        again.load_state_dict(first.state_dict())
        assert numbers(again) == whole[count:]


PLACES = [(1, 3), (2, 2), (6, 0), (6, 3), (13, 2), (20, 3)]


@pytest.mark.parametrize(
    ("batches", "workers", "options"),
    [
        *((*place, {"even": "drop"}) for place in PLACES),
        *((*place, {}) for place in PLACES[:4]),  # without counts one may have run out by then
    ],
)
def test_what_a_data_loader_has_left(
    shards: Path, batches: int, workers: int, options: Any
) -> None:
    """The number of batches of a DataLoader gives the remaining samples, in order."""
    first, again = stream(shards, **options), stream(shards, **options)
    for each in (first, again):
        each.set_epoch(2)
    loader = iter(DataLoader(first, 4, num_workers=workers))
    before = list(islice(loader, batches))
    state = saved(first.state_after(batches, 4, workers))
    rest = list(loader)
    again.load_state_dict(state)
    left = list(DataLoader(again, 4, num_workers=workers))

    if options or not workers:
        assert same(left, rest)
    assert sorted(numbers(before) + numbers(left)) == list(range(TOTAL))


@pytest.mark.parametrize("persistent", [False, True])
def test_a_data_loader_resumes_only_once(shards: Path, persistent: bool) -> None:
    """Epochs after a resumed one are complete, and a state in a resumed one can be saved."""
    options = {"num_workers": 3, "persistent_workers": persistent}
    first, again, third = (stream(shards, even="drop") for _ in range(3))
    whole = list(DataLoader(first, 4, num_workers=3))
    list(islice(DataLoader(first, 4, num_workers=3), 4))
    again.load_state_dict(first.state_after(4, 4, 3))
    loader = DataLoader(again, 4, **options)
    batches = iter(loader)
    some = list(islice(batches, 3))
    third.load_state_dict(again.state_after(3, 4, 3))
    rest = list(batches)

    assert same(whole[4:7], some)
    assert same(whole[7:], rest)
    assert same(list(DataLoader(third, 4, num_workers=3)), rest)
    assert same(list(loader), whole)
    again.set_epoch(1)
    assert sorted(numbers(loader)) == list(range(TOTAL))


def test_each_rank_has_its_own_state(shards: Path) -> None:
    """Three ranks that stop and resume have each sample once."""
    given: list[int] = []
    for rank in range(3):
        options = {"even": "drop", "rank": rank, "world_size": 3}
        first, again = stream(shards, **options), stream(shards, **options)
        given += numbers(islice(iter(first), 5 * rank + 3))
        again.load_state_dict(first.state_dict())
        given += numbers(again)

    assert len(given) == len(set(given)) == TOTAL // 3 * 3


def test_workers_that_read_ahead_are_not_asked(shards: Path) -> None:
    """While worker processes read, the stream's own state is an error that says what to do."""
    busy = stream(shards)
    batches = iter(DataLoader(busy, 4, num_workers=2))
    next(batches)

    with pytest.raises(RuntimeError, match=r"use state_after\(batches, batch_size, workers\)"):
        busy.state_dict()
    list(batches)
    busy.set_epoch(1)
    assert busy.state_dict()["epoch"] == 1


def test_the_number_of_workers_must_be_the_same(shards: Path) -> None:
    """A state of two workers cannot be resumed with three, whose shares differ."""
    first, again = stream(shards), stream(shards)
    again.load_state_dict(first.state_after(2, 4, 2))

    with pytest.raises(ValueError, match="with 2 worker processes, but this epoch has 1"):
        list(again)
    with pytest.raises(ValueError, match="with 2 worker processes, but this epoch has 3") as caught:
        list(DataLoader(again, 4, num_workers=3))
    traceback.clear_frames(caught.tb)  # or a garbage collection waits for the workers, 5 s each


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"seed": 6}, "seed=5, but this stream has 6"),
        ({"buffer": 9}, "buffer=8, but this stream has 9"),
        ({"shuffle": False}, "shuffle=True, but"),
        ({"even": "drop"}, "samples=None, but this stream has 80"),
        ({"rank": 1, "world_size": 2}, "rank=0, but"),
    ],
)
def test_states_of_other_streams_are_refused(shards: Path, options: Any, named: str) -> None:
    """The error names the setting that differs."""
    state = stream(shards).state_dict()

    with pytest.raises(ValueError, match=named):
        stream(shards, **options).load_state_dict(state)


@pytest.mark.parametrize(
    "change",
    [
        {"given": [[0, -1]]},
        {"given": [[0, "1"]]},
        {"given": 5},
        {"epoch": -1},
        {"workers": 0},
        {"turn": 1},
        {"counts": [[0]]},
        {"settings": None},
    ],
)
def test_damaged_states_are_refused(shards: Path, change: Any) -> None:
    """A damaged state, and one of another version, are errors."""
    state = stream(shards).state_dict()

    with pytest.raises(ValueError, match="damaged"):
        stream(shards).load_state_dict({**state, **change})
    with pytest.raises(ValueError, match="not a state of a fastdecode ShardStream"):
        stream(shards).load_state_dict({**state, "version": 0})
    with pytest.raises(ValueError, match="not a state of a fastdecode ShardStream"):
        stream(shards).load_state_dict({})


def test_batches_are_counted_by_turns() -> None:
    """Batches are counted worker by worker, in turn; no share is exceeded."""
    place = StreamState(1, 3, 2, {2: 4}, {})
    after = state_after_batches(place, 5, 4, {0: 9, 1: 8, 2: 11})

    assert (after.given, after.turn) == ({0: 8, 1: 4, 2: 11}, 1)
    with pytest.raises(ValueError, match="more than worker 2 can give"):
        state_after_batches(place, 8, 4, {0: 99, 1: 99, 2: 11})
    assert state_after_batches(StreamState(), 0, 4, None) == StreamState()


@pytest.mark.filterwarnings("ignore::UserWarning")  # it calls what torch has deprecated
def test_torchdatas_loader_saves_and_resumes(shards: Path) -> None:
    """StatefulDataLoader saves the stream in each worker, and resumes it."""
    loading = pytest.importorskip("torchdata.stateful_dataloader")
    for workers in (0, 2):
        first = loading.StatefulDataLoader(stream(shards), 4, num_workers=workers)
        batches = iter(first)
        list(islice(batches, 7))
        state = first.state_dict()
        rest = list(batches)
        again = loading.StatefulDataLoader(stream(shards), 4, num_workers=workers)
        again.load_state_dict(state)

        assert same(list(again), rest)
