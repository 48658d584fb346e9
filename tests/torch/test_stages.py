"""Steps of the user's in the middle of a pipeline: passed over, or called between runs of the core.

Without torchvision its doubles take its place.
"""

from __future__ import annotations

import io
import random
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch
from corpus import native_core
from loading import SeededLoader, Sources
from PIL import Image as PillowImage
from PIL import ImageFilter
from torch_reference import PHOTOS

from fastdecode.testing import drawing, encode
from fastdecode.torch import Fused, Loader, Views, fuse
from fastdecode.torch._measured import measured
from fastdecode.torch._probes import (
    affine_of,
    does_nothing,
    examine,
    images_for,
    is_stateless,
    pillow_calls,
)
from fastdecode.torch._user_code import DrawingFrom, global_states

try:
    import cv2
except ImportError:
    cv2 = None  # type: ignore[assignment]
try:
    from torchvision.transforms import transforms as v1
except ImportError:
    from small_torchvision import v1

native_core()
FILES = [photo.read_bytes() for photo in PHOTOS[:3]]
IMAGES = [PillowImage.open(io.BytesIO(file)).convert("RGB") for file in FILES]
MEAN = (0.5, 0.4, 0.3)
STRENGTH = 0.5  # which its user may change at any time


def resize() -> Any:
    return v1.Resize((40, 30), antialias=True)


def converts(image: Any) -> Any:
    return image.convert("RGB")


class Converts:
    """What open_clip does."""

    def __call__(self, image: Any) -> Any:
        return image.convert("RGB") if isinstance(image, PillowImage.Image) else image


class Sharper:
    """A step that draws nothing, and keeps Pillow images."""

    def __call__(self, image: Any) -> Any:
        return image.filter(ImageFilter.DETAIL)


class Threshold:
    """A step on floats that is not linear."""

    def __call__(self, image: Any) -> Any:
        return (image > 0.3).to(image.dtype)


class ConvertsTo:
    """A step that does nothing to an RGB image, with a setting of its own."""

    def __init__(self, mode: str) -> None:
        self.mode = mode

    def __call__(self, image: Any) -> Any:
        return image if image.mode == self.mode else image.convert(self.mode)


class Counts:
    """A step that does nothing to the image, but something else."""

    seen = 0

    def __call__(self, image: Any) -> Any:
        type(self).seen += 1
        return image


class CountsInside(Counts):
    """The same, in a method that the one which is called calls."""

    def __call__(self, image: Any) -> Any:
        return self.forward(image)

    def forward(self, image: Any) -> Any:
        type(self).seen += 1
        return image


def blurs(image: Any) -> Any:
    radius = random.random()
    return image.filter(ImageFilter.GaussianBlur(radius))


def adds_noise(image: Any) -> Any:
    return image + torch.randn(image.size()) * 0.05


def only_small(image: Any) -> Any:
    return image if image.size[0] < 1000 else image.convert("L").convert("RGB")


def numbers(image: Any) -> np.ndarray:
    return np.asarray(image, dtype=np.float64)


def loaded(transform: Any, **options: Any) -> tuple[Sources, list[Any]]:
    """Return a dataset, and the samples of a Loader in threads."""
    dataset = Sources(*FILES, transform=transform)
    with SeededLoader(dataset, 1, threads=2, collate_fn=list, **options) as loader:
        return dataset, [sample for batch in loader for sample, _ in batch]


IDLE = {
    "a function": converts,
    "a lambda": lambda image: image,
    "a class": Converts(),
    "a class with a setting": ConvertsTo("RGB"),
    "of sizes": lambda image: image if image.size else None,
}
IDLE_ON_FLOATS = {
    "to a device": lambda x: x.to("cpu"),
    "floats": lambda x: x.float(),
    "of grey": lambda x: x.repeat(3, 1, 1) if x.shape[0] == 1 else x,
}


@pytest.mark.parametrize("name", IDLE_ON_FLOATS)
def test_a_step_that_does_nothing_to_floats_is_passed_over(name: str) -> None:
    """So is a conversion to the type and the device that they have."""
    dataset, made = loaded(v1.Compose([resize(), v1.ToTensor(), IDLE_ON_FLOATS[name]]))
    expected = loaded(v1.Compose([resize(), v1.ToTensor()]))[1]
    assert not dataset._resolved_transform().in_loader.rest
    assert all(map(torch.equal, made, expected))


@pytest.mark.parametrize("name", IDLE)
def test_a_step_that_does_nothing_is_passed_over(name: str) -> None:
    """The core does the rest of the pipeline, and `repr` says what was passed over."""
    parts = [IDLE[name], resize(), IDLE[name], v1.ToTensor()]
    dataset, made = loaded(v1.Compose(parts))
    expected = loaded(v1.Compose([resize(), v1.ToTensor()]))[1]

    assert dataset.isolated
    assert "passed over" in repr(dataset)
    assert all(map(torch.equal, made, expected))


