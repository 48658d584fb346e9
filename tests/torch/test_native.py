"""Samples of the native core are bit-identical with those that Python makes one by one."""

from __future__ import annotations

import mmap
import threading
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from cases import examples
from same import assert_same

pytest.importorskip("fastdecode.native._core")
import numpy as np
import torch
from encoded import turned, with_orientation
from hypothesis import given, settings
from hypothesis import strategies as st
from loading import CROP, PROCESS_WARNINGS, Sources, epoch, next_share
from loading import SeededLoader as Loader
from PIL import Image as PillowImage
from random_transforms import WITHOUT_SHRINKING, transforms
from torch_reference import PHOTOS

from fastdecode import use
from fastdecode.native._augment import Draw, Erasure, Operation, Program, do, erase, group
from fastdecode.native._pool import Items
from fastdecode.testing import encode
from fastdecode.torch import Fused
from fastdecode.torch._loader.order import sample_seed
from fastdecode.torch.transforms import (
    RandomResizedCrop,
    Resize,
    ResizeCenterCrop,
    ResizeCenterCropNormalize,
)

PLAIN = PHOTOS[0].read_bytes()
pytestmark = [pytest.mark.filterwarnings(warning) for warning in PROCESS_WARNINGS]


class Made(list[tuple[int, int]]):
    """For each call of the core: how many items it got, and how many it made."""

    @property
    def given(self) -> int:
        return sum(given for given, _ in self)

    @property
    def total(self) -> int:
        return sum(done for _, done in self)


@pytest.fixture(name="made")
def _made(monkeypatch: pytest.MonkeyPatch) -> Made:
    """Record the batches that the core makes in this process."""
    noted = Made()
    make, resize = Items.make, Items.resize

    def made(self: Items, *rest: Any) -> Any:
        done, left = make(self, *rest)
        noted.append((int(self._rows["wanted"][: self._count].sum()), len(done)))
        return done, left

    def resized(self: Items, pool: Any, wanted: Any, *rest: Any) -> list[bool]:
        done = resize(self, pool, wanted, *rest)
        noted.append((len(wanted), sum(done)))
        return done

    monkeypatch.setattr(Items, "make", made)
    monkeypatch.setattr(Items, "resize", resized)
    return noted


# The oracle: whatever is asked for, the core's samples are Python's


def encoded(kind: str, size: tuple[int, int] | None = None) -> bytes:
    """Encode a photo, of this width and height if they are given, as another kind of file."""
    with PillowImage.open(PHOTOS[0]) as photo:
        image = photo.resize(size) if size else photo
        if kind in ("PNG", "BMP", "WEBP"):
            return encode(image, kind)
        if kind in ELSEWHERE:
            format, _, place = kind.partition(" ")
            return turned(format, image)[place]
        if kind.startswith("orientation"):
            return encode(image, exif=with_orientation(int(kind[-1])))
        mode = kind if kind in ("L", "CMYK") else "RGB"
        data = encode(image.convert(mode), progressive=kind == "progressive")
    return _DAMAGE.get(kind, bytes)(data)


