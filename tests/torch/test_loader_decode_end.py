"""`Loader(decode=…)`: errors, leaving before the end, and what was chosen."""

from __future__ import annotations

import threading
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
    batch_double,
    honest,
    own_registry,
    refusing,
    register_double,
    with_the_others,
)
from loading import Images, copies, drawing, eventually, pool_threads, same, targets

from fastdecode import DecodeError, UnknownBackend, register
from fastdecode.gpu import _devices
from fastdecode.torch import _delivery
from fastdecode.torch.loader import Loader
from fastdecode.torch.transforms import RandomResizedCrop, RandomResizedCropFlipNormalize, Resize

pytestmark = pytest.mark.usefixtures("with_the_others")


class Shared(RandomResizedCrop):
    """Says that it draws from generators that the whole process shares."""

    isolated = False


def test_errors_come_in_the_place_of_their_batch() -> None:
    """A damaged file, or a mistake, is raised where its batch would be; the next ones come."""
    register_double(refusing(lambda _: True, honest))
    wrong: dict[int, BaseException] = {9: KeyError("mine"), 13: StopIteration("mine")}
    with Loader(Images(damaged=(6, 5), wrong=wrong, count=20), 4, decode="double") as loader:
        seen: list[Any] = []
        batches = iter(loader)
        for _ in range(5):
            try:
                seen.append(next(batches)[1].tolist())
            except (DecodeError, KeyError, RuntimeError) as error:
                seen.append(error)

        assert (seen[0], seen[4]) == ([0, 1, 2, 3], [16, 17, 18, 19])
        assert [type(one) for one in seen[1:4]] == [DecodeError, KeyError, RuntimeError]
        assert "item 5" in str(seen[1])
        assert "StopIteration" in str(seen[3])
        assert next(batches, None) is None
        assert loader.epoch == 1


def test_leaving_early_and_beginning_again() -> None:
    """A new iterator ends the one before, and begins the next epoch."""
    register_double(honest)
    with Loader(Images(), 4, True, threads=2, decode="double") as loader:
        left = iter(loader)
        next(left)
        second = copies(loader)
        with pytest.raises(RuntimeError, match="closed"):
            next(left)
    with Loader(Images(), 4, True, threads=2, decode="double") as loader:
        loader.set_epoch(1)

        assert same(copies(loader), second)


def test_closing_while_the_backend_is_busy() -> None:
    """The threads end, and a consumer that waits gets an error."""
    reached = threading.Event()

    def busy(items: Any, layout: str) -> Any:
        reached.set()
        prefetcher = loader._delivery._prefetcher
        eventually(lambda: prefetcher._thread is not None and prefetcher._thread._stopped)
        return honest(items, layout)

    register_double(busy)
    loader: Any = Loader(Images(), 4, threads=2, decode="double")
    errors: list[BaseException] = []

    def consume() -> None:
        try:
            next(iter(loader))
        except RuntimeError as error:
            errors.append(error)

    consumer = threading.Thread(target=consume)
    consumer.start()
    assert reached.wait(30)
    eventually(lambda: loader._delivery._prefetcher._epoch is not None)  # `iter` has returned
    loader.close()
    consumer.join(30)

    assert len(errors) == 1
    eventually(lambda: not pool_threads())  # also those of the prefetching: their names begin alike


def test_a_batch_that_is_late_for_reading_is_an_error() -> None:
    """`timeout` is for reading, as ever: the error names the items that are missing."""
    register_double(honest)
    go = threading.Event()

    class Hanging(Images):
        def read(self, index: int) -> tuple[Any, Any]:
            if index == 6:
                go.wait(30)
            return super().read(index)

    with Loader(Hanging(), 4, threads=2, decode="double", timeout=0.5) as loader:
        batches = iter(loader)
        assert next(batches)[1].tolist() == [0, 1, 2, 3]
        with pytest.raises(TimeoutError, match=r"still missing are items \[6"):
            next(batches)
        go.set()
        assert targets(batches)[0] == [8, 9, 10, 11]


