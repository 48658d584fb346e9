"""How close are the transforms to torchvision's pixels?

Every photo under PHOTOS goes through Resize(256) and CenterCrop(224), and, with a few fixed seeds,
through RandomResizedCrop(224) and a flip, as bytes. Both this package's transforms and the
reference do this (the reference of the tests: torchvision v2's rules in plain torch). The reference
draws its own boxes and flips, so a different box would show at once.

- exact: ``quality="exact"``; the largest difference, in levels of 255. Aim: at most 1.
- fast: ``quality="fast"``; the peak signal-to-noise ratio, as a mean over the results. Aim: above
  40 dB. A result counts for at most 60 dB, whether it is identical or nearly so: at 60 dB, fewer
  than one value in 15 is a level off. Results whose JPEG was decoded at a reduced size are also
  reported separately, because the others differ no more than exact ones.

Each folder in PHOTOS is a collection.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from statistics import mean
from typing import Any, NamedTuple

import _common as bench
import torch
from _pipelines import RESIZE, SIZE, evaluation, training
from torch_reference import decibels, levels, pixels, seeded

from fastdecode import probe
from fastdecode.torch.transforms import RandomResizedCrop, ResizeCenterCrop

_SEEDS = 4
_MAX_DB = 60.0
_AIM_LEVELS, _AIM_DB = 1, 40.0


class Difference(NamedTuple):
    """How one result differs from the reference."""

    photo: str  # collection/name
    kind: str  # "eval" or "train"
    levels: int  # largest difference of the exact result
    db: float  # peak signal-to-noise ratio of the fast result
    reduce: int  # at which the fast result was decoded


def transforms(kind: str) -> list[Any]:
    """Return the two transforms to compare: exact and fast."""
    how = [{"dtype": torch.uint8, "quality": quality} for quality in ("exact", "fast")]
    if kind == "eval":
        return [ResizeCenterCrop(RESIZE, SIZE, **each) for each in how]
    return [RandomResizedCrop(SIZE, flip=0.5, **each) for each in how]


def compare(path: Path, name: str, seeds: Iterable[int]) -> Iterator[Difference]:
    """Compare the results of one photo with the reference."""
    data = path.read_bytes()
    image, header = pixels(data), probe(data)
    for kind, seed in [("eval", 0), *(("train", seed) for seed in seeds)]:
        expected = evaluation(image) if kind == "eval" else training(image, seed)
        exact, fast = transforms(kind)
        db = decibels(fast(data, generator=seeded(seed)), expected)
        plan = fast.draw(header.width, header.height, seeded(seed)).plan
        yield Difference(
            name,
            kind,
            levels(exact(data, generator=seeded(seed)), expected),
            min(_MAX_DB, db),
            fast.reduction(plan),
        )


def summary(results: list[Difference]) -> dict[str, Any]:
    """Sum up the results, with the worst of each kind."""
    farthest = max(results, key=lambda one: one.levels)
    noisiest = min(results, key=lambda one: one.db)
    reduced = [one.db for one in results if one.reduce > 1]
    return {
        "results": len(results),
        "exact": {"largest_difference": farthest.levels, "worst_photo": farthest.photo},
        "fast": {
            "mean_db": round(mean(one.db for one in results), 2),
            "worst_db": round(noisiest.db, 2),
            "worst_photo": noisiest.photo,
            "reduced": len(reduced),
            "mean_db_reduced": round(mean(reduced), 2) if reduced else None,
        },
    }


@bench.command(json=bench.RESULTS / "quality.json", limit=(150, "photos, evenly spaced"))
def main(options: Any) -> Any:
    root = options.photos
    results: list[Difference] = []
    for number, path in enumerate(bench.spaced(bench.photos_in(root), options.limit)):
        parts = path.relative_to(root).parent.parts
        seeds = range(number * _SEEDS, (number + 1) * _SEEDS)
        name = f"{parts[0] if parts else root.resolve().name}/{path.name}"
        results += compare(path, name, seeds)
    result: dict[str, Any] = {}
    for kind in ("eval", "train"):
        some = [one for one in results if one.kind == kind]
        by_collection: dict[str, list[Difference]] = {"all": some}
        for one in sorted(some, key=lambda one: one.photo):
            by_collection.setdefault(one.photo.partition("/")[0], []).append(one)
        found = result[kind] = {name: summary(group) for name, group in by_collection.items()}
        for way in ("exact", "fast"):
            bench.show(f"{kind}, {way}", {name: one[way] for name, one in found.items()})
        exact, fast = (found["all"][way] for way in ("exact", "fast"))
        bench.judge("exact: levels", exact["largest_difference"], _AIM_LEVELS, at_most=True)
        bench.judge("fast: dB", fast["mean_db"], _AIM_DB)
    options.seeds_each, options.at_most_db = _SEEDS, _MAX_DB
    return result


if __name__ == "__main__":
    main()
