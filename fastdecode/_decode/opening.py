"""Images for code that wants Pillow's: with `info`, and decoded when their pixels are asked for."""

from __future__ import annotations

import io
import warnings
from typing import TYPE_CHECKING, Any

from PIL import Image as PillowImage

from fastdecode import _formats
from fastdecode._buffers import as_buffer
from fastdecode._decode import api, lazy
from fastdecode._decode.plan import DEFAULT_MAX_PIXELS, plan_decode
from fastdecode._decode.resizing import core_may_decode

if TYPE_CHECKING:
    from fastdecode._decode.api import Data
    from fastdecode.types import Buffer, Header


def open_rgb(
    data: Data,
    *,
    orient: bool = False,
    max_pixels: int | None = DEFAULT_MAX_PIXELS,
    backend: str | None = None,
) -> PillowImage.Image:
    """Return what ``Image.open(...).convert("RGB")`` returns, of a file with all its pixels.

    A JPEG or PNG remembers what is done to it, as an image of `fastdecode.open`. The options are
    those of `decode`, and so are the errors, also those of pixels that are decoded later.
    """
    buffer = as_buffer(data, function="open_rgb")
    header = _formats.probe(buffer)
    plan_decode(header, max_pixels=max_pixels)
    turns = orient and header.orientation != 1
    how: dict[str, Any] = {"orient": orient, "max_pixels": max_pixels, "backend": backend}

    def decoded() -> PillowImage.Image:
        return PillowImage.fromarray(api.decode(buffer, **how))

    if header.format in ("jpeg", "png") and not turns and core_may_decode(backend):
        opened = _opened(buffer, header)
        image = None if opened is None else lazy.remember_rgb(opened, decoded)
        if image is not None:
            return image
    image = decoded()
    image.info = info_of(buffer, header)
    return image


def info_of(data: Data, header: Header | None = None) -> dict[Any, Any]:
    """Return Pillow's `info` of a file as an RGB image; empty if Pillow does not open it."""
    buffer = as_buffer(data, function="info_of")
    opened = _opened(buffer, header or _formats.probe(buffer))
    if opened is None:
        return {}
    if opened.mode != "RGB" and "transparency" in opened.info:
        with warnings.catch_warnings():  # such as that it cannot be kept
            warnings.simplefilter("ignore")
            return dict(opened.convert("RGB").info)
    return dict(opened.info)


def with_pixels(made: Any) -> Any:
    """Return what was made of an image, after decoding what is still to be decoded of it.

    So its errors are raised here, where somebody knows of which file they are.
    """
    if isinstance(made, PillowImage.Image):
        lazy.with_pixels(made)
    elif isinstance(made, (list, tuple)):
        for one in made:
            with_pixels(one)
    elif isinstance(made, dict):
        for one in made.values():
            with_pixels(one)
    return made


def _opened(data: Buffer, header: Header) -> PillowImage.Image | None:
    most = PillowImage.MAX_IMAGE_PIXELS
    if most is not None and header.width * header.height > most:
        return None  # Pillow would warn
    try:
        return lazy.open(io.BytesIO(data))
    except Exception:  # of any kind: fastdecode reads more than Pillow does
        return None
