"""Making a picture smaller, and encoding it anew with its EXIF data and colour profile.

What else it says of itself (XMP, comments, resolution, the EXIF data of a TIFF) is left out.

A JPEG stays one. Of the others, what is opaque, in full colour or grey of 8 bits becomes a JPEG;
what has transparency, a palette or fewer bits, and a PNG in 16-bit grey, becomes a PNG, which loses
nothing of that. CMYK becomes RGB, and its profile is dropped, for it is one of inks.
"""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from PIL import Image as PillowImage

from fastdecode.api import decode

if TYPE_CHECKING:
    from fastdecode.types import Buffer, Header, Image

__all__ = ["Shrunk", "can_shrink", "shrink", "smaller_size"]

_EXIF = b"Exif\0\0"
_ORIENTATION = 0x0112
_LONGEST_EXIF = 65533
"""What a JPEG segment holds, in bytes (ITU-T T.81, B.1.1.4)."""
_GAP = 2
"""The decoder's own reduction stops at twice the size wanted, and the filter does the rest: so does
`PIL.Image.Image.thumbnail`, whose ``reducing_gap`` this is."""


class Shrunk(NamedTuple):
    """An encoded picture, and how the names of its format end."""

    data: bytes
    suffix: str


def smaller_size(width: int, height: int, max_side: int) -> tuple[int, int]:
    """Return (width, height) whose larger side is `max_side` pixels, in the same proportion."""
    larger = max(width, height)
    return (
        max(1, (width * max_side + larger // 2) // larger),
        max(1, (height * max_side + larger // 2) // larger),
    )


def can_shrink(header: Header) -> bool:
    """Whether all that the picture holds can be kept.

    It cannot of animations, 16-bit colour, and TIFFs of 16 bits, which may be signed.
    """
    deep_gray = header.bits == 16 and header.channels == 1 and header.format == "png"
    return not header.animated and (header.bits <= 8 or deep_gray)


def shrink(data: Buffer, header: Header, max_side: int, quality: int) -> Shrunk:
    """Shrink a picture so that its larger side has `max_side` pixels.

    Parameters
    ----------
    data : bytes or memoryview
    header : Header
        Of `data`; one that `can_shrink`.
    max_side : int
        In pixels; less than what it has.
    quality : int
        Of a JPEG, 1 to 100.

    Returns
    -------
    Shrunk
        Pixels lie as in the file, and the EXIF orientation stays.

    Raises
    ------
    FastDecodeError
        If it does not decode, all of it.
    ValueError
        If Pillow cannot encode it: a JPEG has no side of more than 65,500 pixels there.

    Notes
    -----
    First the decoder's reduction, in the DCT for JPEG; then Pillow's Lanczos filter, which averages
    over all pixels that become one. Pillow weights colours by their alpha.
    """
    size = smaller_size(header.width, header.height, max_side)
    image = _smaller(_pixels(data, header, size), size)
    as_png = header.format != "jpeg" and _needs_png(image, header)
    if image.mode == "RGBA":
        # Grey stays grey: its profile, if it has one, is not one of colours.
        mode = "L" if header.color == "gray" else "RGB"
        image = image.convert(mode if _opaque(image) else f"{mode}A")
    if as_png:
        return Shrunk(_encoded(image, "png", **_said(data, header)), ".png")
    sampling = {"subsampling": "4:2:0"} if image.mode == "RGB" else {}
    options = {"quality": quality, "optimize": True, **sampling, **_said(data, header)}
    return Shrunk(_encoded(image, "jpeg", **options), ".jpg")


def _pixels(data: Buffer, header: Header, size: tuple[int, int]) -> Image:
    """Decode at least twice the pixels wanted, in a layout that shows what is there."""
    wanted = (size[1] * _GAP, size[0] * _GAP)
    if header.bits == 16:
        return decode(data, mode="native")
    if header.format == "jpeg":
        return decode(data, min_size=wanted, mode="L" if header.color == "gray" else "RGB")
    return decode(data, min_size=wanted, mode="RGBA")


def _smaller(pixels: Image, size: tuple[int, int]) -> PillowImage.Image:
    if pixels.dtype != np.uint8:  # Pillow filters floats, where 16 bits fit without loss
        real = PillowImage.fromarray(pixels.astype(np.float32)).resize(size, _LANCZOS)
        return PillowImage.fromarray(np.rint(np.asarray(real)).clip(0, 65535).astype(np.uint16))
    return PillowImage.fromarray(pixels).resize(size, _LANCZOS)


_LANCZOS = PillowImage.Resampling.LANCZOS


def _needs_png(image: PillowImage.Image, header: Header) -> bool:
    """Whether a JPEG could not hold it, or would blur what is drawn in few colours."""
    if header.bits != 8 or header.color == "palette":
        return True
    return not _opaque(image)


def _encoded(image: PillowImage.Image, format: str, **options: Any) -> bytes:
    file = io.BytesIO()
    try:
        image.save(file, format, **options)
    except (OSError, ValueError) as error:
        sides = f"{image.width} x {image.height}"
        raise ValueError(
            f"smaller, it is {sides} pixels, which cannot be encoded as {format}: {error}"
        ) from error
    return file.getvalue()


def _opaque(image: PillowImage.Image) -> bool:
    least, _ = image.getchannel("A").getextrema()
    return least == 255


def _said(data: Buffer, header: Header) -> dict[str, bytes]:
    """Return what the file says beside its pixels, as Pillow's encoders take it."""
    try:
        with PillowImage.open(io.BytesIO(data)) as image:
            info = image.info
    except OSError:  # a format that Pillow does not read, but another backend does
        info = {}
    said = {"exif": _exif(info.get("exif", b""), header.orientation)}
    if header.color != "cmyk":
        said["icc_profile"] = info.get("icc_profile") or b""
    return {name: value for name, value in said.items() if value}


def _exif(given: bytes, orientation: int) -> bytes:
    """Return EXIF data that says this orientation, as it is if it does already.

    It does not for formats whose decoders turn pictures upright, and for numbers that mean nothing.
    """
    exif = PillowImage.Exif()
    if given and not given.startswith(_EXIF):  # WebP has it without, JPEG with: Pillow takes that
        given = _EXIF + given
    try:
        exif.load(given)
        said = exif.get(_ORIENTATION, 1)
    except Exception:  # whatever Pillow makes of damaged metadata: the orientation is known
        exif, given, said = PillowImage.Exif(), b"", 1
    if said == orientation and len(given) <= _LONGEST_EXIF:
        return given
    if len(given) > _LONGEST_EXIF:
        exif = PillowImage.Exif()
    exif[_ORIENTATION] = orientation
    return exif.tobytes()
