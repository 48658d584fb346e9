"""Results of made-up runs: several backends and formats, and things that go wrong."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from fastdecode.measure.result import (
    OWN,
    CollectionSummary,
    Library,
    Machine,
    Measurement,
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
SPEEDS = {OWN: 198.0, "simplejpeg": 200.0, "opencv": 180.0, "pillow": 60.0}
"""JPEG images per second at full size, from memory."""

PIPELINES = {
    OWN: 520.0, "device": 900.0, "pillow": 130.0, "torchvision": 210.0,
}  # fmt: skip
"""Training images per second on four cores."""

EVIL = "<script>alert(1)</script>&\"'\x1b[31m.jpg"


def spread(value: float, share: float = 0.03) -> Spread:
    """Make a spread that extends by a share of the value to both sides."""
    return Spread(value, value * (1 - share), value * (1 + share))


def measurement(backend: str = "pillow", speed: float = 100.0, **options: Any) -> Measurement:
    """Make a measurement whose figures all follow from the speed."""
    pillow = options.pop("pillow", speed)
    settings: dict[str, Any] = {"protocol": "decode", "format": "jpeg", "reduce": 1, "files": 40}
    figures: dict[str, Any] = {
        "images_per_s": spread(speed),
        "ratio": spread(speed / pillow, 0.01),
        "cpu_s_per_1000": 1000 / speed,
        "chosen": "simplejpeg" if backend == OWN and options.get("protocol") != "train" else "",
    }
    return Measurement(**{**settings, **figures, "backend": backend, **options})


def decoding(reduce: int = 1) -> list[Measurement]:
    """Measure JPEG: `swapped` has wrong pixels, `averaging` cannot reduce, `nojpeg` refuses."""
    common: dict[str, Any] = {"reduce": reduce, "pillow": SPEEDS["pillow"]}
    wrong = {"differing": ("photos/a.jpg", EVIL)}
    refused = {f"photos/{n}.jpg": "ValueError: out of order" for n in range(40)}
    found = [measurement(name, speed, **common) for name, speed in SPEEDS.items()]
    found.append(measurement("swapped", 220.0, **wrong, **common))
    found.append(Measurement("decode", "jpeg", reduce, "nojpeg", refused=refused))
    if reduce > 1:
        found.append(measurement("averaging", 100.0, averaged=40, **common))
    return found


def training() -> list[Measurement]:
    """Make training batches with every pipeline."""
    options: dict[str, Any] = {
        "protocol": "train", "workers": 4, "batch": 64, "pillow": PIPELINES["pillow"],
    }  # fmt: skip
    return [measurement(name, speed, **options) for name, speed in PIPELINES.items()]


def result(*measurements: Measurement, **options: Any) -> Result:
    """Make the result of a run from measurements."""
    fields: dict[str, Any] = {
        "measured": "2026-03-04T05:06:07+00:00",
        "machine": MACHINE,
        "backends": tuple(
            Library(name, "1.2.3", "libjpeg-turbo 3.1") for name in SPEEDS if name != OWN
        ),
        "collection": CollectionSummary(47, 7_400_000, 42_000_000, {"jpeg": 40, "png": 7}),
        "settings": {"seconds": 0.5, "reduce": [1, 4, 8], "limit": None},
        "measurements": measurements,
    }
    return Result(**{**fields, **options})


def full() -> Result:
    """Make the result of a run that measured everything and met some errors."""
    collection = CollectionSummary(
        images=47,
        bytes=7_400_000,
        pixels=42_000_000,
        formats={"jpeg": 40, "png": 7},
        unreadable={EVIL: "this is no image: <b>&"},
        not_images=3,
        left_out=12,
    )
    hopeless = {"drawings/broken.png": "the data ends within the image"}
    png = [
        replace(one, format="png", files=6, chosen="opencv" * bool(one.chosen), refused=hopeless)
        for one in (measurement("pillow", 31.0), *(
            measurement(name, 52.0, pillow=31.0) for name in ("opencv", OWN)
        ))
    ]  # fmt: skip
    every = [*decoding(), *decoding(8), *png, *training()]
    return result(*every, collection=collection, notes=("A note <of> the run.",))
