"""Pipelines of images with boxes and masks (`transforms=`), compared with torchvision's results."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from itertools import product
from typing import Any

import numpy as np
import pytest
import torch
from cases import examples
from encoded import with_orientation
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st
from PIL import Image as PillowImage
from random_transforms import WITHOUT_SHRINKING
from same import assert_raises, assert_same
from torch_reference import MEAN, STD
from torch_reference import PHOTOS as ALL_PHOTOS

import fastdecode
from fastdecode.testing import encode
from fastdecode.torch import DecodeDataset, Fused, ImageFolder, ImageList, Loader, fuse
from fastdecode.torch._loader.order import sample_seed
from fastdecode.torch.transforms import RandomResizedCrop, Resize

pytest.importorskip("torchvision")

from torchvision import tv_tensors
from torchvision.transforms import v2

PHOTOS = ALL_PHOTOS[:3]
_HEADERS = [fastdecode.probe(photo.read_bytes()) for photo in PHOTOS]
SIDES = [(header.height, header.width) for header in _HEADERS]


def _target(index: int, form: str = "XYXY") -> dict[str, Any]:
    """Return the target of a photo: boxes, masks, points and what no transform changes."""
    height, width = SIDES[index]
    boxes = tv_tensors.BoundingBoxes(
        [[10.0, 20, width / 2, height / 3], [width / 4, 7, width - 3, height - 1], [0, 0, 5, 4]],
        format="XYXY",
        canvas_size=(height, width),
    )
    rows, columns = torch.meshgrid(torch.arange(height), torch.arange(width), indexing="ij")
    target = {
        "boxes": v2.functional.convert_bounding_box_format(boxes, new_format=form),
        "masks": tv_tensors.Mask(torch.stack([rows > 50, columns > 100, rows > columns])),
        "classes": tv_tensors.Mask((rows // 7 * 13 + columns // 5).to(torch.uint8)),
        "labels": torch.tensor([1, 2, 3]),
        "image_id": index,
        "meta": ("name", None, 0.5),
    }
    if hasattr(tv_tensors, "KeyPoints"):
        target["points"] = tv_tensors.KeyPoints([[5.5, 6.25]], canvas_size=(height, width))
    return target


class Objects(DecodeDataset):
    """Photos with boxes, as users write such a dataset."""

    thread_safe = True

    def __init__(self, transforms: Any, form: str = "XYXY", **options: Any) -> None:
        super().__init__(transforms=transforms, **options)
        self.form = form

    def __len__(self) -> int:
        return len(PHOTOS)

    def read(self, index: int) -> tuple[Any, Any]:
        """Return a path and its target."""
        return PHOTOS[index], _target(index, self.form)


def _as_written(transforms: Any, index: int, form: str = "XYXY") -> tuple[Any, Any]:
    with PillowImage.open(PHOTOS[index]) as file:
        return transforms(file.convert("RGB"), _target(index, form))


FLIP, FLOAT = v2.RandomHorizontalFlip, v2.ToDtype(torch.float32, scale=True)
END = [v2.ToImage(), FLOAT, v2.SanitizeBoundingBoxes()]
PURE = [*END, v2.ToPureTensor()]
PIPELINES: dict[str, list[Any]] = {
    "multiscale": [v2.RandomShortestSize([200, 233, 256, 300], max_size=400), FLIP(0.5), *PURE],
    "as in DETR": [FLIP(0.5), v2.RandomShortestSize([250, 300], 360), *END],
    "a longest side that always counts": [v2.RandomShortestSize(900, max_size=333), *END],
    "hflip": [FLIP(0.5), *PURE],
    "large scale jitter": [
        *(v2.ScaleJitter((240, 320), (0.3, 1.4)), v2.RandomCrop((200, 200), pad_if_needed=True)),
        *(FLIP(0.5), *END),
    ],
    "crop": [
        *(v2.ToImage(), v2.RandomResizedCrop((200, 160), scale=(0.3, 1), antialias=True)),
        *(FLIP(0.5), FLOAT, v2.Normalize(MEAN, STD), v2.SanitizeBoundingBoxes()),
    ],
    "distorted": [v2.Resize((180, 240)), v2.RandomPhotometricDistort(p=1), FLIP(0.5), *END],
    "resize with a longest side": [v2.Resize(250, max_size=300), FLIP(1), *END],
    "centre": [v2.Resize(250), v2.CenterCrop(200), *END],
    "zoomed out": [
        *(v2.RandomZoomOut(123, (1.0, 2.0), p=0.8), FLIP(0.5), v2.Resize((150, 200)), *PURE)
    ],
    "SSDlite": [v2.RandomIoUCrop(), FLIP(0.5), *PURE],
    "both": [
        *(v2.ToImage(), FLIP(0.5), v2.RandomZoomOut(side_range=(1.0, 1.5))),
        *(v2.RandomIoUCrop(trials=10), v2.Resize((100, 110)), FLIP(0.5), *END),
    ],
    "SSD": [
        *(v2.RandomPhotometricDistort(), v2.RandomZoomOut(117), v2.RandomIoUCrop()),
        *(FLIP(0.5), *PURE),
    ],
    "by type": [
        *(v2.Resize(250, interpolation=v2.InterpolationMode.BICUBIC), v2.ToImage()),
        v2.ToDtype({tv_tensors.Image: torch.float32, "others": None}, scale=True),
    ],
}


def _check_alike(ours: Any, theirs: Any) -> None:
    """Check that two targets have the same types and values."""
    assert type(ours) is type(theirs)
    if isinstance(ours, dict):
        assert ours.keys() == theirs.keys()
        for key, value in ours.items():
            _check_alike(value, theirs[key])
    elif isinstance(ours, torch.Tensor):
        assert ours.dtype == theirs.dtype
        torch.testing.assert_close(ours, theirs, rtol=1e-6, atol=1e-4)
        assert getattr(ours, "canvas_size", None) == getattr(theirs, "canvas_size", None)
        assert getattr(ours, "format", None) == getattr(theirs, "format", None)
    else:
        assert ours == theirs


def _in_dataset(pipeline: Any, index: int, form: str) -> Any:
    return pickle.loads(pickle.dumps(Objects(pipeline, form)))[index]


def _opened(pipeline: Any, index: int, form: str) -> Any:
    return fuse(pipeline)(fastdecode.open(PHOTOS[index]).convert("RGB"), _target(index, form))


@pytest.mark.parametrize("way", [_in_dataset, _opened], ids=["dataset", "opened"])
@pytest.mark.parametrize("name", PIPELINES)
def test_results_are_torchvisions(name: str, way: Any) -> None:
    """For the same seed: the same targets and draws, and pixels within one level before colours."""
    pipeline = v2.Compose(PIPELINES[name])
    for (index, form), seed in product(enumerate(("XYXY", "XYWH", "CXCYWH")), range(2)):
        torch.manual_seed(seed)
        image, target = way(pipeline, index, form)
        after = torch.rand(1)
        torch.manual_seed(seed)
        expected, their_target = _as_written(pipeline, index, form)

        assert_same(after, torch.rand(1), (index, seed))
        _check_alike(target, their_target)
        if way is _opened and name not in ("large scale jitter", "centre"):
            assert type(image) not in (torch.Tensor, tv_tensors.Image)  # the core is to make it
        assert isinstance(image, type(expected))
        assert image.shape == expected.shape
        levels = 255 * (0.224 if name == "crop" else 1) * (image - expected).abs()
        assert levels.max() <= {"distorted": 12, "SSD": 0.01, "hflip": 0.01}.get(name, 1.01)


@pytest.mark.parametrize(
    "given",
    [
        lambda image, target: (image, target, 3),
        lambda image, target: (image, target["boxes"]),
        lambda image, target: (image.rotate(10), target),
        lambda image, target: (image.crop((3, 4, 90, 80)), {"id": 3}),
        lambda image, target: (v2.functional.to_image(image), target),
        lambda image, target: (image, [1, (target["masks"], "name")]),
        lambda image, target: (image, image.convert("L")),
        lambda image, target: (image, {"other": image, "boxes": target["boxes"]}),
        lambda image, target: (image, np.zeros((4, 5, 3), np.uint8)),
        lambda image, target: ({"image": image, "boxes": target["boxes"]},),
        lambda image, target: ((image, target["masks"]),),
        lambda image, target: ([image, image.crop((0, 0, 9, 9))],),
        lambda image, target: (v2.functional.to_image(image),),
        lambda image, target: (v2.functional.pil_to_tensor(image),),
    ],
)
def test_fuse_takes_what_a_pipeline_of_v2_takes(given: Any) -> None:
    """Several targets, any structure, and other images."""
    pipeline = v2.Compose([v2.RandomHorizontalFlip(0.5), v2.ToImage()])
    for seed in range(4):
        results = []
        for transform, open_ in ((fuse(pipeline), fastdecode.open), (pipeline, PillowImage.open)):
            torch.manual_seed(seed)
            made = transform(*given(open_(PHOTOS[0]).convert("RGB"), _target(0)))
            results.append(made if isinstance(made, tuple) else (made,))
        for made, expected in zip(*results, strict=True):
            assert isinstance(made, type(expected))
            assert_same(made, expected)


NAMED = v2.ToDtype({tv_tensors.Image: torch.float32, "others": None}, scale=True)


@pytest.mark.filterwarnings("ignore:scale was set to True")
@pytest.mark.parametrize(
    "steps",
    [
        [v2.ToImage(), v2.ToPureTensor(), NAMED],
        [v2.PILToTensor(), NAMED],
        [NAMED],
        [v2.ToImage(), FLOAT, v2.ToDtype({tv_tensors.Image: torch.float16, "others": None}, True)],
        [
            *(v2.ToImage(), FLOAT),
            v2.Lambda(lambda part: part + 1 if type(part) is tv_tensors.Image else part),
        ],
    ],
    ids="12345",
)
def test_a_step_that_looks_for_a_type_finds_that_of_the_image(steps: list[Any]) -> None:
    """What is no tv_tensors.Image any more, or not yet, is converted as all others are."""
    pipeline = v2.Compose([v2.Resize((40, 30)), *steps])
    made, _ = fuse(pipeline)(fastdecode.open(PHOTOS[0]).convert("RGB"), {"id": 3})
    expected, _ = pipeline(PillowImage.open(PHOTOS[0]).convert("RGB"), {"id": 3})
    assert isinstance(made, type(expected))
    within = 1 if isinstance(expected, PillowImage.Image) or expected.max() > 9 else 2 / 255
    image = made if isinstance(made, PillowImage.Image) else made.as_subclass(type(expected))
    assert_same(image, expected, within=within)


BY_TYPE = {tv_tensors.Image: torch.float32, tv_tensors.Mask: torch.int64, "others": None}
STEPS = [
    *(v2.Resize((40, 30)), v2.Resize(36, max_size=44), v2.RandomShortestSize([32, 40, 50], 61)),
    *(v2.ScaleJitter((40, 40), (0.5, 1.5)), v2.RandomResizedCrop((28, 36)), v2.CenterCrop(30)),
    *(FLIP(0.5), FLIP(1.0), v2.RandomVerticalFlip(0.5), v2.ToImage(), v2.PILToTensor()),
    *(v2.ToPureTensor(), FLOAT, v2.ToDtype(BY_TYPE, scale=True), v2.Identity()),
    *(v2.ConvertImageDtype(torch.float32), v2.Normalize(MEAN, STD), v2.SanitizeBoundingBoxes()),
    *(v2.ConvertBoundingBoxFormat("CXCYWH"), v2.ClampBoundingBoxes(), torch.nn.Identity()),
    *(v2.RGB(), v2.RandomInvert(0.5)),
    *(v2.RandomZoomOut(99, (1, 2)), v2.RandomZoomOut(p=1.0), v2.RandomIoUCrop()),
    *(v2.ColorJitter(0.5), v2.RandomCrop(20), v2.Pad(3)),
]
WHOLE = v2.RandomResizedCrop((28, 36), (1.0, 1.0), (4 / 3, 4 / 3))
MOVED = [
    *(FLIP(1.0), v2.RandomVerticalFlip(1.0), v2.Resize((40, 30)), v2.Resize(36, max_size=44)),
    *(v2.ScaleJitter((40, 40), (1.0, 1.0)), v2.RandomShortestSize(32, 41), v2.CenterCrop(30)),
    *(v2.RandomCrop((48, 64)), WHOLE),
    *(v2.RandomZoomOut(7, (1.5, 1.5), p=0.0), v2.RandomInvert(1.0), v2.ColorJitter((2.0, 2.0))),
    *(v2.Grayscale(3), v2.RandomAdjustSharpness(3.0, 1.0), v2.GaussianBlur(3, (1.0, 1.0))),
    *(v2.RandomRotation((90, 90)), v2.Pad(3), v2.ToImage(), v2.SanitizeBoundingBoxes()),
    v2.RandomApply([FLIP(1.0), v2.Resize((20, 31))], p=1.0),
    v2.RandomChoice([v2.Compose([v2.Resize(25), FLIP(1.0)])]),
    v2.RandomOrder([v2.Resize((33, 20))]),
]
"""These draw nothing that matters."""


class Small(DecodeDataset):
    """One small image with boxes, a mask and numbers."""

    mask = thread_safe = True

    def __len__(self) -> int:
        return 1

    def read(self, index: int) -> tuple[Any, Any]:
        """Return the image and its target."""
        boxes = tv_tensors.BoundingBoxes([[5.0, 6, 40, 30]], format="XYXY", canvas_size=(48, 64))
        mask = tv_tensors.Mask(torch.arange(48 * 64, dtype=torch.uint8).view(1, 48, 64))
        target = {"boxes": boxes, "mask": mask, "labels": torch.tensor([3]), "id": 7}
        target = target if self.mask else {"boxes": boxes, "labels": [3]}
        return encode(PillowImage.open(PHOTOS[0]).convert("RGB").resize((64, 48))), target


class InTurn(Small):
    """The same image, one after another."""

    thread_safe = False


class Unmasked(Small):
    """The same image without a mask, for which torchvision takes no colour as fill."""

    mask = False


@pytest.mark.filterwarnings("ignore")
@given(
    st.lists(st.sampled_from(STEPS), min_size=1, max_size=5),
    st.integers(0, 99),
    st.sampled_from([None, None, "pil", "tensor", "array"]),
)
@settings(WITHOUT_SHRINKING, max_examples=examples(100))
def test_targets_follow_steps_in_any_order(steps: list[Any], seed: int, output: Any) -> None:
    """For the same seed, image and target are those of the pipeline as written, or it raises."""
    pipeline = v2.Compose(steps)
    dataset = Small(transforms=pipeline, output=output)
    plain = Small(transforms=pipeline, output=output, fuse=False)
    torch.manual_seed(seed)
    try:
        expected, target = plain[0]
    except Exception:
        torch.manual_seed(seed)
        with pytest.raises(Exception):  # noqa: B017 - whatever it raises
            dataset[0]
        return
    torch.manual_seed(seed)
    image, ours = dataset[0]

    _check_alike(ours, target)
    assert type(image) is type(expected)
    made, wanted = (torch.as_tensor(np.array(one)).double() for one in (image, expected))
    level = 1 if wanted.max() > 10 else 1 / 255 / min(STD)
    assert made.shape == wanted.shape
    assert (made - wanted).abs().mean() < level


@pytest.mark.filterwarnings("ignore")
@given(st.lists(st.sampled_from(MOVED), min_size=1, max_size=5), st.integers(0, 1))
@example([v2.RandomVerticalFlip(1.0), v2.Resize((40, 30))], 1)
@example([FLIP(1.0), WHOLE, WHOLE], 1)  # a flip, and the resize of a mask, which do not commute
@settings(WITHOUT_SHRINKING, max_examples=examples(100))
def test_targets_follow_in_a_loader(steps: list[Any], threads: int) -> None:
    """Also colours and nested steps run in the core there, or whatever it cannot do as written."""
    assume(not {v2.Pad, v2.RandomCrop} <= {*map(type, steps)})  # of a larger image, a crop is drawn
    last = max((at for at, one in enumerate(steps) if one is WHOLE), default=0)
    # After others the box of `WHOLE` may fit, and be drawn.
    assume({*map(type, steps[:last])} <= {type(WHOLE), v2.RandomHorizontalFlip})
    pipeline = v2.Compose(steps)
    try:
        expected, target = Small(transforms=pipeline, fuse=False)[0]
    except Exception:
        return
    dataset = Small(transforms=pipeline)
    where = {"threads": threads} if dataset._settings().draws_apart else {"num_workers": 0}
    [[(image, ours)]] = Loader(dataset, 1, seed=1, collate_fn=list, **where)

    _check_alike(ours, target)
    assert type(image) is type(expected)
    made, wanted = (np.asarray(one).astype(float) for one in (image, expected))
    assert made.shape == wanted.shape
    assert np.abs(made - wanted).mean() < 4  # colours amplify what differs


def _labels_by_chance(sample: Any) -> Any:
    """Draw, as a user's labels_getter may."""
    torch.rand(1)
    return sample[1]["labels"]


