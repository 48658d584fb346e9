"""`ImageFolder` besides what test_torchvision compares, and `ImageList`."""

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
from torch.utils.data import DataLoader

import fastdecode
from fastdecode import decode, decode_file, probe
from fastdecode.stores import open_store
from fastdecode.stores._scan import EXTENSIONS
from fastdecode.stores.tar.format import IMAGES
from fastdecode.torch import ImageFolder, ImageList, Loader
from fastdecode.torch.transforms import Compose, Resize, ResizeCenterCropNormalize

CROP = ResizeCenterCropNormalize(32, 24)
CUT = TESTS / "data" / "malformed" / "gen_jpg_cut667.jpg"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return make_tree(tmp_path)


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
    fused = ImageFolder(root, Compose([Resize(8)]))
    assert min(fused[3][0].size) == 8
    fused.loader = load  # from here on, nothing is
    assert fused[3][0].size == (16, 8)
    path, _ = dataset.samples[0]
    assert_same(np.asarray(ImageFolder(root, reduce=2).loader(path)), decode_file(path, 2))
    by_bytes = ImageFolder(root, CROP, loader=lambda path: Path(path).read_bytes())
    assert_same(by_bytes[0][0], CROP(Path(path).read_bytes()))


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
    sizes, targets, paths = next(iter(DataLoader(dataset, batch_size=9)))

    header = probe(Path(paths[-1]).read_bytes())

    assert dataset.classes == ["b", "A"]
    assert targets.tolist() == [0, 0, 0, 0, 0, 0, 1]
    assert paths[-1] == str(root / "A" / "1.jpg")
    assert tuple(sizes[-1].tolist()) == (header.width, header.height)


