"""`sniff` and `probe`: every format's header, read without decoding."""

from __future__ import annotations

import contextlib
import csv
import io
import os
import re
import struct
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from encoded import CHANNELS, SAVED, WIDTH, box, gif, png, saved, tiff
from PIL import Image

from fastdecode._headers import exif, probe, sniff
from fastdecode.errors import DecodeError, FastDecodeError, UnsupportedFormat
from fastdecode.types import Header


@pytest.mark.parametrize("case", SAVED)
def test_sniff_names_what_pillow_wrote(case: str) -> None:
    """The format is known from the first bytes of a file of each kind."""
    expected, pillow_format, mode, options = SAVED[case]
    assert sniff(saved(pillow_format, mode, **options)) == expected


@pytest.mark.parametrize("case", SAVED)
def test_probe_agrees_with_pillow(case: str) -> None:
    """Size, channels and format are those of the picture that was saved."""
    expected, pillow_format, mode, options = SAVED[case]
    data = saved(pillow_format, mode, **options)
    header = probe(data)
    with Image.open(io.BytesIO(data)) as image:
        size = image.size
    assert (header.format, header.width, header.height) == (expected, *size)
    assert header.channels == CHANNELS[mode]
    assert header.orientation == 1
    assert not header.animated


@pytest.mark.parametrize("case", SAVED)
def test_a_memoryview_reads_like_bytes(case: str) -> None:
    """Nothing depends on which kind of buffer holds the file."""
    _, pillow_format, mode, options = SAVED[case]
    data = saved(pillow_format, mode, **options)
    assert sniff(memoryview(data)) == sniff(data)
    assert probe(memoryview(data)) == probe(data)


@pytest.mark.parametrize("case", SAVED)
def test_a_file_cut_anywhere_gives_a_header_or_our_error(case: str) -> None:
    """A cut file never escapes as an IndexError or struct.error."""
    _, pillow_format, mode, options = SAVED[case]
    data = saved(pillow_format, mode, **options)
    for end in range(1, min(len(data), 400)):
        with contextlib.suppress(FastDecodeError):
            assert isinstance(probe(data[:end]), Header)


@pytest.mark.parametrize(
    ("start", "expected"),
    [
        (b"\xff\xd8\x00", "jpeg"),
        (b"\xff\xd8", "jpeg"),
        (b"\xff", "other"),
        (b"\x89PNG", "png"),
        (b"GIF87a", "gif"),
        (b"GIF88a", "other"),
        (b"II*\0", "tiff"),
        (b"MM\0+", "tiff"),
        (b"MM*\0", "tiff"),
        (b"\xff\x0a", "jxl"),
        (b"\0\0\0\x0cJXL \r\n\x87\n", "jxl"),
        (b"\0\0\0\x0cjP  \r\n\x87\n", "jpeg2000"),
        (b"\xff\x4f\xff\x51", "jpeg2000"),
        (b"RIFF\0\0\0\0WEBP", "webp"),
        (b"RIFF\0\0\0\0WAVE", "other"),
        (b"8BPS", "other"),
        (b"plain text", "other"),
    ],
)
def test_sniff_signatures(start: bytes, expected: str) -> None:
    """Each signature is enough, and a similar one is not."""
    assert sniff(start) == expected


@pytest.mark.parametrize(
    ("major", "compatible", "expected"),
    [
        (b"avif", b"", "avif"),
        (b"avis", b"avif", "avif"),
        (b"mif1", b"mif1avif", "avif"),
        (b"mif1", b"av01", "avif"),
        (b"heic", b"mif1heic", "heic"),
        (b"heix", b"", "heic"),
        (b"hevc", b"", "heic"),
        (b"mif1", b"mif1heic", "heic"),
        (b"mif1", b"", "heic"),
        (b"heic", b"avif", "heic"),
        (b"isom", b"mp42", "other"),
        (b"crx ", b"crx isom", "other"),
    ],
)
def test_sniff_tells_avif_from_heic(major: bytes, compatible: bytes, expected: str) -> None:
    """The major brand decides, then the compatible ones; films are neither."""
    assert sniff(box(b"ftyp", major, bytes(4), compatible)) == expected


@pytest.mark.parametrize("call", [sniff, probe])
def test_empty_data_says_so(call: Any) -> None:
    """No bytes are a DecodeError that names the cause."""
    with pytest.raises(DecodeError, match="0 bytes"):
        call(b"")


def test_a_cut_header_says_how_long_it_is() -> None:
    """The message has the format and the number of bytes."""
    with pytest.raises(DecodeError, match=r"PNG header is truncated \(20 bytes\)"):
        probe(png(8, 2)[:20])


def test_importing_formats_imports_no_numpy_and_no_pillow() -> None:
    """Reading a JPEG's header costs a process neither library."""
    script = (
        "import sys; from fastdecode import _headers; _headers.sniff(b'GIF89a');"
        "sys.exit(bool({'numpy', 'PIL'} & set(sys.modules)))"
    )
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 0


