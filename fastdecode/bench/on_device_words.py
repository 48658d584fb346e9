"""What was measured on a device, in words and in tables."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from fastdecode.bench.on_device import CPU, OnDevice, by_batch
from fastdecode.bench.tables import Column, Table
from fastdecode.bench.words import count, half_range, number, percent

if TYPE_CHECKING:
    from fastdecode.bench.on_device import Device
    from fastdecode.bench.result import Result

__all__ = [
    "COLUMNS",
    "MORE",
    "Figure",
    "answer",
    "facts",
    "legend",
    "missing",
    "section",
    "table",
    "title",
]

_NONE = "-"
_NEAR = 0.05  # of the CPU's speed: closer than what repeated runs differ by
_SPARES = 0.5  # of the CPU's processor time: less than that is worth a word
_BACKEND = 16  # characters of a backend's name; those of other packages may have more


class Figure(NamedTuple):
    """One column.

    Attributes
    ----------
    title : str
    text : callable
        Takes an `OnDevice` and gives the cell.
    meaning : str
    """

    title: str
    text: Callable[[OnDevice], str]
    meaning: str


def _ratio(one: OnDevice) -> str:
    if not one.ratio.median:
        return _NONE
    return f"{one.ratio.median:.2f} ±{(one.ratio.high - one.ratio.low) / 2:.2f}"


def _psnr(one: OnDevice) -> str:
    return f"{one.psnr:.1f}" if one.psnr is not None else "same"


def _optional(value: float | None) -> str:
    return number(value) if value is not None else _NONE


COLUMNS = (
    Figure(
        "backend",
        lambda one: one.backend,
        "cpu stands for all cores decoding, and a copy of the pixels",
    ),
    Figure(
        "images/s",
        lambda one: number(one.images_per_s.median),
        "until the batch is on the device, median over the rounds",
    ),
    Figure("±", lambda one: percent(half_range(one.images_per_s)), "half of its quartiles' gap"),
    Figure(
        "vs CPU",
        _ratio,
        "speed over that of the CPU path with all cores, paired within rounds",
    ),
    Figure(
        "GPU ms/1000",
        lambda one: _optional(one.gpu_ms_per_1000),
        "milliseconds in which the GPU ran kernels or copies for 1000 images; its JPEG engine is "
        "not seen",
    ),
    Figure(
        "CPU s/1000",
        lambda one: number(one.cpu_s_per_1000),
        "processor seconds for 1000 images, user and system, all cores added up",
    ),
    Figure(
        "on CPU",
        lambda one: percent(one.on_cpu) if one.on_cpu else _NONE,
        "share of the images that the CPU path decoded after all",
    ),
    Figure(
        "PSNR dB",
        _psnr,
        "of the image that differs most from the CPU path's",
    ),
)
"""What stands in a line of 80 characters."""

MORE = (
    Figure(
        "stream ms/1000",
        lambda one: _optional(one.stream_ms_per_1000),
        "milliseconds between events on the stream before and after 1000 images, waiting included",
    ),
)
"""What only the page has room for."""


def facts(result: Result) -> dict[str, str]:
    """Say what the device is, and which libraries decode there."""
    here = result.device
    if here is None:
        return {}
    driver = f", driver {here.driver}" if here.driver else ""
    runtime = f", CUDA {here.runtime}" if here.runtime else ""
    return {
        "Device": f"{here.device}: {here.name}{driver}{runtime}, PyTorch {here.torch}",
        **{f"{name} (batches)": text for name, text in here.versions.items() if text},
    }


def title(result: Result) -> str:
    """Say onto what, and in what form, pictures were brought."""
    first = result.on_device[0]
    where = result.device.device if result.device else "the device"
    size = f", resized to {first.size} px there" if first.size else ""
    return f"{first.format.upper()} onto {where}{size}"


def section(own: list[OnDevice]) -> str:
    """Say what is the same for all rows of a section."""
    return f"batches of {own[0].batch}, {count(own[0].files, 'file')}"


def table(result: Result) -> Table:
    """Make the table: a section for each size of batch, the fastest first.

    Parameters
    ----------
    result : Result
        With something `on_device`.
    """
    columns = [
        Column(figure.title, bool(place), 0 if place else _BACKEND)
        for place, figure in enumerate(COLUMNS)
    ]
    drawn = Table(title(result), columns)
    for own in by_batch(result.on_device):
        rows = [tuple(figure.text(one) for figure in COLUMNS) for one in own]
        drawn.sections.append((section(own), rows))
    return drawn


def legend() -> list[str]:
    """Explain the columns whose titles do not speak for themselves."""
    wanted = ("backend", "vs CPU", "GPU ms/1000", "CPU s/1000", "on CPU", "PSNR dB")
    return [f"{one.title}: {one.meaning}." for one in COLUMNS if one.title in wanted]


def missing(device: Device) -> list[str]:
    """Say of each backend that was not measured why, and how it is installed."""
    return [f"Not measured: {name}: {why}" for name, why in device.missing.items()]


def answer(result: Result) -> list[str]:
    """Say in one sentence whether decoding on the device pays, or feeding it from the CPU.

    Parameters
    ----------
    result : Result

    Returns
    -------
    list of str
        Empty if nothing was measured on a device.
    """
    if result.device is None or not result.on_device:
        return []
    where, kind = result.device.device, result.on_device[0].format.upper()
    most = max(one.batch for one in result.on_device)
    own = [one for one in result.on_device if one.batch == most]
    cpu = next((one for one in own if one.backend == CPU), None)
    others = [one for one in own if one.backend != CPU]
    if cpu is None or not others:
        name = "the CPU path" if cpu else own[0].backend
        speed = number(own[0].images_per_s.median)
        return [f"Onto {where} only {name} could be measured: {speed} {kind} images/s."]
    best = max(others, key=lambda one: one.ratio.median)
    cores = count(result.machine.cores, "core")
    said = (
        f"Onto {where}, {best.backend} brings {number(best.images_per_s.median)} {kind} images/s "
        f"in batches of {most}, {best.ratio.median:.2f} times what the CPU brings with "
        f"{'all its ' if result.machine.cores > 1 else 'its '}{cores} "
        f"({number(cpu.images_per_s.median)}), for {percent(_cost(best, cpu))} of the processor "
        f"time: {_verdict(best, cpu)}."
    )
    return [said]


def _cost(best: OnDevice, cpu: OnDevice) -> float:
    return best.cpu_s_per_1000 / cpu.cpu_s_per_1000 if cpu.cpu_s_per_1000 else 0.0


def _verdict(best: OnDevice, cpu: OnDevice) -> str:
    """Say which pays; a decoder that is slower still spares the processor."""
    if best.on_cpu > _SPARES:
        return f"it left {percent(best.on_cpu)} of them to the CPU, so that this says little of it"
    ratio, spares = best.ratio.median, _cost(best, cpu) < _SPARES
    if ratio > 1 + _NEAR:
        return "decoding with it pays"
    if ratio >= 1 - _NEAR:
        how = "decoding with it spares the CPU" if spares else "it does not matter which decodes"
        return f"as fast, {how}"
    if spares:
        return "decoding on the CPU is faster, and pays where its cores have nothing else to do"
    return "decoding on the CPU pays"
