"""The tables that `gpu.py` prints: of 80 columns."""

from __future__ import annotations

from typing import Any

_WIDTH = 80
_MB = 1e6
_WAYS = {"full": "whole pictures", "sized": "224 x 224"}


def training_table(part: dict[str, Any]) -> str:
    """Draw what each feed made of the training step."""
    settings = part["settings"]
    head = (
        f"training, batches of {settings['batch']}, {settings['steps']} steps, "
        f"{settings['workers']} threads or workers; times for an image"
    )
    cells = ("images/s", "of random", "step ms", "waiting ms", "CPU ms")
    lines = [head, _line("", *cells)]
    lines += [
        _line(
            name,
            f"{one['images_per_s']:.0f}",
            _figure(one["to_random"]),
            *(f"{one[key]:.3f}" for key in ("kernels_ms", "waiting_ms", "cpu_ms")),
        )
        for name, one in part["feeds"].items()
    ]
    return "\n".join([*lines, *_left_out(part)])


def memory_table(part: dict[str, Any]) -> str:
    """Draw what was taken after the first and after the last epoch."""
    settings = part["settings"]
    lines = [f"memory, {settings['epochs']} epochs of {settings['steps']} steps; MB"]
    lines.append(_line("", "epochs", "first", "last", "most"))
    for name, kinds in part["feeds"].items():
        for what, sizes in kinds.items():
            figures = (sizes["first"], sizes["last"], max(sizes["all"]))
            cells = (f"{figure / _MB:.1f}" for figure in figures)
            lines.append(_line(f"{name}, {what}", str(len(sizes["all"])), *cells))
    return "\n".join([*lines, *_left_out(part)])


def decode_table(part: dict[str, Any]) -> str:
    """Draw how fast each lane was, and how near its pixels came."""
    settings = part["settings"]
    lines = [f"decoding {settings['photos']}, batches of {settings['batch']}; times for an image"]
    heads = ("images/s", "to CPU", "arrays", "ready ms", "busy ms", "CPU ms")
    for kind, title in _WAYS.items():
        lines.append(_line(title, *heads, width=9))
        for name, one in part[kind].items():
            ratios = (_figure(one[key]) for key in ("to_cpu", "to_arrays"))
            times = (_figure(one.get(key)) for key in ("device_ms", "busy_ms", "cpu_ms"))
            lines.append(_line(name, f"{one['images_per_s']:.0f}", *ratios, *times, width=9))
    lines.append(_line("middle half", "images/s", "to whole", "CPU ms", "refused"))
    lines += [
        _line(
            name,
            f"{one['images_per_s']:.0f}",
            *(_figure(one[key]) for key in ("to_whole", "cpu_ms")),
            str(one["refused"]),
        )
        for name, one in part["middle"].items()
    ]
    lines.append(_line("pixels", "mean dB", "least dB", "most", "identical", "by the CPU"))
    lines += [
        _line(
            name,
            f"{one['mean_db']:.2f}",
            f"{one['least_db']:.2f}",
            *(str(one[key]) for key in ("largest_difference", "identical")),
            str(one["not_declared"] + one["refused"]),
        )
        for name, one in part["pixels"].items()
    ]
    return "\n".join([*lines, *_left_out(part)])


def _line(first: str, *cells: str, width: int = 11) -> str:
    return (f"{first:<25}" + "".join(f"{cell:>{width}}" for cell in cells)).rstrip()


def _figure(value: float | None) -> str:
    return "" if value is None else f"{value:.3f}"


def _left_out(part: dict[str, Any]) -> list[str]:
    return [*(f"{name}: {why}"[:_WIDTH] for name, why in part["left_out"].items()), ""]
