"""The native core's part of a `Loader`'s work, without Python: for `limit.py` and `gil.py`."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from fastdecode import probe
from fastdecode.native import _library
from fastdecode.native._library import CoreResize
from fastdecode.torch._loader.order import Sharding
from fastdecode.torch.transforms._random_crop import generator_of
from fastdecode.torch.transforms.base import core_pixel_format

_RGB = _library.LAYOUTS["RGB"]
_SCRATCH_A_THREAD = 4  # images: threads do not collide, and all stay in the caches
_SLOTS = 256  # results: as many as the batches of a Loader hold


class EpochImage(NamedTuple):
    """One image of an epoch: its file, and how it is resized."""

    data: bytes
    size: tuple[int, int]  # width, height
    resize: CoreResize

    @property
    def window(self) -> tuple[int, int, int, int]:
        """The part that has to be decoded: left, top, right, bottom in reduced pixels."""
        of = self.resize
        made = (of.x, of.x + of.width), (of.y, of.y + of.height)
        readable = (of.in_left, of.in_right), (of.in_top, of.in_bottom)
        columns = _needed((of.left, of.right), readable[0], of.canvas_width, made[0])
        rows = _needed((of.top, of.bottom), readable[1], of.canvas_height, made[1])
        return columns[0], rows[0], columns[1], rows[1]


def _needed(
    box: tuple[float, float], readable: tuple[float, float], canvas: float, made: tuple[float, ...]
) -> tuple[int, int]:
    """Return the range of pixels along one side that the results `made` need.

    The filter reaches one pixel, or one result, to either side of a result's centre.
    """
    scale = (box[1] - box[0]) / canvas
    reach = max(1.0, scale)
    first = int(box[0] + (made[0] + 0.5) * scale - reach + 0.5)
    end = int(box[0] + (made[1] - 0.5) * scale + reach + 0.5)
    return max(int(readable[0]), first), min(int(readable[1]), end)


def images_of(loader: Any, epoch: int = 0) -> list[EpochImage]:
    """List the images that a `Loader` over an `ImageFolder` makes in an epoch, with its boxes."""
    samples, transform = loader.dataset.samples, loader.dataset.transform
    sharding = Sharding(len(samples), loader.batch_size, loader._shuffle, False, loader.seed)
    order = sharding.order(epoch)
    files: dict[Path, bytes] = {}
    found = []
    place: Any = order.last
    order.draw(sharding.batches(len(samples)))
    while (place := place.follows) is not None:
        for index, seed in order.items(place):
            path = Path(samples[index][0]).resolve()
            if path not in files:
                files[path] = path.read_bytes()
            data = files[path]
            header = probe(data)
            drawn = transform.draw(header.width, header.height, generator_of(seed))
            resize = transform.core_resize(drawn)
            if header.format != "jpeg" or resize is None:
                raise SystemExit(f"{path.name} cannot be made by the native core")
            found.append(EpochImage(data, (header.width, header.height), resize))
    return found


class Work:
    """An epoch for the C threads of a pool, in one call.

    `what` is "resized" (make the same tensors as the Loader, normalised by `normalize`), "regions"
    (only decode the same regions) or "whole" (decode whole images).
    """

    def __init__(
        self,
        images: Sequence[EpochImage],
        what: str,
        threads: int,
        normalize: Any = None,
    ) -> None:
        ffi, lib = _library.ffi, _library.lib
        self._pool = ffi.gc(lib.fd_pool_create(threads), lib.fd_pool_destroy)
        self._items = ffi.new("fd_item[]", len(images))
        self._pixels = core_pixel_format(normalize, channels_first=True, channels=3)
        self._kept = [ffi.from_buffer("uint8_t[]", image.data) for image in images]
        self.slots = torch.empty(0)
        if what == "resized":
            height, width = images[0].resize.height, images[0].resize.width
            self.slots = torch.empty((_SLOTS, 3, height, width))
        largest = max(3 * image.size[0] * image.size[1] for image in images)
        scratch = np.empty((_SCRATCH_A_THREAD * threads, largest), np.uint8)
        self._scratch = scratch
        for at, (item, image) in enumerate(zip(self._items, images, strict=True)):
            item.data, item.size = self._kept[at], len(image.data)
            item.wanted, item.request.reduce, item.request.layout = 1, 1, _RGB
            place = scratch[at % len(scratch)].ctypes.data
            if what == "resized":
                item.resized = 1
                fill(item, image.resize)
                place = self.slots[at % _SLOTS].data_ptr()
            elif what == "regions":
                request = item.request
                request.reduce = int(image.resize.reduce)
                request.left, request.top, request.right, request.bottom = image.window
                item.stride = 3 * (request.right - request.left)
            else:
                item.stride = 3 * image.size[0]
            item.out = ffi.cast("void *", place)

    def run(self, count: int | None = None) -> float:
        """Run all images, or the first `count`; return images/s."""
        count = len(self._items) if count is None else count
        start = time.perf_counter()
        _library.lib.fd_pool_decode(self._pool, self._items, count, self._pixels)
        seconds = time.perf_counter() - start
        for item in self._items[0:count]:
            if item.status:
                raise RuntimeError(_library.ffi.string(item.message).decode())
        return count / seconds


def fill(item: Any, wanted: CoreResize) -> None:
    """Write a resize into an ``fd_item``."""
    for name, value in wanted._asdict().items():
        setattr(item.request if name == "reduce" else item.resize, name, value)
