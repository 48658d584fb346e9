"""What reading ahead gains: `Loader` on an object store behind a slow network.

    python bench/remote.py PHOTOS [--images 400] [--shards 4] [--latency 0.1] [--threads 2]
                           [--rounds 3] [--json FILE]

PHOTOS holds JPEG photos. They are packed into tar shards, copied until there are enough, and served
by a process of this script that speaks as much of S3 as reading needs, on 127.0.0.1. It waits so
many seconds before each answer, and costs next to nothing otherwise. Then an epoch is made:

- "decoding threads read": ``Loader(read_threads=0)``, as it was before there were others;
- "32 threads read ahead": ``Loader``, shuffled;
- "in order, read ahead": likewise, not shuffled, so that neighbours in a shard come by one request;
- "stream": `ShardStream` in one process, which reads shards from end to end.

They take turns in each round, in an order drawn anew. Opening the store is not counted. Figures are
medians, ratios medians of those within a round.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import sys
import tempfile
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import Any

from _common import each, keep, last, parser, photos_in, rates, show, take_turns
from stores import train
from torch.utils.data import DataLoader

from fastdecode._system import usable_cores
from fastdecode.stores import create_store, open_store
from fastdecode.torch import ShardStream
from fastdecode.torch.transforms import RandomResizedCropFlipNormalize

_BATCH = 64
_BEFORE = "decoding threads read"


class _Server:
    """A bucket that is a folder."""

    def __init__(self, folder: Path, latency: float) -> None:
        self.files = {f"/bucket/{path.name}": path.read_bytes() for path in folder.iterdir()}
        self.latency = latency

    async def talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer the requests of a connection."""
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                lines = head.decode("latin-1").split("\r\n")
                method, path, _ = lines[0].split(" ", 2)
                fields = dict(line.lower().split(": ", 1) for line in lines[1:] if ": " in line)
                await asyncio.sleep(self.latency)
                writer.write(self.answer(method, path.partition("?")[0], fields.get("range")))
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass  # the other side has hung up
        finally:
            writer.close()

    def answer(self, method: str, path: str, span: str | None) -> bytes:
        """Return a response with its headers."""
        data = self.files.get(path)
        if data is None:
            return b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n"
        status, length = "200 OK", len(data)
        if span:
            first, _, last = span.removeprefix("bytes=").partition("-")
            data = data[int(first) : int(last) + 1 if last else None]
            status = "206 Partial Content"
        size = length if method == "HEAD" else len(data)
        head = f'HTTP/1.1 {status}\r\nContent-Length: {size}\r\nETag: "1"\r\n\r\n'
        return head.encode() + (b"" if method == "HEAD" else data)


def serve(folder: Path, latency: float, port: Any) -> None:
    """Serve a folder until the process is ended; tell the port."""

    async def run() -> None:
        server = await asyncio.start_server(_Server(folder, latency).talk, "127.0.0.1", 0)
        port.send(server.sockets[0].getsockname()[1])
        await server.serve_forever()

    asyncio.run(run())


def make(photos: list[Path], images: int, shards: int, folder: Path) -> int:
    """Write the shards; return how many bytes the photos have."""
    size = 0
    for shard in range(shards):
        with create_store(folder / f"train-{shard:05}.tar") as writer:
            for at in range(shard * images // shards, (shard + 1) * images // shards):
                data = photos[at % len(photos)].read_bytes()
                size += len(data)
                writer.add(f"{at:07}.jpg", data, at % 10)
    return size


def stream(where: str, images: int, threads: int, options: dict[str, Any]) -> float:
    """Read the shards from end to end; seconds."""
    samples = ShardStream(
        where,
        RandomResizedCropFlipNormalize(224),
        threads=threads,
        storage_options=options,
        has_targets=True,
    )
    start = perf_counter()
    made = sum(len(batch[0]) for batch in DataLoader(samples, _BATCH))
    if made != images:
        sys.exit(f"the stream gave {made} images")
    return perf_counter() - start


def measure(options: Any, where: str, storage: dict[str, Any]) -> dict[str, Any]:
    """Do everything in each round; images/s of each."""
    store = open_store(where, storage_options=storage)
    for shard in range(options.shards):  # each is open before the time is taken
        store.read(shard * options.images // options.shards)
    epoch = partial(train, store, options.threads)
    lanes = {
        _BEFORE: partial(epoch, read_threads=0),
        "32 threads read ahead": epoch,
        "in order, read ahead": partial(epoch, shuffle=False),
        "stream": partial(stream, where, options.images, options.threads, storage),
    }
    turns = last(take_turns(lanes, options.rounds, warm_up=False))
    return rates(each(turns, lambda seconds: options.images / seconds), to_before=_BEFORE)


def main() -> None:
    options = parser(
        __doc__,
        images=(400, "of all shards"),
        shards=(4, "of tar"),
        latency=(0.1, "seconds before each answer"),
        threads=(usable_cores(), "of the Loader"),
        rounds=(3, "of all"),
    ).parse_args()
    context = multiprocessing.get_context("spawn")
    with tempfile.TemporaryDirectory() as temporary:
        size = make(photos_in(options.photos), options.images, options.shards, Path(temporary))
        ours, theirs = context.Pipe()
        server = context.Process(
            target=serve, args=(Path(temporary), options.latency, theirs), daemon=True
        )
        server.start()
        try:
            address = f"http://127.0.0.1:{ours.recv()}"
            storage = {
                "key": "none",
                "secret": "none",
                "client_kwargs": {"endpoint_url": address, "region_name": "us-east-1"},
            }
            where = f"s3://bucket/train-{{00000..{options.shards - 1:05}}}.tar"
            result = measure(options, where, storage)
        finally:
            server.terminate()
            server.join()
    show("", result)
    names = ("images", "shards", "threads", "rounds")
    keep(options, result, *names, bytes=size, latency_s=options.latency)


if __name__ == "__main__":
    main()
