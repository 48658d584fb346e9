"""`pack` given once more: what was mended or has changed meanwhile, and beginning again."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest
from packed import KINDS, make_source, sums

from fastdecode import StoreError
from fastdecode.packing import BadItems, _pack, pack
from fastdecode.packing._lock import Refused
from fastdecode.packing._output import Place
from fastdecode.stores import create_store, open_store
from fastdecode.testing import encode, picture


@pytest.fixture(autouse=True)
def _often(monkeypatch: pytest.MonkeyPatch) -> None:
    """Write every item down on its own."""
    monkeypatch.setattr(_pack, "EVERY_S", 0)


class _Stop(Exception):
    pass


@pytest.mark.parametrize("kind", KINDS)
def test_what_was_mended(tmp_path: Path, kind: str) -> None:
    """A bad item is tried again; mended, it comes to its place, as in a pack from the beginning."""
    name, needed = KINDS[kind]
    if needed:
        pytest.importorskip(needed)
    source = make_source(tmp_path / "source", damaged=True)
    for folder in ("again", "fresh"):
        (tmp_path / folder).mkdir()
    with pytest.raises(BadItems, match="2 of 10"):
        pack(source, tmp_path / "again" / name)
    (source / "cats" / "1-cut.jpg").write_bytes(encode(picture(33, 22)))
    (source / "dogs" / "empty.jpg").write_bytes(b"no picture")

    packed = pack(source, tmp_path / "again" / name, skip_bad=True)

    assert [key for key, _ in packed.bad] == ["dogs/empty.jpg"]
    assert packed.resumed == 1
    pack(source, tmp_path / "fresh" / name, skip_bad=True)
    assert sums(tmp_path / "again") == sums(tmp_path / "fresh")


def test_another_reason(tmp_path: Path) -> None:
    """What is still bad, but for another reason, is listed with that; nothing else is done anew."""
    source = make_source(tmp_path / "source", damaged=True)
    for folder in ("again", "fresh"):
        (tmp_path / folder).mkdir()
    with pytest.raises(BadItems):
        pack(source, tmp_path / "again" / "out.tar")
    (source / "dogs" / "empty.jpg").write_bytes(b"no picture")

    packed = pack(source, tmp_path / "again" / "out.tar", skip_bad=True)

    assert packed.resumed == 10
    pack(source, tmp_path / "fresh" / "out.tar", skip_bad=True)
    assert sums(tmp_path / "again") == sums(tmp_path / "fresh")


def test_a_file_that_was_missing(tmp_path: Path) -> None:
    """A list's file that has come to be there is packed."""
    source = make_source(tmp_path / "source")
    (source / "list.csv").write_text("cats/0.jpg\nnew.jpg\ndogs/0.jpg\n")
    with pytest.raises(BadItems, match="1 of 3"):
        pack(source / "list.csv", tmp_path / "out.tar")
    shutil.copy(source / "cats" / "1.jpg", source / "new.jpg")

    assert pack(source / "list.csv", tmp_path / "out.tar").items == 3


def test_a_picture_that_has_changed(tmp_path: Path) -> None:
    """One that is in the spool already, and is another now, is refused; to begin again helps."""
    source = make_source(tmp_path / "source", damaged=True)
    with pytest.raises(BadItems):
        pack(source, tmp_path / "out.tar")
    (source / "cats" / "0.jpg").write_bytes(encode(picture(99, 12)))

    with pytest.raises(Refused, match=r"cats/0\.jpg\) has changed since.*--start-over"):
        pack(source, tmp_path / "out.tar", skip_bad=True)
    assert pack(source, tmp_path / "out.tar", skip_bad=True, start_over=True).items == 8


