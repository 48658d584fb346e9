"""Does the native core's memory stay the same, whatever it is given?

    python bench/leaks.py [--decodes N] [--json FILE]

100 000 decodes of small files, of every kind in turn: whole, reduced, a region, resized, repacked,
cut in half, with wrong bytes, and as batches that Python plans or the core, with a new pool of
threads every 1 000 decodes. The process's resident memory is printed after each 10 000. The first
10 000 are there to warm up: every buffer grows to the largest file's size. No other backend is
loaded. Linux only.
"""

from __future__ import annotations

import gc
import os
import random
from collections.abc import Callable
from pathlib import Path

import numpy as np
from _common import keep, parser, resident

import fastdecode
from fastdecode import FastDecodeError, decode, registry
from fastdecode.native import _library, add_restart_markers
from fastdecode.native._batch import Items, Pool

_KINDS = Path(__file__).parents[1] / "tests" / "data" / "jpeg_kinds"
_SAMPLES = Path(fastdecode.__file__).parent / "samples"
_LARGEST = 50_000  # bytes
_EACH = 10_000
_SIDE = 64
_BATCH = 16
_TENSOR = _library.stored(((1 / 255,) * 3, (0.0,) * 3), channels_first=True)
_CENTRE = {"kind": 2, "width": _SIDE, "height": _SIDE, "resize_width": _SIDE, "pixels": 1 << 24}


def in_kb() -> int:
    """Return the process's resident memory, in KB."""
    gc.collect()
    return resident(os.getpid()) // 1024


def plan(width: int, height: int) -> _library.Resize:
    """Ask for the middle of an image as a small flipped square."""
    box = (width / 5, height / 5, width * 0.9, height * 0.8)
    return _library.Resize(
        1, *box, 0, 0, width, height, _SIDE, _SIDE, 0, 0, _SIDE, _SIDE, flip=True
    )


class Calls:
    """One decode of each kind, of any file."""

    def __init__(self, files: list[bytes]) -> None:
        self.files = files
        self.out = np.empty((_BATCH, 3, _SIDE, _SIDE), np.float32)
        self.items = Items()
        self.pool = Pool(2)
        self.crop = _library.ffi.new("fd_crop *", _CENTRE)
        self.chance = random.Random(0)

    def whole(self, data: bytes) -> None:
        decode(data, backend="native")

    def reduced(self, data: bytes) -> None:
        decode(data, 4, mode="L", backend="native")

    def region(self, data: bytes) -> None:
        header = _library.probe(data)
        if header is not None:
            edges = (header.width // 3, header.height // 3)
            decode(data, region=(*edges, header.width, header.height), backend="native")

    def resized(self, data: bytes) -> None:
        header = _library.probe(data)
        if header is not None:
            numbers = plan(header.width, header.height)
            _library.decode_resized(data, numbers, _TENSOR, self.out.ctypes.data)

    def rewritten(self, data: bytes) -> None:
        add_restart_markers(data)

    def cut(self, data: bytes) -> None:
        decode(data[: len(data) // 2], backend="native")

    def wrong(self, data: bytes) -> None:
        damaged = bytearray(data)
        for _ in range(4):
            damaged[self.chance.randrange(len(damaged))] ^= 1 << self.chance.randrange(8)
        decode(damaged, backend="native", max_pixels=1_000_000)

    def batch(self, at: int) -> None:
        sources = [self.files[(at + i) % len(self.files)] for i in range(_BATCH)]
        headers = self.items.read(self.pool, sources)
        wanted = np.flatnonzero(headers.readable).tolist()
        plans = [plan(int(headers.width[i]), int(headers.height[i])) for i in wanted]
        out = self.out
        place = out.ctypes.data, out.strides[0]
        self.items.resize(self.pool, wanted, plans, _TENSOR, *place)
        self.items.clear()
        self.items.crop(self.pool, sources, range(_BATCH), self.crop, _TENSOR, *place)
        self.items.clear()


def run(calls: Calls, decodes: int) -> tuple[list[int], int]:
    """Decode so often; the resident memory at the start and after each part, and the failures."""
    single_calls: list[Callable[[bytes], None]] = [
        calls.whole,
        calls.reduced,
        calls.region,
        calls.resized,
        calls.rewritten,
        calls.cut,
        calls.wrong,
    ]
    memory, failures, done, turn = [in_kb()], 0, 0, 0
    print(f"{done:7d} decodes: {memory[-1]} KB", flush=True)
    while done < decodes:
        before = done
        for call in single_calls:
            try:
                call(calls.files[turn % len(calls.files)])
            except FastDecodeError:
                failures += 1
        calls.batch(turn)
        done += len(single_calls) + 2 * _BATCH
        turn += 1
        if done // 1000 > before // 1000:
            calls.pool.close()
        if done // _EACH > before // _EACH:
            memory.append(in_kb())
            print(f"{done:7d} decodes: {memory[-1]} KB", flush=True)
    return memory, failures


def main() -> None:
    options = parser(__doc__, photos=False, decodes=(100_000, "in all")).parse_args()
    _library.require()
    paths = sorted([*_KINDS.glob("*.jp*g"), *_SAMPLES.glob("*.jpg")])
    files = [path.read_bytes() for path in paths if path.stat().st_size <= _LARGEST]
    os.environ["FASTDECODE_DISABLE"] = ",".join(set(registry.BUILTIN) - {"native"})
    memory, failures = run(Calls(files), options.decodes)
    del os.environ["FASTDECODE_DISABLE"]
    grown = memory[-1] - memory[min(1, len(memory) - 1)]
    print(f"grown by {grown} KB after the first {_EACH}; {failures} decodes failed, as they should")
    result = {"resident_kb": memory, "grown_kb": grown, "failures": failures}
    keep(options, result, "decodes", core=_library.codec(), each=_EACH, files=len(files))


if __name__ == "__main__":
    main()
