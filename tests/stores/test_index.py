"""An index is read as it was written, or raises an error."""

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


def test_all_comes_back(tmp_path: Path) -> None:
    """Keys, targets of every kind, numbers, classes and details are read back."""
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


def test_one_without_items(tmp_path: Path) -> None:
    """An index without items works, also pickled without a file."""
    index = pickle.loads(pickle.dumps(Index(IndexBuilder().to_bytes(), "nothing")))

    assert len(index) == 0
    assert index.classes == []


@given(at=st.integers(0, 5000), bit=st.integers(0, 7))
def test_a_changed_bit_is_seen(at: int, bit: int) -> None:
    """The checksum detects any flipped bit."""
    data = bytearray(builder().to_bytes())
    data[at % len(data)] ^= 1 << bit

    with pytest.raises(StoreError, match="it: the index is damaged"):
        Index(bytes(data), "it")


@given(end=st.integers(0, 5000))
def test_a_cut_is_seen(end: int) -> None:
    """An index that is cut anywhere is an error."""
    data = builder().to_bytes()
    with pytest.raises(StoreError, match="it: the index is damaged"):
        Index(data[: min(end, len(data) - 1)], "it")


def test_an_empty_file_is_no_index(tmp_path: Path) -> None:
    """An empty file, which cannot be mapped, is an error."""
    path = tmp_path / "a.fdx"
    path.touch()

    with pytest.raises(StoreError, match=r"a\.fdx"):
        Index.load(path)


@pytest.mark.parametrize("target", [float("nan"), float("inf"), b"bytes", object(), {1, 2}])
def test_targets_that_would_not_come_back_are_refused(target: object) -> None:
    """Targets that JSON cannot hold are refused."""
    made = IndexBuilder()
    with pytest.raises(ValueError, match="a target must be"):
        made.add("a", target)

    assert len(made) == 0
    made.add("b", 1)
    assert Index(made.to_bytes(), "it").key(0) == "b"
