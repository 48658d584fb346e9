"""What does each way of loading gain, beside a dataset class and DataLoader as people write them?

Such a class opens a photo and calls a pipeline: of torchvision, also with a mask or boxes, or of
albumentations. Who competes: "written" opens with `PIL.Image.open`, or for
albumentations `cv2.imread`, and "open" with `fastdecode.open` or `imread`, both in PyTorch's
DataLoader; "fuse" also puts ``fuse(pipeline)`` in the place of the pipeline; "loader" is "fuse" in
fastdecode's Loader, and "folder" the pipeline as written in an `ImageList`, which is what
`ImageFolder` is, in that Loader.

All run in a process of their own, and take turns in a new random order each round, after a warm-up.
The figure is images per second of CPU time, of the process and its workers together, which other
work on the machine disturbs least; `images_per_s` is by the clock. `differs` is the largest
difference from "written" in levels, with the same draws, of the first photos.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import _common as bench
import torch
from PIL import Image

import fastdecode
from fastdecode._system.process import Child
from fastdecode.measure._processes import cpu_seconds
from fastdecode.torch import ImageList, Loader, fuse

_MEAN, _STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
_CHECKED = 16
_CLASS = 64  # levels of a photo that are one class in its mask


# The datasets


class _Photos(torch.utils.data.Dataset[Any]):
    """A dataset as people write it."""

    names = ("written", "open", "fuse", "loader", "folder")
    collate: Callable[[list[Any]], Any] | None = None

    def __init__(self, name: str, pipeline: Any, files: Sequence[str], masks: Path) -> None:
        self.files, self.masks = files, masks
        self.transform = fuse(pipeline) if name in ("fuse", "loader") else pipeline
        self.open: Any = self.opens(name)

    @staticmethod
    def opens(name: str) -> Callable[[Any], Any]:
        return Image.open if name == "written" else fastdecode.open

    def __len__(self) -> int:
        return len(self.files)

    def __getitem__(self, index: int) -> Any:
        return self.transform(self.open(self.files[index]).convert("RGB")), index


class _Masks(_Photos):
    """Photos with their masks."""

    names = ("written", "open", "fuse", "loader")

    def __getitem__(self, index: int) -> Any:
        from torchvision import tv_tensors

        image = self.open(self.files[index]).convert("RGB")
        mask = tv_tensors.Mask(self.open(_mask_of(self.files[index], self.masks)))
        return self.transform(image, mask)


class _Boxes(_Photos):
    """Photos with two boxes each."""

    names = ("written", "open", "fuse", "loader")

    def __getitem__(self, index: int) -> Any:
        from torchvision import tv_tensors

        image = self.open(self.files[index]).convert("RGB")
        width, height = image.size
        boxes = tv_tensors.BoundingBoxes(
            [[3, 4, width // 2, height // 2], [width // 3, height // 3, width - 1, height - 2]],
            format="XYXY",
            canvas_size=(height, width),
        )
        return self.transform(image, {"boxes": boxes, "labels": torch.tensor([1, 2])})

    @staticmethod
    def collate(samples: list[Any]) -> Any:
        return torch.stack([image for image, _ in samples]), [target for _, target in samples]


class _Arrays(_Photos):
    """Photos for albumentations."""

    names = ("written", "open", "fuse", "loader")

    @staticmethod
    def opens(name: str) -> Callable[[Any], Any]:
        import cv2

        if name in ("fuse", "loader"):
            return lambda file: fastdecode.open(file).convert("RGB")
        read: Any = cv2.imread if name == "written" else fastdecode.imread
        return lambda file: cv2.cvtColor(read(file), cv2.COLOR_BGR2RGB)

    def __getitem__(self, index: int) -> Any:
        return self.transform(image=self.open(self.files[index]))["image"], index


class _ArraysWithMasks(_Arrays):
    """The same, with their masks."""

    def __getitem__(self, index: int) -> Any:
        mask = self.read_mask(str(_mask_of(self.files[index], self.masks)))
        return tuple(self.transform(image=self.open(self.files[index]), mask=mask).values())

    def __init__(self, name: str, *rest: Any) -> None:
        import cv2

        super().__init__(name, *rest)
        grey: Any = {"written": cv2.imread, "open": fastdecode.imread}.get(name)
        flag = cv2.IMREAD_GRAYSCALE
        self.read_mask = fastdecode.open if grey is None else partial(grey, flags=flag)


def _mask_of(file: str, masks: Path) -> Path:
    return masks / Path(file).with_suffix(".png").name


def _write_masks(files: Sequence[str], masks: Path) -> None:
    """Draw a mask of a few classes for each photo, in areas of 16 pixels."""
    for file in {*files}:
        with Image.open(file) as photo:
            small = photo.convert("L").resize([-(-side // 16) for side in photo.size])
            classes = small.point([level // _CLASS for level in range(256)])
            classes.resize(photo.size, Image.Resampling.NEAREST).save(_mask_of(file, masks))


# The pipelines


class _Way(NamedTuple):
    """What people write: the dataset, the library of the pipeline, and its steps."""

    dataset: type[_Photos]
    of: Callable[[Sequence[Any]], Any]
    steps: Sequence[Any]


def _v1(steps: Sequence[Any]) -> Any:
    from torchvision import transforms

    return transforms.Compose([*steps, transforms.ToTensor(), transforms.Normalize(_MEAN, _STD)])


def _v2(steps: Sequence[Any], *last: Any) -> Any:
    from torchvision import tv_tensors
    from torchvision.transforms import v2

    types = {tv_tensors.Image: torch.float32, tv_tensors.Mask: torch.int64, "others": None}
    end = [v2.ToImage(), v2.ToDtype(types, scale=True), v2.Normalize(_MEAN, _STD)]
    return v2.Compose([*steps, *end, *last])


def _v2_boxes(steps: Sequence[Any]) -> Any:
    from torchvision.transforms import v2

    return _v2(steps, v2.SanitizeBoundingBoxes())


def _albumentations(steps: Sequence[Any]) -> Any:
    import albumentations
    from albumentations.pytorch import ToTensorV2

    return albumentations.Compose([*steps, albumentations.Normalize(), ToTensorV2()])


def _pipelines() -> dict[str, _Way]:
    from torchvision import transforms

    crop, flip = transforms.RandomResizedCrop(224), transforms.RandomHorizontalFlip()
    whole, rotation = transforms.Resize((224, 224)), transforms.RandomRotation(15)
    shorter, bicubic = transforms.Resize(256), transforms.InterpolationMode.BICUBIC
    photos = {
        "crop": [crop, flip],
        "evaluation": [shorter, transforms.CenterCrop(224)],
        "square": [whole],
        "jitter": [whole, flip, rotation, transforms.ColorJitter(0.2, 0.2, 0.2)],
        "rotation-first": [flip, rotation, whole],
        "resize-crop": [shorter, transforms.RandomCrop(224), flip],
        "clip": [transforms.Resize(224, bicubic), transforms.CenterCrop(224)],
        "trivialaugment": [crop, flip, transforms.TrivialAugmentWide()],
    }
    return {name: _Way(_Photos, _v1, steps) for name, steps in photos.items()} | _others()


def _others() -> dict[str, _Way]:
    import albumentations
    from torchvision.transforms import v2

    flip, square = v2.RandomHorizontalFlip(), v2.Resize((300, 300))
    flipped, bright = albumentations.HorizontalFlip(), albumentations.RandomBrightnessContrast()
    scaled = [v2.RandomResize(260, 1040), flip, v2.RandomCrop(480, pad_if_needed=True)]
    drawn = [v2.RandomPhotometricDistort(), v2.RandomZoomOut(), v2.RandomIoUCrop(), flip, square]
    moved = albumentations.Affine(scale=(0.9, 1.1), rotate=(-45, 45), p=0.5)
    augmented = [albumentations.RandomCrop(224, 224), flipped, moved, bright]
    ways = {
        "masks": (_Masks, _v2, [v2.RandomResizedCrop(224), flip]),
        "masks-scaled": (_Masks, _v2, scaled),
        "boxes": (_Boxes, _v2_boxes, [flip, square]),
        "boxes-ssd": (_Boxes, _v2_boxes, drawn),
        "albumentations": (
            *(_Arrays, _albumentations),
            [albumentations.RandomResizedCrop((224, 224)), flipped],
        ),
        "albumentations-augmented": (
            *(_Arrays, _albumentations),
            [albumentations.Resize(256, 256), *augmented],
        ),
        "albumentations-mask": (
            *(_ArraysWithMasks, _albumentations),
            [albumentations.RandomResizedCrop((224, 224)), flipped, bright],
        ),
    }
    return {name: _Way(*way) for name, way in ways.items()}


def _dataset(name: str, recipe: str, files: Sequence[str], masks: Path) -> Any:
    way = _pipelines()[recipe]
    pipeline = way.of(way.steps)
    if name == "folder":
        return ImageList(files, range(len(files)), transform=pipeline)
    return way.dataset(name, pipeline, files, masks)


def _differs(name: str, recipe: str, files: Sequence[str], masks: Path) -> float | None:
    """Return the largest difference from the images as written, in levels."""
    if name == "folder" or issubclass(_pipelines()[recipe].dataset, _Arrays):
        return None  # their draws are others
    largest = 0.0
    ours, theirs = (_dataset(one, recipe, files, masks) for one in (name, "written"))
    for index in range(min(_CHECKED, len(files))):
        pair = []
        for dataset in (ours, theirs):
            torch.manual_seed(index)
            pair.append(dataset[index][0] * torch.tensor(_STD)[:, None, None] * 255)
        largest = max(largest, float((pair[0] - pair[1]).abs().max()))
    return round(largest, 3)


class OwnDataset:
    """A running loader; each is in its own process."""

    def __init__(
        self, name: str, recipe: str, data: tuple[Sequence[str], Path], batch: int, workers: int
    ) -> None:
        kind: Any = Loader if name in ("loader", "folder") else torch.utils.data.DataLoader
        self._loader = kind(
            *(_dataset(name, recipe, *data), batch),
            shuffle=True,
            num_workers=workers,
            persistent_workers=name != "folder",  # which has threads
            drop_last=True,
            collate_fn=_pipelines()[recipe].dataset.collate,
        )
        self._differs = partial(_differs, name, recipe, *data)

    def epoch(self) -> dict[str, float]:
        """Run an epoch; return images per second and per second of CPU time."""
        began, busy, images = time.perf_counter(), cpu_seconds(os.getpid()), 0
        for batch, _ in self._loader:
            images += len(batch)
        spent = time.perf_counter() - began
        busy = cpu_seconds(os.getpid()) - busy
        return {"images_per_cpu_s": images / busy, "images_per_s": images / spent}

    def differs(self) -> float | None:
        """Return how far its images are from those of the pipeline as written."""
        return self._differs()


def _compete(recipe: str, data: tuple[Sequence[str], Path], options: Any) -> Any:
    how = data, options.batch, options.workers
    with ExitStack() as stack:
        children = {}
        for name in _pipelines()[recipe].dataset.names:
            children[name] = Child("own_dataset:OwnDataset", name, recipe, *how)
            stack.callback(children[name].close)
            children[name].receive()  # it has been made
        asks = {name: partial(child.ask, "epoch") for name, child in children.items()}
        turns = bench.take_turns(asks, options.rounds)
        differs = {name: child.ask("differs") for name, child in children.items()}
    figure = "images_per_cpu_s"
    found = bench.sum_up(turns, figure)
    for name, one in found.items():
        one["times"] = bench.ratio(turns, name, "written", figure)
        one["by_clock"] = bench.ratio(turns, name, "written")
        one["differs"] = differs[name]
    return found


@bench.command(
    json=bench.RESULTS / "own_dataset.json",
    batch=(64, "images"),
    workers=(2, "threads, or processes"),
    rounds=(3, "epochs after the warm-up"),
    limit=(512, "images in an epoch"),
    only=(["crop"], "pipelines; all for every one"),
)
def main(options: Any) -> Any:
    names = list(_pipelines()) if options.only == ["all"] else options.only
    if unknown := {*names} - {*_pipelines()}:
        sys.exit(f"there is no {', '.join(sorted(unknown))}; there are {', '.join(_pipelines())}")
    photos = bench.photos_in(options.photos)
    files = [str(photos[n % len(photos)].resolve()) for n in range(options.limit)]
    result = {}
    with tempfile.TemporaryDirectory() as masks:
        _write_masks(files, Path(masks))
        for recipe in names:
            result[recipe] = _compete(recipe, (files, Path(masks)), options)
            print(f"{recipe}: times as many images per CPU second; by the clock; differs by levels")
            for name, one in result[recipe].items():
                print(f"  {name:8}{one['times']:8.2f}{one['by_clock']:8.2f}{one['differs']!s:>10}")
    return result


if __name__ == "__main__":
    main()
