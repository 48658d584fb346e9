"""Tests of folders and lists of images as stores: which files they list, targets, errors."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import pytest
from store_cases import all_items
from tars import numbered, write_tar

import fastdecode
from fastdecode.stores import create_store, open_store
from fastdecode.stores._scan import SUFFIXES, make_dataset
from fastdecode.stores.folder import INDEX
from fastdecode.types import FORMATS

SAMPLES = sorted((Path(fastdecode.__file__).parent / "samples").glob("*.jpg"))


@pytest.fixture(name="classes")
def _classes(tmp_path: Path) -> Path:
    """Make class folders whose names sort differently as folders and as parts of paths."""
    root = tmp_path / "classes"
    for name, sample in zip(
        ("cat/b.jpg", "cat/deep/a.JPG", "cat-big/c.jpg"), SAMPLES, strict=False
    ):
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(sample.read_bytes())
    (root / "cat/notes.txt").write_text("no image")
    return root


def test_images_next_to_class_folders_are_an_error(classes: Path) -> None:
    """Images next to class folders are an error, but with ``targets=False`` items like others."""
    (classes / "a.jpg").write_bytes(SAMPLES[0].read_bytes())
    with pytest.raises(ValueError, match=r"a\.jpg lie next to class folders such as cat"):
        open_store(classes)
    with open_store(classes, targets=False) as store:
        assert [store.key(at) for at in range(2)] == ["a.jpg", "cat/b.jpg"]
        assert not store.classes


def test_a_csv_file_is_a_list(classes: Path, tmp_path: Path) -> None:
    """A CSV file is a store: its class names are sorted, its paths relative to its folder."""
    table = tmp_path / "list.csv"
    table.write_text("path,label\nclasses/cat-big/c.jpg,dog\nclasses/cat/b.jpg,cat\n")

    with open_store(table) as store:
        assert list(store.classes) == ["cat", "dog"]
        assert all_items(store) == [
            ("classes/cat-big/c.jpg", SAMPLES[2].read_bytes(), 1),
            ("classes/cat/b.jpg", SAMPLES[0].read_bytes(), 0),
        ]
    with open_store(table, root=classes.parent, target_column=None) as store:
        assert store.target(0) is None
    for head in ("", "path\n"):
        table.write_text(f"{head}classes/cat/b.jpg\n")
        with open_store(table) as store:
            assert all_items(store) == [("classes/cat/b.jpg", SAMPLES[0].read_bytes(), None)]
    table.write_text("a.jpg,1\nb.jpg\n")
    with pytest.raises(ValueError, match="no column 1"):
        open_store(table)
    (tmp_path / "empty.csv").touch()
    with pytest.raises(ValueError, match=r"empty\.csv has no images"):
        open_store(tmp_path / "empty.csv")


def test_paths_are_a_list(classes: Path) -> None:
    """A list of paths is a store whose keys are relative even if the paths are absolute."""
    paths = [classes / "cat/b.jpg", classes / "cat-big/c.jpg"]
    with open_store(paths) as store:
        assert store.read(1) == SAMPLES[2].read_bytes()
        assert store.key(1) == str(paths[1]).lstrip("/")
        assert store.source(1) == str(paths[1])


def test_index_name_is_refused_as_key(tmp_path: Path) -> None:
    """The name of the index is refused as a key, since one would overwrite the other."""
    with create_store(tmp_path / "made") as writer, pytest.raises(ValueError, match="key"):
        writer.add(INDEX, b"1")


@pytest.mark.parametrize(
    ("location", "error", "said"),
    [
        ("nowhere", FileNotFoundError, "nowhere"),
        ("empty", FileNotFoundError, "empty"),
        ("a.txt", ValueError, r"a\.txt .* kind="),
        *(
            (name, ValueError, f"{name} .* decompress")
            for name in ("a.tar.gz", "a.TGZ", "a.tar.xz")
        ),
        (["a.jpg", "b.h5"], ValueError, r"b\.h5 is a hdf5 store"),
        ("", ValueError, "''"),
        (None, ValueError, "None"),
        (5, TypeError, "int"),
        (b"a.tar", TypeError, "bytes$"),  # image bytes would fill the screen
    ],
)
def test_what_cannot_be_opened_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, location: Any, error: Any, said: str
) -> None:
    """A location that is no store is an error that names it; nothing is not the current folder."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty").mkdir()
    for name in ("a.txt", "a.tar.gz", "a.TGZ", "a.tar.xz"):
        (tmp_path / name).touch()

    with pytest.raises(error, match=said):
        open_store(location)


