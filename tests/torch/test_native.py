"""Samples of the native core are bit-identical with those that Python makes one by one."""

from __future__ import annotations

import mmap
import random
import subprocess
import sys
import threading
from itertools import product
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("fastdecode.native._core")
import numpy as np
import torch
from encoded import with_orientation
from loading import CROP, PROCESS_WARNINGS, Sources, copies, epoch, pool_threads, same, wait_until
from loading import SeededLoader as Loader
from PIL import Image as PillowImage
from torch.utils.data import DataLoader, default_collate

import fastdecode
from fastdecode import DecodeError, use
from fastdecode.native._batch import Items
from fastdecode.testing import encode
from fastdecode.torch._fuse import Fused
from fastdecode.torch._order import sample_seed
from fastdecode.torch.transforms import (
    IMAGENET_MEAN,
    IMAGENET_STD,
    RandomResizedCrop,
    RandomResizedCropFlipNormalize,
    Resize,
    ResizeCenterCrop,
    ResizeCenterCropNormalize,
)
from fastdecode.torch.transforms._random_crop import generator_of

PHOTOS = sorted((Path(fastdecode.__file__).parent / "samples").glob("*.jpg"))


def encoded(kind: str = "jpeg", mode: str = "RGB", **options: Any) -> bytes:
    with PillowImage.open(PHOTOS[0]) as image:
        return encode(image.convert(mode), kind, **options)


