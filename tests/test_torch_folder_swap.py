"""`ImageFolder` in place of torchvision's: in torch's DataLoader, and beside the original."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest
from class_tree import make_tree

torch = pytest.importorskip("torch")

from fastdecode.torch.folder import ImageFolder  # noqa: E402
from fastdecode.torch.transforms import ResizeCenterCropNormalize  # noqa: E402

CUT = Path(__file__).parent / "data" / "malformed" / "gen_jpg_cut667.jpg"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return make_tree(tmp_path)


def test_spawned_workers_decode_and_tell_of_damage(
    root: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """DataLoader works with spawned workers, which warn of what they skip."""
    shutil.copy(CUT, root / "b" / "2.jpg")  # and behind the link in a/
    dataset = ImageFolder(root, ResizeCenterCropNormalize(32, 24), on_error="skip")
    whole = ImageFolder(root, ResizeCenterCropNormalize(32, 24))
    loader = torch.utils.data.DataLoader(
        dataset, batch_size=4, num_workers=1, multiprocessing_context="spawn"
    )
    batches = list(loader)
    told = capfd.readouterr().err

    assert [targets.tolist() for _, targets in batches] == [[0, 1, 1], [2, 2, 2], [2, 2, 3]]
    assert torch.equal(batches[0][0][0], whole[0][0])
    assert f"RuntimeWarning: {root / 'b' / '2.jpg'} (item 6): " in told
    assert told.count("RuntimeWarning") == 2
    assert "fastdecode.torch.Loader" in told
    assert dataset.errors == []


def test_it_is_as_torchvisions(root: Path) -> None:
    """Where torchvision is installed: the same samples, pixels, text and messages."""
    torchvision = pytest.importorskip("torchvision")
    (root / "void").mkdir()
    theirs = torchvision.datasets.ImageFolder(root, allow_empty=True)
    ours = ImageFolder(root, allow_empty=True)

    for name in ("root", "classes", "class_to_idx", "samples", "targets", "extensions"):
        assert getattr(ours, name) == getattr(theirs, name), name
    assert repr(ours).startswith(repr(theirs))
    for (image, target), (reference, wanted) in zip(ours, theirs, strict=True):
        assert np.array_equal(image, reference)
        assert target == wanted
    messages = []
    for kind in (torchvision.datasets.ImageFolder, ImageFolder):
        with pytest.raises(FileNotFoundError) as caught:
            kind(root)
        messages.append(str(caught.value))
    assert messages[0] == messages[1]
