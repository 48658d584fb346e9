"""Tests of which files a folder store lists, and that it never drops a class silently."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from tars import numbered, write_tar

from fastdecode.stores import open_store
from fastdecode.stores._scan import SUFFIXES
from fastdecode.types import FORMATS


def _tree(root: Path, *names: str) -> Path:
    for name in names:
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(name.encode())
    return root


def test_a_folder_lists_every_format_that_decodes() -> None:
    """Whatever `decode` reads has suffixes: a folder would pass over its files otherwise."""
    assert SUFFIXES.keys() == {*FORMATS}


def test_an_empty_folder_is_a_class(tmp_path: Path) -> None:
    """An empty folder is a class, as in torchvision, so later classes keep their numbers."""
    root = _tree(tmp_path, "ant/a.jpg", "cat/c.jpg", "dog/notes.txt")
    (root / "bee").mkdir()

    with open_store(root) as store:
        assert list(store.classes) == ["ant", "bee", "cat", "dog"]
        assert [store.target(at) for at in range(2)] == [0, 2]
    with open_store(root / "ant") as store:
        assert store.target(0) is None


def test_loose_images_next_to_empty_folders_have_no_targets(tmp_path: Path) -> None:
    """Images next to folders without images have no targets."""
    root = _tree(tmp_path, "a.jpg", "notes/n.txt")

    with open_store(root) as store:
        assert (len(store), list(store.classes), store.target(0)) == (1, [], None)


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="needs to be refused")
def test_a_folder_that_cannot_be_read_is_an_error(tmp_path: Path) -> None:
    """A folder that cannot be read is an error, because its class would seem empty."""
    root = _tree(tmp_path, "ant/a.jpg", "bee/b.jpg")
    (root / "bee").chmod(0)
    try:
        with pytest.raises(PermissionError, match="bee"):
            open_store(root)
    finally:
        (root / "bee").chmod(0o700)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs pipes with names")
def test_pipes_are_skipped_and_dead_links_are_listed(tmp_path: Path) -> None:
    """A pipe is not listed; a dead link is, and reading it raises FileNotFoundError."""
    root = _tree(tmp_path, "a.jpg")
    os.mkfifo(root / "b.jpg")
    (root / "c.jpg").symlink_to("nowhere.jpg")

    with open_store(root) as store:
        assert [store.key(at) for at in range(len(store))] == ["a.jpg", "c.jpg"]
        with pytest.raises(FileNotFoundError):
            store.read(1)


@pytest.mark.skipif(os.name == "nt", reason="names are Unicode there")
def test_class_name_may_be_any_bytes(tmp_path: Path) -> None:
    """A folder whose name is not valid UTF-8 is a class like the others."""
    root = _tree(tmp_path, "ant/a.jpg")
    strange = os.fsdecode(b"b\xff")
    try:
        (root / strange).mkdir()
    except OSError:
        pytest.skip("the file system refuses such names")
    (root / strange / "b.jpg").write_bytes(b"2")

    with open_store(root) as store:
        assert list(store.classes) == ["ant", strange]
        assert bytes(store.read(1)) == b"2"


@pytest.mark.parametrize("row", ["b\0.jpg,cat", "b.jpg,c\0t"])
def test_nul_in_a_table_is_an_error(tmp_path: Path, row: str) -> None:
    """A NUL in a path or class of a table is an error that names the file and the line."""
    (tmp_path / "t.csv").write_text(f"path,label\na.jpg,dog\n{row}\n")

    with pytest.raises(ValueError, match=r"t\.csv, line [34]: .*NUL"):
        open_store(tmp_path / "t.csv")


def test_shards_next_to_an_image_are_an_error(tmp_path: Path) -> None:
    """Shards next to an image are an error that tells the caller how to choose."""
    root = _tree(tmp_path, "preview.jpg")
    write_tar(root / "t-0.tar", numbered(3))

    with pytest.raises(ValueError, match=r"t-0\.tar in it.*kind='tar'.*targets=False"):
        open_store(root)
    assert len(open_store(f"{root}/*.tar", "tar")) == 3
    assert len(open_store(root, targets=False)) == 1


def test_lists_may_hold_uris_and_lie_at_one(tmp_path: Path) -> None:
    """A list may mix URIs and paths; paths in a table at a URI are relative to its folder."""
    fsspec = pytest.importorskip("fsspec")
    memory = fsspec.filesystem("memory")
    memory.pipe({"/listed/x/a.jpg": b"1", "/listed/t.csv": b"path,label\nx/a.jpg,cat\n"})
    (tmp_path / "b.jpg").write_bytes(b"2")
    try:
        with open_store("memory://listed/t.csv") as store:
            assert (bytes(store.read(0)), store.key(0), store.target(0)) == (b"1", "x/a.jpg", 0)
            assert list(store.classes) == ["cat"]
        with open_store(["memory://listed/x/a.jpg", tmp_path / "b.jpg"]) as store:
            assert [bytes(store.read(at)) for at in range(2)] == [b"1", b"2"]
            assert store.source(0) == b"1"
            assert store.source(1) == str(tmp_path / "b.jpg")
    finally:
        memory.rm("/listed", recursive=True)


@pytest.mark.parametrize("cell", ["nan", "inf", "1e999"])
def test_targets_of_a_table_must_be_finite(tmp_path: Path, cell: str) -> None:
    """A target that is not finite is an error that names the file and the line."""
    (tmp_path / "t.csv").write_text(f"a.jpg,1.5\nb.jpg,{cell}\n")

    with pytest.raises(ValueError, match=r"t\.csv, line 2: the target (nan|inf) is not a finite"):
        open_store(tmp_path / "t.csv")