def test_spawned_workers_decode_and_tell_of_damage(
    root: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """DataLoader works with spawned workers, which warn of skipped files."""
    shutil.copy(CUT, root / "b" / "2.jpg")  # and behind the link in a/
    dataset = ImageFolder(root, CROP, on_error="skip")
    whole = ImageFolder(root, CROP)
    loader = DataLoader(dataset, batch_size=4, num_workers=1, multiprocessing_context="spawn")
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

    assert [Path(path).name for path, _ in by_ending.samples] == ["notes.txt", "x.ico"]
    with pytest.raises(ValueError, match=r"extensions.*is_valid_file"):
        ImageFolder(root, is_valid_file=bool, extensions=(".jpg",))


# ---- `ImageList`: paths from a list or a CSV file ----

FOLDER = Path(fastdecode.__file__).parent / "samples"
NAMES = ["casa-mila.jpg", "canyon-wren.jpg", "perched-osprey.jpg"]


def written(folder: Path, text: str | bytes, name: str = "list.csv") -> Path:
    path = folder / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def test_images_and_targets_belong_together() -> None:
    """Each path is decoded with its target; relative paths begin at the root."""
    dataset = ImageList([NAMES[0], FOLDER / NAMES[1]], ["casa", "wren"], root=FOLDER)

    assert len(dataset) == 2
    assert dataset.samples == [(str(FOLDER / NAMES[0]), "casa"), (str(FOLDER / NAMES[1]), "wren")]
    assert dataset.imgs is dataset.samples
    assert dataset.targets == ["casa", "wren"]
    assert_same(np.asarray(dataset[1][0]), decode((FOLDER / NAMES[1]).read_bytes()))


def test_csv_lies_beside_its_images(tmp_path: Path) -> None:
    """Relative paths begin at the CSV's folder or the given root; others stay."""
    text = f"a.jpg,0\nsub/b.jpg,1\n{FOLDER / NAMES[0]},2\n"
    file = written(tmp_path, text)

    assert [path for path, _ in ImageList.from_csv(file).samples] == [
        str(tmp_path / "a.jpg"),
        str(tmp_path / "sub" / "b.jpg"),
        str(FOLDER / NAMES[0]),
    ]
    elsewhere = ImageList.from_csv(str(file), root=FOLDER, transform=CROP)

    assert elsewhere.samples[0] == (str(FOLDER / "a.jpg"), 0)
    assert elsewhere[2][1] == 2


@pytest.mark.parametrize(
    ("text", "options", "targets"),
    [
        ("a.jpg,3\nb.jpg,-1\n", {}, [3, -1]),
        ("path,label\na.jpg,3\nb.jpg,4\n", {}, [3, 4]),
        ("\ufeffpath,label\na.jpg,3\nb.jpg,4\n", {"path_column": "path"}, [3, 4]),
        ("label,x,file\n3,-,a.jpg\n4,-,b.jpg\n", {"path_column": 2, "target_column": 0}, [3, 4]),
        ("label,file\n3,a\n4,b\n", {"path_column": "file", "target_column": "label"}, [3, 4]),
        ("3,a\n4,b\n", {"path_column": -1, "target_column": 0}, [3, 4]),
        ("x.y,z\na.jpg,3\nb.jpg,4\n", {"header": True}, [3, 4]),
        ("a,3\nb.jpg,4\n", {"header": False}, [3, 4]),
        ("a.jpg 3\n\nb.jpg 4\n", {"delimiter": " "}, [3, 4]),
        ('"a, b.jpg", 3\n"c\nd.jpg",4\n', {}, [3, 4]),
        ("a.jpg,1\nb.jpg,2.5\n", {}, [1.0, 2.5]),
        ("a.jpg,1_0\nb.jpg,2\n", {}, [0, 1]),
        (
            "a.jpg,wren\nb.jpg,casa\nc.jpg,wren\nd.jpg,tea\nd.jpg,bird\nd.jpg,x\n",
            {},
            [3, 1, 3, 2, 0, 4],
        ),
        ("a.jpg\nb.jpg\n", {"target_column": None}, []),
        ("", {}, []),
    ],
)
def test_csv_is_read_by_rule(
    tmp_path: Path, text: str, options: dict[str, Any], targets: list[Any]
) -> None:
    """The header, columns and types of targets follow the rules in the docstring."""
    dataset = ImageList.from_csv(written(tmp_path, text), **options)

    assert dataset.targets == targets
    assert [type(target) for target in dataset.targets] == [type(target) for target in targets]
    assert {Path(path).name[0] for path, _ in dataset.samples} <= {*"abcd"}


@pytest.mark.parametrize(
    ("text", "options", "message"),
    [
        ("a.jpg,1\n\nb.jpg\n", {}, r"list\.csv, line 3: .*column 1"),
        ("a.jpg,1\n ,2\n", {}, "line 2: column 0"),
        ("a.jpg,1\nb.jpg,\n", {}, "line 2: column 1"),
        ("path,label\na.jpg,1\n", {"target_column": "class"}, "'class'.*path, label"),
        ("", {"path_column": "path"}, "'path'"),
        ("a.jpg,x\nb.jpg,y\n", {"class_to_idx": {"x": 0}}, "line 2: 'y' .*class_to_idx"),
        (b"\xe9.jpg,1\n", {}, r"list\.csv, line 1: .*UTF-8"),
    ],
)
def test_wrong_csv_is_refused_with_the_line(
    tmp_path: Path, text: Any, options: dict[str, Any], message: str
) -> None:
    """Missing values are errors with file and line, before anything is decoded."""
    with pytest.raises(ValueError, match=message):
        ImageList.from_csv(written(tmp_path, text), **options)


@pytest.mark.parametrize(
    "targets",
    [
        *(np.arange(3).astype(kind) for kind in ("f2", "f4", "f8", ">f4", "u1", "i4", "i8", "?")),
        *(torch.arange(3).to(kind) for kind in (torch.bfloat16, torch.float32, torch.int16)),
        torch.linspace(0, 1, 3, requires_grad=True),
        np.array(["a", "b", "c"]),
    ],
    ids=lambda targets: f"{type(targets).__name__} of {targets.dtype}",
)
def test_vector_of_targets_keeps_its_type(targets: Any) -> None:
    """A batch of them is that of a dataset that holds the vector, in every loader."""
    dataset = ImageList(NAMES, targets, CROP, root=FOLDER)
    right = next(iter(DataLoader(list(targets), 3)))
    for load in (DataLoader, Loader):
        made = next(iter(load(dataset, 3)))[1]
        assert getattr(made, "dtype", None) == getattr(right, "dtype", None)
        assert list(made) == list(right)
    if str(targets.dtype) in ("int64", "float64"):  # which Python has as numbers
        assert {type(target) for target in dataset.targets} <= {int, float}
    rows = ImageList(NAMES, torch.eye(3), CROP, str, root=FOLDER)
    assert_same(rows.targets[1], torch.tensor([0.0, 1, 0]))
    assert rows[1][1] == "tensor([0., 1., 0.])"
