"""What a backend is that decodes many images in one call, into the memory of a device."""

from __future__ import annotations

import io
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple

from PIL import Image as PillowImage

from fastdecode import _headers
from fastdecode.adapters.base import JPEG_TURBO_2, Support, installed_version
from fastdecode.errors import BackendUnavailable

if TYPE_CHECKING:
    import torch

    from fastdecode.types import Box, Buffer, Format, Header

__all__ = [
    "NVJPEG",
    "BatchBackend",
    "BatchItem",
    "is_of_the_device",
    "narrowed",
    "need_device",
    "try_out",
    "widened",
]

NVJPEG = Support(
    layouts=frozenset({"RGB", "L"}),
    codings=frozenset({"baseline"}),
    # It takes three components for YCbCr, whatever the Adobe marker says.
    colors=frozenset({"gray", "ycc"}),
    subsamplings=JPEG_TURBO_2.subsamplings,
)
"""What the libraries that decode by NVIDIA's nvJPEG have in common."""

_NARROW = 16
_WINDOW = (17, 19, 81, 82)
"""To try out: not small, and between the blocks of an image."""


class BatchItem(NamedTuple):
    """One image of a batch.

    Attributes
    ----------
    data : bytes or memoryview
        The whole file. It must not be changed, and not be kept after the call.
    header : Header
    window : (left, top, right, bottom) or None
        Decode only this part, in stored pixels; None for all, and always None unless
        `Support.region`.

    Examples
    --------
    >>> from fastdecode import BatchItem, probe
    >>> BatchItem(data, probe(data), window=None).shape("RGB")
    (3, 480, 640)
    """

    data: Buffer
    header: Header
    window: Box | None

    def shape(self, layout: str) -> tuple[int, int, int]:
        """Return the (C, H, W) that is asked for."""
        left, top, right, bottom = self.window or (0, 0, self.header.width, self.header.height)
        return 1 if layout == "L" else 3, bottom - top, right - left


class BatchBackend(ABC):
    """One library that decodes many images in one call. A subclass declares, and decodes.

    It imports its library at the top of its own module. It is constructed once for each device on
    first use, and called by one thread at a time. It holds no policy: which file reaches it, what
    becomes of one that it refuses, and every conversion are the package's business.

    Parameters
    ----------
    device : torch.device
        Of one of the `devices`; with its index for CUDA.
    threads : int
        How many threads of the host it may use.

    Raises
    ------
    BackendUnavailable
        The library is there but cannot work on that device; the message says why.

    Attributes
    ----------
    supports : Mapping[Format, tuple of Support]
        What it decodes on its device, format by format. Of a `Support`, what is looked at is
        `layouts`, `region`, `bits`, `colors`, `codings`, `subsamplings` and `animated`.
    devices : frozenset of str
        Types of device, as PyTorch names them: ``"cpu"``, ``"cuda"``.
    frees_in_order : bool
        Memory of its tensors is used again only in the order of the stream that was current when it
        decoded, as PyTorch's own is. Elsewhere that stream is waited for before they are released.
    exact : bool
        Its pixels are bit-identical to those of `decode`. Decoders of GPUs have an inverse DCT and
        an upsampling of their own.
    least_psnr : float
        How near its pixels come to those of `decode` at least, in dB over the three channels of a
        photo; it means something where it is not exact.
    distribution : str
        Name under which pip knows the library.

    Examples
    --------
    >>> import torch
    >>> from fastdecode import BatchBackend, Support, decode
    >>> class Mine(BatchBackend):
    ...     supports = {"jpeg": (Support(layouts=frozenset({"RGB", "L"})),)}
    ...     devices = frozenset({"cpu"})
    ...
    ...     def __init__(self, device, threads):
    ...         self.threads = threads
    ...
    ...     def decode(self, items, layout):
    ...         images = [decode(item.data, mode=layout) for item in items]
    ...         return [torch.from_numpy(image).view(*image.shape[:2], -1).permute(2, 0, 1)
    ...                 for image in images]
    """

    supports: Mapping[Format, tuple[Support, ...]]
    devices: ClassVar[frozenset[str]] = frozenset({"cuda"})
    frees_in_order: ClassVar[bool] = False
    exact: ClassVar[bool] = False
    least_psnr: ClassVar[float] = 30.0
    distribution: ClassVar[str] = ""

    @abstractmethod
    def __init__(self, device: torch.device, threads: int) -> None: ...

    @abstractmethod
    def decode(
        self, items: Sequence[BatchItem], layout: Literal["RGB", "L"]
    ) -> Sequence[torch.Tensor | None]:
        """Decode images, none of which its declaration refuses.

        Parameters
        ----------
        items : sequence of BatchItem
            At least one.
        layout : {"RGB", "L"}

        Returns
        -------
        sequence of tensor or None
            For each item (3, H, W) or, for ``"L"``, (1, H, W), uint8, on the device, with any
            strides, in stored orientation; None for one that it refuses. On CUDA they are ready in
            the order of the current stream, as after any operation of PyTorch. They may lie in
            memory of the library, as long as the tensor keeps that alive: the package copies them
            on the current stream, and, unless `frees_in_order`, holds them until that is done.

        Raises
        ------
        Exception
            Whatever the library raises, also if it is only one of the images that it cannot
            decode: the package asks again for parts of the batch.
        """

    def version(self) -> str:
        """Version of the library, as pip knows it; empty where it cannot be known."""
        return installed_version(self.distribution)

    def codec(self) -> str:
        """Codec library it is linked to, with its version; empty if unknown."""
        return ""


