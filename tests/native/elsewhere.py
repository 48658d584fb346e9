"""Run the core on other systems and processors, by emulation: it must give the same as here.

    python tests/native/elsewhere.py [--wheels FOLDER] [PLATFORM ...]

Three programs in C tell. On every platform `same.c`, of files, and `fuzz_program.c`, of
augmentations and resizes, print the checksum that they print here, where other libraries are
judges (`check.sh`); `pool.c` reads files in threads, and compares what they make. Where there is a
wheel, which is made if it is not in the folder, the programs call its library; elsewhere the core
is a part of them. Zig compiles them all, but for this machine, whose own compiler does.

Needs the wheels `ziglang`, `pillow` and `pytest`; gcc and libjpeg-turbo's headers; and on Debian
for x86-64 qemu-user-static, wine64, musl and, after ``dpkg --add-architecture arm64``, libc6:arm64
and musl:arm64.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
NATIVE = ROOT / "fastdecode" / "native"
sys.path[:0] = [str(at) for at in (HERE.parent / "support", NATIVE, ROOT / ".ci", ROOT)]
import _build  # noqa: E402
import pngs  # noqa: E402
import wheels  # noqa: E402


@dataclass(frozen=True)
class Platform:
    """zig's target, what runs programs, whether a wheel is made for it, and what is left out."""

    target: str
    emulator: tuple[str, ...] = ()
    wheel: bool = False
    flags: tuple[str, ...] = ()
    without: str = ""


def _wheel(tag: str, *emulator: str) -> dict[str, Platform]:
    return {tag: Platform(wheels.TARGETS[tag], emulator, wheel=True)}


PLATFORMS = {
    **_wheel("manylinux2014_x86_64"),
    **_wheel("manylinux2014_aarch64", "qemu-aarch64-static"),
    **_wheel("musllinux_1_2_x86_64"),
    **_wheel("musllinux_1_2_aarch64", "qemu-aarch64-static"),
    **_wheel("win_amd64", "/usr/lib/wine/wine64"),
    # Big-endian; there the core leaves PNGs to others.
    "s390x": Platform(
        "s390x-linux-musl", ("qemu-s390x-static",), flags=("-static",), without="PNG"
    ),
    "any": Platform("", flags=("-DSIMD_ANY",)),  # this machine, in vectors that any processor has
}
_ENOUGH = 400  # random programs of augmentations
_MADE = 40  # JPEGs of each kind


