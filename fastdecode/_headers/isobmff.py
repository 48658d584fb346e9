"""AVIF and HEIC: the boxes of a still image's primary item, or of a sequence's first track.

The walk over boxes is shared with JPEG 2000 and JPEG XL, whose containers are built the same way.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator
from itertools import islice
from typing import NamedTuple

from fastdecode.errors import DecodeError
from fastdecode.types import Buffer, Color, Format, Header

__all__ = [
    "Grid",
    "IsoBox",
    "boxes",
    "find",
    "grid",
    "missing",
    "parse",
    "sniff",
    "with_tiles_apart",
]

_MAX_BOXES = 1024  # in one parent
_MAX_TRACKS = 8
_MAX_BRANDS = 64
_MAX_ENTRIES = 16384  # associations and references looked at, all together
_AVIF_BRANDS = frozenset({b"avif", b"avis", b"avio", b"MA1A", b"MA1B", b"av01"})
_HEIC_BRANDS = frozenset({b"heic", b"heix", b"hevc", b"hevx", b"heim", b"heis", b"hevm", b"hevs"})
_HEIF_BRANDS = frozenset({b"mif1", b"mif2", b"msf1", b"miaf"})
_IN_NO_UNIT = (b"\0\0\0", b"\0\0\1", b"\0\0\2")
_MAX_PADDING = 64  # bytes
# Names of the alpha plane, in HEIF's auxC and in a track's auxi.
_ALPHA = re.compile(rb"urn:mpeg:(?:mpegB:cicp:systems:auxiliary:alpha|(?:hevc|avc):2015:auxid:1)\0")
# EXIF orientation of "turn anticlockwise by angle * 90 degrees, then mirror": (angle, imir axis).
_ORIENTATIONS = {
    (0, None): 1, (1, None): 8, (2, None): 3, (3, None): 6,
    (0, 0): 4, (1, 0): 5, (2, 0): 2, (3, 0): 7,
    (0, 1): 2, (1, 1): 7, (2, 1): 4, (3, 1): 5,
}  # fmt: skip


class IsoBox(NamedTuple):
    """A box: its four-character type, and where its contents lie."""

    kind: bytes
    start: int
    end: int


class Grid(NamedTuple):
    """An image made of tiles: its item, and theirs in the order of rows.

    `width` and `height` are the pixels to be seen of the tile of which least is: the last column
    and row are cut. They are 1 if that is not known.
    """

    item: int
    tiles: tuple[int, ...]
    width: int
    height: int


def boxes(data: Buffer, start: int, end: int) -> Iterator[IsoBox]:
    """Walk the boxes in ``data[start:end]``, at most a thousand of them.

    A box that claims more than its parent holds is cut to the parent: files are often read in part.
    """
    end = min(end, len(data))
    for box in _claimed(data, start, end):
        yield IsoBox(box.kind, min(box.start, end), min(box.end, end))


def _claimed(data: Buffer, start: int, end: int) -> Iterator[IsoBox]:
    """Walk the boxes, each with the end that it claims.

    ISO/IEC 14496-12, 4.2: a size of 1 means a 64-bit size, 0 means "to the end".
    """
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
        yield IsoBox(kind, start + header, start + size)
        start += size


def find(data: Buffer, parent: IsoBox, *path: bytes) -> IsoBox | None:
    """Descend from `parent` through the first box of each type in `path`."""
    box: IsoBox | None = parent
    for kind in path:
        children = boxes(data, box.start, box.end) if box else ()
        box = next((child for child in children if child.kind == kind), None)
    return box


def sniff(data: Buffer) -> Format | None:
    """Tell AVIF from HEIC by the brands; None for films and what else lives in such boxes.

    The major brand decides if it names a codec; the generic ones (mif1 …) leave it to the
    compatible brands, and without any the file is left to the HEIF library.
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
    """Read an AVIF's or a HEIC's header: it describes the array of each format's own decoder.

    AVIF (Pillow, libavif): the stored pixels, `orientation` from the irot and imir properties, no
    cropping. HEIC (pillow_heif, libheif): the pixels as seen, so clap, irot and imir are already in
    `width` and `height` and `orientation` is 1. EXIF says nothing in either. `struct.error` says
    that the data ends first.

    ISO/IEC 23008-12 (meta, iprp, ispe, irot, imir), ISO/IEC 14496-12 (pitm, iref, clap, tkhd);
    AVIF 1.1. An AVIF whose major brand is not ``avif`` shows its track, if any, as libavif does.
    """
    file_format = sniff(data) or "heic"
    meta, track = _shown(data, file_format)
    header = _track(data, track, file_format) if track is not None else None
    if header is None and meta is not None:
        header = _primary(data, meta, file_format)
    if header is None:
        raise DecodeError(f"the {file_format.upper()} file has no primary image")
    if not header.width or not header.height:
        raise DecodeError(f"the {file_format.upper()} header gives no size")
    return header


