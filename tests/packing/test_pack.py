"""Tests of the stores that `pack` writes, of its manifest and of bad items."""

from __future__ import annotations

import csv
import io
import json
import os
import sys
from argparse import ArgumentTypeError
from pathlib import Path
from typing import Any

import pytest
from corpus import CORPUS
from packed import KINDS, checksums, make_large_source, make_source, name_of
from PIL import Image
from same import assert_same
from store_cases import all_items

from fastdecode import BackendUnavailable, decode, probe
from fastdecode.cli import main
from fastdecode.native import _library
from fastdecode.packing import BadItems, pack
from fastdecode.packing._pack_command import as_bytes
from fastdecode.stores import create_store, kind_for, open_store
from fastdecode.stores.base import Keys
from fastdecode.testing import drawing, encode

needs_core = pytest.mark.skipif(_library.lib is None, reason="the native core is not built")


@pytest.mark.parametrize("kind", KINDS)
def test_bytes_keys_targets_and_order_are_kept(tmp_path: Path, kind: str) -> None:
    """A packed store of any kind has the keys, bytes, targets, classes and order of the source."""
    name = name_of(kind)
    source = make_source(tmp_path / "source")

    packed = pack(source, tmp_path / name)

    with open_store(source) as before, open_store(tmp_path / name) as after:
        assert packed.items == len(before) == 8
        assert all_items(after) == all_items(before)
        assert list(after.classes) == ["cats", "dogs"]
    assert not list(tmp_path.glob(".*"))


@pytest.mark.parametrize("kind", KINDS)
def test_the_result_does_not_depend_on_threads(tmp_path: Path, kind: str) -> None:
    """One thread and five write the same files, byte for byte."""
    name = name_of(kind)
    source = make_source(tmp_path / "source")
    for threads in (1, 5):
        (tmp_path / str(threads)).mkdir()
        pack(source, tmp_path / str(threads) / name, threads=threads, max_side=32)

    assert checksums(tmp_path / "1") == checksums(tmp_path / "5")


def test_the_manifest(tmp_path: Path) -> None:
    """The manifest has the counts, and checksums that can be recomputed."""
    source = make_source(tmp_path / "source")
    packed = pack(source, tmp_path / "out.tar")
    found = json.loads((tmp_path / "out.tar.json").read_text())

    with open_store(source) as store:
        sizes = [len(store.read(index)) for index in range(len(store))]

    assert packed.manifest == str(tmp_path / "out.tar.json")
    assert found["items"] == 8
    assert found["bytes"] == packed.bytes_out == sum(sizes)
    assert found["classes"] == ["cats", "dogs"]
    assert found["bad"] == []
    assert found["files"] == [
        {
            "name": "out.tar",
            "items": 8,
            "bytes": (tmp_path / "out.tar").stat().st_size,
            "sha256": checksums(tmp_path)["out.tar"],
        }
    ]


@pytest.mark.parametrize("kind", KINDS)
def test_checksums_of_large_files(tmp_path: Path, kind: str) -> None:
    """The manifest's checksums cover all bytes of large files."""
    name = name_of(kind)
    target = "x" * (3 << 20) if kind == "tar" else 7  # a tar has much data after the last image
    with create_store(tmp_path / "source.tar") as writer:
        for number in range(2):
            writer.add(f"{number}.bmp", encode(drawing(700, 600 + number), "bmp"), target)

    pack(tmp_path / "source.tar", tmp_path / name)

    files = json.loads((tmp_path / f"{name}.json").read_text())["files"]
    found = checksums(tmp_path)
    assert [found[file["name"]] for file in files] == [file["sha256"] for file in files]
    assert [file["bytes"] for file in files] == [
        (tmp_path / file["name"]).stat().st_size for file in files
    ]
    assert kind == "folder" or max(file["bytes"] for file in files) > 2 << 20


def test_the_list_of_bad_items_is_csv(tmp_path: Path) -> None:
    """Every bad item is one row for Python's csv, even with commas or newlines in its key."""
    (tmp_path / "source").mkdir()
    names = ['a,"b".jpg', "c\nd.jpg", "=e.jpg", "f;g'.jpg", " h.jpg"]
    for name in names:
        (tmp_path / "source" / name).write_bytes(b"none")
    with pytest.raises(BadItems):
        pack(tmp_path / "source", tmp_path / "out.tar")

    with (tmp_path / "out.tar.bad.csv").open(newline="") as file:
        heading, *rows = csv.reader(file)

    assert heading == ["key", "reason"]
    assert sorted(key for key, _ in rows) == sorted(
        ['a,"b".jpg', "c\\nd.jpg", "'=e.jpg", "f;g'.jpg", " h.jpg"]
    )
    assert all("not an image" in reason for _, reason in rows)