PLACED = {
    "a crop that boxes allow": [v2.RandomIoUCrop()],
    "a canvas": [v2.RandomZoomOut((9, 99, 199), (1.0, 3.0))],
    "a canvas and a crop": [v2.RandomZoomOut(), v2.RandomIoUCrop(0.5), v2.SanitizeBoundingBoxes()],
    "unknown fills": [v2.Resize((48, 64)), v2.RandomZoomOut({tv_tensors.Image: 5, "others": 0})],
    "noise": [FLIP(0.0), v2.Resize((48, 64)), v2.ToImage(), FLOAT, v2.GaussianNoise()],
    "labels": [v2.Resize((48, 64)), v2.SanitizeBoundingBoxes(labels_getter=_labels_by_chance)],
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", PLACED)
def test_draws_of_torchvision_come_from_the_seed_of_a_sample(name: str) -> None:
    """In a Loader's threads they are those that torchvision draws from a generator of that seed.

    So are those of a user's function that is called in the training process.
    """
    pipeline = v2.Compose(PLACED[name])
    kind = {"a canvas": Unmasked, "labels": InTurn}.get(name, Small)
    before = torch.random.get_rng_state()
    for seed in range(12):
        threads = seed % 3 if kind.thread_safe else 0
        [[(image, ours)]] = Loader(
            kind(transforms=pipeline), 1, seed=seed, threads=threads, collate_fn=list
        )
        assert_same(before, torch.random.get_rng_state(), seed)
        torch.manual_seed(sample_seed(seed, 0, 0))
        expected, target = kind(transforms=pipeline, fuse=False)[0]
        torch.random.set_rng_state(before)

        _check_alike(ours, target)
        made, wanted = (np.asarray(one).astype(float) for one in (image, expected))
        assert np.abs(made - wanted).max() <= 1.01


def test_all_of_these_are_done_without_worker_processes() -> None:
    """`print` says so, and what is called in the Loader's threads."""
    called = set()
    for name, parts in PIPELINES.items():
        shown = repr(Objects(v2.Compose(parts)))
        assert "worker processes: " not in shown
        called |= {name} if "in Python, in the Loader's threads" in shown else set()
    assert called == {"centre", "large scale jitter"}


@pytest.mark.parametrize("options", [{"min_size": 50}, {"reduce": 2}, {"mode": "L"}], ids=str)
def test_a_known_pipeline_gets_the_image_that_was_asked_for(options: dict[str, Any]) -> None:
    """What a dataset's options say of the decode is done, and nothing is fused."""
    pipeline = v2.Compose([v2.Resize((20, 30)), v2.ToImage()])
    decoded = fastdecode.decode_file(PHOTOS[0], **options)
    expected, _ = pipeline(PillowImage.fromarray(decoded), None)

    dataset = ImageList(PHOTOS[:1], [None], transforms=pipeline, **options)

    assert_same(dataset[0][0], expected)


def test_map_target_comes_first() -> None:
    """`map_target` makes the tv_tensors, with the size of the image as it is seen."""

    class Plain(DecodeDataset):
        def __len__(self) -> int:
            return 1

        def read(self, index: int) -> tuple[Any, Any]:
            pixels = PillowImage.new("RGB", (100, 60))
            return encode(pixels, exif=with_orientation(6)), [[10, 20, 30, 40]]

        def map_target(self, target: Any, geometry: Any) -> Any:
            return tv_tensors.BoundingBoxes(target, format="XYXY", canvas_size=geometry.size)

    pipeline = v2.Compose([v2.Resize((50, 30)), v2.RandomHorizontalFlip(1)])
    for fuses in (True, False):
        image, boxes = Plain(transforms=pipeline, orient=True, fuse=fuses)[0]
        assert image.size == (30, 50)
        assert boxes.tolist() == [[15, 10, 25, 20]]
        assert boxes.canvas_size == (50, 30)


class Wrong(Objects):
    """Boxes that were made for another photo, which would be moved wrongly."""

    def read(self, index: int) -> tuple[Any, Any]:
        return PHOTOS[0], _target(1)


RGB = fastdecode.open(PHOTOS[0]).convert("RGB")
RESIZE = v2.Compose([v2.Resize(9), v2.ToImage()])
GREY, PART = PillowImage.new("L", SIDES[0][::-1]), RGB.crop((0, 0, 50, 40))
FUSED: Any = fuse(RESIZE)
ERRORS: list[tuple[type[Exception], str, Callable[[], Any]]] = [
    (ValueError, "both", lambda: ImageList(PHOTOS, [0] * 3, RESIZE, transforms=RESIZE)),
    (TypeError, "callable", lambda: Objects(transforms=5)),
    (TypeError, "targets", lambda: Objects(transforms=Resize(5))),
    (ValueError, "image alone", lambda: Objects(RESIZE).transformed(PHOTOS[0])),
    (TypeError, "transforms", lambda: ImageFolder(".", transforms=RESIZE, allow_empty=True)),
    (ValueError, "but the image has", lambda: FUSED(PART, _target(0))),
    (ValueError, "are for an image of", lambda: Wrong(v2.RandomShortestSize(50))[0]),
    (ValueError, "are for an image of", lambda: Wrong(FLIP(1))[0]),
    (TypeError, "", lambda: fuse(torch.nn.Sequential(v2.Resize(40)))(RGB, _target(0))),
    (TypeError, "generator", lambda: FUSED(RGB, _target(0), generator=torch.Generator())),
    (TypeError, "positional", lambda: Fused(RandomResizedCrop(24))(RGB, _target(0))),
    # As written, torchvision resizes a Pillow mask as an image, with a mean of class numbers.
    *(
        (
            TypeError,
            r"Mask.*fuse=False",
            lambda s=one: ImageList(PHOTOS, [s] * 3, transforms=RESIZE)[0],
        )
        for one in (GREY, np.asarray(GREY), tv_tensors.Image(GREY))
    ),
]


def test_wrong_arguments_and_targets() -> None:
    """A contradiction is an error, when the dataset is made or with the sample."""
    for at, (error, told, make) in enumerate(ERRORS):
        assert_raises(error, told, make, f"ERRORS[{at}]")
    kept = ImageList(PHOTOS[:1], [np.ones(3)], transforms=v2.Resize(9))[0][1]  # no image
    assert kept.tolist() == [1, 1, 1]
