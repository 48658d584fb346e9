"""Tests of several shards as one store: names, manifests, keys, classes and missing shards."""

from __future__ import annotations

import json
import os
import pickle
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from processes import few_files
from store_cases import make
from tars import image, numbered, write_tar

from fastdecode._error_policy import is_item_error
from fastdecode.errors import StoreError
from fastdecode.stores import Store, open_store
from fastdecode.stores.shards import expand_braces, shard_locations
from fastdecode.stores.tar.store import index_tar, open_tar

_EACH = 4


def _shards(folder: Path, count: int = 5, *, indexed: bool = True) -> list[Path]:
    paths = []
    for number in range(count):
        path = write_tar(folder / f"train-{number:05d}.tar", numbered(_EACH, begin=number * _EACH))
        if indexed:
            index_tar(path, classes=["cat", "dog"])
        paths.append(path)
    return paths


def _manifest(folder: Path, shards: list[str], **more: object) -> None:
    about = {"kind": "tar", "shards": shards, **more}
    (folder / "train.tar.json").write_text(json.dumps(about))


def _check(store: Store, count: int = 5 * _EACH) -> None:
    assert len(store) == count
    for index in (0, count - 1, _EACH, _EACH - 1, 1):
        assert store.key(index).endswith(f"{index:04d}.jpg")
        assert store.target(index) == index
        assert bytes(store.read(index)) == image(index)


@pytest.mark.parametrize(
    "pattern",
    ["train-{00000..00004}.tar", "train-*.tar", "train-0000{0,1}.tar"],
)
@pytest.mark.parametrize("index", ["beside", "elsewhere", None])
def test_shards_are_one_store(tmp_path: Path, pattern: str, index: str | None) -> None:
    """Braces and wildcards open the shards in order.

    Their indexes are next to them, in the folder of ``index=``, or nowhere.
    """
    _shards(tmp_path, indexed=index is not None)
    where: Any = {}
    if index == "elsewhere":
        where = {"index": tmp_path / "indexes"}
        with pytest.raises(FileNotFoundError, match=r"indexes/train-00000\.tar\.fdx"):
            open_store(f"{tmp_path}/{pattern}", **where)
        where["index"].mkdir()
        for path in tmp_path.glob("*.fdx"):
            path.rename(where["index"] / path.name)

    with open_store(f"{tmp_path}/{pattern}", **where) as store:
        _check(store, 2 * _EACH if "," in pattern else 5 * _EACH)
        assert list(store.classes) == (["cat", "dog"] if index else [])
        _check(pickle.loads(pickle.dumps(store)), len(store))
        with pytest.raises(IndexError, match="there is no item"):
            store.read(len(store))
    with pytest.raises(ValueError, match="closed"):
        store.read(0)


def test_a_list_of_shards_is_a_store(tmp_path: Path) -> None:
    """A list of shards, which may contain patterns, keeps its order."""
    paths = _shards(tmp_path)

    with open_tar([paths[2], f"{tmp_path}/train-0000{{0,1}}.tar"]) as store:
        assert [store.target(i) for i in range(len(store))] == [8, 9, 10, 11, *range(8)]
    with pytest.raises(ValueError, match="empty"):
        open_tar([])


@pytest.mark.parametrize("counted", [True, False])
def test_manifest_lists_the_shards(tmp_path: Path, counted: bool) -> None:
    """A manifest from `pack` decides which shards are read, their order and their counts.

    It may be named itself, also where another file has the name of its store.
    """
    paths = _shards(tmp_path)
    names = [path.name for path in paths[:3]]
    more = {"files": [{"name": name, "items": _EACH} for name in names]} if counted else {}
    _manifest(tmp_path, names, classes=["cat", "dog"], **more)

    for name in ("train.tar", "train.tar.json"):
        with open_store(tmp_path / name) as store:
            _check(store, 3 * _EACH)
            assert list(store.classes) == ["cat", "dog"]
    (tmp_path / "train.tar").write_bytes(paths[4].read_bytes())
    for manifest in (tmp_path / "train.tar.json", [tmp_path / "train.tar.json"]):
        with open_store(manifest) as store:
            _check(store, 3 * _EACH)
    with pytest.raises(FileNotFoundError, match=r"none\.tar\.json"):
        open_store(tmp_path / "none.tar.json")


