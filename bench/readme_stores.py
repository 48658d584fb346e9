"""The figures of docs/stores.md."""

from __future__ import annotations

from readme_figures import load, table, where

_TITLES = {
    "train, warm": "train, warm",
    "train, cold": "train, cold",
    "shuffled, warm": "read shuffled, warm",
    "shuffled, cold": "read shuffled, cold",
    "in order, cold": "read in order, cold",
    "stream, cold": "stream, cold",
}


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
        [title, *(f"{lanes[job]['rows_per_s']:.0f}" for lanes in result.values())]
        for job, title in titles.items()
    ]
    ratios = (f"{lanes['fastdecode']['to_ray']:.2f}" for lanes in result.values())
    rows.append(["ratio, median of the rounds", *ratios])
    head = ["rows/s", *(f"{count} worker{'s' * (count != '1')}" for count in result)]
    return (
        f"{table(head, rows)}\n\n"
        f"{settings['images']} photos of 500 x 375 pixels, {settings['different_photos']} of them "
        f"different; {rounds} round{'s' * (rounds != 1)}, in turn. Ray {settings['ray']}. "
        f"Measured {where(content)} by `bench/ray_scaling.py`."
    )