def test_shards(tmp_path: Path) -> None:
    """A shard exceeds ``shard_size`` only with a single item; `open_store` opens all as one."""
    source = make_source(tmp_path / "source")
    most = 8192

    packed = pack(source, tmp_path / "out.tar", shard_size=most)

    given = [path.stat().st_size for path in source.glob("*/*")]
    assert (packed.items, packed.bytes_in, packed.bytes_out) == (len(given), *[sum(given)] * 2)
    assert len(packed.shards) > 1
    assert packed.shards == sorted(map(str, tmp_path.glob("out-*.tar")))
    for shard in packed.shards:
        with open_store(shard) as store:
            assert Path(shard).stat().st_size <= most or len(store) == 1
    with open_store(source) as before, open_store(tmp_path / "out.tar") as after:
        assert all_items(after) == all_items(before)


def test_bad_items_stop_the_pack(tmp_path: Path) -> None:
    """Bad items stop `pack` and are listed with reasons; ``skip_bad=True`` packs the others."""
    source, target = make_source(tmp_path / "source", damaged=True), tmp_path / "out.tar"

    with pytest.raises(BadItems, match=r"2 of 10 items are bad.*--skip-bad"):
        pack(source, target)
    with (tmp_path / "out.tar.bad.csv").open(newline="") as file:
        listed = list(csv.DictReader(file))
    assert [row["key"] for row in listed] == ["cats/1-cut.jpg", "dogs/empty.jpg"]
    assert "missing" in listed[0]["reason"] or "premature" in listed[0]["reason"].lower()
    assert not target.exists()

    assert pack(source, target, skip_bad=True).items == len(open_store(target)) == 8
    assert json.loads((tmp_path / "out.tar.json").read_text())["bad"] == listed
    for path in source.glob("*/*"):
        path.write_bytes(b"none")
    with pytest.raises(BadItems, match="there are no others"):
        pack(source, tmp_path / "none.tar", skip_bad=True)


def test_image_beyond_the_limit_is_bad(tmp_path: Path) -> None:
    """An image of more pixels than ``max_pixels`` is bad; a higher limit packs and shrinks it."""
    source = make_large_source(tmp_path / "source")

    with pytest.raises(BadItems) as caught:
        pack(source, tmp_path / "out.tar")
    assert caught.value.packed is not None
    ((key, why),) = caught.value.packed.bad
    assert key == "large.jpg"
    assert "15000 x 12000" in why
    assert "max_pixels" in why
    packed = pack(source, tmp_path / "small.tar", max_pixels=200_000_000, max_side=100)

    assert packed.notes == {"shrunk": 1}
    with open_store(tmp_path / "small.tar") as store, io.BytesIO(store.read(0)) as file:
        image = Image.open(file)
        assert image.size == (100, 80)


@needs_core
@pytest.mark.parametrize("size", [None, 5000])
def test_restart_markers(tmp_path: Path, size: int | None) -> None:
    """JPEGs get restart markers and keep their pixels; those refused are unchanged and counted."""
    source = make_source(tmp_path / "source")
    odd = CORPUS / "jpeg_kinds" / "jpeg_decoder__extraneous-data.jpg"
    (source / "dogs" / "odd.jpg").write_bytes(odd.read_bytes())

    packed = pack(source, tmp_path / "out.tar", restart_markers=True, shard_size=size)

    assert len(packed.shards) > 3 or size is None
    assert packed.notes == {"restart markers": 6, "no restart markers": 1}
    with open_store(source) as before, open_store(tmp_path / "out.tar") as after:
        for index in range(len(after)):
            old, new = before.read(index), after.read(index)
            assert_same(decode(old), decode(new), after.key(index))
            if after.key(index).endswith("odd.jpg") or probe(old).format != "jpeg":
                assert bytes(old) == bytes(new)
            else:
                assert probe(new).restart_interval


