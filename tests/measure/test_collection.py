"""The images that are measured: which are found, under folders and in stores, and what is known."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest
from benches import DECODE, WRONG_ARGUMENT, bench, photo
from store_cases import make

from fastdecode.errors import StoreError
from fastdecode.measure import _collection as files

COUNT = 5


def test_photos_are_described(folder: Path) -> None:
    """For each file the name, path, header and size are known, once and sorted by name."""
    photos = files.collect([folder]).photos

    assert [one.name for one in photos] == [
        "0.jpg",
        *(str(Path("inner", f"{n}.jpg")) for n in (1, 2)),
    ]
    assert photos[0].source == str(folder / "0.jpg")
    assert photos[0].size == (folder / "0.jpg").stat().st_size
    assert (photos[0].header.width, photos[0].header.height) == (40, 30)
    named = files.collect([folder, folder / "0.jpg"]).photos
    assert [one.name for one in named] == sorted(
        [*(str(one.source) for one in photos), f"{folder}/0.jpg"]
    )


def test_pixels_limit_the_draw(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Images are drawn until they have so many pixels, but not fewer than a minimum."""
    monkeypatch.setattr(files, "_MIN_IMAGES", 1)
    found = files.collect([folder], pixels=2 * 40 * 30)

    assert len(found.photos) == 2
    assert found.summary().left_out in (1, 2)
    [least] = files.collect([folder], pixels=1).photos
    assert [least.name] == [one.name for one in files.collect([folder], limit=1).photos]


def test_summary_counts(folder: Path) -> None:
    """The summary has the totals, the most frequent format first."""
    (folder / "a.png").write_bytes(photo(10, 10, kind="PNG"))
    (folder / "empty.jpg").write_bytes(b"")
    collection = files.collect([folder])
    summary = collection.summary()

    assert (summary.images, summary.not_images) == (4, 0)
    assert summary.bytes == sum(len(one.read()) for one in collection.photos)
    assert summary.pixels == 3 * 40 * 30 + 100
    assert list(summary.formats.items()) == [("jpeg", 3), ("png", 1)]
    assert list(summary.unreadable) == ["empty.jpg"]


def write(location: Path, count: int = COUNT, *, damaged: tuple[int, ...] = ()) -> Path:
    """Write small JPEGs into a store of the kind that the suffix says."""
    data = [photo(40 + number)[: 9 if number in damaged else None] for number in range(count)]
    make(location, [(f"cat/{number}.jpg", one, number) for number, one in enumerate(data)])
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

    keys = [f"{number}" if suffix == ".rec" else f"cat/{number}.jpg" for number in range(COUNT)]
    assert [one.name for one in photos] == keys
    assert [one.header.width for one in photos] == [40, 41, 42, 43, 44]
    assert [bytes(one.read()) for one in sent] == [photo(40 + number) for number in range(COUNT)]
    assert [one.size for one in photos] == [len(photo(40 + number)) for number in range(COUNT)]


def test_shards_are_a_store(tmp_path: Path) -> None:
    """Shards are named by braces or wildcards; beside images they are passed over."""
    for shard in range(2):
        write(tmp_path / f"{shard}.tar")

    assert len(files.collect([str(tmp_path / "{0..1}.tar")]).photos) == 2 * COUNT
    with pytest.raises(ValueError, match=r"\*\.tar"):
        files.collect([tmp_path])
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "a.jpg").write_bytes(photo())
    assert [one.name for one in files.collect([tmp_path]).photos] == ["a/a.jpg"]


def test_the_limit_is_drawn_over_all(tmp_path: Path, tar: Path) -> None:
    """Items of a store and files are drawn alike, the same each time; a store counts once."""
    (tmp_path / "a.jpg").write_bytes(photo())
    paths = [str(tmp_path / "a.jpg"), tar, str(tar)]
    first, second = (files.collect(paths, limit=4) for _ in range(2))
    every = files.collect(paths)

    assert [one.name for one in first.photos] == [one.name for one in second.photos]
    assert (len(first.photos), first.summary().left_out) == (4, 2)
    assert sorted(one.name for one in every.photos) == [
        str(tmp_path / "a.jpg"),
        *(f"{tar}, cat/{number}.jpg" for number in range(COUNT)),
    ]


def test_damaged_items_are_listed_by_their_keys(tmp_path: Path) -> None:
    """What cannot be read is named and left out, as of a folder."""
    collection = files.collect([write(tmp_path / "train.tar", damaged=(3,))])

    assert list(collection.summary().unreadable) == ["cat/3.jpg"]
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
