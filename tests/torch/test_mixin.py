"""`DecodeMixin`: its options, the names it leaves free, types of the result, and pickling."""

from __future__ import annotations

import copy
import pickle
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from corpus import TESTS
from PIL import Image as PillowImage
from same import assert_same

import fastdecode
from fastdecode import DecodeError, UnknownBackend, decode, probe, use
from fastdecode._backends import selection
from fastdecode.torch._options import DatasetOptions, DecodeOptions
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


def test_bytes_and_paths_are_decoded_alike() -> None:
    """Bytes, a string and a Path give the array of `decode`."""
    mixin = DecodeMixin()

    for source in (DATA, memoryview(DATA), str(PHOTO), PHOTO):
        assert_same(mixin.decode(source), decode(DATA), type(source))


def test_options_are_those_of_the_class_or_of_the_instance() -> None:
    """The options of a class apply to every instance that has none of its own."""

    class Small(DecodeMixin):
        decode_options = DecodeOptions(reduce=4, mode="L")

    other = Small()
    other.decode_options = replace(Small.decode_options, reduce=8, backend="pillow")

    assert_same(Small().decode(DATA), decode(DATA, 4, mode="L"))
    assert_same(other.decode(DATA), decode(DATA, 8, mode="L", backend="pillow"))


def test_min_size_is_handed_on() -> None:
    """`min_size` reduces as far as it allows."""
    mixin = with_options(min_size=(100, 50))

    assert_same(mixin.decode(DATA), decode(DATA, min_size=(100, 50)))
    assert mixin.decode(DATA).shape != decode(DATA).shape


@pytest.mark.parametrize("output", [None, "array", "tensor", "pil"])
def test_output_is_what_was_asked_for(output: Any) -> None:
    """The same pixels are returned as an array, a tensor or a Pillow image."""
    image = with_options(output=output).decode(DATA)
    kinds = {"tensor": torch.Tensor, "pil": PillowImage.Image}

    assert isinstance(image, kinds.get(str(output), np.ndarray))
    if output == "tensor":
        image = image.permute(1, 2, 0)
    assert_same(np.asarray(image), decode(DATA))


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"reduce": 3}, ValueError),
        ({"min_size": 0}, ValueError),
        ({"mode": "train"}, ValueError),
        ({"output": "numpy"}, ValueError),
        ({"backend": 5}, TypeError),
        ({"on_error": "ignore"}, ValueError),
        ({"quality": "best"}, ValueError),
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


def test_a_missing_backend_is_refused_by_the_instance() -> None:
    """A class may name a backend that is not installed; an instance may not."""
    with pytest.raises(UnknownBackend, match="no-such"):
        with_options(backend="no-such")


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


def test_constructors_take_every_option_by_its_name() -> None:
    """The keyword arguments of datasets are the fields of `DecodeOptions`, of the same types."""
    keywords = DatasetOptions.__annotations__
    types = {name: str(kind.__forward_arg__) for name, kind in keywords.items()}

    assert types == {field.name: field.type for field in fields(DecodeOptions)}
    dataset = ImageList([PHOTO], reduce=2, on_error="skip")
    assert dataset.decode_options == DecodeOptions(reduce=2, on_error="skip")


def test_property_may_hold_the_options() -> None:
    """The options may be a property."""

    class Halved(DecodeMixin):
        factor = 2

        @property
        def decode_options(self) -> DecodeOptions:  # type: ignore[override]
            return DecodeOptions(reduce=self.factor)

    assert_same(Halved().decode(DATA), decode(DATA, 2))


TAKEN = [*DatasetOptions.__annotations__, "options", "settings", "size"]


class Base:
    """A dataset class of someone else, which uses the same names for its own purposes."""

    mode = "train"
    orient = property(lambda self: "left")

    def __init__(self) -> None:
        self.reduce = "mean"
        self.backend = "nccl"

    def output(self) -> str:
        return "a method"

    def _load_image(self, index: int) -> str:
        return f"image {index}"


@pytest.mark.parametrize("name", TAKEN)
def test_names_of_options_are_free_for_the_users_own_use(name: str) -> None:
    """An attribute called like an option is the user's, in a mixin and in a `DecodeDataset`."""
    for photos in (Photos([PHOTO]), ImageList([PHOTO], output="array")):
        expected = photos[0]
        setattr(photos, name, "train")
        again = pickle.loads(pickle.dumps(photos))

        assert getattr(again, name) == "train"
        for found in (photos[0], again[0]):
            assert_same(found, expected, photos)