def test_restart_markers_needs_the_core(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the core disabled, ``restart_markers=True`` is an error before any work."""
    make_source(tmp_path / "source")
    monkeypatch.setenv("FASTDECODE_DISABLE", "native")
    with pytest.raises(BackendUnavailable):
        pack(tmp_path / "source", tmp_path / "new" / "out.tar", restart_markers=True)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["source"]


@pytest.mark.parametrize(
    ("name", "options", "said"),
    [
        ("out.csv", {}, "can be read, but not written"),
        ("out", {"shard_size": 1000}, "only a tar store has shards"),
        ("out.tar", {"max_side": 0}, "max_side"),
        ("out.tar", {"max_side": 256.0}, "max_side"),
        ("out.tar", {"quality": 101}, "quality"),
        ("out.tar", {"quality": 85.0}, "quality"),
        ("out.tar", {"shard_size": "500MB"}, "shard_size"),
        ("out.tar", {"shard_size": True}, "shard_size"),
        ("out.tar", {"threads": "a"}, "threads"),
        ("out.tar", {"shard_size": 0}, "shard_size"),
        ("out.tar", {"max_pixels": 0}, "max_pixels"),
        ("out.tar", {"threads": 0}, "threads"),
        ("source/out.tar", {}, "lies inside"),
        ("out", {"kind": "nosuch"}, "no kind of store 'nosuch'"),
        ("out.lmdb", {"kind": "tar"}, "could not be opened as a tar store"),
        ("s3://bucket/out.tar", {}, "not a local path"),
    ],
)
def test_wrong_arguments(tmp_path: Path, name: str, options: dict[str, Any], said: str) -> None:
    """Wrong arguments are refused and leave no files."""
    source = make_source(tmp_path / "source")

    with pytest.raises(ValueError, match=said):
        pack(source, name if "://" in name else tmp_path / name, **options)
    assert not list(tmp_path.rglob("*.partial"))


@pytest.mark.parametrize("is_link", [False, True])
@pytest.mark.parametrize(
    ("name", "size"),
    [("out.tar", None), ("out.tar.json", None), ("out.tar.bad.csv", None), ("out-00003.tar", 1000)],
)
def test_nothing_is_overwritten(tmp_path: Path, name: str, size: int | None, is_link: bool) -> None:
    """`pack` never overwrites an existing store, manifest, list or shard, or a dangling link."""
    source, mine = make_source(tmp_path / "source"), tmp_path / name
    mine.symlink_to("nothing") if is_link else mine.write_bytes(b"mine")

    with pytest.raises(FileExistsError, match=f"{name} is (there already|a link)"):
        pack(source, tmp_path / "out.tar", shard_size=size)
    assert mine.is_symlink() if is_link else mine.read_bytes() == b"mine"


def test_no_folders_are_left(tmp_path: Path) -> None:
    """A pack that fails at once removes the folders that it created."""
    with pytest.raises(FileNotFoundError):
        pack(tmp_path / "none", tmp_path / "a" / "b" / "out.tar")
    with pytest.raises(ValueError, match="no source"):
        pack("", tmp_path / "a" / "out.tar")
    assert not list(tmp_path.iterdir())


def test_item_that_the_store_cannot_hold_is_bad(tmp_path: Path) -> None:
    """A key that needs a folder where the store has a file is a bad item, and can be skipped."""
    with create_store(tmp_path / "in.tar") as writer:
        data = make_source(tmp_path / "source").joinpath("cats", "0.jpg").read_bytes()
        writer.add("a.jpg", data)
        writer.add("a.jpg/b.jpg", data)

    with pytest.raises(BadItems, match="1 of 2 items"):
        pack(tmp_path / "in.tar", tmp_path / "out")
    packed = pack(tmp_path / "in.tar", tmp_path / "out", skip_bad=True)
    ((key, why),) = packed.bad
    assert key == "a.jpg/b.jpg"
    assert "'a.jpg' is a file" in why


def test_sizes_are_parsed() -> None:
    """Sizes are parsed with decimal and binary units, and a missing unit is an error."""
    assert as_bytes("500MB") == 500_000_000
    assert as_bytes("1.5 gib") == 3 << 29
    assert as_bytes("4096 B") == 4096
    assert kind_for("x/TRAIN.TAR") == "tar"
    for text in ("", "MB", "-1", "1 XB", "10 items", "\u0664GB"):
        with pytest.raises(ArgumentTypeError, match="not a size"):
            as_bytes(text)
    for text in ("4", "1.5"):
        with pytest.raises(ArgumentTypeError, match=f"{text} has no unit: {text}GB"):
            as_bytes(text)
    with pytest.raises(ArgumentTypeError, match="more than any file"):
        as_bytes("9" * 400 + "B")


@pytest.mark.parametrize("kind", KINDS)
def test_repeated_keys_are_bad(tmp_path: Path, kind: str) -> None:
    """The second item with a key is bad in stores of every kind, and can be skipped."""
    name = name_of(kind)
    source = make_source(tmp_path / "source")
    (source / "list.csv").write_text("cats/0.jpg,1\ncats/1.jpg,0\ncats/0.jpg,1\n")

    with pytest.raises(BadItems, match="1 of 3 items"):
        pack(source / "list.csv", tmp_path / name)
    packed = pack(source / "list.csv", tmp_path / name, skip_bad=True)

    ((key, why),) = packed.bad
    assert key == "cats/0.jpg"
    assert why == "the key 'cats/0.jpg' is there already"  # without the path of the work folder
    with open_store(tmp_path / name) as store:
        assert [store.key(index) for index in range(len(store))] == ["cats/0.jpg", "cats/1.jpg"]


def test_keys_must_fit_file_names() -> None:
    """A folder refuses keys that are too long or clash with a file or folder."""
    keys = Keys(files=True, reserved="own")
    for key in ("a/b.jpg", "c.jpg"):
        keys.check(key)
        keys.add(key)

    for key, said in [
        ("a", "there already"),
        ("a//b.jpg", "relative path"),
        ("c.jpg/d.jpg", "needs a folder where 'c.jpg' is a file"),
        ("x" * 256, "too long"),
        ("/".join(["x" * 200] * 20), "too long"),
        ("own", "name of the index"),
        ("../x", "relative path"),
        ("a\\b", "relative path"),
        (os.fsdecode(b"\xff.jpg") if sys.platform == "linux" else "\udcff.jpg", "not UTF-8"),
    ]:
        with pytest.raises(ValueError, match=said):
            keys.check(key)


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux has such names")
def test_names_that_are_not_utf8(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A file whose name is not UTF-8 is bad for `pack` and good for `check`; both continue."""
    source = make_source(tmp_path / "source")
    name = os.fsencode(source / "cats") + b"/\xff.jpg"
    Path(os.fsdecode(name)).write_bytes(encode(drawing(20, 20)))

    assert main(["check", str(source), "--csv", str(tmp_path / "found.csv")]) == 0
    with (tmp_path / "found.csv").open(newline="", encoding="utf-8") as file:
        found = {row["key"]: row for row in csv.DictReader(file)}
    assert found["cats/\\udcff.jpg"]["status"] == "good"
    for target in ("out.tar", "out"):
        command = [str(source), str(tmp_path / target), "--max-side", "30"]
        assert main(["pack", *command]) == 1
        assert main(["pack", *command, "--skip-bad"]) == 0
        (bad,) = json.loads((tmp_path / f"{target}.json").read_text("utf-8"))["bad"]
        assert bad["key"] == "cats/\\udcff.jpg"
    capsys.readouterr()


def test_image_too_long_for_jpeg_is_bad(tmp_path: Path) -> None:
    """An image too long for a JPEG is a bad item and does not end the pack."""
    source = tmp_path / "source"
    source.mkdir()
    file = io.BytesIO()
    Image.new("RGB", (70000, 1)).save(file, "png")
    (source / "long.png").write_bytes(file.getvalue())
    (source / "short.jpg").write_bytes(encode(drawing(20, 20)))

    packed = pack(source, tmp_path / "out.tar", max_side=66000, skip_bad=True)

    ((key, why),) = packed.bad
    assert key == "long.png"
    assert "cannot be encoded as jpeg" in why
    assert "66000 x 1" in why


def test_a_class_without_images(tmp_path: Path) -> None:
    """A class without images keeps its folder."""
    source = make_source(tmp_path / "source")
    for path in (source / "cats").iterdir():
        path.write_bytes(b"no image")

    assert main(["pack", str(source), str(tmp_path / "out"), "--skip-bad"]) == 0

    assert sorted(path.name for path in (tmp_path / "out").iterdir() if path.is_dir()) == [
        "cats",
        "dogs",
    ]
    with open_store(tmp_path / "out") as store:
        assert list(store.classes) == ["cats", "dogs"]
    (entry,) = json.loads((tmp_path / "out.json").read_text())["files"]
    assert entry["name"] == "out/fastdecode.fdx"


def test_wildcards_in_a_name(tmp_path: Path) -> None:
    """Shards with a bracket in their name can be opened by that name."""
    source = make_source(tmp_path / "source")
    target = tmp_path / "p[1].tar"

    pack(source, target, shard_size=8192)

    with open_store(target) as store:
        assert len(store) == 8
