"""nvImageCodec: NVIDIA's decoders, with JPEG hardware if there is any, or libjpeg-turbo on the CPU.

Its package is ``nvidia-nvimgcodec-cu13``, or ``-cu12`` for a PyTorch that is built for CUDA 12. To
decode on a GPU it also needs nvJPEG, which the extra ``all`` of either package installs.
"""

from __future__ import annotations

import ctypes
import os
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from fastdecode._backends.base import JPEG, Backend, installed_version
from fastdecode._backends.batch_base import NVJPEG, BatchBackend, BatchItem, need_device, try_out
from fastdecode.errors import BackendUnavailable, DecodeError
from fastdecode.types import Buffer, Header, Image, PixelLayout

if TYPE_CHECKING:
    import torch

_VERBOSITY = "PYNVIMGCODEC_VERBOSITY"


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep nvImageCodec from writing to stderr: this package reports its errors itself.

    It reads the variable only when it is imported. A value that the caller set is kept.
    """
    mine = _VERBOSITY not in os.environ
    if mine:
        os.environ[_VERBOSITY] = "0"
    try:
        yield
    finally:
        if mine:
            del os.environ[_VERBOSITY]


with _quiet():
    # If it is missing, this form of import raises a ModuleNotFoundError, which names it.
    import nvidia.nvimgcodec as nvimgcodec  # noqa: PLR0402

if not hasattr(nvimgcodec, "NVIMGCODEC_DEVICE_CPU_ONLY"):
    raise BackendUnavailable(f"nvImageCodec {nvimgcodec.__version__} is too old: 0.9 is needed")

_DISTRIBUTIONS = ("nvidia-nvimgcodec-cu13", "nvidia-nvimgcodec-cu12")
# libjpeg-turbo upsamples like this by default; some versions of the GPU decoders do not.
_OPTIONS = ":fancy_upsampling=1"
_RELEASE_THRESHOLD = 4  # CU_MEMPOOL_ATTR_RELEASE_THRESHOLD of cuda.h
_KEPT = 1 << 30
"""In bytes: enough for the images of a few batches, and little of a GPU's memory."""
_PARAMS = {
    "RGB": nvimgcodec.DecodeParams(apply_exif_orientation=False),
    "L": nvimgcodec.DecodeParams(apply_exif_orientation=False, color_spec=nvimgcodec.GRAY),
}
# The hardware alone. nvImageCodec's hybrid decoder fills a JPEG that ended early with something
# like a picture, which nothing gives away (seen with 0.9 on an H100); and it reads the codes on the
# CPU, where this package's own path is the faster one.
_ON_GPU = (nvimgcodec.HW_GPU_ONLY,)


def _workers(threads: int) -> int:
    """Return how many threads to start in addition to the caller's.

    On a single core this is 0, which lets nvImageCodec choose: it complains about a number that
    leaves no core for the caller.
    """
    return max(1, threads - 1) if (os.cpu_count() or 1) > 1 else 0


def _cpu_decoder(threads: int) -> Any:
    return nvimgcodec.Decoder(
        device_id=nvimgcodec.NVIMGCODEC_DEVICE_CPU_ONLY,
        max_num_cpu_threads=_workers(threads),
        backends=[nvimgcodec.Backend(nvimgcodec.CPU_ONLY)],
        options=_OPTIONS,
    )


def _version() -> str:
    return installed_version(*_DISTRIBUTIONS) or str(nvimgcodec.__version__)


class Nvimgcodec(Backend):
    """JPEG on the CPU, with one decoder per thread: a decoder is not thread-safe.

    CMYK is not declared: nvImageCodec inverts it if there is no Adobe marker.
    """

    distribution = _DISTRIBUTIONS[0]
    # Its pixels on the CPU were found to be exact, but the same library also decodes on GPUs.
    exact = False
    supports = {"jpeg": (JPEG,)}

    def __init__(self) -> None:
        self._own = threading.local()

    def decode(self, data: Buffer, header: Header, *, layout: PixelLayout, **_: object) -> Image:
        decoder = getattr(self._own, "decoder", None)
        if decoder is None:
            decoder = self._own.decoder = _cpu_decoder(1)
        stream = nvimgcodec.CodeStream(np.frombuffer(data, np.uint8))
        made = decoder.decode(stream, params=_PARAMS[layout])
        if made is None:
            raise DecodeError("nvImageCodec refused it")
        image = np.asarray(made)
        return image[:, :, 0] if layout == "L" else image

    def version(self) -> str:
        return _version()


