"""What does a GPU gain: decoding on it, and training from what is decoded there or on the CPU?

    python bench/gpu.py PHOTOS [--large PHOTOS] [--device cuda] [--parts training,memory,decode]
                        [--minutes 8] [--json FILE] [...]
    python bench/gpu.py PHOTOS --device cpu --tiny

PHOTOS are of about 500 x 375 pixels, in class folders or loose, those of `--large` of some 12
megapixels. Few are repeated (as links) until an epoch has `--items`. Three parts:

- training: a ResNet-50 step (bfloat16, channels last, SGD) fed by random tensors on the device, by
  `Loader` with the CPU's and with the GPU's decoding, by Pillow in PyTorch's DataLoader, and by
  DALI where it is installed. "of random" is the share of the first. A step's kernels and the
  waiting between steps are told apart by CUDA events.
- memory: what is taken of the device over many short epochs.
- decode: `python -m fastdecode.bench --device`, for whole images and for those of 224 x 224:
  images/s from memory onto the device, by each batch backend and by the CPU path; how near their
  pixels are to those of the CPU path; how many the backend left to it.

After a warm-up they take turns, in an order drawn anew in each round; figures are medians, ratios
medians of those within a round. The run ends after `--minutes`, and what was measured by then is in
`results/gpu_<device>.json`: parts that are measured in another run join it.

`--tiny` does all of it with a few images and a tiny network, and writes nothing unless `--json`
is given: with `--device cpu` that is what the tests run.
"""

from __future__ import annotations

import argparse
import dataclasses
import faulthandler
import json
import re
import sys
from functools import partial
from pathlib import Path
from typing import Any

import torch
from _common import (
    RESULTS,
    Budget,
    linked,
    parser,
    photos_in,
    show,
    take_turns,
    today,
    told,
    versions,
    write,
)
from _pipelines import SIZE, Setup
from _training import BASE, LOADER, Clock, Feeds, Step, clock_of, memory_over_epochs, summary

from fastdecode._system import usable_cores
from fastdecode.gpu._devices import device_of
from fastdecode.measure._collection import collect
from fastdecode.measure._run import Found, Plan, measure
from fastdecode.measure.result import machine

_MERCY_S = 60
_EPOCH = 4  # batches of a short one
_LARGER = 32  # how many times fewer photos of 12 megapixels there are in a batch
_WAY_S = 0.05  # of a way of decoding, for each image of a batch
_TINY = {"batch": 4, "items": 16, "rounds": 1, "epochs": 3, "workers": 1}


class Keeper:
    """The file that the results go to, if any. A part that is measured again replaces the older."""

    def __init__(self, path: Path | None, clock: Clock) -> None:
        self._path = path
        self._content: dict[str, Any] = {
            "machine": dataclasses.asdict(machine()),
            "device": clock.describe(),
            "libraries": versions(),
        }
        self._parts: dict[str, Any] = {}
        if path is not None and path.exists():
            before = json.loads(path.read_text(encoding="utf-8"))
            if all(before.get(key) == self._content[key] for key in ("device", "libraries")):
                self._parts = before["result"]

    def keep(self, part: str, settings: dict[str, Any], found: dict[str, Any]) -> None:
        """Write a part as it stands now: all of the file, or nothing."""
        self._parts[part] = {"measured": today(), "settings": settings, **found}
        if self._path is not None:
            write(self._path, {**self._content, "result": self._parts})


