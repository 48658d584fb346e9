"""``fastdecode bench``: measures how fast each decoder is here, on the user's own images."""

from __future__ import annotations

import argparse
import importlib.util
import shutil
import sys
from collections import Counter
from collections.abc import Sequence
from contextlib import redirect_stdout
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from fastdecode._backends import registry, selection
from fastdecode._backends.selection import default_order
from fastdecode._system import files as _files
from fastdecode.cli.terminal import INTERRUPTED, Parser, progress, say, seconds
from fastdecode.errors import BackendUnavailable, UnknownBackend, visible
from fastdecode.measure import _collection as files
from fastdecode.measure import _report as report
from fastdecode.measure import _run as engine
from fastdecode.measure._collection import USUAL_LIMIT, USUAL_PIXELS
from fastdecode.measure.result import (
    OWN,
    PILLOW,
    PIPELINES,
    Library,
    Pipeline,
    Result,
    label,
    machine,
    now,
    to_json,
)
from fastdecode.types import REDUCES

if TYPE_CHECKING:
    from fastdecode.types import Reduce

_EXAMPLES = f"""\
examples:
  %(prog)s                    the six photos of the package
  %(prog)s photos/            images under a folder
  %(prog)s photos/ --limit 1000 --html page.html
  %(prog)s a.jpg --backend opencv --backend simplejpeg

Two things are measured. Decoding: from memory, in one thread. Training batches:
whole pipelines on all cores, from files to normalised float32 batches of random
crops of 224 pixels; this needs PyTorch. They compare fastdecode (decode() and
its Loader) with Pillow, the fastest other decoder that is installed, and
torchvision if that is there.

Without options this takes about a minute. It measures the commonest format, at
full size, on at most {USUAL_LIMIT} images, or fewer if these are large. With --limit
or --seconds it takes as long as it needs.

Each backend or pipeline runs in its own process. They all work on the same
files, in rounds, in random order. "vs Pillow" is the quotient of the images/s.
Libraries are called alone; decode() also checks the files. The pixels are
compared with Pillow's.

exit status: 0; 1 if no file could be decoded; 2 if an argument is wrong or
there are no images; 130 after Ctrl-C, with the results so far"""

_IN_BOTH = ("torchvision",)  # as a backend, too
_SECONDS = 2.0

_WRITTEN = {"json": "Figures", "html": "Page"}
_MARKS = {"json": b'{\n "schema": ', "html": b"<!DOCTYPE html>\n<!-- fastdecode bench -->"}
"""What the file of an option begins with: no other file is replaced."""


def add_arguments(parser: Parser) -> None:
    """Add the arguments of the command to its parser."""
    parser.description = (
        "Compare the decoders on your images: their speed, their pixels, what you gain."
    )
    parser.epilog = _EXAMPLES
    add = parser.add_argument
    add(
        "paths",
        nargs="*",
        metavar="PATH",
        help="folders, image files and stores (.tar, .lmdb, .h5, .rec, .csv, or a URI)",
    )
    add(
        "--backend",
        type=_names,
        action="extend",
        metavar="NAME,...",
        help="compare fastdecode with these; may be given several times",
    )
    add(
        "--reduce",
        type=_reduces,
        metavar="N,...",
        help="divide each side by 1, 2, 4 or 8 while decoding (default: 1)",
    )
    add(
        "--limit",
        type=_count,
        metavar="N",
        help=f"time N images, drawn at random; 0 for all (default: {USUAL_LIMIT}, or fewer if they "
        "are large)",
    )
    add(
        "--seconds",
        type=seconds,
        metavar="S",
        help=f"time each backend for S seconds in each table (default: {_SECONDS:.0f})",
    )
    add("--no-train", action="store_true", help="make no training batches")
    add("--json", metavar="FILE", help="write the result as JSON; - means standard output")
    add("--html", metavar="FILE", help="write the result as a page with charts")


