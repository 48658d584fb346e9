"""Files and test doubles of batch backends for the tests of devices.

The doubles decode with Pillow, and refuse, raise or return wrong results on demand.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Literal

import numpy as np
import pytest
import torch
from doubles import own_registry  # noqa: F401

from fastdecode import decode, register
from fastdecode.adapters.base import Backend, Support
from fastdecode.adapters.batch_base import BatchBackend, BatchItem
from fastdecode.testing import drawing, encode

Answer = Callable[[Sequence[BatchItem], str], Sequence[Any]]

_JPEG = Support(
    layouts=frozenset({"RGB", "L"}),
    codings=frozenset({"baseline"}),
    colors=frozenset({"gray", "ycc", "rgb"}),
)

PHOTOS = [encode(drawing(40 + 3 * i, 60 - 2 * i), quality=90) for i in range(9)]
PROGRESSIVE = encode(drawing(33, 21), progressive=True)
CMYK = encode(drawing(33, 21, "CMYK"))
PNG = encode(drawing(30, 20), "png")
CUT = PHOTOS[1][:-60]
NO_END = PHOTOS[2][:-2]
MIXED = [PHOTOS[0], PROGRESSIVE, PHOTOS[1], CMYK, PNG, PHOTOS[2], NO_END, PHOTOS[3]]
OF_CPU = [1, 3, 4, 6]


def tensor_of(item: BatchItem, layout: str) -> torch.Tensor:
    """Decode an item with Pillow, in the form of a batch backend's result."""
    array = decode(bytes(item.data), mode=layout, region=item.window, backend="pillow")
    return torch.from_numpy(array if array.ndim == 3 else array[:, :, None]).permute(2, 0, 1)


def honest(items: Sequence[BatchItem], layout: str) -> list[Any]:
    """Decode all items correctly."""
    return [tensor_of(item, layout) for item in items]


def marked(items: Sequence[BatchItem], layout: str) -> list[Any]:
    """Decode all items, and mark the images with a first pixel of 1, 2, 3."""
    made = [tensor_of(item, layout).clone() for item in items]
    for image in made:
        image[:, 0, 0] = torch.arange(1, len(image) + 1, dtype=torch.uint8)
    return made


def is_marked(image: torch.Tensor) -> bool:
    """Return whether `marked` decoded an image."""
    return image[:, 0, 0].tolist() == list(range(1, len(image) + 1))


def refusing(which: Callable[[BatchItem], bool], answer: Answer = marked) -> Answer:
    """Refuse some items by returning None for them."""

    def answer_some(items: Sequence[BatchItem], layout: str) -> list[Any]:
        made = answer(items, layout)
        return [None if which(item) else image for item, image in zip(items, made, strict=True)]

    return answer_some


def raising(which: Callable[[BatchItem], bool], answer: Answer = marked) -> Answer:
    """Raise an error for the whole batch if it contains one of these items."""

    def answer_all(items: Sequence[BatchItem], layout: str) -> Sequence[Any]:
        if any(which(item) for item in items):
            raise ValueError("an image of this batch is not to this library's liking")
        return answer(items, layout)

    return answer_all


def batch_double(
    answer: Answer = marked, *, supports: dict[Any, Any] | None = None, regions: bool = False
) -> type[BatchBackend]:
    """Return a test double of a batch backend; `asked` lists the number of images per call."""

    class Double(BatchBackend):
        """A test double that needs no library."""

        devices = frozenset({"cpu", "cuda"})
        asked: list[int] = []

        def __init__(self, device: torch.device, threads: int) -> None:
            self.device = device
            self.supports = supports or {"jpeg": (replace(_JPEG, region=regions),)}

        def decode(
            self, items: Sequence[BatchItem], layout: Literal["RGB", "L"]
        ) -> Sequence[torch.Tensor | None]:
            self.asked.append(len(items))
            return [
                made.to(self.device) if isinstance(made, torch.Tensor) else made
                for made in answer(items, layout)
            ]

    return Double


class NoSingle(Backend):
    """The backend that is registered with a double; it decodes no single images."""

    supports = {"jpeg": (_JPEG,)}
    exact = False

    def decode(self, data: Any, header: Any, **asked: Any) -> np.ndarray[Any, Any]:
        raise NotImplementedError("a double decodes batches")


@pytest.fixture
def with_the_others(own_registry: None, monkeypatch: pytest.MonkeyPatch) -> None:  # noqa: F811
    """Give the test its own registry, with the usual backends for the CPU path."""
    monkeypatch.delenv("FASTDECODE_DISABLE")


def register_double(answer: Answer = marked, **declared: Any) -> type[BatchBackend]:
    """Register a test double of a batch backend as ``double``; return its class."""
    double = batch_double(answer, **declared)
    register("double", NoSingle, batch=double)
    return double


def array_of(image: Any) -> np.ndarray[Any, Any]:
    """Return a tensor as the array that `decode` returns."""
    return image.permute(1, 2, 0).numpy()
