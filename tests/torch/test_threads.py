"""Threads of the loader: other libraries' threads, forks, and the progress bar."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable
from typing import Any

import pytest
import torch
from loading import PROCESS_WARNINGS, Images, Plain, copies, same, script
from same import assert_same
from torch.utils.data._utils.collate import default_collate_fn_map

from fastdecode.torch.loader import Loader


def in_new_thread(function: Callable[[], Any]) -> Any:
    answers: list[Any] = []
    thread = threading.Thread(target=lambda: answers.append(function()))
    thread.start()
    thread.join()
    return answers[0]


@pytest.fixture
def three_threads() -> Any:
    """Let torch use three threads, whatever the machine has."""
    usual = torch.get_num_threads()
    torch.set_num_threads(3)
    yield
    torch.set_num_threads(usual)


@pytest.mark.usefixtures("three_threads")
def test_pool_uses_one_thread_each_and_others_as_before() -> None:
    """In the pool torch uses one thread; here and in new threads nothing changes."""
    seen = []
    with Loader(Plain(lambda _: torch.get_num_threads(), 12), 4, threads=3) as loader:
        batches = iter(loader)  # which starts them
        seen += [torch.get_num_threads(), in_new_thread(torch.get_num_threads)]
        inside = [number for batch in batches for number in batch.tolist()]
    seen += [torch.get_num_threads(), in_new_thread(torch.get_num_threads)]

    assert seen == [3, 3, 3, 3]
    assert inside == [1] * 12


class Counted:
    """A sample of a class that torch's default_collate is taught to stack."""

    @staticmethod
    def stack(samples: list[Counted], **_: object) -> torch.Tensor:
        return torch.tensor([torch.get_num_threads()] * len(samples))


@pytest.mark.usefixtures("three_threads")
@pytest.mark.parametrize("whole", [False, True], ids=["samples", "whole batches"])
def test_batches_are_collated_by_one_thread_of_the_pool(
    monkeypatch: pytest.MonkeyPatch, whole: bool
) -> None:
    """Stacking has one thread, not one per core beside the pool's; an error comes at its batch."""
    monkeypatch.setitem(default_collate_fn_map, Counted, Counted.stack)
    dataset: Any = Plain(lambda at: object() if at >= 8 else Counted(), 12)
    if whole:
        dataset.__class__ = type(
            "Whole", (Plain,), {"__getitems__": lambda self, indices: [self[i] for i in indices]}
        )

    with Loader(dataset, 4, threads=3) as loader:
        batches = iter(loader)
        inside = [next(batches).tolist() for _ in range(2)]
        with pytest.raises(TypeError, match="object"):
            next(batches)

    assert inside == [[1] * 4] * 2
    assert torch.get_num_threads() == 3


def in_child(work: Callable[[], bytes]) -> bytes:
    """Fork, and return the result or the error of the child."""
    reads, writes = os.pipe()
    pid = os.fork()
    if not pid:
        try:
            os.write(writes, work())
        except BaseException as error:
            os.write(writes, repr(error).encode())
        finally:
            os._exit(0)
    os.close(writes)
    with os.fdopen(reads, "rb") as answer:
        said = answer.read()
    os.waitpid(pid, 0)
    return said


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")
@pytest.mark.filterwarnings(PROCESS_WARNINGS[1])
def test_loader_works_on_in_a_forked_child() -> None:
    """In a child, a new epoch starts threads, and an old iterator raises an error."""
    with Loader(Images(), 4, threads=2) as loader:
        expected = [copies(loader), copies(loader)]
        loader.set_epoch(0)
        batches = iter(loader)
        given = copies([next(batches)])

        assert in_child(lambda: str(same(copies(loader), expected[1])).encode()) == b"True"
        assert b"forked from" in in_child(lambda: str(next(batches)).encode())
        assert_same(given + copies(batches), expected[0])

    with Loader(Images(), 4, workers=1) as loader:
        batches = iter(loader)
        next(batches)
        assert b"forked from" in in_child(lambda: str(next(batches)).encode())
        assert len(list(batches)) == len(expected[0]) - 1


LEFT_OPEN = {
    "batches ahead": "held = iter(Loader(loading.Images(count=500), 4, threads=3, prefetch=8))",
    "a prefetcher": """
from fastdecode.torch.prefetcher import DevicePrefetcher
held = iter(DevicePrefetcher(Loader(loading.Images(), 1, threads=2), "meta"))""",
    "a device": "held = iter(Loader(loading.Images(), 1, device='meta'))",
    "the core": """
from fastdecode.samples import photos
from fastdecode.torch import ImageList
from fastdecode.torch.transforms import RandomResizedCropFlipNormalize
held = iter(Loader(ImageList(photos, transform=RandomResizedCropFlipNormalize(64)), 2))""",
}


@pytest.mark.parametrize("late", [False, True], ids=["", "outlives the package"])
@pytest.mark.parametrize("opened", LEFT_OPEN.values(), ids=LEFT_OPEN)
def test_an_exit_in_the_middle_of_an_epoch_is_clean(opened: str, late: bool) -> None:
    """A program that leaves iterators, one replaced and one held, prints nothing and returns 0."""
    again = "\n".join(f"    {line}" for line in f"{opened}\nnext(held)".splitlines())
    process = script(f"import os\nfor _ in range(2):\n{again}\n{'os.held = held' * late}")
    out, error = process.communicate(timeout=60)

    assert (process.returncode, out, error) == (0, "", "")


@pytest.mark.skipif(sys.platform != "linux", reason="limits the memory of a process as Linux does")
def test_no_thread_at_all_is_one_error_everywhere() -> None:
    """`Loader`, with and without a device, and `decode_batch` raise `ThreadsUnavailable`."""
    process = script("""
import resource
import fastdecode, torch
from fastdecode.torch import DevicePrefetcher

data = loading.encoded()[0]
fastdecode.decode(data)
torch.get_num_threads()
threading.stack_size(256 << 20)
used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + (100 << 20), resource.RLIM_INFINITY))
for begin in (
    lambda: next(iter(Loader(loading.Images(on_error="skip"), 4, threads=3))),
    lambda: next(iter(Loader(loading.Images(), 4, threads=0, device="meta"))),
    lambda: fastdecode.decode_batch([data] * 4, threads=3),
    lambda: fastdecode.decode_batch([data] * 4, threads=3, on_error="return"),
    lambda: list(fastdecode.decode_iter([data] * 4, threads=3)),
):
    try:
        begin()
    except fastdecode.ThreadsUnavailable as error:
        print(error)
print(len(fastdecode.decode_batch([data] * 4, threads=1)))
""")
    out, error = process.communicate(timeout=60)

    three = "cannot start 3 threads\n"
    assert (out, error) == (f"{three}cannot start 1 thread\n{three * 3}4\n", "")
