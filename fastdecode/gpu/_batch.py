"""What a batch backend is asked for, so that one bad image costs only itself; the CPU has the rest.

A device's decoder does not say that data was missing. A JPEG goes there only if its end marker
stands where its one scan ends, which `decode`, too, takes for whole at once; and afterwards the end
of its pixels is looked at.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import torch

from fastdecode._headers import jpeg_stream
from fastdecode._stats import count_fallback
from fastdecode._truncation import is_filling
from fastdecode.adapters.batch_base import BatchBackend, BatchItem, is_of_the_device
from fastdecode.errors import FastDecodeError
from fastdecode.plan import plan_options

if TYPE_CHECKING:
    from fastdecode.adapters.base import Support
    from fastdecode.gpu._backends import Loaded
    from fastdecode.types import Box, Buffer, Header

_BLOCK = 8


class Request(NamedTuple):
    """What a batch backend is asked for one image, and what is to be cut out of what it gives."""

    item: BatchItem
    cut: Box | None


def request_of(
    data: Buffer,
    header: Header,
    backend: BatchBackend,
    options: dict[str, Any],
    *,
    windows: bool = True,
) -> Request | None:
    """Ask a batch backend for an image, if it is one that the backend may be asked for.

    `options` are arguments of `decode`, checked. With `windows` only a region is asked for, where
    the backend can decode that; else it is cut out of the whole.

    It is None where the CPU has to decode: for what the backend does not declare, for damaged or
    odd files, of which only the CPU path can say what is missing, and for all that is wrong, which
    is an error there.
    """
    mode = options.get("mode", "RGB")
    if mode not in ("RGB", "L") or options.get("strict"):
        return None
    try:
        support = _support_for(backend, data, header, mode)
        reduce, window, orientation = plan_options(header, options)
        if support is None or (reduce, orientation) != (1, 1):
            return None
    except (FastDecodeError, TypeError, ValueError):
        return None
    if windows and support.region:
        return Request(BatchItem(data, header, window), None)
    return Request(BatchItem(data, header, None), window)


def _support_for(
    backend: BatchBackend, data: Buffer, header: Header, layout: str
) -> Support | None:
    """Return the declaration by which a whole file may be decoded; None if there is none."""
    if header.format == "jpeg" and not _is_whole(data, header):
        return None
    for support in backend.supports.get(header.format, ()):
        if layout in support.layouts and not support.refusal(header):
            return support
    return None


def _is_whole(data: Buffer, header: Header) -> bool:
    return (
        not header.progressive
        and data[-2:] == jpeg_stream.EOI
        and jpeg_stream.in_one_scan(data, header)
        and (not header.restart_interval or jpeg_stream.restarts_in_order(data, header))
    )


@contextmanager
def decoding(
    loaded: Loaded, requests: Sequence[Request], layout: Literal["RGB", "L"], device: torch.device
) -> Iterator[list[torch.Tensor | None]]:
    """Let a batch backend decode, on its device. What it refuses counts as a fallback to the CPU.

    Within the block there are images (C, H, W), uint8, on the device, with any strides, in the
    order of the current stream; None for what it refused, what is not of the form that was asked
    for, and a JPEG whose data may have ended early. They may lie in the library's memory: what is
    to last is copied within the block, on that stream.

    It is a RuntimeError if the device itself fails: what is asked of it later would fail, too.
    """
    items = [request.item for request in requests]
    with loaded.lock:
        made, refused = _asked(loaded, items, layout)
    for at, image in enumerate(made):
        if image is not None and (wrong := _wrong(image, items[at], layout, device)):
            made[at], refused[at] = None, wrong
    whole = [at for at, image in enumerate(made) if image is not None]
    some = [image for image in made if image is not None]
    for at, suspicious in zip(whole, _suspect(some, [items[at] for at in whole]), strict=True):
        if suspicious:
            made[at], refused[at] = None, "its end looks filled in, which the CPU can tell"
    for reason in refused.values():
        count_fallback({loaded.name: reason}, "cpu")
    try:
        yield [
            image if image is None or cut is None else image[:, cut[1] : cut[3], cut[0] : cut[2]]
            for image, (_, cut) in zip(made, requests, strict=True)
        ]
    finally:
        # Where the library may use its memory again while the current stream still reads it, that
        # is waited for. Such libraries wait for the device themselves, so this costs little more.
        if whole and loaded.device.type == "cuda" and not loaded.backend.frees_in_order:
            torch.cuda.current_stream(loaded.device).synchronize()


def _asked(
    loaded: Loaded, items: Sequence[BatchItem], layout: Literal["RGB", "L"]
) -> tuple[list[torch.Tensor | None], dict[int, str]]:
    """Ask for all; where the library gives up as a whole, for either half."""
    if not items:
        return [], {}
    try:
        made = list(loaded.backend.decode(items, layout))
        if len(made) != len(items):
            raise ValueError(f"gave {len(made)} images for {len(items)}")  # noqa: TRY301
    except Exception as error:  # the edge of the package: libraries raise whatever they like
        if is_of_the_device(error):
            raise
        if len(items) == 1:
            return [None], {0: f"{type(error).__name__}: {error}"}
        half = len(items) // 2
        first, refused = _asked(loaded, items[:half], layout)
        second, more = _asked(loaded, items[half:], layout)
        return first + second, {**refused, **{half + at: reason for at, reason in more.items()}}
    return made, {at: "refused it" for at, image in enumerate(made) if image is None}


def _wrong(image: Any, item: BatchItem, layout: str, device: torch.device) -> str:
    """Say what is wrong with an image's form; nothing if it is right."""
    shape = item.shape(layout)
    if not isinstance(image, torch.Tensor):
        return f"gave no tensor but {type(image).__name__}"
    if tuple(image.shape) != shape or image.dtype != torch.uint8 or image.device != device:
        return (
            f"gave {tuple(image.shape)} of {image.dtype} on {image.device}, not {shape} of "
            f"torch.uint8 on {device}"
        )
    return ""


def _suspect(images: Sequence[torch.Tensor], items: Sequence[BatchItem]) -> list[bool]:
    """Look at the end of each JPEG, as `decode` does where a library does not report damage.

    Suspect is one whose last decoded block has the one grey that a decoder puts where it has no
    data. Of honest photos that is one in hundreds; they are decoded once more, on the CPU.

    On CUDA this waits until the images are decoded: a file whose data ends early is known only
    then. Only corners of the block are looked at, all of them by one launch.
    """
    if not images:
        return []
    corners = [_corners(image, item) for image, item in zip(images, items, strict=True)]
    pixels = torch.stack(corners).flatten(2).transpose(1, 2).tolist()
    return [
        item.header.format == "jpeg" and all(map(is_filling, some))
        for some, item in zip(pixels, items, strict=True)
    ]


def _corners(image: torch.Tensor, item: BatchItem) -> torch.Tensor:
    """Return the corners of what the image shows of its last block: (C, 2, 2), a view."""
    _, _, right, bottom = item.window or (0, 0, item.header.width, item.header.height)
    down = min((bottom - 1) % _BLOCK, image.shape[1] - 1)
    across = min((right - 1) % _BLOCK, image.shape[2] - 1)
    # Of a block that shows but one row or column, that one twice.
    return image[:, -1 - down :: down or 1, -1 - across :: across or 1].expand(-1, 2, 2)
