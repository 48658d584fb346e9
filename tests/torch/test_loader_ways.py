"""`Loader`: the same batches, errors and states, however batches are made."""

from __future__ import annotations

import json
import pickle
import threading
from typing import Any

import pytest
import torch
from device_doubles import decode_all, own_registry, register_double, registry_with_cpu_backends  # noqa: F401
from loading import (
    EXACT,
    PROCESS_WARNINGS,
    Images,
    Plain,
    copies,
    device_loader,
    generator_states,
    indices,
    near,
    same,
    targets,
    targets_and_errors,
)
from loading import (
    SeededLoader as Loader,
)
from torch.utils.data import ConcatDataset, Subset

from fastdecode import DecodeError
from fastdecode.torch._order import sample_seed
from fastdecode.torch.transforms import RandomResizedCrop
from fastdecode.torch.transforms._random_crop import generator_of

pytestmark = pytest.mark.filterwarnings(*PROCESS_WARNINGS)

WAYS: dict[str, dict[str, Any]] = {
    "caller": {"threads": 0},
    "threads": {"threads": 3},
    "processes": {"workers": 2},
    "normalised later": {"threads": 2},
    "backend": {"threads": 2, "decode": "double"},
}


@pytest.fixture(params=WAYS)
def way(request: pytest.FixtureRequest) -> str:
    """Return each way in which batches are made."""
    if request.param == "backend":
        request.getfixturevalue("registry_with_cpu_backends")
        register_double(decode_all)
    return str(request.param)


def loader(way: str, dataset: Any, batch_size: int = 4, shuffle: bool = False, **how: Any) -> Any:
    kind = device_loader if way == "normalised later" else Loader
    return kind(dataset, batch_size, shuffle, **WAYS[way], **how)


def plain(dataset: Any, batch_size: int = 4, shuffle: bool = False, **how: Any) -> Any:
    return Loader(dataset, batch_size, shuffle, threads=1, **how)


def alike(way: str, first: list[Any], second: list[Any]) -> bool:
    """Return whether batches are bit-identical, or within one level with another library."""
    return (near if way == "backend" else same)(first, second)


def test_epochs_are_those_of_one_thread(way: str) -> None:
    """Two shuffled epochs equal those of one thread, and global generators are not used."""
    before = generator_states()
    with plain(Images(EXACT), 5, True, seed=8) as batches:
        expected = [copies(batches), copies(batches)]
    with loader(way, Images(EXACT), 5, True, seed=8) as batches:
        for epoch in expected:
            assert alike(way, copies(batches), epoch)
        assert batches.epoch == 2

    assert same(generator_states(), before)


def test_errors_come_in_the_place_of_their_batch(way: str) -> None:
    """The first error of a batch is raised where that would be; the next batches come, in order.

    A StopIteration of the dataset does not end the epoch.
    """
    wrong: dict[int, BaseException] = {9: KeyError("mine"), 13: StopIteration("mine")}
    with loader(way, Images(EXACT, damaged=(6, 5), wrong=wrong, count=20)) as batches:
        first, *errors, last = targets_and_errors(batches)

        assert (first, last) == ([0, 1, 2, 3], [16, 17, 18, 19])
        assert [type(one) for one in errors] == [DecodeError, KeyError, RuntimeError]
        assert "item 5" in str(errors[0])
        assert "StopIteration" in str(errors[2])
        assert batches.epoch == 1


def test_damaged_samples_are_skipped_and_counted(
    way: str, capfd: pytest.CaptureFixture[str]
) -> None:
    """A batch lacks its damaged samples, or is left out; they are listed once."""
    dataset = Images(EXACT, damaged=(1, 2, 4, 5, 6, 7), count=11, on_error="skip")
    with loader(way, dataset) as batches:
        made, skipped = [], []
        for batch in batches:
            made += copies([batch])
            skipped.append(batches.skipped)

        assert targets(made) == [[0, 3], [8, 9, 10]]
        assert skipped == [2, 6]
        copies(batches)
        assert batches.skipped == 6  # of this epoch
    assert sorted(failure.index for failure in dataset.errors) == [1, 2, 4, 5, 6, 7]
    assert all(failure.reason for failure in dataset.errors)
    with plain(Images(EXACT, count=11)) as whole:
        (images, numbers), *_ = whole
        assert alike(way, made[:1], [[images[[0, 3]], numbers[[0, 3]]]])
    assert "RuntimeWarning" not in capfd.readouterr().err


def test_an_epoch_of_damaged_files_alone_is_empty(way: str) -> None:
    """An epoch without any good file ends with a warning and the number of skipped files."""
    with loader(way, Images(EXACT, damaged=(0, 1, 2), count=3, on_error="skip"), 2) as batches:
        with pytest.warns(RuntimeWarning, match="all 3 samples were skipped, such as item"):
            assert list(batches) == []
        assert (batches.skipped, batches.epoch) == (3, 1)


