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

import argparse
import asyncio
import multiprocessing
import random
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

from record import record
from reference import photos_in
from torch.utils.data import DataLoader

from fastdecode._system import usable_cores
from fastdecode.stores import Store, create_store, open_store
from fastdecode.torch import Loader, ShardStream, StoreDataset
from fastdecode.torch.transforms import RandomResizedCropFlipNormalize

_BATCH = 64
_BEFORE = "decoding threads read"


class _Server:
    """A bucket that is a folder."""

    def __init__(self, folder: Path, latency: float) -> None:
        self.files = {f"/bucket/{path.name}": path.read_bytes() for path in folder.iterdir()}
        self.latency = latency
        self.asked = 0

    async def talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer the requests of a connection."""
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                lines = head.decode("latin-1").split("\r\n")
                method, path, _ = lines[0].split(" ", 2)
                fields = dict(line.lower().split(": ", 1) for line in lines[1:] if ": " in line)
                self.asked += 1
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
        if path == "/asked":
            data, self.asked = str(self.asked - 1).encode(), 0
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


def epoch(store: Store, images: int, threads: int, **options: Any) -> float:
    """Make the batches of an epoch; seconds."""
    dataset = StoreDataset(store, RandomResizedCropFlipNormalize(224))
    with Loader(dataset, _BATCH, threads=threads, **options) as loader:
        start = perf_counter()
        made = sum(len(batch[0]) for batch in loader)
        seconds = perf_counter() - start
    if made != images:
        sys.exit(f"{loader!r} gave {made} images")
    return seconds


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


def measure(options: argparse.Namespace, where: str, storage: dict[str, Any]) -> dict[str, Any]:
    """Do everything in each round; seconds of each."""
    store = open_store(where, storage_options=storage)
    for shard in range(options.shards):  # each is open before the time is taken
        store.read(shard * options.images // options.shards)
    count, threads = options.images, options.threads
    jobs: dict[str, Callable[[], float]] = {
        _BEFORE: lambda: epoch(store, count, threads, shuffle=True, read_threads=0),
        "32 threads read ahead": lambda: epoch(store, count, threads, shuffle=True),
        "in order, read ahead": lambda: epoch(store, count, threads),
        "stream": lambda: stream(where, count, threads, storage),
    }
    found: dict[str, list[float]] = {name: [] for name in jobs}
    for _ in range(options.rounds):
        for name in random.sample(list(jobs), len(jobs)):
            found[name].append(jobs[name]())
            print(f"{name}: {options.images / found[name][-1]:.0f} images/s", flush=True)
    return {
        name: {
            "images_per_s": round(options.images / median(seconds), 1),
            "to_before": round(
                median(was / now for was, now in zip(found[_BEFORE], seconds, strict=True)), 2
            ),
            "rounds": [round(options.images / each, 1) for each in seconds],
        }
        for name, seconds in found.items()
    }


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("photos", type=Path, metavar="PHOTOS")
    parser.add_argument("--images", type=int, default=400)
    parser.add_argument("--shards", type=int, default=4)
    parser.add_argument("--latency", type=float, default=0.1, metavar="S")
    parser.add_argument("--threads", type=int, default=usable_cores())
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", type=Path, metavar="FILE")
    return parser.parse_args()


def main() -> None:
    options = arguments()
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
    for name, row in result.items():
        print(f"{name:<24}{row['images_per_s']:>8.0f} images/s {row['to_before']:>7.2f}x")
    if options.json:
        settings = {
            "photos": options.photos.resolve().name,
            "images": options.images,
            "bytes": size,
            "shards": options.shards,
            "latency_s": options.latency,
            "threads": options.threads,
            "rounds": options.rounds,
        }
        print(record(str(options.json.resolve().with_suffix("")), result, **settings))


if __name__ == "__main__":
    main()
