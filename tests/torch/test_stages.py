"""Steps of the user's in a pipeline: called as written, between runs of the core."""

from __future__ import annotations

import copy
import io
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from corpus import native_core
from loading import PROCESS_WARNINGS, SeededLoader, Sources
from PIL import Image as PillowImage
from PIL import ImageFilter, ImageOps
from same import assert_same
from torch_reference import PHOTOS

from fastdecode.testing import encode
from fastdecode.torch import Fused, ImageList, fuse
from fastdecode.torch.transforms import Compose, Normalize, RandomResizedCrop, Resize, ToTensor

pytest.importorskip("torchvision")

from torchvision.transforms import CenterCrop, PILToTensor, RandomHorizontalFlip

native_core()
pytestmark = pytest.mark.filterwarnings(*PROCESS_WARNINGS)
FILES = [*PHOTOS[:2], PHOTOS[1]]
WAYS: dict[str, dict[str, int]] = {"here": {"threads": 0}, "processes": {"workers": 2}}


def resize(side: int = 32) -> Any:
    return Resize((side, side))


def images(pipeline: Any, how: dict[str, int], **options: Any) -> list[Any]:
    """Return the images that a `Loader` makes of the photos."""
    dataset = ImageList(FILES, [0] * len(FILES), transform=pipeline, **options)
    with SeededLoader(dataset, 1, collate_fn=list, **how) as loader:
        return [image for batch in loader for image, _ in batch]


def as_written(pipeline: Any, file: Any) -> Any:
    return pipeline(PillowImage.open(file).convert("RGB"))


def check(made: Any, expected: Any, levels: float = 1.01) -> None:
    """Compare images in any form; floats are from 0 to 1."""
    made, expected = (
        torch.as_tensor(np.array(one) if isinstance(one, PillowImage.Image) else one)
        for one in (made, expected)
    )
    scale = 255 if expected.is_floating_point() else 1
    assert_same(made.double(), expected.double(), within=levels / scale)


# ---- what a step does, it does ----


def in_place(x: Any) -> Any:
    x -= 0.5
    x *= 2
    return x


def inverted(x: Any) -> Any:
    x ^= 255
    return x


def by_its_corner(x: Any) -> Any:
    return 1 - x if x[0, 0, 0] > 0.5 else x


def unless_almost_square(image: Any) -> Any:
    width, height = image.size
    return image if width / height > 0.8 and height / width > 0.8 else ImageOps.pad(image, (50, 50))


def without_last_rows(x: Any) -> Any:
    x = np.array(x)
    x[-2:] = 0
    return PillowImage.fromarray(x)


class Twice:
    """A class of one's own around a known step."""

    def __init__(self, step: Any) -> None:
        self.step = step

    def __call__(self, image: Any) -> Any:
        return self.step(self.step(image))


