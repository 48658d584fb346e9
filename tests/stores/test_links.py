"""Links that are broken or form a cycle are listed as unreadable, or walked once."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest
from corpus import CORPUS
from packed import make_source

from fastdecode.cli import main
from fastdecode.packing import BadItems, pack, survey
from fastdecode.stores import open_store
from fastdecode.stores._scan import find_classes, found, make_dataset

if os.name != "posix":
    pytest.skip("making links needs rights there", allow_module_level=True)


@pytest.fixture
def looping(tmp_path: Path) -> Path:
    """Create two classes, with links to themselves among the images and next to the classes."""
    root = make_source(tmp_path / "source")
    for place in (root / "cats" / "loop.jpg", root / "alone", root / "dogs" / "deep"):
        place.symlink_to(place)
    (root / "dogs" / "a.jpg").symlink_to("b.jpg")
    (root / "dogs" / "b.jpg").symlink_to("a.jpg")
    (root / "dogs" / "long.jpg").symlink_to("x" * 300)
    (root / "dogs" / "under.jpg").symlink_to("0.jpg/under")
    return root


BAD = ["cats/loop.jpg", "dogs/a.jpg", "dogs/b.jpg", "dogs/long.jpg", "dogs/under.jpg"]


def test_cyclic_links_are_listed_as_unreadable(
    looping: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """`check` and `pack` list each such link, and go on with all other files.

    For ImageFolder they are samples, which fail when they are read, and not classes.
    """
    with open_store(looping) as store:
        seen = {one.key: one for one in survey(store, 2)}

    assert [key for key, one in seen.items() if one.status == "unreadable"] == BAD
    assert len(seen) == 8 + len(BAD)
    assert "symbolic links" in seen["cats/loop.jpg"].reasons[0]
    assert main(["check", str(looping)]) == 1
    assert "13 images" in capsys.readouterr().out

    with pytest.raises(BadItems) as caught:
        pack(looping, tmp_path / "out.tar")
    assert caught.value.packed is not None
    assert [key for key, _ in caught.value.packed.bad] == BAD
    assert pack(looping, tmp_path / "out.tar", skip_bad=True).items == 8

    classes, index = find_classes(looping)
    samples = make_dataset(looping, index, (".jpg",))
    paths = {os.path.relpath(path, looping) for path, _ in samples}
    assert classes == ["cats", "dogs"]
    assert set(BAD) <= paths
    assert len(paths) == 6 + len(BAD)


def _clique(root: Path, count: int) -> Path:
    """Create folders with one image each, all of which link to all others."""
    for name in range(count):
        (root / f"{name:02}").mkdir(parents=True)
        shutil.copy(CORPUS / "formats" / "gen_pal_trns.png", root / f"{name:02}" / f"{name:02}.png")
        for other in range(count):
            if other != name:
                (root / f"{name:02}" / f"to{other:02}").symlink_to(root / f"{other:02}")
    return root


@pytest.mark.parametrize("count", [2, 15])
def test_folders_that_link_to_one_another_are_walked_once(tmp_path: Path, count: int) -> None:
    """Each folder is walked once per class, by the shortest path."""
    root = _clique(tmp_path / "root", count)

    listed = found(str(root))

    assert listed.folders == [f"{name:02}" for name in range(count)]
    assert len(listed.files) == count**2
    assert len(set(listed.files)) == count**2
    assert all(path.count("/") <= 2 for path in listed.files)
    samples = make_dataset(root, extensions=(".png",))
    assert [os.path.relpath(path, root) for path, _ in samples] == listed.files
    with open_store(root) as store:
        assert len(store) == count**2
        assert store.target(count**2 - 1) == count - 1
        assert store.read(count + 1)


def test_a_folder_is_listed_once_per_class(tmp_path: Path) -> None:
    """Of two links to a folder in a class, the first is followed; classes may share a folder.

    One that links to the root has no images, so that the numbers of later classes stay.
    """
    shared = tmp_path / "shared"
    (shared / "inner").mkdir(parents=True)
    (shared / "inner" / "a.jpg").touch()
    root = tmp_path / "root"
    (root / "cat").mkdir(parents=True)
    for name in ("cat/one", "cat/two", "dog"):
        (root / name).symlink_to(shared)

    assert found(str(root)).files == ["cat/one/inner/a.jpg", "dog/inner/a.jpg"]
    samples = make_dataset(root, extensions=(".jpg",))
    assert [os.path.relpath(path, root) for path, _ in samples] == found(str(root)).files

    source = make_source(tmp_path / "source")
    (source / "again").symlink_to(source)
    with open_store(source) as store:  # a class that links to the root is empty
        assert list(store.classes) == ["again", "cats", "dogs"]
        assert (len(store), store.target(0)) == (8, 1)
