"""Tests of `pack` after an earlier run: it goes on, refuses to, or begins again."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from packed import KINDS, Stop, checksums, make_source, name_of, stop_pack_at

from fastdecode.packing import BadItems, _output, _pack, _unfinished, pack
from fastdecode.packing._output import OutputPaths
from fastdecode.packing._rewrite import Outcome, Work
from fastdecode.packing._unfinished import CannotResume, Unfinished
from fastdecode.stores import create_store, open_store
from fastdecode.stores.folder import FileStore
from fastdecode.testing import drawing, encode

SHARDS: dict[str, Any] = {"shard_size": 8000}
"""Makes a shard of each item of `make_source`."""


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return make_source(tmp_path / "source")


@pytest.fixture
def begun(source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Stop a pack to ``out.tar`` at its sixth item, with five complete shards."""
    stop_pack_at(5, monkeypatch, source, tmp_path / "out.tar", **SHARDS)
    return tmp_path / ".out.tar.partial"


def whole(source: Path, **options: Any) -> dict[str, str]:
    """Return the checksums of a pack that nothing has interrupted."""
    folder = source.parent / "whole"
    folder.mkdir()
    pack(source, folder / "out.tar", **SHARDS, **options)
    return checksums(folder)


def packed_files(folder: Path) -> dict[str, str]:
    return {name: found for name, found in checksums(folder).items() if name[:3] == "out"}


