"""What does a GPU gain: decoding on it, and training from what is decoded there or on the CPU?

    python bench/gpu.py FOLDER [--large FOLDER] [--device cuda] [--parts training,memory,decode]
                        [--minutes 8] [--json FILE] [...]
    python bench/gpu.py FOLDER --device cpu --tiny

FOLDER holds photos of about 500 x 375 pixels, in class folders or loose, `--large` some of 12
megapixels. Few are repeated (as links) until an epoch has `--items`. Three parts:

- training: a ResNet-50 step (bfloat16, channels last, SGD) fed by random tensors on the device, by
  `Loader` with the CPU's and with the GPU's decoding, by Pillow in PyTorch's DataLoader, and by
  DALI where it is installed. "of random" is the share of the first. A step's kernels and the
  waiting between steps are told apart by CUDA events.
- memory: what is taken of the device over many short epochs.
- decode: images/s from memory onto the device, by each batch backend and by the CPU path; how near
  their pixels are to those of the CPU path; how many the backend left to it.

After a warm-up they take turns, in an order drawn anew in each round; figures are medians, ratios
medians of those within a round. The run ends after `--minutes`, and what was measured by then is in
`results/gpu_<device>.json`: parts that are measured in another run join it.

`--tiny` does all of it with a few pictures and a tiny network, and writes nothing unless `--json`
is given: with `--device cpu` that is what the tests run.
"""

from __future__ import annotations

import argparse
import faulthandler
import re
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from gpu_budget import Budget, Keeper, told
from gpu_clock import Clock, clock_of
from gpu_decode import decode_part
from gpu_feeds import LOADER, Setup
from gpu_network import Step
from gpu_show import decode_table, memory_table, training_table
from gpu_training import BASE, compare, memory_over_epochs
from pipeline import linked
from record import RESULTS
from reference import photos_in

from fastdecode._system import usable_cores
from fastdecode.gpu._devices import device_of

_MERCY_S = 60
_EPOCH = 4  # batches of a short one
_LARGER = 32  # how many times fewer photos of 12 megapixels there are in a batch
_TINY = {"batch": 4, "items": 16, "rounds": 1, "epochs": 3, "decode_items": 8, "workers": 1}


