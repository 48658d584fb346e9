"""The same job on Ray with one and with two workers, against Ray's own `read_images`.

PHOTOS contains photos, in class folders or in one folder. Links in one folder repeat them up to
`--images`. The job reads and decodes them, resizes them to a square, and passes the blocks, images
with their paths, to the driver, which only counts rows:

- fastdecode: `fastdecode.ray.read_images(folder, size=224)`;
- ray: `ray.data.read_images(folder, size=(224, 224), mode="RGB", include_paths=True)`.

Each number of workers gets its own cluster: a head without cores, and so many nodes of one core.
Each node is pinned to its own core if the machine has enough cores; head and driver may use any.
After a warm-up of each job, the jobs take turns, in a new random order each round. rows/s count
from the request for the dataset to the arrival of the last row. Figures are medians of the rounds,
ratios are medians of the ratios within a round. Processor time is that of all processes of the
cluster and the driver, from /proc; it is the steadier figure when the machine does other work.
Files come from the system's cache. Aim: 1.5 times the rows/s of Ray's own reader.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from os import getpid
from time import perf_counter
from typing import Any

import _common as bench

from fastdecode.measure._processes import cpu_seconds

os.environ.update(  # before ray is imported; its workers inherit it
    RAY_AUTH_MODE="disabled",
    RAY_ENABLE_UV_RUN_RUNTIME_ENV="0",
    RAY_USAGE_STATS_ENABLED="0",
    PYTHONPATH=os.pathsep.join(path for path in sys.path if path),
)

import ray
from ray.cluster_utils import Cluster

import fastdecode.ray

ray.data.DataContext.get_current().enable_progress_bars = False
_AIM = 1.5
_FEW = 500
_OBJECT_STORE = 1 << 30


JOBS: dict[str, Callable[[str, int], Any]] = {
    "fastdecode": lambda folder, size: fastdecode.ray.read_images(folder, size=size),
    "ray": lambda folder, size: ray.data.read_images(
        folder, size=(size, size), mode="RGB", include_paths=True
    ),
}


@contextmanager
def cluster(workers: int) -> Iterator[None]:
    """Start a head, and `workers` nodes of one core."""
    usable = sorted(os.sched_getaffinity(0))
    common: dict[str, Any] = {"object_store_memory": _OBJECT_STORE}
    head = {"num_cpus": 0, "include_dashboard": False, **common}
    nodes = Cluster(initialize_head=True, head_node_args=head)
    try:
        for number in range(workers):
            # The processes of a node inherit the cores that it has when it starts.
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


def turn(job: str, folder: str, size: int, images: int) -> dict[str, float]:
    """Run one job, and check that it returns every row at the right size."""
    started, before = perf_counter(), cpu_seconds(getpid())
    rows = 0
    for batch in JOBS[job](folder, size).iter_batches(batch_size=None):
        assert batch["image"].shape[1:] == (size, size, 3)
        assert len(batch["path"]) == len(batch["image"])
        rows += len(batch["image"])
    seconds = perf_counter() - started
    if rows != images:
        raise RuntimeError(f"{job} gave {rows} rows of {images}")
    cpu = cpu_seconds(getpid()) - before
    return {"rows_per_s": rows / seconds, "cpu_s_per_1000": 1000 * cpu / rows}


def summary(turns: bench.Rounds, fewest: dict[str, Any]) -> dict[str, Any]:
    """Return medians, ratios within a round, and ratios to the medians with the fewest workers."""
    result = bench.sum_up(turns, "rows_per_s", to_ray="ray")
    for job, row in result.items():
        first = fewest.get(job, row)["rows_per_s"]
        row["to_fewest_workers"] = round(row["rows_per_s"] / first, 3)
        row["cpu_s_per_1000_rounds"] = [round(n["cpu_s_per_1000"], 3) for n in turns[job].values()]
        row["to_ray_rounds"] = [round(n, 3) for n in bench.ratios(turns, job, "ray", "rows_per_s")]
        row["cpu_to_ray"] = bench.ratio(turns, "ray", job, "cpu_s_per_1000")
    return result


@bench.command(
    images=(20_000, "of the job"),
    size=(224, "of the rows' images"),
    workers=([1, 2], "nodes of one core"),
    rounds=(5, "after the warm-up"),
    only=([*JOBS], "jobs"),
)
def main(options: Any) -> Any:
    photos = bench.photos_in(options.photos)
    result: dict[str, Any] = {}
    few = min(options.images, _FEW)
    with (
        bench.linked(photos, options.photos, options.images, flat=True) as everything,
        bench.linked(photos, options.photos, few, flat=True) as beginning,
    ):
        competitors = {
            job: partial(turn, job, everything, options.size, options.images)
            for job in options.only
        }
        for workers in sorted({*options.workers}):
            with cluster(workers):
                for job in options.only:  # the warm-up
                    turn(job, beginning, options.size, few)
                turns = bench.take_turns(competitors, options.rounds, warm_up=False)
            found = summary(turns, next(iter(result.values()), {}))
            result[str(workers)] = found
            bench.show(f"{workers} workers", found)
            if {*JOBS} <= found.keys():
                bench.judge("fastdecode, times Ray's own", found["fastdecode"]["to_ray"], _AIM)
    options.bytes_per_photo = sum(path.stat().st_size for path in photos) // len(photos)
    options.cores_per_worker, options.ray = 1, ray.__version__
    return result


if __name__ == "__main__":
    main()
