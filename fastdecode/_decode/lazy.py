"""`open`: images of Pillow whose pixels the core makes, not before somebody asks for them.

Pillow opens the file, and so decides what it is, what `info` holds and which errors there are. Only
then does a JPEG or PNG become an image of the classes below. It remembers the calls that cut,
resize and turn it until somebody asks for pixels, and from then on is as any image of Pillow's. The
pixels are always Pillow's own: what the core refuses Pillow decodes, and goes through the calls
again.
"""

from __future__ import annotations

import copyreg
import io
import itertools
import os
import warnings
from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple, cast

import numpy as np
from PIL import Image as PillowImage
from PIL.JpegImagePlugin import JpegImageFile
from PIL.PngImagePlugin import PngImageFile

from fastdecode import _formats, _pixels
from fastdecode._arguments import as_buffer, without_row
from fastdecode._decode.api import decode
from fastdecode._decode.plan import DEFAULT_MAX_PIXELS, plan_decode
from fastdecode._decode.resizing import HUFFMAN_SOFS, PNG_SOF, FloatBox, core_may_decode
from fastdecode._formats.jpeg import EOI
from fastdecode.errors import begin_with
from fastdecode.native import _library

if TYPE_CHECKING:
    from fastdecode._decode.api import Data
    from fastdecode.types import Box, Buffer, Header, Image, PixelLayout

_open_with_pillow = PillowImage.open  # before somebody puts `open` in its place
_Size = tuple[int, int]  # (width, height), as everything that Pillow calls a size

_FILTERS = {
    PillowImage.Resampling.BILINEAR: 1,
    PillowImage.Resampling.BICUBIC: 2,
    PillowImage.Resampling.LANCZOS: 3,
    PillowImage.Resampling.HAMMING: 4,
}
"""The ``fd_resize_filter`` that gives the pixels of Pillow's filter."""
_FLIPPED = 2
_ORIENTATIONS = {
    PillowImage.Transpose.FLIP_LEFT_RIGHT: _FLIPPED,
    PillowImage.Transpose.ROTATE_180: 3,
    PillowImage.Transpose.FLIP_TOP_BOTTOM: 4,
    PillowImage.Transpose.TRANSPOSE: 5,
    PillowImage.Transpose.ROTATE_270: 6,
    PillowImage.Transpose.TRANSVERSE: 7,
    PillowImage.Transpose.ROTATE_90: 8,
}
"""The EXIF orientation that each of Pillow's turns undoes."""
_PNG_END = b"IEND\xaeB`\x82"


class _StoredPixels(NamedTuple):
    """How the core gives the pixels of a mode of Pillow's."""

    mode: str
    layout: PixelLayout
    channels: int
    dtype: type[np.generic] = np.uint8


_GREY = _StoredPixels("L", "L", 1)
_RGB = _StoredPixels("RGB", "RGB", 3)
_RGBX = _StoredPixels("RGB", "RGBA", 4)  # as Pillow keeps them, so that nothing is copied
_RGBA = _StoredPixels("RGBA", "RGBA", 4)
_INDICES = _StoredPixels("P", "stored", 1)
_STORED = {
    ("jpeg", "L"): _GREY,
    ("jpeg", "RGB"): _RGBX,
    **{("zip", raw): _GREY for raw in ("L", "L;2", "L;4")},
    **{("zip", raw): _INDICES for raw in ("P", "P;1", "P;2", "P;4")},
    **{("zip", raw): _RGBX for raw in ("RGB", "RGB;16B")},
    **{("zip", raw): _RGBA for raw in ("RGBA", "RGBA;16B", "LA;16B")},
    ("zip", "LA"): _StoredPixels("LA", "stored", 2),
    ("zip", "I;16B"): _StoredPixels("I;16", "stored", 1, np.uint16),
}
"""By the decoder and the raw mode that Pillow would decode with."""


