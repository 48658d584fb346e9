"""`Loader` with worker processes: the same results, and workers that die."""

from __future__ import annotations

import errno
import gc
import multiprocessing
import os
import signal
import time
import weakref
from collections import namedtuple
from contextlib import suppress
from typing import Any

import pytest
import torch
from loading import PROCESS_WARNINGS, Images, Plain, epoch, script
from loading import SeededLoader as Loader
from processes import few_files
from same import assert_same
from torch.utils.data import default_collate

pytestmark = [pytest.mark.filterwarnings(warning) for warning in PROCESS_WARNINGS]


def numbers_of_threads(_index: int) -> Any:
    import cv2

    return torch.get_num_threads(), cv2.getNumThreads(), os.getpid()


def stopping(index: int) -> int:
    if index == 5:
        raise StopIteration
    return index


def hanging(index: int) -> int:
    if index == 5:
        time.sleep(60)
    return index


def pids(loader: Any) -> set[int]:
    return {child.pid for child in multiprocessing.active_children() if child.pid}


def test_spawned_workers_give_the_same() -> None:
    """Spawned workers, as on macOS and Windows, give the same batches."""
    dataset = Images(damaged=(3,), on_error="skip")
    usual = multiprocessing.get_start_method(allow_none=True)
    multiprocessing.set_start_method("spawn", force=True)
    try:
        made = epoch(dataset, workers=1)
    finally:
        multiprocessing.set_start_method(usual, force=True)

    assert_same(made, epoch(dataset, threads=1))
    assert [failure.index for failure in dataset.errors] == [3]


def test_workers_use_one_thread_each() -> None:
    """Torch and OpenCV use one thread in a worker, and are unchanged in this process."""
    cv2 = pytest.importorskip("cv2")
    before = torch.get_num_threads(), cv2.getNumThreads()
    with Loader(Plain(numbers_of_threads, 8), 4, workers=2) as loader:
        batches = list(loader)

    for of_torch, of_opencv, _ in batches:
        assert of_torch.tolist() == [1] * 4
        assert of_opencv.tolist() == [1] * 4
    assert len({int(pid) for batch in batches for pid in batch[2]}) == 2
    assert (torch.get_num_threads(), cv2.getNumThreads()) == before


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="Windows has no SIGKILL")
@pytest.mark.parametrize("persistent", [False, True])
def test_killed_worker_is_an_error_and_not_a_hang(persistent: bool) -> None:
    """A killed worker is reported within seconds; the next epochs have new ones, and are complete.

    Persistent workers are killed in their second epoch.
    """
    # In a process of its own: torch may also tell from its signal handler, wherever that comes.
    process = script(f"""
import multiprocessing, os, signal
how = dict(workers=2, prefetch=1, persistent_workers={persistent})
for which in (0, 1):
    loader = Loader(loading.Plain(int, 50), 1, **how)
    for _ in range({int(persistent)}):
        list(loader)
    batches = iter(loader)
    next(batches)
    begun = time.monotonic()
    try:
        try:
            os.kill(multiprocessing.active_children()[which].pid, signal.SIGKILL)
            print(len(list(batches)))
        except (RuntimeError, OSError, EOFError):  # of torch, or of its connection to it
            time.sleep(1)
    except RuntimeError:  # of torch's signal handler, which may come later than the other
        pass
    print(time.monotonic() - begun < 20)
    for _ in range(2):
        print([batch.item() for batch in loader] == list(range(50)))
    loader.close()
""")
    out, error = process.communicate(timeout=100)

    assert (out, process.returncode) == ("True\nTrue\nTrue\n" * 2, 0), error


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="Windows has no SIGKILL")
def test_late_batch_is_a_timeout_that_names_its_items() -> None:
    """After `timeout` seconds the error names the items; closing ends the hanging process."""
    with Loader(Plain(hanging, 8), 4, workers=1, timeout=2) as loader:
        others = pids(loader)
        batches = iter(loader)
        next(batches)

        with pytest.raises(TimeoutError, match=r"batch 1 .*\[4, 5, 6, 7\]"):
            next(batches)
        for child in multiprocessing.active_children():
            if child.pid not in others:
                child.terminate()  # torch would give it five seconds
        with pytest.raises(RuntimeError):
            next(batches)


def own_pid(index: int) -> Any:
    return index, os.getpid()


