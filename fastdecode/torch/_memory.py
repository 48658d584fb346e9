"""Memory for batches, used again when nobody holds a batch any more."""

from __future__ import annotations

import math
import weakref
from collections import deque
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

_NUMPY: dict[torch.dtype, Any] = {torch.float32: np.float32, torch.uint8: np.uint8}


class _Lease:
    """Holds a block for as long as any tensor, view or array of it lives."""

    def __init__(self, block: NDArray[np.uint8]) -> None:
        self.__array_interface__ = block.__array_interface__
        self.loan: _Loan


class _Loan(weakref.ref[_Lease]):
    """Knows the block of a lease, which keeps it, and tells when that has ended.

    It tells by a method in C: what is raised in Python code there, as by Ctrl-C, would be lost.
    """

    __slots__ = ("block",)
    block: NDArray[np.uint8]


def _viewed(block: NDArray[np.uint8], dtype: torch.dtype, shape: tuple[int, ...]) -> Any:
    """View memory as a tensor; for the common types by NumPy.

    torch releases the GIL for each view, and may have to wait to get it back.
    """
    if dtype in _NUMPY:
        return torch.from_numpy(block.view(_NUMPY[dtype]).reshape(shape))
    return torch.from_numpy(block).view(dtype).view(shape)


class BatchMemory:
    """Hands out tensors, and takes their memory back when the last view of one is gone.

    A consumer may therefore keep as many batches as it likes: nothing is overwritten under it.

    `most` are the free blocks to keep. `pinned` is page-locked memory, for copies to a CUDA device:
    it comes from PyTorch, whose allocator uses it again by itself, and not before the copies that
    read it are done. A batch of 64 images of 224 x 224 floats is 38 MB, and fresh memory of that
    size 9400 pages that the system first has to clear.
    """

    def __init__(self, most: int, *, pinned: bool = False) -> None:
        self._free: deque[_Loan] = deque(maxlen=most)
        self._pinned = pinned

    def take(self, shape: tuple[int, ...], dtype: torch.dtype, *, channels_last: bool) -> Any:
        """Return a tensor (N, C, H, W) whose values are not initialised."""
        laid = (shape[0], *shape[2:], shape[1]) if channels_last else shape
        # A consumer in inference mode would make tensors that no other thread may write to.
        if torch.is_inference_mode_enabled():
            with torch.inference_mode(mode=False):
                return self._made(laid, dtype, channels_last=channels_last)
        return self._made(laid, dtype, channels_last=channels_last)

    def _made(self, laid: tuple[int, ...], dtype: torch.dtype, *, channels_last: bool) -> Any:
        if self._pinned:
            tensor = torch.empty(laid, dtype=dtype, device="cpu", pin_memory=True)
        else:
            size = math.prod(laid) * dtype.itemsize
            array = np.asarray(self._lease(size))[:size]
            tensor = _viewed(array, dtype, laid)
        return tensor.permute(0, 3, 1, 2) if channels_last else tensor

    def _lease(self, size: int) -> _Lease:
        block = self._fitting(size)
        lease = _Lease(block)
        lease.loan = _Loan(lease, self._free.append)
        lease.loan.block = block
        return lease

    def _fitting(self, size: int) -> NDArray[np.uint8]:
        """Take a free block that is large enough, as for a last batch; release smaller ones."""
        while self._free:
            try:
                block = self._free.popleft().block
            except IndexError:  # another thread was faster
                break
            if block.size >= size:
                return block
        return np.empty(size, np.uint8)
