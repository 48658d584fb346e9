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
    """A dataset of PNGs, or one whose reading takes time, goes back to samples one by one."""
    png = encoded("PNG")

    class Slow(Sources):
        def read(self, index: int) -> tuple[Any, Any]:
            threading.Event().wait(0.002)
            return super().read(index)

    for dataset in (Sources(*[png] * 200), Slow(*[PLAIN] * 200)):
        with Loader(dataset, 8, threads=2) as loader:
            batches = iter(loader)
            for _ in range(24):
                next(batches)
            lanes = batches._source._lane  # type: ignore[attr-defined]

            assert not lanes.pays
            assert lanes._asked < 200
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
