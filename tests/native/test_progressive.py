"""The core's own decoder of progressive JPEG: damage, scans that are left out, and memory."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pytest
from instructions import with_each
from processes import answers, resident
from same import assert_same

from fastdecode import DecodeError, decode
from fastdecode._backends import registry
from fastdecode.testing import drawing, encode, photo


def progressive(width: int, height: int, *, mode: str = "RGB", **options: Any) -> bytes:
    """Encode a drawing as a progressive JPEG."""
    return encode(drawing(width, height, mode), progressive=True, **options)


# ---- damage ----


def scans(data: bytes) -> list[int]:
    """Return where the markers of the scans are."""
    found = itertools.accumulate(itertools.repeat(0), lambda at, _: data.find(b"\xff\xda", at + 1))
    return list(itertools.takewhile(lambda at: at >= 0, itertools.islice(found, 1, None)))


def damaged(data: bytes, scan: int) -> bytes:
    """Take bytes out of the middle of a scan's data, so that it ends too early."""
    starts = [*scans(data), len(data)]
    end = data.find(b"\xff\xc4", starts[scan])  # a table follows, except after the last scan
    end = len(data) - 2 if end < 0 else min(end, starts[scan + 1])
    middle = (starts[scan] + end) // 2
    return data[:middle] + data[end:]


SKIPPED: list[tuple[int, dict[str, Any], dict[str, Any]]] = [
    (1, {"reduce": 8}, {"reduce": 4}),  # AC of luma
    (9, {"reduce": 8}, {}),  # its last bits
    (2, {"mode": "L"}, {"mode": "RGB"}),  # AC of Cr
    (9, {"region": (0, 0, 72, 8)}, {"region": (0, 40, 72, 56)}),  # rows below
]


@pytest.mark.parametrize(("scan", "passed", "refused"), SKIPPED, ids=str)
def test_data_that_is_not_needed_is_not_checked(scan: int, passed: Any, refused: Any) -> None:
    """Damage in a scan, or in rows, that the pixels do not need: only with ``strict=True``."""
    data = progressive(72, 56)
    broken = damaged(data, scan)

    whole = decode(data, backend="native", **passed)
    assert_same(decode(broken, backend="native", **passed), whole)
    for options in (refused, {**passed, "strict": True}):
        with pytest.raises(DecodeError):
            decode(broken, backend="native", **options)


def test_sixteen_zeros_before_an_end_are_no_coefficient() -> None:
    """Where 16 zeros and then the end of a block are coded, a later scan refines none of them."""

    def segment(marker: int, content: bytes) -> bytes:
        return bytes([0xFF, marker]) + (len(content) + 2).to_bytes(2, "big") + content

    def scan(first: int, last: int, bits: int, data: int) -> bytes:
        return segment(0xDA, bytes([1, 1, 0, first, last, bits])) + bytes([data])

    data = b"".join(
        (
            b"\xff\xd8" + segment(0xDB, bytes([0, *[255] * 64])),
            segment(0xC2, bytes([8, 0, 8, 0, 8, 1, 1, 0x11, 0])),
            segment(0xC4, bytes([0x00, 1, *[0] * 15, 0x00])),  # 0: no difference
            segment(0xC4, bytes([0x10, 1, 1, *[0] * 14, 0xF0, 0x00])),  # 0: 16 zeros; 10: the end
            scan(0, 0, 0x00, 0b01111111),
            scan(1, 63, 0x01, 0b01011111),
            scan(1, 63, 0x10, 0b10111111) + b"\xff\xd9",
        )
    )
    made = with_each(lambda: decode(data, mode="L", backend="native"))
    assert_same(made, decode(data, mode="L", backend="pillow"))


def test_many_scans_are_left_to_others() -> None:
    """Another backend judges more scans than the core has readers for, or out of order."""
    data = progressive(40, 30)
    starts = scans(data)
    last = data[data.rfind(b"\xff\xc4", 0, starts[-1]) : -2]
    for more in (1, 30):
        again = data[:-2] + last * more + b"\xff\xd9"
        with pytest.raises(DecodeError):
            decode(again, backend="native")
        with pytest.raises(DecodeError):
            decode(again, strict=True)


# ---- memory ----


@pytest.mark.skipif(resident() is None, reason="memory is looked up in /proc")
def test_a_large_photo_needs_no_array_of_coefficients(tmp_path: Path) -> None:
    """A photo of 4 megapixels takes 20 MB less than in Pillow, which keeps them all."""
    path = tmp_path / "large.jpg"
    options: dict[str, Any] = {"progressive": True, "subsampling": "4:4:4", "quality": 75}
    path.write_bytes(encode(photo(400, 300).resize((2400, 1800)), **options))
    code = f"""
from pathlib import Path
data = Path({str(path)!r}).read_bytes()
before = peak()
for backend in ("native", "pillow"):
    decode(data, backend=backend)
    answers[backend] = peak() - before
"""
    others = {*registry.BUILTIN} - {"native", "pillow"}  # whose libraries take memory, too
    peaks = answers(code, FASTDECODE_DISABLE=",".join(others))

    assert 12_000 < peaks["native"] < peaks["pillow"] - 20_000  # KB: the pixels are 13 MB
