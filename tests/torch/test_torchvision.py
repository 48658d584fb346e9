"""Datasets and transforms in place of torchvision's, with its own tests."""

from __future__ import annotations

import inspect
import io
import os
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torchvision_suite
from class_tree import make_tree
from PIL import Image as PillowImage
from processes import python
from same import assert_same

torchvision = pytest.importorskip("torchvision", exc_type=ImportError)

from torchvision.transforms import transforms as v1  # noqa: E402
from torchvision.transforms import v2  # noqa: E402

from fastdecode.torch import DecodeMixin, DecodeOptions, ImageFolder, ImageList  # noqa: E402
from fastdecode.torch import transforms as ours  # noqa: E402

wrapped = torchvision.datasets.wrap_dataset_for_transforms_v2


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return make_tree(tmp_path)


class Greyed(ImageFolder):
    """A user's subclass."""

    decode_options = DecodeOptions(mode="L")


def test_datasets_are_torchvisions(root: Path) -> None:
    """`isinstance` with torchvision's classes holds, also for a subclass and a copy."""
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
    """`wrap_dataset_for_transforms_v2` accepts an `ImageFolder`."""
    transform = torchvision.transforms.v2.Resize((20, 30))
    theirs = torchvision.datasets.ImageFolder(root)
    ours = wrapped(ImageFolder(root, transform, lambda label: -label))

    assert isinstance(ours, ImageFolder)
    assert len(ours) == len(theirs)
    for index in (0, len(theirs) - 1):
        path, label = theirs.samples[index]
        image, target = ours[index]

        assert_same(image, transform(PIL_LOADER(path)))
        assert target == -label


def test_a_kind_that_torchvision_cannot_wrap(root: Path) -> None:
    """For a list of paths, it gives the error for unknown datasets."""
    with pytest.raises(TypeError, match="ImageList"):
        wrapped(ImageList([ImageFolder(root).samples[0][0]], [3]))


def test_a_class_that_is_torchvisions_by_its_own_bases(root: Path) -> None:
    """Torchvision's classes may be other bases, and all constructors run."""

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
    """A folder of torchvision's that decodes with this package."""


def test_mixin_before_torchvisions_folder_decodes_for_it(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Pillow images equal torchvision's, through its transform; options are the mixin's."""
    theirs = torchvision.datasets.ImageFolder(root)
    plain = Mine(root)
    monkeypatch.setattr(torchvision.datasets.folder, "pil_loader", None)  # not by torchvision

    for (image, target), (reference, wanted) in zip(plain, range_of(theirs), strict=True):
        assert_same(np.asarray(image), reference)
        assert target == wanted
    halved = Mine(root, torchvision.transforms.v2.PILToTensor())
    halved.decode_options = DecodeOptions(reduce=2)
    again = pickle.loads(pickle.dumps(halved))
    width, height = plain[0][0].size

    assert halved[0][0].shape == (3, -(-height // 2), -(-width // 2))
    assert_same(again[0][0], halved[0][0])
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
    words = ("-m", "pytest", "-q", "-W", "ignore", "-p", "no:cacheprovider", ".")
    told = python(*words, cwd=tmp_path, PYTHONPATH=os.pathsep.join(filter(None, paths)))

    assert told.returncode == 0, told.stdout
    assert " passed" in told.stdout
    assert "skipped" not in told.stdout
    assert "failed" not in told.stdout


def test_torchvisions_own_tests_pass_behind_the_mixin() -> None:
    """All tests of its datasets pass with `DecodeMixin` in front of every class."""
    checkout = os.environ.get("FASTDECODE_TORCHVISION")
    if not checkout:
        pytest.skip("FASTDECODE_TORCHVISION names no checkout of pytorch/vision")
    told = torchvision_suite.run(checkout, stdout=subprocess.PIPE, timeout=3000)

    assert told.returncode == 0, told.stdout
    assert " passed" in told.stdout


def test_no_private_name_of_the_mixin_is_one_of_torchvisions() -> None:
    """No class of torchvision.datasets has a method that the mixin in front would hide."""
    ours = {name for name in vars(DecodeMixin) if not name.startswith("__")}

    for name in torchvision.datasets.__all__:
        assert ours.isdisjoint(dir(getattr(torchvision.datasets, name))), name


@pytest.mark.parametrize("theirs", [v1, v2], ids=["v1", "v2"])
@pytest.mark.parametrize(
    "name", ["Compose", "Normalize", "RandomResizedCrop", "Resize", "ToTensor"]
)
def test_arguments_are_torchvisions(name: str, theirs: Any) -> None:
    """The arguments have torchvision's names, positions and defaults."""
    expected = list(inspect.signature(getattr(theirs, name)).parameters.values())
    found = list(inspect.signature(getattr(ours, name)).parameters.values())

    for own, their in zip(found, expected, strict=False):
        assert own.name == their.name
        assert own.kind == their.kind == inspect.Parameter.POSITIONAL_OR_KEYWORD
        if their.default is not inspect.Parameter.empty:
            default, theirs_ = (getattr(one.default, "value", one.default) for one in (own, their))
            assert default == theirs_ or (default is None and theirs_ == 0)  # v2's, and v1's
    by_name = (inspect.Parameter.KEYWORD_ONLY, inspect.Parameter.VAR_KEYWORD)
    assert all(one.kind in by_name for one in found[len(expected) :])


@pytest.mark.parametrize("size", [(None, 90), (40, 45), ([40], 300), (40, 41)])
def test_longest_sides_are_torchvisions(size: Any) -> None:
    """`max_size` limits the longer side, or sets it if size is None."""
    for width, height in ((300, 200), (200, 300), (77, 77), (500, 13), (13, 500), (999, 1)):
        image = PillowImage.new("RGB", (width, height))
        memory = io.BytesIO()
        image.save(memory, "PNG")
        own = ours.Resize(size[0], max_size=size[1])
        try:
            expected = v2.Resize(size[0], max_size=size[1])(image)
        except ValueError:  # a side would have no pixel
            expected = None

        result = own(memory.getvalue())

        sides = (result.shape[2], result.shape[1])
        assert min(sides) == 1 if expected is None else sides == expected.size
