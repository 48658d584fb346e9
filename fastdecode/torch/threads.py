"""How many threads the libraries may start beside ours."""

from __future__ import annotations

import sys
import threading

import torch

__all__ = ["limit_threads", "settle_here", "single_thread_here"]

_lock = threading.Lock()


def limit_threads() -> None:
    """Let PyTorch and OpenCV use one thread in this process: for a worker process, at its start.

    Notes
    -----
    As many workers as cores, each with as many threads, get in each other's way. PyTorch limits
    itself in its own workers; OpenCV must be told, and its pool does not survive a fork. OpenCV is
    only told if it is loaded already: nothing here loads it.
    """
    torch.set_num_threads(1)
    opencv = sys.modules.get("cv2")
    if opencv is not None:
        opencv.setNumThreads(0)  # 0: run everything in the calling thread


def settle_here() -> None:
    """Fix how many threads PyTorch's operations use when this thread calls them.

    Notes
    -----
    A thread takes the number of the process when it first asks. It should not be in the moment in
    which `single_thread_here` has changed that.
    """
    torch.get_num_threads()


def single_thread_here() -> None:
    """Let PyTorch's operations use one thread when this thread calls them, and no other change.

    Notes
    -----
    OpenMP keeps the number for each thread, but `torch.set_num_threads` also remembers it for all
    threads that begin later. A thread that ends at once puts that back.
    """
    with _lock:
        usual = torch.get_num_threads()
        torch.set_num_threads(1)
        keeper = threading.Thread(target=torch.set_num_threads, args=(usual,))
        keeper.start()
        keeper.join()
