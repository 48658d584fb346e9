"""Words, numbers and table columns, for the terminal and the page."""

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
    """Format with three significant digits and a whole integer part; at most three decimals."""
    limits = ((99.95, 0), (9.995, 1), (0.0995, 2))
    decimals = next((places for limit, places in limits if value >= limit), 3 if value else 0)
    return f"{value:,.{decimals}f}"


def percent(share: float) -> str:
    """Format a share of 1 in whole percent; a small share becomes ``<1%``, not ``0%``."""
    return "<1%" if 0 < share < 0.005 else f"{share:.0%}"


def half_range(spread: Spread) -> float:
    """Return half the distance between the quartiles, as a share of the median."""
    return (spread.high - spread.low) / 2 / spread.median if spread.median else 0.0


def size(reduce: int) -> str:
    """Name the size that a reduction results in."""
    return "full size" if reduce == 1 else f"1/{reduce} size"


def series(names: list[str]) -> str:
    """Join names to ``a, b and c``."""
    return " and ".join([", ".join(names[:-1]), names[-1]]) if len(names) > 1 else "".join(names)


def pipeline(name: str) -> str:
    """Return the name of a pipeline for readers."""
    return _PIPELINES.get(name, name)


def backend(one: Measurement) -> str:
    """Return the name of a measurement's backend or pipeline for readers."""
    return pipeline(one.backend) if one.protocol == "train" else one.backend


def protocol(one: Measurement) -> str:
    """Describe what was timed, except the format, the reduction and the counts."""
    words = _PROTOCOLS[one.protocol]
    if one.protocol == "train":
        words += f": random crops of {one.size} px, flipped and normalised"
    elif one.size:
        words += f", resized to {one.size} px and normalised"
    elif one.output != "array":
        words += f", as {'a PIL image' if one.output == 'pil' else 'a tensor'}"
    return words


def setting(one: Measurement) -> str:
    """Describe the reduction and the number of threads or workers, or the batch size."""
    if one.protocol == "device":
        return f"batches of {one.batch}"
    if one.protocol == "train":
        workers = "worker" if one.workers == 1 else "workers"
        return f"batches of {one.batch}, {count(one.threads, 'thread')} or {workers}"
    counts = {"threads": count(one.threads, "thread"), "loader": count(one.workers, "worker")}
    return ", ".join(word for word in (size(one.reduce), counts.get(one.protocol, "")) if word)


def pixels(one: Measurement) -> str:
    """Return in words whether the pixels are those of the reference."""
    if one.differing:
        return f"{len(one.differing)} differ"
    if one.averaged:
        return "averaged" if one.averaged >= one.files else f"{one.averaged} averaged"
    return "agree" if one.images_per_s.median else "-"


def measured_files(result: Collection) -> str:
    """Describe the files: how many were found, their formats and sizes, how many were left out."""
    formats = ", ".join(f"{amount:,} {name.upper()}" for name, amount in result.formats.items())
    text = f"{count(result.images, 'image')} ({formats}), " if formats else "no images, "
    text += f"{number(result.bytes / 1e6)} MB, {number(result.pixels / 1e6)} megapixels"
    if result.left_out:
        text += f"; {count(result.left_out, 'file')} left out by --limit"
    return text


def machine_line(here: Machine) -> str:
    """Describe the machine and Python in one line."""
    cores = count(here.cores, "core")
    return f"{here.cpu}, {cores} usable, {here.system}, {here.python}, NumPy {here.numpy}"


def backend_versions(found: tuple[Backend, ...]) -> Mapping[str, str]:
    """Return the version of each library, and the codec that it is linked to."""
    return {one.name: f"{one.version} ({one.codec})" if one.codec else one.version for one in found}


def began(result: Result) -> str:
    """Return when a run began, to the minute."""
    return f"{result.measured[:16].replace('T', ' ')} UTC"


def visible(text: str) -> str:
    """Replace the characters of a text that could disturb a terminal or a page."""
    return "".join(letter if letter.isprintable() else "?" for letter in text)


class Figure(NamedTuple):
    """One column of a table."""

    title: str
    text: Callable[[Measurement], str]  # returns the text of the cell
    meaning: str  # its explanation
    right: bool = True  # a number, so aligned to the right
    told: bool = False  # explain it below the table, because the title is not clear enough


def _timed(text: Callable[[Measurement], str]) -> Callable[[Measurement], str]:
    """Wrap a column's function to return a dash if only the pixels were checked."""
    return lambda one: text(one) if one.images_per_s.median else _NONE


def _latency(percentile: int) -> Callable[[Measurement], str]:
    return lambda one: number(one.latency_ms[percentile]) if one.latency_ms else _NONE


def _ratio(one: Measurement) -> str:
    return f"{one.ratio.median:.2f} ±{(one.ratio.high - one.ratio.low) / 2:.2f}"


_BACKEND = Figure("backend", backend, "decode() is the automatic choice", False)

