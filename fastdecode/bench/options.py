"""The command line's arguments: what there is, what is right, and what it says when asked."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

import fastdecode
from fastdecode.bench.plan import PROTOCOLS, counts_up_to_cores
from fastdecode.terminal import Parser
from fastdecode.types import OUTPUTS, REDUCES

if TYPE_CHECKING:
    from fastdecode.bench.result import Protocol
    from fastdecode.types import Reduce

__all__ = ["USUAL_BATCHES", "USUAL_LIMIT", "parser"]

USUAL_BATCHES = (64, 256)
"""Pictures of a batch on a device: few for a large network, many for a small one."""

USUAL_LIMIT = 200
"""Images of a run, unless another number is asked for: a data set has millions."""

_MOST_AT_ONCE = 1024  # threads or workers: what is more is a slip of the finger

_EXAMPLES = """\
examples:
  python -m fastdecode.bench                      the six photos of the package
  python -m fastdecode.bench photos/              every image under a folder
  python -m fastdecode.bench photos/ --limit 200 --reduce 1,8
  python -m fastdecode.bench train.tar            what fastdecode.stores reads
  python -m fastdecode.bench a.jpg b.png --backend pillow,opencv --seconds 3
  python -m fastdecode.bench photos/ --protocol loader --workers 2,4 --size 224
  python -m fastdecode.bench photos/ --device cuda --batch 64,256
  python -m fastdecode.bench compare old.json new.json

protocols:
  decode   from memory, one thread; every format and every --reduce
  threads  from memory, a pool of threads in one process
  loader   a PyTorch DataLoader with worker processes, which read and decode
  file     reading the file (of a store: the item) and decoding it, one thread
The last three measure the commonest format at the largest size.

With --device only that is measured, unless --protocol names others too: the
commonest format, decoded onto the device in batches by each batch backend, or
by all cores of the CPU and copied.

Each backend has a process of its own. All of them decode the same files, in
rounds of random order; "vs best" compares speeds within each round and takes
the median over them. The pixels are compared with Pillow's.

exit status: 0; 1 if no file could be decoded; 2 for a wrong argument or no
images; 130 after Ctrl-C, with what was measured so far"""


def parser() -> argparse.ArgumentParser:
    """Make the parser of the command line."""
    result = Parser(
        prog="python -m fastdecode.bench",
        description="Decode images with every usable backend, and compare speed and pixels.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    result.add_argument(
        "paths",
        nargs="*",
        metavar="PATH",
        help="folders, image files and stores (.tar, .lmdb, .h5, .rec, .csv, or a URI)",
    )
    _add_what(result)
    _add_how(result)
    _add_device(result)
    _add_where(result)
    result.add_argument(
        "--version", action="version", version=f"fastdecode {fastdecode.__version__}"
    )
    return result


def _add_what(result: argparse.ArgumentParser) -> None:
    group = result.add_argument_group("what is measured")
    group.add_argument(
        "--reduce",
        type=_reduces,
        default=REDUCES,
        metavar="N,...",
        help="divide each side by 1, 2, 4 or 8 (default: 1,2,4,8)",
    )
    group.add_argument(
        "--backend", type=_names, metavar="NAME,...", help="only these (default: all usable ones)"
    )
    group.add_argument(
        "--limit",
        type=_count,
        metavar="N",
        help=f"at most N images, drawn at random (default: {USUAL_LIMIT}; 0 for all)",
    )
    group.add_argument(
        "--output",
        choices=OUTPUTS,
        help="what to make of the pixels: a NumPy array, a PyTorch tensor (C, H, W) or a Pillow "
        "image (default: array)",
    )
    group.add_argument(
        "--size",
        type=_positive,
        default=0,
        metavar="N",
        help="also resize to N x N and normalise, to a float tensor; needs PyTorch",
    )


def _add_how(result: argparse.ArgumentParser) -> None:
    group = result.add_argument_group("how it is measured")
    group.add_argument(
        "--protocol",
        type=_protocols,
        metavar="NAME,...",
        help="decode, threads, loader, file (default: all, but none with --device; see below)",
    )
    group.add_argument(
        "--seconds",
        type=_seconds,
        default=0.5,
        metavar="S",
        help="time each backend for at least S seconds in each table (default: 0.5)",
    )
    for name, what in (("threads", "pool"), ("workers", "DataLoader")):
        group.add_argument(
            f"--{name}",
            type=_counts,
            default=counts_up_to_cores(),
            metavar="N,...",
            help=f"sizes of the {what} to measure; 0 for none (default: powers of 2, up to the "
            "cores)",
        )


def _add_device(result: argparse.ArgumentParser) -> None:
    group = result.add_argument_group("on a device")
    group.add_argument(
        "--device",
        metavar="DEVICE",
        help="measure how fast pictures come onto it: cuda, cuda:1 or 1, cpu; needs PyTorch",
    )
    group.add_argument(
        "--batch",
        type=_counts,
        default=USUAL_BATCHES,
        metavar="N,...",
        help="pictures of a batch there; fewer if they are large (default: "
        f"{','.join(map(str, USUAL_BATCHES))})",
    )


def _add_where(result: argparse.ArgumentParser) -> None:
    group = result.add_argument_group("what becomes of it")
    group.add_argument("--json", metavar="FILE", help="write the result; - for standard output")
    group.add_argument("--html", metavar="FILE", help="write a page with charts")
    group.add_argument(
        "--save", action="store_true", help="let decode() choose by this result from now on"
    )
    group.add_argument("--list", action="store_true", help="list the images, measure nothing")


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
    words = _names(text)
    if words == ("0",):
        return ()
    found = tuple(sorted({_positive(word) for word in words}))
    if found[-1] > _MOST_AT_ONCE:
        raise argparse.ArgumentTypeError(f"{found[-1]:,} at once are too many: {_MOST_AT_ONCE:,}")
    return found


def _names(text: str) -> tuple[str, ...]:
    names = tuple(dict.fromkeys(word.strip() for word in text.split(",") if word.strip()))
    if not names:
        raise argparse.ArgumentTypeError("the list is empty")
    return names


def _count(text: str) -> int:
    return 0 if text == "0" else _positive(text)


def _positive(text: str) -> int:
    if not (text.isascii() and text.isdigit() and int(text) > 0):
        raise argparse.ArgumentTypeError(f"{text!r} is not a positive whole number")
    return int(text)


def _seconds(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value < float("inf"):
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds")
    return value
