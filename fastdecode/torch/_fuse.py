"""`fuse`: a pipeline for images that a dataset of one's own opens, called as it is without."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import torch
from PIL import Image as PillowImage

from fastdecode._arguments import without_row
from fastdecode._decode.lazy import encoded, unmade
from fastdecode.geometry import Geometry
from fastdecode.torch._albumentations import as_transform, is_of_albumentations
from fastdecode.torch._albumentations_calls import Calls, with_arrays
from fastdecode.torch._joint import JointPlan, compile_joint
from fastdecode.torch._options import DecodeOptions
from fastdecode.torch._plan import Plan, compile_pipeline, uncompiled
from fastdecode.torch._snapshot import Snapshot
from fastdecode.torch.transforms._random_crop import SampleGenerator, TorchDraws
from fastdecode.torch.transforms.base import EncodedTransform

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from fastdecode.torch.transforms.base import Quality, TransformOptions

_T = TypeVar("_T")


class Fused(EncodedTransform):
    """A pipeline whose first steps run while decoding, and whose other steps run as written.

    `fuse` creates it. It follows what is changed in the pipeline.

    Parameters
    ----------
    head : EncodedTransform
        Replaces the first steps of the pipeline.
    rest : sequence of callables
        The other steps. Each is called with the result of the previous one.

    Attributes
    ----------
    plan : Plan
        What the pipeline was compiled into; ``print(fused)`` shows it.
    shape, dtype
        Those of the head. The shape is None if there are other steps, or if the result is no
        tensor.
    isolated : bool
        Whether a `Loader` can make samples in threads: no other step may draw from global
        generators.

    Examples
    --------
    >>> from fastdecode.torch import Fused
    >>> from fastdecode.torch.transforms import RandomResizedCrop
    >>> transform = Fused(RandomResizedCrop(224), [lambda pixels: pixels.float() / 255])
    >>> transform(data).shape
    torch.Size([3, 224, 224])
    """

    def __init__(self, head: EncodedTransform, rest: Sequence[Callable[[Any], Any]] = ()) -> None:
        self._follow(Plan(head, [head, *rest], 1))

    @classmethod
    def of(cls, plan: Plan, transform: Any, options: DecodeOptions) -> Fused:
        """Return the fused pipeline of a plan that was just compiled."""
        fused = cls.__new__(cls)
        fused._source, fused._options = transform, options
        fused._seen = Snapshot(transform)
        fused._follow(plan)
        return fused

    _source: Any = None
    """The pipeline as it was given to `fuse`."""
    _options = DecodeOptions()
    _seen: Snapshot | None = None

    def _follow(self, plan: Plan) -> None:
        self.plan = plan
        self.shape, self.dtype, self.isolated = plan.shape, plan.dtype, plan.isolated

    def renew(self, *, for_epoch: bool = False) -> Plan:
        """Return the plan of the pipeline as it is now; it is compiled if that has changed."""
        seen = self._seen
        if seen is not None:
            current = seen.is_current_for_epoch() if for_epoch else seen.is_current()
            if not current:
                made = compile_pipeline(self._source, self._options)
                self._seen = Snapshot(self._source)
                self.__dict__.pop("_joint", None)
                self.__dict__.pop("_calls", None)
                known = isinstance(made, Plan)
                self._follow(made if known else uncompiled(self._source, self._options))
        return self.plan

    def __call__(self, data: Any, **options: Unpack[TransformOptions]) -> Any:
        """Decode and transform an image, and return the result of the last step.

        `data` may also be an image that `fastdecode.open` has opened, or any other Pillow image, on
        which the pipeline is called as it is written.
        """
        if not isinstance(options.get("generator"), SampleGenerator):
            self.renew()
        if isinstance(data, PillowImage.Image):
            file = encoded(data) if options else None
            if file is None:
                return self.plan.of_image(data)
            data = file
        return self.plan(data, **options)

    def with_geometry(self, data: Any, **options: Unpack[TransformOptions]) -> tuple[Any, Geometry]:
        """Decode and transform an image, and return where the result lies in it.

        Raises
        ------
        ValueError
            A step is not known to keep every pixel in its place.
        """
        return self.renew().with_geometry(data, **options)

    def __repr__(self) -> str:
        return "\n".join(["Fused(", *(f"  {line}" for line in self.plan.lines()), ")"])


class FusedWithTargets(Fused):
    """A pipeline that also takes targets, if it is of torchvision's v2."""

    def __call__(self, data: Any, *targets: Any, **options: Any) -> Any:
        """Do what `Fused` does, and to targets what v2's pipelines do; return all of them.

        An image that `fastdecode.open` has opened is recorded if it comes with one target. The
        pipeline runs as written on what has been decoded already, and on structures of images.
        """
        if not targets:
            if options or self.plan.taking_bytes or not _is_decoded(data):
                return super().__call__(data, **options)
            return as_transform(self._source)(data)
        if options:
            raise TypeError(f"{', '.join(options)} cannot be given with targets")
        self.renew()
        if len(targets) == 1 and isinstance(data, PillowImage.Image):
            made = self._joint.record(data, *targets) if self._joint is not None else None
            if made is not None:
                return made
        return self._source(data, *targets)

    @cached_property
    def _joint(self) -> JointPlan | None:
        """The plan with targets; None if nothing of it is known."""
        made = compile_joint(self._source, self._options, may_fuse=True)
        return made if isinstance(made, JointPlan) else None


