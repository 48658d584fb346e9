"""Which transform a dataset really calls: its own, or what could be fused of it."""

from __future__ import annotations

from collections.abc import Callable
from operator import is_
from typing import Any, NamedTuple

from fastdecode.torch.fusing import fuse
from fastdecode.torch.recognise import flatten, is_albumentations
from fastdecode.torch.transforms import EncodedTransform

__all__ = ["Chosen", "Settings", "choose"]


class Settings(NamedTuple):
    """What a dataset's options say about its transform.

    Attributes
    ----------
    transform : callable or None
    fuse : bool
    quality : {"default", "exact"}
    headroom : float
    reduce, min_size, mode, output
        As of `DecodeMixin`.
    """

    transform: Callable[..., Any] | None
    fuse: bool
    quality: Any
    headroom: float
    reduce: Any
    min_size: Any
    mode: Any
    output: Any

    def reduces(self) -> str:
        """Name the options by which the caller says how the picture is to be decoded."""
        usual = {"reduce": 1, "min_size": None, "mode": "RGB"}
        asked = {name: getattr(self, name) for name in usual}
        return ", ".join(f"{name}={asked[name]!r}" for name in usual if asked[name] != usual[name])


class Chosen(NamedTuple):
    """What is called, and what it was made of.

    Attributes
    ----------
    transform : callable or None
        An `EncodedTransform` takes the file's bytes, any other the decoded picture.
    fused : bool
        It is not the dataset's own.
    plain : bool
        It is an `EncodedTransform` as it was given.
    made_of : tuple
        Everything that it depends on; when one of these is another object, it is out of date.
    """

    transform: Any
    fused: bool
    plain: bool
    made_of: tuple[Any, ...]


def choose(settings: Settings, known: Chosen | None) -> Chosen:
    """Choose the transform, or find that the known choice still holds.

    Parameters
    ----------
    settings : Settings
    known : Chosen or None
        The choice before.

    Returns
    -------
    Chosen

    Raises
    ------
    ValueError
        If the options contradict the transform.
    """
    transform = settings.transform
    parts = [] if isinstance(transform, EncodedTransform) else list(flatten(transform))
    made_of = (*settings, *parts, *(value for part in parts for value in _state(part)))
    if known and len(known.made_of) == len(made_of) and all(map(is_, known.made_of, made_of)):
        return known
    if transform is not None and not callable(transform):
        raise TypeError(f"transform must be something to call with a picture, not {transform!r}")
    if isinstance(transform, type) and issubclass(transform, EncodedTransform):
        raise TypeError(f"transform is the class {transform.__name__}: make one of it, with a size")
    if is_albumentations(transform):
        raise TypeError(
            f"albumentations' {type(transform).__name__} is called with image=, and gives a dict: "
            "give transform a function that returns compose(image=image)['image'], and the dataset "
            "output='array'"
        )
    first = parts[0] if parts else transform
    asked = settings.reduces()
    if isinstance(first, EncodedTransform) and asked:
        raise ValueError(
            f"{type(first).__name__} is given the file's bytes and decides by itself how far to "
            f"reduce them, so {asked} can have no effect: leave it out, or use transforms of "
            "decoded pictures"
        )
    # A Compose that begins with one of ours can only be called with bytes.
    if isinstance(first, EncodedTransform) or (
        settings.fuse and not asked and settings.output != "array"
    ):
        transform = fuse(transform, quality=settings.quality, headroom=settings.headroom)
    fused = transform is not settings.transform
    plain = isinstance(transform, EncodedTransform) and not fused and not asked
    return Chosen(transform, fused, plain, made_of)


def _state(part: Any) -> list[Any]:
    """List a part's attributes: somebody may set another size while training."""
    return list(getattr(part, "__dict__", {}).values())