def test_damaged_samples_are_replaced_by_the_same(way: str) -> None:
    """A damaged sample is replaced with image and target, and listed."""
    options: dict[str, Any] = {"damaged": (1, 6), "count": 8, "on_error": "replace"}
    dataset = Images(EXACT, **options)
    with loader(way, dataset) as batches, plain(Images(EXACT, **options)) as expected:
        made = copies(batches)
        assert alike(way, made, copies(expected))

    assert [len(images) for images, _ in made] == [4, 4]
    assert set(indices(made)) == {0, 2, 3, 4, 5, 7}
    assert sorted(failure.index for failure in dataset.errors) == [1, 6]


def test_a_state_goes_from_any_way_to_any_other(way: str) -> None:
    """A state gives exactly the remaining batches, although others were made ahead."""
    options: dict[str, Any] = {"shuffle": True, "seed": 5}
    with loader(way, Images(EXACT), **options) as first:
        batches = iter(first)
        copies([next(batches), next(batches)])
        state = json.loads(json.dumps(first.state_dict()))
        rest, following = copies(batches), copies(first)
    again = pickle.loads(pickle.dumps(plain(Images(EXACT), **options)))
    for second in (loader(way, Images(EXACT), **options), again):
        with second:
            second.load_state_dict(state)
            batches = iter(second)
            given = copies([next(batches)])
            third = second.state_dict()

            assert alike(way, given + copies(batches), rest)
            assert second.epoch == 1
            assert alike(way, copies(second), following)
            second.load_state_dict(third)
            assert alike(way, copies(second), rest[1:])


def test_a_subset_and_a_sampler(way: str) -> None:
    """Indices refer to the Subset of a Subset; an item that comes twice is drawn twice."""
    dataset = Subset(Subset(Images(EXACT), range(20, 2, -1)), [3, 1, 4, 1, 5, 9, 2, 6])
    with loader(way, dataset, 2, sampler=[0, 0, 7, 3, 2]) as batches:
        ours = copies(batches)
    with plain(dataset, 2, sampler=[0, 0, 7, 3, 2]) as batches:
        assert alike(way, ours, copies(batches))

    assert indices(ours) == [17, 17, 14, 19, 16]
    assert not torch.equal(*ours[0][0])


CALLED = pytest.mark.parametrize("way", ["caller", "threads", "processes"], indirect=True)


def parts(**options: Any) -> tuple[Images, Images, Any]:
    """Return two datasets whose items differ, and torch's wrappers around both."""
    first, second = Images(EXACT, count=5, **options), Images(EXACT, **options)
    nested = ConcatDataset([ConcatDataset([first, Subset(second, [9, 22, 4, 17])]), second])
    return first, second, Subset(nested, [12, 4, 8, 0, 5, 31, 6, 2, 11])


EXPECTED = [3, 4, 17, 0, 9, 22, 22, 2, 2]


@CALLED
def test_concatenated_datasets_are_looked_through(way: str) -> None:
    """Samples come from the datasets inside; each has the draws of its index in the whole."""
    *_, whole = parts()
    ahead = {"read_threads": 2} if way == "threads" else {}
    with loader(way, whole, 4, seed=3, **ahead) as batches:
        made = copies(batches)

    assert indices(made) == EXPECTED
    images = [image for batch, _ in made for image in batch]
    for at, (index, target) in enumerate(zip(whole.indices, EXPECTED, strict=True)):
        fetched = Images(EXACT).load(target, generator=generator_of(sample_seed(3, 0, at)))
        assert torch.equal(images[at], fetched[0]), index


@CALLED
def test_errors_in_concatenated_datasets_are_those_of_the_one_inside(way: str) -> None:
    """Each dataset lists its own failures; a replacement is one of its items in the subset."""
    first, second, whole = parts(damaged=(4, 9), on_error="replace")
    with loader(way, whole) as batches:
        replaced = indices(batches)
    assert [failure.index for failure in first.errors] == [4]
    assert [failure.index for failure in second.errors] == [9]
    assert [
        number for number, own in zip(replaced, EXPECTED, strict=True) if own not in (4, 9)
    ] == [own for own in EXPECTED if own not in (4, 9)]
    assert replaced[1] in (0, 2)
    assert replaced[4] in (3, 17, 22, 2)

    first, second, whole = parts(damaged=(4, 9), on_error="skip")
    with loader(way, whole) as batches:
        assert indices(batches) == [own for own in EXPECTED if own not in (4, 9)]
        assert batches.skipped == 2


@CALLED
def test_concatenated_datasets_may_differ(way: str) -> None:
    """Images of different shapes go to `collate_fn`; one foreign dataset makes all foreign."""
    smaller = RandomResizedCrop((20, 16), quality="exact", dtype=torch.float32)
    whole = ConcatDataset([Images(EXACT, count=2), Images(smaller, count=2)])
    with loader(way, whole, 3, collate_fn=list) as batches:
        shapes = [tuple(image.shape[1:]) for batch in batches for image, _ in batch]
    assert shapes == [(24, 24)] * 2 + [(20, 16)] * 2

    foreign = ConcatDataset([Images(EXACT, count=2), Plain(lambda index: (index, 7), 1)])
    with loader(way, foreign, 2, collate_fn=list) as batches:
        assert [target for batch in batches for _, target in batch] == [0, 1, 7]


