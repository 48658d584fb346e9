"""AVIF and HEIC: the boxes of a still image's primary item, or of a sequence's first track.

ISO/IEC 14496-12 (boxes, pitm, iloc, iref, tkhd); ISO/IEC 23008-12 (meta, iprp, ispe, clap, irot,
imir); AVIF 1.1. The containers of JPEG 2000 and JPEG XL consist of the same kind of boxes.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator
from itertools import islice
from typing import Any, NamedTuple

from fastdecode.errors import DecodeError
from fastdecode.types import Buffer, Color, Format, Header

_MAX_BOXES = 1024  # in one parent
_MAX_TRACKS = 8
_MAX_BRANDS = 64
_MAX_ENTRIES = 16384  # associations, references or extents to read
_AVIF_BRANDS = frozenset({b"avif", b"avis", b"avio", b"MA1A", b"MA1B", b"av01"})
_HEIC_BRANDS = frozenset({b"heic", b"heix", b"hevc", b"hevx", b"heim", b"heis", b"hevm", b"hevs"})
_HEIF_BRANDS = frozenset({b"mif1", b"mif2", b"msf1", b"miaf"})
_IN_NO_UNIT = (b"\0\0\0", b"\0\0\1", b"\0\0\2")
_MAX_PADDING = 64  # bytes
_ZEROS = bytes(16)
_SEQUENCE_HEADER = 1  # the type of an AV1 OBU
_MAX_SEQUENCE = 512  # bytes
# Names of the alpha plane in HEIF's auxC and in a track's auxi.
_ALPHA = re.compile(rb"urn:mpeg:(?:mpegB:cicp:systems:auxiliary:alpha|(?:hevc|avc):2015:auxid:1)\0")
# EXIF orientation of "turn anticlockwise by angle * 90 degrees, then mirror": (angle, imir axis).
_ORIENTATIONS = {
    (0, None): 1, (1, None): 8, (2, None): 3, (3, None): 6,
    (0, 0): 4, (1, 0): 5, (2, 0): 2, (3, 0): 7,
    (0, 1): 2, (1, 1): 7, (2, 1): 4, (3, 1): 5,
}  # fmt: skip


class IsoBox(NamedTuple):
    """A box of a file: its type, the offsets of its contents, and the end that it claims."""

    data: Buffer
    kind: bytes
    start: int
    end: int
    claimed: int

    def byte(self, at: int) -> int:
        return self.data[self.start + at]

    def integer(self, at: int, size: int) -> int:
        """Read a big-endian integer, without any bytes beyond the end of the file."""
        return int.from_bytes(self.data[self.start + at : self.start + at + size], "big")

    def fields(self, form: str, at: int = 0) -> tuple[Any, ...]:
        return struct.unpack_from(f">{form}", self.data, self.start + at)

    def boxes(self, skip: int = 0) -> Iterator[IsoBox]:
        """Yield the boxes inside, at most a thousand of them.

        A size of 1 means a 64-bit size, and 0 means "to the end". A box that claims to be larger
        than its parent is cut to the parent, because often only a part of a file is read.
        """
        start, end = self.start + skip, min(self.end, len(self.data))
        for _ in range(_MAX_BOXES):
            if start + 8 > end:
                return
            size, kind = struct.unpack_from(">I4s", self.data, start)
            header = 8
            if size == 1:
                (size,) = struct.unpack_from(">Q", self.data, start + 8)
                header = 16
            elif size == 0:
                size = end - start
            if size < header:
                raise DecodeError(f"the {kind!r} box has the impossible size {size}")
            claimed = start + size
            yield IsoBox(self.data, kind, min(start + header, end), min(claimed, end), claimed)
            start = claimed

    def by_kind(self) -> dict[bytes, IsoBox]:
        """Return the first box of each type."""
        return {box.kind: box for box in reversed(list(self.boxes()))}

    def find(self, *path: bytes) -> IsoBox | None:
        """Follow a path of types, taking the first box of each; return None if one is missing."""
        box: IsoBox | None = self
        for kind in path:
            children = box.boxes() if box else ()
            box = next((child for child in children if child.kind == kind), None)
        return box


class _Reader:
    """Reads the integers of a box one after another."""

    def __init__(self, box: IsoBox, at: int) -> None:
        self._box = box
        self.at = at

    def __call__(self, size: int) -> int:
        self.at += size
        return self._box.integer(self.at - size, size)


class Grid(NamedTuple):
    """An image made of tiles: its item, and the items of the tiles, row by row.

    `width` and `height` are the smallest visible size of a tile: the image may show only a part of
    the last column and row. They are 1 if the size is not known.
    """

    item: int
    tiles: tuple[int, ...]
    width: int
    height: int


def whole(data: Buffer) -> IsoBox:
    """Return a file as a box."""
    return IsoBox(data, b"", 0, len(data), len(data))


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


def parse(data: Buffer) -> Header:
    """Read an AVIF's or a HEIC's header, which describes the array that its decoder returns.

    AVIF (Pillow, libavif): the stored pixels, without cropping, with `orientation` from the irot
    and imir properties. If the major brand is not ``avif`` and there is a track, the header
    describes the track, which libavif decodes.

    HEIC (pillow_heif, libheif): the pixels as seen. `width` and `height` already include clap, irot
    and imir, and `orientation` is 1.

    EXIF is ignored in both.
    """
    file_format = sniff(data) or "heic"
    meta, track = _shown(data, file_format)
    header = _track(track, file_format) if track is not None else None
    if header is None and meta is not None:
        header = _primary(_Items(meta), file_format)
    if header is None:
        raise DecodeError(f"the {file_format.upper()} file has no primary image")
    if not header.width or not header.height:
        raise DecodeError(f"the {file_format.upper()} header gives no size")
    return header


def missing(data: Buffer) -> str:
    """Return which part of the image is not in the file; empty if none is known to be missing.

    Of a track, only the size is checked. Other items, such as EXIF or a preview, are not checked.
    libheif leaves a missing tile out of a grid, and its decoder conceals missing coded data, so
    neither reports it. libavif scales what is coded to the size that the header promises.
    """
    for box in whole(data).boxes():
        if box.kind in (b"meta", b"moov") and box.claimed > len(data):
            return f"the {box.kind.decode()} box ends at {box.claimed}, past the {len(data)} bytes"
    meta, track = _shown(data, sniff(data) or "heic")
    if track is not None:
        return _track_mismatch(track)
    if meta is None:
        return ""
    items = _Items(meta)
    shown = items.shown()
    sources = (whole(data), items.children.get(b"idat"))  # by construction method
    coded: dict[int, list[bytes]] = {}
    for item, method, start, length in items.extents():
        if item not in shown or method >= len(sources):
            continue
        source = sources[method]
        origin, room = (source.start, source.end) if source else (0, 0)
        begin, end = origin + start, origin + start + length
        if end > room:
            where = "idat box" if method else "file"
            return f"item {item} ends at byte {end}, past the end of the {where} at {room}"
        coded.setdefault(item, []).append(bytes(data[begin:end]))
    for item, parts in coded.items():
        data = b"".join(parts)
        configuration = items.property(item, b"hvcC")
        if configuration and _has_gap(data, 1 + (configuration.byte(21) & 3)):
            return f"item {item} contains bytes that no HEVC encoder writes, such as zeros"
        if items.property(item, b"av1C"):
            layered = items.property(item, b"lsel") is not None
            words = _mismatch(items.stored_sides(item), data, layered=layered) or _zeros(data)
            if words:
                return f"item {item}: {words}"
    return ""


def _track_mismatch(moov: IsoBox) -> str:
    """Compare the size of each AV1 track with that of its first frame."""
    for trak in islice((box for box in moov.boxes() if box.kind == b"trak"), _MAX_TRACKS):
        tables = trak.find(b"mdia", b"minf", b"stbl")
        tkhd = trak.find(b"tkhd")
        found = tables.by_kind() if tables else {}
        kind, sizes = found.get(b"stsd"), found.get(b"stsz")
        places = found.get(b"stco") or found.get(b"co64")
        if tkhd is None or kind is None or sizes is None or places is None:
            continue
        if kind.fields("4s", 12)[0] != b"av01" or not places.integer(4, 4):
            continue
        begin = places.integer(8, 8 if places.kind == b"co64" else 4)
        size = sizes.integer(4, 4) or sizes.integer(12, 4)
        width, height = _track_sides(tkhd)
        coded = bytes(moov.data[begin : begin + size])
        words = _mismatch((width, height), coded) or _zeros(coded)
        if words:
            return f"a track: {words}"
    return ""


def _mismatch(promised: tuple[int, int], coded: bytes, *, layered: bool = False) -> str:
    """Return how a promised size differs from the coded one; empty if either is not known.

    A file with several layers may show one that is smaller than the largest.
    """
    known = _av1_sides(coded)
    if known is None or not all(promised) or known == promised:
        return ""
    if layered and promised[0] <= known[0] and promised[1] <= known[1]:
        return ""
    return f"{promised[0]}x{promised[1]} pixels are promised, but {known[0]}x{known[1]} are coded"


def _zeros(coded: bytes) -> str:
    """Return a complaint if coded AV1 has a long run of zeros; empty if not.

    The coder of symbols has no long run of them, and each tile ends with a bit that is set (AV1
    bitstream specification, 8.2.4).
    """
    return "the coded data has zeros that no encoder writes" if _ZEROS in coded else ""


class _Bits:
    """Reads numbers of any length, most significant bit first."""

    def __init__(self, data: bytes) -> None:
        self._bits, self._left = int.from_bytes(data, "big"), 8 * len(data)

    def __call__(self, count: int) -> int:
        self._left -= count
        if self._left < 0:
            raise IndexError("the data ends")
        return self._bits >> self._left & (1 << count) - 1


def _av1_sides(coded: bytes) -> tuple[int, int] | None:
    """Return the largest width and height of AV1 frames; None without a sequence header.

    AV1 bitstream specification, 5.3 (OBUs), 5.5 (sequence header).
    """
    at = 0
    while at + 2 <= len(coded):
        head = coded[at]
        at += 2 if head & 4 else 1
        size = len(coded) - at
        if head & 2:
            size = shift = 0
            while True:  # LEB128
                byte = coded[at]
                at += 1
                size |= (byte & 0x7F) << shift
                shift += 7
                if byte < 0x80 or shift > 28:
                    break
        if head >> 3 & 15 == _SEQUENCE_HEADER:
            return _sequence_sides(_Bits(coded[at : at + min(size, _MAX_SEQUENCE)]))
        at += size
    return None


def _sequence_sides(bits: _Bits) -> tuple[int, int]:
    """Read a sequence header up to max_frame_width_minus_1 and max_frame_height_minus_1."""
    bits(4)  # seq_profile, still_picture
    if bits(1):  # reduced_still_picture_header
        bits(5)
    else:
        delay = 0
        if bits(1):  # timing_info
            bits(64)
            if bits(1):  # a number in Exp-Golomb code
                zeros = next(count for count in range(33) if bits(1))
                bits(zeros)
            if bits(1):  # decoder_model_info
                delay = bits(5) + 1
                bits(42)
        displayed = bits(1)
        for _ in range(bits(5) + 1):  # operating points
            bits(12)
            if bits(5) > 7:
                bits(1)
            if delay and bits(1):
                bits(2 * delay + 1)
            if displayed and bits(1):
                bits(4)
    across, down = bits(4) + 1, bits(4) + 1
    return bits(across) + 1, bits(down) + 1


def _has_gap(coded: bytes, prefix: int) -> bool:
    """Return whether coded HEVC has an incomplete NAL unit, or one with forbidden bytes.

    A few zeros at the end of a unit may be padding. ISO/IEC 14496-15, 8.3 (length prefixes); ITU-T
    H.265, 7.4.2: the three bytes 00 00 00, 00 00 01 or 00 00 02 occur in no NAL unit. So zeros in
    place of data are recognised with certainty.
    """
    at = 0
    while at < len(coded):
        start = at + prefix
        at = start + int.from_bytes(coded[at:start], "big")
        if at == start or at > len(coded):
            return True
        end = at
        while end > start and not coded[end - 1] and at - end < _MAX_PADDING:
            end -= 1
        if any(coded.find(triple, start, end) >= 0 for triple in _IN_NO_UNIT):
            return True
    return False


def grid(data: Buffer) -> Grid | None:
    """Return the tiles of the primary image; None if it is not made of tiles."""
    meta, _ = _shown(data, "heic")
    items = _Items(meta) if meta is not None else None
    tiles = items.tiles(items.primary) if items is not None else ()
    if items is None or not tiles:
        return None
    width, height = items.stored_sides(items.primary)
    tile_width, tile_height = items.stored_sides(tiles[0])
    if not tile_width or not tile_height or items.property(items.primary, b"clap"):
        return Grid(items.primary, tiles, 1, 1)
    return Grid(items.primary, tiles, (width - 1) % tile_width + 1, (height - 1) % tile_height + 1)


def with_tiles_apart(data: Buffer, grid: Grid) -> bytes:
    """Return a copy of a file in which each tile is a separate image, and the grid is hidden.

    ISO/IEC 23008-12, 6.4.2: an item is hidden by the lowest bit of its infe box's flags.
    """
    copy = bytearray(data)
    meta, _ = _shown(data, "heic")
    children = meta.by_kind() if meta else {}
    pitm, iinf = children.get(b"pitm"), children.get(b"iinf")
    if pitm is None or iinf is None:
        return bytes(copy)
    size = _id_size(pitm)
    copy[pitm.start + 4 : pitm.start + 4 + size] = grid.tiles[0].to_bytes(size, "big")
    for infe in iinf.boxes(skip=8 if iinf.byte(0) else 6):
        item = infe.integer(4, 4 if infe.byte(0) == 3 else 2)
        if item in grid.tiles:
            copy[infe.start + 3] &= 0xFE
        elif item == grid.item:
            copy[infe.start + 3] |= 1
    return bytes(copy)


def _shown(data: Buffer, file_format: Format) -> tuple[IsoBox | None, IsoBox | None]:
    """Return the contents of the meta box; and the moov box, but only if a track is shown."""
    top = whole(data).by_kind()
    meta, moov = top.get(b"meta"), top.get(b"moov")
    if meta is not None:
        meta = meta._replace(start=meta.start + 4)
    track = meta is None or (file_format == "avif" and data[8:12] != b"avif")
    return meta, moov if track else None


def _track(moov: IsoBox, file_format: Format) -> Header | None:
    """Return the header of the first image track."""
    header = None
    alpha = False
    for trak in islice((box for box in moov.boxes() if box.kind == b"trak"), _MAX_TRACKS):
        handler = trak.find(b"mdia", b"hdlr")
        if handler is None:
            continue
        kind = handler.data[handler.start + 8 : handler.start + 12]
        if kind == b"auxv":
            alpha = alpha or _names_alpha(trak.find(b"mdia", b"minf", b"stbl", b"stsd"))
        tkhd = trak.find(b"tkhd")
        if header is None and kind == b"pict" and tkhd is not None:
            width, height = _track_sides(tkhd)
            sizes = trak.find(b"mdia", b"minf", b"stbl", b"stsz")
            several = sizes is not None and sizes.fields("I", 8)[0] > 1
            header = Header(file_format, width, height, color="ycc", animated=several)
    return header._replace(channels=3 + alpha) if header else None


def _track_sides(tkhd: IsoBox) -> tuple[int, int]:
    """Return the size of a track, which is stored as 16.16 fixed point."""
    width, height = tkhd.fields("II", 88 if tkhd.byte(0) == 1 else 76)
    return width >> 16, height >> 16


class _Items:
    """The items that a meta box describes. `primary` is 0 if it names no primary item."""

    def __init__(self, meta: IsoBox) -> None:
        self.children = meta.by_kind()
        pitm, iprp = self.children.get(b"pitm"), self.children.get(b"iprp")
        self.primary = pitm.integer(4, _id_size(pitm)) if pitm else 0
        container = iprp.find(b"ipco") if iprp else None
        self._known = list(container.boxes()) if container else []
        self._associated = _associations(iprp) if iprp else {}
        self._tiles: dict[int, tuple[int, ...]] = {}
        self._auxiliary: list[tuple[int, tuple[int, ...]]] = []
        for kind, item, targets in _references(self.children.get(b"iref")):
            if kind == b"dimg":
                self._tiles.setdefault(item, targets)
            elif kind == b"auxl":
                self._auxiliary.append((item, targets))

    def tiles(self, item: int) -> tuple[int, ...]:
        """Return the items from which an item is derived, such as a grid's tiles."""
        return self._tiles.get(item, ())

    def properties(self, item: int) -> list[IsoBox]:
        """Return the properties of an item, in the order of their associations."""
        indices = dict.fromkeys(self._associated.get(item, ()))
        return [self._known[i - 1] for i in indices if 0 < i <= len(self._known)]

    def property(self, item: int, kind: bytes) -> IsoBox | None:
        return next((box for box in self.properties(item) if box.kind == kind), None)

    def stored_sides(self, item: int) -> tuple[int, int]:
        """Return width and height before any rotation or crop; 0 and 0 if they are not given."""
        ispe = self.property(item, b"ispe")
        width, height = ispe.fields("II", 4) if ispe else (0, 0)
        return width, height

    def alpha_planes(self, items: set[int]) -> set[int]:
        """Return the items that are the alpha plane of one of `items`, by their auxC property."""
        planes = {plane for plane, of in self._auxiliary if not items.isdisjoint(of)}
        return {
            plane
            for plane in planes
            if any(_names_alpha(box) for box in self.properties(plane) if box.kind == b"auxC")
        }

    def shown(self) -> set[int]:
        """Return the items that make up the primary image: its tiles, its alpha planes, theirs."""
        shown = {self.primary}
        for _ in range(2):
            shown |= {tile for item in shown for tile in self.tiles(item)}
            shown |= self.alpha_planes(shown)
        return shown | {tile for item in shown for tile in self.tiles(item)}

    def extents(self) -> Iterator[tuple[int, int, int, int]]:
        """Yield (item, construction method, offset, length) of each extent of the iloc box."""
        iloc = self.children.get(b"iloc")
        if iloc is None:
            return
        version = iloc.byte(0)
        offset_size, length_size = iloc.byte(4) >> 4, iloc.byte(4) & 15
        base_size, index_size = iloc.byte(5) >> 4, iloc.byte(5) & 15 if version else 0
        id_size = 4 if version == 2 else 2
        read = _Reader(iloc, 6)
        budget = _MAX_ENTRIES
        for _ in range(read(id_size)):
            item = read(id_size)
            method = 0
            if version:
                method = iloc.byte(read.at + 1) & 15
                read.at += 2
            read.at += 2  # data_reference_index
            base = read(base_size)
            for _ in range(read(2)):
                budget -= 1
                if budget < 0 or iloc.start + read.at >= iloc.end:
                    return
                read.at += index_size
                yield item, method, base + read(offset_size), read(length_size)


