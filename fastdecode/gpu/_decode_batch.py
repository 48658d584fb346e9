"""`decode_batch` on a device: the device and the CPU decode their parts, joined in order.

If the device is the CPU, NumPy and Pillow resize the images in threads, and the images are
arrays until they are returned. A thread that has run an operation in PyTorch's own threads cannot
fork any more: its child would wait for those threads for ever.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
import torch

from fastdecode import _headers
from fastdecode._arrays import decode_arrays, map_in_threads, name_item
from fastdecode._buffers import as_buffer
from fastdecode._error_policy import is_item_error
from fastdecode._resizing import resize
from fastdecode._stats import count_fallback
from fastdecode.api import read_file
from fastdecode.errors import FastDecodeError
from fastdecode.gpu import _backends
from fastdecode.gpu._batch import Request, decode_requests, make_request
from fastdecode.gpu._devices import check_device
from fastdecode.gpu._policy import Decode, choose
from fastdecode.gpu._resize import resize_into
from fastdecode.ranking import CPU

if TYPE_CHECKING:
    from fastdecode.gpu._backends import Loaded
    from fastdecode.types import Buffer, Header, Image

_MAX_FILES = 256
_MAX_PIXELS = 1 << 27
"""The most files and pixels to decode before resizing, so that full-size images do not pile up."""


class _Job(NamedTuple):
    """The arguments of one call, which are the same for all images."""

    device: torch.device
    options: dict[str, Any]
    threads: int
    cpu: str | None
    """The backend of the CPU path; None for the fastest."""
    loaded: Loaded | None
    """The batch backend that decodes on the device; None if only the CPU decodes."""
    size: tuple[int, int] | None

    @property
    def layout(self) -> Literal["RGB", "L"]:
        return "L" if self.options.get("mode") == "L" else "RGB"


class _Read(NamedTuple):
    """An item with its bytes and its header.

    `item` is what the caller passed. `data` is the whole file. If the file or its header cannot be
    read, `data` or `header` is None, and decoding the item raises the error.
    """

    item: Any
    data: Buffer | None = None
    header: Header | None = None

    @property
    def source(self) -> Any:
        """The argument for `decode`."""
        return self.item if self.data is None else self.data

    def name_file(self, error: Exception) -> Exception:
        """Add the file name to the message of an error, as `decode_file` does."""
        is_path = isinstance(self.item, (str, os.PathLike))
        if is_path and self.data is not None and isinstance(error, FastDecodeError):
            error.args = (f"{os.fspath(self.item)}: {error.args[0]}", *error.args[1:])
        return error


def _read(item: Any) -> _Read:
    """Read the file, unless the item already is its bytes, and read the header."""
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
    """Decode a batch onto a device, for `decode_batch`. The options are already checked.

    Return one tensor if there is a size and `on_error` is ``"raise"``; else a list of tensors, and
    of errors with ``"return"``.
    """
    place = check_device(device)
    options = dict(options)
    choice = choose(place, decode, options.pop("backend", None))
    loaded = None if choice.batch is None else _backends.load(choice.batch, place)
    job = _Job(place, options, threads, choice.cpu, loaded, size)
    images: list[Any] = []
    for reads in _parts(job, list(items)):
        for image in _decode(job, reads):
            if isinstance(image, Exception) and (on_error == "raise" or not is_item_error(image)):
                try:
                    raise name_item(image, len(images))
                finally:
                    del image  # its traceback refers to this frame, and would keep the images
            images.append(image)
    if size is None or on_error == "return":
        return images
    if not images:
        shape = (0, 1 if job.layout == "L" else 3, *size)
        return torch.empty(shape, dtype=torch.uint8, device=place)
    if place.type == "cpu":
        return torch.from_numpy(np.stack([image.numpy() for image in images]))
    return torch.stack(images)


def _parts(job: _Job, work: list[Any]) -> Iterator[list[_Read]]:
    """Read the files in order, and yield them in parts that are decoded at once."""
    for start in range(0, len(work), _MAX_FILES):
        part: list[_Read] = []
        pixels = 0
        for one in map_in_threads(job.threads, _read, work[start : start + _MAX_FILES]):
            own = 0 if one.header is None else one.header.width * one.header.height
            if part and pixels + own > _MAX_PIXELS:
                yield part
                part, pixels = [], 0
            part.append(one)
            pixels += own
        yield part


def _decode(job: _Job, reads: list[_Read]) -> list[Any]:
    """Decode, and resize if there is a size: tensors (C, H, W), or errors."""
    asked = {} if job.loaded is None else _requests(job.loaded, job.options, reads)
    if job.loaded is None or not asked:
        return _decode_on_cpu(job, reads)
    apart = [at for at in range(len(reads)) if at not in asked]
    images: dict[int, Any] = {}
    # The CPU decodes its part while the device decodes the other.
    with ThreadPoolExecutor(1, thread_name_prefix="fastdecode-apart") as aside:
        arrays = aside.submit(_decode_to_arrays, job, [reads[at] for at in apart])
        with decode_requests(job.loaded, list(asked.values()), job.layout, job.device) as made:
            images.update(zip(asked, _finish(job, made), strict=True))
        images.update(zip(apart, _move_to_device(job, arrays.result()), strict=True))
    refused = [at for at, image in images.items() if image is None]
    images.update(zip(refused, _decode_on_cpu(job, [reads[at] for at in refused]), strict=True))
    return [images[at] for at in range(len(reads))]


def _requests(loaded: Loaded, options: dict[str, Any], reads: list[_Read]) -> dict[int, Request]:
    """Return the requests to the batch backend; count all other readable files as fallbacks."""
    asked = {}
    for at, one in enumerate(reads):
        if one.data is None or one.header is None:
            continue
        request = make_request(one.data, one.header, loaded.backend, options)
        if request is None:
            count_fallback({loaded.name: "is not used for such files"}, CPU)
        else:
            asked[at] = request
    return asked


def _decode_on_cpu(job: _Job, reads: list[_Read]) -> list[Any]:
    return _move_to_device(job, _decode_to_arrays(job, reads))


def _decode_to_arrays(job: _Job, reads: list[_Read]) -> list[Any]:
    """Decode on the CPU: arrays, or errors."""
    if not reads:
        return []
    options = {**job.options, "backend": job.cpu}
    work = [one.source for one in reads]
    made = decode_arrays(work, options, job.threads, on_error="return all")
    return [
        one.name_file(image) if isinstance(image, Exception) else image
        for one, image in zip(reads, made, strict=True)
    ]


def _move_to_device(job: _Job, made: list[Any]) -> list[Any]:
    """Move arrays (H, W[, C]) to the device, and resize them; errors stay as they are.

    On the CPU, without a size, the tensors are views of the arrays.
    """
    if job.device.type != "cuda":
        done = [_as_planes(one) for one in made]
        if job.size is not None:
            done = map_in_threads(job.threads, partial(_resize_on_host, size=job.size), done)
        return [one.to(job.device) if isinstance(one, torch.Tensor) else one for one in done]
    places = [at for at, one in enumerate(made) if isinstance(one, np.ndarray)]
    images = list(made)
    for at, there in zip(places, _copy_to_cuda(job, [made[at] for at in places]), strict=True):
        images[at] = _as_planes(there)
    return _finish(job, images)


def _as_planes(image: Any) -> Any:
    """View an array or tensor (H, W[, C]) as a tensor (C, H, W); return anything else as it is."""
    if isinstance(image, np.ndarray):
        image = torch.from_numpy(image)
    if not isinstance(image, torch.Tensor):
        return image
    return (image if image.ndim == 3 else image[:, :, None]).permute(2, 0, 1)


def _copy_to_cuda(job: _Job, arrays: list[Image]) -> Sequence[torch.Tensor]:
    """Copy to CUDA with one transfer, because each transfer waits."""
    host = [torch.from_numpy(array) for array in arrays]
    if not all(image.dtype == torch.uint8 for image in host):
        return [image.to(job.device) for image in host]
    sizes = [image.numel() for image in host]
    flat = torch.empty(sum(sizes), dtype=torch.uint8, device="cpu", pin_memory=True)
    map_in_threads(
        job.threads,
        lambda both: np.copyto(both[0].numpy(), both[1].reshape(-1)),
        zip(torch.split(flat, sizes), arrays, strict=True),
    )
    there = torch.split(flat.to(job.device, non_blocking=True), sizes)
    return [part.view(image.shape) for part, image in zip(there, host, strict=True)]


def _finish(job: _Job, images: Sequence[Any]) -> list[Any]:
    """Copy or resize tensors (C, H, W), whose memory may be a library's; the rest stays."""
    if job.device.type == "cpu":
        return map_in_threads(job.threads, partial(_resize_on_host, size=job.size), images)
    return [
        _resize_on_device(image, job.size) if isinstance(image, torch.Tensor) else image
        for image in images
    ]


def _resize_on_device(image: torch.Tensor, size: tuple[int, int] | None) -> torch.Tensor:
    if size is None:
        return image.clone(memory_format=torch.contiguous_format)
    out = torch.empty((len(image), *size), dtype=torch.uint8, device=image.device)
    resize_into(out, image)
    return out


def _resize_on_host(image: Any, size: tuple[int, int] | None) -> Any:
    if not isinstance(image, torch.Tensor):
        return image
    array = image.numpy()
    if size is not None:
        last = array.transpose(1, 2, 0)
        flat = np.ascontiguousarray(last if len(array) > 1 else last[:, :, 0])
        array = resize(flat, size).reshape(*size, -1).transpose(2, 0, 1)
    return torch.from_numpy(np.array(array, order="C"))
