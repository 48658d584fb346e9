"""Test doubles of batch backends, importable by name, as those of other packages are."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

from device_doubles import NoSingle, batch_double, decode_all

from fastdecode.adapters.batch_base import BatchItem

__all__ = ["Crashing", "Honest", "Inverted", "NoSingle", "Unusable", "Unwilling"]

Honest = batch_double(decode_all)
"""Decodes by Pillow."""


def _inverted(items: Sequence[BatchItem], layout: str) -> list[Any]:
    return [255 - image for image in decode_all(items, layout)]


def _unwilling(items: Sequence[BatchItem], layout: str) -> list[Any]:
    made = decode_all(items, layout)
    return [None if at % 2 else image for at, image in enumerate(made)]


def _crash(items: Sequence[BatchItem], layout: str) -> list[Any]:
    os._exit(3)


Inverted = batch_double(_inverted)
"""Gives the negative."""

Unwilling = batch_double(_unwilling)
"""Refuses every other image."""

Crashing = batch_double(_crash)
"""Takes its process down."""


class Unusable(Honest):  # type: ignore[misc,valid-type]
    """Cannot be made."""

    def __init__(self, device: Any, threads: int) -> None:
        raise OSError("its library is broken")
