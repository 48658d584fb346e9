"""Test doubles of backends that refuse or return wrong pixels, and a registry for them.

The doubles at module level are for child processes, which import them by name.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import fastdecode
from fastdecode import stats, use
from fastdecode._backends import registry
from fastdecode._backends.base import Backend, Support
from fastdecode.types import Header, Image

CHANNELS = {"L": (), "RGB": (3,), "RGBA": (4,), "CMYK": (4,), "stored": (3,)}


def flat(value: int = 7) -> Callable[..., Image]:
    """Answer with an image of the right size in which every sample has the same value."""

    def answer(data: Any, header: Header, *, reduce: int, layout: str, **asked: Any) -> Image:
        left, top, right, bottom = asked["window"] or (
            0, 0, -(-header.width // reduce), -(-header.height // reduce),
        )  # fmt: skip
        return np.full((bottom - top, right - left, *CHANNELS[layout]), value, np.uint8)

    return answer


def give(image: Any) -> Callable[..., Any]:
    """Answer with this image, whatever the request."""
    return lambda data, header, **asked: image


def refuse(error: BaseException) -> Callable[..., Image]:
    """Answer every request with an exception."""

    def answer(data: Any, header: Header, **asked: Any) -> Image:
        raise error

    return answer


def double(answer: Callable[..., Any], *, exact: bool = True, **declared: Any) -> type[Backend]:
    """Make a test double of a backend; its `asked` lists the options of each call.

    The `declared` fields of its `Support` hold for JPEG and for PNG.
    """
    is_exact = exact

    class TestDouble(Backend):
        exact = is_exact
        supports = dict.fromkeys(("jpeg", "png"), (Support(**declared),))
        asked: list[dict[str, Any]] = []

        def decode(self, data: Any, header: Header, **asked: Any) -> Any:
            self.asked.append(asked)
            return answer(data, header, **asked)

    return TestDouble


def restore_registry(monkeypatch: pytest.MonkeyPatch) -> None:
    """Restore the registry after the test: a backend cannot be removed from it otherwise."""
    for name in ("_registered", "_loaded", "_failed"):
        monkeypatch.setattr(registry, name, dict(getattr(registry, name)))


@pytest.fixture
def own_registry(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Give the test its own registry; the automatic choice sees only what the test registers."""
    restore_registry(monkeypatch)
    monkeypatch.setenv("FASTDECODE_DISABLE", ",".join(registry.BUILTIN))
    stats(reset=True)
    registry.generation += 1
    yield
    use(None)
    stats(reset=True)
    registry.generation += 1


class Wrong(Backend):
    """A backend that decodes with Pillow and then spoils the pixels."""

    supports = {"jpeg": (Support(reduces=frozenset({1, 2, 4, 8})),)}
    spoil: Callable[[Wrong, Any], Any]
    calls = 0

    def decode(self, data: Any, header: Header, **asked: Any) -> Any:
        """Decode and spoil."""
        self.calls += 1
        pixels = fastdecode.decode(data, asked["reduce"], backend="pillow")
        return np.ascontiguousarray(self.spoil(pixels))


def _wrong(spoil: Callable[[Any, Any], Any], **declared: Any) -> type[Wrong]:
    return type("Spoiling", (Wrong,), {"spoil": spoil, **declared})


def _raise(double: Wrong, pixels: Any) -> Any:
    raise ValueError("out of order")


_FULL_SIZE: Any = {"jpeg": (Support(),)}  # the package averages its pixels
Swapped = _wrong(lambda double, pixels: pixels[:, :, ::-1])
Fullsize = _wrong(lambda double, pixels: pixels[:, :, ::-1], supports=_FULL_SIZE)
Shifted = _wrong(lambda double, pixels: np.roll(pixels, 1, axis=0))
Smaller = _wrong(lambda double, pixels: pixels[1:])
Broken = _wrong(_raise)
Averaging = _wrong(lambda double, pixels: pixels, supports=_FULL_SIZE)
# As a C library does when it finds its heap damaged.
Crashing = _wrong(lambda double, pixels: os.abort())
Unstable = _wrong(lambda double, pixels: os.abort() if double.calls > 12 else pixels)
