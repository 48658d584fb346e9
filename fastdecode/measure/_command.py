"""``fastdecode bench``: measures how fast each decoder is here, on the user's own images."""

from __future__ import annotations

import argparse
import importlib.util
import itertools
import sys
from collections.abc import Sequence
from contextlib import redirect_stdout
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fastdecode import _files, _selection
from fastdecode._system import ranking_path
from fastdecode.errors import StoreError, UnknownBackend
from fastdecode.measure import _collection as files
from fastdecode.measure import _report as report
from fastdecode.measure import _run as measuring
from fastdecode.measure import _summary as summary
from fastdecode.measure._calibrate import BATCHES, find_device
from fastdecode.measure._collection import USUAL_LIMIT
from fastdecode.measure._ranking import make_ranking, merge_saved
from fastdecode.measure._run import Plan, counts_up_to_cores
from fastdecode.measure._text import pipeline, visible
from fastdecode.measure._timing import now
from fastdecode.measure.result import (
    PIPELINES,
    PROTOCOLS,
    Backend,
    Result,
    machine,
    to_json,
)
from fastdecode.ranking import faster_missing
from fastdecode.registry import backends, install_line
from fastdecode.terminal import (
    INTERRUPTED,
    Parser,
    count,
    counts,
    positive,
    progress,
    say,
    seconds,
    worker_count,
)
from fastdecode.types import OUTPUTS, REDUCES

if TYPE_CHECKING:
    from fastdecode.measure.result import Pipeline, Protocol
    from fastdecode.ranking import Ranking
    from fastdecode.types import BackendInfo, Reduce

_SUFFIXES = {"json": ".json", "html": ".html", "card": ".svg"}
"""The options that write a file, and the suffix of files that each of them may replace."""

_EXAMPLES = """\
examples:
  %(prog)s                      the six photos of the package
  %(prog)s photos/              every image under a folder
  %(prog)s photos/ --verbose --html report.html
  %(prog)s photos/ --reduce 1,8 --seconds 1
  %(prog)s train.tar            every image in a store
  %(prog)s a.jpg b.png --backend pillow,opencv --seconds 3
  %(prog)s photos/ --protocol loader --workers 2,4 --size 224
  %(prog)s photos/ --device cuda --batch 64,256
  fastdecode compare old.json new.json

protocols:
  decode   decode from memory in one thread, each format and each --reduce
  train    make training batches from files, on all cores: random crops of 224
           pixels, flipped and normalised, as float32. This compares the Loader
           of this package; its dataset, Pillow and torchvision in PyTorch's
           DataLoader; and DALI on the CPU, as far as they are installed
  threads  decode from memory in a pool of threads in one process
  loader   read and decode in the worker processes of a PyTorch DataLoader
  file     read each file or store item and decode it, in one thread
All protocols except decode measure only the commonest format, at the largest
size.

A short run is one without --verbose, --protocol, --save and --device. It
measures decode and train at full size and prints one table. Unless --seconds is
given, it takes about a minute at most: it measures only the commonest format,
and leaves out some images if there are many or large ones. The output ends with
the answer.

With --device, only the device is measured, unless --protocol names something
else too. Images of the commonest format are decoded onto the device in batches:
by each batch backend, and by all cores of the CPU with a copy to the device.

Each backend or pipeline runs in its own process. They all work on the same
files, in rounds, in random order. "vs best" and "vs Pillow" compare the speeds
within each round; the table shows the median over the rounds. The pixels are
compared with Pillow's.

exit status: 0; 1 if no file could be decoded; 2 if an argument is wrong or
there are no images; 130 after Ctrl-C, with the results so far"""

_SHORT: tuple[Protocol, ...] = ("decode", "train")
_OF_PYTORCH = ("train", "loader")
_LIBRARIES: dict[Pipeline, str] = {"torchvision": "torchvision", "dali": "nvidia.dali"}
_SHORT_RUN_S = 45.0  # seconds, of the minute: processes also need time to start and to end
_SECONDS = 0.5
_PYTORCH = "pip install 'fastdecode[torch]'"


def add_arguments(parser: Parser) -> None:
    """Add the arguments of the command to its parser."""
    parser.description = (
        "Decode images with every usable backend, and compare their speed and pixels."
    )
    parser.epilog = _EXAMPLES
    parser.add_argument(
        "paths",
        nargs="*",
        metavar="PATH",
        help="folders, image files and stores (.tar, .lmdb, .h5, .rec, .csv, or a URI)",
    )
    _add_selection(parser)
    _add_method(parser)
    _add_device(parser)
    _add_outputs(parser)


