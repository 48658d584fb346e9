"""`Loader` with worker processes: the same results, and workers that die."""

from __future__ import annotations

import multiprocessing
import os
import signal
import time
from typing import Any

import pytest
import torch
from loading import (
    PROCESS_WARNINGS,
    Images,
    Plain,
    add_random,
    copies,
    epoch,
    generator_states,
    indices,
    same,
    script,
    wait_until,
)
from loading import (
    SeededLoader as Loader,
)

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


def test_users_own_draws_follow_from_seed_epoch_and_index() -> None:
    """A transform that draws from torch, random and NumPy gives the same with 1 or 2 processes."""
    before = generator_states()

    def epochs(workers: int, seed: int = 1) -> list[Any]:
        with Loader(Images(add_random), 4, True, seed=seed, workers=workers) as loader:
            return [copies(loader), copies(loader)]

    one = epochs(1)

    assert same(epochs(2), one)
    assert not same(epochs(2, seed=2)[0], one[0])
    assert not torch.equal(one[0][0][0][0], one[0][0][0][1])
    assert same(generator_states(), before)


def test_spawned_workers_give_the_same() -> None:
    """Spawned workers, as on macOS and Windows, give the same batches."""
    dataset = Images(damaged=(3,), on_error="skip")
    usual = multiprocessing.get_start_method(allow_none=True)
    multiprocessing.set_start_method("spawn", force=True)
    try:
        made = epoch(dataset, workers=1)
    finally:
        multiprocessing.set_start_method(usual, force=True)

    assert same(made, epoch(dataset, threads=1))
    assert [failure.index for failure in dataset.errors] == [3]


def test_collate_fn_holds_in_workers() -> None:
    """In workers, too, collate_fn gets the samples."""
    made = list(Loader(Images(), 4, workers=1, collate_fn=list))

    assert same(made, list(Loader(Images(), 4, threads=1, collate_fn=list)))


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
def test_killed_worker_is_an_error_and_not_a_hang() -> None:
    """A killed worker is reported within seconds; the next epoch has new ones, and is complete."""
    # In a process of its own: torch may also tell from its signal handler, wherever that comes.
    process = script("""
import multiprocessing, os, signal
for which in (0, 1):
    loader = Loader(loading.Plain(int, 50), 1, workers=2, prefetch=1)
    batches = iter(loader)
    next(batches)
    begun = time.monotonic()
    try:
        os.kill(multiprocessing.active_children()[which].pid, signal.SIGKILL)
        print(len(list(batches)))
    except RuntimeError as error:
        print(time.monotonic() - begun < 20, "killed" in str(error))
        del error
    print([batch.item() for batch in loader] == list(range(50)))
""")
    out, error = process.communicate(timeout=100)

    assert (out, process.returncode) == ("True True\nTrue\n" * 2, 0), error


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="Windows has no SIGKILL")
def test_late_batch_is_a_timeout_that_names_its_items() -> None:
    """After `timeout` seconds the error names the items; closing ends the hanging process."""
    with Loader(Plain(hanging, 8), 4, workers=1, timeout=0.5) as loader:
        others = pids(loader)
        batches = iter(loader)
        next(batches)

        with pytest.raises(TimeoutError, match=r"batch 1 .* items \[4, 5, 6, 7\]"):
            next(batches)
        for child in multiprocessing.active_children():
            if child.pid not in others:
                child.terminate()  # torch would give it five seconds
        with pytest.raises(RuntimeError, match="killed"):
            next(batches)


def test_processes_end_with_their_epoch() -> None:
    """Workers end with the last batch or at `close`, and start again for the next epoch."""
    before = set(multiprocessing.active_children())
    loader = Loader(Images(), 4, workers=2)
    copies(loader)
    assert set(multiprocessing.active_children()) == before
    batches = iter(loader)
    next(batches)
    running = set(multiprocessing.active_children()) - before
    loader.close()

    assert len(running) == 2
    assert set(multiprocessing.active_children()) == before
    with pytest.raises(RuntimeError, match="ended"):
        next(batches)
    assert len(copies(loader)) == 6
    abandoned = iter(loader)
    next(abandoned)
    del loader, batches, abandoned
    wait_until(lambda: set(multiprocessing.active_children()) == before)


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

        older = iter(loader)
        next(older)
        next(iter(loader))
        with pytest.raises(RuntimeError, match="ended"):
            next(older)
    assert set(multiprocessing.active_children()) == before
    with Loader(Plain(own_pid, 12), 3, True, workers=1) as loader:
        expected = [list(loader) for _ in range(3)]
    for epoch_, other in zip(epochs, expected, strict=True):
        assert [batch[0].tolist() for batch in epoch_] == [
            batch[0].tolist() for batch in other[: len(epoch_)]
        ]


