"""Lightning trains from a `Loader` as from torch's DataLoader.

    pip install '.[torch]' lightning
    python train_lightning.py train/ --epochs 5

`Trainer.fit` takes a `Loader` in place of a DataLoader. Lightning moves the batches to the
device; with several GPUs, every rank reads its own share.
"""

import argparse
import sys

try:
    import lightning
except ModuleNotFoundError:
    sys.exit("this needs Lightning: pip install lightning")
import torch
from torch import nn

from fastdecode.torch import ImageFolder, Loader
from fastdecode.torch.transforms import RandomResizedCropFlipNormalize


class Classifier(lightning.LightningModule):
    """A small network that classifies images."""

    def __init__(self, classes: int) -> None:
        super().__init__()
        layers = (nn.Conv2d(3, 16, 7, 4), nn.ReLU(), nn.Conv2d(16, 32, 3, 2), nn.ReLU())
        head = (nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(32, classes))
        self.model = nn.Sequential(*layers, *head)

    def training_step(self, batch: list[torch.Tensor], _index: int) -> torch.Tensor:
        """Return the loss of a batch."""
        images, labels = batch
        loss = nn.functional.cross_entropy(self.model(images), labels)
        self.log("loss", loss, prog_bar=True, on_epoch=True, batch_size=len(images))
        return loss

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """Return the optimizer."""
        return torch.optim.AdamW(self.parameters(), lr=1e-3)


def main() -> None:
    """Train, with Lightning's progress bar, and print the last loss."""
    parser = argparse.ArgumentParser(description="Train with Lightning on a folder of images.")
    parser.add_argument("folder", help="a folder with one folder of images per class")
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--batch-size", type=int, default=32)
    options = parser.parse_args()
    transform = RandomResizedCropFlipNormalize(224)
    dataset = ImageFolder(options.folder, transform=transform, on_error="replace")
    loader = Loader(dataset, batch_size=options.batch_size, shuffle=True)
    trainer = lightning.Trainer(max_epochs=options.epochs, logger=False, log_every_n_steps=1)
    trainer.fit(Classifier(len(dataset.classes)), loader)
    print(f"loss {float(trainer.callback_metrics['loss_epoch']):.3f}")
    for failure in dataset.errors:
        print(f"replaced: {failure.path}: {failure.reason}", file=sys.stderr)


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        sys.exit("stopped")
    except (OSError, ValueError) as error:
        sys.exit(f"error: {error}")
