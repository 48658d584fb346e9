"""`fuse`: a pipeline for images that a dataset of one's own opens, called as it is without."""

from __future__ import annotations

import random
from contextlib import suppress
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeVar, cast

import numpy as np
import torch
from PIL import Image as PillowImage

from fastdecode._buffers import without_row
from fastdecode._decode.lazy import unmade
from fastdecode.native._augment import Impossible
from fastdecode.torch import _recognise
from fastdecode.torch._albumentations import is_of_albumentations
from fastdecode.torch._fuse import Fused, Source, fuse_for, unfused
from fastdecode.torch._joint import FusedJoint, resolve_joint
from fastdecode.torch._options import DecodeOptions
from fastdecode.torch._snapshot import Snapshot
from fastdecode.torch.transforms._random_crop import TorchDraws
from fastdecode.torch.transforms.base import Recipe
from fastdecode.torch.transforms.containers import Compose

if TYPE_CHECKING:
    from fastdecode.torch._albumentations import OfImage
    from fastdecode.torch.transforms._random_crop import SampleGenerator
    from fastdecode.torch.transforms.base import Quality

_T = TypeVar("_T")


class FusedWithTargets(Fused):
    """A pipeline that also takes targets, if it is of torchvision's v2."""

    def __call__(self, data: Any, *targets: Any, **options: Any) -> Any:
        """Do what `Fused` does, and to targets what v2's pipelines do; return all of them.

        An image that `fastdecode.open` has opened is recorded if it comes with one target. The
        pipeline runs as written on what has been decoded already, and on structures of images.
        """
        if not targets:
            if options or self.written is None or not _is_decoded(data):
                return super().__call__(data, **options)
            self._renew()
            return self._written(data)
        if options:
            raise TypeError(f"{', '.join(options)} cannot be given with targets")
        self._renew()
        if len(targets) == 1 and isinstance(data, PillowImage.Image):
            made = self._joint.record(data, *targets) if self._joint is not None else None
            if made is not None:
                return made
        return cast("Source", self._source).transform(data, *targets)

    def _recorded(self, image: PillowImage.Image, generator: SampleGenerator | None = None) -> Any:
        """Return the result as `Fused` does; if steps have to be called, of what follows them.

        They are called with the image, which remembers most of what they do.
        """
        halves = None if unmade(image) is None else self._halves
        if halves is None:
            return super()._recorded(image, generator)
        called, following = halves
        made = called(image)
        return made if following is None else following(made)

    @cached_property
    def _halves(self) -> tuple[Any, Fused | None] | None:
        """What to call, and a pipeline of the other steps, which is recorded; None if all is.

        What makes a Pillow image is called, if the image remembers all of it.
        """
        source, way = cast("Source", self._source), self._way
        if self._is_recordable or source.options.quality != "exact":
            return None
        if way.form == "pil" and not way.rest and isinstance(way.head, Recipe):
            return None if way.head.augments_pixels else (self.written, None)
        parts = list(_recognise.flatten(source.transform))
        for count in range(1, len(parts)):
            following = fuse(Compose(parts[count:]))
            if isinstance(following, Fused) and following._is_recordable:
                return Compose(parts[:count]), following
        return None

    @cached_property
    def _joint(self) -> FusedJoint | None:
        """The pipeline with targets; None if nothing of it is known."""
        source = cast("Source", self._source)
        made = resolve_joint(source.transform, source.options, may_fuse=True)
        return made if isinstance(made, FusedJoint) else None


def _is_decoded(data: Any) -> bool:
    """Return whether this is an image in memory, or a structure with one, and no encoded file."""
    if isinstance(data, (torch.Tensor, np.ndarray)):
        return data.ndim > 1
    return isinstance(without_row(data), (dict, list, tuple))


class FusedByName(Fused):
    """A pipeline of albumentations, which takes its image, and what belongs to it, by name."""

    def __call__(self, *data: Any, **named: Any) -> Any:
        """Return what the pipeline does, a dictionary; images of Pillow's are taken for arrays.

        An image that `fastdecode.open` has opened is made by the core if it comes alone. All draws
        follow from one number, of the pipeline's own generator if that has been given a seed, or
        else of torch's global one.
        """
        if data:
            return super().__call__(*data, **named)
        self._renew()
        pipeline, way = self._pipeline, cast("Fused", self.in_loader)
        whole = way is not None and not way.rest and not vars(pipeline).get("save_applied_params")
        if named.keys() == {"image"} and whole:
            with suppress(Impossible):
                made = way._of_drawn(named["image"], self._seed)
                if made is not None:
                    return {"image": _as_array(made)}  # a pipeline of no steps makes no tensor
        if not self._has_seed and hasattr(pipeline, "set_random_state"):
            seed = self._seed()
            pipeline.set_random_state(np.random.default_rng(seed), random.Random(seed))  # noqa: S311
        return pipeline(**{name: _as_array(one) for name, one in named.items()})

    @property
    def _pipeline(self) -> Any:
        return cast("OfImage", self.written).transform

    @property
    def _has_seed(self) -> bool:
        return getattr(self._pipeline, "seed", None) is not None

    def _seed(self) -> int:
        if not self._has_seed:
            return TorchDraws().below(2**63 - 1)
        return int(self._pipeline.random_generator.integers(2**63 - 1))


