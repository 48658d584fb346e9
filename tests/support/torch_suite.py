"""Runs the tests of torch's DataLoader, or of torchdata's, with `Loader` in its place.

    python tests/support/torch_suite.py CHECKOUT [PYTEST ARGUMENT ...]

`CHECKOUT` is a copy of github.com/pytorch/pytorch, best of the installed version, of which
test/test_dataloader.py is run; or of github.com/pytorch/data, of which test/stateful_dataloader is.
They need expecttest and parameterized. Each test also runs with the library's own loader: the exit
status is 1 if one fails with ours alone that is not listed here, with the reason why.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

_LOADER = "TORCH_SUITE_LOADER"
_LIMIT_S = 400
"""A test that takes longer hangs."""

OTHERWISE = {
    # test_dataloader.py
    "test_worker_init_fn": "each sample is seeded, after worker_init_fn",
    "::test_timeout$": "TimeoutError in place of RuntimeError",
    "test_invalid_ctor_args": "the errors have other words, and say what to do",
    "iterdatapipe": "a DataPipe is refused: DataLoader itself shares it among workers",
    "excessive_thread|test_iterable_style": "the warning of many workers comes with the epoch",
    "test_(get_worker_info|partial_workers|bulk_loading_nobatch)": "reads what is private",
    "test_typing": "Loader is not generic",
    # torchdata
    "GeneratorNoState": "a dataset without state_dict is not saved in the middle of an epoch",
    "NumWorkersMismatch": "a map-style dataset resumes with any number of workers",
    "OutOfOrder": "in_order=False is refused",
    "(Dynamic|Duplication|SingleIter|test_initial_state|after_initial)": "reads what is in a state",
    "test_load_then_state": "gives persistent_workers=(False,), by a slip",
    "test_init_error": "an epoch begins when its first batch is asked for",
    "Iterable2.*(test_no_mp|test_random_state)": "shares a dataset that another epoch has used up",
}
"""Tests, by a pattern of their names, that fail on purpose or look at what only theirs has."""


def put() -> None:
    """Put `Loader` in its place, in this process, before the tests name it."""
    if os.environ[_LOADER] != "fastdecode":
        return
    import torch.utils.data as torch_data

    from fastdecode.torch import Loader

    class DataLoader(Loader):
        """`Loader` with the defaults and the order of arguments of torch's."""

        def __init__(
            self,
            dataset: Any,
            batch_size: Any = 1,
            shuffle: Any = None,
            sampler: Any = None,
            batch_sampler: Any = None,
            num_workers: int = 0,
            collate_fn: Any = None,
            pin_memory: bool = False,
            drop_last: bool = False,
            *arguments: Any,
            snapshot_every_n_steps: int = 1,
            **options: Any,
        ) -> None:
            last = ("timeout", "worker_init_fn", "multiprocessing_context", "generator")
            options.update(zip(last, arguments, strict=False))
            options.update(batch_sampler=batch_sampler, num_workers=num_workers)
            options.update(collate_fn=collate_fn, pin_memory=pin_memory)
            super().__init__(dataset, batch_size, bool(shuffle), sampler, drop_last, **options)

    if not (Path(os.environ["TORCH_SUITE_CHECKOUT"]) / "torchdata").is_dir():
        torch_data.DataLoader = DataLoader  # type: ignore[misc]
        return
    import torchdata.stateful_dataloader

    torchdata.stateful_dataloader.StatefulDataLoader = DataLoader


def pytest_runtest_call(item: Any) -> None:
    """Let a test that hangs fail."""

    def fail(*_: object) -> None:
        raise TimeoutError(f"{item.nodeid} hangs")

    signal.signal(signal.SIGALRM, fail)
    signal.alarm(_LIMIT_S)


def pytest_runtest_teardown() -> None:
    """Stop the clock."""
    signal.alarm(0)


def failures(tests: list[str], folder: str, checkout: str, loader: str, *more: str) -> set[str]:
    """Run the tests in a new process, print its last line, and return the tests that fail."""
    here = Path(__file__).resolve().parent
    paths = [str(here), str(here.parents[1]), *sys.path, checkout]
    told = subprocess.run(
        [
            *(sys.executable, "-m", "pytest", "-q", "-rfE", "--tb=line", "-W", "ignore"),
            *("-p", "no:cacheprovider", "-p", "torch_suite", *tests, *more),
        ],
        cwd=folder,
        env={
            **os.environ,
            "PYTHONPATH": os.pathsep.join(filter(None, paths)),
            _LOADER: loader,
            "TORCH_SUITE_CHECKOUT": checkout,
        },
        text=True,
        stdout=subprocess.PIPE,
        check=False,
    ).stdout.splitlines()
    sys.stdout.write("\n".join(told[-200:]) + "\n" if os.environ.get("TORCH_SUITE_TELL") else "")
    sys.stdout.write(f"{loader}: {told[-1]}\n")
    marked = (line for line in told if re.match(r"FAILED|ERROR|SUBFAIL", line))
    return {word for line in marked for word in line.split() if "::" in word}


def main(checkout: str, *arguments: str) -> int:
    """Run the tests with both, and list those that fail with ours alone."""
    checkout = str(Path(checkout).resolve())
    found = sorted(Path(checkout).glob("test/test_dataloader.py")) or [
        Path(checkout) / "test" / "stateful_dataloader" / f"test_{name}.py"
        for name in ("state_dict", "sampler")
    ]
    with tempfile.TemporaryDirectory() as folder:
        for file in found:  # processes that the tests start import the file again
            text = "import torch_suite; torch_suite.put()\n" + file.read_text()
            (Path(folder) / file.name).write_text(text)
        names = [file.name for file in found]
        theirs, ours = (
            failures(names, folder, checkout, one, *arguments) for one in ("torch", "fastdecode")
        )
    wrong = 0
    for test in sorted(ours - theirs):
        why = next((why for name, why in OTHERWISE.items() if re.search(name, test)), "")
        wrong += not why
        sys.stdout.write(f"only with ours: {test}{f' ({why})' * bool(why)}\n")
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
