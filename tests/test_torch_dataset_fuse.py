"""`DecodeDataset` and `fuse`, and where boxes go when the picture is cropped."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from PIL import Image as PillowImage

import fastdecode
from fastdecode import probe

torch = pytest.importorskip("torch")

from torchvision_doubles import TENSOR, center, compose, crop, flip, resize  # noqa: E402

from fastdecode.torch._fuse import fuse  # noqa: E402
from fastdecode.torch.dataset import DecodeDataset  # noqa: E402
from fastdecode.torch.transforms import (  # noqa: E402
    RandomResizedCrop,
    RandomResizedCropFlipNormalize,
    ResizeCenterCrop,
    ResizeCenterCropNormalize,
)

PHOTOS = sorted((Path(fastdecode.__file__).parent / "samples").glob("*.jpg"))


class Photos(DecodeDataset):
    """The sample photos, from memory."""

    def __len__(self) -> int:
        return len(PHOTOS)

    def read(self, index: int) -> tuple[Any, Any]:
        return PHOTOS[index].read_bytes(), index


class Boxes(Photos):
    """The same with the whole picture as a box, which follows what becomes of the picture."""

    def read(self, index: int) -> tuple[Any, Any]:
        header = probe(PHOTOS[index].read_bytes())
        return PHOTOS[index], [[0, 0, header.width, header.height]]

    def map_target(self, target: Any, geometry: Any) -> Any:
        return geometry, geometry.boxes(target, clip=False)


def small(image: Any) -> Any:
    """Shrink a decoded picture: a transform that nobody can know."""
    return image.resize((8, 6))


def test_known_transform_is_fused() -> None:
    """The pieces of a torchvision pipeline are done while decoding, and shown by `repr`."""
    dataset = Photos(compose(resize(64), center(), TENSOR), quality="exact")
    whole = ResizeCenterCrop(64, 48, dtype=torch.float32, quality="exact")

    assert torch.equal(dataset[1][0], whole(PHOTOS[1].read_bytes()))
    assert "fused: Resize, CenterCrop, ToTensor" in repr(dataset)
    assert "quality='exact'" in repr(dataset)
    assert dataset.transform.transforms[2] is TENSOR  # it shows what it was given


def test_what_follows_the_fused_parts_runs_as_written() -> None:
    """The rest of the pipeline gets the Pillow image that it would have got."""
    image, _ = Photos(compose(resize(64), small))[0]

    assert isinstance(image, PillowImage.Image)
    assert image.size == (8, 6)


@pytest.mark.parametrize(
    "options", [{"fuse": False}, {"reduce": 2}, {"min_size": 200}, {"output": "array"}], ids=str
)
def test_fusing_can_be_turned_off(options: dict[str, Any]) -> None:
    """With ``fuse=False``, or a decoding of one's own, the pipeline is given decoded pictures."""
    given = []
    pipeline = compose(crop())
    pipeline.__class__.__call__ = lambda self, image: given.append(image) or image
    dataset = Photos(pipeline, **options)
    image, _ = dataset[0]

    assert given == [image]
    assert "nothing fused" in repr(dataset)
    assert dataset.sample_shape is None


def test_transform_that_begins_with_our_own_takes_bytes_even_unfused() -> None:
    """A Compose around an `EncodedTransform` can be called with nothing but bytes."""
    image, _ = Photos(compose(ResizeCenterCropNormalize(64, 48), torch.neg), fuse=False)[0]

    assert torch.equal(image, -ResizeCenterCropNormalize(64, 48)(PHOTOS[0].read_bytes()))


def test_changing_the_transform_fuses_anew() -> None:
    """Another transform, another list of parts or another size hold from the next sample on."""
    dataset = Photos(compose(crop(), TENSOR))
    shapes = [dataset[0][0].shape]

    dataset.transform.transforms[0].size = (32, 40)
    shapes.append(dataset[0][0].shape)
    dataset.transform.transforms[0] = resize((16, 24))
    shapes.append(dataset[0][0].shape)
    dataset.transform = compose(resize((8, 8)), flip(), TENSOR)
    shapes.append(dataset[0][0].shape)
    dataset.transform = None

    assert shapes == [(3, 64, 64), (3, 32, 40), (3, 16, 24), (3, 8, 8)]
    assert isinstance(dataset[0][0], PillowImage.Image)


def test_targets_follow_the_reduced_picture() -> None:
    """`map_target` is given the geometry of the reduced decode: the box is the picture's."""
    image, (geometry, boxes) = Boxes(reduce=2)[0]

    assert geometry.size == (image.height, image.width)
    assert boxes.tolist() == [[0, 0, probe(PHOTOS[0].read_bytes()).width / 2, 166.5]]


@pytest.mark.parametrize(
    "transform",
    [RandomResizedCropFlipNormalize(32), compose(crop(size=(32, 32)), TENSOR)],
    ids=["own", "fused"],
)
def test_targets_follow_the_crop(transform: Any) -> None:
    """`map_target` is given the crop that was drawn for this very sample."""
    image, (geometry, boxes) = Boxes(transform, lambda target: target)[1]
    left, top, right, bottom = boxes[0]
    vertical, horizontal = geometry.scale
    header = probe(PHOTOS[1].read_bytes())

    assert image.shape == (3, 32, 32)
    assert geometry.size == (32, 32)
    assert right - left == pytest.approx(header.width * horizontal)
    assert bottom - top == pytest.approx(header.height * vertical)


def test_geometry_is_not_guessed_behind_unknown_parts() -> None:
    """Where a part after the fused ones may move pixels, boxes are refused, not put elsewhere."""
    with pytest.raises(ValueError, match="may move pixels"):
        Boxes(compose(crop(), small))[0]


@pytest.mark.parametrize("wrong", [3, [3], RandomResizedCrop])
def test_transform_that_is_none_is_refused_at_once(wrong: Any) -> None:
    """What cannot be called with a picture is a TypeError before anything is read."""
    with pytest.raises(TypeError, match="transform"):
        Photos(wrong)


def test_other_precisions_run_as_written() -> None:
    """ToTensor makes floats of the default type, so with another one it is not taken over."""
    torch.set_default_dtype(torch.float64)
    try:
        assert fuse(compose(resize((8, 8)), TENSOR)).rest == (TENSOR,)
    finally:
        torch.set_default_dtype(torch.float32)
