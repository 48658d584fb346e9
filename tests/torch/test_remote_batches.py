"""A batch from a server is requested at once, with one request for neighbours in a shard."""

from __future__ import annotations

import pickle
import threading
from collections.abc import Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest
import torch
from same import assert_same

from fastdecode.stores import create_store, open_store

fsspec = pytest.importorskip("fsspec")

from loading import COUNT, PROCESS_WARNINGS, copies, encoded  # noqa: E402
from loading import SeededLoader as Loader  # noqa: E402
from s3_server import BUCKET, Server, s3_server  # noqa: E402
from torch.utils.data import DataLoader  # noqa: E402

from fastdecode.errors import StoreError  # noqa: E402
from fastdecode.torch import DecodeDataset, StoreDataset  # noqa: E402
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


@pytest.mark.parametrize(("threads", "shuffle"), [(0, True), (1, False), (3, True)])
def test_batches_are_those_of_the_files(
    shards: str, server: Server, tmp_path: Path, threads: int, shuffle: bool
) -> None:
    """They have the same images in the same order as if the shards were on this machine."""
    options = {"shuffle": shuffle, "seed": 3, "threads": threads}
    files = [tmp_path / f"t-{shard:05}.tar" for shard in range(SHARDS)]
    made = []
    for dataset in (
        opened(shards, server),
        StoreDataset(files, RandomResizedCropFlipNormalize(24)),
    ):
        with Loader(dataset, BATCH, **options) as loader:
            made.append(copies(loader))
    assert_same(*made)


@pytest.mark.parametrize("how", [{"threads": 2}, {"threads": 0}, {"workers": 1}], ids=str)
def test_neighbours_in_a_shard_are_one_request(
    shards: str, server: Server, how: dict[str, int]
) -> None:
    """In order, a batch of a shard takes one request, from the first epoch on."""
    dataset = opened(shards, server)
    for _ in range(2):
        server.requests.clear()
        with Loader(dataset, COUNT, **how) as loader:
            assert len(next(iter(loader))[0]) == COUNT
        assert server.requests["GET", ".tar"] == SHARDS


def test_one_shard_that_is_lost_leaves_the_others_their_requests(
    shards: str, server: Server, tmp_path: Path
) -> None:
    """A shard that cannot be opened is an error; those beside it are still read in one request."""
    store = pickle.loads(pickle.dumps(opened(shards, server).store))
    where = f"s3://{BUCKET}/{tmp_path.name}/t-00001.tar"
    fsspec.core.url_to_fs(where, **server.options)[0].rm(where)
    part = -(-COUNT // SHARDS)

    groups = store.groups(list(range(COUNT)))
    assert [len(group) for group in groups] == [part, *[1] * part, COUNT - 2 * part]
    with pytest.raises(FileNotFoundError, match=r"t-00001\.tar"):
        raise store.read_group(groups[1])[0]  # type: ignore[misc]


def test_an_item_that_comes_twice_is_read_for_each(shards: str, server: Server) -> None:
    """A sampler may repeat indices, and use negative ones."""
    dataset = opened(shards, server)
    order = [5, 5, -1, 0, 5, COUNT - 1]
    with Loader(dataset, 6, sampler=order) as loader:
        ((images, targets),) = list(loader)

    assert targets.tolist() == [dataset.store.target(index % COUNT) for index in order]
    assert len(images) == 6


def test_damage_is_told(shards: str, server: Server, tmp_path: Path) -> None:
    """An item that does not match its index is skipped with its name; its neighbours are not."""
    where = f"s3://{BUCKET}/{tmp_path.name}/t-00001.tar"
    system, _ = fsspec.core.url_to_fs(where, **server.options)
    data = bytearray((tmp_path / "t-00001.tar").read_bytes())
    at = data.index(b"04.jpg")
    data[at : at + 6] = b"xx.jpg"
    system.pipe_file(where, bytes(data))
    for how in ({"threads": 0}, {"threads": 2}):
        dataset = opened(shards, server, on_error="skip")
        with Loader(dataset, COUNT, **how) as loader:
            ((_, targets),) = list(loader)
            assert loader.skipped == 1
        assert sorted(targets.tolist()) == [number for number in range(COUNT) if number != 4]
        assert "04.jpg" in dataset.errors[0].path
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

    loader = Loader(Hanging(SMALL), BATCH, threads=2)
    first = first_batch(loader)
    assert begun.wait(30)
    loader.close()
    assert isinstance(first.exception(30), RuntimeError)
    go_on.set()
    assert len(copies(loader)) == 16
    loader.close()


def test_a_store_says_what_it_reads_together(shards: str, server: Server) -> None:
    """Each item is in one group; neighbours in a shard are in the same group."""
    with open_store(shards, storage_options=server.options) as store:
        order = [7, 0, 22, 1, 8]
        groups = store.groups(order)  # which opens the shards
        assert [store.read_group([index]) for index in order] == [
            [bytes(store.read(index))] for index in order
        ]
        assert sorted(map(sorted, groups)) == [[0, 1, 7], [8], [22]]
        for group in groups:
            assert store.read_group(group) == [store.read(index) for index in group]
