"""How many requests does each reader send to an object store?

PHOTOS contains JPEG photos. They are repeated up to `--images` and put, as files and in tar shards
with indexes, into a bucket of the tests' S3 server (`tests/support/s3_server.py`). Each reader
opens them and returns every image once. The script counts requests and does not time them: on one
machine that would be the time of the server.

- "Loader": `StoreDataset` and `Loader`, in a shuffled order;
- "ShardStream": in DataLoader, without worker processes;
- "Ray": `fastdecode.ray.read_images`, on a cluster of one node, in tasks of `--task` images.

Opening and reading are counted separately: with a manifest or a list of shards, opening costs less.
"""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import cycle, islice
from pathlib import Path
from typing import Any

import _common as bench
import fsspec
from ray_scaling import ray
from remote import write_shards
from s3_server import BUCKET, Server, s3_server
from torch.utils.data import DataLoader

import fastdecode.ray
from fastdecode.stores import open_store
from fastdecode.stores.tar import index_tar
from fastdecode.torch import Loader, ShardStream, StoreDataset
from fastdecode.torch.transforms import ResizeCenterCrop


def fill(server: Server, photos: list[Path], images: int, per_shard: int) -> int:
    """Write the files and the shards into the bucket; return the total size of the images."""
    system = fsspec.filesystem("s3", **server.options)
    for number, photo in enumerate(islice(cycle(photos), images)):
        system.put(str(photo), f"{BUCKET}/files/{number % 2}/{number:06d}.jpg")
    with tempfile.TemporaryDirectory() as folder:
        size = write_shards(photos, images, -(-images // per_shard), Path(folder))
        for shard in sorted(Path(folder).glob("*.tar")):
            index_tar(shard)
        system.put(f"{folder}/", f"{BUCKET}/shards/", recursive=True)
    return size


def count_requests(server: Server) -> dict[str, int]:
    """Return the number of requests since the last call, by kind."""
    found: Counter[str] = Counter()
    for (method, suffix), count in server.requests.items():
        found["LIST" if method == "GET" and not suffix else method] += count
    server.requests.clear()
    return dict(sorted(found.items()))


def readers(options: Any, access: dict[str, Any]) -> dict[str, Callable[[], Iterator[int]]]:
    """Return the readers: each opens its source, yields 0, then the size of each batch."""
    files, shards = f"s3://{BUCKET}/files", f"s3://{BUCKET}/shards/train-*.tar"

    def loader(where: str) -> Iterator[int]:
        store = open_store(where, storage_options=access)
        batches = Loader(StoreDataset(store, ResizeCenterCrop(64, 64)), 64, shuffle=True)
        yield 0
        for images, _ in batches:
            yield len(images)

    def stream() -> Iterator[int]:
        samples = ShardStream(shards, ResizeCenterCrop(64, 64), storage_options=access)
        yield 0
        for images, _ in DataLoader(samples, 64):
            yield len(images)

    def on_ray(where: str) -> Iterator[int]:
        dataset = fastdecode.ray.read_images(
            where,
            size=64,
            store_options={"storage_options": access},
            override_num_blocks=-(-options.images // options.task),
        )
        yield 0
        for batch in dataset.iter_batches(batch_size=None):
            yield len(batch["image"])

    return {
        "files, Loader": lambda: loader(files),
        "files, Ray": lambda: on_ray(files),
        "shards, Loader": lambda: loader(shards),
        "shards, Ray": lambda: on_ray(shards),
        "shards, ShardStream": stream,
    }


@bench.command(
    images=(1200, "as files, and in shards"),
    shard=(600, "images of a shard"),
    task=(100, "images of a Ray task"),
)
def main(options: Any) -> Any:
    result: dict[str, Any] = {}
    with s3_server() as server:
        photos = bench.photos_in(options.photos)
        size = fill(server, photos, options.images, options.shard)
        ray.init(num_cpus=2, log_to_driver=False, logging_level="ERROR")
        for name, reader in readers(options, server.options).items():
            # Each reader starts as in a new process.
            fsspec.filesystem("s3", **server.options).invalidate_cache()
            server.requests.clear()
            reading = reader()
            next(reading)
            opened = count_requests(server)
            images = sum(reading)
            assert images == options.images, (name, images)
            result[name] = {"opening": opened, "reading": count_requests(server)}
            print(name, result[name], flush=True)
        ray.shutdown()
    options.bytes_per_image = size // options.images
    options.images_per_shard, options.images_per_task = options.shard, options.task
    return result


if __name__ == "__main__":
    main()
