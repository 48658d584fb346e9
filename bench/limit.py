"""How near does the `Loader` come to the core, and how far is the core past libjpeg-turbo?

PHOTOS holds JPEG photos, as for `pipeline.py`, and "train" and "eval" are the same. With the same
number of threads, in one run:

- the `Loader`: from files in the system's cache to batches, RandomResizedCrop(224), a flip and
  normalise, or Resize(256) and CenterCrop(224);
- the core alone makes the same tensors of the same images, from bytes in memory, in one call: by
  its own decoder, and by libjpeg-turbo, as it did before it had one;
- the core alone decodes the same regions (the very boxes that the Loader drew, at the same
  reduction), and does nothing else: by libjpeg-turbo, which is 100 %, and by its own decoder;
- the core alone decodes whole images at full size, by both;
- simplejpeg does so, in threads of Python, each into memory that is used again.

After a warm-up they take turns, in an order drawn anew in each round. images/s and
processor time (of all threads) are medians of the rounds, ratios the medians of those within a
round. Aims: the Loader makes 90 % of what the core alone makes; the core makes its tensors 1.5
times as fast as libjpeg-turbo decodes their regions, and 1.65 times as fast as by libjpeg-turbo
(1.6 times with several threads).
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from time import perf_counter, process_time
from typing import Any, NamedTuple

import numpy as np
import simplejpeg
import torch
from _common import (
    Rounds,
    each,
    epoch_length,
    judge,
    keep,
    linked,
    middle,
    parser,
    photos_in,
    rates,
    ratio,
    show,
    take_turns,
)
from _pipelines import Pipeline, Setup
from core import EpochImage, Work, images_of

from fastdecode._system import usable_cores
from fastdecode.native import _library

_AIMS = (("loader", "core", 0.9, 0.9), ("core", "regions", 1.5, 1.5))
_AIMS += (("core", "core-libjpeg", 1.65, 1.6),)  # with one thread, with more


class SimplejpegThreads:
    """simplejpeg, whose calls let other threads run."""

    def __init__(self, images: Sequence[EpochImage], threads: int) -> None:
        self._files = [image.data for image in images]
        self._largest = max(3 * image.size[0] * image.size[1] for image in images)
        self._own = threading.local()
        self._executor = ThreadPoolExecutor(threads)

    def run(self) -> float:
        start = perf_counter()
        for _ in self._executor.map(self._decode, self._files):
            pass
        return len(self._files) / (perf_counter() - start)

    def _decode(self, data: bytes) -> None:
        if not hasattr(self._own, "buffer"):
            self._own.buffer = np.empty(self._largest, np.uint8)
        simplejpeg.decode_jpeg(data, buffer=self._own.buffer)


def competitors_of(setup: Setup) -> dict[str, Callable[[], float]]:
    """Make all of them, for one number of threads; the core's results are those of the Loader."""
    own = Pipeline("loader", setup)
    images, threads = images_of(own.loader), setup.workers
    normalize = own.loader.dataset.transform.normalize
    core = Work(images, "resized", threads, normalize)
    core.run(setup.batch)
    own.loader.set_epoch(0)
    if not torch.equal(next(iter(own.loader))[0], core.slots[: setup.batch]):
        raise SystemExit("the Loader makes other tensors than the core of the same boxes")
    return {
        "loader": own.speed,
        "core": core.run,
        "core-libjpeg": Work(images, "resized", threads, normalize, "libjpeg").run,
        "regions-own": Work(images, "regions", threads).run,
        "regions": Work(images, "regions", threads, decoder="libjpeg").run,
        "whole-own": Work(images, "whole", threads).run,
        "whole": Work(images, "whole", threads, decoder="libjpeg").run,
        "simplejpeg": SimplejpegThreads(images, threads).run,
    }


class Turn(NamedTuple):
    """What a competitor did in one round: images/s, and the processor's seconds of all threads."""

    speed: float
    cpu: float


def turn_of(competitor: Callable[[], float]) -> Turn:
    cpu = process_time()
    speed = competitor()
    return Turn(speed, process_time() - cpu)


def summary(turns: Rounds[Turn], threads: Sequence[int], images: int) -> dict[str, Any]:
    """Sum up by number of threads: images/s, and ratios to the limit and to the fewest threads."""
    speeds = each(turns, lambda turn: turn.speed)
    costs = each(turns, lambda turn: 1000 * turn.cpu / images)
    result: dict[str, Any] = {}
    for count in threads:
        own = {n.partition(",")[0]: of for n, of in speeds.items() if n.endswith(f", {count}")}
        found: dict[str, Any] = rates(own, to_limit="regions")
        for name, one in found.items():
            one["cpu_ms"] = middle(costs[f"{name}, {count}"])
            one["to_fewest_threads"] = ratio(own[name], speeds[f"{name}, {threads[0]}"])
        found["aims"] = [
            {
                "of": one,
                "to": other,
                "aim": aim if count == 1 else aim_of_several,
                "ratio": ratio(own[one], own[other]),
            }
            for one, other, aim, aim_of_several in _AIMS
        ]
        result[str(count)] = found
    return result


def main() -> None:
    options = parser(
        __doc__,
        threads=([1, usable_cores()], "of the Loader and the core"),
        rounds=(7, "after the warm-up"),
        kind=(["train", "eval"], "what is done"),
        batch=(64, "images"),
        limit=(None, "images in an epoch"),
    ).parse_args()
    _library.require()
    threads = sorted({*options.threads})
    photos = photos_in(options.photos)
    images = epoch_length(photos, options.batch, max(threads), options.limit)
    print(f"{len(photos)} photos; {images} images an epoch, {options.rounds} rounds\n")
    result = {}
    with linked(photos, options.photos, images) as folder:
        for kind in options.kind:
            competitors = {
                f"{name}, {count}": partial(turn_of, competitor)
                for count in threads
                for name, competitor in competitors_of(
                    Setup(folder, kind, options.batch, count)
                ).items()
            }
            result[kind] = summary(take_turns(competitors, options.rounds), threads, images)
            for count, found in result[kind].items():
                rows = {name: one for name, one in found.items() if name != "aims"}
                show(f"{kind}, threads: {count}", rows)
                for aim in found["aims"]:
                    judge(f"{aim['of']} to {aim['to']}", aim["ratio"], aim["aim"])
    keep(
        options,
        result,
        "batch",
        "rounds",
        different_photos=len(photos),
        images_per_epoch=images,
        core=_library.codec(),
        torch=torch.__version__,
    )


if __name__ == "__main__":
    main()