def missing(data: Buffer) -> str:
    """Say what of the image is not in the file; empty if nothing is known to be missing.

    It is empty, too, if a track shows the image. What else the file may hold, such as EXIF or a
    preview, is not the image. ISO/IEC 14496-12, 8.11.3 (iloc). libheif leaves a tile that is not
    there out of a grid, and its decoder conceals what is not there of coded data.
    """
    for box in _claimed(data, 0, len(data)):
        if box.kind in (b"meta", b"moov") and box.end > len(data):
            return f"the {box.kind.decode()} box ends at {box.end}, past the {len(data)} bytes"
    meta, track = _shown(data, sniff(data) or "heic")
    if meta is None or track is not None:
        return ""
    items = _Items(data, meta)
    shown = items.shown()
    idat = items.children.get(b"idat") or IsoBox(b"idat", 0, 0)
    sources = (IsoBox(b"", 0, len(data)), idat)  # by construction method
    coded: dict[int, list[bytes]] = {}
    for item, method, start, length in _extents(data, items.children.get(b"iloc")):
        if item not in shown or method >= len(sources):
            continue
        source = sources[method]
        begin, end, room = source.start + start, source.start + start + length, source.end
        if end > room:
            where = "idat box" if method else "file"
            return f"item {item} ends at byte {end}, past the end of the {where} at {room}"
        coded.setdefault(item, []).append(bytes(data[begin:end]))
    for item, parts in coded.items():
        configuration = next((of for of in items.properties(item) if of.kind == b"hvcC"), None)
        if configuration and _has_gap(b"".join(parts), 1 + (data[configuration.start + 21] & 3)):
            return f"item {item} holds bytes that no HEVC encoder writes, such as zeros"
    return ""


def _has_gap(coded: bytes, prefix: int) -> bool:
    """Whether coded HEVC is not made of whole NAL units, or one holds what none may hold.

    Zeros at the end of a unit may be padding, if there are few. ISO/IEC 14496-15, 8.3 (length
    prefixes); ITU-T H.265, 7.4.2: three bytes 00 00 00, 00 00 01 or 00 00 02 occur in no NAL unit.
    So zeros in the place of data can be told for sure.
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
    items = _Items(data, meta) if meta is not None else None
    tiles = items.tiles(items.primary) if items is not None else ()
    if items is None or not tiles:
        return None
    own, of_tile = items.properties(items.primary), items.properties(tiles[0])
    width, height = _stored_sides(data, own)
    tile_width, tile_height = _stored_sides(data, of_tile)
    if not tile_width or not tile_height or any(box.kind == b"clap" for box in own):
        return Grid(items.primary, tiles, 1, 1)
    return Grid(items.primary, tiles, (width - 1) % tile_width + 1, (height - 1) % tile_height + 1)


def with_tiles_apart(data: Buffer, grid: Grid) -> bytes:
    """Copy a file so that each tile is an image of its own, and the grid is hidden.

    ISO/IEC 23008-12, 6.4.2: an item is hidden by the lowest bit of its infe box's flags.
    """
    copy = bytearray(data)
    meta = find(data, IsoBox(b"", 0, len(data)), b"meta")
    children = _by_kind(data, IsoBox(b"meta", meta.start + 4, meta.end)) if meta else {}
    pitm, iinf = children.get(b"pitm"), children.get(b"iinf")
    if pitm is None or iinf is None:
        return bytes(copy)
    size = 4 if data[pitm.start] else 2
    copy[pitm.start + 4 : pitm.start + 4 + size] = grid.tiles[0].to_bytes(size, "big")
    tiles = frozenset(grid.tiles)
    for infe in boxes(data, iinf.start + (8 if data[iinf.start] else 6), iinf.end):
        item = _integer(data, infe.start + 4, 4 if data[infe.start] == 3 else 2)
        if item in tiles:
            copy[infe.start + 3] &= 0xFE
        elif item == grid.item:
            copy[infe.start + 3] |= 1
    return bytes(copy)


def _shown(data: Buffer, file_format: Format) -> tuple[IsoBox | None, IsoBox | None]:
    """Return the meta box's contents and the moov box, if it is a track that is shown."""
    top = _by_kind(data, IsoBox(b"", 0, len(data)))
    meta, moov = top.get(b"meta"), top.get(b"moov")
    if meta is not None:
        meta = IsoBox(meta.kind, meta.start + 4, meta.end)
    track = meta is None or (file_format == "avif" and data[8:12] != b"avif")
    return meta, moov if track else None


