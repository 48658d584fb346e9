"""Steps of the user's that draw: done in the core where it is certain what they do, else by twins.

Each is one that people write, or a near miss: what looks like one, and is another.
"""

from __future__ import annotations

import itertools
import math
import random
import time
from random import random as draw_one
from typing import Any

import numpy as np
import pytest
import torch
from corpus import native_core
from loading import SeededLoader, Sources
from numpy.random import rand as draw_one_of_numpy
from PIL import Image as PillowImage
from PIL import ImageChops, ImageFilter, ImageOps
from torch_reference import PHOTOS

from fastdecode.native._augment import augment, draw_operations
from fastdecode.torch import _recognise
from fastdecode.torch._loader.native_batches import FALLBACK, NativeBatchMaker
from fastdecode.torch._loader.samples import SampleMaker
from fastdecode.torch._programs import Unsupported
from fastdecode.torch._recognise import program_of
from fastdecode.torch._twins import twin_of
from fastdecode.torch._user_code import DrawingFrom, global_states
from fastdecode.torch.transforms import (
    ColorJitter,
    Compose,
    GaussianBlur,
    Grayscale,
    RandomApply,
    RandomHorizontalFlip,
    Resize,
    ToTensor,
)

# ruff: noqa: NPY002 - what people write draws from the global generators

native_core()
FILES = [photo.read_bytes() for photo in PHOTOS[:3]]
NOISE = np.random.default_rng(0).integers(0, 256, (20, 24, 3)).astype(np.uint8)
IMAGE = PillowImage.fromarray(NOISE)
FLOATS = (torch.from_numpy(NOISE).permute(2, 0, 1) / 255).contiguous()
SETTING = 0.5  # which its user may change at any time
JITTER = ColorJitter(0.4, 0.4)
LARGEST = 1e-6  # the chance that equal distributions differ as much


class Sometimes:
    """What open_clip, and many others, have for colour jitter and grey."""

    def __init__(self, transform: Any, p: float) -> None:
        self.transform, self.p = transform, p

    def __call__(self, image: Any) -> Any:
        return self.transform(image) if random.random() < self.p else image


class AppliedModule(torch.nn.Module):
    """What implementations of BYOL have."""

    def __init__(self, fn: Any, p: float) -> None:
        super().__init__()
        self.fn, self.p = fn, p

    def forward(self, image: Any) -> Any:
        if random.random() > self.p:
            return image
        return self.fn(image)


class Moco:
    """MoCo's blur."""

    def __init__(self, sigma: Any = (0.1, 2.0)) -> None:
        self.sigma = sigma

    def __call__(self, image: Any) -> Any:
        sigma = random.uniform(self.sigma[0], self.sigma[1])
        return image.filter(ImageFilter.GaussianBlur(radius=sigma))


class Dino:
    """DINO's blur, and that of Barlow Twins."""

    def __init__(self, p: float = 0.5, least: float = 0.1, most: float = 2.0) -> None:
        self.prob, self.radius_min, self.radius_max = p, least, most

    def __call__(self, image: Any) -> Any:
        do_it = random.random() <= self.prob
        if not do_it:
            return image
        radius = random.uniform(self.radius_min, self.radius_max)
        return image.filter(ImageFilter.GaussianBlur(radius=radius))


class Vicreg:
    """VICReg's blur."""

    def __call__(self, image: Any) -> Any:
        if np.random.rand() < 0.4:
            sigma = np.random.rand() * 1.9 + 0.1
            return image.filter(ImageFilter.GaussianBlur(sigma))
        return image


class Picks:
    """A choice of one's own."""

    def __init__(self, *transforms: Any) -> None:
        self.transforms = list(transforms)

    def __call__(self, image: Any) -> Any:
        return random.choice(self.transforms)(image)


def by_torch(image: Any) -> Any:
    if torch.rand(1).item() >= 0.3:
        return image
    return image.filter(ImageFilter.GaussianBlur(torch.empty(1).uniform_(0.1, 1).item()))


def one_draw(image: Any) -> Any:
    """Draw once, for the branch and the radius."""
    share = random.random()
    if share < 0.4:
        return image.filter(ImageFilter.GaussianBlur(2 * share + 0.2))
    return ImageOps.solarize(image, 100) if share > 0.7 else image.transpose(0)


