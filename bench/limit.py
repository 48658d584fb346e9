"""How near does the `Loader` come to the core, and how far is the core past libjpeg-turbo?

    python bench/limit.py FOLDER [--threads 1,2] [--rounds 7] [--kind train,eval] [--batch 64]
                          [--limit N] [--json FILE]

FOLDER holds JPEG photos, as for `pipeline.py`, and "train" and "eval" are the same. With the same
number of threads, in one run:

- the `Loader`: from files in the system's cache to batches, RandomResizedCrop(224), a flip and
  normalise, or Resize(256) and CenterCrop(224);
- the core alone makes the same tensors of the same pictures, from bytes in memory, in one call: by
  its own decoder, and by libjpeg-turbo, as it did before it had one;
- the core alone decodes the same regions (the very boxes that the Loader drew, at the same
  reduction), and does nothing else: by libjpeg-turbo, which is 100 %, and by its own decoder;
- the core alone decodes whole pictures at full size, by both;
- simplejpeg does so, in threads of Python, each into memory that is used again.

After a warm-up they take turns, in an order drawn anew in each round. images/s and
processor time (of all threads) are medians of the rounds, ratios the medians of those within a
round. Aims: the Loader makes 90 % of what the core alone makes; the core makes its tensors 1.5
times as fast as libjpeg-turbo decodes their regions, and 1.65 times as fast as by libjpeg-turbo
(1.6 times with several threads).
"""

from __future__ import annotations

import argparse
import random
import tempfile
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from statistics import median
from time import perf_counter, process_time
from typing import Any, NamedTuple

import numpy as np
import simplejpeg
import torch
from core import Picture, Work, pictures_of
from pipeline import epoch_length, linked
from pipeline_peers import OwnLoader, Setup
from record import record
from reference import photos_in

from fastdecode._system import usable_cores
from fastdecode.native import library

_LANES = {
    "loader": "Loader",
    "core": "core: the same tensors",
    "core-libjpeg": "the same, by libjpeg-turbo",
    "regions-own": "core: the same regions",
    "regions": "the same, by libjpeg-turbo",
    "whole-own": "core: whole pictures",
    "whole": "the same, by libjpeg-turbo",
    "simplejpeg": "simplejpeg: whole pictures",
}
_LIMIT = "regions"
_AIMS = (("loader", "core", 0.9, 0.9), ("core", "regions", 1.5, 1.5))
_AIMS += (("core", "core-libjpeg", 1.65, 1.6),)  # with one thread, with more


class LoaderLane:
    """The Loader; every epoch is the same one."""

    def __init__(self, setup: Setup) -> None:
        self._peer = OwnLoader(setup)
        self.loader = self._peer._loader

    def run(self) -> float:
        self.loader.set_epoch(0)
        epoch = self._peer.epoch()
        return epoch.images / epoch.seconds

    def first(self) -> torch.Tensor:
        self.loader.set_epoch(0)
        batch: torch.Tensor = next(iter(self.loader))[0]
        return batch


class SimplejpegLane:
    """simplejpeg, whose calls let other threads run."""

    def __init__(self, pictures: Sequence[Picture], threads: int) -> None:
        self._files = [picture.data for picture in pictures]
        self._largest = max(3 * picture.size[0] * picture.size[1] for picture in pictures)
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


def lanes_of(setup: Setup) -> dict[str, Callable[[], float]]:
    """Make all of them, for one number of threads; the core's results are those of the Loader."""
    own = LoaderLane(setup)
    pictures = pictures_of(own.loader)
    normalize = own.loader.dataset.transform.normalize
    core = Work(pictures, "resized", setup.workers, normalize)
    core.run(setup.batch)
    if not torch.equal(own.first(), core.slots[: setup.batch]):
        raise SystemExit("the Loader makes other tensors than the core of the same boxes")
    return {
        "loader": own.run,
        "core": core.run,
        "core-libjpeg": Work(pictures, "resized", setup.workers, normalize, "libjpeg").run,
        "regions-own": Work(pictures, "regions", setup.workers).run,
        "regions": Work(pictures, "regions", setup.workers, decoder="libjpeg").run,
        "whole-own": Work(pictures, "whole", setup.workers).run,
        "whole": Work(pictures, "whole", setup.workers, decoder="libjpeg").run,
        "simplejpeg": SimplejpegLane(pictures, setup.workers).run,
    }


class Turn(NamedTuple):
    """What one lane did in one round.

    Attributes
    ----------
    speed : float
        Images/s.
    cpu_ms : float
        Processor time for an image, of all threads.
    """

    speed: float
    cpu_ms: float


