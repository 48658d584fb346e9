"""The transforms in use: slots of batches, generators, threads, copies, what they tell."""

from __future__ import annotations

import copy
import io
import pickle
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from PIL import Image

torch = pytest.importorskip("torch")

from torch_reference import PHOTOS, encoded, pixels, seeded  # noqa: E402 - they need torch

from fastdecode import probe  # noqa: E402
from fastdecode.torch.transforms import (  # noqa: E402
    EncodedTransform,
    RandomResizedCrop,
    RandomResizedCropFlipNormalize,
    Resize,
    ResizeCenterCrop,
    ResizeCenterCropNormalize,
)

EXACT: dict[str, Any] = {"dtype": torch.uint8, "quality": "exact"}
PHOTO = PHOTOS[0].read_bytes()

TRANSFORMS = [
    RandomResizedCropFlipNormalize(40),
    RandomResizedCrop((24, 40), (0.5, 1), (1, 2), flip=0.2, dtype=torch.uint8, headroom=2),
    ResizeCenterCrop(44, 40, dtype=torch.float32),
    ResizeCenterCrop(30, (40, 20), flip=0.5, dtype=torch.uint8),
    Resize((33, 40), flip=0.5, dtype=torch.float32),
    Resize((33, 40), dtype=torch.uint8, quality="exact"),
]


def named(transform: EncodedTransform) -> str:
    return type(transform).__name__


@pytest.mark.parametrize("transform", TRANSFORMS, ids=named)
def test_results_go_into_a_slot_of_a_batch(transform: Any) -> None:
    """With `out` of any strides the values are the same, and the slots beside it stay untouched."""
    expected = transform(PHOTO, generator=seeded(1))
    assert tuple(expected.shape) == transform.shape
    assert expected.dtype == transform.dtype

    for layout in (torch.contiguous_format, torch.channels_last):
        batch = torch.full((3, *transform.shape), 7, dtype=transform.dtype)
        batch = batch.contiguous(memory_format=layout)
        slot = batch[1]
        result, _ = transform.with_geometry(PHOTO, generator=seeded(1), out=slot)

        assert result is slot
        assert torch.equal(batch[1], expected)
        assert (batch[0] == 7).all()
        assert (batch[2] == 7).all()


def test_the_unnormalised_result_is_a_new_one_each_time() -> None:
    """A result does not change when the next picture is decoded, even if nothing is resized."""
    header = probe(PHOTO)
    transform = Resize((header.height, header.width), **EXACT)

    first = transform(PHOTO)
    kept = first.clone()
    transform(encoded(Image.open(PHOTOS[1]).resize((header.width, header.height))))

    assert torch.equal(first, kept)
    assert torch.equal(first, pixels(PHOTO))


@pytest.mark.parametrize("transform", TRANSFORMS, ids=named)
def test_the_generator_draws_as_the_global_one(transform: Any) -> None:
    """A generator and torch's global one of the same seed give the same result."""
    torch.manual_seed(11)
    state = torch.random.get_rng_state()
    by_global = transform(PHOTO)
    torch.random.set_rng_state(state)
    by_generator = transform(PHOTO, generator=seeded(11))

    assert torch.equal(by_global, by_generator)
    assert torch.equal(torch.random.get_rng_state(), state)
    assert transform.isolated


@pytest.mark.parametrize(
    "make",
    [
        lambda: RandomResizedCropFlipNormalize(40, ratio=(0.7, 1.3)),
        lambda: ResizeCenterCropNormalize(30, (40, 20), flip=0.5),
        lambda: Resize((33, 40), dtype=torch.uint8),
    ],
)
def test_another_default_device_changes_nothing(make: Any) -> None:
    """Where new tensors usually go is no matter: draws are the generator's, results on the CPU."""
    with torch.device("meta"):
        result = make()(PHOTO, generator=torch.Generator("cpu").manual_seed(11))

    assert result.device.type == "cpu"
    assert torch.equal(result, make()(PHOTO, generator=seeded(11)))


def test_many_threads_give_what_one_gives() -> None:
    """Threads that share transforms, each at another picture, do not get into each other's way."""
    files = [path.read_bytes() for path in PHOTOS]
    tasks = [(t, d, n) for n in range(4) for t in TRANSFORMS for d in files]

    def run(task: Any) -> Any:
        transform, data, seed = task
        return transform(data, generator=seeded(seed))

    alone = [run(task) for task in tasks]
    with ThreadPoolExecutor(8) as pool:
        together = list(pool.map(run, tasks))

    assert all(torch.equal(a, b) for a, b in zip(alone, together, strict=True))


@pytest.mark.parametrize("transform", TRANSFORMS, ids=named)
def test_a_copy_and_an_unpickled_one_do_the_same(transform: Any) -> None:
    """They can be sent to worker processes."""
    expected = transform(PHOTO, generator=seeded(2))

    for other in (copy.deepcopy(transform), pickle.loads(pickle.dumps(transform))):
        assert torch.equal(other(PHOTO, generator=seeded(2)), expected)
        assert repr(other) == repr(transform)
        assert other.shape == transform.shape


@pytest.mark.parametrize("kind", [bytearray, memoryview, io.BytesIO])
def test_the_bytes_come_in_many_types(kind: Any) -> None:
    """Whatever decode() takes is taken."""
    data = kind(PHOTO).getbuffer() if kind is io.BytesIO else kind(PHOTO)

    assert torch.equal(Resize(20)(data), Resize(20)(PHOTO))


def test_repr_says_what_was_asked_for() -> None:
    """Every argument that changes the result can be read in the repr."""
    assert repr(TRANSFORMS[1]) == (
        "RandomResizedCrop(size=(24, 40), scale=(0.5, 1.0), ratio=(1, 2), flip=0.2, "
        "dtype=torch.uint8, quality='fast', headroom=2.0)"
    )
    assert repr(TRANSFORMS[2]) == (
        "ResizeCenterCrop(resize=44, size=(40, 40), flip=0.0, mean=None, std=None, "
        "dtype=torch.float32, quality='fast')"
    )
    assert "mean=(0.485, 0.456, 0.406), std=(0.229, 0.224, 0.225)" in repr(
        ResizeCenterCropNormalize(8, 8)
    )


def test_the_shape_is_told_where_it_is_known() -> None:
    """Only Resize of one side gives results of different shapes."""
    assert RandomResizedCropFlipNormalize(5).shape == (3, 5, 5)
    assert ResizeCenterCropNormalize(9, (5, 6)).shape == (3, 5, 6)
    assert Resize((5, 6)).shape == (3, 5, 6)
    assert Resize(5).shape is None
    assert Resize(100)(PHOTO).shape == (3, 100, 150)
