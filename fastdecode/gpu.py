"""Decoding into the memory of a device: on the device itself, or on the CPU with a copy.

First comes the device that an argument names, then the choice of what decodes there, the requests
to a batch backend, and resizing on a device.

The decoder of a device does not report missing data: NVIDIA's hardware leaves there what its memory
held, which may be another photo. So a JPEG goes there only if the CPU has found all its codes. That
takes about two thirds of the time of decoding it.
"""

from __future__ import annotations

import pkgutil
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import torch

from fastdecode._backends import registry, selection
from fastdecode._backends.batch_base import BatchBackend, BatchItem, declares, is_of_the_device
from fastdecode._decode.api import decode
from fastdecode._decode.engine import count_fallback
from fastdecode._decode.plan import plan_options
from fastdecode._formats import jpeg
from fastdecode._system.process import after_fork
from fastdecode._system.processor import usable_cores
from fastdecode.errors import (
    BackendUnavailable,
    DeviceUnavailable,
    FastDecodeError,
    UnknownBackend,
)

if TYPE_CHECKING:
    from fastdecode.types import Box, Buffer, Header


# ---- devices ----


def parse_device(device: str | int | torch.device) -> torch.device:
    """Return the device of a name, or the CUDA device of a number, even if it is not present.

    Raises `TypeError` or `ValueError` for anything else.
    """
    if isinstance(device, bool) or not isinstance(device, (str, int, torch.device)):
        raise TypeError(f"device must be a name, a number or a torch.device, not {device!r}")
    try:
        return torch.device("cuda", device) if isinstance(device, int) else torch.device(device)
    except (RuntimeError, ValueError) as error:
        reason = str(error).partition("\n")[0]
        raise ValueError(f"there is no device {device!r}: {reason}") from error


def check_device(device: str | int | torch.device) -> torch.device:
    """Check that a device can be used, and return it; a CUDA device with its index.

    An int is the CUDA device of that number, and ``"cuda"`` is the current one. Raises
    `DeviceUnavailable`, whose message says what is missing, and `TypeError` or `ValueError` for
    anything that does not name a device.
    """
    found = parse_device(device)
    if found.type == "meta":
        raise ValueError("device 'meta' has no memory for images")
    return usable(found)


def usable(device: torch.device) -> torch.device:
    """Check that a device can be used, and return the device of its tensors; accept "meta"."""
    if device.type == "cuda":
        missing = _cuda_problem(device)
        if missing:
            raise DeviceUnavailable(f"device {str(device)!r} cannot be used: {missing}")
        index = torch.cuda.current_device() if device.index is None else device.index
        return torch.device("cuda", index)
    try:
        there = torch.empty(0, dtype=torch.uint8, device=device)
        if device.type != "meta":
            there.cpu()
    except (AssertionError, ImportError, NotImplementedError, RuntimeError) as error:
        reason = str(error).partition("\n")[0].partition(". ")[0]
        raise DeviceUnavailable(f"device {str(device)!r} cannot be used: {reason}") from error
    return there.device  # without an index for the CPU


def _cuda_problem(device: torch.device) -> str:
    """Return why a CUDA device cannot be used; empty if it can."""
    if torch.version.cuda is None and torch.version.hip is None:
        return (
            f"PyTorch {torch.__version__} is built without CUDA; "
            "https://pytorch.org/get-started says how to install one that has it"
        )
    if not torch.cuda.is_available():
        return "PyTorch finds no CUDA device, or no driver that it can use (see nvidia-smi)"
    count = torch.cuda.device_count()
    if device.index is not None and device.index >= count:
        return f"there are {count} CUDA devices, the last is cuda:{count - 1}"
    return ""


# ---- what decodes on a device ----


class Loaded:
    """A batch backend on a device.

    Every caller holds `lock`, because the decoders of these libraries are not thread-safe.
    """

    def __init__(self, name: str, backend: BatchBackend, device: torch.device) -> None:
        self.name = name
        self.backend = backend
        self.device = device
        self.lock = threading.Lock()