def _reduces(text: str) -> tuple[Reduce, ...]:
    wanted = _names(text)
    known: dict[str, Reduce] = {str(reduce): reduce for reduce in REDUCES}
    if not all(word in known for word in wanted):
        raise argparse.ArgumentTypeError(f"{text!r} is not a list of 1, 2, 4 and 8")
    return tuple(sorted(known[word] for word in wanted))


def _names(text: str) -> tuple[str, ...]:
    names = tuple(dict.fromkeys(word.strip() for word in text.split(",") if word.strip()))
    if not names:
        raise argparse.ArgumentTypeError("the list is empty")
    return names


def _count(text: str) -> int:
    if not (text.isascii() and text.isdecimal()):
        raise argparse.ArgumentTypeError(f"{text!r} is not 0 or a positive whole number")
    return int(text)


def run(options: argparse.Namespace, parser: Parser) -> int:
    """Run the benchmark; return the exit status."""
    try:
        collection = _collect(options)
        if not collection.photos:
            _fail_without_images(parser, options, collection)
        _check_arguments(parser, options)
        plan, notes = _plan(options, collection)
    except (FileNotFoundError, BackendUnavailable, UnknownBackend, ValueError) as error:
        parser.fail(error)
    alone = options.json == "-"  # standard output must contain only the JSON
    with redirect_stdout(sys.stderr if alone else sys.stdout):
        result = _measure(plan, options, collection, notes)
        _save_results(parser, options, result)
    if alone:
        print(to_json(result))
    if result.interrupted:
        return INTERRUPTED
    return 0 if _has_figures(result) else 1


def _collect(options: argparse.Namespace) -> files.Collection:
    """Find the images: as many as are asked for, or as a minute allows."""
    asked = options.limit is not None
    limit = (options.limit or None) if asked else USUAL_LIMIT
    pixels = None if asked or options.seconds is not None else USUAL_PIXELS
    collection = files.collect(options.paths or [files.SAMPLES], limit=limit, pixels=pixels)
    if not options.paths:
        # The file that is no image is the licence next to the samples.
        collection.counts = replace(collection.counts, samples=True, not_images=0)
    return collection


def _has_figures(result: Result) -> bool:
    """Return whether anything was measured."""
    return any(one.files for one in result.measurements)


def _plan(
    options: argparse.Namespace, collection: files.Collection
) -> tuple[engine.RunPlan, list[str]]:
    """Return what to measure, and notes about what cannot be measured."""
    selection.preferred()  # a wrong FASTDECODE_BACKEND is an error now
    for name in options.backend or ():
        selection.load_named(name)
    pipelines, notes = _pipelines(options)
    plan = engine.RunPlan(
        backends=tuple(dict.fromkeys(options.backend or _few(collection))),
        reduces=options.reduce or (1,),
        pipelines=pipelines,
        seconds=_SECONDS if options.seconds is None else options.seconds,
        visits=2 if options.seconds is None and options.limit is None else 3,
    )
    return plan, notes


def _few(collection: files.Collection) -> tuple[str, ...]:
    """Return Pillow, the usually fastest other library that works, and torchvision.

    The core is what fastdecode itself uses, and the others would only cost time.
    """
    formats = Counter(photo.header.format for photo in collection.photos)
    [(kind, _)] = formats.most_common(1)
    off = {*selection.disabled(), "native"}
    order = [name for name in default_order(kind, 1) if name not in (PILLOW, *_IN_BOTH, *off)]
    best = next((name for name in order if _works(name)), None)
    others = [name for name in _IN_BOTH if name not in off and _has(name)]
    return tuple(name for name in (PILLOW, best, *others) if name and name not in off)


def _works(name: str) -> bool:
    try:
        return registry.load(name).exact
    except BackendUnavailable:
        return False


def _has(library: str) -> bool:
    try:
        return importlib.util.find_spec(library) is not None
    except ModuleNotFoundError:  # not even its parent package is installed
        return False


