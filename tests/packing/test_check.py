"""Tests of `survey` and of the commands ``check`` and ``pack``."""

from __future__ import annotations

import csv
import shutil
import warnings
from pathlib import Path

import pytest
from corpus import CORPUS, usable_backends
from packed import make_large_source, make_source

from fastdecode import stores
from fastdecode.cli import main
from fastdecode.packing import Finding, Limits, _check, pack, survey
from fastdecode.packing._rewrite import Work
from fastdecode.stores import create_store, open_store
from fastdecode.testing import drawing, encode

KINDS = CORPUS / "jpeg_kinds"
REPORTS_WARNINGS = bool({"native", "simplejpeg", "turbojpeg", "jpeg4py"} & set(usable_backends()))
"""Whether a backend reports libjpeg's warnings; Pillow does not."""


@pytest.fixture
def mixed(tmp_path: Path) -> Path:
    """Make a folder with files of every status."""
    folder = tmp_path / "mixed"
    folder.mkdir()
    good = encode(drawing(40, 30), quality=75)
    (folder / "good.jpg").write_bytes(good)
    (folder / "twin.jpg").write_bytes(good)
    (folder / "wrong.png").write_bytes(encode(drawing(40, 30), quality=50))
    (folder / "large.jpg").write_bytes(encode(drawing(400, 20)))
    (folder / "large.png").write_bytes(encode(drawing(400, 20)))
    (folder / "empty.jpg").touch()
    (folder / "text.jpg").write_bytes(b"<html>no image</html>")
    shutil.copy(KINDS / "jpeg_decoder__extraneous-data.jpg", folder / "warns.jpg")
    shutil.copy(CORPUS / "malformed" / "gen_jpg_cut667.jpg", folder / "cut.jpg")
    return folder


def test_every_status(mixed: Path) -> None:
    """Each status is told apart, and the reasons of an item are listed, the most serious first.

    Two empty files are no duplicates, nor are two that cannot be read.
    """
    for name in ("empty-2.jpg", "empty-3.jpg"):
        (mixed / name).touch()
    for name in ("gone.jpg", "gone-2.jpg"):
        (mixed / name).symlink_to("nowhere")
    (mixed / "text-2.jpg").write_bytes((mixed / "text.jpg").read_bytes())
    with open_store(mixed) as store:
        found = {one.key: one for one in survey(store, 3, Limits(max_side=300))}

    assert {key: one.status for key, one in found.items()} == {
        **dict.fromkeys(["cut.jpg", "empty.jpg", "empty-2.jpg", "empty-3.jpg"], "damaged"),
        **dict.fromkeys(["gone.jpg", "gone-2.jpg"], "unreadable"),
        **dict.fromkeys(["good.jpg", "warns.jpg"], "good"),
        **dict.fromkeys(["large.jpg", "large.png"], "oversized"),
        **dict.fromkeys(["text.jpg", "text-2.jpg"], "unsupported"),
        "twin.jpg": "duplicate",
        "wrong.png": "wrong suffix",
    }
    assert found["wrong.png"].reasons == ("named .png, but its format is jpeg",)
    assert found["twin.jpg"].reasons == ("the same bytes as good.jpg",)
    assert found["text.jpg"].reasons[1:] == ("the same bytes as text-2.jpg",)
    assert [words.split()[0] for words in found["large.png"].reasons] == ["400", "named", "the"]
    assert not any(
        "same bytes" in " ".join(found[f"{name}-2.jpg"].reasons) for name in ("empty", "gone")
    )
    assert found["good.jpg"] == Finding(
        "good.jpg", "good", (), "jpeg", 40, 30, (mixed / "good.jpg").stat().st_size
    )


def test_limits(mixed: Path) -> None:
    """An image of exactly a limit is not oversized, and one beyond it may still be damaged."""
    with open_store(mixed) as store:
        by_side, by_pixels, by_one = (
            {one.key: one.status for one in survey(store, 1, limits)}
            for limits in (Limits(max_side=400), Limits(max_pixels=1200), Limits(max_pixels=1))
        )

    assert by_side["large.jpg"] == by_pixels["good.jpg"] == "good"
    assert by_pixels["large.jpg"] == "oversized"
    assert by_one["cut.jpg"] == "damaged"


