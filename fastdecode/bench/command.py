"""``python -m fastdecode.bench``: how fast every decoder is here, on the user's own images."""

from __future__ import annotations

import argparse
import datetime as dt
import importlib.util
import sys
from collections.abc import Sequence
from contextlib import redirect_stdout
from dataclasses import replace
from typing import TYPE_CHECKING

import fastdecode
from fastdecode import outfile, preference, selection
from fastdecode.bench import answer, files, html, on_device_run, report, run
from fastdecode.bench.kept import merged, ranking_of
from fastdecode.bench.machine import machine
from fastdecode.bench.options import USUAL_LIMIT, parser
from fastdecode.bench.places import naming
from fastdecode.bench.plan import PROTOCOLS, Plan
from fastdecode.bench.progress import progress
from fastdecode.bench.result import Backend, Result, to_json
from fastdecode.errors import StoreError, UnknownBackend
from fastdecode.installation import ranking_path
from fastdecode.terminal import INTERRUPTED

if TYPE_CHECKING:
    from fastdecode.ranking import Ranking
    from fastdecode.types import BackendInfo

__all__ = ["main"]

_PYTORCH = "pip install 'fastdecode[torch]'"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the benchmark.

    Parameters
    ----------
    arguments : sequence of str, optional
        Instead of the command line's.

    Returns
    -------
    int
        The exit status.
    """
    command = parser()
    options = command.parse_args(arguments)
    try:
        if options.limit is None and not options.list:
            options.limit = USUAL_LIMIT
        collection = files.collect(options.paths or [files.SAMPLES], limit=options.limit or None)
        if not options.paths:
            collection.not_images = 0  # the licence of the samples lies beside them
        if not collection.photos:
            _fail_without_images(command, options, collection)
        if options.list:
            _list(collection)
            return 0
        _check_arguments(command, options)
        if options.device:
            on_device_run.check(command, options)
        infos = _backends(None if options.device else options.backend)
    except (FileNotFoundError, ImportError, StoreError, UnknownBackend) as error:
        command.exit(2, f"{command.prog}: error: {error}\n")
    if options.json == "-":  # nothing else may stand on standard output then
        with redirect_stdout(sys.stderr):
            result = _measure(options, infos, collection)
        print(to_json(result))
    else:
        result = _measure(options, infos, collection)
    _keep(command, options, result)
    if result.interrupted:
        return INTERRUPTED
    timed = [one.files for one in result.measurements] + [one.files for one in result.on_device]
    return 0 if any(timed) else 1


def _measure(
    options: argparse.Namespace, infos: Sequence[BackendInfo], collection: files.Collection
) -> Result:
    """Measure and print; after Ctrl-C, what there is so far."""
    found, there = run.Found(), on_device_run.FoundOnDevice()
    plan = _plan(options, infos, found)
    result = Result(
        measured=dt.datetime.now(dt.timezone.utc).isoformat(timespec="seconds"),
        machine=machine(),
        backends=tuple(Backend(info.name, info.version, info.codec) for info in infos),
        collection=collection.summary(),
        settings=_settings(plan, options),
    )
    report.heading(result)
    sys.stdout.flush()  # before the progress on stderr
    interrupted = False
    try:
        with progress() as notify:
            run.measure(collection.photos, plan, found, notify)
            if options.device:
                on_device_run.measure(collection.photos, _plan_there(options), there, notify)
    except KeyboardInterrupt:
        interrupted = True
    result = replace(
        result,
        measurements=found.measurements(plan),
        notes=(*found.notes, *there.notes),
        interrupted=interrupted,
        device=there.device,
        on_device=there.measurements(),
    )
    result = replace(result, answer=tuple(answer.sentences(result)))
    report.show_result(result)
    return result


def _plan(options: argparse.Namespace, infos: Sequence[BackendInfo], found: run.Found) -> Plan:
    """Put together what is to be measured; what cannot be is noted."""
    protocols = options.protocol or (() if options.device else PROTOCOLS)
    if "loader" in protocols and options.workers and not _has_torch():
        found.notes.append(f"The loader protocol needs PyTorch, which is not installed: {_PYTORCH}")
        protocols = tuple(name for name in protocols if name != "loader")
    return Plan(
        backends=tuple(info.name for info in infos),
        reduces=options.reduce,
        seconds=options.seconds,
        protocols=protocols,
        threads=options.threads,
        workers=options.workers,
        output="tensor" if options.size else options.output or "array",
        size=options.size,
    )


def _plan_there(options: argparse.Namespace) -> on_device_run.PlanOnDevice:
    return on_device_run.PlanOnDevice(
        options.device, options.batch, options.seconds, options.size, options.backend
    )


def _settings(plan: Plan, options: argparse.Namespace) -> dict[str, object]:
    """List what was asked for, in types that JSON has."""
    settings = {name: getattr(plan, name) for name in ("seconds", "seed", "output", "size")}
    lists = {
        name: list(getattr(plan, name)) for name in ("protocols", "reduces", "threads", "workers")
    }
    if options.device:
        lists = {**(lists if plan.protocols else {}), "batches": list(options.batch)}
    return {**settings, **lists, "limit": options.limit}


def _check_arguments(command: argparse.ArgumentParser, options: argparse.Namespace) -> None:
    """End with status 2 if what is asked for cannot be done."""
    if options.size and options.output not in (None, "tensor"):
        command.error(f"--size gives tensors, not --output {options.output}")
    for flag in ("size", "output"):
        if getattr(options, flag) in (0, None, "array", "pil") or _has_torch():
            continue
        command.error(f"--{flag} needs PyTorch, which is not installed: {_PYTORCH}")
    if options.save:
        _check_saving(command, options)
    if options.json and options.json == options.html:
        command.error("--json and --html are the same file")
    for path in (None if options.json == "-" else options.json, options.html):
        if path is None:
            continue
        try:
            with naming(path):
                outfile.check(path)
        except OSError as error:
            command.error(str(error))


def _check_saving(command: argparse.ArgumentParser, options: argparse.Namespace) -> None:
    """Refuse to keep a ranking of anything but what `decode` does, with all backends."""
    for flag, given in (
        ("--backend", options.backend),
        ("--size", options.size),
        ("--output pil", options.output == "pil"),
    ):
        if given:
            command.error(f"--save keeps what decode() goes by: not with {flag}")
    try:
        with naming(ranking_path()):
            outfile.check(ranking_path(), parents=True)
    except OSError as error:
        command.error(str(error))


def _has_torch() -> bool:
    return importlib.util.find_spec("torch") is not None


def _fail_without_images(
    command: argparse.ArgumentParser, options: argparse.Namespace, collection: files.Collection
) -> None:
    where = ", ".join(files.printable(path) for path in options.paths)
    lines = [f"{command.prog}: error: no readable images in {where}", *_unreadable(collection)]
    if collection.not_images:
        lines.append(f"Passed over, not images: {collection.not_images}")
    command.exit(2, "\n".join(lines) + "\n")


def _unreadable(collection: files.Collection) -> list[str]:
    if not collection.unreadable:
        return []
    named = [f"  {name}: {why}" for name, why in sorted(collection.unreadable.items())]
    return [f"Unreadable: {len(named)}", *named]


def _list(collection: files.Collection) -> None:
    for photo in collection.photos:
        header = photo.header
        size = f"{header.width} x {header.height}"
        print(f"{header.format:8}  {size:>13}  {photo.size:>11,} bytes  {photo.name}")
    count = len(collection.photos)
    print("\n".join([f"{count:,} image{'' if count == 1 else 's'}", *_unreadable(collection)]))


def _backends(names: Sequence[str] | None) -> list[BackendInfo]:
    """Those that were named, else all that are usable and not switched off.

    Raises
    ------
    UnknownBackend, BackendUnavailable
        If one that was named, here or in ``FASTDECODE_BACKEND``, does not work.
    """
    preference.preferred()
    if names is None:
        off = selection.disabled()
        return [info for info in fastdecode.backends() if info.usable and info.name not in off]
    for name in names:
        preference.load_named(name)
    known = {info.name: info for info in fastdecode.backends()}
    return [known[name] for name in names]


def _save(ranking: Ranking) -> None:
    if not ranking.orders:
        print("Nothing to save: no two backends were compared in memory.", file=sys.stderr)
        return
    with naming(ranking_path()):
        place = merged(ranking).save()
    print(f"decode() chooses by this result from now on: {place}", file=sys.stderr)


def _keep(command: argparse.ArgumentParser, options: argparse.Namespace, result: Result) -> None:
    """Write the files and the ranking that were asked for; end with status 2 if that fails."""
    try:
        if options.json not in (None, "-"):
            with naming(options.json):
                outfile.write(options.json, to_json(result))
        if options.html:
            with naming(options.html):
                outfile.write(options.html, html.page(result))
        if options.save and result.interrupted:
            print("The ranking is not saved: it would be of half a run.", file=sys.stderr)
        elif options.save:
            _save(ranking_of(result))
    except OSError as error:
        command.exit(2, f"{command.prog}: error: {error}\n")
