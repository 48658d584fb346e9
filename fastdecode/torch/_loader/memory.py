"""Memory for batches, which is reused when nothing refers to a batch any more."""

from __future__ import annotations

import math
import sys
import threading
import weakref
from collections import defaultdict, deque
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

_NUMPY: dict[torch.dtype, Any] = {torch.float32: np.float32, torch.uint8: np.uint8}
_LARGE = 1 << 17  # bytes; a C library keeps less than that for the next caller itself


_HUGE = 1 << 22
"""Bytes from which NumPy asks for huge pages. To touch those first may take four times as long."""


class _Lent(threading.local):
    """The memory for samples that this thread makes for a `Loader`."""

    memory: BatchMemory | None = None


_lent = _Lent()


class _Lease:
    """Holds a block while any tensor, view or array of it exists."""

    def __init__(self, block: NDArray[np.uint8]) -> None:
        self.__array_interface__ = block.__array_interface__
        self.loan: _Loan


class _Loan(weakref.ref[_Lease]):
    """A weak reference to a lease; it keeps the block, and its callback tells that the lease ended.

    The callback is a method in C: an error raised in Python code there, such as Ctrl-C, would be
    lost.
    """

    __slots__ = ("block",)
    block: NDArray[np.uint8]


def _view(block: NDArray[np.uint8], dtype: torch.dtype, shape: tuple[int, ...]) -> Any:
    """View memory as a tensor; for the common types through NumPy.

    torch releases the GIL for each view, and may have to wait to get it back.
    """
    if dtype in _NUMPY:
        return torch.from_numpy(block.view(_NUMPY[dtype]).reshape(shape))
    return torch.from_numpy(block).view(dtype).view(shape)


class BatchMemory:
    """Hands out tensors, and reuses the memory of one when the last view of it is gone.

    A consumer may therefore keep as many batches as it likes: none of them is overwritten.

    `most` is the number of free blocks to keep, for each part of a batch. `pinned` makes
    page-locked memory, for copies to a CUDA device. PyTorch's allocator provides it, and reuses it
    only after the copies that read it are done. A batch of 64 images of 224 x 224 floats is 38 MB:
    new memory of that size is 9400 pages, which the system must clear first.

    Samples that are not written straight into a batch, such as images of several sizes, have blocks
    of their own: at most `samples` free ones for each of the batches.
    """

    def __init__(self, most: int, *, samples: int = 0, pinned: bool = False) -> None:
        self._free = defaultdict[int, deque[_Loan]](partial(deque, maxlen=most))
        self._free_samples = deque[_Loan](maxlen=min(most * samples, sys.maxsize))
        self._pinned = pinned

    @contextmanager
    def for_samples(self) -> Iterator[None]:
        """Let `new_sample` of this thread take this memory, within the block."""
        before, _lent.memory = _lent.memory, self
        try:
            yield
        finally:
            _lent.memory = before

    def take(
        self, shape: tuple[int, ...], dtype: torch.dtype, *, channels_last: bool, part: int = 0
    ) -> Any:
        """Return a tensor (N, C, H, W) whose values are not initialised.

        If a batch has several of them, such as views, each `part` has free blocks of its own.
        """
        laid = (shape[0], *shape[2:], shape[1]) if channels_last else shape
        # In inference mode, the tensor would be one that no other thread may write to.
        if torch.is_inference_mode_enabled():
            with torch.inference_mode(mode=False):
                return self._make_tensor(laid, dtype, part, channels_last=channels_last)
        return self._make_tensor(laid, dtype, part, channels_last=channels_last)

    def _make_tensor(
        self, laid: tuple[int, ...], dtype: torch.dtype, part: int, *, channels_last: bool
    ) -> Any:
        if self._pinned:
            tensor = torch.empty(laid, dtype=dtype, device="cpu", pin_memory=True)
        else:
            free = self._free[part]
            size = math.prod(laid) * dtype.itemsize
            tensor = _lease(_find_block(size, free), free, laid, dtype)
        return tensor.permute(0, 3, 1, 2) if channels_last else tensor

    def clear(self) -> None:
        """Release all free blocks."""
        self._free.clear()
        self._free_samples.clear()

    def __del__(self) -> None:
        """Release them although a sample that is kept refers to their list."""
        self.clear()

    def take_sample(self, shape: tuple[int, ...], dtype: torch.dtype) -> Any:
        """Return a tensor of any shape for one sample, whose values are not initialised."""
        size, free = math.prod(shape) * dtype.itemsize, self._free_samples
        return _lease(_find_fitting(size, free), free, shape, dtype)


def new_sample(shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
    """Return a tensor whose values are not initialised, in memory that a `Loader` reuses if it can.

    It can in a thread that makes samples for it.
    """
    memory = _lent.memory
    if memory is None or math.prod(shape) * dtype.itemsize < _LARGE:
        return torch.empty(shape, dtype=dtype, device="cpu")
    sample: torch.Tensor = memory.take_sample(shape, dtype)
    return sample


def _lease(
    block: NDArray[np.uint8], free: deque[_Loan], shape: tuple[int, ...], dtype: torch.dtype
) -> Any:
    """Return a tensor in a block, which is free again when the last view of the tensor is gone."""
    lease = _Lease(block)
    lease.loan = _Loan(lease, free.append)
    lease.loan.block = block
    return _view(np.asarray(lease)[: math.prod(shape) * dtype.itemsize], dtype, shape)


def _find_block(size: int, free: deque[_Loan]) -> NDArray[np.uint8]:
    """Return a free block that is large enough, or a new one; release smaller free blocks."""
    while free:
        try:
            block = free.popleft().block
        except IndexError:  # another thread was faster
            break
        if block.size >= size:
            return block
    return np.empty(size, np.uint8)


def _find_fitting(size: int, free: deque[_Loan]) -> NDArray[np.uint8]:
    """Return a free block of up to twice the size, or a new one; the oldest is then released.

    So blocks of sizes that come no more do not stay. The latest one is taken first: most of it may
    still be in caches, and few pages stay in use.
    """
    with suppress(IndexError):  # another thread was faster
        for _ in range(len(free)):
            loan = free.pop()
            if size <= loan.block.size <= 2 * size:
                return loan.block
            free.appendleft(loan)
        free.popleft()
    # A larger one fits more samples later. What is not written to costs no memory until then.
    size += size // 4
    if size >= _HUGE:
        return torch.empty(size, dtype=torch.uint8, device="cpu").numpy()
    return np.empty(size, np.uint8)
