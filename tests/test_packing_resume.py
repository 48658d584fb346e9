"""`pack` that was stopped and goes on, or is refused to."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from packed import make_source, sums

from fastdecode.packing import _pack, pack
from fastdecode.packing._lock import Locked, Refused, locked
from fastdecode.packing._output import Place
from fastdecode.packing._pack import Work
from fastdecode.packing._rewrite import Outcome
from fastdecode.stores.folder import FileStore


@pytest.fixture(autouse=True)
def _often(monkeypatch: pytest.MonkeyPatch) -> None:
    """Write every item down on its own."""
    monkeypatch.setattr(_pack, "EVERY_S", 0)


class _Stop(Exception):
    pass


def _stopped(monkeypatch: pytest.MonkeyPatch, source: Path, target: Path, **options: Any) -> None:
    """Pack the first three items of a source."""
    work = Work.__call__

    def some(self: Work, index: int) -> Outcome:
        if index == 3:
            raise _Stop
        return work(self, index)

    with monkeypatch.context() as patch:
        patch.setattr(Work, "__call__", some)
        with pytest.raises(_Stop):
            pack(source, target, **options)


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
    """They cannot go on with what was begun without; the error names them, and the way out."""
    source, target = make_source(tmp_path / "source"), tmp_path / "out.tar"
    _stopped(monkeypatch, source, target)

    with pytest.raises(Refused, match=f"{said}.*--start-over"):
        pack(source, target, **options)
    assert pack(source, target, start_over=True, **options).resumed == 0
    assert not list(tmp_path.glob(".*"))


def test_another_source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither another source nor one that has changed is mixed with what was begun."""
    source, target = make_source(tmp_path / "source"), tmp_path / "out.tar"
    _stopped(monkeypatch, source, target)

    with pytest.raises(Refused, match="source was"):
        pack(make_source(tmp_path / "other"), target)
    (source / "cats" / "new.jpg").write_bytes((source / "cats" / "0.jpg").read_bytes())
    with pytest.raises(Refused, match="number of items was 8 and is 9"):
        pack(source, target)


def test_a_source_that_changes_meanwhile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A store that is written while it is read makes no result."""
    pack(make_source(tmp_path / "source"), tmp_path / "in.tar")
    work = Work.__call__

    def touched(self: Work, index: int) -> Outcome:
        os.utime(tmp_path / "in.tar", (index, index))
        return work(self, index)

    monkeypatch.setattr(Work, "__call__", touched)
    with pytest.raises(Refused, match=r"has changed meanwhile.*--start-over"):
        pack(tmp_path / "in.tar", tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_two_at_once(tmp_path: Path) -> None:
    """A second pack to the same place is refused while the first one works, and then free."""
    source, target = make_source(tmp_path / "source"), tmp_path / "out.tar"
    with locked(tmp_path / ".out.tar.partial"), pytest.raises(Locked, match="another process"):
        pack(source, target)

    assert pack(source, target).items == 8


def test_a_stop_between_the_last_renamings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The manifest of shards is there last; whatever was moved before, the same call goes on."""
    source = make_source(tmp_path / "source")
    (tmp_path / "whole").mkdir()
    pack(source, tmp_path / "whole" / "out.tar", shard_size=8192)
    rename = Path.replace
    for stop in range(4):
        folder = tmp_path / str(stop)
        folder.mkdir()
        left = stop

        def replace(path: Path, target: Path) -> Path:
            nonlocal left
            if path.parent.parent.name == ".out.tar.partial":
                left -= 1
                if left < 0:
                    raise _Stop
            return rename(path, target)

        with monkeypatch.context() as patch:
            patch.setattr(Path, "replace", replace)
            with pytest.raises(_Stop):
                pack(source, folder / "out.tar", shard_size=8192)
        assert not (folder / "out.tar.json").exists()

        pack(source, folder / "out.tar", shard_size=8192)

        assert sums(folder) == sums(tmp_path / "whole")


def test_a_spool_that_was_damaged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Bytes that are not those that were written are no part of a result; nor is a shorter file."""
    source, target = make_source(tmp_path / "source"), tmp_path / "out"
    spool = tmp_path / ".out.partial" / "spool-00000"
    _stopped(monkeypatch, source, target)
    data = bytearray(spool.read_bytes())
    data[100] ^= 1
    spool.write_bytes(data)

    with pytest.raises(OSError, match=r"not those that were written.*--start-over"):
        pack(source, target)
    spool.write_bytes(b"")
    with pytest.raises(OSError, match=r"has become shorter.*--start-over"):
        pack(source, target)
    assert pack(source, target, start_over=True).items == 8


def test_what_cannot_be_read_now(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An error of disk or network is no verdict on the item: it ends the pack, which can go on."""
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


def test_leftovers_without_a_journal(tmp_path: Path) -> None:
    """Killed before anything was written down, it begins anew over what is there."""
    source, partial = make_source(tmp_path / "source"), tmp_path / ".out.tar.partial"
    (partial / "out").mkdir(parents=True)
    (partial / "out" / "out.tar").write_bytes(b"half")
    (partial / "spool-00000").write_bytes(b"half of something else")
    (partial / "journal").write_bytes(b'0a1b2c3d {"asked": ')

    assert pack(source, tmp_path / "out.tar").items == 8
    assert not list(tmp_path.glob(".*"))


def test_it_is_finished_only_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Stopped while it tidies up, it is done: the next call finds that, and changes nothing."""
    source, target = make_source(tmp_path / "source"), tmp_path / "out.tar"

    def stopped(_place: object) -> None:
        raise _Stop

    with monkeypatch.context() as patch:
        patch.setattr(Place, "remove", stopped)
        with pytest.raises(_Stop):
            pack(source, target)
    before = sums(tmp_path)["out.tar"]

    assert pack(source, target).items == 8
    assert sums(tmp_path)["out.tar"] == before
    assert json.loads((tmp_path / "out.tar.json").read_text())["items"] == 8
    assert not list(tmp_path.glob(".*"))
