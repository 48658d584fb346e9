"""Arguments of `decode` and `decode_file`: every valid kind, and every invalid one."""

from __future__ import annotations

import ctypes
import importlib
import inspect
import io
import os
import re
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from encoded import mapped, with_orientation
from hypothesis import given
from hypothesis import strategies as st
from same import assert_raises, assert_same

from fastdecode import decode, decode_batch, decode_file, decode_iter, probe, reduce_for
from fastdecode.testing import drawing, encode
from fastdecode.types import REDUCES, Header

WIDTH, HEIGHT = 45, 30
JPEG = encode(drawing(WIDTH, HEIGHT))
PNG = encode(drawing(WIDTH, HEIGHT), "png")


def turned(value: int) -> bytes:
    return encode(drawing(WIDTH, HEIGHT), exif=with_orientation(value))


def tensor(data: bytes) -> Any:
    torch = pytest.importorskip("torch")
    return torch.frombuffer(bytearray(data), dtype=torch.uint8)


BUFFERS = {
    "bytes": bytes,
    "bytearray": bytearray,
    "memoryview": memoryview,
    "writable memoryview": lambda data: memoryview(bytearray(data)),
    "signed memoryview": lambda data: memoryview(data).cast("b"),
    "slice of a memoryview": lambda data: memoryview(b"before" + data + b"after")[6:-5],
    "mmap": mapped,
    "ndarray": lambda data: np.frombuffer(bytearray(data), np.uint8),
    "read-only ndarray": lambda data: np.frombuffer(data, np.uint8),
    "ctypes": lambda data: (ctypes.c_ubyte * len(data)).from_buffer(bytearray(data)),
    "signed ctypes": lambda data: (ctypes.c_byte * len(data)).from_buffer(bytearray(data)),
    "memoryview of ctypes": lambda data: memoryview((ctypes.c_char * len(data))(*data)),
    "tensor": tensor,
}


@pytest.mark.parametrize("wrap", BUFFERS.values(), ids=BUFFERS)
@pytest.mark.parametrize("data", [JPEG, PNG], ids=["jpeg", "png"])
def test_every_buffer_gives_the_same_pixels(wrap, data: bytes) -> None:
    """All accepted inputs decode to the same pixels, and are not changed."""
    given_ = wrap(data)

    image = decode(given_)

    assert_same(image, decode(data))
    assert probe(given_) == probe(data)
    assert bytes(memoryview(given_.numpy() if hasattr(given_, "numpy") else given_)) == data


@pytest.mark.parametrize("data", [JPEG, PNG, JPEG[:-40]], ids=["jpeg", "png", "cut"])
def test_nothing_holds_on_to_the_input(data: bytes) -> None:
    """After the call, successful or not, a mapping can be closed and a bytearray resized."""
    memory, array = mapped(data), bytearray(data)
    for buffer in (memory, array):
        try:
            decode(buffer)
        except ValueError:
            assert data == JPEG[:-40]

    memory.close()
    array.clear()

    assert memory.closed
    assert not array


WRONG_DATA = {
    "None": None,
    "int": 5,
    "open file": io.BytesIO(JPEG),
    "list": [255, 216],
    "decoded image": np.zeros((30, 45, 3), np.uint8),
    "2-D": np.zeros((30, 45), np.uint8),
    "0-D": np.uint8(3),
    "float": np.zeros(100, np.float32),
    "uint16": np.zeros(100, np.uint16),
    "bool": np.zeros(100, np.bool_),
    "every other byte": np.frombuffer(JPEG, np.uint8)[::2],
    "backwards": memoryview(JPEG)[::-1],
}


def test_wrong_data_is_a_type_error() -> None:
    """Anything but one contiguous dimension of unsigned bytes raises a TypeError.

    Tensors elsewhere are not copied to the CPU.
    """
    wrong: dict[str, Any] = dict(WRONG_DATA)
    if find_spec("torch"):
        zeros = importlib.import_module("torch").zeros
        wrong["2-D tensor"], wrong["float tensor"] = zeros(30, 45).byte(), zeros(100)
        wrong["tensor elsewhere"] = zeros(100, device="meta").byte()
    for function in (decode, probe):
        for of, data in wrong.items():
            assert_raises(TypeError, "data", partial(function, data), of)


