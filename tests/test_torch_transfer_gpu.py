"""What arrives on a GPU: tensors of every kind, and a DataLoader's batches."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")

if not torch.cuda.is_available():
    pytest.skip(
        "needs a CUDA device, and a PyTorch that is built with CUDA", allow_module_level=True
    )

from torch.utils.data import DataLoader, TensorDataset  # noqa: E402 - it is torch

from fastdecode.torch.prefetcher import DevicePrefetcher  # noqa: E402


@pytest.mark.parametrize(
    "make",
    [
        lambda t: t.to_sparse(),
        lambda t: t.requires_grad_(),
        lambda t: t.to(memory_format=torch.channels_last),
        lambda t: t[:, :, ::2],
        lambda t: t.expand(2, -1, -1, -1),
        lambda t: t[:0],
    ],
)
def test_tensors_of_every_kind_arrive(make: Callable[[Any], Any]) -> None:
    """Sparse, strided, expanded and empty tensors arrive with their values, and their layout."""
    tensor = make(torch.arange(3 * 4 * 4, dtype=torch.float32).view(1, 3, 4, 4))

    (moved,) = DevicePrefetcher([tensor], "cuda")

    assert moved.device.type == "cuda"
    assert moved.layout == tensor.layout
    assert torch.equal(moved.cpu().to_dense(), tensor.to_dense())


def test_the_memory_format_is_kept() -> None:
    """A batch with its channels last has them last on the device."""
    tensor = torch.ones(2, 3, 4, 5).to(memory_format=torch.channels_last)

    (moved,) = DevicePrefetcher([tensor], "cuda")

    assert moved.is_contiguous(memory_format=torch.channels_last)


def test_torchs_loader_may_pin_by_itself() -> None:
    """A DataLoader with workers and `pin_memory` gives what it gives alone."""
    data = TensorDataset(torch.arange(100.0), torch.arange(100))
    loader = DataLoader(data, 8, num_workers=2, pin_memory=True)

    for (values, indices), (one, two) in zip(
        DevicePrefetcher(loader, "cuda"), DataLoader(data, 8), strict=True
    ):
        assert torch.equal(values.cpu(), one)
        assert torch.equal(indices.cpu(), two)


def test_a_batch_from_a_block_without_gradients_may_be_used_after_it() -> None:
    """What is copied ahead in inference mode is no inference tensor."""
    batches = iter(DevicePrefetcher([torch.ones(5)] * 4, "cuda"))
    with torch.inference_mode():
        next(batches)
    weight = torch.ones(1, device="cuda", requires_grad=True)

    (next(batches) * weight).sum().backward()

    assert weight.grad.item() == 5
