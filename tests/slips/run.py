"""Try whether the tests notice slips: faults of one line, each put into a copy of the package.

    python tests/slips/run.py                       # all of them: half an hour on two cores
    python tests/slips/run.py --only headers        # those of a file, or one by its name
    python tests/slips/run.py --sample 10 --seed S  # ten, drawn by a seed
    python tests/slips/run.py --find                # only check that each is found; run no test

The slips are data, in the TOML files beside this script. A slip has a `name`, the `fault` in words,
a snippet `old` of the package, the `new` one that replaces it, and the `tests` that should notice.
`old` must occur exactly once in the Python and C files of the package, in whichever file: so code
can move, but who changes such a line, or moves tests, changes the slip too. Another field, `lives`,
says what would have to be tested, where no test notices the slip yet.

The exit status is 1 if a slip lives unexpectedly, is not found exactly once, or cannot be tried.
The tests' default run is tried first, and those that notice nothing again with `--all`.
Run it in an environment with all optional libraries: tests that are skipped notice nothing. A slip
whose tests are all skipped, for want of a library, is reported and not counted.
"""

from __future__ import annotations

import argparse
import os
import queue
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib  # pytest depends on it

FOLDER = Path(__file__).resolve().parent
ROOT = FOLDER.parents[1]
NOT_COPIED = (".git", ".venv*", ".*_cache", ".hypothesis", "__pycache__", "build", "*.egg-info")
SETTINGS = ("FASTDECODE_", "PYTEST_", "PYTHONPATH")  # those of the caller do not apply
NO_BYTECODE = "PYTHONDONTWRITEBYTECODE"
EVERY = "--all"  # tries every case of each test
WITH_ALL = f", only with {EVERY}"
TIMEOUT_S = 300
CULPRIT = re.compile(r"^(?:FAILED|ERROR) (.+?)(?: - .*)?$", re.MULTILINE)


class Slip(NamedTuple):
    """One fault, and the tests that should notice it."""

    topic: str  # the name of its TOML file
    name: str
    fault: str
    old: str
    new: str
    tests: list[str]
    lives: str = ""


class Outcome(NamedTuple):
    """What became of a slip: "noticed" or "lived"; "skipped" and "broken" ones were not tried."""

    slip: Slip
    status: str
    details: str  # the first test that failed, or what went wrong
    seconds: float


def read_slips() -> list[Slip]:
    """Read all slips, and check that they are well-formed."""
    slips = [
        Slip(path.stem, **fields)
        for path in sorted(FOLDER.glob("*.toml"))
        for fields in tomllib.loads(path.read_text(encoding="utf-8"))["slip"]
    ]
    twice = [name for name, count in Counter(slip.name for slip in slips).items() if count > 1]
    if twice:
        sys.exit(f"these names are used twice: {', '.join(twice)}")
    return slips


def read_package(root: Path) -> dict[Path, str]:
    """Read all Python and C files of the package."""
    found = [
        path for path in (root / "fastdecode").rglob("*") if path.suffix in (".py", ".c", ".h")
    ]
    return {path: path.read_text(encoding="utf-8") for path in sorted(found)}


def problem_with(slip: Slip, package: dict[Path, str]) -> str:
    """Say why a slip cannot be tried; empty if it can."""
    places = {path: text.count(slip.old) for path, text in package.items() if slip.old in text}
    missing = [test for test in slip.tests if not (ROOT / test).exists()]
    if missing:
        return f"there is no {', no '.join(missing)}"
    if sum(places.values()) != 1:
        among = f": {', '.join(str(path.relative_to(ROOT)) for path in places)}" if places else ""
        return f"its snippet is found {sum(places.values())} times{among}"
    return "" if slip.old != slip.new else "it changes nothing"