def test_shards_that_have_changed(tmp_path: Path) -> None:
    """A source of several shards is not mixed with another state of it."""
    for number in range(2):
        with create_store(tmp_path / f"in-{number}.tar") as writer:
            writer.add(f"{number}.jpg", encode(picture(20, 20)))
            writer.add(f"{number}-bad.jpg", b"no picture")
    pattern = str(tmp_path / "in-*.tar")
    with pytest.raises(BadItems):
        pack(pattern, tmp_path / "out")
    os.utime(tmp_path / "in-1.tar", (1, 1))

    with pytest.raises(Refused, match="size and time of the source"):
        pack(pattern, tmp_path / "out", skip_bad=True)


def _half_moved(source: Path, target: Path, count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Stop a pack after some of the last renamings."""
    rename = Path.replace
    left = count

    def replace(path: Path, to: Path) -> Path:
        nonlocal left
        if "out-" in to.name and to.parent == target.parent:
            left -= 1
            if left < 0:
                raise _Stop
        return rename(path, to)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "replace", replace)
        with pytest.raises(_Stop):
            pack(source, target, shard_size=8192)


def test_half_of_the_shards_is_no_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before all shards are at their places, opening them together is an error with the way out."""
    source, target = make_source(tmp_path / "source"), tmp_path / "out.tar"
    _half_moved(source, target, 2, monkeypatch)
    assert (tmp_path / "out-00000.tar").exists()

    with pytest.raises(StoreError, match=r"not finished.*pack, once more"):
        open_store(target)
    pack(source, target, shard_size=8192)
    with open_store(target) as store:
        assert len(store) == 8


def test_beginning_again_after_half_of_the_renamings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What that pack has put there is removed; a file of somebody else stops it before that."""
    source, target = make_source(tmp_path / "source"), tmp_path / "out.tar"
    _half_moved(source, target, 2, monkeypatch)
    mine = tmp_path / "out-00007.tar.fdx"
    mine.write_bytes(b"mine")
    before = sums(tmp_path)

    with pytest.raises(FileExistsError, match=r"out-00007\.tar\.fdx"):
        pack(source, target, shard_size=8192, start_over=True)
    assert sums(tmp_path) == before
    mine.unlink()
    assert pack(source, target, start_over=True).resumed == 0
    assert not list(tmp_path.glob("out-*"))


def test_a_whole_pack_is_not_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Stopped while it tidied up, a pack is whole: `start_over` leaves it."""
    source, target = make_source(tmp_path / "source"), tmp_path / "out.tar"

    def stopped(_place: Place) -> None:
        raise _Stop

    with monkeypatch.context() as patch:
        patch.setattr(Place, "remove", stopped)
        with pytest.raises(_Stop):
            pack(source, target)

    with pytest.raises(FileExistsError, match="is whole"):
        pack(source, target, start_over=True)
    assert target.exists()
    assert not list(tmp_path.glob(".*"))


def test_a_list_of_somebody_else(tmp_path: Path) -> None:
    """``DST.bad.csv`` that was there before is not touched."""
    source = make_source(tmp_path / "source")
    mine = tmp_path / "out.tar.bad.csv"
    mine.write_text("mine")

    for start_over in (False, True):
        with pytest.raises(FileExistsError, match=r"bad\.csv is there already"):
            pack(source, tmp_path / "out.tar", start_over=start_over)
        assert mine.read_text() == "mine"


@pytest.mark.skipif(os.name == "nt", reason="links need a privilege there")
def test_a_link_that_leads_nowhere(tmp_path: Path) -> None:
    """It is something at the place, too."""
    source = make_source(tmp_path / "source")
    (tmp_path / "out.tar").symlink_to(tmp_path / "nothing")

    with pytest.raises(FileExistsError, match=r"out\.tar is there already"):
        pack(source, tmp_path / "out.tar")


def test_no_folders_are_left(tmp_path: Path) -> None:
    """A pack that comes to nothing takes the folders away that it has made."""
    with pytest.raises(FileNotFoundError):
        pack(tmp_path / "none", tmp_path / "a" / "b" / "out.tar")
    with pytest.raises(ValueError, match="no source"):
        pack("", tmp_path / "a" / "out.tar")
    assert not list(tmp_path.iterdir())
