"""`bench/gpu.py` runs completely on the CPU, with little work."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

import pytest
from benches import TERMINAL, environment, photo
from corpus import TESTS

torch = pytest.importorskip("torch")

from fastdecode import BackendUnavailable  # noqa: E402 - they need torch
from fastdecode.gpu import _backends  # noqa: E402 - they need torch

try:
    _backends.load("nvimgcodec", torch.device("cpu"))
except BackendUnavailable as error:
    reason = f"nvimgcodec decodes on the CPU what a GPU would: {error}"
    pytest.skip(reason, allow_module_level=True)

_ROOT = TESTS.parent
_BENCH = _ROOT / "bench"
_FEEDS = ("random", "pillow", "loader-cpu", "loader-nvimgcodec", "dali")
_PARAMETERS = 25_557_032  # of torchvision's resnet50


@pytest.fixture
def scripts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Add the script's folder to the import path."""
    monkeypatch.syspath_prepend(str(_BENCH))


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, Any], str]:
    """Run the script once; return what it wrote and printed."""
    folder = tmp_path_factory.mktemp("photos")
    for number in range(3):
        (folder / f"{number}.jpg").write_bytes(photo(96 + 16 * number, 64, turn=number))
    result = folder / "result.json"
    options = ["--device", "cpu", "--tiny", "--feeds", ",".join(_FEEDS), "--json", str(result)]
    done = subprocess.run(
        [sys.executable, str(_BENCH / "gpu.py"), str(folder), *options],
        capture_output=True,
        text=True,
        check=False,
        env=environment(PYTHONPATH=os.pathsep.join([str(_ROOT), os.environ.get("PYTHONPATH", "")])),
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(result.read_text(encoding="utf-8")), done.stdout


def test_training_is_measured_with_every_feed(run: tuple[dict[str, Any], str]) -> None:
    """Each installed feed has its speed, its share of the first's, and its waiting time."""
    result = run[0]["result"]

    assert {*result["feeds"]} | {*result["left_out"]} == {*_FEEDS}
    assert {*result["left_out"]} <= {"dali"}
    assert result["feeds"]["random"]["to_random"] == 1
    for one in result["feeds"].values():
        assert one["images_per_s"] > 0
        assert one["to_random"] > 0
        assert one["kernels_ms"] > 0
        assert one["waiting_ms"] >= 0
        assert len(one["rounds"]) == 1
    assert "nvimgcodec" in result["chosen"]["loader-nvimgcodec"]


def test_the_result_says_what_it_was_measured_on(run: tuple[dict[str, Any], str]) -> None:
    """The result has device, processor, versions and day; the output fits a terminal."""
    content, printed = run

    assert content["settings"]["device"] == "CPU"
    assert content["settings"]["libraries"]["torch"]
    assert content["machine"]["cores"] >= 1
    assert content["measured"]
    assert all(len(line) <= TERMINAL for line in printed.splitlines() if ".json" not in line)


@pytest.mark.usefixtures("scripts")
def test_the_documents_draw_their_tables_from_it(run: tuple[dict[str, Any], str]) -> None:
    """The documents can draw a table from the result."""
    from readme import machine_figures

    text = machine_figures(run[0])

    assert "random tensors" in text
    assert "Pillow" in text
    assert run[0]["machine"]["cpu"] in text


@pytest.mark.usefixtures("scripts")
def test_the_network_is_a_resnet_50() -> None:
    """The network has the parameters and output shape of torchvision's ResNet-50."""
    from gpu import resnet

    network = resnet().eval()
    with torch.no_grad():
        made = network(torch.zeros(1, 3, 64, 64))

    assert sum(parameter.numel() for parameter in network.parameters()) == _PARAMETERS
    assert made.shape == (1, 1000)


@pytest.mark.usefixtures("scripts")
def test_a_competitor_that_fails_is_left_out(capfd: pytest.CaptureFixture[str]) -> None:
    """If a competitor fails, the others go on; its reason is kept and shown."""
    from _common import take_turns

    def broken() -> int:
        raise RuntimeError("no such decoder")

    left_out: dict[str, str] = {}
    found = take_turns({"broken": broken, "good": lambda: 1}, 1, left_out=left_out)

    assert found == {"good": {1: 1}}
    assert left_out == {"broken": "RuntimeError: no such decoder"}
    assert "in broken" in capfd.readouterr().err
