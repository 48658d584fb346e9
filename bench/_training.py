"""A training step of ResNet-50 on a device, what feeds it, and what keeps the time: for `gpu.py`.

A step's kernels lie between two events on the stream; from the last event of a step to the first of
the next is waiting: for a batch, for its copy, and for what is done to it on that stream, such as
normalising. The first quarter of an epoch fills queues and does not count; nothing is waited for
between that and the rest, so that full queues give no feed a lead.

All feeds give the images of RandomResizedCrop(224) and a flip, in random order, normalised, as
float32 (N, 3, 224, 224) with channels last, and class indices (N,), both on the device.
"""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterable, Iterator
from os import getpid
from time import perf_counter
from typing import Any, NamedTuple

import torch
from _common import Budget, Rounds, cpu_seconds, each, middle, rates, resident
from _pipelines import SIZE, PillowFolder, Setup, dali_pipeline, labelled, stock_loader
from torch import Tensor, nn

BASE = "random"
LOADER = "loader-"
"""What the names of feeds by `Loader` begin with; then comes who decodes."""
_CLASSES = 1000
_EXPANSION = 4
_RATE, _MOMENTUM, _DECAY = 0.1, 0.9, 1e-4
_WARM = 4  # the fourth part of an epoch
_QUESTIONS = ("driver_version", "memory.total", "clocks.max.sm", "power.limit")


# Time and memory


class Clock:
    """The host's own clock, for what runs on the CPU: there all is done when a call returns."""

    def __init__(self, device: torch.device) -> None:
        self.device = device

    def mark(self) -> Any:
        """Mark this point in the order of the device's work."""
        return perf_counter()

    def between(self, first: Any, last: Any) -> float:
        """Return seconds between two marks; only after `wait`."""
        return float(last - first)

    def wait(self) -> None:
        """Wait until all that was asked of the device is done."""

    def memory(self) -> dict[str, int]:
        """Return bytes of the device that are taken."""
        return {}

    def describe(self) -> dict[str, str]:
        """Say what device it is."""
        return {"name": "CPU"}


class CudaClock(Clock):
    """CUDA events, in the order of the current stream.

    An event is reached when all that was put on the stream before is done. Work on other streams
    counts where the current one waits for it.
    """

    def __init__(self, device: torch.device) -> None:
        super().__init__(device)
        torch.cuda.set_device(device)

    def mark(self) -> Any:
        event = torch.cuda.Event(enable_timing=True)
        event.record(torch.cuda.current_stream(self.device))
        return event

    def between(self, first: Any, last: Any) -> float:
        return float(first.elapsed_time(last)) / 1000

    def wait(self) -> None:
        # Left to itself the host looks at the device in a loop, which would count as CPU time.
        event = torch.cuda.Event(blocking=True)
        event.record(torch.cuda.current_stream(self.device))
        event.synchronize()
        torch.cuda.synchronize(self.device)

    def memory(self) -> dict[str, int]:
        """Return what PyTorch has reserved, and what all together take, decoders included."""
        self.wait()
        free, total = torch.cuda.mem_get_info(self.device)
        return {
            "allocated": int(torch.cuda.memory_allocated(self.device)),
            "reserved": int(torch.cuda.memory_reserved(self.device)),
            "taken": int(total - free),
        }

    def describe(self) -> dict[str, str]:
        properties = torch.cuda.get_device_properties(self.device)
        return {
            "name": str(properties.name),
            "capability": f"{properties.major}.{properties.minor}",
            "cuda": str(torch.version.cuda),
            **_driver(self.device.index or 0),
        }


def clock_of(device: torch.device) -> Clock:
    """Return the clock for a device."""
    return CudaClock(device) if device.type == "cuda" else Clock(device)


def _driver(index: int) -> dict[str, str]:
    """Ask the driver's own tool, where it is there."""
    command = ["nvidia-smi", f"--id={index}", "--format=csv,noheader"]
    command.append(f"--query-gpu={','.join(_QUESTIONS)}")
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=True)
    except (OSError, subprocess.SubprocessError):
        return {}
    answers = [answer.strip() for answer in done.stdout.strip().split(",")]
    return dict(zip(_QUESTIONS, answers, strict=False))


# The step


