"""Pipelines of known steps in any order, compared with the same pipeline as written.

The steps draw nothing that matters: they have p=1, or a range of one number. So a `Loader`, whose
draws are its own, must give what the pipeline gives for the image that Pillow has decoded. The
steps are torchvision's, timm's and this package's own, mixed. What draws is in
test_pipelines and test_draws.
"""

from __future__ import annotations

import copy
import io
import math
import random
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import product
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from cases import Run, examples
from corpus import native_core
from hypothesis import given, note, settings
from hypothesis import strategies as st
from loading import SeededLoader, Sources
from PIL import Image as PillowImage
from PIL import ImageFilter
from random_transforms import WITHOUT_SHRINKING
from same import assert_same
from torch_reference import PHOTOS

from fastdecode.testing import encode
from fastdecode.torch import _recognise
from fastdecode.torch._recorded import LazyTensor
from fastdecode.torch.transforms import (
    Compose,
    EncodedTransform,
    GaussianBlur,
    LetterBox,
    Normalize,
    OpenCVResize,
    PadToSquare,
    SmartResize,
)
from fastdecode.torch.transforms.images import ImageTransform

pytest.importorskip("torchvision")
pytest.importorskip("timm")

import timm.data.transforms as timm
import torchvision_steps as drawn_steps
from torchvision.transforms import InterpolationMode as Mode
from torchvision.transforms import _presets
from torchvision_steps import CUBIC, MODULES, timm_operation, v1, v2

SEEDS = settings(WITHOUT_SHRINKING, max_examples=examples(100))
native_core()

HEIGHT, WIDTH = 48, 64
with PillowImage.open(PHOTOS[0]) as opened:
    _SMALL = opened.convert("RGB").resize((WIDTH, HEIGHT))
FILES = [encode(_SMALL), encode(_SMALL.transpose(PillowImage.Transpose.ROTATE_180), "png")]
IMAGES = [PillowImage.open(io.BytesIO(file)).convert("RGB") for file in FILES]

# ---- the steps ----


class Step(NamedTuple):
    """A step, made for v1 or v2, and what it does to a difference, in levels.

    It grows by `gain`, which is infinite if one level may become many; `error` is added where the
    core does the step to a Pillow image, and `tensor_error` where it does so to a tensor.
    """

    make: Callable[[Any], Any]
    gain: float = 1.0
    error: float = 0.0
    tensor_error: float = 0.0


STD = (0.2, 0.3, 0.4)
ALWAYS = {"scale": (4.0, 4.0), "ratio": (1.0, 1.0)}
"""No such box fits, so it is always the central one."""


def _policy(m: Any) -> Any:
    """Return an AutoAugment with one policy, which is always done."""
    made = m.AutoAugment()
    policies = [(("Posterize", 1.0, 4), ("Invert", 1.0, None))]
    setattr(made, "policies" if m is v1 else "_policies", policies)
    return made


def _fourth(crops: Any) -> Any:
    return crops[3]


def _eighth(crops: Any) -> Any:
    return crops[7]


def _sharper(image: Any) -> Any:
    return image.filter(ImageFilter.DETAIL)


def _turned(image: Any) -> Any:
    if isinstance(image, PillowImage.Image):
        return image.transpose(PillowImage.Transpose.ROTATE_180)
    return image.flip(-1)


def _halved(image: Any) -> Any:
    return image * 0.5