class Copy:
    """A copy of the repository, into which one slip after another is put."""

    def __init__(self, root: Path) -> None:
        self._root = root / "tree"
        shutil.copytree(ROOT, self._root, ignore=shutil.ignore_patterns(*NOT_COPIED))
        self._package = read_package(self._root)
        self._cores = {path: path.read_bytes() for path in self._root.rglob("libfastdecode.*")}
        temporary = root / "tmp"
        temporary.mkdir()
        kept = {k: v for k, v in os.environ.items() if not k.startswith(SETTINGS)}
        kept.pop(NO_BYTECODE, None)  # the tests start hundreds of interpreters
        # Processes that tests start import the copy, too.
        self._environment = {**kept, "PYTHONPATH": str(self._root), "TMPDIR": str(temporary)}
        self._edits = 0
        self._check_import()

    def try_slip(self, slip: Slip) -> Outcome:
        """Put a slip in, run its tests, and take it out again."""
        begun = time.monotonic()
        path = next(path for path, text in self._package.items() if slip.old in text)
        original = self._package[path]
        try:
            self._write(path, original.replace(slip.old, slip.new))
            status, details = self._build() if path.suffix in (".c", ".h") else ("", "")
            if not status:
                status, details = self.run_tests(slip.tests)
        finally:
            self._write(path, original)
            for core, content in self._cores.items():
                core.unlink(missing_ok=True)  # a process that still runs keeps the one it has
                core.write_bytes(content)
        return Outcome(slip, status, details, time.monotonic() - begun)

    def run_tests(self, tests: Sequence[str]) -> tuple[str, str]:
        """Run files of tests up to the first failure; return a status and details."""
        status, details = self._run_cases(tests)
        if status == "lived":
            status, details = self._run_cases((EVERY, *tests))
            details += WITH_ALL if status == "noticed" else ""
        return status, details

    def _run_cases(self, arguments: Sequence[str]) -> tuple[str, str]:
        command = ("-m", "pytest", "-q", "-x", "--tb=no", "-p", "no:cacheprovider", *arguments)
        status, printed = self._run(command)
        culprit = CULPRIT.search(printed)
        if status == 0:
            return "lived", ""
        if status is None:
            return "noticed", f"by a timeout of {TIMEOUT_S} s"
        if status < 0:
            return "noticed", f"by signal {-status}"
        if status in (1, 2) and culprit:  # 2: a module of tests cannot be imported any more
            return "noticed", f"by {culprit[1]}"
        if status == 5:  # no test ran
            return "skipped", f"its tests need what is missing here: {_last_line(printed)}"
        return "broken", f"pytest ended with status {status}: {_last_line(printed)}"

    def _check_import(self) -> None:
        program = "import fastdecode; print(fastdecode.__file__)"
        place = self._run(("-c", program), folder=self._root.parent)[1]
        if not place.startswith(str(self._root)):
            sys.exit(f"the tests would import {place.strip()} instead of {self._root}")

    def _write(self, path: Path, text: str) -> None:
        path.write_text(text, encoding="utf-8")
        # Bytecode is valid for a time in whole seconds: each version must have one of its own.
        self._edits += 1
        os.utime(path, (self._edits, self._edits))

    def _build(self) -> tuple[str, str]:
        status, printed = self._run(("setup.py", "-q", "build_core", "--inplace"))
        return ("broken", f"it does not compile: {_last_line(printed)}") if status else ("", "")

    def _run(
        self, arguments: Sequence[str], *, folder: Path | None = None, **variables: str
    ) -> tuple[int | None, str]:
        """Run Python; return the exit status, None after a timeout, and what it printed."""
        with tempfile.TemporaryFile("w+", errors="replace") as printed:
            process = subprocess.Popen(
                [sys.executable, *arguments],
                cwd=folder or self._root,
                env={**self._environment, **variables},
                stdin=subprocess.DEVNULL,
                stdout=printed,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
            try:
                status = process.wait(TIMEOUT_S)
            except subprocess.TimeoutExpired:
                status = None
            finally:
                with suppress(ProcessLookupError):  # of what is left of its session
                    os.killpg(process.pid, signal.SIGKILL)
                process.wait()
            printed.seek(0)
            return status, printed.read()


def _last_line(printed: str) -> str:
    return (printed.strip().splitlines() or [""])[-1]


def try_all(slips: Sequence[Slip], *, parallel: int) -> Iterator[Outcome]:
    """Try slips in copies of the repository, and yield each outcome when it is known."""
    copies: queue.SimpleQueue[Copy] = queue.SimpleQueue()

    def work(slip: Slip) -> Outcome:
        copy = copies.get()
        try:
            return copy.try_slip(slip)
        finally:
            copies.put(copy)

    with tempfile.TemporaryDirectory(prefix="slips-", ignore_cleanup_errors=True) as folder:
        for number in range(parallel):
            copies.put(Copy(Path(folder, str(number))))
        with ThreadPoolExecutor(parallel) as threads:
            futures = [threads.submit(work, slip) for slip in slips]
            try:
                for future in as_completed(futures):
                    yield future.result()
            finally:
                threads.shutdown(cancel_futures=True)


def choose(slips: list[Slip], options: argparse.Namespace) -> list[Slip]:
    """Return the slips to try: those named, a sample of those that should be noticed, or all."""
    if options.only:
        unknown = {*options.only} - {name for slip in slips for name in (slip.name, slip.topic)}
        if unknown:
            sys.exit(f"there is no slip or file of slips {', '.join(sorted(unknown))}")
        return [slip for slip in slips if {slip.name, slip.topic} & {*options.only}]
    if options.sample:
        print(f"a sample of {options.sample} slips, drawn by --seed {options.seed}")
        slips = [slip for slip in slips if not slip.lives]
        return random.Random(options.seed).sample(slips, min(options.sample, len(slips)))
    return slips


def report(outcomes: Sequence[Outcome]) -> bool:
    """Print counts by topic, and slips that lived unexpectedly; return whether there are none."""
    print()
    for topic in sorted({outcome.slip.topic for outcome in outcomes}):
        counts = Counter(each.status for each in outcomes if each.slip.topic == topic)
        print(f"{topic:12}", ", ".join(f"{n} {status}" for status, n in sorted(counts.items())))
    noticed = sum(outcome.status == "noticed" for outcome in outcomes)
    late = sum(outcome.details.endswith(WITH_ALL) for outcome in outcomes)
    print(f"{noticed} of {len(outcomes)} slips were noticed, {late} of them{WITH_ALL[1:]}")
    good = ("noticed", "skipped")
    bad = [each for each in outcomes if each.status not in good and not each.slip.lives]
    for outcome in bad:
        slip = outcome.slip
        print(f"\n{outcome.status}: {slip.name} ({slip.topic}): {slip.fault} {outcome.details}")
        print(f"  tests: {' '.join(slip.tests)}")
    return not bad


def parse() -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--only", nargs="+", metavar="NAME", help="slips, or TOML files without their suffix")
    add("--sample", type=int, metavar="N", help="try N of the slips that should be noticed")
    add("--seed", default="0", metavar="S", help="any text; determines the sample")
    add("--find", action="store_true", help="only check that each slip is found")
    add("--parallel", type=int, default=2, metavar="N", help="how many slips at a time (2)")
    return parser.parse_args()


def main() -> int:
    """Try slips, and return the exit status."""
    options = parse()
    slips, package = read_slips(), read_package(ROOT)
    problems = {slip.name: words for slip in slips if (words := problem_with(slip, package))}
    for name, words in problems.items():
        print(f"lost: {name}: {words}")
    if options.find:
        print(f"{len(slips) - len(problems)} of {len(slips)} slips are found")
        return int(bool(problems))
    chosen = [slip for slip in choose(slips, options) if slip.name not in problems]
    outcomes = []
    for each in try_all(chosen, parallel=options.parallel):
        outcomes.append(each)
        words = f"{each.status} {each.details}".strip()
        print(f"{each.seconds:4.0f} s  {each.slip.topic}: {each.slip.name}: {words}", flush=True)
    good = report(outcomes)
    return int(not good or bool(problems))


if __name__ == "__main__":
    sys.exit(main())
