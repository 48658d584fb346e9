"""A sample that was read already, so that whoever makes it next need not read it again."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from fastdecode.outages import ITEM_ERRORS, is_the_items

if TYPE_CHECKING:
    import torch

    from fastdecode.geometry import Geometry

__all__ = ["Found", "finished"]


class Found(NamedTuple):
    """What a `DecodeDataset` without overridden parts has for a sample.

    Attributes
    ----------
    source : bytes-like or path
        From its ``read``: errors name it.
    data : bytes-like
        The encoded picture.
    target : object
    finished : bool
        Whether the target is as the dataset hands it out, and not as ``read`` gave it.
    error : Exception or None
        What ``read`` raised instead.
    """

    source: Any
    data: Any
    target: Any
    finished: bool = False
    error: Exception | None = None

    def made(
        self, dataset: Any, index: int, generator: torch.Generator | None, out: torch.Tensor | None
    ) -> tuple[Any, Any]:
        """Make the sample as the dataset's ``load`` does; the arguments are the same."""
        try:
            if self.error is not None:
                raise self.error
            image, geometry = dataset._image(self.data, generator, out)
            target = self.target
            return image, target if self.finished else finished(dataset, target, geometry)
        except ITEM_ERRORS as error:
            if is_the_items(error):
                dataset._naming(error, index, self.source)
            raise


def finished(dataset: Any, target: Any, geometry: Geometry | None) -> Any:
    """Adapt a target to what became of its picture, and transform it.

    Parameters
    ----------
    dataset : DecodeDataset
    target : object
        From its ``read``.
    geometry : Geometry or None
        None where the target does not depend on it.
    """
    if geometry is not None and dataset._maps_targets():
        target = dataset.map_target(target, geometry)
    transform = dataset.target_transform
    return target if transform is None else transform(target)
