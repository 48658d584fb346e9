"""Do windows pay, or is it cheaper to decode the whole and cut? A part of `gpu.py`.

A decoder that is asked for a window writes less, and may skip what lies outside; but the JPEG
hardware of a GPU may take no windows, and then they are left to other cores. Each lane makes the
middle half (of both sides) of the same pictures, by the same batch backend: asked for that, or for
the whole, of which that part is copied.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from time import perf_counter, process_time
from typing import Any, NamedTuple

import torch
from gpu_clock import Clock
from gpu_race import middle, ratio

from fastdecode import _headers
from fastdecode.gpu import _backends
from fastdecode.gpu._backends import Loaded
from fastdecode.gpu._batch import Request, decode_items, release, request_of

_WHOLE, _WINDOW = "whole", "window"


class Turn(NamedTuple):
    """What a lane did in one round.

    Attributes
    ----------
    images : int
    seconds : float
    cpu : float
        Seconds, of all threads.
    refused : int
        Of the pictures.
    """

    images: int
    seconds: float
    cpu: float
    refused: int


def window_lanes(
    names: Sequence[str], files: Sequence[bytes], batch: int, clock: Clock
) -> dict[str, Any]:
    """List what can be measured: two lanes for each batch backend that takes windows."""
    lanes: dict[str, Any] = {}
    for name in names:
        loaded = _backends.load(name, clock.device)
        for way in (_WHOLE, _WINDOW):
            requests = _requests(loaded, files, windows=way == _WINDOW)
            if way == _WINDOW and all(request.item.window is None for request in requests):
                del lanes[f"{name}, {_WHOLE}"]
                continue
            batches = [requests[at : at + batch] for at in range(0, len(requests), batch)]
            lanes[f"{name}, {way}"] = partial(_run, loaded, batches, clock)
    return lanes


def _requests(loaded: Loaded, files: Sequence[bytes], *, windows: bool) -> list[Request]:
    """Ask for the middle of each that the batch backend declares."""
    requests = []
    for data in files:
        header = _headers.probe(data)
        x, y = header.width // 4, header.height // 4
        region = {"region": (x, y, header.width - x, header.height - y)}
        request = request_of(data, loaded.backend, region, windows=windows)
        if request is not None:
            requests.append(request)
    return requests


def _run(loaded: Loaded, batches: list[list[Request]], clock: Clock) -> Turn:
    """Make all parts once."""
    count = refused = 0
    clock.wait()
    cpu, start = process_time(), perf_counter()
    for requests in batches:
        images = decode_items(loaded, [request.item for request in requests], "RGB", clock.device)
        made = [image for image in images if image is not None]
        for image, request in zip(images, requests, strict=True):
            if image is not None:
                _part(image, request).clone(memory_format=torch.contiguous_format)
        release(loaded, made)
        count += len(images)
        refused += len(images) - len(made)
    clock.wait()
    return Turn(count, perf_counter() - start, process_time() - cpu, refused)


def _part(image: torch.Tensor, request: Request) -> torch.Tensor:
    if request.cut is None:
        return image
    left, top, right, bottom = request.cut
    return image[:, top:bottom, left:right]


def window_summary(turns: Mapping[str, Mapping[int, Turn]]) -> dict[str, Any]:
    """Sum up the rounds, by lane; each is compared with the same backend's whole pictures."""
    speeds = {
        name: {number: turn.images / turn.seconds for number, turn in rounds.items()}
        for name, rounds in turns.items()
    }
    return {
        name: {
            "images_per_s": middle(speeds[name], 1),
            "rounds": [round(speed, 1) for speed in speeds[name].values()],
            "to_whole": ratio(speeds[name], speeds.get(f"{name.partition(',')[0]}, {_WHOLE}", {})),
            "cpu_ms": middle({n: 1000 * one.cpu / one.images for n, one in rounds.items()}, 4),
            "refused": max(one.refused for one in rounds.values()),
        }
        for name, rounds in turns.items()
    }
