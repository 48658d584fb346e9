"""`Work` reads one item, in any thread, checks that it decodes, and rewrites it.

A shrunk image keeps its orientation and colour profile, and no other metadata. A JPEG stays a JPEG.
Other formats become JPEG if they are opaque and in full colour or 8-bit grey. They become PNG if
they have transparency, a palette or fewer bits. CMYK becomes RGB, without its profile, which
describes inks.
"""

from __future__ import annotations

import io
from dataclasses import dataclass, replace
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any, NamedTuple

from PIL import Image as PillowImage

from fastdecode._arguments import is_int
from fastdecode._backends.selection import disabled
from fastdecode._decode.api import decode, probe
from fastdecode._decode.plan import DEFAULT_MAX_PIXELS, plan_decode
from fastdecode._error_policy import ITEM_ERRORS, is_item_error
from fastdecode.errors import BackendUnavailable, FastDecodeError
from fastdecode.native import add_restart_markers
from fastdecode.packing._check import reason, verify
from fastdecode.stores.base import check_target

if TYPE_CHECKING:
    from fastdecode.stores import Store
    from fastdecode.types import Buffer, Header, Image, Mode

_SAME = {".jpg": (".jpg", ".jpeg", ".jpe", ".jfif"), ".png": (".png",)}
"""The suffixes of a format, in lower case."""
_ORIENTATION = 0x0112
_GAP = 2
"""The decoder reduces to no less than this many times the final size, and the filter does the rest.
It is the ``reducing_gap`` of `PIL.Image.Image.thumbnail`."""
_LANCZOS = PillowImage.Resampling.LANCZOS


@dataclass(frozen=True)
class Options:
    """The arguments of `pack` on which the result depends."""

    max_side: int | None = None
    quality: int = 90
    restart_markers: bool = False
    shard_size: int | None = None
    max_pixels: int | None = DEFAULT_MAX_PIXELS

    def checked(self, kind: str) -> Options:
        """Return them with plain integers, before any work is done; refuse what is wrong."""
        for name in ("max_side", "shard_size", "max_pixels"):
            value = getattr(self, name)
            if value is not None and not (is_int(value) and value >= 1):
                raise ValueError(f"{name} must be an integer of at least 1, not {value!r}")
        if not (is_int(self.quality) and 1 <= self.quality <= 100):
            raise ValueError(f"quality must be an integer from 1 to 100, not {self.quality!r}")
        if self.shard_size is not None and kind != "tar":
            raise ValueError(f"only a tar store has shards, not a {kind} store")
        if self.restart_markers and "native" in disabled():
            raise BackendUnavailable(
                "only the native core puts restart markers into JPEGs, and FASTDECODE_DISABLE "
                "disables it"
            )
        numbers: dict[str, Any] = {
            name: int(value)
            for name in ("max_side", "quality", "shard_size", "max_pixels")
            if (value := getattr(self, name)) is not None
        }
        return replace(self, **numbers)


class Outcome(NamedTuple):
    """The result for one item."""

    key: str
    target: Any = None
    data: Buffer = b""  # the encoded image; empty if the item is bad
    notes: tuple[str, ...] = ()  # see `fastdecode.packing.Packed`
    bytes_in: int = 0
    bad: str = ""  # why it is bad; empty if it is good


@dataclass(frozen=True)
class Work:
    """Reads and rewrites the items of a store."""

    store: Store
    options: Options

    def __call__(self, index: int) -> Outcome:
        """Read and rewrite an item; raise errors of the network or disk, which may pass."""
        key = self.store.key(index)
        try:
            given = self.store.read(index)
        except ITEM_ERRORS as error:
            if is_item_error(error):
                return Outcome(key, bad=reason(error))
            if not isinstance(error, OSError):
                raise
            where = f"{self.store.location}, item {index} ({key})"
            raise OSError(f"{where}: {reason(error)}") from error
        try:
            target = self.store.target(index)
            check_target(target, self.store.classes)
            key, data, notes = self._rewrite(key, given)
        except (FastDecodeError, ValueError) as error:
            if isinstance(error, FastDecodeError) and not is_item_error(error):
                raise
            return Outcome(key, bytes_in=len(given), bad=reason(error))
        return Outcome(key, target, data, notes, len(given))

    def _rewrite(self, key: str, given: Buffer) -> tuple[str, Buffer, tuple[str, ...]]:
        """Return the key, the bytes and the notes of an item; raise if it does not decode."""
        header = probe(given)
        plan_decode(header, max_pixels=self.options.max_pixels)  # refuses what is too large
        most = self.options.max_side
        large = most is not None and max(header.width, header.height) > most
        data, notes, format = given, [], header.format
        if most is not None and large and can_shrink(header):
            data, suffix = shrink(given, header, most, self.options.quality)
            key = rename_key(key, suffix)
            notes, format = ["shrunk"], "jpeg" if suffix == ".jpg" else "png"
        else:
            verify(given, header)
            notes = ["too large"] if large else []
        if self.options.restart_markers and format == "jpeg":
            try:
                data = add_restart_markers(data, max_pixels=None)
                notes.append("restart markers")
            except FastDecodeError:  # a JPEG that the core refuses: it decodes, so it is kept
                notes.append("no restart markers")
        return key, data, tuple(notes)


