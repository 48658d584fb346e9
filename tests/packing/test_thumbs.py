"""Tests of ``fastdecode thumbs``: names, pixels, repeated runs and errors."""

from __future__ import annotations

import io
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from corpus import CORPUS
from PIL import Image

from fastdecode import decode_file, probe
from fastdecode.cli import main
from fastdecode.samples import photo, photos
from fastdecode.stores import create_store
from fastdecode.testing import drawing, encode

Thumbs = Callable[..., tuple[int, str, str]]


@pytest.fixture(name="thumbs")
def _thumbs(capsys: pytest.CaptureFixture[str]) -> Thumbs:
    """Return a function that runs the command and returns its status, output and errors."""

    def run(*words: object) -> tuple[int, str, str]:
        capsys.readouterr()
        status = main(["thumbs", *map(str, words)])
        said = capsys.readouterr()
        return status, said.out, said.err

    return run


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """Make a folder with three images, two of them in subfolders."""
    folder = tmp_path / "photos"
    (folder / "in" / "deep").mkdir(parents=True)
    shutil.copy(photo, folder / "in" / "deep" / "house.JPEG")
    shutil.copy(photos[0], folder / "wren.jpg")
    (folder / "in" / "small.png").write_bytes(encode(drawing(40, 20), "png"))
    return folder


def names(folder: Path) -> list[str]:
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*.*"))


def newest(folder: Path) -> dict[str, int]:
    return {name: (folder / name).stat().st_mtime_ns for name in names(folder)}


def test_names_and_sizes(source: Path, tmp_path: Path, thumbs: Thumbs) -> None:
    """Thumbnails keep folders and names; the longer side has the size; none is enlarged."""
    status, out, _ = thumbs(source, tmp_path / "to", "--size", 100)

    found = names(tmp_path / "to")
    sizes = [decode_file(tmp_path / "to" / name).shape for name in found]
    assert status == 0
    assert found == ["in/deep/house.JPEG", "in/small.jpg", "wren.jpg"]
    assert sizes == [(75, 100, 3), (20, 40, 3), (67, 100, 3)]
    assert out.startswith("3 thumbnails in ")
    assert " images/s" in out


def test_pixels_match_pillow(source: Path, tmp_path: Path, thumbs: Thumbs) -> None:
    """A thumbnail is close to Pillow's resize of the full image with the same filter."""
    thumbs(source, tmp_path / "to", "--size", 64, "--quality", 100)

    with Image.open(source / "wren.jpg") as image:
        expected = np.asarray(image.resize((64, 43), Image.Resampling.LANCZOS), int)
    found = decode_file(tmp_path / "to" / "wren.jpg").astype(int)
    assert np.abs(found - expected).mean() < 6


def test_orientation_is_applied(tmp_path: Path, thumbs: Thumbs) -> None:
    """The EXIF orientation is applied, and other EXIF data is not copied."""
    (tmp_path / "photos").mkdir()
    exif = Image.Exif()
    exif[0x0112], exif[0x010E] = 6, "at my home"
    lying = encode(drawing(80, 40), exif=exif)
    (tmp_path / "photos" / "a.jpg").write_bytes(lying)

    assert thumbs(tmp_path / "photos", tmp_path / "to", "--size", 20)[0] == 0

    made = (tmp_path / "to" / "a.jpg").read_bytes()
    header = probe(made)
    assert (header.width, header.height, header.orientation) == (10, 20, 1)
    assert b"at my home" not in made


def test_transparent_images_become_png(tmp_path: Path, thumbs: Thumbs) -> None:
    """An image with transparent pixels becomes PNG; one with an opaque alpha channel JPEG."""
    folder = tmp_path / "logos"
    folder.mkdir()
    shutil.copy(CORPUS / "formats" / "gen_lossless_alpha.webp", folder / "clear.webp")
    (folder / "full.png").write_bytes(
        encode(drawing(30, 20, "RGBA").convert("RGB").convert("RGBA"), "png")
    )

    assert thumbs(folder, tmp_path / "to", "--size", 16)[0] == 0

    assert names(tmp_path / "to") == ["clear.png", "full.jpg"]
    alpha = decode_file(tmp_path / "to" / "clear.png", mode="RGBA")[..., 3]
    assert alpha.min() < 255