STEPS: dict[str, Callable[[], Any]] = {
    "in place": lambda: Compose([resize(), ToTensor(), in_place]),
    "bytes in place": lambda: Compose([resize(), np.array, inverted]),
    "a corner": lambda: Compose([resize(), ToTensor(), by_its_corner]),
    "a ratio": lambda: Compose([unless_almost_square, resize(), ToTensor()]),
    "rows": lambda: Compose([without_last_rows, resize(), ToTensor()]),
    "its own class": lambda: Compose([Twice(CenterCrop(48)), resize(), ToTensor()]),
    "from eval": lambda: Compose([resize(), eval("lambda x: x.rotate(90)"), ToTensor()]),
    "three stages": lambda: Compose(
        [CenterCrop(96), ImageOps.invert, CenterCrop(64), ImageOps.mirror, resize(), ToTensor()]
    ),
    "of another form": lambda: Compose([resize(), np.array, PillowImage.fromarray, ToTensor()]),
    "of one channel": lambda: Compose([resize(), ImageOps.grayscale, ToTensor()]),
    "no Compose": lambda: Twice(resize()),
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", STEPS)
def test_a_step_is_called_as_it_is_written(name: str, way: str) -> None:
    """The result of a `Loader` is that of the pipeline on Pillow's image, within a level or two."""
    for made, file in zip(images(STEPS[name](), WAYS[way]), FILES, strict=True):
        check(made, as_written(STEPS[name](), file), 2.02)


class Alternates:
    """A step that makes tensors of every second image."""

    turn = 0

    def __call__(self, image: Any) -> Any:
        self.turn += 1
        return PILToTensor()(image) if self.turn % 2 else image


def inverse(image: Any) -> Any:
    return 255 - image if isinstance(image, torch.Tensor) else ImageOps.invert(image)


def test_what_a_step_returns_decides_where_the_next_ones_run() -> None:
    """Each image goes on by its own form; known steps run in the core again, in any stage."""

    def steps() -> Any:
        alternating = [Alternates(), CenterCrop(48), inverse, resize(24), inverse]
        return Compose([CenterCrop(96), *alternating, RandomHorizontalFlip(1.0)])

    written, dataset = steps(), ImageList(FILES, [0] * 3, transform=steps())
    with SeededLoader(dataset, 1, threads=0, collate_fn=list) as loader:
        for batch, file in zip(loader, FILES, strict=True):
            check(batch[0][0], as_written(written, file), 2.02)


class Counted:
    """A step that remembers what it got."""

    def __init__(self) -> None:
        self.sizes: list[Any] = []

    def __call__(self, image: Any) -> Any:
        self.sizes.append(image.size)
        return image

    def __deepcopy__(self, _: Any) -> Any:
        raise AssertionError("a step of the user's is not copied")


def test_a_step_gets_the_images_of_the_dataset_and_nothing_else() -> None:
    """It is called once for each sample, not when the dataset or the loader is made or printed."""
    step = Counted()
    dataset = ImageList(FILES, [0] * 3, transform=Compose([resize(), step, ToTensor()]))
    loader = SeededLoader(dataset, 1, threads=0)
    assert (len(repr(dataset)) > 0, step.sizes) == (True, [])
    assert (len(list(loader)), step.sizes) == (3, [(32, 32)] * 3)


# ---- what it draws ----


def reseeded(x: Any) -> Any:
    torch.manual_seed(3)
    return x


def drawn_and_set_back(x: Any) -> Any:
    state = torch.get_rng_state()
    torch.rand(5)
    torch.set_rng_state(state)
    return x


def test_what_the_core_draws_after_a_step_is_what_the_step_has_seeded() -> None:
    """A step that seeds torch decides the crop after it, as when it is called as written."""
    file = FILES[0]
    steps = [resize(64), reseeded, RandomResizedCrop(16), RandomHorizontalFlip(), ToTensor()]
    dataset = ImageList([file] * 8, [0] * 8, transform=Compose(steps))
    for how in WAYS.values():
        with SeededLoader(dataset, 8, **how) as loader:
            ((made, _),) = loader
        assert len({one.numpy().tobytes() for one in made}) == 1
    dataset.transform = Compose([*steps[:1], drawn_and_set_back, *steps[2:]])
    with SeededLoader(dataset, 8, threads=0) as loader:
        ((made, _),) = loader
    assert len({one.numpy().tobytes() for one in made}) == 8


# ---- what it sees ----


def upright(image: Any) -> Any:
    return ImageOps.exif_transpose(image)


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "WEBP"])
@pytest.mark.parametrize(
    "steps",
    [
        [],
        [ImageOps.exif_transpose],
        [Resize((40, 30)), ImageOps.exif_transpose],
        [Resize((40, 30)), ImageOps.invert, RandomHorizontalFlip(1.0), ImageOps.exif_transpose],
    ],
)
def test_images_for_steps_have_the_info_of_their_file(kind: str, steps: list[Any]) -> None:
    """A step turns a photo upright by its EXIF, also after steps that the core has done."""
    exif = PillowImage.Exif()
    exif[0x112] = 6
    with PillowImage.open(PHOTOS[0]) as photo:
        data = encode(photo.convert("RGB").resize((60, 40)), kind, exif=exif)
    pipeline = Compose(steps) if steps else None
    expected: Any = PillowImage.open(io.BytesIO(data)).convert("RGB")
    for step in steps:
        expected = step(expected)

    dataset = Sources(data, transform=pipeline)
    with SeededLoader(dataset, 1, threads=0, collate_fn=list) as loader:
        for made, _ in [dataset[0], *next(iter(loader))]:
            assert (made.size, "exif" in made.info) == (expected.size, "exif" in expected.info)
            check(made, expected, 3)


