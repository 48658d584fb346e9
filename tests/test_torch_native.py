"""`Loader` by way of the native core: the batches are those of samples made one by one."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("fastdecode.native._core")
torch = pytest.importorskip("torch")

from loading import copies, epoch, same  # noqa: E402
from native_lane import (  # noqa: E402
    CROP,
    CUT,
    PHOTOS,
    PLAIN,
    SOURCES,
    TORN,
    Boxes,
    Made,
    Sources,
    _made,  # noqa: F401 - the fixture
    mapped,
    mixed,
)
from torch.utils.data import Subset, default_collate  # noqa: E402

from fastdecode import DecodeError, use  # noqa: E402
from fastdecode.torch._order import sample_seed  # noqa: E402
from fastdecode.torch.loader import Loader  # noqa: E402
from fastdecode.torch.transforms import (  # noqa: E402
    IMAGENET_MEAN,
    IMAGENET_STD,
    RandomResizedCrop,
    RandomResizedCropFlipNormalize,
    Resize,
    ResizeCenterCrop,
    ResizeCenterCropNormalize,
)
from fastdecode.torch.transforms._random_crop import generator_of  # noqa: E402

COUNT = len(SOURCES)
FOR_CORE = sum(for_core for _, for_core in SOURCES)
TRANSFORMS = [
    CROP,
    RandomResizedCrop((24, 40), (0.5, 1), (1, 2), flip=0.2, dtype=torch.uint8, headroom=2),
    RandomResizedCrop(33, quality="exact", dtype=torch.float32, flip=0.5),
    ResizeCenterCropNormalize(44, 40, flip=0.5),
    Resize((33, 40), dtype=torch.uint8),
]


def one_by_one(dataset: Any, batch_size: int, seed: int = 0) -> list[Any]:
    """Make the first epoch of a dataset from `load` alone."""
    samples = [
        dataset.load(index, generator=generator_of(sample_seed(seed, 0, index)))
        for index in range(len(dataset))
    ]
    return [default_collate(samples[at : at + batch_size]) for at in range(0, COUNT, batch_size)]


@pytest.mark.parametrize("transform", TRANSFORMS, ids=repr)
@pytest.mark.parametrize("channels_last", [False, True])
def test_batches_are_what_samples_are(transform: Any, channels_last: bool, made: Made) -> None:
    """Files of all kinds, mixed: the core makes those it can, and every bit is as from `load`."""
    dataset = mixed(transform=transform)
    expected = one_by_one(dataset, 7)

    for threads in (1, 3):
        made.clear()
        batches = epoch(dataset, 7, threads=threads, channels_last=channels_last)

        assert same([list(batch) for batch in batches], [list(batch) for batch in expected])
        assert (made.given, made.total) == (FOR_CORE, FOR_CORE)
    assert same(epoch(dataset, 7, threads=0, channels_last=channels_last), batches)


@pytest.mark.parametrize("orient", [False, True])
def test_orientation_is_applied_on_request(orient: bool, made: Made) -> None:
    """Of the files that the core takes by themselves it leaves those that are to be turned."""
    dataset = mixed(orient=orient)

    batches = epoch(dataset, 20, threads=2)

    assert same(batches, epoch(dataset, 20, threads=0))
    assert made.total == FOR_CORE - orient


@pytest.mark.parametrize("policy", ["skip", "replace", "callable"])
def test_policies_hold_inside_a_batch(policy: str, made: Made) -> None:
    """Damaged and missing files are skipped, replaced or supplied, as without the core."""

    def supply(index: int, _error: Exception) -> Any:
        return None if index == 1 else (torch.full((3, 40, 40), 9.0), -index)

    sources = [str(PHOTOS[0]), TORN, PLAIN, "no such file", CUT, str(PHOTOS[1]), b"", PLAIN]
    on_error: Any = supply if policy == "callable" else policy
    first, second = (Sources(*sources, on_error=on_error) for _ in range(2))

    assert same(epoch(first, 8, threads=2), epoch(second, 8, threads=0))
    assert sorted(first.errors) == sorted(second.errors)
    assert made == [(5, 4)]


def test_first_error_of_a_batch_is_raised() -> None:
    """It is the one of the first item in the batch's order, in the same words."""
    sources = [PLAIN, TORN, "no such file", PLAIN]
    said = []
    for threads in (0, 2):
        with pytest.raises(DecodeError) as caught:
            epoch(Sources(*sources), 4, threads=threads)
        said.append(str(caught.value))

    assert said[0] == said[1]
    assert "item 1" in said[0]


