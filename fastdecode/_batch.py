"""`decode_batch`: many images on all the cores that this process may use, or on a device."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Literal, overload

from fastdecode._arguments import check_disjoint, check_options, check_sides, is_int
from fastdecode._arrays import decode_arrays
from fastdecode._selection import load_named
from fastdecode._system import usable_cores
from fastdecode.api import decode as _decode
from fastdecode.errors import BackendUnavailable

if TYPE_CHECKING:
    import torch
    from typing_extensions import Unpack

    from fastdecode.api import Data
    from fastdecode.errors import FastDecodeError
    from fastdecode.gpu._policy import Decode
    from fastdecode.types import BatchOptions, Image

_SIGNATURE = inspect.signature(_decode)


@overload
def decode_batch(
    items: Iterable[Data | str | os.PathLike[str]],
    *,
    device: None = None,
    size: None = None,
    decode: Decode = "auto",
    threads: int | None = None,
    on_error: Literal["raise"] = "raise",
    out: Sequence[Image | None] | Image | None = None,
    **options: Unpack[BatchOptions],
) -> list[Image]: ...


@overload
def decode_batch(
    items: Iterable[Data | str | os.PathLike[str]],
    *,
    device: None = None,
    size: None = None,
    decode: Decode = "auto",
    threads: int | None = None,
    on_error: Literal["return"],
    out: Sequence[Image | None] | Image | None = None,
    **options: Unpack[BatchOptions],
) -> list[Image | FastDecodeError | OSError]: ...


@overload
def decode_batch(
    items: Iterable[Data | str | os.PathLike[str]],
    *,
    device: str | int | torch.device,
    size: None = None,
    decode: Decode = "auto",
    threads: int | None = None,
    on_error: Literal["raise"] = "raise",
    out: None = None,
    **options: Unpack[BatchOptions],
) -> list[torch.Tensor]: ...


@overload
def decode_batch(
    items: Iterable[Data | str | os.PathLike[str]],
    *,
    device: str | int | torch.device,
    size: int | tuple[int, int],
    decode: Decode = "auto",
    threads: int | None = None,
    on_error: Literal["raise"] = "raise",
    out: None = None,
    **options: Unpack[BatchOptions],
) -> torch.Tensor: ...


@overload
def decode_batch(
    items: Iterable[Data | str | os.PathLike[str]],
    *,
    device: str | int | torch.device,
    size: int | tuple[int, int] | None = None,
    decode: Decode = "auto",
    threads: int | None = None,
    on_error: Literal["return"],
    out: None = None,
    **options: Unpack[BatchOptions],
) -> list[torch.Tensor | FastDecodeError | OSError]: ...


def decode_batch(
    items: Iterable[Data | str | os.PathLike[str]],
    *,
    device: str | int | torch.device | None = None,
    size: int | tuple[int, int] | None = None,
    decode: Decode = "auto",
    threads: int | None = None,
    on_error: Literal["raise", "return"] = "raise",
    out: Sequence[Image | None] | Image | None = None,
    **options: Unpack[BatchOptions],
) -> Any:
    """Decode many images at once, in order.

    Parameters
    ----------
    items : iterable of encoded bytes or paths
        Each as for `decode`, or a path as for `decode_file`.
    device : str, int or torch.device, optional
        Return tensors on this device, such as ``"cuda:0"`` or ``"cpu"``, instead of arrays. Needs
        PyTorch.
    size : int or (height, width), optional
        With a device: resize each image, or its `region`, to exactly this (antialiased,
        bilinear), and return one tensor. An int stands for both sides. The whole is decoded for
        that, not all of them at once; `min_size` besides lets the CPU reduce large images inside
        the decoder.
    decode : {"auto", "cpu", "gpu"}
        With a device: who decodes. ``"auto"``: what ``calibrate(device=…)`` measured to be fastest
        there, or else the first batch backend that works on a GPU. ``"cpu"`` decodes as without a
        device, bit-identical, and copies.
    threads : int, optional
        How many to use; by default one for each core that this process may use (affinity and
        container quota, not the machine's count). 1 decodes in the calling thread, without a
        device. A batch backend has threads of its own.
    on_error : {"raise", "return"}
        ``"raise"``: the first error in the order of the items ends the batch; its message begins
        with ``item 3:``, but for an OSError, which names its file. ``"return"``: the error stands
        in the list where the image would, if it is about that item: what cannot be reached
        (permission, connection, time-out, disk) is raised.
    out : sequence of ndarray, or one ndarray (N, H, W, C), optional
        ``out[i]`` receives item i, as `decode`'s `out`. No two may overlap in memory. Not with a
        device.
    **options
        reduce, min_size, mode, region, orient, strict, max_pixels, backend: all as for `decode`.
        With a device, `backend` may also name a batch backend.

    Returns
    -------
    list, or tensor
        Without a device an ndarray for each item. With one a tensor (C, H, W) for each, uint8,
        contiguous (of another type for ``mode="stored"``); with `size` one tensor (N, C, height,
        width), uint8. With ``on_error="return"`` always a list, in which a `FastDecodeError` or an
        `OSError` may stand.

    Raises
    ------
    FastDecodeError, OSError
        With ``on_error="raise"``.
    UnknownBackend, BackendUnavailable
        If the backend that is named cannot be used, PyTorch is missing, or with ``decode="gpu"`` no
        backend decodes on the device; whatever `on_error` is.
    DeviceUnavailable
        If the device cannot be used; the message says what is missing.
    TypeError, ValueError
        If an argument is wrong, whatever `on_error` is. Options are checked before any item is
        looked at; an item of a wrong type, or a region outside it, when its turn comes.

    Notes
    -----
    A GPU's decoder has an inverse DCT and an upsampling of its own: its pixels are near those of
    `decode`, not the same. What it does not read (progressive, CMYK, another format, a file whose
    data visibly ends early), and every file with ``strict=True``, ``orient=True`` that is not
    upright, or a reduction, is decoded on the CPU and takes its place among the others; `stats`
    counts these. Other damage inside a file may pass, because such decoders do not report it.
    Tensors on CUDA are ready in the order of the current stream.
    """
    if on_error not in ("raise", "return"):
        raise ValueError(f"on_error must be 'raise' or 'return', not {on_error!r}")
    if _is_one(items):
        raise TypeError(
            "decode_batch() takes several items; for one, use decode() or decode_file()"
        )
    if threads is not None and not (is_int(threads) and threads >= 1):
        raise ValueError(f"threads must be a positive integer, not {threads!r}")
    how: dict[str, Any] = dict(options)
    _check(how)
    count = threads or usable_cores()
    if device is not None:
        sides = _checked_size(size, how.get("mode", "RGB"))
        if out is not None:
            raise ValueError("out is for arrays: leave it out, or device")
        decode_on = _decode_on()
        return decode_on(
            device,
            items,
            how,
            size=sides,
            decode=decode,
            threads=count,
            on_error=on_error,
        )
    if size is not None or decode != "auto":
        raise ValueError("size and decode need a device, such as device='cpu' or 'cuda'")
    if how.get("backend") is not None:
        load_named(how["backend"])
    work = list(items)
    if out is not None and len(out) != len(work):
        raise ValueError(f"out has room for {len(out)} images, but there are {len(work)} items")
    targets = [None if out is None else out[index] for index in range(len(work))]
    check_disjoint(targets)
    return decode_arrays(work, how, count, on_error=on_error, targets=targets)


def _decode_on() -> Callable[..., Any]:
    """Return what decodes onto devices; only here is PyTorch needed."""
    try:
        from fastdecode.gpu._decode_batch import decode_on
    except ModuleNotFoundError as error:
        if error.name != "torch":
            raise
        raise BackendUnavailable(
            "device= needs PyTorch, which is not installed\n"
            "Install it with: pip install 'fastdecode[torch]'"
        ) from error
    return decode_on


def _checked_size(size: object, mode: str) -> tuple[int, int] | None:
    if size is None:
        return None
    if mode not in ("RGB", "L"):
        raise ValueError(f"size needs mode 'RGB' or 'L': {mode!r} cannot be resized by averaging")
    return check_sides(size, "size")


def _is_one(items: object) -> bool:
    """Whether somebody passed one image, or one path, where several are wanted."""
    if isinstance(items, (str, os.PathLike)):
        return True
    try:
        return memoryview(items).itemsize == 1  # type: ignore[arg-type]
    except TypeError:
        return False


def _check(options: dict[str, Any]) -> None:
    """Refuse options that are wrong for every item, even if there are none."""
    _SIGNATURE.bind(b"", **options)  # TypeError for one that `decode` does not have
    check_options(**options)
