"""tifffile: every kind of TIFF, with the codecs of imagecodecs."""

from __future__ import annotations

import io
import logging
import re
from collections.abc import Callable, Iterator
from functools import partial
from typing import cast

import imagecodecs
import numpy as np
import tifffile

from fastdecode import _formats, _pixels
from fastdecode._backends.base import Backend, Support
from fastdecode._formats import jpeg, tiff
from fastdecode._formats.jpeg import EOI
from fastdecode.errors import DecodeError
from fastdecode.types import Buffer, Coding, Color, Header, Image, Mode, PixelLayout

# What it logs of a damaged file would go to stderr.
logging.getLogger("tifffile").addHandler(logging.NullHandler())

_FAX_3, _FAX_4 = 3, 4
_JPEG = 7
_ZEROS = bytes(16)
_MCU = 16  # a JPEG may be filled up to whole blocks
_REVERSED_BITS = 2  # FillOrder
_INKS = {"palette": 1, "gray": 1, "rgb": 3, "ycc": 3, "cmyk": 4}
_PREMULTIPLIED, _ALPHA = 1, 2  # ExtraSamples
# imagecodecs reads CCITT from 2026.1.1 on, which needs Python 3.11.
_FAXES: dict[int, Callable[..., Image]] = {
    number: getattr(imagecodecs, f"ccitt{name}_decode")
    for number, name in ((2, "rle"), (_FAX_3, "fax3"), (_FAX_4, "fax4"))
    if hasattr(imagecodecs, f"ccitt{name}_decode")
}
_CODINGS: frozenset[Coding] = frozenset({"", "packed", "jpeg", *(("fax",) if _FAXES else ())})
_KNOWN: frozenset[Color] = frozenset({"gray", "rgb", "ycc", "cmyk", "palette"})


class Tifffile(Backend):
    """TIFF. Damage that its codecs do not report is looked for before they decode.

    tifffile itself compares the size of each decoded strip and tile with that of the image, which
    finds damage in LZW and PackBits. Deflate and LZMA notice it.
    """

    distribution = "tifffile"
    supports = {
        "tiff": (
            Support(
                layouts=frozenset({"RGB", "L", "RGBA", "stored"}),
                bits=frozenset(range(1, 17)),
                colors=_KNOWN,
                codings=_CODINGS,
            ),
            Support(
                layouts=frozenset({"stored"}),
                bits=frozenset({*range(1, 17), 24, 32, 64}),
                codings=_CODINGS,
                samples=frozenset({"unsigned", "signed", "float"}),
            ),
        ),
    }

    def decode(self, data: Buffer, header: Header, *, layout: PixelLayout, **_: object) -> Image:
        with tifffile.TiffFile(io.BytesIO(data)) as file:
            page = cast("tifffile.TiffPage", file.pages.first)
            check = _CHECKS.get(page.compression)
            if check is not None:
                parts = zip(page.dataoffsets, page.databytecounts, strict=True)
                for index, (at, size) in enumerate(parts):
                    if size:
                        check(bytes(data[at : at + size]), page, index)
            stored = tiff.storage(data)
            planes, *sides, samples = stored.shape
            if page.shaped != (planes, 1, *sides, samples):
                raise DecodeError(f"tifffile takes the TIFF for {page.shaped}, which it is not")
            image = page.asarray(squeeze=False, maxworkers=1)[:, 0]
            image = image[0] if planes == 1 else np.moveaxis(image[..., 0], 0, -1)
            if planes == samples == 1:
                image = image[..., 0]
            if layout != "stored":
                image, header = _shown(image, page, header, white_is_zero=stored.white_is_zero)
            image = _pixels.apply_orientation(image, stored.orientation)
            return _pixels.convert(image, "stored", cast("Mode", layout), header)


def _shown(
    image: Image, page: tifffile.TiffPage, header: Header, *, white_is_zero: bool
) -> tuple[Image, Header]:
    """Return the colours that samples stand for, and alpha if there is any, and their header."""
    white, inks = (1 << header.bits) - 1, _INKS[header.color]
    image = np.atleast_3d(image)
    shown, others = image[..., :inks], image[..., inks:]
    kinds = [*page.extrasamples] or [_ALPHA] * (inks == 3 and header.channels == 4)
    alphas = [number for number, kind in enumerate(kinds) if kind in (_PREMULTIPLIED, _ALPHA)][:1]
    if white_is_zero:
        shown = ~shown if shown.dtype == np.bool_ else np.asarray(white - shown)
    eight = header._replace(bits=8, color="rgb")
    if header.color == "palette":
        shown = _palette(page, header)[shown[..., 0].astype(np.intp)]
    if not alphas:
        return shown, eight if header.color == "palette" else header
    alpha = others[..., alphas]
    if kinds[alphas[0]] == _PREMULTIPLIED and header.color != "palette":
        divided = shown.astype(np.uint32) * white // np.maximum(alpha, 1)
        shown = np.where(alpha > 0, np.minimum(divided, white), shown).astype(image.dtype)
    if header.color == "cmyk":
        shown = _pixels.convert(shown, "stored", "RGB", header)
    if header.color in ("palette", "cmyk"):
        alpha = _pixels.convert(alpha, "stored", "L", header._replace(color="gray"))[..., None]
        header = eight
    return np.concatenate([shown, alpha], axis=-1), header