def test_mistakes_of_the_user_are_raised_where_they_belong() -> None:
    """What `read`, a plan or a target raises comes out at its batch."""

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
    """`map_target` and then `target_transform` are called, with where the picture came from."""
    options = {"target_transform": lambda boxes: boxes + 1}
    dataset = mixed(Boxes, **options)

    batches = epoch(dataset, 6, threads=2)

    assert same([list(batch) for batch in batches], [list(b) for b in one_by_one(dataset, 6)])
    assert made.total == FOR_CORE


def test_samples_for_a_collate_fn_are_whole(made: Made) -> None:
    """It is given pictures and targets, of the types that they have one by one."""

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


def test_subsets_and_resumed_epochs(made: Made) -> None:
    """A Subset's items are its own, and an epoch is taken up in the middle."""
    subset = Subset(mixed(), list(range(COUNT - 1, 2, -1)))
    with Loader(subset, 4, True, threads=2) as loader:
        expected = copies(loader)
    with Loader(subset, 4, True, threads=2) as loader:
        batches = iter(loader)
        copies([next(batches)])
        state = loader.state_dict()
    with Loader(subset, 4, True, threads=2) as loader:
        loader.load_state_dict(state)
        assert same(copies(loader), expected[1:])
    assert same(epoch(subset, 4, shuffle=True, threads=0), expected)
    assert made.total > FOR_CORE


@pytest.mark.parametrize("floats", [False, True])
def test_without_the_core_pixels_differ_by_a_level(
    floats: bool, monkeypatch: pytest.MonkeyPatch, made: Made
) -> None:
    """``FASTDECODE_DISABLE=native`` gives the pixels of torch and Pillow, one level off at most."""
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
    """Another backend, or methods of one's own, are not passed over."""

    class Loads(Sources):
        def load(self, index: int, **options: Any) -> Any:
            image, target = super().load(index, **options)
            return image, -target

    class Crops(RandomResizedCrop):
        def with_geometry(self, data: Any, **options: Any) -> Any:
            return super().with_geometry(data, **options)

    sources = [str(path) for path in PHOTOS]
    expected = epoch(Sources(*sources), 6, threads=0)
    for dataset in (
        Sources(*sources, backend="pillow"),
        Sources(*sources, transform=Crops(40, flip=0.5, mean=IMAGENET_MEAN, std=IMAGENET_STD)),
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
    """A subclass that draws in its own way is given its generator, and is made by the core."""

    class Lower(RandomResizedCrop):
        def plan(self, width: int, height: int, generator: Any) -> Any:
            plan = super().plan(width, height // 2, generator)
            left, top, right, bottom = plan.box
            return plan._replace(box=(left, top + height // 2, right, bottom + height // 2))

    dataset = mixed(transform=Lower(40))

    assert same(epoch(dataset, 20, threads=2), epoch(dataset, 20, threads=0))
    assert made.total == FOR_CORE


def test_giants_are_left_to_others(made: Made) -> None:
    """Of a picture blown up beyond all measure the middle is shown, as without the core."""
    transform = ResizeCenterCrop(100_000, 40, dtype=torch.uint8)
    dataset = Sources(PLAIN, PLAIN, transform=transform)

    assert same(epoch(dataset, 2, threads=2), epoch(dataset, 2, threads=0))
    assert made.given == 0


def test_mapped_files_and_files_by_path_are_the_same(made: Made) -> None:
    """Where the bytes are does not matter."""
    by_path = Sources(*(str(path) for path in PHOTOS))
    by_map = Sources(*(mapped(path) for path in PHOTOS))

    assert same(epoch(by_path, 6, threads=2), epoch(by_map, 6, threads=2))
    assert made.total == 12
