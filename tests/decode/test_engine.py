"""Trying backends in turn, and checking their results."""

from __future__ import annotations

import copy
import pickle

import numpy as np
import pytest
from doubles import double, flat, give, own_registry, refuse  # noqa: F401
from same import assert_same

from fastdecode import (
    BackendUnavailable,
    DecodeError,
    ImageTooLarge,
    UnknownBackend,
    UnsupportedFormat,
    decode,
    decode_file,
    register,
    use,
)
from fastdecode._backends.base import CodecWarning
from fastdecode.errors import FastDecodeError
from fastdecode.testing import drawing, encode
from fastdecode.types import MODES, Mode

pytestmark = pytest.mark.usefixtures("own_registry")

WIDTH, HEIGHT = 13, 7
FILES = {form: encode(drawing(WIDTH, HEIGHT), form) for form in ("jpeg", "png")}
FORMATS = pytest.mark.parametrize("data", FILES.values(), ids=FILES)


class Panic(BaseException):
    """Like a panic in a Rust library, this is not an Exception."""


ODD = [
    ValueError("no"), KeyError("scan"), AssertionError(), RuntimeError("no"), OSError("no"),
    ZeroDivisionError("no"), StopIteration(), DecodeError("no"), UnsupportedFormat("no"),
    Panic("index out of bounds"),
]  # fmt: skip


@FORMATS
@pytest.mark.parametrize("error", ODD, ids=lambda error: type(error).__name__)
def test_whatever_a_backend_raises_becomes_a_decode_error(
    data: bytes, error: BaseException
) -> None:
    """The next one is asked; by name the error has its words, and chains what it raised.

    It need be no Exception: a panic in a Rust library is none.
    """
    register("odd", double(refuse(error)))
    register("second", double(flat(3)))

    assert_same(decode(data), 3)
    with pytest.raises(DecodeError, match=r"^odd: ") as caught:
        decode(data, backend="odd")

    assert caught.value.backend == "odd"
    assert list(caught.value.errors) == ["odd"]
    assert str(error) in caught.value.errors["odd"]
    assert caught.value.__cause__ is not None


@pytest.mark.parametrize("error", [MemoryError, KeyboardInterrupt, SystemExit])
@pytest.mark.parametrize("backend", [None, "first"])
def test_what_is_not_the_files_fault_passes_through(error, backend: str | None) -> None:
    """MemoryError, Ctrl-C and SystemExit end the call; no other backend is tried."""
    second = double(flat())
    register("first", double(refuse(error())))
    register("second", second)

    with pytest.raises(error):
        decode(FILES["png"], backend=backend)

    assert second.asked == []


HANDED_OUT = {
    "five channels": np.zeros((HEIGHT, WIDTH, 5), np.uint8),
    "seventeen channels of 16 bits": np.zeros((HEIGHT, WIDTH, 17), np.uint16),
    "one channel": np.zeros((HEIGHT, WIDTH, 1), np.uint8),
    "no channel": np.zeros((HEIGHT, WIDTH, 0), np.uint8),
    "two channels of truth": np.zeros((HEIGHT, WIDTH, 2), np.bool_),
    "big-endian": np.zeros((HEIGHT, WIDTH, 3), ">u2"),
    "half floats": np.zeros((HEIGHT, WIDTH, 4), np.float16),
    "no numbers": np.full((HEIGHT, WIDTH, 4), np.nan, np.float32),
    "signed": np.full((HEIGHT, WIDTH), -1, np.int8),
    "64 bits": np.full((HEIGHT, WIDTH), 2**64 - 1, np.uint64),
    "complex": np.zeros((HEIGHT, WIDTH), np.complex64),
    "dates": np.zeros((HEIGHT, WIDTH), "M8[s]"),
    "text": np.zeros((HEIGHT, WIDTH), "U3"),
    "objects": np.full((HEIGHT, WIDTH), None),
    "records": np.zeros((HEIGHT, WIDTH), [("r", "u1"), ("g", "u1")]),
}


