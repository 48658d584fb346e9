"""Which members of a shard are the image and the target, and where its index lies."""

from __future__ import annotations

from pathlib import Path

import pytest
from tars import numbered, write_tar

from fastdecode.errors import StoreError
from fastdecode.stores import open_store
from fastdecode.stores.tar import index_tar, stream_tar


def test_other_members_can_be_the_picture_and_the_target(tmp_path: Path) -> None:
    """``image`` and ``target`` choose among the files of a sample; a vague sample is an error."""
    path = write_tar(
        tmp_path / "t.tar",
        [
            ("1.jpg", b"jpg"),
            ("1.mask.png", b"mask"),
            ("1.cls", b"3"),
            ("1.caption.txt", b"a dog"),
            ("1.json", b'{"x": NaN}'),
            ("2.PNG", b"png"),
            ("2.JSON", b"[1]"),
            ("2.jpg", b"second"),
        ],
    )

    with pytest.raises(StoreError, match=r"'2' has more images.*\(png, jpg\).*image='png'"):
        open_store(path)
    with pytest.raises(StoreError, match="more images than one"):
        list(stream_tar(path))
    jpegs = open_store(path, image=("jpg", "png"))
    assert [jpegs.key(i) for i in range(2)] == ["1.jpg", "2.jpg"]
    assert [jpegs.target(i) for i in range(2)] == [3, [1]]
    masks = open_store(path, image="mask.png", target=".json")
    assert [masks.key(i) for i in range(len(masks))] == ["1.mask.png"]
    assert masks.target(0) == {"x": None}
    texts = open_store(path, image="jpg", target="caption.txt")
    assert [texts.target(i) for i in range(2)] == ["a dog", None]
    with pytest.raises(StoreError, match="none of its 2 samples has a file with bmp"):
        open_store(path, image="bmp")


def test_an_index_for_other_members_is_not_used(tmp_path: Path) -> None:
    """The index beside is for what it was made for; a named one must fit."""
    path = write_tar(tmp_path / "t.tar", [("1.jpg", b"jpg"), ("1.mask.png", b"mask")])
    index_tar(path)

    assert bytes(open_store(path).read(0)) == b"jpg"
    assert bytes(open_store(path, image="mask.png").read(0)) == b"mask"
    with pytest.raises(ValueError, match="was made for"):
        open_store(path, image="mask.png", index=f"{path}.fdx")
    index_tar(path, image="mask.png", index=tmp_path / "masks")
    assert bytes(open_store(path, index=tmp_path / "masks").read(0)) == b"mask"


def test_an_index_may_lie_elsewhere(tmp_path: Path) -> None:
    """An index elsewhere serves a shard in a folder where nothing can be written."""
    path = write_tar(tmp_path / "t.tar", numbered(5))
    index_tar(path, index=tmp_path / "elsewhere")
    store = open_store(path, index=tmp_path / "elsewhere")

    assert [store.target(i) for i in range(5)] == list(range(5))
    assert not Path(f"{path}.fdx").exists()
    with pytest.raises(FileNotFoundError):
        open_store(path, index=tmp_path / "nowhere")


def test_numbers_beyond_all_are_told(tmp_path: Path) -> None:
    """JSON has no infinity: what would become one is an error with the sample."""
    path = write_tar(tmp_path / "t.tar", [("1.jpg", b"1"), ("1.json", b'{"x": 1e999}')])

    with pytest.raises(StoreError, match=r"json of sample '1' cannot be read \(1e999 is beyond"):
        open_store(path)


def test_a_remote_index_of_other_members_is_named_so(tmp_path: Path) -> None:
    """It is there, and the message does not say that there is none."""
    fsspec = pytest.importorskip("fsspec")
    path = write_tar(tmp_path / "t.tar", [("1.jpg", b"1"), ("1.mask.png", b"2"), ("1.cls", b"3")])
    index_tar(path)
    memory = fsspec.filesystem("memory")
    for name in ("t.tar", "t.tar.fdx"):
        memory.put(str(tmp_path / name), f"/chosen/{name}")
    try:
        with pytest.raises(StoreError, match=r"for image=\['mask.png'\].*but one for image=\[\]"):
            open_store("memory://chosen/t.tar", image="mask.png")
    finally:
        memory.rm("/chosen", recursive=True)
