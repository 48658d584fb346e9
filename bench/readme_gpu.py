"""The figures of docs/gpu.md: of every machine with a GPU on which `gpu.py` was run."""

from __future__ import annotations

from typing import Any

from readme_figures import RESULTS, load, table

_FEEDS = {
    "random": "random tensors that stay on the GPU",
    "loader-cpu": '`Loader(decode="cpu")`',
    "loader-gpu": '`Loader(decode="gpu")`',
    "pillow": "Pillow, PyTorch's DataLoader",
    "dali": "DALI on the GPU",
}
_COLLECTIONS = {"decode, small": "500 x 375", "decode, large": "12 megapixels"}
_WAYS = {"full": "whole", "sized": "to 224 x 224"}
_NONE = (
    "Nothing has run on a GPU yet: there was none at hand. `bench/gpu.py` does it, and "
    "its figures will stand here."
)
_MB = 1e6


def gpu_figures() -> str:
    """Draw what was measured on each machine; say so if there was none."""
    names = sorted(path.stem for path in RESULTS.glob("gpu_*.json") if path.stem != "gpu_cpu")
    return "\n\n".join(machine_figures(load(name)) for name in names) or _NONE


def machine_figures(content: dict[str, Any]) -> str:
    """Draw what was measured on one machine."""
    result = content["result"]
    parts = [_training(result["training"])] if result.get("training", {}).get("feeds") else []
    if "memory" in result:
        parts.append(_memory(result["memory"]))
    for part, title in _COLLECTIONS.items():
        if result.get(part, {}).get("full"):
            parts.append(_decoding(result[part], title))
    parts.append(_where(content))
    return "\n\n".join(filter(None, parts))


def _where(content: dict[str, Any]) -> str:
    device, machine = content["device"], content["machine"]
    days = sorted({part["measured"] for part in content["result"].values()})
    driver = f", driver {device['driver_version']}" if "driver_version" in device else ""
    libraries = ", ".join(f"{name} {version}" for name, version in content["libraries"].items())
    return (
        f"Measured {' and '.join(days)}, {device['name']}{driver}, {machine['cpu']}, "
        f"{machine['cores']} cores, {machine['system']}, {machine['python']}, {libraries}, by "
        "`bench/gpu.py`."
    )


def _training(part: dict[str, Any]) -> str:
    settings, feeds = part["settings"], part["feeds"]
    rows = []
    for name in sorted(feeds, key=_place):
        one = feeds[name]
        waiting = one["waiting_ms"] / (one["waiting_ms"] + one["kernels_ms"])
        share = "" if one["to_random"] is None else f"{100 * one['to_random']:.1f} %"
        step = f"{one['kernels_ms'] * settings['batch']:.1f}"
        cells = [f"{one['images_per_s']:.0f}", share, step, f"{100 * waiting:.1f} %"]
        rows.append([_FEEDS.get(name, f"`{name}`"), *cells, f"{one['cpu_ms']:.2f}"])
    head = ["fed by", "images/s", "of random", "step, ms", "waiting", "CPU s/1000"]
    return (
        f"{table(head, rows)}\n\n"
        f"Training a ResNet-50: bfloat16, channels last, SGD, batches of {settings['batch']}, "
        f"{settings['workers']} threads or workers; medians of {settings['rounds']} rounds, all in "
        f"turn in one run, over {settings['different_photos']} different photos of 500 x 375 "
        "pixels. Waiting is the share of the time in which the GPU had no step to work on; a "
        "step that takes longer than with random tensors shares the GPU with what makes its data."
    )


def _place(feed: str) -> int:
    order = list(_FEEDS)
    return order.index(feed) if feed in order else len(order)


def _memory(part: dict[str, Any]) -> str:
    words = []
    for name, kinds in part["feeds"].items():
        if "reserved" in kinds:
            reserved, taken = (_first_and_last(kinds[what]) for what in ("reserved", "taken"))
            words.append(f"{reserved} MB with {_FEEDS.get(name, f'`{name}`')} ({taken} MB taken)")
    if not words:
        return ""
    return (
        f"PyTorch had reserved, after the first and the last of {part['settings']['epochs']} short "
        f"epochs, {', '.join(words)}; what is taken includes CUDA itself, the decoders and all "
        "that ran before."
    )


def _first_and_last(sizes: dict[str, Any]) -> str:
    return " and ".join(f"{sizes[when] / _MB:.0f}" for when in ("first", "last"))


def _decoding(part: dict[str, Any], title: str) -> str:
    settings, rows = part["settings"], []
    for name in part["full"]:
        near = part["pixels"].get(name)
        cells = [cell for way in _WAYS for cell in _speed(part[way].get(name))]
        cells.append(f"{near['mean_db']:.1f}, {near['least_db']:.1f} dB" if near else "")
        rows.append([f"`{name}`" if near else name, *cells])
    head = [title]
    for words in _WAYS.values():
        head += [f"{words}: images/s (times the CPU)", "CPU s/1000"]
    head.append("PSNR, mean and least")
    return (
        f"{table(head, rows)}\n\n"
        f"From memory onto the GPU, batches of {settings['batch']}, medians of "
        f"{settings['rounds']} rounds in turn. Times are those of the CPU with all cores, copied; "
        '"arrays" stay in the host\'s memory. To 224 x 224 the CPU lets the JPEG decoder reduce. '
        "PSNR is that of whole pictures to the CPU's, over "
        f"{settings['different_photos']} photos, each at most 60 dB.{_windows(part)}"
    )


def _windows(part: dict[str, Any]) -> str:
    words = [
        f"`{name.partition(',')[0]}` {one['to_whole']:.2f}"
        for name, one in part["middle"].items()
        if name.endswith("window") and one["to_whole"]
    ]
    if not words:
        return ""
    return (
        " The middle half alone, asked for as a window, against whole pictures of which it is cut "
        f"out: {', '.join(words)} times the speed."
    )


def _speed(one: dict[str, Any] | None) -> list[str]:
    if one is None:
        return ["", ""]
    times = "" if one["to_cpu"] is None else f" ({one['to_cpu']:.2f})"
    return [f"{one['images_per_s']:.0f}{times}", f"{one['cpu_ms']:.2f}"]
