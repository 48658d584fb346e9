"""`decode_batch` and `decode_iter`: many images on all usable cores, or on a device."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Generator, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Literal, cast, overload

import numpy as np

from fastdecode._arguments import (
    check_disjoint,
    check_options,
    check_room,
    check_sides,
    is_int,
    is_iterable,
)
from fastdecode._arrays import decode_arrays, decode_each
from fastdecode._selection import load_named
from fastdecode._system import usable_cores
from fastdecode.api import decode as _decode
from fastdecode.errors import BackendUnavailable

if TYPE_CHECKING:
    import torch
    from numpy.typing import NDArray
    from typing_extensions import Unpack

    from fastdecode.api import Data
    from fastdecode.errors import FastDecodeError
    from fastdecode.gpu._policy import Decode
    from fastdecode.types import BatchOptions, Image

_SIGNATURE = inspect.signature(_decode)
_AHEAD = 2
"""Images that may wait for a slow one before them, or for the caller, for each thread."""


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
    size: int | tuple[int, int] | None = None,
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
    device: None = None,
    size: int | tuple[int, int],
    decode: Decode = "auto",
    threads: int | None = None,
    on_error: Literal["raise"] = "raise",
    out: NDArray[np.uint8] | None = None,
    **options: Unpack[BatchOptions],
) -> NDArray[np.uint8]: ...


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
        Resize each image, or its `region`, to exactly this (antialiased, bilinear), and return one
        array or tensor of all. An int stands for both sides. The whole is decoded for that, not all
        of them at once; `min_size` besides lets the CPU reduce large images inside the decoder.
        `mode` is then ``"RGB"`` or ``"L"``.
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
        ``out[i]`` receives item i, as `decode`'s `out`. No two may overlap in memory. With `size`
        it is one array of the whole result. Not with a device.
    **options
        reduce, min_size, mode, region, orient, strict, max_pixels, backend: all as for `decode`.
        With a device, `backend` may also name a batch backend.

    Returns
    -------
    list, ndarray or tensor
        Without a device a list of an ndarray for each item; with `size` one ndarray (N, height,
        width, 3), or (N, height, width) for ``mode="L"``: uint8, C-contiguous, `out` if given. With
        a device a list of a tensor (C, H, W) for each, uint8, contiguous (of another type for
        ``mode="stored"``); with `size` one tensor (N, C, height, width), uint8. With
        ``on_error="return"`` always a list, in which a `FastDecodeError` or an `OSError` may stand;
        with `size` its arrays are parts of one.

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

    Examples
    --------
    >>> from fastdecode import decode_batch
    >>> from fastdecode.samples import photos
    >>> len(decode_batch(photos, reduce=2))
    6
    >>> decode_batch(photos, size=(120, 160)).shape
    (6, 120, 160, 3)

    Tensors, which ``device="cuda"`` makes on a GPU:

    >>> decode_batch(photos, device="cpu", size=224).shape
    torch.Size([6, 3, 224, 224])
    """
    how: dict[str, Any] = dict(options)
    sides = _checked("decode_batch", items, size, threads, on_error, how)
    count = threads or usable_cores()
    if device is not None:
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
    if decode != "auto":
        raise ValueError("decode needs a device, such as device='cpu' or 'cuda'")
    if how.get("backend") is not None:
        load_named(how["backend"])
    work = list(items)
    if out is not None and len(out) != len(work):
        raise ValueError(f"out has room for {len(out)} images, but there are {len(work)} items")
    if sides is not None:
        room = _room((len(work), *sides, *(() if how.get("mode") == "L" else (3,))), out)
        made = decode_arrays(work, how, count, on_error=on_error, targets=room, size=sides)
        return room if on_error == "raise" else made
    targets = [None if out is None else out[index] for index in range(len(work))]
    check_disjoint(targets)
    return decode_arrays(work, how, count, on_error=on_error, targets=targets)


@overload
def decode_iter(
    items: Iterable[Data | str | os.PathLike[str]],
    *,
    size: int | tuple[int, int] | None = None,
    threads: int | None = None,
    ahead: int | None = None,
    on_error: Literal["raise"] = "raise",
    **options: Unpack[BatchOptions],
) -> Generator[Image, None, None]: ...


