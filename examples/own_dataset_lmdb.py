"""Your own dataset, which reads from LMDB and tells upright photos from wide ones.

    python own_dataset_lmdb.py photos/ photos.lmdb

The first run writes the encoded photos into one LMDB file. A subclass of `DecodeDataset` returns
the number of samples, and the encoded bytes and the target of each; the base class decodes, crops
and makes batches. Needs `pip install '.[lmdb,torch]'`.
"""

import argparse
import sys
import time
from pathlib import Path

from fastdecode import probe
from fastdecode.errors import FastDecodeError
from fastdecode.stores import create_store, open_store
from fastdecode.torch import DecodeDataset, Loader
from fastdecode.torch.transforms import ResizeCenterCropNormalize


def fill(photos: Path, place: Path) -> None:
    """Write the photos of a folder into a new LMDB file; leave out files that are not images."""
    with open_store(photos) as folder, create_store(place) as writer:
        for index in range(len(folder)):
            key, data = folder.key(index), folder.read(index)
            try:
                header = probe(data)  # reads only the header, and decodes nothing
            except FastDecodeError as error:
                print(f"left out: {key}: {error}", file=sys.stderr)
                continue
            writer.add(key, data, "upright" if header.height > header.width else "wide")


class Photos(DecodeDataset):
    """Photos of an LMDB file, with the target 1 for upright ones."""

    def __init__(self, place: Path, size: int) -> None:
        """Crop to squares; leave damaged photos out of their batch."""
        super().__init__(ResizeCenterCropNormalize(size, size), on_error="skip")
        self.store = open_store(place)

    def __len__(self) -> int:
        return len(self.store)

    def read(self, index: int) -> tuple[bytes | memoryview, int]:
        """Return the encoded bytes (a path would do as well) and the target."""
        return self.store.read(index), int(self.store.target(index) == "upright")


def main() -> None:
    """Fill the file if it does not exist, and read one epoch of it."""
    parser = argparse.ArgumentParser(description="Read batches from LMDB.")
    parser.add_argument("photos", type=Path, help="a folder of photos")
    parser.add_argument("lmdb", type=Path, help="the file to write and read, such as photos.lmdb")
    options = parser.parse_args()
    if not options.lmdb.exists():
        fill(options.photos, options.lmdb)
    begun, count, upright = time.perf_counter(), 0, 0
    dataset = Photos(options.lmdb, 224)
    for images, labels in Loader(dataset, batch_size=32, shuffle=True):
        count, upright = count + len(images), upright + int(labels.sum())
    speed = count / (time.perf_counter() - begun)
    print(f"{count} photos, {upright} of them upright, {speed:.0f} images/s")
    for failure in dataset.errors:
        name = dataset.store.key(failure.index)
        print(f"skipped: {name}: {failure.reason}", file=sys.stderr)


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        sys.exit("stopped")
    except (ImportError, OSError, ValueError) as error:
        sys.exit(f"error: {error}")
