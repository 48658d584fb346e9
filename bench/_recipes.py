"""The recipes that people train with, as their authors write them."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

from fastdecode.measure._pipelines import MEAN, STD


class TrainingRecipe(NamedTuple):
    """How the transform of a recipe is made."""

    make: Callable[[], Any]
    """Returns the pipeline, or a list of pipelines, one for each view."""
    size: int = 224
    """The side in pixels of the images; of the first view, if there are several."""
    train: bool = True
    """Whether images come in random order."""


def _reference(size: int, policy: str = "", erase: float = 0.0) -> Any:
    """Return the training pipeline of torchvision's references."""
    import torch
    from torchvision import transforms as v1
    from torchvision.transforms import InterpolationMode, autoaugment

    augment = []
    if policy:
        augment = [getattr(autoaugment, policy)(interpolation=InterpolationMode.BILINEAR)]
    steps = [
        *(v1.RandomResizedCrop(size), v1.RandomHorizontalFlip(), *augment),
        *(v1.PILToTensor(), v1.ConvertImageDtype(torch.float), v1.Normalize(MEAN, STD)),
    ]
    return v1.Compose([*steps, v1.RandomErasing(p=erase)] if erase else steps)


def _tensors() -> Any:
    import torch
    from torchvision.transforms import v2

    return v2.Compose(
        [
            *(v2.ToImage(), v2.RandomResizedCrop(224, antialias=True), v2.RandomHorizontalFlip()),
            *(v2.TrivialAugmentWide(), v2.ToDtype(torch.float32, scale=True)),
            v2.Normalize(MEAN, STD),
        ]
    )


def _timm(**options: Any) -> Any:
    from timm.data import create_transform

    return create_transform(224, is_training=True, **options)


def _simclr() -> list[Any]:
    from torchvision import transforms as v1

    colours = v1.RandomApply([v1.ColorJitter(0.8, 0.8, 0.8, 0.2)], p=0.8)
    steps = [
        *(v1.RandomResizedCrop(224), v1.RandomHorizontalFlip(), colours),
        *(v1.RandomGrayscale(p=0.2), v1.GaussianBlur(23), v1.ToTensor()),
    ]
    return [v1.Compose(steps)] * 2


def _dino() -> list[Any]:
    from torchvision import transforms as v1

    from fastdecode.torch.transforms import GaussianBlur

    jitter = v1.RandomApply([v1.ColorJitter(0.4, 0.4, 0.2, 0.1)], p=0.8)

    def view(size: int, scale: tuple[float, float], *steps: Any) -> Any:
        bicubic = v1.InterpolationMode.BICUBIC
        crop = v1.RandomResizedCrop(size, scale=scale, interpolation=bicubic)
        colours = [v1.RandomHorizontalFlip(p=0.5), jitter, v1.RandomGrayscale(p=0.2)]
        return v1.Compose([crop, *colours, *steps, v1.ToTensor(), v1.Normalize(MEAN, STD)])

    first = view(224, (0.4, 1.0), GaussianBlur(1.0))
    second = view(224, (0.4, 1.0), GaussianBlur(0.1), v1.RandomSolarize(128, p=0.2))
    return [first, second, *[view(96, (0.05, 0.4), GaussianBlur(0.5))] * 6]


def _clip() -> Any:
    from torchvision import transforms as v1

    resize = v1.Resize(224, interpolation=v1.InterpolationMode.BICUBIC)
    return v1.Compose([resize, v1.CenterCrop(224), v1.ToTensor(), v1.Normalize(MEAN, STD)])


# At magnitude 10, which the spread reaches, timm's posterize asks for 0 bits, which Pillow refuses.
_M9 = "rand-m9-mstd0.5-mmax9-inc1"
RECIPES: dict[str, TrainingRecipe] = {
    "plain": TrainingRecipe(partial(_reference, 224)),
    "trivialaugment": TrainingRecipe(partial(_reference, 176, "TrivialAugmentWide", 0.1), 176),
    "randaugment": TrainingRecipe(partial(_reference, 224, "RandAugment")),
    "autoaugment": TrainingRecipe(partial(_reference, 224, "AutoAugment")),
    "augmix": TrainingRecipe(partial(_reference, 224, "AugMix")),
    "tensors": TrainingRecipe(_tensors),
    "timm": TrainingRecipe(partial(_timm, color_jitter=0.4)),
    "timm-m9": TrainingRecipe(partial(_timm, auto_augment=_M9, re_prob=0.25, re_mode="pixel")),
    "simclr": TrainingRecipe(_simclr),
    "dino": TrainingRecipe(_dino),
    "clip": TrainingRecipe(_clip, train=False),
}
