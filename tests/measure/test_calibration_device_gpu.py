"""Timing on a GPU: events, the profiler, and `calibrate`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

if not torch.cuda.is_available():
    pytest.skip(
        "needs a CUDA device, and a PyTorch that is built with CUDA", allow_module_level=True
    )

from fastdecode import calibrate  # noqa: E402 - it needs torch
from fastdecode.errors import BackendUnavailable  # noqa: E402
from fastdecode.gpu import _backends  # noqa: E402 - it needs torch
from fastdecode.gpu import _policy as subject  # noqa: E402
from fastdecode.gpu._devices import check_device, identify  # noqa: E402
from fastdecode.gpu._policy import measured_order  # noqa: E402
from fastdecode.measure._device_worker import (  # noqa: E402
    CudaClock,
    clock_for,
    profile_busy_time,
)

CYCLES = 50_000_000
"""Some 25 milliseconds."""
LEAST_S = 0.005


def late() -> Any:
    """Launch work that takes much longer than the launch."""
    torch.cuda._sleep(CYCLES)
    return torch.zeros(8, device="cuda")


def test_the_clock_waits_for_the_device() -> None:
    """The time of a kernel counts, although its launch returns at once."""
    device = check_device("cuda")
    clock = clock_for(device)

    lap = clock.lap(late)

    assert isinstance(clock, CudaClock)
    assert lap.stream is not None
    assert LEAST_S < lap.stream <= lap.wall * 1.01 + 0.001


def test_the_profiler_sees_the_kernel() -> None:
    """The busy time of the GPU is that of the kernel, or unknown."""
    found = profile_busy_time(check_device("cuda"), late)

    assert found is None or found > LEAST_S


def test_the_gpu_is_known_by_name() -> None:
    """The model, driver and CUDA version identify the GPU."""
    here = identify(check_device("cuda"))

    assert here.kind == "cuda"
    assert here.name == torch.cuda.get_device_name()
    assert here.runtime


def test_calibrate_finds_an_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All backends that work are measured, and ``decode="auto"`` uses the order."""
    device = check_device("cuda")
    if not _usable(device):
        pytest.skip("no batch backend works on this device")
    monkeypatch.setenv("FASTDECODE_RANKING", str(tmp_path / "ranking.json"))
    monkeypatch.setattr(subject, "_known", {})

    found = calibrate(device="cuda", batches=(16,), seconds=15)
    found.save()

    assert "cpu" in found.order()
    assert len(found.order()) > 1
    assert measured_order(device) == found.order()
    for speeds in found.speeds.values():
        for one in speeds.values():
            assert one.images_per_s.median > 0
            assert one.stream_ms_per_1000 is not None


def _usable(device: Any) -> list[str]:
    usable = []
    for name in _backends.names("cuda"):
        try:
            _backends.load(name, device)
        except BackendUnavailable:
            continue
        usable.append(name)
    return usable
