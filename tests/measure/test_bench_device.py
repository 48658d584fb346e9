"""The benchmark on a device: its table, its sentence, and its files."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from benches import TERMINAL, WRONG_ARGUMENT, Page, bench, make_photos, photo
from results import measurement, result, spread

from fastdecode import cli
from fastdecode.measure import _report as report
from fastdecode.measure._summary import device_answer, device_groups, sentences
from fastdecode.measure._text import DEVICE_COLUMNS, DEVICE_MORE
from fastdecode.measure.result import CPU, Device, Measurement, from_json, to_json

DEVICE = Device(
    device="cuda:0",
    name="Example GPU 9000 with a name that is long",
    driver="580.65.06",
    runtime="13.0",
    torch="2.11.0+cu130",
    versions={"nvimgcodec": "0.9.0", "quiet": ""},
    missing={
        "dali": "the Python package 'nvidia.dali' is not installed. Install it with: pip install "
        "'fastdecode[dali]'",
    },
)


def one(backend: str, speed: float, batch: int = 256, **more: Any) -> Measurement:
    """Return a measurement, compared with a CPU of 2500 images/s and 6.4 CPU-s per 1000."""
    figures: dict[str, Any] = {
        "images_per_s": spread(speed),
        "ratio": spread(speed / 2500, 0.01),
        "cpu_s_per_1000": 6.4,
        "gpu_ms_per_1000": 41.3,
        "stream_ms_per_1000": 1e6 / speed,
        "files": 200,
    }
    return Measurement("device", "jpeg", 1, backend, batch=batch, **{**figures, **more})


def gpu(speed: float = 21_300.0, **more: Any) -> Measurement:
    """Return a measurement of a batch backend on a GPU."""
    return one("nvimgcodec", speed, **{"cpu_s_per_1000": 0.3, "psnr": 41.27, **more})


def found(*measurements: Measurement, **options: Any) -> Any:
    """Return a result on a device."""
    return result(device=DEVICE, on_device=measurements, **options)


FULL = (
    gpu(batch=64, speed=18_000.0),
    one(CPU, 2400, 64, gpu_ms_per_1000=None),
    one(CPU, 2500),
    one("a_name_that_is_longer_than_any", 123_456.7, on_cpu=0.004, psnr=9.87),
    gpu(on_cpu=0.125),
)


@pytest.mark.parametrize(
    ("measured", "said"),
    [
        ([gpu(), one(CPU, 2500)], "8.52 times the speed of the CPU with all its 4 cores (2,500)"),
        ([gpu(), one(CPU, 2500)], "for 5% of the processor time: decoding with it pays."),
        ([gpu(2490), one(CPU, 2500)], "both are equally fast, and nvimgcodec spares the CPU"),
        ([gpu(2490, cpu_s_per_1000=6.0), one(CPU, 2500)], "does not matter which decodes"),
        ([gpu(1000), one(CPU, 2500)], "pays if its cores have nothing else to do"),
        ([gpu(1000, cpu_s_per_1000=6.0), one(CPU, 2500)], "decoding on the CPU pays."),
        ([gpu(9000, on_cpu=0.9), one(CPU, 2500)], "left 90% of them to the CPU"),
        ([one(CPU, 2500)], "only the CPU path could be measured: 2,500 JPEG images/s"),
        ([gpu()], "only nvimgcodec could be measured"),
    ],
    ids=range(9),
)
def test_the_answer_is_one_sentence(measured: list[Measurement], said: str) -> None:
    """The answer says how fast the best is compared with the CPU, its cost, and which pays."""
    lines = sentences(found(*measured))

    assert len(lines) == 1
    assert said in lines[0]


def test_the_largest_batch_speaks_for_the_run() -> None:
    """With several batch sizes, the answer is about the largest."""
    assert "in batches of 256" in sentences(found(*FULL))[0]


def test_nothing_on_a_device_is_no_sentence() -> None:
    """Without a device, the answer does not mention one."""
    assert device_answer(result(measurement())) == []
    assert sentences(found()) == ("Nothing was measured.",)


def test_the_table_fits_a_terminal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The table fits 80 columns; below it is what is missing and how to install it."""
    monkeypatch.setenv("COLUMNS", str(TERMINAL))
    report.show_result(found(*FULL))
    text = capsys.readouterr().out
    lines = [line.split() for line in text.splitlines()]

    assert max(map(len, text.splitlines())) <= TERMINAL
    row = ["nvimgcodec", "21,300", "3%", "8.52", "±0.09", "41.3", "0.30", "12%", "41.3"]
    assert row in lines
    assert ["cpu", "2,500", "3%", "1.00", "±0.01", "41.3", "6.40", "-", "same"] in lines
    assert "batches of 64, 200 files" in text
    assert "cuda:0: Example GPU 9000" in text
    assert "driver 580.65.06, CUDA 13.0" in " ".join(text.split())
    assert "pip install 'fastdecode[dali]'" in " ".join(text.split())
    assert "CPU s/1000: processor seconds" in text


