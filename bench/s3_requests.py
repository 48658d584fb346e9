"""How many requests does each reader send to an object store?

PHOTOS holds JPEG photos; they are repeated until there are enough, in the bucket of `_s3.py`, as
files and in tar shards with indexes. Each reader opens them and gives every image once. Counted are
requests, and not their time, which on this machine would be that of the server.

- "Loader": `StoreDataset` and `Loader`, in a shuffled order;
- "ShardStream": in DataLoader, without worker processes;
- "Ray": `fastdecode.ray.read_images`, on a cluster of one node, in tasks of `--task` images.

Opening and reading are counted apart: with a manifest, or a list of shards, opening costs less.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from itertools import cycle, islice
from pathlib import Path
from typing import Any

import fsspec
from _common import keep, parser, photos_in
from _ray import ray
from _s3 import BUCKET, served, write_shards
from torch.utils.data import DataLoader

import fastdecode.ray
from fastdecode.stores import open_store
from fastdecode.stores.tar import index_tar
from fastdecode.torch import Loader, ShardStream, StoreDataset
from fastdecode.torch.transforms import ResizeCenterCrop


def fill(folder: Path, photos: list[Path], images: int, per_shard: int) -> int:
    """Write the files of the bucket, and the shards; return how many bytes of images there are."""
    for number, photo in enumerate(islice(cycle(photos), images)):
        place = folder / "files" / str(number % 2)
        place.mkdir(parents=True, exist_ok=True)
        (place / f"{number:06d}.jpg").symlink_to(photo.resolve())
    shards = folder / "shards"
    shards.mkdir()
    size = write_shards(photos, images, -(-images // per_shard), shards)
    for shard in shards.glob("*.tar"):
        index_tar(shard)
    return size


def readers(options: Any, access: dict[str, Any]) -> dict[str, Callable[[], Iterator[int]]]:
    """Name the readers: each opens, yields 0, and then how many images it gives at a time."""
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


def main() -> None:
    options = parser(
        __doc__,
        images=(1200, "as files, and in shards"),
        shard=(600, "images of a shard"),
        task=(100, "images of a task of Ray"),
    ).parse_args()
    result: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        size = fill(folder, photos_in(options.photos), options.images, options.shard)
        with served(folder) as (access, asked):
            ray.init(num_cpus=2, log_to_driver=False, logging_level="ERROR")
            for name, reader in readers(options, access).items():
                fsspec.filesystem("s3", **access).invalidate_cache()  # each is as in a new process
                reading = reader()
                next(reading)
                opened = asked()
                images = sum(reading)
                assert images == options.images, (name, images)
                result[name] = {"opening": opened, "reading": asked()}
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
