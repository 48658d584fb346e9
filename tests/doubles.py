"""Test doubles: backends that refuse, warn or lie on demand, and a registry to put them into."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from fastdecode import registry, stats, use
from fastdecode.adapters.base import Backend, Support
from fastdecode.types import Header, Image

CHANNELS = {"L": (), "RGB": (3,), "RGBA": (4,), "CMYK": (4,), "stored": (3,)}


def flat(value: int = 7) -> Callable[..., Image]:
    """Answer with an image of the right size in which every sample has one value."""

    def answer(data: Any, header: Header, *, reduce: int, layout: str, **asked: Any) -> Image:
        left, top, right, bottom = asked["window"] or (
            0, 0, -(-header.width // reduce), -(-header.height // reduce),
        )  # fmt: skip
        return np.full((bottom - top, right - left, *CHANNELS[layout]), value, np.uint8)

    return answer


def give(image: Any) -> Callable[..., Any]:
    """Answer with this, whatever was asked."""
    return lambda data, header, **asked: image


def refuse(error: BaseException) -> Callable[..., Image]:
    """Answer with an exception."""

    def answer(data: Any, header: Header, **asked: Any) -> Image:
        raise error

    return answer


def double(answer: Callable[..., Any], *, exact: bool = True, **declared: Any) -> type[Backend]:
    """Make a class of test double; its `asked` collects what it was asked for.

    What is `declared` of its `Support` holds for JPEG and PNG alike.
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
    """Let the registry be, after the test, what it is now: there is no way to take one out."""
    for name in ("_registered", "_loaded", "_failed"):
        monkeypatch.setattr(registry, name, dict(getattr(registry, name)))


@pytest.fixture
def own_registry(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Give the test a registry of its own, in which only what it registers is chosen by itself."""
    forget_what_is_registered(monkeypatch)
    monkeypatch.setenv("FASTDECODE_DISABLE", ",".join(registry.BUILTIN))
    stats(reset=True)
    registry.generation += 1
    yield
    use(None)
    stats(reset=True)
    registry.generation += 1
