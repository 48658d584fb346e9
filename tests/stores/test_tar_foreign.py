"""Tests that tars of tarfile, tar and webdataset are read, and that webdataset reads ours."""

from __future__ import annotations

import io
import json
import os
import subprocess
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from corpus import samples
from store_cases import all_items
from tars import image, numbered, write_tar

from fastdecode.errors import StoreError
from fastdecode.stores import create_store, open_store
from fastdecode.stores.tar import index_tar, stream_tar
from fastdecode.stores.tar.format import make_header

Items = list[tuple[str, bytes, Any]]
needs_tar = pytest.mark.skipif(os.system("tar --version >/dev/null 2>&1") != 0, reason="needs tar")
FORMATS = {"ustar": tarfile.USTAR_FORMAT, "gnu": tarfile.GNU_FORMAT, "pax": tarfile.PAX_FORMAT}
ITEMS: Items = [(f"{at:04d}.jpg", image(at), at) for at in range(6)]
"""What `numbered` has as samples."""


def _check(path: Path, wanted: Items, streamed: Items | None = None) -> None:
    """Check that a tar has these items with an index, without, and as a stream."""
    for _ in range(2):
        with open_store(path) as store:
            assert all_items(store) == wanted
        index_tar(path)
    found = [(key, bytes(data), target) for key, data, target in stream_tar(path)]
    assert found == (streamed or wanted)


def _add(tar: tarfile.TarFile, name: str, kind: bytes = tarfile.REGTYPE, **fields: Any) -> None:
    """Add a member; a regular file has 600 bytes."""
    about = tarfile.TarInfo(name)
    about.type, about.size = kind, 600 if kind == tarfile.REGTYPE else 0
    for field, value in fields.items():
        setattr(about, field, value)
    tar.addfile(about, io.BytesIO(b"0" * 600) if about.size else None)


def _named(text: str) -> list[tuple[str, bytes]]:
    """Return the members that a text names, with what they hold."""
    return [(name, data.encode()) for name, _, data in (e.partition("=") for e in text.split("|"))]


@pytest.mark.parametrize("name", FORMATS)
def test_long_names_of_every_format_are_read(tmp_path: Path, name: str) -> None:
    """Long names are read back from ustar prefixes, GNU long names and pax paths."""
    names = [f"{'d' * 90}/{'n' * 60}", "short", f"{'ü' * 20}/{'é' * 20}"]
    if name != "ustar":
        names += ["x" * 300, f"{'a/' * 120}{'b' * 150}"]
    parts = [(f"{each}.jpg", image(n)) for n, each in enumerate(names)]

    path = write_tar(tmp_path / "t.tar", parts, FORMATS[name])
    _check(path, [(*part, None) for part in parts])


def test_times_in_a_gnu_header_are_not_part_of_the_name(tmp_path: Path) -> None:
    """GNU tar's times (``--incremental``) are not read as the ustar prefix of a name."""
    path = write_tar(tmp_path / "t.tar", numbered(3), tarfile.GNU_FORMAT)
    data = bytearray(path.read_bytes())
    for at in range(0, len(data), 512):
        if data[at + 257 : at + 265] == b"ustar  \0":
            # atime and ctime of "struct oldgnu_header" (tar.h of GNU tar)
            data[at + 345 : at + 369] = b"15012345670\x0015012345671\0"
            data[at + 148 : at + 156] = b" " * 8
            data[at + 148 : at + 156] = b"%06o\0 " % sum(data[at : at + 512])
    path.write_bytes(data)

    _check(path, ITEMS[:3])


@pytest.mark.parametrize("name", FORMATS)
def test_members_that_are_not_files_are_skipped(tmp_path: Path, name: str) -> None:
    """Folders, symbolic links, devices and pipes are skipped, and later members are found."""
    path, far = tmp_path / "t.tar", "0.jpg" * (30 if name != "ustar" else 1)
    kinds = tarfile.DIRTYPE, tarfile.SYMTYPE, tarfile.BLKTYPE, tarfile.FIFOTYPE, tarfile.CHRTYPE
    with tarfile.open(path, "w", format=FORMATS[name], pax_headers={"comment": "x"}) as tar:
        for number, kind in enumerate(kinds):
            _add(tar, f"other{number}.jpg", kind, linkname=far)
            _add(tar, f"{number}.jpg")

    _check(path, [(f"{number}.jpg", b"0" * 600, None) for number in range(len(kinds))])


