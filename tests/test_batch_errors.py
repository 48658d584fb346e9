"""What ends a batch, and what is left behind when it has ended."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from doubles import double, flat, own_registry  # noqa: F401

from fastdecode import (
    BackendUnavailable,
    DecodeError,
    UnknownBackend,
    decode,
    decode_batch,
    register,
)
from fastdecode.testing import encode, picture

JPEG = encode(picture(24, 16))
SHAPE = (16, 24, 3)
THREADS = pytest.mark.parametrize("threads", [1, 2, None])


@pytest.mark.usefixtures("own_registry")
def test_nothing_is_written_once_the_batch_has_failed() -> None:
    """The error is raised only when the items that had begun have come to rest."""
    begun, done = threading.Event(), threading.Event()

    def answer(data: Any, header: Any, **asked: Any) -> Any:
        if header.width == 24:
            begun.wait(30)
            raise ValueError("the first item fails while the second is at work")
        begun.set()
        threading.Event().wait(0.3)  # for an error that does not wait to overtake it
        done.set()
        return flat(5)(data, header, **asked)

    register("slow", double(answer))
    out = [np.zeros(SHAPE, np.uint8), np.zeros((8, 8, 3), np.uint8)]

    with pytest.raises(DecodeError, match=r"^item 0: "):
        decode_batch([JPEG, encode(picture(8, 8))], threads=2, out=out)

    assert done.is_set()
    assert (out[1] == 5).all()


@THREADS
@pytest.mark.parametrize("item", [None, 5, np.zeros(SHAPE, np.uint8)], ids=["None", "int", "array"])
@pytest.mark.parametrize("on_error", ["raise", "return"])
def test_item_of_a_wrong_type_is_raised(threads: int | None, item, on_error: str) -> None:
    """What cannot be a picture is a TypeError that says which item it is, whatever on_error is."""
    with pytest.raises(TypeError, match=r"^item 3: data must be"):
        decode_batch([JPEG, JPEG, JPEG, item, JPEG], threads=threads, on_error=on_error)


@THREADS
def test_path_that_no_file_can_have_is_the_items_error(threads: int | None) -> None:
    """A NUL byte in one path costs no other picture."""
    items = [JPEG, "no\0file.jpg", Path("no\0file.jpg"), JPEG]

    results = decode_batch(items, threads=threads, on_error="return")

    assert [isinstance(result, OSError) for result in results] == [False, True, True, False]
    np.testing.assert_array_equal(results[3], decode(JPEG))


def test_region_outside_of_an_item_is_raised_with_its_number() -> None:
    """A region that one picture does not have is the caller's mistake, and the item is named."""
    with pytest.raises(ValueError, match=r"^item 1: region"):
        decode_batch([JPEG, encode(picture(8, 8))], region=(0, 0, 20, 10), on_error="return")


WRONG: dict[str, tuple[type[Exception], dict[str, Any]]] = {
    "bogus": (TypeError, {"bogus": 3}),
    "data": (TypeError, {"data": JPEG}),
    "mode": (ValueError, {"mode": "bogus"}),
    "reduce": (ValueError, {"reduce": 3}),
    "min_size": (ValueError, {"min_size": 0}),
    "region": (ValueError, {"region": (1, 2, 3)}),
    "max_pixels": (ValueError, {"max_pixels": -1}),
    "backend": (TypeError, {"backend": 5}),
    "nobody": (UnknownBackend, {"backend": "nobody"}),
}


@pytest.mark.parametrize("words", WRONG)
@pytest.mark.parametrize(
    "items", [[], [b"damaged"], ["missing.jpg"]], ids=["none", "bad", "missing"]
)
@pytest.mark.parametrize("on_error", ["raise", "return"])
def test_wrong_option_is_raised_before_any_work(words: str, items, on_error: str) -> None:
    """A wrong option is reported whatever the items are, and however many: even for none."""
    kind, options = WRONG[words]
    unread = iter(items)

    with pytest.raises(kind, match=words) as caught:
        decode_batch(unread, on_error=on_error, **options)

    assert caught.type is kind
    assert list(unread) == items


@pytest.mark.usefixtures("own_registry")
def test_backend_that_cannot_be_used_is_raised_for_no_items() -> None:
    """A named backend whose library is missing is reported even for an empty batch."""
    register("absent", "no_such_module:Thing")

    with pytest.raises(BackendUnavailable, match="no_such_module"):
        decode_batch([], backend="absent", on_error="return")


def overlapping() -> dict[str, list[np.ndarray]]:
    """Make pairs of arrays that share some bytes."""
    memory = np.zeros((17, *SHAPE[1:]), np.uint8)
    return {"twice": [memory[:16]] * 2, "shifted": [memory[1:], memory[:16]]}


@pytest.mark.parametrize("kind", overlapping())
def test_outs_that_overlap_are_refused(kind: str) -> None:
    """Two pictures cannot go to one place; neither is written."""
    out = overlapping()[kind]

    with pytest.raises(ValueError, match=r"out\[0\] and out\[1\] overlap"):
        decode_batch([JPEG, JPEG], out=out)

    assert not out[0].any()
    assert not out[1].any()


def test_outs_may_be_neighbours_in_any_order() -> None:
    """Arrays that touch without sharing a byte are filled, each with its own."""
    memory = np.zeros((3, *SHAPE), np.uint8)

    decode_batch([JPEG] * 3, out=memory[::-1])

    np.testing.assert_array_equal(memory, np.stack([decode(JPEG)] * 3))
