"""Programs as users write them: no checker may complain, and each knows the types said here."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image as PillowImage
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, Subset
from typing_extensions import assert_type

import fastdecode
from fastdecode import (
    BackendInfo,
    DecodeError,
    FastDecodeError,
    Geometry,
    Header,
    decode,
    decode_batch,
    decode_file,
    decode_iter,
    probe,
    reduce_for,
)
from fastdecode.packing import pack
from fastdecode.stores import create_store, open_store
from fastdecode.torch import (
    DecodeDataset,
    DecodeMixin,
    DecodeOptions,
    DevicePrefetcher,
    ImageFolder,
    ImageList,
    Loader,
    ShardStream,
    StoreDataset,
    fuse,
)
from fastdecode.torch.transforms import RandomResizedCropFlipNormalize, ResizeCenterCropNormalize

if TYPE_CHECKING:
    from collections.abc import Iterator

Failed = FastDecodeError | OSError


def one_image(data: bytes, path: Path, reduce: int) -> None:
    assert_type(decode(data), NDArray[Any])
    decode(memoryview(data), reduce, mode="L", region=(0, 0, 8, 8), out=np.empty((8, 8), np.uint8))
    assert_type(decode_file(path, reduce, min_size=(256, 256), backend="pillow"), NDArray[Any])
    decode_file("cat.jpg", out=np.empty((480, 640, 3), np.uint8), max_pixels=None)
    header = probe(data)
    assert_type(header, Header)
    decode(data, reduce_for(header, 256))
    assert_type(fastdecode.backends(), list[BackendInfo])
    boxes = Geometry.of_decode(header, reduce).boxes([[0, 0, 8, 8]])
    print(boxes.shape, fastdecode.stats().fallbacks)


def many_images(paths: list[Path], files: list[bytes]) -> None:
    assert_type(decode_batch(paths, reduce=4, threads=2), list[NDArray[Any]])
    assert_type(decode_batch(files, on_error="return"), list[NDArray[Any] | Failed])
    assert_type(decode_batch(files, size=224), NDArray[np.uint8])
    assert_type(decode_batch(files, size=224, on_error="return"), list[NDArray[Any] | Failed])
    for found in decode_batch(paths, on_error="return"):
        if isinstance(found, Exception):
            print(found)
        else:
            print(found.shape, found.dtype)
    for thumbnail in decode_iter(paths, size=256, ahead=8, mode="RGB"):
        assert_type(thumbnail, NDArray[Any])
        PillowImage.fromarray(thumbnail).save("thumbnail.jpg")
    for one in decode_iter(paths, on_error="return"):
        assert_type(one, NDArray[Any] | Failed)


def folder(network: torch.nn.Module) -> None:
    train = ImageFolder("train", RandomResizedCropFlipNormalize(224), on_error="skip", min_size=256)
    image, label = train[0]
    assert_type(label, int)
    print(image.shape, train.classes[label], train.errors)
    with Loader(train, 64, shuffle=True, num_workers=8, pin_memory=True, seed=1) as loader:
        for images, labels in loader:
            torch.nn.functional.cross_entropy(network(images), labels).backward()
        loader.load_state_dict(loader.state_dict())
    for images, labels in Loader(Subset(train, range(8)), 4):
        print(images.shape, labels.tolist())
    for images, labels in DevicePrefetcher(Loader(train, 64), "cuda"):
        print(images.shape, labels)
    for images, labels in DataLoader(train, batch_size=64, num_workers=8):
        network(images).sum(labels)


def with_names(label: int) -> str:
    return f"class {label}"


def other_targets() -> None:
    named = ImageFolder("train", target_transform=with_names)
    assert_type(named[0], tuple[Any, str])


def collated(samples: list[Any]) -> dict[str, Tensor]:
    return {"images": torch.stack([image for image, _ in samples])}


def collate_fn(dataset: ImageFolder) -> None:
    for batch in Loader(dataset, 8, collate_fn=collated, worker_init_fn=None, prefetch_factor=4):
        assert_type(batch, Any)


class Photos(DecodeDataset):
    """A dataset that does not say what its samples are."""

    decode_options = DecodeOptions(min_size=256)
    rows: list[tuple[Path, dict[str, list[float]]]]

    def __len__(self) -> int:
        return len(self.rows)

    def read(self, index: int) -> tuple[Path, dict[str, list[float]]]:
        return self.rows[index]

    def map_target(self, target: dict[str, Any], geometry: Geometry) -> dict[str, Any]:
        return {"boxes": geometry.boxes(target["boxes"])}


class Numbered(DecodeDataset[tuple[Tensor, int]]):
    """A dataset that says so."""

    def __len__(self) -> int:
        return 10

    def read(self, index: int) -> tuple[bytes, int]:
        return Path(f"{index}.jpg").read_bytes(), index


class Unlabelled(DecodeDataset[Tensor]):
    """A dataset without targets."""

    has_targets = False

    def __len__(self) -> int:
        return 10

    def read(self, index: int) -> tuple[str, None]:
        return f"{index}.jpg", None


class Mixed(DecodeMixin, Dataset[Tensor]):
    """A dataset of the user's own, which only decodes with the package."""

    decode_options = DecodeOptions(output="tensor", reduce=2)

    def __init__(self, paths: list[str]) -> None:
        self.paths = paths

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, index: int) -> Tensor:
        image = self.transformed(self.paths[index])
        assert isinstance(image, Tensor)
        return image


