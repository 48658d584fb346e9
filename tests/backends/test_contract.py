"""Every registered backend keeps the contract, and properties that only many files show."""

from __future__ import annotations

import contextlib

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


@pytest.mark.parametrize("name", _exact_jpeg_backends())
@pytest.mark.parametrize("reduce", REDUCES)
def test_the_libjpeg_turbo_group_is_bit_identical(name: str, reduce: Reduce) -> None:
    """Every sampling and coding decodes to Pillow's pixels, or is refused before decoding."""
    backend = registry.load(name)
    compared = 0
    for sample in _KINDS:
        data = sample.path.read_bytes()
        header = probe(data)
        if not any(
            support.reduces_natively(header, reduce) and not support.refusal(header)
            for support in backend.supports["jpeg"]
        ):
            continue
        is_left = name == "native" and sample.name.endswith(_LEFT_BY_THE_CORE)
        try:
            image = decode(data, reduce, backend=name)
        except UnsupportedFormat:
            continue
        except DecodeError:
            # Its colour profile lacks a segment. Some libraries stop at that; no pixel is missing.
            if not sample.name.endswith("gen_icc_missing_seg.jpg"):
                assert is_left, sample.name
                assert_same(
                    decode(data, reduce), decode(data, reduce, backend="pillow"), sample.name
                )
            continue
        assert not is_left, sample.name
        expected = decode(data, reduce, backend="pillow")
        limit = 1 if header.color == "cmyk" else 0
        compared += 1

        assert image.shape == expected.shape, sample.name
        assert np.abs(image.astype(int) - expected).max() <= limit, sample.name

    assert reduce != 1 or compared > 50
    assert reduce not in backend.supports["jpeg"][0].reduces or compared > 30


def _tiny() -> dict[str, bytes]:
    """Encode noise with sides below 9 pixels, in every sampling that an encoder supports."""
    files = {}
    for width, height in ((1, 1), (1, 7), (2, 2), (3, 5), (5, 3), (6, 1), (7, 7), (4, 8), (8, 8)):
        image = drawing(width, height)
        for kind in ({"subsampling": 0}, {"subsampling": 1}, {"subsampling": 2}):
            for more in ({}, {"progressive": True}):
                files[f"{width}x{height} {kind} {more}"] = encode(image, quality=95, **kind, **more)
        files[f"{width}x{height} grey"] = encode(image.convert("L"), quality=95)
        files[f"{width}x{height} CMYK"] = encode(drawing(width, height, "CMYK"), quality=95)
        with contextlib.suppress(ImportError):
            import imagecodecs

            for sampling in ("440", "411"):
                files[f"{width}x{height} {sampling}"] = imagecodecs.jpeg8_encode(
                    np.asarray(image), level=95, subsampling=sampling
                )
    return files


@pytest.mark.parametrize("name", _exact_jpeg_backends())
@pytest.mark.parametrize("reduce", [2, 4, 8])
def test_a_tiny_jpeg_is_reduced_by_the_factor(name: str, reduce: Reduce) -> None:
    """If several factors give the same size, a backend that takes a size uses the right factor."""
    backend, files, compared = registry.load(name), _tiny(), 0
    for kind, data in files.items():
        header = probe(data)
        if not any(
            reduce in support.reduces and not support.refusal(header)
            for support in backend.supports["jpeg"]
        ):
            continue
        for mode in ("RGB", "L"):
            expected = decode(data, reduce, mode=mode, backend="pillow")
            image = decode(data, reduce, mode=mode, backend=name)
            out = np.empty_like(expected)
            limit = 1 if header.color == "cmyk" else 0

            assert decode(data, reduce, mode=mode, backend=name, out=out) is out
            assert image.shape == expected.shape
            assert np.abs(image.astype(int) - expected).max() <= limit, (kind, mode)
            assert_same(out, image, (kind, mode))
            compared += 1

    assert compared >= len(files) or reduce not in backend.supports["jpeg"][0].reduces
