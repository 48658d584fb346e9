"""Images and test doubles of batch backends for the tests of devices.

The doubles decode with Pillow; on demand they refuse, raise or return wrong results.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal

import numpy as np
import pytest
import torch
from doubles import own_registry  # noqa: F401

from fastdecode import decode, register
from fastdecode._backends.base import Backend, Support
from fastdecode._backends.batch_base import BatchBackend, BatchItem
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
CPU_INDICES = [1, 3, 4, 6]


def tensor_of(item: BatchItem, layout: str) -> torch.Tensor:
    """Decode an item with Pillow into the tensor that a batch backend returns."""
    array = decode(bytes(item.data), mode=layout, backend="pillow")
    return torch.from_numpy(array if array.ndim == 3 else array[:, :, None]).permute(2, 0, 1)


def decode_all(items: Sequence[BatchItem], layout: str) -> list[Any]:
    """Decode every item."""
    return [tensor_of(item, layout) for item in items]


def decode_and_mark(items: Sequence[BatchItem], layout: str) -> list[Any]:
    """Decode every item, and mark the result with a first pixel of 1, 2, 3."""
    made = [tensor_of(item, layout).clone() for item in items]
    for image in made:
        image[:, 0, 0] = torch.arange(1, len(image) + 1, dtype=torch.uint8)
    return made


def is_marked(image: torch.Tensor) -> bool:
    """Return whether `decode_and_mark` decoded an image."""
    return image[:, 0, 0].tolist() == list(range(1, len(image) + 1))


def refusing(which: Callable[[BatchItem], bool], answer: Answer = decode_and_mark) -> Answer:
    """Return None for some items, and the answer for the others."""

    def answer_some(items: Sequence[BatchItem], layout: str) -> list[Any]:
        made = answer(items, layout)
        return [None if which(item) else image for item, image in zip(items, made, strict=True)]

    return answer_some


def raising(which: Callable[[BatchItem], bool], answer: Answer = decode_and_mark) -> Answer:
    """Raise for the whole batch if it contains one of some items."""

    def answer_all(items: Sequence[BatchItem], layout: str) -> Sequence[Any]:
        if any(which(item) for item in items):
            raise ValueError("an image of this batch is not to this library's liking")
        return answer(items, layout)

    return answer_all


def batch_double(answer: Answer = decode_and_mark) -> type[BatchBackend]:
    """Make a test double of a batch backend; its `asked` lists the number of images per call."""

    class Double(BatchBackend):
        """A test double without a library."""

        devices = frozenset({"cpu", "cuda"})
        supports = {"jpeg": (_JPEG,)}
        asked: list[int] = []

        def __init__(self, device: torch.device, threads: int) -> None:
            self.device = device

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
    """The single-image half of a double, which cannot decode."""

    supports = {"jpeg": (_JPEG,)}
    exact = False

    def decode(self, data: Any, header: Any, **asked: Any) -> np.ndarray[Any, Any]:
        raise NotImplementedError("a double decodes batches")


@pytest.fixture
def registry_with_cpu_backends(own_registry: None, monkeypatch: pytest.MonkeyPatch) -> None:  # noqa: F811
    """Give the test its own registry in which the built-in backends serve the CPU path."""
    monkeypatch.delenv("FASTDECODE_DISABLE")


def register_double(answer: Answer = decode_and_mark) -> type[BatchBackend]:
    """Register a test double of a batch backend as ``double``, and return its class."""
    double = batch_double(answer)
    register("double", NoSingle, batch=double)
    return double


def array_of(image: Any) -> np.ndarray[Any, Any]:
    """Convert an image to the array that `decode` would return."""
    return image.permute(1, 2, 0).numpy()
