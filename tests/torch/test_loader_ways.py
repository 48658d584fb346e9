"""`Loader`'s contract: the same batches, errors and states, however batches are made."""

from __future__ import annotations

import multiprocessing
import threading
from pathlib import Path
from typing import Any

import pytest
import torch
from device_doubles import decode_all, own_registry, register_double, registry_with_cpu_backends  # noqa: F401
from loading import (
    EXACT,
    LEVEL,
    PROCESS_WARNINGS,
    Images,
    Plain,
    copies,
    device_loader,
    encoded,
    generator_states,
    indices,
    pool_threads,
    targets,
    targets_and_errors,
    wait_until,
)
from loading import SeededLoader as Loader
from same import assert_same
from torch.utils.data import ConcatDataset, DataLoader, Subset

from fastdecode import DecodeError, ImageTooLarge
from fastdecode.torch import DecodeOptions, ImageList
from fastdecode.torch._loader.order import sample_seed
from fastdecode.torch.transforms import (
    RandomResizedCrop,
    Resize,
    ResizeCenterCrop,
    ResizeCenterCropNormalize,
)
from fastdecode.torch.transforms._random_crop import generator_of

pytestmark = pytest.mark.filterwarnings(*PROCESS_WARNINGS)

WAYS: dict[str, dict[str, Any]] = {
    "caller": {"threads": 0},
    "threads": {"threads": 3},
    "without the core": {"threads": 2},
    "processes": {"workers": 2},
    "processes that stay": {"workers": 1, "persistent_workers": True},
    "normalised later": {"threads": 2},
    "backend": {"threads": 2, "decode": "double"},
}


