"""`Loader`: the contents of its batches."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest
import torch
from loading import (
    COUNT,
    PROCESS_WARNINGS,
    Images,
    Plain,
    add_random,
    copies,
    epoch,
    epochs,
    indices,
    same,
    targets,
)
from loading import (
    SeededLoader as Loader,
)
from torch.utils.data import ConcatDataset, DataLoader, Subset, TensorDataset

from fastdecode.torch._order import sample_seed
from fastdecode.torch.transforms import (
    Resize,
    ResizeCenterCropNormalize,
)
from fastdecode.torch.transforms._random_crop import generator_of


def test_batches_are_those_of_torchs_loader() -> None:
    """Without random draws, images and targets equal those of DataLoader."""
    dataset = Images(ResizeCenterCropNormalize(28, 24))

    ours = epoch(dataset, threads=3)
    theirs = list(DataLoader(dataset, 4))

    assert same(ours, theirs)
    assert [type(batch) for batch in ours] == [type(batch) for batch in theirs]


@pytest.mark.parametrize("threads", [1, 2, 5])
@pytest.mark.parametrize("batch_size", [1, 4, 30])
def test_number_of_threads_changes_nothing(threads: int, batch_size: int) -> None:
    """Batches of the calling thread and of 1, 2 or 5 others are bit-identical."""
    options: dict[str, Any] = {"shuffle": True, "seed": 3}

    expected = epoch(Images(), batch_size, threads=0, **options)

    assert same(epoch(Images(), batch_size, threads=threads, **options), expected)


def test_draws_of_an_item_follow_from_seed_epoch_and_index() -> None:
    """A sample's generator depends only on seed, epoch and index, not on the batch."""
    dataset = Images()
    with Loader(dataset, 4, True, seed=7, threads=2) as loader:
        loader.set_epoch(5)
        for images, numbers in loader:
            for image, index in zip(images, numbers.tolist(), strict=True):
                generator = generator_of(sample_seed(7, 5, index))

                assert torch.equal(image, dataset.load(index, generator=generator)[0])


def test_seed_and_epoch_change_order_and_draws() -> None:
    """Another seed or epoch gives other crops in another order; the same ones give the same."""
    how = {"shuffle": True, "threads": 2}
    first, second = epochs(2, Images(), seed=1, **how)

    assert same(epochs(2, Images(), seed=1, **how), [first, second])
    assert not same(epoch(Images(), seed=2, **how), first)
    assert targets(first) != targets(second)
    assert sorted(indices(second)) == list(range(COUNT))
    unshuffled = [epoch(Images(), threads=1, seed=seed) for seed in (1, 2)]
    assert targets(unshuffled[0]) == targets(unshuffled[1])
    assert not same(*unshuffled)


def test_length_and_drop_last() -> None:
    """`len` is the number of batches, and `drop_last` leaves an incomplete one out."""
    with_rest = Loader(Images(), 4, threads=2)
    without = Loader(Images(), 4, drop_last=True, threads=2)

    assert [len(images) for images, _ in with_rest] == [4] * 5 + [3]
    assert [len(images) for images, _ in without] == [4] * 5
    assert (len(with_rest), len(without), len(Loader(Images(count=0)))) == (6, 5, 0)
    assert list(Loader(Images(count=0), threads=2)) == []


def test_subset_still_decodes_into_the_batch() -> None:
    """A Subset of a Subset gives the right samples, in reused memory."""
    subset = Subset(Subset(Images(), range(20, 0, -1)), [3, 0, 5])
    places = set()
    with Loader(subset, 3, threads=2) as loader:
        for _ in range(6):
            for images, numbers in loader:
                assert numbers.tolist() == [17, 20, 15]
                places.add(images.data_ptr())
                del images

    assert len(places) < 6


@pytest.mark.parametrize(
    "dataset",
    [
        TensorDataset(torch.arange(10.0).view(10, 1), torch.arange(10)),
        Plain(lambda index: {"image": torch.full((2,), index), "name": str(index)}, 7),
        Plain(lambda index: (np.full((2, 2), index, np.uint8), float(index), str(index)), 7),
        Plain(lambda index: torch.tensor([index]), 7),
    ],
    ids=["tensors", "dict", "tuple", "tensor"],
)
def test_other_datasets_are_collated_as_by_torch(dataset: Any) -> None:
    """Samples of any dataset become the same containers and tensors as in DataLoader."""
    ours = list(Loader(dataset, 3, threads=2))
    theirs = list(DataLoader(dataset, 3))

    assert repr(ours) == repr(theirs)
    assert len(ours) > 2


