"""`stats` counts every fallback."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest
from doubles import double, flat, own_registry, refuse  # noqa: F401
from same import assert_same

from fastdecode import DecodeError, decode, register, stats
from fastdecode.testing import drawing, encode

pytestmark = pytest.mark.usefixtures("own_registry")

PNG = encode(drawing(13, 7), "png")


def first_refuses(*errors: Exception) -> None:
    """Register backends that refuse, and a last one that decodes."""
    names = ("first", "second", "third")
    for name, error in zip(names, errors, strict=False):
        register(name, double(refuse(error)))
    register(names[len(errors)], double(flat(3)))


@pytest.mark.parametrize(
    ("errors", "fallbacks", "said"),
    [
        ((), {}, ()),
        ((ValueError("no"),), {("first", "second"): 2}, ("first: ValueError: no",)),
        (
            (ValueError("no"), KeyError("neither")),
            {("first", "third"): 2, ("second", "third"): 2},
            ("first: ValueError: no", "second: KeyError: 'neither'"),
        ),
    ],
    ids=["none", "one", "two"],
)
def test_every_refusal_is_counted(
    errors: tuple[Exception, ...], fallbacks: dict[tuple[str, str], int], said: tuple[str, ...]
) -> None:
    """Every refusal is counted with backend, fallback and message; without, nothing is.

    `reset` begins again from zero; what was returned stays as it was.
    """
    first_refuses(*errors)
    decode(PNG)
    decode(PNG)

    before = stats(reset=True)
    after = stats()
    decode(PNG)

    assert (before.fallbacks, before.failures, before.recent) == (fallbacks, {}, said * 2)
    assert (after.fallbacks, after.failures, after.recent) == ({}, {}, ())


@pytest.mark.parametrize("backend", [None, "first"])
def test_failure_is_counted_for_the_first_tried(backend: str | None) -> None:
    """An image that nothing decodes counts once, for the backend that was tried first."""
    register("first", double(refuse(ValueError("no"))))
    if backend is None:
        register("second", double(refuse(ValueError("neither"))))
    with pytest.raises(DecodeError):
        decode(PNG, backend=backend)

    assert stats().failures == {"first": 1}
    assert stats().fallbacks == {}
    assert stats().recent[0] == "first: ValueError: no"


def test_only_the_last_words_are_kept() -> None:
    """A long run keeps the 20 newest reasons, and counts all, also of several threads at once."""
    reasons = iter(range(430))
    register("first", double(lambda data, header, **asked: refuse(ValueError(next(reasons)))(0, 0)))
    register("second", double(flat(3)))
    with ThreadPoolExecutor(4) as pool:
        for image in pool.map(lambda _: decode(PNG), range(400)):
            assert_same(image, 3)

    for _ in range(30):
        decode(PNG)

    assert stats().fallbacks == {("first", "second"): 430}
    assert stats().recent == tuple(f"first: ValueError: {number}" for number in range(410, 430))