def training(options: argparse.Namespace, clock: Clock, budget: Budget, keeper: Keeper) -> None:
    """Train on each feed in turn, and keep what is known after each round."""
    step = Step(options.device, tiny=options.tiny, compiled=options.compile)
    steps = max(2, options.items // options.batch)
    settings = {**_settings(options), "steps": steps, "parameters": step.parameters}
    settings["compiled"] = options.compile
    left_out: dict[str, str] = {}
    with linked(options.files, options.photos, steps * options.batch) as folder:
        feeds = Feeds(Setup(folder, "train", options.batch, options.workers), step, clock)
        lanes = {name: partial(feeds.train, name) for name in options.feeds}
        found: dict[str, Any] = {}
        try:
            for turns in take_turns(lanes, options.rounds, budget, left_out):
                found = {"feeds": summary(turns), "chosen": feeds.chosen(), "left_out": left_out}
                keeper.keep("training", settings, found)
        finally:
            feeds.close()
    names = ("images_per_s", "to_random", "kernels_ms", "waiting_ms", "cpu_ms")
    show("for an image", found.get("feeds", {}), *names)
    _tell(left_out)


def memory(options: argparse.Namespace, clock: Clock, budget: Budget, keeper: Keeper) -> None:
    """Train for many short epochs, and look at the memory after each."""
    step = Step(options.device, tiny=options.tiny)
    settings = {**_settings(options), "steps": _EPOCH, "epochs": options.epochs}
    found: dict[str, Any] = {"feeds": {}, "left_out": {}}
    keeper.keep("memory", settings, found)
    with linked(options.files, options.photos, _EPOCH * options.batch) as folder:
        feeds = Feeds(Setup(folder, "train", options.batch, options.workers), step, clock)
        for name in (name for name in options.feeds if name.startswith(LOADER)):
            try:
                found["feeds"][name] = memory_over_epochs(
                    name, feeds, clock, options.epochs, budget
                )
            except Exception as error:  # of a library: the others go on
                found["left_out"][name] = told(error)
            keeper.keep("memory", settings, found)
    rows = {
        f"{name}, {what}": {when: sizes[when] / 1e6 for when in ("first", "last")}
        for name, kinds in found["feeds"].items()
        for what, sizes in kinds.items()
    }
    show(f"memory over {options.epochs} epochs, MB", rows)
    _tell(found["left_out"])


def decode(options: argparse.Namespace, clock: Clock, budget: Budget, keeper: Keeper) -> None:
    """Let the package's own bench decode each collection, whole and to 224 x 224."""
    sets = {"small": (options.photos, options.batch)}
    if options.large:
        sets["large"] = (options.large, max(2, options.batch // _LARGER))
    for name, (folder, batch) in sets.items():
        part = f"decode, {name}"
        photos = collect([folder]).photos
        settings = {"photos": folder.resolve().name, "different_photos": len(photos)}
        found: dict[str, Any] = {"lanes": [], "left_out": {}}
        seconds, names = _WAY_S * batch, None
        if options.tiny:  # each is a process of its own
            seconds, names = 0.0, ("nvimgcodec",)
        for size in (0, SIZE):
            if not budget.allows(part):
                found["left_out"][f"size {size}"] = "no time was left"
                continue
            run = Found()
            plan = Plan(
                seconds=seconds,
                protocols=(),
                size=size,
                device=clock.device,
                batches=(batch,),
                batch_backends=names,
            )
            budget.spend(part, partial(measure, photos, plan, run))
            found["lanes"] += map(dataclasses.asdict, run.on_device())
            found["left_out"] |= run.device.missing if run.device else {}
            keeper.keep(part, settings, found)
        rows = {f"{lane['backend']}, {lane['size'] or 'whole'}": lane for lane in found["lanes"]}
        show(part, rows, "images_per_s", "ratio", "cpu_s_per_1000", "on_cpu", "psnr")
        _tell(found["left_out"])


_PARTS = {"training": training, "memory": memory, "decode": decode}


def _settings(options: argparse.Namespace) -> dict[str, Any]:
    return {
        "photos": options.photos.resolve().name,
        "different_photos": len(options.files),
        "batch": options.batch,
        "workers": options.workers,
        "rounds": options.rounds,
    }


def _tell(left_out: dict[str, str]) -> None:
    for name, why in left_out.items():
        print(f"{name}: {why}"[:80], flush=True)


def arguments() -> argparse.Namespace:
    command = parser(
        __doc__,
        device=("cuda", "PyTorch's name for it"),
        parts=([*_PARTS], "of the run"),
        batch=(256, "images"),
        items=(20_000, "of an epoch of training"),
        rounds=(3, "after the warm-up"),
        epochs=(50, "short ones, to look at the memory"),
        workers=(usable_cores(), "threads or processes"),
        compile=(False, "let torch.compile have the network"),
        minutes=(8.0, "after which it ends in any case"),
        tiny=(False, "do all of it with next to nothing"),
    )
    command.add_argument("--large", type=Path, metavar="PHOTOS", help="of 12 megapixels")
    command.add_argument(
        "--feeds", metavar="NAMES", help="random,pillow,loader-cpu,loader-gpu,dali"
    )
    command.set_defaults(**(_TINY if "--tiny" in sys.argv else {}))
    options = command.parse_args()
    if unknown := {*options.parts} - {*_PARTS}:
        command.error(f"there is no {', '.join(sorted(unknown))}; parts: {', '.join(_PARTS)}")
    options.files = photos_in(options.photos)
    options.device = device_of(options.device)
    decoders = ["cpu", "gpu" if options.device.type == "cuda" else "nvimgcodec"]
    # Pillow first: its workers are forked before there are threads of anybody else's.
    feeds = ["pillow", BASE, *(f"{LOADER}{name}" for name in decoders), "dali"]
    options.feeds = options.feeds.split(",") if options.feeds else feeds
    return options


def main() -> None:
    options = arguments()
    if options.tiny:
        torch.set_num_threads(1)  # so little work is done in the time that more wait for each other
    clock, budget = clock_of(options.device), Budget(options.minutes)
    # Should a turn hang, all threads are shown, and the process ends, from a thread that needs no
    # GIL; worker processes see that, and end as well.
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
