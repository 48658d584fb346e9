"""Tests of what a Ray task does with its images, without a cluster."""

from __future__ import annotations

import logging
import pickle
import shutil
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pytest
from corpus import CORPUS
from PIL import Image
from same import assert_same

from fastdecode import decode
from fastdecode.ray import decode_images
from fastdecode.ray import images as ray_images
from fastdecode.stores import open_store
from fastdecode.testing import drawing, encode

Y, X = np.mgrid[:200, :320]
SMOOTH = np.stack([X * 0.7, Y + 20 * np.sin(X / 9), 127 + 99 * np.cos(Y / 11)], 2).astype(np.uint8)
PHOTO = encode(Image.fromarray(SMOOTH))
CUT = PHOTO[: len(PHOTO) // 2]
UNREADABLE = Path("/proc/self/mem")
pytestmark = [  # Ray sets these deprecated settings itself
    pytest.mark.filterwarnings("ignore:`use_.*is deprecated:DeprecationWarning")
]


def made(sources: list[Any], size: Any = None, **options: Any) -> list[Any]:
    """Return all tables, whose column ``at`` says which sources they have."""
    names = [f"image {at}" for at in range(len(sources))]
    num_cpus, on_error = options.pop("num_cpus", 1), options.pop("on_error", "raise")
    job = ray_images.Job.checked(made, size, num_cpus, on_error, options)
    rows = pa.table({"at": pa.array(range(len(sources)), pa.int64())})
    return list(ray_images.decode_rows(rows, sources, names.__getitem__, job, "image"))


def images(table: Any) -> list[Any]:
    """Return the images of a table."""
    return [array for chunk in table["image"].chunks for array in chunk.to_numpy(False)]


def kept(table: Any) -> list[int]:
    """Return the indices of the sources that a table has."""
    return list(table["at"].to_pylist())


def resized(data: bytes, size: tuple[int, int], **options: Any) -> Any:
    """Return Pillow's resize of the decoded image."""
    image = Image.fromarray(decode(data, **options))
    return np.asarray(image.resize(size[::-1], Image.Resampling.BILINEAR))


@pytest.mark.parametrize("num_cpus", [1, 2])
@pytest.mark.parametrize("disabled", ["", "native"])
@pytest.mark.parametrize("mode", ["RGB", "L", "RGBA"])
def test_images_are_resized_as_pillow_does_it(
    mode: str, disabled: str, num_cpus: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a reduction, images are within one level of Pillow's resize, with or without core."""
    monkeypatch.setenv("FASTDECODE_DISABLE", disabled)
    sources = [PHOTO, encode(drawing(160, 320), "png"), PHOTO]

    (portion,) = made(sources, (190, 280), mode=mode, num_cpus=num_cpus)

    for image, data in zip(images(portion), sources, strict=True):
        expected = resized(data, (190, 280), mode=mode)
        assert image.shape == expected.shape
        assert np.abs(image.astype(int) - expected).max() <= 1


@pytest.mark.parametrize("disabled", ["", "native"])
def test_a_jpeg_is_reduced_as_far_as_the_size_allows(
    disabled: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A JPEG is reduced as far as the size allows, unless `reduce` or `min_size` say otherwise."""
    monkeypatch.setenv("FASTDECODE_DISABLE", disabled)
    for options, reduce in (({}, 4), ({"min_size": (60, 80)}, 2), ({"reduce": 8}, 8)):
        (portion,) = made([PHOTO], (50, 70), **options)

        expected = resized(PHOTO, (50, 70), reduce=reduce)
        assert np.abs(images(portion)[0].astype(int) - expected).max() <= 1


@pytest.mark.parametrize("disabled", ["", "native"])
@pytest.mark.parametrize("mode", ["RGB", "L"])
def test_half_a_reduced_pixel_is_left_out(
    mode: Any, disabled: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A JPEG of 319 columns is resized, although as many as are wanted are decoded of it: 160."""
    monkeypatch.setenv("FASTDECODE_DISABLE", disabled)
    data = encode(Image.fromarray(SMOOTH[:199, :319]))

    (portion,) = made([data], (100, 160), mode=mode)

    image = Image.fromarray(decode(data, reduce=2, mode=mode))
    assert image.size == (160, 100)
    expected = image.resize((160, 100), Image.Resampling.BILINEAR, box=(0, 0, 159.5, 99.5))
    assert np.abs(images(portion)[0].astype(int) - np.asarray(expected)).max() <= 1


@pytest.mark.parametrize("disabled", ["", "native"])
@pytest.mark.parametrize("reduce", [1, 2])
def test_region_is_cut_before_the_resize(
    reduce: int, disabled: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A region is cut before the resize, even if its edges fall between reduced pixels."""
    monkeypatch.setenv("FASTDECODE_DISABLE", disabled)
    region = (51, 33, 251, 183)

    (portion,) = made([PHOTO], (75, 100), region=region, reduce=reduce)

    expected = resized(PHOTO, (75, 100), region=region)
    assert np.abs(images(portion)[0].astype(int) - expected).mean() < 1.5


def test_a_region_outside_names_the_image() -> None:
    """A region outside an image is a ValueError that names it, even with ``on_error="skip"``."""
    for size in (None, 16):
        with pytest.raises(ValueError, match=r"image 1: region .* outside"):
            made([PHOTO, encode(drawing(20, 20))], size, region=(0, 0, 100, 100), on_error="skip")


def test_the_orientation_is_applied_on_request() -> None:
    """With ``orient=True`` an image is turned as by `decode`, with a size and without."""
    data = next((CORPUS / "formats").glob("gen_exif_ori6.webp")).read_bytes()
    turned = decode(data, orient=True)

    (portion,) = made([data], orient=True)
    (same,) = made([data], turned.shape[:2], orient=True)

    assert_same(images(portion)[0], turned)
    assert_same(images(same)[0], turned)


def test_without_a_size_images_are_as_decode_gives_them(tmp_path: Path) -> None:
    """Without a size, images equal those of `decode` and come in order, in bounded portions."""
    (tmp_path / "one.jpg").write_bytes(PHOTO)
    large = encode(drawing(2400, 1800))  # 13 MB of pixels

    portions = made([PHOTO, str(tmp_path / "one.jpg"), large, large, PHOTO], reduce=1)

    assert [kept(each) for each in portions] == [[0, 1, 2, 3], [4]]
    assert_same(images(portions[0])[1], decode(PHOTO))
    assert_same(images(portions[0])[2], decode(large))


def test_images_of_a_size_come_in_portions() -> None:
    """A portion holds at most 16 MB of pixels and 64 images."""
    assert [*map(len, made([PHOTO] * 9, 1024)), *map(len, made([PHOTO] * 66, 8))] == [5, 4, 64, 2]


@pytest.mark.parametrize("size", [None, 32])
def test_a_damaged_image_ends_the_job(size: int | None) -> None:
    """By default a damaged image raises the error of `decode` with the image's name."""
    with pytest.raises(ValueError, match="image 1: "):
        made([PHOTO, CUT, b""], size)


@pytest.mark.parametrize("size", [None, 32])
@pytest.mark.parametrize("bad", [CUT, b"", b"no image", OSError("no such item")])
def test_a_damaged_image_is_a_row_with_an_error(bad: Any, size: int | None) -> None:
    """With ``on_error="return"`` a bad image is empty or black, and its neighbours are intact."""
    (portion,) = made([PHOTO, bad, PHOTO], size, on_error="return")

    assert kept(portion) == [0, 1, 2]
    errors, (first, black, last) = portion["error"].to_pylist(), images(portion)
    assert errors[0] is None is errors[2]
    assert "Error" in errors[1] or "Unsupported" in errors[1]
    assert black.shape == ((32, 32, 3) if size else (0, 0, 3))
    assert not black.any()
    assert_same(first, last)


@pytest.mark.parametrize("size", [None, 32])
def test_a_damaged_image_is_left_out(size: int | None, caplog: pytest.LogCaptureFixture) -> None:
    """Skipped images are logged if the caller does not count them."""
    with caplog.at_level(logging.WARNING, "fastdecode.ray"):
        (portion,) = made([CUT, PHOTO, "/nowhere/to/be.jpg"], size, on_error="skip")

    assert kept(portion) == [1]
    assert len(images(portion)) == 1
    assert "left out image 0: " in caplog.text
    assert "1 more" in caplog.text


@pytest.mark.parametrize("size", [None, 8])
def test_a_row_of_a_later_portion_has_its_own_name(
    size: int | None, caplog: pytest.LogCaptureFixture
) -> None:
    """Whether it ends the job, is left out, or has no such region."""
    good = [encode(drawing(20, 20))] * 65
    bad, small = [*good, CUT], [*good, encode(drawing(9, 9))]

    with pytest.raises(ValueError, match="image 65: "):
        made(bad, size)
    with pytest.raises(ValueError, match="image 65: "):
        made(small, size, region=(0, 0, 20, 20))
    with caplog.at_level(logging.WARNING, "fastdecode.ray"):
        portions = made(bad, size, on_error="skip")
    assert "left out image 65: " in caplog.text
    assert list(map(kept, portions)) == [list(range(64)), [64]]


@pytest.mark.parametrize("bad", [None, 3, 68])
def test_the_other_columns_follow_the_images(bad: int | None) -> None:
    """In a later portion, too, with a row left out before it, in it, or nowhere."""
    job = ray_images.Job.checked(decode_images, None, 1, "skip", {})
    photos = [CUT if at == bad else encode(drawing(9, 9)) for at in range(70)]
    table = pa.table({"jpeg": photos, "label": range(70)})

    tables = list(ray_images._Decode("jpeg", None, "image", False, job)(table))

    assert len(tables) == 2
    labels = [label for each in tables for label in each["label"].to_pylist()]
    assert labels == [at for at in range(70) if at != bad]


@pytest.mark.filterwarnings("ignore::UserWarning:PIL.*")
@pytest.mark.skipif(not UNREADABLE.exists(), reason="needs a file that gives a disk error")
@pytest.mark.parametrize("on_error", ["skip", "return"])
@pytest.mark.parametrize("size", [None, 16])
def test_disk_error_ends_the_job(
    size: int | None, on_error: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A disk error ends the job whatever `on_error` says, as the image may be intact."""
    monkeypatch.setattr("fastdecode._error_policy._WAIT_S", 0.01)
    with pytest.raises(OSError, match="/proc/self/mem"):
        made([PHOTO, CUT, str(UNREADABLE)], size, on_error=on_error)


def test_every_malformed_file_is_a_row() -> None:
    """With ``on_error="return"`` every malformed file is a row."""
    paths = [str(path) for path in sorted((CORPUS / "malformed").iterdir())]

    portions = made(paths, 24, on_error="return", max_pixels=1_000_000)

    assert [at for each in portions for at in kept(each)] == list(range(len(paths)))
    assert any(error for each in portions for error in each["error"].to_pylist())


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"size": 0}, "size"),
        ({"size": (1, 2, 3)}, "size"),
        ({"reduce": 3}, "reduce"),
        ({"mode": "stored"}, "stored"),
        ({"on_error": "drop"}, "on_error"),
        ({"num_cpus": 0.5}, "num_cpus"),
        ({"num_cpus": 0}, "num_cpus"),
    ],
)
def test_wrong_options_are_refused(options: dict[str, Any], words: str) -> None:
    """Wrong options are refused at once, not in a task."""
    with pytest.raises(ValueError, match=words):
        made([], **options)


@pytest.mark.parametrize("on_error", ["skip", "return"])
@pytest.mark.parametrize("gone", ["folder", "files", "drive"])
def test_a_folder_that_is_gone_on_a_node_ends_the_task(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, gone: str, on_error: Any
) -> None:
    """A node without the folder, at its first task or later, does not count images as missing."""
    photos = tmp_path / "photos"
    photos.mkdir()
    for at in range(4):
        (photos / f"{at}.jpg").write_bytes(PHOTO)
    sent = pickle.dumps(open_store(photos))
    monkeypatch.setattr(ray_images.ray, "get", lambda _: pickle.loads(sent))
    monkeypatch.setattr(ray_images, "_opened", {})
    job = ray_images.Job.checked(ray_images.read_images, 16, 1, on_error, {})
    tasks = [ray_images._Read(OfNode(name), job, ["path"], None) for name in "ab"]
    batch = {"id": np.arange(4)}
    assert sum(len(table) for table in tasks[0](batch)) == 4

    if gone != "files":
        photos.rename(tmp_path / "away")
    else:
        shutil.rmtree(photos)
    if gone == "drive":  # which leaves the folder where it was mounted
        photos.mkdir()
    for task in tasks:
        with pytest.raises(FileNotFoundError, match="missing or empty"):
            list(task(batch))


class OfNode(NamedTuple):
    """A reference to a store in Ray's object store."""

    name: str

    def hex(self) -> str:
        return self.name
