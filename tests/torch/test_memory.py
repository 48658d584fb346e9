"""`BatchMemory` reuses free memory, and never memory that is in use."""

from __future__ import annotations

import gc
import tracemalloc
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from loading import Images, Sources
from loading import SeededLoader as Loader
from PIL import Image
from same import assert_same

from fastdecode.testing import encode
from fastdecode.torch._loader.memory import BatchMemory, new_sample
from fastdecode.torch.transforms import RandomResizedCrop, Resize

SHAPE = (4, 3, 5, 6)
LARGE = (4, 3, 100, 100)
MEGABYTE = 1e6


@pytest.fixture
def traced() -> Iterator[Any]:
    """Return a function that returns how many bytes have been allocated and not freed since."""
    tracemalloc.start()
    yield lambda: tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()


def take(memory: BatchMemory, shape: tuple[int, ...] = SHAPE, **options: Any) -> Any:
    return memory.take(shape, torch.float32, **{"channels_last": False, **options})


@pytest.mark.parametrize(
    "view",
    [
        lambda tensor: tensor[1:, :, 2],
        lambda tensor: tensor.numpy()[0],
        lambda tensor: tensor.unbind(0)[3],
        lambda tensor: tensor.view(torch.uint8),
        lambda tensor: memoryview(tensor.numpy()),
        lambda tensor: tensor.untyped_storage(),
        lambda tensor: torch.utils.dlpack.from_dlpack(torch.utils.dlpack.to_dlpack(tensor)),
        lambda tensor: torch.ones(1, requires_grad=True) * tensor,  # saved for the gradient
    ],
    ids=["slice", "array", "slot", "bytes", "memoryview", "storage", "dlpack", "autograd"],
)
def test_any_view_keeps_the_memory(view: Any) -> None:
    """A view, an array or a storage keeps the block from being reused."""
    memory = BatchMemory(2)
    tensor = take(memory)
    place = tensor.data_ptr()
    assert take(memory).data_ptr() != place
    left = view(tensor)
    del tensor

    assert take(memory).data_ptr() != place
    del left
    assert place in {one.data_ptr() for one in [take(memory), take(memory)]}


def test_parts_have_blocks_of_their_own() -> None:
    """The block of a small view is not lost to, and does not take that of, a large one."""
    memory = BatchMemory(1)
    large, small = take(memory, LARGE), take(memory, part=1)
    places = large.data_ptr(), small.data_ptr()
    del small, large

    small, large = take(memory, part=1), take(memory, LARGE)
    assert (large.data_ptr(), small.data_ptr()) == places


def test_blocks_that_are_too_small_are_let_go(traced: Any) -> None:
    """Blocks that are too small are released to the system."""
    memory = BatchMemory(3)
    kept = [take(memory, (3, 3, 200, 200)) for _ in range(3)]
    del kept
    assert traced() > 4 * MEGABYTE
    take(memory, (4, 3, 200, 200))

    assert 1.9 * MEGABYTE < traced() < 2.1 * MEGABYTE


def test_so_many_free_blocks_are_kept_and_no_more(traced: Any) -> None:
    """Of many blocks that are freed at once, only some are kept."""
    memory = BatchMemory(2)
    kept = [take(memory, LARGE) for _ in range(9)]
    one = traced() / 9
    del kept

    assert 1.9 * one < traced() < 2.1 * one


def test_a_sample_takes_a_free_block_of_its_size() -> None:
    """A block of up to twice the size serves again; the others stay free for what they fit."""
    sides = (400, 1000, 2500)
    memory = BatchMemory(1, samples=len(sides))
    with memory.for_samples():
        kept = [new_sample((3, side, 500), torch.uint8) for side in sides]
        places = [one.data_ptr() for one in kept]
        del kept
        for side, place in ((480, 0), (700, 1), (2600, 2), (1100, 1), (260, 0)):
            sample = new_sample((3, side, 500), torch.uint8)

            assert sample.shape == (3, side, 500)
            assert sample.data_ptr() == places[place]
            del sample
        assert new_sample((3, 240, 500), torch.uint8).data_ptr() not in places  # wastes no block


