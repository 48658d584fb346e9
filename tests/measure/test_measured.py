"""The saved measurement of a device: its own file, read again after a new save."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from fastdecode._system import (  # noqa: E402 - these need torch
    cpu_model,
    device_libraries,
    device_ranking_path,
    ranking_path,
    usable_cores,
)
from fastdecode.gpu._devices import driver_version, identify  # noqa: E402
from fastdecode.gpu._policy import load_saved, measured_order  # noqa: E402
from fastdecode.ranking import (  # noqa: E402
    DeviceCell,
    DeviceRanking,
    Identity,
    Speed,
    Spread,
)

HOST = torch.device("cpu")
MEDIUM = DeviceCell("jpeg", "medium", 64)
LARGE = DeviceCell("jpeg", "large", 64)


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return a path for the saved measurement; this test and the next read it again."""
    monkeypatch.setenv("FASTDECODE_RANKING", str(tmp_path / "another" / "ranking.json"))
    fitting().save()  # after which all is read again
    monkeypatch.setenv("FASTDECODE_RANKING", str(tmp_path / "ranking.json"))
    return tmp_path


def speed(ratio: float, **more: Any) -> Speed:
    """Return figures that all follow from the ratio."""
    spreads = (Spread(one, one * 0.9, one * 1.1) for one in (100 * ratio, ratio))
    return Speed(*spreads, 1.0, **more)


def fitting(*kinds: dict[str, float]) -> DeviceRanking:
    """Return an up-to-date ranking with these ratios per kind of work."""
    speeds = {
        cell: {name: speed(ratio) for name, ratio in kind.items()}
        for cell, kind in zip((MEDIUM, LARGE), kinds, strict=False)
    }
    return DeviceRanking(
        identify(HOST), speeds, {}, cpu_model(), usable_cores(), device_libraries(), "2026-01-02"
    )


def test_nothing_was_measured() -> None:
    """Without a file there is no order, and no warning."""
    assert measured_order(HOST) == ()
    assert load_saved(HOST) == (None, "")


def test_the_fastest_comes_first() -> None:
    """The saved measurement gives the order, including the CPU path."""
    fitting({"cpu": 1.0, "fast": 8.0, "slow": 0.5}).save()

    assert measured_order(HOST) == ("fast", "cpu", "slow")


def test_a_new_save_is_read_at_once() -> None:
    """A new save of this process is used at once."""
    fitting({"cpu": 1.0, "fast": 8.0}).save()
    assert measured_order(HOST) == ("fast", "cpu")

    fitting({"cpu": 1.0, "fast": 0.8}).save()

    assert measured_order(HOST) == ("cpu", "fast")


def test_a_file_is_read_once(place: Path) -> None:
    """A running process keeps what it has read, whatever happens to the file."""
    kept = fitting({"cpu": 1.0, "fast": 8.0}).save()
    assert measured_order(HOST) == ("fast", "cpu")

    kept.unlink()

    assert measured_order(HOST) == ("fast", "cpu")


def test_the_order_is_over_all_kinds_of_work() -> None:
    """The geometric mean of the ratios decides; what was not measured everywhere is left out."""
    found = fitting({"cpu": 1.0, "a": 4.0, "b": 2.0, "c": 9.0}, {"cpu": 1.0, "a": 0.2, "b": 0.9})

    assert found.order() == ("b", "cpu", "a")


def test_the_order_of_nothing() -> None:
    """Without measurements there is no order."""
    assert fitting().order() == ()
    assert fitting({"fast": 0.0}).order() == ()


def test_the_cpu_is_not_compared_with_itself() -> None:
    """Kinds of work that all others left to the CPU count for nothing, and so does who always did.

    Half and half is an order still.
    """
    alike = {"cpu": speed(1.0), "a": speed(1.5, on_cpu=0.51), "b": speed(1.6, on_cpu=1.0)}
    honest = {"cpu": speed(1.0), "a": speed(0.5, on_cpu=0.5), "b": speed(1.1, on_cpu=1.0)}

    assert replace(fitting(), speeds={MEDIUM: alike}).order() == ()
    assert replace(fitting(), speeds={MEDIUM: alike, LARGE: honest}).order() == ("cpu", "a")


def test_the_ranking_of_the_cpu_is_left_alone(place: Path) -> None:
    """The file is next to the one that FASTDECODE_RANKING names."""
    ranking_path().write_text("mine")

    kept = fitting({"cpu": 1.0}).save()

    assert kept.parent == ranking_path().parent
    assert ranking_path().read_text() == "mine"
    assert kept == device_ranking_path(cpu_model()) != device_ranking_path("Another GPU")


