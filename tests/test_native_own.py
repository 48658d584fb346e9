"""The core's own decoder of baseline JPEG: when it decodes, who is told, how it is switched off."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import native_core

import fastdecode
from fastdecode import BackendUnavailable, DecodeError, decode, stats
from fastdecode.testing import encode, picture

native_core()

_WHOLE = encode(picture(61, 43), "jpeg")
_SWITCHED = """
import hashlib, json, sys
from fastdecode import backends, decode, stats
from fastdecode.testing import encode, picture
data = encode(picture(61, 43), "jpeg")
image = decode(data, backend="native")
codec = next(info.codec for info in backends() if info.name == "native")
print(json.dumps([hashlib.sha256(image).hexdigest(), stats().left_to_libjpeg, codec]))
"""


def _left(data: bytes, **options: Any) -> int:
    """How many files were left to libjpeg-turbo in one call of `decode`."""
    stats(reset=True)
    decode(data, backend="native", **options)
    return stats().left_to_libjpeg


def _child(script: str, **settings: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True,
        text=True,
        env={**os.environ, **settings},
        cwd=Path(fastdecode.__file__).parents[1],
        check=False,
    )


@pytest.mark.parametrize("subsampling", [0, 1, 2])
@pytest.mark.parametrize("reduce", [1, 2, 4, 8])
@pytest.mark.parametrize("mode", ["RGB", "L", "RGBA"])
def test_baseline_is_decoded_by_the_core_itself(subsampling: int, reduce: Any, mode: Any) -> None:
    """A baseline JPEG is not left to libjpeg-turbo, and has the pixels that Pillow shows."""
    data = encode(picture(61, 43), "jpeg", subsampling=subsampling)

    assert _left(data, reduce=reduce, mode=mode) == 0
    np.testing.assert_array_equal(
        decode(data, reduce, mode=mode, backend="native"),
        decode(data, reduce, mode=mode, backend="pillow"),
    )


@pytest.mark.parametrize("options", [{"progressive": True}, {"keep_rgb": True}], ids=str)
def test_other_kinds_are_left_to_libjpeg_turbo(options: dict[str, Any]) -> None:
    """What the core does not decode by itself is counted, and decodes all the same."""
    assert _left(encode(picture(61, 43), "jpeg", **options)) == 1


def test_a_region_is_decoded_by_the_core_itself() -> None:
    """A part needs no more of libjpeg-turbo than the whole."""
    assert _left(_WHOLE, region=(7, 9, 40, 33)) == 0


def test_damage_is_judged_by_libjpeg_turbo() -> None:
    """A file that ends too early is left to libjpeg-turbo, whose words the error has."""
    stats(reset=True)
    with pytest.raises(DecodeError, match="premature end"):
        decode(_WHOLE[: len(_WHOLE) * 2 // 3] + b"\xff\xd9", backend="native")

    assert stats().left_to_libjpeg >= 1


def test_it_can_be_switched_off() -> None:
    """FASTDECODE_NATIVE_DECODER=libjpeg changes who decodes, which is said, and no pixel."""
    own = json.loads(_child(_SWITCHED, FASTDECODE_NATIVE_DECODER="").stdout)
    other = json.loads(_child(_SWITCHED, FASTDECODE_NATIVE_DECODER="libjpeg").stdout)

    assert own[0] == other[0]
    assert (own[1], other[1]) == (0, 1)
    assert own[2].startswith("its own for baseline JPEG")
    assert other[2].startswith("libjpeg-turbo")


def test_an_unknown_decoder_is_refused() -> None:
    """Another name in the variable makes the backend unusable, and the reason names it."""
    done = _child(_SWITCHED, FASTDECODE_NATIVE_DECODER="mine")

    assert BackendUnavailable.__name__ in done.stderr
    assert "FASTDECODE_NATIVE_DECODER=mine" in done.stderr
