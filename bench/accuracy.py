"""Does a network learn the same from the `Loader`'s batches as from torchvision's?

PHOTOS has a folder for each class. The same small network is trained on them with each recipe, from
torchvision's ImageFolder in PyTorch's DataLoader, and from ours in `Loader`, where the
augmentations run in the core and draw from its own generators. So single batches differ, and what
has to agree is the accuracy: the difference of the means should lie within the spread of the seeds.

Every fifth photo of a class is for validation. A seed decides on the weights, the order and the
augmentations; sides take turns. The accuracies of all runs are kept, and "p": how often a random
division of the runs into two sides has means at least as far apart.
"""

from __future__ import annotations

import itertools
import tempfile
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from statistics import mean, stdev
from typing import Any

import _common as bench
import torch
from torch import nn
from torchvision import datasets
from torchvision.transforms import v2

from fastdecode._system.processor import usable_cores
from fastdecode.torch import ImageFolder, Loader

_SIZE, _BATCH = 64, 64
_MEAN, _STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
_SIDES = ("torchvision", "fastdecode")


def _recipe(*augmentations: nn.Module, erasing: float = 0.0) -> v2.Compose:
    return v2.Compose(
        [
            v2.RandomResizedCrop(_SIZE, scale=(0.25, 1.0)),
            v2.RandomHorizontalFlip(),
            *augmentations,
            v2.PILToTensor(),
            v2.ToDtype(torch.float32, scale=True),
            v2.Normalize(_MEAN, _STD),
            *([v2.RandomErasing(erasing)] if erasing else []),
        ]
    )


_RECIPES: dict[str, Callable[[], v2.Compose]] = {
    "plain": _recipe,
    "trivial": lambda: _recipe(v2.TrivialAugmentWide(), erasing=0.1),
    "simclr": lambda: _recipe(
        v2.RandomApply([v2.ColorJitter(0.8, 0.8, 0.8, 0.2)], 0.8),
        v2.RandomGrayscale(0.2),
        v2.RandomApply([v2.GaussianBlur(7)], 0.5),
    ),
}


def network(classes: int) -> nn.Module:
    """Return four convolutions with batch normalisation, and a linear layer."""
    layers: list[nn.Module] = []
    for before, after in itertools.pairwise((3, 32, 64, 128, 256)):
        convolution = nn.Conv2d(before, after, 3, stride=2, padding=1, bias=False)
        layers += [convolution, nn.BatchNorm2d(after), nn.ReLU()]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(256, classes))


def split(photos: Path, root: Path) -> tuple[Path, Path]:
    """Link the photos of each class into a folder for training and one for validation."""
    parts = root / "train", root / "validation"
    for number, photo in enumerate(bench.photos_in(photos)):
        place = parts[number % 5 == 0] / photo.parent.name
        place.mkdir(parents=True, exist_ok=True)
        (place / f"{number:06d}{photo.suffix.lower()}").symlink_to(photo.resolve())
    return parts


def batches(side: str, folder: Path, transform: Any, *, train: bool, threads: int) -> Any:
    """Return the loader of one side."""
    if side == "fastdecode":
        dataset = ImageFolder(folder, transform)
        return Loader(dataset, _BATCH, shuffle=train, threads=threads, drop_last=train)
    return torch.utils.data.DataLoader(
        datasets.ImageFolder(folder, transform),
        *(_BATCH, train),
        num_workers=threads,
        persistent_workers=True,
        drop_last=train,
    )


def accuracy(model: nn.Module, loader: Iterable[Any]) -> float:
    """Return the share of images that are classified right."""
    model.eval()
    with torch.inference_mode():
        right = [model(images).argmax(1) == labels for images, labels in loader]
    return float(torch.cat(right).float().mean())


def train(side: str, recipe: str, seed: int, parts: tuple[Path, Path], options: Any) -> float:
    """Train a network; return its accuracy on the photos that it has not seen."""
    torch.manual_seed(seed)
    model = network(sum(1 for _ in parts[0].iterdir()))
    evaluation = v2.Compose(
        [v2.Resize(_SIZE), v2.CenterCrop(_SIZE), *_recipe().transforms[2:]]  # as in training
    )
    training = batches(side, parts[0], _RECIPES[recipe](), train=True, threads=options.threads)
    testing = batches(side, parts[1], evaluation, train=False, threads=options.threads)
    optimizer = torch.optim.AdamW(model.parameters(), weight_decay=0.05)
    steps = options.epochs * len(training)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 3e-3, total_steps=steps)
    for _ in range(options.epochs):
        model.train()
        for images, labels in training:
            loss = nn.functional.cross_entropy(model(images), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
    return accuracy(model, testing)


def chance(ours: Sequence[float], theirs: Sequence[float]) -> float:
    """Return how often a random division of the runs has means at least as far apart."""
    runs, size = [*ours, *theirs], len(ours)
    apart = abs(mean(ours) - mean(theirs))
    farther = []
    for chosen in itertools.combinations(range(len(runs)), size):
        one = [runs[at] for at in chosen]
        other = [run for at, run in enumerate(runs) if at not in chosen]
        farther.append(abs(mean(one) - mean(other)) >= apart - 1e-9)
    return mean(farther)


@bench.command(
    recipes=([*_RECIPES], "of augmentations"),
    seeds=(3, "for each side"),
    epochs=(5, "of each training"),
    threads=(usable_cores(), "of the Loader; torchvision has as many workers"),
)
def main(options: Any) -> Any:
    found: dict[str, dict[str, list[float]]] = {}
    with tempfile.TemporaryDirectory() as root:
        parts = split(options.photos, Path(root))
        for recipe in options.recipes:
            found[recipe] = {side: [] for side in _SIDES}
            for seed in range(options.seeds):
                for side in _SIDES if seed % 2 else _SIDES[::-1]:
                    found[recipe][side].append(train(side, recipe, seed, parts, options))
    result = {}
    for recipe, sides in found.items():
        row: dict[str, Any] = {}
        for side, runs in sides.items():
            row |= {f"{side}_mean": mean(runs), f"{side}_stdev": stdev(runs)}
        row["p"] = chance(*sides.values())
        result[recipe] = {**row, "runs": sides}
    bench.show("accuracy", result)
    return result


if __name__ == "__main__":
    main()