def imported(image: Any) -> Any:
    image = ImageOps.flip(image) if draw_one() > 0.25 else image
    return ImageOps.posterize(image, 3) if draw_one_of_numpy() < 0.5 else image


def falls(image: Any) -> Any:
    share = np.random.uniform(0, 1)
    if not isinstance(image, PillowImage.Image) or not isinstance(share, float):
        return image
    return image.filter(ImageFilter.GaussianBlur(3 - 2 * share))


def several(image: Any) -> Any:
    for _ in range(2):
        if random.randint(0, 2) == 1:
            image = ImageOps.mirror(image)
    return ImageOps.invert(image) if np.random.randint(4) < 1 else image


def enclosed() -> Any:
    jitter = ColorJitter(0.4, hue=0.1)
    return lambda image: jitter(image) if np.random.random() < 0.3 else image


TRACED = {
    "open_clip": Sometimes(ColorJitter(0.4, 0.4, 0.4), 0.8),
    "grey": Sometimes(Grayscale(3), 0.2),
    "always": Sometimes(Grayscale(3), 1.0),
    "byol": AppliedModule(GaussianBlur(3), 0.3),
    "moco": Moco(),
    "nested": RandomApply([Moco([0.5, 1.0])], p=0.5),
    "dino": Dino(),
    "vicreg": Vicreg(),
    "a choice": Picks(Grayscale(3), GaussianBlur(5), RandomHorizontalFlip(0.5)),
    "torch": by_torch,
    "one draw": one_draw,
    "imported": imported,
    "falls": falls,
    "several": several,
    "enclosed": enclosed(),
    "global": lambda image: JITTER(image) if random.random() < 0.6 else image,
}


def _measure(pixels: Any) -> float:
    """Return a number of an image that differs between most images."""
    levels = np.asarray(pixels, np.float64)
    weights = 1 + np.arange(levels.size).reshape(levels.shape) / levels.size
    return float((levels * weights).mean())


def _most_apart(first: list[float], second: list[float]) -> float:
    """Return Kolmogorov and Smirnov's distance of two samples."""
    places = np.sort([*first, *second])
    shares = [np.searchsorted(np.sort(one), places, side="right") for one in (first, second)]
    return float(np.abs(shares[0] / len(first) - shares[1] / len(second)).max())


@pytest.mark.parametrize("name", TRACED)
def test_a_step_that_draws_is_done_in_the_core(name: str) -> None:
    """Its results are distributed as those of the step as written, pixels and parameters."""
    part, count = TRACED[name], 2000
    program = program_of(part, NOISE.shape[:2])
    random.seed(1)
    np.random.seed(1)
    torch.manual_seed(1)
    theirs = [_measure(part(IMAGE)) for _ in range(count)]
    drawn = (draw_operations(program, 7919 * seed, 24, 20)[0] for seed in range(count))
    ours = [_measure(augment(NOISE, operations)) for operations in drawn]
    limit = math.sqrt(-math.log(LARGEST / 2) / count)
    assert _most_apart(theirs, ours) < limit


# ---- near misses ----


class Counts(Sometimes):
    """It depends on how often it was called."""

    calls = 0

    def __call__(self, image: Any) -> Any:
        self.calls += 1
        return super().__call__(image)


class Anneals(Sometimes):
    """Its probability changes."""

    def set_epoch(self, epoch: int) -> None:
        self.p = epoch / 10


class AnnealsAll(Sometimes):
    """That of its class changes."""

    p = 0.5

    def __init__(self) -> None:
        self.transform = Grayscale(3)

    @classmethod
    def set_epoch(cls, epoch: int) -> None:
        cls.p = epoch / 10


class Property(Sometimes):
    """Its probability is calculated."""

    def __init__(self) -> None:
        self.transform = Grayscale(3)

    @property
    def p(self) -> float:  # type: ignore[override]
        return time.time() % 1


class Looks(Sometimes):
    def __call__(self, image: Any) -> Any:
        dark = image.getpixel((0, 0))[0] < 9
        return self.transform(image) if dark and random.random() < self.p else image


