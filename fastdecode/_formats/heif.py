"""AVIF and HEIC: what their libraries say, and the boxes and coded images in them.

ISO/IEC 14496-12 (boxes, iinf, iloc, stco, stsz), ISO/IEC 23008-12 (meta). JPEG 2000 and JPEG XL
consist of such boxes, too.
"""

from __future__ import annotations

import io
import struct
from collections.abc import Iterator
from typing import NamedTuple, cast

from fastdecode._formats import exif
from fastdecode.errors import DecodeError, UnsupportedFormat
from fastdecode.types import Buffer, Color, Format, Header

_MAX_BOXES = 4096  # in one parent
_MAX_BRANDS = 64
_MAX_EXTENTS = 16384
_MOST_CLAIMED = 4  # times the size of the file, by images that share data
_AVIF_BRANDS = frozenset({b"avif", b"avis", b"avio", b"MA1A", b"MA1B", b"av01"})
_HEIC_BRANDS = frozenset({b"heic", b"heix", b"hevc", b"hevx", b"heim", b"heis", b"hevm", b"hevs"})
_HEIF_BRANDS = frozenset({b"mif1", b"mif2", b"msf1", b"miaf"})
_HEVC, _AV1 = b"hvc1", b"av01"
_IN_NO_UNIT = (b"\0\0\0", b"\0\0\1", b"\0\0\2")
_MAX_PADDING = 64  # bytes
_KEY_SLICES = range(16, 24)  # the types of NAL units that hold a part of a still image
_ZEROS = bytes(16)
_IN_FILE, _IN_IDAT = 0, 1  # construction methods


class Box(NamedTuple):
    """A box: its type, and where its contents begin and end; a cut file may lack their end."""

    kind: bytes
    start: int
    end: int


def boxes(data: Buffer, start: int = 0, end: int | None = None) -> Iterator[Box]:
    """Yield the boxes of a file, or of the contents of a box.

    A size of 1 means a 64-bit size, and 0 means "to the end".
    """
    end = len(data) if end is None else min(end, len(data))
    for _ in range(_MAX_BOXES):
        if start + 8 > end:
            return
        size, kind = struct.unpack_from(">I4s", data, start)
        header = 8
        if size == 1:
            (size,) = struct.unpack_from(">Q", data, start + 8)
            header = 16
        elif size == 0:
            size = end - start
        if size < header:
            raise DecodeError(f"the {kind!r} box has the impossible size {size}")
        yield Box(kind, start + header, start + size)
        start += size


def find(data: Buffer, *path: bytes) -> Box | None:
    """Follow a path of types from the file on, taking the first box of each."""
    box = Box(b"", 0, len(data))
    for kind in path:
        begin = box.start + (4 if box.kind == b"meta" else 0)  # its version and flags
        found = next((one for one in boxes(data, begin, box.end) if one.kind == kind), None)
        if found is None:
            return None
        box = found
    return box


def sniff(data: Buffer) -> Format | None:
    """Return the format by the brands; None for films and other files made of such boxes.

    The major brand decides if it names a codec. If it is generic (mif1 …), the compatible brands
    decide. If all of them are generic, the format is HEIC, so that the HEIF library decodes the
    file.
    """
    end = min(int.from_bytes(data[:4], "big"), 16 + 4 * _MAX_BRANDS)
    listed = bytes(data[8:12]) + bytes(data[16:end])
    brands = [listed[i : i + 4] for i in range(0, len(listed), 4)]
    for brand in brands:
        if brand in _AVIF_BRANDS:
            return "avif"
        if brand in _HEIC_BRANDS:
            return "heic"
    return None if _HEIF_BRANDS.isdisjoint(brands) else "heic"


def missing_images(data: Buffer) -> str:
    """Return what is missing of the coded images of an AVIF or HEIC; empty if nothing.

    Their decoders conceal damage: libheif leaves a tile out of a grid that it cannot decode,
    libde265 fills in what it lacks, and dav1d decodes zeros in place of data.
    """
    for box in boxes(data):
        if box.kind in (b"meta", b"moov") and box.end > len(data):
            return f"the {box.kind.decode()} box ends at {box.end}, past the {len(data)} bytes"
    prefix = find(data, b"meta", b"iprp", b"ipco", b"hvcC")
    prefix_size = 1 + (data[prefix.start + 21] & 3) if prefix else 4
    claimed = 0
    for item, kind, parts in _images(data):
        for begin, end, room in parts:
            claimed += end - begin
            if end > room:
                return f"image {item} ends at byte {end}, past the end of its data at {room}"
        if claimed > _MOST_CLAIMED * len(data):  # looking through it all could take hours
            return f"the images claim {claimed} bytes of {len(data)}"
        coded = b"".join(data[begin:end] for begin, end, _ in parts)
        if kind == _HEVC and not _is_whole_hevc(coded, prefix_size):
            return f"image {item} contains bytes that no HEVC encoder writes, such as zeros"
        # The coder of symbols makes no long run of zeros, and each tile ends in a bit that is set
        # (AV1 bitstream specification, 8.2.4).
        if kind == _AV1 and _ZEROS in coded:
            return f"image {item} has zeros that no AV1 encoder writes"
    return ""


