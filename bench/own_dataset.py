"""How much does one line, `fastdecode.open`, gain in a dataset of one's own?

The dataset is the one that most people write: it opens a photo, converts it to RGB and calls a
torchvision pipeline. Who competes: "pillow" opens with `PIL.Image.open`, "open" with
`fastdecode.open`, both in PyTorch's DataLoader; "fuse" also puts ``fuse(pipeline)`` in the place of
the pipeline; "loader" is "fuse" in fastdecode's Loader.

All run in a process of their own, and take turns in a new random order each round, after a warm-up.
The figure is images per second of CPU time, of the process and its workers together, which other
work on the machine disturbs least; `images_per_s` is by the clock. `differs` is the largest
difference from "pillow" in levels, with the same draws, of the first photos.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from typing import Any

import _common as bench
import torch
from PIL import Image

import fastdecode
from fastdecode._system.process import Child
from fastdecode.measure._processes import cpu_seconds
from fastdecode.torch import Loader, fuse

_MEAN, _STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
_NAMES = ("pillow", "open", "fuse", "loader")
_CHECKED = 16


def _pipelines() -> dict[str, list[Any]]:
    """Return the steps of the pipelines, without those that make tensors."""
    from torchvision import transforms

    crop, flip = transforms.RandomResizedCrop(224), transforms.RandomHorizontalFlip()
    whole = transforms.Resize((224, 224))
    return {
        "crop": [crop, flip],
        "evaluation": [transforms.Resize(256), transforms.CenterCrop(224)],
        "square": [whole],
        "jitter": [
            whole,
            flip,
            transforms.RandomRotation(15),
            transforms.ColorJitter(0.2, 0.2, 0.2),
        ],
        "rotation-first": [flip, transforms.RandomRotation(15), whole],
        "resize-crop": [transforms.Resize(256), transforms.RandomCrop(224), flip],
        "clip": [
            transforms.Resize(224, transforms.InterpolationMode.BICUBIC),
            transforms.CenterCrop(224),
        ],
        "trivialaugment": [crop, flip, transforms.TrivialAugmentWide()],
    }


def _pipeline(name: str) -> Any:
    from torchvision import transforms

    return transforms.Compose(
        [*_pipelines()[name], transforms.ToTensor(), transforms.Normalize(_MEAN, _STD)]
    )


class _Photos(torch.utils.data.Dataset[Any]):
    """A dataset as people write it."""

    def __init__(self, files: list[str], transform: Any, open_: Callable[[str], Any]) -> None:
        self.files, self.transform, self.open = files, transform, open_

    def __len__(self) -> int:
        return len(self.files)

    def __getitem__(self, index: int) -> Any:
        return self.transform(self.open(self.files[index]).convert("RGB")), index


def _dataset(name: str, recipe: str, files: list[str]) -> _Photos:
    pipeline = _pipeline(recipe)
    if name in ("fuse", "loader"):
        pipeline = fuse(pipeline)
    return _Photos(files, pipeline, Image.open if name == "pillow" else fastdecode.open)


def _differs(name: str, recipe: str, files: list[str]) -> float:
    """Return the largest difference from Pillow's images, in levels."""
    largest = 0.0
    ours, theirs = (_dataset(one, recipe, files) for one in (name, "pillow"))
    for index in range(min(_CHECKED, len(files))):
        pair = []
        for dataset in (ours, theirs):
            torch.manual_seed(index)
            pair.append(dataset[index][0] * torch.tensor(_STD)[:, None, None] * 255)
        largest = max(largest, float((pair[0] - pair[1]).abs().max()))
    return round(largest, 3)


class OwnDataset:
    """A running loader; each is in its own process."""

    def __init__(self, name: str, recipe: str, files: list[str], batch: int, workers: int) -> None:
        kind: Any = Loader if name == "loader" else torch.utils.data.DataLoader
        self._loader = kind(
            *(_dataset(name, recipe, files), batch),
            shuffle=True,
            num_workers=workers,
            persistent_workers=True,
            drop_last=True,
        )
        self._differs = partial(_differs, name, recipe, files)

    def epoch(self) -> dict[str, float]:
        """Run an epoch; return images per second and per second of CPU time."""
        began, busy, images = time.perf_counter(), cpu_seconds(os.getpid()), 0
        for batch, _ in self._loader:
            images += len(batch)
        spent = time.perf_counter() - began
        busy = cpu_seconds(os.getpid()) - busy
        return {"images_per_cpu_s": images / busy, "images_per_s": images / spent}

    def differs(self) -> float:
        """Return how far its images are from Pillow's."""
        return self._differs()


def _compete(recipe: str, files: list[str], batch: int, workers: int, rounds: int) -> Any:
    with ExitStack() as stack:
        children = {}
        for name in _NAMES:
            children[name] = Child("own_dataset:OwnDataset", name, recipe, files, batch, workers)
            stack.callback(children[name].close)
            children[name].receive()  # it has been made
        asks = {name: partial(child.ask, "epoch") for name, child in children.items()}
        turns = bench.take_turns(asks, rounds)
        differs = {name: child.ask("differs") for name, child in children.items()}
    figure = "images_per_cpu_s"
    found = bench.sum_up(turns, figure)
    for name, one in found.items():
        one["times"] = bench.ratio(turns, name, "pillow", figure)
        one["by_clock"] = bench.ratio(turns, name, "pillow")
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
    for recipe in names:
        result[recipe] = _compete(recipe, files, options.batch, options.workers, options.rounds)
        print(f"{recipe}: times as many images per CPU second; by the clock; differs by levels")
        for name, one in result[recipe].items():
            print(f"  {name:8}{one['times']:8.2f}{one['by_clock']:8.2f}{one['differs']!s:>10}")
    return result


if __name__ == "__main__":
    main()
