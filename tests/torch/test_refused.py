"""Refused files that are not damaged: too many pixels, and a FIFO, without waiting for it."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
from fifos import readable_fifo
from loading import PROCESS_WARNINGS, Sources
from PIL import Image
from torch.utils.data import ConcatDataset, DataLoader, Dataset, Subset
from torch_reference import PHOTOS

from fastdecode import DEFAULT_MAX_PIXELS, ImageTooLarge, probe
from fastdecode.stores import Store, create_store, open_store
from fastdecode.testing import encode
from fastdecode.torch import (
    DecodeMixin,
    DecodeOptions,
    Fused,
    ImageFolder,
    ImageList,
    Loader,
    ShardStream,
    StoreDataset,
    Views,
)
from fastdecode.torch.transforms import (
    RandomResizedCrop,
    RandomResizedCropFlipNormalize,
    Resize,
    ResizeCenterCrop,
)

TRANSFORMS = [
    RandomResizedCropFlipNormalize(32),
    RandomResizedCrop(32, interpolation="bicubic"),
    ResizeCenterCrop(40, 32),
    Resize((32, 32)),
]
FIFOS = pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="there are no FIFOs here")


class Refused(NamedTuple):
    """Three files of which the middle one is refused, and the error."""

    paths: list[Path]
    store: Store
    error: type[Exception]
    said: str


@pytest.fixture(scope="module")
def giant() -> bytes:
    """Make a small grey JPEG file with a few pixels over the limit."""
    width = 65_500
    data = encode(Image.new("L", (width, DEFAULT_MAX_PIXELS // width + 1)), quality=1)
    header = probe(data)
    assert header.width * header.height > DEFAULT_MAX_PIXELS
    return data


def three(folder: Path) -> list[Path]:
    """Write a photo to three files of one class."""
    paths = [folder / "cat" / f"{number}.jpg" for number in range(3)]
    paths[0].parent.mkdir(parents=True)
    for path in paths:
        path.write_bytes(PHOTOS[0].read_bytes())
    return paths


@pytest.fixture(params=["giant", pytest.param("FIFO", marks=FIFOS)])
def refused(request: pytest.FixtureRequest, giant: bytes, tmp_path: Path) -> Iterator[Refused]:
    """Put one among intact photos; a FIFO replaces a file after it was listed."""
    paths = three(tmp_path)
    store = open_store(tmp_path)
    if request.param == "giant":
        paths[1].write_bytes(giant)
        yield Refused(paths, store, ImageTooLarge, r"1\.jpg")
    else:
        with readable_fifo(paths[1], PHOTOS[0].read_bytes()):
            yield Refused(paths, store, OSError, r"a FIFO .*1\.jpg")


@pytest.fixture(params=["", "native"], ids=["core", "no core"], autouse=True)
def _either(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FASTDECODE_DISABLE", request.param)


@pytest.mark.filterwarnings(*PROCESS_WARNINGS)
@pytest.mark.parametrize("how", [{"threads": 0}, {"threads": 2}, {"workers": 1}], ids=str)
def test_a_loader_names_it_or_leaves_it_out(refused: Refused, how: dict[str, Any]) -> None:
    """Threads and processes raise the error, or skip and list the item, as requested."""
    for transform in (TRANSFORMS[0], TRANSFORMS[2]):
        dataset = ImageList(refused.paths, transform=transform)
        with (
            Loader(dataset, 3, **how) as loader,
            pytest.raises(refused.error, match=refused.said),
        ):
            list(loader)
        dataset.decode_options = DecodeOptions(on_error="skip")
        dataset.errors.clear()
        with Loader(dataset, 3, **how) as loader:
            assert [len(batch) for batch in loader] == [2]
            assert loader.skipped == 1
        ((index, path, reason),) = dataset.errors
        assert (index, path) == (1, str(refused.paths[1]))
        assert refused.error is ImageTooLarge or "a FIFO" in reason


def shard(paths: list[Path]) -> str:
    """Put the files into a shard."""
    place = paths[0].parent.parent / "shard.tar"
    place.unlink(missing_ok=True)
    with create_store(place) as writer:
        for path in paths:
            writer.add(path.name, path.read_bytes(), 0)
    return str(place)


class Mixed(DecodeMixin, Dataset[Any]):
    """A user's dataset, whose `transformed` decodes."""

    def __init__(self, paths: list[Path], transform: Any, **options: Any) -> None:
        self.paths, self.transform = paths, transform
        self.decode_options = DecodeOptions(**options)

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, index: int) -> Any:
        return self.transformed(self.paths[index]), 0


