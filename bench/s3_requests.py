"""How many requests does each reader send to an object store?

    python bench/s3_requests.py PHOTOS [--images 1200] [--shard 600] [--task 100] [--json FILE]

PHOTOS holds JPEG photos; they are copied until there are enough, to a server of S3's interface on
this machine (moto), one by one and in tar shards with indexes. Each reader then opens them and
gives every image once; the server's log has a line for each request. Counted are requests, and not
their time, which on this machine would be that of the server.

- "Loader": `StoreDataset` and `Loader`, in a shuffled order;
- "ShardStream": in DataLoader, without worker processes;
- "Ray": `fastdecode.ray.read_images`, on a cluster of one node, in tasks of `--task` images.

Opening and reading are counted apart: with a manifest, or a list of shards, opening costs less.
"""

from __future__ import annotations

import logging
import re
import tempfile
import urllib.request
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import cycle, islice
from pathlib import Path
from typing import Any

import fsspec
from _common import keep, parser, photos_in
from _ray import ray
from moto.server import ThreadedMotoServer
from torch.utils.data import DataLoader

import fastdecode.ray
from fastdecode.stores import create_store, open_store
from fastdecode.stores.tar import index_tar
from fastdecode.torch import Loader, ShardStream, StoreDataset
from fastdecode.torch.transforms import ResizeCenterCrop

_BUCKET = "photos"
_LINE = re.compile(r"(GET|HEAD) (\S+) HTTP")


class Log(logging.Handler):
    """Counts the lines of the server's log, by the kind of request."""

    def __init__(self) -> None:
        super().__init__(logging.INFO)
        self.asked: Counter[str] = Counter()

    def emit(self, line: logging.LogRecord) -> None:
        found = _LINE.search(line.getMessage())
        if found:
            listing = found[1] == "GET" and "list-type" in found[2]
            self.asked["LIST" if listing else found[1]] += 1

    def taken(self) -> dict[str, int]:
        """Return what has been asked since the last call."""
        found, self.asked = dict(sorted(self.asked.items())), Counter()
        return found


@contextmanager
def server() -> Iterator[tuple[dict[str, Any], Log]]:
    """Run a server; give what s3fs wants to know of it, and its log."""
    running = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    running.start()
    log, lines = logging.getLogger("werkzeug"), Log()
    log.setLevel(logging.INFO)
    log.propagate = False
    log.addHandler(lines)
    host, port = running.get_host_and_port()
    address = f"http://{host}:{port}"
    urllib.request.urlopen(urllib.request.Request(f"{address}/{_BUCKET}", method="PUT")).close()
    where = {"endpoint_url": address, "region_name": "us-east-1"}
    try:
        yield {"key": "none", "secret": "none", "client_kwargs": where}, lines
    finally:
        running.stop()


def upload(photos: list[Path], options: Any, system: Any) -> int:
    """Fill the bucket; return how many bytes of images there are."""
    total = 0
    several = list(islice(cycle(photos), options.images))
    for number, photo in enumerate(several):
        data = photo.read_bytes()
        total += len(data)
        system.pipe_file(f"{_BUCKET}/files/{number % 2}/{number:06d}.jpg", data)
    with tempfile.TemporaryDirectory() as folder:
        for number, begin in enumerate(range(0, len(several), options.shard)):
            shard = Path(folder, f"t-{number:05d}.tar")
            with create_store(shard) as writer:
                for at, photo in enumerate(several[begin : begin + options.shard], begin):
                    writer.add(f"{at:06d}.jpg", photo.read_bytes(), at % 2)
            index_tar(shard)
            for file in (shard, shard.with_name(f"{shard.name}.fdx")):
                system.put_file(str(file), f"{_BUCKET}/shards/{file.name}")
                file.unlink()
    return total


def readers(options: Any, access: dict[str, Any]) -> dict[str, Callable[[], Iterator[int]]]:
    """Name the readers: each opens, yields 0, and then how many images it gives at a time."""
    files, shards = f"s3://{_BUCKET}/files", f"s3://{_BUCKET}/shards/t-*.tar"

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


def main() -> None:
    options = parser(
        __doc__,
        images=(1200, "as files, and in shards"),
        shard=(600, "images of a shard"),
        task=(100, "images of a task of Ray"),
    ).parse_args()
    result: dict[str, Any] = {}
    with server() as (access, log):
        system, _ = fsspec.core.url_to_fs(f"s3://{_BUCKET}", **access)
        size = upload(photos_in(options.photos), options, system)
        ray.init(num_cpus=2, log_to_driver=False, logging_level="ERROR", include_dashboard=False)
        for name, reader in readers(options, access).items():
            system.invalidate_cache()  # what writing has told it, a new process does not know
            log.taken()
            reading = reader()
            next(reading)
            opened = log.taken()
            images = sum(reading)
            assert images == options.images, (name, images)
            result[name] = {"opening": opened, "reading": log.taken()}
            print(name, result[name], flush=True)
        ray.shutdown()
    keep(
        options,
        result,
        "images",
        bytes_per_image=size // options.images,
        images_per_shard=options.shard,
        images_per_task=options.task,
    )


if __name__ == "__main__":
    main()
