"""Test doubles: backends that refuse, warn or return wrong pixels, and a registry for them.

Doubles for other processes are classes of this module, so that those can import them.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import fastdecode
from fastdecode import registry, stats, use
from fastdecode.adapters.base import Backend, Support
from fastdecode.types import Header, Image

CHANNELS = {"L": (), "RGB": (3,), "RGBA": (4,), "CMYK": (4,), "stored": (3,)}


def flat(value: int = 7) -> Callable[..., Image]:
    """Return an image of the right size in which all samples have one value."""

    def answer(data: Any, header: Header, *, reduce: int, layout: str, **asked: Any) -> Image:
        left, top, right, bottom = asked["window"] or (
            0, 0, -(-header.width // reduce), -(-header.height // reduce),
        )  # fmt: skip
        return np.full((bottom - top, right - left, *CHANNELS[layout]), value, np.uint8)

    return answer


def give(image: Any) -> Callable[..., Any]:
    """Return this image, whatever was asked for."""
    return lambda data, header, **asked: image


def refuse(error: BaseException) -> Callable[..., Image]:
    """Raise an exception."""

    def answer(data: Any, header: Header, **asked: Any) -> Image:
        raise error

    return answer


def double(answer: Callable[..., Any], *, exact: bool = True, **declared: Any) -> type[Backend]:
    """Return a class of test double; its `asked` collects the calls.

    `declared` holds the fields of its `Support`, for both JPEG and PNG.
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


def forget_what_is_registered(monkeypatch: pytest.MonkeyPatch) -> None:
    """Restore the registry after the test, since backends cannot be unregistered."""
    for name in ("_registered", "_loaded", "_failed"):
        monkeypatch.setattr(registry, name, dict(getattr(registry, name)))


@pytest.fixture
def own_registry(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Give the test its own registry, in which only its own backends are chosen automatically."""
    forget_what_is_registered(monkeypatch)
    monkeypatch.setenv("FASTDECODE_DISABLE", ",".join(registry.BUILTIN))
    stats(reset=True)
    registry.generation += 1
    yield
    use(None)
    stats(reset=True)
    registry.generation += 1


class Wrong(Backend):
    """A backend that changes Pillow's pixels."""

    supports = {"jpeg": (Support(reduces=frozenset({1, 2, 4, 8})),)}
    spoil: Callable[[Wrong, Any], Any]

    def decode(self, data: Any, header: Header, **asked: Any) -> Any:
        """Decode, and spoil."""
        pixels = fastdecode.decode(data, asked["reduce"], backend="pillow")
        return np.ascontiguousarray(self.spoil(pixels))


class Swapped(Wrong):
    """Swaps red and blue."""

    spoil = lambda self, pixels: pixels[:, :, ::-1]  # noqa: E731


class Fullsize(Swapped):
    """Swaps red and blue, and reduces nothing itself, so the package averages its result."""

    supports = {"jpeg": (Support(),)}


class Shifted(Wrong):
    """Shifts the image by one row."""

    spoil = lambda self, pixels: np.roll(pixels, 1, axis=0)  # noqa: E731


class Smaller(Wrong):
    """Returns one row too few."""

    spoil = lambda self, pixels: pixels[1:]  # noqa: E731


class Broken(Wrong):
    """Refuses all images."""

    def spoil(self, pixels: Any) -> Any:
        """Raise."""
        raise ValueError("out of order")


class Crashing(Wrong):
    """Aborts its process, as a C library does when its heap is corrupted."""

    spoil = lambda self, pixels: os.abort()  # noqa: E731


class Unstable(Wrong):
    """Decodes correctly, but aborts its process after a dozen images."""

    calls = 0

    def spoil(self, pixels: Any) -> Any:
        """Count, and abort."""
        self.calls += 1
        return os.abort() if self.calls > 12 else pixels


class Averaging(Wrong):
    """Decodes correctly, but reduces nothing in its decoder."""

    supports = {"jpeg": (Support(),)}
    spoil = lambda self, pixels: pixels  # noqa: E731