PLAIN = PHOTOS[0].read_bytes()
TORN = PLAIN[: len(PLAIN) // 2] + b"\xff\xd9"
CUT = PLAIN[: len(PLAIN) // 2]
NO_END = PLAIN[:-2]
# What stands for a file, and whether the core makes it.
SOURCES: list[tuple[Any, bool]] = [
    *((str(path), True) for path in PHOTOS),
    (PLAIN, True),
    (encoded("PNG"), False),
    (memoryview(PLAIN), True),
    (encoded(mode="CMYK"), False),
    (encoded(mode="L"), True),
    (bytearray(PLAIN), True),
    (NO_END, False),
    (np.frombuffer(PLAIN, np.uint8), True),
    (encoded(exif=with_orientation(6)), True),
    (torch.frombuffer(bytearray(PLAIN), dtype=torch.uint8), True),
    (encoded("WEBP"), False),
    (PHOTOS[1], True),
    (encoded(progressive=True), True),
    (encoded(exif=with_orientation(1)), True),
]


class Boxes(Sources):
    """A dataset with a box in the middle of each image as the target."""

    def read(self, index: int) -> tuple[Any, Any]:
        return self.sources[index], [[100.0, 100.0, 200.0, 200.0 + index]]

    def map_target(self, target: Any, geometry: Any) -> Any:
        return torch.as_tensor([*geometry.boxes(target).tolist(), [*geometry.full_size] * 2])


def mixed(kind: type[Sources] = Sources, **options: Any) -> Sources:
    return kind(*(source for source, _ in SOURCES), **options)


def mapped(path: Path) -> mmap.mmap:
    with path.open("rb") as file:
        return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)


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
    crop, resize = Items.crop, Items.resize

    def cropped(self: Items, *rest: Any) -> Any:
        done, left = crop(self, *rest)
        noted.append((int(self._rows["wanted"][: self._count].sum()), len(done)))
        return done, left

    def resized(self: Items, pool: Any, wanted: Any, *rest: Any) -> list[bool]:
        done = resize(self, pool, wanted, *rest)
        noted.append((len(wanted), sum(done)))
        return done

    monkeypatch.setattr(Items, "crop", cropped)
    monkeypatch.setattr(Items, "resize", resized)
    return noted


pytestmark = [pytest.mark.filterwarnings(warning) for warning in PROCESS_WARNINGS]
COUNT = len(SOURCES)
FOR_CORE = sum(for_core for _, for_core in SOURCES)
TRANSFORMS = [
    CROP,
    RandomResizedCrop((24, 40), (0.5, 1), (1, 2), flip=0.2, quality="fast", headroom=2),
    RandomResizedCrop(33, dtype=torch.float32, flip=0.5),
    ResizeCenterCropNormalize(44, 40, flip=0.5, quality="fast"),
    RandomResizedCropFlipNormalize(30, (1.0, 1.0), (5.0, 6.0)),
    Resize((33, 40), flip=0.5, dtype=torch.uint8, quality="fast"),
]


def one_by_one(dataset: Any, batch_size: int, seed: int = 0) -> list[Any]:
    """Make the first epoch of a dataset with `load` only."""
    samples = [
        dataset.load(index, generator=generator_of(sample_seed(seed, 0, index)))
        for index in range(len(dataset))
    ]
    return [default_collate(samples[at : at + batch_size]) for at in range(0, COUNT, batch_size)]


def same_by_threads(*arguments: Any, **options: Any) -> bool:
    """Return whether two threads make the same batches as the calling thread."""
    first, second = (epoch(*arguments, threads=threads, **options) for threads in (0, 2))
    return same(first, second)


@pytest.mark.parametrize("transform", TRANSFORMS, ids=repr)
@pytest.mark.parametrize("channels_last", [False, True])
def test_batches_are_what_samples_are(transform: Any, channels_last: bool, made: Made) -> None:
    """With files of all kinds mixed, every bit is as from `load`."""
    dataset = mixed(transform=transform)
    expected = one_by_one(dataset, 7)

    for threads in (1, 3):
        made.clear()
        batches = epoch(dataset, 7, threads=threads, channels_last=channels_last)

        assert same([list(batch) for batch in batches], [list(batch) for batch in expected])
        assert (made.given, made.total) == (FOR_CORE, FOR_CORE)
        layout = torch.channels_last if channels_last else torch.contiguous_format
        assert all(images.is_contiguous(memory_format=layout) for images, _ in batches)
    assert same(epoch(dataset, 7, threads=0, channels_last=channels_last), batches)


@pytest.mark.parametrize("orient", [False, True])
def test_orientation_is_applied_on_request(orient: bool, made: Made) -> None:
    """Files that must be rotated are left to Python."""
    dataset = mixed(orient=orient)

    assert same_by_threads(dataset, 20)
    assert made.total == FOR_CORE - orient


@pytest.mark.parametrize("policy", ["skip", "replace"])
def test_policies_hold_inside_a_batch(policy: str, made: Made) -> None:
    """Damaged and missing files are skipped or replaced, as without the core."""
    sources = [str(PHOTOS[0]), TORN, PLAIN, "no such file", CUT, str(PHOTOS[1]), b"", PLAIN]
    first, second = (Sources(*sources, on_error=policy) for _ in range(2))

    assert same(epoch(first, 8, threads=2), epoch(second, 8, threads=0))
    assert sorted(first.errors) == sorted(second.errors)
    assert made == [(5, 4)]


def test_first_error_of_a_batch_is_raised() -> None:
    """The first item's error in the order of the batch is raised, with the same message."""
    sources = [PLAIN, TORN, "no such file", PLAIN]
    said = []
    for threads in (0, 2):
        with pytest.raises(DecodeError) as caught:
            epoch(Sources(*sources), 4, threads=threads)
        said.append(str(caught.value))

    assert said[0] == said[1]
    assert "item 1" in said[0]


def test_mistakes_of_the_user_are_raised_where_they_belong() -> None:
    """Errors of `read`, a plan or a target are raised at their batch."""

    class Wrong(Sources):
        def read(self, index: int) -> tuple[Any, Any]:
            return super().read(index) if index != 5 else self.none

    class Odd(RandomResizedCrop):
        def plan(self, width: int, height: int, generator: Any) -> Any:
            return super().plan(width, height, generator)._replace(size=(3, 3))

    with pytest.raises(AttributeError, match="none"):
        epoch(Wrong(*[PLAIN] * 8), 4, threads=2)
    with pytest.raises(ZeroDivisionError):
        epoch(Sources(*[PLAIN] * 8, target_transform=lambda at: 1 // (at - 3)), 4, threads=2)
    for transform in (Odd(40), RandomResizedCropFlipNormalize(40, ratio=(3, 4), scale=(1, 1))):
        said = []
        for threads in (0, 2):
            try:
                said.append(epoch(Sources(PLAIN, PLAIN, transform=transform), 2, threads=threads))
            except ValueError as error:
                said.append([str(error)])
        assert same(said[0], said[1])


def test_targets_are_mapped(made: Made) -> None:
    """`map_target` and then `target_transform` are called, with the crop's geometry."""
    options = {"target_transform": lambda boxes: boxes + 1}
    dataset = mixed(Boxes, **options)

    batches = epoch(dataset, 6, threads=2)

    assert same([list(batch) for batch in batches], [list(b) for b in one_by_one(dataset, 6)])
    assert made.total == FOR_CORE


def test_samples_for_a_collate_fn_are_whole(made: Made) -> None:
    """collate_fn gets images and targets of the same types as one by one."""

    class Alone(Sources):
        has_targets = False

    for kind in (Sources, Alone):
        batches = []
        for threads in (0, 2):
            loader = Loader(mixed(kind), 7, threads=threads, collate_fn=list)
            batches.append(list(loader))
            loader.close()
        assert same(batches[0], batches[1])
    with Loader(mixed(Alone), 7, threads=2) as loader:
        without = [batch.clone() for batch in loader]
    assert same(without, [batch[0] for batch in epoch(mixed(), 7, threads=0)])
    assert made.total == 3 * FOR_CORE


@pytest.mark.parametrize("floats", [False, True])
def test_without_the_core_pixels_differ_by_a_level(
    floats: bool, monkeypatch: pytest.MonkeyPatch, made: Made
) -> None:
    """``FASTDECODE_DISABLE=native`` gives pixels of torch and Pillow, within one level."""
    dtype = torch.float32 if floats else torch.uint8
    level = 1 / 255 / 0.224 + 1e-5 if floats else 1
    for transform in (
        RandomResizedCrop(40, dtype=dtype, flip=0.5),
        ResizeCenterCrop(44, 40, dtype=dtype),
    ):
        dataset = mixed(transform=transform)
        ours = epoch(dataset, 20, threads=2)
        count = made.total
        with monkeypatch.context() as patch:
            patch.setenv("FASTDECODE_DISABLE", "native")
            theirs = epoch(dataset, 20, threads=2)

        assert made.total == count
        difference = (ours[0][0].float() - theirs[0][0].float()).abs().max()
        assert 0 < difference <= level


def test_the_core_is_used_only_where_nothing_speaks_against_it(made: Made) -> None:
    """Another backend, or overridden methods, keep the core from being used."""

    class Loads(Sources):
        def load(self, index: int, **options: Any) -> Any:
            image, target = super().load(index, **options)
            return image, -target

    class Crops(RandomResizedCrop):
        def with_geometry(self, data: Any, **options: Any) -> Any:
            return super().with_geometry(data, **options)

    sources = [str(path) for path in PHOTOS]
    expected = epoch(Sources(*sources), 6, threads=0)
    own = Crops(40, flip=0.5, mean=IMAGENET_MEAN, std=IMAGENET_STD, quality=CROP.quality)
    for dataset in (
        Sources(*sources, backend="pillow"),
        Sources(*sources, transform=own),
        Loads(*sources),
    ):
        batch = epoch(dataset, 6, threads=2)[0]
        torch.testing.assert_close(batch[0], expected[0][0], rtol=0, atol=0.02)  # a level
        assert batch[1].abs().tolist() == list(range(6))
    with use("simplejpeg"):
        epoch(Sources(*sources), 6, threads=2)
    assert not made
    assert same(epoch(Sources(*sources, backend="native"), 6, threads=2), expected)
    assert made.total == 6


def test_a_plan_of_ones_own_is_kept_to(made: Made) -> None:
    """A subclass with its own plan gets its generator, and is made in the core."""

    class Lower(RandomResizedCrop):
        def plan(self, width: int, height: int, generator: Any) -> Any:
            plan = super().plan(width, height // 2, generator)
            left, top, right, bottom = plan.box
            return plan._replace(box=(left, top + height // 2, right, bottom + height // 2))

    dataset = mixed(transform=Lower(40))

    assert same_by_threads(dataset, 20)
    assert made.total == FOR_CORE


@pytest.mark.parametrize(
    "transform",
    [ResizeCenterCrop(100_000, 40, dtype=torch.uint8), ResizeCenterCropNormalize(30, 40)],
    ids=["giant", "padded"],
)
def test_giants_and_padding_are_left_to_others(transform: Any, made: Made) -> None:
    """Huge canvases and padding give the same results as without the core."""
    assert same_by_threads(mixed(transform=transform), 20)
    assert made.given == 0


def test_mapped_files_and_files_by_path_are_the_same(made: Made) -> None:
    """Bytes in memory and in files give the same samples."""
    by_path = Sources(*(str(path) for path in PHOTOS))
    by_map = Sources(*(mapped(path) for path in PHOTOS))

    assert same(epoch(by_path, 6, threads=2), epoch(by_map, 6, threads=2))
    assert made.total == 12


def test_what_is_not_for_the_core_is_dealt_to_all_threads(made: Made) -> None:
    """A dataset of PNGs, or one whose reading takes time, goes back to samples one by one.

    In the last batches, two items of a batch are read only together: one thread alone, which
    reads a whole batch for the core, would wait for ever.
    """
    png = encoded("PNG")

    class Paired(Sources):
        slow = 0.0

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
    for dataset in (Paired(*[png] * 200), slow):
        with Loader(dataset, 8, threads=2) as loader:
            assert [len(targets) for _, targets in loader] == [8] * 25
    assert 0 < made.total < 200


def test_closing_in_the_middle_of_a_batch() -> None:
    """Threads end, nothing hangs, and the next epoch is complete."""
    wait_until(lambda: pool_threads() == [])
    dataset = Sources(
        *[str(path) for path in PHOTOS] * 20, transform=RandomResizedCropFlipNormalize(100)
    )
    loader = Loader(dataset, 30, threads=2)
    for _ in range(3):
        next(iter(loader))
        loader.close()

        assert pool_threads() == []
    assert len(copies(loader)) == 4
    loader.close()


# `__getitems__`, torch's DataLoader, processes


def in_turn(dataset: Any, indices: Any) -> Any:
    """Fetch samples one by one; also return the state of torch's global generator."""
    torch.manual_seed(5)
    samples = [dataset.fetch(index) for index in indices]
    return samples, torch.get_rng_state()


def at_once(dataset: Any, indices: Any) -> Any:
    torch.manual_seed(5)
    samples = dataset.__getitems__(indices)
    return samples, torch.get_rng_state()


def test_samples_are_those_of_a_loop() -> None:
    """Items of all kinds draw from the global generator in order, whatever is asked at once."""
    dataset = mixed(on_error="replace")
    order = [*range(len(dataset)), 3, 0]

    for indices in (order, order[::-1], [1], []):
        assert same(at_once(dataset, indices), in_turn(dataset, indices))


def test_skipped_items_and_errors() -> None:
    """Skipped items are left out; the first error is raised after the draws before it."""
    sources = [PLAIN, TORN, PLAIN, "no such file", PLAIN]
    kept, state = in_turn(Sources(*sources, on_error="skip"), [0, 2, 4])
    samples, _ = at_once(Sources(*sources, on_error="skip"), range(5))
    assert [target for _, target in samples] == [target for _, target in kept]
    assert same(samples[0], kept[0])
    states = []
    for fetch in (at_once, in_turn):
        with pytest.raises(DecodeError, match="item 1"):
            fetch(Sources(*sources), range(5))
        states.append(torch.get_rng_state())
        with pytest.raises(FileNotFoundError):
            fetch(Sources(*sources), [0, 3, 1])
        states.append(torch.get_rng_state())
    assert same(states[:2], states[2:])
    assert state.shape == states[0].shape


def test_torchs_loader_gives_the_same_with_and_without_workers() -> None:
    """DataLoader gets the same items in the same order, and without draws the loader's batches."""
    batches = []
    for workers in (0, 2):
        torch.manual_seed(3)
        generator = torch.Generator().manual_seed(1)
        loader = DataLoader(mixed(), 5, num_workers=workers, generator=generator)
        batches.append(copies(loader))

    assert [batch[1].tolist() for batch in batches[0]] == [b[1].tolist() for b in batches[1]]
    fixed = mixed(transform=RandomResizedCropFlipNormalize(40, (1, 1), (1, 1), flip=0))
    ours = epoch(fixed, 5, threads=2)
    assert same(ours, copies(DataLoader(fixed, 5, num_workers=2)))


class Captions(Sources):
    """A dataset that draws one of several targets per sample."""

    def read(self, index: int) -> tuple[Any, Any]:
        return self.sources[index], index + random.random()


def again(target: float) -> float:
    return target + random.random()


@pytest.mark.parametrize("workers", [1, 2])
def test_worker_processes_give_what_threads_give(
    workers: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Images equal those of threads, and the user's own draws follow from the seed."""
    with_core = epoch(mixed(), 7, shuffle=True, seed=4, workers=workers)
    assert same(with_core, epoch(mixed(), 7, shuffle=True, seed=4, threads=2))
    drawn = epoch(mixed(Captions), 7, seed=4, workers=workers)
    twice = [epoch(mixed(Captions, target_transform=again), 7, workers=1) for _ in range(2)]
    monkeypatch.setenv("FASTDECODE_DISABLE", "native")
    without = epoch(mixed(Captions), 7, seed=4, workers=workers)

    assert [batch[1].tolist() for batch in drawn] == [batch[1].tolist() for batch in without]
    assert same(twice[0], twice[1])


class Image(torch.Tensor):
    """A tensor class like torchvision's Image."""


def test_fused_pipelines_keep_their_type(made: Made) -> None:
    """A fused pipeline returns its class of tensors; in a batch they are plain."""
    dataset = mixed(transform=Fused(CROP, image=Image))

    assert {type(image) for image, _ in at_once(dataset, range(6))[0]} == {Image}
    assert same_by_threads(dataset, 6)
    assert type(epoch(dataset, 6, threads=2)[0][0]) is torch.Tensor
    assert made.total == 2 * FOR_CORE
    made.clear()
    assert same_by_threads(mixed(transform=Fused(CROP, [torch.neg])), 6)
    assert not made


# What the core draws by itself is what Python draws

SIDES = [(500, 375), (1, 1), (1, 900), (900, 1), (300, 301), (33, 1000), (1000, 33)]


class Shown(Sources):
    """A dataset whose target is what the sample shows of its image."""

    def map_target(self, target: Any, geometry: Any) -> Any:
        return torch.tensor([target, *geometry.box, geometry.flipped], dtype=torch.float64)


def by_python(transform: Any) -> Any:
    """Return the same transform with its own `plan`, for which Python draws."""
    kind = type(transform)

    class Planned(kind):  # type: ignore[misc, valid-type]
        def plan(self, *sides_and_generator: Any) -> Any:
            return super().plan(*sides_and_generator)

    planned = object.__new__(Planned)
    vars(planned).update(vars(transform))
    return planned


def same_by_python(kind: Any, sources: Any, transform: Any, batch_size: int, **how: Any) -> bool:
    """Return whether batches are equal, whether the core or Python draws."""
    first, second = (
        epoch(kind(*sources, transform=one), batch_size, **how)
        for one in (transform, by_python(transform))
    )
    return same(first, second)


def files(some: random.Random, count: int) -> list[bytes]:
    """Make small files whose pixels show where a box lies and whether it is flipped."""
    made = []
    for number in range(count):
        width, height = SIDES[number] if number < len(SIDES) else _sides(some)
        across = np.linspace(0, 255, width, dtype=np.uint8)[None, :].repeat(height, 0)
        down = np.linspace(0, 255, height, dtype=np.uint8)[:, None].repeat(width, 1)
        image = np.stack([across, down, np.full_like(down, 99)], axis=-1)
        made.append(encode(PillowImage.fromarray(image)))
    return made


def _sides(some: random.Random) -> tuple[int, int]:
    return some.randint(1, 300), some.randint(1, 300)


def some_random_crop(some: random.Random) -> RandomResizedCrop:
    size = (some.randint(1, 40), some.randint(1, 40))
    scale = sorted(some.choice([0.08, 1.0, some.uniform(0.01, 2)]) for _ in range(2))
    ratio = sorted(some.choice([3 / 4, 4 / 3, some.uniform(0.05, 20)]) for _ in range(2))
    flip, headroom = some.choice([0, 0.5, 1, some.random()]), some.choice([1, some.uniform(1, 4)])
    quality: Any = some.choice(["fast", "exact"])
    return RandomResizedCrop(size, scale, ratio, flip=flip, quality=quality, headroom=headroom)


def some_central_crop(some: random.Random) -> Resize | ResizeCenterCrop:
    size = (some.randint(1, 60), some.randint(1, 60))
    flip: float = some.choice([0, 0.5, 1])
    quality: Any = some.choice(["fast", "exact"])
    if some.random() < 0.3:
        return Resize(size, flip=flip, quality=quality)
    shorter = some.choice([some.randint(1, 60), (some.randint(1, 60), some.randint(1, 60))])
    return ResizeCenterCrop(shorter, size, flip=flip, quality=quality)


@pytest.mark.parametrize("make", [some_random_crop, some_central_crop])
def test_the_core_draws_what_python_draws(make: Any) -> None:
    """Boxes, flips, sides, margins and reductions of 1500 samples are equal."""
    some = random.Random(1)
    sources = files(some, 100)
    for seed in range(15):
        transform = make(some)
        how = {"threads": 2, "seed": seed, "shuffle": True}

        assert same_by_python(Shown, sources, transform, 50, **how), transform


def test_the_largest_canvas_and_one_pixel_more_are_made_alike() -> None:
    """Canvases at the core's limit, and one pixel larger, have the same results."""
    for side in (65500, 65501):
        for transform in (
            ResizeCenterCropNormalize((40, side), 40),
            RandomResizedCrop((2, side), flip=0.5),
        ):
            assert same_by_python(Shown, [PLAIN, PLAIN], transform, 2, threads=1)


def test_what_is_drawn_is_below_a_probability_not_equal_to_it() -> None:
    """A flip needs a number below its probability, not equal to it."""
    for seed in range(20):
        flip = generator_of(sample_seed(seed, 0, 0)).uniform(0, 1)
        central = ResizeCenterCrop(44, 40, flip=flip)
        assert torch.equal(
            central(PLAIN, generator=generator_of(sample_seed(seed, 0, 0))),
            ResizeCenterCrop(44, 40)(PLAIN),
        )
        assert same_by_python(Shown, [PLAIN] * 4, central, 4, threads=1, seed=seed)


KINDS = {
    "grey": encoded(mode="L"),
    "four inks": encoded(mode="CMYK"),
    "progressive": encoded(progressive=True),
    "without an end": PLAIN[:-2],
    **{f"turned by {value}": encoded(exif=with_orientation(value)) for value in range(1, 9)},
    "PNG": encoded("PNG"),
}


@pytest.mark.parametrize("orient", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_a_file_of_any_kind_is_made_as_by_itself(kind: str, orient: bool) -> None:
    """In a batch, or alone on its bytes, a file of any kind gives the same values."""
    transform = ResizeCenterCropNormalize(44, 40)
    dataset = Sources(*[PLAIN, KINDS[kind], PLAIN], transform=transform, orient=orient)

    ((images, _),) = epoch(dataset, 3, threads=2)

    assert torch.equal(images[1], transform(KINDS[kind], orient=orient))


def test_a_subclass_that_does_otherwise_is_heeded() -> None:
    """The plan, reduction or values of a subclass are used in batches."""

    class Planned(RandomResizedCrop):
        def plan(self, width: int, height: int, generator: Any) -> Any:
            return super().plan(width, height, generator)._replace(box=(0, 0, 8, 8), flip=True)

    class Sharp(ResizeCenterCrop):
        def _jpeg_reduction(self, plan: Any) -> Any:
            return 1

    class Named(Resize):
        """A subclass that changes nothing."""

    set_here = RandomResizedCrop(40)
    set_here.plan = Planned(40).plan  # type: ignore[method-assign]
    corner = Planned(40)(PLAIN)
    for transform, expected in (
        (Planned(40), corner),
        (set_here, corner),
        (Sharp(44, 40), ResizeCenterCrop(44, 40, quality="exact")(PLAIN)),
        (Named((40, 41)), Resize((40, 41))(PLAIN)),
    ):
        ((images, _),) = epoch(Sources(PLAIN, PLAIN, transform=transform), 2, threads=2)
        assert torch.equal(images[0], expected)
        assert torch.equal(images[1], expected)


def test_a_transform_that_was_changed_is_described_anew() -> None:
    """Changed sizes and other attributes of a transform are used; invalid ones are refused."""
    transform = RandomResizedCrop(40, dtype=torch.uint8, flip=0.5)
    dataset = Sources(*[PLAIN] * 4, transform=transform)
    before = epoch(dataset, 4, threads=2)
    transform.scale, transform.flip = (0.5, 0.6), 1.0
    after = epoch(dataset, 4, threads=2)
    assert same(after, epoch(dataset, 4, threads=0))
    assert not same(before, after)
    transform.size = (40, 30)
    for threads in (0, 2):
        with pytest.raises(ValueError, match="out must be"):
            epoch(dataset, 4, threads=threads)


def test_targets_come_in_the_order_of_the_batch() -> None:
    """Targets are transformed one after another, in the order of the batch."""
    seen: list[float] = []

    def noticed(boxes: Any) -> Any:
        seen.append(float(boxes[0, 3]))
        return boxes

    results = []
    transform = RandomResizedCropFlipNormalize(40, (0.3, 1), (1, 1))
    for one, threads in product((transform, by_python(transform)), (0, 1)):
        seen.clear()
        dataset = mixed(Boxes, transform=one, target_transform=noticed)
        results.append((epoch(dataset, 20, threads=threads), sorted(seen)))
    assert all(same(one, results[0]) for one in results)


_LEFT_OPEN = """
import os, sys
from fastdecode.torch import ImageList, Loader
from fastdecode.torch.transforms import RandomResizedCropFlipNormalize

paths = sys.argv[2:]
loader = Loader(ImageList(paths, transform=RandomResizedCropFlipNormalize(64)), 2, shuffle=True)
batches = iter(loader)
next(batches)
if sys.argv[1] == "late":
    os.batches = batches
"""


@pytest.mark.parametrize("when", ["main", "late"])
def test_iterator_left_open_at_exit_is_silent(when: str) -> None:
    """An epoch left open ends without a message, even if it outlives the package's modules."""
    command = [sys.executable, "-W", "ignore", "-c", _LEFT_OPEN, when, *map(str, PHOTOS)]

    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)

    assert (done.returncode, done.stderr) == (0, "")