def _palette(page: tifffile.TiffPage, header: Header) -> Image:
    """Return the colours of a palette in 8 bits. If none has more, they have 8 (tif_getimage.c)."""
    table = np.asarray(page.colormap)
    if table.shape != (3, 1 << header.bits):
        raise DecodeError("the TIFF's colour map is missing, or of another size")
    colours: Image = (table if table.max() < 256 else table >> 8).astype(np.uint8).T
    return colours


# What the codecs of imagecodecs do not notice by themselves.


def _check_jpeg(part: bytes, page: tifffile.TiffPage, index: int) -> None:
    """Check that a JPEG holds all its blocks, as for a JPEG file."""
    tables = page.jpegtables
    data = part if tables is None else part[:2] + tables[2:-2] + part[2:]
    header = _formats.probe(data)
    rows, columns = page.decode(None, index, _fullsize=True)[2][1:3]
    if header.width >= columns + _MCU or header.height >= rows + _MCU:  # room is made for all of it
        raise DecodeError(
            f"a part of the TIFF, of {columns} x {rows} pixels, holds {header.width} x "
            f"{header.height}"
        )
    if (
        np.dtype("u1" if header.bits <= 8 else "u2") != page.dtype
    ):  # samples are converted without a word
        raise DecodeError(f"a part of the TIFF, of {page.dtype}, holds {header.bits} bits a sample")
    data = bytes(jpeg.check_structure(data, header, strict=True).data)

    def decode(again: Buffer) -> Image:
        return np.asarray(imagecodecs.jpeg_decode(cast("bytes", again)))

    jpeg.verify(decode(data), data, header, decode)
    if data.endswith(_ZEROS + EOI):
        shorter = data[: -len(_ZEROS + EOI)] + EOI
        try:
            jpeg.verify(decode(shorter), shorter, header, decode)
        except DecodeError:
            return  # they are data
        bare = data[: -len(EOI)].rstrip(b"\0") + EOI
        jpeg.verify(decode(bare), bare, header, decode)  # or they stand in place of data


def _check_fax(part: bytes, page: tifffile.TiffPage, index: int) -> None:
    """Check CCITT data by a row of our own behind it, which must come out behind the last row.

    Whatever is missing, or stops the decoder, leaves that row out or shifts it.
    """
    height, width = page.decode(None, index)[2][1:3]
    if page.fillorder == _REVERSED_BITS:
        part = bytes(imagecodecs.bitorder_decode(part))
    options = int(page.tags.valueof(292) or 0)
    decode = decode_more = _FAXES[page.compression]
    if page.compression == _FAX_3:
        decode = partial(decode_more, t4options=options)
        decode_more = partial(decode, t4options=options | _FILLED)  # the last byte may be filled up
    image, striped = decode(part, height, width), np.arange(1, width + 1) % 2
    for longer in _with_row(part, page.compression, width, options):
        try:
            more = decode_more(longer, height + 1, width)
        except RuntimeError:  # of imagecodecs
            continue
        if np.array_equal(more[height], striped) and np.array_equal(more[:height], image):
            return
    raise DecodeError("CCITT data of the TIFF is damaged, or ends before the image does")


def _with_row(part: bytes, compression: int, width: int, options: int) -> Iterator[bytes]:
    """Yield CCITT data with another row, of black and white pixels in turn.

    Zeros at the end may belong to the last code, or not: then there are two places for the row.
    ITU-T T.4 and T.6: the run of no white pixel is 00110101, of one 000111; of no black pixel
    0000110111, of one 010. In two-dimensional coding 001 begins two such runs.
    """
    runs = ["00110101010", *["000111010"] * ((width - 1) // 2)]
    if width % 2 == 0:
        runs.append("0001110000110111")
    bits, row = f"{int.from_bytes(part, 'big'):0{8 * len(part)}b}", "".join(runs)
    if compression == _FAX_4:
        begun, row = bits.rstrip("0"), "".join(f"001{pair}" for pair in runs) + _EOL * 2
        if not begun.endswith(_EOL * 2):
            raise DecodeError("CCITT data of the TIFF does not end in its end mark")
        begins = [begun.removesuffix(_EOL * 2)]
    elif compression == _FAX_3:
        mark = _EOL + "1" * (options & _TWO_DIMENSIONAL)
        begins, row = [re.sub(f"(?:0*{mark})+0*$", "", bits)], mark + row + mark
    else:  # each row begins with a byte
        begun = bits[: 8 * len(part.rstrip(b"\0"))]
        begins = [bits, begun]
    for begin in begins:
        longer = begin + row + "0" * (-len(begin + row) % 8)
        yield int(longer, 2).to_bytes(len(longer) // 8, "big")


_EOL = "000000000001"
_TWO_DIMENSIONAL, _FILLED = 1, 4  # T4Options
_CHECKS: dict[int, Callable[[bytes, tifffile.TiffPage, int], None]] = {
    **dict.fromkeys(_FAXES, _check_fax),
    _JPEG: _check_jpeg,
}
