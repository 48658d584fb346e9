"""DALI, NVIDIA's data loading library, in its dynamic mode. It decodes with nvImageCodec."""

from __future__ import annotations

import os
import threading
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from itertools import compress
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from nvidia import nvimgcodec
from nvidia.dali import types

from fastdecode._backends.base import JPEG, Backend, installed_version
from fastdecode._backends.batch_base import NVJPEG, BatchBackend, BatchItem, need_device, try_out
from fastdecode.errors import BackendUnavailable
from fastdecode.types import Buffer, Header, Image, PixelLayout

if TYPE_CHECKING:
    import torch

_DISTRIBUTIONS = ("nvidia-dali-cuda130", "nvidia-dali-cuda120")
_TYPES = {"RGB": types.RGB, "L": types.GRAY}
# The same as for nvImageCodec, with which DALI decodes.
_ON_CPU = replace(NVJPEG, colors=frozenset({"gray", "ycc", "rgb"}))


def _version() -> str:
    return installed_version(*_DISTRIBUTIONS)


_owner = 0
"""The process that uses DALI; 0 before the first use."""


def _claim() -> None:
    """Raise in a child that was forked after the first use: there DALI would wait for ever."""
    global _owner
    _owner = _owner or os.getpid()
    if _owner != os.getpid():
        raise BackendUnavailable(
            "DALI does not work in a process forked after it was used: start processes with "
            "'spawn' or 'forkserver'"
        )


@cache
def _dynamic() -> Any:
    """Import the dynamic mode on first use: it imports PyTorch, which takes seconds."""
    try:
        from nvidia.dali.experimental import dynamic
    except ModuleNotFoundError as error:
        raise BackendUnavailable(f"DALI {_version()} has no dynamic mode: 2.0 is needed") from error
    return dynamic


def _cpu_context(threads: int) -> Any:
    with _dynamic().Device("cpu"):
        return _dynamic().EvalContext(num_threads=threads)


def _decode(encoded: Any, device: str, layout: str) -> Any:
    """Decode one image or a batch, in stored orientation."""
    return _dynamic().decoders.image(
        encoded,
        device=device,
        output_type=_TYPES[layout],
        adjust_orientation=False,
        jpeg_fancy_upsampling=True,
    )


class Dali(Backend):
    """JPEG on the CPU, with one context per thread: a context may not be active in several.

    CMYK is not declared: DALI inverts it if there is no Adobe marker.
    """

    distribution = _DISTRIBUTIONS[0]
    exact = False
    fork_safe = False  # a child does not inherit its threads
    supports = {"jpeg": (JPEG,)}

    def __init__(self) -> None:
        self._own = threading.local()

    def decode(self, data: Buffer, header: Header, *, layout: PixelLayout, **_: object) -> Image:
        _claim()
        context = getattr(self._own, "context", None)
        if context is None:
            context = self._own.context = _cpu_context(1)
        with context, _dynamic().EvalMode.sync_cpu:
            made = _decode(_dynamic().as_tensor(np.frombuffer(data, np.uint8)), "cpu", layout)
            image = np.asarray(made)
        return image[:, :, 0] if layout == "L" else image

    def version(self) -> str:
        return _version()


class DaliBatch(BatchBackend):
    """JPEG: on a GPU with its hardware, its kernels or the CPU's help; else with libjpeg-turbo.

    On CUDA it works on PyTorch's current stream, with one context per stream. Operators belong to a
    context, and creating one costs as much time as a batch. ``EvalMode.sync_full`` waits for the
    images, so the result does not depend on the order in which DALI's own threads work.
    """

    distribution = _DISTRIBUTIONS[0]
    devices = frozenset({"cpu", "cuda"})
    supports = {"jpeg": (NVJPEG,)}

    def __init__(self, device: torch.device, threads: int) -> None:
        need_device(device)
        _claim()
        self._device = device
        self._threads = threads
        self._contexts: dict[int, Any] = {}
        if device.type == "cpu":
            self.supports = {"jpeg": (_ON_CPU,)}
        try_out(self)

    def decode(
        self, items: Sequence[BatchItem], layout: Literal["RGB", "L"]
    ) -> Sequence[torch.Tensor | None]:
        readable = [_is_read(item) for item in items]
        images = iter(self._decode(list(compress(items, readable)), layout))
        return [next(images).permute(2, 0, 1) if there else None for there in readable]

    def _decode(self, items: Sequence[BatchItem], layout: str) -> list[torch.Tensor]:
        if not items:
            return []
        encoded = _dynamic().batch([np.frombuffer(item.data, np.uint8) for item in items])
        if self._device.type == "cpu":
            with self._context(0), _dynamic().EvalMode.sync_cpu:
                return [image.torch() for image in _decode(encoded, "cpu", layout)]
        import torch

        with torch.cuda.device(self._device):
            context = self._context(torch.cuda.current_stream().cuda_stream)
            with context, _dynamic().EvalMode.sync_full:
                return [image.torch() for image in _decode(encoded, "gpu", layout)]

    def _context(self, stream: int) -> Any:
        """Return the context for a CUDA stream, given its handle; PyTorch has a few dozen."""
        if stream not in self._contexts:
            if self._device.type == "cpu":
                context = _cpu_context(self._threads)
            else:
                import torch

                # With `num_threads`, each context would start that many threads of its own.
                first = next(iter(self._contexts.values()), None)
                threads: dict[str, Any] = (
                    {"thread_pool": first.thread_pool} if first else {"num_threads": self._threads}
                )
                context = _dynamic().EvalContext(
                    **threads,
                    device_id=self._device.index,
                    cuda_stream=torch.cuda.current_stream(self._device),
                )
            self._contexts[stream] = context
        return self._contexts[stream]

    def version(self) -> str:
        return _version()


def _is_read(item: BatchItem) -> bool:
    """Return whether nvImageCodec can read the header.

    Two unreadable headers in one batch end the process: DALI throws the second error where nothing
    catches it (2.4.0).
    """
    try:
        return bool(nvimgcodec.CodeStream(np.frombuffer(item.data, np.uint8)).width)
    except RuntimeError:
        return False
