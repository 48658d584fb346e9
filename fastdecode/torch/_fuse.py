"""One transform of encoded bytes, made of the first parts of a pipeline of images."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import torch
from PIL import Image as PillowImage

from fastdecode.geometry import Geometry
from fastdecode.torch import _recognise
from fastdecode.torch.transforms import EncodedTransform, Normalize, crops
from fastdecode.torch.transforms.base import Crop, Layout, Quality, check_quality

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from fastdecode.api import Data
    from fastdecode.torch.transforms.base import TransformOptions

_C = TypeVar("_C", bound=Crop)
_T = TypeVar("_T")

# The package's own: of them it is known what they do.
_OWN = {kind for kind in vars(crops).values() if isinstance(kind, type) and issubclass(kind, Crop)}


class Fused(EncodedTransform):
    """A pipeline whose first parts are done while decoding, and the others as they were written.

    Parameters
    ----------
    head : EncodedTransform
        What the first parts have become.
    rest : sequence of callables
        What follows, each called with the result of the one before.
    form : {"tensor", "pil"}
        As what the first of the rest, or the caller, gets the head's result: ``"pil"`` makes a
        Pillow image of its bytes.
    image : type, optional
        The class of tensor to hand it out as: torchvision's ``tv_tensors.Image``.
    draws : int
        How often to draw ``torch.rand(1)`` after the head for nothing. torchvision's
        RandomHorizontalFlip draws with p=0, too, and the draws that follow must not shift.
    fused : sequence of str
        The first parts, for `repr`.

    Attributes
    ----------
    head : EncodedTransform
    rest : tuple of callables
    shape, dtype
        Those of the head. The shape is None if the result may be anything: with a rest, or as a
        Pillow image.
    isolated : bool
        False with a rest: its random draws come from global generators.

    Examples
    --------
    >>> from fastdecode.torch import Fused
    >>> from fastdecode.torch.transforms import RandomResizedCrop
    >>> transform = Fused(RandomResizedCrop(224), [lambda pixels: pixels.float() / 255])
    >>> transform(data).shape
    torch.Size([3, 224, 224])
    """

    def __init__(
        self,
        head: EncodedTransform,
        rest: Sequence[Callable[[Any], Any]] = (),
        *,
        form: Literal["tensor", "pil"] = "tensor",
        image: type[torch.Tensor] | None = None,
        draws: int = 0,
        fused: Sequence[str] = (),
    ) -> None:
        if form == "pil" and head.dtype != torch.uint8:
            raise ValueError(f"a Pillow image is made of torch.uint8, not {head.dtype}")
        self.head = head
        self.rest = tuple(rest)
        self.form = form
        self.image = image
        self.draws = draws
        self.fused = tuple(fused)
        self.shape = None if self.rest or form == "pil" else head.shape
        self.dtype = head.dtype
        self.isolated = head.isolated and not self.rest

    def __call__(self, data: Data, **options: Unpack[TransformOptions]) -> Any:
        """Decode and transform: as any `EncodedTransform`, to whatever the last part returns."""
        return self._run(data, **options)[0]

    def with_geometry(
        self, data: Data, **options: Unpack[TransformOptions]
    ) -> tuple[Any, Geometry]:
        """Do the same, and tell where the result lies in the image.

        Raises
        ------
        ValueError
            If a part of the rest is not known to leave every pixel where the head put it.
        """
        for part in self.rest:
            if not _recognise.keeps_geometry(part):
                raise ValueError(
                    f"{part!r} may move pixels, so where the result lies is not known; "
                    "`head.with_geometry` tells it for the parts before"
                )
        return self._run(data, **options)

    def _run(
        self,
        data: Data,
        *,
        generator: torch.Generator | None = None,
        out: torch.Tensor | None = None,
        backend: str | None = None,
        orient: bool = False,
    ) -> tuple[Any, Geometry]:
        direct = not self.rest and self.form == "tensor"
        result, geometry = self.head.with_geometry(
            data,
            generator=generator,
            out=out if direct else None,
            backend=backend,
            orient=orient,
        )
        for _ in range(self.draws):
            torch.rand(1, generator=generator, device="cpu")
        if direct and out is not None:
            return out, geometry
        result = self._handed_out(result)
        for part in self.rest:
            result = part(result)
        return (result if out is None else _written(result, out)), geometry

    def _handed_out(self, pixels: torch.Tensor) -> Any:
        if self.form == "pil":
            return PillowImage.fromarray(pixels.permute(1, 2, 0).contiguous().numpy())
        return pixels if self.image is None else pixels.as_subclass(self.image)

    def __repr__(self) -> str:
        lines = ["Fused("]
        if self.fused:
            lines.append(f"  fused: {', '.join(self.fused)}")
        lines.append(f"  decoded by: {self.head!r}")
        lines.extend(f"  as written: {part!r}" for part in self.rest)
        return "\n".join([*lines, ")"])


def fuse(transform: _T, *, quality: Quality = "fast", headroom: float = 1.0) -> Fused | _T:
    """Make a pipeline of torchvision's or timm's transforms decode only what it will look at.

    Parameters
    ----------
    transform : callable or None
        A Compose of torchvision's v1 or v2 transforms and timm's, an nn.Sequential of them, an
        object that does nothing but call such a thing, or one transform alone, as it would be given
        RGB Pillow images; or a Compose that begins with one of the package's own.
    quality : {"fast", "exact"}
        As for `fastdecode.torch.RandomResizedCrop`.
    headroom : float
        Likewise.

    Returns
    -------
    Fused, or `transform` itself
        The same object if it is one of the package's own, or if it cannot be known for certain
        what its first parts do.

    Raises
    ------
    ValueError
        If `quality` or `headroom` is wrong, if what one of the package's own has normalised would
        be normalised again, or if what follows it takes Pillow images alone.

    Notes
    -----
    Known are RandomResizedCrop, or Resize and CenterCrop, bilinear or bicubic and antialiased, with
    RandomHorizontalFlip, ToTensor, PILToTensor, ToImage, ToPureTensor, ToDtype or ConvertImageDtype
    to float32, and Normalize; ImageClassification, the preset of torchvision's weights; timm's
    RandomResizedCropAndInterpolation, MaybeToTensor, MaybePILToTensor and ToTensor; and what does
    nothing to an RGB image. What stands after the first part that is not among them gets what it
    would have got: a Pillow image, or the tensor, whose values lie in memory as torchvision's would
    (GaussianNoise fills them in that order). Boxes and flips are those of the same seed.

    The pipeline is read once. Whoever changes one of its parts later has to fuse it again.

    Examples
    --------
    >>> from torchvision.transforms import v2
    >>> from fastdecode.torch import fuse
    >>> fuse(v2.Compose([v2.RandomResizedCrop(224), v2.ToImage()]))
    Fused(
      fused: RandomResizedCrop, ToImage
      decoded by: RandomResizedCrop(size=(224, 224), ...)
    )
    """
    check_quality(quality)
    if transform is None or isinstance(transform, EncodedTransform):
        return transform
    parts = list(_recognise.flatten(transform))
    if parts and isinstance(parts[0], EncodedTransform):
        return _continued(parts[0], parts[1:])
    recipe = _recognise.Recipe({"quality": quality, "headroom": headroom})
    recipe, count, _ = _recognise.read(parts, recipe)
    return transform if recipe.crop is None else _fused(recipe, parts, count)


def why_not(transform: Any) -> str:
    """Say in words why `fuse` leaves a transform as it is."""
    return _recognise.read(list(_recognise.flatten(transform)), _recognise.Recipe())[2]


def _fused(recipe: _recognise.Recipe, parts: list[Any], count: int) -> Fused:
    """Make of the first parts what their recipe says."""
    head: Any = copy.copy(recipe.crop)
    head.layout = Layout(channels_last=True) if recipe.form == "pil" else recipe.layout
    return Fused(
        head,
        parts[count:],
        form="pil" if recipe.form == "pil" else "tensor",
        image=recipe.image,
        draws=int(recipe.flip == 0),
        fused=[type(part).__name__ for part in parts[:count]],
    )


def _continued(head: EncodedTransform, rest: list[Any]) -> Fused:
    """Let one of the package's own do what it can of the parts after it, too."""
    _refuse_twice(head, rest)
    recipe = _recipe_of(head)
    if recipe is None:
        return Fused(head, rest)
    if rest and _recognise.wants_pillow(rest[0]):
        name = type(rest[0]).__name__
        raise ValueError(
            f"{name} takes Pillow images, and {type(head).__name__} makes tensors: leave {name} "
            "out; dtype=torch.float32 makes values of 0 to 1"
        )
    recipe, count, _ = _recognise.read(rest, recipe)
    return _fused(recipe, [head, *rest], 1 + count) if count else Fused(head, rest)