def _primary(data: Buffer) -> bytes:
    """Return the beginning of the coded data of the primary image, or of the first track.

    It is empty if the image is made of others, as a grid is of tiles.
    """
    pitm = find(data, b"meta", b"pitm")
    item = _integer(data, pitm.start + 4, 4 if data[pitm.start] else 2) if pitm else 0
    for one, _, parts in _images(data):
        if one == item or (one == 0 and data[8:12] != b"avif"):
            return bytes(data[parts[0][0] : parts[0][1]])
    return b""


def _is_whole_hevc(coded: bytes, prefix: int) -> bool:
    """Return whether coded HEVC is complete NAL units, with a picture and no forbidden bytes.

    A few zeros at the end of a unit may be padding. ISO/IEC 14496-15, 8.3 (length prefixes); ITU-T
    H.265, 7.4.2: the three bytes 00 00 00, 00 00 01 or 00 00 02 occur in no NAL unit. So zeros in
    place of data are recognised with certainty.
    """
    at, has_picture = 0, False
    while at < len(coded):
        start = at + prefix
        at = start + int.from_bytes(coded[at:start], "big")
        if at == start or at > len(coded):
            return False
        has_picture = has_picture or coded[start] >> 1 in _KEY_SLICES
        end = at
        while end > start and not coded[end - 1] and at - end < _MAX_PADDING:
            end -= 1
        if any(coded.find(triple, start, end) >= 0 for triple in _IN_NO_UNIT):
            return False
    return has_picture


def _images(data: Buffer) -> Iterator[tuple[int, bytes, list[tuple[int, int, int]]]]:
    """Yield (item, codec, parts) of each coded image; a part is (begin, end, end of its room)."""
    idat = find(data, b"meta", b"idat")
    rooms = {_IN_FILE: (0, len(data))} | ({_IN_IDAT: idat[1:]} if idat else {})
    kinds = _kinds(data)
    for item, method, extents in _extents(data):
        if kinds.get(item) in (_HEVC, _AV1) and method in (_IN_FILE, _IN_IDAT):
            origin, room = rooms.get(method, (0, 0))
            ends = ((origin + at, origin + at + size if size else room) for at, size in extents)
            yield item, kinds[item], [(begin, end, room) for begin, end in ends]
    table = find(data, b"moov", b"trak", b"mdia", b"minf", b"stbl")
    if table is not None and data[8:12] != b"avif":
        found = {box.kind: box.start for box in boxes(data, table.start, table.end)}
        wide = b"stco" not in found
        kind, sizes, places = (
            found.get(name) for name in (b"stsd", b"stsz", b"co64" if wide else b"stco")
        )
        is_av1 = kind and data[kind + 12 : kind + 16] == _AV1
        if is_av1 and sizes and places and _integer(data, places + 4, 4):
            begin = _integer(data, places + 8, 8 if wide else 4)
            size = _integer(data, sizes + 4, 4) or _integer(data, sizes + 12, 4)
            yield 0, _AV1, [(begin, begin + size, len(data))]


def _kinds(data: Buffer) -> dict[int, bytes]:
    """Return the type of each item, such as that of its codec."""
    iinf = find(data, b"meta", b"iinf")
    if iinf is None:
        return {}
    kinds = {}
    for box in boxes(data, iinf.start + (8 if data[iinf.start] else 6), iinf.end):
        size = 4 if data[box.start] == 3 else 2
        at = box.start + 4 + size + 2
        kinds[_integer(data, box.start + 4, size)] = bytes(data[at : at + 4])
    return kinds