class Maybe(v1.ToTensor):
    """What open_clip does."""

    def __call__(self, image: Any) -> Any:
        return image if isinstance(image, torch.Tensor) else super().__call__(image)


class Mirrors(v1.PILToTensor):
    """A subclass that does something else than its base, in the method that the base calls."""

    def forward(self, image: Any) -> Any:
        return torch.from_numpy(np.array(image)).permute(2, 0, 1).flip(-1)

    __call__ = forward


def test_a_subclass_is_its_base_if_it_does_the_same() -> None:
    """So is open_clip's ToTensor; not one that mirrors the image."""
    dataset, made = loaded(v1.Compose([resize(), Maybe()]))
    expected = loaded(v1.Compose([resize(), v1.ToTensor()]))[1]
    assert not dataset._resolved_transform().in_loader.rest
    assert all(map(torch.equal, made, expected))

    mirrored = loaded(v1.Compose([resize(), Mirrors()]))[1]
    plain = loaded(v1.Compose([resize(), v1.PILToTensor()]))[1]
    assert all(torch.equal(one, other.flip(-1)) for one, other in zip(mirrored, plain, strict=True))


def mirrors_large(image: Any) -> Any:
    return image if image.size[0] < 3000 else image.transpose(0)


class OnlySmall:
    """What mirrors only images that are larger than the probes; `lambd` is not what is called."""

    def __init__(self, lambd: Any = converts) -> None:
        self.lambd = lambd

    def __call__(self, image: Any) -> Any:
        return self.lambd(image) if image.size[0] < 3000 else image.transpose(0)


class OnlySmallInside(OnlySmall):
    """The same, in the method of its base."""

    def __call__(self, image: Any) -> Any:
        return super().__call__(image)


class Module(torch.nn.Module):
    """What does nothing, by itself."""

    def forward(self, image: Any) -> Any:
        return image


class ModuleCalled(Module):
    """What does something around that."""

    def __call__(self, image: Any) -> Any:
        return mirrors_large(super().__call__(image))


def replaced() -> Any:
    module = Module()
    module.forward = mirrors_large  # type: ignore[method-assign]
    return module


def hooked() -> Any:
    module = Module()
    module.register_forward_hook(lambda _, __, image: mirrors_large(image))
    return module


@pytest.mark.parametrize(
    "part",
    [
        *(Counts(), CountsInside(), Sharper(), blurs, only_small, repr),
        *(OnlySmall(), OnlySmallInside(), ModuleCalled(), replaced(), hooked()),
        lambda x: x.rotate(0.1),
        lambda x: x if np.array(x).shape[0] < 3000 else None,
        lambda x: x if x.size[0] // 4 // 4 // 4 // 4 < 4 else None,
    ],
    ids=lambda part: getattr(part, "__name__", type(part).__name__),
)
def test_other_steps_are_not_passed_over(part: Any) -> None:
    """Not those that also do something else, that draw, or that change a larger image."""
    assert not does_nothing(part, "pil", 3)
    parts = [resize(), part, v1.ToTensor()]
    shown = repr(fuse(v1.Compose(parts)))
    assert "passed over" not in shown


def test_probes_leave_no_trace() -> None:
    """Trying a step changes neither the global generators nor the step."""
    states = global_states()
    for part in (blurs, adds_noise, Counts()):
        for form in ("pil", "floats"):
            examine(part, images_for(form, 3, None, None))
    after = global_states()
    assert torch.equal(states[0], after[0])
    assert states[1] == after[1]
    assert (states[2][1] == after[2][1]).all()


def test_a_known_step_runs_in_the_core_after_an_unknown_one() -> None:
    """One step in Python costs only itself: what precedes and what follows it is done in C."""
    parts = [v1.RandomHorizontalFlip(1.0), Sharper(), resize(), v1.ToTensor()]
    dataset, made = loaded(v1.Compose(parts))
    fused: Any = dataset._resolved_transform()
    shown = repr(dataset)

    assert dataset.isolated
    assert [type(stage).__name__ for stage in fused.in_loader.rest] == ["Called", "InCore"]
    assert "in one thread at a time" in shown
    assert "thread_safe = True" in shown
    for image, sample in zip(IMAGES, made, strict=True):
        expected = numbers(v1.Compose(parts)(image))
        assert np.abs(numbers(sample) - expected).max() <= 1.01 / 255