def _refuse_twice(head: EncodedTransform, rest: Sequence[Any]) -> None:
    """Refuse what would normalise floats that one of the package's own, or a `Fused`, made."""
    made_by, following = head, list(rest)
    if isinstance(head, Fused):
        made_by, following = head.head, [*head.rest, *rest]
    normalize = made_by.normalize if isinstance(made_by, Crop) else None
    if normalize is None or getattr(normalize, "mean", None) is None:
        return
    again = _recognise.normalised_again(following)
    if again is not None:
        raise ValueError(
            f"{type(made_by).__name__} has normalised the image already, and {again!r} would do it "
            "again: leave that out, or use a transform without a mean"
        )


def _recipe_of(head: EncodedTransform) -> _recognise.Recipe | None:
    """Say what one of the package's own does, if nothing of it was replaced."""
    if type(head) not in _OWN or not isinstance(head, Crop):
        return None
    normalize = head.normalize
    if type(normalize) not in (Normalize, type(None)) or any(
        callable(value) for name, value in vars(head).items() if name != "normalize"
    ):
        return None
    form: Literal["uint8", "float", "normalised"] = "uint8"
    if normalize is not None:
        form = "float" if normalize.mean is None else "normalised"
    return _recognise.Recipe({}, head, head.flip or None, form, layout=head.layout)