def test_persistent_workers_stay_over_epochs() -> None:
    """The same processes make all epochs, also after one that was left early, until `close`."""
    before = set(multiprocessing.active_children())
    how: dict[str, Any] = {"workers": 2, "persistent_workers": True}
    with Loader(Plain(own_pid, 12), 3, True, **how) as loader:
        epochs = [list(loader), [next(iter(loader))], list(loader)]
        running = set(multiprocessing.active_children()) - before
        made_by = {pid for batches in epochs for batch in batches for pid in batch[1].tolist()}

        assert made_by == {child.pid for child in running}
    assert set(multiprocessing.active_children()) == before


HOOKS = {
    "before": "os.register_at_fork(before=hook)",
    "after": "os.register_at_fork(after_in_parent=hook)",
    "at the end": """
from torch.utils.data.dataloader import _MultiProcessingDataLoaderIter as Batches
end = Batches._shutdown_workers
Batches._shutdown_workers = lambda batches: (end(batches), hook())
""",
}


@pytest.mark.skipif(not hasattr(os, "register_at_fork"), reason="nothing forks here")
@pytest.mark.parametrize(
    ("when", "persistent", "seen"),
    [("before", True, 0), ("after", False, 0), ("at the end", False, 2)],
)
def test_control_c_while_workers_start_or_end_is_not_lost(
    when: str, persistent: bool, seen: int
) -> None:
    """Python drops what is raised in a hook of a fork, such as that of logging."""
    process = script(f"""
import os, signal
armed = [1, 1, 1]
def hook():
    if armed and not armed.pop():
        signal.raise_signal(signal.SIGINT)
{HOOKS[when]}
how = dict(workers=2, persistent_workers={persistent}, multiprocessing_context="fork")
loader = Loader(loading.Plain(int, 8), 4, **how)
for wrap in (lambda loader: loader, lambda loader: Loader(loading.Plain(int, 8), 4, **how)):
    armed[:] = [0]
    seen = []
    try:
        for batch in wrap(loader):
            seen.append(batch)
    except KeyboardInterrupt:
        print(len(seen))
    print(signal.getsignal(signal.SIGINT) is signal.default_int_handler, len(list(loader)))
loader.close()
""")
    out, error = process.communicate(timeout=100)

    assert (out, error) == (f"{seen}\nTrue 2\n" * 2, "")


def test_an_error_of_a_worker_keeps_nothing_alive() -> None:
    """Neither workers after `close`, nor torch's iterator, which as garbage would wait for them."""
    before = set(multiprocessing.active_children())
    with Loader(Plain(stopping, 8), 4, workers=1) as loader:
        batches = iter(loader)
        next(batches)
        with pytest.raises(RuntimeError) as kept:
            next(batches)
    assert set(multiprocessing.active_children()) == before
    assert kept.value.__traceback__ is not None
    gc.disable()
    try:
        batches = iter(Loader(Plain(stopping, 8), 8, workers=1))
        left = weakref.ref(batches)
        with suppress(RuntimeError):
            next(batches)
        del batches
        assert left() is None
    finally:
        gc.enable()


class Late(TimeoutError):
    """What the handler raises."""


class Interrupted(Images):
    """Sends a signal to the training process, once, while that waits for the third batch."""

    thread_safe = True

    def __init__(self) -> None:
        super().__init__(count=8, on_error="skip")
        self.go, self.done = multiprocessing.Event(), multiprocessing.Event()
        self.main = os.getpid()

    def read(self, index: int) -> Any:
        if index == 4:
            self.interrupt()
        return super().read(index)

    def interrupt(self) -> None:
        if not self.done.is_set():
            self.go.wait()
            time.sleep(0.2)  # most likely, the other waits for a batch by now
            os.kill(self.main, signal.SIGUSR1)
            self.done.wait()

    def collate(self, samples: Any) -> Any:
        batch = default_collate(samples)
        if 6 in batch[1]:
            self.interrupt()
        return batch


@pytest.mark.skipif(not hasattr(signal, "SIGUSR1"), reason="no such signals on Windows")
@pytest.mark.parametrize(
    "how",
    [{"threads": 0}, {"threads": 2}, {"threads": 2, "collate": True}, {"workers": 2}],
    ids=str,
)
def test_signal_loses_no_batch(how: dict[str, Any]) -> None:
    """What a signal's handler raises in next() is of no batch: the same one comes next."""
    dataset, came, states = Interrupted(), [], []
    if how.pop("collate", False):
        how["collate_fn"], dataset.read = dataset.collate, super(Interrupted, dataset).read

    def raise_late(*_: object) -> None:
        dataset.done.set()
        raise Late

    usual = signal.signal(signal.SIGUSR1, raise_late)
    try:
        with Loader(dataset, 2, **how) as loader:
            batches = iter(loader)
            while len(came) < 4:
                try:
                    came.append(next(batches)[1].tolist())
                except Late:
                    states.append(loader.state_dict()["batch"] - len(came))
                dataset.go.set()
            assert list(batches) == []
    finally:
        signal.signal(signal.SIGUSR1, usual)

    assert came == [[0, 1], [2, 3], [4, 5], [6, 7]]
    assert states == [0]
    assert dataset.errors == []


