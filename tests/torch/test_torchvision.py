"""Datasets and transforms in place of torchvision's: the same, and with its own tests."""

from __future__ import annotations

import inspect
import os
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torchvision_suite
from class_tree import PHOTOS, make_tree
from PIL import Image
from processes import python
from same import assert_same

pytest.importorskip("torchvision", exc_type=ImportError)

from torchvision import datasets
from torchvision import transforms as v1
from torchvision.transforms import v2

from fastdecode.torch import DecodeMixin, DecodeOptions, ImageFolder, ImageList, transforms

wrapped = datasets.wrap_dataset_for_transforms_v2


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return make_tree(tmp_path)


GIVEN: dict[str, dict[str, Any]] = {
    "nothing": {},
    "transforms": {"transform": v2.RGB(), "target_transform": v2.Identity()},
    "a function": {"is_valid_file": lambda path: path.endswith("1.jpg"), "allow_empty": True},
    "empty": {"is_valid_file": str.isspace, "allow_empty": True},
}


@pytest.mark.parametrize("name", GIVEN)
def test_it_is_as_torchvisions(root: Path, name: str) -> None:
    """Samples, pixels, attributes and text are equal to its own, also of files that are chosen.

    Only the extensions are more, which are those of a store.
    """
    theirs, ours = (kind(str(root), **GIVEN[name]) for kind in (datasets.ImageFolder, ImageFolder))
    for each in ("root", "classes", "class_to_idx", "samples", "targets", "imgs"):
        assert getattr(ours, each) == getattr(theirs, each), each
    for each in ("transform", "target_transform", "is_valid_file", "allow_empty"):
        assert getattr(ours, each) == GIVEN[name].get(each, False if "allow" in each else None)
    assert (ours.transforms is None) == (theirs.transforms is None)
    assert repr(ours).startswith(repr(theirs))
    assert_same(list(ours), list(theirs))
    assert set(theirs.extensions or ()) < set(ours.extensions or ("",))
    ours.samples = ours.samples[-1:]
    assert len(ours) == min(1, len(theirs))


def test_missing_files_and_classes_are_told(root: Path) -> None:
    """The errors are torchvision's, for a missing folder, or classes, or files in them."""
    (root / "none" / "deep").mkdir(parents=True)
    (root / "void").mkdir()
    for place in (root, root / "void", root / "there is no such"):
        messages = []
        for kind in (datasets.ImageFolder, ImageFolder):
            with pytest.raises(FileNotFoundError) as caught:
                kind(place)
            messages.append(str(caught.value).partition(" are: ")[0].partition(" in ")[0])
        assert messages[0] == messages[1]
    for classes in (None, {}):
        with pytest.raises(ValueError, match=r"None|class"):
            ImageFolder.make_dataset(root, classes, (".jpg",))

    assert ImageFolder(root, allow_empty=True).classes[2:4] == ["b", "none"]


class Greyed(ImageFolder):
    """A user's subclass."""

    decode_options = DecodeOptions(mode="L")


def test_datasets_are_torchvisions(root: Path) -> None:
    """`isinstance` with torchvision's classes holds, also for a subclass and a copy."""
    folder = ImageFolder(root)
    listed = ImageList([folder.samples[0][0]], [3])
    greyed = Greyed(root)

    for dataset in (folder, greyed, pickle.loads(pickle.dumps(greyed))):
        assert isinstance(dataset, datasets.ImageFolder)
        assert dataset[0][0].mode == ("RGB" if dataset is folder else "L")
    assert isinstance(listed, datasets.VisionDataset)
    assert not isinstance(listed, datasets.ImageFolder)
    with pytest.raises(TypeError, match="ImageList"):  # torchvision's error for unknown datasets
        wrapped(listed)


class Mine(DecodeMixin, datasets.ImageFolder):
    """A folder of torchvision's that decodes with this package."""