def _by_kind(data: Buffer, parent: IsoBox) -> dict[bytes, IsoBox]:
    """First box of each type in `parent`."""
    return {box.kind: box for box in reversed(list(boxes(data, parent.start, parent.end)))}


def _track(data: Buffer, moov: IsoBox, file_format: Format) -> Header | None:
    """Read the first image track: its size in 16.16, and whether it has several samples."""
    header = None
    alpha = False
    traks = (box for box in boxes(data, moov.start, moov.end) if box.kind == b"trak")
    for trak in islice(traks, _MAX_TRACKS):
        handler = find(data, trak, b"mdia", b"hdlr")
        if handler is None:
            continue
        kind = data[handler.start + 8 : handler.start + 12]
        alpha = alpha or (kind == b"auxv" and _is_alpha_track(data, trak))
        tkhd = find(data, trak, b"tkhd")
        if header is None and kind == b"pict" and tkhd is not None:
            at = tkhd.start + (88 if data[tkhd.start] == 1 else 76)
            width, height = struct.unpack_from(">II", data, at)
            sizes = find(data, trak, b"mdia", b"minf", b"stbl", b"stsz")
            samples = struct.unpack_from(">I", data, sizes.start + 8)[0] if sizes else 1
            header = Header(file_format, width >> 16, height >> 16, color="ycc")
            header = header._replace(animated=samples > 1)
    return header._replace(channels=3 + alpha) if header else None


class _Items:
    """What a meta box says of its items; the primary one is 0 where it says none."""

    def __init__(self, data: Buffer, meta: IsoBox) -> None:
        self._data = data
        self.children = _by_kind(data, meta)
        pitm, iprp = self.children.get(b"pitm"), self.children.get(b"iprp")
        self.primary = _integer(data, pitm.start + 4, 4 if data[pitm.start] else 2) if pitm else 0
        container = find(data, iprp, b"ipco") if iprp else None
        self._known = list(boxes(data, container.start, container.end)) if container else []
        self._associated = _associations(data, iprp) if iprp else {}
        self._tiles: dict[int, tuple[int, ...]] = {}
        self._auxiliary: list[tuple[int, tuple[int, ...]]] = []
        for kind, item, targets in _references(data, self.children.get(b"iref")):
            if kind == b"dimg":
                self._tiles.setdefault(item, targets)
            elif kind == b"auxl":
                self._auxiliary.append((item, targets))

    def tiles(self, item: int) -> tuple[int, ...]:
        """Items from which another is derived, such as a grid's tiles."""
        return self._tiles.get(item, ())

    def properties(self, item: int) -> list[IsoBox]:
        """Properties of an item, in the order of their associations."""
        indices = dict.fromkeys(self._associated.get(item, ()))
        return [self._known[i - 1] for i in indices if 0 < i <= len(self._known)]

    def alpha_planes(self, items: set[int]) -> set[int]:
        """Items that are the alpha plane of one of `items`."""
        planes = {plane for plane, of in self._auxiliary if not items.isdisjoint(of)}
        return {plane for plane in planes if _is_alpha(self._data, self.properties(plane))}

    def shown(self) -> set[int]:
        """Items that the primary image is made of: its tiles and alpha planes, and theirs."""
        shown = {self.primary}
        for _ in range(2):
            shown |= {tile for item in shown for tile in self.tiles(item)}
            shown |= self.alpha_planes(shown)
        return shown | {tile for item in shown for tile in self.tiles(item)}


