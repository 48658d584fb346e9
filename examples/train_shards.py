"""Pack a folder into tar shards, train from them, stop at any point, and resume there.

    python train_shards.py train/ shards/train.tar

The first run packs: it decodes every image once to verify it, leaves bad ones out and lists them in
train.tar.bad.csv. Ctrl-C, or `--steps 100`, stops in the middle of an epoch and saves the model,
the optimizer and the loader's position. The same command resumes with exactly the batches that
remain.
Only Ctrl-C between a batch and its step loses that batch. The shards have WebDataset's format;
`ShardStream` can read them from object storage.
"""

import argparse
import sys
from pathlib import Path
from typing import Any

import torch
from torch import nn

from fastdecode.packing import pack
from fastdecode.torch import Loader, StoreDataset
from fastdecode.torch.transforms import RandomResizedCropFlipNormalize


def main() -> None:
    """Pack if there are no shards, and train from the last checkpoint."""
    parser = argparse.ArgumentParser(description="Pack a folder and train from its shards.")
    parser.add_argument("folder", type=Path, help="a folder with one folder per class")
    parser.add_argument("tar", type=Path, help="train.tar makes shards named train-00000.tar")
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--steps", type=int, default=10**9, help="stop after this many")
    parser.add_argument("--shard-size", type=int, default=10**9, help="in bytes")
    options = parser.parse_args()
    if not options.tar.with_name(f"{options.tar.name}.json").exists():  # what pack writes last
        packed = pack(options.folder, options.tar, shard_size=options.shard_size, skip_bad=True)
        print(f"packed {packed.items} images, left out {len(packed.bad)}")

    shards = f"{options.tar.with_suffix('')}-*.tar"
    dataset = StoreDataset(shards, RandomResizedCropFlipNormalize(64))
    torch.manual_seed(0)  # the loader draws its seed from here, too
    loader = Loader(dataset, batch_size=2, shuffle=True)
    model = nn.Sequential(nn.Flatten(), nn.Linear(3 * 64 * 64, len(dataset.classes)))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
    parts: dict[str, Any] = {"model": model, "optimizer": optimizer, "loader": loader}
    checkpoint, step = options.tar.with_suffix(".pt"), 0
    if checkpoint.exists():
        for name, state in torch.load(checkpoint).items():
            parts[name].load_state_dict(state)
        print(f"going on in epoch {loader.epoch}")
    try:
        while loader.epoch < options.epochs and step < options.steps:
            for images, labels in loader:
                loss = nn.functional.cross_entropy(model(images), labels)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                step += 1
                print(f"epoch {loader.epoch}, step {step}: loss {loss.item():.3f}", flush=True)
                if step == options.steps:
                    break
        print(f"{loader.epoch} of {options.epochs} epochs done")
    finally:  # also after Ctrl-C
        torch.save({name: part.state_dict() for name, part in parts.items()}, checkpoint)


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        sys.exit("stopped; run the same command to resume")
    except (OSError, ValueError) as error:
        sys.exit(f"error: {error}")