GEOMETRY = {
    "Resize same": Step(lambda m: m.Resize((HEIGHT, WIDTH), antialias=True), 2.2, 1, 1),
    "Resize": Step(lambda m: m.Resize((40, 30), antialias=True), 2.2, 1, 1),
    "Resize cubic": Step(lambda m: m.Resize((40, 30), antialias=True, **CUBIC), 2.2, 0, 1),
    "Resize short": Step(lambda m: m.Resize(36, antialias=True, **CUBIC), 2.2, 0, 1),
    "Resize max": Step(lambda m: m.Resize(36, max_size=44, antialias=True, **CUBIC), 2.2, 0, 1),
    "Resize lanczos": Step(
        lambda m: m.Resize((33, 40), antialias=True, interpolation=Mode.LANCZOS), 2.5
    ),
    "Resize nearest": Step(lambda m: m.Resize((33, 47), interpolation=Mode.NEAREST)),
    "CenterCrop": Step(lambda m: m.CenterCrop((31, 24))),
    "Pad": Step(lambda m: m.Pad((3, 4, 5, 6))),
    "Pad filled": Step(lambda m: m.Pad(7, fill=99)),
    "Pad edge": Step(lambda m: m.Pad((2, 5), padding_mode="edge")),
    "Pad reflect": Step(lambda m: m.Pad(4, padding_mode="reflect")),
    "Pad symmetric": Step(lambda m: m.Pad([8], padding_mode="symmetric")),
    "CenterCrop padded": Step(lambda m: m.CenterCrop((33, 71))),
    "RandomResizedCrop": Step(
        lambda m: m.RandomResizedCrop((28, 36), **ALWAYS, antialias=True, **CUBIC), 2.2, 0, 1
    ),
    "RandomShortestSize": Step(lambda _: v2.RandomShortestSize([32], 41, **CUBIC), 2.2, 0, 1),
    "ScaleJitter": Step(lambda _: v2.ScaleJitter((40, 40), (1.0, 1.0), **CUBIC), 2.2, 0, 1),
    "LetterBox": Step(lambda _: LetterBox((50, 44))),
    "OpenCVResize": Step(lambda _: OpenCVResize((50, 44), "area")),
    "SmartResize": Step(lambda _: SmartResize(10, 100, 2000), 2.2),
    "PadToSquare": Step(lambda _: PadToSquare((9, 99, 199))),
    "FiveCrop": Step(lambda m: m.Compose([m.FiveCrop((20, 24)), _fourth])),
    "TenCrop": Step(lambda m: m.Compose([m.TenCrop(20, vertical_flip=True), _eighth])),
    "ImageClassification": Step(
        lambda _: _presets.ImageClassification(crop_size=24, resize_size=32, **CUBIC), 11, 0, 1
    ),
    "timm crop": Step(
        lambda _: timm.RandomResizedCropAndInterpolation(
            (28, 36), **ALWAYS, interpolation="bicubic"
        ),
        *(2.2, 0, 1),
    ),
}
MOVES = {
    "RandomHorizontalFlip": Step(lambda m: m.RandomHorizontalFlip(1.0)),
    "RandomHorizontalFlip 0": Step(lambda m: m.RandomHorizontalFlip(0.0)),
    "RandomVerticalFlip": Step(lambda m: m.RandomVerticalFlip(1.0)),
    "RandomRotation": Step(
        lambda m: m.RandomRotation((30, 30), interpolation=Mode.BILINEAR), 1, 0, 1
    ),
    "RandomRotation expanded": Step(
        lambda m: m.RandomRotation((35, 35), expand=True, interpolation=Mode.BICUBIC), 2.2
    ),
    "RandomRotation about a point": Step(
        lambda m: m.RandomRotation((90, 90), interpolation=Mode.BILINEAR, center=(9, 20.5)), 1, 0, 1
    ),
    "RandomRotation expanded about a point": Step(
        lambda m: m.RandomRotation((35, 35), expand=True, center=(9.25, -20.5))
    ),
    "RandomAffine about a point": Step(
        lambda m: m.RandomAffine((-60, -60), interpolation=Mode.BILINEAR, center=(-7, 12)), 1, 0, 1
    ),
    "RandomPerspective": Step(lambda m: m.RandomPerspective(0.0, 1.0), 1, 1, 1),
    "ElasticTransform": Step(lambda m: m.ElasticTransform(0.0)),
    "RandomAffine": Step(
        lambda m: m.RandomAffine((0, 0), scale=(1.375, 1.375), interpolation=Mode.BILINEAR, fill=9),
        *(1, 0, 1),
    ),
}
COLOURS = {
    "brightness": Step(lambda m: m.ColorJitter(brightness=(3.0, 3.0)), 3, 0, 1),
    "contrast": Step(lambda m: m.ColorJitter(contrast=(2.0, 2.0)), 3, 0, 1),
    "saturation": Step(lambda m: m.ColorJitter(saturation=(2.0, 2.0)), 3, 0, 1),
    "hue": Step(lambda m: m.ColorJitter(hue=(0.25, 0.25)), math.inf, 0, 2),
    "Grayscale": Step(lambda m: m.Grayscale(3), 1, 0, 1),
    "Grayscale 1": Step(lambda m: m.Grayscale(1), 1, 0, 1),
    "RandomGrayscale": Step(lambda m: m.RandomGrayscale(1.0), 1, 0, 1),
    "RandomInvert": Step(lambda m: m.RandomInvert(1.0)),
    "RandomPosterize": Step(lambda m: m.RandomPosterize(2, 1.0), math.inf),
    "RandomSolarize": Step(lambda m: m.RandomSolarize(128, 1.0), math.inf),
    "RandomAdjustSharpness": Step(lambda m: m.RandomAdjustSharpness(3.0, 1.0), 6, 0, 1),
    # Torchvision's kernels round a few values otherwise.
    "RandomAutocontrast": Step(lambda m: m.RandomAutocontrast(1.0), math.inf, 0, 1e-3),
    "RandomEqualize": Step(lambda m: m.RandomEqualize(1.0), math.inf),
    "GaussianBlur": Step(lambda m: m.GaussianBlur(5, (1.5, 1.5)), 1, 1, 1),
    "GaussianBlur across": Step(lambda m: m.GaussianBlur((7, 3), (1.5, 1.5)), 1, 1, 1),
    "RandomPhotometricDistort": Step(lambda _: v2.RandomPhotometricDistort(p=0.0)),
    "AutoAugment": Step(_policy, math.inf, 0, 1),
    "timm SolarizeAdd": Step(lambda _: timm_operation("SolarizeAdd", 4, 7, 0.0), math.inf),
    "timm AutoAugment": Step(lambda _: timm_operation("Posterize", 4, 7, 0.0), math.inf),
    "fastdecode GaussianBlur": Step(lambda _: GaussianBlur(1.0, 1.5, 1.5)),
}
VALUES = {
    "ToTensor": Step(lambda m: m.ToTensor()),
    "PILToTensor": Step(lambda m: m.PILToTensor()),
    "ToImage": Step(lambda _: v2.ToImage()),
    "ToPureTensor": Step(lambda _: v2.ToPureTensor()),
    "ToPILImage": Step(lambda m: m.ToPILImage()),
    "ToDtype": Step(lambda _: v2.ToDtype(torch.float32, scale=True)),
    "ToDtype unscaled": Step(lambda _: v2.ToDtype(torch.float32), 255),
    "ToDtype half": Step(lambda _: v2.ToDtype(torch.float16, scale=True), 1.3, 0.3, 0.3),
    "ConvertImageDtype": Step(lambda m: m.ConvertImageDtype(torch.float32)),
    "Normalize": Step(lambda m: m.Normalize((0.4, 0.5, 0.6), STD), 5),
    "Normalize 1": Step(lambda m: m.Normalize([0.5], [0.5]), 2),
    "Identity": Step(lambda _: v2.Identity()),
    "nn.Identity": Step(lambda _: torch.nn.Identity()),
    "RGB": Step(lambda _: v2.RGB()),
    "timm MaybeToTensor": Step(lambda _: timm.MaybeToTensor()),
    "timm MaybePILToTensor": Step(lambda _: timm.MaybePILToTensor()),
    "timm ToTensor": Step(lambda _: timm.ToTensor(), 255),
    "fastdecode Normalize": Step(lambda _: Normalize((0.4, 0.5, 0.6), STD), 5),
    "fastdecode Normalize()": Step(lambda _: Normalize(None)),
    "GaussianNoise": Step(lambda _: v2.GaussianNoise(sigma=0.0, clip=False)),
    "function": Step(lambda _: lambda image: image),
    "function of Pillow images": Step(lambda _: _sharper, 7 / 3),
    "function that turns": Step(lambda _: _turned),
    "function that scales": Step(lambda _: _halved),
}
STEPS = {**GEOMETRY, **MOVES, **COLOURS, **VALUES}


