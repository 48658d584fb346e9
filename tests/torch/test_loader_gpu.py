"""`Loader` on a GPU: what it decodes there, streams, and memory.

`torch.cuda._sleep` makes a stream late, so that whoever fails to wait for it is found out.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any

import pytest
import torch
from gpus import LATE, NEEDS_CUDA, consumer  # noqa: F401 - a fixture
from loading import SeededLoader as Loader
from loading import Sources
from same import assert_same
from torch_reference import decibels

from fastdecode.errors import BackendUnavailable
from fastdecode.gpu import check_device, choose
from fastdecode.testing import encode, photo
from fastdecode.torch._loader.transfer import CudaTransfer
from fastdecode.torch.transforms import RandomResizedCrop

pytestmark = NEEDS_CUDA
SEGMENT = 20 << 20
"""Bytes by which PyTorch's allocator grows for tensors like ours, at least."""


@pytest.fixture(params=["cpu", "gpu"])
def decode(request: pytest.FixtureRequest) -> str:
    """Decode on the GPU and on the CPU; skip if no backend decodes on the GPU."""
    if request.param == "gpu":
        try:
            choose(check_device("cuda"), "gpu")
        except BackendUnavailable as error:
            pytest.skip(str(error))
    return str(request.param)


def nearly(sums: list[float]) -> Any:
    """Compare sums of batches, which other pixels change by thousands."""
    return pytest.approx(sums, abs=100)


@cache
def photos() -> list[bytes]:
    """Make 40 photos of about 375 x 500, some of which only the CPU reads."""
    made = [encode(photo(375 - i, 500 - 2 * i), quality=90) for i in range(36)]
    made.insert(3, encode(photo(300, 400), progressive=True))
    made.insert(11, encode(photo(300, 400, "CMYK")))
    made.insert(17, encode(photo(300, 400), "png"))
    made.insert(21, made[0][:-2])
    return made


def loader(decode: str, size: int = 64, **options: Any) -> Loader:
    dtype = options.pop("dtype", torch.float32)
    crop = RandomResizedCrop(size, dtype=dtype, quality="exact", flip=0.5)
    dataset = Sources(*photos(), transform=crop)
    return Loader(dataset, 8, True, seed=1, threads=4, device="cuda", decode=decode, **options)


def late(loader: Loader, batches: Iterator[Any]) -> Iterator[Any]:
    """Iterate while the loader's own streams are always late."""
    transfer: Any = loader._delivery._prefetcher._transfer
    inner = getattr(transfer, "_inner", transfer)
    for batch in batches:
        for stream in (getattr(transfer, "_stream", None), inner._side):
            if stream is not None:
                with torch.cuda.stream(stream):
                    torch.cuda._sleep(LATE)
        yield batch


@pytest.mark.parametrize("channels_last", [False, True])
def test_images_are_near_those_of_the_cpu(decode: str, channels_last: bool) -> None:
    """Images have at least 30 dB, in order, with the same boxes, flips and labels."""
    options: dict[str, Any] = {"dtype": torch.uint8, "channels_last": channels_last}
    layout = torch.channels_last if channels_last else torch.contiguous_format

    worst = float("inf")
    with loader(decode, 224, **options) as ours, loader("cpu", 224, **options) as theirs:
        for (images, labels), (expected, wanted) in zip(ours, theirs, strict=True):
            assert images.device.type == "cuda"
            assert images.is_contiguous(memory_format=layout)
            assert_same(labels, wanted)
            worst = min(worst, *map(decibels, images, expected))

    assert worst >= 30, f"{worst:.1f} dB"