WRONG_OPTIONS = [
    *({"reduce": value} for value in (0, 3, -2, 16, "2", None, True, 2.0, [2], (2,))),
    *({"mode": value} for value in ("rgb", "RGBX", "BGR", "", None, 3, ["RGB"])),
    *({"min_size": value} for value in (0, -1, (1,), (1, 2, 3), (0, 5), 1.5, "8", True, (8, 2.0))),
    {"min_size": 8, "reduce": 2},
    *({"backend": value} for value in (5, b"pillow", ["pillow"])),
    *({"max_pixels": value} for value in (0, -1, 9e9, float("nan"), "900", True, np.float64(9))),
    *({"region": value} for value in ((0, 0, 5.0, 5), (0, 0, "5", 5), (0, 0, None, 5))),
    *({"region": value} for value in ((0, 0, True, 5), (0, 0, 5), (0, 0, 5, 5, 5), (), "0055", 5)),
]
UNFITTING = [
    *({"out": value} for value in (bytearray(9), [], True)),
    *({"region": value} for value in ((5, 5, 5, 9), (5, 5, 9, 5), (9, 0, 5, 5), (0, 9, 5, 5))),
    *({"region": value} for value in ((-1, 0, 5, 5), (0, -1, 5, 5), (0, 0, 46, 5), (0, 0, 5, 31))),
]


GOOD = {"jpeg": JPEG, "png": PNG}
BAD = {"empty": b"", "cut jpeg": JPEG[:9], "cut png": PNG[:20]}


@pytest.mark.parametrize("options", [*WRONG_OPTIONS, *UNFITTING], ids=str)
@pytest.mark.parametrize("kind", [*GOOD, *BAD])
def test_wrong_option_is_an_error_that_names_it(kind: str, options: dict[str, Any]) -> None:
    """A wrong value is a plain TypeError or ValueError, though the data may be wrong, too.

    Whether a region or `out` fits the image is for the data to say.
    """
    if options in UNFITTING and kind in BAD:
        return
    data = {**GOOD, **BAD}[kind]
    with pytest.raises((TypeError, ValueError), match=next(iter(options))) as caught:
        decode(data, **options)

    assert caught.type in (TypeError, ValueError)


def outs(shape: tuple[int, ...]) -> dict[str, np.ndarray]:
    """Return arrays that a result of this shape does not fit."""
    locked = np.full(shape, 9, np.uint8)
    locked.flags.writeable = False
    return {
        "taller": np.full((shape[0] + 1, *shape[1:]), 9, np.uint8),
        "flat": np.full(np.prod(shape), 9, np.uint8),
        "one axis less": np.full(shape[:2] if len(shape) == 3 else shape[:1], 9, np.uint8),
        "one more axis": np.full((1, *shape), 9, np.uint8),
        "wider type": np.full(shape, 9, np.uint16),
        "signed": np.full(shape, 9, np.int8),
        "Fortran order": np.full(shape, 9, np.uint8, order="F"),
        "every other column": np.full((shape[0], shape[1] * 2, *shape[2:]), 9, np.uint8)[:, ::2],
        "read-only": locked,
    }


@pytest.mark.parametrize("kind", outs((1, 1)))
@pytest.mark.parametrize("options", [{}, {"mode": "L"}, {"mode": "stored"}, {"reduce": 2}], ids=str)
@pytest.mark.parametrize("data", [JPEG, PNG], ids=["jpeg", "png"])
def test_nothing_is_written_into_a_wrong_out(data: bytes, options, kind: str) -> None:
    """An `out` of another shape, type or order raises a ValueError and is not changed."""
    out = outs(decode(data, **options).shape)[kind]

    with pytest.raises(ValueError, match="out"):
        decode(data, out=out, **options)

    assert_same(out, 9)