def hostile() -> Iterator[Any]:
    """Files of a megabyte or more whose boxes, chunks or blocks lead nowhere, over and over."""
    yield pytest.param(gif(b"!\xfe" + b"\x01a" * 10**6), id="gif")
    yield pytest.param(png(8, 2, struct.pack(">I4sI", 0, b"eXIf", 0) * 10**5), id="png")
    yield pytest.param(tiff(*((258, 3, 8),) * 65000), id="tiff")
    start = b"RIFF\0\0\0\0WEBPVP8X\x0a\0\0\0\x08" + bytes(9)
    yield pytest.param(start + b"XXXX\0\0\0\0" * 10**5, id="webp")
    yield pytest.param(box(b"ftyp", b"avif", bytes(4)) + box(b"free") * 10**5, id="boxes")
    names = b"".join(box(b"auxC", bytes(4), b"urn:mpeg:" * 100) for _ in range(1000))
    every = struct.pack(">I", 2**32 - 1) + (b"\0\x02\xff" + b"\x01" * 255) * 63
    iprp = box(b"iprp", box(b"ipco", names), box(b"ipma", bytes(4), every))
    iref = box(b"iref", bytes(4), box(b"auxl", struct.pack(">HHH", 2, 1, 1)) * 1000)
    meta = box(b"meta", bytes(4), box(b"pitm", bytes(4), b"\0\1"), iprp, iref)
    yield pytest.param(box(b"ftyp", b"avif", bytes(4)) + meta, id="associations")


@pytest.mark.parametrize("data", list(hostile()))
def test_hostile_headers_are_bounded(data: bytes) -> None:
    """However the file is made, its header takes milliseconds (the limit here is for slow CI)."""
    started = time.process_time()
    with contextlib.suppress(FastDecodeError):
        probe(data)
    assert time.process_time() - started < 0.5


def test_unknown_bytes_are_unsupported() -> None:
    """What nobody knows is an UnsupportedFormat that shows how it starts."""
    with pytest.raises(UnsupportedFormat, match="start with 70 6C 61 69 6E"):
        probe(b"plain text, and certainly no image")


def test_programs_are_never_launched() -> None:
    """PostScript, which Pillow hands to Ghostscript, is not opened."""
    with pytest.raises(UnsupportedFormat):
        probe(b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 10 10\n%%EndComments\n")


def test_pillow_limit_does_not_apply(monkeypatch: pytest.MonkeyPatch) -> None:
    """The process-wide MAX_IMAGE_PIXELS is for Pillow's own callers."""
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 1)
    assert probe(saved("PPM")).width == WIDTH


def test_a_plugin_that_fails_is_a_decode_error() -> None:
    """Whatever a plugin raises for a damaged file of its own becomes a DecodeError."""
    with pytest.raises(DecodeError, match="PPM"):
        probe(b"P6 12 nonsense")


@pytest.mark.parametrize("order", ["<", ">"])
@pytest.mark.parametrize(
    ("kind", "count", "value", "expected"),
    [(3, 1, 6, 6), (3, 1, 0, 1), (3, 1, 9, 1), (3, 2, 6, 1), (2, 1, 6, 1)],
)
def test_exif_entry(order: str, kind: int, count: int, value: int, expected: int) -> None:
    """Only one SHORT from 1 to 8 is an orientation."""
    start = (b"II" if order == "<" else b"MM") + struct.pack(order + "HI", 42, 8)
    other = struct.pack(order + "HHII", 0x0100, 4, 1, 5)
    entry = struct.pack(order + "HHIHH", 0x0112, kind, count, value, 0)
    block = start + struct.pack(order + "H", 2) + other + entry + bytes(4)
    assert exif.orientation(b"??" + block, 2, 2 + len(block)) == expected
    assert exif.orientation(memoryview(block), 0, len(block)) == expected
    assert exif.orientation(b"Exif\0\0" + block, 0, 6 + len(block)) == expected
    assert exif.orientation(block, 0, len(block) - 8) == 1


@pytest.mark.parametrize(
    "block",
    [
        b"",
        b"II*\0",
        b"II*\0\xff\xff\xff\xff",
        b"XX*\0" + bytes(20),
        b"II*\0\x08\0\0\0\xff\xff",
        # The entry's bytes, but not where an entry begins.
        b"II*\0\x08\0\0\0\x02\0" + bytes(3) + struct.pack("<HHIHH", 0x0112, 3, 1, 6, 0) + bytes(9),
    ],
)
def test_exif_never_raises(block: bytes) -> None:
    """A damaged block means upright."""
    for start in (0, -5, 1, 100):
        for end in (len(block), len(block) + 100, 0, -1):
            assert exif.orientation(block, start, end) == 1


# libjpeg skips a segment whose length is impossible; the size of the others must agree.
CORPUS_DIFFERENCES = {"malformed/wuffs__hippopotamus-bad-comment-length.jpeg"}


@pytest.mark.skipif(
    not os.environ.get("FASTDECODE_CORPUS"),
    reason="FASTDECODE_CORPUS does not name the folder of the test files",
)
def test_corpus_agrees_with_pillow() -> None:
    """Every file that Pillow opens has the size that Pillow gives; no other escapes our errors."""
    root = Path(os.environ["FASTDECODE_CORPUS"])
    wrong = []
    with (root / "manifest.csv").open(newline="", encoding="utf-8") as stream:
        for row in csv.DictReader(stream):
            found = re.match(r"ok (\d+)x(\d+)", row["pillow13"])
            try:
                header = probe((root / row["file"]).read_bytes())
                size = (header.width, header.height)
            except FastDecodeError:
                size = (0, 0)
            expected = (int(found[1]), int(found[2])) if found else size
            if size != expected and row["file"] not in CORPUS_DIFFERENCES:
                wrong.append((row["file"], size, expected))
    assert not wrong
