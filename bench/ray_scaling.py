"""The same job on Ray with one and with two workers, against Ray's own `read_images`.

    python bench/ray_scaling.py FOLDER [--images 20000] [--size 224] [--workers 1,2] [--rounds 5]
                                [--only fastdecode,ray] [--json FILE]

FOLDER holds photos, in class folders or loose; they are repeated, as links in one folder, to as
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

import argparse
import os
import random
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any, NamedTuple

from record import record
from reference import photos_in

_AIM = 1.5
_BASELINE = "ray"
_OBJECT_STORE = 1 << 30
_ROOT = str(Path(__file__).resolve().parents[1])

# Before Ray is imported, and for the workers, which inherit it.
os.environ.update(
    RAY_AUTH_MODE="disabled",
    RAY_ENABLE_UV_RUN_RUNTIME_ENV="0",
    RAY_USAGE_STATS_ENABLED="0",
    PYTHONPATH=os.pathsep.join([_ROOT, os.environ.get("PYTHONPATH", "")]),
)

import ray  # noqa: E402
from ray.cluster_utils import Cluster  # noqa: E402

import fastdecode.ray  # noqa: E402


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
        ray.data.DataContext.get_current().enable_progress_bars = False
        yield
    finally:
        ray.shutdown()
        nodes.shutdown()


class Turn(NamedTuple):
    """One job once."""

    rows_per_s: float
    cpu_s_per_1000: float


def cpu_seconds() -> float:
    """Return the processor time of this process and of all that it has started, in seconds."""
    parents, spent = {}, {}
    for entry in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # it has ended meanwhile
            fields = (entry / "stat").read_text().rpartition(")")[2].split()
            parents[int(entry.name)] = int(fields[1])
            spent[int(entry.name)] = sum(map(int, fields[11:15]))  # with those that have ended

    def ours(process: int) -> bool:
        return process == os.getpid() or (process in parents and ours(parents[process]))

    return sum(ticks for process, ticks in spent.items() if ours(process)) / os.sysconf(
        "SC_CLK_TCK"
    )


def turn(job: str, folder: str, options: argparse.Namespace, images: int) -> Turn:
    """Do one job, which must give every row at the size that was asked for."""
    started, before = perf_counter(), cpu_seconds()
    rows = 0
    for batch in JOBS[job](folder, options.size).iter_batches(batch_size=None):
        assert batch["image"].shape[1:] == (options.size, options.size, 3)
        assert len(batch["path"]) == len(batch["image"])
        rows += len(batch["image"])
    seconds = perf_counter() - started
    if rows != images:
        raise RuntimeError(f"{job} gave {rows} rows of {images}")
    return Turn(round(rows / seconds, 1), round(1000 * (cpu_seconds() - before) / rows, 3))


def links(photos: list[Path], root: Path, count: int) -> str:
    """Fill a folder with links to photos, each as often as the others."""
    root.mkdir()
    for number in range(count):
        photo = photos[number % len(photos)]
        (root / f"{number:06d}{photo.suffix.lower()}").symlink_to(photo.resolve())
    return str(root)


def measure(photos: list[Path], options: argparse.Namespace) -> dict[int, dict[str, list[Turn]]]:
    """Return the turns of each round, by the number of workers and the job."""
    found: dict[int, dict[str, list[Turn]]] = {}
    with tempfile.TemporaryDirectory() as place:
        few = min(options.images, 500)
        everything = links(photos, Path(place, "all"), options.images)
        beginning = links(photos, Path(place, "few"), few)
        for workers in options.workers:
            found[workers] = {job: [] for job in options.only}
            with cluster(workers):
                for job in options.only:
                    turn(job, beginning, options, few)
                for number in range(options.rounds):
                    for job in random.sample(options.only, len(options.only)):
                        once = turn(job, everything, options, options.images)
                        found[workers][job].append(once)
                        print(f"{workers} workers, round {number + 1}, {job}: {once}", flush=True)
    return found


def summary(found: dict[int, dict[str, list[Turn]]]) -> dict[str, Any]:
    """Return medians, and ratios within a round."""
    fewest = found[min(found)]
    result: dict[str, Any] = {}
    for workers, jobs in found.items():
        result[str(workers)] = lanes = {}
        for job, rounds in jobs.items():
            speeds = [once.rows_per_s for once in rounds]
            costs = [once.cpu_s_per_1000 for once in rounds]
            first = median(once.rows_per_s for once in fewest[job])
            lanes[job] = {
                "rows_per_s": round(median(speeds), 1),
                "rounds": speeds,
                "to_fewest_workers": round(median(speeds) / first, 3),
                "cpu_s_per_1000": round(median(costs), 3),
                "cpu_s_per_1000_rounds": costs,
            }
            if _BASELINE in jobs:
                pairs = list(zip(rounds, jobs[_BASELINE], strict=True))
                faster = [one.rows_per_s / other.rows_per_s for one, other in pairs]
                cheaper = [other.cpu_s_per_1000 / one.cpu_s_per_1000 for one, other in pairs]
                lanes[job]["to_ray"] = round(median(faster), 3)
                lanes[job]["to_ray_rounds"] = [round(ratio, 3) for ratio in faster]
                lanes[job]["cpu_to_ray"] = round(median(cheaper), 3)
    return result


def show(result: dict[str, Any]) -> None:
    for workers, jobs in result.items():
        for job, lane in jobs.items():
            ratio = f", {lane['to_ray']:.2f} x Ray's own" if "to_ray" in lane else ""
            print(
                f"{workers} workers: {job} {lane['rows_per_s']:.0f} rows/s{ratio}, "
                f"{lane['cpu_s_per_1000']:.2f} CPU-s for 1000, "
                f"{lane['to_fewest_workers']:.2f} x its fewest workers"
            )
        if {"fastdecode", _BASELINE} <= jobs.keys():
            reached = "reached" if jobs["fastdecode"]["to_ray"] >= _AIM else "MISSED"
            print(f"{workers} workers: aim of {_AIM} x {reached}")


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("--images", type=int, default=20_000)
    parser.add_argument("--size", type=int, default=224)
    parser.add_argument("--workers", default="1,2")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", default=",".join(JOBS))
    parser.add_argument("--json", type=Path, metavar="FILE")
    options = parser.parse_args()
    options.workers = sorted({int(count) for count in options.workers.split(",")})
    options.only = options.only.split(",")
    return options


def main() -> None:
    options = arguments()
    photos = photos_in(options.folder)
    result = summary(measure(photos, options))
    show(result)
    if options.json:
        settings = {
            "photos": options.folder.resolve().name,
            "different_photos": len(photos),
            "bytes_per_photo": sum(path.stat().st_size for path in photos) // len(photos),
            "images": options.images,
            "size": options.size,
            "rounds": options.rounds,
            "cores_per_worker": 1,
            "ray": ray.__version__,
        }
        print(record(str(options.json.resolve().with_suffix("")), result, **settings))


if __name__ == "__main__":
    main()