KINDS: dict[str, Callable[..., Any]] = {
    "folder": lambda paths, transform, **how: ImageFolder(paths[0].parents[1], transform, **how),
    "list": lambda paths, transform, **how: ImageList(paths, [0] * 3, transform, **how),
    "store": lambda paths, transform, **how: StoreDataset(paths[0].parents[1], transform, **how),
    "shards": lambda paths, transform, **how: StoreDataset(shard(paths), transform, **how),
    "stream": lambda paths, transform, **how: ShardStream(shard(paths), transform, **how),
    "mixin": Mixed,
    "own": lambda paths, transform, **how: Sources(*paths, transform=transform, **how),
}


def pipelines() -> list[Any]:
    """Return transforms of every kind that decodes, or gets what was decoded."""
    exact = ResizeCenterCrop(40, 32)
    return [
        *TRANSFORMS,
        Fused(exact, [lambda pixels: pixels[:, :8]]),
        Views(exact, 2),
        lambda image: torch.tensor(image.size),
    ]


@pytest.mark.parametrize("at", range(len(pipelines())))
@pytest.mark.parametrize("kind", KINDS)
def test_max_pixels_is_taken_wherever_images_are_decoded(
    kind: str, at: int, tmp_path: Path
) -> None:
    """A limit below the images refuses them, and one as high as they are does not."""
    paths = three(tmp_path / "root")
    header = probe(PHOTOS[0].read_bytes())
    pixels = header.width * header.height
    make = KINDS[kind]

    for limit in (pixels, None, DEFAULT_MAX_PIXELS):
        assert len(list(DataLoader(make(paths, pipelines()[at], max_pixels=limit), 3))) == 1
    low = make(paths, pipelines()[at], max_pixels=pixels - 1)
    with pytest.raises(ImageTooLarge):
        list(DataLoader(low, 1))
    if kind == "stream":
        return
    for threads in (0, 2):
        with Loader(low, 1, threads=threads) as loader, pytest.raises(ImageTooLarge):
            list(loader)
        if kind != "mixin":
            with Loader(low, 3, threads=threads, max_pixels=pixels) as loader:
                assert len(list(loader)) == 1


def test_a_limit_of_a_loader_is_for_datasets_of_the_package(tmp_path: Path) -> None:
    """The option of a `Loader` overrides that of the datasets, and is refused for any other."""
    path = tmp_path / "a.jpg"
    path.write_bytes(PHOTOS[0].read_bytes())
    dataset = ImageList([path], [0], TRANSFORMS[0])
    for whole in (dataset, Subset(ConcatDataset([dataset, dataset]), [1])):
        for how in ({"threads": 1}, {"threads": 0}, {"workers": 1}):
            with (
                Loader(whole, max_pixels=1000, **how) as loader,
                pytest.raises(ImageTooLarge, match=r"a\.jpg"),
            ):
                list(loader)
    assert dataset.decode_options == DecodeOptions()
    with Loader(dataset) as loader:
        assert len(list(loader)) == 1
    with pytest.raises(ValueError, match="max_pixels"):
        Loader([1, 2], max_pixels=1000)
    with pytest.raises(ValueError, match="max_pixels"):
        Loader(dataset, max_pixels=0)

    class Own(ImageList):
        def __getitem__(self, index: int) -> Any:
            return super().__getitem__(index)

    with pytest.raises(ValueError, match=r"max_pixels= .* Own has its own __getitem__"):
        Loader(Own([path], [0], TRANSFORMS[0]), max_pixels=1000)


@FIFOS
def test_lists_and_shards_are_not_read_from_a_fifo(tmp_path: Path) -> None:
    """Lists and shards must be regular files; an open pipe can go to `stream_tar`."""
    for name, read in (
        ("list.csv", ImageList.from_csv),
        ("s.tar", lambda pipe: list(ShardStream([str(pipe)]))),
    ):
        with (
            readable_fifo(tmp_path / name, b"a.jpg,1\n") as pipe,
            pytest.raises(OSError, match=f"FIFO.*{name}"),
        ):
            read(pipe)