def test_strict_counts_warnings_as_damage(mixed: Path) -> None:
    """With ``strict=True`` warnings of the codec count as damage, where a decoder reports them."""
    for name in ("gen_cmyk.tif", "gen_lossy.jp2", "gen_gray16.png"):
        shutil.copy(CORPUS / "formats" / name, mixed / name)
    with open_store(mixed) as store:
        found = {one.key: one.status for one in survey(store, 1, Limits(strict=True))}

    assert found["warns.jpg"] == ("damaged" if REPORTS_WARNINGS else "good")
    for name in ("large.jpg", "gen_lossy.jp2", "gen_gray16.png"):
        assert found[name] == "good"
    assert found["gen_cmyk.tif"] == ("good" if "tifffile" in usable_backends() else "unsupported")


def test_the_check_command(
    mixed: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """`check` prints a table as wide as the terminal, writes a CSV, and returns 1 for damage.

    Its options are those of `survey`. Three examples of a status are shown, and the last line sums
    up all images.
    """
    monkeypatch.setenv("COLUMNS", "60")
    (mixed / "many.jpg").write_bytes(encode(drawing(120, 100)))  # larger by its pixels alone
    for number in range(3):
        (mixed / f"empty-{number}.jpg").touch()
    listed = tmp_path / "found.csv"
    limits = ["--max-pixels", "10000", "--max-side", "300", "--threads", "3", "--strict"]

    status = main(["check", str(mixed), "--csv", str(listed), *limits])

    *lines, last = capsys.readouterr().out.splitlines()
    assert status == 1
    assert max(map(len, [*lines, last])) <= 60
    damaged = 6 if REPORTS_WARNINGS else 5
    assert any(line.startswith("damaged") and f" {damaged} " in line for line in lines)
    assert f"... and {damaged - 3} more" in "\n".join(lines)
    assert sum("it is empty" in line for line in lines) == 2
    assert "13 images, " in "\n".join([*lines, last])
    with listed.open(newline="") as file:
        rows = {row["key"]: row for row in csv.DictReader(file)}
    assert len(rows) == 13
    assert rows["large.jpg"]["status"] == rows["many.jpg"]["status"] == "oversized"
    assert rows["warns.jpg"]["status"] == ("damaged" if REPORTS_WARNINGS else "good")
    assert list(rows["good.jpg"].values()) == [
        *("good.jpg", "good", "", "jpeg", "40", "30"),
        str((mixed / "good.jpg").stat().st_size),
    ]


def test_image_beyond_the_limit_of_decode_is_oversized(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A healthy image that `decode` refuses as too large is oversized; ``--max-pixels`` lifts it.

    With the limit lifted, the image is decoded, so damage is found.
    """
    source = make_large_source(tmp_path / "source")
    command = ["check", str(source), "--threads", "1"]

    assert main(command) == 0
    assert "oversized  " in capsys.readouterr().out
    assert main([*command, "--max-side", "9999", "--max-pixels", "200000000"]) == 0
    assert "oversized  " in capsys.readouterr().out
    assert main([*command, "--max-pixels", "200000000"]) == 0
    assert "good  " in capsys.readouterr().out
    photo = source / "large.jpg"
    photo.write_bytes(photo.read_bytes()[: photo.stat().st_size // 2])
    assert main([*command, "--max-pixels", "200000000"]) == 1
    assert "damaged  " in capsys.readouterr().out


def test_image_beyond_the_memory_is_oversized(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An image for which there is no memory is oversized, and does not end the check."""

    def no_memory(*_arguments: object, **_options: object) -> None:
        raise MemoryError

    monkeypatch.setattr(_check, "verify", no_memory)
    with open_store(make_source(tmp_path / "source")) as store:
        assert {one.status for one in survey(store, 1)} == {"oversized"}


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("check none", "none"),
        ("pack none out.tar", "none"),
        ("check a.rec", "a.rec"),
        ("check b.tar", "b.tar"),
        ("check photo.JPG", "photo.JPG is one image"),
        ("pack photo.JPG out", "photo.JPG is one image"),
        ("check folder --csv /dev/full", "/dev/full cannot be written: No space left on device"),
    ],
)
def test_what_cannot_be_done_is_an_error(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    command: str,
    said: str,
) -> None:
    """A source that is missing, empty or of another kind has exit status 2; nothing is written."""
    if "/dev/full" in command and not Path("/dev/full").exists():
        pytest.skip("needs a device that is always full")
    monkeypatch.chdir(tmp_path)
    make_source(tmp_path / "folder")
    Path("a.rec").touch()
    create_store("b.tar").close()
    Path("photo.JPG").write_bytes(encode(drawing(40, 30)))
    before = sorted(tmp_path.iterdir())

    assert main(command.split()) == 2
    assert said in " ".join(capsys.readouterr().err.split())
    assert sorted(tmp_path.iterdir()) == before


