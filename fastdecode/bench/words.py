"""How figures, sizes and names are said, in the terminal and on the page alike."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fastdecode.bench.result import Backend, Collection, Machine, Measurement, Spread

__all__ = [
    "backends",
    "count",
    "half_range",
    "machine",
    "measured_files",
    "number",
    "percent",
    "pixels",
    "protocol",
    "series",
    "setting",
    "size",
    "visible",
]

_PROTOCOLS = {
    "decode": "from memory, one thread",
    "threads": "from memory, a pool of threads",
    "loader": "PyTorch DataLoader",
    "file": "read and decoded, one thread",
}


def count(amount: int, noun: str) -> str:
    """Say how many of something there are."""
    return f"{amount:,} {noun}{'' if amount == 1 else 's'}"


def number(value: float) -> str:
    """Write three significant digits, or all those before the point; at most three after it."""
    limits = ((99.95, 0), (9.995, 1), (0.0995, 2))
    decimals = next((places for limit, places in limits if value >= limit), 3 if value else 0)
    return f"{value:,.{decimals}f}"


def percent(share: float) -> str:
    """Write a share of 1 in whole percent; a little is not called nothing."""
    return "<1%" if 0 < share < 0.005 else f"{share:.0%}"


def half_range(spread: Spread) -> float:
    """Return half the distance of the quartiles, as a share of the median."""
    return (spread.high - spread.low) / 2 / spread.median if spread.median else 0.0


def size(reduce: int) -> str:
    """Name what a reduction leaves."""
    return "full size" if reduce == 1 else f"1/{reduce} size"


def series(names: list[str]) -> str:
    """Join names as one speaks: ``a, b and c``."""
    return " and ".join([", ".join(names[:-1]), names[-1]]) if len(names) > 1 else "".join(names)


def protocol(one: Measurement) -> str:
    """Say what was timed, apart from the format, the reduction and the counts."""
    words = _PROTOCOLS[one.protocol]
    if one.size:
        words += f", resized to {one.size} px and normalised"
    elif one.output != "array":
        words += f", as {'a PIL image' if one.output == 'pil' else 'a tensor'}"
    return words


def setting(one: Measurement) -> str:
    """Say which reduction it was, and how many threads or workers."""
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


def machine(here: Machine) -> str:
    """Say on what was measured, but for the libraries."""
    cores = count(here.cores, "core")
    return f"{here.cpu}, {cores} usable, {here.system}, {here.python}, NumPy {here.numpy}"


def backends(found: tuple[Backend, ...]) -> Mapping[str, str]:
    """Say of each library which version it is, and what it is linked to."""
    return {one.name: f"{one.version} ({one.codec})" if one.codec else one.version for one in found}


def visible(text: str) -> str:
    """Write text of others so that no character of it can upset a terminal or a page."""
    return "".join(letter if letter.isprintable() else "?" for letter in text)