def test_images_of_any_size_are_collated() -> None:
    """Samples of equal shape are stacked; otherwise collate_fn gets them."""
    dataset = Images(Resize(20))

    assert epoch(dataset, threads=2)[0][0].shape == (4, 3, 20, 26)
    lists = list(Loader(dataset, 4, threads=2, collate_fn=lambda samples: samples))
    assert [len(samples) for samples in lists] == [4] * 5 + [3]
    assert lists[1][2][1] == 6


def test_collate_fn_is_given_the_samples() -> None:
    """collate_fn gets (image, target) in order, and its result is the batch."""
    crops = epoch(Images(), 5, threads=0)

    def collate(samples: list[Any]) -> Any:
        return torch.stack([image for image, _ in samples]), torch.tensor([t for _, t in samples])

    assert same(epoch(Images(), 5, threads=3, collate_fn=collate), crops)


@pytest.mark.filterwarnings(*PROCESS_WARNINGS)
@pytest.mark.parametrize("how", [{"threads": 2}, {"workers": 1}], ids=str)
def test_channels_last_without_a_known_shape(how: dict[str, int]) -> None:
    """Collated images get the memory layout, too, with targets or without."""
    for dataset in (Images(Resize(20)), Plain(lambda index: torch.full((3, 4, 5), index))):
        made = list(Loader(dataset, 4, channels_last=True, **how))
        assert same(made, list(Loader(dataset, 4, threads=1)))
        for batch in made:
            images = batch[0] if isinstance(batch, list) else batch

            assert images.is_contiguous(memory_format=torch.channels_last)


def test_kept_batches_are_never_overwritten() -> None:
    """Batches that the consumer keeps over two epochs are not overwritten."""
    with Loader(Images(), 4, True, threads=3, prefetch=1) as loader:
        kept, seen = [], []
        for _ in range(2):
            for batch in loader:
                kept.append(batch)
                seen += copies([batch])

    assert same(kept, seen)
    assert len({images.data_ptr() for images, _ in kept}) == len(kept)


def test_iterators_at_once_are_epochs_of_their_own() -> None:
    """Two iterators of one loader give two whole epochs, also if used in turn."""
    with Loader(Images(), 4, True, threads=2) as loader:
        expected = [copies(loader), copies(loader)]
        loader.set_epoch(0)
        pairs = list(zip(loader, loader, strict=True))

    assert same([[pair[0] for pair in pairs], [pair[1] for pair in pairs]], expected)


@pytest.mark.parametrize("prefetch", [1, 2, 7])
def test_so_many_batches_are_made_ahead(prefetch: int) -> None:
    """When a batch is handed out, exactly `prefetch` more have been begun, and none beyond.

    The only thread comes to another iterator's batch when it has done with those of the first.
    """
    read: list[int] = []

    def make(index: int) -> int:
        read.append(index)
        return index

    with Loader(Plain(make, 40), 2, threads=1, prefetch=prefetch) as loader:
        batches = iter(loader)
        next(batches)
        next(iter(loader))
        ahead = 2 * (prefetch + 1)

        assert read[:ahead] == list(range(ahead))
        assert read[ahead : ahead + 2] == [0, 1]  # of the other one


