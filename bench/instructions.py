"""How many instructions does the core execute with each of its sets, on ARM64 and on x86-64?

No such machine is needed: QEMU runs the program `instructions.c`, and its plugin
`count_instructions.c` counts. Each figure is the difference between doing a piece of work twice and
once, in millions. JPEGs, from the smallest photo to the largest, are compared with libjpeg-turbo,
and PNGs that Pillow makes of them with libpng; both have vector code of their own. Instructions are
not time: they say nothing about caches and about how many a processor does at once.

On Debian for x86-64 it needs qemu-user, gcc, gcc-aarch64-linux-gnu and, after ``dpkg
--add-architecture arm64``, libjpeg62-turbo-dev:arm64, libpng-dev:arm64 and zlib1g-dev:arm64.
"""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import _common as bench
from PIL import Image

from fastdecode.native import _build
from fastdecode.testing import encode

_HERE = Path(__file__).parent
_LIBRARIES = "/usr/lib/{}-linux-gnu"
_STATIC = ("libjpeg.a", "libpng16.a", "libz.a")
_FILTERS = ("own", "Pillow's bilinear", "Pillow's bicubic", "Pillow's Lanczos")
_OPERATIONS = {  # as in fastdecode.h; hundreds are the filter
    "brightness": 1,
    "contrast": 2,
    "saturation": 3,
    "hue": 4,
    "sharpness": 5,
    "blur": 13,
    "box blur": 14,
    "warp, nearest": 17,
    "warp, bilinear": 117,
    "warp, bicubic": 217,
}


class Counter:
    """The program for a machine and the plugin, compiled to `folder`."""

    def __init__(self, machine: str, folder: Path) -> None:
        self._program, plugin = folder / "program", folder / "count.so"
        flags = (*_build._COMPILING, *_build._SPEED)
        cross = [f"{machine}-linux-gnu-gcc", "-static", *flags]
        judge = _HERE.parent / "tests" / "native"  # it decodes with libjpeg-turbo
        files = [_HERE / "instructions.c", judge / "judge.c", *_build.SOURCES]
        libraries = Path(_LIBRARIES.format(machine))
        after = [*(libraries / name for name in _STATIC), "-lm", "-o", self._program]
        _run(*cross, f"-I{judge}", "-I/usr/include", *files, *after)
        _run("gcc", "-O2", "-shared", "-fPIC", _HERE / "count_instructions.c", "-o", plugin)
        self._emulator = (f"qemu-{machine}", "-cpu", "max", "-plugin", plugin)
        self.sets = _run(*self._emulator, self._program).stdout.split()

    def millions(
        self, set: str, what: str, number: int, file: Path | str = "-"
    ) -> tuple[float, str]:
        """Return the instructions of one piece of work, and the checksum of its result."""
        counts, sums = [], []
        for times in (1, 2):
            words = (self._program, set, times, what, number, file)
            done = _run(*self._emulator, *words)
            counts.append(int(done.stderr.split()[-1]))
            sums.append(done.stdout.strip())
        return (counts[1] - counts[0]) / 1e6, sums[0]

    def of_sets(
        self, what: str, number: int, file: Path | str = "-", **rivals: str
    ) -> dict[str, Any]:
        """Return the figures of each set and of the rivals, which must have the same result."""
        found = {set: self.millions(set, what, number, file) for set in self.sets}
        found |= {name: self.millions("", rival, number, file) for name, rival in rivals.items()}
        if len({checksum for _, checksum in found.values()}) > 1:
            raise SystemExit(f"{what} {number} of {file}: the results differ: {found}")
        figures = {name: bench.short(count) for name, (count, _) in found.items()}
        base = next(reversed(found))
        return {**figures, "ratio": round(found[self.sets[0]][0] / found[base][0], 2)}


def _run(*words: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*map(str, words)], check=True, capture_output=True, text=True)


@bench.command(
    json=bench.RESULTS / "instructions.json",
    limit=(3, "photos, from the smallest to the largest"),
    machines=(["aarch64", "x86_64"], "that are emulated"),
)
def main(options: Any) -> Any:
    by_size = sorted(bench.photos_in(options.photos), key=lambda path: path.stat().st_size)
    last = max(1, options.limit - 1)
    photos = [by_size[i * (len(by_size) - 1) // last] for i in range(options.limit)]
    result = {}
    for machine in options.machines:
        with tempfile.TemporaryDirectory() as folder:
            result[machine] = of_machine(Counter(machine, Path(folder)), photos, Path(folder))
        for title, rows in result[machine].items():
            bench.show(f"{machine}: {title}", rows)
    return result


def of_machine(counter: Counter, photos: Sequence[Path], folder: Path) -> dict[str, dict[str, Any]]:
    """Count everything on one machine."""
    result: dict[str, dict[str, Any]] = {}
    for photo in photos:
        with Image.open(photo) as image:
            title = f"JPEG, {image.width} x {image.height}"
            png = folder / "photo.png"
            png.write_bytes(encode(image.convert("RGB"), "png"))
        result[title] = {
            f"1/{reduce}": counter.of_sets("own", reduce, photo, libjpeg_turbo="libjpeg")
            for reduce in (1, 2, 4, 8)
        }
        result[title]["as PNG"] = counter.of_sets("png", 1, png, libpng="libpng")
    result["resize"] = {
        name: counter.of_sets("resize", number) for number, name in enumerate(_FILTERS)
    }
    result["operations"] = {
        name: counter.of_sets("operate", number) for name, number in _OPERATIONS.items()
    }
    return result


if __name__ == "__main__":
    main()
