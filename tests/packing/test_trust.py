"""A pack trusts only files of its own in its working folder."""

from __future__ import annotations

import json
import os
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from packed import make_source, pack_three, sums

from fastdecode.packing import _lock, pack
from fastdecode.packing._lock import AlreadyLocked, CannotResume, lock_folder

if not hasattr(os, "geteuid"):
    pytest.skip("needs links and owners", allow_module_level=True)


@pytest.fixture
def begun(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Begin a pack to ``out.tar``, and stop after three items; next to it is a victim's folder."""
    source = make_source(tmp_path / "source")
    (tmp_path / "victim" / "out").mkdir(parents=True)
    for name in ("secret", "spool-00000", "journal", "lock", "out/kept"):
        (tmp_path / "victim" / name).write_bytes(b"private")
    pack_three(monkeypatch, source, tmp_path / "out.tar")
    return tmp_path / ".out.tar.partial"


def _add(partial: Path, record: Any) -> None:
    """Append a record with a correct checksum to the journal."""
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
def test_planted_renamings(begun: Path, first: str, last: str, start_over: bool) -> None:
    """A journal can only rename a pack's own files to names of its store."""
    folder = begun.parent
    _add(begun, {"moves": [[first, last]]})
    before = sums(folder / "victim")

    if start_over:
        assert pack(folder / "source", folder / "out.tar", start_over=True).items == 8
    else:
        with pytest.raises(CannotResume, match=r"record 5.*not what a pack.*--start-over"):
            pack(folder / "source", folder / "out.tar")
    assert sums(folder / "victim") == before
    assert not (folder / "out-pub.tar").exists()
    assert not (folder / "pub.tar").exists()


def _counted(**values: Any) -> dict[str, Any]:
    """Return a record about some items."""
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
        _counted(items=[[["a"], 0, 0, 0, 1, "", "", 0, ""]]),
        _counted(items=[["a", 0, 0, 1 << 63, 1, "", "", 0, ""]]),
        _counted(items=[["a", 0, 0, 0, 1, 5, "", 0, ""]]),
        _counted(items=[["a", 0, 0, 0, 1, "", {}, 0, ""]]),
        _counted(items=[["a", 0, 0, 0, 1, "", "", 0, ["x"]]]),
        _counted(bad=[[{}, "a", "why", False]]),
        _counted(bad=[[1.5, "a", "why", False]]),
        _counted(bad=[[1, "a", 5, False]]),
    ],
)
def test_records_of_another_form(begun: Path, record: Any) -> None:
    """Invalid records are refused with advice; --start-over works."""
    folder = begun.parent
    _add(begun, record)

    with pytest.raises(CannotResume, match=r"record 5.*--start-over"):
        pack(folder / "source", folder / "out.tar")
    assert pack(folder / "source", folder / "out.tar", start_over=True).items == 8
    assert not list(folder.glob(".*"))


def _linked(partial: Path, name: str) -> Path:
    """Replace a file of the pack by a link to the victim's."""
    place = partial / name
    if place.is_dir():
        place.rename(partial / "aside")
    place.unlink(missing_ok=True)
    place.symlink_to(partial.parent / "victim" / name)
    return place


def _second_name(partial: Path, name: str) -> Path:
    place = partial / name
    place.unlink(missing_ok=True)
    place.hardlink_to(partial.parent / "victim" / name)
    return place


def _whole_folder(partial: Path, name: str) -> Path:
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
        *((_linked, name) for name in ("journal", "lock", "out", "spool-00000", "spool-00007")),
        (_second_name, "spool-00000"),
        (_second_name, "journal"),
        (_whole_folder, "victim"),
        (_whole_folder, "journal"),
        *((_pipe, name) for name in ("journal", "lock", "spool-00000")),
    ],
)
def test_planted_files(
    begun: Path, planted: Callable[[Path, str], Path], name: str, start_over: bool
) -> None:
    """A link, hard link or pipe in place of a pack's file is refused and not touched."""
    folder = begun.parent
    (folder / "victim" / "spool-00007").write_bytes(b"private")
    place = planted(begun, name)
    before = sums(folder)

    with pytest.raises(CannotResume, match=r"(link|regular file).*remove it") as caught:
        pack(folder / "source", folder / "out.tar", start_over=start_over)

    assert str(place.relative_to(folder)) in str(caught.value)
    assert {**sums(folder), **before} == sums(folder)
    assert not (folder / "out.tar").exists()


def test_nothing_is_made_through_a_link_that_leads_nowhere(tmp_path: Path) -> None:
    """A broken link does not make the folder or the lock elsewhere."""
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


def test_a_file_in_the_place_of_the_folder(tmp_path: Path) -> None:
    """A file in place of the folder is named, and stays."""
    (tmp_path / ".out.tar.partial").write_bytes(b"mine")

    with pytest.raises(CannotResume, match=r"\.out\.tar\.partial is a link, or not a folder"):
        pack(make_source(tmp_path / "source"), tmp_path / "out.tar")
    assert (tmp_path / ".out.tar.partial").read_bytes() == b"mine"


def test_what_else_is_in_the_folder_stays(tmp_path: Path) -> None:
    """Other files in the folder stay when the pack is done."""
    partial = tmp_path / ".out.tar.partial"
    partial.mkdir()
    (partial / "spool-notes").write_bytes(b"mine")

    pack(make_source(tmp_path / "source"), tmp_path / "out.tar")

    assert sums(partial).keys() == {"spool-notes"}


def test_the_folder_is_closed_to_others(tmp_path: Path) -> None:
    """Other users cannot access the folder."""
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
    """The folder of a pack and its files must belong to this user."""
    os.chown(begun / name, 12345, -1)

    with pytest.raises(CannotResume, match="belongs to another user"):
        pack(begun.parent / "source", begun.parent / "out.tar", start_over=start_over)
    assert (begun / name).exists()


def test_a_list_of_bad_items_replaces_a_link(tmp_path: Path) -> None:
    """The list of bad items replaces a link, and the link's target stays."""
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
def test_the_folder_goes_while_it_is_being_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    """If another pack removes the folder while it is being locked, it is created again."""
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


def test_the_folder_goes_between_two_looks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder that disappears between creation and locking is created again."""
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


def test_what_comes_after_the_lock_is_left_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A pack that ends removes nothing of another that has taken over its folder."""
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

    assert sums(partial).keys() == {"lock", "out/theirs"}
