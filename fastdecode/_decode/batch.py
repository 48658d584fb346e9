"""`decode_batch` and `decode_iter`: many images on all usable cores."""

from __future__ import annotations

import os
from collections.abc import Callable, Generator, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Literal, cast, overload

import numpy as np

from fastdecode._arguments import (
    check_array,
    check_disjoint,
    check_names,
    check_options,
    check_sides,
    check_threads,
    check_word,
    is_int,
    is_iterable,
    shown,
    wrong_kind,
)
from fastdecode._backends.selection import load_named
from fastdecode._decode.arrays import decode_arrays, decode_each
from fastdecode._system.processor import usable_cores
from fastdecode.types import BatchOptions

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from typing_extensions import Unpack

    from fastdecode._decode.api import Data
    from fastdecode.errors import FastDecodeError
    from fastdecode.types import Image

_LARGEST_SIDE = 1 << 20  # so that no number of bytes overflows
_AHEAD = 2
"""How many images per thread may wait for a slow image before them, or for the caller."""


@overload
def decode_batch(
    items: Iterable[Data | str | os.PathLike[str]],
    *,
    size: None = None,
    threads: int | None = None,
    on_error: Literal["raise"] = "raise",
    out: Sequence[Image | None] | Image | None = None,
    **options: Unpack[BatchOptions],
) -> list[Image]: ...


@overload
def decode_batch(
    items: Iterable[Data | str | os.PathLike[str]],
    *,
    size: int | tuple[int, int] | None = None,
    threads: int | None = None,
    on_error: Literal["return"],
    out: Sequence[Image | None] | Image | None = None,
    **options: Unpack[BatchOptions],
) -> list[Image | FastDecodeError | OSError]: ...


@overload
def decode_batch(
    items: Iterable[Data | str | os.PathLike[str]],
    *,
    size: int | tuple[int, int],
    threads: int | None = None,
    on_error: Literal["raise"] = "raise",
    out: NDArray[np.uint8] | None = None,
    **options: Unpack[BatchOptions],
) -> NDArray[np.uint8]: ...


def decode_batch(
    items: Iterable[Data | str | os.PathLike[str]],
    *,
    size: int | tuple[int, int] | None = None,
    threads: int | None = None,
    on_error: Literal["raise", "return"] = "raise",
    out: Sequence[Image | None] | Image | None = None,
    **options: Unpack[BatchOptions],
) -> Any:
    """Decode many images in parallel, in order.

    Returns a list of arrays; one array with `size`. `fastdecode.torch.Loader` makes tensors, also
    on a GPU.

    Parameters
    ----------
    items : iterable of encoded bytes or paths
        Encoded bytes as for `decode`, or a path as for `decode_file`.
    size : int or (height, width), optional
        Resize each image, or its `region`, to exactly this size (antialiased, bilinear), and return
        one array of all images. An int stands for both sides. Each image is decoded at
        full size for that; pass `min_size` as well to let the CPU reduce large images inside the
        decoder. `mode` must be ``"RGB"`` or ``"L"``.
    threads : int, optional
        How many threads to use. By default one for each core that this process may use (CPU
        affinity and container quota, not the machine's count). 1 decodes in the calling thread.
    on_error : {"raise", "return"}
        ``"raise"``: raise the first error, in the order of the items. Its message begins with
        ``item 3:``, except for an OSError, which names its file. ``"return"``: put the error into
        the list in place of the image, if the error concerns that item. Errors in reaching the data
        (permission, connection, time-out, disk) are always raised.
    out : sequence of ndarray, or one ndarray (N, H, W, C), optional
        Item i is decoded into ``out[i]``, as with the `out` of `decode`. The arrays must not
        overlap in memory. With `size`, `out` is one array for the whole result.
    max_side : int, optional
        Shrink each image, or its `region`, to a thumbnail whose longer side has at most so many
        pixels, and keep its aspect ratio. The pixels are those of Pillow's ``Image.thumbnail``
        (bicubic) in this `mode`, which may not be ``"stored"``. A JPEG is first reduced inside the
        decoder. The CPU decodes, and `size`, `reduce` and `min_size` are left out.
    **options
        reduce, min_size, mode, region, orient, strict, max_pixels, backend: all as for `decode`.

    Returns
    -------
    list of ndarray
        One array (H, W, C) or (H, W) per item, as from `decode`.

        With `size` it is one uint8 ndarray (N, height, width, C), or (N, height, width) for
        ``mode="L"``, C-contiguous; `out` if given.

        With ``on_error="return"`` it is a list even with `size`, which may contain
        `FastDecodeError` and `OSError` objects; then its arrays are views of one array.

    Raises
    ------
    FastDecodeError, OSError
        An item cannot be decoded or read, and `on_error` is ``"raise"``.
    UnknownBackend, BackendUnavailable
        The named backend cannot be used, whatever `on_error` is.
    TypeError, ValueError
        An argument is wrong, whatever `on_error` is. Options are checked before the first item. The
        type of an item, and whether it contains the region, are checked when its turn comes.

    Examples
    --------
    >>> from fastdecode import decode_batch
    >>> from fastdecode.samples import photos
    >>> len(decode_batch(photos, reduce=2))
    6
    >>> decode_batch(photos, size=(120, 160)).shape
    (6, 120, 160, 3)
    >>> decode_batch(photos, max_side=100)[0].shape  # a thumbnail
    (67, 100, 3)
    """
    how: dict[str, Any] = dict(options)
    sides = _checked(decode_batch, items, size, threads, on_error, how)
    count = threads or usable_cores()
    if how.get("backend") is not None:
        load_named(how["backend"])
    work = list(items)
    if out is not None and not (is_iterable(out) and hasattr(out, "__len__")):
        raise wrong_kind("out", "a sequence of arrays, or one array", out)
    if out is not None and len(out) != len(work):
        raise ValueError(f"out has room for {len(out)} images, but there are {len(work)} items")
    if sides is not None:
        room = _result_array((len(work), *sides, *(() if how.get("mode") == "L" else (3,))), out)
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
    """Decode any number of images in order, with only a few of them in memory at once.

    Threads decode ahead of your loop. If you leave the loop early, they finish the images that they
    have begun and start no others.

    Parameters
    ----------
    items : iterable of encoded bytes or paths
        As for `decode_batch`. If `items` is a generator, your thread advances it, one item for each
        image that you take.
    size : int or (height, width), optional
        Resize each image to this size, as `decode_batch` does.
    max_side : int, optional
        Shrink each image to a thumbnail, as `decode_batch` does.
    threads : int, optional
        As for `decode_batch`; 1 decodes each image on demand, in the calling thread.
    ahead : int, optional
        How many images may be decoded or in progress before you take them; by default two per
        thread. This many images are in memory at once, plus the one that you took last.
    on_error : {"raise", "return"}
        As for `decode_batch`: an error is raised when its turn comes, which ends the iteration, or
        it is yielded in place of its image. An exception of `items` itself is raised after the
        images of all earlier items.
    **options
        reduce, min_size, mode, region, orient, strict, max_pixels, backend: all as for `decode`.

    Returns
    -------
    generator of ndarray
        One array per item, as `decode` returns it. With `size` it is uint8, (height, width, 3), or
        (height, width) for ``mode="L"``. With ``on_error="return"``, a `FastDecodeError` or an
        `OSError` may take the place of an image.

    Raises
    ------
    FastDecodeError, OSError
        An item cannot be decoded or read, and `on_error` is ``"raise"``; raised when its turn
        comes.
    UnknownBackend, BackendUnavailable, TypeError, ValueError
        An argument is wrong, or the named backend cannot be used; raised by the call itself.

    See Also
    --------
    decode_batch : Decode all images at once.

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
    if how.pop("out", None) is not None:
        raise ValueError("decode_iter() has no out: each image is an array of its own")
    sides = _checked(decode_iter, items, size, threads, on_error, how)
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


def _result_array(shape: tuple[int, ...], out: Any) -> Image:
    """Return the array for all results: a new one, or the caller's after checking it."""
    if out is None:
        return np.empty(shape, np.uint8)
    check_array(out, shape)
    return cast("Image", out)


