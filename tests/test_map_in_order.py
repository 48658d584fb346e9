"""Tests of `map_in_order`, which calls a function in threads and yields its results in order."""

from __future__ import annotations

import threading
import time

import pytest

from fastdecode._arrays import map_in_order


def test_results_are_ordered_and_bounded() -> None:
    """Results come in order, and only a few items are computed in advance."""
    begun: set[int] = set()
    lock = threading.Lock()

    def work(item: int) -> int:
        with lock:
            begun.add(item)
        time.sleep(0.002 * (item % 3))
        return item

    results = map_in_order(work, range(200), 4)
    first = [next(results) for _ in range(10)]
    time.sleep(0.05)

    assert first == list(range(10))
    assert len(begun) <= 10 + 4 * 4
    assert list(results) == list(range(10, 200))


def test_error_comes_in_order() -> None:
    """An error is raised after the results before it, and no further items start."""
    begun = []

    def work(item: int) -> int:
        begun.append(item)
        time.sleep(0.001)
        if item == 5:
            raise OSError("no")
        return item

    results = map_in_order(work, range(1000), 2)
    assert [next(results) for _ in range(5)] == [0, 1, 2, 3, 4]
    with pytest.raises(OSError, match="no"):
        next(results)
    assert len(begun) < 30
