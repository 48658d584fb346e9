"""The slips are found in the package; `run.py` tries whether tests notice them."""

from __future__ import annotations

from pathlib import Path

from processes import python


def test_every_slip_is_found() -> None:
    """Each slip's snippet occurs once in the package, and the tests that it names exist."""
    script = Path(__file__).with_name("run.py")

    done = python(script, "--find")

    assert done.returncode == 0, done.stdout + done.stderr