class _EncodedFile(NamedTuple):
    """An encoded image, and the form in which it is wanted."""

    data: bytes
    name: str
    stored: _StoredPixels
    size: _Size  # reduced
    reduce: Literal[1, 2, 4, 8]
    plain: bool
    """Whether the core makes any part of it, RGB or grey; not so the luma of a colour JPEG."""
    reopen: Callable[[], PillowImage.Image]
    """Returns Pillow's own image of the file, as it was opened and drafted."""

    def decode(self, window: Box, *, packed: bool) -> Image | None:
        """Return the pixels of a window; None if the core refuses the file."""
        stored = _RGB if packed and self.stored is _RGBX else self.stored
        left, top, right, bottom = window
        shape = (bottom - top, right - left, stored.channels)
        pixels = np.empty(shape if stored.channels > 1 else shape[:2], stored.dtype)
        failed = _library.decode(self.data, pixels, self.reduce, stored.layout, window)
        return None if failed else pixels

    def resize(self, resize: _library.CoreResize) -> Image | None:
        """Return resized pixels, RGB or grey, of which only what shows is decoded."""
        pixels = np.empty((resize.height, resize.width, 3), np.uint8)
        form = _library.stored(None, channels_first=False)
        made = _library.decode_resized(self.data, resize, form, pixels.ctypes.data)
        if not made:
            return None
        return pixels if self.stored.mode == "RGB" else np.ascontiguousarray(pixels[:, :, 0])


class _Remembered(NamedTuple):
    """A remembered call: of which method, with what, on an image of which size."""

    method: str
    arguments: tuple[Any, ...]
    size: _Size


_Calls = tuple[_Remembered, ...]


def _pixels_of(
    file: _EncodedFile, calls: _Calls, window: Box, *, packed: bool, flip: bool = False
) -> Image | None:
    """Return a window of the result of all calls; None if the core refuses the file.

    Each call asks the one before it for no more than the pixels that it needs. `flip` mirrors the
    window from left to right.
    """
    if not calls:
        stored = file.decode(window, packed=packed)
        return _turned(stored, _FLIPPED) if flip and stored is not None else stored
    *before, call = calls
    rest = tuple(before)
    if call.method == "crop":
        window = _shifted(window, call.arguments[0])
        return _pixels_of(file, rest, window, packed=packed, flip=flip)
    if call.method == "resize":
        return _resized(file, rest, call, window, flip=flip)
    orientation = _ORIENTATIONS[call.arguments[0]]
    seen = _pixels.seen_size(*call.size, orientation)
    behind = _pixels.stored_box(window, *seen, orientation)
    if orientation == _FLIPPED:
        return _pixels_of(file, rest, behind, packed=packed, flip=not flip)
    stored = _pixels_of(file, rest, behind, packed=packed)
    turned = None if stored is None else _turned(stored, orientation)
    return _turned(turned, _FLIPPED) if flip and turned is not None else turned


def _resized(
    file: _EncodedFile, before: _Calls, call: _Remembered, window: Box, *, flip: bool
) -> Image | None:
    """Return a window of the result of a resize: decoded no further than it needs, if possible."""
    canvas, how, box = call.arguments
    whole = (0, 0, *call.size)
    cut = _cut(before)
    in_core = _resizes_as_pillow() and how in _FILTERS
    if in_core and cut is not None:
        resize = _for_core(box, _shifted(whole, cut), canvas, window, _FILTERS[how])
        return file.resize(resize._replace(reduce=file.reduce, flip=flip))
    source = _pixels_of(file, before, whole, packed=True)
    if source is None:
        return None
    if in_core and source.ndim == 3:
        resize = _for_core(box, whole, canvas, window, _FILTERS[how])._replace(flip=flip)
        pixels = np.empty((resize.height, resize.width, 3), np.uint8)
        form = _library.stored(None, channels_first=False)
        if _library.resize_pixels(source, resize, form, pixels.ctypes.data):
            return pixels
    resized = np.asarray(PillowImage.fromarray(source).resize(canvas, how, box).crop(window))
    return _turned(resized, _FLIPPED) if flip else resized