def _checked(
    called: Callable[..., Any],
    items: object,
    size: object,
    threads: object,
    on_error: object,
    options: dict[str, Any],
) -> tuple[int, int] | None:
    """Check the arguments that all items share, even if there are none; return `size` as sides."""
    check_names(called, options, BatchOptions)
    name = called.__name__
    check_word("on_error", on_error, ("raise", "return"))
    if _is_single(items):
        raise TypeError(f"{name}() takes several items; for one, use decode() or decode_file()")
    if not is_iterable(items):
        raise TypeError(
            f"{name}() takes an iterable of paths or encoded bytes, not {type(items).__name__}"
        )
    if threads is not None:
        check_threads(threads)
    if options.get("max_side") is None:
        options.pop("max_side", None)
    else:
        _check_max_side(size, **options)
    check_options(**options)
    return _checked_size(size, options.get("mode", "RGB"))


def _checked_size(size: object, mode: str) -> tuple[int, int] | None:
    if size is None:
        return None
    if mode not in ("RGB", "L"):
        raise ValueError(f"size needs mode 'RGB' or 'L': {mode!r} cannot be resized by averaging")
    sides = check_sides(size, "size")
    if max(sides) > _LARGEST_SIDE:
        raise ValueError(f"size must be at most {_LARGEST_SIDE}, not {shown(size)}")
    return sides


def _check_max_side(
    size: object,
    max_side: object,
    mode: object = "RGB",
    reduce: object = 1,
    min_size: object = None,
    **_others: object,
) -> None:
    if not (is_int(max_side) and cast("int", max_side) >= 1):
        raise ValueError(f"max_side must be a positive integer, not {shown(max_side)}")
    if size is not None or min_size is not None or reduce != 1:
        raise ValueError("max_side says the size: leave out size, reduce and min_size")
    if mode == "stored":
        raise ValueError("max_side needs mode 'RGB', 'L' or 'RGBA'")


def _is_single(items: object) -> bool:
    """Return whether the caller passed one image or one path instead of several."""
    if isinstance(items, (str, os.PathLike)):
        return True
    try:
        return memoryview(items).itemsize == 1  # type: ignore[arg-type]
    except TypeError:
        return False