def _extents(data: Buffer) -> Iterator[tuple[int, int, list[tuple[int, int]]]]:
    """Yield (item, construction method, extents) of each item; an extent is (offset, length)."""
    iloc = find(data, b"meta", b"iloc")
    if iloc is None:
        return
    version, at, budget = data[iloc.start], iloc.start + 6, _MAX_EXTENTS
    of_offset, of_length = divmod(data[iloc.start + 4], 16)
    of_base, of_index = divmod(data[iloc.start + 5], 16)

    def read(size: int) -> int:
        nonlocal at
        at += size
        return _integer(data, at - size, size)

    for _ in range(read(4 if version == 2 else 2)):
        item = read(4 if version == 2 else 2)
        method = read(2) & 15 if version else _IN_FILE
        read(2)  # data_reference_index
        base, count = read(of_base), read(2)
        budget -= 1 + count
        if budget < 0 or at > iloc.end:
            return
        extents = []
        for _ in range(count):
            read(of_index if version else 0)
            extents.append((base + read(of_offset), read(of_length)))
        yield item, method, extents


def _integer(data: Buffer, at: int, size: int) -> int:
    """Read a big-endian integer, without any bytes beyond the end of the file."""
    return int.from_bytes(data[at : at + size], "big")


_DELIMITER, _SEQUENCE = b"\x12\0", b"\x0a"  # the first bytes of OBUs
_FILLING = b"\xff"


def parse_avif(data: Buffer) -> Header:
    """Read an AVIF's header: the stored pixels, without cropping, of the image or first frame.

    `orientation` comes from the irot and imir properties; Pillow puts it into the EXIF block.
    """
    from PIL import AvifImagePlugin

    if not AvifImagePlugin.SUPPORTED:
        raise UnsupportedFormat("this build of Pillow does not read AVIF: pip install -U pillow")
    image = AvifImagePlugin.AvifImageFile(io.BytesIO(data))
    block = image.info.get("exif", b"")
    return Header(
        "avif",
        *image.size,
        len(image.mode),
        _bits(data),
        exif.orientation(block, 0, len(block)),
        color="ycc",
        animated=image.n_frames > 1,
    )


def _bits(data: Buffer) -> int:
    """Return the bits of a sample: Pillow does not say them, but the first av1C box does."""
    at = bytes(data).find(b"av1C")
    flags = data[at + 6] if at >= 0 else 0
    return (12 if flags & 0x20 else 10) if flags & 0x40 else 8


def missing(data: Buffer, header: Header) -> str:
    """Return what the coded images of an AVIF or HEIC lack; empty if nothing.

    libavif scales the first image to the size that the container promises, which may be gigabytes.
    """
    words = missing_images(data)
    if words or header.format != "avif":
        return words
    sides = _coded_sides(_primary(data))
    if sides is None or (header.width <= sides[0] and header.height <= sides[1]):
        return ""
    return f"{header.width}x{header.height} are promised, {sides[0]}x{sides[1]} are coded"


def _coded_sides(coded: bytes) -> tuple[int, int] | None:
    """Return the width and height of an AV1 sequence header; None if it is of a rare kind.

    AV1 bitstream specification, 5.3 (OBUs) and 5.5 (sequence header).
    """
    coded = coded.removeprefix(_DELIMITER)
    if coded[:1] != _SEQUENCE:
        return None
    bits = f"{int.from_bytes(coded[2:34].ljust(32, _FILLING), 'big'):0256b}"
    at = 10  # the profile, still_picture, reduced_still_picture_header, the level
    if bits[4] == "0":
        if bits[5:7] != "00":  # timing_info, initial_display_delay
            return None
        at = 12
        for _ in range(int(bits[7:12], 2) + 1):  # operating points: a level above 7 has a tier
            at += 17 + (int(bits[at + 12 : at + 17], 2) > 7)
    across, down = (1 + int(bits[place : place + 4], 2) for place in (at, at + 4))
    at += 8
    width, height = bits[at : at + across], bits[at + across : at + across + down]
    return int(width, 2) + 1, int(height, 2) + 1


def parse_heic(data: Buffer) -> Header:
    """Read a HEIC's header: the pixels as seen, because libheif crops and turns them."""
    try:
        import pillow_heif
    except ImportError as error:
        raise UnsupportedFormat(
            f"HEIC is read by pillow_heif, which cannot be used here ({error}). "
            "Install it with: pip install 'fastdecode[pillow_heif]'"
        ) from error
    file = pillow_heif.open_heif(bytes(data), convert_hdr_to_8bit=False, hdr_to_16bit=False)
    image = file[file.primary_index]
    channels = len(image.mode.partition(";")[0])  # of "RGB;10", say
    color: Color = "gray" if channels < 3 else "ycc"
    bits = cast("int", image.info["bit_depth"])
    return Header("heic", *image.size, channels, bits, color=color)
