"""The caller's arguments: encoded bytes and paths in any form, and checks before decoding."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any, TypeAlias, cast

import numpy as np
from numpy.typing import NDArray

from fastdecode.errors import near_miss
from fastdecode.types import MODES, REDUCES, Box, Buffer, Header, Image, Mode

Kind: TypeAlias = "tuple[str, Callable[[Any], bool]]"
"""What an argument must be, in words, and the check of it."""

FLAG: Kind = (
    "True or False",
    lambda given: isinstance(given, (int, np.bool_)) and given in (0, 1),
)
_WORD: Kind = "a string", lambda given: isinstance(given, str)
_PATH: Kind = "a path", lambda given: isinstance(given, (str, os.PathLike))
_MAPPING: Kind = "a mapping", lambda given: isinstance(given, Mapping)
_CALLABLE: Kind = "callable", callable
_SUFFIXES: Kind = "a sequence of strings, or one", lambda given: all_of(str, given)

KINDS: dict[str, Kind] = {
    **dict.fromkeys(("orient", "strict", "fuse", "has_targets", "allow_empty", "shuffle"), FLAG),
    **dict.fromkeys(("clip", "keep", "header"), FLAG),
    **dict.fromkeys(("kind", "backend", "mode", "delimiter", "target", "decode"), _WORD),
    **dict.fromkeys(("root", "file", "path", "index"), _PATH),
    **dict.fromkeys(("storage_options", "store_options", "class_to_idx"), _MAPPING),
    **dict.fromkeys(("target_transform", "loader", "is_valid_file"), _CALLABLE),
    "counts": ("a sequence", lambda given: hasattr(given, "__len__") and is_iterable(given)),
    **dict.fromkeys(("image", "extensions"), _SUFFIXES),
}
"""Of the arguments that mean the same wherever there is one of that name. None is left out."""

MOST_THREADS = 1 << 16
"""More threads, or processes, than any machine has."""

_STARRED = inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD


def check_options(
    mode: object = "RGB",
    reduce: object = 1,
    min_size: object = None,
    region: object = None,
    max_pixels: object = None,
    backend: object = None,
    **others: object,
) -> None:
    """Check the options that do not depend on the data.

    `reduce` may be any factor for which there is a scaled IDCT.
    """
    check_word("mode", mode, MODES)
    check_kinds({**others, "backend": backend})
    if not is_int(reduce) or reduce not in REDUCES:
        raise ValueError(f"reduce must be 1, 2, 4 or 8, not {reduce!r}")
    if min_size is not None:
        check_sides(min_size)
        if reduce != 1:
            raise ValueError("give reduce or min_size, not both")
    if region is not None:
        check_edges(region)
    if max_pixels is not None and not (is_int(max_pixels) and cast("int", max_pixels) > 0):
        raise ValueError(f"max_pixels must be a positive integer or None, not {max_pixels!r}")


def check_kinds(given: Mapping[str, object], kinds: Mapping[str, Kind] = KINDS) -> None:
    """Raise a TypeError for an argument, by name, that is not of its kind; None always is."""
    for name, value in given.items():
        if value is not None and name in kinds and not kinds[name][1](value):
            raise wrong_kind(name, kinds[name][0], value)


def wrong_kind(name: str, kind: str, given: object, hint: str = "") -> TypeError:
    """Return the error for an argument that is not of its kind."""
    return TypeError(f"{name} must be {kind}, not {shown(given)}{hint}")


def shown(given: object) -> str:
    """Return a value as an error shows it: in one line, or only its type."""
    words = repr(given)
    return words if len(words) <= _LONGEST and "\n" not in words else type(given).__name__


def check_word(name: str, given: object, words: Sequence[str]) -> None:
    """Raise a ValueError for what is not one of these words."""
    if not isinstance(given, str) or given not in words:
        raise ValueError(f"{name} must be one of {', '.join(words)}, not {shown(given)}")


def check_threads(threads: object) -> None:
    """Raise a ValueError if this is no number of threads."""
    if not (is_int(threads) and 1 <= cast("int", threads) <= MOST_THREADS):
        raise ValueError(
            f"threads must be an integer from 1 to {MOST_THREADS}, not {shown(threads)}"
        )


_ELSEWHERE = dict.fromkeys(("num_workers", "workers", "max_workers", "n_jobs"), "threads")
"""What other libraries call an argument."""
_LONGEST = 80  # characters of a value in an error


def check_names(called: Callable[..., object], given: Iterable[str], options: type) -> None:
    """Raise a TypeError for an option that does not exist, which names the one that was meant.

    Python itself would name the inner function to which the options are passed on.

    Parameters
    ----------
    called : callable
        The function or class that the user has called.
    given : iterable of str
        The names of the options that it was given.
    options : type
        The `TypedDict` of those that there are.
    """
    for name in given:
        if name in options.__annotations__:
            continue
        own = inspect.signature(called).parameters.values()
        known = [each.name for each in own if each.kind not in _STARRED]
        known += options.__annotations__
        meant = _ELSEWHERE.get(name)
        way_out = f"; did you mean {meant}?" if meant in known else near_miss(name, known)
        where = called.__qualname__.rpartition("<locals>.")[2]
        raise TypeError(
            f"{where}() has no argument {name!r}{way_out or '; it has ' + ', '.join(known)}"
        )


def check_header(header: object) -> None:
    """Raise TypeError if this is not a `Header`, but the bytes of an image, say."""
    if not isinstance(header, Header):
        raise TypeError(f"header must be what probe() returns, not {type(header).__name__}")


def check_disjoint(outs: Sequence[object]) -> None:
    """Raise ValueError if arrays overlap in memory; `check_out` checks each array on its own."""
    spans = sorted(
        (out.__array_interface__["data"][0], out.nbytes, index)
        for index, out in enumerate(
            np.asarray(one) if isinstance(one, np.ndarray) else one for one in outs
        )
        if isinstance(out, np.ndarray) and out.flags.c_contiguous and out.nbytes
    )
    for (start, size, one), (other_start, _, other) in pairwise(spans):
        if start + size > other_start:
            first, second = sorted((one, other))
            raise ValueError(f"out[{first}] and out[{second}] overlap in memory")


def is_int(value: object) -> bool:
    return isinstance(value, (int, np.integer)) and not isinstance(value, bool)


def is_iterable(value: object) -> bool:
    """Return whether it can be iterated over, also by the old ``__getitem__`` protocol."""
    return hasattr(value, "__iter__") or hasattr(value, "__getitem__")


def all_of(kind: type, given: object) -> bool:
    """Return whether it is of a kind, or a sequence of such."""
    several = isinstance(given, Sequence) and not isinstance(given, bytes)
    return isinstance(given, kind) or (
        several and all(isinstance(one, kind) for one in cast("Sequence[object]", given))
    )


def check_sides(given: object, name: str = "min_size") -> tuple[int, int]:
    """Return (height, width) from such a pair, or from an int for both; else raise ValueError."""
    sides = given if isinstance(given, (tuple, list)) else (given, given)
    if len(sides) != 2 or not all(is_int(side) and side > 0 for side in sides):
        raise ValueError(
            f"{name} must be a positive integer or (height, width) of them, not {given!r}"
        )
    return int(sides[0]), int(sides[1])


def check_edges(region: object) -> None:
    """Raise ValueError if a region is not four integers."""
    if (
        not isinstance(region, Sequence | np.ndarray)
        or len(region) != 4
        or not all(is_int(edge) for edge in region)
    ):
        raise ValueError(f"region must be four integers (left, top, right, bottom), not {region!r}")


def region_inside(region: Sequence[int], width: int, height: int) -> Box:
    """Return a region, whose edges are checked; raise ValueError if it is not in the image."""
    left, top, right, bottom = map(int, region)  # of NumPy
    if not (0 <= left < right <= width and 0 <= top < bottom <= height):
        raise ValueError(
            f"region {tuple(region)} (left, top, right, bottom) is empty or outside the image, "
            f"which is {width} wide and {height} high"
        )
    return left, top, right, bottom


def check_out(out: Image, data: Buffer, mode: Mode, sides: tuple[int, int]) -> None:
    """Check that a result of these sides fits into `out`."""
    if not isinstance(out, np.ndarray):
        raise TypeError(f"out must be a NumPy array, not {type(out).__name__}")
    out = np.asarray(out)  # a subclass may report a wrong shape, which backends would trust
    if type(data) is not bytes and np.may_share_memory(out, np.frombuffer(data, np.uint8)):
        raise ValueError("out must not lie in the memory of the data that is decoded into it")
    if mode == "stored":
        _check_memory(out)
        return  # shape and dtype depend on the file: `deliver` checks them
    check_array(out, sides if mode == "L" else (*sides, 3 if mode == "RGB" else 4))


def _check_memory(out: Image) -> None:
    if not (out.flags.c_contiguous and out.flags.writeable):
        raise ValueError("out must be C-contiguous and writable")


def check_array(out: Image, shape: tuple[int, ...]) -> None:
    """Check that `out` is a writable uint8 array of this shape."""
    if not isinstance(out, np.ndarray):
        raise TypeError(f"out must be a NumPy array, not {type(out).__name__}")
    _check_memory(out)
    if out.shape != shape or out.dtype != np.uint8:
        raise ValueError(
            f"out must have shape {shape} and dtype uint8, not {out.shape} and {out.dtype}"
        )


# ---- encoded bytes of a file, or its path, in any form that a caller may have ----

_DECODED_ALREADY = (
    ". This transform decodes the file by itself: make it the dataset's transform=, or a step of "
    "torchvision's Compose, not one of a callable that gets the decoded image"
)


def as_buffer(data: object, *, function: str = "decode") -> Buffer:
    """View any accepted input as bytes, without a copy; raise TypeError for anything else.

    `function` is the name of the called function, for error messages.
    """
    if isinstance(data, (str, os.PathLike)):
        path = os.fspath(data)
        instead = f"{function}(Path({path!r}).read_bytes())"
        raise TypeError(
            f"{function}() takes the bytes of an image, not a path: "
            + (f"use decode_file({path!r})" if function == "decode" else instead)
        )
    if type(data).__module__ == "torch" and hasattr(data, "numpy"):
        data = _tensor_bytes(data)
    try:
        view = memoryview(cast("bytes", data))
    except TypeError:
        raise TypeError(
            "data must be bytes, bytearray, memoryview, mmap, a uint8 ndarray or a uint8 tensor, "
            f"not {type(data).__name__}"
            + (": pass what its read() gives" if hasattr(data, "read") else "")
            + (_DECODED_ALREADY if function == "transform" and hasattr(data, "size") else "")
        ) from None
    # ctypes puts a byte order before the type, though a single byte has none.
    kind = view.format.lstrip("@=<>!")
    if view.ndim != 1 or view.itemsize != 1 or kind not in ("B", "b", "c"):
        raise TypeError(
            "data must be one dimension of unsigned bytes (the encoded file), not "
            f"{view.ndim} of {view.format!r}: has it been decoded already?"
        )
    if not view.contiguous:
        raise TypeError("data must be contiguous: copy it with numpy.ascontiguousarray")
    if view.format == "B":
        return view
    # `cast` refuses formats with a byte order; NumPy does not look at them.
    return view.cast("B") if kind == view.format else np.frombuffer(view, np.uint8).data


def without_row(source: Any) -> Any:
    """Return the bytes or the path in a row of Hugging Face's ``Image(decode=False)``.

    Anything else is returned as it is.
    """
    if not (isinstance(source, dict) and source.keys() == {"bytes", "path"}):
        return source
    return source["path"] if source["bytes"] is None else source["bytes"]


def as_path(path: str | os.PathLike[str], *, function: str = "decode_file") -> str:
    """Return a path as `open` takes it; raise TypeError if it is the bytes of an image.

    Paths never contain a NUL byte, and images always do.
    """
    if isinstance(path, (bytearray, memoryview)) or (isinstance(path, bytes) and 0 in path):
        raise TypeError(f"{function}() takes a path, not the bytes of an image: use decode(data)")
    if not isinstance(path, (str, bytes, os.PathLike)):
        raise TypeError(f"{function}() takes a path, not {type(path).__name__}")
    return os.fspath(path)


def _tensor_bytes(tensor: Any) -> NDArray[Any]:
    """View a tensor's memory, without importing PyTorch."""
    if tensor.device.type != "cpu":
        raise TypeError("a tensor of encoded bytes must be in CPU memory: use data.cpu()")
    array: NDArray[Any] = tensor.numpy()
    return array
