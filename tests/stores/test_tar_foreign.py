"""Tests that tars of tarfile, tar and webdataset are read, and that webdataset reads ours."""

from __future__ import annotations

import io
import json
import os
import struct
import subprocess
import tarfile
from pathlib import Path

import pytest
from corpus import samples
from tars import image, numbered, write_tar

from fastdecode.errors import StoreError
from fastdecode.stores import create_store, open_store
from fastdecode.stores.tar import index_tar, stream_tar
from fastdecode.stores.tar.format import make_header, parse_header

_FORMATS = {
    "ustar": tarfile.USTAR_FORMAT,
    "gnu": tarfile.GNU_FORMAT,
    "pax": tarfile.PAX_FORMAT,
}


@pytest.mark.parametrize("name", _FORMATS)
def test_long_names_of_every_format_are_read(tmp_path: Path, name: str) -> None:
    """Long names are read back from ustar prefixes, GNU long names and pax paths."""
    names = [f"{'d' * 90}/{'n' * 60}", "short", f"{'ü' * 20}/{'é' * 20}"]
    if name != "ustar":
        names += ["x" * 300, f"{'a/' * 120}{'b' * 150}"]
    parts = [(f"{each}.jpg", image(n)) for n, each in enumerate(names)]
    path = write_tar(tmp_path / "t.tar", parts, _FORMATS[name])

    with open_store(path) as store:
        assert [store.key(i) for i in range(len(store))] == [f"{each}.jpg" for each in names]
        assert [bytes(store.read(i)) for i in range(len(store))] == [data for _, data in parts]
    assert [(key, bytes(data)) for key, data, _ in stream_tar(path)] == parts


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

    with open_store(path) as store:
        assert [store.key(at) for at in range(3)] == ["0000.jpg", "0001.jpg", "0002.jpg"]
        assert [store.target(at) for at in range(3)] == [0, 1, 2]
        assert bytes(store.read(2)) == image(2)
    assert [key for key, _, _ in stream_tar(path)] == ["0000.jpg", "0001.jpg", "0002.jpg"]


@pytest.mark.parametrize("name", _FORMATS)
def test_members_that_are_not_files_are_skipped(tmp_path: Path, name: str) -> None:
    """Folders, symbolic links, devices and pipes are skipped, and later members are found."""
    path = tmp_path / "t.tar"
    with tarfile.open(path, "w", format=_FORMATS[name], pax_headers={"comment": "x"}) as tar:
        for number, kind in enumerate(
            (tarfile.DIRTYPE, tarfile.SYMTYPE, tarfile.BLKTYPE, tarfile.FIFOTYPE, tarfile.CHRTYPE)
        ):
            about = tarfile.TarInfo(f"other{number}.jpg")
            about.type = kind
            about.linkname = "0.jpg" * (30 if name != "ustar" else 1)
            tar.addfile(about)
            about = tarfile.TarInfo(f"{number}.jpg")
            about.size = 600
            tar.addfile(about, io.BytesIO(b"%d" % number * 600))

    with open_store(path) as store:
        assert [store.key(i) for i in range(len(store))] == [f"{n}.jpg" for n in range(5)]
        assert [bytes(store.read(i)) for i in range(5)] == [b"%d" % n * 600 for n in range(5)]
    assert [sample.key for sample in stream_tar(path)] == [f"{n}.jpg" for n in range(5)]


def test_hard_links_are_an_error(tmp_path: Path) -> None:
    """A hard link has no data, so it is an error instead of a silently missing sample."""
    path = tmp_path / "t.tar"
    with tarfile.open(path, "w") as tar:
        about = tarfile.TarInfo("0.jpg")
        about.size = 600
        tar.addfile(about, io.BytesIO(b"0" * 600))
        about = tarfile.TarInfo("1.jpg")
        about.type, about.linkname = tarfile.LNKTYPE, "0.jpg"
        tar.addfile(about)

    for read in (open_store, lambda where: list(stream_tar(where))):
        with pytest.raises(StoreError, match=r"'1.jpg' is a link to another.*--hard-dereference"):
            read(path)


