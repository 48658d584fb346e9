"""What is drawn for a sample: by the core in a `Loader`, or else as torchvision draws it.

Outside a `Loader`, random numbers come from torch's generators, with the same draws as torchvision
0.29. In a `Loader`, they come from a `SampleGenerator`, from which the core (``program.c``) draws.
"""

from __future__ import annotations

import math
import threading
from functools import cache
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import torch

from fastdecode.native._augment import (
    DrawnOperations,
    Impossible,
    Operation,
    Program,
    as_operations,
    do,
    draw_in_core,
    draw_steps,
)
from fastdecode.native._library import ffi, lib
from fastdecode.torch._user_code import global_states, set_global_states

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fastdecode.types import Box

_MAX_BOX_DRAWS = 10
"""How many boxes are drawn before the central one is used."""

_MASK = (1 << 64) - 1


class SampleGenerator(torch.Generator):
    """The random numbers of one sample in a `Loader`: the n-th is a function of the seed and n.

    They are those of SplitMix64 (Steele, Lea and Flood, "Fast splittable pseudorandom number
    generators", 2014), which the core computes from `state`. For a user's code this is also a
    torch.Generator with the same seed.
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


class NumberedDraws(SampleGenerator):
    """The random numbers of a sample that code of the user's helps to make.

    Whenever the core draws, it begins from the next number of torch's generator with the seed.
    """

    @property
    def state(self) -> int:
        return int(torch.randint(2**63 - 1, (), generator=self, device="cpu"))

    @state.setter
    def state(self, _: int) -> None: ...


class GlobalDraws(NumberedDraws):
    """The same in a worker process, where torch's global generator has the seed of the sample.

    The user's code may seed that generator, save it and set it back.
    """

    @property
    def state(self) -> int:
        return int(torch.randint(2**63 - 1, (), device="cpu"))

    @state.setter
    def state(self, _: int) -> None: ...


def _restore(state: torch.Tensor) -> SampleGenerator:
    return SampleGenerator().set_state(state)


class TorchDraws:
    """Draws as torchvision does, in its precision, from a torch generator; None is the global."""

    def __init__(self, generator: torch.Generator | None = None) -> None:
        self._generator = generator
        # On the CPU even if torch's default device is another.
        self._device = torch.device("cpu") if generator is None else generator.device
        self._scratch_number = _scratch_number(self._device)

    def uniform(self, low: float, high: float) -> float:
        return self._scratch_number.uniform_(low, high, generator=self._generator).item()

    def below(self, limit: int) -> int:
        drawn = torch.randint(0, limit, (1,), generator=self._generator, device=self._device)
        return int(drawn.item())

    def flip(self, probability: float) -> bool:
        # torchvision compares tensors, in their precision.
        return self.uniform(0, 1) < float(np.float32(probability))

    def factor(self, low: float, high: float) -> float:
        """Draw a factor in float32."""
        share = np.float32(self.uniform(0, 1))
        return float(np.float32(low) + share * np.float32(high - low))

    def state(self) -> int:
        """Draw a state from which the core goes on to draw."""
        return int(torch.randint(2**63 - 1, (), generator=self._generator, device="cpu"))

    def sides(self, area: int, scale: Sequence[float], ratio: Sequence[float]) -> tuple[int, int]:
        """Draw a box as a share of an area, and the ratio of its first side to its second one."""
        target = area * self.uniform(*scale)
        drawn = self._scratch_number.uniform_(*_logarithms(tuple(ratio)), generator=self._generator)
        aspect = torch.exp(drawn).item()
        return round(math.sqrt(target * aspect)), round(math.sqrt(target / aspect))

    def box(
        self, width: int, height: int, scale: tuple[float, float], ratio: tuple[float, float]
    ) -> Box:
        """Draw a box (left, top, right, bottom) of random area and aspect ratio, in pixels.

        `scale` is the range of the area as a fraction of the image's area, `ratio` the range of
        width to height. Area and then aspect ratio (uniform in its logarithm) are drawn up to ten
        times, then top and left. If no box fits, the result is the central box with the nearest
        ratio, of at least one pixel (torchvision's may have none, and fail).
        """
        for _ in range(_MAX_BOX_DRAWS):
            across, down = self.sides(height * width, scale, ratio)
            if 1 <= across <= width and 1 <= down <= height:
                top = self.below(height - down + 1)
                left = self.below(width - across + 1)
                return left, top, left + across, top + down
        return _nearest_box(width, height, ratio)

    def perspective(self, width: int, height: int, share: float) -> list[float]:
        """Draw the numbers of a perspective that moves each corner by at most half of `share`."""
        across, down = int(share * (width // 2)) + 1, int(share * (height // 2)) + 1
        rows, right_sides = [], []
        for is_right, is_below in ((0, 0), (1, 0), (1, 1), (0, 1)):
            x = is_right * (width - across) + self.below(across)
            y = is_below * (height - down) + self.below(down)
            from_x, from_y = is_right * (width - 1), is_below * (height - 1)
            rows += [[x, y, 1, 0, 0, 0, -from_x * x, -from_x * y]]
            rows += [[0, 0, 0, x, y, 1, -from_y * x, -from_y * y]]
            right_sides += [from_x, from_y]
        places = torch.tensor(rows, dtype=torch.float64, device="cpu")
        ends = torch.tensor(right_sides, dtype=torch.float64, device="cpu")
        solution = torch.linalg.lstsq(places, ends, driver="gels").solution
        numbers: list[float] = solution.float().tolist()
        return numbers


_STEPS: Any = ffi.typeof("fd_step[]")
_STEP = ffi.sizeof("fd_step")


class Drawing(TorchDraws):
    """A sample whose transforms are drawn in turn: steps that draw nothing, for the core."""

    def __init__(self, width: int, height: int) -> None:
        super().__init__()
        self._sides = width, height
        self._steps = ffi.new(_STEPS, lib.FD_MOST_OPERATIONS + 1)
        self._count = 0

    def add(self, program: Program) -> Any:
        """Add steps; return a copy of the first, whose numbers the caller may change."""
        at = self._count
        self._count += len(program)
        if self._count > lib.FD_MOST_OPERATIONS:
            raise Impossible("more is drawn than the core does to one image")
        ffi.memmove(self._steps + at, program.core.steps, len(program) * _STEP)
        return self._steps[at]

    def crop(self, left: int, top: int, right: int, bottom: int) -> None:
        """Add the crop of a box."""
        self.add(_CROP).operation.value[0:4] = left, top, right - left, bottom - top

    def erase(self, program: Program, box: Box) -> None:
        """Add the step of an erasure with a box (left, top, width, height)."""
        step = self.add(program)
        step.kind = lib.FD_OPERATION
        step.operation.value[0:4] = box

    @property
    def size(self) -> tuple[int, int]:
        """The (width, height) of the image after the steps so far."""
        return self.drawn().size[::-1] if self._count else self._sides

    def drawn(self) -> DrawnOperations:
        """Return the operations of the steps; raise `Impossible` if they cannot be done."""
        program = ffi.new("fd_program *", {"steps": self._steps, "count": self._count})
        return draw_steps(program, 0, *self._sides)


class Draws(Protocol):
    """A part of a pipeline that adds to a drawing what it draws."""

    @property
    def draws_beside_torch(self) -> bool:
        """Whether it may draw from Python's generator or NumPy's."""

    def __call__(self, to: Drawing) -> None: ...


def draw_parts(parts: Sequence[Draws], width: int, height: int) -> DrawnOperations:
    """Draw the operations of a sample of this size as its transforms would.

    If `Impossible` is raised, the generators are as they were.
    """
    drawing, torchs = Drawing(width, height), torch.default_generator.get_state()
    states = global_states() if any(part.draws_beside_torch for part in parts) else None
    try:
        for part in parts:
            part(drawing)
        return drawing.drawn()
    except Impossible:
        torch.default_generator.set_state(torchs)
        if states is not None:
            set_global_states(states)
        raise


def draw_program(
    program: Program, width: int, height: int, source: torch.Generator | None
) -> DrawnOperations:
    """Draw the operations of a sample of this size; raise `Impossible` if it has none."""
    if isinstance(source, SampleGenerator):
        drawn = draw_in_core(program, source.state, width, height)
        source.state = drawn.state
        return drawn
    draws, state = TorchDraws(source), None
    operations: list[Any] = []
    kept = []  # what some of them lie in
    for part in program.parts:
        step, operation = part[0], part[0].operation
        if step.kind == "box" and operation and step.erasure:
            limits = step.erasure
            left, top, right, bottom = draws.box(width, height, limits.area, limits.aspect)
            width, height = right - left, bottom - top
            operations.append({"kind": lib.FD_CROP, "value": (left, top, width, height)})
        elif step.kind == "operation" and operation == _MIRROR and not part.is_steady:
            operations += [{"kind": lib.FD_MIRROR}] if draws.flip(step.probability) else []
        elif (
            part.is_steady and step.kind == "operation" and operation and operation.kind == "resize"
        ):
            operations.append(part.core.steps[0].operation)
            width, height = map(int, operation.value[:2])
        else:
            chosen = part if part.is_steady else _chosen(part, draws, width, height)
            if chosen is None and state is None:  # torchvision draws otherwise
                state = draws.state()
            drawn = draw_in_core(part if chosen is None else chosen, state or 0, width, height)
            kept.append(drawn)
            operations.extend(drawn.operations)
            height, width = drawn.size
            state = drawn.state if chosen is None else state
    return DrawnOperations(as_operations(operations), state or 0, (height, width))


def _chosen(part: Program, draws: TorchDraws, width: int, height: int) -> Program | None:
    """Return what torchvision draws for a step, as one that draws nothing; None for others."""
    step = part[0]
    if step.kind == "operation" and step.operation and step.probability >= 1:
        value = dict(enumerate(step.operation.value))
        for draw in step.draws:
            side = {"pixels": 1, "width": width, "height": height}[draw.of]
            number = draws.uniform(draw.start * side, (draw.start + draw.range) * side)
            value[draw.at] = float(round(number)) if draw.is_rounded else number
            value |= {draw.copied: value[draw.at]} if draw.copied >= 0 else {}
        fixed = step.operation._replace(value=tuple(value.values()))
        return do(fixed)
    if step.kind == "scale_by" and step.erasure:
        factor = draws.factor(*step.erasure.area)
        return Program([step._replace(erasure=step.erasure._replace(area=(factor, factor)))])
    if step.kind == "choice" and all(one.is_steady for one in part.inner):
        return part.inner[draws.below(len(part.inner))]
    return None


_MIRROR = Operation("mirror")
_CROP = do(Operation("crop", (), "constant"))


def _nearest_box(width: int, height: int, ratio: tuple[float, float]) -> Box:
    """Return the central box whose ratio is nearest to the allowed range."""
    box_width, box_height = width, height
    if width / height < min(ratio):
        box_height = max(1, round(width / min(ratio)))
    elif width / height > max(ratio):
        box_width = max(1, round(height * max(ratio)))
    left, top = (width - box_width) // 2, (height - box_height) // 2
    return left, top, left + box_width, top + box_height


class _ThreadLocals(threading.local):
    """One generator and one tensor per device for each thread, because creating them is slow."""

    def __init__(self) -> None:
        self.generator = SampleGenerator("cpu")
        self.numbered_draws = NumberedDraws("cpu")
        self.global_draws = GlobalDraws("cpu")
        self.scratch_numbers: dict[torch.device, torch.Tensor] = {}


_thread_locals = _ThreadLocals()


def generator_of(seed: int) -> SampleGenerator:
    """Return this thread's generator with this seed; it is valid until the thread's next call."""
    return _thread_locals.generator.manual_seed(seed)


def draws_beside_users_code(seed: int, *, globally: bool) -> NumberedDraws:
    """Return this thread's generator of samples that the user's code helps to make."""
    kept = _thread_locals
    generator = kept.global_draws if globally else kept.numbered_draws
    generator.manual_seed(seed)
    return generator


def _scratch_number(device: torch.device) -> torch.Tensor:
    number = _thread_locals.scratch_numbers.get(device)
    if number is None:
        with torch.inference_mode(mode=False):  # inference tensors cannot be written outside it
            number = _thread_locals.scratch_numbers[device] = torch.empty(
                1, dtype=torch.float32, device=device
            )
    return number


@cache
def _logarithms(ratio: tuple[float, ...]) -> tuple[float, float]:
    """Return the logarithms of both ratios, computed in float32."""
    low, high = torch.log(torch.tensor(ratio, dtype=torch.float32, device="cpu")).tolist()
    return low, high
