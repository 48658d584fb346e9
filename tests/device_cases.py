"""Files, and a registry with a test double of a batch backend, for the tests of devices."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from device_doubles import Answer, NoSingle, batch_double, marked
from doubles import own_registry  # noqa: F401

from fastdecode import register
from fastdecode.adapters.batch_base import BatchBackend
from fastdecode.testing import encode, picture

PHOTOS = [encode(picture(40 + 3 * i, 60 - 2 * i), quality=90) for i in range(9)]
PROGRESSIVE = encode(picture(33, 21), progressive=True)
CMYK = encode(picture(33, 21, "CMYK"))
PNG = encode(picture(30, 20), "png")
CUT = PHOTOS[1][:-60]
NO_END = PHOTOS[2][:-2]
MIXED = [PHOTOS[0], PROGRESSIVE, PHOTOS[1], CMYK, PNG, PHOTOS[2], NO_END, PHOTOS[3]]
OF_CPU = [1, 3, 4, 6]


@pytest.fixture
def with_the_others(own_registry: None, monkeypatch: pytest.MonkeyPatch) -> None:  # noqa: F811
    """Give the test a registry of its own, whose other backends are there for the CPU path."""
    monkeypatch.delenv("FASTDECODE_DISABLE")


def register_double(answer: Answer = marked, **declared: Any) -> type[BatchBackend]:
    """Register a test double of a batch backend as ``double``, and return its class."""
    double = batch_double(answer, **declared)
    register("double", NoSingle, batch=double)
    return double


def array_of(image: Any) -> np.ndarray[Any, Any]:
    """Return an image as `decode` would."""
    return image.permute(1, 2, 0).numpy()
