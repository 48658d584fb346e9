"""What does it cost to cut a part out of a large photo?

PHOTOS contains JPEG photos, for instance of 12 megapixels; photos that are too small are left out.
One thread cuts random squares out of them, from bytes in memory, in these ways:

- full decode and slice, with the native core and with each other backend that gives the same
  pixels, into reused memory where the library supports that;
- `decode(region=...)` with the native core, from the original file;
- the same after `fastdecode.native.add_restart_markers`, which runs before the clock starts.

All ways cut the same square, one after the other, in a new random order for each square. Their
pixels must be the same. images/s cover all squares of a round and are medians of the rounds. Ratios
are medians of the ratios within a round, to the fastest full decode of the other backends. Aims: at
least 1.5 times for the original file, 5 times with restart markers. The result also has the size
and the time that restart markers cost.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import Any, NamedTuple, TypeAlias

import _common as bench
import numpy as np
from numpy.typing import NDArray

import fastdecode
from fastdecode import decode, probe
from fastdecode.native import add_restart_markers
from fastdecode.types import Box

_Pixels = NDArray[np.uint8]
_OTHERS = ("simplejpeg", "turbojpeg", "opencv", "jpeg4py", "imagecodecs", "pillow")
_FULL, _REGION, _AGAIN = "native: full", "native: region", "native: region, restart markers"
_AIMS = {_REGION: 1.5, _AGAIN: 5.0}
# The others would have to copy the image into memory that exists already.
_WRITE_TO_OUT = ("simplejpeg", "turbojpeg", "jpeg4py", "native")


class Photo(NamedTuple):
    """A photo: the original, and rewritten with restart markers."""

    name: str
    data: bytes
    again: bytes
    width: int
    height: int
    rewriting_s: float  # the fastest of three


Work: TypeAlias = tuple[Photo, Box]


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


def full_by(name: str, kept: dict[tuple[int, int], _Pixels], work: Work) -> _Pixels:
    """Decode the whole photo and return a part."""
    photo, (left, top, right, bottom) = work
    out = kept[photo.height, photo.width] if name in _WRITE_TO_OUT else None
    part: _Pixels = decode(photo.data, backend=name, out=out)[top:bottom, left:right].copy()
    return part


def ways_for(photos: Sequence[Photo]) -> dict[str, Callable[[Work], _Pixels]]:
    """Return the ways that work here."""
    kept = {
        (photo.height, photo.width): np.zeros((photo.height, photo.width, 3), np.uint8)
        for photo in photos
    }
    usable = {info.name for info in fastdecode.backends() if info.usable}
    full = (name for name in (*_OTHERS, "native") if name in usable)
    return {
        **{f"{name}: full": partial(full_by, name, kept) for name in full},
        _REGION: lambda work: decode(work[0].data, region=work[1], backend="native"),
        _AGAIN: lambda work: decode(work[0].again, region=work[1], backend="native"),
    }


def square(photo: Photo, side: int, draw: random.Random) -> Box:
    left, top = draw.randint(0, photo.width - side), draw.randint(0, photo.height - side)
    return left, top, left + side, top + side


def measure(photos: Sequence[Photo], side: int, crops: int, rounds: int) -> bench.Rounds:
    """Cut squares in all ways."""
    draw = random.Random(0)

    def squares(number: int) -> list[Work]:
        times = range(crops if number else 1)
        return [(photo, square(photo, side, draw)) for photo in photos for _ in times]

    def compare(results: list[_Pixels]) -> None:
        assert all(np.array_equal(results[0], other) for other in results[1:])

    return bench.time_each(squares, ways_for(photos), rounds, check=compare)


def summary(photos: Sequence[Photo], turns: bench.Rounds) -> dict[str, Any]:
    """Sum up: images/s, and ratios to the fastest full decode of the other backends."""
    speeds = {name: one["images_per_s"] for name, one in bench.sum_up(turns).items()}
    others = [name for name in speeds if not name.startswith("native")]
    fastest = max(others, key=lambda name: speeds[name])
    rewritten = {
        photo.name: {
            "width": photo.width,
            "height": photo.height,
            "bytes": len(photo.data),
            "bytes_after": len(photo.again),
            "seconds": round(photo.rewriting_s, 4),
        }
        for photo in photos
    }
    after, before = (
        sum(one[key] for one in rewritten.values()) for key in ("bytes_after", "bytes")
    )
    return {
        "fastest_other": fastest,
        "ways": bench.sum_up(turns, to_fastest_other=fastest, to_own_full=_FULL),
        "rewritten": rewritten,
        "bytes_ratio": round(after / before, 4),
        "rewriting_s": round(sum(photo.rewriting_s for photo in photos) / len(photos), 4),
    }


@bench.command(
    side=(512, "of the squares, in pixels"),
    rounds=(5, "after the warm-up"),
    crops=(4, "of each photo in each round"),
    limit=(None, "photos"),
)
def main(options: Any) -> Any:
    paths = [path for path in bench.photos_in(options.photos) if is_large(path, options.side)]
    photos = [photo_of(path) for path in paths[: options.limit]]
    if not photos:
        sys.exit(f"there are no photos of that size in {options.photos}")
    result = summary(photos, measure(photos, options.side, options.crops, options.rounds))
    bench.show("", result["ways"])
    bench.show("rewritten", result["rewritten"])
    for name, aim in _AIMS.items():
        bench.judge(name, result["ways"][name]["to_fastest_other"], aim)
    return result


if __name__ == "__main__":
    main()
