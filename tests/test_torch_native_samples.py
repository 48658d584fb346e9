"""Lists of samples by way of the native core: `__getitems__`, torch's DataLoader, processes."""

from __future__ import annotations

import copy
import pickle
import random
from typing import Any

import pytest

pytest.importorskip("fastdecode.native._core")
torch = pytest.importorskip("torch")

from loading import PROCESSES, copies, epoch, same  # noqa: E402
from native_lane import (  # noqa: E402
    CROP,
    CUT,
    PLAIN,
    SOURCES,
    TORN,
    Made,
    Sources,
    _made,  # noqa: F401 - the fixture
    encoded,
    mixed,
)
from torch.utils.data import DataLoader  # noqa: E402

from fastdecode import DecodeError  # noqa: E402
from fastdecode.torch._fuse import Fused  # noqa: E402
from fastdecode.torch.transforms import RandomResizedCropFlipNormalize  # noqa: E402

pytestmark = [pytest.mark.filterwarnings(warning) for warning in PROCESSES]
FOR_CORE = sum(for_core for _, for_core in SOURCES)


def in_turn(dataset: Any, indices: Any) -> Any:
    """Fetch one by one, and return where torch's global generator stands then."""
    torch.manual_seed(5)
    samples = [dataset.fetch(index) for index in indices]
    return samples, torch.get_rng_state()


def at_once(dataset: Any, indices: Any) -> Any:
    torch.manual_seed(5)
    samples = dataset.__getitems__(indices)
    return samples, torch.get_rng_state()


def test_samples_are_those_of_a_loop(made: Made) -> None:
    """Items of all kinds draw from the global generator in their order, and each only once."""
    dataset = mixed()
    order = [*range(len(dataset)), 3, 0]
    assert mixed().__getitems__([]) == []

    for indices in (order, order[::-1], [1], []):
        assert same(at_once(dataset, indices), in_turn(dataset, indices))
    assert made.total == 2 * FOR_CORE + 5


@pytest.mark.parametrize("seed", range(4))
def test_an_item_that_fails_does_not_shift_the_draws(seed: int) -> None:
    """A damaged item that another replaces draws twice: those that follow get what is next."""
    kinds = [PLAIN, PLAIN, TORN, encoded("PNG"), CUT, b"", "no such file"]
    some = random.Random(seed)
    sources = [PLAIN, *(some.choice(kinds) for _ in range(14))]
    for on_error in ("replace", lambda index, _: (torch.full((3, 40, 40), 9.0), -index)):
        first, second = (Sources(*sources, on_error=on_error) for _ in range(2))

        assert same(at_once(first, range(15)), in_turn(second, range(15)))


def test_skipped_items_and_errors() -> None:
    """Skipped ones are left out; the first error is raised, and the draws up to it are made."""
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


def test_reading_that_draws_is_left_in_its_order() -> None:
    """A dataset that draws from the global generator in `read` gets what it gets in a loop."""

    class Drawing(Sources):
        def read(self, index: int) -> tuple[Any, Any]:
            return self.sources[index], torch.rand(1)

    dataset = Drawing(*[PLAIN] * 5)

    assert same(at_once(dataset, range(5)), in_turn(dataset, range(5)))


def test_pictures_are_rows_of_one_batch_and_stay_as_they_are(made: Made) -> None:
    """Those of the next call lie elsewhere."""
    dataset = Sources(*[PLAIN] * 4)
    first = dataset.__getitems__(range(4))
    kept = copy.deepcopy(first)

    second = dataset.__getitems__(range(4))

    assert same(first, kept)
    assert not same(first, second)
    assert made == [(4, 4), (4, 4)]


def test_torchs_loader_gives_what_it_gave(made: Made) -> None:
    """DataLoader gets the same with and without workers."""
    batches = []
    for workers in (0, 2):
        torch.manual_seed(3)
        generator = torch.Generator().manual_seed(1)
        loader = DataLoader(mixed(), 5, num_workers=workers, generator=generator)
        batches.append(copies(loader))

    assert [batch[1].tolist() for batch in batches[0]] == [b[1].tolist() for b in batches[1]]
    assert made.total == FOR_CORE  # of this process
    fixed = mixed(transform=RandomResizedCropFlipNormalize(40, (1, 1), (1, 1), flip=0))
    ours = epoch(fixed, 5, threads=2)
    assert same(ours, copies(DataLoader(fixed, 5, num_workers=2)))


class Captions(Sources):
    """Draws one of several targets for each sample."""

    def read(self, index: int) -> tuple[Any, Any]:
        return self.sources[index], index + random.random()


def again(target: float) -> float:
    return target + random.random()


@pytest.mark.parametrize("workers", [1, 2])
def test_worker_processes_give_what_threads_give(
    workers: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Pictures are those of threads, and the user's own draws follow from the seed."""
    with_core = epoch(mixed(), 7, shuffle=True, seed=4, workers=workers)
    assert same(with_core, epoch(mixed(), 7, shuffle=True, seed=4, threads=2))
    drawn = epoch(mixed(Captions), 7, seed=4, workers=workers)
    twice = [epoch(mixed(Captions, target_transform=again), 7, workers=1) for _ in range(2)]
    monkeypatch.setenv("FASTDECODE_DISABLE", "native")
    without = epoch(mixed(Captions), 7, seed=4, workers=workers)

    assert [batch[1].tolist() for batch in drawn] == [batch[1].tolist() for batch in without]
    assert same(twice[0], twice[1])


def test_a_dataset_that_was_used_can_be_copied() -> None:
    """What it has made for itself stays behind."""
    dataset = mixed()
    expected = at_once(dataset, range(4))

    for other in (pickle.loads(pickle.dumps(Sources(PLAIN, PLAIN))), copy.copy(dataset)):
        assert "_lane" not in other.__dict__
        assert len(other.__getitems__([0, 1])) == 2
    assert same(at_once(copy.copy(dataset), range(4)), expected)


class Picture(torch.Tensor):
    """As torchvision's Image."""


def test_fused_pipelines_keep_their_type_and_their_draws(made: Made) -> None:
    """A fused pipeline hands out its class of tensors, and draws as often as torchvision."""
    dataset = mixed(transform=Fused(CROP, image=Picture, draws=1))

    ours, theirs = at_once(dataset, range(6)), in_turn(dataset, range(6))

    assert same(ours, theirs)
    assert {type(image) for image, _ in (*ours[0], *theirs[0])} == {Picture}
    batches = [epoch(dataset, 6, threads=threads) for threads in (0, 2)]
    assert same(batches[0], batches[1])
    assert type(batches[1][0][0]) is torch.Tensor
    assert made.total == 6 + FOR_CORE
    made.clear()
    rest = Fused(CROP, [torch.neg])
    assert same(*(epoch(mixed(transform=rest), 6, threads=threads) for threads in (0, 2)))
    assert not made
