"""Make the wheels of all platforms on one machine, with the compiler of the wheel `ziglang`.

    pip install ziglang "setuptools>=70.1" cffi
    python .ci/wheels.py [--out FOLDER] [PLATFORM ...]

Without platforms it makes all of them. They lie in `build/wheels`, and serve every Python. What is
in each is checked: the only library, for that processor and system, no newer than the tag says.
The first time takes minutes, most of them for Windows, whose C library is compiled too; what was
compiled stays in ZIG_GLOBAL_CACHE_DIR. `tests/native/elsewhere.py` runs them.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Iterator
from pathlib import Path
from struct import unpack_from

TARGETS = {
    "manylinux2014_x86_64": "x86_64-linux-gnu.2.17",
    "manylinux2014_aarch64": "aarch64-linux-gnu.2.17",
    "musllinux_1_2_x86_64": "x86_64-linux-musl",
    "musllinux_1_2_aarch64": "aarch64-linux-musl",
    "macosx_11_0_x86_64": "x86_64-macos.11.0",
    "macosx_11_0_arm64": "aarch64-macos.11.0",
    "win_amd64": "x86_64-windows-gnu",
    "win_arm64": "aarch64-windows-gnu",
}
"""zig's target by the wheel's tag."""
ROOT = Path(__file__).resolve().parents[1]


def main() -> None:
    """Make the wheels that the command line names."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("platforms", nargs="*", metavar="PLATFORM", help=", ".join(TARGETS))
    parser.add_argument("--out", type=Path, default=ROOT / "build" / "wheels", metavar="FOLDER")
    asked = parser.parse_args()
    if unknown := set(asked.platforms) - set(TARGETS):
        parser.error(f"unknown platforms: {', '.join(sorted(unknown))}")
    for platform in asked.platforms or TARGETS:
        began = time.monotonic()
        wheel = make(platform, asked.out.resolve())
        seconds = time.monotonic() - began
        print(f"{wheel.stat().st_size / 1024:6.0f} KiB {seconds:5.0f} s  {wheel.name}", flush=True)


def make(platform: str, out: Path) -> Path:
    """Make the wheel of one platform."""
    compiler = f"{sys.executable} -m ziglang cc -target {TARGETS[platform]}"
    with tempfile.TemporaryDirectory() as work:
        # In a copy: setuptools leaves its own files in the folder of setup.py.
        tree = Path(work, "tree")
        shutil.copytree(
            ROOT,
            tree,
            ignore=shutil.ignore_patterns(
                *(".*", "build", "dist", "tests", "__pycache__", "*.egg-info"),
                *("_core.py", "libfastdecode.*"),
            ),
        )
        command = [sys.executable, "setup.py", "-q", "bdist_wheel"]
        command += ["--plat-name", platform, "--dist-dir", str(Path(work, "made"))]
        done = subprocess.run(
            command,
            cwd=tree,
            env=os.environ | {"CC": compiler},
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            raise SystemExit(f"{platform}: no wheel\n{done.stdout}{done.stderr}")
        (wheel,) = Path(work, "made").iterdir()
        if faults := list(complaints(wheel, platform)):
            raise SystemExit(f"{wheel.name}: {'; '.join(faults)}")
        out.mkdir(parents=True, exist_ok=True)
        return Path(shutil.copy(wheel, out))


def complaints(wheel: Path, platform: str) -> Iterator[str]:
    """Say what is wrong with a wheel: its tag, or what it holds beside Python's files and data."""
    system, _, rest = platform.partition("_")
    if not wheel.name.endswith(f"-py3-none-{platform}.whl"):
        yield "another tag"
    suffix = {"win": "dll", "macosx": "dylib"}.get(system, "so")
    with zipfile.ZipFile(wheel) as opened:
        native = [file for file in opened.namelist() if "/native/" in file and file[-3:] != ".py"]
        if native != [f"fastdecode/native/libfastdecode.{suffix}"]:
            yield f"{native} in place of a library"
            return
        library = opened.read(native[0])
    is_arm = rest.endswith(("arm64", "aarch64"))
    if suffix == "dll":
        yield from pe_complaints(library, is_arm=is_arm)
    elif suffix == "dylib":
        yield from macho_complaints(library, is_arm=is_arm)
    else:
        yield from elf_complaints(library, is_arm=is_arm, is_musl=system == "musllinux")


def elf_complaints(library: bytes, *, is_arm: bool, is_musl: bool) -> Iterator[str]:
    """Read the header, and the versions of glibc's functions, which are names in the file."""
    if library[:6] != b"\x7fELF\x02\x01" or unpack_from("<H", library, 18)[0] != (
        183 if is_arm else 62
    ):
        yield "not for this processor"
    versions = {tuple(map(int, v.split(b"."))) for v in re.findall(rb"\0GLIBC_([\d.]+)", library)}
    allowed = not versions if is_musl else (2, 2) <= max(versions, default=()) <= (2, 17)
    if not allowed:
        yield f"needs glibc {sorted(versions)}"
    if b".symtab\0" in library or b".debug_" in library:
        yield "not stripped"


def macho_complaints(library: bytes, *, is_arm: bool) -> Iterator[str]:
    """Read the header and the load commands: the oldest macOS, and a signature, which ARM wants."""
    magic, processor, _, kind, count = unpack_from("<5I", library)
    if (magic, processor, kind) != (0xFEEDFACF, 0x0100000C if is_arm else 0x01000007, 6):
        yield "no library for this processor"
        return
    commands, at, name = {}, 32, b""
    for _ in range(count):
        command, size, *words = unpack_from("<5I", library, at)
        if command == 0xD:  # LC_ID_DYLIB
            name = library[at + words[0] : at + size].rstrip(b"\0")
        commands[command], at = words, at + size
    if name != b"@rpath/libfastdecode.dylib":
        yield f"calls itself {name.decode()}"
    if commands[0x32][:2] != [1, 11 << 16]:  # LC_BUILD_VERSION
        yield "not for macOS 11.0"
    signature = commands.get(0x1D)  # LC_CODE_SIGNATURE: where it is, and its length
    if is_arm and (signature is None or library[signature[0] :][:4] != b"\xfa\xde\x0c\xc0"):
        yield "not signed"


def pe_complaints(library: bytes, *, is_arm: bool) -> Iterator[str]:
    """Read the header, and the names of other libraries: Python must have the same C library."""
    at = unpack_from("<I", library, 0x3C)[0]
    if library[:2] != b"MZ" or library[at : at + 6] != b"PE\0\0" + (
        b"\x64\xaa" if is_arm else b"\x64\x86"
    ):
        yield "not for this processor"
    needed = {name.lower() for name in re.findall(rb"[\w.-]+\.dll(?=\0)", library)}
    known = {b"kernel32.dll", b"kernelbase.dll", b"libfastdecode.dll"}
    if others := {name for name in needed - known if not name.startswith(b"api-ms-win-crt-")}:
        yield f"needs {sorted(others)}"


if __name__ == "__main__":
    main()