class Measures(Sometimes):
    def __call__(self, image: Any) -> Any:
        return self.transform(image) if image.width > 300 and random.random() < self.p else image


class Catches(Sometimes):
    """It would catch what is raised where something is not known."""

    def __call__(self, image: Any) -> Any:
        try:
            return Looks(self.transform, self.p)(image)
        except Exception:
            return image


class Quiet(Sometimes):
    def __call__(self, image: Any) -> Any:
        try:
            image.getpixel((0, 0))
        except Exception:
            return image
        return self.transform(image)


class Own(Sometimes):
    """It draws from a generator of its own."""

    def __init__(self) -> None:
        super().__init__(Grayscale(3), 0.5)
        self.generator = random.Random(0)

    def __call__(self, image: Any) -> Any:
        return self.transform(image) if self.generator.random() < self.p else image


class Cycles(Sometimes):
    def __init__(self) -> None:
        self.turns = itertools.cycle([Grayscale(3), GaussianBlur(3)])

    def __call__(self, image: Any) -> Any:
        return next(self.turns)(image) if random.random() < 0.5 else image


class Missing(Sometimes):
    """Its attributes are not those that it holds."""

    def __getattribute__(self, name: str) -> Any:
        return time.time() % 1 if name == "p" else object.__getattribute__(self, name)


def _hooked() -> Any:
    module = AppliedModule(Grayscale(3), 0.5)
    module.register_forward_hook(lambda *_: None)
    return module


def _replaced() -> Any:
    module = AppliedModule(Grayscale(3), 0.5)
    module.forward = lambda image: image  # type: ignore[method-assign]
    return module


def _counted() -> Any:
    calls = 0

    def step(image: Any) -> Any:
        nonlocal calls
        calls += 1
        return ImageOps.mirror(image) if random.random() < 0.5 else image

    return step


def blurred(radius: Any) -> Any:
    return ImageFilter.GaussianBlur(radius)


def remembers(image: Any, seen: list[int] = [0]) -> Any:  # noqa: B006
    seen[0] += 1
    return ImageOps.mirror(image) if random.random() < 0.5 else image


def imports(image: Any) -> Any:
    from random import random as draw

    return ImageOps.mirror(image) if draw() < 0.5 else image


def twice(image: Any) -> Any:
    radius = random.random()
    return image.filter(blurred(radius)).filter(blurred(radius))


def pastes(image: Any) -> Any:
    if random.random() < 0.5:
        image.paste((0, 0, 0), (0, 0, 3, 3))
    return image


def forgets(image: Any) -> Any:
    if random.random() < 0.5:
        return ImageOps.mirror(image)
    return None


def calls_itself(image: Any) -> Any:
    return calls_itself(image) if random.random() < 0.5 else image