def measure(
    folder: str, kind: str, threads: Sequence[int], options: argparse.Namespace, images: int
) -> dict[tuple[int, str], list[Turn]]:
    """Let all take turns; what each did in each round, by number of threads and lane."""
    lanes = {
        (count, name): lane
        for count in threads
        for name, lane in lanes_of(Setup(folder, kind, options.batch, count)).items()
    }
    found: dict[tuple[int, str], list[Turn]] = {key: [] for key in lanes}
    for turn in range(options.rounds + 1):
        for key in random.sample(list(lanes), len(lanes)):
            cpu = process_time()
            speed = lanes[key]()
            if turn:  # the first is the warm-up
                found[key].append(Turn(speed, 1000 * (process_time() - cpu) / images))
    return found


def summary(found: dict[tuple[int, str], list[Turn]]) -> dict[str, Any]:
    """Sum up by number of threads: images/s, and ratios to the limit and to the fewest threads."""
    fewest = min(count for count, _ in found)
    result: dict[str, Any] = {}
    for (count, name), turns in found.items():
        result.setdefault(str(count), {})[name] = {
            "images_per_s": round(median(turn.speed for turn in turns), 1),
            "rounds": [round(turn.speed, 1) for turn in turns],
            "cpu_ms": round(median(turn.cpu_ms for turn in turns), 3),
            "to_limit": _ratio(turns, found[count, _LIMIT]),
            "to_fewest_threads": _ratio(turns, found[fewest, name]),
        }
    for count in {count for count, _ in found}:
        result[str(count)]["aims"] = [
            {
                "of": one,
                "to": other,
                "aim": aim if count == 1 else aim_of_several,
                "ratio": _ratio(found[count, one], found[count, other]),
            }
            for one, other, aim, aim_of_several in _AIMS
        ]
    return result


def _ratio(turns: list[Turn], others: list[Turn]) -> float:
    pairs = zip(turns, others, strict=True)
    return round(median(own.speed / other.speed for own, other in pairs), 3)


def table(kind: str, found: dict[str, Any]) -> str:
    lines = []
    fewest = min(found, key=int)
    for count, lanes in found.items():
        head = f"{kind}, {count} thread{'s' * (count != '1')}"
        lines.append(f"{head:<36}images/s  CPU, ms  to the limit  to {fewest} thread")
        lines += [
            f"{title:<36}{one['images_per_s']:8.1f}{one['cpu_ms']:9.3f}{one['to_limit']:14.2f}"
            f"{one['to_fewest_threads']:13.2f}"
            for name, title in _LANES.items()
            for one in (lanes[name],)
        ]
        lines += [
            f"{aim['of']} to {aim['to']}: {aim['ratio']:.3f}, the aim of {aim['aim']} is "
            f"{'met' if aim['ratio'] >= aim['aim'] else 'missed'}"
            for aim in lanes["aims"]
        ]
        lines.append("")
    return "\n".join(lines)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("folder", type=Path, metavar="FOLDER")
    parser.add_argument("--threads", default=f"1,{usable_cores()}")
    parser.add_argument("--rounds", type=int, default=7, help="after the warm-up")
    parser.add_argument("--kind", default="train,eval")
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--limit", type=int, metavar="N", help="images in an epoch")
    parser.add_argument("--json", type=Path, metavar="FILE")
    options = parser.parse_args()
    options.threads = sorted({int(count) for count in options.threads.split(",")})
    options.workers = max(options.threads)  # what an epoch's length goes by
    return options


def main() -> None:
    options = arguments()
    library.require()
    photos = photos_in(options.folder)
    images = epoch_length(photos, options)
    print(f"{len(photos)} photos; {images} images an epoch, {options.rounds} rounds\n")
    result = {}
    with tempfile.TemporaryDirectory() as temporary:
        linked(photos, options.folder, Path(temporary), images)
        for kind in options.kind.split(","):
            result[kind] = summary(measure(temporary, kind, options.threads, options, images))
            print(table(kind, result[kind]), flush=True)
    if options.json:
        settings = {
            "photos": options.folder.resolve().name,
            "different_photos": len(photos),
            "images_per_epoch": images,
            "batch": options.batch,
            "rounds": options.rounds,
            "core": library.codec(),
            "torch": torch.__version__,
        }
        print(record(str(options.json.resolve().with_suffix("")), result, **settings))


if __name__ == "__main__":
    main()