def _is_decoded(data: Any) -> bool:
    """Return whether this is an image in memory, or a structure with one, and no encoded file."""
    if isinstance(data, PillowImage.Image):
        return unmade(data) is None
    if isinstance(data, (torch.Tensor, np.ndarray)):
        return data.ndim > 1
    return isinstance(without_row(data), (dict, list, tuple))


class FusedByName(Fused):
    """A pipeline of albumentations, which takes images, and what belongs to them, by name."""

    def __call__(self, *data: Any, **named: Any) -> Any:
        """Return what the pipeline does, a dictionary.

        Images that `fastdecode.open` has opened are made by the core, with what albumentations
        draws; other images of Pillow's are taken for arrays. Without a seed of the pipeline's own,
        its generators follow from torch's global one.
        """
        if data:
            return super().__call__(*data, **named)
        self.renew()
        pipeline = self._source
        if self._seeds_each_call:
            # Its own generators are the same in all worker processes, and again in each epoch.
            seed = TorchDraws().below(2**63 - 1)
            in_python = random.Random(seed)  # noqa: S311
            pipeline.set_random_state(np.random.default_rng(seed), in_python)
        if self._calls is not None:
            return self._calls(named)
        return pipeline(**{name: with_arrays(one) for name, one in named.items()})

    @cached_property
    def _calls(self) -> Calls | None:
        """What is called; None of a version whose generators cannot be set."""
        return Calls(self._source) if self._takes_generators else None

    def __repr__(self) -> str:
        lines = self.plan.lines() if self._calls is None else self._calls.lines()
        return "\n".join(["Fused(", *(f"  {line}" for line in lines), ")"])

    @property
    def _takes_generators(self) -> bool:
        return hasattr(self._source, "set_random_state")

    @property
    def _seeds_each_call(self) -> bool:
        return self._takes_generators and getattr(self._source, "seed", None) is None


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
        references. Also a Compose whose first step is a transform of this package, or a Compose
        of albumentations: the result takes ``image=``, as it does, and returns its dictionary.
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
        `transform` is not callable, or an image processor of transformers, for which there is
        `fastdecode.transformers`.
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
    - RGB, v2.Identity and nn.Identity.

    The core also does most of torchvision's and timm's augmentations: after such steps alone, an
    image of `fastdecode.open` becomes a tensor whose values are made when they are used, and many
    at once where they are stacked. What adds noise, or mixes chains as timm's AugMix, is called.

    Of v2 the result also takes targets, as the pipeline does, and does to them the same: to an
    image of `fastdecode.open` with one target, in whatever structure, without its pixels.

    Of albumentations the result takes images, masks, boxes and keypoints by name, as the pipeline
    does, which draws by itself. Of an image from `fastdecode.open` the core does what was drawn,
    each step within a level, of which a later one, such as CLAHE, may make more; a step that it
    does not do gets the pixels. The draws follow from the ``seed`` of the Compose, or else from
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
      while decoding: RandomResizedCrop
      in the core: ToImage
    )
    """
    options = DecodeOptions(quality=quality, headroom=headroom)
    named = is_of_albumentations(transform)
    plan = compile_pipeline(transform, options)
    if named and not isinstance(plan, Plan):
        plan = uncompiled(transform, options)
    if not isinstance(plan, Plan):
        return plan
    return (FusedByName if named else FusedWithTargets).of(plan, transform, options)