@pytest.mark.parametrize(
    "command",
    [
        *("check x --max-side 0", "check x --max-pixels 0", "pack x y --max-pixels none"),
        *("pack x y --shard-size many", "pack x y --store list"),
    ],
)
def test_wrong_arguments_are_refused(command: str) -> None:
    """A malformed argument has exit status 2."""
    with pytest.raises(SystemExit) as caught:
        main(command.split())
    assert caught.value.code == 2


def test_the_pack_command(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """`pack` names bad items, packs the others with ``--skip-bad``, and refuses to repeat it.

    Warnings of libraries are not printed.
    """
    work = Work.__call__

    def warning(self: Work, index: int) -> object:
        warnings.warn("a codec is unhappy", UserWarning, stacklevel=1)
        return work(self, index)

    monkeypatch.setattr(Work, "__call__", warning)
    source, target = make_source(tmp_path / "source", damaged=True), tmp_path / "out.tar"
    command = [str(source), str(target), "--max-side", "32", "--quality", "80"]

    assert main(["pack", *command]) == 1
    said = capsys.readouterr().err
    assert "unhappy" not in said
    assert "bad: cats/1-cut.jpg: " in said
    assert "--skip-bad leaves them out" in " ".join(said.split())

    assert main(["pack", *command, "--skip-bad"]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "8 images in" in said
    assert "8 shrunk" in said

    assert main(["pack", *command]) == 2
    assert "has been packed already, and is complete" in " ".join(capsys.readouterr().err.split())


@pytest.mark.parametrize("name", ["train.zip", "train.tgz", "train.tar.gz", "v1.2/train.h5x"])
def test_unknown_suffix_is_an_error(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    """An unknown suffix is an error that lists the known ones and explains ``--store folder``."""
    source, target = make_source(tmp_path / "source"), tmp_path / name

    assert main(["pack", str(source), str(target)]) == 2
    said = " ".join(capsys.readouterr().err.split())
    kinds = stores.KINDS.values()
    known = " ".join(kind.suffixes[0] for kind in kinds if kind.writer and kind.suffixes)
    assert f"{target.suffix} is not a kind of store ({known}; a name without" in said
    assert "--store folder makes a folder" in said
    assert "kind=" not in said
    for make in (create_store, lambda path: pack(source, path)):
        with pytest.raises(ValueError, match="kind='folder' makes a folder of that name"):
            make(target)
    assert not target.parent.exists() or target.parent == tmp_path
    assert main(["pack", str(source), str(target), "--store", "folder"]) == 0
    with open_store(target, "folder") as store:
        assert len(store) == 8


@pytest.mark.parametrize("name", ["v1.2", ".hidden", "St. Louis", "train"])
def test_names_without_a_suffix_are_folders(tmp_path: Path, name: str) -> None:
    """A version number or a text with a space after a dot does not count as a suffix."""
    with create_store(tmp_path / name) as writer:
        assert writer.kind == "folder"


@pytest.mark.parametrize(
    ("size", "place"),
    [("2kB", "{0}-00000.tar to {0}-00007.tar"), ("1GB", "1 shard, {0}-00000.tar,")],
)
def test_shards_are_reported_by_their_names(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], size: str, place: str
) -> None:
    """The report of `pack` names the shards that it wrote."""
    source, target = make_source(tmp_path / "source"), tmp_path / "b.tar"

    assert main(["pack", str(source), str(target), "--shard-size", size]) == 0
    said = "".join(capsys.readouterr().out.split())  # long paths are cut at the end of a line
    assert "".join(place.format(target.with_suffix("")).split()) in said


def test_a_photo_library_is_checked(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """`check` accepts images next to folders; `pack` refuses them and suggests a list."""
    library = tmp_path / "library"
    (library / "2024").mkdir(parents=True)
    for name in ("1.jpg", "2024/2.jpg"):
        (library / name).write_bytes(encode(drawing(40, 30 + len(name))))

    assert main(["check", str(library)]) == 0
    assert "2 images" in capsys.readouterr().out
    assert main(["pack", str(library), str(tmp_path / "a.tar")]) == 2
    said = "".join(capsys.readouterr().err.split())
    assert "listthepathsofall,withoutclasses,ina.csv" in said
    (tmp_path / "all.csv").write_text("library/1.jpg\nlibrary/2024/2.jpg\n")
    assert main(["pack", str(tmp_path / "all.csv"), str(tmp_path / "a.tar")]) == 0
