"""What a job does with each picture: checked once, and sent to every task."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from fastdecode._arguments import check_options, is_int
from fastdecode.api import DEFAULT_MAX_PIXELS

if TYPE_CHECKING:
    from fastdecode.ray.dropped import Dropped
    from fastdecode.types import Box, Mode, Reduce

__all__ = ["OnError", "Options", "check_cores"]

OnError: TypeAlias = Literal["raise", "drop", "column"]
"""What becomes of a row whose picture is damaged, or cannot be read."""

_CHANNELS = {"RGB": (3,), "RGBA": (4,), "L": ()}


@dataclass(frozen=True)
class Options:
    """How pictures are decoded; `read_images` says what each means.

    Attributes
    ----------
    threads : int
        How many cores a task has.
    """

    size: tuple[int, int] | None = None
    reduce: Reduce = 1
    min_size: int | tuple[int, int] | None = None
    region: Box | None = None
    mode: Mode = "RGB"
    orient: bool = False
    max_pixels: int | None = DEFAULT_MAX_PIXELS
    backend: str | None = None
    on_error: OnError = "raise"
    dropped: Dropped | None = None
    threads: int = 1

    @classmethod
    def checked(cls, size: object, num_cpus: object, **others: Any) -> Options:
        """Refuse what is wrong whatever the pictures are.

        Raises
        ------
        TypeError, ValueError
            As from `read_images`.
        """
        if others.get("mode") == "native":
            raise ValueError(
                "mode='native' gives pictures of several types, and a column has one: "
                "use 'RGB', 'RGBA' or 'L'"
            )
        options = cls(size=_both_sides(size), threads=check_cores(num_cpus), **others)
        check_options(**options.decoding())
        if options.on_error not in ("raise", "drop", "column"):
            raise ValueError(
                f"on_error must be 'raise', 'drop' or 'column', not {options.on_error!r}"
            )
        if options.dropped is not None and options.on_error != "drop":
            raise ValueError("dropped= counts the rows that on_error='drop' leaves out")
        return options

    def decoding(self) -> dict[str, Any]:
        """Return the arguments of `decode`."""
        return {
            "reduce": self.reduce,
            "min_size": self.min_size,
            "region": self.region,
            "mode": self.mode,
            "orient": self.orient,
            "max_pixels": self.max_pixels,
            "backend": self.backend,
        }

    @property
    def channels(self) -> tuple[int, ...]:
        """What follows height and width in the shape of a picture."""
        return _CHANNELS[self.mode]

    @property
    def row_bytes(self) -> int | None:
        """Bytes of a picture in the column; None where each has its own size."""
        if self.size is None:
            return None
        return self.size[0] * self.size[1] * (self.channels or (1,))[0]


def check_cores(num_cpus: Any) -> int:
    """Refuse anything but whole cores."""
    whole = is_int(num_cpus) or (isinstance(num_cpus, float) and num_cpus.is_integer())
    if not whole or num_cpus < 1:
        raise ValueError(f"num_cpus must be a positive whole number, not {num_cpus!r}")
    return int(num_cpus)


def _both_sides(size: object) -> tuple[int, int] | None:
    if size is None:
        return None
    sides = tuple(size) if isinstance(size, Sequence) else (size, size)
    if len(sides) != 2 or not all(is_int(side) and side > 0 for side in sides):
        raise ValueError(f"size must be a positive integer or (height, width), not {size!r}")
    return int(sides[0]), int(sides[1])
