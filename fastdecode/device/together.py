"""A batch on a device: most of it decoded there, the rest on the CPU, joined in order."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
import torch
from torch.nn.functional import interpolate

from fastdecode import batch_backends
from fastdecode.arrays import decode_arrays, in_threads, named
from fastdecode.device.ask import ask, hold
from fastdecode.device.choice import Choice, Decode, choose
from fastdecode.device.resize import resized
from fastdecode.device.routing import Request, request_of
from fastdecode.device.where import device_of

if TYPE_CHECKING:
    from fastdecode.types import Image

__all__ = ["decode_on"]


class _Job(NamedTuple):
    """What is the same for all pictures of a call."""

    device: torch.device
    options: dict[str, Any]
    threads: int
    choice: Choice
    lasting: bool
    """Whether the pictures are handed out as they are."""


def decode_on(
    device: str | int | torch.device,
    work: list[Any],
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
    work : list of bytes-like or path
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
    job = _Job(place, options, threads, choice, lasting=size is None)
    images, library = _images(job, work)
    if on_error == "raise":
        _raise_first(images)
    if size is None:
        return images
    good = [at for at, image in enumerate(images) if isinstance(image, torch.Tensor)]
    batch = _resized(job, [images[at] for at in good], size)
    hold(library, place)
    if on_error == "raise":
        return batch
    for row, at in enumerate(good):
        images[at] = batch[row]
    return images


def _images(job: _Job, work: list[Any]) -> tuple[list[Any], list[torch.Tensor]]:
    """Decode each as it is: (C, H, W), or an error; and what of it lies in a library's memory."""
    if job.choice.batch is None:
        return _by_cpu(job, work, range(len(work))), []
    loaded = batch_backends.load(job.choice.batch, job.device)
    requests = in_threads(
        job.threads, lambda source: request_of(source, loaded.backend, job.options), work
    )
    asked = [at for at, request in enumerate(requests) if request is not None]
    apart = [at for at, request in enumerate(requests) if request is None]
    images: list[Any] = [None] * len(work)
    # The CPU decodes its part while the device decodes the other.
    with ThreadPoolExecutor(1, thread_name_prefix="fastdecode-apart") as aside:
        arrays = aside.submit(_arrays, job, work, apart) if apart else None
        some = [request for request in requests if request is not None]
        made = ask(loaded, [request.item for request in some], _layout(job), job.device)
        _put(images, asked, [_cut(job, *both) for both in zip(made, some, strict=True)])
        if arrays is not None:
            _put(images, apart, _on_device(job, arrays.result()))
    refused = [at for at, image in zip(asked, made, strict=True) if image is None]
    _put(images, refused, _by_cpu(job, work, refused))
    library = [image for image in made if image is not None]
    if job.lasting:
        hold(library, job.device)
        library = []
    return images, library


def _cut(job: _Job, image: torch.Tensor | None, request: Request) -> torch.Tensor | None:
    """Cut out what is wanted; copy it if it is to last, because the memory may be the library's."""
    if image is None:
        return None
    if request.cut is not None:
        left, top, right, bottom = request.cut
        image = image[:, top:bottom, left:right]
    return image.clone(memory_format=torch.contiguous_format) if job.lasting else image


def _layout(job: _Job) -> Literal["RGB", "L"]:
    return "L" if job.options.get("mode") == "L" else "RGB"


def _resized(job: _Job, images: list[torch.Tensor], size: tuple[int, int]) -> torch.Tensor:
    if job.device.type != "cpu" and images:
        return resized(images, size)
    channels = 1 if _layout(job) == "L" else 3
    batch = torch.empty((len(images), channels, *size), dtype=torch.uint8, device=job.device)
    for row, image in zip(batch, images, strict=True):
        # Where there are no tensor cores, products with mostly zeros are slower than a filter.
        row.copy_(interpolate(image[None], size, mode="bilinear", antialias=True)[0])
    return batch


def _by_cpu(job: _Job, work: list[Any], places: Sequence[int]) -> list[Any]:
    """Decode some on the CPU, and copy them."""
    return _on_device(job, _arrays(job, work, places)) if places else []


def _arrays(job: _Job, work: list[Any], places: Sequence[int]) -> list[Any]:
    """Decode some on the CPU: arrays, or errors that say which item they are about."""
    options = {**job.options, "backend": job.choice.cpu}
    some = [work[at] for at in places]
    return decode_arrays(some, options, job.threads, on_error="return", places=places)


def _on_device(job: _Job, arrays: list[Any]) -> list[Any]:
    """Copy arrays (H, W, C) or (H, W) to the device, as (C, H, W); errors stay as they are."""
    places = [at for at, array in enumerate(arrays) if isinstance(array, np.ndarray)]
    good = [arrays[at] for at in places]
    host = [torch.from_numpy(array) for array in good]
    if job.device.type == "cpu":
        # By NumPy: PyTorch would start threads of its own in each of these.
        planes = in_threads(job.threads, _planes_of_array, good)
        laid = [torch.from_numpy(image) for image in planes]
    elif job.device.type == "cuda" and all(image.dtype == torch.uint8 for image in host):
        laid = [_planes(image) for image in _copied(job, host)]
    else:
        laid = [_planes(image.to(job.device)) for image in host]
    images = list(arrays)
    _put(images, places, laid)
    return images


def _copied(job: _Job, host: list[torch.Tensor]) -> list[torch.Tensor]:
    """Copy bytes to CUDA in one go: each copy from memory that is not pinned would wait."""
    sizes = [image.numel() for image in host]
    flat = torch.empty(sum(sizes), dtype=torch.uint8, device="cpu", pin_memory=True)
    in_threads(
        job.threads,
        lambda both: both[0].copy_(both[1].view(-1)),
        list(zip(torch.split(flat, sizes), host, strict=True)),
    )
    there = torch.split(flat.to(job.device, non_blocking=True), sizes)
    return [part.view(image.shape) for part, image in zip(there, host, strict=True)]


def _planes_of_array(image: Image) -> Image:
    wide = image if image.ndim == 3 else image[:, :, None]
    return np.ascontiguousarray(wide.transpose(2, 0, 1))


def _planes(image: torch.Tensor) -> torch.Tensor:
    wide = image if image.ndim == 3 else image[:, :, None]
    return wide.permute(2, 0, 1).contiguous()


def _put(images: list[Any], places: Sequence[int], made: Sequence[Any]) -> None:
    for at, image in zip(places, made, strict=True):
        images[at] = image


def _raise_first(images: list[Any]) -> None:
    for at, image in enumerate(images):
        if isinstance(image, BaseException):
            raise named(image, at)