def test_chooses_processes_where_threads_cannot_help(monkeypatch: pytest.MonkeyPatch) -> None:
    """It uses threads, but processes for draws that it does not control, or for the GIL."""
    monkeypatch.setattr("fastdecode.torch._loader_arguments.usable_cores", lambda: 3)

    def chosen(dataset: Any, **options: Any) -> tuple[int, int]:
        loader = Loader(dataset, **options)
        return loader.threads, loader.workers

    assert chosen(Images()) == (3, 0)
    assert chosen(Subset(Images(), [1])) == (3, 0)
    assert chosen(ConcatDataset([Images(), Subset(Images(), [1])])) == (3, 0)
    assert chosen(ConcatDataset([Images(), Plain(str)])) == (0, 3)
    assert chosen(Plain(str)) == (0, 3)
    assert chosen(Images(lambda image: image)) == (0, 3)
    assert chosen(Plain(str), threads=2) == (2, 0)
    assert chosen(Images(), workers=1) == (0, 1)
    assert chosen(Images(), num_workers=2) == (2, 0)
    assert chosen(Plain(str), num_workers=2) == chosen(Images(add_random), num_workers=2) == (0, 2)
    assert chosen(Plain(str), num_workers=0) == (0, 0)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"batch_size": 0}, "batch_size"),
        ({"batch_size": 2.0}, "batch_size"),
        ({"threads": -1}, "threads"),
        ({"threads": "many"}, 'threads.*"auto"'),
        ({"workers": True}, "workers"),
        ({"prefetch": 0}, "prefetch"),
        ({"seed": "a"}, "seed"),
        ({"timeout": -1}, "timeout"),
        ({"timeout": "a"}, "timeout"),
        ({"shuffle": True, "sampler": [1]}, "shuffle or a sampler"),
        ({"threads": 1, "workers": 1}, "threads or workers"),
        *(({name: 1}, "both rank and world_size") for name in ("rank", "world_size")),
        *(({"rank": rank, "world_size": 2}, "rank must be from 0") for rank in (2, -1)),
        ({"rank": 0, "world_size": 0}, "rank"),
        ({"rank": "0", "world_size": 2}, "rank must be from 0"),
        *(
            ({"read_threads": wrong}, "read_threads must be an integer of at least 0")
            for wrong in (-1, 1.5, "2")
        ),
        *(
            ({"normalize_on": wrong}, "normalize_on must be 'host' or 'device', not")
            for wrong in ("gpu", None, True)
        ),
        # torch's
        ({"in_order": False}, "in_order=False has no meaning here"),
        ({"pin_memory_device": "cuda"}, "device="),
        ({"batch_size": None}, "batch_size=1"),
        ({"batch_sampler": [[1]], "batch_size": 4}, "leave out batch_size"),
        ({"batch_sampler": [[1]], "shuffle": True}, "leave out batch_size"),
        ({"batch_sampler": [[1]], "drop_last": True}, "leave out batch_size"),
        ({"num_workers": 2, "threads": 2}, "give only one"),
        ({"num_workers": 2, "workers": 2}, "give only one"),
        ({"num_workers": -1}, "num_workers must be an integer"),
        ({"num_workers": "8"}, "num_workers must be an integer"),
        ({"prefetch_factor": 0}, "prefetch_factor must be"),
        ({"prefetch_factor": 3, "prefetch": 4}, "give only one"),
        ({"generator": torch.Generator(), "seed": 3}, "give generator or seed"),
        ({"multiprocessing_context": "threads"}, "multiprocessing_context must be one of"),
    ],
)
def test_wrong_arguments_are_refused(options: dict[str, Any], said: str) -> None:
    """The error names the argument, and what to do instead, before anything is started."""
    with pytest.raises(ValueError, match=said):
        Loader(Images(), **options)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"dataset": iter([1, 2])}, "map-style"),  # which is pointed to torch's DataLoader
        ({"collate_fn": 3}, "collate_fn"),
        ({"colate_fn": len}, "no argument 'colate_fn'"),
        ({"worker_init_fn": 3}, "worker_init_fn must be a function"),
        ({"sampler": 5}, "sampler must be an iterable of indices, not 5"),
        ({"batch_sampler": 5}, "batch_sampler must be an iterable of lists of indices"),
        ({"generator": 3}, "generator must be a torch.Generator"),
    ],
)
def test_what_is_of_the_wrong_kind_is_refused(options: dict[str, Any], said: str) -> None:
    """An unknown keyword, or an argument of a wrong type, is a TypeError."""
    with pytest.raises(TypeError, match=said):
        Loader(**{"dataset": Images(), **options})


# Beside the plain loop: subsets, copies, blocks without gradients


def test_replacement_of_a_subset_is_of_the_subset() -> None:
    """The replacement of a Subset's damaged sample is in the Subset."""
    photos = Images(damaged=(0, 2, 4), on_error="replace")
    part = Subset(Subset(photos, [22, *range(6)]), range(1, 7))

    with Loader(part, 6, threads=1) as loader:
        ((_, targets),) = loader

    assert set(targets.tolist()) == {1, 3, 5}


def test_loader_can_be_pickled() -> None:
    """A copy has the same position, and its own threads."""
    with Loader(Images(count=6), 3, threads=2, seed=3) as original:
        next(iter(original))

        with pickle.loads(pickle.dumps(original)) as copied:
            assert copied.state_dict() == original.state_dict()
            assert same(list(copied), list(original))


def test_default_device_does_not_matter() -> None:
    """Batches are made on the host, whatever the default device is."""
    with Loader(Images(count=6), 3, shuffle=True, threads=2) as loader:
        expected = list(loader)
        loader.set_epoch(0)
        torch.set_default_device("meta")
        try:
            found = list(loader)
        finally:
            torch.set_default_device(None)

    assert same([batch[0] for batch in found], [batch[0] for batch in expected])
