"""Results of made-up runs: several backends, formats and protocols, and things that go wrong."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

from fastdecode.measure.result import (
    AUTOMATIC,
    Backend,
    Collection,
    Machine,
    Measurement,
    Protocol,
    Result,
    Spread,
)

MACHINE = Machine(
    cpu="Example CPU 3000",
    cores=4,
    system="Linux x86_64",
    python="CPython 3.12.4",
    numpy="2.1.0",
    fastdecode="0.2.0",
    load=0.31,
)
SPEEDS = {"simplejpeg": 200.0, "turbojpeg": 196.0, "opencv": 180.0, "pillow": 120.0}
"""JPEG images per second at full size, from memory."""

PIPELINES = {
    "loader": 520.0,
    "dataset": 390.0,
    "pillow": 130.0,
    "torchvision": 210.0,
    "dali": 450.0,
}
"""Training images per second on four cores."""

COUNTS = (1, 2, 4, 8)
_GAINS = {1: 1.0, 2: 1.9, 4: 3.3, 8: 3.35}
_EVIL = "<script>alert(1)</script>&\"'\x1b[31m.jpg"


def spread(value: float, share: float = 0.03) -> Spread:
    """Make a spread that extends by a share of the value to both sides."""
    return Spread(value, value * (1 - share), value * (1 + share))


def measurement(backend: str = "pillow", speed: float = 100.0, **options: Any) -> Measurement:
    """Make a measurement whose figures all follow from the speed."""
    best = options.pop("best", speed)
    settings: dict[str, Any] = {"protocol": "decode", "format": "jpeg", "reduce": 1, "files": 40}
    figures: dict[str, Any] = {
        "images_per_s": spread(speed),
        "mb_per_s": speed * 0.18,
        "megapixels_per_s": speed * 0.9,
        "latency_ms": tuple(1000 / speed * (0.5 + n / 100 + (n / 100) ** 8) for n in range(101)),
        "cpu_s_per_1000": 1000 / speed,
        "peak_mb": 150.0,
        "ratio": spread(speed / best, 0.01),
    }
    return Measurement(**{**settings, **figures, "backend": backend, **options})


def automatic(speed: float, **options: Any) -> Measurement:
    """Make a measurement of the automatic choice."""
    return measurement(AUTOMATIC, speed, **{"chosen": "simplejpeg", "fallbacks": 2, **options})


def jpeg() -> list[Measurement]:
    """JPEG at four sizes; `swapped` has wrong pixels and would be the fastest."""
    found = []
    for reduce, gain in {1: 1.0, 2: 2.1, 4: 3.9, 8: 6.2}.items():
        best = SPEEDS["simplejpeg"] * gain
        common: dict[str, Any] = {"reduce": reduce, "best": best}
        for name, speed in SPEEDS.items():
            averaged = 40 if name == "opencv" and reduce > 1 else 0
            own = speed * (1.0 if averaged else gain)
            difference = 23 if averaged else 0
            found.append(
                measurement(name, own, averaged=averaged, max_difference=difference, **common)
            )
        wrong = {"differing": ("photos/a.jpg", _EVIL), "max_difference": 255}
        found.append(measurement("swapped", best * 1.1, **wrong, **common))
        found.append(automatic(best * 0.99, **common))
        reason = "nojpeg: ValueError: out of order"
        refused = {f"photos/{n}.jpg": reason for n in range(40)}
        found.append(Measurement("decode", "jpeg", reduce, "nojpeg", refused=refused))
    return found


def png() -> list[Measurement]:
    """PNG at two sizes; one file is damaged."""
    hopeless = {"drawings/broken.png": "the data ends within the image"}
    return [
        replace(one, format="png", reduce=reduce, files=7, chosen="opencv", refused=hopeless)
        for reduce in (1, 2)
        for one in (
            measurement("pillow", 31.0, best=52.0),
            measurement("opencv", 52.0),
            automatic(51.0, best=52.0),
        )
    ]


def training() -> list[Measurement]:
    """Make training batches with every pipeline; single images have no latency."""
    options: dict[str, Any] = {
        "protocol": "train", "threads": 4, "workers": 4, "output": "tensor", "size": 224,
        "batch": 64, "latency_ms": (), "best": PIPELINES["loader"],
    }  # fmt: skip
    return [measurement(name, speed, **options) for name, speed in PIPELINES.items()]


def scaling(protocol: Protocol) -> list[Measurement]:
    """Use 1 to 8 threads or workers; more than four gain almost nothing."""
    found = []
    for number in COUNTS:
        counts = {"threads": number} if protocol == "threads" else {"workers": number}
        best = SPEEDS["simplejpeg"] * _GAINS[number]
        for name, speed in SPEEDS.items():
            own = speed * _GAINS[number]
            found.append(measurement(name, own, best=best, protocol=protocol, **counts))
        found.append(automatic(best * 0.99, best=best, protocol=protocol, **counts))
    return found


def reading(share: float = 0.04) -> list[Measurement]:
    """Measure reading and decoding."""
    options: dict[str, Any] = {"protocol": "file", "read_share": share, "best": 190.0}
    return [
        *(measurement(name, speed * 0.95, **options) for name, speed in SPEEDS.items()),
        automatic(188.0, **options),
    ]


def result(*measurements: Measurement, **options: Any) -> Result:
    """Make the result of a run from measurements."""
    fields: dict[str, Any] = {
        "measured": "2026-03-04T05:06:07+00:00",
        "machine": MACHINE,
        "backends": tuple(Backend(name, "1.2.3", "libjpeg-turbo 3.1") for name in SPEEDS),
        "collection": Collection(47, 7_400_000, 42_000_000, {"png": 7, "jpeg": 40}),
        "settings": {"seconds": 0.5, "reduces": [1, 8]},
        "measurements": measurements,
    }
    return Result(**{**fields, **options})


def says(text: str, *facts: str) -> bool:
    """Return whether a text contains all these facts as whole words in this order."""
    pattern = r".*?".join(rf"(?<![\w.]){re.escape(fact)}(?!\w)" for fact in facts)
    return re.search(pattern, " ".join(text.split())) is not None


def full() -> Result:
    """Make the result of a run that measured everything and met some errors."""
    collection = Collection(
        images=47,
        bytes=7_400_000,
        pixels=42_000_000,
        formats={"png": 7, "jpeg": 40},
        unreadable={_EVIL: "this is no image: <b>&"},
        not_images=3,
        left_out=12,
    )
    every = [*jpeg(), *png(), *training(), *scaling("threads"), *scaling("loader"), *reading()]
    faster = {"native": "apt-get install gcc && pip install fastdecode"}
    return result(*every, collection=collection, notes=("A note <of> the run.",), faster=faster)
