"""A detection data set: boxes and masks follow their images through crop, resize and flip.

    python boxes.py photos/ boxes.json --masks masks/

boxes.json lists the objects of each file, as boxes (left, top, right, bottom) in pixels:

    {"cat.jpg": {"boxes": [[40, 60, 300, 400]], "labels": [1]}, ...}

A mask is a PNG of class numbers, as large as the image: masks/cat.png. A box that lies outside the
crop is left out, together with its label.
"""

import argparse
import json
import sys
import time
from pathlib import Path
from typing import Any

import torch

from fastdecode import Geometry, decode_file
from fastdecode.torch import DecodeDataset, Loader
from fastdecode.torch.transforms import RandomResizedCropFlipNormalize


class Objects(DecodeDataset):
    """Images with boxes, labels and, if there is one, a mask."""

    def __init__(self, folder: Path, rows: dict[str, Any], masks: Path | None) -> None:
        """Crop at least half of each image; replace damaged images."""
        super().__init__(RandomResizedCropFlipNormalize(224, (0.5, 1.0)), on_error="replace")
        self.folder, self.rows, self.masks = folder, list(rows.items()), masks

    def __len__(self) -> int:
        return len(self.rows)

    def read(self, index: int) -> tuple[Path, dict[str, Any]]:
        """Return the path of an image, and its objects in pixels of the full image."""
        name, target = self.rows[index]
        mask = self.masks and (self.masks / name).with_suffix(".png")
        return self.folder / name, {**target, "mask": mask}

    def map_target(self, target: dict[str, Any], geometry: Geometry) -> dict[str, torch.Tensor]:
        """Move boxes and mask to the pixels of the sample."""
        boxes, kept = geometry.boxes(torch.tensor(target["boxes"]), keep=True)
        labels = torch.tensor(target["labels"], dtype=torch.long)
        mapped = {"boxes": boxes[kept], "labels": labels[kept]}
        if target["mask"]:
            mask = decode_file(target["mask"], mode="stored")
            mapped["mask"] = torch.from_numpy(geometry.mask(mask))
        return mapped


def collate(samples: list[Any]) -> tuple[torch.Tensor, list[Any]]:
    """Stack the images; images have different numbers of boxes, which stay in a list."""
    return torch.stack([image for image, _ in samples]), [target for _, target in samples]


def main() -> None:
    """Read one epoch, and count the boxes that remain."""
    parser = argparse.ArgumentParser(description="Read batches of images with boxes and masks.")
    parser.add_argument("photos", type=Path, help="a folder of images")
    parser.add_argument("boxes", type=Path, help="a JSON file, as above")
    parser.add_argument("--masks", type=Path, help="a folder of PNG files")
    options = parser.parse_args()
    rows = json.loads(options.boxes.read_text())
    if not rows:
        sys.exit(f"there are no images in {options.boxes}")
    dataset = Objects(options.photos, rows, options.masks)
    begun, count, left = time.perf_counter(), 0, 0
    for images, targets in Loader(dataset, 16, shuffle=True, collate_fn=collate):
        count, left = count + len(images), left + sum(len(each["labels"]) for each in targets)
    speed = count / (time.perf_counter() - begun)
    boxes = sum(len(row["labels"]) for row in rows.values())
    print(f"{count} images, {left} of {boxes} boxes seen in the crops, {speed:.0f} images/s")
    for failure in dataset.errors:
        print(f"replaced: {failure.path}: {failure.reason}", file=sys.stderr)


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        sys.exit("stopped")
    except (OSError, ValueError) as error:
        sys.exit(f"error: {error}")
