"""JPEGs that lack a whole scan, or one restart marker."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from conftest import native_core, usable_backends

from fastdecode import DecodeError, decode, registry
from fastdecode.testing import encode, picture

_DATA = Path(__file__).parent / "data" / "jpeg_kinds"
_APART = (_DATA / "gen_420_one_component_a_scan.jpg").read_bytes()
_SCANS = [found.start() for found in re.finditer(b"\xff\xda", _APART)]
_READERS = [name for name in usable_backends() if "jpeg" in registry.load(name).supports]

every_reader = pytest.mark.parametrize("backend", [*_READERS, None])


@every_reader
@pytest.mark.parametrize("end", [b"", b"\xff\xd9"], ids=["cut", "closed"])
@pytest.mark.parametrize("scans", [1, 2])
@pytest.mark.parametrize("region", [None, (0, 0, 20, 20)], ids=["whole", "region"])
def test_a_component_without_its_scan_is_an_error(
    backend: str | None, end: bytes, scans: int, region: tuple[int, int, int, int] | None
) -> None:
    """A sequential file that was cut between two scans has no colour, and no decoder says so."""
    assert decode(_APART, backend=backend, region=region).shape[2] == 3

    with pytest.raises(DecodeError, match="no scan of one of the colour components"):
        decode(_APART[: _SCANS[scans]] + end, backend=backend, region=region)


@every_reader
def test_a_restart_marker_that_is_gone_is_an_error(backend: str | None) -> None:
    """With it an interval is lost, even where the codec's first warning sounds harmless."""
    data = encode(picture(120, 200), restart_marker_rows=1)
    markers = [found.start() for found in re.finditer(rb"\xff[\xd0-\xd7]", data)]

    for at in markers[3:9]:
        with pytest.raises(DecodeError):
            decode(data[:at] + data[at + 2 :], backend=backend)


@pytest.mark.parametrize("damage", ["gone", "doubled", "of another number"])
def test_no_region_is_begun_behind_markers_out_of_turn(damage: str) -> None:
    """Whoever counted on them would begin at another row, and show that in silence."""
    native_core()
    data = encode(picture(160, 240), restart_marker_rows=1)
    at = [found.start() for found in re.finditer(rb"\xff[\xd0-\xd7]", data)][3]
    there = data[at : at + 2]
    instead = {"gone": b"", "doubled": there * 2, "of another number": b"\xff\xd6"}[damage]

    with pytest.raises(DecodeError):
        decode(data[:at] + instead + data[at + 2 :], region=(0, 200, 160, 240), backend="native")
