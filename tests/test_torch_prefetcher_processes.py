"""`DevicePrefetcher` together with processes: DataLoader's workers, and forks."""

from __future__ import annotations

import gc
import multiprocessing
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from prefetching import Numbers, eventually, threaded, threads  # noqa: E402 - it needs torch
from torch.utils.data import DataLoader, Dataset  # noqa: E402

import fastdecode  # noqa: E402

SAMPLES = sorted((Path(fastdecode.__file__).parent / "samples").glob("*.jpg"))
# Other tests leave threads behind, which Python 3.12 dislikes in a process that forks.
FORKS = pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")


@pytest.fixture(autouse=True)
def no_thread_is_left() -> Iterator[None]:
    """After each test the threads are gone."""
    yield
    gc.collect()
    eventually(lambda: threads() == 0)


class Photos(Dataset):
    """The sample photos, decoded small."""

    def __len__(self) -> int:
        return len(SAMPLES)

    def __getitem__(self, index: int) -> Any:
        image = fastdecode.decode_file(SAMPLES[index], 8, region=(0, 0, 64, 64))
        return torch.from_numpy(image), index


@FORKS
@pytest.mark.parametrize(
    "options", [{}, {"num_workers": 2}, {"num_workers": 1, "persistent_workers": True}]
)
def test_torchs_loader_gives_the_same_batches(options: dict[str, Any]) -> None:
    """A DataLoader of photos gives through the prefetcher what it gives alone, epoch for epoch."""
    loader = DataLoader(Photos(), batch_size=2, **options)
    batches = threaded(loader)

    for _ in range(2):
        for (images, indices), (expected, numbers) in zip(
            batches, DataLoader(Photos(), 2), strict=True
        ):
            assert torch.equal(images, expected)
            assert torch.equal(indices, numbers)


@FORKS
def test_torchs_loader_can_be_left_early() -> None:
    """Leaving an epoch of a DataLoader with lasting workers leaves the next one whole."""
    loader = DataLoader(Photos(), num_workers=1, persistent_workers=True)
    batches = threaded(loader)

    next(iter(batches))

    assert [index.item() for _, index in batches] == list(range(len(SAMPLES)))


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@FORKS
def test_an_iterator_is_of_no_use_in_a_forked_process() -> None:
    """A child of a fork has no thread; asking its copy is an error, not a wait for ever."""
    batches = iter(threaded(Numbers(50)))
    next(batches)

    def child() -> None:
        with pytest.raises(RuntimeError, match="forked"):
            next(batches)

    process = multiprocessing.get_context("fork").Process(target=child)
    process.start()
    process.join(60)

    assert process.exitcode == 0
    assert next(batches)[0] == 1