def test_names_of_a_class_behind_the_mixin_stay_its_own() -> None:
    """The mixin neither reads nor hides attributes, properties and methods of the next class."""

    class Mine(DecodeMixin, Base):
        min_size = "small"

        def quality(self) -> str:
            return "mine"

    mine = Mine()

    assert (mine.mode, mine.orient, mine.reduce, mine.backend) == ("train", "left", "mean", "nccl")
    assert (mine.output(), mine.quality(), mine._load_image(3)) == ("a method", "mine", "image 3")
    assert_same(mine.decode(DATA), decode(DATA))


def test_geometry_is_that_of_the_reduction_that_was_taken() -> None:
    """With `min_size` the box of an object lies on its pixels."""
    mixin = with_options(min_size=100)
    image, geometry = mixin.decode_with_geometry(PHOTO)
    header = probe(DATA)
    factor = -(-header.width // image.shape[1])

    assert_same(image, decode(DATA, min_size=100))
    assert factor > 1
    assert geometry.size == image.shape[:2]
    assert geometry.scale == (1 / factor, 1 / factor)
    assert geometry.boxes([[0, 0, 8 * factor, 4 * factor]]).tolist() == [[0, 0, 8, 4]]


def test_geometry_speaks_of_the_image_as_seen() -> None:
    """With `orient`, height and width are those of the upright image."""
    header = probe(TURNED.read_bytes())
    mixin = with_options(orient=True)
    image, geometry = mixin.decode_with_geometry(TURNED)

    assert header.orientation == 5
    assert image.shape[:2] == geometry.size == (header.width, header.height)
    assert geometry.box == (0, 0, header.height, header.width)


def test_damaged_file_is_named() -> None:
    """The error of a path begins with it."""
    path = FILES / "malformed" / "gen_jpg_cut667.jpg"

    with pytest.raises(DecodeError, match=f"^{path}: "):
        DecodeMixin().decode(path)


def test_pickled_dataset_has_its_options() -> None:
    """The options of an instance are pickled."""
    photos = Photos([PHOTO])
    photos.decode_options = DecodeOptions(reduce=8, output="tensor")
    again = pickle.loads(pickle.dumps(photos))

    assert_same(again[0], photos[0])
    assert vars(again) == vars(photos)


def test_copying_sets_no_preference() -> None:
    """A copy that was made under `use` does not affect this process after the block."""
    photos = Photos([PHOTO])
    with use("pillow"):
        data = pickle.dumps(photos)
        duplicate = copy.deepcopy(photos)

    pickle.loads(data)[0]
    duplicate[0]

    assert selection.preferred() is None
    assert vars(duplicate) == vars(photos)


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
    """A Pillow image goes through the dataset's transform; `decode` returns an array without it."""
    photos = Photos([PHOTO])
    photos.decode_options = DecodeOptions(reduce=4)

    assert isinstance(photos.transformed(PHOTO), PillowImage.Image)
    photos.transform = lambda image: (type(image).__name__, image.size)
    height, width = decode(DATA, 4).shape[:2]
    assert photos.transformed(DATA) == ("Image", (width, height))
    photos.decode_options = DecodeOptions(reduce=4, output="tensor")
    assert photos.transformed(DATA)[0] == "Tensor"
    assert isinstance(photos.decode(DATA), torch.Tensor)
    photos.decode_options = DecodeOptions(reduce=4)
    assert_same(photos.decode(DATA), decode(DATA, 4))


def test_transformed_hands_bytes_to_a_transform_that_takes_them() -> None:
    """A transform that decodes gets the file; options that it ignores are refused."""
    photos = Photos([PHOTO])
    photos.transform = ResizeCenterCrop(64, 48)
    expected = photos.transform(DATA)

    assert_same(photos.transformed(PHOTO), expected)
    assert_same(photos.transformed(DATA), expected)
    photos.decode_options = DecodeOptions(reduce=2)
    with pytest.raises(ValueError, match="reduce=2"):
        photos.transformed(PHOTO)


def test_transformed_of_a_whole_dataset_is_its_sample() -> None:
    """A `DecodeDataset` makes the same result from any file as for its own samples."""
    listed = ImageList([PHOTO], transform=ResizeCenterCrop(64, 48))

    assert_same(listed.transformed(DATA), listed[0])
