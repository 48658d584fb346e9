"""How fast do photos become batches, beside what people use today?

    python bench/pipeline.py FOLDER [--batch 64] [--workers 2] [--epochs 3] [--kind train,eval]
                             [--limit N] [--only NAMES] [--json FILE]

FOLDER holds photos, in class folders or loose. "train" is RandomResizedCrop(224) and a flip, in
random order, "eval" Resize(256) and CenterCrop(224); all pipelines give batches of normalised
float32 tensors, (3, 224, 224) a photo. `pipeline_peers.py` and `pipeline_others.py` define them.

With --only: what the training reference of torchvision and timm's script build, with torchvision's
ImageFolder and PyTorch's DataLoader (preset, timm, and timm-usual: either filter in training, the
bicubic one in "eval"), and the same with this package's ImageFolder and Loader (preset-loader,
timm-loader, timm-usual-loader; preset-unfused calls the preset as it is).

Each lives in a process of its own. After a warm-up, their epochs take turns, in an order drawn anew
each time; while one runs the others wait. Few photos are repeated (as links) until an epoch has
about 1000 of 500 x 375 pixels, fewer of larger ones, always whole batches for every worker. The
files come from the system's cache.

- images/s: from asking for the first batch to having the last; of the best epoch and the median.
- CPU s: of the process and its workers, for 1000 images, in the median epoch.
- memory: the most that the process and its workers had resident while an epoch was timed (RSS:
  pages that they share count more than once), and in the warm-up with those divided (PSS).
- diff.: from the reference (`reference.py`) on "eval", mean absolute, in levels of 255, over up to
  128 different photos. DALI rounds the long side and the crop's margin otherwise than torchvision:
  most of its difference is a shift by up to a pixel.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import math
import random
import sys
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from pipeline_others import (
    Dali,
    OwnPreset,
    OwnPresetUnfused,
    OwnTimm,
    OwnTimmUsual,
    StockPreset,
    StockTimm,
    StockTimmUsual,
    TorchvisionV1,
    TorchvisionV2,
)
from pipeline_peers import (
    Epoch,
    OwnFolder,
    OwnLoader,
    OwnLoaderExact,
    OwnLoaderWithoutCore,
    Peer,
    Pillow,
    Setup,
)
from processes import Peak, PeakMemory
from record import record
from reference import evaluation, photos_in, pixels
from typing_extensions import Self

import fastdecode
from fastdecode._process import Child

PEERS: dict[str, type[Peer]] = {
    "loader": OwnLoader,
    "loader-exact": OwnLoaderExact,
    "loader-without-core": OwnLoaderWithoutCore,
    "imagefolder": OwnFolder,
    "pillow": Pillow,
    "torchvision-v1": TorchvisionV1,
    "torchvision-v2": TorchvisionV2,
    "dali": Dali,
    "preset": StockPreset,
    "preset-loader": OwnPreset,
    "preset-unfused": OwnPresetUnfused,
    "timm": StockTimm,
    "timm-loader": OwnTimm,
    "timm-usual": StockTimmUsual,
    "timm-usual-loader": OwnTimmUsual,
}
_USUAL = [name for name in PEERS if not name.startswith(("preset", "timm"))]
_BASELINES = ("pillow", "dali")
_IMAGES, _AREA = 1000, 500 * 375  # of an epoch, at this size; it falls with the photos' side
_COMPARED = 128
_LIBRARIES = (
    "torch",
    "torchvision",
    "timm",
    "nvidia-dali-cuda130",
    "pillow",
    "opencv-python-headless",
)


class Competitor:
    """A pipeline in its process, and what has been measured of it."""

    def __init__(self, name: str, setup: Setup) -> None:
        self.name = name
        self._child = Child(f"{PEERS[name].__module__}:{PEERS[name].__name__}", setup)
        self.epochs: list[Epoch] = []
        self.peaks: list[Peak] = []
        self.pss_mb = 0.0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self._child.close()

    def start(self) -> None:
        """Wait until it is ready; raises what its construction raised."""
        self._child.receive()

    def warm_up(self) -> None:
        with PeakMemory(self._child.ask("pid"), pss=True) as memory:
            self._child.ask("epoch")
        self.pss_mb = memory.peak.pss_mb

    def run(self) -> None:
        with PeakMemory(self._child.ask("pid")) as memory:
            self.epochs.append(self._child.ask("epoch"))
        self.peaks.append(memory.peak)

    def difference(self, reference: Path) -> float:
        return self._child.ask("difference", str(reference))

    def summary(self) -> dict[str, Any]:
        speeds = [epoch.images / epoch.seconds for epoch in self.epochs]
        return {
            "best_images_per_s": round(max(speeds), 1),
            "median_images_per_s": round(median(speeds), 1),
            "images_per_s": [round(speed, 1) for speed in speeds],
            "cpu_s_per_1000": round(
                median(1000 * epoch.cpu_seconds / epoch.images for epoch in self.epochs), 2
            ),
            "peak_rss_mb": [round(peak.rss_mb) for peak in self.peaks],
            "peak_pss_mb": round(self.pss_mb),
        }


def linked(photos: Sequence[Path], folder: Path, root: Path, count: int) -> None:
    """Fill a folder with class folders of links: so many photos, each as often as the others."""
    for number in range(count):
        few = count < len(photos)
        photo = photos[number * len(photos) // count if few else number % len(photos)]
        within = photo.relative_to(folder).parent
        place = root / (within.parts[0] if within.parts else "photos")
        place.mkdir(parents=True, exist_ok=True)
        (place / f"{number:06d}_{photo.name}").symlink_to(photo.resolve())


def epoch_length(photos: Sequence[Path], options: argparse.Namespace) -> int:
    """Choose the number of images: whole batches, as many for each worker unless it was given."""
    if options.limit:
        return options.batch * math.ceil(options.limit / options.batch)
    headers = [fastdecode.probe(path.read_bytes()) for path in photos]
    area = sum(header.width * header.height for header in headers) / len(headers)
    step = options.batch * max(1, options.workers)
    return step * max(2, math.ceil(_IMAGES * math.sqrt(_AREA / area) / step))


def compete(setup: Setup, names: Sequence[str], epochs: int) -> tuple[dict[str, Any], dict]:
    """Run the pipelines in turn; return what was measured, and why others were not."""
    left_out: dict[str, str] = {}
    with ExitStack() as stack:
        running = [stack.enter_context(Competitor(name, setup)) for name in names]
        for step in ("start", "warm_up", *["run"] * epochs):
            for competitor in random.sample(running, len(running)):
                try:
                    getattr(competitor, step)()
                except Exception as error:  # its library is not there, or fails: the others go on
                    left_out[competitor.name] = f"{type(error).__name__}: {error}"
                    running.remove(competitor)
                    competitor.__exit__()
        found = {competitor.name: competitor.summary() for competitor in running}
    return {name: found[name] for name in names if name in found}, left_out


def add_ratios(found: dict[str, Any]) -> None:
    """Divide by each baseline: the best by the best, and the median of epochs side by side."""
    for name in _BASELINES:
        if name not in found:
            continue
        base = found[name]
        for one in found.values():
            pairs = zip(one["images_per_s"], base["images_per_s"], strict=True)
            one[f"to_{name}"] = round(one["best_images_per_s"] / base["best_images_per_s"], 3)
            one[f"to_{name}_median"] = round(median(own / other for own, other in pairs), 3)


def add_differences(found: dict[str, Any], setup: Setup) -> None:
    """Compare the pictures of "eval" with the reference, in fresh processes."""
    photos = photos_in(Path(setup.folder))
    with tempfile.NamedTemporaryFile(suffix=".npy") as file:
        np.save(file, np.stack([evaluation(pixels(path)).numpy() for path in photos]))
        file.flush()
        for name, one in found.items():
            with Competitor(name, setup) as competitor:
                competitor.start()
                one["difference"] = round(competitor.difference(Path(file.name)), 4)


def table(kind: str, found: dict[str, Any]) -> str:
    lines = [
        f"{kind:<24}    images/s   times, best  CPU s   memory, MB",
        f"{'':<24}   best median Pillow  DALI  /1000   RSS   PSS   diff.",
    ]
    for name, one in found.items():
        ratios = [f"{one[key]:.2f}" if (key := f"to_{base}") in one else "" for base in _BASELINES]
        difference = f"{one['difference']:.3f}" if "difference" in one else ""
        lines.append(
            f"{PEERS[name].title:<24}{one['best_images_per_s']:7.1f}{one['median_images_per_s']:7.1f}"
            f"{ratios[0]:>7}{ratios[1]:>6}{one['cpu_s_per_1000']:7.1f}{max(one['peak_rss_mb']):6}"
            f"{one['peak_pss_mb']:6}{difference:>8}".rstrip()
        )
    return "\n".join(lines)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("folder", type=Path, metavar="FOLDER")
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--workers", type=int, default=2, help="processes or threads")
    parser.add_argument("--epochs", type=int, default=3, help="after the warm-up")
    parser.add_argument("--kind", default="train,eval")
    parser.add_argument("--limit", type=int, metavar="N", help="images in an epoch")
    parser.add_argument("--only", default=",".join(_USUAL), metavar="NAMES")
    parser.add_argument("--json", type=Path, metavar="FILE")
    options = parser.parse_args()
    options.kind, options.only = options.kind.split(","), options.only.split(",")
    if unknown := {*options.kind} - {"train", "eval"} | {*options.only} - {*PEERS}:
        parser.error(f"there is no {', '.join(sorted(unknown))}; pipelines: {', '.join(PEERS)}")
    if options.json and options.json.suffix != ".json":
        parser.error("--json wants a name that ends in .json")
    return options


def versions() -> dict[str, str]:
    found = {}
    for name in _LIBRARIES:
        with suppress(importlib.metadata.PackageNotFoundError):
            found[name] = importlib.metadata.version(name)
    return found


def main() -> None:
    options = arguments()
    photos = photos_in(options.folder)
    if not photos:
        sys.exit(f"there are no photos in {options.folder}")
    images = epoch_length(photos, options)
    print(
        f"{len(photos)} photos; {images} images an epoch, batch {options.batch}, "
        f"{options.workers} workers, {options.epochs} epochs"
    )
    result: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as temporary:
        repeated, different = Path(temporary, "repeated"), Path(temporary, "different")
        linked(photos, options.folder, repeated, images)
        linked(photos, options.folder, different, min(len(photos), _COMPARED))
        for kind in options.kind:
            setup = Setup(str(repeated), kind, options.batch, options.workers)
            found, left_out = compete(setup, options.only, options.epochs)
            add_ratios(found)
            if kind == "eval":
                add_differences(found, setup._replace(folder=str(different)))
            print("", table(kind, found), sep="\n", flush=True)
            for name, reason in left_out.items():
                print(f"{PEERS[name].title}: {reason}")
            result[kind] = {"pipelines": found, "left_out": left_out}
    if options.json:
        settings = {
            "photos": options.folder.resolve().name,
            "different_photos": len(photos),
            "images_per_epoch": images,
            "batch": options.batch,
            "workers": options.workers,
            "epochs": options.epochs,
            "libraries": versions(),
        }
        print(record(str(options.json.resolve().with_suffix("")), result, **settings))


if __name__ == "__main__":
    main()
