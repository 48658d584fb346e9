"""`assert_same`, by which tests compare arrays, tensors and images."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from same import assert_same

PLAIN = np.arange(24, dtype=np.uint8).reshape(2, 4, 3)
OTHER = PLAIN.copy()
OTHER[1, 2, 0], OTHER[1, 3, 2] = 0, 223
FLOATS = np.array([1, np.nan, np.inf, 0.5], np.float32)


def test_what_is_the_same() -> None:
    """NaN is the same as NaN, a number stands for all values, and a tolerance is kept to.

    Of a difference the file, the count, the first place, both values and the largest are named.
    """
    assert_same(FLOATS, FLOATS.copy())
    assert_same([FLOATS[1], np.array(FLOATS[1])], [FLOATS[1], np.array(FLOATS[1])])
    assert_same(np.full((2, 3), 0.1, np.float32), 0.1)
    assert_same(PLAIN, OTHER, within=200)
    forms = [PLAIN, np.repeat(PLAIN, 2, axis=1)[:, ::2], {"a": [PLAIN], 3: None}]
    others = [OTHER, np.repeat(OTHER, 2, axis=1)[:, ::2], {"a": [OTHER], 3: None}]
    for got, other in zip(
        (*forms, Image.fromarray(PLAIN), PLAIN.tobytes()),
        (*others, Image.fromarray(OTHER), OTHER.tobytes()),
        strict=True,
    ):
        assert_same((got, 1), [got, 1], within=3)
        with pytest.raises(AssertionError) as caught:
            assert_same([got, got], [got, other], of=Path("photo.jpg"))
        assert str(caught.value).startswith("photo.jpg[1]")
        assert "2 of 24 values differ, the first at [" in str(caught.value)
        assert ": 18, not 0; the largest difference is 200" in str(caught.value)


@pytest.mark.parametrize(
    ("got", "wanted", "says"),
    [
        (PLAIN, PLAIN.astype(int), "array of uint8 of shape (2, 4, 3), not array of int64"),
        (PLAIN, PLAIN[:1], "shape (2, 4, 3), not array of uint8 of shape (1, 4, 3)"),
        (PLAIN, PLAIN.tobytes(), "array of uint8 of shape (2, 4, 3), not bytes of shape (24,)"),
        (PLAIN[:0], 0, "shape (0, 4, 3), not value"),
        (PLAIN[0, 0, 0], PLAIN[0, 0, :1], "value of shape (), not array"),
        (np.array(1), np.array(3), "x: 1, not 3; the largest difference is 2"),
        (PLAIN > 3, OTHER > 3, "1 of 24 values differ, the first at [1, 2, 0]: True, not False"),
        (FLOATS, FLOATS[::-1].copy(), "4 of 4 values differ, the first at [0]: 1.0, not 0.5"),
        (FLOATS, FLOATS + np.float32(0.5), "2 of 4 values differ, the first at [0]: 1.0, not 1.5"),
        (PLAIN, 3, "23 of 24 values differ, the first at [0, 0, 0]: 0, not 3"),
        ([PLAIN], [PLAIN, PLAIN], "items [0], not [0, 1]"),
        ({"a": 1}, {"b": 1}, "items ['a'], not ['b']"),
        ({"a": [1, "2"]}, {"a": [1, 2]}, "x['a'][1]: '2', not 2"),
        (Image.new("L", (2, 1)), Image.new("P", (2, 1)), "image of mode L of shape (1, 2), not"),
    ],
)  # fmt: skip
def test_all_that_may_differ(got: Any, wanted: Any, says: str) -> None:
    """Types, shapes, lengths, keys and single values differ too, even within a tolerance."""
    with pytest.raises(AssertionError, match=r"^x") as caught:
        assert_same(got, wanted, of="x", within=0.4)
    assert says in str(caught.value)
