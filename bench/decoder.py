"""What do the core's own decoders of JPEG and PNG gain?

PHOTOS contains JPEG photos. One thread decodes bytes in memory. There are four measurements:

- Stages: where the decoder of baseline JPEG spends its time, and its entropy decoding compared with
  libjpeg-turbo's `decode_mcu` (`decoder_stages.c`, compiled with the flags of the core; it
  needs the headers of libjpeg-turbo).
- Calls: ``decode(data, reduce=...)`` compared with every other backend that decodes JPEG, by name,
  and with Pillow and simplejpeg alone, as people call them, which check less. Few cameras write
  4:4:4, so Pillow makes such photos from the others, at quality 90. It also makes those of 4:2:0 if
  there are none, and 4:4:4 at quality 98, of which a decoder has the most to read.
- Progressive: the same for the photos as progressive JPEG, at quality 90.
- PNG: the photos as Pillow and as OpenCV write them, with alpha, and in 16 bits, and made
  screenshots of 1280 x 800; compared with Pillow and with other libraries, which are called
  directly. Their results may have another order of channels.

In each round all take turns, file by file, in a new random order. The figures are medians of the
rounds, and medians of the ratios within a round. `limit.py` measures tensors, `pipeline.py` the
`Loader`.
"""

from __future__ import annotations

import ctypes
import importlib
import io
import json
import random
import subprocess
import tempfile
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from statistics import mean
from typing import Any

import _common as bench
import numpy as np
import simplejpeg
from PIL import Image, ImageDraw

from fastdecode import backends, decode, probe
from fastdecode.native import _build

_STAGES = ("prepared", "entropy", "samples", "pixels", "mcus")  # in the order of decoder_stages.c
_REDUCES = (1, 2, 4, 8)
_OWN = "decode()"
_WITHOUT = frozenset({"torchvision", "torchcodec", "nvimgcodec", "dali"})  # of tensors, or batches


def stages(files: Sequence[bytes], rounds: int) -> dict[str, Any]:
    """Compile `decoder_stages.c` and time its stages in turn; return microseconds.

    A figure is the mean over the files that the decoder accepts, of the fastest round of each file.
    """
    source = Path(__file__).with_name("decoder_stages.c")
    others = {*_build.SOURCES} - {_build.FOLDER / "jpeg" / "rows.c"}  # it includes that
    with tempfile.TemporaryDirectory() as folder:
        library = Path(folder, "stages.so")
        command = [
            *(*_build.compiler(), *_build._LINKING, *_build._COMPILING, *_build._SPEED),
            "-fvisibility=default",
            *map(str, (source, *sorted(others))),
            *("-ljpeg", "-lm", "-o", str(library)),
        ]
        subprocess.run(command, check=True)
        time_of = ctypes.CDLL(str(library)).stage_us
    time_of.restype = ctypes.c_double
    taken = []
    for data in files:
        header = probe(data)
        out = ctypes.create_string_buffer(3 * header.width * header.height)
        spent = [
            [time_of(stage, data, len(data), out) for stage in range(len(_STAGES))]
            for _ in range(rounds + 1)
        ]
        if min(map(min, spent)) >= 0:  # the core decodes it
            taken.append([min(times) for times in zip(*spent[1:], strict=True)])
    if not taken:
        return {"files": 0}
    means = (round(mean(times), 2) for times in zip(*taken, strict=True))
    found: dict[str, Any] = {"files": len(taken), **dict(zip(_STAGES, means, strict=True))}
    found["entropy_ratio"] = round(found["mcus"] / (found["entropy"] - found["prepared"]), 3)
    return found


def _again(photo: bytes, **options: Any) -> bytes:
    """Encode a photo again."""
    file = io.BytesIO()
    with Image.open(io.BytesIO(photo)) as image:
        image.convert(options.pop("mode", "RGB")).save(file, "JPEG", **options)
    return file.getvalue()