@pytest.mark.parametrize("kind", KINDS)
def test_without_shards_nothing_is_left(
    kind: str, source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A store without shards begins again, also with other options, and leaves no work behind."""
    target = tmp_path / name_of(kind)
    stop_pack_at(5, monkeypatch, source, target)

    assert sorted(path.name for path in tmp_path.iterdir()) == ["source"]
    assert pack(source, target, max_side=20).resumed == 0


def _damaged(name: str, change: Callable[[bytes], bytes | None]) -> Callable[[Path], object]:
    """Return a function that changes or removes a file of the work folder."""

    def damage(folder: Path) -> None:
        file = folder / ".out.tar.partial" / name
        data = change(file.read_bytes())
        file.unlink() if data is None else file.write_bytes(data)

    return damage


def _flip(data: bytes) -> bytes:
    return data[:600] + bytes([data[600 % len(data)] ^ 1]) + data[601:]


@pytest.mark.parametrize(
    ("change", "resumed"),
    [
        (lambda _: None, 4),
        (_damaged("out-00001.tar", _flip), 1),
        (_damaged("out-00001.tar", lambda data: data[:2000]), 1),
        (_damaged("out-00001.tar", lambda _: None), 1),
        (_damaged("out-00001.tar.fdx", _flip), 4),
        (_damaged("journal", lambda data: data[:-9]), 3),
    ],
)
def test_whole_shards_are_kept(
    source: Path, tmp_path: Path, begun: Path, change: Callable[[Path], object], resumed: int
) -> None:
    """The same call goes on after the last shard before any damage, and makes the same bytes."""
    change(tmp_path)
    kept = {at: begun / f"out-{at:05d}.tar" for at in range(resumed)}
    before = {path.name: path.stat().st_mtime_ns for path in kept.values()}

    packed = pack(source, tmp_path / "out.tar", **SHARDS)

    assert (packed.resumed, packed.items, packed.empty_classes) == (resumed, 8, [])
    assert {name: (tmp_path / name).stat().st_mtime_ns for name in before} == before
    assert packed_files(tmp_path) == whole(source)
    assert not begun.exists()


def _add_item(folder: Path) -> None:
    shutil.copy(folder / "source" / "cats" / "0.jpg", folder / "source" / "cats" / "new.jpg")


def _change_item(folder: Path) -> None:
    (folder / "source" / "dogs" / "drawn.png").write_bytes(encode(drawing(33, 22)))


def _replace_source(folder: Path) -> None:
    (folder / "source").rename(folder / "old")
    (folder / "source").symlink_to(make_source(folder / "other"))


@pytest.mark.parametrize(
    ("change", "options", "said"),
    [
        (lambda _: None, {"max_side": 20}, "max_side was None and is 20"),
        (lambda _: None, {"shard_size": 5000}, "shard_size was 8000 and is 5000"),
        (lambda _: None, {"max_pixels": None}, "max_pixels was 178956970 and is None"),
        (_add_item, {}, "number of items was 8 and is 9"),
        (_change_item, {}, "size and time of the source was"),
        (_replace_source, {}, "source was"),
        (_damaged("journal", lambda data: data + b"{\n"), {}, "is damaged: remove "),
        (_damaged("journal", lambda data: data + b'{"odd": 1}\n'), {}, "is damaged: remove "),
    ],
)
def test_pack_of_something_else_cannot_resume(
    source: Path,
    tmp_path: Path,
    begun: Path,
    change: Callable[[Path], object],
    options: dict[str, Any],
    said: str,
) -> None:
    """With other options, another source or a damaged journal nothing goes on or is removed."""
    change(tmp_path)
    before = checksums(begun)

    with pytest.raises(CannotResume, match=f"{begun}.*{said}"):
        pack(source, tmp_path / "out.tar", **{**SHARDS, **options})
    assert checksums(begun) == before
    shutil.rmtree(begun)
    assert pack(source, tmp_path / "out.tar", **SHARDS).resumed == 0


@pytest.mark.parametrize("place", ["list.csv", "in-*.tar"])
def test_changed_files_of_a_list_or_of_shards_cannot_resume(tmp_path: Path, place: str) -> None:
    """A file of a list that was missing in the first run has changed; so has a touched shard."""
    for number in range(2):
        with create_store(tmp_path / f"in-{number}.tar") as writer:
            writer.add(f"{number}.jpg", encode(drawing(20, 20)))
            writer.add(f"{number}-bad.jpg", b"no image")
    (tmp_path / "old.jpg").write_bytes(encode(drawing(20, 20)))
    (tmp_path / "list.csv").write_text("old.jpg\nnew.jpg\n")
    with pytest.raises(BadItems):
        pack(tmp_path / place, tmp_path / "out.tar", **SHARDS)
    shutil.copy(tmp_path / "old.jpg", tmp_path / "new.jpg")
    os.utime(tmp_path / "in-1.tar", (1, 1))

    with pytest.raises(CannotResume, match="size and time of the source"):
        pack(tmp_path / place, tmp_path / "out.tar", skip_bad=True, **SHARDS)


def test_bad_items_keep_the_shards(tmp_path: Path) -> None:
    """Complete shards are kept if there are bad items; ``skip_bad`` has nothing left to do."""
    source, target = make_source(tmp_path / "source", damaged=True), tmp_path / "out.tar"
    with pytest.raises(BadItems):
        pack(source, target, **SHARDS)
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        ".out.tar.partial",
        "out.tar.bad.csv",
        "source",
    ]

    packed = pack(source, target, skip_bad=True, **SHARDS)

    assert (packed.resumed, packed.items, len(packed.bad)) == (10, 8, 2)
    assert packed_files(tmp_path) == whole(source, skip_bad=True)


def test_repaired_item_is_packed(tmp_path: Path) -> None:
    """An item that is repaired, or bad for another reason, counts as it is now."""
    source, target = make_source(tmp_path / "source", damaged=True), tmp_path / "out.tar"
    with pytest.raises(BadItems, match="2 of 10"):
        pack(source, target)
    (source / "dogs" / "empty.jpg").write_bytes(b"no image")
    with pytest.raises(BadItems, match="2 of 10"):
        pack(source, target)
    assert "not an image" in (tmp_path / "out.tar.bad.csv").read_text()
    (source / "cats" / "1-cut.jpg").write_bytes(encode(drawing(33, 22)))
    (source / "dogs" / "empty.jpg").write_bytes(encode(drawing(34, 22)))

    packed = pack(source, target)

    assert (packed.resumed, packed.items) == (0, 10)
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


@pytest.mark.parametrize("options", [{}, SHARDS])
def test_source_that_changes_during_the_pack_is_an_error(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: dict[str, Any]
) -> None:
    """A source that changes during the pack is an error, and no store is made."""
    pack(source, tmp_path / "in.tar")
    work = Work.__call__

    def touched(self: Work, index: int) -> Outcome:
        os.utime(tmp_path / "in.tar", (index, index))
        return work(self, index)

    monkeypatch.setattr(Work, "__call__", touched)
    with pytest.raises(CannotResume, match=r"in\.tar has changed meanwhile.*partial"):
        pack(tmp_path / "in.tar", tmp_path / "out.tar", **options)
    assert not list(tmp_path.glob("out*"))


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


def _locked(folder: Path) -> Unfinished:
    """Begin to work in the folder of a pack to ``out.tar``."""
    return Unfinished(OutputPaths(str(folder / "out.tar"), "tar", sharded=True))


def test_second_pack_at_once_is_refused(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A second pack to one place is refused while the first runs, and allowed afterwards.

    A pack that ends while another one waits for its lock removes the folder, which is made anew.
    """
    lock, removed = _unfinished._lock, []

    def ending(file: Any, folder: Path) -> None:
        if not removed:
            removed.append(shutil.rmtree(folder))
            folder.mkdir(0o700)
            (folder / "journal").touch()
        lock(file, folder)

    monkeypatch.setattr(_unfinished, "_lock", ending)
    with _locked(tmp_path), pytest.raises(CannotResume, match="another process"):
        pack(source, tmp_path / "out.tar")
    assert pack(source, tmp_path / "out.tar").items == 8


@pytest.mark.parametrize(
    "journal", [None, b"", b'{"fast', b'{"fastdecode": "0.1"}\n"cats/1.jpg"\n"c']
)
def test_leftovers_of_a_kill_are_removed(
    source: Path, tmp_path: Path, journal: bytes | None
) -> None:
    """What a killed pack has recorded, or was about to, is removed, whatever it is."""
    partial = tmp_path / ".out.tar.partial"
    partial.mkdir(mode=0o700)
    if journal is not None:
        (partial / "journal").write_bytes(journal)
    if journal and b"\n" in journal:
        (partial / ".out.tar.0a1b2c3d.partial" / "cats").mkdir(parents=True)
        (partial / ".out.tar.0a1b2c3d.partial" / "cats" / "1.jpg").touch()
        for name in ("out.tar", ".out.tar.fdx.0a1b2c3d", "out.tar.bad.csv"):
            (partial / name).write_bytes(b"half")

    assert pack(source, tmp_path / "out.tar").items == 8
    assert not partial.exists()


def _own_folder(work: Path) -> None:
    work.mkdir()
    (work / "journal").write_text('{"fastdecode": "0.1"}\n')


def _made(work: Path, name: str, *, own: bool = True) -> None:
    """Put a file of the user's into the work folder, which is one of pack if `own`."""
    if own:
        _own_folder(work)
    (work / name).parent.mkdir(parents=True, exist_ok=True)
    (work / name).write_text("mine")


def _linked(work: Path, name: str) -> None:
    """Let one of the names in the work folder, or itself (""), be a link to a file or folder."""
    victim = work.parent / "victim"
    _made(victim, "notes")
    _made(victim, "out.tar.json", own=False)
    if name:
        _own_folder(work)
        (work / name).unlink(missing_ok=True)
        (work / name).symlink_to(victim / ("journal" if name == "journal" else "notes"))
    else:
        work.symlink_to(victim)


_FOREIGN: dict[str, Callable[[Path], object]] = {
    "a folder": lambda work: _made(work, "notes", own=False),
    "an empty folder": lambda work: work.mkdir(mode=0o755),
    "with the manifest": lambda work: _made(work, "out.tar.json", own=False),
    "with another journal": lambda work: _made(work, "journal", own=False),
    "a file": lambda work: work.write_text("mine"),
    "a file in ours": lambda work: _made(work, "notes"),
    "a folder in ours": lambda work: _made(work, "out.tar/notes"),
    "a link": lambda work: _linked(work, ""),
    "a linked journal": lambda work: _linked(work, "journal"),
    "a linked shard": lambda work: _linked(work, "out-00000.tar"),
    "a linked folder": lambda work: _linked(work, "out.tar"),
    "a dangling link": lambda work: work.symlink_to("nothing"),
}


@pytest.mark.skipif(os.name == "nt", reason="links need a privilege there")
@pytest.mark.parametrize("made", _FOREIGN.values(), ids=_FOREIGN)
@pytest.mark.parametrize("call", ["pack", "missing", "complete"])
def test_work_of_others_is_not_touched(
    source: Path, tmp_path: Path, made: Callable[[Path], object], call: str
) -> None:
    """A work folder that no pack has begun, or that holds more, is named and not touched."""
    made(tmp_path / ".out.tar.partial")
    if call == "complete":
        for name in ("out.tar", "out.tar.json"):
            (tmp_path / name).touch()
    before = checksums(tmp_path), sorted(tmp_path.rglob("*"))

    with pytest.raises((CannotResume, FileExistsError), match=r"\.out\.tar\.partial"):
        pack(source if call != "missing" else tmp_path / "none", tmp_path / "out.tar", **SHARDS)

    assert (checksums(tmp_path), sorted(tmp_path.rglob("*"))) == before


def test_source_in_the_work_folder_is_refused(tmp_path: Path, begun: Path) -> None:
    """What `pack` itself would remove is no source: its work folder, and its list of bad items."""
    before = checksums(tmp_path)
    for place in (begun, begun / "out-00000.tar", f"file://{begun}/out-0000{{0..1}}.tar"):
        with pytest.raises(ValueError, match="which pack writes itself"):
            pack(place, tmp_path / "out.tar", **SHARDS)
    with pytest.raises(ValueError, match="which pack writes itself"):
        pack(tmp_path / "out.tar.bad.csv", tmp_path / "out.tar")
    assert checksums(tmp_path) == before


def _stop_publishing(patch: pytest.MonkeyPatch, count: int) -> None:
    """Let packs stop before the renaming number `count`, from 0, of a finished file."""
    rename, left = Path.replace, count

    def replace(path: Path, to: Path) -> Path:
        nonlocal left
        if path.parent.name == ".out.tar.partial" and to.parent != path.parent:
            left -= 1
            if left < 0:
                raise Stop
        return rename(path, to)

    patch.setattr(Path, "replace", replace)


@pytest.mark.parametrize("stop", range(5))
def test_pack_stopped_between_renames(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stop: int
) -> None:
    """The manifest of shards is renamed last; without it, they are no store.

    The next call finishes the renaming, and then says that the place is taken.
    """
    target = tmp_path / "out.tar"
    with monkeypatch.context() as patch:
        _stop_publishing(patch, stop)
        with pytest.raises(Stop):
            pack(source, target, **SHARDS)
    assert not (tmp_path / "out.tar.json").exists()
    assert (tmp_path / "out-00000.tar").exists() == (stop >= 1)
    with pytest.raises(FileNotFoundError, match=r"out\.tar"):
        open_store(target)

    with pytest.raises(FileExistsError, match="complete"):
        pack(source, target, **SHARDS if stop % 2 else {"max_side": 20})

    assert packed_files(tmp_path) == whole(source)
    assert not list(tmp_path.glob(".*"))
    assert json.loads((tmp_path / "out.tar.json").read_text())["items"] == 8


def test_file_that_appears_meanwhile_is_not_replaced(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file that another program makes at the place during the pack is kept."""
    mine = tmp_path / "out-00003.tar"

    def meanwhile(*arguments: Any) -> None:
        _output.write_manifest(*arguments)
        mine.write_bytes(b"mine")

    monkeypatch.setattr(_pack, "write_manifest", meanwhile)
    with pytest.raises(FileExistsError, match=r"out-00003\.tar"):
        pack(source, tmp_path / "out.tar", **SHARDS)
    assert mine.read_bytes() == b"mine"
    mine.unlink()
    with pytest.raises(FileExistsError, match="complete"):
        pack(source, tmp_path / "out.tar", **SHARDS)
    assert packed_files(tmp_path) == whole(source)


def test_pack_stopped_before_it_removes_its_folder(source: Path, tmp_path: Path) -> None:
    """A pack that is killed after the last renaming is complete: the next call says so."""
    pack(source, tmp_path / "out.tar", **SHARDS)
    before = packed_files(tmp_path)
    _own_folder(tmp_path / ".out.tar.partial")

    with pytest.raises(FileExistsError, match="is complete"):
        pack(source, tmp_path / "out.tar", **SHARDS)
    assert packed_files(tmp_path) == before
    assert not list(tmp_path.glob(".*"))