class Part(NamedTuple):
    """A transform, and the names and transforms of the steps that it does."""

    transform: Any
    leaves: tuple[tuple[str, Any], ...]

    def __repr__(self) -> str:
        return f"{type(self.transform).__name__}{[name for name, _ in self.leaves]}"


OURS = (EncodedTransform, GaussianBlur, ImageTransform)
HOLDERS = ["Compose", "Sequential", "RandomApply", "RandomChoice", "RandomOrder"]


def parts(names: Iterable[str], *, held: bool = False) -> st.SearchStrategy[Part]:
    """Draw a step by one of these names; if `held`, also a transform that holds such steps."""
    of = st.sampled_from([*MODULES])
    step = st.builds(_part, st.sampled_from([*names]), of)
    if not held:
        return step
    inner = st.lists(st.deferred(lambda: parts(names, held=True)), max_size=2)
    holder = st.builds(_held, of, st.sampled_from([*HOLDERS, "RandomApply 0"]), inner)
    return st.integers(0, 7).flatmap(lambda number: step if number else holder)


def _part(name: str, library: str) -> Part:
    try:
        made = STEPS[name].make(MODULES[library])
    except AttributeError:  # it is of v2 alone
        made = STEPS[name].make(v2)
    return Part(made, ((name, made),))


