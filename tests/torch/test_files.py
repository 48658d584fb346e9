"""Datasets and loaders whose image has become a FIFO since it was listed: nobody waits for it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
import torch
from fifos import fed
from loading import PROCESSES

from fastdecode.testing import drawing, encode
from fastdecode.torch import ImageFolder, ImageList, Loader, ShardStream
from fastdecode.torch.transforms import RandomResizedCrop

pytestmark = [
    pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="there are no FIFOs here"),
    *map(pytest.mark.filterwarnings, PROCESSES),
]

JPEG = encode(drawing(64, 48))
COUNT, SWAPPED = 12, 5


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Make a folder of one class."""
    (tmp_path / "cat").mkdir()
    for number in range(COUNT):
        (tmp_path / "cat" / f"{number:02d}.jpg").write_bytes(JPEG)
    return tmp_path


def _swapped(folder: Path) -> Any:
    return fed(folder / "cat" / f"{SWAPPED:02d}.jpg", JPEG)


def _dataset(folder: Path, on_error: Any) -> Any:
    return ImageFolder(folder, RandomResizedCrop(16), on_error=on_error)


def _by_threads(dataset: Any) -> Any:
    return Loader(dataset, 4, threads=2)


def _by_processes(dataset: Any) -> Any:
    return Loader(dataset, 4, workers=1)


def _by_torch(dataset: Any) -> Any:
    return torch.utils.data.DataLoader(dataset, 4, num_workers=1)


@pytest.mark.parametrize("make", [_by_threads, _by_processes, _by_torch])
def test_a_fifo_ends_an_epoch_with_its_name(make: Any, folder: Path) -> None:
    """With ``on_error="raise"`` the image that became a FIFO is named, in threads and processes."""
    dataset = _dataset(folder, "raise")
    with _swapped(folder), pytest.raises(OSError, match=r"a FIFO .*pass the bytes.*05\.jpg"):
        list(make(dataset))


@pytest.mark.parametrize("make", [_by_threads, _by_processes])
def test_a_fifo_is_skipped_as_a_damaged_image_is(make: Any, folder: Path) -> None:
    """With ``on_error="skip"`` the epoch goes on without it, and says so."""
    dataset = _dataset(folder, "skip")
    with _swapped(folder), make(dataset) as loader:
        assert sum(len(images) for images, _ in loader) == COUNT - 1
    assert [(failure.index, Path(failure.path).name) for failure in dataset.errors] == [
        (SWAPPED, "05.jpg")
    ]
    assert "a FIFO" in dataset.errors[0].reason


def test_a_list_is_not_read_from_a_fifo(tmp_path: Path) -> None:
    """`ImageList.from_csv` opens regular files, and says of others what to do."""
    refused = pytest.raises(OSError, match=r"a FIFO .*save what it gives to a file")
    with fed(tmp_path / "list.csv", b"a.jpg,1\n") as pipe, refused:
        ImageList.from_csv(pipe)


def test_shards_are_not_read_from_a_fifo(tmp_path: Path) -> None:
    """`ShardStream` reads regular files; a pipe is for `stream_tar`, as an open file."""
    with fed(tmp_path / "s.tar", b"nothing") as pipe, pytest.raises(OSError, match="a FIFO"):
        list(ShardStream([str(pipe)]))
