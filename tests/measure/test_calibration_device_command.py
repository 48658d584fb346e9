"""``fastdecode calibrate --device``: its output, its file, and its exit statuses."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from fastdecode.cli import main  # noqa: E402 - these need torch
from fastdecode.ranking import DeviceRanking  # noqa: E402
from fastdecode.testing import drawing, encode  # noqa: E402

CUDA = torch.cuda.is_available()
SHORT = ("--seconds", "0.01")


def test_the_command_keeps_it_beside_the_ranking(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """``--device`` prints a table of 80 columns, and does not change the ranking of the CPU."""
    pytest.importorskip("nvidia.nvimgcodec")
    monkeypatch.setenv("FASTDECODE_RANKING", str(tmp_path / "ranking.json"))
    monkeypatch.setenv("FASTDECODE_DISABLE", "dali")
    monkeypatch.setenv("COLUMNS", "80")
    (tmp_path / "ranking.json").write_text("mine")
    (tmp_path / "one.jpg").write_bytes(encode(drawing(80, 64)))

    status = main(
        ["calibrate", "--device", "cpu", "--batch", "2", *SHORT, str(tmp_path / "one.jpg")]
    )
    said = capsys.readouterr().out

    assert status == 0
    assert "nvimgcodec" in said
    assert "vs CPU" in said
    assert max(map(len, said.splitlines())) <= 80
    assert (tmp_path / "ranking.json").read_text() == "mine"
    (place,) = tmp_path.glob("ranking-device-*.json")
    assert {"cpu", "nvimgcodec"} <= set(DeviceRanking.load(place).order())


@pytest.mark.parametrize(
    ("options", "kind"), [({"progressive": True}, "jpeg"), ({}, "gif")], ids=["progressive", "gif"]
)
def test_chance_is_not_kept(
    options: dict[str, Any],
    kind: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """If only the CPU decodes the files, nothing is saved; exit status 2, and the reason."""
    pytest.importorskip("nvidia.nvimgcodec")
    monkeypatch.setenv("FASTDECODE_RANKING", str(tmp_path / "kept" / "ranking.json"))
    monkeypatch.setenv("FASTDECODE_DISABLE", "dali")
    file = tmp_path / f"one.{kind}"
    file.write_bytes(encode(drawing(80, 64), kind, **options))

    with pytest.raises(SystemExit) as ended:
        main(["calibrate", "--device", "cpu", "--batch", "2", *SHORT, str(file)])

    assert ended.value.code == 2
    assert "nothing was compared: the CPU" in capsys.readouterr().err
    assert not list((tmp_path / "kept").iterdir())


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--batch", "8"), "--batch is for --device"),
        (("--device", "cpu", "--batch", "0"), "positive whole numbers"),
        (("--device", "nonsense"), "no device 'nonsense'"),
        (("--device", ""), "an argument is empty"),
        (("--device", "cpu", "--to", "FILE"), "--to is not for --device"),
        pytest.param(
            ("--device", "0"),
            "device 'cuda:0' cannot be used",
            marks=pytest.mark.skipif(CUDA, reason="there is a CUDA device here"),
        ),
        pytest.param(
            ("--device", "cuda"),
            "device 'cuda' cannot be used",
            marks=pytest.mark.skipif(CUDA, reason="there is a CUDA device here"),
        ),
    ],
    ids=str,
)
def test_wrong_arguments_of_the_command(
    arguments: tuple[str, ...], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """A wrong argument ends with exit status 2 and a message."""
    with pytest.raises(SystemExit) as ended:
        main(["calibrate", *arguments])

    assert ended.value.code == 2
    assert said in capsys.readouterr().err