def _turned(pixels: Image, orientation: int) -> Image:
    """Turn pixels, one channel after the other: NumPy copies bytes much faster than triples."""
    seen = _pixels.apply_orientation(pixels, orientation)
    if seen.ndim == 2:
        return np.ascontiguousarray(seen)
    made = np.empty(seen.shape, seen.dtype)
    for channel in range(seen.shape[2]):
        made[:, :, channel] = seen[:, :, channel]
    return made


def _cut(steps: _Calls) -> tuple[int, int] | None:
    """Return where an image that has only been cut begins in the file's; None if it was resized."""
    if any(step.method != "crop" for step in steps):
        return None
    corners = [step.arguments[0][:2] for step in steps]
    return sum(left for left, _ in corners), sum(top for _, top in corners)


def _shifted(box: Any, by: Any) -> Any:
    """Return a box in the coordinates of the image in which another one begins at `by`."""
    return box[0] + by[0], box[1] + by[1], box[2] + by[0], box[3] + by[1]


def _for_core(
    box: FloatBox, readable: Box, canvas: _Size, window: Box, how: int
) -> _library.CoreResize:
    """Return a resize of the pixels of `readable`, in whose coordinates the box is."""
    x, y, end, below = box
    # Pillow subtracts with 32 bits.
    box = (x, y, x + float(np.float32(end - x)), y + float(np.float32(below - y)))
    box = _shifted(box, readable)
    left, top, right, bottom = window
    return _library.CoreResize(
        *(1, *box, *readable, *canvas, left, top, right - left, bottom - top),
        flip=False,
        filter=how,
    )


@cache
def _resizes_as_pillow() -> bool:
    """Return whether the core has the results of the installed Pillow, tried on a small image.

    Before Pillow 13 the order of its two passes was another one.
    """
    noise = np.random.default_rng(1).integers(0, 256, (61, 47, 3), np.uint8)
    image, whole = PillowImage.fromarray(noise), (0, 0, 47, 61)
    form = _library.stored(None, channels_first=False)
    for method, how in _FILTERS.items():
        for canvas in ((20, 50), (40, 11), (60, 40), (30, 90), (13, 17)):
            resize = _for_core(whole, whole, canvas, (0, 0, *canvas), how)
            pixels = np.empty((canvas[1], canvas[0], 3), np.uint8)
            _library.resize_pixels(noise, resize, form, pixels.ctypes.data)
            if not np.array_equal(pixels, np.asarray(image.resize(canvas, method))):
                return False
    return True