@pytest.mark.parametrize("channels_last", [False, True])
def test_images_without_targets(way: str, channels_last: bool) -> None:
    """A batch without targets is the tensor, in the given layout; if all are damaged, none."""
    dataset = Images(EXACT, damaged=(0, 1, 4, 5), count=7, on_error="skip")
    dataset.has_targets = False
    with loader(way, dataset, 2, channels_last=channels_last) as batches:
        made = [batch.clone() for batch in batches]

    layout = torch.channels_last if channels_last else torch.contiguous_format
    assert all(images.is_contiguous(memory_format=layout) for images in made)
    with plain(Images(EXACT, count=7), 2) as whole:
        expected = [[images] for images, numbers in whole if set(numbers.tolist()) & {2, 3, 6}]
        assert alike(way, [[images] for images in made], expected)


class Mapped(Images):
    """A dataset whose targets follow the crop."""

    def map_target(self, target: Any, geometry: Any) -> Any:
        return torch.tensor(geometry.boxes([[target, 4, target + 8, 12]])[0])


def doubled(box: Any) -> Any:
    return box * 2


def test_targets_are_mapped_and_transformed(way: str) -> None:
    """`map_target` gets the geometry of the crop, and `target_transform` gets its result."""
    with (
        loader(way, Mapped(EXACT, target_transform=doubled)) as batches,
        plain(Mapped(EXACT, target_transform=doubled)) as expected,
    ):
        assert alike(way, copies(batches), copies(expected))


@pytest.mark.parametrize("way", [way for way in WAYS if way != "processes"], indirect=True)
def test_batches_in_inference_mode_are_plain_tensors(way: str) -> None:
    """Batches that were made in inference mode can be used for training after it."""
    with torch.inference_mode(), loader(way, Images(EXACT, count=4), 2) as batches:
        made = [images for images, _ in batches]

    assert len(made) == 2
    assert not any(images.is_inference() for images in made)
    (made[0] * torch.ones(1, requires_grad=True)).sum().backward()


def test_a_dataset_may_change_between_epochs(way: str) -> None:
    """Each epoch uses the dataset's current length and transform."""
    dataset = Images(EXACT, count=4)
    with loader(way, dataset, 2) as batches:
        first = [images.shape for images, _ in batches]
        dataset.count = 8
        dataset.transform = RandomResizedCrop((20, 16), quality="exact", dtype=torch.float32)
        second = copies(batches)
        assert len(batches) == 4
    with plain(dataset, 2) as expected:
        expected.set_epoch(1)
        assert alike(way, second, copies(expected))

    assert first == [(2, 3, 24, 24)] * 2
    assert [images.shape for images, _ in second] == [(2, 3, 20, 16)] * 4


@pytest.mark.parametrize("way", ["threads", "normalised later", "backend"], indirect=True)
def test_a_missing_batch_is_a_timeout_that_names_its_items(way: str) -> None:
    """After `timeout` seconds the error names the missing items; later batches still come."""
    go = threading.Event()

    def make(index: int) -> Any:
        if index == 5:
            go.wait(60)
        return 0, index

    class Hanging(Images):
        def read(self, index: int) -> tuple[Any, Any]:
            make(index)
            return super().read(index)

    dataset = Plain(make, 12) if way == "threads" else Hanging(EXACT, count=12)
    with loader(way, dataset, timeout=0.5) as batches:
        seen = targets_and_errors(batches)
        go.set()

    assert [type(one) for one in seen] == [list, TimeoutError, list]
    assert "batch 1 " in str(seen[1])
    assert ("items [4, 5" if way == "normalised later" else "items [5") in str(seen[1])


@pytest.mark.parametrize(
    ("way", "said"), [("processes", "newer one"), ("backend", "closed")], indirect=["way"]
)
def test_a_new_iterator_ends_the_one_before(way: str, said: str) -> None:
    """A new iterator ends the older one, which raises an error."""
    with loader(way, Images(EXACT), 4, True) as batches:
        older = iter(batches)
        next(older)
        newer = iter(batches)
        given = copies([next(newer)])
        with pytest.raises(RuntimeError, match=said):
            next(older)
        given += copies(newer)
        assert batches.epoch == 2
    with plain(Images(EXACT), 4, True) as expected:
        expected.set_epoch(1)
        assert alike(way, given, copies(expected))


def test_a_state_speaks_of_what_a_device_was_given() -> None:
    """Batches that were copied ahead of the consumer do not count."""
    with plain(Images(), device="meta") as batches:
        epoch = iter(batches)
        assert [next(epoch)[0].device.type for _ in range(2)] == ["meta"] * 2
        state = batches.state_dict()
        assert (state["batch"], len(list(epoch)), batches.epoch) == (2, 4, 1)
    with plain(Images()) as again:
        again.load_state_dict(state)
        assert len(list(again)) == 4
