"""The figures of docs/stores.md."""

from __future__ import annotations

from collections.abc import Mapping

from readme_figures import load, table, where

_TITLES = {
    "train, warm": "train, warm",
    "train, cold": "train, cold",
    "shuffled, warm": "read shuffled, warm",
    "shuffled, cold": "read shuffled, cold",
    "in order, cold": "read in order, cold",
    "stream, cold": "stream, cold",
}

_ON_RAY = {
    "px500": "ray_scaling",
    "hd1080": "ray_scaling_hd1080",
    "mp12plus": "ray_scaling_mp12plus",
}
_BILLION, _CORES, _NODES = 10**9, 1000, 32
_PREFIX = 5500  # GET/s, as Amazon says


def store_figures() -> str:
    """Draw what each kind of store gives, beside a folder of files."""
    content = load("stores")
    result, settings = content["result"], content["settings"]
    kinds = list(result["train, warm"])
    rows = []
    for kind in kinds:
        cells = []
        for name in _TITLES:
            one = result[name].get(kind)
            cells.append(f"{one['images_per_s']:.0f} ({one['to_folder']:.2f})" if one else "")
        rows.append([kind, *cells, f"{result['open, cold'][kind]['seconds']:.3f}"])
    head = ["images/s (times folder)", *_TITLES.values(), "opening, cold, s"]
    megabytes = settings["bytes"] / 1e6
    return (
        f"{table(head, rows)}\n\n"
        f"{settings['images']} photos of 500 x 375 pixels, {megabytes:.0f} MB, "
        f"{settings['threads']} threads, medians of {settings['rounds']} rounds, all in turn in "
        f"one run. Measured {where(content)} by `bench/stores.py`."
    )


def ray_figures() -> str:
    """Draw what Ray makes by `fastdecode.ray`, and by its own reader."""
    content = load("ray_scaling")
    result, settings = content["result"], content["settings"]
    size, rounds = settings["size"], settings["rounds"]
    titles = {
        "fastdecode": f"`fastdecode.ray.read_images(folder, size={size})`",
        "ray": f'`ray.data.read_images(folder, size=({size}, {size}), mode="RGB", ...)`',
    }
    rows = [
        [f"{title}, rows/s", *(f"{lanes[job]['rows_per_s']:.0f}" for lanes in result.values())]
        for job, title in titles.items()
    ]
    own = [lanes["fastdecode"] for lanes in result.values()]
    spans = (f"{min(one['to_ray_rounds']):.2f} to {max(one['to_ray_rounds']):.2f}" for one in own)
    rows += [
        ["times as many rows, median of the rounds", *(f"{one['to_ray']:.2f}" for one in own)],
        ["... lowest and highest round", *spans],
        ["CPU-s for 1000 images, `fastdecode`", *(f"{one['cpu_s_per_1000']:.2f}" for one in own)],
        ["times less CPU time, median", *(f"{one['cpu_to_ray']:.2f}" for one in own)],
    ]
    head = ["", *(f"{count} worker{'s' * (count != '1')}" for count in result)]
    return (
        f"{table(head, rows)}\n\n"
        f"{settings['images']} photos of 500 x 375 pixels, {settings['different_photos']} of them "
        f"different; {rounds} round{'s' * (rounds != 1)}, in turn, the order drawn anew in each. "
        f"Ray {settings['ray']}. The machine's load was {content['machine']['load']:.0f}, most of "
        "it other work: the ratios, which are those within a round, say more than the rows. "
        f"Measured {where(content)} by `bench/ray_scaling.py`."
    )


def request_figures() -> str:
    """Draw how many requests each reader sends to an object store."""
    content = load("s3_requests")
    settings = content["settings"]
    rows = [
        [name, _requests(found["opening"]), _requests(found["reading"])]
        for name, found in content["result"].items()
    ]
    shards = -(-settings["images"] // settings["images_per_shard"])
    return (
        f"{table(['', 'to open', 'to read all'], rows)}\n\n"
        f"{settings['images']} images of {settings['bytes_per_image'] // 1000} kB on average, as "
        f"files and in {shards} tar shards with indexes, found by a pattern; Loader shuffled, Ray "
        f"in tasks of {settings['images_per_task']} images by two processes. Counted by a server "
        f"of S3's interface on the same machine, {content['measured']}, by `bench/s3_requests.py`."
    )


def _requests(found: Mapping[str, int]) -> str:
    return ", ".join(f"{count} {kind}" for kind, count in found.items()) or "none"


def billion_figures() -> str:
    """Draw what a pass over a billion images costs on Ray, from the processor time measured."""
    rows = []
    for photos, name in _ON_RAY.items():
        content = load(name)
        cost = content["result"]["1"]["fastdecode"]["cpu_s_per_1000"]
        size = content["settings"]["bytes_per_photo"]
        seconds = _BILLION * cost / 1000 / _CORES
        rows.append(
            [
                photos,
                f"{cost:.2f}",
                f"{_BILLION * size / 1e12:.0f} TB",
                f"{_BILLION * cost / 1000 / 3600:.0f}",
                f"{seconds / 3600:.1f} hours",
                f"{_BILLION / seconds / 1000:.0f} thousand/s",
                f"{_BILLION * size / seconds / 1e9:.0f} GB/s",
            ]
        )
    head = [
        "photos",
        "CPU-s for 1000",
        "all files",
        "core-hours",
        f"{_CORES} cores take",
        "images",
        "they read",
    ]
    content = load(_ON_RAY["px500"])
    cost = content["result"]["1"]["fastdecode"]["cpu_s_per_1000"]
    seconds = _BILLION * cost / 1000 / _CORES
    bits = 8 * _BILLION * content["settings"]["bytes_per_photo"] / seconds
    names = ", ".join(f"`{name}.json`" for name in _ON_RAY.values())
    machines = [load(name)["machine"] for name in _ON_RAY.values()]
    least, most = (of(machine["load"] for machine in machines) for of in (min, max))
    return (
        f"{table(head, rows)}\n\n"
        "CPU-s for 1000: of all processes of a cluster of one worker, the driver's among them, "
        f"decoding and resizing to 224 x 224 ({names} in `bench/results`; {machines[0]['cpu']}, "
        f"with a load of {least:.0f} to {most:.0f}, which makes every figure larger). Core-hours "
        "are 10^9 · CPU-s / 1000 / 3600."
        f"\n\nFor px500, {_NODES} nodes read {bits / _NODES / 1e9:.1f} Gbit/s each; as files, "
        f"these are {_BILLION / seconds:.0f} GET/s, or {_BILLION / seconds / _PREFIX:.0f} "
        f"prefixes of S3; and a task of 100 000 images is {100 * cost / 60:.1f} minutes of a core."
    )
