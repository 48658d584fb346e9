"""Every registered backend keeps the contract, and properties that only many files show."""

from __future__ import annotations

import numpy as np
import pytest
from corpus import samples, usable_backends
from same import assert_same

from fastdecode import decode, probe
from fastdecode._backends import registry
from fastdecode.errors import DecodeError, UnsupportedFormat
from fastdecode.testing import BackendContract, drawing, encode
from fastdecode.types import REDUCES, Reduce

# One class a backend, so that a newcomer is tested by being registered.
for _name in registry.BUILTIN:
    globals()[f"Test_{_name}"] = type(f"Test_{_name}", (BackendContract,), {"name": _name})

_KINDS = [
    sample for sample in samples("jpeg_kinds") if "gen_" in sample.name and sample.decodes_in_pillow
]
# What encoders rarely write: other backends decode it.
_LEFT_BY_THE_CORE = (
    "gen_420_one_component_a_scan.jpg",
    "gen_444as2x1_base.jpg",
    "gen_444as2x1_prog.jpg",
    "gen_mjpeg_no_dht.jpg",
    "gen_prog_scans5.jpg",
    *("gen_q1_420.jpg", "gen_q5_420.jpg", "gen_q8_16bitq.jpg"),  # quantisers of 16 bits
)


def _exact_jpeg_backends() -> list[str]:
    loaded = {name: registry.load(name) for name in usable_backends()}
    return [n for n, b in loaded.items() if b.exact and "jpeg" in b.supports and n != "pillow"]


def _tiny() -> dict[str, bytes]:
    """Encode noise with sides below 9 pixels, where several factors give the same size."""
    return {
        f"{width}x{height} {mode} {kind}": encode(drawing(width, height, mode), quality=95, **kind)
        for width, height in ((1, 1), (1, 7), (2, 2), (3, 5), (6, 1), (7, 7), (4, 8), (8, 8))
        for mode in ("RGB", "L", "CMYK")
        for kind in ({}, {"subsampling": 0}, {"subsampling": 1}, {"progressive": True})
        if mode == "RGB" or not kind
    }


@pytest.mark.parametrize("name", _exact_jpeg_backends())
@pytest.mark.parametrize("reduce", REDUCES)
def test_the_libjpeg_turbo_group_is_bit_identical(name: str, reduce: Reduce) -> None:
    """Every sampling, coding and size decodes to Pillow's pixels, or is refused before decoding."""
    backend = registry.load(name)
    compared = 0
    files = _tiny() | {sample.name: sample.path.read_bytes() for sample in _KINDS}
    for kind, data in files.items():
        header = probe(data)
        if not any(
            support.reduces_natively(header, reduce) and not support.refusal(header)
            for support in backend.supports["jpeg"]
        ):
            continue
        is_left = name == "native" and kind.endswith(_LEFT_BY_THE_CORE)
        for mode in ("RGB", "L"):
            expected = decode(data, reduce, mode=mode, backend="pillow")
            try:
                image = decode(data, reduce, mode=mode, backend=name)
            except UnsupportedFormat:
                continue
            except DecodeError:
                # Its colour profile lacks a segment. Some stop at that; no pixel is missing.
                if not kind.endswith("gen_icc_missing_seg.jpg"):
                    assert is_left, kind
                    assert_same(decode(data, reduce, mode=mode), expected, kind)
                continue
            assert not is_left, kind
            out = np.empty_like(expected)
            compared += 1

            assert decode(data, reduce, mode=mode, backend=name, out=out) is out
            assert_same(image, expected, (kind, mode), within=1 if header.color == "cmyk" else 0)
            assert_same(out, image, (kind, mode))

    assert reduce != 1 or compared > 150
    assert reduce not in backend.supports["jpeg"][0].reduces or compared > 90