def test_it_reads_back_as_it_was(tmp_path: Path) -> None:
    """A ranking reads back from its file with all its figures."""
    found = replace(
        fitting(),
        speeds={
            MEDIUM: {
                "cpu": speed(1.0),
                "fast": speed(
                    9.0, gpu_ms_per_1000=12.5, stream_ms_per_1000=40.0, on_cpu=0.25, psnr=37.1
                ),
            }
        },
        lost={"dali": "it is not installed"},
    )

    assert DeviceRanking.load(found.save(tmp_path / "folder" / "device.json")) == found


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"device": Identity("cuda", "Another GPU")}, "device Another GPU then"),
        ({"device": Identity("cpu", cpu_model(), "570.1")}, "driver 570.1 then"),
        ({"device": Identity("cpu", cpu_model(), "", "13.0")}, "CUDA 13.0 then"),
        ({"cpu": "Another CPU"}, "processor Another CPU then"),
        ({"cores": 1000}, "cores 1000 then"),
        ({"libraries": {**device_libraries(), "torch": "0.1"}}, "torch 0.1 then"),
        ({"libraries": {**device_libraries(), "gone": "1.0"}}, "gone 1.0 then, missing now"),
        ({"libraries": {}}, "fastdecode missing then"),
    ],
    ids=["device", "driver", "cuda", "processor", "cores", "version", "removed", "added"],
)
def test_what_is_out_of_date_is_ignored_with_one_warning(
    changed: dict[str, Any], said: str
) -> None:
    """Another device, driver, processor or library makes it stale, with one warning."""
    stale = replace(fitting({"cpu": 1.0, "fast": 8.0}), **changed)
    stale.save(device_ranking_path(cpu_model()))

    with pytest.warns(UserWarning, match="calibrate --device cpu") as caught:
        assert measured_order(HOST) == ()

    assert said in str(caught[0].message)
    assert measured_order(HOST) == (), "and no second warning, which would be an error here"


@pytest.mark.parametrize(
    "content",
    [
        "{",
        "[]",
        '{"schema": 99}',
        "[" * 100_000,
        json.dumps({"schema": 1, "device": {}}),
    ],
    ids=["cut", "list", "schema", "deep", "empty"],
)
def test_what_is_damaged_is_ignored_with_one_warning(content: str) -> None:
    """A damaged file is ignored, with one warning that says what to do."""
    device_ranking_path(cpu_model()).write_text(content)

    with pytest.warns(UserWarning, match="is ignored"):
        assert measured_order(HOST) == ()


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("cells", 0, "batch"), 0),
        (("cells", 0, "size"), "tiny"),
        (("cells", 0, "speeds", "cpu", "ratio"), "fast"),
        (("cells", 0, "speeds", "cpu", "ratio"), float("nan")),
        (("cells", 0, "speeds", "cpu", "images_per_s"), None),
        (("device", "name"), "\x1b[31m"),
        (("cpu",), 5),
    ],
    ids=str,
)
def test_wrong_values_are_found(path: tuple[Any, ...], value: object, tmp_path: Path) -> None:
    """An invalid value is an error that names the file."""
    kept = fitting({"cpu": 1.0}).save(tmp_path / "device.json")
    content = json.loads(kept.read_text())
    inner = content
    for step in path[:-1]:
        inner = inner[step]
    inner[path[-1]] = value
    kept.write_text(json.dumps(content))

    with pytest.raises(ValueError, match="no measurement of a device"):
        DeviceRanking.load(kept)


def test_a_folder_in_its_place() -> None:
    """A folder in place of the file is reported."""
    device_ranking_path(cpu_model()).mkdir()

    assert "Is a directory" in load_saved(HOST)[1]


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ("NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.129.03  Thu Oct 19", "535.129.03"),
        (
            "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.65.06  Release Build",
            "580.65.06",
        ),
        ("nothing of the kind", ""),
    ],
)
def test_the_drivers_version(text: str, version: str, tmp_path: Path) -> None:
    """The driver's version is read for both of NVIDIA's kernel modules."""
    (tmp_path / "version").write_text(text)

    assert driver_version(tmp_path / "version") == version


def test_no_driver(tmp_path: Path) -> None:
    """Without the driver's file the version is unknown."""
    assert driver_version(tmp_path / "version") == ""
