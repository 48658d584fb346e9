"""The photos that come with the package."""

from __future__ import annotations

from pathlib import Path

import pytest

from fastdecode import decode_file, probe
from fastdecode.cli import main
from fastdecode.samples import photo, photos


def test_the_usual_photo_is_one_that_every_decoder_reads() -> None:
    """`photo` is the path of a baseline JPEG in colour, and decodes to the documented size."""
    header = probe(photo.read_bytes())

    assert isinstance(photo, Path)
    assert (header.format, header.coding, header.color) == ("jpeg", "baseline", "ycc")
    assert decode_file(photo).shape == (480, 640, 3)


def test_they_are_copied_in_class_folders(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The command copies one photo, all, and all by class; again, it does nothing."""
    folder = tmp_path / "new" / "folder"
    for _ in range(2):
        assert main(["samples", str(folder)]) == 0
        found = {path.relative_to(folder).as_posix() for path in folder.rglob("*.jpg")}
        named = {path.name: path for path in photos}
        assert len(found) == 13
        assert capsys.readouterr().out.split() == [
            str(folder / name) for name in ("cat.jpg", "photos", "train")
        ]
        assert (folder / "cat.jpg").read_bytes() == photo.read_bytes()
        assert {name for name in found if name.startswith("photos/")} == {
            f"photos/{name}" for name in named
        }
        classes = [name.split("/")[1:] for name in found if name.startswith("train/")]
        assert {kind for kind, _ in classes} == {"bird", "place"}
        assert sorted(name for _, name in classes) == sorted(named)
        for name in found - {"cat.jpg"}:
            assert (folder / name).read_bytes() == named[Path(name).name].read_bytes()


@pytest.mark.parametrize("what", ["another file", "a folder", "a broken link"])
def test_nothing_is_overwritten(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], what: str
) -> None:
    """If something else has the name of a photo, the command names it and copies nothing."""
    place = tmp_path / "train" / "place" / photo.name
    place.parent.mkdir(parents=True)
    if what == "another file":
        place.write_bytes(b"mine")
    elif what == "a folder":
        place.mkdir()
    else:
        place.symlink_to(tmp_path / "nowhere")

    with pytest.raises(SystemExit) as ended:
        main(["samples", str(tmp_path)])

    assert ended.value.code == 2
    assert str(place) in capsys.readouterr().err
    assert not (tmp_path / "cat.jpg").exists()
