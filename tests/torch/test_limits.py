"""A sound JPEG with more pixels than the limit is refused wherever samples are made."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from loading import PROCESSES
from PIL import Image
from torch_reference import PHOTOS, encoded, seeded

from fastdecode import DEFAULT_MAX_PIXELS, ImageTooLarge, probe
from fastdecode.torch import ImageList, Loader, StoreDataset
from fastdecode.torch.transforms import (
    RandomResizedCrop,
    RandomResizedCropFlipNormalize,
    Resize,
    ResizeCenterCrop,
)

PHOTO = PHOTOS[0].read_bytes()
TRANSFORMS = [
    RandomResizedCropFlipNormalize(32),
    RandomResizedCrop(32, interpolation="bicubic"),
    ResizeCenterCrop(40, 32),
    Resize((32, 32)),
]


@pytest.fixture(scope="module")
def giant() -> bytes:
    """Make a whole grey JPEG, small as a file, of a few pixels over the limit."""
    width = 65_500
    data = encoded(Image.new("L", (width, DEFAULT_MAX_PIXELS // width + 1)), quality=1)
    header = probe(data)
    assert header.width * header.height > DEFAULT_MAX_PIXELS
    return data


@pytest.fixture(params=["", "native"], ids=["core", "no core"])
def _either(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FASTDECODE_DISABLE", request.param)


@pytest.mark.usefixtures("_either")
@pytest.mark.parametrize("transform", TRANSFORMS, ids=repr)
def test_a_transform_refuses_it(giant: bytes, transform: Any) -> None:
    """With the core and without; nothing is written."""
    out = torch.full((3, 32, 32), 7, dtype=transform.dtype)

    with pytest.raises(ImageTooLarge):
        transform(giant, generator=seeded(1), out=out)
    assert (out == 7).all()


@pytest.mark.usefixtures("_either")
@pytest.mark.parametrize("transform", [None, *TRANSFORMS], ids=repr)
def test_a_dataset_refuses_it(giant: bytes, transform: Any, tmp_path: Path) -> None:
    """The error names the file, for whole images as for crops, one by one and in batches."""
    place = tmp_path / "giant.jpg"
    place.write_bytes(giant)
    dataset = ImageList([PHOTOS[0], place], transform=transform)

    with pytest.raises(ImageTooLarge, match=r"giant\.jpg"):
        dataset[1]
    with pytest.raises(ImageTooLarge, match=r"giant\.jpg"):
        dataset.__getitems__([0, 1])
    with pytest.raises(ImageTooLarge, match=r"giant\.jpg"):
        StoreDataset(tmp_path, transform=transform)[0]


@pytest.mark.filterwarnings(*PROCESSES)
@pytest.mark.usefixtures("_either")
@pytest.mark.parametrize("how", [{"threads": 0}, {"threads": 2}, {"workers": 1}], ids=str)
def test_a_loader_refuses_it(giant: bytes, how: dict[str, Any], tmp_path: Path) -> None:
    """Threads and processes raise it, or leave the item out and list it, as was asked for."""
    place = tmp_path / "giant.jpg"
    place.write_bytes(giant)
    for transform in (TRANSFORMS[0], TRANSFORMS[2]):
        dataset = ImageList([PHOTOS[0], place, PHOTOS[1]], transform=transform)
        with Loader(dataset, 3, **how) as loader, pytest.raises(ImageTooLarge, match=r"giant\.jpg"):
            list(loader)
        skips = ImageList([PHOTOS[0], place, PHOTOS[1]], transform=transform, on_error="skip")
        with Loader(skips, 3, **how) as loader:
            assert [len(batch) for batch in loader] == [2]
            assert loader.skipped == 1
        ((index, path, _),) = skips.errors
        assert (index, Path(path).name) == (1, "giant.jpg")
