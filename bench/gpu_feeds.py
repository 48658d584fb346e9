"""What the training step of `gpu.py` is fed by: each a class.

All give the images of RandomResizedCrop(224) and a flip, in random order, normalised, as float32
(N, 3, 224, 224) with channels last, and class indices (N,), both on the device. Each is written as
its own documentation says.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import torch
from gpu_network import CLASSES
from pipeline_peers import PillowFolder
from reference import MEAN, RATIO, SCALE, SIZE, STD, photos_in
from torch import Tensor
from torch.utils.data import DataLoader

from fastdecode.torch import ImageFolder, Loader
from fastdecode.torch.transforms import RandomResizedCropFlipNormalize

_PREFETCH = 2  # batches, for each worker: DataLoader's default, and DALI's
LOADER = "loader-"
"""What the names of feeds by `Loader` begin with; then comes who decodes."""


class Setup(NamedTuple):
    """What to feed.

    Attributes
    ----------
    folder : str
        Holds a folder for each class; as many files as `steps` batches have.
    batch : int
    steps : int
        Batches of an epoch.
    workers : int
        Threads or processes.
    device : torch.device
    """

    folder: str
    batch: int
    steps: int
    workers: int
    device: torch.device


class Feed(ABC):
    """One way to feed a training step."""

    def __init__(self, setup: Setup) -> None:
        self.setup = setup

    @abstractmethod
    def batches(self) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield the batches of an epoch."""

    def how(self) -> str:
        """Say what it chose by itself."""
        return ""

    def close(self) -> None:  # noqa: B027 - not all have any
        """End its threads and processes."""


class RandomFeed(Feed):
    """One batch that stays on the device: what the step makes if it never waits."""

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup)
        images = torch.randn(setup.batch, 3, SIZE, SIZE, device=setup.device)
        self._images = images.contiguous(memory_format=torch.channels_last)
        self._labels = torch.randint(CLASSES, (setup.batch,), device=setup.device)

    def batches(self) -> Iterator[tuple[Tensor, Tensor]]:
        for _ in range(self.setup.steps):
            yield self._images, self._labels


class LoaderFeed(Feed):
    """This package's `Loader`: bytes to the device, floats there; decoded here or there."""

    def __init__(self, setup: Setup, decode: str) -> None:
        super().__init__(setup)
        self._loader = Loader(
            ImageFolder(setup.folder, transform=RandomResizedCropFlipNormalize(SIZE)),
            setup.batch,
            shuffle=True,
            drop_last=True,
            threads=setup.workers,
            device=setup.device,
            decode=decode,
            normalize_on="device",
            channels_last=True,
        )

    def batches(self) -> Iterator[tuple[Tensor, Tensor]]:
        return iter(self._loader)

    def how(self) -> str:
        return repr(self._loader)

    def close(self) -> None:
        self._loader.close()


class PillowFeed(Feed):
    """Pillow in PyTorch's DataLoader, pinned and copied: what most have."""

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup)
        self._loader = DataLoader(
            PillowFolder(setup.folder, train=True),
            setup.batch,
            shuffle=True,
            drop_last=True,
            num_workers=setup.workers,
            prefetch_factor=_PREFETCH,
            persistent_workers=True,
            pin_memory=setup.device.type == "cuda",
        )

    def batches(self) -> Iterator[tuple[Tensor, Tensor]]:
        for images, labels in self._loader:
            moved = images.to(self.setup.device, non_blocking=True)
            yield (
                moved.contiguous(memory_format=torch.channels_last),
                labels.to(self.setup.device, non_blocking=True),
            )

    def close(self) -> None:
        del self._loader  # which ends its workers


class DaliFeed(Feed):
    """DALI's pipeline as its examples train ResNet-50: decoding, and all after it, on the GPU."""

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup)
        from nvidia.dali import pipeline_def
        from nvidia.dali.plugin.pytorch import DALIClassificationIterator, LastBatchPolicy

        on_gpu = setup.device.type == "cuda"
        paths = [str(path) for path in photos_in(Path(setup.folder))]
        names = [Path(path).parent.name for path in paths]
        classes = sorted(set(names))
        pipeline = pipeline_def(
            dali_graph,
            batch_size=setup.batch,
            num_threads=setup.workers,
            device_id=(setup.device.index or 0) if on_gpu else None,
            prefetch_queue_depth=_PREFETCH,
            seed=0,
        )(paths, [classes.index(name) for name in names], on_gpu=on_gpu)
        self._iterator = DALIClassificationIterator(
            pipeline,
            reader_name="files",
            last_batch_policy=LastBatchPolicy.DROP,
            auto_reset=True,
        )

    def batches(self) -> Iterator[tuple[Tensor, Tensor]]:
        for (batch,) in self._iterator:
            # Rows of pixels are what channels last means: nothing is copied.
            yield batch["data"].permute(0, 3, 1, 2), batch["label"].squeeze(-1).long()

    def close(self) -> None:
        del self._iterator


def dali_graph(paths: list[str], labels: list[int], *, on_gpu: bool) -> Any:
    """Define DALI's operations."""
    from nvidia.dali import fn, types

    place = "gpu" if on_gpu else "cpu"
    files, label = fn.readers.file(files=paths, labels=labels, random_shuffle=True, name="files")
    images = fn.decoders.image_random_crop(
        files,
        device="mixed" if on_gpu else "cpu",
        random_area=SCALE,
        random_aspect_ratio=RATIO,
        adjust_orientation=False,
    )
    images = fn.resize(images, device=place, size=(SIZE, SIZE))
    images = fn.crop_mirror_normalize(
        images,
        device=place,
        dtype=types.FLOAT,
        output_layout="HWC",
        mean=[255 * value for value in MEAN],
        std=[255 * value for value in STD],
        mirror=fn.random.coin_flip(),
    )
    return images, label.gpu() if on_gpu else label


def feed_of(name: str, setup: Setup) -> Feed:
    """Make a feed by its name."""
    if name.startswith(LOADER):
        return LoaderFeed(setup, name.removeprefix(LOADER))
    return {"random": RandomFeed, "pillow": PillowFeed, "dali": DaliFeed}[name](setup)
