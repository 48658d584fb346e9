"""`decode_batch` on a device: the device and the CPU decode their parts, joined in order.

The CPU's part runs no operation of PyTorch in its threads: a process that has done so cannot fork
any more, because the child would wait for PyTorch's own threads for ever.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
import torch

from fastdecode import _headers
from fastdecode._arrays import decode_arrays, map_in_threads, name_item
from fastdecode._error_policy import is_item_error
from fastdecode._stats import count_fallback
from fastdecode.api import read_item
from fastdecode.errors import FastDecodeError
from fastdecode.gpu._backends import choose
from fastdecode.gpu._batch import Request, decode_requests, make_request
from fastdecode.gpu._devices import check_device
from fastdecode.gpu._resize import resize_into

if TYPE_CHECKING:
    from fastdecode.gpu._backends import Loaded
    from fastdecode.types import Buffer, Header

_MAX_FILES = 256
_MAX_PIXELS = 1 << 27
"""The most files and pixels to decode before resizing, so that full-size images do not pile up."""

_Read = tuple["Buffer", "Header"]


class _DeviceCall(NamedTuple):
    """The arguments of one call, which are the same for all images."""

    device: torch.device
    options: dict[str, Any]
    threads: int
    size: tuple[int, int] | None

    @property
    def layout(self) -> Literal["RGB", "L"]:
        return "L" if self.options.get("mode") == "L" else "RGB"


def decode_on(
    device: str | int | torch.device,
    items: Iterable[Any],
    options: dict[str, Any],
    *,
    size: tuple[int, int] | None,
    decode: str,
    threads: int,
    on_error: Literal["raise", "return"],
) -> list[Any] | torch.Tensor:
    """Decode a batch onto a device, for `decode_batch`. The options are already checked.

    Return one tensor if there is a size and `on_error` is ``"raise"``; else a list of tensors, and
    of errors with ``"return"``.
    """
    place = check_device(device)
    loaded = choose(place, decode)
    job = _DeviceCall(place, options, threads, size)
    work = list(items)
    if loaded is None:
        images = _to_device(job, _decode_to_arrays(job, work, on_error))
    else:
        images = _decode_by_device(job, loaded, work, on_error)
    if size is None or on_error == "return":
        return images
    if not images:
        shape = (0, 1 if job.layout == "L" else 3, *size)
        return torch.empty(shape, dtype=torch.uint8, device=place)
    if place.type == "cpu":
        return torch.from_numpy(np.stack([image.numpy() for image in images]))
    return torch.stack(images)


def _decode_by_device(
    job: _DeviceCall, loaded: Loaded, work: list[Any], on_error: Literal["raise", "return"]
) -> list[Any]:
    """Return a contiguous tensor (C, H, W) for each item, or its error."""
    images: list[Any] = []
    for reads in _parts(job, work):
        items = work[len(images) : len(images) + len(reads)]
        for image in _decode_part(job, loaded, items, reads):
            if isinstance(image, Exception) and (on_error == "raise" or not is_item_error(image)):
                try:
                    raise name_item(image, len(images))
                finally:
                    del image  # its traceback refers to this frame, and would keep the images
            images.append(image)
    return images


def _parts(job: _DeviceCall, work: list[Any]) -> Iterator[list[_Read | None]]:
    """Read the files in order, and yield them in parts that are decoded at once."""
    for start in range(0, len(work), _MAX_FILES):
        part: list[_Read | None] = []
        pixels = 0
        for read in map_in_threads(job.threads, _read, work[start : start + _MAX_FILES]):
            own = 0 if read is None else read[1].width * read[1].height
            if part and pixels + own > _MAX_PIXELS:
                yield part
                part, pixels = [], 0
            part.append(read)
            pixels += own
        yield part


def _read(item: Any) -> _Read | None:
    """Return the bytes of an item and their header; None if the CPU must raise the error."""
    try:
        data = read_item(item)
        return data, _headers.probe(data)
    except (FastDecodeError, OSError, TypeError, ValueError):
        return None


def _decode_part(
    job: _DeviceCall, loaded: Loaded, items: list[Any], reads: list[_Read | None]
) -> list[Any]:
    requests: dict[int, Request] = {}
    for at, read in enumerate(reads):
        request = None if read is None else make_request(*read, loaded.backend, job.options)
        if request is not None:
            requests[at] = request
        elif read is not None:
            count_fallback({loaded.name: "is not used for such files"}, "cpu")
    apart = [at for at in range(len(items)) if at not in requests]
    # The CPU decodes its part while the device decodes the other.
    with ThreadPoolExecutor(1, thread_name_prefix="fastdecode-apart") as aside:
        arrays = aside.submit(_decode_to_arrays, job, [items[at] for at in apart])
        with decode_requests(loaded, list(requests.values()), job.layout, job.device) as made:
            images = dict(zip(requests, [_finish(job, image) for image in made], strict=True))
        images.update(zip(apart, _to_device(job, arrays.result()), strict=True))
    refused = [at for at, image in images.items() if image is None]
    again = _to_device(job, _decode_to_arrays(job, [items[at] for at in refused]))
    images.update(zip(refused, again, strict=True))
    return [images[at] for at in range(len(items))]


def _finish(job: _DeviceCall, image: torch.Tensor | None) -> torch.Tensor | None:
    """Copy or resize an image (C, H, W), whose memory may be the library's."""
    if image is None or job.size is None:
        return None if image is None else image.clone(memory_format=torch.contiguous_format)
    out = torch.empty((len(image), *job.size), dtype=torch.uint8, device=image.device)
    resize_into(out, image)
    return out