class Unsendable(Plain):
    """Its samples, or its errors, are of a class that cannot be pickled."""

    def __init__(self, fails: bool) -> None:
        super().__init__(stopping, 4)
        self.fails = fails

    def __getitem__(self, index: int) -> Any:
        kind = namedtuple("Local", "image label")  # noqa: PYI024 - not at the top
        if self.fails:
            raise type("LocalError", (Exception,), {})("of a local class")
        return kind(torch.ones(3), index)


@pytest.mark.parametrize("fails", [False, True])
@pytest.mark.parametrize("context", multiprocessing.get_all_start_methods())
def test_what_cannot_be_pickled_is_an_error(fails: bool, context: str) -> None:
    """A batch, or an error, that a worker process cannot send reaches the caller in words."""
    words = "LocalError" if fails else "num_workers=0"
    how = {"workers": 1, "multiprocessing_context": context, "timeout": 60}
    raises = pytest.raises((TypeError, RuntimeError), match=words)
    with Loader(Unsendable(fails), 2, **how) as loader, raises:
        next(iter(loader))


def test_what_cannot_be_pickled_is_made_here_if_nobody_asked_for_processes() -> None:
    """As by torch's DataLoader, which takes it without worker processes."""
    with Loader(Unsendable(fails=False), 2) as loader:
        for _ in range(2):
            with pytest.warns(RuntimeWarning):
                batches = list(loader)
            assert [batch.label.tolist() for batch in batches] == [[0, 1], [2, 3]]


def test_too_many_open_files_are_an_error_that_says_so() -> None:
    """Each tensor of a kept batch that a worker process has sent holds one."""
    too_many = pytest.raises(RuntimeError, match="clone")
    large = Plain(lambda index: torch.full((20_000,), index))
    with Loader(large, 1, num_workers=1) as loader, few_files(20), too_many:
        list(loader)


def tensors(index: int) -> dict[str, Any]:
    """Return tensors of which some share their memory."""
    whole = torch.arange(12.0).view(3, 4) + index
    large = torch.arange(30_000) + index
    return {
        "whole": whole,
        "same": [whole.T, whole[1:, 2], whole.view(-1)],
        "kinds": [whole > 3, whole.to(torch.int8), whole.bfloat16(), torch.tensor(index)],
        "empty": torch.empty(0, 3),
        "leaf": torch.ones(2, requires_grad=True),
        "parts": [large[5:9], large[::7]],
        "shared": torch.ones(3).share_memory_(),
    }


def test_small_tensors_come_as_they_were() -> None:
    """They share what memory they did, and hold no file open."""
    with Loader(Plain(tensors, 4), 2, num_workers=1, collate_fn=list) as loader:
        got = [sample for batch in loader for sample in batch]
    expected = [tensors(index) for index in range(4)]

    assert_same(got, expected)
    assert got[0]["leaf"].requires_grad
    for sample in (got[3], expected[3]):
        sample["whole"].fill_(-1)
    assert_same(got[3], expected[3])

    with Loader(Plain(torch.tensor, 50), 1, num_workers=1) as loader, few_files(20):
        assert torch.cat(list(loader)).tolist() == [*range(50)]


@pytest.mark.parametrize("asked", [False, True])
def test_without_shared_memory_it_says_so(asked: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Batches are made here if nobody asked for processes; otherwise an error names /dev/shm."""

    def refused(*_: object, **__: object) -> None:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    monkeypatch.setattr("multiprocessing.synchronize.SemLock.__init__", refused)
    with Loader(Plain(int, 8), 4, **({"workers": 1} if asked else {})) as loader:
        if asked:
            with pytest.raises(OSError, match="/dev/shm"):
                next(iter(loader))
        else:
            with pytest.warns(RuntimeWarning, match="/dev/shm"):
                assert torch.cat(list(loader)).tolist() == [*range(8)]
