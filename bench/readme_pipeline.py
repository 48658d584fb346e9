"""The figures of docs/pytorch.md, and of the README's section on PyTorch."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from readme_figures import load, table, where

_COLLECTIONS = {
    "px500": "500 x 375",
    "hd1080": "1920 x 1080",
    "mp12plus": "12 megapixels",
}
_TITLES = {
    "loader": "this `ImageFolder` and `Loader`",
    "loader-exact": 'the same, `quality="exact"`',
    "loader-without-core": "`Loader` without the native core",
    "imagefolder": "this `ImageFolder`, PyTorch's DataLoader",
    "pillow": "Pillow, PyTorch's DataLoader",
    "torchvision-v1": "torchvision v1 (Pillow), DataLoader",
    "torchvision-v2": "torchvision v2 (tensors), DataLoader",
    "dali": "DALI on the CPU",
}
_KINDS = ("train", "eval")
_WORKERS = {1: "pipeline_px500_1", 2: "pipeline_px500", 4: "pipeline_px500_4"}


def pipeline_figures() -> str:
    """Draw images/s of each pipeline, by collection."""
    runs = {name: load(f"pipeline_{name}") for name in _COLLECTIONS}
    head = ["images/s (times Pillow)"]
    head += [f"{what}, {kind}" for what in _COLLECTIONS.values() for kind in _KINDS]
    rows = []
    for name, title in _TITLES.items():
        cells = [_speed(run["result"][kind], name) for run in runs.values() for kind in _KINDS]
        if any(cells):
            rows.append([title, *cells])
    any_run = runs["px500"]
    settings = any_run["settings"]
    epochs = sorted({str(run["settings"]["epochs"]) for run in runs.values()})
    return (
        f"{table(head, rows)}\n\n"
        f"The best of {' or '.join(epochs)} epochs, batches of {settings['batch']}, "
        f"{settings['workers']} threads or workers on {any_run['machine']['cores']} cores, from "
        "files in the system's cache to normalised float32 tensors of 224 x 224. All pipelines "
        f"take turns in one run. {_to_dali(runs['px500'])} {_torchvision()} "
        f"Measured {where(any_run)}, {_versions(settings['libraries'])} by `bench/pipeline.py`."
    )


def _to_dali(run: dict[str, Any]) -> str:
    """Tell how many times the batches of DALI the Loader makes."""
    found = [run["result"][kind]["pipelines"] for kind in _KINDS]
    ratios = [
        f"{one['loader']['best_images_per_s'] / one['dali']['best_images_per_s']:.2f}"
        for one in found
    ]
    return (
        f"On the 500 x 375 photos `Loader` makes {' and '.join(ratios)} times the batches of DALI "
        f"({' and '.join(_KINDS)})."
    )


def _torchvision() -> str:
    """Tell of the run that had torchvision, which comes with a PyTorch of its own."""
    content = load("pipeline_torchvision")
    found = [content["result"][kind]["pipelines"] for kind in _KINDS]
    ratios = {
        name: " and ".join(f"{one[name]['to_pillow']:.2f}" for one in found)
        for name in ("torchvision-v1", "torchvision-v2", "loader")
    }
    return (
        f"In a run with torchvision {content['settings']['libraries']['torchvision']} on the "
        f"500 x 375 photos, its v1 transforms made {ratios['torchvision-v1']} times the batches of "
        f"Pillow (train and eval), v2 {ratios['torchvision-v2']}, and this `Loader` "
        f"{ratios['loader']}."
    )


def _speed(found: dict[str, Any], name: str) -> str:
    one = found["pipelines"].get(name)
    return "" if one is None else f"{one['best_images_per_s']:.0f} ({one['to_pillow']:.2f})"


def _versions(libraries: dict[str, str]) -> str:
    return ", ".join(f"{name} {version}" for name, version in libraries.items())


def cost_figures() -> str:
    """Draw processor time, memory and pixels of each pipeline."""
    found = load("pipeline_px500")["result"]
    rows = []
    for name, title in _TITLES.items():
        one, seen = (found[kind]["pipelines"].get(name) for kind in _KINDS)
        if one and seen:
            rows.append(
                [
                    title,
                    f"{one['cpu_s_per_1000']:.1f}",
                    f"{seen['cpu_s_per_1000']:.1f}",
                    f"{one['peak_pss_mb']}",
                    f"{seen['difference']:.3f}",
                ]
            )
    run = load("pipeline_20_epochs")["result"]["train"]["pipelines"]["loader"]
    peaks = run["peak_rss_mb"]
    head = ["500 x 375", "CPU s/1000, train", "CPU s/1000, eval", "memory, MB", "difference, eval"]
    return (
        f"{table(head, rows)}\n\n"
        "Memory is that of the process and its workers, pages that they share counted once. The "
        "difference is the mean from torchvision v2's pixels, in levels of 255; DALI rounds sides "
        "and margins in another way, so most of its difference is a shift of up to a pixel. Over "
        f"{len(peaks)} epochs of training `Loader` had {min(peaks)} to {max(peaks)} MB resident."
    )


def worker_figures() -> str:
    """Draw images/s by the number of threads or workers."""
    runs = {count: load(name) for count, name in _WORKERS.items()}
    names = [name for name in _TITLES if name in runs[1]["result"]["train"]["pipelines"]]
    rows = []
    for name in names:
        found = [run["result"]["train"]["pipelines"][name] for run in runs.values()]
        speeds = [f"{one['best_images_per_s']:.0f}" for one in found]
        rows.append([_TITLES[name], *speeds, *(f"{one['peak_pss_mb']}" for one in found)])
    head = ["500 x 375, train", *(f"{count}: images/s" for count in runs)]
    head += [f"{count}: MB" for count in runs]
    return f"{table(head, rows)}\n\nMeasured {where(runs[1])}, by `bench/pipeline.py --workers`."


def quality_figures() -> str:
    """Draw how near the transforms come to torchvision's pixels."""
    content = load("quality")
    rows = []
    for kind in _KINDS:
        found = content["result"][kind]["all"]
        exact, default = found["exact"], found["default"]
        rows.append(
            [
                kind,
                f"{exact['largest_difference']}",
                f"{default['mean_db']:.1f} dB",
                f"{default['mean_db_reduced']:.1f} dB ({default['reduced']} of {found['results']})",
                f"{default['worst_db']:.1f} dB, {Path(default['worst_photo']).name}",
            ]
        )
    head = [
        "",
        'largest difference, `quality="exact"`',
        "default: mean of all",
        "mean of those that were reduced",
        "worst",
    ]
    return (
        f"{table(head, rows)}\n\n"
        "Against torchvision v2 on uint8 tensors, over "
        f"{content['result']['eval']['all']['results']} photos; each counts for at most "
        f"{content['settings']['at_most_db']:.0f} dB. By `bench/quality.py`."
    )