def _extents(data: Buffer, iloc: IsoBox | None) -> Iterator[tuple[int, int, int, int]]:
    """Read the iloc box: (item, construction method, where it starts, bytes) of each extent."""
    if iloc is None:
        return
    version = data[iloc.start]
    offset_size, length_size = data[iloc.start + 4] >> 4, data[iloc.start + 4] & 15
    base_size, index_size = data[iloc.start + 5] >> 4, data[iloc.start + 5] & 15
    id_size = 4 if version == 2 else 2
    pos = iloc.start + 6 + id_size
    budget = _MAX_ENTRIES
    for _ in range(_integer(data, iloc.start + 6, id_size)):
        item = _integer(data, pos, id_size)
        pos += id_size
        method = 0
        if version:
            method = data[pos + 1] & 15
            pos += 2
        base = _integer(data, pos + 2, base_size)
        pos += 2 + base_size
        count = _integer(data, pos, 2)
        pos += 2
        for _ in range(count):
            budget -= 1
            if budget < 0 or pos >= iloc.end:
                return
            pos += index_size if version else 0
            offset = _integer(data, pos, offset_size)
            length = _integer(data, pos + offset_size, length_size)
            pos += offset_size + length_size
            yield item, method, base + offset, length


def _primary(data: Buffer, meta: IsoBox, file_format: Format) -> Header | None:
    """Read the properties of the primary item, of its first tile, and of its alpha plane."""
    items = _Items(data, meta)
    item = items.primary
    if not item:
        return None
    # The alpha plane belongs to the image, or to each tile of it.
    tile = (*items.tiles(item), item)[0]
    alpha = bool(items.alpha_planes({item, tile}))
    own = items.properties(item)
    sides, orientation = _geometry(data, own, upright=file_format == "heic")
    samples, bits = _samples(data, own + items.properties(tile))
    color: Color = "gray" if samples == 1 else "ycc"
    return Header(file_format, *sides, samples + alpha, bits, orientation, color=color)


def _integer(data: Buffer, start: int, size: int) -> int:
    return int.from_bytes(data[start : start + size], "big")


def _associations(data: Buffer, iprp: IsoBox) -> dict[int, list[int]]:
    """Read the ipma boxes: item -> its properties, as indices from 1, in order."""
    found: dict[int, list[int]] = {}
    budget = _MAX_ENTRIES
    for ipma in boxes(data, iprp.start, iprp.end):
        if ipma.kind != b"ipma":
            continue
        id_size = 4 if data[ipma.start] else 2
        size = 1 + (data[ipma.start + 3] & 1)
        mask = 0x7FFF if size == 2 else 0x7F
        pos = ipma.start + 8
        for _ in range(_integer(data, ipma.start + 4, 4)):
            if pos + id_size >= ipma.end or budget < 0:
                break
            item = _integer(data, pos, id_size)
            first = pos + id_size + 1
            pos = first + size * data[first - 1]
            indices = [_integer(data, at, size) & mask for at in range(first, pos, size)]
            found.setdefault(item, []).extend(indices)
            budget -= 1 + len(indices)
    return found


