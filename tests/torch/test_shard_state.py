"""`ShardStream` resumed inside an epoch gives exactly the remaining samples."""

from __future__ import annotations

import json
import traceback
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
from loading import PROCESS_WARNINGS
from same import assert_same
from shards import numbers, write_shards
from torch.utils.data import DataLoader

from fastdecode.torch import ShardStream
from fastdecode.torch.transforms import RandomResizedCropFlipNormalize

SIZES = [9, 31, 0, 24, 16]
TOTAL = sum(SIZES)
PATTERN = "part-{000..004}.tar"
pytestmark = pytest.mark.filterwarnings(*PROCESS_WARNINGS, "ignore:this ShardStream gives epoch")


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
    assert_same(list(again), rest)
    assert_same(list(again), before + rest)
    again.set_epoch(4)
    assert len(list(again)) == TOTAL
    again.load_state_dict(state)  # which does not apply to another epoch
    again.set_epoch(2)
    again.set_epoch(3)
    assert len(list(again)) == TOTAL


def test_a_damaged_image_is_replaced_by_the_same_after_a_resume(tmp_path: Path) -> None:
    """The replacement of a sample does not depend on where reading began."""
    write_shards(tmp_path, SIZES, damaged=range(40, 50))
    whole = numbers(stream(tmp_path, on_error="replace"))

    for count in (5, 37, 60):
        first, again = (stream(tmp_path, on_error="replace") for _ in range(2))
        list(islice(iter(first), count))
        again.load_state_dict(first.state_dict())
        assert numbers(again) == whole[count:]


def test_workers_that_read_ahead_are_not_asked(shards: Path) -> None:
    """While worker processes read, the stream's own state is an error that says what to do."""
    busy = stream(shards)
    batches = iter(DataLoader(busy, 4, num_workers=2))
    next(batches)

    with pytest.raises(RuntimeError):
        busy.state_dict()
    list(batches)
    busy.set_epoch(1)
    assert busy.state_dict()["epoch"] == 1


def test_the_number_of_workers_must_be_the_same(shards: Path) -> None:
    """A state of one process cannot be resumed by another, whose share differs."""
    first, again, other = stream(shards), stream(shards), stream(shards)
    list(islice(iter(first), 5))
    again.load_state_dict(first.state_dict())
    other.load_state_dict({**first.state_dict(), "workers": 2})

    for _ in range(2):
        with pytest.raises(ValueError, match="worker 0 of 2"):
            list(other)
    with pytest.raises(ValueError, match="worker 0 of 3") as caught:
        list(DataLoader(again, 4, num_workers=3))
    traceback.clear_frames(caught.tb)  # or a garbage collection waits for the workers, 5 s each


@pytest.mark.parametrize(
    ("options", "change", "named"),
    [
        ({"seed": 6}, {}, "seed=5"),
        ({"buffer": 9}, {}, "buffer=8"),
        ({"shuffle": False}, {}, "shuffle=True"),
        ({"even": "drop"}, {}, "samples=None"),
        ({"rank": 1, "world_size": 2}, {}, "rank=0"),
        *(({}, {"given": given}, "state") for given in (-1, "1")),
        *(({}, {name: None}, "state") for name in ("workers", "settings")),
        *(({}, change, "state") for change in ({"epoch": -1}, {"version": 0}, None)),
    ],
)
def test_other_states_are_refused(shards: Path, options: Any, change: Any, named: str) -> None:
    """The error names the setting that differs, or says that the state is damaged or none."""
    state = {} if change is None else {**stream(shards).state_dict(), **change}

    with pytest.raises(ValueError, match=named):
        stream(shards, **options).load_state_dict(state)


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

        assert_same(list(again), rest, workers)