class LazyImage(PillowImage.Image):
    """What a remembered call returns: an image that has not been decoded yet."""

    _plain: ClassVar[type[PillowImage.Image]] = PillowImage.Image
    """The class of Pillow's that this is, once it has pixels."""
    _file: _EncodedFile | None = None
    _steps: _Calls = ()
    _array: Image | None = None

    @property
    def __class__(self) -> Any:
        """Pillow's own class: it compares classes, and prints their names."""
        return self._plain

    @__class__.setter
    def __class__(self, kind: Any) -> None:  # by Pillow's `adopt`
        vars(object)["__class__"].__set__(self, kind)

    def _known(self) -> _EncodedFile | None:
        """Return the file, read and closed as Pillow's `load` does it; None if Pillow must.

        Or if there are pixels. The class stays the same, because other threads may be in it.
        """
        return self._file

    # ---- what is remembered

    def _then(
        self, file: _EncodedFile, *steps: _Remembered, size: _Size | None = None
    ) -> PillowImage.Image:
        new = LazyImage()
        new._file, new._steps = file, (*self._steps, *steps)
        new._mode, new._size = file.stored.mode, size or self._size
        # As Pillow 13 copies it.
        new.info = {k: v.copy() if isinstance(v, list) else v for k, v in self.info.items()}
        return new

    def _rememberable(self) -> _EncodedFile | None:
        """Return the file if calls may be remembered: if its pixels are plain colours."""
        file = self._known()
        return file if file is not None and file.plain else None

    def copy(self) -> PillowImage.Image:
        file = self._rememberable()
        return super().copy() if file is None else self._then(file)

    def convert(self, mode: str | None = None, *args: Any, **kwargs: Any) -> PillowImage.Image:
        file = self._known()
        if file is None or args or kwargs:
            return super().convert(mode, *args, **kwargs)
        if file.plain and mode in (None, file.stored.mode):
            return self._then(file)
        known = file.plain or file.stored.mode in ("LA", "RGBA", "P")
        if mode != "RGB" or not known or "transparency" in self.info:
            return super().convert(mode)
        stored, reopen = _RGBX if file.plain else _RGB, file.reopen
        return self._then(
            file._replace(stored=stored, plain=True, reopen=lambda: reopen().convert("RGB"))
        )

    def crop(self, box: Any = None) -> PillowImage.Image:
        file = self._rememberable()
        inside = None if file is None or box is None else _box_inside(box, self._size)
        if file is None or inside is None:
            return super().crop(box)
        left, top, right, bottom = inside
        size = (right - left, bottom - top)
        return self._then(file, _Remembered("crop", (inside,), self._size), size=size)

    def resize(
        self, size: Any, resample: Any = None, box: Any = None, reducing_gap: Any = None
    ) -> PillowImage.Image:
        file = self._rememberable()
        plan = None if file is None else _plan_resize(self._size, size, resample, box, reducing_gap)
        if file is None or plan is None:
            return super().resize(size, resample, box, reducing_gap)
        return self._then(file, _Remembered("resize", plan, self._size), size=plan[0])

    def transpose(self, method: Any) -> PillowImage.Image:
        file = self._rememberable()
        if file is None or method not in _ORIENTATIONS:
            return super().transpose(method)
        size = _pixels.seen_size(*self._size, _ORIENTATIONS[method])
        return self._then(file, _Remembered("transpose", (method,), self._size), size=size)

    # ---- who asks for pixels

    def _as_array(self) -> Image | None:
        """Return the pixels of an RGB or grey image that the core makes; do not change them."""
        file = self._rememberable()
        if file is None:
            return None
        pixels = self._array
        if pixels is None:
            pixels = _pixels_of(file, self._steps, (0, 0, *self._size), packed=True)
            self._array = pixels
        return pixels

    def _decode(self) -> None:
        """Decode if that is still to be done; from then on it is an ordinary image of Pillow's."""
        file, pixels = self._known(), self._array
        if file is None:
            return
        if pixels is None:
            pixels = _pixels_of(file, self._steps, (0, 0, *self._size), packed=False)
        elif file.stored.mode != "RGB":
            pixels = pixels.copy()  # others may have this as an array, and Pillow may write to it
        self.im = _replayed(file, self._steps) if pixels is None else _core_image(pixels, file)

    @property
    def im(self) -> Any:
        self._decode()
        return super().im

    @im.setter
    def im(self, value: Any) -> None:
        self._im = value
        self._file = self._array = None

    def load(self) -> Any:
        self._decode()
        return super().load()

    def close(self) -> None:
        self._file = self._array = None
        super().close()

    @property
    def __array_interface__(self) -> dict[str, Any]:
        pixels = self._as_array()
        if pixels is None:
            return super().__array_interface__
        shape, kind = pixels.shape, pixels.dtype.str
        view = pixels.data.toreadonly()
        return {"version": 3, "shape": shape, "typestr": kind, "data": view}  # Pillow's are bytes

    def tobytes(self, encoder_name: str = "raw", *args: Any) -> bytes:
        pixels = None if args or encoder_name != "raw" else self._as_array()
        return super().tobytes(encoder_name, *args) if pixels is None else pixels.tobytes()

    def __reduce_ex__(self, protocol: Any) -> Any:
        return cast("Any", copyreg).__newobj__, (self._plain,), self.__getstate__()