def test_mixin_before_torchvisions_folder_decodes_for_it(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Pillow images equal torchvision's, through its transform; options are the mixin's."""
    theirs = datasets.ImageFolder(root)
    plain, expected = Mine(root), list(theirs)
    monkeypatch.setattr(datasets.folder, "pil_loader", None)  # not by torchvision

    assert_same(list(plain), expected)
    halved = Mine(root, v2.PILToTensor())
    halved.decode_options = DecodeOptions(reduce=2)
    again = pickle.loads(pickle.dumps(halved))
    width, height = plain[0][0].size

    assert halved[0][0].shape == (3, -(-height // 2), -(-width // 2))
    assert_same(again[0][0], halved[0][0])
    assert Mine(root, loader=len)[0][0] == len(theirs.samples[0][0])


_THEIR_TESTS = '''
import fastdecode.torch
import test_datasets


class DatasetFolder(fastdecode.torch.ImageFolder):
    """Called as torchvision's class of that name."""

    def __init__(
        self,
        root,
        loader,
        extensions=None,
        transform=None,
        target_transform=None,
        is_valid_file=None,
        allow_empty=False,
    ):
        super().__init__(
            root,
            transform,
            target_transform,
            loader,
            is_valid_file,
            allow_empty,
            extensions=extensions,
        )


class TestImageFolder(test_datasets.ImageFolderTestCase):
    DATASET_CLASS = fastdecode.torch.ImageFolder


class TestDatasetFolder(test_datasets.DatasetFolderTestCase):
    DATASET_CLASS = DatasetFolder
'''


def test_torchvisions_own_tests_pass(tmp_path: Path) -> None:
    """Those of its ImageFolder and DatasetFolder, with our class in their place.

    So do all tests of its datasets with `DecodeMixin` in front of every class.

    `FASTDECODE_TORCHVISION` names a checkout of github.com/pytorch/vision.
    """
    checkout = os.environ.get("FASTDECODE_TORCHVISION")
    if not checkout:
        pytest.skip("FASTDECODE_TORCHVISION names no checkout of pytorch/vision")
    behind = torchvision_suite.run(checkout, stdout=subprocess.PIPE, timeout=3000)
    assert behind.returncode == 0, behind.stdout
    (tmp_path / "test_ours.py").write_text(_THEIR_TESTS)
    paths = [str(Path(checkout) / "test"), *sys.path]
    words = ("-m", "pytest", "-q", "-W", "ignore", "-p", "no:cacheprovider", ".")
    told = python(*words, cwd=tmp_path, PYTHONPATH=os.pathsep.join(filter(None, paths)))

    assert told.returncode == 0, told.stdout
    for output in (behind.stdout, told.stdout):
        assert " passed" in output
    assert "skipped" not in told.stdout


# ---- transforms ----


@pytest.mark.parametrize("mode", ["RGB", "L", "1", "I", "F"])
def test_to_tensor_is_torchvisions(mode: str) -> None:
    """For each mode of Pillow's."""
    image = Image.open(PHOTOS[0]).convert("L").convert(mode)
    assert_same(transforms.ToTensor()(image), v1.ToTensor()(image))


@pytest.mark.parametrize("theirs", [v1, v2], ids=["v1", "v2"])
@pytest.mark.parametrize(
    "name", ["Compose", "Normalize", "RandomResizedCrop", "Resize", "ToTensor"]
)
def test_arguments_are_torchvisions(name: str, theirs: Any) -> None:
    """The arguments have torchvision's names, positions and defaults."""
    expected = list(inspect.signature(getattr(theirs, name)).parameters.values())
    found = list(inspect.signature(getattr(transforms, name)).parameters.values())

    for own, their in zip(found, expected, strict=False):
        assert own.name == their.name
        assert own.kind == their.kind == inspect.Parameter.POSITIONAL_OR_KEYWORD
        if their.default is not inspect.Parameter.empty:
            default, theirs_ = (getattr(one.default, "value", one.default) for one in (own, their))
            assert default == theirs_ or (default is None and theirs_ == 0)  # v2's, and v1's
    by_name = (inspect.Parameter.KEYWORD_ONLY, inspect.Parameter.VAR_KEYWORD)
    assert {one.kind for one in found[len(expected) :]} <= {*by_name}
