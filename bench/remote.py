"""What reading ahead gains: `Loader` on an object store behind a slow network.

PHOTOS holds JPEG photos. They are packed into tar shards, copied until there are enough, and served
by `_s3.py` on 127.0.0.1, which waits so
many seconds before each answer, and costs next to nothing otherwise. Then an epoch is made:

- "decoding threads read": ``Loader(read_threads=0)``, as it was before there were others;
- "32 threads read ahead": ``Loader``, shuffled;
- "in order, read ahead": likewise, not shuffled, so that neighbours in a shard come by one request;
- "stream": `ShardStream` in one process, which reads shards from end to end.

They take turns in each round, in an order drawn anew. Opening the store is not counted. Figures are
medians, ratios medians of those within a round.
"""

from __future__ import annotations

import sys
import tempfile
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import Any

from _common import each, keep, parser, photos_in, rates, show, take_turns
from _s3 import BUCKET, served, write_shards
from stores import train
from torch.utils.data import DataLoader

from fastdecode._system import usable_cores
from fastdecode.stores import open_store
from fastdecode.torch import ShardStream
from fastdecode.torch.transforms import RandomResizedCropFlipNormalize

_BATCH = 64
_BEFORE = "decoding threads read"


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
    competitors = {
        _BEFORE: partial(epoch, read_threads=0),
        "32 threads read ahead": epoch,
        "in order, read ahead": partial(epoch, shuffle=False),
        "stream": partial(stream, where, options.images, options.threads, storage),
    }
    turns = take_turns(competitors, options.rounds, warm_up=False)
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
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        size = write_shards(photos_in(options.photos), options.images, options.shards, folder)
        with served(folder, options.latency) as (storage, _):
            where = f"s3://{BUCKET}/train-{{00000..{options.shards - 1:05}}}.tar"
            result = measure(options, where, storage)
    show("", result)
    names = ("images", "shards", "threads", "rounds")
    keep(options, result, *names, bytes=size, latency_s=options.latency)


if __name__ == "__main__":
    main()