def test_files_are_grouped_as_in_webdataset(tmp_path: Path) -> None:
    """The first dot after the last slash ends the key; hidden files and metadata are skipped."""
    path = write_tar(
        tmp_path / "t.tar",
        [
            ("__readme__", b"x"),
            ("__meta__/a.jpg", b"x"),
            ("README", b"x"),
            ("./a.b/c.jpg", b"1"),
            ("./a.b/c.cls", b" 7\n"),
            ("./a.b/._c.jpg", b"apple"),
            ("/d.seg.png", b"2"),
            ("e.JPG", b"3"),
            ("e.TXT", b"Text"),
            ("f.json", b"{}"),
        ],
    )

    with open_store(path) as store:
        assert [(store.key(i), store.target(i)) for i in range(len(store))] == [
            ("a.b/c.jpg", 7),
            ("d.seg.png", None),
            ("e.JPG", "Text"),
        ]
    assert [sample.key for sample in stream_tar(path)] == ["a.b/c.jpg", "d.seg.png", "e.JPG"]


def test_repeated_key_is_numbered(tmp_path: Path) -> None:
    """The second of two samples with one key gets a numbered key."""
    path = write_tar(tmp_path / "t.tar", [("a.jpg", b"1"), ("b.jpg", b"2"), ("a.jpg", b"3")])

    with open_store(path) as store:
        assert [store.key(i) for i in range(3)] == ["a.jpg", "b.jpg", "a~2.jpg"]
        assert bytes(store.read(2)) == b"3"


def test_scattered_samples_are_refused(tmp_path: Path) -> None:
    """A target that is not next to its image is an error, in either order."""
    parts = [("a.jpg", b"1"), ("b.jpg", b"2"), ("a.cls", b"3"), ("b.cls", b"4")]
    for ordered in (parts, parts[::-1]):
        path = write_tar(tmp_path / "t.tar", ordered)
        with pytest.raises(StoreError, match=r"sample '[ab]' do not follow.*--sort=name"):
            open_store(path)
        with pytest.raises(StoreError, match=r"sample '[ab]' do not follow.*--sort=name"):
            list(stream_tar(path))


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("cls", b"dog"),
        ("json", b"{"),
        ("txt", b"\xff"),
        ("json", b"[" * 100000),
        ("json", b'{"x": 1e999}'),
    ],
)
def test_targets_that_cannot_be_read_are_named(tmp_path: Path, name: str, data: bytes) -> None:
    """A target that cannot be parsed is an error that names the sample and suggests ``target=``."""
    path = write_tar(tmp_path / "t.tar", [("a.jpg", b"1"), (f"a.{name}", data)])

    with pytest.raises(StoreError, match=rf"t\.tar: the \.{name} of sample 'a'.*target="):
        open_store(path)


def test_names_that_are_not_utf8_are_escaped(tmp_path: Path) -> None:
    """Bytes of a name that are not UTF-8 appear in the key with backslashes."""
    path = tmp_path / "t.tar"
    path.write_bytes(make_header(b"\xff\xfe.jpg", 3) + b"abc".ljust(512, b"\0") + bytes(1024))

    with open_store(path) as store:
        assert store.key(0) == "\\xff\\xfe.jpg"
        assert bytes(store.read(0)) == b"abc"


def test_signed_checksums_are_accepted(tmp_path: Path) -> None:
    """Header checksums of signed bytes, as old Sun tars wrote them, are accepted."""
    header = bytearray(make_header("ü.jpg".encode(), 1))
    header[148:156] = b"%06o\0 " % (
        sum(struct.unpack("512b", header[:148] + b" " * 8 + header[156:]))
    )

    found = parse_header(bytes(header))

    assert found is not None
    assert found.name == "ü.jpg".encode()


