"""How results are written: atomically, to the right place, and not at all to the wrong one."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from fastdecode._system import files


def test_results_replace_their_own_files_whole(tmp_path: Path) -> None:
    """A file is replaced atomically if it begins with the mark, with the usual permissions."""
    target = tmp_path / "real.json"
    target.write_text("ours: old")
    files.check_result(target, "--it", b"ours")

    assert target.read_text() == "ours: old"

    files.write_bytes(target, b"ours: new", b"ours")
    (tmp_path / "plain").write_text("")

    assert target.read_text() == "ours: new"
    assert stat.S_IMODE(target.stat().st_mode) == stat.S_IMODE((tmp_path / "plain").stat().st_mode)
    assert len(list(tmp_path.iterdir())) == 2


@pytest.mark.parametrize("target", ["ours", "nothing"])
def test_no_link_is_followed(tmp_path: Path, target: str) -> None:
    """What writes neither follows a link nor replaces it, dangling or not."""
    (tmp_path / "ours").write_text("ours: old")
    (tmp_path / "link").symlink_to(target)

    with pytest.raises(FileExistsError, match="link"):
        files.write_bytes(tmp_path / "link", b"ours: new", b"ours")

    assert (tmp_path / "ours").read_text() == "ours: old"
    assert (tmp_path / "link").is_symlink()
    assert len(list(tmp_path.iterdir())) == 2


def test_the_mask_of_permissions_is_left_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Finding out the permissions of a new file does not change another thread's umask."""
    (tmp_path / "usual").touch()
    monkeypatch.setattr(os, "umask", lambda _: pytest.fail("the mask is the whole process's"))

    files.write_bytes(tmp_path / "new", b"text")
    files.write_bytes(tmp_path / "sure", b"bytes", durable=True)

    modes = {(tmp_path / name).stat().st_mode for name in ("usual", "new", "sure")}
    assert len(modes) == 1


def test_devices_are_written_to() -> None:
    """A device is written to, not replaced."""
    files.check_result(os.devnull, "--it")
    files.write_bytes(os.devnull, b"anything")

    assert not Path(os.devnull).is_file()


def test_what_cannot_be_written_is_found_out(tmp_path: Path) -> None:
    """A folder, and a file in a missing folder, are refused before measuring, and named."""
    for place, why in ((tmp_path, "it is a folder"), (tmp_path / "no" / "file", "No such file")):
        with pytest.raises(OSError, match=f"{place} .*{why}"):
            files.check_result(place, "--it")
    with pytest.raises(FileNotFoundError) as caught:
        files.write_bytes(tmp_path / "no" / "file", b"text")
    assert caught.value.filename == str(tmp_path / "no" / "file")
