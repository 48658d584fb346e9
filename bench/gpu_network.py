"""The training step that `gpu.py` feeds: a ResNet-50, in plain PyTorch.

Its layers and their names are those of torchvision's `resnet50` (He et al., "Deep Residual Learning
for Image Recognition", arXiv:1512.03385, with the stride in the 3 x 3 convolution), so that weights
go from one to the other; it is written out here because torchvision need not be there.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

CLASSES = 1000
_EXPANSION = 4
_RATE, _MOMENTUM, _DECAY = 0.1, 0.9, 1e-4


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
    """A residual network.

    Parameters
    ----------
    blocks : tuple of int
        How many in each stage: (3, 4, 6, 3) is ResNet-50.
    width : int
        Channels of the first stage; each further has twice as many.
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
        self.fc = nn.Linear(inside, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        x = self.maxpool(self.relu(self.bn1(self.conv1(x))))
        for name in self._stages:
            x = self.get_submodule(name)(x)
        return self.fc(self.avgpool(x).flatten(1))


class Step:
    """One step of training: forward and backward in bfloat16 where that is safe, then SGD.

    Parameters
    ----------
    device : torch.device
    tiny : bool
        Take a network that a test can afford.
    compiled : bool
        Let `torch.compile` have the network.
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
        """Train on a batch: float (N, 3, H, W), channels last, and class indices (N,)."""
        with torch.autocast(self._kind, dtype=torch.bfloat16):
            loss = self._loss(self._network(images), labels)
        self._optimizer.zero_grad(set_to_none=True)
        loss.backward()
        self._optimizer.step()
        return loss.detach()
