"""How fast do photos become batches, beside what people use today?

PHOTOS are in class folders or loose. "train" is RandomResizedCrop(224) and a flip, in random order,
"eval" Resize(256) and CenterCrop(224); all pipelines give batches of normalised float32 tensors,
(3, 224, 224) a photo. `_pipelines.py` defines them.

Each lives in a process of its own. After a warm-up, their epochs take turns, in an order drawn anew
each time; while one runs the others wait. Few photos are repeated (as links) until an epoch has
about 1000 of 500 x 375 pixels, fewer of larger ones, always whole batches for every worker. The
files come from the system's cache.

- images/s: from asking for the first batch to having the last; of the best epoch and the median.
- CPU s: of the process and its workers, for 1000 images, in the median epoch.
- memory: the most that the process and its workers had resident while an epoch was timed (RSS:
  pages that they share count more than once), and in the warm-up with those divided (PSS).
- diff.: from the reference on "eval", mean absolute, in levels of 255, over up to 128 different
  photos. DALI rounds the long side and the crop's margin otherwise than torchvision: most of its
  difference is a shift by up to a pixel.
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

from fastdecode._process import Child

_KINDS = ("train", "eval")
_BASELINES = ("pillow", "dali")
_COMPARED = 128
_SHOWN = (
    *("median_images_per_s", "to_pillow_median", "to_dali_median"),
    *("cpu_s_per_1000", "peak_pss_mb", "difference"),
)


def turn(child: Child, pss_mb: dict[str, float], name: str) -> dict[str, float]:
    """Make an epoch; one that cannot ends its process. The first is the warm-up."""
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
    """Run the pipelines in turn; return what was measured, and why others were not."""
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
    """Sum up; against each baseline, the best by the best, and the median of epochs in turn."""
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
    """Compare the images of "eval" with the reference, in fresh processes."""
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
    kind=([*_KINDS], "what is done"),
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