VS_BEST = Figure(
    "vs best",
    _timed(_ratio),
    "speed divided by that of the fastest backend with right pixels; median of the ratios "
    "within rounds",
    told=True,
)
VS_PILLOW = Figure(
    "vs Pillow",
    lambda one: _ratio(one) if one.ratio.median else _NONE,
    "speed divided by Pillow's: the median of the ratios within rounds, not the ratio of two "
    "medians",
    told=True,
)
SPEED = (
    _BACKEND,
    Figure(
        "images/s", _timed(lambda one: number(one.images_per_s.median)), "median over the rounds"
    ),
    Figure(
        "±",
        _timed(lambda one: percent(half_range(one.images_per_s))),
        "half the distance between the quartiles of images/s, as a share of the median",
        told=True,
    ),
    VS_BEST,
    Figure("p50 ms", _latency(50), "half of the images took at most this long"),
    Figure("p95 ms", _latency(95), "95 of 100 images took at most this long", told=True),
    Figure("p99 ms", _latency(99), "99 of 100 images took at most this long"),
    Figure("pixels", pixels, "whether the pixels are those of the reference decoder", False),
)
"""The columns about speed."""

_CPU = Figure(
    "CPU s/1000",
    lambda one: number(one.cpu_s_per_1000) if one.cpu_s_per_1000 else _NONE,
    "processor seconds for 1000 images, summed over all cores",
    told=True,
)
COST = (
    _BACKEND,
    Figure(
        "MB/s", _timed(lambda one: number(one.mb_per_s)), "millions of encoded bytes per second"
    ),
    Figure(
        "MP/s",
        _timed(lambda one: number(one.megapixels_per_s)),
        "millions of pixels per second, counted at full size",
        told=True,
    ),
    _CPU,
    Figure(
        "peak MB",
        lambda one: f"{one.peak_mb:,.0f}" if one.peak_mb else _NONE,
        "peak memory of the process, including libraries and workers",
    ),
    Figure(
        "refused",
        lambda one: str(len(one.refused) or _NONE),
        "files that the backend did not decode",
    ),
    Figure(
        "fallbacks",
        lambda one: str(one.fallbacks or _NONE) if one.backend == AUTOMATIC else "",
        "files that decode() decoded with another backend than its first choice",
        told=True,
    ),
    Figure(
        "max diff",
        lambda one: str(one.max_difference) if pixels(one) != _NONE else _NONE,
        "largest difference from the reference in any channel of any pixel, in levels of 255",
        told=True,
    ),
)
"""The columns about cost."""

BRIEF = (*SPEED[:3], _CPU, SPEED[-1])
"""The columns in the one table of a short run."""

READING = Figure(
    "reading",
    _timed(lambda one: percent(one.read_share)),
    "share of the time that reading took",
    told=True,
)
"""A further column for the protocol that reads files."""


def costs(protocol: str) -> tuple[Figure, ...]:
    """Return the columns about cost. If files are read, `reading` replaces `max diff`.

    A line has only 80 characters, and reading files does not change the pixels.
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
        "cpu means that all cores decode, and the pixels are copied to the device",
        right=False,
        told=True,
    ),
    Figure(
        "images/s",
        lambda one: number(one.images_per_s.median),
        "images per second until the batch is on the device; median over the rounds",
    ),
    Figure(
        "±",
        lambda one: percent(half_range(one.images_per_s)),
        "half the distance between the quartiles of images/s, as a share of the median",
    ),
    Figure(
        "vs CPU",
        lambda one: _ratio(one) if one.ratio.median else _NONE,
        "speed divided by that of the CPU path with all cores; median of the ratios within rounds",
        told=True,
    ),
    Figure(
        "GPU ms/1000",
        lambda one: _optional(one.gpu_ms_per_1000),
        "milliseconds in which the GPU ran kernels or copies for 1000 images, without its "
        "JPEG engine",
        told=True,
    ),
    Figure(
        "CPU s/1000",
        lambda one: number(one.cpu_s_per_1000),
        "processor seconds for 1000 images, user and system, summed over all cores",
        told=True,
    ),
    Figure(
        "on CPU",
        lambda one: percent(one.on_cpu) if one.on_cpu else _NONE,
        "share of the images that the CPU decoded instead of the backend",
        told=True,
    ),
    Figure(
        "PSNR dB", _psnr, "compared with the CPU path, of the image that differs most", told=True
    ),
)
"""The columns that fit into a line of 80 characters."""

DEVICE_MORE = (
    Figure(
        "stream ms/1000",
        lambda one: _optional(one.stream_ms_per_1000),
        "milliseconds between stream events before and after 1000 images, including waits",
    ),
)
"""Further columns, for which only the page has room."""


def device_model(here: Device | Identity) -> str:
    """Return the model of a device and the versions of its driver and of CUDA, if it has them."""
    driver = f", driver {here.driver}" if here.driver else ""
    runtime = f", CUDA {here.runtime}" if here.runtime else ""
    return f"{here.name}{driver}{runtime}"


def device_facts(result: Result) -> dict[str, str]:
    """Return the device, and the versions of the libraries that decode on it."""
    here = result.device
    if here is None:
        return {}
    return {
        "Device": f"{here.device}: {device_model(here)}, PyTorch {here.torch}",
        **{f"{name} (batches)": text for name, text in here.versions.items() if text},
    }


def title(one: Measurement, device: Device | None) -> str:
    """Return the title of a table: the format and the protocol."""
    if one.protocol != "device":
        return f"{one.format.upper()}, {protocol(one)}"
    size = f", resized to {one.size} px there" if one.size else ""
    return f"{one.format.upper()} onto {device.device if device else 'the device'}{size}"


def legend(figures: Iterable[Figure]) -> list[str]:
    """Explain the columns whose titles are not clear enough."""
    return [f"{one.title}: {one.meaning}." for one in figures if one.told]


def device_missing(device: Device) -> list[str]:
    """List the backends that were not measured, with the reasons and how to install them."""
    return [f"Not measured: {name}: {why}" for name, why in device.missing.items()]
