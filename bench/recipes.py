"""How fast are the recipes that people train with, compared with what they use today?

PHOTOS are in class folders or in one folder.
"fastdecode" is this package's dataset and `Loader` with the pipeline as its authors write it (and
`Views` where a recipe has several views); "torchvision" opens the photos with Pillow, as its
ImageFolder does, in PyTorch's DataLoader, with as many worker processes as there are threads;
"dali" is DALI on the CPU, for the recipes that it has; "spdl" and "ffcv" make the plain one.
Batches are float32 tensors, for recipes with several views lists of them.

Each loader runs in its own process. After a warm-up, their epochs take turns, in a new random order
each round. If there are few photos, they are repeated. The files come from the system's cache.
images/s is from the request for the first batch to the arrival of the last; views of one image
count once. CPU s is that of the process and its workers, for 1000 images.

Beside the recipes of `_recipes.py`, which are well known, there are those of `_styles`, which many
write: "simclr-view" is one of SimCLR's two. "detection" is torchvision's pipeline for images of at
most 800 x 1333 with boxes, which is made up here, because nothing but its number matters for the
speed.

`in_core` says whether the `Loader` makes the samples without worker processes.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import ExitStack
from functools import cache, partial
from typing import Any, NamedTuple

import _common as bench
import numpy as np
import torch
from _dali import POLICIES, DaliLoader
from _recipes import RECIPES, TrainingRecipe
from _spdl_ffcv import FfcvLoader, SpdlLoader
from PIL import Image, ImageOps

from fastdecode._system.process import Child
from fastdecode.measure._pipelines import MEAN, STD, Decoded, open_with_pillow, torch_loader
from fastdecode.torch import ImageList, Loader, Views
from fastdecode.torch.transforms import LetterBox

_OWN = "fastdecode"
_DETECTION = "detection"
_BOXED = 640  # the side in pixels of a letterbox


def _by_name(make: Callable[[str], Any], recipe: str) -> TrainingRecipe:
    return TrainingRecipe(partial(make, recipe))


def _as_levels(image: Image.Image) -> Image.Image:
    """A step of one's own, which no table knows."""
    return ImageOps.autocontrast(image, cutoff=1)


def _styles(name: str) -> Any:
    """Return a pipeline as many write it."""
    from torchvision import transforms as v1

    crop, flip = v1.RandomResizedCrop(224), v1.RandomHorizontalFlip()
    steps = {
        "padded": [v1.Resize(256), v1.RandomCrop(224, padding=16), flip],
        "resized-twice": [v1.Resize(256), crop, flip],
        "rotated": [flip, v1.RandomRotation(15), v1.Resize((224, 224))],
        "lambda": [crop, v1.Lambda(_as_levels), flip],
    }[name]
    return v1.Compose([*steps, v1.ToTensor(), v1.Normalize(MEAN, STD)])


def _albumentations() -> Any:
    import albumentations as A  # noqa: N812  as everyone writes it
    from albumentations.pytorch import ToTensorV2

    steps = [
        *(A.RandomResizedCrop((224, 224)), A.HorizontalFlip(), A.ShiftScaleRotate(p=0.5)),
        *(A.RandomBrightnessContrast(), A.HueSaturationValue(), A.Normalize(MEAN, STD)),
    ]
    return A.Compose([*steps, ToTensorV2()])


def _letterbox() -> Any:
    from torchvision import transforms as v1

    return v1.Compose([LetterBox(_BOXED), v1.ToTensor()])


RECIPES |= {
    "simclr-view": TrainingRecipe(lambda: RECIPES["simclr"].make()[0]),
    **{name: _by_name(_styles, name) for name in ("padded", "resized-twice", "rotated", "lambda")},
    "albumentations": TrainingRecipe(_albumentations),
    "letterbox": TrainingRecipe(_letterbox, _BOXED),
}
_NAMES = [*RECIPES, _DETECTION]


def _augmented(data: str) -> torch.Tensor:
    """Make a sample of "albumentations" as its documentation does."""
    with Image.open(data) as file:
        image: torch.Tensor = _once(_albumentations)(image=np.array(file.convert("RGB")))["image"]
    return image


def _boxed(data: str) -> torch.Tensor:
    """Make a sample of "letterbox" as ultralytics does, with OpenCV."""
    import cv2

    image = cv2.imread(data)
    height, width = image.shape[:2]
    ratio = min(_BOXED / height, _BOXED / width)
    wide, high = round(width * ratio), round(height * ratio)
    image = cv2.resize(image, (wide, high), interpolation=cv2.INTER_LINEAR)
    left, top = (_BOXED - wide) / 2, (_BOXED - high) / 2
    edges = [round(side + more) for side in (top, left) for more in (-0.1, 0.1)]
    image = cv2.copyMakeBorder(image, *edges, cv2.BORDER_CONSTANT, value=(114,) * 3)
    pixels = np.ascontiguousarray(image[..., ::-1].transpose(2, 0, 1))
    return torch.from_numpy(pixels).float().div(255)


