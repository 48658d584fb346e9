"""What all datasets have in common, and what a subclass of `DecodeDataset` gets, fused or not."""

from __future__ import annotations

import pickle
import shutil
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from corpus import TESTS
from doubles import double, flat, own_registry  # noqa: F401
from loading import SeededLoader as Loader
from PIL import Image as PillowImage
from same import assert_same

import fastdecode
from fastdecode import decode, register
from fastdecode.torch import ImageFolder, ImageList, StoreDataset, fuse
from fastdecode.torch.dataset import DecodeDataset
from fastdecode.torch.transforms import (
    Compose,
    RandomResizedCrop,
    RandomResizedCropFlipNormalize,
    Resize,
    ResizeCenterCrop,
    ResizeCenterCropNormalize,
    ToTensor,
)

PHOTOS = sorted((Path(fastdecode.__file__).parent / "samples").glob("*.jpg"))


class Photos(DecodeDataset):
    """The sample photos, with even ones as paths and odd ones as bytes."""

    def __len__(self) -> int:
        return len(PHOTOS)

    def read(self, index: int) -> tuple[Any, Any]:
        path = PHOTOS[index]
        return (path.read_bytes() if index % 2 else path), index * 10


def compose(*parts: Any) -> Any:
    return Compose(list(parts))


def theirs(*parts: Any) -> Any:
    """Return torchvision's Compose, which may begin with a transform of bytes."""
    return pytest.importorskip("torchvision.transforms").Compose(list(parts))


def small(image: Any) -> Any:
    """Shrink a decoded image; `fuse` does not know this transform."""
    return image.resize((8, 6))


def test_what_was_not_imported_yet_is_there() -> None:
    """Submodules are attributes, `dir` has all names, and an unknown name is an error."""
    assert fastdecode.torch.prefetcher.DevicePrefetcher is fastdecode.torch.DevicePrefetcher
    assert {"transforms", "Loader", "__doc__"} <= set(dir(fastdecode.torch))
    with pytest.raises(AttributeError, match="nosuch"):
        fastdecode.torch.nosuch  # noqa: B018


# What holds for every kind of dataset


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Create a folder in which each photo is a class."""
    folder = tmp_path_factory.mktemp("photos")
    for number, photo in enumerate(PHOTOS):
        (folder / f"{number}").mkdir()
        shutil.copy(photo, folder / f"{number}" / photo.name)
    return folder


@pytest.fixture(params=["subclass", "list", "folder", "store"])
def make(request: pytest.FixtureRequest, root: Path) -> Any:
    """Return a function that makes a dataset of the photos, with numbers as targets."""
    return {
        "subclass": Photos,
        "list": partial(ImageList, PHOTOS, [10 * at for at in range(len(PHOTOS))]),
        "folder": partial(ImageFolder, root),
        "store": partial(StoreDataset, root),
    }[request.param]


def target_of(make: Any, index: int) -> int:
    return index if make != Photos and make.func in (ImageFolder, StoreDataset) else 10 * index


def test_samples_are_pillow_images_unless_told_otherwise(make: Any) -> None:
    """Without a transform, a sample is the Pillow image and its target."""
    dataset = make()

    assert len(dataset) == len(PHOTOS)
    for index, path in enumerate(PHOTOS):
        image, target = dataset[index]

        assert isinstance(image, PillowImage.Image)
        assert image.mode == "RGB"
        assert_same(np.asarray(image), decode(path.read_bytes()), path)
        assert target == target_of(make, index)


def test_options_of_decoding_are_obeyed(make: Any) -> None:
    """Reduction, mode, output type, and transforms of images and targets apply."""
    options: dict[str, Any] = {"reduce": 8, "mode": "L", "backend": "pillow"}
    image, target = make(small, str)[3]
    assert (image.size, target) == ((8, 6), str(target_of(make, 3)))

    expected = decode(PHOTOS[1].read_bytes(), **options)
    assert_same(make(output="tensor", **options)[1][0], torch.from_numpy(expected))
    assert_same(make(output="array", **options)[1][0], expected)
    with pytest.raises(TypeError, match="reduced"):
        make(reduced=2)


def test_an_encoded_transform_is_given_the_bytes(make: Any) -> None:
    """An encoded transform gets the bytes, also from torch's DataLoader, also of a Subset."""
    transform = ResizeCenterCropNormalize(32, 24)
    subset = torch.utils.data.Subset(make(transform), [4, 1, 0])
    ((images, targets),) = torch.utils.data.DataLoader(subset, batch_size=3)

    assert targets.tolist() == [target_of(make, index) for index in (4, 1, 0)]
    for image, index in zip(images, (4, 1, 0), strict=True):
        assert_same(image, transform(PHOTOS[index].read_bytes()), PHOTOS[index])


def test_samples_of_a_batch_are_drawn_one_after_another(make: Any) -> None:
    """A batch for torch's DataLoader draws from torch's generator as a loop over its indices."""
    dataset, indices = make(RandomResizedCropFlipNormalize(32)), [3, 0, 3, 1]
    made = []
    for fetch in (dataset.__getitems__, lambda order: [dataset[index] for index in order]):
        torch.manual_seed(5)
        made.append([image for image, _ in fetch(indices)] + [torch.get_rng_state()])

    assert_same(*made)


def test_a_pickled_dataset_gives_the_same_samples(make: Any) -> None:
    """A used dataset can be pickled, without its caches, and gives the same samples."""
    dataset = make(ResizeCenterCropNormalize(64, 48), reduce=1, on_error="skip")
    before = dataset[1]
    pickled = pickle.dumps(dataset)
    again = pickle.loads(pickled)

    assert b"_resolved" not in pickled
    assert_same(again[1][0], before[0])
    assert again.decode_options == dataset.decode_options


