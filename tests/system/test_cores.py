"""The number of cores that this process may use."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from processes import python

from fastdecode._system import processor

MACHINE = 16


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Simulate a machine of 16 processors whose folder of cgroup files is empty at first."""
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(MACHINE)), raising=False)
    monkeypatch.setattr(processor, "_CGROUP_V2", str(tmp_path / "cpu.max"))
    monkeypatch.setattr(
        processor, "_CGROUP_V1", (str(tmp_path / "quota"), str(tmp_path / "period"))
    )
    return tmp_path


def test_affinity_is_respected(machine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that is pinned to one processor counts one; without a mask the machine counts."""
    if hasattr(os, "sched_setaffinity"):
        code = (
            "import os; os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})\n"
            "from fastdecode._system.processor import usable_cores; print(usable_cores())"
        )
        assert python("-c", code).stdout.strip() == "1"
    monkeypatch.delattr(os, "sched_getaffinity")
    monkeypatch.setattr(os, "cpu_count", lambda: 3)

    assert processor.usable_cores() == 3


UNREADABLE = ("", "nonsense", "many 100000", "1 2 3", "100000 0")


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({}, MACHINE),
        ({"cpu.max": "max 100000\n"}, MACHINE),
        ({"cpu.max": "400000 100000\n"}, 4),
        ({"cpu.max": "250000 100000\n"}, 3),
        ({"cpu.max": "50000 100000\n"}, 1),
        ({"cpu.max": "1000 100000\n"}, 1),
        ({"cpu.max": "30000 20000\n"}, 2),
        ({"cpu.max": "6400000 100000\n"}, MACHINE),
        ({"quota": "-1", "period": "100000"}, MACHINE),
        ({"quota": "200000", "period": "100000"}, 2),
        ({"quota": "10000", "period": "100000"}, 1),
        ({"cpu.max": "300000 100000", "quota": "100000", "period": "100000"}, 3),
        *(({"cpu.max": text}, MACHINE) for text in UNREADABLE),
    ],
    ids=str,
)
def test_quota_of_the_cgroup(machine: Path, files: dict[str, str], expected: int) -> None:
    """The quota, rounded up, bounds the count, which is never below 1.

    It is in cpu.max of cgroup v2, which goes before the two files of v1, where -1 is no quota.
    Without any, and where they cannot be understood, the affinity mask alone decides.
    """
    for name, text in files.items():
        (machine / name).write_text(text)

    assert processor.usable_cores() == expected