@pytest.mark.parametrize("channels_last", [False, True])
def test_floats_made_there_are_those_of_the_host(
    monkeypatch: pytest.MonkeyPatch, channels_last: bool
) -> None:
    """Bytes are copied, and the floats are equal."""
    staged = []
    original = CudaTransfer.stage

    def stage(self: CudaTransfer, batch: Any) -> Any:
        made = original(self, batch)
        staged.append(made.batch.batch[0].dtype)
        return made

    with loader("cpu", channels_last=channels_last) as host:
        expected = list(host)
    monkeypatch.setattr(CudaTransfer, "stage", stage)
    with loader("cpu", channels_last=channels_last, normalize_on="device") as device:
        for (images, _), (wanted, _) in zip(device, expected, strict=True):
            assert_same(images, wanted, within=1e-6)
            assert images.stride() == wanted.stride()

    assert set(staged) == {torch.uint8}


@pytest.mark.usefixtures("consumer")
@pytest.mark.parametrize("consume", ["keeps", "drops", "on other streams"])
@pytest.mark.parametrize("normalize_on", ["host", "device"])
def test_nothing_is_read_too_early_or_overwritten(
    decode: str, normalize_on: Any, consume: str
) -> None:
    """Sums are right while streams are late, of batches that are kept, dropped, or elsewhere."""
    with loader(decode, normalize_on=normalize_on) as first:
        expected = [images.sum(dtype=torch.float64).item() for images, _ in first]
    streams = [torch.cuda.Stream() for _ in range(3)]
    kept, sums = [], []
    with loader(decode, normalize_on=normalize_on) as second:
        batches = iter(second) if consume == "drops" else late(second, iter(second))
        for at in range(len(expected)):
            other = streams[at % 3] if consume == "on other streams" else None
            with torch.cuda.stream(other):
                images, _ = next(batches)
                torch.cuda._sleep(LATE)
                sums.append(images.sum(dtype=torch.float64))
            kept += [images] if consume == "keeps" else []
            del images
    torch.cuda.synchronize()

    assert [one.item() for one in sums] == nearly(expected)
    again = [one.sum(dtype=torch.float64).item() for one in kept]
    assert again == [one.item() for one in sums[: len(kept)]]


@pytest.mark.parametrize("normalize_on", ["host", "device"])
def test_memory_does_not_grow_over_50_epochs(decode: str, normalize_on: Any) -> None:
    """What is taken of the device after 10 epochs is enough for 40 more.

    But for two segments of PyTorch's allocator: crops differ, and with them what is needed to
    resize them. A stream for each epoch, or a batch that is never let go, would be 40 segments. Of
    what decoders take only the device knows; their own pool may grow by as much again.
    """
    reserved, taken = [], []
    with loader(decode, 224, normalize_on=normalize_on) as one:
        for _ in range(50):
            for images, _ in one:
                images.mean()
            torch.cuda.synchronize()
            reserved.append(torch.cuda.memory_reserved())
            free, total = torch.cuda.mem_get_info()
            taken.append(total - free)

    assert reserved[-1] <= reserved[9] + 2 * SEGMENT, [size >> 20 for size in reserved]
    assert taken[-1] <= taken[9] + 4 * SEGMENT, [size >> 20 for size in taken]


def test_leaving_early_gives_everything_back(decode: str) -> None:
    """Batches that were decoded ahead are freed with the iterator, and threads with the loader."""

    def allocated() -> int:
        torch.cuda.synchronize()
        # Each thread's cuBLAS has a workspace for each stream, which PyTorch's allocator gives it.
        torch._C._cuda_clearCublasWorkspaces()
        return torch.cuda.memory_allocated()

    before = allocated()
    with loader(decode) as one:
        for _ in range(5):
            batches = iter(one)
            images, _ = next(batches)
            del images, batches

    # Constants of normalising stay; a batch would be 400 kB.
    assert allocated() - before < 100_000


def test_pin_memory_pins_batches_that_stay_on_the_host() -> None:
    """Images and labels are page-locked, in threads and for samples of any kind."""
    files = Sources(*[encode(photo(300, 400))] * 6, transform=RandomResizedCrop(64))
    with Loader(files, 4, threads=2) as loader:
        expected = [[part.clone() for part in batch] for batch in loader]
    with Loader(files, 4, threads=2, pin_memory=True) as loader:
        found = list(loader)

    assert {part.is_pinned() for batch in found for part in batch} == {True}
    assert_same(found, expected)