def need_device(device: torch.device) -> None:
    """Raise `BackendUnavailable` if PyTorch finds no device of that type, before a library does."""
    import torch

    if device.type == "cuda" and not torch.cuda.is_available():
        raise BackendUnavailable("PyTorch finds no CUDA device")


def try_out(backend: BatchBackend) -> None:
    """Have a batch backend decode a small JPEG, so that what is missing shows at once.

    A constructor calls it last where the library finds out only then: each image would be refused
    one by one, and go to the CPU unnoticed. Where the backend declares `Support.region` but refuses
    a window of an image with subsampled chroma, as some versions of nvJPEG do, it is declared no
    longer: whole images are decoded, and windows cut out of them. A `BackendUnavailable` has what
    the library said.
    """
    stream = io.BytesIO()
    PillowImage.new("RGB", (96, 96)).save(stream, "jpeg", subsampling="4:2:0")
    data = stream.getvalue()
    whole = BatchItem(data, _headers.probe(data), None)
    if reason := _refusal(backend, whole):
        raise BackendUnavailable(f"it decodes nothing{reason}")
    declared = backend.supports.get("jpeg", ())
    if any(support.region for support in declared) and _refusal(
        backend, whole._replace(window=_WINDOW)
    ):
        only_whole = tuple(replace(support, region=False) for support in declared)
        backend.supports = {**backend.supports, "jpeg": only_whole}


def _refusal(backend: BatchBackend, item: BatchItem) -> str:
    """Say why a backend does not decode an image; nothing if it does."""
    try:
        (image,) = backend.decode([item], "RGB")
        if image is None:
            return ", and does not say why"
        if tuple(image.shape) != item.shape("RGB"):
            return f" right: the shape is {tuple(image.shape)}"
    except Exception as error:  # the edge of the package: libraries raise whatever they like
        if is_of_the_device(error):
            raise
        return f": {error}"
    return ""


def is_of_the_device(error: BaseException) -> bool:
    """Whether it is the device that failed, or its memory, and not the library over an image.

    After most errors of CUDA every call in this process gives the same error. Were that taken for a
    refusal, each image of a batch would be asked for one by one in vain. And memory that is short
    now need not be so later.
    """
    import torch

    cuda: Any = torch.cuda  # which is annotated only in part
    # PyTorch 2.5 gave the first its name; the second came with 2.8, and before only the text tells.
    out_of_memory = getattr(torch, "OutOfMemoryError", cuda.OutOfMemoryError)
    if isinstance(error, (out_of_memory, getattr(torch, "AcceleratorError", ()))):
        return True
    return isinstance(error, RuntimeError) and str(error).startswith("CUDA error")


def widened(item: BatchItem, margin: int = 0) -> Box | None:
    """Give the window that a library is to decode for the one that is wanted; None is all.

    It has `margin` pixels more on every side, and 16 columns or more, where the image has them.
    libjpeg-turbo interpolates chroma only where it has more than 2 columns of it (jdsample.c), and
    takes the part that it decodes for the whole: a narrow one would have other pixels.
    """
    if item.window is None:
        return None
    left, top, right, bottom = item.window
    width, height = item.header.width, item.header.height
    left, right = max(0, left - margin), min(width, right + margin)
    left = max(0, min(left, width - _NARROW))
    right = max(right, min(left + _NARROW, width))
    return left, max(0, top - margin), right, min(height, bottom + margin)


def narrowed(image: torch.Tensor, item: BatchItem, decoded: Box | None) -> torch.Tensor:
    """Return a view of the wanted window in (C, H, W) pixels; `decoded` is from `widened`."""
    if item.window is None or decoded is None:
        return image
    left, top, right, bottom = item.window
    x, y = decoded[:2]
    return image[:, top - y : bottom - y, left - x : right - x]
