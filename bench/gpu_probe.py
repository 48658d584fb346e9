"""Which nvJPEG is loaded, and which of nvImageCodec's decoders take whole pictures, and windows?

    python bench/gpu_probe.py [--device cuda]

`gpu.sh` asks this first, because pictures that no decoder takes go to the CPU unnoticed: it fails,
with the reason, if nvImageCodec decodes nothing on the device. nvJPEG is the first that the loader
of shared libraries finds, which need not be the one beside nvImageCodec. Who decodes is told by the
library's own log, of a process for each kind: lines that name a decoder, and how many of each there
are. `nvjpeg_hw_decoder` is the hardware, `nvjpeg_cuda_decoder` kernels with or without the CPU.
"""

from __future__ import annotations

import argparse
import ctypes
import os
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from fastdecode import BackendUnavailable, decode_batch
from fastdecode.gpu import _backends
from fastdecode.gpu._devices import device_of
from fastdecode.testing import encode, photo

_WIDTH, _HEIGHT = 500, 375
_WINDOWS = {"whole": None, "window": (125, 93, 375, 281)}
_COUNT = 32
_BEGIN, _END = "-- begin --", "-- end --"
_LIBRARY = re.compile(r"/\S*/libnvjpeg[.-]\S*$", re.MULTILINE)
_DECODER = re.compile(r"\w+_decoder\b.*")
_TIMEOUT_S = 120


def libraries() -> Iterator[str]:
    """Name each nvJPEG that this process has loaded, with its version."""
    maps = Path("/proc/self/maps").read_text(encoding="utf-8")
    for path in sorted(set(_LIBRARY.findall(maps))):
        library, number = ctypes.CDLL(path), ctypes.c_int()
        version = []
        for part in range(3):  # libraryPropertyType: major, minor, patch level
            failed = library.nvjpegGetProperty(part, ctypes.byref(number))
            version.append("?" if failed else str(number.value))
        yield f"nvJPEG {'.'.join(version)}: {path}"


def decode(device: str, kind: str) -> None:
    """Decode some pictures, between two lines of its own in what the library writes."""
    place, files = device_of(device), [encode(photo(_WIDTH, _HEIGHT))] * _COUNT
    _backends.load("nvimgcodec", place)
    for mark in (_BEGIN, _END):
        os.write(2, f"{mark}\n".encode())
        if mark == _BEGIN:
            decode_batch(files, device=place, backend="nvimgcodec", region=_WINDOWS[kind])


def taken(device: str, kind: str) -> Counter[str]:
    """Count what the library's log says about decoders."""
    done = subprocess.run(
        [sys.executable, __file__, "--device", device, "--kind", kind],
        env={**os.environ, "PYNVIMGCODEC_VERBOSITY": "5"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        encoding="utf-8",
        errors="replace",
        timeout=_TIMEOUT_S,
        check=True,
    )
    log = done.stdout.partition(_BEGIN)[2].partition(_END)[0]
    # Threads and pictures have numbers: without these, lines are the same.
    return Counter(re.sub(r"#\d+", "#", line) for line in _DECODER.findall(log))


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--kind", choices=_WINDOWS, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.kind:
        decode(options.device, options.kind)
        return
    try:
        loaded = _backends.load("nvimgcodec", device_of(options.device))
    except (BackendUnavailable, RuntimeError) as error:
        sys.exit(str(error))
    print(f"nvImageCodec {loaded.backend.version()} on {options.device}")
    print("\n".join(libraries()) or "no nvJPEG is loaded")
    for kind in _WINDOWS:
        print(f"{kind}, of {_COUNT} pictures:")
        try:
            lines = taken(options.device, kind)
        except subprocess.SubprocessError as error:
            print(f"  {error}\n{getattr(error, 'output', '')}")
            continue
        for line, count in lines.most_common():
            print(f"  {count:4} {line}")


if __name__ == "__main__":
    main()