class Bottleneck(nn.Module):
    """Three convolutions, and a way around them."""

    def __init__(self, inside: int, width: int, stride: int) -> None:
        super().__init__()
        outside = width * _EXPANSION
        self.conv1 = nn.Conv2d(inside, width, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, stride, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(width)
        self.conv3 = nn.Conv2d(width, outside, 1, bias=False)
        self.bn3 = nn.BatchNorm2d(outside)
        self.relu = nn.ReLU(inplace=True)
        self.downsample = None
        if stride != 1 or inside != outside:
            self.downsample = nn.Sequential(
                nn.Conv2d(inside, outside, 1, stride, bias=False), nn.BatchNorm2d(outside)
            )

    def forward(self, x: Tensor) -> Tensor:
        around = x if self.downsample is None else self.downsample(x)
        x = self.relu(self.bn1(self.conv1(x)))
        x = self.relu(self.bn2(self.conv2(x)))
        return self.relu(self.bn3(self.conv3(x)) + around)


class ResNet(nn.Module):
    """A residual network: by default ResNet-50, with the layers of torchvision's `resnet50`.

    He et al., "Deep Residual Learning for Image Recognition", arXiv:1512.03385, with the stride in
    the 3 x 3 convolution; it is written out here because torchvision need not be there. `blocks`
    are those of each stage, which has twice as many channels as the one before.
    """

    def __init__(self, blocks: tuple[int, ...] = (3, 4, 6, 3), width: int = 64) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, width, 7, 2, padding=3, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.relu = nn.ReLU(inplace=True)
        self.maxpool = nn.MaxPool2d(3, 2, padding=1)
        inside, names = width, []
        for stage, count in enumerate(blocks):
            layers = []
            for block in range(count):
                stride = 2 if stage and not block else 1
                layers.append(Bottleneck(inside, width << stage, stride))
                inside = (width << stage) * _EXPANSION
            names.append(f"layer{stage + 1}")
            self.add_module(names[-1], nn.Sequential(*layers))
        self._stages = names
        self.avgpool = nn.AdaptiveAvgPool2d(1)
        self.fc = nn.Linear(inside, _CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        x = self.maxpool(self.relu(self.bn1(self.conv1(x))))
        for name in self._stages:
            x = self.get_submodule(name)(x)
        return self.fc(self.avgpool(x).flatten(1))


class Step:
    """One step of training: forward and backward in bfloat16 where that is safe, then SGD.

    `tiny` takes a network that a test can afford, `compiled` lets `torch.compile` have it.
    """

    def __init__(self, device: torch.device, *, tiny: bool = False, compiled: bool = False) -> None:
        torch.manual_seed(0)
        torch.backends.cudnn.benchmark = True
        network: Any = nn.Sequential(nn.AvgPool2d(8), ResNet((1,), 4)) if tiny else ResNet()
        network = network.to(device, memory_format=torch.channels_last)
        self.parameters = sum(parameter.numel() for parameter in network.parameters())
        self._optimizer = torch.optim.SGD(
            network.parameters(), lr=_RATE, momentum=_MOMENTUM, weight_decay=_DECAY
        )
        self._network = torch.compile(network) if compiled else network
        self._loss = nn.CrossEntropyLoss()
        self._kind = device.type

    def __call__(self, images: Tensor, labels: Tensor) -> Tensor:
        with torch.autocast(self._kind, dtype=torch.bfloat16):
            loss = self._loss(self._network(images), labels)
        self._optimizer.zero_grad(set_to_none=True)
        loss.backward()
        self._optimizer.step()
        return loss.detach()


# The feeds: what makes each yields the batches of an epoch, again and again

Batches = Iterable[tuple[Tensor, Tensor]]


def _loader(setup: Setup, device: torch.device, decode: str) -> Any:
    """Make this package's `Loader`: bytes to the device, floats there; decoded here or there."""
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


class Random:
    """One batch that stays on the device: what the step makes if it never waits."""

    def __init__(self, setup: Setup, device: torch.device) -> None:
        self._steps = len(labelled(setup.folder)) // setup.batch
        images = torch.randn(setup.batch, 3, SIZE, SIZE, device=device)
        labels = torch.randint(_CLASSES, (setup.batch,), device=device)
        self._batch = images.contiguous(memory_format=torch.channels_last), labels

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        return iter([self._batch] * self._steps)


class Pillow:
    """Pillow in PyTorch's DataLoader, pinned and copied: what most have."""

    def __init__(self, setup: Setup, device: torch.device) -> None:
        self._device, dataset = device, PillowFolder(setup.folder, train=True)
        self._loader = stock_loader(
            setup, dataset, drop_last=True, pin_memory=device.type == "cuda"
        )

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        for images, labels in self._loader:
            moved = images.to(self._device, non_blocking=True)
            yield (
                moved.contiguous(memory_format=torch.channels_last),
                labels.to(self._device, non_blocking=True),
            )


class Dali:
    """DALI's pipeline as its examples train ResNet-50: decoding, and all after it, on the GPU."""

    def __init__(self, setup: Setup, device: torch.device) -> None:
        from nvidia.dali.plugin.pytorch import DALIClassificationIterator, LastBatchPolicy

        number = (device.index or 0) if device.type == "cuda" else None
        reader = {"random_shuffle": True}
        pipeline = dali_pipeline(setup, labelled(setup.folder), reader, device=number, layout="HWC")
        self._iterator = DALIClassificationIterator(
            pipeline, reader_name="files", last_batch_policy=LastBatchPolicy.DROP, auto_reset=True
        )

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        for (batch,) in self._iterator:
            # Rows of pixels are what channels last means: nothing is copied.
            yield batch["data"].permute(0, 3, 1, 2), batch["label"].squeeze(-1).long()


def feed_of(name: str, setup: Setup, device: torch.device) -> Batches:
    """Make a feed by its name."""
    if name.startswith(LOADER):
        return _loader(setup, device, name.removeprefix(LOADER))
    kinds: dict[str, Callable[..., Batches]] = {BASE: Random, "pillow": Pillow, "dali": Dali}
    return kinds[name](setup, device)


class Feeds:
    """Feeds by name, made when they are first asked for."""

    def __init__(self, setup: Setup, step: Step, clock: Clock) -> None:
        self._setup, self._step, self._clock = setup, step, clock
        self._steps = len(labelled(setup.folder)) // setup.batch
        self._made: dict[str, Batches] = {}

    def train(self, name: str) -> Turn:
        """Train for an epoch."""
        if name not in self._made:
            self._made[name] = feed_of(name, self._setup, self._clock.device)
        return train(self._made[name], self._setup.batch, self._steps, self._step, self._clock)

    def chosen(self) -> dict[str, str]:
        """Say what each `Loader` chose by itself."""
        return {name: repr(feed) for name, feed in self._made.items() if name.startswith(LOADER)}

    def close(self) -> None:
        """End their threads and processes."""
        for feed in self._made.values():
            getattr(feed, "close", str)()
        self._made.clear()


class Turn(NamedTuple):
    """What training on a part of an epoch took, in seconds."""

    images: int
    seconds: float  # from the end of one step to the end of the last, on the device
    kernels: float  # of these, within steps
    asking: float  # in which the host asked for a batch: also while the device was busy
    cpu: float  # of the process and its workers
    loss: float  # of the last step


def train(feed: Batches, batch: int, count: int, step: Step, clock: Clock) -> Turn:
    """Train for an epoch of so many batches."""
    begins, ends, asked = [], [], []
    warm, cpu, loss = max(1, count // _WARM), 0.0, None
    batches, start = iter(feed), perf_counter()
    while (one := next(batches, None)) is not None:
        asked.append(perf_counter() - start)
        _check(*one, batch, clock.device)
        begins.append(clock.mark())
        loss = step(*one)
        ends.append(clock.mark())
        if len(ends) == warm:
            cpu = cpu_seconds(getpid())
        start = perf_counter()
    clock.wait()
    if loss is None or len(ends) != count:
        raise RuntimeError(f"an epoch had {len(ends)} batches, not {count}")
    steps = zip(begins[warm:], ends[warm:], strict=True)
    return Turn(
        images=batch * (len(ends) - warm),
        seconds=clock.between(ends[warm - 1], ends[-1]),
        kernels=sum(clock.between(begin, end) for begin, end in steps),
        asking=sum(asked[warm:]),
        cpu=cpu_seconds(getpid()) - cpu,
        loss=float(loss),
    )


def _check(images: Tensor, labels: Tensor, batch: int, device: torch.device) -> None:
    assert images.shape == (batch, 3, SIZE, SIZE), images.shape
    assert images.dtype == torch.float32, images.dtype
    assert images.is_contiguous(memory_format=torch.channels_last)
    assert labels.shape == (batch,), labels.shape
    assert images.device == labels.device == device


def summary(turns: Rounds[Turn]) -> dict[str, Any]:
    """Sum up the rounds, by feed; times are milliseconds for an image."""
    found = rates(each(turns, lambda turn: turn.images / turn.seconds), to_random=BASE)
    figures: dict[str, Callable[[Turn], float]] = {
        "kernels_ms": lambda turn: turn.kernels,
        "waiting_ms": lambda turn: turn.seconds - turn.kernels,
        "asking_ms": lambda turn: turn.asking,
        "cpu_ms": lambda turn: turn.cpu,
    }
    for name, rounds in turns.items():
        for key, figure in figures.items():
            times = {n: 1000 * figure(turn) / turn.images for n, turn in rounds.items()}
            found[name][key] = middle(times, 4)
        found[name]["loss"] = middle({n: turn.loss for n, turn in rounds.items()})
    return found


def memory_over_epochs(
    name: str, feeds: Feeds, clock: Clock, epochs: int, budget: Budget
) -> dict[str, Any]:
    """Train for many short epochs; return what memory was taken after each."""
    seen: dict[str, list[int]] = {}
    try:
        for _ in range(epochs):
            if not budget.allows(f"memory, {name}"):
                break
            budget.spend(f"memory, {name}", lambda: feeds.train(name))
            for what, size in {**clock.memory(), "host": resident(getpid())}.items():
                seen.setdefault(what, []).append(size)
    finally:
        feeds.close()
    return {
        what: {"first": sizes[0], "last": sizes[-1], "all": sizes} for what, sizes in seen.items()
    }