def test_sizes_beyond_eight_gibibytes_are_read(tmp_path: Path) -> None:
    """Sizes in GNU's base-256 encoding are written and read, and the next member is found."""
    size = (9 << 30) + 5
    header = make_header(b"large.jpg", size)
    path = tmp_path / "t.tar"
    with path.open("wb") as file:
        file.write(header)
        file.seek(512 + size + 507)
        file.write(make_header(b"small.jpg", 3) + b"abc".ljust(512, b"\0") + bytes(1024))

    with tarfile.open(path) as tar:
        assert [member.size for member in tar] == [size, 3]
    with open_store(path) as store:
        assert len(store) == 2
        assert bytes(store.read(1)) == b"abc"


@pytest.mark.skipif(os.system("tar --version >/dev/null 2>&1") != 0, reason="needs tar")
@pytest.mark.parametrize("name", ["gnu", "posix", "ustar", "v7", "oldgnu"])
def test_tars_of_the_tar_command_are_read(tmp_path: Path, name: str) -> None:
    """A tar that the tar command makes from a folder is a store, in all its formats."""
    (tmp_path / "in").mkdir()
    for member, data in numbered(5):
        (tmp_path / "in" / member).write_bytes(data)
    subprocess.run(
        ["tar", "-cf", "../t.tar", f"--format={name}", "--sort=name", "."],
        cwd=tmp_path / "in",
        check=True,
    )

    with open_store(tmp_path / "t.tar") as store:
        assert [store.target(i) for i in range(len(store))] == list(range(5))
        assert [bytes(store.read(i)) for i in range(5)] == [image(n) for n in range(5)]


