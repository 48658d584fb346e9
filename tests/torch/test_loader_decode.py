"""`Loader(decode=…)`: whole batches by a batch backend, here a test double on the CPU."""

from __future__ import annotations

import pickle
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import torch
from device_doubles import (  # noqa: F401
    CMYK,
    CUT,
    NO_END,
    PHOTOS,
    PNG,
    PROGRESSIVE,
    honest,
    own_registry,
    raising,
    refusing,
    register_double,
    with_the_others,
)
from loader_cases import EXACT, Files, epochs, near
from loading import Images, copies, indices, same
from torch.utils.data import Subset

from fastdecode import DecodeError, stats
from fastdecode.torch.loader import Loader
from fastdecode.torch.transforms import (
    Normalize,
    RandomResizedCropFlipNormalize,
    Resize,
    ResizeCenterCropNormalize,
)

pytestmark = pytest.mark.usefixtures("with_the_others")


@pytest.mark.parametrize(
    "transform",
    [
        EXACT,
        RandomResizedCropFlipNormalize((30, 20), flip=1.0, quality="exact"),
        ResizeCenterCropNormalize(30, 24, quality="exact"),
        ResizeCenterCropNormalize(80, 24, quality="exact", flip=0.5),
        Resize((50, 30), dtype=torch.float32, quality="exact"),
    ],
    ids=repr,
)
@pytest.mark.parametrize("regions", [False, True])
def test_the_same_crops_of_the_same_items(transform: Any, regions: bool) -> None:
    """Order, labels, boxes and flips of two shuffled epochs, also of the last, short batch."""
    double = register_double(honest, regions=regions)

    ours = epochs(Images(transform), 5, count=2, shuffle=True, decode="double")
    theirs = epochs(Images(transform), 5, count=2, shuffle=True)

    assert near(ours, theirs)
    assert double.asked == [5, 5, 5, 5, 3] * 2


@pytest.mark.parametrize("threads", [0, 1, 3])
@pytest.mark.parametrize("options", [{}, {"channels_last": True}, {"normalize_on": "device"}])
def test_neither_threads_nor_layout_change_pixels(threads: int, options: Any) -> None:
    """The bits are those of any other number of threads; the strides are as asked for."""
    register_double(honest)

    ours = epochs(Images(), threads=threads, decode="double", **options)

    assert same(ours, epochs(Images(), decode="double"))
    layout = torch.channels_last if "channels_last" in options else torch.contiguous_format
    assert all(images.is_contiguous(memory_format=layout) for images, _ in ours)


@pytest.mark.parametrize("how", [refusing, raising])
@pytest.mark.parametrize("threads", [0, 3])
@pytest.mark.parametrize("channels_last", [False, True])
def test_what_is_refused_is_the_cpus_sample(how: Any, threads: int, channels_last: bool) -> None:
    """Every second image is refused, alone or with its batch: its bits are the CPU's."""
    odd = {id(PHOTOS[at]) for at in (1, 3, 5, 7)}
    register_double(how(lambda item: id(item.data.obj) in odd, honest))
    options = {"threads": threads, "channels_last": channels_last}
    files = Files(PHOTOS)

    ours = epochs(files, decode="double", **options)
    theirs = epochs(files, **options)

    assert near(ours, theirs)
    assert stats().fallbacks[("double", "cpu")] == 4
    for (images, numbers), (expected, _) in zip(ours, theirs, strict=True):
        for image, other, index in zip(images, expected, numbers.tolist(), strict=True):
            assert index % 2 == 0 or torch.equal(image, other)


def test_all_is_refused() -> None:
    """Then the batches are, bit for bit, those of the CPU."""
    register_double(refusing(lambda _: True, honest))

    assert same(epochs(Images(), decode="double"), epochs(Images()))


def test_odd_and_damaged_files_join_in_order() -> None:
    """Progressive, CMYK, PNG, cut: what can be decoded is, what cannot is left out and noted."""
    double = register_double(honest)
    files = [CUT, PHOTOS[0], PROGRESSIVE, CMYK, PHOTOS[1], PNG, b"", NO_END, PHOTOS[2], b"no"]

    def run(**options: Any) -> Any:
        dataset = Files(files, on_error="skip")
        with Loader(dataset, 4, threads=2, **options) as loader:
            made = copies(loader)
            return made, loader.skipped, sorted(one.index for one in dataset.errors)

    ours, theirs = run(decode="double"), run()

    assert near(ours[0], theirs[0])
    assert ours[1:] == theirs[1:]
    assert sum(double.asked) == 3