_loaded: dict[tuple[int, str, str], Loaded] = {}
_failed: dict[tuple[int, str, str], BaseException] = {}
_of_the_parent: list[Any] = []
_lock = threading.RLock()


def names(device_type: str) -> list[str]:
    """Return the batch backends for a device type, ``"cpu"`` or ``"cuda"``, without any import."""
    return [
        name
        for name in registry.names()
        if (found := registry.entry(name)).batch
        and (not found.devices or device_type in found.devices.split())
    ]


def choose(device: torch.device, decode: str) -> Loaded | None:
    """Return the batch backend that decodes for a device from `check_device`; None for the CPU.

    `decode` is ``"cpu"``, ``"gpu"`` or the name of a batch backend. ``"gpu"`` means the backend of
    `use` or ``FASTDECODE_BACKEND``, if that is a batch backend; else the first that works.

    Raises `UnknownBackend`, `BackendUnavailable` or `ValueError` if the request cannot be met; the
    message says what to install.
    """
    if decode == "cpu":
        return None
    if decode == "gpu":
        return _first(device)
    if decode in (able := names(device.type)):
        return load(decode, device)
    if decode in registry.names():
        raise ValueError(
            f"decode={decode!r} names a backend that decodes no batches on {str(device)!r}: use "
            f"decode='cpu', and backend={decode!r} to decode with it on the CPU"
        )
    raise UnknownBackend(
        "decode must be 'cpu', 'gpu' or the name of a backend that decodes batches on "
        f"{str(device)!r} ({', '.join(able) or 'there is none'}), not {decode!r}"
    )


def _first(device: torch.device) -> Loaded:
    """Return the preferred batch backend, or the first in the registry's order that works."""
    if device.type == "cpu":
        raise ValueError("decode='gpu' needs a GPU as device, not 'cpu'")
    able = names(device.type)
    if (preferred := selection.preferred()) in able:
        return load(str(preferred), device)
    missing = []
    for name in able:
        if name in selection.disabled():
            missing.append(f"the backend {name!r} is left out by FASTDECODE_DISABLE")
            continue
        try:
            return load(name, device)
        except BackendUnavailable as error:
            missing.append(str(error))
    raise BackendUnavailable(
        f"no backend decodes on {str(device)!r}, and decode='gpu' needs one; decode='cpu' does not:"
        "\n" + "\n".join(missing)
    )


def load(name: str, device: torch.device) -> Loaded:
    """Return this process's instance of a batch backend for a device, which has its index.

    Raises `UnknownBackend` if there is no such name. Raises `BackendUnavailable` if the backend
    does not decode on that device, or if its library is missing or broken. The message contains the
    reason and, if the library is missing, the install line.
    """
    registry.entry(name)  # UnknownBackend
    key = (registry.generation, name, str(device))
    with _lock:
        if key not in _loaded and key not in _failed:
            try:
                _loaded[key] = Loaded(name, _construct(name, device), device)
            except (Exception, SystemExit) as failure:  # a broken plugin may raise anything
                if is_of_the_device(failure):  # it may work later, when there is free memory again
                    raise
                _failed[key] = failure.with_traceback(None)
        if key in _failed:
            error = _failed[key]
            raise BackendUnavailable(
                f"the backend {name!r} does not decode on {str(device)!r}: "
                f"{registry.reason(error)}{_install_hint(name, error)}"
            ) from error
        return _loaded[key]