def _add_selection(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("what is measured")
    group.add_argument(
        "--reduce",
        type=_reduces,
        metavar="N,...",
        help="divide each side by 1, 2, 4 or 8 (default: 1 in a short run, else 1,2,4,8)",
    )
    group.add_argument(
        "--backend",
        type=_names,
        metavar="NAME,...",
        help="measure only these (default: all usable ones)",
    )
    group.add_argument(
        "--limit",
        type=_count,
        metavar="N",
        help=f"use at most N images, drawn at random (default: {USUAL_LIMIT}; 0 for all)",
    )
    group.add_argument(
        "--output",
        choices=OUTPUTS,
        help="decode to a NumPy array, a PyTorch tensor (C, H, W) or a Pillow image (default: "
        "array)",
    )
    group.add_argument(
        "--size",
        type=positive,
        default=0,
        metavar="N",
        help="also resize to N x N and normalise to a float tensor; needs PyTorch",
    )


def _add_method(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("how it is measured")
    group.add_argument(
        "--protocol",
        type=_protocols,
        metavar="NAME,...",
        help="decode, train, threads, loader, file (default: decode, train; all with --verbose, "
        "none with --device; see below)",
    )
    group.add_argument(
        "--seconds",
        type=seconds,
        metavar="S",
        help="time each backend for at least S seconds in each table (default: 0.5)",
    )
    for name, what in (("threads", "threads"), ("workers", "DataLoader workers")):
        group.add_argument(
            f"--{name}",
            type=_counts,
            metavar="N,...",
            help=f"how many {what} to measure with; 0 for none (default: powers of 2 up to the "
            "number of cores)",
        )


def _add_device(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("on a device")
    group.add_argument(
        "--device",
        metavar="DEVICE",
        help="measure how fast images get onto this device: cuda, cuda:1 (or 1), or cpu; needs "
        "PyTorch",
    )
    group.add_argument(
        "--batch",
        type=_counts,
        metavar="N,...",
        help="images per batch on the device; fewer if they are large (default: "
        f"{','.join(map(str, BATCHES))})",
    )


def _add_outputs(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("results")
    group.add_argument(
        "-v",
        "--verbose",
        action="store_true",
        help="measure all protocols, formats and sizes, however long that takes, and show all "
        "figures",
    )
    group.add_argument(
        "--json", metavar="FILE", help="write the result as JSON; - means standard output"
    )
    group.add_argument("--html", metavar="FILE", help="write the result as a page with charts")
    group.add_argument(
        "--card",
        metavar="FILE",
        help="write the gain as a small SVG image for a README or an issue",
    )
    group.add_argument(
        "--save", action="store_true", help="let decode() choose by this result from now on"
    )
    group.add_argument("--list", action="store_true", help="list the images and measure nothing")


def _reduces(text: str) -> tuple[Reduce, ...]:
    wanted = _names(text)
    known: dict[str, Reduce] = {str(reduce): reduce for reduce in REDUCES}
    if not all(word in known for word in wanted):
        raise argparse.ArgumentTypeError(f"{text!r} is not a list of 1, 2, 4 and 8")
    return tuple(sorted(known[word] for word in wanted))


def _protocols(text: str) -> tuple[Protocol, ...]:
    wanted = _names(text)
    if not set(wanted) <= set(PROTOCOLS):
        raise argparse.ArgumentTypeError(f"{text!r} is not a list of {', '.join(PROTOCOLS)}")
    return tuple(name for name in PROTOCOLS if name in wanted)


def _counts(text: str) -> tuple[int, ...]:
    if text.strip() == "0":
        return ()
    found = counts(text)
    worker_count(str(found[-1]))
    return found


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
    if options.batch is not None and options.device is None:
        parser.error("--batch is for --device")
    if options.batch is None:
        options.batch = BATCHES
    try:
        if options.limit is None and not options.list:
            options.limit = USUAL_LIMIT
        collection = files.collect(options.paths or [files.SAMPLES], limit=options.limit or None)
        if not options.paths:
            collection.samples = True
            collection.not_images = 0  # the licence file next to the samples
        if not collection.photos:
            _fail_without_images(parser, options, collection)
        if options.list:
            _list_files(collection)
            return 0
        _check_arguments(parser, options)
        if options.device:
            _check_device(parser, options)
        infos = _backends(None if options.device else options.backend)
    except (FileNotFoundError, ImportError, StoreError, UnknownBackend) as error:
        parser.fail(error)
    if options.json == "-":  # standard output must contain only the JSON
        with redirect_stdout(sys.stderr):
            result = _measure(options, infos, collection)
            _save_results(parser, options, result)
        print(to_json(result))
    else:
        result = _measure(options, infos, collection)
        _save_results(parser, options, result)
    if result.interrupted:
        return INTERRUPTED
    return 0 if _has_figures(result) else 1


def _has_figures(result: Result) -> bool:
    """Return whether anything was measured."""
    return any(one.files for one in (*result.measurements, *result.on_device))


def _measure(
    options: argparse.Namespace, infos: Sequence[BackendInfo], collection: files.Collection
) -> Result:
    """Measure and print the result; after Ctrl-C, the result so far."""
    found = measuring.Run()
    plan = _plan(options, infos, found)
    result = Result(
        measured=now(),
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
            measuring.measure(collection.photos, plan, found, notify)
    except KeyboardInterrupt:
        interrupted = True
    result = replace(
        result,
        measurements=found.measurements(),
        notes=tuple(found.notes),
        interrupted=interrupted,
        device=found.device,
        on_device=found.on_device(),
    )
    result = replace(result, faster=_faster_backends(result))
    result = replace(result, answer=tuple(summary.sentences(result)))
    report.show_result(result, brief=_is_short(options))
    return result


def _faster_backends(result: Result) -> dict[str, str]:
    """Return how to install backends that are usually faster than the one that decode() chose."""
    group = summary.main_group(summary.groups(result), summary.most_frequent_format(result))
    if group is None or group.automatic is None:
        return {}
    kind: Any = group.one.format
    return faster_missing(backends(), group.automatic.chosen, kind)


def _plan(options: argparse.Namespace, infos: Sequence[BackendInfo], found: measuring.Run) -> Plan:
    """Return the plan of the run; add notes about what cannot be measured."""
    short = _is_short(options)
    protocols = _chosen_protocols(options)
    usual = counts_up_to_cores()
    threads = usual if options.threads is None else options.threads
    workers = usual if options.workers is None else options.workers
    for name in _OF_PYTORCH:
        if name in protocols and (name != "loader" or workers) and not _has("torch"):
            found.notes.append(
                f"The {name} protocol needs PyTorch, which is not installed: {_PYTORCH}"
            )
            protocols = tuple(other for other in protocols if other != name)
    return Plan(
        backends=tuple(info.name for info in infos),
        reduces=options.reduce or ((1,) if short else REDUCES),
        seconds=_SECONDS if options.seconds is None else options.seconds,
        protocols=protocols,
        threads=threads,
        workers=workers,
        output="tensor" if options.size else options.output or "array",
        size=options.size,
        device=options.device,
        batches=options.batch,
        batch_backends=options.backend,
        pipelines=_pipelines(found) if "train" in protocols else (),
        within=_SHORT_RUN_S if short and options.seconds is None else None,
    )


def _chosen_protocols(options: argparse.Namespace) -> tuple[Protocol, ...]:
    """Return the protocols that the user named, or else the usual ones."""
    usual: tuple[Protocol, ...] = () if options.device else PROTOCOLS
    return _SHORT if _is_short(options) else options.protocol or usual


def _is_short(options: argparse.Namespace) -> bool:
    """Return whether this is a short run, which prints one table."""
    return not (options.verbose or options.protocol or options.save or options.device)


def _pipelines(found: measuring.Run) -> tuple[Pipeline, ...]:
    """Return the pipelines whose libraries are installed; add notes about the others."""
    missing = [name for name, library in _LIBRARIES.items() if not _has(library)]
    for name in missing:
        line = install_line(name)
        found.notes.append(f"Not measured: {pipeline(name)}, which is not installed: {line}")
    return tuple(name for name in PIPELINES if name not in missing)


def _settings(plan: Plan, options: argparse.Namespace) -> dict[str, object]:
    """Return the settings of the run, in types that JSON has."""
    settings = {name: getattr(plan, name) for name in ("seconds", "seed", "output", "size")}
    lists = {
        name: list(getattr(plan, name)) for name in ("protocols", "reduces", "threads", "workers")
    }
    if options.device:
        lists = {**(lists if plan.protocols else {}), "batches": list(options.batch)}
    return {**settings, **lists, "limit": options.limit}


def _check_arguments(parser: Parser, options: argparse.Namespace) -> None:
    """Exit with status 2 if the options contradict each other or cannot be met."""
    for flag, protocol in (("threads", "threads"), ("workers", "loader")):
        if getattr(options, flag) and protocol not in _chosen_protocols(options):
            parser.error(f"--{flag} is for the protocol {protocol}: add --protocol {protocol}")
    if options.size and options.output not in (None, "tensor"):
        parser.error(f"--size gives tensors: not with --output {options.output}")
    for flag in ("size", "output"):
        if getattr(options, flag) in (0, None, "array", "pil") or _has("torch"):
            continue
        parser.error(f"--{flag} needs PyTorch, which is not installed: {_PYTORCH}")
    unlike_decode = {  # a ranking needs all backends, and the work that `decode` does
        "--backend": options.backend,
        "--size": options.size,
        "--output pil": options.output == "pil",
    }
    for flag, given in unlike_decode.items():
        if options.save and given:
            parser.error(f"--save saves the ranking that decode() follows: not with {flag}")
    for flag in ("html", "card"):
        if getattr(options, flag):
            parser.need("jinja2", f"--{flag}", "fastdecode[bench]")
    written = {
        flag: path for flag in _SUFFIXES if (path := getattr(options, flag)) not in (None, "-")
    }
    for flag, other in itertools.combinations(written, 2):
        if written[flag] == written[other]:
            parser.error(f"--{flag} and --{other} are the same file")
    try:
        for flag, place in written.items():
            _files.check_result(place, f"--{flag}", _SUFFIXES[flag])
        if options.save:
            with _files.name_in_errors(ranking_path()):
                _files.check_writable(ranking_path(), parents=True)
    except OSError as error:
        parser.fail(error)


def _check_device(parser: Parser, options: argparse.Namespace) -> None:
    """Exit with status 2 if the options cannot be met; otherwise look up the device."""
    if options.save:
        parser.error("--save saves the ranking that decode() follows: not with --device")
    if options.output and not options.protocol:
        parser.error("--device gives tensors: not with --output")
    if not options.batch:
        parser.error("--batch 0 leaves nothing to measure")
    try:
        options.device = find_device(options.device)
    except (RuntimeError, ValueError) as error:
        parser.error(str(error))
    from fastdecode.gpu import _backends

    able = _backends.names(options.device.type)
    for name in options.backend or ():
        if name not in able:
            parser.error(
                f"no batch backend for {options.device} is called {name!r}; there are: "
                f"{', '.join(able) or 'none'}"
            )


def _has(library: str) -> bool:
    try:
        return importlib.util.find_spec(library) is not None
    except ModuleNotFoundError:  # not even its parent package is installed
        return False


def _fail_without_images(
    parser: Parser, options: argparse.Namespace, collection: files.Collection
) -> None:
    where = ", ".join(visible(path) for path in options.paths)
    lines = [f"no readable images in {where}", *_unreadable(collection)]
    if collection.not_images:
        lines.append(f"Skipped, not images: {collection.not_images}")
    parser.fail("\n".join(lines))


def _unreadable(collection: files.Collection) -> list[str]:
    if not collection.unreadable:
        return []
    lines = [f"  {name}: {why}" for name, why in sorted(collection.unreadable.items())]
    return [f"Unreadable: {len(lines)}", *lines]


def _list_files(collection: files.Collection) -> None:
    for photo in collection.photos:
        header = photo.header
        size = f"{header.width} x {header.height}"
        print(f"{header.format:8}  {size:>13}  {photo.size:>11,} bytes  {photo.name}")
    print("\n".join([count(len(collection.photos), "image"), *_unreadable(collection)]))


def _backends(names: Sequence[str] | None) -> list[BackendInfo]:
    """Return the backends that the user named, or else all that are usable and not disabled."""
    _selection.preferred()
    if names is None:
        off = _selection.disabled()
        return [info for info in backends() if info.usable and info.name not in off]
    for name in names:
        _selection.load_named(name)
    known = {info.name: info for info in backends()}
    return [known[name] for name in names]


def _save(ranking: Ranking) -> None:
    if not ranking.orders:
        print("Nothing to save: no two backends were compared in memory.", file=sys.stderr)
        return
    with _files.name_in_errors(ranking_path()):
        place = merge_saved(ranking).save()
    print(f"decode() chooses by this result from now on: {place}", file=sys.stderr)


def _save_results(parser: Parser, options: argparse.Namespace, result: Result) -> None:
    """Write the requested files, and the ranking; exit with status 2 if that fails."""
    try:
        if _has_figures(result):
            _write(options, result)
        else:  # do not overwrite an earlier result
            for place in (options.json, options.html, options.card):
                if place and place != "-":
                    left = "left as it was" if Path(place).exists() else "not written"
                    say(f"{place} is {left}.")
        if options.save and result.interrupted:
            print("The ranking is not saved, because the run was interrupted.", file=sys.stderr)
        elif options.save:
            _save(make_ranking(result))
    except OSError as error:
        parser.fail(error)


def _write(options: argparse.Namespace, result: Result) -> None:
    if options.json not in (None, "-"):
        with _files.name_in_errors(options.json):
            _files.write_text(options.json, to_json(result))
        say(f"Figures: {options.json}")
    if options.html or options.card:
        from fastdecode.measure import _html

        for place, draw in ((options.html, _html.result_page), (options.card, _html.card)):
            if place:
                with _files.name_in_errors(place):
                    _files.write_text(place, draw(result))
    if options.card:
        say(f"Card: {options.card}")
    if options.html:
        say(f"Report: {options.html}")
    elif not result.interrupted:
        say("For a page with charts: --html report.html")