def own_datasets() -> None:
    for images, targets in Loader(Photos(ResizeCenterCropNormalize(256, 224)), 16, threads=4):
        print(images.shape, targets["boxes"])
    image, number = Numbered()[0]
    assert_type((image, number), tuple[Tensor, int])
    for images, numbers in Loader(Numbered(), 16, workers=2, device="cuda", decode="auto"):
        print(images, numbers)
    for dataset in (Unlabelled(), Mixed(["a.jpg"]), [(torch.zeros(3), 1)]):
        print(next(iter(Loader(dataset, 16))))


def lists_and_stores(paths: list[str], reduce: int) -> None:
    listed = ImageList(paths, [1, 2], root="photos", reduce=reduce, mode="RGB")
    table = ImageList.from_csv("train.csv", "path", "label", header=True, orient=True)
    stored = StoreDataset("train.tar", kind="tar", store_options={"image": "png"}, fuse=False)
    for dataset in (listed, table, stored):
        image, target = dataset[0]
        print(image, target)
        for images, labels in Loader(dataset, 8, drop_last=True, channels_last=True):
            print(images.shape, labels)
        print([failure.reason for failure in dataset.errors])
    with create_store("cats.tar", classes=["cat"]) as writer:
        writer.add("cat/1.jpg", Path("1.jpg").read_bytes(), 0)
    with open_store("cats.csv", path_column="path", target_column=None) as store:
        print(decode(store.read(0)).shape, store.key(0))
    for sample in ShardStream("train-{000..146}.tar", fuse(torch.nn.Identity()), shuffle=True):
        print(sample)


def errors(data: bytes) -> Iterator[str]:
    try:
        decode(data, strict=True)
    except DecodeError as error:
        yield str(error)


def typos(data: bytes) -> None:
    """Misspell an option of each: where that is no error, the comment is."""
    decode(data, redcue=2)  # type: ignore[call-arg]
    decode_file("a.jpg", redcue=2)  # type: ignore[call-arg]
    decode_batch([data], max_sides=9)  # type: ignore[call-overload]
    decode_iter([data], max_sides=9)  # type: ignore[call-overload]
    reduce_for(probe(data), 1, orientation=True)  # type: ignore[call-arg]
    fastdecode.stats(rest=True)  # type: ignore[call-arg]
    Geometry.of_decode(probe(data), regions=None)  # type: ignore[call-arg]
    ImageFolder("train", on_errors="skip")  # type: ignore[call-arg]
    ImageList(["a.jpg"], on_errors="skip")  # type: ignore[call-arg]
    ImageList.from_csv("a.csv", headers=True)  # type: ignore[call-arg]
    StoreDataset("a.tar", store_option=None)  # type: ignore[call-arg]
    Photos(on_errors="skip")  # type: ignore[call-arg]
    DecodeOptions(redcue=2)  # type: ignore[call-arg]
    ShardStream("a.tar", suffle=True)  # type: ignore[call-arg]
    Loader(Photos(), num_worker=2)  # type: ignore[call-arg]
    DevicePrefetcher([1], "cuda", pin=True)  # type: ignore[call-arg]
    fuse(None, exactly=True)  # type: ignore[call-arg]
    RandomResizedCropFlipNormalize(8, ratios=None)  # type: ignore[call-arg]
    ResizeCenterCropNormalize(8, 8, qualities="fast")  # type: ignore[call-arg]
    open_store("a.tar", path_columns="path")  # type: ignore[call-arg]
    create_store("a.tar", class_names=[])  # type: ignore[call-arg]
    pack("a", "b.tar", thread=2)  # type: ignore[call-arg]
