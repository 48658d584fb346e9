"""`Views`: several random views of one image, for self-supervised learning."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NoReturn

from PIL import Image as PillowImage

from fastdecode import _formats
from fastdecode._arguments import as_buffer, is_int, shown
from fastdecode._decode.api import decode_part
from fastdecode._decode.lazy import info_of
from fastdecode._pixels import seen_size
from fastdecode.torch._fuse import Fused, fuse
from fastdecode.torch._plan import Plan
from fastdecode.torch._user_code import is_isolated
from fastdecode.torch.transforms import EncodedTransform
from fastdecode.torch.transforms._random_crop import SampleGenerator
from fastdecode.torch.transforms.base import DecodedPart, DrawnSample, Quality, Recipe

if TYPE_CHECKING:
    import torch
    from typing_extensions import Unpack

    from fastdecode._decode.api import Data
    from fastdecode.torch.transforms.base import TransformOptions
    from fastdecode.types import Box

_MOST_VIEWS = 1000


class Views(EncodedTransform):
    """Make several views of each image, and decode it once.

    The result of a sample is a list with one image per view. A `Loader` collates it to a list of
    batches, and makes the views in the core, without worker processes, if it can do all of each
    pipeline: ``print(dataset)`` says so.

    Parameters
    ----------
    views : sequence of callables, or one callable
        A pipeline for each view, as for `fuse`. Pipelines that `fuse` does not know are called with
        the decoded Pillow image, so a dataset's `output` must not name another form.
    count : int, optional
        With one callable: how many views it makes, at least 1.
    quality, headroom
        As for `fuse`. With ``quality="fast"``, each view is decoded separately.

    Attributes
    ----------
    views : tuple of callables
        The views, fused.

    Raises
    ------
    ValueError
        There is no view, or `count` is given for several callables, or missing for one.

    Notes
    -----
    Outside a `Loader`, the views draw one after another from torch's generator, as if each pipeline
    were called with the decoded image.

    A class of your own that returns views, such as those of SimCLR, MoCo and DINO, is called as it
    is written, in worker processes.

    Examples
    --------
    >>> from fastdecode.torch import Views
    >>> from fastdecode.torch.transforms import RandomResizedCropFlipNormalize
    >>> [view.shape for view in Views(RandomResizedCropFlipNormalize(224), 2)(data)]
    [torch.Size([3, 224, 224]), torch.Size([3, 224, 224])]
    """

    def __init__(
        self,
        views: Sequence[Callable[..., Any]] | Callable[..., Any],
        count: int | None = None,
        *,
        quality: Quality = "exact",
        headroom: float = 1.0,
    ) -> None:
        if isinstance(views, Sequence) and count is not None:
            raise ValueError("count is for one callable; here each of the views has its own")
        times = count if count is not None and is_int(count) and count <= _MOST_VIEWS else 0
        if not isinstance(views, Sequence) and times < 1:
            raise ValueError(
                f"give one callable as views, with a count from 1 to {_MOST_VIEWS}, or a list of "
                f"callables; not {shown(views)} and {shown(count)}"
            )
        several = list(views) if isinstance(views, Sequence) else [views] * times
        if not several or not all(map(callable, several)):
            raise ValueError(f"views must be callables, and at least one: {shown(views)}")
        fused = {id(view): fuse(view, quality=quality, headroom=headroom) for view in several}
        self.views: tuple[Callable[..., Any], ...] = tuple(fused[id(view)] for view in several)
        self.isolated = all(
            isinstance(view, EncodedTransform) and is_isolated(view) for view in self.views
        )

    def __call__(self, data: Data, **options: Unpack[TransformOptions]) -> Any:
        """Decode an image, and return the list of its views."""
        if options.get("out") is not None:
            raise ValueError("out is for one image, and there are several views")
        views: Sequence[Any] = self.views
        if isinstance(options.get("generator"), SampleGenerator):
            views = [view.plan if isinstance(view, Fused) else view for view in views]
        else:
            views = [getattr(view, "alike", view) for view in self.renewed().views]
        return _Making(as_buffer(data, function="transform"), **options).make(views)

    def renewed(self, *, for_epoch: bool = False) -> Views:
        """Return the views of the pipelines as they are now."""
        views = tuple(
            view.renew(for_epoch=for_epoch) if isinstance(view, Fused) else view
            for view in self.views
        )
        made = copy.copy(self)
        made.views = views
        return made

    def with_geometry(self, data: Data, **options: Unpack[TransformOptions]) -> NoReturn:  # noqa: ARG002
        """Raise ValueError: each view lies elsewhere in the image."""
        raise ValueError(
            "views of an image have no geometry in common, so map_target cannot be called: "
            "map targets in target_transform, or use a dataset for each view"
        )

    def __repr__(self) -> str:
        parts = [
            line
            for number, view in enumerate(self.views)
            if view not in self.views[:number]
            for line in [f"{self.views.count(view)} x", *f"{view!r}".splitlines()]
        ]
        return "\n".join(["Views(", *(f"  {line}" for line in parts), ")"])


class _Making:
    """The views of one image, from the decoded image or a part of it."""

    def __init__(
        self,
        data: Any,
        *,
        generator: torch.Generator | None = None,
        out: torch.Tensor | None = None,  # noqa: ARG002 - checked before
        **decoding: Any,
    ) -> None:
        self._data, self._generator, self._decoding = data, generator, decoding
        self._header = _formats.probe(data)
        applied = self._header.orientation if decoding.get("orient") else 1
        self._sides = seen_size(self._header.width, self._header.height, applied)

    def make(self, views: Sequence[Callable[..., Any]]) -> list[Any]:
        crops = [self._crop_of(view) for view in views]
        draws: list[DrawnSample | None] = [None] * len(views)
        box: Box = (0, 0, *self._sides)
        # Draws from torch's generator are in the order of the pipelines, so their crops are not
        # known before.
        if isinstance(self._generator, SampleGenerator) and all(crops):
            draws = [self._draw(crop) for crop in crops if crop is not None]
            box = _union([draw.plan.box for draw in draws if draw is not None])
        part = self._decode(box, keep=not all(crops))
        return [
            self._view(view, crop, draw, part)
            for view, crop, draw in zip(views, crops, draws, strict=True)
        ]

    def _crop_of(self, view: Callable[..., Any]) -> Recipe | None:
        """Return the crop that begins a view, or does all of it; None if it needs the whole image.

        A view that lets the decoder reduce the image needs the file itself.
        """
        crop: Any = view.head if isinstance(view, Plan) else view
        return crop if isinstance(crop, Recipe) and crop.quality == "exact" else None

    def _draw(self, crop: Recipe) -> DrawnSample:
        return crop.draw(*self._sides, self._generator)

    def _decode(self, box: Box, *, keep: bool) -> DecodedPart:
        """Decode a box; `keep` its pixels beyond this thread's next call of a decoder."""
        left, top, _, _ = box
        window = None if box == (0, 0, *self._sides) else box
        image = decode_part(self._data, self._header, 1, window, **self._decoding)
        return DecodedPart(image.copy() if keep else image, left, top)

    def _view(
        self,
        view: Callable[..., Any],
        crop: Recipe | None,
        draw: DrawnSample | None,
        part: DecodedPart,
    ) -> Any:
        if crop is not None:
            pixels = crop.make_from(part, self._draw(crop) if draw is None else draw)
            if not isinstance(view, Plan):
                return pixels
            return view.finish(pixels, self._generator, self._data)
        if isinstance(view, EncodedTransform):
            return view(self._data, generator=self._generator, **self._decoding)
        image = PillowImage.fromarray(part.image)
        image.info = info_of(self._data)
        return view(image)


def _union(boxes: Sequence[Box]) -> Box:
    """Return the smallest box around all of them, in whole pixels."""
    left, top, right, bottom = zip(*boxes, strict=True)
    return int(min(left)), int(min(top)), math.ceil(max(right)), math.ceil(max(bottom))
