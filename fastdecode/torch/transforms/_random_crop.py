"""The position of a crop: random boxes, rounded sides, and margins of a central crop.

The rules are those of torchvision 0.29: `RandomResizedCrop.get_params`, the size that `Resize`
computes from one side, and the margins of `CenterCrop`. Random numbers come from torch's
generators, with the same draws as torchvision, or, in a `Loader`, from a `SampleGenerator`, which
the native core also implements (``crop.c``).
"""

from __future__ import annotations

import math
import threading
from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np
import torch

from fastdecode.types import Box

_MAX_BOX_DRAWS = 10
"""How many boxes are drawn before the central one is used."""

_MASK = (1 << 64) - 1


class SampleGenerator(torch.Generator):
    """The random numbers of one sample in a `Loader`: the n-th is a function of the seed and n.

    They are those of SplitMix64 (Steele, Lea and Flood, "Fast splittable pseudorandom number
    generators", 2014; the constants are those of Vigna's splitmix64.c). For a user's code this is
    also a torch.Generator with the same seed.
    """

    state = 0

    def manual_seed(self, seed: int) -> SampleGenerator:
        self.state = seed & _MASK
        super().manual_seed(seed)
        return self

    def seed(self) -> int:
        self.state = super().seed()
        return self.state

    def get_state(self) -> torch.Tensor:
        """Return torch's state, followed by the eight bytes of this generator's own state."""
        own = torch.frombuffer(bytearray(self.state.to_bytes(8, "little")), dtype=torch.uint8)
        return torch.cat([super().get_state(), own])

    def set_state(self, new_state: torch.Tensor) -> SampleGenerator:
        super().set_state(new_state[:-8])
        self.state = int.from_bytes(bytes(new_state[-8:].tolist()), "little")
        return self

    def clone_state(self) -> SampleGenerator:
        return SampleGenerator().set_state(self.get_state())

    def __reduce__(self) -> tuple[Any, ...]:
        return _restore, (self.get_state(),)

    def draw(self) -> int:
        """Return the next 64 bits."""
        mixed = self.state = (self.state + 0x9E3779B97F4A7C15) & _MASK
        mixed = ((mixed ^ (mixed >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
        mixed = ((mixed ^ (mixed >> 27)) * 0x94D049BB133111EB) & _MASK
        return mixed ^ (mixed >> 31)

    def uniform(self, low: float, high: float) -> float:
        return low + (high - low) * ((self.draw() >> 11) * 2.0**-53)

    def aspect(self, ratio: tuple[float, float]) -> float:
        return math.exp(self.uniform(math.log(ratio[0]), math.log(ratio[1])))

    def below(self, limit: int) -> int:
        return ((self.draw() >> 32) * limit) >> 32

    def flip(self, probability: float) -> bool:
        return self.uniform(0, 1) < probability


def _restore(state: torch.Tensor) -> SampleGenerator:
    return SampleGenerator().set_state(state)


class _TorchDraws:
    """Draws as torchvision does, in its precision, from a torch generator; None is the global."""

    def __init__(self, generator: torch.Generator | None) -> None:
        self._generator = generator
        # On the CPU even if torch's default device is another.
        self._device = torch.device("cpu") if generator is None else generator.device
        self._scratch_number = _scratch_number(self._device)

    def uniform(self, low: float, high: float) -> float:
        return self._scratch_number.uniform_(low, high, generator=self._generator).item()

    def aspect(self, ratio: tuple[float, float]) -> float:
        low, high = _logarithms(ratio)
        drawn = self._scratch_number.uniform_(low, high, generator=self._generator)
        return torch.exp(drawn).item()

    def below(self, limit: int) -> int:
        drawn = torch.randint(0, limit, (1,), generator=self._generator, device=self._device)
        return int(drawn.item())

    def flip(self, probability: float) -> bool:
        # torchvision compares tensors, in their precision.
        return self.uniform(0, 1) < float(np.float32(probability))


def _as_draws(source: torch.Generator | None) -> Any:
    return source if isinstance(source, SampleGenerator) else _TorchDraws(source)


def draw_box(
    width: int,
    height: int,
    scale: tuple[float, float],
    ratio: tuple[float, float],
    source: torch.Generator | None,
) -> Box:
    """Draw a box (left, top, right, bottom) of random area and aspect ratio, in pixels.

    `scale` is the range of the area as a fraction of the image's area, `ratio` the range of width
    to height. Area and then aspect ratio (uniform in its logarithm) are drawn up to ten times, then
    top and left. If no box fits, the result is the central box with the nearest ratio, of at least
    one pixel (torchvision's may have none, and fail).
    """
    draws, area = _as_draws(source), height * width
    for _ in range(_MAX_BOX_DRAWS):
        target = area * draws.uniform(*scale)
        aspect = draws.aspect(ratio)
        box_width, box_height = round(math.sqrt(target * aspect)), round(math.sqrt(target / aspect))
        if 1 <= box_width <= width and 1 <= box_height <= height:
            top = draws.below(height - box_height + 1)
            left = draws.below(width - box_width + 1)
            return left, top, left + box_width, top + box_height
    return _nearest_box(width, height, ratio)


def _nearest_box(width: int, height: int, ratio: tuple[float, float]) -> Box:
    """Return the central box whose ratio is nearest to the allowed range."""
    box_width, box_height = width, height
    if width / height < min(ratio):
        box_height = max(1, round(width / min(ratio)))
    elif width / height > max(ratio):
        box_width = max(1, round(height * max(ratio)))
    left, top = (width - box_width) // 2, (height - box_height) // 2
    return left, top, left + box_width, top + box_height


def draw_flip(probability: float, generator: torch.Generator | None) -> bool:
    """Draw whether to flip, as torchvision's RandomHorizontalFlip; at 0 nothing is drawn."""
    return bool(probability) and _as_draws(generator).flip(probability)


def draw_one_of(values: Sequence[int], generator: torch.Generator | None) -> int:
    """Draw one of several numbers, as torchvision's RandomShortestSize."""
    drawn: int = _as_draws(generator).below(len(values))
    return values[drawn]


def draw_factor(limits: tuple[float, float], generator: torch.Generator | None) -> Any:
    """Draw a factor, in float32 as torchvision's ScaleJitter."""
    share = np.float32(_as_draws(generator).uniform(0, 1))
    return np.float32(limits[0]) + share * np.float32(limits[1] - limits[0])


class _ThreadLocals(threading.local):
    """One generator and one tensor per device for each thread, because creating them is slow."""

    def __init__(self) -> None:
        self.generator = SampleGenerator("cpu")
        self.scratch_numbers: dict[torch.device, torch.Tensor] = {}


_thread_locals = _ThreadLocals()


def sample_state(generator: torch.Generator | None) -> int:
    """Return the state from which the core goes on to draw; of another generator, a drawn one."""
    if isinstance(generator, SampleGenerator):
        return generator.state
    return int(torch.randint(2**63 - 1, (), generator=generator, device="cpu"))


def generator_of(seed: int) -> SampleGenerator:
    """Return this thread's generator with this seed; it is valid until the thread's next call."""
    return _thread_locals.generator.manual_seed(seed)


def _scratch_number(device: torch.device) -> torch.Tensor:
    number = _thread_locals.scratch_numbers.get(device)
    if number is None:
        with torch.inference_mode(mode=False):  # inference tensors cannot be written outside it
            number = _thread_locals.scratch_numbers[device] = torch.empty(
                1, dtype=torch.float32, device=device
            )
    return number


@cache
def _logarithms(ratio: tuple[float, float]) -> tuple[float, float]:
    """Return the logarithms of both ratios, computed in float32."""
    low, high = torch.log(torch.tensor(ratio, dtype=torch.float32, device="cpu")).tolist()
    return low, high


def resized_size(
    width: int,
    height: int,
    size: int | tuple[int, int] | None,
    max_size: int | None = None,
) -> tuple[int, int]:
    """Return the (height, width) to which torchvision's Resize resizes an image.

    An int as `size` is the shorter side; the longer side follows from it, rounded down. `max_size`
    limits the longer side. If `size` is None, the longer side is `max_size`, and the shorter one
    follows, of at least one pixel (torchvision's may have none, and fail).
    """
    if isinstance(size, tuple):
        return size
    short, long = sorted((width, height))
    if size is not None:
        short, long = size, int(size * long / short)
    if max_size is not None and (size is None or long > max_size):
        short, long = max(1, int(max_size * short / long)), max_size
    return (long, short) if width <= height else (short, long)


def center_crop(canvas: tuple[int, int], size: tuple[int, int]) -> tuple[int, int]:
    """Return (top, left) of the central crop of a canvas; negative where the crop is padded.

    Half of an odd margin is rounded to the even number. The larger half of an odd padding is at the
    right or bottom.
    """
    return _margin(canvas[0], size[0]), _margin(canvas[1], size[1])


def _margin(whole: int, part: int) -> int:
    return round((whole - part) / 2.0) if part <= whole else -((part - whole) // 2)
