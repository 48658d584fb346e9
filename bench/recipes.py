"""How fast are the recipes that people train with, compared with what they use today?

PHOTOS are in class folders or in one folder. The recipes, and the three loaders, are those of
``fastdecode bench --recipe``: "fastdecode" is this package's dataset and `Loader` with the pipeline
as its authors write it (and `Views` where a recipe has several views); "torchvision" opens the
photos with Pillow, as its ImageFolder does, in PyTorch's DataLoader, with as many worker processes
as there are threads; "dali" is DALI on the CPU, for the recipes that it has. Batches are float32
tensors, for recipes with several views lists of them.

Each loader runs in its own process. After a warm-up, their epochs take turns, in a new random order
each round. If there are few photos, they are repeated. The files come from the system's cache.
images/s is from the request for the first batch to the arrival of the last; views of one image
count once.

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

from fastdecode._process import Child
from fastdecode.measure._pipelines import MAKERS, recipe_setup
from fastdecode.measure._recipes import RECIPES
from fastdecode.measure.result import Pipeline

_OWN = "fastdecode"
_LOADERS: tuple[Pipeline, ...] = (_OWN, "torchvision", "dali")


class Setup(NamedTuple):
    """The task: a recipe, the photos of an epoch, and how to make batches of them."""

    recipe: str
    photos: list[str]
    batch: int
    workers: int


class Competitor:
    """A running loader; each is in its own process."""

    def __init__(self, name: Pipeline, *setup: Any) -> None:
        torch.set_num_threads(1)
        recipe, photos, batch, workers = setup
        samples = [(photo, number) for number, photo in enumerate(photos)]
        self._loader = MAKERS[name](recipe_setup(recipe, samples, batch, workers))

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
            images += len(views[0])
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
    names = [name for name in _LOADERS if name != "dali" or RECIPES[setup.recipe].dali]
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
    only=([*RECIPES], "recipes"),
)
def main(options: Any) -> Any:
    if unknown := {*options.only} - {*RECIPES}:
        sys.exit(f"there is no {', '.join(sorted(unknown))}; recipes: {', '.join(RECIPES)}")
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
