"""`DecodeMixin`: its options, the names it leaves free, types of the result, and pickling."""

from __future__ import annotations

import copy
import pickle
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from corpus import TESTS
from PIL import Image as PillowImage
from same import assert_same

import fastdecode
from fastdecode import decode, probe, use
from fastdecode._backends import selection
from fastdecode.torch._options import DecodeOptions
from fastdecode.torch.image_list import ImageList
from fastdecode.torch.mixin import DecodeMixin
from fastdecode.torch.transforms import ResizeCenterCrop

PHOTO = Path(fastdecode.__file__).parent / "samples" / "canyon-wren.jpg"
DATA = PHOTO.read_bytes()
FILES = TESTS / "data"
TURNED = FILES / "jpeg_kinds" / "gen_exif_ori5.jpg"


class Photos(DecodeMixin, torch.utils.data.Dataset):
    """A user's dataset with decoding mixed in."""

    def __init__(self, paths: list[Path]) -> None:
        self.paths = paths

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, index: int) -> Any:
        return self.decode(self.paths[index])


def with_options(**options: Any) -> DecodeMixin:
    """Return a bare mixin with these options."""
    mixin = DecodeMixin()
    mixin.decode_options = DecodeOptions(**options)
    return mixin


OPTIONS: list[dict[str, Any]] = [
    {},
    {"reduce": 4, "mode": "L"},
    {"reduce": 8, "mode": "L", "backend": "pillow"},
    {"min_size": (100, 50)},
]


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_it_decodes_as_decode_does(options: dict[str, Any]) -> None:
    """Bytes, a string and a Path, with options of the instance, its class, or a property."""
    expected = decode(DATA, **options)
    given = DecodeOptions(**options)
    of_class = type("OfClass", (DecodeMixin,), {"decode_options": given})()
    of_property = type("Property", (DecodeMixin,), {"decode_options": property(lambda _: given)})()
    for mixin in (with_options(**options), of_class, of_property):
        for source in (DATA, memoryview(DATA), str(PHOTO), PHOTO):
            assert_same(mixin.decode(source), expected, type(source))
    of_class.decode_options = replace(given, output="tensor")
    made = of_class.decode(DATA)
    assert_same(made if made.ndim == 2 else made.permute(1, 2, 0), torch.from_numpy(expected))
    image = with_options(**options, output="pil").decode(DATA)
    assert isinstance(image, PillowImage.Image)
    assert_same(np.asarray(image), expected)


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"reduce": 3}, ValueError),
        ({"mode": "train"}, ValueError),
        ({"output": "numpy"}, ValueError),
        ({"backend": 5}, TypeError),
        ({"on_error": "ignore"}, ValueError),
        ({"headroom": 0.5}, ValueError),
        ({"reduce": 2, "min_size": 64}, ValueError),
        ({"minsize": 64}, TypeError),
    ],
    ids=str,
)
def test_wrong_option_is_refused_where_it_is_set(options: dict[str, Any], error: type) -> None:
    """An invalid option is refused where the options are made, not by the first image."""
    with pytest.raises(error, match="|".join(options)):
        DecodeOptions(**options)


@pytest.mark.parametrize("wrong", [{"reduce": 2}, None, "train"], ids=repr)
def test_decode_options_are_of_the_right_type(wrong: Any) -> None:
    """Anything but `DecodeOptions` is refused, of a class and of an instance."""
    with pytest.raises(TypeError, match="decode_options"):
        DecodeMixin().decode_options = wrong
    with pytest.raises(TypeError, match="decode_options"):
        type("Wrong", (DecodeMixin,), {"decode_options": wrong})


@pytest.mark.parametrize(
    "options", [{"on_error": "skip"}, {"fuse": False}, {"quality": "fast"}, {"headroom": 2}]
)
def test_options_of_whole_datasets_are_refused(options: dict[str, Any]) -> None:
    """What the mixin alone cannot do is an error, and not ignored."""
    with pytest.raises(ValueError, match=f"Mine has {next(iter(options))}=.* DecodeDataset"):
        type("Mine", (DecodeMixin,), {"decode_options": DecodeOptions(**options)})


def test_geometry_is_that_of_the_reduction_that_was_taken() -> None:
    """With `min_size` the box of an object lies on its pixels; with `orient`, as it is seen."""
    mixin = with_options(min_size=100)
    image, geometry = mixin.decode_with_geometry(PHOTO)
    factor = -(-probe(DATA).width // image.shape[1])

    assert_same(image, decode(DATA, min_size=100))
    assert factor > 1
    assert geometry.size == image.shape[:2]
    assert geometry.scale == (1 / factor, 1 / factor)
    assert geometry.boxes([[0, 0, 8 * factor, 4 * factor]]).tolist() == [[0, 0, 8, 4]]

    header = probe(TURNED.read_bytes())
    image, geometry = with_options(orient=True).decode_with_geometry(TURNED)
    assert header.orientation == 5
    assert image.shape[:2] == geometry.size == (header.width, header.height)
    assert geometry.box == (0, 0, header.height, header.width)


def test_a_copy_has_its_options_and_no_preference() -> None:
    """The options are pickled; that it was made under `use` affects nothing after the block."""
    photos = Photos([PHOTO])
    photos.decode_options = DecodeOptions(reduce=8, output="tensor")
    with use("pillow"):
        data = pickle.dumps(photos)
        duplicate = copy.deepcopy(photos)

    for again in (pickle.loads(data), duplicate):
        assert_same(again[0], photos[0])
        assert vars(again) == vars(photos)
    assert selection.preferred() is None


def test_preference_reaches_spawned_workers() -> None:
    """What `use` had set when they began holds in them, unless they call it; they keep to a thread.

    Each worker gives one batch, in the order of the workers.
    """
    with use("pillow"):
        loader = torch.utils.data.DataLoader(
            Photos([PHOTO, PHOTO]),
            batch_size=1,
            num_workers=2,
            multiprocessing_context="spawn",
            worker_init_fn=_begin,
            collate_fn=_told,
        )
        told = list(loader)

    assert told == [(1, "pillow"), (1, "native")]


def _begin(worker: int) -> None:
    torch.set_num_threads(3)  # as a library may do that the worker imports
    if worker == 1:
        use("native")


def _told(samples: list[Any]) -> tuple[int, str | None]:
    """Report the threads and the backend of the worker in which a batch was decoded."""
    return torch.get_num_threads(), selection.preferred()


def test_transformed_is_as_torchvisions_datasets_have_it() -> None:
    """A Pillow image goes through the dataset's transform, or the file if it takes that."""
    photos = Photos([PHOTO])
    photos.decode_options = DecodeOptions(reduce=4)

    assert isinstance(photos.transformed(PHOTO), PillowImage.Image)
    photos.transform = lambda image: (type(image).__name__, image.size)
    height, width = decode(DATA, 4).shape[:2]
    assert photos.transformed(DATA) == ("Image", (width, height))
    photos.decode_options = DecodeOptions(reduce=4, output="tensor")
    assert photos.transformed(DATA)[0] == "Tensor"
    photos.decode_options = DecodeOptions()
    photos.transform = ResizeCenterCrop(64, 48)
    listed = ImageList([PHOTO], transform=photos.transform)
    for made in (*map(photos.transformed, (PHOTO, DATA)), listed.transformed(DATA), listed[0]):
        assert_same(made, photos.transform(DATA))
    photos.decode_options = DecodeOptions(reduce=2)
    with pytest.raises(ValueError, match="reduce=2"):
        photos.transformed(PHOTO)
