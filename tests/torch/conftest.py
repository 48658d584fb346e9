"""Where worker processes cannot share memory, a test that begins to need some is skipped."""

from __future__ import annotations

import importlib.util
from multiprocessing import synchronize

from processes import HAS_SHARED_MEMORY, skip_without_shared_memory

if not HAS_SHARED_MEMORY and importlib.util.find_spec("torch"):
    import torch
    from torch.utils.data.dataloader import _MultiProcessingDataLoaderIter

    synchronize.SemLock.__init__ = skip_without_shared_memory
    torch.Tensor.share_memory_ = skip_without_shared_memory
    # Torch's iterator, which then does not come to say so itself, has nothing to shut down.
    _MultiProcessingDataLoaderIter._shutdown = True
