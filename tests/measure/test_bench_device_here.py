"""What ``python -m fastdecode`` reports about devices and their backends."""

from __future__ import annotations

import importlib.util
import re

import pytest
from benches import TERMINAL
from results import MACHINE

from fastdecode import BackendInfo, _info_command


def test_what_is_here_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    """``python -m fastdecode`` names the devices and their backends, or what is missing."""
    monkeypatch.setenv("COLUMNS", str(TERMINAL))
    infos = [BackendInfo("nvimgcodec", True, "", "", devices=("cpu", "cuda"))]

    (line,) = _info_command.on_devices(None, infos)
    assert "nvimgcodec need PyTorch" in line

    pytest.importorskip("torch")
    monkeypatch.setenv("FASTDECODE_DISABLE", "nvimgcodec")
    here = _info_command.inventory()
    assert here is not None
    text = "\n".join(_info_command.on_devices(here, infos))
    assert max(map(len, text.splitlines())) <= TERMINAL
    assert MACHINE.cpu not in text
    assert re.search(r"^  cpu ", text, re.MULTILINE)
    assert re.search(r"^  cuda", text, re.MULTILINE)
    for name in here.usable:
        assert re.search(rf"^  {name} ", text, re.MULTILINE)
        assert here.usable[name] or here.reasons[name]
    off = "decodes on cpu, but FASTDECODE_DISABLE excludes it"
    assert (off in " ".join(text.split())) == ("cpu" in here.usable["nvimgcodec"])


@pytest.mark.parametrize("name", ["torchvision", "torchcodec"])
def test_the_library_is_missing_before_the_device_is(name: str) -> None:
    """For a backend that is not installed, the missing library is reported on any device."""
    pytest.importorskip("torch")
    if importlib.util.find_spec(name) is not None:
        pytest.skip(f"{name} is installed")
    here = _info_command.inventory()

    assert here is not None
    assert f"the Python package '{name}' is not installed" in here.reasons[name]
    assert f"pip install 'fastdecode[{name}]'" in here.reasons[name]
