"""Tests of `pack` after an earlier run: it skips complete shards, and touches nothing else."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from packed import KINDS, checksums, make_source, name_of, stop_pack_at

from fastdecode.packing import BadItems, pack
from fastdecode.stores import open_store
from fastdecode.stores.folder import FileStore

SHARDS: dict[str, Any] = {"shard_size": 8000}
"""Makes a shard of each item of `make_source`."""


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return make_source(tmp_path / "source")


@pytest.fixture
def begun(source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Stop a pack to ``out.tar`` at its sixth item, and return its folder."""
    stop_pack_at(5, monkeypatch, source, tmp_path / "out.tar", **SHARDS)
    return tmp_path


def _whole(folder: Path, **options: Any) -> dict[str, str]:
    """Return the checksums of a pack that nothing has interrupted."""
    (folder / "whole").mkdir()
    pack(folder / "source", folder / "whole" / "out.tar", **SHARDS, **options)
    return checksums(folder / "whole")


def _packed_files(folder: Path) -> dict[str, str]:
    return {name: found for name, found in checksums(folder).items() if name[:3] == "out"}


@pytest.mark.parametrize("kind", KINDS)
def test_without_shards_nothing_is_left(
    kind: str, source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A store without shards begins again, also with other options, and leaves nothing behind."""
    target = tmp_path / name_of(kind)
    stop_pack_at(5, monkeypatch, source, target)

    assert sorted(path.name for path in tmp_path.iterdir()) == ["source"]
    assert pack(source, target, max_side=20).resumed == 0


def test_complete_shards_are_skipped(begun: Path) -> None:
    """The same call goes on after the last complete shard, and makes the same bytes.

    Before its end the shards are no store.
    """
    kept = {path: path.stat().st_mtime_ns for path in begun.glob("out-*.tar")}
    assert len(kept) == 4
    with pytest.raises(FileNotFoundError, match=r"out\.tar"):
        open_store(begun / "out.tar")

    packed = pack(begun / "source", begun / "out.tar", **SHARDS)

    assert (packed.resumed, packed.items) == (4, 8)
    assert {path: path.stat().st_mtime_ns for path in kept} == kept
    assert _packed_files(begun) == _whole(begun)
    (begun / "out.tar.json").unlink()  # as after a kill just before the end
    assert pack(begun / "source", begun / "out.tar", **SHARDS).resumed == 8
    assert _packed_files(begun) == checksums(begun / "whole")


def _change(name: str, change: Callable[[bytes], bytes]) -> Callable[[Path], object]:
    return lambda folder: (folder / name).write_bytes(change((folder / name).read_bytes()))


def _flip(data: bytes) -> bytes:
    return data[:600] + bytes([data[600] ^ 1]) + data[601:]


def _add_item(folder: Path) -> None:
    shutil.copy(folder / "source" / "cats" / "0.jpg", folder / "source" / "cats" / "new.jpg")


def _link_shard(folder: Path) -> None:
    (folder / "mine").write_text("mine")
    (folder / "out-00001.tar").unlink()
    (folder / "out-00001.tar").symlink_to("mine")


@pytest.mark.parametrize(
    ("change", "options", "named"),
    [
        (_change("out-00001.tar", _flip), {}, "out-00001.tar"),
        (_change("out-00001.tar", lambda data: data[:2000]), {}, "out-00001.tar"),
        (_change("out-00001.tar.fdx", _flip), {}, "out-00001.tar"),
        (lambda folder: (folder / "out-00001.tar").unlink(), {}, "out-00002.tar"),
        (_link_shard, {}, "out-00001.tar"),
        (_add_item, {}, "out-00000.tar"),
        (lambda _: None, {"max_side": 20}, "out-00000.tar"),
        (lambda _: None, {"shard_size": 5000}, "out-00000.tar"),
        (lambda _: None, {"shard_size": None}, ""),
    ],
)
def test_what_is_not_a_complete_shard_is_not_touched(
    begun: Path, change: Callable[[Path], object], options: dict[str, Any], named: str
) -> None:
    """A shard that is damaged, of another source or of other options is in the way, and stays."""
    change(begun)
    before, source = checksums(begun), begun / "source"

    if named:
        with pytest.raises(FileExistsError, match=f"{named} is there already, and is not what"):
            pack(source, begun / "out.tar", **{**SHARDS, **options})
        assert checksums(begun) == before
        for path in begun.glob("out-*.tar*"):
            if path.name >= named:
                path.unlink()
    packed = pack(source, begun / "out.tar", **{**SHARDS, **options})
    assert packed.resumed == (named in ("out-00001.tar", "out-00002.tar"))


@pytest.mark.parametrize("name", ["out-00003.tar", "out-00003.tar.fdx", "out.tar.json"])
def test_file_that_appears_meanwhile_is_not_replaced(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """A file that another program makes at a place of the pack is kept."""
    mine, read = tmp_path / name, FileStore.read

    def meanwhile(self: FileStore, index: int) -> Any:
        mine.write_bytes(b"mine")
        return read(self, index)

    monkeypatch.setattr(FileStore, "read", meanwhile)
    with pytest.raises(FileExistsError, match=name):
        pack(source, tmp_path / "out.tar", **SHARDS)
    assert mine.read_bytes() == b"mine"


def test_bad_items_keep_the_shards(tmp_path: Path) -> None:
    """Complete shards are kept if there are bad items; ``skip_bad`` goes on after them.

    An item that has been repaired counts as it is now, unless a complete shard has left it out.
    """
    source, target = make_source(tmp_path / "source", damaged=True), tmp_path / "out.tar"
    with pytest.raises(BadItems, match="2 of 10"):
        pack(source, target, **SHARDS)

    packed = pack(source, target, skip_bad=True, **SHARDS)

    assert packed.resumed >= 7
    assert (packed.items, [key for key, _ in packed.bad]) == (
        8,
        ["cats/1-cut.jpg", "dogs/empty.jpg"],
    )
    assert _packed_files(tmp_path) == _whole(tmp_path, skip_bad=True)


def test_repaired_items_are_packed(tmp_path: Path) -> None:
    """Bad items that have been repaired are packed, and their list is removed."""
    source, target = make_source(tmp_path / "source", damaged=True), tmp_path / "out.tar"
    with pytest.raises(BadItems, match="2 of 10"):
        pack(source, target)
    for name in ("cats/1-cut.jpg", "dogs/empty.jpg"):
        shutil.copy(source / "cats" / "0.jpg", source / name)

    assert pack(source, target).items == 10
    assert not (tmp_path / "out.tar.bad.csv").exists()


def test_repeated_key_is_bad_in_a_later_run(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The keys of complete shards count: a repeated one is bad, also in a later run."""
    lines = ["cats/0.jpg", "cats/1.jpg", "cats/2.jpg", "dogs/1.jpg", "cats/0.jpg"]
    (source / "list.csv").write_text("\n".join(lines))
    stop_pack_at(3, monkeypatch, source / "list.csv", tmp_path / "out.tar", **SHARDS)

    packed = pack(source / "list.csv", tmp_path / "out.tar", skip_bad=True, **SHARDS)

    assert packed.resumed > 0
    ((key, why),) = packed.bad
    assert key == "cats/0.jpg"
    assert "there already" in why


def test_read_error_ends_the_pack(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An I/O error does not make an item bad: it ends the pack, which can go on."""
    read = FileStore.read

    def failing(self: FileStore, index: int) -> Any:
        if index == 5:
            raise OSError(5, "Input/output error")
        return read(self, index)

    with monkeypatch.context() as patch:
        patch.setattr(FileStore, "read", failing)
        with pytest.raises(OSError, match=r"item 5 \(dogs/1.jpg\)"):
            pack(source, tmp_path / "out.tar", **SHARDS)

    packed = pack(source, tmp_path / "out.tar", **SHARDS)

    assert (packed.resumed, packed.items, packed.bad) == (4, 8, [])


@pytest.mark.skipif(os.name == "nt", reason="links need a privilege there")
def test_the_list_of_bad_items_is_no_source(tmp_path: Path) -> None:
    """The list of bad items, which `pack` replaces, is refused as a source, also by a link."""
    source = make_source(tmp_path / "source", damaged=True)
    with pytest.raises(BadItems):
        pack(source, tmp_path / "out.tar")
    (tmp_path / "link.csv").symlink_to("out.tar.bad.csv")

    for name in ("out.tar.bad.csv", "link.csv"):
        with pytest.raises(ValueError, match="pack writes itself"):
            pack(tmp_path / name, tmp_path / "out.tar")