@pytest.fixture
def meta(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let PyTorch's device without memory stand for a GPU, as long as nothing is decoded there."""
    for module in (_devices, _delivery):
        monkeypatch.setattr(module, "device_of", torch.device)


def test_what_was_chosen_is_shown() -> None:
    """By name, and in the words of who chose."""
    register_double(honest)

    loader = Loader(Images(), 4, threads=2, decode="double")

    assert loader.decoding.backend == "double"
    assert "decode='double' (double decodes, as asked)" in repr(loader)
    assert loader.workers == 0
    usual = Loader(Images(), 4, threads=2)
    assert usual.decoding.backend is None
    assert "decode" not in repr(usual)


@pytest.mark.parametrize(
    ("dataset", "options", "why"),
    [
        (Images(), {}, "batches stay in the host's memory"),
        (Images(), {"device": "meta"}, "no backend decodes on meta"),
        (Images(), {"device": "meta", "workers": 2}, "worker processes"),
        (Images(), {"device": "meta", "collate_fn": list}, "collate_fn"),
        (Images(Resize(24)), {"device": "meta"}, "its images differ in size"),
        (Images(backend="pillow"), {"device": "meta"}, "asks for the backend 'pillow'"),
        (Images(Shared(24)), {"device": "meta"}, "random draws are not its own to control"),
    ],
)
@pytest.mark.usefixtures("meta")
def test_auto_is_never_an_error(dataset: Any, options: Any, why: str) -> None:
    """Where no batch backend can decode, the CPU does, and the loader says why."""
    loader = Loader(dataset, 4, decode="auto", **options)

    assert loader.decoding.backend is None
    assert why in loader.decoding.why
    assert f"decode='cpu' ({loader.decoding.why})" in repr(loader)


@pytest.mark.usefixtures("meta")
def test_auto_takes_a_batch_backend_that_works() -> None:
    """On a device where one decodes, it does; a dataset that ends that is decoded by the CPU."""
    double = batch_double(honest)
    double.devices = frozenset({"meta"})
    register("double", "nowhere:Nothing", batch=double)
    dataset = Images()

    with Loader(dataset, 4, device="meta", decode="auto", threads=1) as loader:
        assert loader.decoding.backend == "double"
        dataset.transform = drawing
        assert {images.device.type for images, _ in loader} == {"meta"}
        assert loader.decoding.backend is None
        assert "decode='cpu' (the CPU decodes: its transform (function)" in repr(loader)
        assert double.asked == []
        dataset.transform = RandomResizedCropFlipNormalize(24)
        iter(loader)
        assert "decode='double' (double decodes" in repr(loader)


@pytest.mark.parametrize(
    ("dataset", "options", "why"),
    [
        (Images(), {"decode": "gpu"}, "decode='gpu' needs a GPU as device, not 'cpu'"),
        (Images(), {"workers": 2}, "not possible: worker processes .* Leave out workers, or"),
        (Images(), {"collate_fn": list}, "not possible: collate_fn .* Leave out collate_fn, or"),
        (Images(Resize(24)), {}, "differ in size. Give one .*decode='cpu'"),
        (Images(Shared(24)), {}, "its transform's random draws are not its own to control"),
        (
            Images(),
            {"decode": "pillow"},
            "decode='pillow' names a backend that decodes no batches on 'cpu'",
        ),
    ],
)
def test_what_is_not_possible_is_told(dataset: Any, options: Any, why: str) -> None:
    """The error says why, and what to do instead."""
    register_double(honest)

    with pytest.raises(ValueError, match=why):
        Loader(dataset, **{"decode": "double", **options})


def test_a_word_is_wanted() -> None:
    """What is no word at all is a TypeError; of a word that nobody knows the message has others."""
    register_double(honest)
    with pytest.raises(UnknownBackend, match=r"'cpu', 'gpu', 'auto' or .*double.*not 'GPU'"):
        Loader(Images(), decode="GPU")
    with pytest.raises(TypeError, match="decode must be 'cpu', 'gpu', 'auto' or a batch backend"):
        Loader(Images(), decode=1)


@pytest.mark.skipif(torch.cuda.is_available(), reason="needs a machine without CUDA")
@pytest.mark.parametrize("decode", ["gpu", "auto", "double"])
def test_a_missing_gpu_is_told(decode: str) -> None:
    """Whoever is to decode, a device that is not there is an error that says what is missing."""
    register_double(honest)

    with pytest.raises(RuntimeError, match="device 'cuda' cannot be used: PyTorch"):
        Loader(Images(), device="cuda", decode=decode)


def test_a_collate_fn_that_is_set_later_is_not_passed_over() -> None:
    """It wants samples, which a batch that is decoded at once has none of."""
    register_double(honest)
    with Loader(Images(), 4, decode="double") as loader:
        loader.collate_fn = list
        with pytest.raises(ValueError, match=r"not possible any more: collate_fn.*Leave out"):
            next(iter(loader))
