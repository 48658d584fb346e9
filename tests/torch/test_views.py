"""Several views of an image: one decode, each view as its own pipeline makes it."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest
import torch
from corpus import native_core
from encoded import with_orientation
from PIL import Image as PillowImage
from same import assert_same
from torch_reference import MEAN, PHOTOS, STD

from fastdecode import backends
from fastdecode.errors import BackendUnavailable
from fastdecode.native._augment import Operation, Program, do, draw_in_core
from fastdecode.testing import encode
from fastdecode.torch import Fused, Views
from fastdecode.torch.transforms import RandomResizedCrop, Resize, ResizeCenterCrop
from fastdecode.torch.transforms._random_crop import SampleGenerator
from fastdecode.torch.transforms.base import Recipe

native_core()

LARGE = RandomResizedCrop(48, scale=(0.4, 1), flip=0.5, mean=MEAN, std=STD)
SMALL = RandomResizedCrop(24, scale=(0.05, 0.4), interpolation="bicubic")
KINDS: dict[str, Any] = {
    "two crops": Views(LARGE, 2),
    "DINO's": Views([LARGE, LARGE, *[SMALL] * 4]),
    "an image that is padded": Views([SMALL, ResizeCenterCrop(20, 40)]),
    "of any size": Views([Resize(30), LARGE]),
    "with a smaller decode": Views([LARGE, RandomResizedCrop(8, quality="fast")]),
    "with steps as written": Views([LARGE, Fused(SMALL, [lambda image: image.float() / 2])]),
}


def _separately(views: Views, data: bytes, generator: Any, **options: Any) -> list[torch.Tensor]:
    return [view(data, generator=generator, **options) for view in views.views]


@pytest.mark.parametrize(
    ("kind", "options"),
    [("jpeg", {}), ("png", {}), ("turned", {}), ("turned", {"orient": True})],
    ids=["jpeg", "png", "turned", "turned upright"],
)
@pytest.mark.parametrize("name", KINDS)
def test_views_are_those_of_their_pipelines(name: str, kind: str, options: dict[str, Any]) -> None:
    """Each view has the draws and pixels that its pipeline has when it is called on its own."""
    views = KINDS[name]
    for seed, path in enumerate(PHOTOS[:3]):
        data = path.read_bytes()
        if kind != "jpeg":
            exif = with_orientation(5 + seed)
            with PillowImage.open(path) as image:
                data = encode(image, "png") if kind == "png" else encode(image, exif=exif)
        for make in (torch.Generator, SampleGenerator):
            made = views(data, generator=make("cpu").manual_seed(seed), **options)
            expected = _separately(views, data, make("cpu").manual_seed(seed), **options)
            assert isinstance(made, list)
            for one, other in zip(made, expected, strict=True):
                assert_same(one, other, path, within=1.01 if one.max() > 9 else 0.02)


def test_views_decode_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The file is decoded once, and in a Loader only the part that the views show."""
    from fastdecode.torch import _views

    decoded: list[Any] = []
    original = _views.decode_part

    def decode(data: Any, header: Any, reduce: Any, window: Any, **options: Any) -> Any:
        decoded.append(window)
        return original(data, header, reduce, window, **options)

    monkeypatch.setattr(_views, "decode_part", decode)
    data = PHOTOS[0].read_bytes()
    Views(SMALL, 8)(data)
    assert decoded == [None]
    with PillowImage.open(PHOTOS[0]) as image:
        sides = image.size
    drawn = SampleGenerator("cpu").manual_seed(3)
    boxes = [SMALL.draw(*sides, drawn).plan.box for _ in range(2)]
    Views(SMALL, 2)(data, generator=SampleGenerator("cpu").manual_seed(3))
    edges = np.array(boxes)
    assert decoded[1:] == [(*edges[:, :2].min(0), *edges[:, 2:].max(0))]


@pytest.mark.parametrize("backend", [one.name for one in backends() if "jpeg" in one.formats])
@pytest.mark.parametrize("interpolation", ["bilinear", "bicubic"])
def test_a_view_does_not_change_those_after_it(backend: str, interpolation: Any) -> None:
    """A view with a smaller decode overwrites no pixels of the others, whoever decodes them."""
    if backend in ("nvimgcodec", "dali"):
        pytest.skip("it decodes on a device")
    exact = Resize((40, 56), interpolation)
    views = Views([RandomResizedCrop(8, quality="fast"), exact, Resize(9, quality="fast"), exact])
    data = PHOTOS[1].read_bytes()
    try:
        expected = exact(data, backend=backend)
    except BackendUnavailable as error:
        pytest.skip(str(error))
    for make in (torch.Generator, SampleGenerator):
        made = views(data, generator=make("cpu").manual_seed(1), backend=backend)
        for at in (1, 3):
            assert_same(made[at], expected, at)


def test_tensors_of_a_view_are_cropped_before_they_are_resized() -> None:
    """As alone, bicubic of a tensor's part sees no pixel beside the part."""
    plain = RandomResizedCrop(24, scale=(0.2, 0.2), ratio=(1, 1))
    box, resize = plain.program
    cubic = Operation("resize", (24, 24), "torch_bicubic")
    crop = Recipe(Program([box, resize._replace(operation=cubic)]))
    for seed, path in enumerate(PHOTOS):
        data = path.read_bytes()
        alone, view = (
            make(data, generator=SampleGenerator("cpu").manual_seed(seed))
            for make in (crop, Views([crop, Resize(30)]))
        )
        assert_same(alone, view[0], path)


@pytest.mark.parametrize("count", [1, 2, 3])
def test_no_draw_of_an_augmentation_is_drawn_again(count: int) -> None:
    """The numbers of a sample's views are the crop's, the augmentations', and the next crop's."""
    plain, crop = (RandomResizedCrop(16, flip=0.5) for _ in range(2))
    inverts = do(Operation("invert"), probability=0.5)
    crop.program = Program([*crop.program, *inverts])
    for path in PHOTOS[:5]:
        data = path.read_bytes()
        expected = SampleGenerator("cpu").manual_seed(count)
        for _ in range(count):
            plain(data, generator=expected)
            expected.state = draw_in_core(inverts, expected.state, 16, 16).state
        for views in (Views(crop, count), Views([crop] * count)):
            generator = SampleGenerator("cpu").manual_seed(count)
            views(data, generator=generator)
            assert generator.state == expected.state


def test_what_views_are_as_an_object() -> None:
    """A copy makes the same; each pipeline is printed once; there is no one geometry, and no slot.

    A function is called with the decoded Pillow image, and the Loader leaves threads to it.
    """
    views, data = pickle.loads(pickle.dumps(KINDS["DINO's"])), PHOTOS[0].read_bytes()
    made, expected = (
        each(data, generator=SampleGenerator("cpu").manual_seed(1))
        for each in (views, KINDS["DINO's"])
    )
    assert_same(made, expected)
    assert repr(views).count("RandomResizedCrop") == 2
    assert "2 x" in repr(views)
    assert "4 x" in repr(views)
    with pytest.raises(ValueError, match="geometry"):
        views.with_geometry(data)
    with pytest.raises(ValueError, match="several views"):
        views(data, out=torch.empty(3, 48, 48))
    unknown = Views([LARGE, lambda image: torch.tensor(image.size)])
    with PillowImage.open(PHOTOS[0]) as image:
        assert unknown(data)[1].tolist() == list(image.size)
    assert (unknown.isolated, views.isolated) == (False, True)
