"""Requests to a batch backend, and checks of its images; the CPU decodes all others.

The decoder of a device does not report missing data: NVIDIA's hardware leaves there what its memory
held, which may be another photo. So a JPEG goes there only if the CPU has found all its codes. That
takes about two thirds of the time of decoding it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import torch

from fastdecode._backends.batch_base import BatchBackend, BatchItem, declares, is_of_the_device
from fastdecode._decode.api import decode
from fastdecode._decode.plan import plan_options
from fastdecode._decode.stats import count_fallback
from fastdecode._formats import jpeg_stream
from fastdecode.errors import FastDecodeError

if TYPE_CHECKING:
    from fastdecode.gpu._choice import Loaded
    from fastdecode.types import Box, Buffer, Header


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
    if (
        header.progressive
        or data[-2:] != jpeg_stream.EOI
        or not jpeg_stream.in_one_scan(data, header)
    ):
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