def _primary(items: _Items, file_format: Format) -> Header | None:
    """Return the header of the primary item, from its properties and those of its first tile."""
    item = items.primary
    if not item:
        return None
    # The alpha plane belongs to the image, or to each of its tiles.
    tile = (*items.tiles(item), item)[0]
    alpha = bool(items.alpha_planes({item, tile}))
    own = items.properties(item)
    sides, orientation = _geometry(own, items.stored_sides(item), upright=file_format == "heic")
    samples, bits = _samples(own + items.properties(tile))
    color: Color = "gray" if samples == 1 else "ycc"
    return Header(file_format, *sides, samples + alpha, bits, orientation, color=color)


def _id_size(box: IsoBox) -> int:
    """Return the number of bytes of an item ID, by the version of a pitm, ipma or iref box."""
    return 4 if box.byte(0) else 2


def _associations(iprp: IsoBox) -> dict[int, list[int]]:
    """Return the ipma boxes as a dict: item -> its properties, as indices from 1, in order."""
    found: dict[int, list[int]] = {}
    budget = _MAX_ENTRIES
    for ipma in iprp.boxes():
        if ipma.kind != b"ipma":
            continue
        id_size = _id_size(ipma)
        size = 1 + (ipma.byte(3) & 1)
        mask = 0x7FFF if size == 2 else 0x7F
        read = _Reader(ipma, 8)
        for _ in range(ipma.integer(4, 4)):
            if ipma.start + read.at + id_size >= ipma.end or budget < 0:
                break
            item = read(id_size)
            indices = [read(size) & mask for _ in range(read(1))]
            found.setdefault(item, []).extend(indices)
            budget -= 1 + len(indices)
    return found


