"""What does a backend of transformers' image processors gain in CPU time, and for many photos?

Each of PHOTOS, resized to `--size`, is given as a JPEG, PNG and WebP file to the image processors
of many models: to "fastdecode", and to transformers' own backends "torchvision" and "pil". The
bytes of the file go in. Transformers' backends open them with Pillow; for "torchvision" a JPEG is
also decoded by its `decode_jpeg`, if that is there, and the faster of both counts. All run on one
thread and take turns; ms are CPU time per photo, medians over the rounds.

With `--many`, photos also go through `--many-model` in two threads of fastdecode, and in two
processes of transformers (images/s); and while an executor processes 64 images of 4 megapixels, a
loop of asyncio ticks each millisecond, of which the longest gap counts. Last, the memory of the
process is read after 1,000, 5,000 and 10,000 requests (MiB).
"""

from __future__ import annotations

import asyncio
import io
import multiprocessing
import resource
import time
import warnings
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path
from statistics import median
from typing import Any

import _common as bench
import torch
import transformers
from PIL import Image
from torchvision.io import decode_jpeg

from fastdecode.testing import encode
from fastdecode.transformers import accelerated

warnings.simplefilter("ignore")
transformers.logging.set_verbosity_error()

_QWEN3 = {
    "patch_size": 16,
    "size": {"shortest_edge": 65536, "longest_edge": 16777216},
    "image_mean": [0.5] * 3,
    "image_std": [0.5] * 3,
}
_MODELS: dict[str, tuple[str, dict[str, Any]]] = {
    "CLIP": ("CLIP", {}),
    "SigLIP": ("Siglip", {}),
    "SigLIP2": ("Siglip2", {}),
    "ViT": ("ViT", {}),
    "DINOv3": ("DINOv3ViT", {}),
    "RT-DETR": ("RTDetr", {}),
    "SAM": ("Sam", {}),
    "Pixtral": ("Pixtral", {}),
    "Qwen2-VL": ("Qwen2VL", {}),
    "Qwen3-VL": ("Qwen2VL", _QWEN3),
    "GLM-4V": ("Glm4v", {}),
    "Gemma 3": ("Gemma3", {}),
    "LLaVA-Next": ("LlavaNext", {}),
    "InternVL": ("GotOcr2", {"crop_to_patches": True, "size": {"height": 448, "width": 448}}),
    "Idefics3": ("Idefics3", {}),
    "SmolVLM": ("SmolVLM", {}),
    "Llama 4": ("Llama4", {}),
}
_BYTES = {"do_rescale": False, "do_normalize": False}  # vLLM normalises on the device
_AIMS = {"torchvision": (1.4, 2.4), "pil": (1.4, 4.0)}  # the least, the median
_FOURTH = 2000, 2000
_PIXEL = encode(Image.new("RGB", (1, 1)), "JPEG")


def _opened(data: bytes) -> Image.Image:
    return Image.open(io.BytesIO(data))


def _tensor(data: bytes) -> torch.Tensor:
    return decode_jpeg(torch.frombuffer(bytearray(data), dtype=torch.uint8))


@cache
def _has_decode_jpeg() -> bool:
    try:
        return decode_jpeg(torch.frombuffer(bytearray(_PIXEL), dtype=torch.uint8)).ndim == 3
    except RuntimeError:  # torchvision was built without it, or for another torch
        return False


def _ways(model: str, format: str, **options: Any) -> dict[str, Callable[[bytes], Any]]:
    """Return how each backend processes the bytes of a file."""
    name, own = _MODELS[model]
    theirs = getattr(transformers, f"{name}ImageProcessor")(**own, **options)
    ours = accelerated(theirs, num_threads=1)
    ways: dict[str, Callable[[bytes], Any]] = {
        "fastdecode": lambda data: ours(data, return_tensors="pt"),
        "torchvision": lambda data: theirs(_opened(data), return_tensors="pt"),
    }
    if format == "JPEG" and _has_decode_jpeg():
        ways["decode_jpeg"] = lambda data: theirs(_tensor(data), return_tensors="pt")
    if kind := getattr(transformers, f"{name}ImageProcessorPil", None):
        of_pillow = kind(**own, **options)
        ways["pil"] = lambda data: of_pillow(_opened(data), return_tensors="pt")
    return ways


def _measured(ways: dict[str, Any], files: list[bytes], rounds: int) -> dict[str, Any]:
    """Return CPU ms per photo, and how many times those of fastdecode the others take."""

    def spent(way: Callable[[bytes], Any]) -> bench.Figures:
        start = time.process_time()
        for data in files:
            way(data)
        return {"ms": 1000 * (time.process_time() - start) / len(files)}

    turns = bench.take_turns({name: lambda w=way: spent(w) for name, way in ways.items()}, rounds)
    found = {name: one["ms"] for name, one in bench.sum_up(turns, "ms").items()}
    found["torchvision"] = min(found["torchvision"], found.pop("decode_jpeg", float("inf")))
    gains = {f"x {name}": found[name] / found["fastdecode"] for name in _AIMS if name in found}
    return {name: bench.short(value) for name, value in (found | gains).items()}


# Many photos


def _begin() -> None:
    torch.set_num_threads(1)


