"""`ImageFolder`: what it has besides torchvision's; test_torchvision compares them."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from class_tree import make_tree
from corpus import TESTS
from PIL import Image as PillowImage
from same import assert_same

from fastdecode import DecodeError, decode_file, probe
from fastdecode.stores import open_store
from fastdecode.stores._scan import EXTENSIONS
from fastdecode.stores.tar.names import IMAGES
from fastdecode.torch import ImageFolder
from fastdecode.torch.transforms import Compose, Resize, ResizeCenterCropNormalize, ToTensor

CROP = ResizeCenterCropNormalize(32, 24)
CUT = TESTS / "data" / "malformed" / "gen_jpg_cut667.jpg"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return make_tree(tmp_path)


def names(dataset: ImageFolder, root: Path) -> list[str]:
    return [Path(path).relative_to(root).as_posix() for path, _ in dataset.samples]


@pytest.mark.parametrize("suffix", EXTENSIONS)
def test_it_has_the_images_that_a_store_has(tmp_path: Path, suffix: str) -> None:
    """A folder has the same images as an `ImageFolder` and as a store, whatever their format."""
    for name in (f"a/x{suffix}", f"b/X{suffix.upper()}", "b/notes.txt"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(b"an image")

    with open_store(tmp_path) as store:
        assert [tmp_path / store.key(at) for at in range(len(store))] == [
            Path(path) for path, _ in ImageFolder(tmp_path).samples
        ]
        assert len(store) == 2
    assert suffix[1:] in IMAGES


def test_a_folder_without_classes_tells_what_reads_it(root: Path) -> None:
    """Where images lie directly in the folder, the error names the datasets for them."""
    with pytest.raises(FileNotFoundError, match=r"class folder.*ImageList.*StoreDataset"):
        ImageFolder(root / "a" / "linked")


def test_given_loader_is_obeyed(root: Path) -> None:
    """The user's loader is called with the path; nothing is decoded or fused here.

    The default one decodes with the options of the dataset.
    """
    seen = []

    def load(path: str) -> PillowImage.Image:
        seen.append(path)
        return PillowImage.new("RGB", (20, 10))

    dataset = ImageFolder(root, Compose([Resize(8)]), loader=load)

    assert (dataset[3][0].size, dataset[3][1]) == ((16, 8), 1)
    assert {*seen} == {dataset.samples[3][0]}
    assert dataset.loader("x").size == (20, 10)
    assert "Decoding: by <function" in repr(dataset)

    dataset.loader = lambda _: PillowImage.new("RGB", (10, 30))

    assert dataset[3][0].size == (8, 24)
    path, _ = dataset.samples[0]
    assert_same(np.asarray(ImageFolder(root, reduce=2).loader(path)), decode_file(path, 2))
    by_bytes = ImageFolder(root, CROP, loader=lambda path: Path(path).read_bytes())
    assert_same(by_bytes[0][0], CROP(Path(path).read_bytes()))


def test_error_of_a_loader_names_the_file_once(root: Path) -> None:
    """If a loader's error names the path, it is not added again."""
    shutil.copy(CUT, root / "A" / "1.jpg")
    dataset = ImageFolder(root, loader=decode_file)

    with pytest.raises(DecodeError) as caught:
        dataset[0]

    assert str(caught.value).startswith(f"{root / 'A' / '1.jpg'} (item 0): ")
    assert str(caught.value).count("1.jpg") == 1


def test_geometry_is_not_known_behind_a_loader(root: Path) -> None:
    """`map_target` with the user's loader is refused, because the geometry is unknown."""

    class Boxes(ImageFolder):
        def map_target(self, target: Any, geometry: Any) -> Any:
            return geometry

    with pytest.raises(ValueError, match="loader"):
        Boxes(root, loader=PillowImage.open)[0]


