"""Tests that items which a store cannot hold or `pack` cannot encode are bad items."""

from __future__ import annotations

import csv
import io
import json
import os
import sys
from pathlib import Path

import pytest
from packed import KINDS, make_source, name_of
from PIL import Image

from fastdecode.cli import main
from fastdecode.packing import BadItems, pack
from fastdecode.stores import open_store
from fastdecode.stores._items import Keys
from fastdecode.testing import drawing, encode


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


def test_a_class_without_images(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A class without images keeps its folder, and the summary names it."""
    source = make_source(tmp_path / "source")
    for path in (source / "cats").iterdir():
        path.write_bytes(b"no image")

    assert main(["pack", str(source), str(tmp_path / "out"), "--skip-bad"]) == 0

    assert "classes without any image left (1): cats" in capsys.readouterr().out
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