_DAMAGE = {
    "no end": lambda data: data[:-2],
    "torn": lambda data: data[: len(data) // 2] + b"\xff\xd9",
    "cut": lambda data: data[: len(data) // 2],
    "empty": lambda data: b"",
}
FOR_CORE = ("RGB", "L", "progressive", "PNG")  # and turned ones that are not to be turned upright
TURNED = [f"orientation {value}" for value in range(2, 9)]
ELSEWHERE = [  # orientations that are not a SHORT in EXIF
    f"{format} {place}"
    for format in ("JPEG", "PNG")
    for place in turned(format, PillowImage.new("RGB", (1, 1)))
]
GOOD = (*FOR_CORE, "orientation 1", *TURNED, *ELSEWHERE, "CMYK", "BMP", "WEBP", "no end")
DAMAGED = ("torn", "cut", "empty", "missing")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("files")


@cache
def source(folder: Path, kind: str, size: tuple[int, int], container: str) -> Any:
    """Return what `read` may return for a file."""
    if kind == "missing":
        return folder / "there is none"
    path = folder / f"{kind} {size}"
    if not path.exists():
        path.write_bytes(encoded(kind, size))
    return CONTAINERS[container if path.stat().st_size else "bytes"](path)


def mapped(path: Path) -> mmap.mmap:
    with path.open("rb") as file:
        return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)


CONTAINERS: dict[str, Any] = {
    "bytes": Path.read_bytes,
    "bytearray": lambda path: bytearray(path.read_bytes()),
    "memoryview": lambda path: memoryview(path.read_bytes()),
    "array": lambda path: np.fromfile(path, np.uint8),
    "tensor": lambda path: torch.frombuffer(bytearray(path.read_bytes()), dtype=torch.uint8),
    "str": str,
    "path": Path,
    "mmap": mapped,
}
SIDES = st.sampled_from(
    [(500, 375), (1, 1), (1, 900), (900, 1), (300, 301), (33, 1000), (1000, 33)]
) | st.tuples(st.integers(1, 300), st.integers(1, 300))
FILES = st.tuples(st.sampled_from(GOOD), SIDES, st.sampled_from([*CONTAINERS]))
PERHAPS_DAMAGED = st.tuples(st.sampled_from(GOOD + DAMAGED), SIDES, st.sampled_from([*CONTAINERS]))


class Shown(Sources):
    """A dataset whose target is what the sample shows of its image."""

    thread_safe = True

    def map_target(self, target: Any, geometry: Any) -> Any:
        return torch.tensor([target, *geometry.box, geometry.flipped], dtype=torch.float64)


def by_python(transform: Any) -> Any:
    """Return the same transform with its own `draw`, which the core does not call."""
    kind = type(transform)

    class Planned(kind):  # type: ignore[misc, valid-type]
        def draw(self, *sides_and_generator: Any) -> Any:
            return super().draw(*sides_and_generator)

    planned = object.__new__(Planned)
    vars(planned).update(vars(transform))
    return planned


def batches_and_errors(dataset: Any, batch_size: int, **options: Any) -> list[Any]:
    """Return the batches of an epoch; in place of a batch that failed, its error as text."""
    seen: list[Any] = []
    with Loader(dataset, batch_size, **options) as loader:
        batches = iter(loader)
        while True:
            try:
                batch = next(batches)
            except StopIteration:
                return seen
            except Exception as error:
                seen.append(f"{type(error).__name__}: {error}")
            else:
                seen.append(batch.clone() if isinstance(batch, torch.Tensor) else list(batch))


def is_for_core(kind: str, orient: bool) -> bool:
    turns = kind in (*TURNED, *ELSEWHERE)
    return kind in (*FOR_CORE, "orientation 1") or (turns and not orient)


COLOURS = group(
    "shuffle",
    [
        do(Operation("brightness", (1.0,)), Draw(0, 0.6, 0.8)),
        group("choice", [do(Operation("equalize")), do(Operation("sharpness", (1.9,)))]),
    ],
)
TURN = do(Operation("rotate", (0.0,), "bilinear", (9, 8, 7)), Draw(0, -90, 180))
NOISE = erase(Erasure((0.1, 0.3), (0.5, 2.0), "pixel"), probability=0.5)
THEN = [Program(), Program(), COLOURS, Program([*TURN, *COLOURS])]
"""What may come after a crop; of a turned image, no target is mapped."""


@pytest.mark.filterwarnings("ignore:all .* samples were skipped:RuntimeWarning")
@settings(WITHOUT_SHRINKING, max_examples=examples(120))
@given(data=st.data())
def test_the_cores_samples_are_pythons(data: Any, folder: Path, made: Made) -> None:
    """Any files, transform, policy and layout give the same bits, errors and geometry.

    The core makes all of the files that it can, with any number of threads.
    """
    on_error = data.draw(st.sampled_from(["raise", "raise", "skip", "replace"]), "on_error")
    some = FILES if data.draw(st.booleans(), "all good") else PERHAPS_DAMAGED
    drawn = data.draw(st.lists(some, min_size=1, max_size=24), "files")
    transform = data.draw(transforms(), "transform")
    dataset_kind = data.draw(st.sampled_from([Sources, Shown]), "kind of dataset")
    then = data.draw(st.sampled_from(THEN[: 3 if dataset_kind is Shown else 4]), "then")
    noise = NOISE if transform.dtype == torch.float32 and data.draw(st.booleans(), "noise") else ()
    transform = transform.but(program=Program([*transform.program, *then, *noise]))
    options = {"on_error": on_error, "orient": data.draw(st.booleans(), "orient")}
    how = {
        "batch_size": data.draw(st.integers(1, 30), "batch size"),
        "seed": data.draw(st.integers(0, 2**40), "seed"),
        "shuffle": data.draw(st.booleans(), "shuffle"),
        "channels_last": data.draw(st.booleans(), "channels last"),
        "collate_fn": data.draw(st.sampled_from([None, None, list]), "collate_fn"),
    }
    has_targets = data.draw(st.booleans(), "has targets") or dataset_kind is Shown

    def dataset(one: Any) -> Any:
        files = (source(folder, *file) for file in drawn)
        images = dataset_kind(*files, transform=one, **options)
        images.has_targets = has_targets
        return images

    expected = dataset(by_python(transform))
    reference = batches_and_errors(expected, threads=0, **how)
    made.clear()
    ours = dataset(transform)
    threads = data.draw(st.sampled_from([1, 3, 8]), "threads")
    batches = batches_and_errors(ours, threads=threads, **how)

    assert_same(batches, reference)
    assert sorted(ours.errors) == sorted(expected.errors)
    kinds = [kind for kind, *_ in drawn]
    good = sum(is_for_core(one, options["orient"]) for one in kinds)
    # A crop may end above the damage.
    assert good <= made.total <= good + sum(one in DAMAGED for one in kinds)
    if how["channels_last"] and how["collate_fn"] is None:
        for batch in (batch for batch in batches if not isinstance(batch, str)):
            images = batch[0] if has_targets else batch
            assert images.is_contiguous(memory_format=torch.channels_last)


def alike(made: Made, transform: Any, *files: Any, kind: Any = Sources) -> int:
    """Check that the core's batch is Python's; return how many samples the core made."""
    made.clear()
    ours, theirs = (
        epoch(kind(*files, transform=one), len(files), threads=threads)
        for one, threads in ((transform, 1), (by_python(transform), 0))
    )
    assert_same(ours, theirs, transform)
    return made.total


def test_the_largest_canvas_and_one_pixel_more_are_made_alike(made: Made) -> None:
    """Canvases up to the core's limit are the core's; larger ones have the same results."""
    for side, for_core in ((65500, True), (65501, False), (100_000, False)):
        for transform in (
            ResizeCenterCropNormalize((40, side), 40),
            RandomResizedCrop((2, side), flip=0.5),
        ):
            count = alike(made, transform, PLAIN, PLAIN, kind=Shown)
            assert count == (2 if for_core else 0), (transform, side)


@pytest.mark.parametrize("headroom", [1.0, 1.25, 2.0])
@pytest.mark.parametrize("reduce", [2, 4, 8])
def test_an_exact_multiple_of_the_canvas_is_reduced_alike(
    reduce: int, headroom: float, made: Made
) -> None:
    """A box of `headroom` times the canvas may be reduced; of one pixel less, not so far."""
    canvas = (24, 16)
    height, width = (int(side * reduce * headroom) for side in canvas)
    sides = [(width, height), (width - 1, height), (width, height - 1), (width + 1, height)]
    files = [encoded("RGB", size) for size in sides]
    fast: dict[str, Any] = {"quality": "fast", "headroom": headroom}
    whole = {"scale": (1, 1), "ratio": (width / height, width / height)}
    for transform in (
        ResizeCenterCrop(canvas, canvas, **fast),
        RandomResizedCrop(canvas, **whole, **fast),
        Resize(canvas, **fast),
    ):
        assert alike(made, transform, *files) == len(files)


def test_a_flip_needs_a_number_below_its_probability() -> None:
    """The core flips if the number is below the probability, not if it is equal to it."""
    for seed in range(20):
        flip = next_share(sample_seed(seed, 0, 0))
        for probability, flipped in ((flip, False), (flip + 1e-9, True)):
            dataset = Shown(PLAIN, transform=ResizeCenterCrop(44, 40, flip=probability))
            ((_, targets),) = epoch(dataset, 1, threads=1, seed=seed)
            assert bool(targets[0, -1]) == flipped


# When the core is used


SOURCES: list[Any] = [
    *map(str, PHOTOS),
    *(encoded(kind) for kind in ("RGB", "PNG", "CMYK", "L", "no end", "orientation 6")),
]
"""Files of which the core makes all but two."""


def test_another_backend_or_a_step_keeps_the_core_out(made: Made) -> None:
    """Named for the dataset, or preferred; and what comes after the decoding is done."""
    sources = SOURCES[: len(PHOTOS)]
    expected = epoch(Sources(*sources), 6, threads=0)
    (batch,) = epoch(Sources(*sources, backend="pillow"), 6, threads=2)
    assert_same(batch, expected[0], within=0.02)  # a level
    ((negative, _),) = epoch(Sources(*sources, transform=Fused(CROP, [torch.neg])), 6, threads=2)
    assert_same(-negative, expected[0][0])
    with use("simplejpeg"):
        epoch(Sources(*sources), 6, threads=2)
    assert not made
    assert_same(epoch(Sources(*sources, backend="native"), 6, threads=2), expected)
    assert made.total == 6


@pytest.mark.parametrize("name", ["__call__", "with_geometry", "draw", "make", "reduction"])
@pytest.mark.parametrize(
    ("kind", "sizes"),
    [(RandomResizedCrop, [40]), (ResizeCenterCrop, [50, 40]), (Resize, [[40, 30]])],
)
def test_only_methods_of_the_users_keep_the_core_out(
    kind: Any, sizes: Any, name: str, made: Made
) -> None:
    """They may be in a subclass, in another base, in one object, or put into the class itself."""
    method = getattr(kind, name)

    def own(*arguments: Any, **options: Any) -> Any:
        return method(*arguments, **options)

    def by_the_core(transform: Any) -> int:
        made.clear()
        epoch(Sources(PLAIN, PLAIN, transform=transform), 2, threads=1)
        return made.total

    crop, replaced, mixed = kind(*sizes), kind(*sizes), type("Mixed", (), {name: own})
    vars(replaced)[name] = own.__get__(replaced)

    assert by_the_core(crop) == by_the_core(type("Own", (kind,), {})(*sizes)) == 2
    for bases, methods in (((kind,), {name: own}), ((mixed, kind), {})):
        assert by_the_core(type("Own", bases, methods)(*sizes)) == 0
    assert by_the_core(replaced) == 0
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kind, name, own)
        assert by_the_core(crop) == 0


def test_batches_that_are_not_for_the_core_are_shared_by_all_threads(made: Made) -> None:
    """A dataset of BMPs goes back to samples one by one, and one that reads slowly to small parts.

    In the last batches, two items of a batch are read only together: one thread alone, which
    reads a whole batch for the core, would wait for ever.
    """
    foreign = encoded("BMP")

    class Paired(Sources):
        slow, thread_safe = 0.0, True

        def __init__(self, *sources: Any) -> None:
            super().__init__(*sources)
            self.pairs = [threading.Barrier(2) for _ in range(25)]

        def read(self, index: int) -> tuple[Any, Any]:
            if index >= 160 and index % 8 in (0, 2):
                self.pairs[index // 8].wait(30)
            elif self.slow:
                threading.Event().wait(self.slow)
            return super().read(index)

    slow = Paired(*[PLAIN] * 200)
    slow.slow = 0.002
    for dataset in (Paired(*[foreign] * 200), slow):
        with Loader(dataset, 8, threads=2) as loader:
            assert [len(targets) for _, targets in loader] == [8] * 25
    assert made.total == 200  # of the second
    assert made[-1] == (2, 2)


class Image(torch.Tensor):
    """A tensor class like torchvision's Image."""