@pytest.fixture(params=WAYS)
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Return each way in which batches are made."""
    if request.param == "without the core":
        monkeypatch.setenv("FASTDECODE_DISABLE", "native")
    if request.param == "backend":
        request.getfixturevalue("registry_with_cpu_backends")
        register_double(decode_all)
    return str(request.param)


def loader(way: str, dataset: Any, batch_size: int = 4, shuffle: bool = False, **how: Any) -> Any:
    kind = device_loader if way == "normalised later" else Loader
    return kind(dataset, batch_size, shuffle, **WAYS[way], **how)


def plain(dataset: Any, batch_size: int = 4, shuffle: bool = False, **how: Any) -> Any:
    return Loader(dataset, batch_size, shuffle, **{"threads": 1, **how})


def assert_alike(way: str, made: list[Any], expected: list[Any]) -> None:
    """Fail unless batches are bit-identical, or within one level with another library."""
    assert_same(made, expected, way, within=LEVEL if way == "backend" else 0)


def running() -> set[Any]:
    """Return the threads of loaders and the processes that run."""
    return {*pool_threads(), *multiprocessing.active_children()}


def starts_processes(way: str) -> bool:
    return way.startswith("processes")


def test_global_generators_are_not_used(way: str) -> None:
    """Two shuffled epochs leave those of torch, Python and NumPy as they were."""
    before = generator_states()
    with loader(way, Images(EXACT), 5, True, seed=8) as batches:
        assert targets(batches) != targets(batches)

    assert_same(generator_states(), before)


def test_batches_are_those_of_torchs_loader(way: str) -> None:
    """Without random draws, images, targets and containers equal those of DataLoader."""
    dataset = Images(ResizeCenterCropNormalize(28, 24, quality="exact"))
    with loader(way, dataset) as batches:
        ours = list(batches)
    theirs = list(DataLoader(dataset, 4))

    assert_alike(way, ours, theirs)
    assert [type(batch) for batch in ours] == [type(batch) for batch in theirs]
    with loader(way, Images(EXACT, count=0)) as batches:
        assert (len(batches), list(batches)) == (0, [])


def test_batches_that_are_kept_are_never_overwritten(way: str) -> None:
    """Batches that the consumer keeps over two epochs stay as they were."""
    with loader(way, Images(EXACT), 4, True, prefetch=1) as batches:
        kept, seen = [], []
        for _ in range(2):
            for batch in batches:
                kept.append(batch)
                seen += copies([batch])

    assert_same(kept, seen)
    assert len({images.data_ptr() for images, _ in kept}) == len(kept)


def test_close_ends_the_epoch_and_all_that_runs_for_it(way: str) -> None:
    """After `close`, an iterator raises an error; the next epoch works, and ends with its objects.

    An iterator that had ended before stays at its end.
    """
    wait_until(lambda: not pool_threads())
    before = running()
    batches = loader(way, Images(EXACT))
    unfinished = iter(batches)
    next(unfinished)
    batches.close()
    batches.close()

    assert running() == before
    with pytest.raises(RuntimeError):
        next(unfinished)
    ended = iter(batches)
    assert len(copies(ended)) == 6
    assert (running() == before) == (way in ("caller", "processes"))
    batches.close()
    assert next(ended, None) is None
    with batches:
        next(iter(batches))
    assert running() == before
    abandoned = iter(batches)
    next(abandoned)
    del batches, unfinished, ended, abandoned
    wait_until(lambda: running() == before)


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


def test_an_epoch_of_damaged_files_alone_is_empty(way: str) -> None:
    """An epoch without any good file ends with a warning and the number of skipped files."""
    with loader(way, Images(EXACT, damaged=(0, 1, 2), count=3, on_error="skip"), 2) as batches:
        with pytest.warns(RuntimeWarning, match="3 samples"):
            assert list(batches) == []
        assert (batches.skipped, batches.epoch) == (3, 1)


@pytest.mark.parametrize("damaged", [(1, 6), (1, 2, 3, 4, 5, 6)])
def test_damaged_files_are_replaced_and_listed(
    way: str, damaged: tuple[int, ...], tmp_path: Path
) -> None:
    """A damaged file is replaced with image and target, and is one entry, by its own name.

    It is listed once also if it was tried in place of another.
    """
    paths = [tmp_path / f"{number}.jpg" for number in range(8)]
    for number, path in enumerate(paths):
        data = encoded()[number]
        path.write_bytes(data[: len(data) // 3] if number in damaged else data)
    dataset, other = (ImageList(paths, list(range(8)), EXACT, on_error="replace") for _ in range(2))
    with loader(way, dataset) as batches, plain(other) as expected:
        made = copies(batches)
        assert_alike(way, made, copies(expected))

    assert [len(images) for images, _ in made] == [4, 4]
    assert set(indices(made)) == set(range(8)) - set(damaged)
    assert sorted((failure.index, failure.path) for failure in dataset.errors) == [
        (number, str(paths[number])) for number in damaged
    ]


def test_a_subset_and_a_sampler(way: str) -> None:
    """Indices refer to the Subset of a Subset; an item that comes twice is drawn twice."""
    dataset = Subset(Subset(Images(EXACT), range(20, 2, -1)), [3, 1, 4, 1, 5, 9, 2, 6])
    with loader(way, dataset, 2, sampler=[0, 0, 7, 3, 2]) as batches:
        ours = copies(batches)
    with plain(dataset, 2, sampler=[0, 0, 7, 3, 2]) as batches:
        assert_alike(way, ours, copies(batches))

    assert indices(ours) == [17, 17, 14, 19, 16]
    assert not torch.equal(*ours[0][0])


CALLED = pytest.mark.parametrize("way", ["caller", "threads", "processes"], indirect=True)


@CALLED
def test_collate_fn_gets_the_samples(way: str) -> None:
    """collate_fn gets (image, target), or the image alone, in order; its result is the batch."""
    for has_targets in (True, False):
        dataset = Images(EXACT)
        dataset.has_targets = has_targets
        with loader(way, dataset, 5, collate_fn=list) as batches:
            made = list(batches)
        with plain(dataset, 5) as expected:
            stacked = (
                [
                    [torch.stack(images), torch.tensor(numbers)]
                    for images, numbers in (zip(*samples, strict=True) for samples in made)
                ]
                if has_targets
                else [torch.stack(samples) for samples in made]
            )
            assert_same(stacked, list(expected))


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
    with loader(way, whole, 4, seed=3) as batches:
        made = copies(batches)

    assert indices(made) == EXPECTED
    images = [image for batch, _ in made for image in batch]
    for at, (index, target) in enumerate(zip(whole.indices, EXPECTED, strict=True)):
        made_alone = EXACT(encoded()[target], generator=generator_of(sample_seed(3, 0, at)))
        assert_same(images[at], made_alone, index)


@CALLED
def test_indices_from_the_end_of_joined_datasets_are_those_of_torch(way: str) -> None:
    """Each part of whatever is nested counts from its own end, and too large ones are an error."""
    *_, subset = parts()
    for whole in (subset, subset.dataset, ConcatDataset([subset, Images(EXACT, count=4)])):
        many = len(whole)
        wanted = [*range(-many, many)]
        with loader(way, whole, 8, sampler=wanted) as batches:
            assert indices(copies(batches)) == [whole[index][1] for index in wanted]
    for index in (-many - 1, many):
        with loader(way, whole, 1, sampler=[index]) as batches, pytest.raises(IndexError):
            next(iter(batches))


@pytest.mark.parametrize("way", ["caller", "threads"], indirect=True)
@pytest.mark.parametrize("first", [torch.uint8, torch.float32])
def test_concatenated_types_become_those_of_torch(way: str, first: torch.dtype) -> None:
    """Bytes beside floats of the same shape are collated as by DataLoader, which keeps values."""
    kinds = [first, torch.uint8 if first == torch.float32 else torch.float32]
    each = [ResizeCenterCrop(32, 24, dtype=kind) for kind in kinds]
    whole = ConcatDataset([Images(transform, count=3) for transform in each])
    with loader(way, whole, 4) as batches:
        assert_same(copies(batches), copies(DataLoader(whole, 4)))


@pytest.mark.parametrize("channels_last", [False, True])
def test_images_without_targets(way: str, channels_last: bool) -> None:
    """A batch without targets is the tensor, in the given layout; if all are damaged, none."""
    dataset = Images(EXACT, damaged=(0, 1, 4, 5), count=7, on_error="skip")
    dataset.has_targets = False
    with loader(way, dataset, 2, channels_last=channels_last) as batches:
        made = [batch.clone() for batch in batches]

    layout = torch.channels_last if channels_last else torch.contiguous_format
    assert [images.is_contiguous(memory_format=layout) for images in made] == [True] * len(made)
    with plain(Images(EXACT, count=7), 2) as whole:
        expected = [[images] for images, numbers in whole if set(numbers.tolist()) & {2, 3, 6}]
        assert_alike(way, [[images] for images in made], expected)


def doubled(box: Any) -> Any:
    return box * 2


@pytest.mark.parametrize("way", [way for way in WAYS if not starts_processes(way)], indirect=True)
def test_batches_in_inference_mode_are_plain_tensors(way: str) -> None:
    """Batches that were made in inference mode can be used for training after it."""
    with torch.inference_mode(), loader(way, Images(EXACT, count=4), 2) as batches:
        made = [images for images, _ in batches]

    assert len(made) == 2
    assert not any(images.is_inference() for images in made)
    (made[0] * torch.ones(1, requires_grad=True)).sum().backward()


def changes() -> list[tuple[Any, str, Any]]:
    """Return a transform, and what is assigned in mid-epoch: sizes, targets, options."""
    other = RandomResizedCrop((20, 16), quality="exact", dtype=torch.float32)
    return [
        (EXACT, "transform", other),
        (EXACT, "transform", Resize((30, 30), dtype=torch.float32)),
        (EXACT, "transform", ToBytes()),
        (EXACT, "target_transform", doubled),
        (EXACT, "decode_options", DecodeOptions(max_pixels=100)),
    ]


class ToBytes:
    """A user's transform, whose images have a size of their own."""

    def __call__(self, image: Any) -> torch.Tensor:
        return torch.tensor(list(image.resize((5, 4)).tobytes()))


