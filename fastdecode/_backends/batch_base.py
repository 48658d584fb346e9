"""`BatchBackend`, which decodes many images in one call into the memory of a device."""

from __future__ import annotations

import io
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple

from PIL import Image as PillowImage

from fastdecode import _formats
from fastdecode._backends.base import JPEG_TURBO_2, Support, installed_version
from fastdecode.errors import BackendUnavailable

if TYPE_CHECKING:
    import torch

    from fastdecode.types import Buffer, Format, Header

NVJPEG = Support(
    layouts=frozenset({"RGB", "L"}),
    codings=frozenset({"baseline"}),
    # It treats three components as YCbCr, whatever the Adobe marker says.
    colors=frozenset({"gray", "ycc"}),
    subsamplings=JPEG_TURBO_2.subsamplings,
)
"""What the libraries that decode with NVIDIA's nvJPEG have in common."""


class BatchItem(NamedTuple):
    """One image of a batch.

    Attributes
    ----------
    data : bytes or memoryview
        The whole file. It must not be changed, or kept after the call.
    header : Header
        The header that the package read from `data`.

    Examples
    --------
    >>> from fastdecode import BatchItem, probe
    >>> BatchItem(data, probe(data)).shape("RGB")
    (3, 480, 640)
    """

    data: Buffer
    header: Header

    def shape(self, layout: str) -> tuple[int, int, int]:
        """Return the shape (C, H, W) of the result."""
        return 1 if layout == "L" else 3, self.header.height, self.header.width


def declares(backend: BatchBackend, header: Header, layout: str) -> bool:
    """Return whether a batch backend declares the kind of a file, and pixels of that layout."""
    return any(
        layout in support.layouts and not support.refusal(header)
        for support in backend.supports.get(header.format, ())
    )


class BatchBackend(ABC):
    """Base class of an adapter for a library that decodes many images in one call.

    A subclass declares what it supports and implements `decode`. It imports its library at the top
    of its own module. It is created once per device, on first use, and one thread at a time calls
    it. The package decides which files it gets and who decodes the images that it refuses, and does
    all conversions.

    Parameters
    ----------
    device : torch.device
        A device of one of the types in `devices`. A CUDA device has its index.
    threads : int
        How many threads of the host it may use.

    Raises
    ------
    BackendUnavailable
        The library is installed but does not work on that device. The message says why.

    Attributes
    ----------
    supports : Mapping[Format, tuple of Support]
        What it decodes on its device, per format. The package reads `layouts`, `bits`, `channels`,
        `colors`, `codings`, `subsamplings` and `animated` of each `Support`.
    devices : frozenset of str
        Types of device, as PyTorch names them: ``"cpu"``, ``"cuda"``.
    exact : bool
        Its pixels are bit-identical to those of `decode`. GPU decoders have their own inverse DCT
        and upsampling, so they are not exact.
    least_psnr : float
        The smallest PSNR of its pixels against those of `decode`, in dB over the three channels of
        a photo. It has no meaning if the backend is exact.
    distribution : str
        The library's name on PyPI.

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
    exact: ClassVar[bool] = False
    least_psnr: ClassVar[float] = 30.0
    distribution: ClassVar[str] = ""

    @abstractmethod
    def __init__(self, device: torch.device, threads: int) -> None: ...

    @abstractmethod
    def decode(
        self, items: Sequence[BatchItem], layout: Literal["RGB", "L"]
    ) -> Sequence[torch.Tensor | None]:
        """Decode images. All of them are of kinds that `supports` declares.

        Parameters
        ----------
        items : sequence of BatchItem
            At least one image.
        layout : {"RGB", "L"}
            The pixel layout of all results.

        Returns
        -------
        sequence of tensor or None
            One tensor per item: (3, H, W) or, for ``"L"``, (1, H, W), uint8, on the device, with
            any strides, in stored orientation; or None for an item that it refuses. On CUDA the
            tensors are ready in the order of the current stream, as after any operation of PyTorch.
            They may lie in memory of the library, as long as the tensor keeps that memory alive:
            the package copies them on the current stream, and holds them until the copy is done.

        Raises
        ------
        Exception
            Any exception of the library, even if only one of the images cannot be decoded: the CPU
            then decodes the batch.
        """

    def version(self) -> str:
        """Return the installed version of the library; empty if unknown."""
        return installed_version(self.distribution)

    def codec(self) -> str:
        """Return the codec that it is linked to, with its version; empty if unknown."""
        return ""


def need_device(device: torch.device) -> None:
    """Raise `BackendUnavailable` if the device is CUDA and PyTorch finds no CUDA device."""
    import torch

    if device.type == "cuda" and not torch.cuda.is_available():
        raise BackendUnavailable("PyTorch finds no CUDA device")


def try_out(backend: BatchBackend) -> None:
    """Decode a small JPEG with a batch backend; raise `BackendUnavailable` if that fails.

    A constructor calls this last if its library notices a missing part only when it decodes.
    Without the call, the library would refuse every image, and the CPU would decode them unnoticed.
    The error contains the library's message.
    """
    stream = io.BytesIO()
    PillowImage.new("RGB", (96, 96)).save(stream, "jpeg", subsampling="4:2:0")
    item = BatchItem(stream.getvalue(), _formats.probe(stream.getvalue()))
    try:
        (image,) = backend.decode([item], "RGB")
    except Exception as error:  # the edge of the package: libraries raise whatever they like
        if is_of_the_device(error):
            raise
        raise BackendUnavailable(f"it decodes nothing: {error}") from error
    if image is None:
        raise BackendUnavailable("it decodes nothing, and does not say why")
    if tuple(image.shape) != item.shape("RGB"):
        raise BackendUnavailable(f"it decodes nothing correctly: the shape is {tuple(image.shape)}")


def is_of_the_device(error: BaseException) -> bool:
    """Return whether the device or its memory failed, and not the decoding of an image.

    After most CUDA errors every call in this process raises the same error. If it counted as a
    refusal, the CPU would decode everything from then on, and nobody would know. An error for lack
    of memory says nothing about the image either: memory may be free later.
    """
    import torch

    cuda: Any = torch.cuda  # only partly annotated
    # `torch.OutOfMemoryError` exists since PyTorch 2.5, and `AcceleratorError` since 2.8. Before
    # that, only the text of the error shows that the device failed.
    out_of_memory = getattr(torch, "OutOfMemoryError", cuda.OutOfMemoryError)
    if isinstance(error, (out_of_memory, getattr(torch, "AcceleratorError", ()))):
        return True
    return isinstance(error, RuntimeError) and str(error).startswith("CUDA error")