def _construct(name: str, device: torch.device) -> BatchBackend:
    target = registry.entry(name).batch
    if not target:
        raise BackendUnavailable("it decodes one image at a time, on the CPU")
    kind: Any = pkgutil.resolve_name(target) if isinstance(target, str) else target
    if not (isinstance(kind, type) and issubclass(kind, BatchBackend)):
        raise TypeError(f"{target!r} is not a fastdecode BatchBackend but {kind!r}")
    if isinstance(kind.devices, str):
        raise TypeError(f"{target!r} declares its devices as text, not as a set")
    if device.type not in kind.devices:
        raise BackendUnavailable(f"it decodes on {', '.join(sorted(kind.devices))}")
    backend = kind(device, usable_cores())
    if not isinstance(getattr(backend, "supports", None), Mapping):
        raise TypeError(f"{target!r} does not declare what it supports")
    return backend


def _install_hint(name: str, error: BaseException) -> str:
    """Return how to install the library if it is missing; else empty."""
    line = registry.install_line(name) if isinstance(error, ModuleNotFoundError) else ""
    return f"\nInstall it with: {line}" if line else ""


@after_fork
def _forget() -> None:
    """Start over in a forked child, where the locks and the libraries' state are not usable.

    The child still keeps the parent's backends alive, also those that its errors refer to. To
    destroy one would wait for threads that the child lacks, or call a driver that a child must not
    call.
    """
    global _lock
    _lock = threading.RLock()
    _of_the_parent.append((dict(_loaded), dict(_failed)))
    _loaded.clear()
    _failed.clear()


# ---- requests to a batch backend ----


class Request(NamedTuple):
    """The image that a batch backend must decode, and the part to cut out of its result."""

    item: BatchItem
    cut: Box | None


def make_request(
    data: Buffer, header: Header, backend: BatchBackend, options: dict[str, Any]
) -> Request | None:
    """Return the request for an image, or None if the CPU must decode it.

    `options` are checked arguments of `decode`. The CPU decodes what the backend does not declare.
    It also gets damaged or unusual files, because only the CPU path can tell what is missing, and
    wrong arguments, for which it raises the error.
    """
    mode = options.get("mode", "RGB")
    if mode not in ("RGB", "L") or options.get("strict") or "max_side" in options:
        return None
    try:
        reduce, window, orientation = plan_options(header, options)
        if (reduce, orientation) != (1, 1) or not declares(backend, header, mode):
            return None
        if header.format == "jpeg" and not _is_whole(data, header):
            return None
    except (FastDecodeError, TypeError, ValueError):
        return None
    return Request(BatchItem(data, header), window)


def _is_whole(data: Buffer, header: Header) -> bool:
    if header.progressive or data[-2:] != jpeg.EOI or not jpeg.in_one_scan(data, header):
        return False
    right, bottom = header.width, header.height
    # Raises if data is missing: all codes before the last pixel are read.
    decode(data, region=(right - 1, bottom - 1, right, bottom), max_pixels=None)
    return True


@contextmanager
def decode_requests(
    loaded: Loaded, requests: Sequence[Request], layout: Literal["RGB", "L"], device: torch.device
) -> Iterator[list[torch.Tensor | None]]:
    """Decode with a batch backend on its device, and count what it refuses as a fallback.

    The block gets images (C, H, W), uint8, on the device, with any strides, ready in the order of
    the current stream. An image is None if the backend refused it, or if it has the wrong form. The
    images may lie in the library's memory: inside the block, and on that stream, copy those that
    must last.

    Raises `RuntimeError` if the device itself fails: later requests would fail too.
    """
    items = [request.item for request in requests]
    made, refused = _call_backend(loaded, items, layout)
    for at, image in enumerate(made):
        if image is not None and (wrong := _form_problem(image, items[at], layout, device)):
            made[at], refused[at] = None, wrong
    for reason in refused.values():
        count_fallback({loaded.name: reason}, "cpu")
    try:
        yield [
            image if image is None or cut is None else image[:, cut[1] : cut[3], cut[0] : cut[2]]
            for image, (_, cut) in zip(made, requests, strict=True)
        ]
    finally:
        # The library may reuse its memory while the current stream still reads it: wait for the
        # stream. nvImageCodec allocates in the order of the stream, but the JPEG hardware writes at
        # once: on an H100 it overwrote what kernels were still to read.
        if items and loaded.device.type == "cuda":
            torch.cuda.current_stream(loaded.device).synchronize()


