"""Make the wheels of all platforms on one machine, with the compiler of the wheel `ziglang`.

    pip install ziglang setuptools cffi
    python .ci/wheels.py [--out FOLDER] [PLATFORM ...]

Without platforms it makes all of them. They lie in `build/wheels`, and serve every Python.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

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
LIBRARIES = {"win": "libfastdecode.dll", "macosx": "libfastdecode.dylib"}
ROOT = Path(__file__).resolve().parents[1]


def main() -> None:
    """Make the wheels that the command line names."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("platforms", nargs="*", metavar="PLATFORM", help=", ".join(TARGETS))
    parser.add_argument("--out", type=Path, default=ROOT / "build" / "wheels", metavar="FOLDER")
    asked = parser.parse_args()
    if unknown := set(asked.platforms) - set(TARGETS):
        parser.error(f"unknown platforms: {', '.join(sorted(unknown))}")
    out = asked.out.resolve()
    for platform in asked.platforms or TARGETS:
        wheel = make(platform, out)
        print(f"{wheel.stat().st_size // 1024:6} KiB  {wheel.name}", flush=True)


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
        check(wheel, platform)
        out.mkdir(parents=True, exist_ok=True)
        return Path(shutil.copy(wheel, out))


def check(wheel: Path, platform: str) -> None:
    """Check that a wheel serves every Python, and holds the library of its system alone."""
    if not wheel.name.endswith(f"-py3-none-{platform}.whl"):
        raise SystemExit(f"{platform}: a wheel with another tag: {wheel.name}")
    expected = LIBRARIES.get(platform.partition("_")[0], "libfastdecode.so")
    with zipfile.ZipFile(wheel) as opened:
        names = [Path(name).name for name in opened.namelist() if "/libfastdecode." in name]
    if names != [expected]:
        raise SystemExit(f"{platform}: {names} in place of {expected}")


if __name__ == "__main__":
    main()