class Lying(np.ndarray):
    """An array that reports a larger size than it has."""

    @property
    def shape(self) -> tuple[int, ...]:
        return (HEIGHT, WIDTH, 3)


@pytest.mark.parametrize("backend", ["pillow", None])
def test_out_is_measured_not_asked(backend: str | None) -> None:
    """A subclass may report any shape: nothing is written outside its memory."""
    memory = np.full(HEIGHT * WIDTH * 3, 9, np.uint8)

    with pytest.raises(ValueError, match="out"):
        decode(JPEG, out=memory[:-100].view(Lying), backend=backend)
    with pytest.raises(ValueError, match="out"):
        decode_batch([JPEG] * 3, out=[None, memory[:-100].view(Lying), None], threads=2)

    assert_same(memory, 9)


@pytest.mark.parametrize("data", [JPEG, PNG], ids=["jpeg", "png"])
def test_out_is_not_where_the_data_is(data: bytes) -> None:
    """An `out` that overlaps the data is refused, and nothing is written."""
    memory = np.zeros(len(data) + HEIGHT * WIDTH * 3, np.uint8)
    memory[: len(data)] = np.frombuffer(data, np.uint8)
    place = len(data) - 1
    over, beside = (memory[at : at + HEIGHT * WIDTH * 3] for at in (place, place + 1))
    encoded = memory[: len(data)]

    with pytest.raises(ValueError, match="out"):
        decode(encoded, out=over.reshape(HEIGHT, WIDTH, 3))
    assert encoded.tobytes() == data
    with pytest.raises(ValueError, match="item 1: out"):
        decode_batch([data, encoded], out=[None, over.reshape(HEIGHT, WIDTH, 3)], threads=2)
    assert encoded.tobytes() == data
    image = decode(encoded, out=beside.reshape(HEIGHT, WIDTH, 3))
    assert_same(image, decode(data))


@pytest.mark.parametrize("integer", [int, np.int64, np.int32, np.uint8])
@pytest.mark.parametrize("data", [JPEG, turned(6), PNG], ids=["jpeg", "turned", "png"])
def test_numpy_integers_are_integers(integer, data: bytes) -> None:
    """Sizes, regions and reductions may be NumPy integers of any width."""
    region = tuple(integer(edge) for edge in (3, 5, 29, 21))
    plain = decode(data, 2, region=(3, 5, 29, 21), orient=True)

    assert reduce_for(probe(data), (integer(4), integer(4)), region=region) == 4
    assert_same(decode(data, integer(2), region=region, orient=True), plain)


@pytest.mark.parametrize(
    ("min_size", "options", "expected"),
    [
        (1, {}, 8),
        (4, {}, 8),
        (5, {}, 4),
        (8, {}, 4),
        (15, {}, 2),
        (16, {}, 1),
        (999, {}, 1),
        ((4, 6), {}, 8),
        ((4, 7), {}, 4),
        ([8, 12], {}, 4),
        ((12, 8), {}, 2),
        ((12, 8), {"orient": True}, 4),
        (3, {"region": (0, 0, 20, 20)}, 8),
        (3, {"region": (8, 8, 24, 24)}, 4),
        (3, {"region": (7, 7, 25, 25)}, 8),
        ((1, 6), {"region": (0, 0, 45, 8)}, 8),
        ((6, 1), {"region": (0, 0, 8, 45), "orient": True}, 8),
    ],
    ids=str,
)  # fmt: skip
def test_reduce_for_is_the_largest_that_suffices(min_size, options, expected) -> None:
    """The result has at least the given sides, also for a region or an upright image."""
    header = Header("jpeg", WIDTH, HEIGHT, orientation=6)

    assert reduce_for(header, min_size, **options) == expected


