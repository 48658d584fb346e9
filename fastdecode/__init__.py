"""Fast, exact image decoding, and PyTorch batches from ordinary image files.

>>> from fastdecode import decode_file
>>> from fastdecode.samples import photo
>>> decode_file(photo).shape  # (height, width, 3), RGB
(480, 640, 3)
>>> decode_file(photo, reduce=4).shape  # reduced inside the JPEG decoder
(120, 160, 3)

Datasets and loaders are in `fastdecode.torch`; tar shards, LMDB and other stores are in
`fastdecode.stores`. Modules are imported on first use.
"""

from __future__ import annotations

import importlib
import importlib.util
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fastdecode import errors as errors
    from fastdecode import native as native
    from fastdecode import packing as packing
    from fastdecode import ray as ray
    from fastdecode import samples as samples
    from fastdecode import stores as stores
    from fastdecode import testing as testing
    from fastdecode import torch as torch
    from fastdecode import types as types
    from fastdecode._backends.base import Backend, Support
    from fastdecode._backends.batch_base import BatchBackend, BatchItem
    from fastdecode._backends.registry import backends, register
    from fastdecode._backends.selection import use
    from fastdecode._decode.api import decode, decode_file, probe
    from fastdecode._decode.batch import decode_batch, decode_iter
    from fastdecode._decode.engine import Stats, stats
    from fastdecode._decode.imread import imread
    from fastdecode._decode.lazy import open  # noqa: A004 - as Pillow calls it
    from fastdecode._decode.plan import DEFAULT_MAX_PIXELS, reduce_for
    from fastdecode.errors import (
        BackendUnavailable,
        DecodeError,
        DeviceUnavailable,
        FastDecodeError,
        ImageTooLarge,
        StoreError,
        ThreadsUnavailable,
        UnknownBackend,
        UnsupportedFormat,
    )
    from fastdecode.geometry import Geometry
    from fastdecode.types import BackendInfo, Header

__version__ = "0.4.0.dev0"

# Public names by module. They are imported on first use (PEP 562), so that ``import fastdecode``
# costs nothing: no NumPy, Pillow, OpenCV or PyTorch before they are needed.
_NAMES = {
    "_backends.base": "Backend Support",
    "_backends.batch_base": "BatchBackend BatchItem",
    "_backends.registry": "backends register",
    "_backends.selection": "use",
    "_decode.api": "decode decode_file probe",
    "_decode.batch": "decode_batch decode_iter",
    "_decode.engine": "Stats stats",
    "_decode.imread": "imread",
    "_decode.lazy": "open",
    "_decode.plan": "DEFAULT_MAX_PIXELS reduce_for",
    "errors": "BackendUnavailable DecodeError DeviceUnavailable FastDecodeError ImageTooLarge "
    "StoreError ThreadsUnavailable UnknownBackend UnsupportedFormat",
    "geometry": "Geometry",
    "types": "BackendInfo Header",
}
_HOMES = {name: module for module, names in _NAMES.items() for name in names.split()}

# Modules that users name, and the libraries that one is made for: without these `dir` leaves it
# out, because whoever goes through `dir` expects every name of it to be there.
_MODULES = {
    "errors": (),
    "native": (),
    "packing": (),
    "ray": ("ray", "pyarrow"),
    "samples": (),
    "stores": (),
    "testing": ("pytest",),
    "torch": ("torch",),
    "transformers": ("transformers", "torchvision"),
    "types": (),
}

__all__ = [
    "DEFAULT_MAX_PIXELS",
    "Backend",
    "BackendInfo",
    "BackendUnavailable",
    "BatchBackend",
    "BatchItem",
    "DecodeError",
    "DeviceUnavailable",
    "FastDecodeError",
    "Geometry",
    "Header",
    "ImageTooLarge",
    "Stats",
    "StoreError",
    "Support",
    "ThreadsUnavailable",
    "UnknownBackend",
    "UnsupportedFormat",
    "backends",
    "decode",
    "decode_batch",
    "decode_file",
    "decode_iter",
    "imread",
    "open",
    "probe",
    "reduce_for",
    "register",
    "stats",
    "use",
]


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return importlib.import_module(f"fastdecode.{name}")  # which sets the attribute
    if name not in _HOMES:
        raise AttributeError(f"module 'fastdecode' has no attribute {name!r}")
    value = getattr(importlib.import_module(f"fastdecode.{_HOMES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    there = {
        name
        for name, libraries in _MODULES.items()
        if all(importlib.util.find_spec(library) for library in libraries)
    }
    return sorted({*__all__, *there})
