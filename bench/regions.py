"""What does it cost to cut a part out of a large photo?

    python bench/regions.py PHOTOS [--side 512] [--rounds 5] [--crops 4] [--limit N] [--json FILE]

PHOTOS holds JPEG photos, of 12 megapixels for instance; those that are too small are left out. One
thread cuts random squares out of them, from bytes in memory, in these ways:

- full decode and slice, by each other backend whose pixels are the same, and by the native core,
  into memory that is used again where the library can do that;
- `decode(region=...)` by the native core, of the file as it is;
- the same after `fastdecode.native.add_restart_markers`, which was done before the clock started.

All ways cut the same square, one after the other, in an order drawn anew for each. Their pixels
must be the same. images/s are those of all squares of a round, medians of the rounds; ratios are
medians of those within a round, to the fastest full decode of the other backends. Aims: at least
1.5 times as it is, 5 times after reindex. The bytes that reindex adds, and its time, are told too.
"""

from __future__ import annotations

import argparse
import random
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from record import record
from reference import photos_in

import fastdecode
from fastdecode import decode, probe
from fastdecode.native import add_restart_markers, library
from fastdecode.types import Box

_Pixels = NDArray[np.uint8]
_OTHERS = ("simplejpeg", "turbojpeg", "opencv", "jpeg4py", "imagecodecs", "pillow")
_FULL, _REGION, _AGAIN = "native: full", "native: region", "native: region, reindexed"
_AIMS = {_REGION: 1.5, _AGAIN: 5.0}


class Photo(NamedTuple):
    """A photo, as it came and rewritten.

    Attributes
    ----------
    name : str
    data, again : bytes
    width, height : int
    reindex_s : float
        Seconds; the fastest of three.
    """

    name: str
    data: bytes
    again: bytes
    width: int
    height: int
    reindex_s: float


def photo_of(path: Path) -> Photo:
    data = path.read_bytes()
    header = probe(data)
    times = []
    for _ in range(3):
        start = perf_counter()
        again = add_restart_markers(data)
        times.append(perf_counter() - start)
    return Photo(path.name, data, again, header.width, header.height, min(times))


def is_large(path: Path, side: int) -> bool:
    header = probe(path.read_bytes())
    return header.format == "jpeg" and min(header.width, header.height) >= side


def full_by(name: str, kept: dict[tuple[int, int], _Pixels]) -> Callable[[Photo, Box], _Pixels]:
    """Decode all of it, keep a part."""

    def cut(photo: Photo, box: Box) -> _Pixels:
        left, top, right, bottom = box
        out = kept[photo.height, photo.width] if name in _WRITE_TO_OUT else None
        part: _Pixels = decode(photo.data, backend=name, out=out)[top:bottom, left:right].copy()
        return part

    return cut


# For the others a picture in memory that is already there would be one more copy.
_WRITE_TO_OUT = ("simplejpeg", "turbojpeg", "jpeg4py", "native")


def region(photo: Photo, box: Box) -> _Pixels:
    return decode(photo.data, region=box, backend="native")


def region_again(photo: Photo, box: Box) -> _Pixels:
    return decode(photo.again, region=box, backend="native")


def ways_for(photos: Sequence[Photo]) -> dict[str, Callable[[Photo, Box], _Pixels]]:
    """List the ways that work here."""
    kept = {
        (photo.height, photo.width): np.zeros((photo.height, photo.width, 3), np.uint8)
        for photo in photos
    }
    usable = {info.name for info in fastdecode.backends() if info.usable}
    ways = {f"{name}: full": full_by(name, kept) for name in _OTHERS if name in usable}
    return {**ways, _FULL: full_by("native", kept), _REGION: region, _AGAIN: region_again}


def square(photo: Photo, side: int, draw: random.Random) -> Box:
    left, top = draw.randint(0, photo.width - side), draw.randint(0, photo.height - side)
    return left, top, left + side, top + side