def test_the_colour_profile_is_kept(tmp_path: Path, thumbs: Thumbs) -> None:
    """A thumbnail keeps the ICC profile of its image."""
    (tmp_path / "photos").mkdir()
    shutil.copy(CORPUS / "jpeg_kinds" / "gen_icc_srgb.jpg", tmp_path / "photos" / "a.jpg")
    with Image.open(tmp_path / "photos" / "a.jpg") as image:
        profile = image.info["icc_profile"]

    thumbs(tmp_path / "photos", tmp_path / "to", "--size", 8)

    with Image.open(tmp_path / "to" / "a.jpg") as image:
        assert image.info["icc_profile"] == profile


def test_second_run_makes_missing_and_outdated_thumbnails(
    source: Path, tmp_path: Path, thumbs: Thumbs
) -> None:
    """A second run makes only thumbnails that are missing or older than their image."""
    to = tmp_path / "to"
    thumbs(source, to)
    (to / "wren.jpg").unlink()
    before = newest(to)
    later = before["in/small.jpg"] + 10**9
    os.utime(source / "in" / "small.png", ns=(later, later))

    status, out, _ = thumbs(source, to)

    after = newest(to)
    assert status == 0
    assert out.startswith("2 thumbnails in ")
    assert out.endswith("; 1 were there\n")
    assert after["in/deep/house.JPEG"] == before["in/deep/house.JPEG"]
    assert after["in/small.jpg"] != before["in/small.jpg"]
    assert names(to) == ["in/deep/house.JPEG", "in/small.jpg", "wren.jpg"]


def test_another_size_or_quality_replaces_thumbnails(
    source: Path, tmp_path: Path, thumbs: Thumbs
) -> None:
    """Another size or quality replaces the thumbnails of an earlier run."""
    thumbs(source, tmp_path / "to", "--size", 100)

    assert thumbs(source, tmp_path / "to", "--size", 50)[1].startswith("3 thumbnails in ")
    assert decode_file(tmp_path / "to" / "wren.jpg").shape == (33, 50, 3)
    again = thumbs(source, tmp_path / "to", "--size", 50, "--quality", 30)
    assert again[1].startswith("3 thumbnails in ")


def test_files_of_others_are_never_replaced(source: Path, tmp_path: Path, thumbs: Thumbs) -> None:
    """An existing file that the command did not make is kept and reported."""
    to = tmp_path / "to"
    to.mkdir()
    (to / "wren.jpg").write_bytes(photo.read_bytes())
    os.utime(to / "wren.jpg", (1, 1))

    status, out, _ = thumbs(source, to)

    assert status == 1
    assert (to / "wren.jpg").read_bytes() == photo.read_bytes()
    assert "wren.jpg: " in out
    assert "this command has not made" in out
    assert "2 thumbnails in " in out


def test_names_that_would_clash(tmp_path: Path, thumbs: Thumbs) -> None:
    """Images whose thumbnails would share a name keep their old suffix, which is reported."""
    folder = tmp_path / "photos"
    folder.mkdir()
    for name in ("a.png", "a.bmp", "b.png", "c"):
        (folder / name).write_bytes(encode(drawing(30, 20), "png"))
    (folder / "a.jpg").write_bytes(encode(drawing(30, 20)))

    status, out, _ = thumbs(folder, tmp_path / "to")

    assert status == 0
    assert names(tmp_path / "to") == ["a.bmp.jpg", "a.jpg", "a.png.jpg", "b.jpg"]
    assert "Some names would have been the same: see a.bmp.jpg, a.png.jpg\n" in out