def _references(iref: IsoBox | None) -> Iterator[tuple[bytes, int, tuple[int, ...]]]:
    """Yield (type, from, to) of each reference of the iref box."""
    if iref is None:
        return
    id_size = _id_size(iref)
    budget = _MAX_ENTRIES
    for box in iref.boxes(skip=4):
        source, count = box.integer(0, id_size), box.integer(id_size, 2)
        budget -= 1 + count
        if budget < 0:
            return
        yield box.kind, source, box.fields(f"{count}{'I' if id_size == 4 else 'H'}", id_size + 2)


def _names_alpha(box: IsoBox | None) -> bool:
    """Return whether a box, or one inside it, says that it describes an alpha plane."""
    if box is None:
        return False
    start = bytes(box.data[box.start : min(box.end, box.start + 1024)])
    return _ALPHA.search(start) is not None


def _geometry(
    properties: list[IsoBox], stored: tuple[int, int], *, upright: bool
) -> tuple[tuple[int, int], int]:
    """Return (width, height) and orientation; with `upright`, after the decoder turned it."""
    width, height = stored
    angle, axis = 0, None
    for box in properties:  # libheif applies them in the order of the associations
        if box.kind == b"irot":
            angle = box.byte(0) & 3
            if upright and angle & 1:
                width, height = height, width
        elif box.kind == b"imir":
            axis = box.byte(0) & 1
        elif box.kind == b"clap" and upright:
            fields = box.fields("IIIIiIiI")
            # libheif rounds the left edge towards zero, the top edge to the nearest pixel.
            width = _cropped(width, fields[:2] + fields[4:6], 0)
            height = _cropped(height, fields[2:4] + fields[6:], 1)
    return (width, height), 1 if upright else _ORIENTATIONS[angle, axis]


