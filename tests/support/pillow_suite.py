"""Runs Pillow's own tests with `fastdecode.open` in the place of `PIL.Image.open`.

    python tests/support/pillow_suite.py CHECKOUT [PYTEST ARGUMENT ...]

`CHECKOUT` is a copy of github.com/python-pillow/Pillow, best of the installed version. Without
arguments all tests run that open JPEG or PNG files, or test what images can do. They also run with
Pillow's own `open`: the exit status is 1 if a test fails with ours that passes with Pillow's.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

_OPENER = "PILLOW_SUITE_OPEN"
_FILES = (
    *("test_file_jpeg.py", "test_file_png.py", "test_file_apng.py", "test_file_mpo.py"),
    *("test_image.py", "test_image_load.py", "test_image_thumbnail.py", "test_image_draft.py"),
    *("test_image_convert.py", "test_image_copy.py", "test_image_crop.py", "test_image_resize.py"),
    *("test_image_transpose.py", "test_image_reduce.py", "test_image_array.py", "test_numpy.py"),
    *("test_imageops.py", "test_imagefile.py", "test_pickle.py", "test_shell_injection.py"),
    *("test_image_access.py", "test_decompression_bomb.py", "test_image_getextrema.py"),
)


def pytest_configure() -> None:
    """Put `open` in its place before any test names it."""
    if os.environ[_OPENER] == "fastdecode":
        from PIL import Image

        import fastdecode

        Image.open = fastdecode.open


def failures(checkout: str, opener: str, *arguments: str) -> set[str]:
    """Run the tests in a new process, print its last line, and return the tests that fail."""
    here = Path(__file__).resolve().parent
    paths = os.pathsep.join(filter(None, [str(here), str(here.parents[1]), *sys.path]))
    told = subprocess.run(
        [
            *(sys.executable, "-m", "pytest", "-q", "-rfE", "--tb=no", "-p", "no:cacheprovider"),
            *("-p", "pillow_suite"),
            *(arguments or [f"Tests/{name}" for name in _FILES]),
        ],
        cwd=checkout,
        env={**os.environ, "PYTHONPATH": paths, _OPENER: opener},
        text=True,
        stdout=subprocess.PIPE,
        check=False,
    ).stdout.splitlines()
    sys.stdout.write(f"{opener}: {told[-1]}\n")
    marked = (line.split() for line in told if line.startswith(("FAILED ", "ERROR ")))
    return {words[1] for words in marked}


def main(checkout: str, *arguments: str) -> int:
    """Run the tests with both, and list those that fail with ours alone."""
    theirs, ours = (failures(checkout, one, *arguments) for one in ("pillow", "fastdecode"))
    sys.stdout.writelines(f"only with ours: {test}\n" for test in sorted(ours - theirs))
    return int(bool(ours - theirs))


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
