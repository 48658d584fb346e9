"""How results are written: atomically, to the right place, and not at all to the wrong one."""

from __future__ import annotations

import errno
import os
import stat
import sys
from pathlib import Path

import pytest

from fastdecode import _files


def test_results_replace_files_whole(tmp_path: Path) -> None:
    """A file is replaced atomically, also through a link, with the usual permissions."""
    target, link = tmp_path / "real.json", tmp_path / "link.json"
    target.write_text("old")
    link.symlink_to(target)
    _files.check_writable(link)

    assert target.read_text() == "old"

    _files.write_text(link, "new")
    (tmp_path / "plain").write_text("")

    assert target.read_text() == "new"
    assert link.is_symlink()
    assert stat.S_IMODE(target.stat().st_mode) == stat.S_IMODE((tmp_path / "plain").stat().st_mode)
    assert len(list(tmp_path.iterdir())) == 3


def test_the_mask_of_permissions_is_left_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Finding out the permissions of a new file does not change another thread's umask."""
    (tmp_path / "usual").touch()
    monkeypatch.setattr(os, "umask", lambda _: pytest.fail("the mask is the whole process's"))

    _files.write_text(tmp_path / "new", "text")
    _files.write_bytes(tmp_path / "sure", b"bytes", durable=True)

    modes = {(tmp_path / name).stat().st_mode for name in ("usual", "new", "sure")}
    assert len(modes) == 1


def test_links_that_lead_round_are_no_place(tmp_path: Path) -> None:
    """A cycle of links is an error of writing, and the link stays."""
    link = tmp_path / "round.json"
    link.symlink_to(link)

    for write in (_files.check_writable, lambda path: _files.write_text(path, "new")):
        with pytest.raises(OSError, match="round") as caught:
            write(link)
        assert caught.value.errno == errno.ELOOP
    assert link.is_symlink()


@pytest.mark.skipif(
    not hasattr(os, "geteuid") or os.geteuid() != 0, reason="only root can give files away"
)
def test_links_of_another_user_are_not_followed(tmp_path: Path) -> None:
    """Links of another user in a world-writable folder are refused; those of root are not."""
    (tmp_path / "victim").write_text("private")
    link = tmp_path / "result.json"
    link.symlink_to(tmp_path / "victim")
    os.chown(link, 12345, -1, follow_symlinks=False)
    (tmp_path / "round.json").symlink_to(link)  # one's own that leads to it

    for place in (link, tmp_path / "round.json"):
        for write in (_files.check_writable, lambda path: _files.write_text(path, "new")):
            with pytest.raises(PermissionError):
                write(place)
    assert (tmp_path / "victim").read_text() == "private"

    os.chown(tmp_path, 12345, -1)  # a folder of that user's own: its links are part of it
    _files.write_text(link, "new")
    assert (tmp_path / "victim").read_text() == "new"


def test_a_result_may_replace_a_link_itself(tmp_path: Path) -> None:
    """Without `follow`, a link is replaced itself, and its target stays."""
    (tmp_path / "victim").write_text("private")
    link = tmp_path / "result.json"
    link.symlink_to(tmp_path / "victim")

    _files.write_text(link, "new", follow=False)

    assert (tmp_path / "victim").read_text() == "private"
    assert not link.is_symlink()
    assert link.read_text() == "new"


def test_what_is_read_back_is_a_file_of_a_sane_size(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A folder, a pipe, a device and an endless file are refused without waiting."""
    monkeypatch.setattr(_files, "_MAX_BYTES", 1000)
    (tmp_path / "large").write_bytes(b"x" * 1001)
    for name in ("large", "folder", "pipe", "device"):
        place = tmp_path / name
        if name == "folder":
            place.mkdir()
        elif name == "pipe":
            if not hasattr(os, "mkfifo"):
                continue
            os.mkfifo(place)
        elif name == "device":
            if not Path("/dev/zero").exists():
                continue
            place.symlink_to("/dev/zero")
        why = {"large": "it has more", "folder": "Is a directory"}.get(name, "it is a")
        with pytest.raises(ValueError, match=f"{name} is wrong: {why}"):
            _files.read_text(place, str, "is wrong")


def test_devices_are_written_to() -> None:
    """A device is written to, not replaced."""
    _files.check_writable(os.devnull)
    _files.write_text(os.devnull, "anything")

    assert not Path(os.devnull).is_file()


def test_what_cannot_be_written_is_found_out(tmp_path: Path) -> None:
    """A folder, and a file in a missing folder, are refused before measuring."""
    with pytest.raises(IsADirectoryError):
        _files.check_writable(tmp_path)
    with pytest.raises(FileNotFoundError):
        _files.check_writable(tmp_path / "nowhere" / "file")


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no limits on files")
def test_a_full_disk_is_found_beforehand(tmp_path: Path) -> None:
    """A full disk is reported before anything is measured, and leaves no file."""
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, hard))
    try:
        with pytest.raises(OSError, match="too large"):
            _files.check_writable(tmp_path / "x.html")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))

    assert list(tmp_path.iterdir()) == []