def _held(library: str, holder: str, inner: list[Part]) -> Part:
    """Return a transform that calls these parts; those that draw hold one, which always comes."""
    m, one = MODULES[library], inner[:1]
    if holder in ("RandomChoice", "RandomOrder"):
        inner = one
    held = [part.transform for part in inner]
    leaves = tuple(leaf for part in inner for leaf in part.leaves)
    if not held or holder == "Sequential":
        modules = all(isinstance(each, torch.nn.Module) for each in held)
        return Part(torch.nn.Sequential(*held) if modules else m.Compose(held), leaves)
    if holder == "RandomApply 0":
        return Part(m.RandomApply(held, p=0.0), ())
    if holder == "RandomChoice":
        return Part(m.RandomChoice([*held, v2.RGB()], p=[0.5, 0.0]), leaves)
    return Part(getattr(m, holder)(held, **({"p": 1.0} if holder == "RandomApply" else {})), leaves)


CROPS = [name for name in GEOMETRY if "Center" not in name]
CHANGES_OF_BYTES = [*MOVES, *COLOURS, *(name for name in GEOMETRY if "Random" not in name)]
TO_TENSOR = ["ToTensor", "PILToTensor", "ToImage", "timm MaybeToTensor", "timm ToTensor"]
LAST = [["ToDtype", "ConvertImageDtype"], ["Normalize", "fastdecode Normalize"]]


@st.composite
def pipelines(draw: st.DrawFn) -> list[Part]:
    """Draw a pipeline as people write them, in which steps are then added and moved."""
    of_tensors = draw(st.booleans())
    made = [draw(parts(["PILToTensor", "ToImage"]))] if of_tensors else []
    made.append(draw(parts(CROPS)))
    made += draw(st.lists(parts(CHANGES_OF_BYTES, held=True), max_size=3))
    if not of_tensors:
        made.append(draw(parts(TO_TENSOR)))
    made += draw(st.lists(parts(CHANGES_OF_BYTES), max_size=1))
    made += [draw(parts(names)) for names in LAST[: draw(st.integers(0, 2))]]
    for extra in draw(st.lists(parts([*STEPS], held=True), max_size=2)):
        made.insert(draw(st.integers(0, len(made))), extra)
    begin, end = (draw(st.integers(0, len(made) - 1)) for _ in range(2))
    how = draw(st.sampled_from(["as it is", "as it is", "twice", "moved"]))
    if how != "as it is":
        made.insert(end, made.pop(begin) if how == "moved" else made[begin])
    return made


@st.composite
def compositions(draw: st.DrawFn) -> list[Part]:
    """Draw known steps in any order, nested."""
    names = draw(st.sampled_from([[*STEPS], CHANGES_OF_BYTES]))
    made = draw(st.lists(parts(names, held=True), min_size=1, max_size=6))
    return [*made, draw(parts(["ToTensor", "ToImage", *STEPS]))]


# ---- comparing ----


class Expected(NamedTuple):
    """What the pipeline gives as written, or raises, and by how many levels another may differ.

    NaN stands for a result of which nothing but the shape is determined.
    """

    result: Any
    allowed: float = 0.0
    error: Exception | None = None


def _is_bytes(image: Any) -> bool:
    return isinstance(image, PillowImage.Image) or image.dtype in (torch.uint8, np.uint8)


def _expected(pipeline: Sequence[Part], image: Any) -> Expected:
    """Apply the steps one after another; errors that their result may have add up, and grow."""
    allowed = 0.0
    for name, transform in (leaf for part in pipeline for leaf in part.leaves):
        step, before = STEPS[name], image
        try:
            image = transform(copy.deepcopy(before))
        except Exception as error:  # of any kind: whatever the transform raises
            return Expected(None, error=error)
        if not isinstance(image, (PillowImage.Image, torch.Tensor, np.ndarray)):
            return Expected(None, error=TypeError("it is no image"))
        allowed *= step.gain if allowed else 0.0
        allowed += step.tensor_error if isinstance(before, torch.Tensor) else step.error
        if not _is_bytes(before):  # what is done to floats, is done in levels of bytes
            allowed += name in MOVES or name in COLOURS or _is_bytes(image)
            wraps = _is_bytes(image) and before.max() > 1.01
            allowed = math.nan if wraps else allowed
    return Expected(image, allowed)


