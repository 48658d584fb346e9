"""The slips are found in the package; `run.py` tries whether tests notice them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path


def test_every_slip_is_found() -> None:
    """Each slip's snippet occurs once in the package, and the tests that it names exist."""
    script = Path(__file__).with_name("run.py")

    done = subprocess.run(
        [sys.executable, script, "--find"], capture_output=True, text=True, check=False
    )

    assert done.returncode == 0, done.stdout + done.stderr
