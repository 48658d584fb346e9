"""`Skipped`: which images a job has left out, wherever on the cluster."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

__all__ = ["Skipped"]

_MOST = 10_000


class Skipped:
    """Counts the images that ``on_error="skip"`` leaves out, over the whole cluster.

    Make one, give it to `read_images` or `decode_images`, consume the dataset, then ask it. An
    image counts once, however often Ray runs its task again, and however many epochs there are.

    Parameters
    ----------
    most : int
        How many reasons to keep; what is beyond that is only counted.

    Notes
    -----
    It is an actor without a CPU of its own, on the node of whoever makes it and on no other: nodes
    of workers may come and go. A task tells it of its bad images before it hands on the rows
    beside them: the count is complete when the dataset has been consumed.

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
        # A node that may be taken away at any time is no place for the count. A soft affinity would
        # not keep it from there: Ray puts an actor that asks for no resources on any node.
        place = NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=False)
        log: Any = ray.remote(_Log)
        self._actor = log.options(num_cpus=0, scheduling_strategy=place).remote(most)

    def add(self, reasons: Mapping[str, str]) -> None:
        """Note images by their path, and return when that is done."""
        ray.get(self._actor.add.remote(dict(reasons)))

    def count(self) -> int:
        """Return how many different images have been left out so far."""
        found: int = ray.get(self._actor.count.remote())
        return found

    def reasons(self) -> dict[str, str]:
        """Return what was wrong with each, by its path, or by a digest of its bytes."""
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
            self._seen.add(hash(name))  # 64 bits: a thousandth of the memory that paths may take
            if name in self._reasons or len(self._reasons) < self._most:
                self._reasons[name] = reason

    def count(self) -> int:
        return len(self._seen)

    def reasons(self) -> dict[str, str]:
        return self._reasons
