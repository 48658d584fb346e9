"""How many processors this process may really use."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from fastdecode import _system

MACHINE = 16


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Stand in for a machine of 16 processors; the folder has its cgroup files, none at first."""
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(MACHINE)), raising=False)
    monkeypatch.setattr(_system, "_CGROUP_V2", str(tmp_path / "cpu.max"))
    monkeypatch.setattr(_system, "_CGROUP_V1", (str(tmp_path / "quota"), str(tmp_path / "period")))
    return tmp_path


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="there is no affinity mask here")
def test_affinity_is_respected() -> None:
    """A process that is tied to one processor counts one, whatever the machine has."""
    code = (
        "import os; os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})\n"
        "from fastdecode._system import usable_cores; print(usable_cores())"
    )

    printed = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True).stdout

    assert printed.strip() == b"1"


def test_this_machine_has_some() -> None:
    """Here and now there is at least one, and no more than the machine has."""
    assert 1 <= _system.usable_cores() <= (os.cpu_count() or 1)


def test_without_quota_all_count(machine: Path) -> None:
    """Where there is no cgroup file the affinity mask alone decides."""
    assert _system.usable_cores() == MACHINE


def test_without_affinity_mask_the_machine_counts(
    machine: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where there is no mask to ask for (macOS, Windows) the machine's number counts."""
    monkeypatch.delattr(os, "sched_getaffinity")
    monkeypatch.setattr(os, "cpu_count", lambda: 3)

    assert _system.usable_cores() == 3


@pytest.mark.parametrize(
    ("cpu_max", "expected"),
    [
        ("max 100000\n", MACHINE),
        ("400000 100000\n", 4),
        ("250000 100000\n", 3),
        ("50000 100000\n", 1),
        ("1000 100000\n", 1),
        ("30000 20000\n", 2),
        ("6400000 100000\n", MACHINE),
    ],
)
def test_cgroup_v2_quota(machine: Path, cpu_max: str, expected: int) -> None:
    """The quota of cpu.max, rounded up, bounds the count; it is never below 1."""
    (machine / "cpu.max").write_text(cpu_max)

    assert _system.usable_cores() == expected


@pytest.mark.parametrize(
    ("quota", "period", "expected"),
    [("-1", "100000", MACHINE), ("200000", "100000", 2), ("10000", "100000", 1)],
)
def test_cgroup_v1_quota(machine: Path, quota: str, period: str, expected: int) -> None:
    """Older systems keep quota and period in two files; -1 is no quota."""
    (machine / "quota").write_text(quota)
    (machine / "period").write_text(period)

    assert _system.usable_cores() == expected


def test_v2_goes_before_v1(machine: Path) -> None:
    """Where both are there, the newer file is the one in force."""
    (machine / "cpu.max").write_text("300000 100000")
    (machine / "quota").write_text("100000")
    (machine / "period").write_text("100000")

    assert _system.usable_cores() == 3


@pytest.mark.parametrize("cpu_max", ["", "nonsense", "many 100000", "1 2 3", "100000 0"])
def test_unreadable_quota_is_no_quota(machine: Path, cpu_max: str) -> None:
    """A file that cannot be understood stops nothing."""
    (machine / "cpu.max").write_text(cpu_max)

    assert _system.usable_cores() == MACHINE
