"""One call turns image bytes into pixels by the fastest decoder on this machine.

>>> from fastdecode import decode
>>> image = decode(data)  # (H, W, 3) uint8 RGB  # doctest: +SKIP
>>> image = decode(data, reduce=4)  # quarter size, inside the DCT  # doctest: +SKIP
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fastdecode._batch import decode_batch, decode_iter
    from fastdecode._selection import use
    from fastdecode._stats import Stats, stats
    from fastdecode.adapters.base import Backend, Support
    from fastdecode.adapters.batch_base import BatchBackend, BatchItem
    from fastdecode.api import decode, decode_file, probe
    from fastdecode.errors import (
        BackendUnavailable,
        DecodeError,
        DeviceUnavailable,
        FastDecodeError,
        ImageTooLarge,
        StoreError,
        UnknownBackend,
        UnsupportedFormat,
    )
    from fastdecode.geometry import Geometry
    from fastdecode.measure._calibrate import calibrate
    from fastdecode.plan import DEFAULT_MAX_PIXELS, reduce_for
    from fastdecode.ranking import Ranking
    from fastdecode.registry import backends, register
    from fastdecode.types import BackendInfo, Header

__version__ = "0.1.0"

# Public names by module. They are imported on first use (PEP 562), so that ``import fastdecode``
# costs nothing: no NumPy, Pillow, OpenCV or PyTorch before they are needed.
_NAMES = {
    "_batch": "decode_batch decode_iter",
    "_selection": "use",
    "_stats": "Stats stats",
    "adapters.base": "Backend Support",
    "adapters.batch_base": "BatchBackend BatchItem",
    "api": "decode decode_file probe",
    "errors": "BackendUnavailable DecodeError DeviceUnavailable FastDecodeError ImageTooLarge "
    "StoreError UnknownBackend UnsupportedFormat",
    "geometry": "Geometry",
    "measure._calibrate": "calibrate",
    "plan": "DEFAULT_MAX_PIXELS reduce_for",
    "ranking": "Ranking",
    "registry": "backends register",
    "types": "BackendInfo Header",
}
_HOMES = {name: module for module, names in _NAMES.items() for name in names.split()}

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
    "Ranking",
    "Stats",
    "StoreError",
    "Support",
    "UnknownBackend",
    "UnsupportedFormat",
    "backends",
    "calibrate",
    "decode",
    "decode_batch",
    "decode_file",
    "decode_iter",
    "probe",
    "reduce_for",
    "register",
    "stats",
    "use",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'fastdecode' has no attribute {name!r}")
    value = getattr(importlib.import_module(f"fastdecode.{_HOMES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
