"""Reading ahead gives the same batches with fewer requests, many of them at once."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest
import torch
from same import assert_same

from fastdecode.stores import create_store

fsspec = pytest.importorskip("fsspec")

from loading import COUNT, PROCESS_WARNINGS, Images, copies, encoded  # noqa: E402
from loading import SeededLoader as Loader  # noqa: E402
from s3_server import BUCKET, Server, s3_server  # noqa: E402
from torch.utils.data import DataLoader  # noqa: E402

from fastdecode.errors import StoreError  # noqa: E402
from fastdecode.torch import DecodeDataset, Fused, StoreDataset  # noqa: E402
from fastdecode.torch._loader.read_ahead import ReadAhead  # noqa: E402
from fastdecode.torch.transforms import RandomResizedCropFlipNormalize, ResizeCenterCropNormalize  # noqa: E402

BATCH = 4
SHARDS = 3
SMALL = ResizeCenterCropNormalize(32, 24)


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    """Run an S3 server that counts its requests."""
    with s3_server() as running:
        yield running


@pytest.fixture
def shards(server: Server, tmp_path: Path) -> str:
    """Put the images into three shards on the server; return the pattern of their URIs."""
    where = f"s3://{BUCKET}/{tmp_path.name}"
    system, _ = fsspec.core.url_to_fs(where, **server.options)
    for shard in range(SHARDS):
        name = f"t-{shard:05}.tar"
        with create_store(tmp_path / name) as writer:
            for number in range(shard, COUNT, SHARDS):
                writer.add(f"{number:02}.jpg", encoded()[number], number)
        for file in (name, f"{name}.fdx"):
            system.pipe_file(f"{where}/{file}", (tmp_path / file).read_bytes())
    return f"{where}/t-{{00000..{SHARDS - 1:05}}}.tar"


def opened(shards: str, server: Server, **options: Any) -> StoreDataset:
    return StoreDataset(
        shards,
        RandomResizedCropFlipNormalize(24),
        store_options={"storage_options": server.options},
        **options,
    )


def test_neighbours_in_a_shard_are_one_request(shards: str, server: Server) -> None:
    """In order, a batch of a shard takes one request; without reading ahead, one per item.

    That is so from the first epoch on, which opens the shards.
    """
    counts = []
    for read_threads in (0, None, 1):
        dataset = opened(shards, server)
        for _ in range(2):
            server.requests.clear()
            with Loader(dataset, COUNT, read_threads=read_threads, threads=2) as loader:
                assert len(next(iter(loader))[0]) == COUNT
            counts.append(server.requests["GET", ".tar"])

    assert counts == [COUNT] * 2 + [SHARDS] * 4


def test_damage_is_told_as_without(shards: str, server: Server, tmp_path: Path) -> None:
    """An item that does not match its index is skipped with its name; its neighbours are not."""
    where = f"s3://{BUCKET}/{tmp_path.name}/t-00001.tar"
    system, _ = fsspec.core.url_to_fs(where, **server.options)
    data = bytearray((tmp_path / "t-00001.tar").read_bytes())
    at = data.index(b"04.jpg")
    data[at : at + 6] = b"xx.jpg"
    system.pipe_file(where, bytes(data))
    told = []
    for read_threads in (0, None):
        dataset = opened(shards, server, on_error="skip")
        with Loader(dataset, COUNT, read_threads=read_threads) as loader:
            ((_, targets),) = list(loader)
            assert loader.skipped == 1
        assert sorted(targets.tolist()) == [number for number in range(COUNT) if number != 4]
        told.append(dataset.errors)

    assert told[0] == told[1]
    assert "04.jpg" in told[0][0].path
    with (
        Loader(opened(shards, server), COUNT) as loader,
        pytest.raises(StoreError, match=r"04\.jpg"),
    ):
        list(loader)


@pytest.mark.filterwarnings(*PROCESS_WARNINGS)
@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
def test_pytorchs_dataloader_reads_a_batch_at_once(shards: str, server: Server) -> None:
    """Both loaders make one request per shard, in the process and in workers."""
    dataset = opened(shards, server, on_error="skip")
    dataset.transform = SMALL
    expected = [dataset[index][0] for index in range(COUNT)]
    server.requests.clear()
    ((images, targets),) = DataLoader(dataset, COUNT)

    assert_same(images, torch.stack(expected))
    assert server.requests["GET", ".tar"] == SHARDS
    with Loader(dataset, COUNT, workers=1) as loader:
        ((again, same_targets),) = copies(loader)
    assert_same(again, images)
    assert_same(targets, same_targets)


def test_any_dataset_may_be_read_ahead(tmp_path: Path) -> None:
    """With `read_threads`, threads call `read` of any dataset while others decode."""
    many = threading.Barrier(6, timeout=30)

    class Slow(Images):
        thread_safe = True

        def read(self, index: int) -> tuple[Any, Any]:
            if index < 6:
                many.wait()  # passed only by six that read at once
            return super().read(index)

    with Loader(Slow(SMALL), BATCH, threads=1, read_threads=6) as loader:
        assert len(copies(loader)) == -(-COUNT // BATCH)


@pytest.mark.parametrize("threads", [1, 2, 8, 32])
@pytest.mark.parametrize("batch_size", [16, 50, 150])
def test_each_part_of_a_batch_gets_its_own_reads(threads: int, batch_size: int) -> None:
    """However many parts the threads make of it, in the core or one by one."""
    for transform in (SMALL, Fused(SMALL, [torch.neg])):
        images = Images(transform, count=150)
        with Loader(images, batch_size, threads=0, shuffle=True) as loader:
            expected = copies(loader)
        with Loader(images, batch_size, threads=threads, read_threads=2, shuffle=True) as loader:
            assert_same(copies(loader), expected, transform)


def first_batch(loader: Any) -> Future[Any]:
    """Ask for a batch in a thread that does not keep the tests from ending if it hangs."""
    outcome: Future[Any] = Future()

    def ask() -> None:
        try:
            outcome.set_result(next(iter(loader)))
        except RuntimeError as error:
            outcome.set_exception(error)

    threading.Thread(target=ask, daemon=True).start()
    return outcome


def test_closing_frees_who_waits_for_a_read() -> None:
    """A read that hangs does not block `close` or the next loader."""
    begun, go_on = threading.Event(), threading.Event()

    class Hanging(DecodeDataset):
        def __len__(self) -> int:
            return 64

        def read(self, index: int) -> tuple[Any, Any]:
            begun.set()
            go_on.wait(60)
            return encoded()[0], index

    loader = Loader(Hanging(SMALL), BATCH, threads=2, read_threads=2)
    first = first_batch(loader)
    assert begun.wait(30)
    loader.close()
    assert isinstance(first.exception(30), RuntimeError)
    go_on.set()
    assert len(copies(loader)) == 16
    loader.close()


@pytest.mark.parametrize("where", ["_group_reads", "batch"], ids=["a reader", "who asks"])
def test_closing_while_an_epoch_begins_ends_it(where: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever asks for a batch gets an error, even if no thread is left that could make it."""
    closed = threading.Event()
    kind: Any = ReadAhead if where == "batch" else Images
    asked = getattr(kind, where)

    def closing(*arguments: Any) -> Any:
        if not closed.is_set():
            closed.set()
            loader.close()
        return asked(*arguments)

    monkeypatch.setattr(kind, where, closing)
    loader = Loader(Images(SMALL), BATCH, threads=2, read_threads=2)
    assert isinstance(first_batch(loader).exception(30), RuntimeError)
    assert len(copies(loader)) == -(-COUNT // BATCH)
    loader.close()