def _numbers(image: Any) -> torch.Tensor:
    if isinstance(image, PillowImage.Image):
        return torch.from_numpy(np.array(image.convert("RGB"))).permute(2, 0, 1).double()
    if isinstance(image, np.ndarray):
        return torch.from_numpy(image.astype(float)).movedim(-1, 0)
    return image.as_subclass(torch.Tensor).double()


def _class(image: Any) -> Any:
    """Return the class of an image; that of a recorded tensor is the one that it becomes."""
    return image._kind or torch.Tensor if isinstance(image, LazyTensor) else type(image)


def _level(wanted: torch.Tensor, *, of_bytes: bool) -> float:
    """Return the difference between neighbouring levels of bytes, as it may be in a result."""
    if of_bytes or wanted.abs().max() > 20:
        return 1.0
    return (1 if wanted.min() >= 0 and wanted.max() <= 1 else 5) / 255  # normalised by a fifth


def _check(result: Any, expected: Expected, *, of_a_batch: bool = False) -> None:
    """Check the type, the shape and the values of a result."""
    theirs = expected.result
    assert expected.error is None, f"as written, it raises {expected.error!r}"
    assert of_a_batch or _class(result) is type(theirs)
    assert getattr(result, "dtype", None) == getattr(theirs, "dtype", None)
    ours, wanted = _numbers(result), _numbers(theirs)
    if expected.allowed == 0:
        assert_same(ours, wanted, within=1e-4 * max(1.0, float(wanted.abs().max())))
    assert ours.shape == wanted.shape
    apart = (ours - wanted).abs().nan_to_num() / _level(wanted, of_bytes=_is_bytes(theirs))
    if math.isinf(expected.allowed):  # so a step that is left out, or done twice, is still seen
        assert apart.mean() <= 10
    elif expected.allowed >= 0:
        # Or a few pixels of a small image, which an angle puts on the other side of an edge.
        few = max(1e-2, 60 / apart.numel())
        far = (apart > 1.02 * expected.allowed + 0.01).double().mean()
        assert far <= few, f"{far:.3f} of the values differ by {apart.max():.2f} levels"


def _as_output(image: PillowImage.Image, output: str | None) -> Any:
    if output in (None, "pil"):
        return image
    array = np.array(image)
    return array if output == "array" else torch.from_numpy(array).permute(2, 0, 1)


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    """Ignore what torchvision warns of."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def _results(dataset: Any, seed: int, *, collates: bool = False) -> Iterator[Any]:
    """Yield the first sample of a dataset, and all of a Loader: in threads, if it can."""
    torch.manual_seed(seed)
    random.seed(seed)
    yield dataset[0][0]
    where = {"threads": seed % 3} if _draws_apart(dataset) else {"num_workers": 0}
    how = {} if collates else {"collate_fn": list}
    with SeededLoader(dataset, 1, seed=seed, **where, **how) as loader:
        for batch in loader:
            yield copy.deepcopy(batch[0][0])


def _draws_apart(dataset: Any) -> bool:
    several = getattr(dataset, "datasets", None) or [getattr(dataset, "dataset", dataset)]
    return all(getattr(one, "dataset", one)._settings().draws_apart for one in several)


def _composed(pipeline: Sequence[Part]) -> Any:
    """Return a Compose: this package's, where one of its crops might begin it."""
    transforms = [part.transform for part in pipeline]
    ours = any(isinstance(one, OURS) for one in transforms)
    return Compose(transforms) if ours else v1.Compose(transforms)


def _compare(pipeline: list[Part], at: int, seed: int, **options: Any) -> None:
    """Check that a dataset, alone and in a Loader, does what a pipeline does as written."""
    expected = _expected(pipeline, _as_output(IMAGES[at], options.get("output")))
    collates = isinstance(expected.result, torch.Tensor) and seed % 2 == 0
    try:
        dataset = Sources(FILES[at], transform=_composed(pipeline), **options)
        results = list(_results(dataset, seed, collates=collates))
    except Exception:
        if not expected.error:
            raise
        return
    for number, result in enumerate(results):
        _check(result, expected, of_a_batch=collates and number > 0)


