"""What ``python -m fastdecode`` reports about devices and their backends."""

from __future__ import annotations

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