@contextmanager
def setup_of(options: argparse.Namespace, items: int) -> Iterator[Setup]:
    """Make a folder of so many links, whole batches."""
    with tempfile.TemporaryDirectory() as temporary:
        steps = max(2, items // options.batch)
        linked(options.photos, options.folder, Path(temporary), steps * options.batch)
        yield Setup(temporary, options.batch, steps, options.workers, options.device)


def training(options: argparse.Namespace, clock: Clock, budget: Budget, keeper: Keeper) -> None:
    """Do the first part."""
    step = Step(options.device, tiny=options.tiny, compiled=options.compile)
    with setup_of(options, options.items) as setup:
        settings = {**_settings(options), "steps": setup.steps, "parameters": step.parameters}
        settings["compiled"] = options.compile
        for found in compare(options.feeds, setup, step, clock, options.rounds, budget):
            keeper.keep("training", settings, found)
        print(training_table(keeper.part("training")), flush=True)


def memory(options: argparse.Namespace, clock: Clock, budget: Budget, keeper: Keeper) -> None:
    """Do the second part."""
    step = Step(options.device, tiny=options.tiny)
    found: dict[str, Any] = {"feeds": {}, "left_out": {}}
    with setup_of(options, _EPOCH * options.batch) as setup:
        settings = {**_settings(options), "steps": setup.steps, "epochs": options.epochs}
        keeper.keep("memory", settings, found)
        for name in (name for name in options.feeds if name.startswith(LOADER)):
            try:
                found["feeds"][name] = memory_over_epochs(
                    name, setup, step, clock, options.epochs, budget
                )
            except Exception as error:
                found["left_out"][name] = told(error)
            keeper.keep("memory", settings, found)
    print(memory_table(keeper.part("memory")), flush=True)


def decode(options: argparse.Namespace, clock: Clock, budget: Budget, keeper: Keeper) -> None:
    """Do the third part, for each collection."""
    batch, items = options.batch, options.decode_items
    sets = {"small": (options.folder, batch, items)}
    if options.large:
        sets["large"] = (options.large, max(2, batch // _LARGER), max(2, items // _LARGER))
    for name, (folder, batch, items) in sets.items():
        part = f"decode, {name}"
        photos = [path.read_bytes() for path in photos_in(folder)]
        settings = {"photos": folder.resolve().name, "different_photos": len(photos)}
        settings |= {"batch": batch, "items": items, "rounds": options.rounds}
        for found in decode_part(photos, items, batch, options, clock, budget):
            keeper.keep(part, settings, found)
        print(decode_table(keeper.part(part)), flush=True)


_PARTS = {"training": training, "memory": memory, "decode": decode}


def _settings(options: argparse.Namespace) -> dict[str, Any]:
    return {
        "photos": options.folder.resolve().name,
        "different_photos": len(options.photos),
        "batch": options.batch,
        "workers": options.workers,
        "rounds": options.rounds,
    }


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("folder", type=Path, metavar="FOLDER")
    parser.add_argument("--large", type=Path, metavar="FOLDER", help="photos of 12 megapixels")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--parts", default=",".join(_PARTS))
    parser.add_argument("--feeds", metavar="NAMES", help="random,pillow,loader-cpu,loader-gpu,dali")
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--items", type=int, default=20_000, help="of an epoch of training")
    parser.add_argument("--decode-items", type=int, default=2048, help="of a round of decoding")
    parser.add_argument("--rounds", type=int, default=3, help="after the warm-up")
    parser.add_argument("--epochs", type=int, default=50, help="short ones, to look at the memory")
    parser.add_argument("--workers", type=int, default=usable_cores(), help="threads or processes")
    parser.add_argument("--threads", metavar="NUMBERS", help="of the CPU path, when only decoding")
    parser.add_argument("--compile", action="store_true", help="let torch.compile have the network")
    parser.add_argument("--minutes", type=float, default=8, help="after which it ends in any case")
    parser.add_argument("--tiny", action="store_true")
    parser.add_argument("--json", type=Path, metavar="FILE")
    parser.set_defaults(**(_TINY if "--tiny" in sys.argv else {}))
    options = parser.parse_args()
    options.parts = options.parts.split(",")
    if unknown := {*options.parts} - {*_PARTS}:
        parser.error(f"there is no {', '.join(sorted(unknown))}; parts: {', '.join(_PARTS)}")
    options.photos = photos_in(options.folder)
    if not options.photos:
        parser.error(f"there are no photos in {options.folder}")
    return options


def main() -> None:
    options = arguments()
    options.device = device_of(options.device)
    if options.tiny:
        torch.set_num_threads(1)  # so little work is done in the time that more wait for each other
    on_gpu = options.device.type == "cuda"
    decoders = ["cpu", "gpu" if on_gpu else "nvimgcodec"]
    # Pillow first: its workers are forked before there are threads of anybody else's.
    feeds = ["pillow", BASE, *(f"{LOADER}{name}" for name in decoders), "dali"]
    options.feeds = options.feeds.split(",") if options.feeds else feeds
    few = {1, max(1, options.workers // 4), options.workers}
    options.threads = sorted(
        {int(n) for n in options.threads.split(",")} if options.threads else few
    )
    clock, budget = clock_of(options.device), Budget(options.minutes)
    # Should a turn hang, all threads are shown, and the process ends, from a thread that needs no
    # lock of Python's; worker processes see that, and end as well.
    faulthandler.dump_traceback_later(60 * options.minutes + _MERCY_S, exit=True)
    place = options.json
    if place is None and not options.tiny:
        name = re.sub(r"\W+", "_", clock.describe()["name"].lower())
        place = RESULTS / f"gpu_{name}.json"
    keeper = Keeper(place, clock)
    print(
        f"{', '.join(clock.describe().values())}; torch {torch.__version__}; "
        f"{options.workers} threads or workers\n"
    )
    for name, part in _PARTS.items():
        if name in options.parts:
            part(options, clock, budget, keeper)
    faulthandler.cancel_dump_traceback_later()
    if place is not None:
        print(place)


if __name__ == "__main__":
    main()
