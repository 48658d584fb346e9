"""Folders and lists of images as stores, and the writer of folders."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import pytest

import fastdecode
from fastdecode.stores import Store, create_store, open_store
from fastdecode.stores.folder import INDEX

SAMPLES = sorted((Path(fastdecode.__file__).parent / "samples").glob("*.jpg"))


def everything(store: Store) -> list[tuple[str, bytes, Any]]:
    """Read all items."""
    return [(store.key(at), bytes(store.read(at)), store.target(at)) for at in range(len(store))]


@pytest.fixture(name="classes")
def _classes(tmp_path: Path) -> Path:
    """Create class folders whose names sort differently as folders and as paths."""
    root = tmp_path / "classes"
    for name, sample in zip(
        ("cat/b.jpg", "cat/deep/a.JPG", "cat-big/c.jpg"), SAMPLES, strict=False
    ):
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(sample.read_bytes())
    (root / "cat/notes.txt").write_text("no image")
    return root


def test_class_folders_are_as_torchvisions(classes: Path) -> None:
    """Classes are sorted by name, and files are found at any depth, as in torchvision."""
    with open_store(classes) as store:
        assert list(store.classes) == ["cat", "cat-big"]
        assert [(key, target) for key, _, target in everything(store)] == [
            ("cat/b.jpg", 0),
            ("cat/deep/a.JPG", 0),
            ("cat-big/c.jpg", 1),
        ]
        assert store.read(2) == SAMPLES[2].read_bytes()
        assert store.source(1) == str(classes / "cat/deep/a.JPG")


def test_the_order_is_that_of_image_folder(classes: Path) -> None:
    """Items are in the order of torchvision's ImageFolder."""
    pytest.importorskip("torch")
    from fastdecode.torch import ImageFolder

    with open_store(classes) as store:
        ours = [(store.source(at), store.target(at)) for at in range(len(store))]

    assert ours == ImageFolder(classes).samples


def test_images_in_one_folder_have_no_targets(tmp_path: Path) -> None:
    """Images in one folder have no targets; those in class folders have none with targets=False."""
    (tmp_path / "a.jpg").write_bytes(SAMPLES[0].read_bytes())
    with open_store(tmp_path) as store:
        assert everything(store) == [("a.jpg", SAMPLES[0].read_bytes(), None)]

    (tmp_path / "cat").mkdir()
    (tmp_path / "cat/b.jpg").write_bytes(SAMPLES[1].read_bytes())
    with pytest.raises(ValueError, match=r"a\.jpg lie next to class folders such as cat"):
        open_store(tmp_path)
    with open_store(tmp_path, targets=False) as store:
        assert [store.key(at) for at in range(2)] == ["a.jpg", "cat/b.jpg"]
        assert not store.classes


def test_a_csv_file_is_a_list(classes: Path, tmp_path: Path) -> None:
    """Class names are sorted, and relative paths begin at the folder of the CSV file."""
    table = tmp_path / "list.csv"
    table.write_text("path,label\nclasses/cat-big/c.jpg,dog\nclasses/cat/b.jpg,cat\n")

    with open_store(table) as store:
        assert list(store.classes) == ["cat", "dog"]
        assert everything(store) == [
            ("classes/cat-big/c.jpg", SAMPLES[2].read_bytes(), 1),
            ("classes/cat/b.jpg", SAMPLES[0].read_bytes(), 0),
        ]
    with open_store(table, root=classes.parent, target_column=None) as store:
        assert store.target(0) is None
    (tmp_path / "empty.csv").touch()
    with pytest.raises(ValueError, match=r"empty\.csv has no images"):
        open_store(tmp_path / "empty.csv")


def test_paths_are_a_list(classes: Path) -> None:
    """Keys are relative, for any paths."""
    paths = [classes / "cat/b.jpg", classes / "cat-big/c.jpg"]
    with open_store(paths) as store:
        assert store.read(1) == SAMPLES[2].read_bytes()
        assert store.key(1) == str(paths[1]).lstrip("/")
        assert store.source(1) == str(paths[1])


def test_a_written_folder_is_opened_by_its_index(tmp_path: Path) -> None:
    """Items keep the order of writing, with targets of every kind and any keys."""
    target = tmp_path / "made"
    items = [("b/2.jpg", b"2", 1), ("a.png", b"1", {"x": [1]}), ("b/1.jpg", b"3", None)]
    with create_store(target) as writer:
        for item in items:
            writer.add(*item)
        assert not target.exists()

    with open_store(target) as store:
        assert everything(store) == items
        assert everything(pickle.loads(pickle.dumps(store))) == items
    assert sorted(path.name for path in tmp_path.iterdir()) == ["made"]


def test_the_name_of_the_index_is_no_key(tmp_path: Path) -> None:
    """The name of the index is refused as a key: either file would be lost."""
    with create_store(tmp_path / "made") as writer, pytest.raises(ValueError, match="key"):
        writer.add(INDEX, b"1")


def test_errors_name_what_is_wrong(classes: Path, tmp_path: Path) -> None:
    """Errors say what is wrong and what to do."""
    with pytest.raises(FileNotFoundError, match="nowhere"):
        open_store(tmp_path / "nowhere")
    (tmp_path / "empty").mkdir()
    with pytest.raises(FileNotFoundError, match="no image in it ends in"):
        open_store(tmp_path / "empty")
    (tmp_path / "a.txt").touch()
    with pytest.raises(ValueError, match="say what it is with kind="):
        open_store(tmp_path / "a.txt")
    with pytest.raises(ValueError, match=r"b\.h5 is a hdf5 store, not an image"):
        open_store(["a.jpg", "b.h5"])
    with pytest.raises(ValueError, match="no kind of store 'nosuch'"):
        open_store(classes, "nosuch")
    with pytest.raises(ValueError, match="can be read, but not written"):
        create_store(tmp_path / "a.csv")
    with pytest.raises(TypeError, match="no option 'wrong'"):
        open_store(classes, wrong=1)
    store = open_store(classes)
    for index in (-1, 3):
        with pytest.raises(IndexError, match=f"no item {index}; it has 3, counted from 0"):
            store.read(index)
        with pytest.raises(IndexError):
            store.target(index)
        with pytest.raises(IndexError):
            store.key(index)
    (classes / "cat/b.jpg").unlink()
    with pytest.raises(FileNotFoundError, match=r"b\.jpg"):
        store.read(0)
