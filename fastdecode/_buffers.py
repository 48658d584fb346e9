"""Accept the encoded bytes of a file, or its path, in any form that a caller may have."""

from __future__ import annotations

import os
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from fastdecode.types import Buffer

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