def test_wrong_kinds_and_options_are_named(classes: Path, tmp_path: Path) -> None:
    """An unknown kind or option, and a kind that cannot be written, are errors that name it."""
    with pytest.raises(ValueError, match="nosuch"):
        open_store(classes, "nosuch")
    with pytest.raises(ValueError, match="list store can be read"):
        create_store(tmp_path / "a.csv")
    with pytest.raises(TypeError, match="'wrong'"):
        open_store(classes, wrong=1)
    for kind, option in (("folder", "root"), ("list", "image"), ("tar", "images")):
        with pytest.raises(TypeError, match=rf"open_store\(\).* {kind} store .*'{option}'"):
            open_store(classes, kind, **{option: "x"})
    (classes / "cat/b.jpg").unlink()
    with open_store(classes) as store:
        (classes / "cat/deep/a.JPG").unlink()
        with pytest.raises(FileNotFoundError, match=r"a\.JPG"):
            store.read(0)


def test_options_of_the_user_win(tmp_path: Path) -> None:
    """A delimiter in a .tsv, a root that is not the list's folder, and suffixes of no image."""
    photos, table = tmp_path / "photos", tmp_path / "list.tsv"
    photos.mkdir()
    for name in ("a.jpg", "b.img"):
        (photos / name).write_text(name)
    table.write_text("a.jpg;3\nb.img;4\n")

    with open_store(table, delimiter=";", root=photos) as store:
        assert [(bytes(store.read(at)), store.target(at)) for at in range(2)] == [
            (b"a.jpg", 3),
            (b"b.img", 4),
        ]
    with open_store(photos, extensions=[".img"]) as store:
        assert [store.key(at) for at in range(len(store))] == ["b.img"]


def _tree(root: Path, *names: str) -> Path:
    for name in names:
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(os.fsencode(name))
    return root


def test_a_folder_lists_every_format_that_decodes() -> None:
    """Whatever `decode` reads has suffixes: a folder would pass over its files otherwise."""
    assert SUFFIXES.keys() == {*FORMATS}


_ODD = os.fsdecode(b"b\xff")


@pytest.mark.parametrize(
    ("names", "classes", "targets"),
    [
        ("cat/b.jpg cat/deep/a.JPG cat/notes.txt cat-big/c.jpg", ["cat", "cat-big"], [0, 0, 1]),
        # An empty folder is a class, so that later classes keep their numbers.
        ("ant/a.jpg bee/ cat/c.jpg dog/n.txt", ["ant", "bee", "cat", "dog"], [0, 2]),
        pytest.param(
            f"ant/a.jpg {_ODD}/b.jpg",
            ["ant", _ODD],
            [0, 1],
            marks=pytest.mark.skipif(sys.platform != "linux", reason="names are Unicode there"),
        ),
        ("a.jpg b.png notes/n.txt", [], [None, None]),
    ],
)
def test_folders_are_classes_as_in_torchvision(
    tmp_path: Path, names: str, classes: list[str], targets: list[int | None]
) -> None:
    """Classes are sorted by name, whatever it is, and their files are found at any depth.

    Images of a folder without class folders have no targets.
    """
    images = [name for name in names.split() if name.lower().endswith((".jpg", ".png"))]
    root = _tree(tmp_path, *(name for name in names.split() if name[-1] != "/"))
    for name in names.split():
        if name[-1] == "/":
            (root / name).mkdir()

    with open_store(root) as store:
        assert list(store.classes) == classes
        assert all_items(store) == [
            (name, os.fsencode(name), target) for name, target in zip(images, targets, strict=True)
        ]
        paths = [(store.source(at), store.target(at)) for at in range(len(store))]
    if classes:
        assert make_dataset(root, extensions=(".jpg",), allow_empty=True) == paths
        with open_store(root, targets=False) as store:
            assert {store.target(at) for at in range(len(store))} == {None}


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="needs to be refused")
def test_a_folder_that_cannot_be_read_is_an_error(tmp_path: Path) -> None:
    """A folder that cannot be read is an error, because its class would seem empty."""
    root = _tree(tmp_path, "ant/a.jpg", "bee/b.jpg")
    (root / "bee").chmod(0)
    try:
        for listed in (open_store, lambda root: make_dataset(root, extensions=(".jpg",))):
            with pytest.raises(PermissionError, match="bee"):
                listed(root)
    finally:
        (root / "bee").chmod(0o700)


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

    with pytest.raises(ValueError, match=r"t-0\.tar in it.*/\*\.tar.*targets=False"):
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
