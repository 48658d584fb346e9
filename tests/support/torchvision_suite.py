"""Runs torchvision's own tests of its datasets with `DecodeMixin` in front of every class.

    python tests/support/torchvision_suite.py CHECKOUT [PYTEST ARGUMENT ...]

`CHECKOUT` is a copy of github.com/pytorch/vision, best of the installed version. Tests of a dataset
whose library is missing are skipped: pycocotools, lmdb, scipy, h5py.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any


def pytest_configure() -> None:
    """Put the mixin in front of the classes of `torchvision.datasets`, before tests name them."""
    from torchvision import datasets

    from fastdecode.torch import DecodeMixin

    for name in datasets.__all__:
        theirs = getattr(datasets, name)
        if isinstance(theirs, type) and theirs is not datasets.VisionDataset:
            # torchvision's tests patch the functions of the module in which a class lives.
            own = {"__module__": theirs.__module__, "__qualname__": theirs.__qualname__}
            setattr(datasets, name, type(name, (DecodeMixin, theirs), own))


def run(checkout: str, *arguments: str, **options: Any) -> subprocess.CompletedProcess[str]:
    """Run the tests in a new process; the options are those of `subprocess.run`."""
    here = Path(__file__).resolve().parent
    tests = Path(checkout).resolve() / "test"
    paths = [str(here), str(here.parents[1]), *sys.path, str(tests)]
    return subprocess.run(
        [
            *(sys.executable, "-m", "pytest", "-q", "-W", "ignore", "-p", "no:cacheprovider"),
            *("-p", "torchvision_suite", "test_datasets.py", *arguments),
        ],
        cwd=tests,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))},
        text=True,
        check=False,
        **options,
    )


if __name__ == "__main__":
    sys.exit(run(*sys.argv[1:]).returncode)
