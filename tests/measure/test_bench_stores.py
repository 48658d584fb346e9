"""The benchmark and `calibrate` over stores: the same items as of a folder, named by their keys."""

from __future__ import annotations

import importlib.util
import pickle
from pathlib import Path

import pytest
from benches import DECODE, QUICK, WRONG_ARGUMENT, bench, bench_result, photo
from corpus import usable_backends

from fastdecode.cli import main
from fastdecode.errors import StoreError
from fastdecode.measure import _collection as files
from fastdecode.stores import create_store

COUNT = 5


def write(location: Path, count: int = COUNT, *, damaged: tuple[int, ...] = ()) -> Path:
    """Write small JPEGs into a store of the kind that the suffix says."""
    with create_store(location) as writer:
        for number in range(count):
            data = photo(40 + number)
            writer.add(f"cat/{number}.jpg", data[:9] if number in damaged else data, number)
    return location


@pytest.fixture
def tar(tmp_path: Path) -> Path:
    """Write five photos into a tar."""
    return write(tmp_path / "train.tar")


@pytest.mark.parametrize(
    ("suffix", "library"), [(".tar", ""), (".lmdb", "lmdb"), (".h5", "h5py"), (".rec", "")]
)
def test_stores_are_found_by_their_suffix(tmp_path: Path, suffix: str, library: str) -> None:
    """Each item has its key, header, size and bytes; what is sent to a process has them too."""
    if library:
        pytest.importorskip(library)
    location = write(tmp_path / f"train{suffix}")
    photos = files.collect([str(location)]).photos
    sent = pickle.loads(pickle.dumps(photos))

    assert [one.name for one in photos] == [f"cat/{number}.jpg" for number in range(COUNT)]
    assert [one.header.width for one in photos] == [40, 41, 42, 43, 44]
    assert [bytes(one.read()) for one in sent] == [photo(40 + number) for number in range(COUNT)]
    assert [one.size for one in photos] == [len(photo(40 + number)) for number in range(COUNT)]


def test_a_folder_of_shards_is_a_store(tmp_path: Path) -> None:
    """Shards beside their indexes are one store; beside images they are passed over."""
    for shard in range(2):
        write(tmp_path / f"{shard}.tar")
    shards = files.collect([tmp_path])
    braces = files.collect([str(tmp_path / "{0..1}.tar")])

    assert len(shards.photos) == len(braces.photos) == 2 * COUNT
    (tmp_path / "a.jpg").write_bytes(photo())
    beside = files.collect([tmp_path])
    assert [one.name for one in beside.photos] == ["a.jpg"]
    assert beside.not_images >= 2


def test_the_limit_is_drawn_over_all(tmp_path: Path, tar: Path) -> None:
    """Items of a store and files are drawn alike, the same each time; a store counts once."""
    (tmp_path / "a.jpg").write_bytes(photo())
    paths = [str(tmp_path / "a.jpg"), tar, str(tar)]
    first, second = (files.collect(paths, limit=4) for _ in range(2))
    every = files.collect(paths)

    assert [one.name for one in first.photos] == [one.name for one in second.photos]
    assert (len(first.photos), first.left_out) == (4, 2)
    assert sorted(one.name for one in every.photos) == [
        str(tmp_path / "a.jpg"),
        *(f"{tar}, cat/{number}.jpg" for number in range(COUNT)),
    ]


def test_damaged_items_are_listed_by_their_keys(tmp_path: Path) -> None:
    """What cannot be read is named and left out, as of a folder."""
    collection = files.collect([write(tmp_path / "train.tar", damaged=(3,))])

    assert list(collection.unreadable) == ["cat/3.jpg"]
    assert len(collection.photos) == COUNT - 1


def test_a_store_that_cannot_be_opened_is_an_error(tmp_path: Path, tar: Path) -> None:
    """One that is damaged, and one that is not there, are told in one line."""
    (tmp_path / "train.tar.fdx").unlink()
    tar.write_bytes(tar.read_bytes()[:700])

    with pytest.raises(StoreError, match=r"train\.tar"):
        files.collect([tar])
    with pytest.raises(FileNotFoundError, match=r"none\.tar"):
        files.collect([tmp_path / "none.tar"])
    for path in (tar, tmp_path / "none.tar"):
        done = bench(path, *DECODE)
        assert done.returncode == WRONG_ARGUMENT
        assert done.stderr.startswith("python -m fastdecode.bench: error: ")
        assert path.name in done.stderr
        assert "Traceback" not in done.stderr


def test_an_empty_store_has_no_images(tmp_path: Path) -> None:
    """It is as an empty folder."""
    done = bench(write(tmp_path / "empty.tar", 0), *DECODE)

    assert done.returncode == WRONG_ARGUMENT
    assert "no readable images in" in done.stderr


def test_a_store_is_read(tar: Path) -> None:
    """All items are read and made batches of; of the pipelines, DALI's alone reads no stores."""
    torch = importlib.util.find_spec("torch") is not None
    protocols = {"file", *(("train",) if torch else ())}
    asked = ("--protocol", ",".join(sorted(protocols)), "--backend", "pillow")
    result = bench_result(tar, *QUICK, *asked)
    names = {one.backend for one in result.measurements if one.protocol == "train"}

    assert result.collection.images == COUNT
    assert {one.protocol for one in result.measurements} == protocols
    assert {one.files for one in result.measurements} == {COUNT}
    if torch:
        assert {"loader", "dataset", "pillow"} <= names
        assert "dali" not in names
        assert any("Not measured: DALI" in note for note in result.notes)


@pytest.mark.skipif(
    len({"simplejpeg", "opencv", "turbojpeg", "jpeg4py"} & set(usable_backends())) < 1,
    reason="with Pillow alone there is nothing to compare",
)
def test_calibrating_with_a_store(
    tar: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """`calibrate` measures with its items; one that cannot be opened is an error."""
    arguments = ["--quick", "--seconds", "0.01", "--no-save"]

    assert main(["calibrate", *arguments, str(tar)]) == 0
    assert "jpeg" in capsys.readouterr().out
    with pytest.raises(SystemExit) as ended:
        main(["calibrate", *arguments, str(tmp_path / "none.tar")])
    assert ended.value.code == WRONG_ARGUMENT
    assert "none.tar" in capsys.readouterr().err
