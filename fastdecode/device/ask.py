"""Asking a batch backend, so that one bad picture costs only itself."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import torch

from fastdecode._stats import count_fallback
from fastdecode.adapters.batch_base import BatchItem, is_of_the_device
from fastdecode.batch_backends import Loaded
from fastdecode.device.doubt import doubtful

__all__ = ["ask", "finish_with"]


def ask(
    loaded: Loaded, items: Sequence[BatchItem], layout: Literal["RGB", "L"], device: torch.device
) -> list[torch.Tensor | None]:
    """Let a batch backend decode. What it refuses is counted as a fallback to the CPU.

    Parameters
    ----------
    loaded : Loaded
    items : sequence of BatchItem
    layout : {"RGB", "L"}
    device : torch.device
        That of `loaded`.

    Returns
    -------
    list of tensor or None
        (C, H, W) uint8 on the device, any strides, in the order of the current stream; None for
        what it refused, what is not of the form that was asked for, and a JPEG whose data may have
        ended early. They may lie in the library's memory: copy what is to last, and call
        `finish_with` before you let go of them.

    Raises
    ------
    RuntimeError
        If the device itself fails: what is asked of it later would fail, too.
    """
    with loaded.lock:
        made, refused = _ask(loaded, items, layout)
    for at, image in enumerate(made):
        if image is not None and (wrong := _wrong(image, items[at], layout, device)):
            made[at], refused[at] = None, wrong
    whole = [at for at, image in enumerate(made) if image is not None]
    some = [image for image in made if image is not None]
    for at, doubt in zip(whole, doubtful(some, [items[at] for at in whole]), strict=True):
        if doubt:
            made[at], refused[at] = None, "its end looks filled in, which the CPU can tell"
    for reason in refused.values():
        count_fallback({loaded.name: reason}, "cpu")
    return made


def _ask(
    loaded: Loaded, items: Sequence[BatchItem], layout: Literal["RGB", "L"]
) -> tuple[list[torch.Tensor | None], dict[int, str]]:
    """Ask for all; where the library gives up as a whole, for either half."""
    if not items:
        return [], {}
    try:
        made = list(loaded.backend.decode(items, layout))
        if len(made) != len(items):
            raise ValueError(f"gave {len(made)} pictures for {len(items)}")  # noqa: TRY301
    except Exception as error:  # the edge of the package: libraries raise whatever they like
        if is_of_the_device(error):
            raise
        if len(items) == 1:
            return [None], {0: f"{type(error).__name__}: {error}"}
        half = len(items) // 2
        first, refused = _ask(loaded, items[:half], layout)
        second, more = _ask(loaded, items[half:], layout)
        return first + second, {**refused, **{half + at: reason for at, reason in more.items()}}
    return made, {at: "refused it" for at, image in enumerate(made) if image is None}


def _wrong(image: Any, item: BatchItem, layout: str, device: torch.device) -> str:
    """Say what is wrong with a picture's form; nothing if it is right."""
    left, top, right, bottom = item.window or (0, 0, item.header.width, item.header.height)
    shape = (1 if layout == "L" else 3, bottom - top, right - left)
    if not isinstance(image, torch.Tensor):
        return f"gave no tensor but {type(image).__name__}"
    if tuple(image.shape) != shape or image.dtype != torch.uint8 or image.device != device:
        return (
            f"gave {tuple(image.shape)} of {image.dtype} on {image.device}, not {shape} of "
            f"torch.uint8 on {device}"
        )
    return ""


def finish_with(loaded: Loaded, images: Sequence[torch.Tensor]) -> None:
    """Wait until what `ask` gave may be let go of.

    That is only where the library may use its memory again while the current stream still reads it.
    Such libraries wait for the device themselves, so that this costs little more.

    Parameters
    ----------
    loaded : Loaded
    images : sequence of tensor
        From `ask`. Whatever is to be done with them, the current stream was asked for it.
    """
    if images and loaded.device.type == "cuda" and not loaded.backend.frees_in_order:
        torch.cuda.current_stream(loaded.device).synchronize()
