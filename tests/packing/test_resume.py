"""`pack` that was stopped or is called again: it resumes, refuses or starts over."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest
from packed import (
    KINDS,
    Stop,
    make_source,
    name_of,
    pack_three,
    pack_up_to_renaming,
    sums,
)

from fastdecode import StoreError
from fastdecode.packing import BadItems, _pack, pack
from fastdecode.packing._lock import AlreadyLocked, CannotResume, lock_folder
from fastdecode.packing._output import OutputPaths
from fastdecode.packing._pack import Work
from fastdecode.packing._rewrite import Outcome
from fastdecode.stores import create_store, open_store
from fastdecode.stores.folder import FileStore
from fastdecode.testing import drawing, encode


@pytest.fixture(autouse=True)
def _often(monkeypatch: pytest.MonkeyPatch) -> None:
    """Record every item separately."""
    monkeypatch.setattr(_pack, "EVERY_S", 0)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"max_side": 20}, "max_side was None and is 20"),
        ({"shard_size": 5000}, "shard_size was None and is 5000"),
    ],
)
def test_other_options(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: dict[str, Any], said: str
) -> None:
    """Other options cannot resume a pack; the error names them, and what to do."""
    source, target = make_source(tmp_path / "source"), tmp_path / "out.tar"
    pack_three(monkeypatch, source, target)

    with pytest.raises(CannotResume, match=f"{said}.*--start-over"):
        pack(source, target, **options)
    assert pack(source, target, start_over=True, **options).resumed == 0
    assert not list(tmp_path.glob(".*"))


def test_another_source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A pack is not resumed from another source, or one that has changed."""
    source, target = make_source(tmp_path / "source"), tmp_path / "out.tar"
    pack_three(monkeypatch, source, target)

    with pytest.raises(CannotResume, match="source was"):
        pack(make_source(tmp_path / "other"), target)
    (source / "cats" / "new.jpg").write_bytes((source / "cats" / "0.jpg").read_bytes())
    with pytest.raises(CannotResume, match="number of items was 8 and is 9"):
        pack(source, target)


def test_a_source_that_changes_meanwhile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A source that changes while it is read makes no result."""
    pack(make_source(tmp_path / "source"), tmp_path / "in.tar")
    work = Work.__call__

    def touched(self: Work, index: int) -> Outcome:
        os.utime(tmp_path / "in.tar", (index, index))
        return work(self, index)

    monkeypatch.setattr(Work, "__call__", touched)
    with pytest.raises(CannotResume, match=r"has changed meanwhile.*--start-over"):
        pack(tmp_path / "in.tar", tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_an_image_that_has_changed(tmp_path: Path) -> None:
    """An image that has changed since it was spooled is refused; --start-over helps."""
    source = make_source(tmp_path / "source", damaged=True)
    with pytest.raises(BadItems):
        pack(source, tmp_path / "out.tar")
    (source / "cats" / "0.jpg").write_bytes(encode(drawing(99, 12)))

    with pytest.raises(CannotResume, match=r"cats/0\.jpg\) has changed since.*--start-over"):
        pack(source, tmp_path / "out.tar", skip_bad=True)
    assert pack(source, tmp_path / "out.tar", skip_bad=True, start_over=True).items == 8


def test_shards_that_have_changed(tmp_path: Path) -> None:
    """A source of several shards is not resumed after one of them has changed."""
    for number in range(2):
        with create_store(tmp_path / f"in-{number}.tar") as writer:
            writer.add(f"{number}.jpg", encode(drawing(20, 20)))
            writer.add(f"{number}-bad.jpg", b"no image")
    pattern = str(tmp_path / "in-*.tar")
    with pytest.raises(BadItems):
        pack(pattern, tmp_path / "out")
    os.utime(tmp_path / "in-1.tar", (1, 1))

    with pytest.raises(CannotResume, match="size and time of the source"):
        pack(pattern, tmp_path / "out", skip_bad=True)


def test_two_at_once(tmp_path: Path) -> None:
    """A second pack to the same location is refused while the first one works."""
    source, target = make_source(tmp_path / "source"), tmp_path / "out.tar"
    with (
        lock_folder(tmp_path / ".out.tar.partial"),
        pytest.raises(AlreadyLocked, match="another process"),
    ):
        pack(source, target)

    assert pack(source, target).items == 8


@pytest.mark.parametrize("kind", KINDS)
def test_what_was_mended(tmp_path: Path, kind: str) -> None:
    """A bad item is tried again; once repaired, it gets its place."""
    name = name_of(kind)
    source = make_source(tmp_path / "source", damaged=True)
    for folder in ("again", "fresh"):
        (tmp_path / folder).mkdir()
    with pytest.raises(BadItems, match="2 of 10"):
        pack(source, tmp_path / "again" / name)
    (source / "cats" / "1-cut.jpg").write_bytes(encode(drawing(33, 22)))
    (source / "dogs" / "empty.jpg").write_bytes(b"no image")

    packed = pack(source, tmp_path / "again" / name, skip_bad=True)

    assert [key for key, _ in packed.bad] == ["dogs/empty.jpg"]
    assert packed.resumed == 1
    pack(source, tmp_path / "fresh" / name, skip_bad=True)
    assert sums(tmp_path / "again") == sums(tmp_path / "fresh")


def test_another_reason(tmp_path: Path) -> None:
    """An item that is still bad for another reason is listed with that reason."""
    source = make_source(tmp_path / "source", damaged=True)
    for folder in ("again", "fresh"):
        (tmp_path / folder).mkdir()
    with pytest.raises(BadItems):
        pack(source, tmp_path / "again" / "out.tar")
    (source / "dogs" / "empty.jpg").write_bytes(b"no image")

    packed = pack(source, tmp_path / "again" / "out.tar", skip_bad=True)

    assert packed.resumed == 10
    pack(source, tmp_path / "fresh" / "out.tar", skip_bad=True)
    assert sums(tmp_path / "again") == sums(tmp_path / "fresh")


def test_a_file_that_was_missing(tmp_path: Path) -> None:
    """A listed file that was missing and exists now is packed."""
    source = make_source(tmp_path / "source")
    (source / "list.csv").write_text("cats/0.jpg\nnew.jpg\ndogs/0.jpg\n")
    with pytest.raises(BadItems, match="1 of 3"):
        pack(source / "list.csv", tmp_path / "out.tar")
    shutil.copy(source / "cats" / "1.jpg", source / "new.jpg")

    assert pack(source / "list.csv", tmp_path / "out.tar").items == 3


def test_what_cannot_be_read_now(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An error of disk or network ends the pack, which can then be resumed."""
    source, target = make_source(tmp_path / "source"), tmp_path / "out.tar"
    read = FileStore.read

    def failing(self: FileStore, index: int) -> Any:
        if index == 5:
            raise OSError(5, "Input/output error")
        return read(self, index)

    with monkeypatch.context() as patch:
        patch.setattr(FileStore, "read", failing)
        with pytest.raises(OSError, match=r"item 5 \(dogs/1.jpg\)"):
            pack(source, target)

    packed = pack(source, target)

    assert (packed.resumed, packed.items, packed.bad) == (5, 8, [])


