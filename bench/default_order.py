"""How fast is each backend on real photos? The default order follows from this.

    python bench/default_order.py PHOTOS

JPEGs are taken as they are; PNG and WebP are made of the smaller ones by Pillow, because there is
no collection of photos in these formats. All usable backends decode the same files in turn, in
rounds of random order (`fastdecode.bench.run`), one thread, from memory.
"""

from __future__ import annotations

import sys
from pathlib import Path

from PIL import Image
from record import record

from fastdecode import backends, decode_file, probe
from fastdecode.bench.figures import rows
from fastdecode.bench.files import Photo
from fastdecode.bench.run import Group, Plan, measure
from fastdecode.testing import encode

_SECONDS = 2.0
_REENCODED = {"png": {}, "webp": {"quality": 80}, "jpeg2000": {}}
_FEW = 24


def photos(folder: Path) -> list[Photo]:
    paths = sorted(folder.rglob("*.jpg"))
    found = [Photo(path.name, data := path.read_bytes(), probe(data)) for path in paths]
    small = [p for p in paths if p.stat().st_size < 100_000][:: max(1, len(paths) // _FEW)]
    for format, options in _REENCODED.items():
        for path in small:
            image = Image.fromarray(decode_file(path, backend="pillow"))
            data = encode(image, format, **options)
            found.append(Photo(f"{path.stem}.{format}", data, probe(data)))
    return found


def main() -> None:
    names = tuple(info.name for info in backends() if info.usable)
    groups: list[Group] = []
    measure(photos(Path(sys.argv[1])), Plan(names, (1, 2, 4, 8), _SECONDS), groups)
    result = {}
    for group in groups:
        title = f"{group.format} 1/{group.reduce}"
        result[title] = {
            "files": len(group.common),
            **{
                row.backend: {
                    "images_per_s": round(row.images_per_s, 1),
                    "ratio_to_best": round(row.ratio, 3),
                    "files_that_differ": len(group.checks[row.backend].differing),
                }
                for row in rows(group)
            },
        }
        print(title, {k: v["ratio_to_best"] for k, v in result[title].items() if k != "files"})
    print(record("default_order", result, seconds_each=_SECONDS))


if __name__ == "__main__":
    main()
