"""Targets, as all kinds of stores hold them: None, numbers, texts, and lists and dicts of these."""

from __future__ import annotations

import json
import math
from numbers import Integral
from typing import Any

__all__ = ["as_json", "from_json", "plain"]


def plain(target: Any) -> Any:
    """Return an int for any whole number, NumPy's too; what is none, and a bool, as it is."""
    if type(target) is int or isinstance(target, bool) or not isinstance(target, Integral):
        return target
    return int(target)


def as_json(target: Any) -> bytes:
    """Write a target as JSON in UTF-8.

    Raises
    ------
    ValueError
        If JSON cannot hold it, or it is infinite or no number.
    """
    try:
        return json.dumps(target, allow_nan=False, ensure_ascii=False).encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise ValueError(
            f"a target must be None, a number, a text, or a list or dict of them, not {target!r}"
        ) from error


def from_json(text: str | bytes) -> Any:
    """Read a target that others have written.

    What JSON cannot say (NaN), and Python writes all the same, is None.

    Raises
    ------
    RecursionError, ValueError
        If it is no JSON, or a number in it is too large for one.
    """
    return json.loads(text, parse_constant=lambda _: None, parse_float=_finite)


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"{text} is beyond what a number can be")
    return number
