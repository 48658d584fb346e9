"""Tests that an index is read back as it was written, or refused."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastdecode import StoreError
from fastdecode.stores._index import Index, IndexBuilder

TARGETS: list[Any] = [
    None, 0, -1, (1 << 63) - 1, 1 << 70, 0.5, True, "cat", "", [1, 2.5], {"box": [1, 2]}, "ü"
]  # fmt: skip


def builder() -> IndexBuilder:
    """Return a builder with an item for each kind of target."""
    made = IndexBuilder(["cat", "dög"], ["offset", "size"])
    for number, target in enumerate(TARGETS):
        made.add(f"dög/{number}.jpg", target, offset=number << 40, size=number)
    return made


def test_index_round_trip(tmp_path: Path) -> None:
    """Keys, targets, columns, classes and the store's own fields are read back."""
    path = tmp_path / "a.fdx"
    builder().write(path, {"version": 1})

    for index in (Index.load(path), pickle.loads(pickle.dumps(Index.load(path)))):
        assert [index.key(at) for at in range(len(index))] == [
            f"dög/{number}.jpg" for number in range(len(TARGETS))
        ]
        assert [index.target(at) for at in range(len(index))] == TARGETS
        assert type(index.target(TARGETS.index(True))) is type(TARGETS[TARGETS.index(True)])
        assert index["offset"].tolist() == [number << 40 for number in range(len(TARGETS))]
        assert index.classes == ["cat", "dög"]
        assert index.about == {"version": 1}
    assert [each.name for each in tmp_path.iterdir()] == ["a.fdx"]


def test_empty_index(tmp_path: Path) -> None:
    """An index may be empty, and can be pickled without a file."""
    index = pickle.loads(pickle.dumps(Index(IndexBuilder().to_bytes(), "nothing")))

    assert len(index) == 0
    assert index.classes == []


@given(at=st.integers(0, 5000), bit=st.integers(-1, 7))
def test_damaged_index_is_an_error(at: int, bit: int) -> None:
    """A flipped bit anywhere in an index is found by its checksum, and so is a missing end."""
    data = bytearray(builder().to_bytes())
    at %= len(data)
    if bit < 0:
        del data[at:]
    else:
        data[at] ^= 1 << bit

    with pytest.raises(StoreError, match="it: the index is damaged"):
        Index(bytes(data), "it")


@pytest.mark.parametrize("target", [float("nan"), float("inf"), b"bytes", object(), {1, 2}])
def test_targets_that_json_cannot_hold_are_refused(target: object) -> None:
    """A target that JSON cannot hold is refused, and the builder stays usable."""
    made = IndexBuilder()
    with pytest.raises(ValueError, match="a target must be"):
        made.add("a", target)

    assert len(made) == 0
    made.add("b", 1)
    assert Index(made.to_bytes(), "it").key(0) == "b"