@pytest.mark.filterwarnings("ignore:invalid value encountered in cast")
@FORMATS
@pytest.mark.parametrize("kind", HANDED_OUT)
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("options", [{}, {"reduce": 4}, {"region": (1, 2, 9, 6)}], ids=str)
def test_whatever_a_library_hands_out(data: bytes, kind: str, mode: Mode, options) -> None:
    """Any result in place of pixels becomes pixels of the right form, or a DecodeError."""
    register("odd", double(give(HANDED_OUT[kind]), layouts=frozenset({"stored"})))

    try:
        image = decode(data, mode=mode, backend="odd", **options)
    except FastDecodeError:
        return

    assert image.shape[:2] == {(): (7, 13), ("reduce",): (2, 4), ("region",): (4, 8)}[(*options,)]
    assert image.dtype.kind in "buif"
    if mode != "stored":
        assert image.dtype == np.uint8
        assert image.shape[2:] == {"L": (), "RGB": (3,), "RGBA": (4,)}[mode]


def test_inexact_backend_answers_only_by_name() -> None:
    """A backend with other pixels is never chosen automatically, even if all others refuse."""
    inexact = double(flat(3), exact=False)
    register("inexact", inexact)
    with pytest.raises(UnsupportedFormat):
        decode(FILES["png"])
    register("exact", double(refuse(ValueError("no"))))
    with pytest.raises(DecodeError):
        decode(FILES["png"])
    assert inexact.asked == []

    assert_same(decode(FILES["png"], backend="inexact"), 3)
    with use("inexact"):
        assert_same(decode(FILES["png"]), 3)


WRONG = {
    "taller": np.zeros((HEIGHT + 1, WIDTH, 3), np.uint8),
    "narrower": np.zeros((HEIGHT, WIDTH - 1, 3), np.uint8),
    "turned": np.zeros((WIDTH, HEIGHT, 3), np.uint8),
    "empty": np.zeros((0, 0, 3), np.uint8),
    "grey": np.zeros((HEIGHT, WIDTH), np.uint8),
    "four channels": np.zeros((HEIGHT, WIDTH, 4), np.uint8),
    "wider type": np.zeros((HEIGHT, WIDTH, 3), np.uint16),
    "None": None,
    "list": [[[0, 0, 0]]],
}


@FORMATS
@pytest.mark.parametrize("kind", WRONG)
def test_image_of_the_wrong_kind_is_a_refusal(data: bytes, kind: str) -> None:
    """A result of the wrong shape or type counts as a refusal; if all refuse, who said what.

    `errors` holds every backend's error in order, and the message repeats them.
    """
    register("wrong", double(give(WRONG[kind])))
    register("second", double(flat(3)))

    with pytest.raises(DecodeError, match="wrong"):
        decode(data, backend="wrong")
    assert_same(decode(data), 3)
    register("second", double(refuse(KeyError("scan"))), replace=True)
    with pytest.raises(DecodeError) as caught:
        decode(data)
    assert [*caught.value.errors] == ["wrong", "second"]
    assert caught.value.errors["second"] == "KeyError: 'scan'"
    assert caught.value.backend is None
    for name, reason in caught.value.errors.items():
        assert f"{name}: {reason}" in str(caught.value)


def read_only(image: np.ndarray) -> np.ndarray:
    image.flags.writeable = False
    return image


VIEWS = {
    "read-only": read_only,
    "mirrored": lambda image: image[:, ::-1],
    "BGR": lambda image: image[:, :, ::-1],
    "Fortran order": np.asfortranarray,
    "columns of a larger one": lambda image: np.pad(image, ((0, 0), (2, 2), (0, 0)))[:, 2:-2],
    "rows of a larger one": lambda image: np.pad(image, ((2, 2), (0, 0), (0, 0)))[2:-2],
    "as it is": lambda image: image.copy(),
}


@FORMATS
@pytest.mark.parametrize("view", VIEWS.values(), ids=VIEWS)
@pytest.mark.parametrize("into_out", [False, True])
def test_any_array_will_do(data: bytes, view, into_out: bool) -> None:
    """A result that is read-only, not contiguous or a view is copied, and not changed."""
    given = view(np.arange(HEIGHT * WIDTH * 3, dtype=np.uint8).reshape(HEIGHT, WIDTH, 3))
    before = given.copy()
    register("first", double(give(given), out=True))
    out = np.zeros((HEIGHT, WIDTH, 3), np.uint8) if into_out else None

    image = decode(data, out=out)

    assert_same(image, before)
    assert image.flags.c_contiguous
    assert image.flags.writeable
    assert (image is out) == into_out
    assert image.base is None or image.base.nbytes == image.nbytes
    if image is not given:
        image[:] = 0
    assert_same(given, before)


