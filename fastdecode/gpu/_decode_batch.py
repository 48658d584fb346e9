"""A batch on a device: most of it decoded there, the rest on the CPU, joined in order.

For the CPU as the device, images are resized and copied by NumPy and Pillow, in threads, and are
arrays until they are handed out. A thread that has once worked with PyTorch's own threads cannot
fork any more: its child would wait for them for ever.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
import torch
from PIL import Image as PillowImage

from fastdecode import _headers
from fastdecode._arrays import decode_arrays, in_threads, named
from fastdecode._buffers import as_buffer
from fastdecode._stats import count_fallback
from fastdecode.api import read_file
from fastdecode.errors import FastDecodeError
from fastdecode.gpu import _backends
from fastdecode.gpu._batch import Request, decode_items, release, request_of
from fastdecode.gpu._devices import device_of
from fastdecode.gpu._policy import CPU, Decode, choose
from fastdecode.gpu._resize import resized
from fastdecode.outages import is_the_items

if TYPE_CHECKING:
    from fastdecode.gpu._backends import Loaded
    from fastdecode.types import Box, Buffer, Header, Image

__all__ = ["decode_on"]

_MOST_FILES = 256
_MOST_PIXELS = 1 << 27
"""How much is decoded before it is resized, so that not all is there in full size at once."""


class _Job(NamedTuple):
    """What is the same for all images of a call."""

    device: torch.device
    options: dict[str, Any]
    threads: int
    cpu: str | None
    """The backend that the CPU path is to use."""
    loaded: Loaded | None
    """Who decodes on the device; None where only the CPU does."""
    size: tuple[int, int] | None

    @property
    def layout(self) -> Literal["RGB", "L"]:
        return "L" if self.options.get("mode") == "L" else "RGB"


class _Read(NamedTuple):
    """What is known of an item.

    `item` is what the caller gave; what is wrong with it is found where it is decoded. `data` is
    the whole file, or None if it cannot be had; so is `header`.
    """

    item: Any
    data: Buffer | None = None
    header: Header | None = None

    @property
    def source(self) -> Any:
        """What `decode` is to be given."""
        return self.item if self.data is None else self.data

    def told(self, error: Exception) -> Exception:
        """Say in an error which file it is of, as `decode_file` does."""
        is_path = isinstance(self.item, (str, os.PathLike))
        if is_path and self.data is not None and isinstance(error, FastDecodeError):
            error.args = (f"{os.fspath(self.item)}: {error.args[0]}", *error.args[1:])
        return error


def _read(item: Any) -> _Read:
    """Read a file, or take the bytes that are there, and look at the header."""
    try:
        is_path = isinstance(item, (str, os.PathLike))
        data = read_file(os.fspath(item)) if is_path else as_buffer(item)
    except (OSError, TypeError, ValueError):
        return _Read(item)
    try:
        return _Read(item, data, _headers.probe(data))
    except (FastDecodeError, ValueError):
        return _Read(item, data)


def decode_on(
    device: str | int | torch.device,
    items: Iterable[Any],
    options: dict[str, Any],
    *,
    size: tuple[int, int] | None,
    decode: Decode,
    threads: int,
    on_error: Literal["raise", "return"],
) -> list[Any] | torch.Tensor:
    """Decode a batch onto a device: what `decode_batch` does where it is given one.

    The options are checked. The result is a list of tensors, or one tensor if there is a size.
    """
    place = device_of(device)
    options = dict(options)
    choice = choose(place, decode, options.pop("backend", None))
    loaded = None if choice.batch is None else _backends.load(choice.batch, place)
    job = _Job(place, options, threads, choice.cpu, loaded, size)
    images: list[Any] = []
    for reads in _parts(job, list(items)):
        for image in _decoded(job, reads):
            if isinstance(image, Exception) and (on_error == "raise" or not is_the_items(image)):
                try:
                    raise named(image, len(images))
                finally:
                    del image  # its traceback leads here, and would keep the images
            images.append(image)
    if size is None or on_error == "return":
        return [image if isinstance(image, Exception) else _tensor_of(image) for image in images]
    return _stacked(images, (1 if job.layout == "L" else 3, *size), place)


def _parts(job: _Job, work: list[Any]) -> Iterator[list[_Read]]:
    """Read so many files, in order, as are decoded at once."""
    for start in range(0, len(work), _MOST_FILES):
        part: list[_Read] = []
        pixels = 0
        for one in in_threads(job.threads, _read, work[start : start + _MOST_FILES]):
            own = 0 if one.header is None else one.header.width * one.header.height
            if part and pixels + own > _MOST_PIXELS:
                yield part
                part, pixels = [], 0
            part.append(one)
            pixels += own
        yield part


def _decoded(job: _Job, reads: list[_Read]) -> list[Any]:
    """Decode, and resize if that is asked for: as `_on_device` gives it, or an error."""
    requests = [_request(job, one) for one in reads]
    asked = {at: request for at, request in enumerate(requests) if request is not None}
    apart = [at for at in range(len(reads)) if at not in asked]
    if job.loaded is None:
        return _by_cpu(job, reads)
    for at in apart:
        if reads[at].header is not None:
            count_fallback({job.loaded.name: "is not asked for such files"}, CPU)
    if not asked:
        return _by_cpu(job, reads)
    images: list[Any] = [None] * len(reads)
    # The CPU decodes its part while the device decodes the other.
    with ThreadPoolExecutor(1, thread_name_prefix="fastdecode-apart") as aside:
        arrays = aside.submit(_arrays, job, [reads[at] for at in apart])
        made = _by_device(job, job.loaded, list(asked.values()))
        _put(images, asked, made)
        _put(images, apart, _from_host(arrays.result(), job.device, job.size, job.threads))
    refused = [at for at, image in enumerate(images) if image is None]
    _put(images, refused, _by_cpu(job, [reads[at] for at in refused]))
    return images


def _request(job: _Job, one: _Read) -> Request | None:
    if job.loaded is None or one.data is None or one.header is None:
        return None
    return request_of(one.data, job.loaded.backend, job.options, header=one.header)


def _by_device(job: _Job, loaded: Loaded, requests: list[Request]) -> list[Any]:
    """Let the batch backend decode; None for what it refuses."""
    made = decode_items(loaded, [request.item for request in requests], job.layout, job.device)
    library = [image for image in made if image is not None]
    try:
        cut = [
            image if request.cut is None else _part_of(image, request.cut)
            for image, request in zip(made, requests, strict=True)
            if image is not None
        ]
        placed = iter(_on_device(cut, job.device, job.size, job.threads))
    finally:
        release(loaded, library)
    return [None if image is None else next(placed) for image in made]


def _part_of(image: torch.Tensor, box: Box) -> torch.Tensor:
    left, top, right, bottom = box
    return image[:, top:bottom, left:right]


def _by_cpu(job: _Job, reads: list[_Read]) -> list[Any]:
    return _from_host(_arrays(job, reads), job.device, job.size, job.threads)


def _arrays(job: _Job, reads: list[_Read]) -> list[Any]:
    """Decode on the CPU: arrays, or errors."""
    if not reads:
        return []
    options = {**job.options, "backend": job.cpu}
    work = [one.source for one in reads]
    made = decode_arrays(work, options, job.threads, on_error="return all")
    return [
        one.told(image) if isinstance(image, Exception) else image
        for one, image in zip(reads, made, strict=True)
    ]


def _put(images: list[Any], places: Iterable[int], made: Iterable[Any]) -> None:
    for at, image in zip(places, made, strict=True):
        images[at] = image


def _on_device(
    images: Sequence[torch.Tensor],
    device: torch.device,
    size: tuple[int, int] | None,
    threads: int,
) -> Sequence[Any]:
    """Copy and resize tensors (C, H, W) of a device, for their memory may be a library's.

    They come back contiguous: as arrays for the CPU, on which `threads` are used, else as tensors.
    """
    if device.type == "cpu":
        return _arrays_of([image.permute(1, 2, 0).numpy() for image in images], size, threads)
    if size is None:
        return [image.clone(memory_format=torch.contiguous_format) for image in images]
    return resized(images, size).unbind(0) if images else []


def _from_host(
    arrays: list[Any], device: torch.device, size: tuple[int, int] | None, threads: int
) -> list[Any]:
    """Bring arrays (H, W[, C]) to the device, as `_on_device` does; errors stay as they are."""
    good = [array for array in arrays if isinstance(array, np.ndarray)]
    placed: Sequence[Any]
    if device.type == "cpu":
        placed = _arrays_of(good, size, threads)
    else:
        placed = [_planes(image) for image in _copied(good, device, threads)]
        if size is not None and placed:
            placed = resized(placed, size).unbind(0)
    left = iter(placed)
    return [next(left) if isinstance(array, np.ndarray) else array for array in arrays]


def _tensor_of(image: Any) -> torch.Tensor:
    """Return what `_on_device` or `_from_host` gave as a tensor."""
    return image if isinstance(image, torch.Tensor) else torch.from_numpy(image)


def _stacked(
    images: Sequence[Any], shape: tuple[int, int, int], device: torch.device
) -> torch.Tensor:
    """Make one batch of images of that shape, (C, H, W)."""
    if device.type == "cpu":
        return torch.from_numpy(np.stack(images) if images else np.empty((0, *shape), np.uint8))
    if not images:
        return torch.empty((0, *shape), dtype=torch.uint8, device=device)
    return torch.stack(list(images))


def _arrays_of(
    arrays: Sequence[Image], size: tuple[int, int] | None, threads: int
) -> Sequence[Image]:
    return in_threads(threads, partial(_array_of, size=size), arrays)


def _array_of(array: Image, size: tuple[int, int] | None) -> Image:
    """Make (C, H, W) of (H, W, C) or (H, W)."""
    wide = array if array.ndim == 3 else array[:, :, None]
    if size is not None:
        flat = wide[:, :, 0] if wide.shape[2] == 1 else wide
        small = PillowImage.fromarray(np.ascontiguousarray(flat)).resize(
            (size[1], size[0]), PillowImage.Resampling.BILINEAR
        )
        wide = np.asarray(small).reshape(*size, -1)
    return np.array(wide.transpose(2, 0, 1), order="C")


def _copied(arrays: Sequence[Image], device: torch.device, threads: int) -> Sequence[torch.Tensor]:
    """Copy to a device that is not the CPU: to CUDA in one go, because each copy would wait."""
    host = [torch.from_numpy(array) for array in arrays]
    if device.type != "cuda" or not all(image.dtype == torch.uint8 for image in host):
        return [image.to(device) for image in host]
    sizes = [image.numel() for image in host]
    flat = torch.empty(sum(sizes), dtype=torch.uint8, device="cpu", pin_memory=True)
    in_threads(
        threads,
        lambda both: np.copyto(both[0].numpy(), both[1].reshape(-1)),
        list(zip(torch.split(flat, sizes), arrays, strict=True)),
    )
    there = torch.split(flat.to(device, non_blocking=True), sizes)
    return [part.view(image.shape) for part, image in zip(there, host, strict=True)]


def _planes(image: torch.Tensor) -> torch.Tensor:
    wide = image if image.ndim == 3 else image[:, :, None]
    return wide.permute(2, 0, 1).contiguous()
