"""A detection data set: batches of photos with boxes, from a dataset class of one's own.

    python detection.py photos/ boxes.json

boxes.json lists the objects of each file, as boxes (left, top, right, bottom) in pixels:

    {"cat.jpg": {"boxes": [[40, 60, 300, 400]], "labels": [1]}, ...}

The class is what one writes for torch's DataLoader. It gains by three names of fastdecode: `open`
for Pillow's, `fuse` around torchvision's transforms, and `Loader`.
"""

import argparse
import json
import sys
import time
from pathlib import Path
from typing import Any

import torch
from torchvision import tv_tensors
from torchvision.transforms import v2

import fastdecode
from fastdecode.torch import Loader, fuse


class Objects(torch.utils.data.Dataset[Any]):
    """Photos with boxes and labels."""

    def __init__(self, folder: Path, rows: dict[str, Any], transform: Any) -> None:
        self.folder, self.rows, self.transform = folder, list(rows.items()), transform

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: int) -> Any:
        name, row = self.rows[index]
        image = fastdecode.open(self.folder / name).convert("RGB")
        how: dict[str, Any] = {"format": "XYXY", "canvas_size": (image.height, image.width)}
        boxes = tv_tensors.BoundingBoxes(row["boxes"], **how)
        return self.transform(image, {"boxes": boxes, "labels": torch.tensor(row["labels"])})


def pipeline(size: int) -> v2.Compose:
    """Return torchvision's transforms, which move the boxes as the photo."""
    drawn = [v2.RandomPhotometricDistort(), v2.RandomZoomOut(), v2.RandomHorizontalFlip()]
    floats = [v2.ToImage(), v2.ToDtype(torch.float32, scale=True)]
    return v2.Compose([*drawn, v2.Resize((size, size)), *floats, v2.SanitizeBoundingBoxes()])


def collate(samples: list[Any]) -> tuple[torch.Tensor, list[Any]]:
    """Stack the images; images have different numbers of boxes, which stay in a list."""
    return torch.stack([image for image, _ in samples]), [target for _, target in samples]


def main() -> None:
    """Read one epoch, and count the boxes that remain."""
    parser = argparse.ArgumentParser(description="Read batches of photos with boxes.")
    parser.add_argument("photos", type=Path, help="a folder of images")
    parser.add_argument("boxes", type=Path, help="a JSON file, as above")
    parser.add_argument("--size", type=int, default=320, help="side of the images, in pixels")
    options = parser.parse_args()
    rows = json.loads(options.boxes.read_text())
    if not rows:
        sys.exit(f"there are no images in {options.boxes}")
    dataset = Objects(options.photos, rows, fuse(pipeline(options.size)))
    begun, count, left = time.perf_counter(), 0, 0
    for images, targets in Loader(dataset, 16, shuffle=True, collate_fn=collate):
        # here, one of torchvision's detectors: losses = model(list(images), targets)
        count, left = count + len(images), left + sum(len(each["labels"]) for each in targets)
    speed = count / (time.perf_counter() - begun)
    boxes = sum(len(row["labels"]) for row in rows.values())
    print(f"{count} images, {left} of {boxes} boxes seen, {speed:.0f} images/s")


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        sys.exit("stopped")
    except (OSError, ValueError) as error:
        sys.exit(f"error: {error}")
