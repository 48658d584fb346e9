"""albumentations' pipelines in a dataset: refused as they are, called as they are in a function."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch_reference import PHOTOS, pixels  # noqa: E402
from torchvision_doubles import double  # noqa: E402

from fastdecode.torch import ImageList, fuse  # noqa: E402


class Wrapped:
    """What people write around a pipeline of albumentations'."""

    def __init__(self, compose: Any) -> None:
        self.compose = compose

    def __call__(self, image: Any) -> Any:
        return self.compose(image=image)["image"]


def test_it_is_refused_with_the_way_out() -> None:
    """Its Compose cannot be called with an image alone: the dataset says so when it is made."""
    compose = double("albumentations.core.composition", "Compose", transforms=[])

    with pytest.raises(
        TypeError, match=r"returns compose\(image=image\)\['image'\].*output='array'"
    ):
        ImageList(PHOTOS, transform=compose)
    assert fuse(compose) is compose


def test_a_dataset_says_why_it_is_not_fused() -> None:
    """`repr` names its generators and its resizing."""
    wrapped = Wrapped(double("albumentations.core.composition", "Compose", transforms=[]))

    shown = repr(ImageList(PHOTOS, transform=wrapped))

    assert "Wrapped is albumentations', which draws from generators" in shown
    assert "without antialiasing" in shown


def test_in_a_function_it_gives_what_it_gives_alone() -> None:
    """The same draws and pixels as of decoded arrays, image after image."""
    albumentations = pytest.importorskip("albumentations", reason="the pipeline is albumentations'")
    from albumentations.pytorch import ToTensorV2

    parts = [
        albumentations.RandomResizedCrop((64, 64)),
        albumentations.HorizontalFlip(),
        albumentations.Normalize(),
        ToTensorV2(),
    ]
    ours, theirs = (albumentations.Compose(parts, seed=3) for _ in range(2))
    dataset = ImageList(PHOTOS, transform=Wrapped(ours), output="array")
    theirs.set_random_seed(3)
    expected = [
        theirs(image=pixels(path.read_bytes()).permute(1, 2, 0).numpy())["image"] for path in PHOTOS
    ]
    ours.set_random_seed(3)

    assert all(
        torch.equal(image, other)
        for image, other in zip([dataset[at] for at in range(len(PHOTOS))], expected, strict=True)
    )
