"""What makes an image processor of transformers take images that are not decoded yet."""

from __future__ import annotations

import base64
import binascii
import io
import os
import warnings
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image as PillowImage
from PIL import ImageOps
from PIL.JpegImagePlugin import JpegImageFile
from PIL.PngImagePlugin import PngImageFile
from transformers.image_processing_backends import TorchvisionBackend

from fastdecode import _formats
from fastdecode._arguments import as_buffer
from fastdecode._decode import api, lazy
from fastdecode._decode.plan import DEFAULT_MAX_PIXELS, plan_decode
from fastdecode._decode.resizing import core_can_decode, core_may_decode
from fastdecode._pixels import seen_size
from fastdecode.errors import FastDecodeError, begin_with
from fastdecode.native import _library
from fastdecode.native._augment import Operation
from fastdecode.transformers._picture import Picture, ProcessorSettings, RgbFile
from fastdecode.transformers._tensor import RecordedImage, with_values

_UNREAD = (JpegImageFile, PngImageFile)


class FastdecodeBackend(TorchvisionBackend):
    """Put before a class of transformers' torchvision backend."""

    _fastdecode_settings = ProcessorSettings(DEFAULT_MAX_PIXELS, None)

    @property
    def backend(self) -> str:
        return "fastdecode"

    def fetch_images(self, images: Any) -> Any:
        """Take files by their bytes, and let transformers fetch the others."""
        if isinstance(images, (list, tuple)):
            return [self.fetch_images(one) for one in images]
        if isinstance(images, (str, os.PathLike, bytes, bytearray, memoryview)):
            return _fetched(images, self._fastdecode_settings, super().fetch_images)
        return super().fetch_images(images)

    def process_image(self, image: Any, *args: Any, **kwargs: Any) -> Any:
        """Record an image of Pillow's that is not decoded yet."""
        if isinstance(image, PillowImage.Image) and _processes_as_known(type(self)):
            to_rgb = bool(_argument(args, kwargs))
            picture = _unread(image, self._fastdecode_settings, to_rgb=to_rgb)
            device = str(kwargs.get("device") or "cpu")
            if picture is not None and device == "cpu" and len(args) < 2:
                return RecordedImage.view_of(picture)
        return super().process_image(image, *args, **kwargs)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return _finished(super().__call__(*args, **kwargs))

    def preprocess(self, *args: Any, **kwargs: Any) -> Any:
        return _finished(super().preprocess(*args, **kwargs))

    def to_dict(self) -> dict[str, Any]:
        made: dict[str, Any] = super().to_dict()
        made.pop("_fastdecode_settings", None)
        return made

    def __reduce__(self) -> Any:
        return _restored, (_original(type(self)), vars(self))