@pytest.mark.parametrize("at", range(5))
def test_what_is_assigned_in_mid_epoch_begins_with_the_next(way: str, at: int) -> None:
    """The epoch goes on as it began, and the next one has what was assigned."""
    before, name, value = changes()[at]
    if way in ("normalised later", "backend") and not isinstance(value, RandomResizedCrop):
        pytest.skip("a device takes no such transform")
    dataset = Images(before)
    with plain(Images(before)) as expected:
        whole = copies(expected)
    with loader(way, dataset) as batches:
        epoch = iter(batches)
        made = copies([next(epoch)])
        setattr(dataset, name, value)
        made += copies(epoch)
        assert_alike(way, made, whole)
        changed = Images(before)
        setattr(changed, name, value)
        with plain(changed, threads=0) as expected:
            expected.set_epoch(1)
            if name == "decode_options":
                with pytest.raises(ImageTooLarge):
                    next(iter(batches))
            else:
                assert_alike(way, copies(batches), copies(expected))


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

    dataset: Any = Plain(make, 12) if way == "threads" else Hanging(EXACT, count=12)
    dataset.thread_safe = True
    with loader(way, dataset, timeout=1.5) as batches:
        seen = targets_and_errors(batches)
        go.set()

    assert [type(one) for one in seen] == [list, TimeoutError, list]
    assert "batch 1 " in str(seen[1])
    assert ("items [4, 5" if way == "normalised later" else "items [5") in str(seen[1])
