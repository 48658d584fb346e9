"""How close is the `Loader` to the core?

PHOTOS contains JPEG photos, and "train" and "eval" are those of `pipeline.py`. These compete with
the same number of threads, in one run:

- the `Loader`: from files in the system's cache to batches, with RandomResizedCrop(224), a flip and
  normalising, or with Resize(256) and CenterCrop(224);
- the core alone, which makes the same tensors of the same images, from bytes in memory, in one
  call;
- the core alone, which only decodes the same regions (exactly the boxes that the Loader drew, at
  the same reduction), which is 100 %;
- the core alone, which decodes whole images at full size;
- simplejpeg, which does that with libjpeg-turbo in Python threads, each into memory that it reuses.

After a warm-up they take turns, in a new random order each round. images/s and the processor time
of all threads are medians of the rounds; ratios are medians of the ratios within a round. The aim:
the Loader reaches 90 % of the core alone.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from time import perf_counter, process_time
from typing import Any

import _common as bench
import numpy as np
import simplejpeg
import torch
from _pipelines import Pipeline, Setup
from core import EpochImage, Work, images_of

from fastdecode._system.processor import usable_cores

_AIMS = (("loader", "core", 0.9, 0.9),)  # with one thread, with more


def simplejpeg_threads(images: Sequence[EpochImage], threads: int) -> Callable[[], float]:
    """Return a call that decodes whole images with simplejpeg in threads; it returns images/s."""
    largest = max(3 * image.size[0] * image.size[1] for image in images)
    own = threading.local()

    def start() -> None:
        own.buffer = np.empty(largest, np.uint8)

    def decode(image: EpochImage) -> None:
        simplejpeg.decode_jpeg(image.data, buffer=own.buffer)

    executor = ThreadPoolExecutor(threads, initializer=start)

    def run() -> float:
        begun = perf_counter()
        for _ in executor.map(decode, images):
            pass
        return len(images) / (perf_counter() - begun)

    return run


def competitors_of(setup: Setup) -> dict[str, Callable[[], float]]:
    """Make all competitors for one number of threads; check that core and Loader agree."""
    own = Pipeline("loader", setup)
    images, threads = images_of(own.loader), setup.workers
    normalize = own.loader.dataset.transform.normalize
    core = Work(images, "resized", threads, normalize)
    core.run(setup.batch)
    own.loader.set_epoch(0)
    if not torch.equal(next(iter(own.loader))[0], core.slots[: setup.batch]):
        raise SystemExit("the Loader and the core make different tensors from the same boxes")
    return {
        "loader": own.speed,
        "core": core.run,
        "regions": Work(images, "regions", threads).run,
        "whole": Work(images, "whole", threads).run,
        "simplejpeg": simplejpeg_threads(images, threads),
    }


def turn_of(competitor: Callable[[], float], images: int) -> dict[str, float]:
    """Run a competitor; return images/s, and the processor time of all threads."""
    cpu = process_time()
    speed = competitor()
    return {"images_per_s": speed, "cpu_ms": 1000 * (process_time() - cpu) / images}


def summary(turns: bench.Rounds, threads: Sequence[int]) -> dict[str, Any]:
    """Sum up by number of threads: images/s, and ratios to the limit and to the fewest threads."""
    result: dict[str, Any] = {}
    for count in threads:
        own = {name.partition(",")[0]: of for name, of in turns.items() if f", {count}" in name}
        found: dict[str, Any] = bench.sum_up(own, to_limit="regions")
        for name, one in found.items():
            fewest = f"{name}, {threads[0]}"
            one["to_fewest_threads"] = bench.ratio(turns, f"{name}, {count}", fewest)
        bench.show(f"threads: {count}", found)
        found["aims"] = [
            {"of": one, "to": to, "aim": aims[count > 1], "ratio": bench.ratio(own, one, to)}
            for one, to, *aims in _AIMS
        ]
        for aim in found["aims"]:
            bench.judge(f"{aim['of']} to {aim['to']}", aim["ratio"], aim["aim"])
        result[str(count)] = found
    return result


@bench.command(
    threads=([1, usable_cores()], "of the Loader and the core"),
    rounds=(7, "after the warm-up"),
    kind=(["train", "eval"], "of the work"),
    batch=(64, "images"),
    limit=(None, "images in an epoch"),
)
def main(options: Any) -> Any:
    threads = sorted({*options.threads})
    photos = bench.photos_in(options.photos)
    images = bench.epoch_length(photos, options.batch, max(threads), options.limit)
    print(f"{len(photos)} photos; {images} images an epoch, {options.rounds} rounds\n")
    result = {}
    with bench.linked(photos, options.photos, images) as folder:
        for kind in options.kind:
            setups = {count: Setup(folder, kind, options.batch, count) for count in threads}
            competitors = {
                f"{name}, {count}": partial(turn_of, competitor, images)
                for count, setup in setups.items()
                for name, competitor in competitors_of(setup).items()
            }
            print(kind)
            result[kind] = summary(bench.take_turns(competitors, options.rounds), threads)
    options.images_per_epoch = images
    return result


if __name__ == "__main__":
    main()
