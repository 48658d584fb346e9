"""`Skipped` counts the images that a job leaves out anywhere on the cluster."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

__all__ = ["Skipped"]

_MOST = 10_000


class Skipped:
    """Counts the images that ``on_error="skip"`` leaves out, on the whole cluster.

    Create one, pass it to `read_images` or `decode_images`, and read the count after the dataset
    has been consumed. An image counts once, even if Ray runs its task again or in several epochs.

    Parameters
    ----------
    most : int
        How many reasons to keep; further images are only counted.

    Notes
    -----
    It is an actor without a CPU, on the node where it is created, because worker nodes may come and
    go. A task reports its bad images before it returns its other rows, so the count is complete
    when the dataset has been consumed.

    Examples
    --------
    >>> from fastdecode.ray import Skipped, read_images
    >>> skipped = Skipped()
    >>> dataset = read_images("train", size=224, on_error="skip", skipped=skipped)
    >>> for batch in dataset.iter_batches():
    ...     pass
    >>> skipped.count()
    0
    """

    def __init__(self, most: int = _MOST) -> None:
        if not ray.is_initialized():
            ray.init()
        # The actor must not be on a node that may be removed. A soft affinity is not enough: Ray
        # puts an actor without resources on any node.
        place = NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=False)
        log: Any = ray.remote(_Log)
        self._actor = log.options(num_cpus=0, scheduling_strategy=place).remote(most)

    def add(self, reasons: Mapping[str, str]) -> None:
        """Report images with their reasons, by path; return when they are recorded."""
        ray.get(self._actor.add.remote(dict(reasons)))

    def count(self) -> int:
        """Return how many different images have been left out so far."""
        found: int = ray.get(self._actor.count.remote())
        return found

    def reasons(self) -> dict[str, str]:
        """Return the reason for each image, by its path or a digest of its bytes."""
        found: dict[str, str] = ray.get(self._actor.reasons.remote())
        return found


class _Log:
    """The actor of `Skipped`."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._seen: set[int] = set()
        self._reasons: dict[str, str] = {}

    def add(self, reasons: dict[str, str]) -> None:
        for name, reason in reasons.items():
            self._seen.add(hash(name))  # 64 bits take much less memory than paths
            if name in self._reasons or len(self._reasons) < self._most:
                self._reasons[name] = reason

    def count(self) -> int:
        return len(self._seen)

    def reasons(self) -> dict[str, str]:
        return self._reasons