@FORMATS
def test_backend_is_asked_only_for_what_it_declares(data: bytes) -> None:
    """For reductions, layouts, windows and warnings that it declares; the package does the rest."""
    plain = double(flat(3))
    able = double(
        flat(3),
        layouts=frozenset({"RGB", "L"}), reduces=frozenset({1, 2, 4}), region=True, warnings=True,
    )  # fmt: skip
    register("plain", plain)
    register("able", able)
    out = np.zeros((2, 3, 3), np.uint8)

    image = decode(data, 4, region=(1, 2, 12, 7), orient=True, out=out, backend="plain")
    grey = decode(data, 4, mode="L", region=(1, 2, 12, 7), strict=True)

    assert image is out
    assert_same(image, 3)
    assert grey.shape == (2, 3)
    assert plain.asked == [
        {"reduce": 1, "layout": "RGB", "window": None, "out": None, "strict": False}
    ]
    assert able.asked == [
        {"reduce": 4, "layout": "L", "window": (0, 0, 3, 2), "out": None, "strict": True}
    ]


@FORMATS
def test_out_is_passed_on_to_a_backend_that_writes_into_it(data: bytes) -> None:
    """A backend that declares `out` gets the caller's array, or one for the whole image."""
    able = double(flat(3), out=True)
    register("able", able)
    out = np.zeros((HEIGHT, WIDTH, 3), np.uint8)

    assert decode(data, out=out) is out
    assert able.asked[0]["out"] is out
    assert_same(out, 3)

    part = np.zeros((5, 5, 3), np.uint8)
    decode(data, region=(0, 0, 5, 5), out=part)
    assert able.asked[1]["out"].shape == (HEIGHT, WIDTH, 3)
    assert_same(part, 3)


@pytest.mark.parametrize(
    ("warning", "strict", "answer"),
    [
        ("Corrupt JPEG data: 3 extraneous bytes before marker 0xd9", False, 3),
        ("Corrupt JPEG data: 3 extraneous bytes before marker 0xd9", True, None),
        ("Unsupported marker type 0x37", False, 9),
        ("Premature end of JPEG file", False, None),
        ("Premature end of JPEG file", True, None),
    ],
)
def test_warning_is_judged(warning: str, strict: bool, answer: int | None) -> None:
    """Harmless warnings are ignored unless strict, errors try the next, missing pixels end it."""

    def complain(data, header, *, strict, **asked):
        if strict:
            raise CodecWarning(warning)
        return flat(3)(data, header, **asked)

    register("first", double(complain, warnings=True))
    register("second", double(flat(9), warnings=True))

    if answer is None:
        with pytest.raises(DecodeError, match=warning):
            decode(FILES["jpeg"], strict=strict)
    else:
        assert_same(decode(FILES["jpeg"], strict=strict), answer)


ERRORS = [
    DecodeError("words", backend="pillow", errors={"pillow": "no", "opencv": "neither"}),
    UnsupportedFormat("words"), ImageTooLarge("words"), UnknownBackend("words"),
    BackendUnavailable("words"),
]  # fmt: skip


@pytest.mark.parametrize("travel", [lambda e: pickle.loads(pickle.dumps(e)), copy.copy])
def test_errors_cross_process_borders(travel, tmp_path) -> None:
    """A pickled error keeps its type, message and attributes; that of a file begins with it."""
    path = tmp_path / "cut.png"
    path.write_bytes(FILES["png"][:-40])
    with pytest.raises(DecodeError, match=r"cut\.png: pillow: ") as caught:
        decode_file(path, backend="pillow")
    for error in (*ERRORS, caught.value):
        arrived = travel(error)

        assert type(arrived) is type(error)
        assert str(arrived) == str(error)
        assert vars(arrived) == vars(error)
