"""`Loader`: damaged files, program errors, hanging reads, and leaving an epoch early."""

from __future__ import annotations

import gc
import os
import signal
import threading
import time
import weakref
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import torch
from loading import (
    Images,
    Plain,
    copies,
    encoded,
    pool_threads,
    script,
    targets_and_errors,
    wait_until,
)
from loading import (
    SeededLoader as Loader,
)

from fastdecode.torch.image_list import ImageList
from fastdecode.torch.transforms import RandomResizedCrop


def test_first_error_of_a_batch_is_the_one_that_is_raised() -> None:
    """The first error in the order of the batch is raised, whichever thread was faster."""
    second = threading.Event()

    def make(index: int) -> int:
        if index == 2:
            second.set()
        elif not (index == 1 and second.wait(30)):
            return index
        raise TypeError(f"mistake {index}")

    with Loader(Plain(make, 8), 8, threads=3) as loader:
        assert [str(error) for error in targets_and_errors(loader)] == ["mistake 1"]


def test_error_of_collate_fn_comes_at_its_batch() -> None:
    """An error of collate_fn, or of targets that do not collate, comes at its batch."""

    def collate(samples: list[Any]) -> Any:
        if samples[0][1] == 4:
            raise KeyError("mine")
        return [0, torch.tensor([target for _, target in samples])]

    with_function = targets_and_errors(Loader(Images(count=12), 4, threads=2, collate_fn=collate))
    without = targets_and_errors(
        Loader(Images(count=4, target_transform=lambda _: object()), 4, threads=2)
    )

    assert [type(one) for one in with_function] == [list, KeyError, list]
    assert [type(one) for one in without] == [TypeError]


def test_error_that_was_raised_holds_no_memory() -> None:
    """When the consumer is done with an error, the memory of its batch is free, without a gc.

    The next batch therefore lies where the one that failed lay.
    """
    places = []

    class Placed(Images):
        def load(self, index: int, **options: Any) -> Any:
            places.append(options["out"].data_ptr())
            return super().load(index, **options)

    dataset = Placed(wrong={1: TypeError("mistake")}, count=4)
    with Loader(dataset, 4, threads=1) as loader:
        gc.disable()
        try:
            with suppress(TypeError):
                next(iter(loader))
            dataset.wrong = {}
            images, _ = next(iter(loader))
        finally:
            gc.enable()

    assert images.data_ptr() == places[0] == places[-4]