def by_sampling(files: Sequence[bytes]) -> dict[str, list[bytes]]:
    """Group photos by chroma sampling; make photos of a sampling that has too few."""
    found: dict[str, list[bytes]] = {}
    for data in files:
        found.setdefault(simplejpeg.decode_jpeg_header(data)[3], []).append(data)
    photos = found.get("420") or [_again(data, quality=90, subsampling=2) for data in files]
    full = found.get("444", [])
    if len(full) < len(photos):
        full = [_again(data, quality=90, subsampling=0) for data in photos]
    best = [_again(data, quality=98, subsampling=0) for data in photos]
    return {"4:4:4": full, "4:2:0": photos, "quality 98": best}


Call = Callable[[bytes], object]


def compare(files: Sequence[bytes], calls: Mapping[str, Call], rounds: int) -> dict[str, Any]:
    """Time calls: milliseconds per file, and how many times as long as `decode()` each takes."""
    turns = bench.time_each(lambda _: files, calls, rounds)
    found = bench.sum_up(turns, "ms", ratio=_OWN)
    return dict(sorted(found.items(), key=lambda pair: pair[1]["ms"]))


def _by_pillow(data: bytes, reduce: int = 1, mode: str = "RGB") -> np.ndarray:
    with Image.open(io.BytesIO(data)) as image:
        if reduce > 1:
            image.draft(mode, (image.width // reduce, image.height // reduce))
        return np.asarray(image.convert(mode))


def _by_simplejpeg(data: bytes, reduce: int) -> np.ndarray:
    height, width, *_ = simplejpeg.decode_jpeg_header(data)
    least = {"min_height": -(-height // reduce), "min_width": -(-width // reduce)}
    return simplejpeg.decode_jpeg(data, "RGB", **least)


def _calls(names: Sequence[str], reduce: int) -> dict[str, Call]:
    """Return the calls: the core, the other backends, and two libraries without this package."""
    core = partial(decode, reduce=reduce, backend="native")
    others = {name: partial(decode, reduce=reduce, backend=name) for name in names}
    alone: dict[str, Call] = {
        "Pillow alone": partial(_by_pillow, reduce=reduce),
        "simplejpeg alone": partial(_by_simplejpeg, reduce=reduce),
    }
    return {_OWN: core, **others, **alone}


def all_calls(
    groups: Mapping[str, Sequence[bytes]], reduces: Sequence[int], rounds: int
) -> dict[str, Any]:
    """Compare `decode()` with each named backend, for groups of JPEGs at each reduction."""
    others = [
        info.name
        for info in backends()
        if info.usable and "jpeg" in info.formats and info.name not in _WITHOUT | {"native"}
    ]
    result: dict[str, Any] = {}
    for name, group in groups.items():
        for reduce in reduces:
            found = compare(group, _calls(others, reduce), rounds)
            result[f"{name}, 1/{reduce}"] = _shown(f"{name}, 1/{reduce}", found, len(group))
    return result


def _shown(title: str, found: dict[str, Any], files: int) -> dict[str, Any]:
    """Print a comparison, and return it with the name of the fastest other decoder."""
    fastest = next(name for name in found if name != _OWN)
    bench.show(title, found)
    return {"files": files, "fastest_other": fastest, **found}


def _screenshot(seed: int) -> Image.Image:
    """Draw windows with lines of text, as on a screen."""
    rng = random.Random(seed)
    image = Image.new("RGB", (1280, 800), (58, 110, 165))
    draw = ImageDraw.Draw(image)
    for _ in range(4):
        left, top = rng.randrange(700), rng.randrange(400)
        draw.rectangle((left, top, left + 560, top + 380), "white", "black")
        draw.rectangle((left, top, left + 560, top + 24), (230, 230, 235))
        for line in range(22):
            text = "".join(rng.choices("abcdefghij klmnop qrstuvwxyz(){}.=", k=rng.randint(5, 80)))
            color = rng.choice(("black", "navy", "darkgreen", "gray"))
            draw.text((left + 12, top + 34 + 15 * line), text, color)
    return image


def png_groups(files: Sequence[bytes]) -> dict[str, list[bytes]]:
    """Write photos and screenshots as PNGs of several kinds."""
    import cv2

    def written(image: Image.Image) -> bytes:
        file = io.BytesIO()
        image.save(file, "PNG")
        return file.getvalue()

    def by_opencv(array: np.ndarray) -> bytes:
        return cv2.imencode(".png", array)[1].tobytes()

    photos = [Image.open(io.BytesIO(data)).convert("RGB") for data in files]
    arrays = [np.asarray(photo) for photo in photos]
    rng = np.random.default_rng(0)
    alpha = [Image.fromarray(array[:, :, 0]) for array in arrays]
    deep = [array.astype(np.uint16) * 257 + rng.integers(0, 16, array.shape) for array in arrays]
    return {
        "photos": [written(photo) for photo in photos],
        "photos written by OpenCV": [by_opencv(array[:, :, ::-1]) for array in arrays],
        "screenshots": [written(_screenshot(seed)) for seed in range(min(8, len(files)))],
        "RGBA": [
            written(Image.merge("RGBA", (*photo.split(), mask)))
            for photo, mask in zip(photos, alpha, strict=True)
        ],
        "16 bits": [by_opencv(array.clip(0, 65535).astype(np.uint16)) for array in deep],
    }


def _png_calls(kind: str) -> dict[str, Call]:
    """Return the calls for a kind of PNG; libraries that are not installed are left out."""
    mode: Any = {"RGBA": "RGBA", "16 bits": "stored"}.get(kind, "RGB")
    calls: dict[str, Call] = {
        _OWN: partial(decode, mode=mode, backend="native"),
        "pillow": partial(decode, mode=mode, backend="pillow"),
    }
    found = {}
    for name in ("cv2", "imagecodecs", "kornia_rs"):
        try:
            found[name] = importlib.import_module(name)
        except ImportError as error:
            print(f"{name} is left out: {error}")
    if kind != "16 bits":
        calls["Pillow alone"] = partial(_by_pillow, mode=mode)
    if "cv2" in found:
        cv2 = found["cv2"]
        calls["cv2"] = lambda data: cv2.imdecode(
            np.frombuffer(data, np.uint8), cv2.IMREAD_UNCHANGED
        )
    if "imagecodecs" in found:
        calls["imagecodecs"] = found["imagecodecs"].png_decode
    if "kornia_rs" in found and kind != "16 bits":
        read = found["kornia_rs"].io.decode_image_png_u8

        def by_kornia(data: bytes) -> object:
            header = probe(data)
            return read(data, (header.height, header.width), mode.lower())

        calls["kornia_rs"] = by_kornia
    return calls


def pngs(files: Sequence[bytes], rounds: int) -> dict[str, Any]:
    """Compare `decode()` with Pillow and other libraries, for each kind of PNG."""
    result = {}
    for kind, group in png_groups(files).items():
        found = compare(group, _png_calls(kind), rounds)
        result[kind] = _shown(f"PNG, {kind}", found, len(group))
    return result


@bench.command(rounds=(9, "after the warm-up"), limit=(None, "photos"))
def main(options: Any) -> Any:
    photos = bench.photos_in(options.photos)
    files = [photo.read_bytes() for photo in bench.spaced(photos, options.limit or len(photos))]
    result: dict[str, Any] = {"stages": stages(files, options.rounds)}
    print(json.dumps(result["stages"]), flush=True)
    result["calls"] = all_calls(by_sampling(files), _REDUCES, options.rounds)
    again = [_again(data, quality=90, progressive=True) for data in files]
    result["progressive"] = all_calls({"progressive": again}, (1, 8), options.rounds)
    result["png"] = pngs(files, options.rounds)
    return result


if __name__ == "__main__":
    main()