def test_missing_shard_is_named(tmp_path: Path) -> None:
    """A shard that a manifest or braces promise but that is missing is named."""
    paths = _shards(tmp_path)
    _manifest(tmp_path, [path.name for path in paths])
    paths[3].unlink()

    with pytest.raises(FileNotFoundError, match=r"train-00003\.tar.*train\.tar\.json lists"):
        open_store(tmp_path / "train.tar")
    with pytest.raises(FileNotFoundError, match=r"train-00003\.tar"):
        open_store(f"{tmp_path}/train-{{00000..00004}}.tar")
    (tmp_path / "train.tar.json").unlink()
    for name in ("train.tar", "other-*.tar"):
        with pytest.raises(FileNotFoundError) as caught:
            open_store(tmp_path / name)
        assert name in str(caught.value)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{}",
        "[]",
        '{"shards": 5}',
        '{"shards": ["a"], "files": 3}',
        "[" * 100_000,
        *(f'{{"shards": ["{name}"]}}' for name in ("../a", "/a", "x/a", "..", "", "a\\u0000")),
        '{"shards": [5]}',
        *(
            f'{{"shards": ["a"], "files": [{{"name": "a", "items": {count}, "bytes": 1024}}]}}'
            for count in ("-1", "1e3", "true", "null")
        ),
    ],
)
def test_a_damaged_manifest_is_refused(tmp_path: Path, text: str) -> None:
    """A manifest that is malformed, or names files elsewhere, is an error that names it."""
    (tmp_path / "train.tar.json").write_text(text)

    with pytest.raises(StoreError, match=r"train\.tar\.json is damaged"):
        open_store(tmp_path / "train.tar")


def test_shard_that_is_replaced_by_another_count_is_an_error(tmp_path: Path) -> None:
    """A shard that has another number of items in another process is an error."""
    paths = _shards(tmp_path, 2)
    with open_store(f"{tmp_path}/train-*.tar") as store:
        sent = pickle.dumps(store)
    index_tar(write_tar(paths[1], numbered(_EACH - 1)))

    with pytest.raises(StoreError, match=r"train-00001\.tar has 3 items, where 4 were counted"):
        pickle.loads(sent).read(5)


def test_keys_begin_with_their_shard(tmp_path: Path) -> None:
    """Keys begin with the name of their shard, or with its number where names clash."""
    for name in ("a", "b"):
        write_tar(tmp_path / f"{name}.tar", numbered(2))
    (tmp_path / "d").mkdir()
    write_tar(tmp_path / "d" / "a.tar", numbered(2))

    store = open_store(f"{tmp_path}/{{a,b}}.tar")
    assert [store.key(i) for i in range(4)] == [f"{s}/000{n}.jpg" for s in "ab" for n in range(2)]
    same = open_tar([tmp_path / "a.tar", tmp_path / "d" / "a.tar"])
    assert [same.key(i) for i in (0, 2)] == ["00000/0000.jpg", "00001/0000.jpg"]


def test_classes_must_agree(tmp_path: Path) -> None:
    """Shards with images must have the same classes."""
    for name, classes, count in (("a", ["cat"], 1), ("b", ["dog"], 1), ("c", [], 0)):
        write_tar(tmp_path / f"{name}.tar", numbered(count))
        index_tar(tmp_path / f"{name}.tar", classes=classes)

    with pytest.raises(ValueError, match=r"b\.tar has other classes than .*a\.tar \(dog and cat\)"):
        open_store(f"{tmp_path}/{{a,b}}.tar")
    assert list(open_store(f"{tmp_path}/{{a,c}}.tar").classes) == ["cat"]


@pytest.mark.parametrize("indexed", [True, False])
def test_few_shards_are_open_at_once(tmp_path: Path, indexed: bool) -> None:
    """More shards than the process may open files are read, by several threads at once.

    That holds for several stores of them, also if their images are kept, and after pickling.
    """
    paths = _shards(tmp_path, 60, indexed=indexed)
    wanted = [(index * 7) % (60 * _EACH) for index in range(60 * _EACH)]
    with few_files(64):
        store = open_store(f"{tmp_path}/train-*.tar")
        with ThreadPoolExecutor(4) as threads:
            found = list(threads.map(store.read, wanted))
        copy = pickle.loads(pickle.dumps(store))
        again = [copy.read(index) for index in wanted]
        singles = [open_store(path) for path in paths]
        targets = [one.target(_EACH - 1) for one in singles]
        keys = [store.key(index) for index in wanted]

    assert list(map(bytes, found)) == list(map(bytes, again)) == [image(at) for at in wanted]
    assert targets == list(range(_EACH - 1, 60 * _EACH, _EACH))
    assert keys == [f"train-{at // _EACH:05d}/{at:04d}.jpg" for at in wanted]


