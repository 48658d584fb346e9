"""What does a GPU gain: how long does a training step wait for each kind of batch?

PHOTOS are of about 500 x 375 pixels, in class folders or in one folder; links repeat them until an
epoch has `--items`. A ResNet-50 (bfloat16, channels last, SGD) trains on these feeds: random
tensors that stay on the device, batches of `Loader` decoded on the CPU and on the GPU, batches of
Pillow in PyTorch's DataLoader, and batches of DALI where it is installed. All feeds apply
RandomResizedCrop(224) and a flip, in random order, and normalise. They return float32 (N, 3, 224,
224) with channels last, and class indices (N,), on the device.

The kernels of a step lie between two CUDA events on the stream. The time from the last event of a
step to the first of the next is waiting: for a batch, for its copy, and for the work on it on that
stream. The first quarter of an epoch fills queues and does not count. The script does not
synchronise between that quarter and the rest, so full queues give no feed a lead. After a warm-up
the feeds take turns, in a new random order each round. Figures are medians, ratios are medians of
the ratios within a round. "to_random" is the share of the speed with random tensors.

`--tiny` does all of this with a few images and a tiny network. The tests run it with `--device
cpu`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from os import getpid
from time import perf_counter
from typing import Any

import _common as bench
import torch
from _dali import dali_pipeline
from _pipelines import SIZE, Setup, labelled, pillow
from torch import Tensor, nn

from fastdecode._system.processor import usable_cores
from fastdecode.gpu import check_device
from fastdecode.measure._processes import cpu_seconds

_BASE, _LOADER = "random", "loader-"
_CLASSES = 1000
_WARM = 4  # the first quarter of an epoch
_TINY = {"batch": 4, "items": 16, "rounds": 1, "workers": 1}

Batches = Iterable[tuple[Tensor, Tensor]]
Step = Callable[[Tensor, Tensor], object]


# The step


class Bottleneck(nn.Module):
    """Three convolutions with a shortcut connection."""

    def __init__(self, inside: int, width: int, stride: int) -> None:
        super().__init__()
        self.inner = nn.Sequential(
            *_convolution(inside, width, 1), nn.ReLU(inplace=True),
            *_convolution(width, width, 3, stride), nn.ReLU(inplace=True),
            *_convolution(width, 4 * width, 1),
        )  # fmt: skip
        straight = stride == 1 and inside == 4 * width
        self.around = nn.Sequential(*() if straight else _convolution(inside, 4 * width, 1, stride))

    def forward(self, x: Tensor) -> Tensor:
        return (self.inner(x) + self.around(x)).relu_()


def _convolution(inside: int, outside: int, side: int, stride: int = 1) -> tuple[nn.Module, ...]:
    convolution = nn.Conv2d(inside, outside, side, stride, padding=side // 2, bias=False)
    return convolution, nn.BatchNorm2d(outside)


def resnet(blocks: tuple[int, ...] = (3, 4, 6, 3), width: int = 64) -> nn.Module:
    """Make a residual network, by default ResNet-50, without the need for torchvision.

    He et al., "Deep Residual Learning for Image Recognition", arXiv:1512.03385, with the stride in
    the 3 x 3 convolution, as in torchvision. `blocks` is the number of blocks in each stage. Each
    stage has twice as many channels as the one before.
    """
    layers = [*_convolution(3, width, 7, 2), nn.ReLU(inplace=True), nn.MaxPool2d(3, 2, padding=1)]
    inside = width
    for stage, count in enumerate(blocks):
        for block in range(count):
            layers.append(Bottleneck(inside, width << stage, 2 if stage and not block else 1))
            inside = (width << stage) * 4
    head = nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(inside, _CLASSES)
    return nn.Sequential(*layers, *head)


def step_of(device: torch.device, *, tiny: bool) -> Step:
    """Make a training step: forward and backward in bfloat16 where that is safe, then SGD."""
    torch.manual_seed(0)
    torch.backends.cudnn.benchmark = True
    network = nn.Sequential(nn.AvgPool2d(8), resnet((1,), 4)) if tiny else resnet()
    network = network.to(device, memory_format=torch.channels_last)
    optimizer = torch.optim.SGD(network.parameters(), lr=0.1, momentum=0.9, weight_decay=1e-4)

    def step(images: Tensor, labels: Tensor) -> None:
        with torch.autocast(device.type, dtype=torch.bfloat16):
            loss = nn.functional.cross_entropy(network(images), labels)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()

    return step


# The feeds: each iteration over one is an epoch of batches


def own(setup: Setup, device: torch.device, decode: str) -> Batches:
    """Make this package's `Loader`, decoding on the CPU or the device; floats are made there."""
    from fastdecode.torch import ImageFolder, Loader
    from fastdecode.torch.transforms import RandomResizedCropFlipNormalize

    return Loader(
        ImageFolder(setup.folder, transform=RandomResizedCropFlipNormalize(SIZE)),
        setup.batch,
        shuffle=True,
        drop_last=True,
        threads=setup.workers,
        device=device,
        decode=decode,
        normalize_on="device",
        channels_last=True,
    )