def _decode_to_arrays(
    job: _DeviceCall,
    items: list[Any],
    on_error: Literal["raise", "return", "return all"] = "return all",
) -> list[Any]:
    """Decode on the CPU, and resize if there is a size: arrays (H, W[, C]), or errors."""
    if job.size is None:
        return decode_arrays(items, job.options, job.threads, on_error=on_error)
    channels = () if job.layout == "L" else (3,)
    room = np.empty((len(items), *job.size, *channels), np.uint8)
    return decode_arrays(
        items, job.options, job.threads, on_error=on_error, targets=room, size=job.size
    )


def _to_device(job: _DeviceCall, made: list[Any]) -> list[Any]:
    """Return arrays (H, W[, C]) as tensors (C, H, W) on the device; errors stay as they are.

    On the CPU, without a size, the tensors are views of the arrays. All others are contiguous.
    """
    places = [at for at, image in enumerate(made) if isinstance(image, np.ndarray)]
    host = [torch.from_numpy(made[at]) for at in places]
    tensors = [
        (image if image.ndim == 3 else image[:, :, None]).permute(2, 0, 1)
        for image in (host if job.device.type == "cpu" else _copy(job, host))
    ]
    if job.device.type != "cpu":
        tensors = [image.clone(memory_format=torch.contiguous_format) for image in tensors]
    elif job.size is not None:
        tensors = map_in_threads(job.threads, _contiguous, tensors)
    images = list(made)
    for at, tensor in zip(places, tensors, strict=True):
        images[at] = tensor
    return images


def _contiguous(image: torch.Tensor) -> torch.Tensor:
    return torch.from_numpy(np.ascontiguousarray(image.numpy()))


def _copy(job: _DeviceCall, host: list[torch.Tensor]) -> list[torch.Tensor]:
    """Copy images to a device; bytes to CUDA in one transfer, because each transfer waits."""
    if job.device.type != "cuda" or any(image.dtype != torch.uint8 for image in host):
        return [image.to(job.device) for image in host]
    sizes = [image.numel() for image in host]
    flat = torch.empty(sum(sizes), dtype=torch.uint8, device="cpu", pin_memory=True)
    map_in_threads(
        job.threads,
        lambda pair: np.copyto(pair[0].numpy(), pair[1].numpy().reshape(-1)),
        zip(torch.split(flat, sizes), host, strict=True),
    )
    there = torch.split(flat.to(job.device, non_blocking=True), sizes)
    return [part.view(image.shape) for part, image in zip(there, host, strict=True)]