def test_a_spool_that_was_damaged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A spool whose bytes or length have changed is not used."""
    source, target = make_source(tmp_path / "source"), tmp_path / "out"
    spool = tmp_path / ".out.partial" / "spool-00000"
    pack_three(monkeypatch, source, target)
    data = bytearray(spool.read_bytes())
    data[100] ^= 1
    spool.write_bytes(data)

    with pytest.raises(OSError, match=r"not those that were written.*--start-over"):
        pack(source, target)
    spool.write_bytes(b"")
    with pytest.raises(OSError, match=r"has become shorter.*--start-over"):
        pack(source, target)
    assert pack(source, target, start_over=True).items == 8


def test_leftovers_without_a_journal(tmp_path: Path) -> None:
    """A pack that was killed before its first record starts over."""
    source, partial = make_source(tmp_path / "source"), tmp_path / ".out.tar.partial"
    (partial / "out").mkdir(parents=True)
    (partial / "out" / "out.tar").write_bytes(b"half")
    (partial / "spool-00000").write_bytes(b"half of something else")
    (partial / "journal").write_bytes(b'0a1b2c3d {"asked": ')

    assert pack(source, tmp_path / "out.tar").items == 8
    assert not list(tmp_path.glob(".*"))


def test_a_stop_between_the_last_renamings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The manifest of shards is there last; before it they are no store, and the way out is said.

    Whatever was moved before, the same call goes on.
    """
    source = make_source(tmp_path / "source")
    (tmp_path / "whole").mkdir()
    pack(source, tmp_path / "whole" / "out.tar", shard_size=8192)
    for stop in range(4):
        folder = tmp_path / str(stop)
        folder.mkdir()
        target = folder / "out.tar"
        pack_up_to_renaming(stop, monkeypatch, source, target, shard_size=8192)
        assert not (folder / "out.tar.json").exists()
        assert (folder / "out-00000.tar").exists() == (stop >= 2)
        if stop >= 2:
            with pytest.raises(StoreError, match=r"not finished.*pack command again"):
                open_store(target)

        pack(source, target, shard_size=8192)

        assert sums(folder) == sums(tmp_path / "whole")
        with open_store(target) as store:
            assert len(store) == 8


def test_beginning_again_after_half_of_the_renamings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Starting over removes what that pack has renamed, but no file of others."""
    source, target = make_source(tmp_path / "source"), tmp_path / "out.tar"
    pack_up_to_renaming(2, monkeypatch, source, target, shard_size=8192)
    mine = tmp_path / "out-00007.tar.fdx"
    mine.write_bytes(b"mine")
    before = sums(tmp_path)

    with pytest.raises(FileExistsError, match=r"out-00007\.tar\.fdx"):
        pack(source, target, shard_size=8192, start_over=True)
    assert sums(tmp_path) == before
    mine.unlink()
    assert pack(source, target, start_over=True).resumed == 0
    assert not list(tmp_path.glob("out-*"))


@pytest.mark.parametrize("start_over", [False, True])
def test_it_is_finished_only_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, start_over: bool
) -> None:
    """A pack that was stopped while cleaning up is complete, and is not changed again."""
    source, target = make_source(tmp_path / "source"), tmp_path / "out.tar"

    def stopped(_place: object) -> None:
        raise Stop

    with monkeypatch.context() as patch:
        patch.setattr(OutputPaths, "remove", stopped)
        with pytest.raises(Stop):
            pack(source, target)
    before = sums(tmp_path)["out.tar"]

    if start_over:
        with pytest.raises(FileExistsError, match="is complete"):
            pack(source, target, start_over=True)
    else:
        assert pack(source, target).items == 8
    assert sums(tmp_path)["out.tar"] == before
    assert json.loads((tmp_path / "out.tar.json").read_text())["items"] == 8
    assert not list(tmp_path.glob(".*"))
