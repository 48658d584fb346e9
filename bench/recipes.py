"""How fast are the recipes that people train with, compared with what they use today?

PHOTOS are in class folders or in one folder. The recipes are those of `fastdecode bench --recipe`.
"fastdecode" is this package's dataset and `Loader` with the pipeline as its authors write it (and
`Views` where a recipe has several views); "torchvision" opens the photos with Pillow, as its
ImageFolder does, in PyTorch's DataLoader, with as many worker processes as there are threads;
"dali" is DALI on the CPU, for the recipes that it has. Batches are float32 tensors, for recipes
with several views lists of them.

Each loader runs in its own process. After a warm-up, their epochs take turns, in a new random order
each round. If there are few photos, they are repeated. The files come from the system's cache.
images/s is from the request for the first batch to the arrival of the last; views of one image
count once.

"simclr-view" is one of SimCLR's two. "detection" is torchvision's pipeline for images of at most
800 x 1333 with boxes, which is made up here, because nothing but its number matters for the speed.

`in_core` says whether the `Loader` makes the samples without worker processes.
"""

from __future__ import annotations

import sys
import time
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import _common as bench
import torch
from _dali import POLICIES, DaliLoader
from PIL import Image

from fastdecode._process import Child
from fastdecode.measure._pipelines import MAKERS, recipe_setup
from fastdecode.measure._recipes import RECIPES, TrainingRecipe
from fastdecode.torch import ImageList, Loader

_OWN = "fastdecode"
_DETECTION = "detection"
_NAMES = [*RECIPES, "simclr-view", _DETECTION]
RECIPES["simclr-view"] = TrainingRecipe(lambda: RECIPES["simclr"].make()[0])
_LOADERS: dict[str, Any] = {
    _OWN: MAKERS["fastdecode"],
    "torchvision": MAKERS["torchvision"],
    "dali": DaliLoader,
}


def _detection() -> Any:
    """Return the pipeline of an image and its boxes."""
    from torchvision.transforms import v2

    return v2.Compose(
        [
            *(v2.ToImage(), v2.RandomShortestSize([800], max_size=1333)),
            *(v2.RandomHorizontalFlip(), v2.ToDtype(torch.float32, scale=True)),
            v2.SanitizeBoundingBoxes(),
        ]
    )


def _boxes(size: tuple[int, int]) -> dict[str, Any]:
    """Return a target for an image of a size (height, width)."""
    from torchvision import tv_tensors

    height, width = size
    corners = [[0.1, 0.1, 0.5, 0.6], [0.3, 0.2, 0.9, 0.9], [0.0, 0.5, 0.4, 1.0]]
    scaled = torch.tensor(corners) * torch.tensor([width, height, width, height])
    boxes = tv_tensors.BoundingBoxes(scaled, format="XYXY", canvas_size=size)
    return {"boxes": boxes, "labels": torch.arange(len(corners))}


class _OwnBoxes(ImageList):
    """The dataset of this package for images with boxes."""

    def map_target(self, _target: Any, geometry: Any) -> Any:
        return _boxes(geometry.size)


class _StockBoxes(torch.utils.data.Dataset[Any]):
    """The same as people write it."""

    def __init__(self, photos: list[str]) -> None:
        self._photos, self._transforms = photos, _detection()

    def __len__(self) -> int:
        return len(self._photos)

    def __getitem__(self, index: int) -> Any:
        with Image.open(self._photos[index]) as file:
            image = file.convert("RGB")
        return self._transforms(image, _boxes((image.height, image.width)))


def _separate(samples: list[Any]) -> Any:
    images, targets = zip(*samples, strict=True)
    return list(images), list(targets)


def _detection_loader(name: str, photos: list[str], batch: int, workers: int) -> Any:
    options: dict[str, Any] = {"shuffle": True, "drop_last": True, "num_workers": workers}
    options |= {"batch_size": batch, "collate_fn": _separate}
    if name == _OWN:
        dataset = _OwnBoxes(photos, [0] * len(photos), transforms=_detection())
        return Loader(dataset, **options)
    return torch.utils.data.DataLoader(_StockBoxes(photos), persistent_workers=True, **options)


