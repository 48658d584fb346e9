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

import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from _common import (
    Peak,
    PeakMemory,
    Rounds,
    each,
    epoch_length,
    keep,
    linked,
    middle,
    parser,
    photos_in,
    ratio,
    show,
    take_turns,
    versions,
)
from _pipelines import PEERS, Epoch, Setup, evaluation, pixels

from fastdecode._process import Child

_KINDS = ("train", "eval")
_BASELINES = ("pillow", "dali")
_COMPARED = 128
_SHOWN = (
    "best_images_per_s",
    "to_pillow",
    "to_dali",
    "cpu_s_per_1000",
    "peak_pss_mb",
    "difference",
)


class Turn(NamedTuple):
    """An epoch, and the memory that it took."""

    epoch: Epoch
    peak: Peak


class Competitor:
    """A pipeline in its process."""

    def __init__(self, name: str, setup: Setup) -> None:
        self._child = Child("_pipelines:Pipeline", name, setup)
        self._is_warm = False
        self.pss_mb = 0.0

    def turn(self) -> Turn:
        """Make an epoch; one that cannot ends its process."""
        try:
            if self._is_warm:
                return self._epoch(pss=False)
            self._child.receive()  # raises what its construction raised
            turn = self._epoch(pss=True)
        except Exception:
            self._child.close()
            raise
        self._is_warm, self.pss_mb = True, turn.peak.pss_mb
        return turn

    def _epoch(self, *, pss: bool) -> Turn:
        with PeakMemory(self._child.ask("pid"), pss=pss) as memory:
            epoch = self._child.ask("epoch")
        return Turn(epoch, memory.peak)

    def close(self) -> None:
        self._child.close()


def compete(setup: Setup, names: Sequence[str], epochs: int) -> dict[str, Any]:
    """Run the pipelines in turn; return what was measured, and why others were not."""
    left_out: dict[str, str] = {}
    running = {name: Competitor(name, setup) for name in names}
    with ExitStack() as stack:
        for competitor in running.values():
            stack.callback(competitor.close)
        lanes = {name: competitor.turn for name, competitor in running.items()}
        turns = take_turns(lanes, epochs, left_out=left_out)
    memory = {name: round(running[name].pss_mb) for name in turns}
    return {"pipelines": summary(turns, memory), "left_out": left_out}


def summary(turns: Rounds[Turn], memory: dict[str, int]) -> dict[str, Any]:
    """Sum up; against each baseline, the best by the best, and the median of epochs in turn."""
    speeds = each(turns, lambda turn: turn.epoch.images / turn.epoch.seconds)
    costs = each(turns, lambda turn: 1000 * turn.epoch.cpu_seconds / turn.epoch.images)
    found: dict[str, Any] = {
        name: {
            "best_images_per_s": round(max(own.values()), 1),
            "median_images_per_s": middle(own, 1),
            "images_per_s": [round(speed, 1) for speed in own.values()],
            "cpu_s_per_1000": middle(costs[name], 2),
            "peak_rss_mb": [round(turn.peak.rss_mb) for turn in turns[name].values()],
            "peak_pss_mb": memory[name],
        }
        for name, own in speeds.items()
    }
    for base in (base for base in _BASELINES if base in found):
        for name, one in found.items():
            best = max(speeds[name].values()) / max(speeds[base].values())
            one |= {f"to_{base}": round(best, 3)}
            one |= {f"to_{base}_median": ratio(speeds[name], speeds[base])}
    return found


def add_differences(found: dict[str, Any], setup: Setup) -> None:
    """Compare the images of "eval" with the reference, in fresh processes."""
    photos = photos_in(Path(setup.folder))
    with tempfile.NamedTemporaryFile(suffix=".npy") as file:
        np.save(file, np.stack([evaluation(pixels(path)).numpy() for path in photos]))
        file.flush()
        for name, one in found.items():
            with Child("_pipelines:Pipeline", name, setup) as child:
                child.receive()
                one["difference"] = round(child.ask("difference", file.name), 4)


def main() -> None:
    command = parser(
        __doc__,
        batch=(64, "images"),
        workers=(2, "processes or threads"),
        epochs=(3, "after the warm-up"),
        kind=([*_KINDS], "what is done"),
        limit=(None, "images in an epoch"),
        only=([*PEERS], "pipelines"),
    )
    options = command.parse_args()
    if unknown := {*options.kind} - {*_KINDS} | {*options.only} - {*PEERS}:
        command.error(f"there is no {', '.join(sorted(unknown))}; pipelines: {', '.join(PEERS)}")
    photos = photos_in(options.photos)
    images = epoch_length(photos, options.batch, options.workers, options.limit)
    print(
        f"{len(photos)} photos; {images} images an epoch, batch {options.batch}, "
        f"{options.workers} workers, {options.epochs} epochs\n"
    )
    result: dict[str, Any] = {}
    with (
        linked(photos, options.photos, images) as repeated,
        linked(photos, options.photos, min(len(photos), _COMPARED)) as different,
    ):
        for kind in options.kind:
            setup = Setup(repeated, kind, options.batch, options.workers)
            result[kind] = compete(setup, options.only, options.epochs)
            found = result[kind]["pipelines"]
            if kind == "eval":
                add_differences(found, setup._replace(folder=different))
            show(kind, found, *_SHOWN)
            for name, reason in result[kind]["left_out"].items():
                print(f"{name}: {reason}")
    keep(
        options,
        result,
        "batch",
        "workers",
        "epochs",
        different_photos=len(photos),
        images_per_epoch=images,
        libraries=versions(),
    )


if __name__ == "__main__":
    main()
