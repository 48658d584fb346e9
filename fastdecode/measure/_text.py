"""How figures and names are said, and the columns of tables, in the terminal and on the page."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, NamedTuple

from fastdecode.measure.result import AUTOMATIC
from fastdecode.terminal import count

if TYPE_CHECKING:
    from fastdecode.measure.result import (
        Backend,
        Collection,
        Device,
        Machine,
        Measurement,
        Result,
        Spread,
    )
    from fastdecode.ranking import Identity

_PROTOCOLS = {
    "decode": "from memory, one thread",
    "train": "training batches",
    "threads": "from memory, a pool of threads",
    "loader": "PyTorch DataLoader",
    "file": "read and decoded, one thread",
}

_PIPELINES = {
    "loader": "fastdecode Loader",
    "dataset": "fastdecode + DataLoader",
    "pillow": "Pillow + DataLoader",
    "torchvision": "torchvision + DataLoader",
    "dali": "DALI",
}

_NONE = "-"


def number(value: float) -> str:
    """Write three significant digits, or all those before the point; at most three after it."""
    limits = ((99.95, 0), (9.995, 1), (0.0995, 2))
    decimals = next((places for limit, places in limits if value >= limit), 3 if value else 0)
    return f"{value:,.{decimals}f}"


def percent(share: float) -> str:
    """Write a share of 1 in whole percent; a little is not called nothing."""
    return "<1%" if 0 < share < 0.005 else f"{share:.0%}"


def half_range(spread: Spread) -> float:
    """Return half the distance between the quartiles, as a share of the median."""
    return (spread.high - spread.low) / 2 / spread.median if spread.median else 0.0


def size(reduce: int) -> str:
    """Name what a reduction leaves."""
    return "full size" if reduce == 1 else f"1/{reduce} size"


def series(names: list[str]) -> str:
    """Join names as one speaks: ``a, b and c``."""
    return " and ".join([", ".join(names[:-1]), names[-1]]) if len(names) > 1 else "".join(names)


def pipeline(name: str) -> str:
    """Name a pipeline by what it consists of."""
    return _PIPELINES.get(name, name)


def backend(one: Measurement) -> str:
    """Name a backend, or a pipeline by what it consists of."""
    return pipeline(one.backend) if one.protocol == "train" else one.backend


def protocol(one: Measurement) -> str:
    """Say what was timed, apart from the format, the reduction and the counts."""
    words = _PROTOCOLS[one.protocol]
    if one.protocol == "train":
        words += f": random crops of {one.size} px, flipped and normalised"
    elif one.size:
        words += f", resized to {one.size} px and normalised"
    elif one.output != "array":
        words += f", as {'a PIL image' if one.output == 'pil' else 'a tensor'}"
    return words


def setting(one: Measurement) -> str:
    """Say which reduction it was, and how many threads or workers, or images of a batch."""
    if one.protocol == "device":
        return f"batches of {one.batch}"
    if one.protocol == "train":
        workers = "worker" if one.workers == 1 else "workers"
        return f"batches of {one.batch}, {count(one.threads, 'thread')} or {workers}"
    counts = {"threads": count(one.threads, "thread"), "loader": count(one.workers, "worker")}
    return ", ".join(word for word in (size(one.reduce), counts.get(one.protocol, "")) if word)


def pixels(one: Measurement) -> str:
    """Say whether the pixels are those of the reference."""
    if one.differing:
        return f"{len(one.differing)} differ"
    if one.averaged:
        return "averaged" if one.averaged >= one.files else f"{one.averaged} averaged"
    return "agree" if one.images_per_s.median else "-"


def measured_files(result: Collection) -> str:
    """Say how many files were looked at, and which were left aside."""
    formats = ", ".join(f"{amount:,} {name.upper()}" for name, amount in result.formats.items())
    text = f"{count(result.images, 'image')} ({formats}), " if formats else "no images, "
    text += f"{number(result.bytes / 1e6)} MB, {number(result.pixels / 1e6)} megapixels"
    if result.left_out:
        text += f"; {count(result.left_out, 'file')} left out by --limit"
    return text


def machine_line(here: Machine) -> str:
    """Say on what was measured, but for the libraries."""
    cores = count(here.cores, "core")
    return f"{here.cpu}, {cores} usable, {here.system}, {here.python}, NumPy {here.numpy}"


def backend_versions(found: tuple[Backend, ...]) -> Mapping[str, str]:
    """Say of each library which version it is, and what it is linked to."""
    return {one.name: f"{one.version} ({one.codec})" if one.codec else one.version for one in found}


def began(result: Result) -> str:
    """Say when a run began, to the minute."""
    return f"{result.measured[:16].replace('T', ' ')} UTC"


def visible(text: str) -> str:
    """Write text of others so that no character of it can upset a terminal or a page."""
    return "".join(letter if letter.isprintable() else "?" for letter in text)


class Figure(NamedTuple):
    """One column."""

    title: str
    text: Callable[[Measurement], str]  # gives the cell
    meaning: str  # for a reader who sees it for the first time
    right: bool = True  # a number, aligned to the right
    told: bool = False  # explained below a table, because the title does not speak for itself


def _timed(text: Callable[[Measurement], str]) -> Callable[[Measurement], str]:
    """Leave the cell empty of figures where only the pixels were checked."""
    return lambda one: text(one) if one.images_per_s.median else _NONE


def _latency(percentile: int) -> Callable[[Measurement], str]:
    return lambda one: number(one.latency_ms[percentile]) if one.latency_ms else _NONE


def _ratio(one: Measurement) -> str:
    return f"{one.ratio.median:.2f} ±{(one.ratio.high - one.ratio.low) / 2:.2f}"


_BACKEND = Figure("backend", backend, "decode() is the automatic choice", False)

VS_BEST = Figure(
    "vs best",
    _timed(_ratio),
    "speed over that of the fastest backend with right pixels, paired within blocks",
    told=True,
)
VS_PILLOW = Figure(
    "vs Pillow",
    lambda one: _ratio(one) if one.ratio.median else _NONE,
    "speed over Pillow's: the median of the ratios within blocks, not the ratio of two medians",
    told=True,
)
SPEED = (
    _BACKEND,
    Figure(
        "images/s", _timed(lambda one: number(one.images_per_s.median)), "median over the blocks"
    ),
    Figure(
        "±",
        _timed(lambda one: percent(half_range(one.images_per_s))),
        "half the distance between its quartiles",
        told=True,
    ),
    VS_BEST,
    Figure("p50 ms", _latency(50), "half of the images took no longer"),
    Figure("p95 ms", _latency(95), "95 of 100 took no longer", told=True),
    Figure("p99 ms", _latency(99), "99 of 100 took no longer"),
    Figure("pixels", pixels, "whether they are those of the reference decoder", False),
)
"""How fast."""

_CPU = Figure(
    "CPU s/1000",
    lambda one: number(one.cpu_s_per_1000) if one.cpu_s_per_1000 else _NONE,
    "processor seconds for 1000 images, all cores added up",
    told=True,
)
COST = (
    _BACKEND,
    Figure(
        "MB/s", _timed(lambda one: number(one.mb_per_s)), "encoded bytes, in millions, a second"
    ),
    Figure(
        "MP/s",
        _timed(lambda one: number(one.megapixels_per_s)),
        "pixels of the full-size images, in millions, a second",
        told=True,
    ),
    _CPU,
    Figure(
        "peak MB",
        lambda one: f"{one.peak_mb:,.0f}" if one.peak_mb else _NONE,
        "memory of the process at its highest, libraries and workers included",
    ),
    Figure("refused", lambda one: str(len(one.refused) or _NONE), "files it did not decode"),
    Figure(
        "fallbacks",
        lambda one: str(one.fallbacks or _NONE) if one.backend == AUTOMATIC else "",
        "files that decode() got from another backend than the first",
        told=True,
    ),
    Figure(
        "max diff",
        lambda one: str(one.max_difference) if pixels(one) != _NONE else _NONE,
        "largest difference of a sample from the reference, of 255",
        told=True,
    ),
)
"""At what cost."""

BRIEF = (*SPEED[:3], _CPU, SPEED[-1])
"""In the one table of a short run."""

READING = Figure(
    "reading",
    _timed(lambda one: percent(one.read_share)),
    "part of the time that reading took",
    told=True,
)
"""In the protocol that reads files."""


def costs(protocol: str) -> tuple[Figure, ...]:
    """Return the columns about cost: where files are read, that share instead of `max diff`.

    What the pixels are does not depend on where the bytes come from, and a line has 80 characters.
    """
    return (*COST[:-1], READING) if protocol == "file" else COST


def _psnr(one: Measurement) -> str:
    return f"{one.psnr:.1f}" if one.psnr is not None else "same"


def _optional(value: float | None) -> str:
    return number(value) if value is not None else _NONE


DEVICE_COLUMNS = (
    Figure(
        "backend",
        lambda one: one.backend,
        "cpu stands for all cores decoding, and a copy of the pixels",
        right=False,
        told=True,
    ),
    Figure(
        "images/s",
        lambda one: number(one.images_per_s.median),
        "until the batch is on the device, median over the rounds",
    ),
    Figure(
        "±",
        lambda one: percent(half_range(one.images_per_s)),
        "half the distance between its quartiles",
    ),
    Figure(
        "vs CPU",
        lambda one: _ratio(one) if one.ratio.median else _NONE,
        "speed over that of the CPU path with all cores, paired within rounds",
        told=True,
    ),
    Figure(
        "GPU ms/1000",
        lambda one: _optional(one.gpu_ms_per_1000),
        "milliseconds in which the GPU ran kernels or copies for 1000 images; its JPEG engine is "
        "not seen",
        told=True,
    ),
    Figure(
        "CPU s/1000",
        lambda one: number(one.cpu_s_per_1000),
        "processor seconds for 1000 images, user and system, all cores added up",
        told=True,
    ),
    Figure(
        "on CPU",
        lambda one: percent(one.on_cpu) if one.on_cpu else _NONE,
        "share of the images that the CPU path decoded after all",
        told=True,
    ),
    Figure("PSNR dB", _psnr, "of the image that differs most from the CPU path's", told=True),
)
"""What stands in a line of 80 characters."""

DEVICE_MORE = (
    Figure(
        "stream ms/1000",
        lambda one: _optional(one.stream_ms_per_1000),
        "milliseconds between events on the stream before and after 1000 images, waiting included",
    ),
)
"""What only the page has room for."""


def device_model(here: Device | Identity) -> str:
    """Name a device's model, with the versions of its driver and of CUDA, if it has them."""
    driver = f", driver {here.driver}" if here.driver else ""
    runtime = f", CUDA {here.runtime}" if here.runtime else ""
    return f"{here.name}{driver}{runtime}"


def device_facts(result: Result) -> dict[str, str]:
    """Say what the device is, and which libraries decode there."""
    here = result.device
    if here is None:
        return {}
    return {
        "Device": f"{here.device}: {device_model(here)}, PyTorch {here.torch}",
        **{f"{name} (batches)": text for name, text in here.versions.items() if text},
    }


def title(one: Measurement, device: Device | None) -> str:
    """Say what is the same for all of a table: the format, and how it was done."""
    if one.protocol != "device":
        return f"{one.format.upper()}, {protocol(one)}"
    size = f", resized to {one.size} px there" if one.size else ""
    return f"{one.format.upper()} onto {device.device if device else 'the device'}{size}"


def legend(figures: Iterable[Figure]) -> list[str]:
    """Explain the columns whose titles do not speak for themselves."""
    return [f"{one.title}: {one.meaning}." for one in figures if one.told]


def device_missing(device: Device) -> list[str]:
    """Say of each backend that was not measured why, and how it is installed."""
    return [f"Not measured: {name}: {why}" for name, why in device.missing.items()]
