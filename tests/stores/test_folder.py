"""Tests of folders and lists of images as stores, and of the writer of folders."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from store_cases import all_items

import fastdecode
from fastdecode.stores import create_store, open_store
from fastdecode.stores._scan import make_dataset
from fastdecode.stores.folder import INDEX

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


def test_class_folders_match_torchvision(classes: Path) -> None:
    """Classes are sorted by name, and their files are found at any depth."""
    with open_store(classes) as store:
        assert list(store.classes) == ["cat", "cat-big"]
        assert [(key, target) for key, _, target in all_items(store)] == [
            ("cat/b.jpg", 0),
            ("cat/deep/a.JPG", 0),
            ("cat-big/c.jpg", 1),
        ]
        assert store.read(2) == SAMPLES[2].read_bytes()
        paths = [(store.source(at), store.target(at)) for at in range(len(store))]
    assert make_dataset(classes, extensions=(".jpg",)) == paths


def test_images_in_one_folder_have_no_targets(tmp_path: Path) -> None:
    """Images in one folder have no targets, nor do those in classes with ``targets=False``."""
    (tmp_path / "a.jpg").write_bytes(SAMPLES[0].read_bytes())
    with open_store(tmp_path) as store:
        assert all_items(store) == [("a.jpg", SAMPLES[0].read_bytes(), None)]

    (tmp_path / "cat").mkdir()
    (tmp_path / "cat/b.jpg").write_bytes(SAMPLES[1].read_bytes())
    with pytest.raises(ValueError, match=r"a\.jpg lie next to class folders such as cat"):
        open_store(tmp_path)
    with open_store(tmp_path, targets=False) as store:
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
    (tmp_path / "shards").mkdir()
    create_store(tmp_path / "shards" / "a.tar").close()
    with pytest.raises(TypeError, match=r"open_store\(\).* tar store .*'root'"):
        open_store(tmp_path / "shards", root="x")
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
