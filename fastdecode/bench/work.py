"""What one configuration does with an image: read it, decode it, make of it what is asked for."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from fastdecode import decode, registry, selection
from fastdecode.bench.check import named
from fastdecode.errors import FastDecodeError
from fastdecode.outputs import converter

if TYPE_CHECKING:
    from fastdecode.bench.files import Photo
    from fastdecode.bench.result import Protocol
    from fastdecode.types import Buffer, Image, Output, Reduce

__all__ = ["Setup", "Work"]

# Of ImageNet's images, channel by channel: what pictures are normalised with almost everywhere.
_MEAN = (0.485, 0.456, 0.406)
_DEVIATION = (0.229, 0.224, 0.225)


@dataclass(frozen=True)
class Setup:
    """One configuration, as it is sent to the process that measures it.

    Attributes
    ----------
    protocol : {"decode", "threads", "loader", "file"}
    backend : str
        A backend's name, or `result.AUTOMATIC`.
    reduce : {1, 2, 4, 8}
    photos : sequence of Photo
        Of one format.
    threads, workers : int
    output : {"array", "tensor", "pil"}
    size : int
        Side in pixels that pictures are resized to; 0 leaves them as they are.
    registered : dict of str to str
        Backends that the caller registered, as ``"module:Class"``.
    """

    protocol: Protocol
    backend: str
    reduce: Reduce
    photos: Sequence[Photo]
    threads: int
    workers: int
    output: Output
    size: int
    registered: dict[str, str]


class Work:
    """The work of one configuration on each of its images.

    Parameters
    ----------
    setup : Setup
    """

    def __init__(self, setup: Setup) -> None:
        for name, target in setup.registered.items():
            registry.register(name, target, replace=True)
        self.setup = setup
        self._backend = named(setup.backend)
        self._finish = _finisher(setup.output, setup.size)

    def __reduce__(self) -> tuple[Any, ...]:
        # A worker process that is not forked makes its own, and registers the backends there.
        return Work, (self.setup,)

    def read(self, index: int) -> Buffer:
        """Read the file of an image, or ask its store for it."""
        return self.setup.photos[index].read()

    def load(self, index: int) -> bytes:
        """Bring the bytes of an image into memory: what a store gives may be on its way still."""
        return bytes(self.read(index))

    def process(self, data: Buffer) -> Any:
        """Decode an image and make the output of it: this is what is timed."""
        return self._finish(decode(data, self.setup.reduce, backend=self._backend))

    def choice(self, index: int) -> str:
        """Name the backend that is tried first for an image; empty if there is none."""
        want = selection.Want("RGB", self.setup.reduce, strict=False, complete=True)
        try:
            return selection.first(self._backend, self.setup.photos[index].header, want).name
        except FastDecodeError:  # the check says why
            return ""


def _finisher(output: Output, size: int) -> Callable[[Image], Any]:
    """Return what makes the output of decoded pixels."""
    if not size:
        return converter(output)
    import torch

    mean = torch.tensor(_MEAN).view(3, 1, 1)
    deviation = torch.tensor(_DEVIATION).view(3, 1, 1)

    def prepare(image: Image) -> Any:
        pixels = torch.from_numpy(image).permute(2, 0, 1)[None]
        resized = torch.nn.functional.interpolate(
            pixels, size=(size, size), mode="bilinear", antialias=True
        )
        return resized[0].float().div_(255).sub_(mean).div_(deviation)

    return prepare