def test_a_step_on_floats_is_called_in_the_threads() -> None:
    """A step after the conversion gets the floats that it would get as written."""
    parts = [resize(), v1.ToTensor(), Threshold()]
    dataset, made = loaded(v1.Compose(parts))
    assert dataset.isolated
    for image, sample in zip(IMAGES, made, strict=True):
        assert (numbers(v1.Compose(parts)(image)) != numbers(sample)).mean() < 0.01


class AddsNoise:
    """What many write; it draws by torch's functions alone."""

    def __call__(self, image: Any) -> Any:
        return image + torch.randn(image.size()) * 0.05 + torch.empty(1).uniform_(2, 3)


def adds_noise_alike(image: Any) -> Any:
    return image + torch.randn_like(image) if torch.rand(1) < 2 else image


def adds_noise_of_numpy(image: Any) -> Any:
    return image + torch.from_numpy(np.random.randn(*image.shape)).float()  # noqa: NPY002


def drops(image: Any) -> Any:
    return torch.nn.functional.dropout(image)


GENERATOR = torch.Generator()


def adds_own_noise(image: Any) -> Any:
    return image + torch.randn(image.size(), generator=GENERATOR)


@pytest.mark.parametrize("part", [drops, adds_own_noise])
def test_a_step_that_draws_is_left_to_processes(part: Any) -> None:
    """There its global generators are seeded for each sample; `repr` says so."""
    parts = [resize(), v1.ToTensor(), part]
    dataset = Sources(*FILES, transform=v1.Compose(parts))

    assert not dataset.isolated


@pytest.mark.parametrize("part", [adds_noise, AddsNoise(), adds_noise_alike])
def test_a_step_that_draws_in_torch_draws_from_the_seed_in_threads(part: Any) -> None:
    """In threads, processes and the main thread alike, and nothing from the global generator."""
    transform = v1.Compose([resize(), v1.ToTensor(), part, Threshold()])
    before = global_states()[0]
    made = [loaded(transform)[1], loaded(transform)[1]]
    dataset = Sources(*FILES, transform=transform)
    with SeededLoader(dataset, 1, num_workers=0, collate_fn=list) as loader:
        made.append([sample for batch in loader for sample, _ in batch])
    with SeededLoader(dataset, 1, seed=8, threads=2, collate_fn=list) as loader:
        other = [sample for batch in loader for sample, _ in batch]

    assert dataset.isolated
    assert torch.equal(before, global_states()[0])
    assert all(map(torch.equal, made[0], made[1]))
    assert all(map(torch.equal, made[0], made[2]))
    plain = loaded(v1.Compose([resize(), v1.ToTensor(), Threshold()]))[1]
    for one, two, without in zip(made[0], other, plain, strict=True):
        assert not torch.equal(one, without)
        assert isinstance(part, AddsNoise) or not torch.equal(one, two)


def test_all_functions_of_torch_draw_from_the_generator_that_is_given() -> None:
    """They draw what they draw with `generator=`; one that is given another keeps that."""
    like = torch.zeros(2, 3, dtype=torch.float64)
    draws = [
        lambda: torch.rand(3),
        lambda: torch.randn(3, dtype=torch.float64),
        lambda: torch.rand_like(like),
        lambda: torch.randn_like(like, dtype=torch.float32),
        lambda: torch.randint(0, 9, (3,)),
        lambda: torch.randperm(9),
        lambda: torch.normal(0.0, 1.0, (3,)),
        lambda: torch.multinomial(torch.ones(9), 3),
        lambda: torch.bernoulli(torch.full((9,), 0.5)),
        lambda: torch.empty(3).uniform_(1, 2),
        lambda: torch.empty(3).normal_(),
        lambda: torch.empty(3).exponential_(),
        lambda: torch.empty(9).bernoulli_(0.5),
        lambda: torch.empty(3, dtype=torch.int64).random_(99),
    ]
    for draw in draws:
        before = global_states()[0]
        with DrawingFrom(torch.Generator().manual_seed(3)):
            first, second = draw(), draw()
        assert torch.equal(before, global_states()[0])
        torch.manual_seed(3)
        for made, expected in ((first, draw()), (second, draw())):
            assert made.dtype == expected.dtype
            assert torch.equal(made, expected)
    own = torch.Generator().manual_seed(5)
    with DrawingFrom(torch.Generator().manual_seed(3)):
        made = torch.rand(3, generator=own)
    assert torch.equal(made, torch.rand(3, generator=own.manual_seed(5)))


class Safe(Counts):
    """A step whose author says that threads may call it."""

    thread_safe = True


def test_its_author_may_say_that_a_step_is_safe() -> None:
    """With ``thread_safe = True`` it is called in the threads, several at once."""
    before = Safe.seen
    dataset, made = loaded(v1.Compose([resize(), Safe(), v1.ToTensor()]))

    assert dataset.isolated
    assert "in the Loader's threads" in repr(dataset)
    assert len(made) == len(FILES) <= Safe.seen - before


