"""How near do the transforms come to torchvision's pixels?

Every photo under PHOTOS goes through Resize(256) and CenterCrop(224), and through
RandomResizedCrop(224) and a flip by a few fixed seeds, as bytes, by this package's transforms and
by the reference (`_pipelines.py`: torchvision v2's rules in plain torch). The reference draws its
boxes and flips by itself: another box would show at once.

- exact: ``quality="exact"``; the largest difference, in levels of 255. Aim: at most 1.
- default: the peak signal-to-noise ratio, a mean over the results. Aim: above 40 dB. 60 dB is the
  most that a result counts for, whether it is the same or just nearly: fewer than one value in 15
  is then a level off. The results whose JPEG was decoded at a reduced size are also told by
  themselves, since the others differ no more than exact ones.

A collection is a folder in PHOTOS.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from statistics import mean
from typing import Any, NamedTuple

import torch
from _common import RESULTS, judge, keep, parser, photos_in, show
from _pipelines import RESIZE, SIZE, evaluation, pixels, training

from fastdecode import probe
from fastdecode.torch.transforms import RandomResizedCrop, ResizeCenterCrop

_SEEDS = 4
_MOST_DB = 60.0
_AIM_LEVELS, _AIM_DB = 1, 40.0


class Found(NamedTuple):
    """How one result differs from the reference."""

    collection: str
    photo: str
    kind: str  # "eval" or "train"
    levels: int  # the exact result's largest difference
    db: float  # the default result's peak signal-to-noise ratio
    reduce: int  # at which the default result was decoded


def transforms(kind: str) -> list[Any]:
    """Make the two to be judged: exact and default."""
    how = [{"dtype": torch.uint8, "quality": quality} for quality in ("exact", "fast")]
    if kind == "eval":
        return [ResizeCenterCrop(RESIZE, SIZE, **each) for each in how]
    return [RandomResizedCrop(SIZE, flip=0.5, **each) for each in how]


def compare(path: Path, collection: str, seeds: Iterable[int]) -> list[Found]:
    """Compare what becomes of one photo."""
    data, image = path.read_bytes(), pixels(path)
    header = probe(data)
    found = []
    for kind, seed in [("eval", 0), *(("train", seed) for seed in seeds)]:
        expected = evaluation(image) if kind == "eval" else training(image, seed)
        exact, default = transforms(kind)
        levels = difference(exact(data, generator=seeded(seed)), expected)
        plan = default.plan(header.width, header.height, seeded(seed))
        found.append(
            Found(
                collection,
                path.name,
                kind,
                int(levels.max()),
                decibels(difference(default(data, generator=seeded(seed)), expected)),
                default.reduce_for(header, plan),
            )
        )
    return found


def seeded(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def difference(result: torch.Tensor, expected: torch.Tensor) -> torch.Tensor:
    assert result.dtype == expected.dtype == torch.uint8
    assert result.shape == expected.shape
    return (result.short() - expected.short()).abs()


def decibels(levels: torch.Tensor) -> float:
    square = float(levels.double().square().mean())
    if not square:
        return _MOST_DB
    return min(_MOST_DB, 10 * torch.tensor(255**2 / square).log10().item())


def summary(results: list[Found]) -> dict[str, Any]:
    """Sum up, with the worst of each."""
    farthest = max(results, key=lambda one: one.levels)
    noisiest = min(results, key=lambda one: one.db)
    reduced = [one.db for one in results if one.reduce > 1]
    return {
        "results": len(results),
        "exact": {
            "largest_difference": farthest.levels,
            "worst_photo": f"{farthest.collection}/{farthest.photo}",
        },
        "default": {
            "mean_db": round(mean(one.db for one in results), 2),
            "worst_db": round(noisiest.db, 2),
            "worst_photo": f"{noisiest.collection}/{noisiest.photo}",
            "reduced": len(reduced),
            "mean_db_reduced": round(mean(reduced), 2) if reduced else None,
        },
    }


def main() -> None:
    options = parser(__doc__, json=RESULTS / "quality.json").parse_args()
    root = options.photos
    results: list[Found] = []
    for number, path in enumerate(photos_in(root)):
        parts = path.relative_to(root).parent.parts
        seeds = range(number * _SEEDS, (number + 1) * _SEEDS)
        results += compare(path, parts[0] if parts else root.resolve().name, seeds)
    result: dict[str, Any] = {}
    for kind in ("eval", "train"):
        some = [one for one in results if one.kind == kind]
        names = sorted({one.collection for one in some})
        result[kind] = {"all": summary(some)} | {
            name: summary([one for one in some if one.collection == name]) for name in names
        }
        for way in ("exact", "default"):
            show(f"{kind}, {way}", {name: one[way] for name, one in result[kind].items()})
        exact, default = (result[kind]["all"][way] for way in ("exact", "default"))
        judge("exact: levels", exact["largest_difference"], _AIM_LEVELS, at_most=True)
        judge("default: dB", default["mean_db"], _AIM_DB)
    keep(options, result, seeds_each=_SEEDS, at_most_db=_MOST_DB, torch=torch.__version__)


if __name__ == "__main__":
    main()
