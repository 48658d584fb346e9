"""Comparison of arrays, tensors, images and what contains them, which says where they differ."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
from PIL import Image


def assert_same(got: Any, wanted: Any, of: object = "what came", within: float = 0) -> None:
    """Fail unless types, shapes and values are the same; NaN is the same as NaN.

    `of` says what is compared, such as a file. Numbers may differ by `within`. An array may be
    compared with a list, or with one number for all its values, whose type is not compared.
    Lists and tuples count as the same type; errors are compared by their class and text.
    """
    __tracebackhide__ = True
    if isinstance(got, (list, tuple)) and isinstance(wanted, (list, tuple)):
        got, wanted = dict(enumerate(got)), dict(enumerate(wanted))
    if isinstance(got, dict) and isinstance(wanted, dict):
        assert got.keys() == wanted.keys(), f"{of}: items {[*got]}, not {[*wanted]}"
        for key, item in got.items():
            assert_same(item, wanted[key], f"{of}[{key!r}]", within)
        return
    (kind, one), (other, two) = _values(got), _values(wanted)
    if one.size and kind != "value" and isinstance(wanted, (int, float, list)):
        other, two = kind, np.array(wanted, one.dtype if one.dtype.kind == "f" else None)
        two = two if two.ndim else np.full(one.shape, two)
    kind, other = f"{kind} of shape {one.shape}", f"{other} of shape {two.shape}"
    assert kind == other, f"{of}: {kind}, not {other}"
    difference = _difference(one, two, within)
    assert not difference, f"{of}: {difference}"


def assert_raises(error: Any, told: str, call: Callable[[], Any], of: object) -> None:
    """Fail unless a call raises an error of this class whose text has `told`, a pattern.

    For tables of wrong arguments, of which every run tries all; `of` says which one it is.
    """
    __tracebackhide__ = True
    found: BaseException | None = None
    try:
        call()
    except error as caught:
        found = caught
    assert found is not None, f"{of}: it raised no {error}"
    assert re.search(told, str(found)), f"{of}: {found!r} does not say {told!r}"


def _values(whole: Any) -> tuple[str, Any]:
    """Return what something is called, all but its shape, and its values as an array."""
    torch = sys.modules.get("torch")
    if torch and isinstance(whole, torch.Tensor):
        plain = whole.detach().cpu()
        plain = plain.float() if plain.dtype == torch.bfloat16 else plain
        return f"tensor of {whole.dtype} on {whole.device}", plain.numpy()
    if isinstance(whole, Image.Image):
        return f"image of mode {whole.mode}", np.asarray(whole)
    if isinstance(whole, (bytes, bytearray, memoryview)):
        return "bytes", np.frombuffer(whole, np.uint8)
    if isinstance(whole, np.ndarray):
        return f"array of {whole.dtype}", whole
    alone = np.empty(1, object)
    failed = isinstance(whole, Exception)
    alone[0] = f"{type(whole).__name__}: {whole}" if failed else whole
    return "value", alone.reshape(())


def _difference(got: Any, wanted: Any, within: float) -> str:
    """Say how arrays of the same shape differ, or nothing if they do not."""
    if np.array_equal(got, wanted):
        return ""
    differ = (got != wanted) & ((got == got) | (wanted == wanted))  # noqa: PLR0124
    numbers = got.dtype.kind in "biuf"
    if numbers:
        with np.errstate(all="ignore"):  # infinities
            apart = np.abs(got.astype(float) - wanted.astype(float))
        differ &= ~(apart <= within)
    if not differ.any():
        return ""
    at = tuple(np.argwhere(differ)[0].tolist())
    text = f"{got.item(at)!r}, not {wanted.item(at)!r}"
    if got.ndim:
        count = f"{np.count_nonzero(differ):,} of {got.size:,} values differ"
        text = f"{count}, the first at {list(at)}: {text}"
    return f"{text}; the largest difference is {apart[differ].max():g}" if numbers else text