def _written(result: Any, out: torch.Tensor) -> torch.Tensor:
    """Copy what the rest returned into the caller's tensor, if it is just such a tensor."""
    if not isinstance(result, torch.Tensor):
        raise ValueError(f"out is a tensor, but the result is {type(result).__name__}")  # noqa: TRY004
    if out.shape != result.shape or out.dtype != result.dtype:
        raise ValueError(
            f"out must be {tuple(result.shape)} of {result.dtype}, "
            f"not {tuple(out.shape)} of {out.dtype}"
        )
    return out.copy_(result)


# ---- a transform without its last step: bytes, which become floats where they are wanted ----


def as_bytes(crop: _C) -> _C:
    """Return the same crop as one that makes ``torch.uint8``, with the same draws."""
    if crop.normalize is None:
        return crop
    plain = copy.copy(crop)
    plain.dtype, plain.normalize = torch.uint8, None
    return plain


def for_slot(transform: EncodedTransform, out: torch.Tensor | None) -> Any:
    """Return the transform that fills a slot of a batch: for bytes, without its normalising."""
    if out is None or out.dtype == transform.dtype or out.dtype != torch.uint8:
        return transform
    if type(transform) is Fused and not transform.rest and transform.form == "tensor":
        return Fused(for_slot(transform.head, out), draws=transform.draws)
    if isinstance(transform, Crop) and type(transform.normalize) is Normalize:
        return as_bytes(transform)
    return transform


def put(image: Any, out: torch.Tensor, transform: Any) -> torch.Tensor:
    """Write a finished image into a slot of a batch.

    If the dataset's `transform` ends by normalising but the slot is for bytes, that is undone.
    """
    made = torch.as_tensor(image)
    head = transform.head if type(transform) is Fused else transform
    normalize = head.normalize if isinstance(head, Crop) else None
    if out.dtype == torch.uint8 != made.dtype and type(normalize) is Normalize:
        made = normalize.undone(made)
    return out.copy_(made)
