"""A batch on a device: most of it decoded there, the rest on the CPU, joined in order."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import torch

from fastdecode import batch_backends
from fastdecode._arrays import decode_arrays, in_threads, named
from fastdecode._stats import count_fallback
from fastdecode.device.ask import ask, finish_with
from fastdecode.device.choice import CPU, Decode, choose
from fastdecode.device.placing import from_host, on_device, stacked, tensor_of
from fastdecode.device.reading import Read, read
from fastdecode.device.routing import Request, request_of
from fastdecode.device.where import device_of
from fastdecode.outages import is_the_items

if TYPE_CHECKING:
    from fastdecode.batch_backends import Loaded
    from fastdecode.types import Box

__all__ = ["decode_on"]

_MOST_FILES = 256
_MOST_PIXELS = 1 << 27
"""How much is decoded before it is resized, so that not all is there in full size at once."""


class _Job(NamedTuple):
    """What is the same for all pictures of a call."""

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

    Parameters
    ----------
    device : str, int or torch.device
    items : iterable of bytes-like or path
    options : dict
        Arguments of `decode`, checked.
    size : (height, width) or None
    decode : {"auto", "cpu", "gpu"}
    threads : int
    on_error : {"raise", "return"}

    Returns
    -------
    list of tensor, or tensor
        As from `decode_batch`.
    """
    place = device_of(device)
    options = dict(options)
    choice = choose(place, decode, options.pop("backend", None))
    loaded = None if choice.batch is None else batch_backends.load(choice.batch, place)
    job = _Job(place, options, threads, choice.cpu, loaded, size)
    images: list[Any] = []
    for reads in _parts(job, list(items)):
        for image in _decoded(job, reads):
            if isinstance(image, Exception) and (on_error == "raise" or not is_the_items(image)):
                try:
                    raise named(image, len(images))
                finally:
                    del image  # its traceback leads here, and would keep the pictures
            images.append(image)
    if size is None or on_error == "return":
        return [image if isinstance(image, Exception) else tensor_of(image) for image in images]
    return stacked(images, (1 if job.layout == "L" else 3, *size), place)


def _parts(job: _Job, work: list[Any]) -> Iterator[list[Read]]:
    """Read so many files, in order, as are decoded at once."""
    for start in range(0, len(work), _MOST_FILES):
        part: list[Read] = []
        pixels = 0
        for one in in_threads(job.threads, read, work[start : start + _MOST_FILES]):
            own = 0 if one.header is None else one.header.width * one.header.height
            if part and pixels + own > _MOST_PIXELS:
                yield part
                part, pixels = [], 0
            part.append(one)
            pixels += own
        yield part


def _decoded(job: _Job, reads: list[Read]) -> list[Any]:
    """Decode, and resize if that is asked for: as `on_device` gives it, or an error."""
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
        _put(images, apart, from_host(arrays.result(), job.device, job.size, job.threads))
    refused = [at for at, image in enumerate(images) if image is None]
    _put(images, refused, _by_cpu(job, [reads[at] for at in refused]))
    return images


def _request(job: _Job, one: Read) -> Request | None:
    if job.loaded is None or one.data is None or one.header is None:
        return None
    return request_of(one.data, job.loaded.backend, job.options, header=one.header)


def _by_device(job: _Job, loaded: Loaded, requests: list[Request]) -> list[Any]:
    """Let the batch backend decode; None for what it refuses."""
    made = ask(loaded, [request.item for request in requests], job.layout, job.device)
    library = [image for image in made if image is not None]
    try:
        cut = [
            image if request.cut is None else _part_of(image, request.cut)
            for image, request in zip(made, requests, strict=True)
            if image is not None
        ]
        placed = iter(on_device(cut, job.device, job.size, job.threads))
    finally:
        finish_with(loaded, library)
    return [None if image is None else next(placed) for image in made]


def _part_of(image: torch.Tensor, box: Box) -> torch.Tensor:
    left, top, right, bottom = box
    return image[:, top:bottom, left:right]


def _by_cpu(job: _Job, reads: list[Read]) -> list[Any]:
    return from_host(_arrays(job, reads), job.device, job.size, job.threads)


def _arrays(job: _Job, reads: list[Read]) -> list[Any]:
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