class Rescales:
    """A Normalize of the user's own."""

    def __init__(self, mean: Any, std: Any) -> None:
        self.mean, self.std = (torch.tensor(one).view(3, 1, 1) for one in (mean, std))

    def __call__(self, x: Any) -> Any:
        return (x - self.mean) / self.std


@pytest.mark.parametrize(
    ("scale", "expected"),
    [
        (lambda x: x * 2 - 1, (2, -1)),
        (Rescales([0.5, 0.5, 0.5], [0.25, 0.25, 0.25]), (4, -2)),
        (lambda x: (x * 2 - 1).as_subclass(Marked), None),
        (lambda x: x.mul(255), (255, 0)),
        (lambda x: 1 - x, (-1, 1)),
        (lambda x: x * STRENGTH, None),
        (lambda x: x * x, None),
        (lambda x: x.clamp(0, 1), None),
        (lambda x: x * 0, None),
        (lambda x: x * 2 - 1 if x[0, 0, 0] < 1 else x, None),
        (adds_noise, None),
    ],
)
def test_scaled_floats_are_part_of_the_normalisation(scale: Any, expected: Any) -> None:
    """A function such as ``x * 2 - 1`` costs nothing; one that does something else is called."""
    found = affine_of(scale)
    if expected is None:
        assert found is None
    else:
        assert np.array(found) == pytest.approx(np.array(expected)[:, None].repeat(3, axis=1))
    if expected is not None:
        parts = [resize(), v1.ToTensor(), scale]
        dataset, made = loaded(v1.Compose(parts))
        fused: Any = dataset._resolved_transform()
        assert not fused.in_loader.rest
        for image, sample in zip(IMAGES, made, strict=True):
            allowed = 1.01 / 255 * abs(expected[0]) + 1e-4
            assert np.abs(numbers(v1.Compose(parts)(image)) - numbers(sample)).max() <= allowed


def test_floats_may_be_normalised_twice() -> None:
    """By torchvision's Normalize and by one's own, each with numbers of its own for a channel."""
    norms = [v1.Normalize(MEAN, [0.2, 0.3, 0.5]), Rescales((0.3, -0.5, 1.0), (2.0, 1.0, 0.5))]
    for one, other in (norms, norms[::-1]):
        parts = [resize(), v1.ToTensor(), one, other]
        dataset, made = loaded(v1.Compose(parts))
        assert not dataset._resolved_transform().in_loader.rest
        for image, sample in zip(IMAGES, made, strict=True):
            wanted = numbers(v1.Compose(parts)(image))
            assert np.abs(wanted - numbers(sample)).max() <= 1.01 / 255 / 0.2 / 0.5


# ---- functions that cut and resize ----


class ResizesAndCuts:
    """What papers on domain adaptation write."""

    def __init__(self, size: Any, box: Any) -> None:
        self.size, self.box = size, box

    def __call__(self, image: Any) -> Any:
        width, height = self.size
        return image.resize((width, height)).crop(self.box)


class CutsByAttribute:
    """A class whose own method has the name of one of Pillow's."""

    def crop(self, image: Any) -> Any:
        return image if image.size[0] > 3000 else image.crop((0, 0, 20, 20))

    def __call__(self, image: Any) -> Any:
        return self.crop(image)


