"""How fast is each backend on real photos? The default order follows from this.

JPEGs are used as they are. Pillow makes PNG, WebP and JPEG 2000 from the smaller ones, because
there is no collection of photos in these formats. All usable backends decode the same files from
memory, in turn, in rounds of random order, with one thread, each in its own process
(`fastdecode.measure`). They are called alone: `decode` also checks the files.
"""

from __future__ import annotations

from itertools import groupby
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import _common as bench
from PIL import Image

from fastdecode import backends, decode_file
from fastdecode.measure._collection import Photo, collect
from fastdecode.measure._run import Run, RunPlan, measure
from fastdecode.testing import encode

_REENCODED = {"png": {}, "webp": {"quality": 80}, "jpeg2000": {}}
_FEW = 24


def photos(folder: Path, limit: int, made: Path) -> list[Photo]:
    jpegs = [path for path in bench.photos_in(folder) if path.suffix.lower() in (".jpg", ".jpeg")]
    paths = bench.spaced(jpegs, limit)
    small = [p for p in paths if p.stat().st_size < 100_000][:: max(1, len(paths) // _FEW)]
    for format, options in _REENCODED.items():
        for number, path in enumerate(small):
            image = Image.fromarray(decode_file(path, backend="pillow"))
            (made / f"{number}-{path.stem}.{format}").write_bytes(encode(image, format, **options))
    return collect([*paths, made]).photos


@bench.command(
    json=bench.RESULTS / "default_order.json",
    seconds=(2.0, "per format and backend"),
    limit=(150, "photos, evenly spaced"),
)
def main(options: Any) -> Any:
    names = tuple(info.name for info in backends() if info.usable)
    plan = RunPlan(names, (1, 2, 4, 8), every_format=True, seconds=options.seconds)
    found = Run()
    with TemporaryDirectory() as made:
        measure(photos(options.photos, options.limit, Path(made)), plan, found)
    result = {}
    for (format, reduce), rows in groupby(
        found.measurements(), key=lambda row: (row.format, row.reduce)
    ):
        timed = [row for row in rows if row.files]
        best = max(row.images_per_s.median for row in timed)
        title = f"{format} 1/{reduce}"
        figures = {
            row.backend: {
                "images_per_s": round(row.images_per_s.median, 1),
                "ratio_to_best": round(row.images_per_s.median / best, 3),
                "files_that_differ": len(row.differing),
            }
            for row in timed
        }
        result[title] = {"files": max(row.files for row in timed), **figures}
        bench.show(title, figures)
    return result


if __name__ == "__main__":
    main()