def _cropped(side: int, fields: tuple[int, ...], bias: int) -> int:
    """Return the side that a clean aperture leaves (size and offset are fractions of pixels)."""
    size, size_unit, offset, offset_unit = fields
    if not size_unit or not offset_unit:
        raise DecodeError("the clean aperture (clap) of the HEIC has a zero denominator")
    unit = 2 * offset_unit * size_unit
    first = 2 * offset * size_unit + (side * size_unit - size) * offset_unit + bias * (unit // 2)
    first = (1 if first > 0 else -1) * (abs(first) // unit)
    last = (size + size_unit // 2) // size_unit - 1 + first
    return max(min(last, side - 1) - max(first, 0) + 1, 0)


def _samples(properties: list[IsoBox]) -> tuple[int, int]:
    """Return samples per pixel (without alpha) and their bits, from the codec's configuration."""
    for box in properties:
        if box.kind == b"av1C":
            flags = box.byte(2)
            bits = (12 if flags & 0x20 else 10) if flags & 0x40 else 8
            return (1 if flags & 0x10 else 3), bits
        if box.kind == b"hvcC":
            return (3 if box.byte(16) & 3 else 1), 8 + (box.byte(17) & 7)
    for box in properties:
        if box.kind == b"pixi" and box.byte(4):
            return (1 if box.byte(4) == 1 else 3), box.byte(5)
    return 3, 8