def test_files_are_grouped_as_in_webdataset(tmp_path: Path) -> None:
    """The first dot after the last slash ends the key; hidden files and metadata are skipped."""
    first = "__readme__=x|__meta__/a.jpg=x|README=x|./a.b/c.jpg=1|./a.b/c.cls= 7\n|./a.b/._c.jpg=x"
    parts = _named(f"{first}|/d.seg.png=2|e.JPG=3|e.TXT=Text|f.json={{}}")
    path = write_tar(tmp_path / "t.tar", parts)

    _check(path, [("a.b/c.jpg", b"1", 7), ("d.seg.png", b"2", None), ("e.JPG", b"3", "Text")])


def test_repeated_key_is_numbered(tmp_path: Path) -> None:
    """The second of two samples with one key gets a numbered key, except in a stream."""
    path = write_tar(tmp_path / "t.tar", [("a.jpg", b"1"), ("b.jpg", b"2"), ("a.jpg", b"3")])

    found: Items = [("a.jpg", b"1", None), ("b.jpg", b"2", None), ("a.jpg", b"3", None)]
    _check(path, [*found[:2], ("a~2.jpg", b"3", None)], found)


def test_odd_names_and_sizes_are_read(tmp_path: Path) -> None:
    """Names that are not UTF-8 are escaped; a size beyond 8 GiB is in GNU's base 256."""
    path, size = tmp_path / "t.tar", (9 << 30) + 5
    small = make_header("\udcff\udcfe.jpg", 3) + b"abc".ljust(512, b"\0") + bytes(1024)
    (tmp_path / "small.tar").write_bytes(small)
    _check(tmp_path / "small.tar", [("\\xff\\xfe.jpg", b"abc", None)])
    with path.open("wb") as file:
        file.write(make_header("large.jpg", size))
        file.seek(512 + size + 507)
        file.write(small)

    with tarfile.open(path) as tar:
        assert [member.size for member in tar] == [size, 3]
    with open_store(path) as store:
        assert len(store) == 2
        assert bytes(store.read(1)) == b"abc"


@needs_tar
@pytest.mark.parametrize("name", ["gnu", "posix", "ustar", "v7", "oldgnu"])
def test_tars_of_the_tar_command_are_read(tmp_path: Path, name: str) -> None:
    """A tar that the tar command makes from a folder is a store, in all its formats."""
    (tmp_path / "in").mkdir()
    for member, data in numbered(5):
        (tmp_path / "in" / member).write_bytes(data)
    command = ["tar", "-cf", "../t.tar", f"--format={name}", "--sort=name", "."]
    subprocess.run(command, cwd=tmp_path / "in", check=True)

    _check(tmp_path / "t.tar", ITEMS[:5])


def _hard_link(path: Path) -> None:
    with tarfile.open(path, "w") as tar:
        _add(tar, "0.jpg")
        _add(tar, "1.jpg", tarfile.LNKTYPE, linkname="0.jpg")


def _sparse(path: Path) -> None:
    with tarfile.open(path, "w", format=tarfile.PAX_FORMAT) as tar:
        _add(tar, "a.jpg", pax_headers={"GNU.sparse.major": "1", "GNU.sparse.minor": "0"})


def _parts(*parts: tuple[str, bytes]) -> Callable[[Path], object]:
    return lambda path: write_tar(path, parts)


_SCATTERED = [("a.jpg", b"1"), ("b.jpg", b"2"), ("a.cls", b"3"), ("b.cls", b"4")]
_APART = r"sample '[ab]' do not follow.*--sort=name"


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (_hard_link, r"'1.jpg' is a link to another.*--hard-dereference"),
        (_sparse, "is sparse"),
        (_parts(*_SCATTERED), _APART),
        (_parts(*_SCATTERED[::-1]), _APART),
        (_parts(("a.jpg", b"1"), ("a.cls", b"1"), ("a.JPG", b"2")), r"'a\.JPG' is in its .* twice"),
        (_parts(("2.PNG", b"1"), ("2.jpg", b"2")), r"'2' has more .*\(png, jpg\).*image='png'"),
        *(
            (_parts(("a.jpg", b"1"), (f"a.{name}", data)), rf"\.{name} of sample 'a'.*target=")
            for name, data in [
                *(("cls", b"dog"), ("json", b"{"), ("txt", b"\xff")),
                *(("json", b"[" * 100000), ("json", b'{"x": 1e999}')),
            ]
        ),
    ],
)
def test_what_would_lose_a_sample_is_refused(
    tmp_path: Path, make: Callable[[Path], object], said: str
) -> None:
    """Links, sparse files, scattered samples and unreadable targets are errors with advice."""
    make(tmp_path / "t.tar")

    for read in (open_store, index_tar, lambda path: list(stream_tar(path))):
        with pytest.raises(StoreError, match=rf"t\.tar.*{said}"):
            read(tmp_path / "t.tar")


