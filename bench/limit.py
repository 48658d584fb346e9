"""How near does the `Loader` come to what the decoder alone can do?

    python bench/limit.py FOLDER [--threads 1,2] [--rounds 7] [--kind train,eval] [--batch 64]
                          [--limit N] [--json FILE]

FOLDER holds JPEG photos, as for `pipeline.py`, and "train" and "eval" are the same. With the same
number of threads, in one run:

- the `Loader`: from files in the system's cache to batches, RandomResizedCrop(224), a flip and
  normalise, or Resize(256) and CenterCrop(224);
- the core alone makes the same tensors of the same pictures, from bytes in memory, in one call;
- the core alone decodes the same regions (the very boxes that the Loader drew, at the same
  reduction), and does nothing else: the limit;
- the core alone, which is libjpeg-turbo then, decodes whole pictures at full size;
- simplejpeg does so, in threads of Python, each into memory that is used again.

After a warm-up they take turns, in an order drawn anew in each round. images/s and
processor time (of all threads) are medians of the rounds, ratios the medians of those within a
round. Aim: the Loader reaches 80 % of the limit.
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

from fastdecode.cores import usable_cores
from fastdecode.native import library

_LANES = {
    "loader": "Loader",
    "core": "core: the same tensors",
    "regions": "core: the same regions, only decoded",
    "whole": "core: whole pictures, only decoded",
    "simplejpeg": "simplejpeg: whole pictures",
}
_LIMIT, _AIM = "regions", 0.8


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
    core = Work(pictures, "resized", setup.workers, own.loader.dataset.transform.normalize)
    core.run(setup.batch)
    if not torch.equal(own.first(), core.slots[: setup.batch]):
        raise SystemExit("the Loader makes other tensors than the core of the same boxes")
    return {
        "loader": own.run,
        "core": core.run,
        "regions": Work(pictures, "regions", setup.workers).run,
        "whole": Work(pictures, "whole", setup.workers).run,
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
            f"{_LANES[name]:<36}{one['images_per_s']:8.1f}{one['cpu_ms']:9.3f}{one['to_limit']:14.2f}"
            f"{one['to_fewest_threads']:13.2f}"
            for name, one in lanes.items()
        ]
        ratio = lanes["loader"]["to_limit"]
        lines.append(f"The aim of {_AIM} is {'met' if ratio >= _AIM else 'missed'}: {ratio:.3f}")
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
