"""When does a store pay? Reading, and making training batches, from each kind of store.

PHOTOS contains JPEG photos. They are repeated up to `--images` and written into a store of each
kind in `--folder` (by default a temporary folder; choose one on the disk in question). The stores
are then read:

- "in order" and "shuffled": `--threads` threads read the bytes of each item and look at one byte of
  each page;
- "stream", for tar: one thread reads from the first byte to the last, without an index;
- "train": `Loader` over a `StoreDataset`, shuffled: read, decode, RandomResizedCrop, normalise.

"Warm" means that the files are in the system's cache. "Cold" means that they have been evicted:
root does this through /proc/sys/vm/drop_caches, which also evicts folders; other users do it file
by file. Opening the store is measured separately. Kinds take turns, in a new random order each
round. Figures are medians; ratios to the folder of files are medians of the ratios within a round.
"""

from __future__ import annotations

import os
import random
import sys
import tempfile
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import Any

import _common as bench
import numpy as np

from fastdecode._system.processor import usable_cores
from fastdecode.stores import Store, Writer, create_store, open_store
from fastdecode.stores.tar import stream_tar
from fastdecode.torch import Loader, StoreDataset
from fastdecode.torch.transforms import RandomResizedCropFlipNormalize

_SUFFIXES = {
    "folder": "",
    "tar": ".tar",
    "lmdb": ".lmdb",
    "hdf5": ".h5",
}
_PAGE = 4096
_CHUNK = 64
_CLASSES = 10
_DROP = Path("/proc/sys/vm/drop_caches")


class Hdf5Writer(Writer):
    """Writes an HDF5 file: the package only reads this kind."""

    def __init__(self, location: str) -> None:
        import h5py

        super().__init__(location)
        self._file = h5py.File(self._partial, "w")
        form = {"shape": (0,), "maxshape": (None,), "chunks": (1024,)}
        self._images = self._file.create_dataset("images", dtype=h5py.vlen_dtype("u1"), **form)
        self._labels = self._file.create_dataset("labels", dtype="i8", **form)

    def _append(self, _key: str, data: memoryview, target: Any) -> None:
        for table, value in ((self._images, np.frombuffer(data, "u1")), (self._labels, target)):
            table.resize(len(table) + 1, 0)
            table[-1] = value

    def _release(self) -> None:
        self._file.close()


def make(
    photos: Sequence[Path], images: int, folder: Path, kinds: Sequence[str]
) -> dict[str, Path]:
    """Write the stores."""
    files = [photo.read_bytes() for photo in photos]
    names = [f"class-{at}" for at in range(_CLASSES)]
    made = {}
    for kind in kinds:
        place = made[kind] = folder / f"photos{_SUFFIXES[kind]}"
        new = Hdf5Writer(str(place)) if kind == "hdf5" else create_store(place, kind, classes=names)
        with new as writer:
            for at in range(images):
                label = at * _CLASSES // images
                writer.add(f"{names[label]}/{at:07d}.jpg", files[at % len(files)], label)
    return made


def forget(folder: Path) -> bool:
    """Evict files from the system's cache; return whether it has evicted folders, too."""
    os.sync()
    if os.access(_DROP, os.W_OK):
        try:
            _DROP.write_text("3\n")
        except OSError:
            pass  # not allowed in a container: evict file by file
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
    """Look at each page, as a decoder would: only that reads a mapped file."""
    return sum(memoryview(data)[::_PAGE])


def read(store: Store, threads: int, *, shuffled: bool) -> float:
    """Read all items; return seconds."""
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


def train(store: Store, threads: int, *, shuffle: bool = True, batch: int = _CHUNK) -> float:
    """Make the batches of an epoch; return seconds."""
    dataset = StoreDataset(store, RandomResizedCropFlipNormalize(224))
    with Loader(dataset, batch, shuffle=shuffle, threads=threads) as loader:
        start = perf_counter()
        images = sum(len(batch[0]) for batch in loader)
        seconds = perf_counter() - start
    if images != len(store):
        sys.exit(f"{store!r} gave {images} images")
    return seconds


def stream(path: Path) -> float:
    """Read a shard from beginning to end; return seconds."""
    start = perf_counter()
    sum(touched(sample.data) for sample in stream_tar(str(path)))
    return perf_counter() - start


def turn(
    path: Path, kind: str, threads: int, job: Callable[[Store], float], cold: bool
) -> dict[str, float]:
    """Run a job with a store that is in the system's cache, or is not."""
    if cold:
        forget(path.parent)
    start = perf_counter()
    with open_store(path, kind) as store:
        opened = perf_counter() - start
        if not cold:
            read(store, threads, shuffled=False)
        return {"images_per_s": len(store) / job(store), "opened_s": opened}


def measure(places: dict[str, Path], threads: int, rounds: int) -> bench.Rounds:
    """Run all jobs on all kinds in each round; return their figures."""
    jobs: dict[str, Callable[[Store], float]] = {
        "in order": partial(read, threads=threads, shuffled=False),
        "shuffled": partial(read, threads=threads, shuffled=True),
        "train": partial(train, threads=threads),
        "stream": lambda _: stream(places["tar"]),
    }
    competitors = {
        f"{name}, {'cold' if cold else 'warm'}/{kind}": partial(
            turn, path, kind, threads, job, cold
        )
        for kind, path in places.items()
        for name, job in jobs.items()
        if name != "stream" or kind == "tar"
        for cold in (True, False)
    }
    return bench.take_turns(competitors, rounds, warm_up=False)


def summary(turns: bench.Rounds, bytes_each: float) -> dict[str, Any]:
    """Sum up the rounds by job and kind."""
    result: dict[str, Any] = {}
    for name in turns:
        title, _, kind = name.partition("/")
        base = f"{title.replace('stream', 'in order')}/folder"
        one = bench.sum_up({name: turns[name], base: turns[base]}, to_folder=base)[name]
        opened = one.pop("opened_s")
        one["mb_per_s"] = round(one["images_per_s"] * bytes_each / 1e6, 1)
        result.setdefault(title, {})[kind] = one
        if title == "in order, cold":
            result.setdefault("open, cold", {})[kind] = {"seconds": opened}
    return result


@bench.command(
    images=(5000, "per store"),
    threads=(usable_cores(), "that read"),
    rounds=(3, "of all jobs"),
    kinds=([*_SUFFIXES], "of stores"),
    folder=(Path(tempfile.gettempdir()), "where the stores are made"),
)
def main(options: Any) -> Any:
    if "folder" not in options.kinds or set(options.kinds) - set(_SUFFIXES):
        sys.exit(f"--kinds must be some of {', '.join(_SUFFIXES)}, and include folder")
    photos = bench.photos_in(options.photos)
    with tempfile.TemporaryDirectory(dir=options.folder) as temporary:
        places = make(photos, options.images, Path(temporary), options.kinds)
        sizes = [photo.stat().st_size for photo in photos]
        size = sum(sizes[at % len(sizes)] for at in range(options.images))
        thorough = forget(Path(temporary))
        turns = measure(places, options.threads, options.rounds)
    result = summary(turns, size / options.images)
    for title, rows in sorted(result.items()):
        bench.show(title, rows)
    options.bytes, options.folders_forgotten = size, thorough
    return result


if __name__ == "__main__":
    main()