DRAW = random.Random(0).random
NEAR_MISSES = {
    "calls itself": calls_itself,
    "a method of another generator": lambda image: ImageOps.flip(image) if DRAW() < 0.5 else image,
    "a function of another module": lambda image: ImageOps.flip(image) if math.pi < 4 else image,
    "counts": Counts(Grayscale(3), 0.5),
    "anneals": Anneals(Grayscale(3), 0.5),
    "anneals all": AnnealsAll(),
    "a property": Property(),
    "looks": Looks(Grayscale(3), 0.5),
    "measures": Measures(Grayscale(3), 0.5),
    "catches": Catches(Grayscale(3), 0.5),
    "catches its own": Quiet(Grayscale(3), 0.5),
    "its own generator": Own(),
    "cycles": Cycles(),
    "other attributes": Missing(Grayscale(3), 0.5),
    "a hook": _hooked(),
    "a replaced method": _replaced(),
    "counts outside": _counted(),
    "remembers": remembers,
    "imports": imports,
    "another step of the user's": Sometimes(lambda image: image.rotate(3), 0.5),
    "another class": Sometimes(ToTensor(), 0.5),
    "a probability that is a tensor": Sometimes(Grayscale(3), torch.tensor(0.5)),  # type: ignore[arg-type]
    "one channel": Sometimes(Grayscale(1), 0.5),
    "a draw for two numbers": twice,
    "a product of draws": lambda image: image.filter(blurred(random.random() * random.random())),
    "a normal draw": lambda image: image.filter(blurred(abs(random.gauss(0, 1)))),
    "a beta draw": lambda image: image.filter(blurred(np.random.beta(1, 1))),
    "a whole number": lambda image: image.filter(blurred(int(random.random() * 3))),
    "a rounded number": lambda image: image.filter(blurred(round(random.random() * 3))),
    "a root": lambda image: image.filter(blurred(math.sqrt(random.random()))),
    "several numbers": lambda image: image.filter(blurred(np.random.rand(2).max())),
    "equality": lambda image: ImageOps.mirror(image) if random.random() == 0.5 else image,
    "truth": lambda image: ImageOps.mirror(image) if random.random() else image,
    "a draw with weights": lambda image: random.choices([image, ImageOps.mirror(image)], [1, 3])[0],
    "a shuffle": lambda image: random.sample([image, ImageOps.mirror(image)], 1)[0],
    "a state": lambda image: image if random.getstate()[1][0] < 9 else ImageOps.mirror(image),
    "a seed": lambda image: (random.seed(3), image)[1] if random.random() < 0.5 else image,
    "a clock": lambda image: ImageOps.mirror(image) if time.time() % 1 < 0.5 else image,
    "a setting": lambda image: ImageOps.mirror(image) if random.random() < SETTING else image,
    "another filter": lambda image: image.filter(ImageFilter.MedianFilter(3)),
    "another table": lambda image: image.point([255 - at // 2 for at in range(256)] * 3),
    "another mode": lambda image: image.convert("L").convert("RGB"),
    "a negative radius": lambda image: image.filter(blurred(random.uniform(-1, 1))),
    "a mix": lambda image: ImageChops.add(image, image) if random.random() < 0.5 else image,
    "in place": pastes,
    "no result": forgets,
    "another result": lambda image: (image, image) if random.random() < 0.5 else image,
    "an array": lambda image: np.asarray(image) if random.random() < 0.5 else image,
    "an end": lambda image: next(iter([])) if random.random() < 0.5 else image,
    "no end": lambda image: [0 for _ in iter(lambda: random.random() < 0.5, None)] and image,
    "too many": lambda image: image.filter(blurred(random.randint(0, 99))),
}


@pytest.mark.parametrize("name", NEAR_MISSES)
def test_near_misses_are_called(name: str) -> None:
    """What may depend on anything but known draws is not taken for a choice of operations."""
    states = global_states()
    with pytest.raises(Unsupported):
        program_of(NEAR_MISSES[name], None)
    assert states[1] == global_states()[1]
    assert torch.equal(states[0], global_states()[0])


@pytest.mark.parametrize("channels", [1, 3])
def test_a_step_inside_gets_the_image_that_it_expects(channels: int) -> None:
    """What is known of a step with RGB images of Pillow's is known of no other images."""
    parts = [Grayscale(channels), RandomApply([Moco()], p=0.5), ToTensor()]
    dataset = Sources(*FILES, transform=Compose([Resize((9, 8)), *parts]))
    assert ("in parts" in repr(dataset)) is (channels == 1)
    with pytest.raises(Unsupported):
        _recognise.tensor_program_of(RandomApply([Moco()], p=0.5), (9, 8))


def test_a_traced_step_is_named() -> None:
    """A pipeline with such a step runs wholly in the core, and `repr` says which it is."""
    dataset = Sources(*FILES, transform=Compose([Resize((9, 8)), Dino(), ToTensor()]))
    assert "all of it in the core" in repr(dataset)
    assert "in the core: Dino" in repr(dataset)
    with SeededLoader(dataset, 3, threads=2) as loader:
        assert next(iter(loader))[0].shape == (3, 3, 9, 8)


# ---- twins ----


class Cutout:
    """DeVries and Taylor's, as most have copied it."""

    def __init__(self, n_holes: int, length: int) -> None:
        self.n_holes, self.length = n_holes, length

    def __call__(self, img: Any) -> Any:
        h, w = img.size(1), img.size(2)
        mask = np.ones((h, w), np.float32)
        for _ in range(self.n_holes):
            y, x = np.random.randint(h), np.random.randint(w)
            y1, y2 = (np.clip(y + sign * self.length // 2, 0, h) for sign in (-1, 1))
            x1, x2 = (np.clip(x + sign * self.length // 2, 0, w) for sign in (-1, 1))
            mask[y1:y2, x1:x2] = 0.0
        return img * torch.from_numpy(mask).expand_as(img)


class Erases:
    """RandomErasing as person re-identification has it."""

    def __init__(self, probability: float = 0.8) -> None:
        self.probability = probability

    def __call__(self, img: Any) -> Any:
        if random.uniform(0, 1) >= self.probability:
            return img
        for _ in range(100):
            area = random.uniform(0.02, 0.4) * img.size(1) * img.size(2)
            aspect = random.uniform(0.3, 1 / 0.3)
            h, w = round(math.sqrt(area * aspect)), round(math.sqrt(area / aspect))
            if w < img.size(2) and h < img.size(1):
                x, y = random.randint(0, img.size(1) - h), random.randint(0, img.size(2) - w)
                img[:, x : x + h, y : y + w] = 0.5
                return img
        return img


def offset() -> Any:
    return np.random.normal() + draw_one() + draw_one_of_numpy()


def shifts(image: Any) -> Any:
    return image + offset() + [np.random.uniform() for _ in range(2)][1]


class Jitters(torch.nn.Module):
    def forward(self, image: Any) -> Any:
        share = random.betavariate(0.5, 0.5)
        return image * share + torch.randn_like(image) * (1 - share)


def within() -> Any:
    numbers, pick = np, random.choice
    return lambda image: image * numbers.random.rand() + pick([1, 2, 3])


TWINS = {
    "cutout": Cutout(2, 8),
    "erasing": Erases(),
    "functions": shifts,
    "module": Jitters(),
    "enclosed": within(),
    "shuffled": lambda image: image[torch.tensor(random.sample(range(3), 3))],
    "torch": lambda image: image + torch.randn(image.shape) * random.random(),
}


def test_an_attribute_is_not_the_global_of_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """A script's own `transform`, which holds the step, does not hide what the step does."""
    part = Sometimes(JITTER, 0.5)
    pipeline = Compose([Resize((24, 20)), part, ToTensor()])
    monkeypatch.setitem(globals(), "transform", pipeline)
    assert Sources(FILES[0], transform=pipeline).isolated

    monkeypatch.setitem(globals(), "random", random.Random(1))  # which its code does use
    assert not Sources(FILES[0], transform=pipeline).isolated


@pytest.mark.parametrize("name", TWINS)
def test_a_twin_does_what_its_step_does(name: str) -> None:
    """It has the same results, bit for bit, from generators of the same seeds, and no others."""
    part: Any = TWINS[name]
    twin: Any = twin_of(part)
    for seed in range(30):
        drawing = DrawingFrom(torch.Generator().manual_seed(seed))
        drawing.python, drawing.numpy = random.Random(seed), np.random.RandomState(seed)
        before = global_states()
        with drawing:
            made = twin(FLOATS.clone())
        after = global_states()
        assert torch.equal(before[0], after[0])
        assert before[1] == after[1]
        assert all(map(np.array_equal, before[2], after[2]))
        random.seed(seed)
        np.random.seed(seed)
        torch.manual_seed(seed)
        assert torch.equal(made, part(FLOATS.clone()))


class Helped(Sometimes):
    def __call__(self, image: Any) -> Any:
        return image * self.amount()

    def amount(self) -> float:
        return random.random()


class HoldsModule(Sometimes):
    def __init__(self) -> None:
        self.numbers = np

    def __call__(self, image: Any) -> Any:
        return image * self.numbers.random.rand()


class HoldsStep(Sometimes):
    def __call__(self, image: Any) -> Any:
        return self.transform(image) * random.random()


GENERATOR = np.random.default_rng(0)
OTHER = Erases()
CALLS = 0


def counts_calls(image: Any) -> Any:
    global CALLS
    CALLS += 1
    return image * random.random()


def by_default(image: Any, numbers: Any = np) -> Any:
    return image * numbers.random.rand()


NO_TWINS = {
    "its own generator": Own(),
    "a generator": lambda image: image * GENERATOR.random(),
    "another object": lambda image: OTHER(image) + 0,
    "a new object": lambda image: Erases(random.random())(image) + 0,
    "a method": Helped(None, 0.5),
    "a module that it holds": HoldsModule(),
    "a step that it holds": HoldsStep(Erases(), 0.5),
    "steps that it holds": Picks(Erases(), Erases()),
    "a function that it holds": HoldsStep(random.gauss, 0.5),
    "a base class": Counts(Grayscale(3), 0.5),
    "a global number": counts_calls,
    "an import": imports,
    "an argument": by_default,
    "a hook": _hooked(),
    "no code": Moco,
}


@pytest.mark.parametrize("name", NO_TWINS)
def test_what_may_draw_elsewhere_has_no_twin(name: str) -> None:
    """It is left to processes, where the global generators are seeded."""
    assert twin_of(NO_TWINS[name]) is None


def test_a_twin_sees_the_names_as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is set in its module, or in the object, after it was made is seen."""
    step = Sometimes(None, 0.5)
    cases: list[tuple[Any, Any]] = [
        (lambda image: image + SETTING + 0 * random.random(), None),
        (Erases(0.0), step),
    ]
    twins: list[Any] = [twin_of(part) for part, _ in cases]
    monkeypatch.setattr(f"{__name__}.SETTING", 3.0)
    cases[1][0].probability = 1.0
    with DrawingFrom(torch.Generator()):
        assert torch.equal(twins[0](FLOATS), FLOATS + 3)
        assert not torch.equal(twins[1](FLOATS.clone()), FLOATS)


def _made(transform: Any, **options: Any) -> tuple[Sources, list[Any]]:
    dataset = Sources(*FILES, transform=transform)
    with SeededLoader(dataset, 1, collate_fn=list, **options) as loader:
        return dataset, [sample for batch in loader for sample, _ in batch]


def shakes(image: Any) -> Any:
    noise = np.random.randint(0, 9, (*image.size[::-1], 3))
    return PillowImage.fromarray((np.asarray(image) // 2 + noise).astype(np.uint8))


FLIP = RandomHorizontalFlip(0.5)
THREADED: dict[str, list[Any]] = {
    **{name: [FLIP, ToTensor(), part] for name, part in TWINS.items()},
    "before others in Python": [ToTensor(), Cutout(1, 4), FLIP],
    "before others in the core": [FLIP, shakes, FLIP, ToTensor()],
}


@pytest.mark.parametrize("name", THREADED)
def test_a_step_that_draws_runs_in_threads(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its draws follow from the sample's seed, whoever makes the sample, and one by one as well."""
    transform = Compose([Resize((20, 24)), *THREADED[name]])
    before = global_states()
    dataset, made = _made(transform, threads=2)
    assert dataset.isolated
    others = [_made(transform, threads=1)[1], _made(transform, num_workers=0)[1]]
    others.append(_made(Compose([*transform.transforms]), threads=2)[1])
    monkeypatch.setattr(NativeBatchMaker, "make", lambda _, items, *__: [FALLBACK] * len(items))
    others.append(_made(transform, threads=2)[1])
    after = global_states()
    for other in others:
        assert all(map(torch.equal, made, other))
    assert torch.equal(before[0], after[0])
    assert before[1] == after[1]
    seeded = _made(transform, threads=2, seed=9)[1]
    assert not all(map(torch.equal, made, seeded))


def test_the_core_makes_what_a_step_in_threads_gets(monkeypatch: pytest.MonkeyPatch) -> None:
    """It makes whole batches of it; only the step itself is called for each sample."""
    dataset = Sources(*FILES, transform=Compose([Resize((20, 24)), ToTensor(), Erases(1.0)]))

    def fails(*_: Any) -> None:
        raise AssertionError("a sample is made alone")

    monkeypatch.setattr(SampleMaker, "make_one", fails)
    with SeededLoader(dataset, 3, threads=2) as loader:
        images, _ = next(iter(loader))
    assert images.shape == (3, 3, 20, 24)
    assert all((image == 0.5).any() for image in images)