@pytest.mark.parametrize("how", [{"threads": 0}, {"threads": 2}, {"workers": 1}], ids=str)
@pytest.mark.parametrize("damaged", [(1, 2), (1, 2, 3, 4)])
def test_each_damaged_sample_is_listed_by_its_own_name(
    tmp_path: Path, how: dict[str, int], damaged: tuple[int, ...]
) -> None:
    """With "replace", each damaged file is one entry, also if it was to replace another."""
    paths = []
    for number, data in enumerate(encoded()[:5]):
        paths.append(tmp_path / f"{number}.jpg")
        paths[-1].write_bytes(data[: len(data) // 3] if number in damaged else data)

    def listed() -> ImageList:
        return ImageList(paths, list(range(5)), RandomResizedCrop(24), on_error="replace")

    dataset = listed()
    with Loader(dataset, 5, **how) as loader:
        ((_, given),) = copies(loader)

    assert set(given.tolist()) == set(range(5)) - set(damaged)
    assert [(failure.index, failure.path) for failure in sorted(dataset.errors)] == [
        (number, str(paths[number])) for number in damaged
    ]
    tried = 0
    for number in damaged:
        alone = listed()
        assert alone[number][1] not in damaged
        assert alone.errors[0].index == number
        assert all(failure.path == str(paths[failure.index]) for failure in alone.errors)
        tried += len(alone.errors)
    assert tried > len(damaged) or len(damaged) == 2  # some were tried in place of others


def test_older_iterator_does_not_count() -> None:
    """`skipped` counts the newest epoch, also if an older iterator is still used."""
    dataset = Images(damaged=(0, 5, 9, 10), count=12, on_error="skip")
    with Loader(dataset, 4, threads=2) as loader:
        older = iter(loader)
        next(older)
        assert loader.skipped == 1
        newer = iter(loader)
        next(newer)
        assert loader.skipped == 1
        assert len(list(older)) == 2
        assert loader.skipped == 1
        assert len(list(newer)) == 2
        assert loader.skipped == 4


def test_interpreter_ends_although_a_read_hangs() -> None:
    """A hanging thread does not keep the process from ending."""
    process = script("""
dataset = loading.Plain(lambda index: threading.Event().wait())
try:
    next(iter(Loader(dataset, 4, threads=3, timeout=0.5)))
except TimeoutError as error:
    print(error)
""")
    out, _ = process.communicate(timeout=60)

    assert "still missing are items [0, 1, 2, 3]" in out
    assert process.returncode == 0


@pytest.mark.skipif(os.name != "posix", reason="Windows has no SIGINT for one process")
def test_ctrl_c_ends_a_training() -> None:
    """SIGINT while waiting for batches raises KeyboardInterrupt, and the process ends."""
    process = script("""
def make(index):
    print("begun", flush=True)
    return threading.Event().wait()
try:
    next(iter(Loader(loading.Plain(make), 4, threads=1)))
except KeyboardInterrupt:
    print("interrupted")
    raise
""")
    assert process.stdout is not None
    process.stdout.readline()
    process.send_signal(signal.SIGINT)
    out, error = process.communicate(timeout=60)

    assert out == "interrupted\n"
    assert process.returncode == -signal.SIGINT
    assert error.count("Traceback") == 1


def test_early_break_ends_what_is_in_the_making() -> None:
    """Leaving the loop cancels the batches ahead; no further sample begins."""
    read: list[int] = []
    with Loader(Plain(lambda index: read.append(index) or index, 1000), 10, threads=2) as loader:
        for _ in loader:
            break
        at_break = len(read)
        time.sleep(0.05)

        assert len(read) <= at_break + 2 * 4 < 1000
        assert len(list(loader)) == 100


def test_threads_end_with_their_loader() -> None:
    """Threads persist from epoch to epoch, and end with loader and iterator."""
    wait_until(lambda: pool_threads() == [])
    loader = Loader(Images(), 4, threads=3)
    copies(loader)
    first = pool_threads()
    batches = iter(loader)
    next(batches)

    assert len(first) == 3
    assert pool_threads() == first
    gone = weakref.ref(loader)
    del loader
    assert len(copies(batches)) == 5  # the iterator needs them
    del batches
    assert gone() is None
    wait_until(lambda: pool_threads() == [])


def test_closing_ends_threads_and_the_epoch() -> None:
    """`close` ends everything; an unfinished iterator raises an error, and the next one works."""
    wait_until(lambda: pool_threads() == [])  # those of other tests
    loader = Loader(Images(), 4, threads=2)
    batches = iter(loader)
    next(batches)
    ended = iter(loader)
    copies(ended)
    loader.close()
    loader.close()

    assert pool_threads() == []
    with pytest.raises(RuntimeError, match="ended, by close"):
        next(batches)
    assert next(ended, None) is None
    assert len(copies(loader)) == 6
    assert len(pool_threads()) == 2
    with loader:
        pass
    assert pool_threads() == []


def test_closing_frees_who_waits() -> None:
    """A thread that waits while another closes the loader gets an error."""
    hang, raised = threading.Event(), []

    def wait(batches: Any) -> None:
        try:
            next(batches)
        except RuntimeError as error:
            raised.append(error)

    loader = Loader(Plain(lambda _: hang.wait(60)), 4, threads=1)
    batches = iter(loader)
    waiting = threading.Thread(target=wait, args=(batches,))
    waiting.start()
    wait_until(lambda: batches._plan is not None and batches._source._awaited is not None)
    loader.close()
    waiting.join(30)
    hang.set()

    assert len(raised) == 1
