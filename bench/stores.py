"""When does a store pay? Reading, and making training batches, from each kind of store.

    python bench/stores.py PHOTOS [--images 5000] [--threads 2] [--rounds 3] [--folder DIR]
                           [--kinds folder,tar,...] [--json FILE]

PHOTOS holds JPEG photos. They are written, copied until there are enough, into a store of each kind
in DIR (by default a temporary folder; it is to be on the disk that is in question), then read:

- "in order" and "shuffled": each item's bytes, of which one in each page is looked at, by so many
  threads;
- "stream", for tar: from the first byte to the last, without an index, by one thread;
- "train": `Loader` over a `StoreDataset`, shuffled: read, decode, RandomResizedCrop, normalise.

"Warm": the files are in the system's cache. "Cold": they have been thrown out of it before; by root
through /proc/sys/vm/drop_caches, which forgets folders, too, by anyone else file by file. Opening
the store is not counted, but told by itself. Kinds take turns, in an order drawn anew in each
round; figures are medians, ratios to the folder of files are medians of those within a round.
"""

from __future__ import annotations

import argparse
import os
import random
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

from record import record
from reference import photos_in

from fastdecode._system import usable_cores
from fastdecode.stores import Store, create_store, open_store
from fastdecode.stores.tar import stream_tar
from fastdecode.torch import Loader, StoreDataset
from fastdecode.torch.transforms import RandomResizedCropFlipNormalize

_SUFFIXES = {
    "folder": "",
    "tar": ".tar",
    "recordio": ".rec",
    "lmdb": ".lmdb",
    "hdf5": ".h5",
}
_PAGE = 4096
_CHUNK = 64
_CLASSES = 10
_DROP = Path("/proc/sys/vm/drop_caches")

_Rounds = dict[str, dict[str, list[float]]]


def make(
    photos: Sequence[Path], images: int, folder: Path, kinds: Sequence[str]
) -> dict[str, Path]:
    """Write the stores."""
    files = [photo.read_bytes() for photo in photos]
    names = [f"class-{at}" for at in range(_CLASSES)]
    made = {}
    for kind in kinds:
        place = made[kind] = folder / f"photos{_SUFFIXES[kind]}"
        with create_store(place, kind, classes=names) as writer:
            for at in range(images):
                label = at * _CLASSES // images
                writer.add(f"{names[label]}/{at:07d}.jpg", files[at % len(files)], label)
    return made


def forget(folder: Path) -> bool:
    """Throw files out of the system's cache; whether the system has forgotten folders, too."""
    os.sync()
    if os.access(_DROP, os.W_OK):
        try:
            _DROP.write_text("3\n")
        except OSError:
            pass  # a container may not: then file by file
        else:
            return True
    for path in folder.rglob("*"):
        if path.is_file():
            handle = os.open(path, os.O_RDONLY)
            try:
                os.posix_fadvise(handle, 0, 0, os.POSIX_FADV_DONTNEED)
            finally:
                os.close(handle)
    return False


def touched(data: Any) -> int:
    """Look at each page, as a decoder would: a mapped file is not read before that."""
    return sum(memoryview(data)[::_PAGE])


def read(store: Store, threads: int, *, shuffled: bool) -> float:
    """Read all items; seconds."""
    order = list(range(len(store)))
    if shuffled:
        random.Random(0).shuffle(order)
    parts = [order[at : at + _CHUNK] for at in range(0, len(order), _CHUNK)]

    def some(part: list[int]) -> int:
        return sum(touched(store.read(index)) for index in part)

    start = perf_counter()
    with ThreadPoolExecutor(threads) as pool:
        sum(pool.map(some, parts))
    return perf_counter() - start


def train(store: Store, threads: int) -> float:
    """Make the batches of an epoch; seconds."""
    dataset = StoreDataset(store, RandomResizedCropFlipNormalize(224))
    with Loader(dataset, _CHUNK, shuffle=True, threads=threads) as loader:
        start = perf_counter()
        images = sum(len(batch[0]) for batch in loader)
        seconds = perf_counter() - start
    if images != len(store):
        sys.exit(f"{store!r} gave {images} images")
    return seconds


def stream(path: Path) -> float:
    """Read a shard from its beginning to its end; seconds."""
    start = perf_counter()
    sum(touched(sample.data) for sample in stream_tar(str(path)))
    return perf_counter() - start


