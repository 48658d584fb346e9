"""What `check` says of files whose end is missing, and on which terminal."""

from __future__ import annotations

import io
import sys
import warnings
from pathlib import Path

import pytest
from packed import make_source
from PIL import Image

from fastdecode import terminal
from fastdecode.cli import main
from fastdecode.packing import pack
from fastdecode.packing._check import faults
from fastdecode.packing._rewrite import Work
from fastdecode.stores import create_store
from fastdecode.testing import encode, picture


def _gif(frames: int = 1) -> bytes:
    file = io.BytesIO()
    some = [picture(40, 30 + number).convert("P") for number in range(frames)]
    some[0].save(file, "gif", save_all=True, append_images=some[1:])
    return file.getvalue()


def test_png() -> None:
    """Each chunk has a checksum, and IEND is the last one."""
    whole = encode(picture(40, 30), "png")
    damaged = bytearray(whole)
    damaged[-13] ^= 1  # in the checksum before IEND

    assert faults(whole, "png") == []
    assert faults(bytes(damaged), "png") == ["a IDAT chunk has a wrong checksum"]
    for cut in (1, 12, 13, 30):
        assert faults(whole[:-cut], "png") == ["it is truncated: its end is missing"]


@pytest.mark.parametrize("frames", [1, 3])
def test_gif(frames: int) -> None:
    """The trailer ends it; it is found behind all blocks."""
    whole = _gif(frames)

    assert faults(whole, "gif") == []
    for cut in (1, 2, 50, len(whole) - 11):
        assert faults(whole[:-cut], "gif") == ["it is truncated: its end is missing"]


def test_webp_and_boxes() -> None:
    """What begins with sizes is as long as these say."""
    file = io.BytesIO()
    Image.new("RGB", (40, 30)).save(file, "webp")
    webp = file.getvalue()
    boxes = b"\0\0\0\x0cftypheic\0\0\0\x10mdat12345678"

    assert faults(webp, "webp") == []
    assert faults(webp[:-2], "webp") == ["it is truncated: its end is missing"]
    assert faults(webp + b"abc", "webp") == ["3 bytes follow its end"]
    assert faults(boxes, "heic") == []
    assert "goes beyond its end" in faults(boxes[:-1], "heic")[0]
    assert faults(boxes, "bmp") == []


def test_they_are_odd(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """`check` lists what decodes, but has no end."""
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.gif").write_bytes(_gif()[:-1])
    (tmp_path / "in" / "b.gif").write_bytes(_gif())

    assert main(["check", str(tmp_path / "in")]) == 0
    out = capsys.readouterr().out
    assert "a.gif: it is truncated" in out
    assert "b.gif" not in out


def test_nothing_to_check(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A store of nothing is told, with exit status 2."""
    (tmp_path / "a.rec").touch()
    with create_store(tmp_path / "b.tar"):
        pass

    for name in ("a.rec", "b.tar"):
        assert main(["check", str(tmp_path / name)]) == 2
        assert capsys.readouterr().err


def test_no_chatter(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Warnings of Python's libraries do not come between the lines."""
    work = Work.__call__

    def warning(self: Work, index: int) -> object:
        warnings.warn("a codec is unhappy", UserWarning, stacklevel=1)
        return work(self, index)

    monkeypatch.setattr(Work, "__call__", warning)
    source = make_source(tmp_path / "source")

    assert main(["pack", str(source), str(tmp_path / "out.tar")]) == 0
    assert "unhappy" not in capsys.readouterr().err


def test_an_error_after_the_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without rich, on a terminal, an error begins on a line of its own."""
    monkeypatch.setattr(terminal, "has_rich", lambda: False)
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)

    def failing() -> None:
        with terminal.progress(counted=True) as notify:
            notify("packing", 1, 2)
            pack(tmp_path / "none", tmp_path / "out.tar")

    with pytest.raises(FileNotFoundError):
        failing()
    assert capsys.readouterr().err == "\rpacking 1 of 2\n"