# What a subclass gets for its `__len__` and `read`


@pytest.mark.usefixtures("own_registry")
def test_backend_and_orientation_reach_an_encoded_transform() -> None:
    """`orient` and `backend` of the dataset also apply when the transform decodes."""
    register("flat", double(flat(9)))
    turned = TESTS / "data" / "jpeg_kinds" / "gen_exif_ori5.jpg"
    transform = ResizeCenterCrop(64, 48, mean=None, dtype=torch.uint8)

    class Turned(Photos):
        def read(self, index: int) -> tuple[Any, Any]:
            return turned, 0

    image, _ = Turned(transform, orient=True, backend="pillow")[0]

    assert_same(image, transform(turned.read_bytes(), orient=True, backend="pillow"))
    assert not torch.equal(image, transform(turned.read_bytes(), backend="pillow"))
    assert_same(Turned(transform, backend="flat")[0][0], 9)


@pytest.mark.parametrize("options", [{"reduce": 2}, {"min_size": 64}, {"mode": "L"}])
@pytest.mark.parametrize("inside", [False, True], ids=["alone", "in a Compose"])
def test_reduction_beside_an_encoded_transform_is_refused(
    options: dict[str, Any], inside: bool
) -> None:
    """Options that an encoded transform would ignore are refused by the constructor."""
    transform = ResizeCenterCropNormalize(64, 48)
    option = next(iter(options))

    with pytest.raises(ValueError, match=f"{option}="):
        Photos(theirs(transform, small) if inside else transform, **options)


def test_shape_and_type_of_samples_are_told() -> None:
    """The shape and dtype tell a loader whether it can write into batch memory."""
    fixed = Photos(RandomResizedCrop((32, 40), dtype=torch.uint8, flip=0.5))
    fused = Photos(compose(Resize((16, 24)), ToTensor()))
    varying = Photos(compose(Resize(16), ToTensor()))

    assert (fixed.sample_shape, fixed.sample_dtype) == ((3, 32, 40), torch.uint8)
    assert (fused.sample_shape, fused.sample_dtype) == ((3, 16, 24), torch.float32)
    assert (varying.sample_shape, varying.sample_dtype) == (None, None)
    assert (Photos(small).sample_shape, Photos().sample_dtype) == (None, None)


def test_what_is_missing_is_told() -> None:
    """The error says which method to write, or which transform is needed."""
    with pytest.raises(NotImplementedError, match=r"DecodeDataset .*`def __len__\(self\)`"):
        len(DecodeDataset())
    with pytest.raises(NotImplementedError, match=r"DecodeDataset .*sample 3"):
        DecodeDataset()[3]
    for wrong in (3, [3], RandomResizedCrop):
        with pytest.raises(TypeError, match="transform"):
            Photos(wrong)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (PHOTOS[0].read_bytes(), "returned bytes"),
        (PHOTOS[0], "returned PosixPath|returned WindowsPath"),
        ("ab", "returned str"),
        (None, "returned None"),
        ({"image": b"", "target": 1}, "returned dict"),
        ((PHOTOS[0], 1, 2), "returned a tuple of 3"),
        ((None, 1), "returned None as the image"),
        ((1, PHOTOS[0]), "returned int as the image"),
        ((np.zeros((4, 4, 3), np.uint8), 1), "returned ndarray as the image"),
    ],
    ids=lambda value: value if isinstance(value, str) and value.startswith("ret") else "",
)
@pytest.mark.parametrize("transform", [None, RandomResizedCrop(8)], ids=["whole", "crop"])
def test_errors_of_read_say_what_to_return(given: Any, said: str, transform: Any) -> None:
    """If `read` does not return a pair, the error names the class and explains the pair."""

    class Wrong(Photos):
        def read(self, index: int) -> tuple[Any, Any]:
            assert index in range(len(self))
            return given  # type: ignore[no-any-return]

    dataset = Wrong(transform)
    expected = rf"Wrong\.read\(0\) ({said})"
    for use in (
        lambda: dataset[0],
        lambda: dataset.__getitems__([0, 1]),
        lambda: next(iter(Loader(dataset, 2, threads=1))),
    ):
        with pytest.raises(TypeError, match=expected):
            use()


@pytest.mark.parametrize(
    "options", [{"fuse": False}, {"reduce": 2}, {"min_size": 200}, {"output": "array"}], ids=str
)
def test_fusing_can_be_turned_off(options: dict[str, Any]) -> None:
    """With ``fuse=False``, or the user's own decoding, the pipeline gets decoded images."""
    given = []
    pipeline = compose(RandomResizedCrop(64), lambda image: given.append(image) or image)
    dataset = Photos(pipeline, **options)
    image, _ = dataset[0]

    assert given == [image]
    assert "while decoding: " not in repr(dataset)
    assert dataset.sample_shape is None
    encoded = ResizeCenterCropNormalize(64, 48)  # which always gets the bytes
    image, _ = Photos(theirs(encoded, torch.neg), fuse=False)[0]
    assert_same(image, -encoded(PHOTOS[0].read_bytes()))


def test_other_precisions_run_as_written() -> None:
    """With another default dtype, ToTensor is not fused."""
    torch.set_default_dtype(torch.float64)
    try:
        last = ToTensor()
        assert fuse(compose(Resize((8, 8)), last)).plan.rest == (last,)
    finally:
        torch.set_default_dtype(torch.float32)