def test_a_batch_of_damaged_files_is_left_out() -> None:
    """A batch of which nothing is left is not handed out, with labels or without."""
    register_double(honest)
    dataset = Files([CUT[:300]] * 4 + PHOTOS[:2], on_error="skip")
    dataset.has_targets = False

    with Loader(dataset, 2, threads=2, decode="double") as loader:
        batches = list(loader)

        assert [tuple(batch.shape) for batch in batches] == [(2, 3, 24, 24)]
        assert loader.skipped == 4


def test_resumes_in_the_middle() -> None:
    """Batches that were decoded ahead count only once they are handed out."""
    register_double(honest)
    options: dict[str, Any] = {"shuffle": True, "seed": 5, "decode": "double"}
    with Loader(Images(), 4, threads=2, **options) as first:
        batches = iter(first)
        copies([next(batches), next(batches)])
        state = first.state_dict()
        expected = copies(batches)
        following = copies(first)
    with pickle.loads(pickle.dumps(Loader(Images(), 4, threads=1, **options))) as second:
        second.load_state_dict(state)

        assert same(copies(second), expected)
        assert same(copies(second), following)


class Mapped(Images):
    """Its targets follow the crop."""

    def map_target(self, target: Any, geometry: Any) -> Any:
        return torch.tensor(geometry.boxes([[target, 4, target + 8, 12]])[0])


def test_targets_are_mapped_and_transformed() -> None:
    """`map_target` gets the geometry of the same crop, and `target_transform` what that gives."""
    register_double(honest)
    dataset = Mapped(EXACT, target_transform=lambda box: box * 2)

    assert near(epochs(dataset, decode="double"), epochs(dataset))


def test_a_subset_and_a_sampler() -> None:
    """Indices are those of the subset; one that comes twice is drawn for twice."""
    register_double(honest)
    dataset = Subset(Subset(Images(EXACT), range(20, 2, -1)), [3, 1, 4, 1, 5, 9, 2, 6])
    options: dict[str, Any] = {"sampler": [7, 0, 0, 3, 2]}

    ours = epochs(dataset, 2, decode="double", **options)

    assert near(ours, epochs(dataset, 2, **options))
    assert indices(ours) == [14, 17, 17, 19, 16]


class Counted(Files):
    """Counts how often each file is read, and each target transformed; some have paths."""

    def __init__(self, files: Any, **options: Any) -> None:
        super().__init__(files, target_transform=self.transformed, **options)
        self.reads: Counter[int] = Counter()
        self.transforms: Counter[int] = Counter()

    def read(self, index: int) -> tuple[Any, Any]:
        self.reads[index] += 1
        if self.files[index] is None:
            raise FileNotFoundError("none")
        return super().read(index)

    def transformed(self, target: int) -> int:
        self.transforms[target] += 1
        return -target


@pytest.mark.parametrize("threads", [0, 2])
def test_files_are_read_once(threads: int) -> None:
    """Whoever decodes them in the end; only what cannot be read is asked for again."""
    register_double(refusing(lambda item: id(item.data.obj) == id(PHOTOS[3]), honest))
    files = [PHOTOS[0], PROGRESSIVE, CMYK, PHOTOS[3], CUT, None, PNG, PHOTOS[4]]
    dataset = Counted(files, on_error="skip")

    ours = epochs(dataset, decode="double", threads=threads)

    assert near(ours, epochs(Counted(files, on_error="skip"), threads=threads))
    assert indices(ours) == [0, -1, -2, -3, -6, -7]
    assert dataset.reads == {at: 2 if at == 5 else 1 for at in range(8)}
    assert dataset.transforms == dict.fromkeys((0, 1, 2, 3, 6, 7), 1)


def test_a_damaged_file_is_named(tmp_path: Path) -> None:
    """By path and index, also where its bytes were read for the backend."""
    register_double(honest)
    path = tmp_path / "cut.jpg"
    path.write_bytes(CUT)
    messages = []
    for options in ({}, {"decode": "double"}):
        with pytest.raises(DecodeError, match=r"cut\.jpg \(item 1\): ") as told:
            epochs(Files([PHOTOS[0], path]), **options)
        messages.append(str(told.value))

    assert messages[0] == messages[1]


def test_a_stand_in_may_be_floats() -> None:
    """What `on_error` returns is as `dataset[index]`, and shown bit for bit."""
    register_double(honest)
    pixels = torch.arange(3 * 24 * 24).remainder(256).byte().view(3, 24, 24)
    floats = Normalize()(pixels)
    for stand_in in (floats, pixels):
        dataset = Files([PHOTOS[0], CUT], on_error=lambda *_, it=stand_in: (it, 7))

        ((images, numbers),) = epochs(dataset, decode="double")

        assert numbers.tolist() == [0, 7]
        assert torch.equal(images[1], floats)