def test_damaged_files_are_listed(source: Path, tmp_path: Path, thumbs: Thumbs) -> None:
    """Damaged files are listed with reasons, the others are made, and the status is 1."""
    (source / "cut.jpg").write_bytes(photo.read_bytes()[:5000])
    (source / "text.png").write_bytes(b"<html>no image</html>")
    (source / "nowhere.jpg").symlink_to("missing")
    (tmp_path / "to" / "in" / "small.jpg").mkdir(parents=True)

    status, out, _ = thumbs(source, tmp_path / "to")

    lines = out.splitlines()
    assert status == 1
    assert [line.partition(": ")[0] for line in lines[:4]] == [
        "cut.jpg", "nowhere.jpg", "text.png", "in/small.png",
    ]  # fmt: skip
    assert all(line.partition(": ")[2] for line in lines[:4])
    assert lines[4] == "4 images have no thumbnail."
    assert lines[5].startswith("2 thumbnails in ")


def test_thumbnails_of_thumbnails_are_not_made(
    source: Path, tmp_path: Path, thumbs: Thumbs
) -> None:
    """Thumbnails inside SRC, hidden files and cyclic links are not taken for images."""
    shutil.copytree(source / "in", source / ".trash")
    (source / "._wren.jpg").write_bytes(b"a resource fork")
    (source / "in" / "round").symlink_to(source)
    (source / "link").symlink_to(source / "thumbs")
    (source / "thumbs").mkdir()

    first = thumbs(source, source / "thumbs")
    second = thumbs(source, source / "thumbs")

    assert first[0] == second[0] == 0
    assert first[1].startswith("3 thumbnails in ")
    assert second[1].endswith("; 3 were there\n")
    assert names(source / "thumbs") == ["in/deep/house.JPEG", "in/small.jpg", "wren.jpg"]


@pytest.mark.parametrize("place", [".", "in/..", ".."])
def test_thumbnails_among_the_images_are_refused(source: Path, place: str, thumbs: Thumbs) -> None:
    """DST may not be SRC or a parent of it, since an image could be overwritten."""
    before = newest(source)

    status, _, said = thumbs(source, source / place)

    assert status == 2
    assert "need a separate folder" in said
    assert newest(source) == before


def test_unwritable_target_is_an_error(source: Path, tmp_path: Path, thumbs: Thumbs) -> None:
    """A DST that cannot be a folder, or is a URI, is an error before any decoding."""
    for place in (source / "wren.jpg", source / "wren.jpg" / "below", "s3://bucket/thumbs"):
        status, out, said = thumbs(source, place)
        assert status == 2
        assert out == ""
        assert str(place).partition("/below")[0] in said


def test_folder_without_images_is_an_error(tmp_path: Path, thumbs: Thumbs) -> None:
    """A folder that is missing, empty, or has only hidden images is an error with status 2."""
    (tmp_path / "empty").mkdir()
    (tmp_path / "hidden").mkdir()
    shutil.copy(photo, tmp_path / "hidden" / ".a.jpg")

    for folder in ("missing", "empty", "hidden"):
        status, _, said = thumbs(tmp_path / folder, tmp_path / "to")
        assert status == 2
        assert folder in said
    assert not (tmp_path / "to").exists()


@pytest.mark.skipif(os.name == "nt", reason="needs process limits")
def test_a_full_disk_ends_the_run(source: Path, tmp_path: Path, thumbs: Thumbs) -> None:
    """A full disk ends the run with status 2 and no partial file; the command can resume."""
    limited = (
        "import resource, sys\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (3000, resource.RLIM_INFINITY))\n"
        "from fastdecode.cli import main\n"
        "sys.exit(main(['thumbs', *sys.argv[1:], '--threads', '1']))\n"
    )
    to = tmp_path / "to"

    done = subprocess.run(
        [sys.executable, "-c", limited, str(source), str(to)],
        capture_output=True, text=True, check=False,
    )  # fmt: skip

    assert done.returncode == 2
    assert "File too large" in done.stderr
    assert "Traceback" not in done.stderr
    left = [path.relative_to(to).as_posix() for path in to.rglob("*") if path.is_file()]
    assert left == []
    assert thumbs(source, to)[1].startswith("3 thumbnails in ")


