"""What `ShardStream` finds out about its shards is the same for all of its readers."""

from __future__ import annotations

import tarfile
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

from loading import encoded  # noqa: E402
from shards import add, write_shards  # noqa: E402

from fastdecode.stores.tar import index_tar  # noqa: E402
from fastdecode.torch import ShardStream, StoreDataset  # noqa: E402
from fastdecode.torch.transforms import ResizeCenterCropNormalize  # noqa: E402


def _half_labelled(path: Path) -> Path:
    with tarfile.open(path, "w") as tar:
        for number in range(4):
            add(tar, f"{number}.jpg", encoded()[0])
            if number % 2:
                add(tar, f"{number}.cls", b"%d" % number)
    return path


def test_one_sample_without_a_target_does_not_drop_those_of_others(tmp_path: Path) -> None:
    """Every rank and worker gives pairs, wherever its own share begins."""
    path = _half_labelled(tmp_path / "a.tar")
    for rank in range(2):
        stream = ShardStream(path, ResizeCenterCropNormalize(32, 24), rank=rank, world_size=2)

        assert all(isinstance(sample, tuple) for sample in stream)
    assert [sample[1] for sample in ShardStream(path, ResizeCenterCropNormalize(32, 24))] == [
        None,
        1,
        None,
        3,
    ]
    alone = ShardStream(path, ResizeCenterCropNormalize(32, 24), has_targets=False)
    assert all(isinstance(sample, torch.Tensor) for sample in alone)


def test_shards_of_different_classes_are_refused(tmp_path: Path) -> None:
    """As when they are opened as one store: a target would mean one thing here, another there."""
    paths = write_shards(tmp_path, [2, 0, 3])
    index_tar(paths[0], classes=["cat", "dog"])
    index_tar(paths[1])
    index_tar(paths[2], classes=["dog", "cat"])
    with pytest.raises(ValueError, match=r"part-002\.tar has other classes than .*part-000\.tar"):
        ShardStream(paths)

    index_tar(paths[2], classes=["cat", "dog"])
    assert ShardStream(paths).classes == ["cat", "dog"]
    Path(f"{paths[0]}.fdx").write_bytes(b"damaged")
    assert ShardStream(paths).classes == ["cat", "dog"]


def test_a_dataset_hands_options_to_its_store(tmp_path: Path) -> None:
    """Which file of a sample is the picture, for example."""
    path = tmp_path / "a.tar"
    with tarfile.open(path, "w") as tar:
        add(tar, "1.jpg", encoded()[0])
        add(tar, "1.other.jpg", encoded()[1])
        add(tar, "1.cls", b"5")
    dataset = StoreDataset(path, store_options={"image": "other.jpg"})

    assert dataset.key(0) == "1.other.jpg"
    assert dataset[0][1] == 5
    with pytest.raises(ValueError, match="open already"):
        StoreDataset(dataset.store, store_options={"image": "jpg"})
