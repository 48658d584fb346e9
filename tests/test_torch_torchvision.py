"""The package's datasets where torchvision is: they are torchvision's, too, and pass its tests."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from class_tree import make_tree

torch = pytest.importorskip("torch")
torchvision = pytest.importorskip("torchvision", exc_type=ImportError)

from fastdecode.torch import DecodeMixin, ImageFolder, ImageList  # noqa: E402

wrapped = torchvision.datasets.wrap_dataset_for_transforms_v2


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return make_tree(tmp_path)


class Greyed(ImageFolder):
    """As somebody subclasses it."""

    mode = "L"


def test_datasets_are_torchvisions(root: Path) -> None:
    """Code that asks `isinstance` finds torchvision's classes, also in a subclass and a copy."""
    folder = ImageFolder(root)
    listed = ImageList([folder.samples[0][0]], [3])
    greyed = Greyed(root)

    for dataset in (folder, greyed, pickle.loads(pickle.dumps(greyed))):
        assert isinstance(dataset, torchvision.datasets.ImageFolder)
        assert dataset[0][0].mode == ("RGB" if dataset is folder else "L")
    assert isinstance(listed, torchvision.datasets.VisionDataset)
    assert not isinstance(listed, torchvision.datasets.ImageFolder)
    assert listed[0][1] == 3


def test_they_are_wrapped_for_transforms_v2(root: Path) -> None:
    """`wrap_dataset_for_transforms_v2` takes an `ImageFolder` as it takes theirs."""
    transform = torchvision.transforms.v2.Resize((20, 30))
    theirs = torchvision.datasets.ImageFolder(root)
    ours = wrapped(ImageFolder(root, transform, lambda label: -label))

    assert isinstance(ours, ImageFolder)
    assert len(ours) == len(theirs)
    for index in (0, len(theirs) - 1):
        path, label = theirs.samples[index]
        image, target = ours[index]

        assert np.array_equal(image, transform(PIL_LOADER(path)))
        assert target == -label


def test_a_kind_that_torchvision_cannot_wrap(root: Path) -> None:
    """For a list of paths it says what it says of any dataset that it does not know."""
    with pytest.raises(TypeError, match="No wrapper exists for dataset class ImageList"):
        wrapped(ImageList([ImageFolder(root).samples[0][0]], [3]))


def test_a_class_that_is_torchvisions_by_its_own_bases(root: Path) -> None:
    """Bases of torchvision's may come before or behind; everybody's constructor runs as before."""

    class Behind(ImageFolder, torchvision.datasets.ImageFolder):
        pass

    class Mixed:
        def __init__(self) -> None:
            self.mixed = True

    class Cooperating(ImageFolder, Mixed):
        pass

    assert Behind(root).samples == ImageFolder(root).samples
    assert Cooperating(root).mixed
    assert Cooperating(root).root == str(root) or Cooperating(root).root == root


class Mine(DecodeMixin, torchvision.datasets.ImageFolder):
    """A folder of torchvision's, decoded by this package."""


def test_mixin_before_torchvisions_folder_decodes_for_it(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Pillow images as torchvision's, through its transform; options are the mixin's."""
    theirs = torchvision.datasets.ImageFolder(root)
    plain = Mine(root)
    monkeypatch.setattr(torchvision.datasets.folder, "pil_loader", None)  # not by torchvision

    for (image, target), (reference, wanted) in zip(plain, range_of(theirs), strict=True):
        assert np.array_equal(image, reference)
        assert target == wanted
    halved = Mine(root, torchvision.transforms.v2.PILToTensor())
    halved.reduce = 2
    again = pickle.loads(pickle.dumps(halved))
    width, height = plain[0][0].size

    assert halved[0][0].shape == (3, -(-height // 2), -(-width // 2))
    assert torch.equal(again[0][0], halved[0][0])
    assert Mine(root, loader=len)[0][0] == len(theirs.samples[0][0])


def range_of(theirs: Any) -> list[Any]:
    return [(np.asarray(PIL_LOADER(path)), target) for path, target in theirs.samples]


PIL_LOADER = torchvision.datasets.folder.pil_loader

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

    `FASTDECODE_TORCHVISION` names a checkout of github.com/pytorch/vision.
    """
    checkout = os.environ.get("FASTDECODE_TORCHVISION")
    if not checkout:
        pytest.skip("FASTDECODE_TORCHVISION names no checkout of pytorch/vision")
    (tmp_path / "test_ours.py").write_text(_THEIR_TESTS)
    paths = [str(Path(checkout) / "test"), *sys.path]
    told = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-W", "ignore", "-p", "no:cacheprovider", "."],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )

    assert told.returncode == 0, told.stdout
    assert " passed" in told.stdout
    assert "skipped" not in told.stdout
    assert "failed" not in told.stdout
