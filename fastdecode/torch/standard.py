"""torchvision's ``StandardTransform``: the two transforms of a dataset as one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

__all__ = ["StandardTransform", "standard_transform"]


class StandardTransform:
    """A transform of pictures and one of targets, called with both.

    Parameters
    ----------
    transform, target_transform : callable, optional
    """

    def __init__(
        self,
        transform: Callable[..., Any] | None = None,
        target_transform: Callable[..., Any] | None = None,
    ) -> None:
        self.transform = transform
        self.target_transform = target_transform

    def __call__(self, image: Any, target: Any) -> tuple[Any, Any]:
        """Apply each to its own."""
        if self.transform is not None:
            image = self.transform(image)
        if self.target_transform is not None:
            target = self.target_transform(target)
        return image, target

    def __repr__(self) -> str:
        lines = [type(self).__name__]
        if self.transform is not None:
            lines.append(_indented("Transform: ", self.transform))
        if self.target_transform is not None:
            lines.append(_indented("Target transform: ", self.target_transform))
        return "\n".join(lines)


def standard_transform(
    transform: Callable[..., Any] | None, target_transform: Callable[..., Any] | None
) -> StandardTransform | None:
    """Pair them, as torchvision does, or return None where there is neither."""
    if transform is None and target_transform is None:
        return None
    return StandardTransform(transform, target_transform)


def _indented(head: str, thing: object) -> str:
    return head + repr(thing).replace("\n", "\n" + " " * len(head))
