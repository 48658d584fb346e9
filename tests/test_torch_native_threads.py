"""`Loader` by way of the native core: who does what, how threads end, what a fork leaves."""

from __future__ import annotations

import os
import threading
from typing import Any

import pytest

pytest.importorskip("fastdecode.native._core")
torch = pytest.importorskip("torch")

from loading import PROCESSES, copies, crew, eventually, same  # noqa: E402
from native_lane import (  # noqa: E402
    PHOTOS,
    PLAIN,
    Made,
    Sources,
    _made,  # noqa: F401 - the fixture
    encoded,
    mixed,
)

from fastdecode.torch.loader import Loader  # noqa: E402
from fastdecode.torch.transforms import RandomResizedCropFlipNormalize  # noqa: E402


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
    """Threads end, nobody hangs, and the next epoch is whole."""
    eventually(lambda: crew() == [])
    dataset = Sources(
        *[str(path) for path in PHOTOS] * 20, transform=RandomResizedCropFlipNormalize(100)
    )
    loader = Loader(dataset, 30, threads=2)
    for _ in range(3):
        next(iter(loader))
        loader.close()

        assert crew() == []
    assert len(copies(loader)) == 4
    loader.close()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")
@pytest.mark.filterwarnings(PROCESSES[1])
def test_forked_children_go_on() -> None:
    """A loader that has been used makes the same batches in a forked child."""
    with Loader(mixed(), 6, threads=2) as loader:
        expected = copies(loader)
        loader.set_epoch(0)
        pid = os.fork()
        if not pid:
            equal = False
            try:
                equal = same(copies(loader), expected)
                loader.close()
            finally:
                os._exit(0 if equal else 1)

        assert os.waitpid(pid, 0)[1] == 0
        assert same(copies(loader), expected)