def measure(photos: Sequence[Photo], options: argparse.Namespace) -> dict[str, list[float]]:
    """Cut squares by all ways; seconds of each round, by way."""
    draw = random.Random(0)
    ways = ways_for(photos)
    found: dict[str, list[float]] = {name: [] for name in ways}
    for turn in range(options.rounds + 1):
        spent = dict.fromkeys(ways, 0.0)
        for photo in photos:
            for _ in range(options.crops if turn else 1):
                box = square(photo, options.side, draw)
                results = []
                for name in draw.sample(list(ways), len(ways)):
                    start = perf_counter()
                    results.append(ways[name](photo, box))
                    spent[name] += perf_counter() - start
                assert all(np.array_equal(results[0], other) for other in results[1:])
        if turn:  # the first is the warm-up
            for name, seconds in spent.items():
                found[name].append(seconds)
    return found


def summary(photos: Sequence[Photo], found: dict[str, list[float]], crops: int) -> dict[str, Any]:
    """Sum up: images/s, and ratios to the fastest full decode of the other backends."""
    images = len(photos) * crops
    others = [name for name in found if not name.startswith("native")]
    fastest = min(others, key=lambda name: median(found[name]))
    return {
        "fastest_other": fastest,
        "ways": {
            name: {
                "images_per_s": round(median(images / one for one in seconds), 2),
                "rounds": [round(images / one, 2) for one in seconds],
                "to_fastest_other": _ratio(found[fastest], seconds),
                "to_own_full": _ratio(found[_FULL], seconds),
            }
            for name, seconds in found.items()
        },
        "reindex": {
            photo.name: {
                "width": photo.width,
                "height": photo.height,
                "bytes": len(photo.data),
                "bytes_after": len(photo.again),
                "seconds": round(photo.reindex_s, 4),
            }
            for photo in photos
        },
        "bytes_ratio": round(
            sum(len(p.again) for p in photos) / sum(len(p.data) for p in photos), 4
        ),
        "reindex_s": round(sum(photo.reindex_s for photo in photos) / len(photos), 4),
    }


def _ratio(seconds: list[float], others: list[float]) -> float:
    return round(median(one / other for one, other in zip(seconds, others, strict=True)), 3)


def table(result: dict[str, Any]) -> str:
    fastest = result["fastest_other"].partition(":")[0]
    lines = [f"{'':<30}images/s{f'to {fastest}':>17}  to native, full"]
    lines += [
        f"{name:<30}{one['images_per_s']:8.1f}{one['to_fastest_other']:17.2f}"
        f"{one['to_own_full']:17.2f}"
        for name, one in result["ways"].items()
    ]
    for name, aim in _AIMS.items():
        ratio = result["ways"][name]["to_fastest_other"]
        lines.append(f"The aim of {aim} for {name} is {'met' if ratio >= aim else 'missed'}")
    lines += ["", f"{'reindex':<48}bytes   after      %      ms"]
    lines += [
        f"{name[:41]:<41}{one['bytes']:12}{one['bytes_after']:8}"
        f"{100 * one['bytes_after'] / one['bytes'] - 100:+7.2f}{1000 * one['seconds']:8.1f}"
        for name, one in result["reindex"].items()
    ]
    lines.append(f"together {100 * result['bytes_ratio'] - 100:+.2f} %")
    return "\n".join(lines)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("folder", type=Path, metavar="PHOTOS")
    parser.add_argument("--side", type=int, default=512, help="of the squares, in pixels")
    parser.add_argument("--rounds", type=int, default=5, help="after the warm-up")
    parser.add_argument("--crops", type=int, default=4, help="of each photo in each round")
    parser.add_argument("--limit", type=int, metavar="N", help="photos")
    parser.add_argument("--json", type=Path, metavar="FILE")
    return parser.parse_args()


def main() -> None:
    options = arguments()
    library.require()
    paths = [path for path in photos_in(options.folder) if is_large(path, options.side)]
    photos = [photo_of(path) for path in paths[: options.limit]]
    if not photos:
        sys.exit(f"there are no photos of that size in {options.folder}")
    result = summary(photos, measure(photos, options), options.crops)
    print(table(result))
    if options.json:
        settings = {
            "photos": options.folder.resolve().name,
            "side": options.side,
            "rounds": options.rounds,
            "crops": options.crops,
            "core": library.codec(),
        }
        print(record(str(options.json.resolve().with_suffix("")), result, **settings))


if __name__ == "__main__":
    main()
