"""Runs Pillow's own tests with `fastdecode.open` in the place of `PIL.Image.open`.

    python tests/support/pillow_suite.py CHECKOUT [PYTEST ARGUMENT ...]

`CHECKOUT` is a copy of github.com/python-pillow/Pillow, best of the installed version. Without
arguments its tests of JPEG and PNG files run, and of what images can do. `PILLOW_SUITE_OPEN=pillow`
leaves Pillow's `open` in place, to see which tests fail with the installed version anyway.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

_FILES = (
    *("test_file_jpeg.py", "test_file_png.py", "test_file_apng.py", "test_file_mpo.py"),
    *("test_image.py", "test_image_load.py", "test_image_thumbnail.py", "test_image_draft.py"),
    *("test_image_convert.py", "test_image_copy.py", "test_image_crop.py", "test_image_resize.py"),
    *("test_image_transpose.py", "test_image_reduce.py", "test_image_array.py", "test_numpy.py"),
    *("test_imageops.py", "test_imagefile.py", "test_pickle.py", "test_shell_injection.py"),
    *("test_image_access.py", "test_decompression_bomb.py", "test_image_getextrema.py"),
)
_INTERNAL: dict[str, str] = {}
"""Tests of Pillow's internals, and why they cannot pass."""


def pytest_configure() -> None:
    """Put `open` in its place before any test names it."""
    import fastdecode

    if os.environ.get("PILLOW_SUITE_OPEN") != "pillow":
        from PIL import Image

        Image.open = fastdecode.open  # type: ignore[assignment]


def run(checkout: str, *arguments: str) -> int:
    """Run the tests in a new process, and return its exit status."""
    here = Path(__file__).resolve().parent
    paths = [str(here), str(here.parents[1]), *sys.path]
    left_out = [part for name in _INTERNAL for part in ("--deselect", f"Tests/{name}")]
    command = [
        *(sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "pillow_suite"),
        *left_out,
        *(arguments or [f"Tests/{name}" for name in _FILES]),
    ]
    paths_together = os.pathsep.join(filter(None, paths))
    environment = {**os.environ, "PYTHONPATH": paths_together}
    return subprocess.run(command, cwd=checkout, env=environment, check=False).returncode


if __name__ == "__main__":
    sys.exit(run(*sys.argv[1:]))