def test_ctrl_c(source: Path, tmp_path: Path, thumbs: Thumbs) -> None:
    """Ctrl-C ends the run with status 130, and every thumbnail made is complete."""
    for number in range(60):
        shutil.copy(photo, source / f"{number:02}.jpg")
    script = (
        "import os, signal, sys\n"
        "from fastdecode.packing import _thumbs_command as command\n"
        "from fastdecode.cli import main\n"
        "real, seen = command.write_bytes, []\n"
        "def write(*arguments, **options):\n"
        "    real(*arguments, **options)\n"
        "    seen.append(1)\n"
        "    if len(seen) == 3:\n"
        "        os.kill(os.getpid(), signal.SIGINT)\n"
        "command.write_bytes = write\n"
        "sys.exit(main(['thumbs', *sys.argv[1:]]))\n"
    )
    to = tmp_path / "to"

    done = subprocess.run(
        [sys.executable, "-c", script, str(source), str(to)],
        capture_output=True, text=True, check=False,
    )  # fmt: skip

    assert done.returncode == 130
    assert "the same command goes on" in done.stderr
    made = [path for path in to.rglob("*") if path.is_file()]
    assert 3 <= len(made) < 63
    for path in made:
        assert max(decode_file(path).shape) == 256
    assert thumbs(source, to)[1].endswith(f"; {len(made)} were there\n")


def test_thumbnails_of_a_store(tmp_path: Path, thumbs: Thumbs) -> None:
    """Thumbnails of a store are named by its keys and remade if the store is newer."""
    store = tmp_path / "photos.tar"
    with create_store(store) as writer:
        writer.add("cat/1.jpg", photo.read_bytes())
        writer.add("dog/2.png", encode(drawing(30, 20), "png"))

    assert thumbs(store, tmp_path / "to", "--size", 32)[0] == 0
    assert names(tmp_path / "to") == ["cat/1.jpg", "dog/2.jpg"]
    assert thumbs(store, tmp_path / "to", "--size", 32)[1].endswith("; 2 were there\n")
    later = newest(tmp_path / "to")["cat/1.jpg"] + 10**9
    os.utime(store, ns=(later, later))
    assert thumbs(store, tmp_path / "to", "--size", 32)[1].startswith("2 thumbnails")


def test_list_cannot_write_outside_the_target(tmp_path: Path, thumbs: Thumbs) -> None:
    """Paths in a list that lead out of its folder write nothing outside DST."""
    shutil.copy(photo, tmp_path / "secret.jpg")
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "list.csv").write_text(f"path\n../secret.jpg\n{tmp_path / 'secret.jpg'}\n")

    thumbs(tmp_path / "in" / "list.csv", tmp_path / "in" / "to", "--size", 32)

    assert (tmp_path / "secret.jpg").read_bytes() == photo.read_bytes()
    written = [path for path in tmp_path.rglob("*.jpg") if path.name != "secret.jpg"]
    inside = list((tmp_path / "in" / "to").rglob("secret.jpg"))
    assert written == []
    assert inside
    assert not list(tmp_path.glob("*/secret.jpg"))


def test_unusual_images(tmp_path: Path, thumbs: Thumbs) -> None:
    """Palettes, 16 bits, one pixel, CMYK, strips, grey and animations all become thumbnails."""
    folder = tmp_path / "odd"
    folder.mkdir()
    deep = np.linspace(0, 65535, 64 * 40).reshape(40, 64).astype(np.uint16)
    strip = drawing(4000, 1)
    for name, image in {
        "palette.png": drawing(40, 30).convert("P"),
        "deep.png": Image.fromarray(deep),
        "dot.png": drawing(1, 1),
        "inks.jpg": drawing(40, 30).convert("CMYK"),
        "strip.jpg": strip,
        "grey.jpg": drawing(40, 30).convert("L"),
    }.items():
        file = io.BytesIO()
        image.save(file, "png" if name.endswith("png") else "jpeg")
        (folder / name).write_bytes(file.getvalue())
    shutil.copy(CORPUS / "formats" / "gen_anim.gif", folder / "anim.gif")

    status, out, _ = thumbs(folder, tmp_path / "to", "--size", 20)

    assert (status, out[:12]) == (0, "7 thumbnails")
    sizes = {name: decode_file(tmp_path / "to" / name).shape for name in names(tmp_path / "to")}
    assert sizes["strip.jpg"] == (1, 20, 3)
    assert sizes["dot.jpg"] == (1, 1, 3)
    assert sizes["palette.jpg"] == (15, 20, 3)
