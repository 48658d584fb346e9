"""The programs of `examples/`, run as a user does: copied elsewhere, on a few photos."""

from __future__ import annotations

import ast
import json
import re
import shutil
from pathlib import Path

import pytest
from PIL import Image
from processes import python

from fastdecode.samples import photos
from fastdecode.testing import drawing, encode

EXAMPLES = Path(__file__).parents[1] / "examples"
PROGRAMS = sorted(EXAMPLES.glob("*.py"))
ENDS_S = 120


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Create a folder of two classes, with three small photos each and a damaged one."""
    for number, photo in enumerate(photos):
        place = tmp_path / "photos" / ("cat", "dog")[number % 2] / photo.name
        place.parent.mkdir(parents=True, exist_ok=True)
        with Image.open(photo) as image:
            image.resize((96 + 8 * number, 120)).convert("RGB").save(place)
    (tmp_path / "photos/dog/half.jpg").write_bytes(place.read_bytes()[:1000])
    return tmp_path / "photos"


def needs_libraries_of(program: str) -> None:
    """Skip if a library of a program is missing."""
    for library in {"thumbnails": (), "own_dataset_lmdb": ("torch", "lmdb")}.get(
        program, ("torch",)
    ):
        pytest.importorskip(library)
    if program == "train_lightning":
        pytest.importorskip("lightning", exc_type=ImportError)
    if program in ("segmentation", "detection"):
        pytest.importorskip("torchvision")


def output(program: str, *arguments: object, cwd: Path) -> tuple[str, str]:
    """Return the output of a copied program, which must succeed."""
    needs_libraries_of(program)
    copy = shutil.copy(EXAMPLES / f"{program}.py", cwd)
    ended = python(copy, *arguments, cwd=cwd, timeout=ENDS_S)
    assert ended.returncode == 0, ended.stderr
    return ended.stdout, ended.stderr


def test_thumbnails_are_made_of_every_format(folder: Path, tmp_path: Path) -> None:
    """Photos of any format and name get one; damaged and unsupported files are told apart."""
    for name, data in (
        ("wide.webp", encode(drawing(200, 100), "webp")),
        ("sub/no_suffix", encode(drawing(30, 20), "tiff")),
        ("map.ppm", encode(drawing(100, 200), "ppm")),
        ("notes.txt", b"no image"),
        ("drawing.svg", b"<svg xmlns='http://www.w3.org/2000/svg'/>"),
    ):
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_bytes(data)

    said, complained = output("thumbnails", folder, "thumbs", "--size", 48, cwd=tmp_path)

    assert "9 thumbnails in thumbs" in said
    assert "1 damaged, 2 unsupported" in said
    kinds = {
        Path(line.split(": ")[1]).name: line.split(": ")[0] for line in complained.splitlines()
    }
    assert kinds == {
        "half.jpg": "damaged", "notes.txt": "unsupported", "drawing.svg": "unsupported"
    }  # fmt: skip
    sizes = {}
    for thumb in (tmp_path / "thumbs").rglob("*.jpg"):
        with Image.open(thumb) as image:
            sizes[thumb.name] = image.size
    assert len(sizes) == 9
    assert sizes["wide.webp.jpg"] == (48, 24)
    assert sizes["map.ppm.jpg"] == (24, 48)
    assert sizes.pop("no_suffix.jpg") == (30, 20)  # nothing is enlarged
    assert {max(size) for size in sizes.values()} == {48}


@pytest.mark.thorough
def test_training_from_a_folder_tells_loss_and_speed(folder: Path, tmp_path: Path) -> None:
    """Both epochs print the loss and images/s, and name the damaged file."""
    arguments = ("--epochs", 2, "--batch-size", 4, "--size", 64)
    said, complained = output("train_folder", folder, *arguments, cwd=tmp_path)

    lines = re.findall(r"^epoch (\d): loss [\d.]+, \d+ images/s$", said, re.MULTILINE)
    assert lines == ["0", "1"]
    assert "half.jpg" in complained


def test_a_dataset_of_ones_own_reads_lmdb(folder: Path, tmp_path: Path) -> None:
    """The second run reads the file that the first one has written."""
    first = output("own_dataset_lmdb", folder, "photos.lmdb", cwd=tmp_path)
    written = (tmp_path / "photos.lmdb").read_bytes()
    again = output("own_dataset_lmdb", folder, "photos.lmdb", cwd=tmp_path)

    for said, complained in (first, again):
        assert said.startswith("6 photos, 3 of them upright, ")
        assert complained.startswith("skipped: dog/half.jpg: ")
    assert (tmp_path / "photos.lmdb").read_bytes() == written


@pytest.mark.thorough
def test_training_from_shards_goes_on_in_the_middle_of_an_epoch(
    folder: Path, tmp_path: Path
) -> None:
    """Two steps and the four remaining ones have the losses of six steps in one run."""
    shards = "--shard-size", 8000, "--epochs", 2

    def losses(name: str, *options: object) -> list[str]:
        said, _ = output(
            "train_shards", folder, f"{name}/train.tar", *shards, *options, cwd=tmp_path
        )
        return re.findall(r"^epoch \d, step \d+: loss ([\d.]+)$", said, re.MULTILINE)

    whole = losses("one")
    parts = losses("two", "--steps", 2), losses("two")

    assert len(list((tmp_path / "one").glob("train-*.tar"))) > 1
    assert list(map(len, (whole, *parts))) == [6, 2, 4]
    assert [*parts[0], *parts[1]] == whole


def test_masks_follow_their_photos(tmp_path: Path) -> None:
    """A network learns from crops what is bright, because each mask shows it at the same place."""
    for number in range(12):
        photo = Image.new("RGB", (96 + 8 * number, 120), (40, 50, 30))
        photo.paste((220, 200, 210), (0, 0, 30 + 6 * number, 80))
        mask = photo.convert("L").point([int(level > 128) for level in range(256)])
        for folder, image, suffix in (("photos", photo, "jpg"), ("masks", mask, "png")):
            place = tmp_path / folder / "sub" / f"{number}.{suffix}"
            place.parent.mkdir(parents=True, exist_ok=True)
            image.save(place)
    arguments = ("--classes", 2, "--size", 48, "--epochs", 3, "--batch-size", 4)
    said, _ = output("segmentation", "photos", "masks", *arguments, cwd=tmp_path)

    found = re.findall(r"^epoch (\d): loss [\d.]+, (\d+)% of the pixels right", said, re.MULTILINE)
    assert [number for number, _ in found] == ["0", "1", "2"]
    assert int(found[-1][1]) > 95


def test_boxes_without_an_area_are_left_out(folder: Path, tmp_path: Path) -> None:
    """A box of the whole image is always kept, and an empty one never, with its label."""
    (folder / "dog/half.jpg").unlink()
    boxes = {"boxes": [[0, 0, 96, 120], [5, 5, 5, 5]], "labels": [1, 2]}
    names = [path.relative_to(folder).as_posix() for path in sorted(folder.rglob("*.jpg"))]
    (tmp_path / "boxes.json").write_text(json.dumps(dict.fromkeys(names, boxes)))
    said, _ = output("detection", folder, "boxes.json", "--size", 64, cwd=tmp_path)

    assert said.startswith("6 images, 6 of 12 boxes seen, ")


@pytest.mark.thorough
def test_lightning_trains(folder: Path, tmp_path: Path) -> None:
    """Lightning's trainer takes a Loader, and the program prints the loss."""
    said, _ = output("train_lightning", folder, "--epochs", 1, "--batch-size", 4, cwd=tmp_path)

    assert re.search(r"^loss \d", said, re.MULTILINE)


@pytest.mark.parametrize("path", PROGRAMS, ids=lambda path: path.stem)
def test_a_program_is_short_and_begins_with_how_to_run_it(path: Path) -> None:
    """Each program has a docstring with its command line, and few lines; the table names it."""
    text = path.read_text(encoding="utf-8")
    doc = ast.get_docstring(ast.parse(text)) or ""
    code = [line for line in text.split('"""', 2)[2].splitlines() if line.strip()]

    assert f"python {path.name} " in doc
    assert len(code) <= 70
    assert f"]({path.name})" in (EXAMPLES / "README.md").read_text(encoding="utf-8")
