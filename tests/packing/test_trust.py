"""Tests that a pack trusts only its own files in its working folder."""

from __future__ import annotations

import json
import os
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from packed import checksums, make_source, stop_pack_after_three

from fastdecode.packing import _lock, pack
from fastdecode.packing._lock import AlreadyLocked, CannotResume, lock_folder

if not hasattr(os, "geteuid"):
    pytest.skip("needs links and owners", allow_module_level=True)


@pytest.fixture
def begun(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Stop a pack to ``out.tar`` after three items, next to a folder of a victim."""
    source = make_source(tmp_path / "source")
    (tmp_path / "victim" / "out").mkdir(parents=True)
    for name in ("secret", "spool-00000", "journal", "lock", "out/kept"):
        (tmp_path / "victim" / name).write_bytes(b"private")
    stop_pack_after_three(monkeypatch, source, tmp_path / "out.tar")
    return tmp_path / ".out.tar.partial"


def _add(partial: Path, record: Any) -> None:
    """Append a record with a valid checksum to the journal."""
    text = json.dumps(record).encode()
    with (partial / "journal").open("ab") as file:
        file.write(b"%08x %s\n" % (zlib.crc32(text), text))


@pytest.mark.parametrize(
    ("first", "last"),
    [
        ("../victim/secret", "out-pub.tar"),
        ("../victim/secret", "pub.tar"),
        ("out/../../victim/secret", "out-pub.tar"),
        ("/etc/hostname", "out-pub.tar"),
        ("journal", "out-pub.tar"),
        ("spool-00000", "../victim/secret"),
        ("spool-00000", ".."),
        ("spool-00000", "victim"),
        ("out/one", "out-other"),
    ],
)
@pytest.mark.parametrize("start_over", [False, True])
def test_planted_moves(begun: Path, first: str, last: str, start_over: bool) -> None:
    """A planted journal record cannot move other files or move files to other names."""
    folder = begun.parent
    _add(begun, {"moves": [[first, last]]})
    before = checksums(folder / "victim")

    if start_over:
        assert pack(folder / "source", folder / "out.tar", start_over=True).items == 8
    else:
        with pytest.raises(CannotResume, match=r"record 5.*not what a pack.*--start-over"):
            pack(folder / "source", folder / "out.tar")
    assert checksums(folder / "victim") == before
    assert not (folder / "out-pub.tar").exists()
    assert not (folder / "pub.tar").exists()


def _items_record(**values: Any) -> dict[str, Any]:
    """Return a record of packed items with some fields changed."""
    return {"next": 3, "shard": 0, "end": 0, "items": [], "bad": [], "bytes_in": 0, **values}


@pytest.mark.parametrize(
    "record",
    [
        [],
        None,
        7,
        {"next": -1, "shard": 0, "end": 0, "items": [], "bad": [], "bytes_in": 0},
        {"next": "3", "shard": 0, "end": 0, "items": [], "bad": [], "bytes_in": 0},
        {"next": 3, "shard": 0, "end": 0, "items": [["a"]], "bad": [], "bytes_in": 0},
        {"next": 3, "shard": 0, "end": 0, "items": 5, "bad": [], "bytes_in": 0},
        {"moves": [["out/out.tar", 5]]},
        {"moves": {"a": 1}},
        {"reasons": [[99, "x"]]},
        {"reasons": [[-1, "x"]]},
        {"asked": {}},
        {"asked": {}, "source": 1.5},
        _items_record(items=[[["a"], 0, 0, 0, 1, "", "", 0, ""]]),
        _items_record(items=[["a", 0, 0, 1 << 63, 1, "", "", 0, ""]]),
        _items_record(items=[["a", 0, 0, 0, 1, 5, "", 0, ""]]),
        _items_record(items=[["a", 0, 0, 0, 1, "", {}, 0, ""]]),
        _items_record(items=[["a", 0, 0, 0, 1, "", "", 0, ["x"]]]),
        _items_record(bad=[[{}, "a", "why", False]]),
        _items_record(bad=[[1.5, "a", "why", False]]),
        _items_record(bad=[[1, "a", 5, False]]),
    ],
)
def test_malformed_records(begun: Path, record: Any) -> None:
    """A malformed journal record is an error that suggests --start-over, which then works."""
    folder = begun.parent
    _add(begun, record)

    with pytest.raises(CannotResume, match=r"record 5.*--start-over"):
        pack(folder / "source", folder / "out.tar")
    assert pack(folder / "source", folder / "out.tar", start_over=True).items == 8
    assert not list(folder.glob(".*"))


def _link(partial: Path, name: str) -> Path:
    """Replace a file or folder of the pack by a link to the victim's."""
    place = partial / name
    if place.is_dir():
        place.rename(partial / "aside")
    place.unlink(missing_ok=True)
    place.symlink_to(partial.parent / "victim" / name)
    return place


def _hard_link(partial: Path, name: str) -> Path:
    place = partial / name
    place.unlink(missing_ok=True)
    place.hardlink_to(partial.parent / "victim" / name)
    return place


def _link_folder(partial: Path, name: str) -> Path:
    partial.rename(partial.with_name("real"))
    partial.symlink_to(partial.parent / ("real" if name == "journal" else "victim"))
    return partial


def _pipe(partial: Path, name: str) -> Path:
    place = partial / name
    place.unlink(missing_ok=True)
    os.mkfifo(place)
    return place


@pytest.mark.parametrize("start_over", [False, True])
@pytest.mark.parametrize(
    ("planted", "name"),
    [
        *((_link, name) for name in ("journal", "lock", "out", "spool-00000", "spool-00007")),
        (_hard_link, "spool-00000"),
        (_hard_link, "journal"),
        (_link_folder, "victim"),
        (_link_folder, "journal"),
        *((_pipe, name) for name in ("journal", "lock", "spool-00000")),
    ],
)
def test_planted_files(
    begun: Path, planted: Callable[[Path, str], Path], name: str, start_over: bool
) -> None:
    """A link, a hard link or a pipe in place of a pack's file is an error and stays untouched."""
    folder = begun.parent
    (folder / "victim" / "spool-00007").write_bytes(b"private")
    place = planted(begun, name)
    before = checksums(folder)

    with pytest.raises(CannotResume, match=r"(link|regular file).*remove it") as caught:
        pack(folder / "source", folder / "out.tar", start_over=start_over)

    assert str(place.relative_to(folder)) in str(caught.value)
    assert {**checksums(folder), **before} == checksums(folder)
    assert not (folder / "out.tar").exists()


def test_nothing_is_created_through_a_dangling_link(tmp_path: Path) -> None:
    """`pack` creates neither its folder nor its lock through a dangling link."""
    source = make_source(tmp_path / "source")
    (tmp_path / ".out.tar.partial").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(CannotResume, match="is a link"):
        pack(source, tmp_path / "out.tar")
    (tmp_path / ".out.tar.partial").unlink()
    (tmp_path / ".out.tar.partial").mkdir()
    (tmp_path / ".out.tar.partial" / "lock").symlink_to(tmp_path / "elsewhere")

    with pytest.raises(CannotResume, match="is a link"):
        pack(source, tmp_path / "out.tar")
    assert not (tmp_path / "elsewhere").exists()


def test_file_in_place_of_the_folder(tmp_path: Path) -> None:
    """A file in place of the working folder is named in the error and kept."""
    (tmp_path / ".out.tar.partial").write_bytes(b"mine")

    with pytest.raises(CannotResume, match=r"\.out\.tar\.partial is a link, or not a folder"):
        pack(make_source(tmp_path / "source"), tmp_path / "out.tar")
    assert (tmp_path / ".out.tar.partial").read_bytes() == b"mine"


def test_other_files_in_the_folder_are_kept(tmp_path: Path) -> None:
    """A finished pack removes only its own files from the working folder."""
    partial = tmp_path / ".out.tar.partial"
    partial.mkdir()
    (partial / "spool-notes").write_bytes(b"mine")

    pack(make_source(tmp_path / "source"), tmp_path / "out.tar")

    assert checksums(partial).keys() == {"spool-notes"}


def test_folder_is_private(tmp_path: Path) -> None:
    """The working folder has mode 0700, so other users can neither read nor write it."""
    modes = set()

    def noted(*_: object) -> None:
        modes.add((tmp_path / ".out.tar.partial").stat().st_mode & 0o777)

    pack(make_source(tmp_path / "source"), tmp_path / "out.tar", notify=noted)

    assert modes == {0o700}


@pytest.mark.skipif(
    not hasattr(os, "geteuid") or os.geteuid() != 0, reason="only root can give files away"
)
@pytest.mark.parametrize("name", ["", "journal", "spool-00000", "lock"])
@pytest.mark.parametrize("start_over", [False, True])
def test_files_of_another_user(begun: Path, name: str, start_over: bool) -> None:
    """A working folder or file that belongs to another user is an error."""
    os.chown(begun / name, 12345, -1)

    with pytest.raises(CannotResume, match="belongs to another user"):
        pack(begun.parent / "source", begun.parent / "out.tar", start_over=start_over)
    assert (begun / name).exists()


def test_a_list_of_bad_items_replaces_a_link(tmp_path: Path) -> None:
    """The list of bad items replaces a link and leaves its target unchanged."""
    source = make_source(tmp_path / "source", damaged=True)
    target = tmp_path / "out.tar"
    with pytest.raises(ValueError, match="items are bad"):
        pack(source, target)
    listed = (tmp_path / "out.tar.bad.csv").read_bytes()
    (tmp_path / "victim").write_bytes(b"private")
    (tmp_path / "out.tar.bad.csv").unlink()
    (tmp_path / "out.tar.bad.csv").symlink_to(tmp_path / "victim")

    with pytest.raises(ValueError, match="items are bad"):
        pack(source, target)

    assert (tmp_path / "victim").read_bytes() == b"private"
    assert not (tmp_path / "out.tar.bad.csv").is_symlink()
    assert (tmp_path / "out.tar.bad.csv").read_bytes() == listed


@pytest.mark.parametrize("moment", ["before the lock is opened", "after it is locked"])
def test_folder_removed_during_locking(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    """A folder that another pack removes while it is being locked is made again and locked."""
    folder = tmp_path / "work"
    left = 3

    def vanish() -> None:
        nonlocal left
        if left:
            left -= 1
            (folder / "lock").unlink(missing_ok=True)
            folder.rmdir()

    own, own_lock = _lock.open_own, _lock._lock

    def opened(path: Path, flags: int) -> int:
        if moment.startswith("before"):
            vanish()
        return own(path, flags)

    def taken(handle: int) -> None:
        own_lock(handle)
        if moment.startswith("after"):
            vanish()

    monkeypatch.setattr(_lock, "open_own", opened)
    monkeypatch.setattr(_lock, "_lock", taken)
    with lock_folder(folder):
        assert left == 0
        with pytest.raises(AlreadyLocked), lock_folder(folder):
            pass


def test_folder_removed_after_mkdir(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder that exists at `mkdir` and is then removed is made again and locked."""
    folder = tmp_path / "work"
    folder.mkdir()
    make = os.mkdir

    def mkdir(path: Any, mode: int = 0o777, **options: Any) -> None:
        try:
            make(path, mode, **options)
        except FileExistsError:
            folder.rmdir()
            raise

    monkeypatch.setattr(os, "mkdir", mkdir)
    with lock_folder(folder):
        assert (folder / "lock").exists()


def test_files_of_a_new_pack_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A pack that ends removes no files of another one that has taken over its folder."""
    partial = tmp_path / ".out.tar.partial"
    unlink = Path.unlink

    def taken_over(path: Path, missing_ok: bool = False) -> None:
        unlink(path, missing_ok)
        if path == partial / "lock":
            monkeypatch.undo()
            (partial / "out").mkdir()
            (partial / "lock").touch()
            (partial / "out" / "theirs").touch()

    monkeypatch.setattr(Path, "unlink", taken_over)
    pack(make_source(tmp_path / "source"), tmp_path / "out.tar")

    assert checksums(partial).keys() == {"lock", "out/theirs"}