def main() -> None:
    """Test the platforms that the command line names."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("platforms", nargs="*", metavar="PLATFORM", help=", ".join(PLATFORMS))
    parser.add_argument("--wheels", type=Path, default=ROOT / "build" / "wheels", metavar="FOLDER")
    asked = parser.parse_args()
    if unknown := set(asked.platforms) - set(PLATFORMS):
        parser.error(f"unknown platforms: {', '.join(sorted(unknown))}")
    failed = []
    with tempfile.TemporaryDirectory() as work:
        objects = core(Platform(""), Path(work, "core"))
        files = make_files(Path(work, "files"), objects)
        expected = results(Platform(""), Path(work, "here"), files, objects)
        print("here:", *expected.values(), sep="\n  ", flush=True)
        for name in asked.platforms or PLATFORMS:
            began = time.monotonic()
            try:
                platform, into = PLATFORMS[name], Path(work, f"core {name}")
                made = unpack(name, asked.wheels, into) if platform.wheel else core(platform, into)
                found = results(platform, Path(work, name), files, made)
            except subprocess.SubprocessError as error:
                found = {"failed": f"{str(error)[:300]}\n{error.stdout}\n{error.stderr}"}
            same = found == {k: v for k, v in expected.items() if k != platform.without}
            says = "the same" if same else "\n  ".join(["something else:", *found.values()])
            print(f"{name}, {time.monotonic() - began:.0f} s: {says}", flush=True)
            failed += [] if same else [name]
    if failed:
        raise SystemExit(f"other results, or none: {', '.join(failed)}")


def make_files(folder: Path, objects: Sequence[Path]) -> list[str]:
    """Make files of every kind that the core decodes, and some that it refuses; return names."""
    folder.mkdir()
    judged = [HERE / "own.c", HERE / "judge.c"]
    run(*compiler(Platform("")), *objects, *judged, "-ljpeg", "-lm", "-o", folder / "own")
    run(folder / "own", _MADE, KEEP=folder)
    draw = random.Random(5)
    for kind in pngs.SAMPLES:
        for bits in (1, 2, 4, 8, 16):
            for width in (1, 5, 60):
                png = pngs.made(width, 31, kind, bits, draw, level=draw.choice((0, 1, 9)))
                Path(folder, f"{kind}_{bits}_{width}.png").write_bytes(png)
    for file in (ROOT / "tests" / "data" / "jpeg_kinds").glob("gen_4*.jpg"):
        shutil.copy(file, folder)
    return sorted(path.name for path in folder.iterdir() if path.suffix in (".jpg", ".png"))


def unpack(tag: str, folder: Path, into: Path) -> list[Path]:
    """Return the library of a platform's wheel, which is made if there is none."""
    wheel = next(folder.glob(f"*-{tag}.whl"), None) or wheels.make(tag, folder)
    with zipfile.ZipFile(wheel) as opened:
        (name,) = (name for name in opened.namelist() if "/libfastdecode." in name)
        return [Path(opened.extract(name, into))]


def results(
    platform: Platform, work: Path, files: Sequence[str], made: Sequence[Path]
) -> dict[str, str]:
    """Compile the three programs with a core or its library, and run them; return their words."""
    work.mkdir()
    rest = [Path(shutil.copy(path, work)) for path in made]
    flags = [f"-Wl,-rpath,{work}"] if rest[0].suffix == ".so" else []
    for file in files:
        os.link(work.parent / "files" / file, work / file)
    printed = {}
    for what, source, words in (
        ("JPEG", "same.c", [name for name in files if name.endswith(".jpg")]),
        ("PNG", "same.c", [name for name in files if name.endswith(".png")]),
        ("augmentations", "fuzz_program.c", [str(_ENOUGH)]),
        ("threads", "pool.c", [name for name in files if name.startswith("gen_")]),
    ):
        if what == platform.without:
            continue
        program = work / f"{source[:-2]}.exe"  # a name for Windows and all others
        run(*compiler(platform), "-DALONE", HERE / source, *rest, *flags, "-lm", "-o", program)
        # Wine keeps its settings, which take long to make, in a folder of its own.
        prefix = work.parent / "wine"
        done = run(
            *platform.emulator, program, *words, cwd=work, WINEPREFIX=prefix, WINEDEBUG="-all"
        )
        printed[what] = done.stdout.strip()
    return printed


def compiler(platform: Platform) -> list[str]:
    """Return the command, with the flags that the core is built with."""
    flags = [*_build._COMPILING, *_build._SPEED, *platform.flags]
    if not platform.target:
        return ["gcc", *flags]
    zig = [sys.executable, "-m", "ziglang", "cc", "-target", platform.target]
    return [*zig, *_build._ZIG_SPEED, *flags]


def core(platform: Platform, folder: Path) -> list[Path]:
    """Compile the core into a new folder; return its objects."""
    folder.mkdir()
    run(*compiler(platform), "-c", *_build.SOURCES, cwd=folder)
    return sorted(folder.glob("*.o"))


def run(
    *command: object, cwd: Path | None = None, **variables: object
) -> subprocess.CompletedProcess[str]:
    """Run a program that must succeed."""
    return subprocess.run(
        [str(word) for word in command],
        cwd=cwd,
        env=os.environ | {name: str(value) for name, value in variables.items()},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        check=True,
        text=True,
        timeout=600,
    )


if __name__ == "__main__":
    main()