def _by_transformers(model: str, files: list[bytes]) -> int:
    theirs = getattr(transformers, f"{_MODELS[model][0]}ImageProcessor")()
    for data in files:
        theirs(_opened(data), return_tensors="pt")
    return len(files)


def _throughput(model: str, files: list[bytes], rounds: int) -> dict[str, Any]:
    """Return images/s of two threads with a photo at a time, and of two processes likewise."""
    ours = accelerated(getattr(transformers, f"{_MODELS[model][0]}ImageProcessor")(), num_threads=1)
    context = multiprocessing.get_context("spawn")
    with context.Pool(2, initializer=_begin) as pool, ThreadPoolExecutor(2) as threads:

        def each() -> None:
            for _ in threads.map(lambda data: len(ours([data], return_tensors="pt")), files):
                pass

        def timed(work: Callable[[], Any]) -> bench.Figures:
            start = time.perf_counter()
            work()
            return {"images_per_s": len(files) / (time.perf_counter() - start)}

        halves = [(model, files[::2]), (model, files[1::2])]
        turns = bench.take_turns(
            {
                "fastdecode": lambda: timed(each),
                "torchvision": lambda: timed(lambda: pool.starmap(_by_transformers, halves, 1)),
            },
            rounds,
        )
    return bench.sum_up(turns, to_torchvision="torchvision")


async def _longest_gap(work: Callable[[], Any]) -> float:
    """Return the longest time between two ticks of a loop, in ms, while an executor works."""
    loop, gaps = asyncio.get_running_loop(), [0.0]
    done = loop.run_in_executor(None, work)
    last = time.perf_counter()
    while not done.done():
        await asyncio.sleep(0.001)
        now = time.perf_counter()
        gaps.append(1000 * (now - last))
        last = now
    await done
    return max(gaps)


def _ticks(model: str, photo: Image.Image, rounds: int) -> dict[str, Any]:
    files = [encode(photo.resize(_FOURTH), "JPEG")] * 64
    theirs = getattr(transformers, f"{_MODELS[model][0]}ImageProcessor")()
    ours = accelerated(theirs, num_threads=1)
    works: dict[str, Callable[[], Any]] = {
        "nothing": lambda: time.sleep(2),
        "fastdecode": lambda: ours(files, return_tensors="pt"),
        "torchvision": lambda: theirs([_opened(data) for data in files], return_tensors="pt"),
    }
    turns = bench.take_turns(
        {
            name: lambda w=work: {"longest_gap_ms": asyncio.run(_longest_gap(w))}
            for name, work in works.items()
        },
        rounds,
    )
    return bench.sum_up(turns, "longest_gap_ms")


def _memory(model: str, photo: Image.Image) -> dict[str, float]:
    """Return the resident memory after so many requests, in MiB."""
    ours = accelerated(getattr(transformers, f"{_MODELS[model][0]}ImageProcessor")(), num_threads=2)
    sizes = (240, 320), (320, 240), (500, 333)
    files = [encode(photo.resize(size), kind) for size in sizes for kind in ("JPEG", "PNG")]
    found = {}
    for number in range(1, 10_001):
        ours([files[number % 6], files[number % 5]], return_tensors="pt")
        if number in (1000, 5000, 10_000):
            pages = int(Path("/proc/self/statm").read_text().split()[1])
            found[str(number)] = bench.short(pages * resource.getpagesize() / 2**20)
    return found


@bench.command(
    json=bench.RESULTS / "processors.json",
    size=("1920x1080", "width and height of the photos"),
    models=([*_MODELS], "models"),
    formats=(["JPEG", "PNG", "WEBP"], "formats of the files"),
    limit=(4, "photos"),
    rounds=(5, "rounds"),
    bytes=(False, "only resize and cut: neither rescale nor normalise"),
    many=(False, "measure throughput and the loop, too"),
    many_model=("Qwen2-VL", "the model of --many"),
)
def measure(options: Any) -> dict[str, Any]:
    """Measure all models with all formats."""
    torch.set_num_threads(1)
    size = tuple(map(int, options.size.split("x")))
    photos = [
        Image.open(path).convert("RGB").resize(size)
        for path in bench.spaced(bench.photos_in(options.photos), options.limit)
    ]
    result: dict[str, Any] = {"models": {}}
    extra = _BYTES if options.bytes else {}
    for format in options.formats:
        files = [encode(photo, format) for photo in photos]
        rows = {
            model: _measured(_ways(model, format, **extra), files, options.rounds)
            for model in options.models
        }
        bench.show(f"{format}, CPU ms", rows)
        result["models"][format] = rows
        for name, (least, middle) in _AIMS.items():
            gains = [row[f"x {name}"] for row in rows.values() if f"x {name}" in row]
            bench.judge(f"{format}, least against {name}", min(gains), least)
            bench.judge(f"{format}, median against {name}", median(gains), middle)
    if options.many:
        files = [encode(photo, "JPEG") for photo in photos] * 8
        result["throughput"] = _throughput(options.many_model, files, options.rounds)
        bench.show("images/s", result["throughput"])
        result["ticks"] = _ticks(options.many_model, photos[0], options.rounds)
        bench.show("ms", result["ticks"])
        result["memory"] = _memory(options.many_model, photos[0])
        bench.show("MiB after requests", {"fastdecode": result["memory"]})
    return result


if __name__ == "__main__":
    measure()