def _references(data: Buffer, iref: IsoBox | None) -> Iterator[tuple[bytes, int, tuple[int, ...]]]:
    """Read the iref box: (type, from, to) of each reference."""
    if iref is None:
        return
    id_size, letter = (4, "I") if data[iref.start] else (2, "H")
    budget = _MAX_ENTRIES
    for box in boxes(data, iref.start + 4, iref.end):
        source = _integer(data, box.start, id_size)
        count = _integer(data, box.start + id_size, 2)
        budget -= 1 + count
        if budget < 0:
            return
        targets = struct.unpack_from(f">{count}{letter}", data, box.start + id_size + 2)
        yield box.kind, source, targets


def _is_alpha(data: Buffer, properties: list[IsoBox]) -> bool:
    """Whether an auxiliary item is an alpha plane: its auxC property names its kind."""
    return any(_ALPHA.search(_first_bytes(data, box)) for box in properties if box.kind == b"auxC")


def _is_alpha_track(data: Buffer, trak: IsoBox) -> bool:
    """Whether an auxiliary track is an alpha plane: so says a box in its sample description."""
    stsd = find(data, trak, b"mdia", b"minf", b"stbl", b"stsd")
    return stsd is not None and _ALPHA.search(_first_bytes(data, stsd)) is not None


def _first_bytes(data: Buffer, box: IsoBox) -> bytes:
    return bytes(data[box.start : min(box.end, box.start + 1024)])


def _geometry(
    data: Buffer, properties: list[IsoBox], *, upright: bool
) -> tuple[tuple[int, int], int]:
    """Width and height, and orientation; where the decoder turns the image, after that."""
    width, height = _stored_sides(data, properties)
    angle, axis = 0, None
    for box in properties:  # libheif applies them in the order of the associations
        if box.kind == b"irot":
            angle = data[box.start] & 3
            if upright and angle & 1:
                width, height = height, width
        elif box.kind == b"imir":
            axis = data[box.start] & 1
        elif box.kind == b"clap" and upright:
            fields = struct.unpack_from(">IIIIiIiI", data, box.start)
            # libheif rounds the left edge towards zero, the top edge to the nearest pixel.
            width = _cropped(width, fields[:2] + fields[4:6], 0)
            height = _cropped(height, fields[2:4] + fields[6:], 1)
    return (width, height), 1 if upright else _ORIENTATIONS[angle, axis]


def _stored_sides(data: Buffer, properties: list[IsoBox]) -> tuple[int, int]:
    """Width and height before any turn or crop; 0 and 0 where they are not given."""
    for box in properties:
        if box.kind == b"ispe":
            width, height = struct.unpack_from(">II", data, box.start + 4)
            return width, height
    return 0, 0


def _cropped(side: int, fields: tuple[int, ...], bias: int) -> int:
    """Side left by a clean aperture (size and offset are fractions of pixels)."""
    size, size_unit, offset, offset_unit = fields
    if not size_unit or not offset_unit:
        raise DecodeError("the clean aperture (clap) of the HEIC has a zero denominator")
    unit = 2 * offset_unit * size_unit
    first = 2 * offset * size_unit + (side * size_unit - size) * offset_unit + bias * (unit // 2)
    first = (1 if first > 0 else -1) * (abs(first) // unit)
    last = (size + size_unit // 2) // size_unit - 1 + first
    return max(min(last, side - 1) - max(first, 0) + 1, 0)


def _samples(data: Buffer, properties: list[IsoBox]) -> tuple[int, int]:
    """Find samples a pixel (without alpha) and their bits in the codec's own configuration."""
    for box in properties:
        if box.kind == b"av1C":
            flags = data[box.start + 2]
            bits = (12 if flags & 0x20 else 10) if flags & 0x40 else 8
            return (1 if flags & 0x10 else 3), bits
        if box.kind == b"hvcC":
            return (3 if data[box.start + 16] & 3 else 1), 8 + (data[box.start + 17] & 7)
    for box in properties:
        if box.kind == b"pixi" and data[box.start + 4]:
            return (1 if data[box.start + 4] == 1 else 3), data[box.start + 5]
    return 3, 8