@pytest.mark.parametrize("format", [tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
@pytest.mark.parametrize("end", [0, 512, 1024, 10240, 10240 + 512])
def test_concatenated_tars_are_one(tmp_path: Path, format: int, end: int) -> None:
    """Tars that were joined with cat hold the items of all, in a store, its index and a stream."""
    whole, name = b"", "é" * 60 + "/"  # a pax or GNU header precedes each member
    for number in range(3):
        members = [(name + each, data) for each, data in numbered(2, begin=2 * number)]
        data = write_tar(tmp_path / "part.tar", members, format).read_bytes().rstrip(b"\0")
        whole += data + bytes(-len(data) % 512 + end)
    path = tmp_path / "t.tar"
    path.write_bytes(whole + bytes(1024))

    for _ in range(2):
        with open_store(path) as store:
            assert [store.target(at) for at in range(len(store))] == list(range(6))
            assert [bytes(store.read(at)) for at in range(6)] == [image(at) for at in range(6)]
            keys = [store.key(at) for at in range(6)]
        index_tar(path)
    assert [tuple(sample) for sample in stream_tar(path)] == [
        (key, image(at), at) for at, key in enumerate(keys)
    ]


@pytest.mark.skipif(os.system("tar --version >/dev/null 2>&1") != 0, reason="needs tar")
def test_a_tar_appended_by_the_tar_command_is_read(tmp_path: Path) -> None:
    """``tar -A`` appends a tar whose items are read behind the others."""
    paths = [write_tar(tmp_path / f"{at}.tar", numbered(3, begin=3 * at)) for at in range(2)]
    subprocess.run(["tar", "-Af", *paths], check=True)

    with open_store(paths[0]) as store:
        assert [store.target(at) for at in range(len(store))] == list(range(6))


def test_a_sample_ends_with_its_tar(tmp_path: Path) -> None:
    """The same name at the end of a tar and at the beginning of the next makes two samples."""
    path = write_tar(tmp_path / "t.tar", [("a.jpg", image(0)), ("a.cls", b"5")])
    path.write_bytes(path.read_bytes() + path.read_bytes())

    with open_store(path) as store:
        assert [store.key(at) for at in range(len(store))] == ["a.jpg", "a~2.jpg"]
        assert [store.target(at) for at in range(2)] == [5, 5]
    assert [sample.target for sample in stream_tar(path)] == [5, 5]


def test_a_header_about_all_members_ends_with_its_tar(tmp_path: Path) -> None:
    """A global header, also as the last one of a tar, is no part of a member in the next tar."""
    tarfile.open(tmp_path / "g.tar", "w", pax_headers={"comment": "x"}).close()
    about = (tmp_path / "g.tar").read_bytes()[:1024]
    whole = b""
    for number in range(2):
        data = write_tar(tmp_path / "t.tar", numbered(1, begin=number)).read_bytes().rstrip(b"\0")
        whole += data + bytes(-len(data) % 512) + about + bytes(1024)
    (tmp_path / "t.tar").write_bytes(whole)

    with open_store(tmp_path / "t.tar") as store:
        assert [bytes(store.read(at)) for at in range(len(store))] == [image(0), image(1)]


def test_sparse_members_are_refused(tmp_path: Path) -> None:
    """A sparse member is an error, because its stored bytes are not those of the file."""
    path = tmp_path / "t.tar"
    with tarfile.open(path, "w", format=tarfile.PAX_FORMAT) as tar:
        about = tarfile.TarInfo("a.jpg")
        about.pax_headers = {"GNU.sparse.major": "1", "GNU.sparse.minor": "0"}
        about.size = 3
        tar.addfile(about, io.BytesIO(b"abc"))

    with pytest.raises(StoreError, match="is sparse"):
        open_store(path)


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

    with (
        open_store(tmp_path / "t.tar") as store,
        open_store(tmp_path / "t.tar", target="json") as described,
    ):
        assert len(store) == len(paths)
        for index, path in enumerate(paths):
            assert store.key(index) == f"dir/{index:03d}.jpg"
            assert bytes(store.read(index)) == path.read_bytes()
            assert store.target(index) == index
            assert described.target(index) == {"name": path.name}
    for index, (key, data, target) in enumerate(stream_tar(tmp_path / "t.tar")):
        assert (key, target) == (f"dir/{index:03d}.jpg", index)
        assert bytes(data) == paths[index].read_bytes()


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # webdataset's
def test_webdataset_reads_our_shards(tmp_path: Path) -> None:
    """Webdataset reads our shards: one sample per image, with its bytes and its target."""
    webdataset = pytest.importorskip("webdataset")
    paths = _images()
    targets = [3, "text", {"a": [1, 2]}, None]
    keys = [f"dir.x/{path.stem}.{n}.jpg" if n % 2 else f"{n}.jpg" for n, path in enumerate(paths)]
    with create_store(tmp_path / "t.tar") as writer:
        for number, path in enumerate(paths):
            writer.add(keys[number], path.read_bytes(), targets[number % 4])

    found = list(webdataset.WebDataset(str(tmp_path / "t.tar"), shardshuffle=False))

    assert len(found) == len(paths)
    assert [sample["jpg"] for sample in found] == [path.read_bytes() for path in paths]
    assert found[0]["__key__"] == "0"
    for number, sample in enumerate(found):
        beside = {name: sample[name] for name in ("cls", "txt", "json") if name in sample}
        target = targets[number % 4]
        assert beside == (
            {"cls": b"3"}
            if target == 3
            else {"txt": b"text"}
            if target == "text"
            else {"json": json.dumps(target).encode()}
            if target
            else {}
        )


def test_other_members_can_be_the_image_and_the_target(tmp_path: Path) -> None:
    """``image`` and ``target`` choose files of a sample; an ambiguous sample is an error."""
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

    with pytest.raises(StoreError, match=r"'2' has more than one image.*\(png, jpg\).*image='png'"):
        open_store(path)
    with pytest.raises(StoreError, match="more than one image"):
        list(stream_tar(path))
    jpegs = open_store(path, image=("jpg", "png"))
    assert [jpegs.key(i) for i in range(2)] == ["1.jpg", "2.jpg"]
    assert [jpegs.target(i) for i in range(2)] == [3, [1]]
    masks = open_store(path, image="mask.png", target=".json")
    assert [masks.key(i) for i in range(len(masks))] == ["1.mask.png"]
    assert masks.target(0) == {"x": None}
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
    with pytest.raises(ValueError, match="was made for"):
        open_store(path, image="mask.png", index=f"{path}.fdx")
    with pytest.raises(FileNotFoundError):
        open_store(path, index=tmp_path / "nowhere")
    index_tar(path, image="mask.png", index=tmp_path / "masks")
    assert bytes(open_store(path, index=tmp_path / "masks").read(0)) == b"mask"