def test_the_fastest_of_a_batch_comes_first() -> None:
    """Measurements are grouped by batch size, and sorted by speed."""
    groups = [group.members for group in device_groups(found(*FULL))]

    assert [[member.backend for member in own] for own in groups] == [
        ["nvimgcodec", CPU],
        ["a_name_that_is_longer_than_any", "nvimgcodec", CPU],
    ]


def test_json_reads_back() -> None:
    """A result with a device reads back from JSON, and so do those of older versions."""
    whole = found(*FULL)
    old = json.loads(to_json(result(measurement())))
    del old["device"], old["on_device"]
    earlier = json.loads(to_json(whole))
    for entry in earlier["on_device"]:  # which had their own record, without what is not theirs
        for name in ("protocol", "reduce", "threads", "workers", "output", "latency_ms", "chosen"):
            del entry[name]

    assert from_json(to_json(whole)) == whole
    assert from_json(json.dumps(earlier)) == whole
    assert from_json(json.dumps(old)) == result(measurement())
    assert json.loads(to_json(whole))["schema"] == 1


def test_the_page_has_charts_and_all_figures() -> None:
    """The page has a chart per batch size, all columns, and what is missing."""
    pytest.importorskip("jinja2")
    from fastdecode.measure import _html as html

    evil = Device(**{**DEVICE.__dict__, "missing": {"<b>": "<script>alert(1)</script>"}})
    text = html.result_page(replace(found(*FULL, measurements=(measurement(),)), device=evil))
    page = Page(text)

    assert page.open == []
    for batch in (64, 256):
        assert f"JPEG, batches of {batch}" in page.texts
    assert "nvimgcodec 21,300 (8.5x); cpu 2,500 (1.00x)." in text
    for column in (*DEVICE_COLUMNS, *DEVICE_MORE):
        assert column.title in page.texts
    assert "cuda:0: Example GPU 9000 with a name that is long, driver 580.65.06" in text
    assert page.tags["script"] == 1
    assert "&lt;script&gt;alert(1)" in text
    assert not re.search(r'"(?:nan|inf)"', text)
    assert "On a device" not in html.result_page(result(measurement()))


def test_a_page_of_zeros() -> None:
    """A device on which nothing took time is drawn."""
    pytest.importorskip("jinja2")
    from fastdecode.measure import _html as html

    assert Page(html.result_page(found(Measurement("device", "jpeg", 1, CPU, batch=8)))).open == []