def jobs(kind: str, path: Path, threads: int) -> Iterator[tuple[str, Callable[[Store], float]]]:
    """Yield what is done with a kind of store."""
    yield "in order", lambda store: read(store, threads, shuffled=False)
    yield "shuffled", lambda store: read(store, threads, shuffled=True)
    yield "train", lambda store: train(store, threads)
    if kind == "tar":
        yield "stream", lambda _: stream(path)


def measure(places: dict[str, Path], options: argparse.Namespace) -> tuple[_Rounds, bool]:
    """Do everything in each round; seconds by job and kind, and whether folders were forgotten."""
    found: _Rounds = {}
    thorough = True
    work = [
        (kind, name, job, cold)
        for kind, path in places.items()
        for name, job in jobs(kind, path, options.threads)
        for cold in (True, False)
    ]
    for _ in range(options.rounds):
        for kind, name, job, cold in random.sample(work, len(work)):
            if cold:
                thorough &= forget(places[kind].parent)
            start = perf_counter()
            with open_store(places[kind], kind) as store:
                opened = perf_counter() - start
                if not cold:
                    read(store, options.threads, shuffled=False)
                seconds = job(store)
            title = f"{name}, {'cold' if cold else 'warm'}"
            found.setdefault(title, {}).setdefault(kind, []).append(seconds)
            if cold and name == "in order":
                found.setdefault("open, cold", {}).setdefault(kind, []).append(opened)
    return found, thorough


def summary(rounds: _Rounds, images: int, size: int) -> dict[str, Any]:
    """Sum up the rounds."""
    result: dict[str, Any] = {}
    for title, kinds in rounds.items():
        rows = result[title] = {}
        for kind, seconds in kinds.items():
            if title.startswith("open"):
                rows[kind] = {"seconds": round(median(seconds), 4)}
                continue
            base = kinds.get("folder") or rounds[title.replace("stream", "in order")]["folder"]
            ratios = [one / other for one, other in zip(base, seconds, strict=True)]
            rows[kind] = {
                "images_per_s": round(images / median(seconds), 1),
                "mb_per_s": round(size / 1e6 / median(seconds), 1),
                "to_folder": round(median(ratios), 3),
            }
    return result


def show(result: dict[str, Any]) -> None:
    """Print a table for each job."""
    for title in sorted(result):
        if title.startswith("open"):
            cells = (f"{kind} {row['seconds']:.3f} s" for kind, row in result[title].items())
            print(f"{title}: {', '.join(cells)}\n")
            continue
        print(f"{title:<18}{'images/s':>10}{'MB/s':>10}{'to folder':>11}")
        for kind, row in result[title].items():
            print(
                f"  {kind:<16}{row['images_per_s']:>10.0f}{row['mb_per_s']:>10.1f}"
                f"{row['to_folder']:>10.2f}x"
            )
        print()


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("photos", type=Path, metavar="PHOTOS")
    parser.add_argument("--images", type=int, default=5000)
    parser.add_argument("--threads", type=int, default=usable_cores())
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--kinds", default=",".join(_SUFFIXES))
    parser.add_argument("--folder", type=Path, metavar="DIR", help="where the stores are made")
    parser.add_argument("--json", type=Path, metavar="FILE")
    options = parser.parse_args()
    options.kinds = options.kinds.split(",")
    if "folder" not in options.kinds or set(options.kinds) - set(_SUFFIXES):
        parser.error(f"--kinds are some of {', '.join(_SUFFIXES)}, folder among them")
    return options


def main() -> None:
    options = arguments()
    photos = photos_in(options.photos)
    with tempfile.TemporaryDirectory(dir=options.folder) as temporary:
        places = make(photos, options.images, Path(temporary), options.kinds)
        sizes = [photo.stat().st_size for photo in photos]
        size = sum(sizes[at % len(sizes)] for at in range(options.images))
        rounds, thorough = measure(places, options)
    result = summary(rounds, options.images, size)
    show(result)
    if options.json:
        settings = {
            "photos": options.photos.resolve().name,
            "images": options.images,
            "bytes": size,
            "threads": options.threads,
            "rounds": options.rounds,
            "folders_forgotten": thorough,
        }
        print(record(str(options.json.resolve().with_suffix("")), result, **settings))


if __name__ == "__main__":
    main()