def rename_key(key: str, suffix: str) -> str:
    """Return a key with the suffix of its format, behind that of another one: ``a.png.jpg``."""
    return key if PurePosixPath(key).suffix.lower() in _SAME[suffix] else key + suffix


class EncodedImage(NamedTuple):
    """An encoded image, and the suffix of its format."""

    data: bytes
    suffix: str


def smaller_size(width: int, height: int, max_side: int) -> tuple[int, int]:
    """Return (width, height) in the same proportion, with `max_side` pixels as larger side."""
    larger = max(width, height)
    return (
        max(1, (width * max_side + larger // 2) // larger),
        max(1, (height * max_side + larger // 2) // larger),
    )


def can_shrink(header: Header) -> bool:
    """Return whether shrinking keeps everything but pixels: not of animations and 16-bit images."""
    return not header.animated and header.bits <= 8


def shrink(data: Buffer, header: Header, max_side: int, quality: int) -> EncodedImage:
    """Shrink an image that `can_shrink`, so that its larger side has `max_side` pixels.

    The image is not turned upright, and keeps its EXIF orientation. A side of more than 65,500
    pixels is a ValueError, because Pillow cannot encode such a JPEG.

    The decoder reduces first, for JPEG in the DCT. Then Pillow's Lanczos filter averages over all
    pixels that become one, with colours weighted by their alpha.
    """
    size = smaller_size(header.width, header.height, max_side)
    image = PillowImage.fromarray(_pixels(data, header, size)).resize(size, _LANCZOS)
    as_png = header.format != "jpeg" and _needs_png(image, header)
    if image.mode == "RGBA":
        image = _drop_opaque_alpha(image, header)
    if as_png:
        return EncodedImage(_encode(image, "png", **_metadata(data, header)), ".png")
    sampling = {"subsampling": "4:2:0"} if image.mode == "RGB" else {}
    options = {"quality": quality, "optimize": True, **sampling, **_metadata(data, header)}
    return EncodedImage(_encode(image, "jpeg", **options), ".jpg")


def _pixels(data: Buffer, header: Header, size: tuple[int, int]) -> Image:
    """Decode to at least twice the final size, in a mode that keeps transparency."""
    wanted = (size[1] * _GAP, size[0] * _GAP)
    if header.format == "jpeg":
        mode: Mode = "L" if header.color == "gray" else "RGB"
        return decode(data, min_size=wanted, mode=mode, max_pixels=None)
    return decode(data, min_size=wanted, mode="RGBA", max_pixels=None)


def _needs_png(image: PillowImage.Image, header: Header) -> bool:
    """Return whether a JPEG cannot hold the image, or would blur a drawing in few colours."""
    if header.bits != 8 or header.color == "palette":
        return True
    return not _is_opaque(image)


def _encode(image: PillowImage.Image, format: str, **options: Any) -> bytes:
    file = io.BytesIO()
    try:
        image.save(file, format, **options)
    except (OSError, ValueError) as error:
        sides = f"{image.width} x {image.height}"
        raise ValueError(
            f"shrunk to {sides} pixels, it cannot be encoded as {format}: {error}"
        ) from error
    return file.getvalue()


def _drop_opaque_alpha(image: PillowImage.Image, header: Header) -> PillowImage.Image:
    """Drop an opaque alpha channel. Grey stays grey, because its profile is not one of colours."""
    mode = "L" if header.color == "gray" else "RGB"
    return image.convert(mode if _is_opaque(image) else f"{mode}A")


def _is_opaque(image: PillowImage.Image) -> bool:
    least, _ = image.getchannel("A").getextrema()
    return least == 255


def _metadata(data: Buffer, header: Header) -> dict[str, bytes]:
    """Return the orientation and the colour profile as options for Pillow's encoders."""
    found = {}
    if header.orientation != 1:
        exif = PillowImage.Exif()
        exif[_ORIENTATION] = header.orientation
        found["exif"] = exif.tobytes()
    profile = _profile(data, header) if header.color != "cmyk" else None
    return found if not profile else {**found, "icc_profile": profile}


def _profile(data: Buffer, header: Header) -> bytes | None:
    """Return the colour profile, if Pillow can read the format."""
    PillowImage.init()
    name = "PPM" if header.format == "pnm" else header.format.upper()
    if name not in PillowImage.OPEN:
        return None
    try:
        # Not `Image.open`, which has a limit of its own on the size.
        with PillowImage.OPEN[name][0](io.BytesIO(data), "") as image:
            profile: bytes | None = image.info.get("icc_profile")
    except Exception:  # Pillow raises anything; another backend has read the pixels
        return None
    return profile
