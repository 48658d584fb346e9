"""How fast do photos become batches, compared with what people use today?

PHOTOS are in class folders or in one folder. "train" is RandomResizedCrop(224) and a flip, in
random order; "eval" is Resize(256) and CenterCrop(224). All pipelines make batches of normalised
float32 tensors, (3, 224, 224) per photo. `_pipelines.py` defines them.

Each pipeline runs in its own process. After a warm-up, their epochs take turns, in a new random
order each round; while one runs the others wait. If there are few photos, links repeat them until
an epoch has about 1000 photos of 500 x 375 pixels, or fewer of larger ones. Every worker always
gets whole batches. The files come from the system's cache.

- images/s: from the request for the first batch to the arrival of the last; for the best and the
  median epoch.
- CPU s: of the process and its workers, per 1000 images, in the median epoch.
- memory: the peak resident memory of the process and its workers while an epoch is timed (RSS,
  which counts shared pages once per process), and in the warm-up (PSS, which divides them).
- difference: from the reference on "eval", mean absolute, in levels of 255, over up to 128
  different photos. DALI rounds the long side and the crop's margin differently from torchvision, so
  most of its difference is a shift of up to one pixel.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import _common as bench
import numpy as np
from _pipelines import PEERS, Setup, evaluation
from torch_reference import pixels

from fastdecode._system.process import Child

_KINDS = ("train", "eval")
_BASELINES = ("pillow", "dali")
_COMPARED = 128
_SHOWN = (
    *("median_images_per_s", "to_pillow_median", "to_dali_median"),
    *("cpu_s_per_1000", "peak_pss_mb", "difference"),
)


def turn(child: Child, pss_mb: dict[str, float], name: str) -> dict[str, float]:
    """Run an epoch; if it fails, end the process. The first epoch is the warm-up."""
    is_warm = name in pss_mb
    try:
        if not is_warm:
            child.receive()  # raises what its construction raised
        with bench.peak_memory(child.ask("pid"), pss=not is_warm) as memory:
            epoch = child.ask("epoch")
    except Exception:
        child.close()
        raise
    pss_mb.setdefault(name, round(memory["Pss"]))
    return {**epoch, "peak_rss_mb": memory["Rss"]}


def compete(setup: Setup, names: Sequence[str], epochs: int) -> dict[str, Any]:
    """Run the pipelines in turn; return the measurements, and why some have none."""
    left_out: dict[str, str] = {}
    pss_mb: dict[str, float] = {}
    with ExitStack() as stack:
        competitors = {}
        for name in names:
            child = Child("_pipelines:Pipeline", name, setup)
            stack.callback(child.close)
            competitors[name] = partial(turn, child, pss_mb, name)
        turns = bench.take_turns(competitors, epochs, left_out=left_out)
    return {"pipelines": summary(turns, pss_mb), "left_out": left_out}


def summary(turns: bench.Rounds, pss_mb: dict[str, float]) -> dict[str, Any]:
    """Sum up; compare with each baseline by the best epochs, and by the median of paired epochs."""
    bases = {f"to_{base}_median": base for base in _BASELINES if base in turns}
    found = bench.sum_up(turns, **bases)
    for name, one in found.items():
        one["median_images_per_s"], one["images_per_s"] = one["images_per_s"], one.pop("rounds")
        one["best_images_per_s"] = max(one["images_per_s"])
        one["peak_rss_mb"] = [round(turn["peak_rss_mb"]) for turn in turns[name].values()]
        one["peak_pss_mb"] = pss_mb[name]
    for base in bases.values():
        for one in found.values():
            best = one["best_images_per_s"] / found[base]["best_images_per_s"]
            one[f"to_{base}"] = round(best, 3)
    return found


def add_differences(found: dict[str, Any], setup: Setup) -> None:
    """Compare the "eval" images with the reference, in fresh processes."""
    photos = bench.photos_in(Path(setup.folder))
    with tempfile.NamedTemporaryFile(suffix=".npy") as file:
        np.save(file, np.stack([evaluation(pixels(path.read_bytes())).numpy() for path in photos]))
        file.flush()
        for name, one in found.items():
            with Child("_pipelines:Pipeline", name, setup) as child:
                child.receive()
                one["difference"] = round(child.ask("difference", file.name), 4)


@bench.command(
    batch=(64, "images"),
    workers=(2, "processes or threads"),
    epochs=(3, "after the warm-up"),
    kind=([*_KINDS], "of the work"),
    limit=(None, "images in an epoch"),
    only=([*PEERS], "pipelines"),
)
def main(options: Any) -> Any:
    if unknown := {*options.kind} - {*_KINDS} | {*options.only} - {*PEERS}:
        sys.exit(f"there is no {', '.join(sorted(unknown))}; pipelines: {', '.join(PEERS)}")
    photos = bench.photos_in(options.photos)
    images = bench.epoch_length(photos, options.batch, options.workers, options.limit)
    print(
        f"{len(photos)} photos; {images} images an epoch, batch {options.batch}, "
        f"{options.workers} workers, {options.epochs} epochs\n"
    )
    result: dict[str, Any] = {}
    with (
        bench.linked(photos, options.photos, images) as repeated,
        bench.linked(photos, options.photos, min(len(photos), _COMPARED)) as different,
    ):
        for kind in options.kind:
            setup = Setup(repeated, kind, options.batch, options.workers)
            result[kind] = compete(setup, options.only, options.epochs)
            found = result[kind]["pipelines"]
            if kind == "eval":
                add_differences(found, setup._replace(folder=different))
            bench.show(kind, found, *_SHOWN)
            for name, reason in result[kind]["left_out"].items():
                print(f"{name}: {reason}")
    options.images_per_epoch = images
    return result


if __name__ == "__main__":
    main()