def _as_array(found: Any) -> Any:
    return np.array(found) if isinstance(found, PillowImage.Image) else found


def fuse(
    transform: _T,
    *,
    quality: Quality = "exact",
    headroom: float = 1.0,
) -> Fused | _T:
    """Merge a torchvision or timm pipeline with the decoding.

    The result takes the bytes of a file, or an image of `fastdecode.open`, and decodes only what
    the pipeline will use. It draws the numbers that the pipeline would draw, from the same
    generators. On any other Pillow image the pipeline runs as written.

    Parameters
    ----------
    transform : callable or None
        A pipeline for RGB Pillow images: a Compose of torchvision transforms (v1 or v2) and timm
        transforms, an nn.Sequential of them, a single transform, or a preset of torchvision's
        references. Also a Compose whose first step is a transform of this package. Also an image
        processor of transformers, of which the result is its ``pixel_values``. Also a Compose of
        albumentations: the result takes ``image=``, as it does, and returns its dictionary.
    quality : {"exact", "fast"}
        As for `fastdecode.torch.transforms.RandomResizedCrop`.
    headroom : float
        As for `fastdecode.torch.transforms.RandomResizedCrop`.

    Returns
    -------
    Fused, or `transform` itself
        `transform` itself if it is a transform of this package, or if it is not certain what its
        first steps do.

    Raises
    ------
    TypeError
        `transform` is not callable.
    ValueError
        `quality` or `headroom` is invalid. Or a step after a transform of this package
        would normalise the image a second time, or the first such step takes only Pillow images.

    Notes
    -----
    These steps are recognised, if they are antialiased where they resize:

    - RandomResizedCrop, or Resize and CenterCrop, bilinear or bicubic (of tensors only v2's
      bicubic);
    - RandomHorizontalFlip, ToTensor, PILToTensor, ToImage, ToPureTensor, ToDtype or
      ConvertImageDtype to float32, and Normalize;
    - ImageClassification, the preset of torchvision's weights, and ClassificationPresetTrain and
      ClassificationPresetEval, those of its references;
    - timm's RandomResizedCropAndInterpolation, MaybeToTensor, MaybePILToTensor and ToTensor;
    - RGB, v2.Identity and nn.Identity;
    - the image processors CLIP, ViT, DeiT, BEiT, DPT, DETR, LLaVA, MobileNet, PVT, Qwen2-VL,
      SegFormer, SigLIP, ConvNeXT and BiT of transformers.

    The core also does most of torchvision's and timm's augmentations: after such steps alone, an
    image of `fastdecode.open` becomes a tensor whose values are made when they are used, and many
    at once where they are stacked. What adds noise, or mixes chains as timm's AugMix, is called.

    Of v2 the result also takes targets, as the pipeline does, and does to them the same: to an
    image of `fastdecode.open` with one target, in whatever structure, without its pixels.

    Of albumentations the core does what it does in a `Loader`, if the image comes alone, by its
    name, and from `fastdecode.open`, with draws distributed as albumentations'. With masks, boxes
    or keypoints, albumentations runs. Draws follow from the ``seed`` of the Compose, or else from
    torch's global generator.

    From the first step on that is neither, the pipeline runs as written. That step gets the same
    input as without `fuse`: a Pillow image, or a contiguous tensor.

    If you change one of the pipeline's steps later, the next image is made with it.

    Examples
    --------
    >>> from torchvision.transforms import v2
    >>> from fastdecode.torch import fuse
    >>> fuse(v2.Compose([v2.RandomResizedCrop(224), v2.ToImage()]))
    Fused(
      fused: RandomResizedCrop, ToImage
      decoded by: Recipe(box(0.08, 1, 0.75, 1.333), resize(224, 224); ...)
    )
    """
    options = DecodeOptions(quality=quality, headroom=headroom)
    fused = fuse_for(transform, options)
    if is_of_albumentations(transform) and not isinstance(fused, Fused):
        fused = unfused(transform, options)
    if type(fused) is Fused and fused is not transform:
        kind = FusedByName if is_of_albumentations(transform) else FusedWithTargets
        source = Source(transform, Snapshot(transform), options, kind)
        return source.complete(fused)
    return fused
