"""Train a small network on one folder per class, with `ImageFolder` and `Loader`.

    python train_folder.py train/ --epochs 5

They take the arguments of torchvision's ImageFolder and torch's DataLoader. The program uses
torchvision's transforms if torchvision is installed, and fastdecode's own otherwise. A damaged file
is replaced by another sample, and named at the end.
"""

import argparse
import sys
import time

import torch
from torch import nn

from fastdecode.torch import ImageFolder, Loader
from fastdecode.torch.transforms import RandomResizedCropFlipNormalize

try:
    from torchvision.transforms import v2
except ModuleNotFoundError:
    v2 = None


def main() -> None:
    """Train, and print loss and images/s of each epoch."""
    parser = argparse.ArgumentParser(description="Train a small network on a folder of images.")
    parser.add_argument("folder", help="a folder with one folder of images per class")
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--size", type=int, default=224, help="side of the crops, in pixels")
    options = parser.parse_args()

    device = "cuda" if torch.cuda.is_available() else "cpu"
    transform = RandomResizedCropFlipNormalize(options.size)
    if v2 is not None:  # torchvision's transforms, as your script has them
        crop, flip = v2.RandomResizedCrop(options.size), v2.RandomHorizontalFlip()
        floats = [v2.ToImage(), v2.ToDtype(torch.float32, scale=True)]
        norm = v2.Normalize((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
        transform = v2.Compose([crop, flip, *floats, norm])
    dataset = ImageFolder(options.folder, transform=transform, on_error="replace")
    loader = Loader(dataset, batch_size=options.batch_size, shuffle=True, device=device)

    layers = (nn.Conv2d(3, 16, 7, 4), nn.ReLU(), nn.Conv2d(16, 32, 3, 2), nn.ReLU())
    head = (nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(32, len(dataset.classes)))
    model = nn.Sequential(*layers, *head).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for epoch in range(options.epochs):
        begun, total, count = time.perf_counter(), 0.0, 0
        for images, labels in loader:
            loss = nn.functional.cross_entropy(model(images), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total, count = total + loss.item() * len(images), count + len(images)
        speed = count / (time.perf_counter() - begun)
        print(f"epoch {epoch}: loss {total / count:.3f}, {speed:.0f} images/s", flush=True)
    for failure in dataset.errors:
        print(f"replaced: {failure.path}: {failure.reason}", file=sys.stderr)


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        sys.exit("stopped")
    except (OSError, ValueError) as error:
        sys.exit(f"error: {error}")