def _argument(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Return `do_convert_rgb` of a call of `process_image`."""
    return args[0] if args else kwargs.get("do_convert_rgb")


def _finished(made: Any) -> Any:
    """Return a processor's result with the values of recorded images."""
    data = getattr(made, "data", None)
    if isinstance(data, dict):
        made.data = with_values(data)
        return made
    return with_values(made)


_classes: dict[type, type[FastdecodeBackend]] = {}


def accelerated_class(kind: type) -> type[FastdecodeBackend] | None:
    """Return a class of processors with the backend before it; None if it is built otherwise."""
    if not issubclass(kind, TorchvisionBackend) or hasattr(kind, "fetch_videos"):
        return None
    if issubclass(kind, FastdecodeBackend):
        return kind
    if kind not in _classes:
        names = ("__module__", "__qualname__", "__doc__")
        same = {name: getattr(kind, name) for name in names}
        _classes[kind] = type(kind.__name__, (FastdecodeBackend, kind), same)
    return _classes[kind]


def _original(kind: type) -> type:
    """Return the class that a class was made of."""
    return next(
        one
        for one in kind.__mro__[1:]
        if not issubclass(one, FastdecodeBackend) and one is not object
    )


def _restored(kind: type, state: dict[str, Any]) -> Any:
    made: Any = accelerated_class(kind)
    processor = made.__new__(made)
    vars(processor).update(state)
    return processor


def _processes_as_known(kind: type[FastdecodeBackend]) -> bool:
    """Return whether the class has transformers' own way with images of Pillow's."""
    own = _original(kind)
    names = ("process_image", "convert_to_rgb")
    return all(getattr(own, name) is getattr(TorchvisionBackend, name) for name in names)


# ---- files


def _fetched(source: Any, options: ProcessorSettings, other: Any) -> Any:
    """Return the upright RGB image of a path, base64 or bytes; `other` fetches a string."""
    data, name = _read(source)
    if data is None:
        return other(source)
    try:
        picture = _of_file(data, name, options)
        if picture is not None:
            return RecordedImage.view_of(picture)
        if isinstance(source, (str, os.PathLike)):
            return other(os.fspath(source))
        image = ImageOps.exif_transpose(PillowImage.open(io.BytesIO(data)))
        return RecordedImage.view_of(_of_pixels(image.convert("RGB"), options))
    except Exception as error:
        if name and error.args and name not in str(error.args[0]):
            begin_with(error, name)
        raise


def _read(source: Any) -> tuple[bytes | None, str]:
    """Return what is in a file, and its path; None for what transformers has to fetch."""
    if isinstance(source, (bytes, bytearray, memoryview)):
        return bytes(as_buffer(source, function="the image processor")), ""
    name = os.fspath(source)
    if not isinstance(source, str) or os.path.isfile(name):  # noqa: PTH113 - of base64, no error
        return Path(name).read_bytes(), name
    if isinstance(source, str) and source.startswith("data:image/") and "," in source:
        try:
            return base64.decodebytes(source.split(",")[1].encode()), ""
        except (binascii.Error, ValueError):
            return None, ""
    return None, ""


def _of_file(data: bytes, name: str, options: ProcessorSettings) -> Picture | None:
    """Return an image that torchvision would decode to the same RGB as the core; None if not."""
    header, max_pixels = _library.probe(data), options.max_pixels
    try:
        whole = _formats.probe(data) if header is None or header.may_turn else None
        if header is None or not core_can_decode(header, max_pixels):
            plan_decode(whole or _formats.probe(data), max_pixels=max_pixels)
            return None
    except FastDecodeError as error:
        if max_pixels is not None and "max_pixels" in str(error):
            raise
        return None  # transformers says what is wrong with it
    if header.bits != 8 or not core_may_decode(None):
        return None
    decode = partial(api.decode, data, max_pixels=max_pixels)
    sides = header.width, header.height
    file = RgbFile(data, name, sides, decode, options)
    turn = 1 if whole is None else whole.orientation
    return _after(Picture(file, sides[::-1]), lazy.upright(turn), seen_size(*sides, turn))


# ---- images of Pillow's


def _unread(
    image: PillowImage.Image, options: ProcessorSettings, *, to_rgb: bool
) -> Picture | None:
    """Return an image that is not decoded yet, of which the processor would take RGB as it is."""
    alpha = "A" in image.getbands() or image.info.get("transparency") is not None
    known = image.mode == "RGB" or (to_rgb and image.mode == "L")
    if not known or (to_rgb and alpha):
        return None
    opened: PillowImage.Image | None = None
    if isinstance(image, lazy.LazyImage):
        opened = image
    elif type(image) in _UNREAD and core_may_decode(None):
        opened = _reopened(image)
    found = None
    if opened is not None:
        found = lazy.unmade(opened.convert("RGB") if image.mode == "L" else opened)
    if found is None:
        return _of_pixels(image, options)
    sides, reopen = found.sides, found.reopen
    file = RgbFile(
        found.data, found.name, sides, lambda: np.asarray(reopen().convert("RGB")), options
    )
    return _after(Picture(file, sides[::-1]), found.done, image.size)


def _of_pixels(image: PillowImage.Image, options: ProcessorSettings, name: str = "") -> Picture:
    """Return an image that Pillow decodes, or has decoded."""
    file = RgbFile(b"", name, image.size, lambda: np.asarray(image.convert("RGB")), options)
    return Picture(file, image.size[::-1])


def _after(picture: Picture, done: list[Any], size: tuple[int, int]) -> Picture:
    """Return a picture after operations of the core, of which it has this (width, height)."""
    operations = (Operation(kind, value, how) for kind, value, how in done)
    return picture.then(*operations, size=size[::-1]) if done else picture


def _reopened(image: Any) -> PillowImage.Image | None:
    """Return Pillow's image of a file that it has only opened as one of `fastdecode.open`."""
    try:
        if getattr(image, "_im", None) is not None or not image.tile or image.fp is None:
            return None
        at = image.fp.tell()
        image.fp.seek(0)
        data = image.fp.read()
        image.fp.seek(at)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            opened = lazy.open(io.BytesIO(data))
    except Exception:  # of any kind: Pillow has its own say when the image is loaded
        return None
    alike = opened.size == image.size and opened.mode == image.mode
    return opened if alike and isinstance(opened, lazy.LazyImage) else None