class Setup(NamedTuple):
    """The task: a recipe, the photos of an epoch, and how to make batches of them."""

    recipe: str
    photos: list[str]
    batch: int
    workers: int


class Competitor:
    """A running loader; each is in its own process."""

    def __init__(self, name: str, *setup: Any) -> None:
        torch.set_num_threads(1)
        recipe, photos, batch, workers = setup
        samples = [(photo, number) for number, photo in enumerate(photos)]
        self._images_are_a_list = recipe == _DETECTION
        self._loader = (
            _detection_loader(name, photos, batch, workers)
            if self._images_are_a_list
            else _LOADERS[name](recipe_setup(recipe, samples, batch, workers))
        )

    def in_core(self) -> bool:
        """Return whether this package's `Loader` makes the samples in its threads."""
        dataset = getattr(self._loader, "dataset", None)
        return bool(getattr(dataset, "isolated", False))

    def epoch(self) -> dict[str, float]:
        """Run an epoch; return images/s."""
        start, images = time.perf_counter(), 0
        for batch, _ in self._loader:
            views = batch if isinstance(batch, list) else [batch]
            assert all(view.dtype == torch.float32 for view in views)
            images += len(views) if self._images_are_a_list else len(views[0])
        return {"images_per_s": images / (time.perf_counter() - start)}


def _turn(child: Child, started: set[str], name: str) -> dict[str, float]:
    """Run an epoch; the first one also waits for the construction, and raises its error."""
    if name not in started:
        child.receive()
        started.add(name)
    figures: dict[str, float] = child.ask("epoch")
    return figures


def compete(setup: Setup, rounds: int) -> dict[str, Any]:
    """Let the loaders of a recipe take turns; return the figures, and why some have none."""
    names = [name for name in _LOADERS if name != "dali" or setup.recipe in POLICIES]
    left_out: dict[str, str] = {}
    with ExitStack() as stack:
        children, started = {}, set[str]()
        for name in names:
            children[name] = Child("recipes:Competitor", name, *setup)
            stack.callback(children[name].close)
        turns = bench.take_turns(
            {name: partial(_turn, child, started, name) for name, child in children.items()},
            rounds,
            left_out=left_out,
        )
        in_core = _OWN in turns and children[_OWN].ask("in_core")
    found = bench.sum_up(turns)
    for name, one in found.items():
        ours = found.get(_OWN, one)["images_per_s"]
        one["ratio"] = bench.short(ours / one["images_per_s"]) if name != _OWN else None
    return {"loaders": found, "in_core": in_core, "left_out": left_out}


@bench.command(
    json=Path(__file__).parent / "results" / "recipes.json",
    batch=(64, "images"),
    workers=(2, "threads, or processes"),
    rounds=(5, "epochs after the warm-up"),
    limit=(None, "images in an epoch"),
    only=(_NAMES, "recipes"),
)
def main(options: Any) -> Any:
    if unknown := {*options.only} - {*_NAMES}:
        sys.exit(f"there is no {', '.join(sorted(unknown))}; recipes: {', '.join(_NAMES)}")
    photos = bench.photos_in(options.photos)
    images = bench.epoch_length(photos, options.batch, options.workers, options.limit)
    print(f"{len(photos)} photos; {images} images an epoch, batch {options.batch}\n")
    result: dict[str, Any] = {}
    few = images < len(photos)
    places = (n * len(photos) // images if few else n % len(photos) for n in range(images))
    files = [str(photos[place].resolve()) for place in places]
    for recipe in options.only:
        made = result[recipe] = compete(
            Setup(recipe, files, options.batch, options.workers), options.rounds
        )
        bench.show(recipe, made["loaders"], "images_per_s", "ratio")
        if not made["in_core"]:
            print("not all of it is done in the core")
        for name, reason in made["left_out"].items():
            print(f"{name}: {reason}")
    options.images_per_epoch = images
    return result


if __name__ == "__main__":
    main()