def _pipelines(options: argparse.Namespace) -> tuple[tuple[Pipeline, ...], list[str]]:
    """Return the pipelines whose libraries are installed, and notes about the others."""
    if options.no_train:
        return (), []
    if not _has("torch"):
        line = registry.pip_install("fastdecode[torch]")
        return (), [f"No training batches: PyTorch is not installed: {line}"]
    asked: set[str] = {OWN, "device", *(options.backend or PIPELINES)}
    if shutil.which("nvidia-smi") is None:
        asked.discard("device")
    notes = []
    if "torchvision" in asked and not _has("torchvision"):
        asked.discard("torchvision")
        notes.append(
            f"Not measured: {label('train', 'torchvision')}, which is not installed: "
            f"{registry.install_line('torchvision')}"
        )
    return tuple(name for name in PIPELINES if name in asked), notes


def _measure(
    plan: engine.RunPlan,
    options: argparse.Namespace,
    collection: files.Collection,
    notes: Sequence[str],
) -> Result:
    """Measure and print the result; after Ctrl-C, the result so far."""
    settings = {
        "seconds": plan.seconds,
        "seed": plan.seed,
        "reduce": list(plan.reduces),
        "limit": options.limit,
    }
    empty = Result(now(), machine(), collection.summary(), settings=settings)
    report.show_heading(empty)
    sys.stdout.flush()  # before the progress on stderr
    found = engine.Run(notes=list(notes))
    interrupted = False
    try:
        with progress() as notify:
            engine.measure(collection.photos, plan, found, notify)
    except KeyboardInterrupt:
        interrupted = True
    figures = found.measurements()
    used = {name for one in figures for name in (one.backend, one.chosen)}
    infos = [info for info in found.infos.values() if info.name in used]
    result = replace(
        empty,
        backends=tuple(Library(info.name, info.version, info.codec) for info in infos),
        measurements=figures,
        notes=tuple(found.notes),
        interrupted=interrupted,
    )
    report.show_result(result)
    return result


def _fail_without_images(
    parser: Parser, options: argparse.Namespace, collection: files.Collection
) -> None:
    where = ", ".join(visible(path) for path in options.paths)
    counts = collection.counts
    lines = [f"no readable images in {where}", f"Unreadable: {len(counts.unreadable)}"]
    lines += [f"  {name}: {why}" for name, why in sorted(counts.unreadable.items())]
    parser.fail("\n".join([*lines, f"Skipped, not images: {counts.not_images}"]))


def _check_arguments(parser: Parser, options: argparse.Namespace) -> None:
    """Exit with status 2 if a file that is asked for cannot be written."""
    if options.html:
        parser.need("jinja2", "--html", registry.pip_install("fastdecode[bench]"))
    written = {flag: path for flag in _MARKS if (path := getattr(options, flag)) not in (None, "-")}
    if len(set(written.values())) < len(written):
        parser.error("--json and --html are the same file")
    try:
        for flag, place in written.items():
            _files.check_result(place, f"--{flag}", _MARKS[flag])
    except OSError as error:
        parser.fail(error)


def _save_results(parser: Parser, options: argparse.Namespace, result: Result) -> None:
    """Write the requested files; exit with status 2 if that fails."""
    wanted = {flag: getattr(options, flag) for flag in _MARKS}
    for flag, place in wanted.items():
        if not place or place == "-":
            continue
        if not _has_figures(result):  # do not overwrite an earlier result
            left = "left as it was" if Path(place).exists() else "not written"
            say(f"{place} is {left}.")
            continue
        try:
            with _files.name_in_errors(place):
                content = to_json(result) if flag == "json" else report.page(result)
                _files.write_bytes(place, content.encode(), _MARKS[flag])
        except OSError as error:
            parser.fail(error)
        say(f"{_WRITTEN[flag]}: {place}")