@overload
def decode_iter(
    items: Iterable[Data | str | os.PathLike[str]],
    *,
    size: int | tuple[int, int] | None = None,
    threads: int | None = None,
    ahead: int | None = None,
    on_error: Literal["return"],
    **options: Unpack[BatchOptions],
) -> Generator[Image | FastDecodeError | OSError, None, None]: ...


def decode_iter(
    items: Iterable[Data | str | os.PathLike[str]],
    *,
    size: int | tuple[int, int] | None = None,
    threads: int | None = None,
    ahead: int | None = None,
    on_error: Literal["raise", "return"] = "raise",
    **options: Unpack[BatchOptions],
) -> Generator[Any, None, None]:
    """Decode any number of images, in order, of which only a few are in memory at once.

    Threads decode ahead of the loop that takes the images. A loop that is left early ends that:
    what has begun is finished, and nothing else begins.

    Parameters
    ----------
    items : iterable of encoded bytes or paths
        Each as for `decode_batch`. A generator is asked for the next one only when an image has
        been taken, in the thread that takes it.
    size : int or (height, width), optional
        Resize each image to this, as `decode_batch`.
    threads : int, optional
        As for `decode_batch`; 1 decodes each image when it is asked for, in the calling thread.
    ahead : int, optional
        How many images may be decoded, or in the making, before they are asked for; by default two
        for each thread. So many are in memory at once, and the one that was taken last.
    on_error : {"raise", "return"}
        As for `decode_batch`: an error is raised when its turn comes, and ends the iteration, or
        it stands in the place of its image. An exception of `items` itself is raised after the
        images of the items before it.
    **options
        reduce, min_size, mode, region, orient, strict, max_pixels, backend: all as for `decode`.

    Returns
    -------
    generator of ndarray
        One for each item, as `decode` returns it; with `size` (height, width, 3), or (height,
        width) for ``mode="L"``, uint8. With ``on_error="return"`` a `FastDecodeError` or an
        `OSError` may come in the place of an image.

    Raises
    ------
    FastDecodeError, OSError
        With ``on_error="raise"``, when its turn comes.
    UnknownBackend, BackendUnavailable, TypeError, ValueError
        If an argument is wrong, or the backend that is named cannot be used: at the call itself.

    See Also
    --------
    decode_batch : All at once, or on a device.

    Examples
    --------
    >>> from fastdecode import decode_iter
    >>> from fastdecode.samples import photo
    >>> for image in decode_iter(sorted(photo.parent.glob("*.jpg")), min_size=128):
    ...     print(image.shape)
    (167, 250, 3)
    (240, 320, 3)
    (250, 188, 3)
    (250, 188, 3)
    (167, 250, 3)
    (192, 256, 3)
    """
    how: dict[str, Any] = dict(options)
    sides = _checked("decode_iter", items, size, threads, on_error, how)
    if how.pop("out", None) is not None:
        raise ValueError("decode_iter() has no out: each image is an array of its own")
    if ahead is not None and not (is_int(ahead) and ahead >= 1):
        raise ValueError(f"ahead must be a positive integer, not {ahead!r}")
    if how.get("backend") is not None:
        load_named(how["backend"])
    count = threads or usable_cores()
    return decode_each(
        items,
        how,
        count,
        ahead=ahead or _AHEAD * count,
        on_error=on_error,
        size=sides,
    )


def _room(shape: tuple[int, ...], out: Any) -> Image:
    """Return an array for all results: the caller's, if it is right."""
    if out is None:
        return np.empty(shape, np.uint8)
    check_room(out, shape)
    return cast("Image", out)


def _checked(
    called: str,
    items: object,
    size: object,
    threads: object,
    on_error: object,
    options: dict[str, Any],
) -> tuple[int, int] | None:
    """Refuse what is wrong for every item, even if there are none; return the size as sides."""
    if on_error not in ("raise", "return"):
        raise ValueError(f"on_error must be 'raise' or 'return', not {on_error!r}")
    if _is_one(items):
        raise TypeError(f"{called}() takes several items; for one, use decode() or decode_file()")
    if not is_iterable(items):
        raise TypeError(
            f"{called}() takes an iterable of paths or encoded bytes, not {type(items).__name__}"
        )
    if threads is not None and not (is_int(threads) and cast("int", threads) >= 1):
        raise ValueError(f"threads must be a positive integer, not {threads!r}")
    _SIGNATURE.bind(b"", **options)  # TypeError for one that `decode` does not have
    check_options(**options)
    return _checked_size(size, options.get("mode", "RGB"))


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