def _images() -> list[Path]:
    return [sample.path for sample in samples("photos", "jpeg_kinds")][:12]


def test_shards_of_webdataset_are_read(tmp_path: Path) -> None:
    """A shard from webdataset's TarWriter is read with the same keys, bytes and targets."""
    webdataset = pytest.importorskip("webdataset")
    paths = _images()
    with webdataset.TarWriter(str(tmp_path / "t.tar")) as writer:
        for number, path in enumerate(paths):
            sample = {"__key__": f"dir/{number:03d}", "jpg": path.read_bytes(), "cls": number}
            writer.write({**sample, "json": {"name": path.name}, "txt": "text"})

    with open_store(tmp_path / "t.tar", target="json") as described:
        names = [described.target(index) for index in range(len(paths))]
    assert names == [{"name": path.name} for path in paths]
    _check(
        tmp_path / "t.tar",
        [(f"dir/{at:03d}.jpg", path.read_bytes(), at) for at, path in enumerate(paths)],
    )


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # webdataset's
def test_webdataset_reads_our_shards(tmp_path: Path) -> None:
    """Webdataset reads our shards: one sample per image, with its bytes and its target."""
    webdataset = pytest.importorskip("webdataset")
    paths = _images()
    targets: list[Any] = [3, "text", {"a": [1, 2]}, None]
    beside = [{"cls": b"3"}, {"txt": b"text"}, {"json": json.dumps(targets[2]).encode()}, {}]
    keys = [f"dir.x/{path.stem}.{n}.jpg" if n % 2 else f"{n}.jpg" for n, path in enumerate(paths)]
    with create_store(tmp_path / "t.tar") as writer:
        for number, path in enumerate(paths):
            writer.add(keys[number], path.read_bytes(), targets[number % 4])

    found = list(webdataset.WebDataset(str(tmp_path / "t.tar"), shardshuffle=False))

    assert [sample["jpg"] for sample in found] == [path.read_bytes() for path in paths]
    assert found[0]["__key__"] == "0"
    for number, sample in enumerate(found):
        there = {name: sample[name] for name in ("cls", "txt", "json") if name in sample}
        assert there == beside[number % 4]


def test_other_members_can_be_the_image_and_the_target(tmp_path: Path) -> None:
    """``image`` and ``target`` choose files of a sample."""
    first = '1.jpg=jpg|1.mask.png=mask|1.cls=3|1.caption.txt=a dog|1.json={"x": NaN}'
    parts = _named(f"{first}|2.PNG=png|2.JSON=[1]|2.jpg=second")
    path = write_tar(tmp_path / "t.tar", parts)

    jpegs = open_store(path, image=("jpg", "png"))
    assert [jpegs.key(i) for i in range(2)] == ["1.jpg", "2.jpg"]
    assert [jpegs.target(i) for i in range(2)] == [3, [1]]
    masks = open_store(path, image="mask.png", target=".json")
    assert all_items(masks) == [("1.mask.png", b"mask", {"x": None})]
    texts = open_store(path, image="jpg", target="caption.txt")
    assert [texts.target(i) for i in range(2)] == ["a dog", None]
    more = [("3.jpg", b"3"), ("3.cls", b"7"), ("3.caption.txt", b"a cat")]
    paths = [path, write_tar(tmp_path / "u.tar", more)]
    both = open_store(paths, image="jpg", target="caption.txt")
    assert [both.target(i) for i in range(3)] == ["a dog", None, "a cat"]
    with pytest.raises(StoreError, match="none of its 2 samples has a file with bmp"):
        open_store(path, image="bmp")


def test_an_index_for_other_members_is_not_used(tmp_path: Path) -> None:
    """A default index for other members is ignored; one given as ``index=`` must fit."""
    path = write_tar(tmp_path / "t.tar", [("1.jpg", b"jpg"), ("1.mask.png", b"mask")])
    index_tar(path)

    assert bytes(open_store(path).read(0)) == b"jpg"
    assert bytes(open_store(path, image="mask.png").read(0)) == b"mask"
    with pytest.raises(ValueError, match="was made for other members"):
        open_store(path, image="mask.png", index=f"{path}.fdx")
    with pytest.raises(FileNotFoundError):
        open_store(path, index=tmp_path / "nowhere")
    index_tar(path, image="mask.png", index=tmp_path / "masks")
    assert bytes(open_store(path, index=tmp_path / "masks").read(0)) == b"mask"
