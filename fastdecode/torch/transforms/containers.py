"""`Compose`, and what does some of several transforms, or all in another order."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from textwrap import indent
from typing import Any

import torch

from fastdecode._decode import lazy
from fastdecode.torch.transforms._random_crop import TorchDraws
from fastdecode.torch.transforms.base import is_number
from fastdecode.torch.transforms.images import check_probability


@dataclass(eq=False, repr=False)
class _Several:
    """Several transforms; each gets the result of the one before."""

    transforms: Sequence[Callable[[Any], Any]]

    def __post_init__(self) -> None:
        held = self.transforms
        if isinstance(held, (str, dict)) or not callable(getattr(held, "__iter__", None)):
            raise TypeError(f"transforms must be a sequence of callables, not {held!r}")
        if not list(held) or not all(map(callable, held)):
            raise ValueError(f"transforms must be callables, and at least one, not {held!r}")

    def __repr__(self) -> str:
        lines = "".join(indent(f"{part!r}\n", "    ") for part in self.transforms)
        held = {name: value for name, value in vars(self).items() if name != "transforms"}
        named = "".join(f"    {name}={value!r}\n" for name, value in held.items())
        return f"{type(self).__name__}(\n{lines}{named})"


class Compose(_Several):
    """Call several transforms in turn, as torchvision's ``Compose`` does.

    All transforms of this package take Pillow images in it, also those that take files elsewhere.
    As the `transform` of a dataset, it decodes only what it uses.

    Parameters
    ----------
    transforms : sequence of callables
        Of this package, torchvision, timm or your own.

    Raises
    ------
    TypeError, ValueError
        There is no transform, or one is not callable.

    Examples
    --------
    >>> from fastdecode.torch import transforms
    >>> transform = transforms.Compose(
    ...     [
    ...         transforms.RandomResizedCrop(224),
    ...         transforms.RandomHorizontalFlip(),
    ...         transforms.ToTensor(),
    ...     ]
    ... )
    >>> transform(data).shape
    torch.Size([3, 224, 224])
    """

    def __call__(self, image: Any) -> Any:
        """Return what the transforms make of an image, or of the bytes of a file."""
        if isinstance(image, (bytes, bytearray, memoryview)):
            image = lazy.open(image).convert("RGB")
        for part in self.transforms:
            image = part(image)
        return image


@dataclass(eq=False, repr=False)
class RandomApply(_Several):
    """Call all of several transforms, or none, as torchvision's ``RandomApply`` does.

    Parameters
    ----------
    transforms : sequence of callables
    p : float
        Probability.

    Examples
    --------
    >>> from fastdecode.torch.transforms import RandomApply, RandomInvert, RandomVerticalFlip
    >>> RandomApply([RandomInvert(), RandomVerticalFlip()])
    RandomApply(
        RandomInvert(p=0.5)
        RandomVerticalFlip(p=0.5)
        p=0.5
    )
    """

    p: float = 0.5

    def __post_init__(self) -> None:
        super().__post_init__()
        check_probability(self.p)

    def __call__(self, image: Any) -> Any:
        """Return the image, transformed or not."""
        if TorchDraws().flip(self.p):
            for part in self.transforms:
                image = part(image)
        return image


@dataclass(eq=False, repr=False)
class RandomChoice(_Several):
    """Call one of several transforms, as torchvision's v2 ``RandomChoice`` does.

    Parameters
    ----------
    transforms : sequence of callables
    p : sequence of floats, optional
        A weight for each; by default all are alike.

    Examples
    --------
    >>> from fastdecode.torch.transforms import RandomChoice, RandomInvert, RandomVerticalFlip
    >>> RandomChoice([RandomInvert(), RandomVerticalFlip()])
    RandomChoice(
        RandomInvert(p=0.5)
        RandomVerticalFlip(p=0.5)
        p=[0.5, 0.5]
    )
    """

    p: Sequence[float] | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        given = [1.0] * len(self.transforms) if self.p is None else self.p
        weights = list(given) if isinstance(given, (list, tuple)) else []
        known = all(is_number(one) and 0 <= one < math.inf for one in weights)
        if len(weights) != len(self.transforms) or not known or not any(weights):
            raise ValueError(f"p must be weights of the transforms, not all 0, not {self.p!r}")
        self.p = [weight / sum(weights) for weight in weights]

    def __call__(self, image: Any) -> Any:
        """Return what the chosen transform makes of an image."""
        at = int(torch.multinomial(torch.tensor(self.p, device="cpu"), 1))
        return self.transforms[at](image)


class RandomOrder(_Several):
    """Call several transforms in a random order, as torchvision's v2 ``RandomOrder`` does.

    Parameters
    ----------
    transforms : sequence of callables

    Examples
    --------
    >>> from fastdecode.torch.transforms import RandomInvert, RandomOrder, RandomVerticalFlip
    >>> RandomOrder([RandomInvert(), RandomVerticalFlip()])
    RandomOrder(
        RandomInvert(p=0.5)
        RandomVerticalFlip(p=0.5)
    )
    """

    def __call__(self, image: Any) -> Any:
        """Return the image after all transforms."""
        for at in torch.randperm(len(self.transforms), device="cpu").tolist():
            image = self.transforms[at](image)
        return image
