"""The same job on Ray with one and with two workers, against Ray's own `read_images`.

PHOTOS holds photos, in class folders or loose; they are repeated, as links in one folder, to as
many as are asked for. The job reads and decodes them, resizes them to a square, and hands the
blocks, images with their paths, to the driver, which only counts rows:

- fastdecode: `fastdecode.ray.read_images(folder, size=224)`;
- ray: `ray.data.read_images(folder, size=(224, 224), mode="RGB", include_paths=True)`.

For each number of workers there is a cluster of a head without cores and so many nodes of one core,
each held to a core of its own where the machine has enough of them; head and driver may use any.
After a warm-up of each, the jobs take turns, in an order drawn anew in each round. rows/s are from
asking for the dataset to having the last row; figures are medians of the rounds, ratios the medians
of those within a round. Processor time is that of all processes of the cluster and the driver, from
/proc: beside other work it is the steadier figure. Files come from the system's cache. Aim: 1.5
times the rows of Ray's own.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from os import getpid
from time import perf_counter
from typing import Any, NamedTuple

from _common import (
    Rounds,
    each,
    judge,
    keep,
    linked,
    middle,
    parser,
    photos_in,
    rates,
    ratio,
    ratios,
    show,
    take_turns,
)
from _ray import ray
from ray.cluster_utils import Cluster

import fastdecode.ray
from fastdecode.measure._timing import cpu_seconds

_AIM = 1.5
_BASELINE = "ray"
_FEW = 500
_OBJECT_STORE = 1 << 30


def own(folder: str, size: int) -> Any:
    """Let fastdecode do it."""
    return fastdecode.ray.read_images(folder, size=size)


def rays(folder: str, size: int) -> Any:
    """Let Ray do it."""
    return ray.data.read_images(folder, size=(size, size), mode="RGB", include_paths=True)


JOBS: dict[str, Callable[[str, int], Any]] = {"fastdecode": own, "ray": rays}


@contextmanager
def cluster(workers: int) -> Iterator[None]:
    """Start a head and so many nodes of one core."""
    usable = sorted(os.sched_getaffinity(0))
    common: dict[str, Any] = {"object_store_memory": _OBJECT_STORE}
    head = {"num_cpus": 0, "include_dashboard": False, **common}
    nodes = Cluster(initialize_head=True, head_node_args=head)
    try:
        for number in range(workers):
            # What a node starts keeps to the cores that it had itself when it began.
            if len(usable) >= workers:
                os.sched_setaffinity(0, {usable[number]})
            try:
                nodes.add_node(num_cpus=1, **common)
            finally:
                os.sched_setaffinity(0, usable)
        ray.init(address=nodes.address, log_to_driver=False, logging_level="ERROR")
        yield
    finally:
        ray.shutdown()
        nodes.shutdown()


class Turn(NamedTuple):
    """One job once."""

    rows_per_s: float
    cpu_s_per_1000: float


def turn(job: str, folder: str, size: int, images: int) -> Turn:
    """Do one job, which must give every row at the size that was asked for."""
    started, before = perf_counter(), cpu_seconds(getpid())
    rows = 0
    for batch in JOBS[job](folder, size).iter_batches(batch_size=None):
        assert batch["image"].shape[1:] == (size, size, 3)
        assert len(batch["path"]) == len(batch["image"])
        rows += len(batch["image"])
    seconds = perf_counter() - started
    if rows != images:
        raise RuntimeError(f"{job} gave {rows} rows of {images}")
    return Turn(rows / seconds, 1000 * (cpu_seconds(getpid()) - before) / rows)


def summary(turns: Rounds[Turn], fewest: dict[str, Any]) -> dict[str, Any]:
    """Return medians, and ratios within a round; and to the medians with the fewest workers."""
    speeds = each(turns, lambda turn: turn.rows_per_s)
    costs = each(turns, lambda turn: turn.cpu_s_per_1000)
    base = speeds.get(_BASELINE, {})
    result: dict[str, Any] = rates(speeds, to_ray=_BASELINE)
    for job, row in result.items():
        row["rows_per_s"] = row.pop("images_per_s")
        first = fewest.get(job, row)["rows_per_s"]
        row["to_fewest_workers"] = round(row["rows_per_s"] / first, 3)
        row["cpu_s_per_1000"] = middle(costs[job])
        row["cpu_s_per_1000_rounds"] = [round(cost, 3) for cost in costs[job].values()]
        row["to_ray_rounds"] = [round(one, 3) for one in ratios(speeds[job], base)]
        row["cpu_to_ray"] = ratio(costs.get(_BASELINE, {}), costs[job])
    return result


def main() -> None:
    options = parser(
        __doc__,
        images=(20_000, "of the job"),
        size=(224, "of the rows' images"),
        workers=([1, 2], "nodes of one core"),
        rounds=(5, "after the warm-up"),
        only=([*JOBS], "jobs"),
    ).parse_args()
    photos = photos_in(options.photos)
    result: dict[str, Any] = {}
    few = min(options.images, _FEW)
    with (
        linked(photos, options.photos, options.images, flat=True) as everything,
        linked(photos, options.photos, few, flat=True) as beginning,
    ):
        competitors = {
            job: partial(turn, job, everything, options.size, options.images)
            for job in options.only
        }
        for workers in sorted({*options.workers}):
            with cluster(workers):
                for job in options.only:  # the warm-up
                    turn(job, beginning, options.size, few)
                turns = take_turns(competitors, options.rounds, warm_up=False)
            found = summary(turns, next(iter(result.values()), {}))
            result[str(workers)] = found
            show(f"{workers} workers", found)
            if {"fastdecode", _BASELINE} <= found.keys():
                judge("fastdecode, to Ray's own", found["fastdecode"]["to_ray"], _AIM)
    keep(
        options,
        result,
        "images",
        "size",
        "rounds",
        different_photos=len(photos),
        bytes_per_photo=sum(path.stat().st_size for path in photos) // len(photos),
        cores_per_worker=1,
        ray=ray.__version__,
    )


if __name__ == "__main__":
    main()