def test_two_runs_are_compared(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """``compare`` has a table for the device, and names what only one result has."""
    other = replace(found(gpu(30_000), one(CPU, 2500)), device=replace(DEVICE, driver="590.1"))
    for name, whole in (("a", found(*FULL)), ("b", other)):
        (tmp_path / name).write_text(to_json(whole))

    cli.main(["compare", str(tmp_path / "a"), str(tmp_path / "b")])
    text = capsys.readouterr().out

    row = next(line.split() for line in text.splitlines() if line.startswith("nvimgcodec"))
    assert row[:4] == ["nvimgcodec", "21,300", "30,000", "1.41"]
    assert row[-1] == "faster"
    assert "the devices differ" in text
    assert "Nothing was measured in both" not in text
    assert "nvimgcodec, JPEG onto cuda:0, batches of 64" in text.partition("Only in a (3)")[2]


def test_the_command_measures_onto_the_cpu(tmp_path: Path) -> None:
    """``--device cpu`` compares the batch backends that work with the CPU path."""
    pytest.importorskip("torch")
    pytest.importorskip("jinja2")
    folder = make_photos(tmp_path)
    (folder / "cut.jpg").write_bytes((folder / "0.jpg").read_bytes()[:-40])
    kept, page = tmp_path / "result.json", tmp_path / "result.html"
    done = bench(
        folder, "--device", "cpu", "--batch", "2,4", "--seconds", "0", "--size", "16",
        "--json", kept, "--html", page, FASTDECODE_DISABLE="dali",
    )  # fmt: skip
    whole = from_json(kept.read_text(encoding="utf-8"))

    assert done.returncode == 0, done.stderr
    assert max(map(len, done.stdout.splitlines())) <= TERMINAL
    assert whole.measurements == ()
    assert whole.device is not None
    assert whole.device.device == "cpu"
    assert {(m.batch, m.size, m.format) for m in whole.on_device} == {
        (2, 16, "jpeg"),
        (4, 16, "jpeg"),
    }
    names = {m.backend for m in whole.on_device}
    assert CPU in names
    assert names | set(whole.device.missing) > {CPU}
    for m in whole.on_device:
        assert m.images_per_s.median > 0
        assert m.cpu_s_per_1000 > 0
    assert any("nothing decodes them: 1 of 4 files" in note for note in whole.notes)
    assert "JPEG onto cpu, resized to 16 px there" in done.stdout
    assert Page(page.read_text(encoding="utf-8")).open == []


@pytest.mark.parametrize(
    ("variables", "words"),
    [
        ({}, "no batch backend reads GIF;"),
        ({"FASTDECODE_DISABLE": "nvimgcodec,dali"}, "nvimgcodec: FASTDECODE_DISABLE switches"),
    ],
    ids=["usual", "disabled"],
)
def test_nothing_to_measure(
    variables: dict[str, str],
    words: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """If no batch backend reads the files, nothing is measured, with the reason and status 1."""
    pytest.importorskip("torch")
    (tmp_path / "one.gif").write_bytes(photo(kind="GIF"))
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    status = cli.main(["bench", str(tmp_path / "one.gif"), "--device", "cpu"])
    said = " ".join(capsys.readouterr().out.split())

    assert status == 1, said
    assert "Nothing was measured." in said
    assert words in said


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--device", "nonsense"], "no device 'nonsense'"),
        (["--device", "cpu", "--save"], "not with --device"),
        (["--device", "cpu", "--batch", "0"], "leaves nothing"),
        (["--device", "cpu", "--batch", "x"], "positive"),
        (["--device", "cpu", "--output", "pil"], "--device gives tensors: not with --output"),
        (["--device", "cpu", "--backend", "pillow"], "no batch backend for cpu is called"),
    ],
    ids=str,
)
def test_bad_arguments(
    arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """A wrong argument ends with status 2 before anything is measured."""
    pytest.importorskip("torch")
    with pytest.raises(SystemExit) as ended:
        cli.main(["bench", *arguments])

    assert ended.value.code == WRONG_ARGUMENT
    assert words in " ".join(capsys.readouterr().err.split())


def test_without_cuda_the_command_says_what_is_missing(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """``--device cuda`` on a machine without CUDA is an error with advice."""
    torch = pytest.importorskip("torch")
    if torch.cuda.is_available():
        pytest.skip("there is a CUDA device here")
    with pytest.raises(SystemExit) as ended:
        cli.main(["bench", "--device", "cuda"])

    assert ended.value.code == WRONG_ARGUMENT
    assert "device 'cuda' cannot be used: " in " ".join(capsys.readouterr().err.split())

    with pytest.raises(SystemExit):
        cli.main(["bench", "--device", "1"])
    assert "device 'cuda:1' cannot be used: " in " ".join(capsys.readouterr().err.split())