def test_persistent_workers_report_each_failure_once() -> None:
    """Damaged samples are listed once, and counted in each epoch; errors of a batch pass by."""
    dataset = Images(damaged=(3,), on_error="skip", wrong={7: KeyError("mine")}, count=12)
    with Loader(dataset, 4, workers=1, persistent_workers=True) as loader:
        for _ in range(2):
            batches = iter(loader)
            first = next(batches)[1].tolist()
            with pytest.raises(KeyError):
                next(batches)
            assert (first, indices(batches)) == ([0, 1, 2], [8, 9, 10, 11])
            assert loader.skipped == 1
        assert [failure.index for failure in dataset.errors] == [3]


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="Windows has no SIGKILL")
def test_persistent_workers_start_again_after_one_was_killed() -> None:
    """The epoch of a killed worker is an error, and the next one has new processes."""
    process = script("""
import multiprocessing, os, signal
loader = Loader(loading.Plain(int, 50), 1, workers=2, prefetch=1, persistent_workers=True)
list(loader)
batches = iter(loader)
next(batches)
try:
    os.kill(multiprocessing.active_children()[0].pid, signal.SIGKILL)
    print(len(list(batches)))
except RuntimeError as error:
    print("killed" in str(error))
    del error
for _ in range(2):
    print([batch.item() for batch in loader] == list(range(50)))
""")
    out, error = process.communicate(timeout=100)

    assert (out, process.returncode) == ("True\nTrue\nTrue\n", 0), error


@pytest.mark.skipif(not hasattr(os, "register_at_fork"), reason="this system does not fork")
@pytest.mark.parametrize("hook", ["before", "after_in_parent", "after_in_child"])
@pytest.mark.parametrize("persistent", [False, True])
def test_control_c_during_a_fork_is_not_lost(hook: str, persistent: bool) -> None:
    """Ctrl-C in a hook around the fork is raised in this process, and leaves no worker."""
    at = 1 if hook == "after_in_child" else 2  # a child has its own list
    process = script(f"""
import multiprocessing, os, signal
forks = []
def interrupt():
    forks.append(0)
    if len(forks) == {at}:
        os.kill(parent, signal.SIGINT)
        time.sleep(0.1)
parent = os.getpid()
loader = Loader(loading.Images(), 4, workers=3, persistent_workers={persistent})
next(iter(loader))
loader.close()
os.register_at_fork({hook}=interrupt)
try:
    for batch in loader:
        print("a batch")
except KeyboardInterrupt:
    print("interrupted")
print(multiprocessing.active_children(), signal.getsignal(signal.SIGINT).__name__)
forks += [0] * 9
print(len(list(loader)))
""")
    out, error = process.communicate(timeout=100)

    assert out == "interrupted\n[] default_int_handler\n6\n", error
    assert process.returncode == 0


@pytest.mark.skipif(not hasattr(signal, "raise_signal"), reason="there are no signals here")
def test_control_c_at_the_end_of_an_epoch_is_not_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C while the workers end reaches the training loop, and the next epoch works."""
    from torch.utils.data import dataloader

    before = set(multiprocessing.active_children())
    shut_down = dataloader._MultiProcessingDataLoaderIter._shutdown_workers
    left = 1

    def interrupted(iterator: Any) -> None:
        nonlocal left
        shut_down(iterator)
        if left:
            left -= 1
            signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(dataloader._MultiProcessingDataLoaderIter, "_shutdown_workers", interrupted)
    usual = signal.signal(signal.SIGINT, signal.default_int_handler)
    loader = Loader(Images(), 4, workers=1)
    seen = []
    try:
        with pytest.raises(KeyboardInterrupt):  # noqa: PT012 - it is about the loop
            for batch in loader:
                seen.append(batch)  # noqa: PERF402 - what came before counts
    finally:
        signal.signal(signal.SIGINT, usual)

    assert len(seen) == 6
    assert set(multiprocessing.active_children()) == before
    assert len(list(loader)) == 6


def test_kept_error_keeps_no_processes() -> None:
    """An error that is kept does not keep the workers after `close`."""
    before = set(multiprocessing.active_children())
    with Loader(Plain(stopping, 8), 4, workers=1) as loader:
        batches = iter(loader)
        next(batches)
        with pytest.raises(RuntimeError) as kept:
            next(batches)

    assert set(multiprocessing.active_children()) == before
    assert kept.value.__traceback__ is not None