class NvimgcodecBatch(BatchBackend):
    """JPEG: on a GPU with its JPEG hardware (NVIDIA A100, H100 and later); else with libjpeg-turbo.

    On CUDA its images are ready in the order of the stream that it is given. But the hardware does
    not wait for that stream before it writes to memory that has been freed in its order.
    """

    distribution = _DISTRIBUTIONS[0]
    devices = frozenset({"cpu", "cuda"})
    supports = {"jpeg": (NVJPEG,)}

    def __init__(self, device: torch.device, threads: int) -> None:
        need_device(device)
        self._device = device
        if device.type == "cpu":
            rgb = replace(NVJPEG, colors=frozenset({"gray", "ycc", "rgb"}))
            self.supports = {"jpeg": (rgb,)}
            self._decoder = _cpu_decoder(threads)
        else:
            self._decoder = _gpu_decoder(device, threads)
        try:
            try_out(self)
        except BackendUnavailable as error:  # it returns None, and only logs the reason
            hint = (
                ""
                if device.type == "cpu"
                else "; is nvJPEG for this CUDA version installed, and has the GPU JPEG hardware?"
            )
            raise BackendUnavailable(f"{error}{hint}") from error

    def decode(
        self, items: Sequence[BatchItem], layout: Literal["RGB", "L"]
    ) -> Sequence[torch.Tensor | None]:
        streams = [nvimgcodec.CodeStream(np.frombuffer(item.data, np.uint8)) for item in items]
        decode = self._on_cpu if self._device.type == "cpu" else self._on_cuda
        return [None if made is None else made.permute(2, 0, 1) for made in decode(streams, layout)]

    def _on_cpu(self, streams: list[Any], layout: str) -> list[Any]:
        import torch

        # Not through DLPack: that asks the CUDA driver about the memory, even if there is none.
        made = self._decoder.decode(streams, params=_PARAMS[layout])
        return [None if image is None else torch.from_numpy(np.asarray(image)) for image in made]

    def _on_cuda(self, streams: list[Any], layout: str) -> list[Any]:
        import torch
        from torch.utils.dlpack import from_dlpack

        with torch.cuda.device(self._device):
            current = torch.cuda.current_stream().cuda_stream
            made = self._decoder.decode(streams, params=_PARAMS[layout], cuda_stream=current)
            # PyTorch passes its current stream to DLPack, so it waits for no other stream.
            return [None if image is None else from_dlpack(image) for image in made]

    def version(self) -> str:
        return _version()


def _gpu_decoder(device: torch.device, threads: int) -> Any:
    try:
        decoder = nvimgcodec.Decoder(
            device_id=device.index,
            max_num_cpu_threads=_workers(threads),
            backends=[nvimgcodec.Backend(kind) for kind in _ON_GPU],
            options=_OPTIONS,
        )
    except RuntimeError as error:
        raise BackendUnavailable(
            f"nvImageCodec has no decoder there, perhaps for want of JPEG hardware: {error}"
        ) from error
    _keep_memory(device)
    return decoder


def _keep_memory(device: torch.device) -> None:
    """Let CUDA's default memory pool keep some free memory, if it would keep none.

    nvImageCodec allocates each image from that pool (cudaMallocAsync). By default the driver
    releases the free memory whenever the program waits for the device, and maps it again for the
    next batch (CUDA Programming Guide, "Stream-Ordered Memory Allocator"). A threshold that other
    code set is kept.

    A failure only costs time, so it is not reported.
    """
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return
    pool, kept = ctypes.c_void_p(), ctypes.c_uint64()
    wanted = ctypes.c_uint64(_KEPT)
    ordinal = ctypes.c_int()
    if (
        driver.cuDeviceGet(ctypes.byref(ordinal), ctypes.c_int(device.index))
        or driver.cuDeviceGetDefaultMemPool(ctypes.byref(pool), ordinal)
        or driver.cuMemPoolGetAttribute(pool, _RELEASE_THRESHOLD, ctypes.byref(kept))
    ):
        return  # a device without memory pools
    if not kept.value:
        driver.cuMemPoolSetAttribute(pool, _RELEASE_THRESHOLD, ctypes.byref(wanted))