@given(st.tuples(st.integers(1, 40), st.integers(1, 50)), st.integers(1, 8))
def test_min_size_decodes_what_reduce_for_says(size: tuple[int, int], value: int) -> None:
    """`min_size` gives the same image as the reduction that `reduce_for` returns."""
    data = turned(value)
    reduce = reduce_for(probe(data), size, orient=True)

    image = decode(data, min_size=size, orient=True)

    assert_same(image, decode(data, reduce, orient=True))
    for larger in (r for r in REDUCES if r > reduce):
        shape = decode(data, larger, orient=True).shape
        assert shape[0] < size[0] or shape[1] < size[1]


def test_what_is_no_path_is_refused(tmp_path: Path) -> None:
    """A file descriptor is refused and left open; a name that no file can have is an OSError."""
    path = tmp_path / "photo.jpg"
    path.write_bytes(JPEG)

    with path.open("rb") as file:
        with pytest.raises(TypeError):
            decode_file(file.fileno())

        assert os.fstat(file.fileno()).st_size == len(JPEG)
        assert file.read() == JPEG
    for wrong in ("no\0file.jpg", Path("no\0file.jpg")):
        with pytest.raises(OSError) as caught:
            decode_file(wrong)
        assert caught.value.filename == "no\0file.jpg"


# Names of options


def _taking_options() -> dict[str, tuple[Any, type]]:
    """Return the public functions and classes with ``**options``, and the type of the options."""
    found: dict[str, tuple[Any, type]] = {}
    for module in ("", ".stores", ".torch", ".torch.transforms"):
        if module.startswith(".torch") and not find_spec("torch"):
            continue
        home = importlib.import_module(f"fastdecode{module}")
        for name in home.__all__:
            called = getattr(home, name)
            if not callable(called):
                continue
            takes = called.__init__ if inspect.isclass(called) else called
            kinds = getattr(takes, "__annotations__", {})
            for option in kinds.values():
                unpacked = re.fullmatch(r"Unpack\[(\w+)\]", str(option))
                if unpacked:
                    found[name] = called, takes.__globals__[unpacked[1]]
    return found


OPTIONS = _taking_options()
NEEDED: dict[str, Any] = {
    "path": "cat.jpg",
    "items": [],
    "dataset": [1],
    "paths": [],
    "shards": "train.tar",
    "size": 8,
    "resize": 9,
    "crop": 8,
}


@pytest.mark.parametrize("name", OPTIONS)
def test_a_wrong_option_is_told_with_the_right_one(name: str, tmp_path: Path) -> None:
    """A misspelt option names the function that was called, and the option that was meant."""
    called, options = OPTIONS[name]
    (tmp_path / "cat").mkdir()
    (tmp_path / "cat" / "1.jpg").write_bytes(JPEG)
    parameters = [*inspect.signature(called).parameters.values()]
    given = [
        NEEDED.get(each.name, tmp_path)
        for each in parameters
        if each.default is each.empty and each.kind is each.POSITIONAL_OR_KEYWORD
    ]
    own = [each.name for each in parameters if each.kind is each.KEYWORD_ONLY]
    for right in {*own, *options.__annotations__}:
        wrong = right + right[-1]
        with pytest.raises(TypeError) as caught:
            called(*given, **{wrong: None})
        message = str(caught.value)
        assert message.startswith(f"{name}() ")
        assert repr(wrong) in message
        assert re.search(rf"\b{right}\b", message), message


@pytest.mark.parametrize("other", ["num_workers", "workers", "n_jobs"])
def test_what_other_libraries_call_threads_is_understood(other: str) -> None:
    """The number of threads has several names elsewhere: the error tells the one here, if any."""
    for function in (decode_batch, decode_iter):
        with pytest.raises(TypeError, match=f"'{other}'.* threads"):
            function([JPEG], **{other: 2})
    with pytest.raises(TypeError, match=rf"'{other}'(?!.*threads)"):
        decode_file("cat.jpg", **{other: 2})  # type: ignore[call-arg]  # which has no threads
