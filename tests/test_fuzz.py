"""Hypothesis damages real files: an array or a FastDecodeError, and nothing else."""

from __future__ import annotations

import os
import signal
import warnings
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
from conftest import CORPUS, samples, usable_backends
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sweep import Case, Report, cases, sweep

from fastdecode import FastDecodeError, decode, probe

_SEEDS = [
    sample
    for sample in samples("jpeg_kinds", "formats")
    if sample.decodes_in_pillow and sample.path.stat().st_size < 20_000
]
# Libraries that are known to crash or to run away on hostile files of a format never get them.
_LIMIT = 4_000_000


class Damaged(NamedTuple):
    """A file and what was done to it, which says more than the bytes do."""

    name: str
    steps: tuple[str, ...]
    data: bytes

    def __repr__(self) -> str:
        return f"{self.name}: {', '.join(self.steps)}"


@st.composite
def damaged(draw: st.DrawFn) -> Damaged:
    """Draw a real file with bits flipped, a piece cut out, or a piece of another put in."""
    seed = draw(st.sampled_from(_SEEDS))
    data, steps = bytearray(seed.path.read_bytes()), []
    for _ in range(draw(st.integers(1, 3))):
        if len(data) < 4:
            break
        position = draw(st.integers(0, len(data) - 1))
        kind = draw(st.sampled_from(["flip", "cut", "end", "splice"]))
        step = f"{kind} at {position}"
        if kind == "flip":
            bit = draw(st.integers(0, 7))
            data[position] ^= 1 << bit
            step += f" bit {bit}"
        elif kind == "cut":
            length = draw(st.integers(1, 200))
            del data[position : position + length]
            step += f" {length} bytes"
        elif kind == "end":
            del data[position:]
        else:
            other = draw(st.sampled_from(_SEEDS))
            whole = other.path.read_bytes()
            start = draw(st.integers(0, len(whole) - 1))
            length = draw(st.integers(1, 400))
            data[position:position] = whole[start : start + length]
            step += f" {length} bytes of {other.path.name} from {start}"
        steps.append(step)
    return Damaged(seed.path.name, tuple(steps), bytes(data))


@settings(deadline=None, max_examples=400, suppress_health_check=list(HealthCheck))
@given(file=damaged(), reduce=st.sampled_from([1, 2, 8]), mode=st.sampled_from(["RGB", "stored"]))
def test_damage_never_escapes(file: Damaged, reduce: int, mode: str) -> None:
    """Whatever is done to a file, the answer is a picture of the promised size or our error."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            image = decode(file.data, reduce, mode=mode, max_pixels=_LIMIT)
        except FastDecodeError:
            return
        header = probe(file.data)

    assert isinstance(image, np.ndarray)
    if header.format == "jpeg":
        assert image.shape[:2] == (-(-header.height // reduce), -(-header.width // reduce))


@pytest.mark.parametrize(
    "name", [n for n in usable_backends() if n in ("simplejpeg", "pillow", "opencv", "jpeg4py")]
)
@settings(deadline=None, max_examples=120, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_a_jpeg_cut_anywhere_is_never_shown_in_part(name: str, data: st.DataObject) -> None:
    """A JPEG that ends early is an error, or shows every pixel of the whole."""
    whole = (CORPUS / "jpeg_kinds" / "gen_420_base.jpg").read_bytes()
    end = data.draw(st.integers(2, len(whole)))
    try:
        image = decode(whole[:end], backend=name)
    except FastDecodeError:
        return

    np.testing.assert_array_equal(image, decode(whole, backend=name))


def test_a_sample_of_the_sweep_finds_nothing(tmp_path: Path) -> None:
    """Files of every kind, sound and damaged, end in answers through all that decodes."""
    report = sweep(list(cases(60, tmp_path, files=60)))

    assert not report.faults, "\n".join(report.faults)
    assert report.answers["pixels"] > 150
    assert report.answers["DecodeError"] > 150
    assert report.answers["batch: ndarray"] > 50
    assert report.answers["pack: packed"] > 20


class Deadly:
    """What a child would do in which one case dies of a crash in one setting."""

    def each(self, group: Sequence[Case], settings: Sequence[int]) -> Report:
        if 6 in settings and any(case.number == 45 for case in group):
            os.kill(os.getpid(), signal.SIGSEGV)
        return Report(Counter(pixels=len(group)), [])

    def together(self, group: Sequence[Case], settings: Sequence[int]) -> Report:
        del settings
        return Report(Counter(pixels=len(group)), [])


def test_the_sweep_names_what_crashes() -> None:
    """A crash is pinned down to its file and setting, and all other files have their answers."""
    todo = [Case("a.png", number) for number in range(38, 53)]

    report = sweep(todo, target="test_fuzz:Deadly")

    (fault,) = report.faults
    assert fault.startswith("a.png, damage 45, setting 6 each: ")
    assert "signal 11" in fault
    assert report.answers["pixels"] == 14 + 13 + 15  # settings of the deadly one count singly