_once = cache(lambda make: make())
_AS_WRITTEN = {"albumentations": _augmented, "letterbox": _boxed}  # without torchvision


class _Written:
    """Makes a sample with a pipeline as its authors write it, of an image that Pillow opens."""

    def __init__(self, recipe: str) -> None:
        self._pipeline = RECIPES[recipe].make()

    def __call__(self, data: str) -> Any:
        image = open_with_pillow(data)
        if isinstance(self._pipeline, list):  # as the classes of SimCLR and DINO do
            return [view(image) for view in self._pipeline]
        return self._pipeline(image)


class Setup(NamedTuple):
    """The task: a recipe, the photos of an epoch, and how to make batches of them."""

    recipe: str
    photos: list[str]
    batch: int
    workers: int

    @property
    def size(self) -> int:
        return RECIPES[self.recipe].size

    @property
    def train(self) -> bool:
        return RECIPES[self.recipe].train

    @property
    def samples(self) -> list[tuple[str, int]]:
        return [(photo, number) for number, photo in enumerate(self.photos)]


def _stock(setup: Setup) -> Any:
    """Make PyTorch's DataLoader with the pipeline as its authors write it."""
    make = _AS_WRITTEN.get(setup.recipe) or _Written(setup.recipe)
    return torch_loader(setup, Decoded(setup, make))


def _own(setup: Setup) -> Any:
    """Make this package's `Loader` with the same pipeline."""
    made = RECIPES[setup.recipe].make()
    transform = Views(made) if isinstance(made, list) else made
    dataset = ImageList(setup.photos, range(len(setup.photos)), transform=transform)
    return Loader(dataset, setup.batch, shuffle=setup.train, threads=setup.workers)


_LOADERS: dict[str, Any] = {
    _OWN: _own,
    "torchvision": _stock,
    "dali": DaliLoader,
    "spdl": SpdlLoader,
    "ffcv": FfcvLoader,
}
_MADE_BY = {"dali": [*POLICIES], "spdl": ["plain"], "ffcv": ["plain"]}


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

    thread_safe = True  # else worker processes make the samples, and send 13 MB for each

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


def _detection_loader(name: str, setup: Setup) -> Any:
    photos = setup.photos
    options: dict[str, Any] = {"shuffle": True, "drop_last": True, "num_workers": setup.workers}
    options |= {"batch_size": setup.batch, "collate_fn": _separate}
    if name == _OWN:
        dataset = _OwnBoxes(photos, [0] * len(photos), transforms=_detection())
        return Loader(dataset, **options)
    return torch.utils.data.DataLoader(_StockBoxes(photos), persistent_workers=True, **options)


class Competitor:
    """A running loader; each is in its own process."""

    def __init__(self, name: str, *task: Any) -> None:
        setup = Setup(*task)
        self._images_are_a_list = setup.recipe == _DETECTION
        make = partial(_detection_loader, name) if self._images_are_a_list else _LOADERS[name]
        self._loader = make(setup)

    def in_core(self) -> bool:
        """Return whether this package's `Loader` makes the samples in its threads."""
        dataset = getattr(self._loader, "dataset", None)
        return bool(getattr(dataset, "isolated", False))

    def epoch(self) -> dict[str, float]:
        """Run an epoch; return images/s, and the CPU time of 1000 images."""
        return bench.work_done(self._images)

    def _images(self) -> int:
        images = 0
        for batch, _ in self._loader:
            views = batch if isinstance(batch, list) else [batch]
            assert all(view.dtype == torch.float32 for view in views)
            images += len(views) if self._images_are_a_list else len(views[0])
        return images


def _turn(child: Child, started: set[str], name: str) -> dict[str, float]:
    """Run an epoch; the first one also waits for the construction, and raises its error."""
    if name not in started:
        child.receive()
        started.add(name)
    figures: dict[str, float] = child.ask("epoch")
    return figures


def compete(setup: Setup, rounds: int) -> dict[str, Any]:
    """Let the loaders of a recipe take turns; return the figures, and why some have none."""
    names = [name for name in _LOADERS if setup.recipe in _MADE_BY.get(name, _NAMES)]
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
        one["cpu_ratio"] = bench.ratio(turns, name, _OWN, "cpu_s_per_1000")
    return {"loaders": found, "in_core": in_core, "left_out": left_out}


@bench.command(
    json=bench.RESULTS / "recipes.json",
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
        bench.show(
            *(recipe, made["loaders"], "images_per_s", "ratio", "cpu_s_per_1000", "cpu_ratio")
        )
        if not made["in_core"]:
            print("not all of it is done in the core")
        for name, reason in made["left_out"].items():
            print(f"{name}: {reason}")
    options.images_per_epoch = images
    return result


if __name__ == "__main__":
    main()