def random(setup: Setup, device: torch.device) -> Batches:
    """Repeat one batch that stays on the device: the speed of a step that never waits."""
    images = torch.randn(setup.batch, 3, SIZE, SIZE, device=device)
    labels = torch.randint(_CLASSES, (setup.batch,), device=device)
    batch = images.contiguous(memory_format=torch.channels_last), labels
    return [batch] * (len(labelled(setup.folder)) // setup.batch)


class Pillow:
    """Pillow in PyTorch's DataLoader, pinned and copied: what most people use."""

    def __init__(self, setup: Setup, device: torch.device) -> None:
        self._loader = pillow(setup, drop_last=True, pin_memory=device.type == "cuda")
        self._device = device

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        for batch in self._loader:
            images, labels = (one.to(self._device, non_blocking=True) for one in batch)
            yield images.contiguous(memory_format=torch.channels_last), labels


class Dali:
    """DALI's pipeline as in its ResNet-50 examples: decoding and all later steps on the GPU."""

    def __init__(self, setup: Setup, device: torch.device) -> None:
        from nvidia.dali.plugin.pytorch import DALIClassificationIterator, LastBatchPolicy

        number = (device.index or 0) if device.type == "cuda" else None
        pipeline = dali_pipeline(setup, {"random_shuffle": True}, device=number, layout="HWC")
        self._iterator = DALIClassificationIterator(
            pipeline, reader_name="files", last_batch_policy=LastBatchPolicy.DROP, auto_reset=True
        )

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        for (batch,) in self._iterator:
            # HWC is the memory layout of channels last: nothing is copied.
            yield batch["data"].permute(0, 3, 1, 2), batch["label"].squeeze(-1).long()


def feed_of(name: str, setup: Setup, device: torch.device) -> Batches:
    """Make the feed of a name."""
    if name.startswith(_LOADER):
        return own(setup, device, name.removeprefix(_LOADER))
    kinds: dict[str, Callable[..., Batches]] = {_BASE: random, "pillow": Pillow, "dali": Dali}
    return kinds[name](setup, device)


# Time


def mark(device: torch.device) -> Any:
    """Mark this point in the order of the device's work."""
    if device.type != "cuda":
        return perf_counter()  # on the CPU the work is done when the call returns
    event = torch.cuda.Event(enable_timing=True)
    event.record(torch.cuda.current_stream(device))
    return event


def between(first: Any, last: Any) -> float:
    """Return the seconds between two marks that the device has reached."""
    return last - first if isinstance(first, float) else first.elapsed_time(last) / 1000


def wait(device: torch.device) -> None:
    """Wait until the device has finished all its work."""
    if device.type == "cuda":
        # By default the host polls the device in a loop, which would count as CPU time.
        event = torch.cuda.Event(blocking=True)
        event.record(torch.cuda.current_stream(device))
        event.synchronize()
        torch.cuda.synchronize(device)


def train(
    feed: Batches, setup: Setup, count: int, step: Step, device: torch.device
) -> dict[str, float]:
    """Train for an epoch of `count` batches; return milliseconds per image.

    The time runs on the device, from the end of the last warm-up step to the end of the last step.
    """
    begins, ends = [], []
    warm, cpu = max(1, count // _WARM), 0.0
    for images, labels in feed:
        assert images.shape == (setup.batch, 3, SIZE, SIZE), images.shape
        assert images.dtype == torch.float32, images.dtype
        assert images.is_contiguous(memory_format=torch.channels_last)
        assert labels.shape == (setup.batch,), labels.shape
        assert images.device == labels.device == device
        begins.append(mark(device))
        step(images, labels)
        ends.append(mark(device))
        if len(ends) == warm:
            cpu = cpu_seconds(getpid())
    wait(device)
    if len(ends) != count:
        raise RuntimeError(f"an epoch had {len(ends)} batches, not {count}")
    cpu = cpu_seconds(getpid()) - cpu
    seconds = between(ends[warm - 1], ends[-1])
    kernels = sum(map(between, begins[warm:], ends[warm:]))
    each = setup.batch * (count - warm) / 1000
    return {
        "images_per_s": 1000 * each / seconds,
        "kernels_ms": kernels / each,
        "waiting_ms": (seconds - kernels) / each,
        "cpu_ms": cpu / each,
    }


@bench.command(
    device=("cuda", "PyTorch's name for it"),
    feeds=([_BASE, "pillow", "loader-cpu", "loader-gpu", "dali"], "of the step"),
    batch=(256, "images"),
    items=(20_000, "per epoch"),
    rounds=(3, "after the warm-up"),
    workers=(usable_cores(), "threads or processes"),
    tiny=(False, "run everything with a few images and a tiny network"),
)
def main(options: Any) -> Any:
    photos, device = bench.photos_in(options.photos), check_device(options.device)
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else "CPU"
    if options.tiny:
        vars(options).update(_TINY)
        torch.set_num_threads(1)  # more threads would mostly wait for each other
    elif options.json is None:
        options.json = bench.RESULTS / f"gpu_{re.sub(r'[^a-z0-9]+', '_', name.lower())}.json"
    steps = max(2, options.items // options.batch)
    step, left_out = step_of(device, tiny=options.tiny), {}
    made: dict[str, Batches] = {}

    def turn(name: str, setup: Setup) -> dict[str, float]:
        if name not in made:
            made[name] = feed_of(name, setup, device)
        return train(made[name], setup, steps, step, device)

    with bench.linked(photos, options.photos, steps * options.batch) as folder:
        setup = Setup(folder, "train", options.batch, options.workers)
        # Pillow first: its workers are forked before another feed starts threads.
        names = sorted(options.feeds, key=lambda name: name != "pillow")
        competitors = {name: partial(turn, name, setup) for name in names}
        turns = bench.take_turns(competitors, options.rounds, left_out=left_out)
        chosen = {name: repr(feed) for name, feed in made.items() if name.startswith(_LOADER)}
        for feed in made.values():
            getattr(feed, "close", str)()
    found = bench.sum_up(turns, to_random=_BASE)
    print(f"{name}; times per image")
    bench.show("fed by", found, "images_per_s", "to_random", "kernels_ms", "waiting_ms", "cpu_ms")
    for one, why in left_out.items():
        print(f"{one}: {why}"[:80])
    options.steps, options.device = steps, name
    return {"feeds": found, "chosen": chosen, "left_out": left_out}


if __name__ == "__main__":
    main()