# ---- the tests ----

WHICH, SEED = st.integers(0, 1), st.integers(0, 99)
OUTPUTS = st.sampled_from([None, None, None, "pil", "tensor", "array"])
BACKENDS = st.sampled_from([None, None, "pillow"])


@given(pipelines() | compositions(), WHICH, SEED, OUTPUTS, BACKENDS)
@settings(SEEDS, max_examples=examples(200))
def test_steps_in_any_order_are_done_as_written(
    pipeline: list[Part], at: int, seed: int, output: Any, backend: Any
) -> None:
    """Alone and in a Loader, the result is that of the pipeline, or the pipeline's error.

    Also of steps that nobody would write so, nested in others of all kinds.
    """
    _compare(pipeline, at, seed, output=output, backend=backend)


def _change(part: Any, how: str) -> None:
    """Change what a transform does, as its user may."""
    kind, forward = type(part), getattr(part, "forward", None)
    if forward is None:
        return
    if how == "method":
        part.forward = lambda image: _turned(forward(image))
    elif how == "subclass":
        own = {"forward": lambda self, image: _turned(kind.forward(self, image))}
        part.__class__ = type(kind.__name__, (kind,), {**own, "__module__": "mine"})
    elif how == "types" and hasattr(part, "_transformed_types"):
        part._transformed_types = (str,)
    elif how == "hook" and isinstance(part, torch.nn.Module):
        part.register_forward_hook(lambda _, __, made: _turned(made))
    elif how == "hook before" and isinstance(part, torch.nn.Module):
        part.register_forward_pre_hook(lambda _, given: (_turned(given[0]),))


CHANGES = ["method", "subclass", "types", "hook", "hook before"]


@given(pipelines(), st.data(), st.sampled_from(CHANGES), WHICH, SEED)
@SEEDS
def test_a_part_that_was_changed_is_called(
    pipeline: list[Part], data: st.DataObject, how: str, at: int, seed: int
) -> None:
    """A part with a hook, or with an attribute or a class of its user's, is done as that says."""
    leaves = [leaf for part in pipeline for leaf in part.leaves]
    if leaves:
        name, transform = data.draw(st.sampled_from(leaves))
        note(f"{how} of {name}")
        _change(transform, how)
    _compare(pipeline, at, seed)


def _pairs(before: str) -> Iterator[list[Part]]:
    """Yield each step after another one, and with a crop between the two.

    The steps of a pair are of one library, and after a conversion to a tensor of the next one: each
    step of each library comes before and after a third of the others.
    """
    turn, third = [*STEPS].index(before), 0 if Run.every else Run.seed
    each = product(enumerate(STEPS), enumerate(MODULES), (False, True))
    for (at, after), (which, library), of_tensors in each:
        if (turn + at + which + of_tensors + third) % len(MODULES):
            continue
        begin = ["ToImage", "Resize"] if of_tensors else ["Resize cubic"]
        between = {before, after} <= {*CHANGES_OF_BYTES} and at % 2
        names = [*begin, before, *(["CenterCrop"] if between else []), after]
        yield [_part(name, library) for name in names]


@pytest.mark.parametrize("before", STEPS)
def test_each_step_after_each_other_is_done_as_written(before: str) -> None:
    """After a resize of an image or of a tensor, all pairs of steps, in both orders."""
    for number, pipeline in enumerate(_pairs(before)):
        try:
            _compare(pipeline, number // 2 % 2, number)
        except Exception as error:
            raise AssertionError(f"{pipeline}") from error


def test_all_known_classes_are_drawn() -> None:
    """Whoever teaches `fuse` another class adds it to the steps above, or to those that draw."""
    random_ones = {**drawn_steps.STEPS, **drawn_steps.WITHIN_LEVELS}
    made = [step.make for step in STEPS.values()] + [*random_ones.values()]
    drawn = {type(make(m)).__qualname__ for make in made for m in (v2,)}
    drawn |= {type(make()).__qualname__ for make in drawn_steps.ALONE.values()}
    known = {name for _, name in _recognise.TABLE if not name.endswith(("Train", "Eval"))}
    held = {"FiveCrop", "TenCrop", "ResizeCenterCrop", "RandomPhotometricDistort", "RandAugment"}
    assert known <= {*drawn, *HOLDERS, *held, "AugMixAugment", "RandomErasing", "OfImage"}