def _call_backend(
    loaded: Loaded, items: Sequence[BatchItem], layout: Literal["RGB", "L"]
) -> tuple[list[Any], dict[int, str]]:
    """Return the images, and the reasons for refusals; an error refuses the whole batch."""
    if not items:
        return [], {}
    try:
        with loaded.lock:
            made = list(loaded.backend.decode(items, layout))
        if len(made) != len(items):
            raise ValueError(f"gave {len(made)} images for {len(items)}")  # noqa: TRY301
    except Exception as error:  # the edge of the package: libraries raise whatever they like
        if is_of_the_device(error):
            raise
        reason = f"{type(error).__name__}: {error}"
        return [None] * len(items), dict.fromkeys(range(len(items)), reason)
    return made, {at: "refused it" for at, image in enumerate(made) if image is None}


def _form_problem(image: Any, item: BatchItem, layout: str, device: torch.device) -> str:
    """Return what is wrong with the form of an image; empty if it is right."""
    shape = item.shape(layout)
    if not isinstance(image, torch.Tensor):
        return f"gave {type(image).__name__}, which is not a tensor"
    if tuple(image.shape) != shape or image.dtype != torch.uint8 or image.device != device:
        return (
            f"gave {tuple(image.shape)} of {image.dtype} on {image.device}, not {shape} of "
            f"torch.uint8 on {device}"
        )
    return ""


# ---- resizing, by the same rule as on the CPU: antialiased, bilinear, rounded once ----

_MAX_SHRUNK = 128.0
"""The sum of the factors of both axes. PyTorch's kernel for CUDA keeps the weights of a block in
48 KB, and refuses to shrink by more than about 180."""


def resize_into(
    out: torch.Tensor,
    image: torch.Tensor,
    canvas: tuple[int, int] | None = None,
    *,
    top: int = 0,
    left: int = 0,
    flip: bool = False,
) -> None:
    """Resize uint8 (C, H, W) to a canvas, and write the part from `top`, `left` on to `out`.

    `out` is (C, h, w), with any strides. It becomes black where it reaches beyond the canvas. With
    `flip` the result is mirrored. On CUDA nothing waits for the device, unless an image is shrunk
    so much that the CPU must do it. The levels are within 1 of those of Pillow's `Image.resize`.
    """
    height, width = out.shape[1:]
    down, across = canvas or (height, width)
    pixels = image if image.shape[1:] == (down, across) else _resize(image, (down, across))
    if flip:
        pixels, left = pixels.flip(-1), across - left - width
    shown = pixels[:, max(0, top) : max(0, top + height), max(0, left) : max(0, left + width)]
    if shown.shape != out.shape:
        out.zero_()
        out = out[:, max(0, -top) :, max(0, -left) :][:, : shown.shape[1], : shown.shape[2]]
    out.copy_(shown)


def _resize(image: torch.Tensor, size: tuple[int, int]) -> torch.Tensor:
    height, width = size
    shrunk = image.shape[1] / height + image.shape[2] / width
    here = image if image.device.type == "cpu" or shrunk <= _MAX_SHRUNK else image.cpu()
    pixels = here[None].float()
    if width == 1:
        # In a result of one column, PyTorch's kernel for the CPU gives every row the levels of the
        # first row (2.13). So resize the rows of two equal columns.
        pixels = _interpolate(pixels, (image.shape[1], 1)).repeat(1, 1, 1, 2)
        levels = _interpolate(pixels, (height, 2))[0, :, :, :1]
    else:
        levels = _interpolate(pixels, size)[0]
    return levels.round_().to(image.device)


def _interpolate(pixels: torch.Tensor, size: tuple[int, int]) -> torch.Tensor:
    return torch.nn.functional.interpolate(pixels, size, mode="bilinear", antialias=True)