def test_subclass_of_torchvision_style_works(root: Path) -> None:
    """`find_classes`, `make_dataset` and `__getitem__` may be overridden as in torchvision."""

    class Two(ImageFolder):
        def find_classes(self, directory: Any) -> Any:
            return ["b", "A"], {"b": 0, "A": 1}

        @staticmethod
        def make_dataset(directory: Any, class_to_idx: Any, **others: Any) -> Any:
            return ImageFolder.make_dataset(directory, class_to_idx, **others)[::-1]

        def __getitem__(self, index: int) -> Any:
            path, target = self.samples[index]
            image = self.loader(path)
            return self.transform(image), target, path

    dataset = Two(root, lambda image: torch.tensor(image.size))
    sizes, targets, paths = next(iter(torch.utils.data.DataLoader(dataset, batch_size=9)))

    header = probe(Path(paths[-1]).read_bytes())

    assert dataset.classes == ["b", "A"]
    assert targets.tolist() == [0, 0, 0, 0, 0, 0, 1]
    assert paths[-1] == str(root / "A" / "1.jpg")
    assert tuple(sizes[-1].tolist()) == (header.width, header.height)


def test_repr_is_torchvisions_and_one_part_more(root: Path) -> None:
    """`repr` has torchvision's lines, and how images are decoded."""

    class Double:
        def __repr__(self) -> str:
            return "Double(\n  x\n)"

        def __call__(self, sample: Any) -> Any:
            return sample

    assert repr(ImageFolder(root, Double(), Double())).splitlines() == [
        "Dataset ImageFolder",
        "    Number of datapoints: 11",
        f"    Root location: {root}",
        "    StandardTransform",
        "Transform: Double(",
        "             x",
        "           )",
        "Target transform: Double(",
        "                    x",
        "                  )",
        (
            "    Decoding: whole images, nothing fused (it begins with Double, which is not one of "
            "the transforms that are done while decoding)"
        ),
    ]
    assert (
        "    Decoding: Plan(\n      while decoding: Resize\n      in the core: ToTensor\n"
        in repr(ImageFolder(root, Compose([Resize(8), ToTensor()])))
    )


def test_spawned_workers_decode_and_tell_of_damage(
    root: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """DataLoader works with spawned workers, which warn of skipped files."""
    shutil.copy(CUT, root / "b" / "2.jpg")  # and behind the link in a/
    dataset = ImageFolder(root, CROP, on_error="skip")
    whole = ImageFolder(root, CROP)
    loader = torch.utils.data.DataLoader(
        dataset, batch_size=4, num_workers=1, multiprocessing_context="spawn"
    )
    batches = list(loader)
    told = capfd.readouterr().err

    assert [targets.tolist() for _, targets in batches] == [[0, 1, 1], [2, 2, 2], [2, 2, 3]]
    assert_same(batches[0][0][0], whole[0][0])
    assert f"RuntimeWarning: {root / 'b' / '2.jpg'} (item 6): " in told
    assert told.count("RuntimeWarning") == 2
    assert "fastdecode.torch.Loader" in told
    assert dataset.errors == []


def test_files_can_be_chosen(root: Path) -> None:
    """`extensions` choose the files, too; both at once are refused."""
    by_ending = ImageFolder(root, extensions=(".ico", ".txt"), allow_empty=True)

    assert names(by_ending, root) == ["a/notes.txt", "a/x.ico"]
    with pytest.raises(ValueError, match=r"extensions.*is_valid_file"):
        ImageFolder(root, is_valid_file=bool, extensions=(".jpg",))


@pytest.mark.parametrize(
    "given", [{"root": 5}, {"target_transform": 5}, {"loader": "pil"}], ids=str
)
def test_wrong_types_are_told(root: Path, given: dict[str, Any]) -> None:
    """An argument of a wrong type is refused by its name, before any file is read."""
    with pytest.raises(TypeError, match=rf"{next(iter(given))}.*{next(iter(given.values()))}"):
        ImageFolder(**{"root": root, **given})
