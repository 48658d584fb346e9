"""Hypothesis damages real files: decoding returns an array or raises a FastDecodeError."""

from __future__ import annotations

import warnings
from pathlib import Path

from corpus import samples
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sweep import Case, cases, decode_checked, sweep

_SEEDS = [
    str(sample.path)
    for sample in samples("jpeg_kinds", "formats")
    if sample.decodes_in_pillow and sample.path.stat().st_size < 20_000
]
# Libraries that are known to crash or to run away on hostile files of a format never get them.
_LIMIT = 4_000_000


_DAMAGE = st.builds(Case, st.sampled_from(_SEEDS), st.integers(1, 2**32))


@settings(deadline=None, max_examples=400, suppress_health_check=list(HealthCheck))
@given(case=_DAMAGE, reduce=st.sampled_from([1, 2, 8]), mode=st.sampled_from(["RGB", "stored"]))
def test_damage_never_escapes(case: Case, reduce: int, mode: str) -> None:
    """Damaged data decodes to an image of the declared size, or raises a FastDecodeError."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        decode_checked(case.read(), {"reduce": reduce, "mode": mode, "max_pixels": _LIMIT})


def test_a_sample_of_the_sweep_finds_nothing(tmp_path: Path) -> None:
    """Files of every kind, intact and damaged, cause no fault in any way of decoding."""
    report = sweep(list(cases(60, tmp_path, files=60)))

    assert not report.faults, "\n".join(report.faults)
    assert report.answers["pixels"] > 150
    assert report.answers["DecodeError"] > 150
    assert report.answers["batch: ndarray"] > 50
    assert report.answers["pack: packed"] > 20


def test_the_sweep_names_what_crashes() -> None:
    """The sweep finds the file and setting that crash, and decodes all other files."""
    todo = [Case("a.png", number) for number in range(38, 53)]

    report = sweep(todo, target="deadly:Deadly")

    (fault,) = report.faults
    assert fault.startswith("a.png, damage 45, setting 6 each: ")
    assert "signal 11" in fault
    assert report.answers["pixels"] == 14 + 13 + 15  # settings of the deadly one count singly