LEAST = 1e-6  # of floats that are the same bytes
LANCZOS = PillowImage.Resampling.LANCZOS
CUTS = {
    "a class": ResizesAndCuts((60, 50), (5, 4, 45, 34)),
    "a crop": lambda image: image.crop((7, 8, 207, 158)),
    "a filter": lambda image: image.resize((40, 30), LANCZOS),
    "one after another": lambda image: image.crop((9, 8, 99, 88)).resize((31, 30), resample=1),
}
NOT_CUTS = {
    "of a size": lambda image: image.resize((image.width // 2, 30)),
    "of any size": lambda image: image.resize((min(image.size), 30)),
    "with a choice": lambda image: image.crop((0, 0, 9, 9)) if image.size[0] > 3 else image,
    "a setting": lambda image: image.resize((40, 30)) if STRENGTH else image.crop((0, 0, 9, 9)),
    "a comparison": lambda image: image.resize((40 + (image.height > 5000), 30)),
    "a box": lambda image: image.resize((40, 30), box=(0, 0, 9, 9)),
    "its own method": CutsByAttribute(),
    "something else": lambda image: image.resize((40, 30)).filter(ImageFilter.DETAIL),
    "a gap": lambda image: image.resize((512, 512), reducing_gap=3.0),
    "a gap by place": lambda image: image.resize((400, 400), 3, None, 4.0),
    "a loop": lambda image: [image.crop((0, 0, side, side)) for side in (8, 9)][-1],
}


@pytest.mark.parametrize("name", CUTS)
def test_a_function_that_cuts_and_resizes_runs_in_the_core(name: str) -> None:
    """It does the same to all images, so the core does that, with Pillow's pixels.

    An image that is too small for a crop is cut as written.
    """
    assert pillow_calls(CUTS[name]) is not None
    dataset, made = loaded(v1.Compose([CUTS[name], v1.ToTensor()]))
    assert not dataset._resolved_transform().in_loader.rest
    for image, sample in zip(IMAGES, made, strict=True):
        assert (sample - v1.ToTensor()(CUTS[name](image))).abs().max() <= LEAST

    small = Sources(encode(drawing(90, 80)), transform=v1.Compose([CUTS[name], v1.ToTensor()]))
    with SeededLoader(small, 1, threads=1, collate_fn=list) as loader:
        ((sample, _),) = next(iter(loader))
    image = PillowImage.open(io.BytesIO(encode(drawing(90, 80)))).convert("RGB")
    assert (sample - v1.ToTensor()(CUTS[name](image))).abs().max() <= LEAST


@pytest.mark.parametrize("name", NOT_CUTS)
def test_functions_that_may_do_otherwise_to_other_images_are_called(name: str) -> None:
    """Not those that look at the image, choose, or do anything besides."""
    assert pillow_calls(NOT_CUTS[name]) is None


# ---- functions that resize, scale and lay out ----

SCALE, SHIFT = np.array([0.2, 0.3, 0.4], np.float32), np.array([0.5, 0.4, 0.3], np.float32)


class Stores:
    """What a dataset does in a method of its own, with a choice that no pixel depends on."""

    size = (40, 30)

    def __init__(self) -> None:
        self.normalize = v1.Normalize([0.5], [0.25])

    def __call__(self, image: Any) -> Any:
        if image.size != self.size:
            image = image.resize(self.size, LANCZOS)
        levels = np.array(image, dtype=np.float32) / 255.0
        return self.normalize(torch.from_numpy(levels).permute(2, 0, 1))


STORES: dict[str, tuple[Any, Any]] = {
    "Keras": (None, lambda image: np.expand_dims(np.array(image.resize((40, 30))) / 255.0, axis=0)),
    "a class": (None, Stores()),
    "no resize": (None, lambda image: np.array(image, dtype=np.float32) / 255.0),
    "levels": (None, lambda image: torch.from_numpy(np.array(image)).permute(2, 0, 1).float()),
    "arrays": ("array", lambda rows: ((rows / 255 - SHIFT) / SCALE).transpose(2, 0, 1)[None, ...]),
    "a dtype": ("array", lambda rows: torch.from_numpy(rows.astype(np.float32) / 127.5 - 1)),
    "blue first": ("array", lambda rows: (rows[:, :, ::-1] - SHIFT).astype(np.float32)),
    "bytes, blue first": ("array", lambda rows: np.ascontiguousarray(rows[..., ::-1])),
    "tensors": ("tensor", lambda pixels: pixels.float().sub(117).div(58.5)),
}


def to_tensor(image: Any) -> Any:
    image = image.copy()
    image.thumbnail((3000, 3000))
    return np.array(image.resize((40, 30))) / 255.0


class Inherits:
    """What calls a method of its base, in which a window is cut out."""

    def resize(self, image: Any) -> Any:
        return image.crop((0, 0, min(image.width, 3000), image.height)).resize((40, 30))

    def __call__(self, image: Any) -> Any:
        return np.array(self.resize(image)) / 255.0


class InheritsCall(Inherits):
    """The same, by the method that is called."""

    def __call__(self, image: Any) -> Any:
        return super().__call__(image)


def in_two_steps(image: Any) -> Any:
    if image.size[0] > 4 * SIDE:
        image = image.resize((2 * SIDE, 2 * SIDE))
    return np.array(image.resize((SIDE, SIDE)))


def by_side(rows: Any) -> Any:
    how = cv2.INTER_AREA if rows.shape[0] > 4 * SIDE else cv2.INTER_LINEAR
    return cv2.resize(rows, (SIDE, SIDE), interpolation=how)


def by_a_pixel(image: Any) -> Any:
    rows = np.asarray(image.resize((40, 30))) / 255.0
    if rows[-1, -1, 2] > 0.9:
        rows = rows[::-1]
    return np.ascontiguousarray(rows)


def by_equal_pixels(image: Any) -> Any:
    rows = np.asarray(image.resize((40, 30)))
    if rows[0, 0, 1] == 255:
        rows = rows[:, ::-1]
    return np.ascontiguousarray(rows) / 255.0


SIDE = 512
NOT_STORES: dict[str, tuple[Any, Any]] = {
    "a helper with a known name": ("pil", lambda image: to_tensor(image).transpose(2, 0, 1)),
    "a method with a known name": ("pil", Inherits()),
    "an inherited method": ("pil", InheritsCall()),
    "a gap": ("pil", lambda image: np.array(image.resize((512, 512), reducing_gap=3.0))),
    "in two steps": ("pil", in_two_steps),
    "a filter by size": ("array", by_side),
    "a pixel": ("pil", by_a_pixel),
    "equal pixels": ("pil", by_equal_pixels),
    "of its values": ("array", lambda rows: (rows - rows.min()) / 255.0),
    "a window": ("array", lambda rows: rows[:3000, :3000] / 255.0),
    "a choice": ("array", lambda rows: rows / 255.0 if rows.shape[0] < 3000 else rows / 127.0),
    "a channel": ("array", lambda rows: rows[:, :, :1] / 255.0),
    "a power": ("array", lambda rows: (rows / 255.0) ** 2),
    "a mirror": ("array", lambda rows: np.ascontiguousarray(rows[:, ::-1] / 255.0)),
    "draws": ("array", lambda rows: rows / 255.0 + np.random.rand()),  # noqa: NPY002
    "a size": ("pil", lambda image: np.array(image.resize((image.width // 2, 30))) / 255.0),
}


def stored(transform: Any, output: Any) -> tuple[Sources, list[Any], list[Any]]:
    """Return a dataset, the samples of a Loader in threads, and those as written."""
    dataset = Sources(*FILES, transform=transform, output=output)
    with SeededLoader(dataset, 1, threads=2, collate_fn=list) as loader:
        made = [sample for batch in loader for sample, _ in batch]
    rows = [np.array(image) for image in IMAGES]
    given: dict[Any, list[Any]] = {None: IMAGES, "array": rows}
    given["tensor"] = [torch.from_numpy(one).permute(2, 0, 1) for one in rows]
    return dataset, made, [transform(one) for one in given[output]]


@pytest.mark.parametrize("name", STORES)
def test_a_function_that_scales_and_lays_out_runs_in_the_core(name: str) -> None:
    """The samples have its type, layout and values, after a resize with Pillow's pixels."""
    output, transform = STORES[name]
    dataset, made, expected = stored(transform, output)
    assert not dataset._resolved_transform().in_loader.rest
    for one, other in zip(made, expected, strict=True):
        assert type(one) is type(other)
        assert (one.dtype, one.shape) == (other.dtype, other.shape)
        assert np.allclose(one, other, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("filter_", ["INTER_LINEAR", "INTER_AREA", "INTER_NEAREST"])
def test_a_function_that_resizes_with_opencv_runs_in_the_core(filter_: str) -> None:
    """Each level is at most one away."""
    cv2 = pytest.importorskip("cv2")
    how = getattr(cv2, filter_)
    resizes = [lambda rows: cv2.resize(rows, (40, 30), interpolation=how)]
    scales = [lambda rows: torch.from_numpy(rows).permute(2, 0, 1).float()]
    dataset, made, expected = stored(v1.Compose(resizes + scales), "array")
    assert not dataset._resolved_transform().in_loader.rest
    for one, other in zip(made, expected, strict=True):
        assert (one - other).abs().max() <= 1.01


@pytest.mark.parametrize("name", NOT_STORES)
def test_functions_that_may_store_other_images_otherwise_are_called(name: str) -> None:
    """Not those that look at the image, move pixels or choose."""
    form, transform = NOT_STORES[name]
    assert measured(transform, form) is None


# ---- several crops of an image ----


class Marked(torch.Tensor):
    """A class of tensors."""


class Corners:
    """What returns several images, for which a small one is an error."""

    def __call__(self, image: Any) -> Any:
        width, height = image.size
        if min(width, height) < 100:
            raise ValueError("it is too small")
        return image.crop((0, 0, 90, 80)), image.crop((width - 90, height - 80, width, height))


def stacked(crops: Any) -> torch.Tensor:
    return torch.stack([torch.from_numpy(np.array(one)).permute(2, 0, 1) for one in crops])


CROPS = {
    "FiveCrop": (lambda m: m.FiveCrop((70, 90)), 5, False),
    "TenCrop": (lambda m: m.TenCrop(64), 10, False),
    "TenCrop after a flip": (lambda m: m.TenCrop((30, 120), vertical_flip=True), 10, True),
}


@pytest.mark.parametrize("name", CROPS)
def test_torchvisions_crops_are_stacked_as_written(name: str) -> None:
    """FiveCrop and TenCrop, after whatever the core does, are those of the image that it made."""
    pytest.importorskip("torchvision")
    from torchvision.transforms import v2

    make, count, flips = CROPS[name]
    first = [resize_to(120), *([v1.RandomHorizontalFlip(1.0)] if flips else [])]
    stacks = v1.Lambda(lambda crops: torch.stack([v1.ToTensor()(crop) for crop in crops]))
    scales = v1.Lambda(lambda crops: torch.stack([SCALES(crop) for crop in crops]))
    for m in (v1, v2):
        transform = v1.Compose([*first, make(m), stacks, scales])
        dataset, made = loaded(transform)
        assert dataset.isolated
        assert repr(dataset).count("in Python, in the Loader's threads") == 3
        for image, crops in zip(IMAGES, made, strict=True):
            expected = transform(image)
            assert crops.shape == expected.shape == (count, 3, *crops.shape[2:])
            assert ((crops - expected) * 255 * min(MEAN)).abs().max() <= 1.01


def resize_to(side: int) -> Any:
    return v1.Resize(side, antialias=True)


def halved(crops: Any) -> torch.Tensor:
    return crops.mul(0.5)


SCALES = v1.Normalize(MEAN, MEAN)
SAFE_ON_CROPS = {
    "stacks": lambda crops: torch.stack([v1.ToTensor()(crop) for crop in crops]),
    "stacks results": lambda crops: torch.stack([SCALES(v1.ToTensor()(one)) for one in crops]),
    "normalises": lambda crops: torch.stack([SCALES(crop) for crop in crops]),
}
UNSAFE_ON_CROPS = {
    "remembers": lambda crops: SEEN.append(crops) or torch.stack(crops),
    "calls another": lambda crops: torch.stack([Counts()(crop) for crop in crops]),
    "prints": lambda crops: print(len(crops)),  # noqa: T201
}
SEEN: list[Any] = []


@pytest.mark.parametrize("name", [*SAFE_ON_CROPS, *UNSAFE_ON_CROPS])
def test_threads_share_functions_that_only_stack(name: str) -> None:
    """Not those that remember, call or print anything else."""
    real = isinstance(v1, ModuleType)
    part = {**SAFE_ON_CROPS, **UNSAFE_ON_CROPS}[name]
    assert is_stateless(part) == (name in SAFE_ON_CROPS and (real or name == "normalises"))


def test_steps_after_several_crops_are_called_in_the_threads() -> None:
    """What one step makes of a probe is tried on the next, of whatever type it is."""
    parts = [v1.Resize((120, 160), antialias=True), Corners(), stacked, halved]
    dataset, made = loaded(v1.Compose(parts))

    assert dataset.isolated
    assert repr(dataset).count("in one thread at a time") == 3
    for image, crops in zip(IMAGES, made, strict=True):
        assert crops.shape == (2, 3, 80, 90)
        pixels = np.array(image.resize((160, 120), PillowImage.Resampling.BILINEAR))
        for crop, expected in zip(crops, (pixels[:80, :90], pixels[-80:, -90:]), strict=True):
            assert np.abs(numbers(crop.permute(1, 2, 0)) * 2 - expected).max() <= 1.01


# ---- classes that return views ----


class TwoCrops:
    """What SimCLR and MoCo write."""

    def __init__(self, base: Any, other: Any = None) -> None:
        self.base, self.other = base, other or base

    def __call__(self, image: Any) -> Any:
        return [self.base(image), self.other(image)]


class MultiCrop:
    """What DINO writes."""

    def __init__(self, large: Any, small: Any, count: int) -> None:
        self.large, self.small, self.count = large, small, count

    def __call__(self, image: Any) -> Any:
        crops = [self.large(image)]
        crops.extend(self.small(image) for _ in range(self.count))
        return crops


class Pair(TwoCrops):
    """What SimCLR's followers write."""

    def __call__(self, image: Any) -> Any:
        return self.base(image), self.other(image)


class Pasted(TwoCrops):
    """It looks at the results of its pipelines."""

    def __call__(self, image: Any) -> Any:
        return [self.base(image) * 2, self.other(image)]


def pipeline(size: int) -> Any:
    return v1.Compose([v1.Resize((size, size), antialias=True), v1.ToTensor()])


def test_a_class_that_returns_views_is_seen_through() -> None:
    """Its pipelines run from one decode, in the core; the result is the same list or tuple."""
    for made, sizes in (
        (TwoCrops(pipeline(20)), [20, 20]),
        (Pair(pipeline(20), pipeline(12)), [20, 12]),
        (MultiCrop(pipeline(20), pipeline(12), 3), [20, 12, 12, 12]),
    ):
        dataset, samples = loaded(made)
        assert isinstance(dataset._resolved_transform(), Views)
        assert dataset.isolated
        for image, views in zip(IMAGES, samples, strict=True):
            assert type(views) is type(made(image))
            assert [view.shape[1] for view in views] == sizes
            for view, expected in zip(views, made(image), strict=True):
                assert (view - expected).abs().max() <= 1.01 / 255


class Chained(TwoCrops):
    """It gives the result of one pipeline to the other."""

    def __call__(self, image: Any) -> Any:
        first = self.base(image)
        return [first, self.other(first)]


class Doubled(TwoCrops):
    """It returns one view twice."""

    def __call__(self, image: Any) -> Any:
        view = self.base(image)
        return view, view


class Compared(TwoCrops):
    """It also gives an image of its own to a pipeline."""

    def __call__(self, image: Any) -> Any:
        return [self.base(image), self.other(IMAGES[0])]


OTHER = [Chained, Compared, Doubled, Pasted, lambda one: one, lambda one: Converts()]


@pytest.mark.parametrize("make", OTHER)
def test_other_classes_are_called_as_they_are(make: Any) -> None:
    """A class that does anything with the results, or looks at the image, is not seen through."""
    transform = make(pipeline(20))
    resolved = Sources(*FILES, transform=transform)._resolved_transform()
    assert not isinstance(resolved, Views)
    assert isinstance(resolved, Fused) or resolved is transform


class Calls:
    """A class that only calls what it holds, as many write; `way` says how."""

    def __init__(self, way: str = "in turn", *, trains: bool = True) -> None:
        self.resize, self.flip = resize(), v1.RandomHorizontalFlip(1.0)
        self.steps, self.convert = [self.resize, self.flip], v1.ToTensor()
        self.way, self.trains = way, trains

    def __call__(self, image: Any) -> Any:
        if self.way == "in turn":
            image = self.resize(image)
            if self.trains:
                image = self.flip(image)
            return self.convert(image)
        for step in self.steps:
            image = step(image)
        return self.convert(image)


class CallsSmall(Calls):
    def __call__(self, image: Any) -> Any:
        return self.convert(self.resize(image)) if image.width < 9 else self.convert(image)


class CallsOften(Calls):
    calls = 0

    def __call__(self, image: Any) -> Any:
        self.calls += 1
        return self.convert(self.flip(self.resize(image)))


class CallsSomeday(Calls):
    def __call__(self, image: Any) -> Any:
        return self.convert(self.flip(image) if self.trains else image)

    def train(self, *, trains: bool) -> None:
        self.trains = trains


class CallsAtRandom(Calls):
    def __call__(self, image: Any) -> Any:
        return self.convert(self.flip(image) if random.random() < 0.5 else image)


class CallsNothing(Calls):
    def __call__(self, image: Any) -> Any:
        return self.convert


@pytest.mark.parametrize("calls", [Calls(), Calls("in a loop"), Calls(trains=False)], ids=range(3))
def test_a_class_that_calls_steps_in_turn_is_seen_through(calls: Any) -> None:
    """They run in the core as if they were in a Compose."""
    dataset, samples = loaded(calls)
    assert dataset.isolated
    for image, sample in zip(IMAGES, samples, strict=True):
        assert np.abs(numbers(sample) - numbers(calls(image))).max() <= 1.01 / 255


@pytest.mark.parametrize(
    "kind", [CallsSmall, CallsOften, CallsSomeday, CallsAtRandom, CallsNothing]
)
def test_a_class_that_also_does_something_else_is_called(kind: Any) -> None:
    """One that looks at the image, counts, draws, may change, or returns something else."""
    transform = kind()
    assert Sources(*FILES, transform=transform)._resolved_transform() is transform


@pytest.mark.parametrize("size", [(20, 20), (5, 5)])
def test_what_the_core_has_drawn_and_cannot_do_is_drawn_from_the_seed(size: Any) -> None:
    """A crop larger than the image is an error, or is not chosen, as the seed says alone."""
    perhaps = v1.RandomApply([v1.RandomCrop(size)], p=0.5)
    pipeline = v1.Compose([v1.RandomHorizontalFlip(p=0.5), perhaps, v1.PILToTensor()])
    photo = encode(drawing(10, 10), "png")
    outcomes: list[Any] = []
    for seed, threads in ((1, 0), (1, 2), (2, 0), (2, 2)):
        torch.manual_seed(seed)
        before = global_states()[0]
        dataset = Sources(*[photo] * 12, transform=pipeline)
        assert dataset.isolated
        made = []
        with Loader(dataset, 1, seed=5, threads=threads) as loader:
            batches = iter(loader)
            for _ in range(len(dataset)):
                try:
                    made.append(next(batches)[0].tolist())
                except ValueError:
                    made.append(None)
        outcomes.append(made)
        assert torch.equal(before, global_states()[0])

    assert all(made == outcomes[0] for made in outcomes)
    assert (None in outcomes[0]) == (size == (20, 20))
