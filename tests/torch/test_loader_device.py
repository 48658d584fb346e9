"""`Loader(normalize_on="device")` copies bytes; the floats equal those of the host."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from loading import PROCESS_WARNINGS, Images, copies, device_loader, epoch
from loading import SeededLoader as Loader
from same import assert_same

from fastdecode.torch import Fused
from fastdecode.torch._loader.transfer import Transfer
from fastdecode.torch.transforms import (
    IMAGENET_MEAN,
    IMAGENET_STD,
    RandomResizedCrop,
    RandomResizedCropFlipNormalize,
    Resize,
    ResizeCenterCrop,
)

TRANSFORMS = [
    RandomResizedCropFlipNormalize(24),
    RandomResizedCrop(
        (20, 31), quality="exact", mean=(0.1, 0.2, 0.3), std=(0.5, 2.0, 1.0), flip=0.5
    ),
    ResizeCenterCrop(40, 60, dtype=torch.float32),
    Resize((16, 18), flip=0.5, mean=IMAGENET_MEAN, std=IMAGENET_STD),
    Fused(RandomResizedCropFlipNormalize(24, flip=0.0)),
]


def epoch_later(dataset: Any, batch_size: int = 4, **options: Any) -> list[Any]:
    with device_loader(dataset, batch_size, **options) as loader:
        return copies(loader)


@pytest.mark.parametrize("transform", TRANSFORMS, ids=lambda one: type(one).__name__)
@pytest.mark.parametrize("options", [{}, {"channels_last": True}, {"threads": 0}], ids=str)
def test_floats_are_those_of_the_host(transform: Any, options: dict[str, Any]) -> None:
    """For any transform and layout, floats are bit-identical, with the same strides and targets."""
    options = {"shuffle": True, "seed": 3, "threads": 2, **options}

    ours = epoch_later(Images(transform), 5, **options)
    theirs = epoch(Images(transform), 5, **options)

    assert_same(ours, theirs)
    for (images, _), (expected, _) in zip(ours, theirs, strict=True):
        assert images.dtype == torch.float32
        assert images.stride() == expected.stride()


@pytest.mark.parametrize("disabled", ["", "native"])
@pytest.mark.parametrize("how", [{"threads": 2}, {"workers": 2}], ids=str)
@pytest.mark.filterwarnings(*PROCESS_WARNINGS)
def test_samples_of_processes_and_without_the_core_are_copied_as_bytes(
    monkeypatch: pytest.MonkeyPatch, disabled: str, how: dict[str, int]
) -> None:
    """Samples that are made one by one, or in worker processes, are copied as bytes, too."""
    monkeypatch.setenv("FASTDECODE_DISABLE", disabled)

    assert_same(epoch_later(Images(), **how), epoch(Images(), threads=2))


@pytest.mark.parametrize("normalize_on", ["host", "device"])
def test_bytes_are_copied_where_the_device_normalises(
    monkeypatch: pytest.MonkeyPatch, normalize_on: Any
) -> None:
    """Bytes are copied to another device, and the consumer gets floats."""
    staged: list[Any] = []
    original = Transfer.stage

    def stage(self: Transfer, batch: Any) -> Any:
        staged.append(batch.batch[0].dtype)
        return original(self, batch)

    monkeypatch.setattr(Transfer, "stage", stage)
    with Loader(Images(), 8, threads=2, device="meta", normalize_on=normalize_on) as loader:
        for images, _ in loader:
            assert (images.dtype, images.device.type) == (torch.float32, "meta")

    assert set(staged) == {torch.uint8 if normalize_on == "device" else torch.float32}


def test_without_a_device_it_is_as_on_the_host() -> None:
    """On the CPU floats are made at once, which is faster; the batches are the same."""
    assert_same(epoch(Images(), threads=2, normalize_on="device"), epoch(Images(), threads=2))
