"""`bench/gpu.py` goes through all that it does on a GPU, with little to do and on the CPU."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from benches import TERMINAL, environment, photo

torch = pytest.importorskip("torch")

from fastdecode import BackendUnavailable  # noqa: E402 - they need torch
from fastdecode.gpu import _backends  # noqa: E402 - they need torch

try:
    _backends.load("nvimgcodec", torch.device("cpu"))
except BackendUnavailable as error:
    reason = f"nvimgcodec decodes on the CPU what a GPU would: {error}"
    pytest.skip(reason, allow_module_level=True)

_ROOT = Path(__file__).parent.parent
_BENCH = _ROOT / "bench"
_PHOTOS = 3
_LOADERS = ("loader-cpu", "loader-nvimgcodec")
_PARAMETERS = 25_557_032  # of torchvision's resnet50


@pytest.fixture
def scripts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the test import what lies beside the script."""
    monkeypatch.syspath_prepend(str(_BENCH))


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, Any], str]:
    """Run all parts once; what it wrote, and what it printed."""
    folder = tmp_path_factory.mktemp("photos")
    for number in range(_PHOTOS):
        (folder / f"{number}.jpg").write_bytes(photo(96 + 16 * number, 64, turn=number))
    (folder / "progressive.jpg").write_bytes(_progressive())
    result = folder / "result.json"
    arguments = ["--large", folder, "--device", "cpu", "--tiny", "--json", result]
    done = subprocess.run(
        [sys.executable, *map(str, (_BENCH / "gpu.py", folder, *arguments))],
        capture_output=True,
        text=True,
        check=False,
        env=environment(PYTHONPATH=os.pathsep.join([str(_ROOT), os.environ.get("PYTHONPATH", "")])),
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(result.read_text(encoding="utf-8")), done.stdout


def _progressive() -> bytes:
    import io

    from PIL import Image

    file = io.BytesIO()
    Image.linear_gradient("L").convert("RGB").save(file, "JPEG", progressive=True)
    return file.getvalue()


def test_training_is_measured_with_every_feed(run: tuple[dict[str, Any], str]) -> None:
    """Each feed that is installed has its speed, its share of the first's, and what it waited."""
    part = run[0]["result"]["training"]

    assert {*part["feeds"]} | {*part["left_out"]} == {"random", "pillow", "dali", *_LOADERS}
    assert {*part["left_out"]} <= {"dali"}
    assert part["feeds"]["random"]["to_random"] == 1
    for one in part["feeds"].values():
        assert one["images_per_s"] > 0
        assert one["to_random"] > 0
        assert one["kernels_ms"] > 0
        assert one["waiting_ms"] >= 0
    assert "nvimgcodec" in part["chosen"]["loader-nvimgcodec"]


def test_memory_is_looked_at_after_each_epoch(run: tuple[dict[str, Any], str]) -> None:
    """For both ways to decode there are as many figures as epochs, the first and last named."""
    part = run[0]["result"]["memory"]

    assert {*part["feeds"]} == {*_LOADERS}
    for kinds in part["feeds"].values():
        sizes = kinds["host"]
        assert len(sizes["all"]) == part["settings"]["epochs"]
        assert (sizes["first"], sizes["last"]) == (sizes["all"][0], sizes["all"][-1])


@pytest.mark.parametrize("part", ["decode, small", "decode, large"])
def test_decoding_is_compared_with_the_cpu(run: tuple[dict[str, Any], str], part: str) -> None:
    """Batch backends and the CPU path are measured, whole and resized; pixels agree."""
    lanes = run[0]["result"][part]["lanes"]
    found = {(lane["backend"], lane["size"]): lane for lane in lanes}

    assert {("nvimgcodec", 0), ("cpu", 0), ("nvimgcodec", 224), ("cpu", 224)} <= {*found}
    assert found["cpu", 0]["ratio"]["median"] == 1
    assert found["nvimgcodec", 0]["images_per_s"]["median"] > 0
    assert found["nvimgcodec", 0]["files"] == _PHOTOS + 1
    assert (found["nvimgcodec", 0]["psnr"] or 60) >= 30
    assert found["nvimgcodec", 0]["on_cpu"] > 0  # the progressive one


def test_the_result_says_what_it_was_measured_on(run: tuple[dict[str, Any], str]) -> None:
    """Device, processor, versions and days are there; what is printed fits a terminal."""
    content, printed = run

    assert content["device"]["name"] == "CPU"
    assert content["machine"]["cores"] >= 1
    assert content["libraries"]["torch"]
    assert all(re.fullmatch(r"\d{4}-\d\d-\d\d", one["measured"]) for one in _parts(content))
    assert all(len(line) <= TERMINAL for line in printed.splitlines() if ".json" not in line)


def _parts(content: dict[str, Any]) -> list[dict[str, Any]]:
    return list(content["result"].values())


@pytest.mark.usefixtures("scripts")
def test_the_documents_draw_their_tables_from_it(run: tuple[dict[str, Any], str]) -> None:
    """What was written can be drawn: every feed and every lane has a row."""
    from readme_tables import machine_figures

    content = run[0]
    text = machine_figures(content)

    assert all(
        f"`{lane['backend']}`" in text for lane in content["result"]["decode, small"]["lanes"]
    )
    assert "random tensors" in text
    assert "Pillow" in text
    assert content["machine"]["cpu"] in text


@pytest.mark.usefixtures("scripts")
def test_the_network_is_a_resnet_50() -> None:
    """It has the parameters and the results' shape of torchvision's."""
    from _training import ResNet

    network = ResNet().eval()
    with torch.no_grad():
        made = network(torch.zeros(1, 3, 64, 64))

    assert sum(parameter.numel() for parameter in network.parameters()) == _PARAMETERS
    assert made.shape == (1, 1000)


@pytest.mark.usefixtures("scripts")
def test_no_turn_is_begun_that_would_end_too_late(monkeypatch: pytest.MonkeyPatch) -> None:
    """When the minutes are over, lanes are left out, and what was measured stays."""
    import _common
    from _common import Budget, take_turns

    budget, left_out = Budget(60), {}
    rounds = take_turns({"one": lambda: 1, "two": lambda: 2}, 2, budget, left_out)
    next(rounds)
    assert next(rounds) == {"one": {1: 1}, "two": {1: 2}}
    hour_later = _common.perf_counter() + 3600
    monkeypatch.setattr(_common, "perf_counter", lambda: hour_later)
    last = next(rounds)

    assert last == {"one": {1: 1}, "two": {1: 2}}
    assert {*left_out} == {"one", "two"}


@pytest.mark.usefixtures("scripts")
def test_a_lane_that_fails_is_left_out(capfd: pytest.CaptureFixture[str]) -> None:
    """The others go on; the reason is kept, and shown with where it happened."""
    from _common import Budget, take_turns

    def broken() -> int:
        raise RuntimeError("no such decoder")

    budget, left_out = Budget(60), {}
    *_, last = take_turns({"broken": broken, "good": lambda: 1}, 1, budget, left_out)

    assert last == {"good": {1: 1}}
    assert left_out == {"broken": "RuntimeError: no such decoder"}
    assert "in broken" in capfd.readouterr().err


@pytest.mark.usefixtures("scripts")
def test_parts_of_several_runs_join(tmp_path: Path) -> None:
    """A part that is measured later joins the file, unless the libraries have changed since."""
    from _training import Clock
    from gpu import Keeper

    place, clock = tmp_path / "gpu.json", Clock(torch.device("cpu"))
    Keeper(place, clock).keep("one", {}, {"a": 1})
    Keeper(place, clock).keep("two", {}, {"a": 2})
    both = json.loads(place.read_text(encoding="utf-8"))
    place.write_text(json.dumps({**both, "libraries": {"torch": "0.1"}}), encoding="utf-8")
    Keeper(place, clock).keep("three", {}, {"a": 3})

    assert {*both["result"]} == {"one", "two"}
    assert {*json.loads(place.read_text(encoding="utf-8"))["result"]} == {"three"}