def test_free_blocks_of_samples_are_limited(traced: Any) -> None:
    """Of many samples that are dropped at once, the blocks of so many batches are kept."""
    memory, begun = BatchMemory(2, samples=3), traced()
    with memory.for_samples():
        kept = [new_sample((3, 500, 500), torch.uint8) for _ in range(10)]
    one = (traced() - begun) / len(kept)
    del kept[1:]

    assert 6.9 * one < traced() - begun < 7.1 * one
    del memory
    assert traced() - begun < 1.1 * one  # that which is still kept


def test_blocks_of_sizes_that_come_no_more_are_released(traced: Any) -> None:
    """Each new block lets an old one go that did not fit."""
    memory, begun = BatchMemory(1, samples=64), traced()
    with memory.for_samples():
        for side in range(100, 1000, 20):
            kept = [new_sample((3, side, side), torch.uint8) for _ in range(8)]
    del kept

    assert traced() - begun < 2 * 8 * 1.25 * 3 * 980 * 980


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_pinned_memory_is_pinned() -> None:
    """For a CUDA device the memory is page-locked, in either layout."""
    memory = BatchMemory(2, pinned=True)

    assert take(memory).is_pinned()
    assert take(memory, channels_last=True).is_pinned()


@pytest.mark.parametrize("options", [{}, {"channels_last": True}, {"collate_fn": list}])
def test_twenty_epochs_need_no_more_memory_than_one(options: Any, traced: Any) -> None:
    """The batches of 20 epochs, each dropped after its step, use the memory of the first.

    So do lists of samples.
    """
    places: set[int] = set()
    photos = Images(RandomResizedCrop(200))
    with Loader(photos, 4, threads=2) as loader:
        for _ in loader:  # what is imported on first use is no memory of a batch
            pass
    del loader, _
    gc.collect()
    begun = traced()
    with Loader(photos, 4, True, threads=2, **options) as loader:
        for _ in range(20):
            for batch in loader:
                image = batch[0][0]  # of a list of samples, or of a batch
                places.add(image.data_ptr())
        size = 4 * image.nbytes
        del image, batch
        taken = traced()

    # One with the consumer, one awaited, and as many as are made ahead. Each thread's part of a
    # list has memory of its own, and the first sample lies in that of any part.
    parts = 2 if "collate_fn" in options else 1
    assert len(places) <= parts * (2 + loader.prefetch)
    assert taken - begun < (2.2 + loader.prefetch) * size


@pytest.mark.parametrize("transform", [RandomResizedCrop(20), Resize(300), Resize(1200)])
def test_samples_that_are_kept_are_never_overwritten(transform: Any) -> None:
    """One sample of each list, kept over two epochs, stays as it was.

    The largest ones have 4 MB and more, whose memory is made in another way.
    """
    with Loader(Images(transform), 4, threads=2, collate_fn=list) as loader:
        kept = [batch[1][0] for _ in range(2) for batch in loader]
        seen = [image.clone() for image in kept]
        for _ in loader:
            pass

    assert len({image.data_ptr() for image in kept}) == len(kept)
    assert_same(kept, seen)


def test_images_of_several_sizes_need_no_more_memory_later(traced: Any) -> None:
    """The samples of later epochs, whose sizes differ, lie where earlier ones lay."""
    sides = [(400, 300), (300, 400), (500, 300), (600, 300)]
    files = [encode(Image.new("RGB", one)) for one in sides]
    photos, largest, begun = Sources(*files, transform=Resize(300)), 3 * 300 * 600, traced()
    with Loader(photos, 2, True, threads=2, collate_fn=list) as loader:
        for _ in range(20):
            assert {max(image.shape[1:]) for batch in loader for image, _ in batch} > {400}
        kept = traced() - begun

    # Blocks are a quarter larger, and as many may be free as are in use at once.
    assert largest < kept < 2 * 2 * (loader.prefetch + 2) * 1.25 * largest
    loader.close()
    assert traced() - begun < largest
