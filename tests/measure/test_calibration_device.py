"""`calibrate` for a device: real decoding onto the CPU, which stands for a device here."""

from __future__ import annotations

import weakref
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from corpus import TESTS

torch = pytest.importorskip("torch")

from fastdecode import (  # noqa: E402 - these need torch
    BackendUnavailable,
    calibrate,
    register,
    registry,
)
from fastdecode.measure._collection import Photo  # noqa: E402
from fastdecode.measure._device import compute_speeds, device_contests, limit_batch, unread_message  # noqa: E402
from fastdecode.measure._device_worker import (  # noqa: E402
    Clock,
    LapTimes,
    Warm,
    Worker,
    busy_time_of_trace,
    clock_for,
    profile_busy_time,
    repeat_until_steady,
)
from fastdecode.measure._samples import Sample  # noqa: E402
from fastdecode.ranking import DeviceRanking  # noqa: E402
from fastdecode.testing import drawing, encode  # noqa: E402
from fastdecode.types import Header  # noqa: E402

HOST = torch.device("cpu")
HERE = TESTS
JPEG = [encode(drawing(80 + 8 * step, 64)) for step in range(3)]
DAMAGED = JPEG[0][: len(JPEG[0]) // 2]
COLD = Warm(1.0, 0.0, None)
SHORT_S = 0.01
CUDA = torch.cuda.is_available()


def kept() -> list[Any]:
    """Give the files of a worker."""
    return [Photo.of(item) for item in JPEG]


@pytest.fixture
def doubles(monkeypatch: pytest.MonkeyPatch) -> None:
    """Register test doubles of batch backends for one test, by names that other processes find."""
    registry.names()  # looks for installed packages once, and those of the plugin are none
    monkeypatch.syspath_prepend(str(HERE / "support"))
    monkeypatch.syspath_prepend(str(HERE / "plugin"))
    for name in ("_registered", "_loaded", "_failed"):
        monkeypatch.setattr(registry, name, dict(getattr(registry, name)))
    for name in ("Honest", "Inverted", "Unwilling", "Crashing", "Unusable"):
        target = "device_backends:NoSingle"
        register(name.lower(), target, batch=f"device_backends:{name}")


@pytest.mark.usefixtures("doubles")
def test_everyone_is_measured_or_said_to_be_missing(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The CPU path and all that work have figures; the others, and wrong pixels, have a reason."""
    monkeypatch.setenv("FASTDECODE_DISABLE", "nvimgcodec,dali")
    shares: list[float] = []

    found = calibrate(
        [*JPEG, DAMAGED], device="cpu", batches=(2, 4), seconds=SHORT_S, notify=shares.append
    )

    assert {(cell.format, cell.size) for cell in found.speeds} == {("jpeg", "small")}
    assert {cell.batch for cell in found.speeds} <= {2, 4}
    for speeds in found.speeds.values():
        assert set(speeds) == {"cpu", "honest", "unwilling"}
        assert speeds["cpu"].ratio.median == 1.0
        assert speeds["unwilling"].on_cpu == 0.5
        assert speeds["honest"].on_cpu == 0
        for one in speeds.values():
            low, high = one.images_per_s.low, one.images_per_s.high
            assert 0 < low <= one.images_per_s.median <= high
            assert one.psnr is None, "all are Pillow's pixels, or equal to them"
            assert one.stream_ms_per_1000 is one.gpu_ms_per_1000 is None
    assert found.lost["nvimgcodec"] == "FASTDECODE_DISABLE switches it off"
    assert "its library is broken" in found.lost["unusable"]
    assert "exit status 3" in found.lost["crashing"]
    assert "PSNR" in found.lost["inverted"]
    assert set(found.order()) == {"cpu", "honest", "unwilling"}
    assert shares
    assert DeviceRanking.load(found.save(tmp_path / "device.json")) == found


@pytest.mark.usefixtures("doubles")
def test_what_no_batch_backend_reads_is_not_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only kinds that some batch backend declares are measured."""
    others = "nvimgcodec,dali,inverted,crashing,unusable,unwilling"
    monkeypatch.setenv("FASTDECODE_DISABLE", others)
    gif = encode(drawing(80, 64), "gif")

    found = calibrate([gif, JPEG[0]], device="cpu", batches=(2,), seconds=SHORT_S)

    assert {cell.format for cell in found.speeds} == {"jpeg"}
    assert unread_message({"gif", "png"}, {"honest": ["jpeg"]}) == (
        "no batch backend reads GIF, PNG; honest reads JPEG"
    )


@pytest.mark.usefixtures("doubles")
def test_what_the_cpu_decodes_is_counted() -> None:
    """Files of a format that is declared, but not all of it, count as the CPU's."""
    worker = Worker("cpu", "honest", {})
    worker.take([Photo.of(encode(drawing(80, 64), progressive=True)), *kept()])

    assert worker.warm_up((0,), 0.0).on_cpu == 1
    assert worker.warm_up((0, 1), 0.0).on_cpu == 0.5


@pytest.mark.usefixtures("doubles")
def test_a_worker_decodes_what_it_is_told() -> None:
    """A warm-up finds out what comes out, and a turn has laps of the whole batch."""
    worker = Worker("cpu", "unwilling", {})
    worker.take(kept())

    warm = worker.warm_up((0, 1, 2, 0), 0.1)
    laps = worker.turn((0, 1), 0.0)

    assert warm.on_cpu == 0.5
    assert worker.busy((0, 1)) is None, "the CPU has no kernels to look at"
    assert len(laps) == 1
    assert laps[0].wall > 0
    assert worker.about()[2] == ("jpeg",)


def test_files_that_nothing_reads_are_found() -> None:
    """The CPU path names those that it cannot decode, with the reason."""
    worker = Worker("cpu", "cpu", {})
    worker.take([kept()[0], replace(kept()[0], data=DAMAGED)])

    assert list(worker.readable()) == [1]
    assert worker.about() == ("", "", ())


def test_images_are_resized_if_that_is_asked_for() -> None:
    """With a size a batch is one tensor, whatever decodes it."""
    worker = Worker("cpu", "cpu", {}, 32)
    worker.take(kept())

    assert worker._decode(JPEG).shape == (3, 3, 32, 32)


def test_ratios_are_paired_within_rounds() -> None:
    """A machine that becomes slower for all changes speeds, and no ratio."""
    rounds = [
        {"cpu": LapTimes(0.010 * drift, 0.02, None), "fast": LapTimes(0.002 * drift, 0.001, 0.002)}
        for drift in (1, 2, 4)
    ]

    found = compute_speeds(rounds, {"cpu": COLD, "fast": COLD}, {"fast": 0.001})

    assert list(found) == ["fast", "cpu"]
    assert found["fast"].ratio.median == pytest.approx(5)
    assert found["fast"].ratio.low == pytest.approx(found["fast"].ratio.high)
    assert found["fast"].images_per_s.median == pytest.approx(250)
    assert found["fast"].cpu_s_per_1000 == pytest.approx(1)
    assert found["fast"].gpu_ms_per_1000 == pytest.approx(1000)
    assert found["fast"].stream_ms_per_1000 == pytest.approx(2000)
    assert found["cpu"].stream_ms_per_1000 is None


def test_who_missed_a_round_has_no_figures() -> None:
    """Half a race is compared with nothing."""
    rounds = [
        {"cpu": LapTimes(0.1, 0.1, None), "a": LapTimes(0.1, 0.1, None)},
        {"cpu": LapTimes(0.1, 1, None)},
    ]

    assert list(compute_speeds(rounds, {"cpu": COLD, "a": COLD}, {})) == ["cpu"]
    assert compute_speeds([], {"cpu": COLD}, {}) == {}


def test_large_images_make_small_batches() -> None:
    """A batch has as many images as were asked for, or as fit."""
    assert limit_batch(256, 500 * 375) == 256
    assert limit_batch(256, 12e6) == 8
    assert limit_batch(256, 1e9) == 1


def test_batches_are_called_what_they_are() -> None:
    """What comes to the same number of images is one kind of work, and has that number."""
    members: Any = SimpleNamespace(take=lambda photos: [*range(len(photos))])
    huge = replace(kept()[0], header=Header("jpeg", 4000, 3000))

    found = device_contests(members, [Sample("jpeg", "huge", (huge,) * 3)], (10**9, 64, 4))

    assert [cell.batch for cell in found] == [4, 8]
    assert [len(heat.blocks[0]) for heat in found.values()] == [4, 8]


def test_the_clock_holds_what_the_work_made_until_the_end() -> None:
    """What the work returns is released after the end, and its time does not count."""
    alive: list[Any] = []

    def work() -> Any:
        made = torch.zeros(3)
        alive.append(weakref.ref(made))
        return made

    lap = clock_for(HOST).lap(work)

    assert type(clock_for(HOST)) is Clock
    assert lap.wall > 0
    assert lap.stream is None
    assert alive[0]() is None


def test_warming_up_ends_when_it_is_steady() -> None:
    """It goes on until three laps in a row are alike, and not for ever."""
    falling = iter([9.0, 5.0, 2.0, 1.05, 1.0, 1.02, 7.0])
    assert len(repeat_until_steady(lambda: LapTimes(next(falling), 0.0), 60)) == 6

    wild = iter(range(1, 100))
    assert len(repeat_until_steady(lambda: LapTimes(float(2 ** next(wild)), 0.0), 60)) == 12
    assert len(repeat_until_steady(lambda: LapTimes(1.0, 0.0), 0)) == 1


def test_the_time_at_work_counts_once() -> None:
    """Kernels that run side by side, on two streams, are one piece of time; the host's is none."""
    events = [
        {"ph": "X", "cat": "kernel", "ts": 100.0, "dur": 50.0},
        {"ph": "X", "cat": "gpu_memcpy", "ts": 120, "dur": 60},
        {"ph": "X", "cat": "kernel", "ts": 130, "dur": 10},
        {"ph": "X", "cat": "gpu_memset", "ts": 300, "dur": 5},
        {"ph": "X", "cat": "cpu_op", "ts": 0, "dur": 1000},
        {"ph": "i", "cat": "kernel", "ts": 0},
        {"ph": "M"},
    ]

    assert busy_time_of_trace(events) == pytest.approx(85e-6)
    assert busy_time_of_trace([]) == 0
    assert profile_busy_time(HOST, lambda: pytest.fail("nothing is to be done")) is None


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"device": "cpu", "batches": ()}, "batches must be"),
        ({"device": "cpu", "batches": (0,)}, "batches must be"),
        ({"device": "cpu", "batches": "64"}, "batches must be"),
        ({"batches": (8,)}, "give device"),
        ({"device": "cpu", "contexts": ("one",)}, "not for a device"),
        ({"device": "cpu", "seconds": 0}, "seconds must be"),
        ({"device": "nonsense"}, "no device 'nonsense'"),
    ],
    ids=str,
)
def test_wrong_options(options: dict[str, Any], said: str) -> None:
    """What means nothing is refused before anything is measured."""
    with pytest.raises(ValueError, match=said):
        calibrate(JPEG, **options)


@pytest.mark.skipif(CUDA, reason="there is a CUDA device here")
def test_without_cuda_it_says_what_is_missing() -> None:
    """A device that is not there is an error with the way out."""
    with pytest.raises(RuntimeError, match=r"CUDA"):
        calibrate(JPEG, device="cuda")


def test_nothing_to_compare(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a batch backend that works there is an error that names them."""
    names = [name for name in registry.names() if registry.entry(name).batch]
    monkeypatch.setenv("FASTDECODE_DISABLE", ",".join(names))

    with pytest.raises(BackendUnavailable, match="nothing to compare") as caught:
        calibrate(JPEG, device="cpu")

    assert "\nnvimgcodec: FASTDECODE_DISABLE switches it off" in str(caught.value)