def test_a_damaged_file_is_an_error_where_the_step_gets_it() -> None:
    """Pixels that a step asks for later are checked as `decode` checks them, and skipped."""
    with PillowImage.open(PHOTOS[0]) as photo:
        good = encode(photo.convert("RGB").resize((64, 64)))
    cut = good[: len(good) // 2] + b"\xff\xd9"
    for transform in (None, ImageOps.invert, Compose([ImageOps.mirror, ToTensor()])):
        dataset = Sources(good, cut, transform=transform, on_error="skip")
        with SeededLoader(dataset, 2, threads=0, collate_fn=list) as loader:
            (batch,) = loader
        assert [target for _, target in batch] == [0]
        assert [failure.index for failure in dataset.errors] == [1]


# ---- what is changed later ----


def size_of(dataset: Any, loader: Any) -> list[Any]:
    batches = [images for images, _ in loader]
    return [tuple(dataset[0][0].shape), *{tuple(batch.shape[1:]) for batch in batches}]


@pytest.mark.parametrize("way", ["threads", "processes", "persistent"])
@pytest.mark.parametrize("middle", [None, ImageOps.invert])
def test_a_step_that_is_changed_between_epochs_takes_effect(way: str, middle: Any) -> None:
    """A size that a schedule changes is that of the next epoch, as with torch's DataLoader."""
    steps = [
        RandomResizedCrop(16),
        *([middle] if middle else []),
        ToTensor(),
        Normalize([0.5] * 3, [0.5] * 3),
    ]
    pipeline = Compose(steps)
    dataset = ImageList(FILES, [0] * 3, transform=pipeline)
    how: dict[str, Any] = {
        "threads": {"num_workers": 1},
        "processes": {"workers": 1},
        "persistent": {"workers": 1, "persistent_workers": True},
    }[way]
    with SeededLoader(dataset, 3, **how) as loader:
        for side in (16, 24, 32):
            if side == 24:
                pipeline.transforms[0].size = (side, side)
            else:
                pipeline.transforms[0] = RandomResizedCrop(side)
            assert size_of(dataset, loader) == [(3, side, side)] * 2


def test_a_fused_pipeline_follows_its_changes() -> None:
    """`fuse` and `Views` read a pipeline again when a step, a list or an array has changed."""
    from fastdecode.torch import Views

    mean = [0.0, 0.0, 0.0]
    pipeline = Compose([Resize((16, 16)), ToTensor(), Normalize(mean, [1.0] * 3)])
    fused, views = fuse(pipeline), Views(pipeline, 2)
    data = FILES[0].read_bytes()
    assert isinstance(fused, Fused)
    before = fused(data)
    pipeline.transforms[0] = Resize((20, 24))
    assert {tuple(one.shape) for one in (fused(data), *views(data))} == {(3, 20, 24)}
    assert fused.shape == (3, 20, 24)
    pipeline.transforms.append(ImageFilter.DETAIL)
    with pytest.raises(TypeError):
        fused(data)
    pipeline.transforms[:] = [Resize((16, 16)), ToTensor()]
    check(fused(data), before, 0)
    pipeline.transforms[:] = [lambda image: image.size]
    assert fused(data) == (500, 333)


class Held:
    """An object of the user's with a pipeline, and with what `fuse` makes of it."""

    def __init__(self) -> None:
        self.flip = RandomHorizontalFlip(0.0)
        self.pipeline = Compose([resize(), self.flip, ToTensor()])
        self.fused = fuse(self.pipeline)


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda one: pickle.loads(pickle.dumps(one))])
def test_a_copy_of_a_fused_pipeline_follows_the_changes_of_its_own(copied: Any) -> None:
    """A worker process that is not forked gets such a copy; a loader, a pipeline changed twice."""
    data, held = FILES[0].read_bytes(), copied(Held())
    before = held.fused(data)
    dataset = ImageList(FILES[:1], [0], transform=held.fused)
    with SeededLoader(dataset, 1, threads=1) as loader:
        for p, expected in ((1.0, before.flip(-1)), (0.0, before), (1.0, before.flip(-1))):
            held.flip.p = p
            check(held.fused(data), expected, 0)
            held.flip.p = 1.0 - p
            check(next(iter(loader))[0][0], expected.flip(-1), 0)


class Chooses:
    """A step that decides how large the next one makes the image."""

    def __init__(self, after: Any) -> None:
        self.after, self.side = after, 20

    def __call__(self, image: Any) -> Any:
        self.side += 1
        self.after.size = (self.side, self.side)
        return image


@pytest.mark.parametrize("way", WAYS)
def test_a_step_may_change_a_later_one(way: str) -> None:
    """What follows a step is read again if it has changed, as when it is called as written."""
    after = resize()
    made = images(Compose([Chooses(after), after, ToTensor()]), WAYS[way])
    sides = [image.shape[-1] for image in made]
    assert sides == ([21, 22, 23] if way == "here" else [21, 21, 22])


@pytest.mark.parametrize("values", [np.array, torch.tensor])
def test_a_mean_that_is_changed_in_place_takes_effect(values: Any) -> None:
    """The array is the same object: its values tell."""
    v1 = pytest.importorskip("torchvision.transforms")
    mean = values([0.2, 0.3, 0.4])
    pipeline = v1.Compose([v1.Resize((16, 20)), v1.ToTensor(), v1.Normalize(mean, [0.5] * 3)])
    fused = fuse(pipeline)
    before = fused(FILES[0].read_bytes())
    mean += 0.25
    check((before - fused(FILES[0].read_bytes())).mean(), torch.tensor(0.5), 0.01)


def test_a_librarys_step_in_a_thread_draws_from_the_samples_seed() -> None:
    """And not from torch's global generator, from which the training draws."""
    v2 = pytest.importorskip("torchvision.transforms.v2")
    steps = [v2.ToImage(), v2.Resize((16, 20)), v2.ToDtype(torch.float32, scale=True)]
    dataset = ImageList(FILES, [0] * 3, transform=v2.Compose([*steps, v2.GaussianNoise()]))
    batches = []
    for seed in range(2):
        torch.manual_seed(seed)
        with SeededLoader(dataset, 3, threads=2) as loader:
            batches.extend(images for images, _ in loader)
    assert_same(batches[0], batches[1])
