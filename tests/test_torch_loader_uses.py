"""`Loader` as people use it beside the plain loop: subsets, copies, blocks without gradients."""

from __future__ import annotations

import pickle
from functools import partial

import pytest

torch = pytest.importorskip("torch")

from loading import Pictures, same  # noqa: E402
from torch.utils.data import RandomSampler, Subset, WeightedRandomSampler  # noqa: E402

from fastdecode import FastDecodeError  # noqa: E402
from fastdecode.torch import DevicePrefetcher  # noqa: E402
from fastdecode.torch.loader import Loader  # noqa: E402


def test_replacement_of_a_subset_is_of_the_subset() -> None:
    """What stands in for a damaged sample of a Subset is never one outside of it."""
    pictures = Pictures(damaged=(0, 2, 4), on_error="replace")
    part = Subset(Subset(pictures, [22, *range(6)]), range(1, 7))

    with Loader(part, 6, threads=1) as loader:
        ((_, targets),) = loader

    assert set(targets.tolist()) == {1, 3, 5}


def test_item_that_is_sampled_twice_is_drawn_for_twice() -> None:
    """A sampler with replacement gives different crops of the same picture."""
    sampler = WeightedRandomSampler([0, 0, 1, 0], 4)

    with Loader(Pictures(count=4), 4, sampler=sampler, threads=2) as loader:
        ((images, targets),) = loader

    assert targets.tolist() == [2] * 4
    assert len({image.numpy().tobytes() for image in images}) == 4


def test_device_that_is_missing_is_told_of_at_once() -> None:
    """A Loader for a device that cannot be used says so when it is made."""
    if torch.cuda.is_available():
        pytest.skip("there is a CUDA device")
    with pytest.raises(RuntimeError, match="cannot be used"):
        Loader(Pictures(), 4, device="cuda")
    for make in (partial(Loader, Pictures()), partial(DevicePrefetcher, [])):
        with pytest.raises(FastDecodeError, match="'cuda' cannot be used: PyTorch"):
            make(device="cuda")


def test_what_is_no_device_is_a_wrong_argument() -> None:
    """A name that PyTorch does not know is a ValueError, and a number of nothing a TypeError."""
    for make in (partial(Loader, Pictures()), partial(DevicePrefetcher, [])):
        with pytest.raises(ValueError, match="there is no device 'gpu'"):
            make(device="gpu")
        with pytest.raises(TypeError, match="device must be a name"):
            make(device=1.5)


def test_loader_can_be_pickled() -> None:
    """A copy stands where the loader stands, and has threads of its own."""
    with Loader(Pictures(count=6), 3, threads=2, seed=3) as original:
        next(iter(original))

        with pickle.loads(pickle.dumps(original)) as copied:
            assert copied.state_dict() == original.state_dict()
            assert same(list(copied), list(original))


def test_batches_in_inference_mode_are_plain_tensors() -> None:
    """The loop may stand in a block without gradients; the batches may be used after it."""
    with torch.inference_mode(), Loader(Pictures(count=4), 2, threads=2) as loader:
        batches = list(loader)

    assert len(batches) == 2
    assert not any(images.is_inference() for images, _ in batches)


def test_default_device_does_not_matter() -> None:
    """Batches are made on the host, whatever device new tensors are put on by default."""
    with Loader(Pictures(count=6), 3, shuffle=True, threads=2) as loader:
        expected = list(loader)
        loader.set_epoch(0)
        torch.set_default_device("meta")
        try:
            found = list(loader)
        finally:
            torch.set_default_device(None)

    assert same([batch[0] for batch in found], [batch[0] for batch in expected])


def test_dataset_may_grow_between_epochs() -> None:
    """Each epoch deals out the dataset as long as it is then."""
    pictures = Pictures(count=4)
    with Loader(pictures, 2, threads=1) as loader:
        first = len(list(loader))
        pictures.count = 8

        assert (first, len(loader), len(list(loader))) == (2, 4, 4)


@pytest.mark.parametrize(
    "wrong", [{"batch": -1}, {"batch": 99}, {"epoch": "x"}, {"settings": None}]
)
def test_damaged_state_is_refused(wrong: dict[str, object]) -> None:
    """A state that points nowhere is a ValueError, and not a wait without end."""
    with Loader(Pictures(count=6), 3, threads=1) as loader:
        state = {**loader.state_dict(), **wrong}

        with pytest.raises(ValueError, match="state"):
            loader.load_state_dict(state)
        assert len(list(loader)) == 2


def test_sampler_is_not_asked_before_its_epoch() -> None:
    """Loading the state of an epoch that has not begun draws nothing from torch's generator."""
    pictures = Pictures(count=6)
    with Loader(pictures, 3, sampler=RandomSampler(pictures), threads=1) as loader:
        state = loader.state_dict()
        before = torch.get_rng_state()

        loader.load_state_dict(state)

    assert torch.equal(torch.get_rng_state(), before)
