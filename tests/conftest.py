"""Fixtures and hooks for all tests, among them the check for backends that must not be skipped."""

from __future__ import annotations

import gc
import importlib.util
import multiprocessing
import os
import signal
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from random import SystemRandom
from typing import Any

import cases
import pytest
from corpus import LIBRARIES, REQUIRED, usable_backends
from hypothesis import settings

from fastdecode._backends import registry


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options that say which cases are tried, and one that writes the golden texts anew."""
    group = parser.getgroup("fastdecode")
    group.addoption("--all", action="store_true", help="try every case of each test")
    group.addoption("--seed", type=int, help="try the cases that this number draws")
    group.addoption("--regenerate", action="store_true", help="write the golden texts anew")


def pytest_configure(config: pytest.Config) -> None:
    """Draw a seed, which the processes of pytest-xdist share, and which hypothesis uses, too."""
    if config.option.seed is None:
        shared = getattr(config, "workerinput", {})
        config.option.seed = shared.get("seed") or SystemRandom().randrange(1, 1 << 32)
    if config.option.hypothesis_seed is None:
        config.option.hypothesis_seed = config.option.seed
    cases.Run.every, cases.Run.seed = config.option.all, config.option.seed
    settings.register_profile("some", max_examples=cases.examples(100), deadline=None)
    settings.load_profile("some")
    # Most tests' datasets hold functions, which only a forked process has. Since 3.14 it is not the
    # default; what other processes do, tests ask for by name.
    if sys.platform == "linux":
        multiprocessing.set_start_method("fork", force=True)
    # Shells ignore SIGINT in background jobs; processes that tests start need it.
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """Give a process of pytest-xdist the seed."""
    node.workerinput["seed"] = cases.Run.seed


def pytest_report_header(config: pytest.Config) -> str:
    """Say which cases are tried, and how to try them again."""
    which = "every case" if cases.Run.every else "some cases (--all: every one)"
    return f"{which} of each test; the same again with --seed {cases.Run.seed}"


@pytest.hookimpl(trylast=True)  # after -k and the like
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out the cases that this run does not try; those that were asked for by name are."""
    by_name = getattr(config.option, "lf", False) or any("[" in name for name in config.args)
    if config.option.all or by_name:
        return
    kept = cases.chosen(items)
    config.hook.pytest_deselected(items=[item for item in items if item not in kept])
    items[:] = [item for item in items if item in kept]


def pytest_collection_finish() -> None:
    """Exclude the objects that exist by now from every later `gc.collect()`, for speed."""
    gc.collect()
    if hasattr(gc, "freeze"):  # not in PyPy
        gc.freeze()


def pytest_sessionstart(session: pytest.Session) -> None:
    """End the run at once if a required backend or library is missing."""
    required = [name for name in os.environ.get(REQUIRED, "").split(",") if name]
    missing = sorted(set(required) - set(usable_backends()))
    if missing:
        pytest.exit(f"{REQUIRED} lists {', '.join(missing)}, which cannot be used here", 3)
    for name in filter(None, os.environ.get(LIBRARIES, "").split(",")):
        if importlib.util.find_spec(name) is None:
            pytest.exit(f"{LIBRARIES} lists {name}, which is not installed", 3)


_NEEDS = {"torch": "torch", "gpu": "torch", "ray": "ray.data"}
"""The library that all tests of a folder need."""


def pytest_pycollect_makemodule(module_path: Path) -> None:
    """Skip folders whose library is missing before their modules import it."""
    if module_path.parent.name in _NEEDS:
        pytest.importorskip(_NEEDS[module_path.parent.name])


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    """Print how many tests were skipped for which reason, and how to repeat a run that failed."""
    reasons: Counter[str] = Counter()
    for report in terminalreporter.stats.get("skipped", ()):
        place = report.longrepr if isinstance(report.longrepr, tuple) else ("", 0, report.longrepr)
        reasons[str(place[2]).removeprefix("Skipped: ")] += 1
    if reasons:
        terminalreporter.section("reasons of skips")
    for reason, times in reasons.most_common():
        terminalreporter.line(f"{times:6,}  {reason.splitlines()[0]}")
    if terminalreporter.stats.keys() & {"failed", "error"}:
        terminalreporter.section(pytest_report_header(config))


@pytest.fixture(autouse=True)
def _environment(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Remove the caller's settings from the environment, and those of the previous test."""
    names = {"FASTDECODE_BACKEND", "FASTDECODE_DISABLE"}
    for name in names:
        monkeypatch.delenv(name, raising=False)
    yield
    if names & os.environ.keys():
        registry.generation += 1  # invalidates cached choices that depend on them


@pytest.fixture
def golden(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return a function that compares a text with one in the folder `golden`, at 80 columns."""
    monkeypatch.setenv("COLUMNS", "80")

    def check(name: str, text: str) -> None:
        place = request.path.parent / "golden" / name
        if request.config.getoption("--regenerate"):
            place.write_text(text, encoding="utf-8")
        assert text == place.read_text(encoding="utf-8")

    return check


@pytest.fixture(autouse=True)
def _patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """Give threads more time to end on a busy machine; tests of the timeout set their own."""
    if "fastdecode.torch.prefetcher" in sys.modules:
        monkeypatch.setattr("fastdecode.torch.prefetcher._PATIENCE_S", 60.0)