class _LazyFile(LazyImage):
    """What `open` returns: Pillow's image of a file, which has not been decoded yet."""

    tile: Any
    fp: Any
    _refused = False

    def _known(self) -> _EncodedFile | None:
        if self._file is None and self._im is None and self.fp is not None and not self._refused:
            self._file = self._read()
            self._refused = self._file is None
        return self._file

    def _read(self) -> _EncodedFile | None:
        """Read the file; None if the core is not certain to decode it as Pillow would."""
        if len(self.tile) != 1:
            return None
        codec, extents, _, args = self.tile[0]
        if extents not in (None, (0, 0, *self._size)):
            return None
        raw = args if isinstance(args, str) else args[0]
        stored = _STORED.get((codec, raw))
        if stored is None or stored.mode != self._mode:
            return None
        self.fp.seek(0)
        data = self.fp.read()
        header = _library.probe(data)
        reduce = self._reduce()
        if (
            not isinstance(data, bytes)
            or header is None
            or header.sof not in (*HUFFMAN_SOFS, PNG_SOF)
            or not _has_its_end(data, codec, header.scan_offset)
            or (-(-header.width // reduce), -(-header.height // reduce)) != self._size
        ):
            return None
        if stored is _RGBX and "transparency" in self.info:
            stored = _RGB
        plain = stored.mode == "RGB" or (stored.mode == "L" and header.components == 1)
        name, reopen = os.fsdecode(getattr(self, "filename", "")), self._reopener(data)
        file = _EncodedFile(data, name, stored, self._size, reduce, plain, reopen)
        self._finish()
        return file

    def _reduce(self) -> Any:
        """Return the scale that `draft` has chosen."""
        config = cast("Any", self).decoderconfig
        return config[0] if config else 1

    def _reopener(self, data: bytes) -> Callable[[], PillowImage.Image]:
        kind = cast("Any", self._plain)
        names = ("tile", "decoderconfig", "_size", "_mode")
        state = {name: getattr(self, name) for name in names} if kind is JpegImageFile else {}

        def reopen() -> PillowImage.Image:
            image: PillowImage.Image = kind(io.BytesIO(data))
            vars(image).update(state)
            return image

        return reopen

    def _finish(self) -> None:
        """Do what Pillow's `load` does behind the pixels."""
        file = cast("Any", self)
        file.tile, file.readonly = [], 0
        file.load_end()
        if file._exclusive_fp and file._close_exclusive_fp_after_loading:
            file.fp.close()
        file.fp = None


class _LazyJpeg(_LazyFile, JpegImageFile):
    _plain = JpegImageFile


class _LazyPng(_LazyFile, PngImageFile):
    _plain = PngImageFile

    def _finish(self) -> None:
        self.fp.seek(self.tile[0][2])
        state = vars(self)  # `load_end` skips as many bytes of the pixels as were not decoded
        state["_PngImageFile__idat"] = state["_PngImageFile__prepare_idat"]
        super()._finish()

    def getexif(self) -> PillowImage.Exif:
        """Return what Pillow does, which loads the image: EXIF may stand behind the pixels."""
        return super().getexif() if self._known() is None else PillowImage.Image.getexif(self)


def _has_its_end(data: bytes, codec: str, scan_offset: int) -> bool:
    """Return whether a file is not cut off; a JPEG may have anything behind its end."""
    return data.endswith(_PNG_END) if codec == "zip" else data.rfind(EOI, scan_offset) >= 0


def _box_inside(box: Any, size: _Size) -> Box | None:
    """Return the pixels that a crop takes; None if it also takes some from outside."""
    try:
        left, top, right, bottom = map(int, map(round, box))
    except (TypeError, ValueError, OverflowError):
        return None
    inside = 0 <= left < right <= size[0] and 0 <= top < bottom <= size[1]
    most = PillowImage.MAX_IMAGE_PIXELS
    large = most is not None and (right - left) * (bottom - top) > most  # of which Pillow warns
    return (left, top, right, bottom) if inside and not large else None


def _plan_resize(
    old: _Size, size: Any, resample: Any, box: Any, reducing_gap: Any
) -> tuple[_Size, Any, FloatBox] | None:
    """Return the arguments of a resize that can be remembered, else None."""
    whole = (0, 0, *old)
    how = PillowImage.Resampling.BICUBIC if resample is None else resample
    try:
        width, height = (value.__index__() for value in size)
        # Pillow's C code takes floats of 32 bits.
        left, top, right, bottom = (float(np.float32(value)) for value in box or whole)
        gap = None if reducing_gap is None else float(reducing_gap)
    except (TypeError, ValueError, AttributeError):
        return None
    if not (
        how in _FILTERS
        and 0 < width <= _library.LARGEST_SIDE
        and 0 < height <= _library.LARGEST_SIDE
        and 0 <= left < right <= old[0]
        and 0 <= top < bottom <= old[1]
        and max(old) <= _library.LARGEST_SIDE
    ):
        return None
    if gap is not None:
        factors = (right - left) / width / gap, (bottom - top) / height / gap
        if not gap >= 1.0 or max(factors) >= 2:  # it is averaged first
            return None
    if (width, height) == old and (left, top, right, bottom) == whole:
        return None  # a copy
    return (width, height), PillowImage.Resampling(how), (left, top, right, bottom)


def _core_image(pixels: Image, file: _EncodedFile) -> Any:
    """Return pixels as the object in which Pillow keeps them, without a copy where it can."""
    size, mode = (pixels.shape[1], pixels.shape[0]), file.stored.mode
    if mode == "RGB":
        raw = "RGBX" if pixels.shape[2] == 4 else "RGB"
        return PillowImage.frombytes(mode, size, cast("Any", pixels), "raw", raw).im
    return PillowImage.frombuffer(mode, size, cast("Any", pixels), "raw", mode, 0, 1).im


def _replayed(file: _EncodedFile, steps: _Calls) -> Any:
    """Let Pillow decode, and go through the calls; its error names the file."""
    try:
        image = file.reopen()
        for step in steps:
            image = getattr(image, step.method)(*step.arguments)
        image.load()
    except OSError as error:
        if file.name and error.args and error.errno is None:
            begin_with(error, file.name)
        raise
    return image.im


def remember_rgb(
    opened: PillowImage.Image, decode: Callable[[], PillowImage.Image]
) -> PillowImage.Image | None:
    """Return an opened file as an RGB image that remembers what is done to it; None if it cannot.

    What the core refuses is decoded by `decode`, which returns all of the image.
    """
    image = opened.convert("RGB") if isinstance(opened, _LazyFile) and opened._known() else None
    if not isinstance(image, LazyImage) or image._file is None:
        return None
    image._file = image._file._replace(reopen=decode)
    return image


def encoded(image: object) -> bytes | None:
    """Return the file of an RGB image that has only been opened; None if it is anything else."""
    found = unmade(image)
    return None if found is None or found.done else found.data


_Operation = tuple[str, tuple[int, ...], str]
"""An operation of the core, its numbers and its filter."""


class Unmade(NamedTuple):
    """An RGB image that has not been decoded yet."""

    data: bytes
    """Not its path: the file there may be another one by the time it is decoded."""
    name: str
    """The path, if there is one."""
    sides: _Size
    """The (width, height) of the file."""
    done: list[_Operation]
    """Each operation of the core that has been done to it."""
    reopen: Callable[[], PillowImage.Image]
    """Returns Pillow's own image of the file."""


def unmade(image: object) -> Unmade | None:
    """Return the file of an image, and what the core does to make it; None if there is more."""
    file = image._rememberable() if isinstance(image, LazyImage) else None
    if not isinstance(image, LazyImage) or file is None:
        return None
    done = [_operations_of(step) for step in image._steps]
    if file.reduce != 1 or file.stored.mode != "RGB" or [] in done:
        return None
    return Unmade(file.data, file.name, file.size, [*itertools.chain(*done)], file.reopen)


def _operations_of(step: _Remembered) -> list[_Operation]:
    """Return a remembered call as operations of the core; none if it has none."""
    if step.method == "crop":
        left, top, right, bottom = step.arguments[0]
        return [("crop", (left, top, right - left, bottom - top), "constant")]
    if step.method == "resize":
        canvas, how, box = step.arguments
        whole = box == (0, 0, *step.size) and how in _FILTERS and _resizes_as_pillow()
        return [("resize", canvas, how.name.lower())] if whole else []
    return _TURNS[step.arguments[0]]


def _turns(degrees: int, *flips: str) -> list[_Operation]:
    turned: list[_Operation] = [("rotate", (degrees, 1), "nearest")] if degrees else []
    return [*turned, *((flip, (), "nearest") for flip in flips)]


_TURNS = {
    PillowImage.Transpose.FLIP_LEFT_RIGHT: _turns(0, "mirror"),
    PillowImage.Transpose.FLIP_TOP_BOTTOM: _turns(0, "turn_over"),
    PillowImage.Transpose.ROTATE_90: _turns(90),
    PillowImage.Transpose.ROTATE_180: _turns(0, "mirror", "turn_over"),
    PillowImage.Transpose.ROTATE_270: _turns(270),
    PillowImage.Transpose.TRANSPOSE: _turns(90, "turn_over"),
    PillowImage.Transpose.TRANSVERSE: _turns(90, "mirror"),
}


def upright(orientation: int) -> list[_Operation]:
    """Return the operations of the core that undo an EXIF orientation."""
    return next((_TURNS[way] for way, one in _ORIENTATIONS.items() if one == orientation), [])


def open(fp: Any, mode: Literal["r"] = "r", formats: Any = None) -> PillowImage.Image:
    """Open an image as `PIL.Image.open` does, but decode it in the core, and as late as possible.

    Parameters
    ----------
    fp : path, bytes-like or file object
        A path, the bytes of an encoded file, or a binary file object. Pillow takes bytes for a
        path; here they are an image.
    mode, formats
        As for `PIL.Image.open`.

    Returns
    -------
    PIL.Image.Image
        What Pillow returns. If it is a JPEG or PNG, `convert` to RGB, `crop`, `resize`,
        `transpose`, `copy` and `draft` are remembered, and done when pixels are asked for, for
        those pixels alone. These are bit for bit Pillow's.

    Raises
    ------
    OSError, PIL.UnidentifiedImageError
        As from Pillow. That a file is damaged, other than by being cut off, may show only when its
        pixels are asked for; the message then begins with the path.

    Examples
    --------
    >>> import fastdecode
    >>> image = fastdecode.open("cat.jpg").convert("RGB").resize((224, 224))
    >>> image  # not decoded yet
    <PIL.Image.Image image mode=RGB size=224x224 ...>
    >>> image.getpixel((0, 0))  # now it is
    (20, 31, 43)
    """
    fp = without_row(fp)
    if not isinstance(fp, (str, os.PathLike)) and not hasattr(fp, "read"):
        fp = io.BytesIO(as_buffer(fp, function="open"))
    image = _open_with_pillow(fp, mode, formats)
    if core_may_decode(None):
        if type(image) is JpegImageFile:
            image.__class__ = _LazyJpeg
        elif type(image) is PngImageFile and image._close_exclusive_fp_after_loading:
            image.__class__ = _LazyPng  # it has one frame
    return image


# ---- images for code that wants those of Pillow, with `info` ----


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
        return PillowImage.fromarray(decode(buffer, **how))

    if header.format in ("jpeg", "png") and not turns and core_may_decode(backend):
        opened = _opened(buffer, header)
        image = None if opened is None else remember_rgb(opened, decoded)
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
        made.load()
        if isinstance(made, LazyImage):
            made.__class__ = made._plain  # nobody else has it yet
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
        return open(io.BytesIO(data))
    except Exception:  # of any kind: fastdecode reads more than Pillow does
        return None
