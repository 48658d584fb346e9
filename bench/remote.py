"""What does requesting a batch at once gain on an object store behind a slow network?

PHOTOS contains JPEG photos. They are repeated up to `--images` and packed into tar shards. A
process on 127.0.0.1 serves the shards; it waits `--latency` seconds before each answer and costs
next to nothing otherwise. An epoch is then made in these ways:

- "item by item": ``Loader``, with batches of one, whose threads wait for each item;
- "batches": ``Loader``, shuffled;
- "batches in order": the same without shuffling, so one request fetches neighbours in a shard;
- "stream": `ShardStream` in one process, which reads shards from end to end.

They take turns, in a new random order each round. Opening the store is not timed. Figures are
medians, ratios are medians of the ratios within a round.
"""

from __future__ import annotations

import multiprocessing
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import _common as bench
from stores import train
from torch.utils.data import DataLoader

from fastdecode._system.processor import usable_cores
from fastdecode.stores import create_store, open_store
from fastdecode.torch import ShardStream
from fastdecode.torch.transforms import RandomResizedCropFlipNormalize

_BATCH = 64
_BEFORE = "item by item"
_BUCKET = "bucket"


def write_shards(photos: Sequence[Path], images: int, shards: int, folder: Path) -> int:
    """Write so many images into tar shards; return their total size in bytes."""
    size = 0
    for shard in range(shards):
        with create_store(folder / f"train-{shard:05}.tar") as writer:
            for at in range(shard * images // shards, (shard + 1) * images // shards):
                data = photos[at % len(photos)].read_bytes()
                size += len(data)
                writer.add(f"{at:07}.jpg", data, at % 10)
    return size


class _Object(BaseHTTPRequestHandler):
    """The part of S3's interface that reading objects by their keys needs."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # else the body waits until the client has received the headers
    files: dict[str, bytes]
    latency: float

    def do_GET(self) -> None:
        time.sleep(self.latency)
        data = self.files.get(self.path.partition("?")[0])
        status, span = 404 if data is None else 200, self.headers["Range"]
        data = data or b""
        if span:
            first, _, last = span.removeprefix("bytes=").partition("-")
            status, data = 206, data[int(first) : int(last) + 1 if last else None]
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        self.send_header("ETag", '"1"')
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(data)

    do_HEAD = do_GET  # noqa: N815 - http.server's names

    def log_message(self, *_words: object) -> None:
        pass


class _Server(ThreadingHTTPServer):
    request_queue_size = 128  # all reading threads connect at once


def _serve(folder: Path, latency: float, port: Any) -> None:
    _Object.files = {f"/{_BUCKET}/{path.name}": path.read_bytes() for path in folder.iterdir()}
    _Object.latency = latency
    with _Server(("127.0.0.1", 0), _Object) as server:
        port.send(server.server_port)
        server.serve_forever()


@contextmanager
def served(folder: Path, latency: float) -> Iterator[dict[str, Any]]:
    """Serve a folder's files from a process; yield the storage options."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    server = context.Process(target=_serve, args=(folder, latency, theirs), daemon=True)
    server.start()
    try:
        where = {"endpoint_url": f"http://127.0.0.1:{ours.recv()}", "region_name": "us-east-1"}
        yield {"key": "none", "secret": "none", "client_kwargs": where}
    finally:
        server.terminate()
        server.join()


def stream(where: str, images: int, threads: int, options: dict[str, Any]) -> float:
    """Read the shards from end to end; return seconds."""
    samples = ShardStream(
        where,
        RandomResizedCropFlipNormalize(224),
        threads=threads,
        storage_options=options,
        has_targets=True,
    )
    start = time.perf_counter()
    made = sum(len(batch[0]) for batch in DataLoader(samples, _BATCH))
    if made != images:
        sys.exit(f"the stream gave {made} images")
    return time.perf_counter() - start


def measure(options: Any, where: str, storage: dict[str, Any]) -> dict[str, Any]:
    """Run all ways in each round; return the images/s of each."""
    store = open_store(where, storage_options=storage)
    for shard in range(options.shards):  # opens each shard before the clock starts
        store.read(shard * options.images // options.shards)
    epoch = partial(train, store, options.threads)
    ways: dict[str, Callable[[], float]] = {
        _BEFORE: partial(epoch, batch=1),
        "batches": epoch,
        "batches in order": partial(epoch, shuffle=False),
        "stream": partial(stream, where, options.images, options.threads, storage),
    }

    def turn(way: Callable[[], float]) -> dict[str, float]:
        return {"images_per_s": options.images / way()}

    competitors = {name: partial(turn, way) for name, way in ways.items()}
    turns = bench.take_turns(competitors, options.rounds, warm_up=False)
    return bench.sum_up(turns, to_before=_BEFORE)


@bench.command(
    images=(400, "in all shards"),
    shards=(4, "of tar"),
    latency=(0.1, "seconds before each answer"),
    threads=(usable_cores(), "of the Loader"),
    rounds=(3, "of all ways"),
)
def main(options: Any) -> Any:
    with tempfile.TemporaryDirectory() as temporary:
        folder, photos = Path(temporary), bench.photos_in(options.photos)
        size = write_shards(photos, options.images, options.shards, folder)
        with served(folder, options.latency) as storage:
            where = f"s3://{_BUCKET}/train-{{00000..{options.shards - 1:05}}}.tar"
            result = measure(options, where, storage)
    bench.show("", result)
    options.bytes = size
    return result


if __name__ == "__main__":
    main()