NEEDED = {"t.h5": "h5py", "t.lmdb": "lmdb"}


@pytest.mark.parametrize("name", ["t.rec", "t.h5", "t.lmdb", "t.tar"])
def test_a_store_is_right_where_no_more_files_are_held(tmp_path: Path, name: str) -> None:
    """Every kind of store works where its file is opened for each read, and notices damage."""
    if name in NEEDED:
        pytest.importorskip(NEEDED[name])
    _shards(tmp_path, 30)
    path = tmp_path / name
    make(path, [(f"{number}.jpg", image(number), number) for number in range(3)])
    with few_files(64):
        held = [open_store(shard) for shard in sorted(tmp_path.glob("train-*.tar"))]
        store = open_store(path)
        assert [bytes(store.read(at)) for at in range(3)] == [image(at) for at in range(3)]
        assert [store.target(at) for at in range(3)] == [0, 1, 2]
        if name in ("t.tar", "t.rec"):
            os.truncate(path, 2000)
            with pytest.raises(StoreError, match="cut to 2000 bytes") as caught:
                store.read(2)
            assert not is_item_error(caught.value)
            path.rename(tmp_path / "moved")
            with pytest.raises(FileNotFoundError) as missing:
                store.read(0)
            assert not is_item_error(missing.value)
            path.write_bytes(bytes(9000))
            with pytest.raises(StoreError, match="replaced"):
                store.read(0)
    assert len(held) == 30


@pytest.mark.parametrize(
    ("pattern", "names"),
    [
        ("a.tar", ["a.tar"]),
        ("a{1..3}", ["a1", "a2", "a3"]),
        ("a{08..11}.x", ["a08.x", "a09.x", "a10.x", "a11.x"]),
        ("a{8..010}", ["a008", "a009", "a010"]),
        ("{2..0}", ["2", "1", "0"]),
        ("{a,b}{0..1}", ["a0", "a1", "b0", "b1"]),
        ("a{b}c{", ["a{b}c{"]),
        ("}{x,}", ["}x", "}"]),
    ],
)
def test_braces_expand_as_in_a_shell(pattern: str, names: list[str]) -> None:
    """Braces expand as in a shell: ranges keep zeros, and other braces stay."""
    assert expand_braces(pattern) == names


def test_too_many_shards_are_refused() -> None:
    """A pattern for more than a million shards is an error and does not fill the memory."""
    for pattern in ("{0..99999999}", "{0..9999}{0..9999}"):
        with pytest.raises(ValueError, match="more than 1000000"):
            expand_braces(pattern)


def test_name_of_an_existing_file_is_not_expanded(tmp_path: Path) -> None:
    """The name of an existing file is not expanded, even with braces or wildcards."""
    path = write_tar(tmp_path / "a[1]{x,y}.tar", numbered(1))

    assert shard_locations(path) == [str(path)]
    assert len(open_store(path)) == 1


def test_damage_leaves_the_other_shards_readable(tmp_path: Path) -> None:
    """Damage in one shard is an error that names it; the others are still read.

    A damaged index is an error when the shards are opened.
    """
    paths = _shards(tmp_path, 3)
    for suffix in ("", ".fdx"):
        damaged = Path(f"{paths[1]}{suffix}")
        damaged.write_bytes(bytes([damaged.read_bytes()[0] ^ 1]) + damaged.read_bytes()[1:])
        if suffix:
            with pytest.raises(StoreError, match="fdx: the index is damaged"):
                open_store(paths)
            continue
        with open_store(paths) as store:
            for good in (0, _EACH - 1, 2 * _EACH):
                assert bytes(store.read(good)) == image(good)
            with pytest.raises(StoreError, match=r"00001\.tar, item 0 \(0004\.jpg\)"):
                store.read(_EACH)
