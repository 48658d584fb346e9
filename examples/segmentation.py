"""Train a small network on photos and masks, with a dataset class of one's own.

    python segmentation.py photos/ masks/ --classes 2

A mask is a PNG of class numbers, as large as its photo: masks/cat.png for photos/cat.jpg; 255 is
ignored. The class is what one writes for torch's DataLoader. It gains by three names of fastdecode:
`open` for Pillow's, `fuse` around the pipeline, and `Loader`. An albumentations pipeline is
called in the same place, by name, and gives a dictionary:

    self.transform = fuse(A.Compose([A.RandomResizedCrop((224, 224)), ...]))
    sample = self.transform(image=image, mask=fastdecode.open(mask))
"""

import argparse
import sys
import time
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torchvision import tv_tensors
from torchvision.transforms import v2

import fastdecode
from fastdecode.torch import Loader, fuse


class Photos(torch.utils.data.Dataset[Any]):
    """Photos with their masks."""

    def __init__(self, photos: Path, masks: Path, transform: Any) -> None:
        self.masks = sorted(masks.rglob("*.png"))
        self.photos = [photos / mask.relative_to(masks).with_suffix(".jpg") for mask in self.masks]
        self.transform = transform

    def __len__(self) -> int:
        return len(self.masks)

    def __getitem__(self, index: int) -> Any:
        image = fastdecode.open(self.photos[index]).convert("RGB")
        mask = tv_tensors.Mask(fastdecode.open(self.masks[index]))
        return self.transform(image, mask)


def pipeline(size: int) -> v2.Compose:
    """Return torchvision's transforms, which move the mask as the photo."""
    dtypes = {tv_tensors.Image: torch.float32, tv_tensors.Mask: torch.int64, "others": None}
    crop, flip = v2.RandomResizedCrop(size, (0.5, 1.0)), v2.RandomHorizontalFlip()
    norm = v2.Normalize((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
    return v2.Compose([crop, flip, v2.ToImage(), v2.ToDtype(dtypes, scale=True), norm])


def main() -> None:
    """Train, and print for each epoch the loss and how many pixels get their class."""
    parser = argparse.ArgumentParser(description="Train a small network on photos and masks.")
    parser.add_argument("photos", type=Path, help="a folder of JPEG files")
    parser.add_argument("masks", type=Path, help="a folder of PNG files")
    parser.add_argument("--classes", type=int, default=21)
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--batch-size", type=int, default=16)
    parser.add_argument("--size", type=int, default=224, help="side of the crops, in pixels")
    options = parser.parse_args()

    dataset = Photos(options.photos, options.masks, fuse(pipeline(options.size)))
    if not len(dataset):
        sys.exit(f"there are no masks in {options.masks}")
    device = "cuda" if torch.cuda.is_available() else "cpu"
    loader = Loader(
        dataset, options.batch_size, shuffle=True, persistent_workers=True, device=device
    )
    layers = nn.Conv2d(3, 32, 5, padding=2), nn.ReLU(), nn.Conv2d(32, options.classes, 1)
    model = nn.Sequential(*layers).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    for epoch in range(options.epochs):
        begun, total, right, count = time.perf_counter(), 0.0, 0.0, 0
        for images, masks in loader:
            scores, classes = model(images), masks.squeeze(1)  # (N, 1, H, W)
            loss = nn.functional.cross_entropy(scores, classes, ignore_index=255)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            known = classes != 255
            right += len(images) * (scores.argmax(1) == classes)[known].float().mean().item()
            total, count = total + len(images) * loss.item(), count + len(images)
        speed = count / (time.perf_counter() - begun)
        told = f"loss {total / count:.3f}, {right / count:.0%} of the pixels right"
        print(f"epoch {epoch}: {told}, {speed:.0f} images/s", flush=True)


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        sys.exit("stopped")
    except (OSError, ValueError) as error:
        sys.exit(f"error: {error}")
