"""The command line: ``fastdecode``, or ``python -m fastdecode``, which is the same.

A subcommand is a module with two functions, ``add_arguments(parser)`` and ``run(options, parser)``;
the second returns the exit status. Only the module of the one that runs is imported, because some
need PyTorch. Next to nothing is imported before `run`: from there on Ctrl-C and a closed terminal
end a command in good order.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import fastdecode

if TYPE_CHECKING:
    from fastdecode.terminal import Parser

__all__ = ["BENCH", "COMMANDS", "Command", "main", "run"]


class Command(NamedTuple):
    """A subcommand: its module, and in a few words what it is for."""

    module: str
    purpose: str


COMMANDS = {
    "info": Command("fastdecode._info_command", "show which decoders work here (the default)"),
    "bench": Command("fastdecode.measure._command", "compare the decoders on your own images"),
    "compare": Command("fastdecode.measure._compare", "compare two results of bench"),
    "calibrate": Command(
        "fastdecode.measure._calibrate_command", "measure which decoder is fastest on this machine"
    ),
    "check": Command("fastdecode.packing._check_command", "find damaged, odd and oversized images"),
    "pack": Command(
        "fastdecode.packing._pack_command", "put images into tar, LMDB, HDF5 or RecordIO"
    ),
    "thumbs": Command(
        "fastdecode.packing._thumbs_command", "make thumbnails of a folder, or of a store"
    ),
    "index": Command("fastdecode.packing._index_command", "make the index of tar shards"),
}

BENCH = "python -m fastdecode.bench"
"""How the benchmark is called without the word ``bench``."""

_USAGE = "%(prog)s [COMMAND] [ARGUMENT ...]"


def main(arguments: Sequence[str], prog: str = "fastdecode") -> int:
    """Run the subcommand that the first word names; return the exit status.

    A SystemExit follows ``--help`` and ``--version``, and a wrong argument.
    """
    from fastdecode.terminal import ending_at_once, near_miss

    words = list(arguments)
    if words[:1] == ["help"]:
        words = [*words[1:2], "--help"]
    if words and words[0] in ("-h", "--help", "--version"):
        _overview(prog).parse_args(words[:1])  # which ends here
    bare = not words or words[0].startswith("-")
    if bare:
        words.insert(0, "info")
    elif words[:2] == ["bench", "compare"]:  # as after `python -m fastdecode.bench`
        del words[0]
    name = words.pop(0)
    if name not in COMMANDS:
        way_out = near_miss(name, COMMANDS) or f"; the commands are {', '.join(COMMANDS)}"
        _overview(prog).error(f"there is no command {name!r}{way_out}")
    with ending_at_once():
        command = importlib.import_module(COMMANDS[name].module)
        if prog.startswith("python -m"):
            _tell_which_copy()
    parser = _parser(prog, usage=_USAGE) if bare else _parser(_called(prog, name))
    command.add_arguments(parser)
    return int(command.run(parser.parse_args(words), parser))


def _called(prog: str, name: str) -> str:
    """Return how a subcommand was called."""
    return prog if (prog, name) == (BENCH, "bench") else f"{prog} {name}"


def _tell_which_copy() -> None:
    """Say so where a folder of sources without a core hides an installed copy that has one.

    `python -m` looks in the current folder first: in a clone, it finds the sources.
    """
    from fastdecode.native._library import hidden_copy, problem
    from fastdecode.terminal import say

    if hidden_copy() is not None:
        say(f"{problem()}.", error=True)


def _overview(prog: str) -> Parser:
    """Make the parser that speaks where no subcommand does."""
    listed = "\n".join(f"  {name:<11}{command.purpose}" for name, command in COMMANDS.items())
    parser = _parser(prog, usage=_USAGE)
    parser.description = "Decode images by the fastest decoder on this machine."
    parser.epilog = f"commands:\n{listed}\n\n%(prog)s COMMAND --help says more of each."
    return parser


def _parser(prog: str, **arguments: Any) -> Parser:
    from fastdecode.terminal import Parser

    parser = Parser(prog=prog, **arguments)
    version = f"fastdecode {fastdecode.__version__}"
    parser.add_argument(
        "--version", action="version", version=version, help="show the version and exit"
    )
    return parser


def run(prog: str = "fastdecode", before: Sequence[str] = ()) -> int:
    """Run the process's own command line, for which `before` stands; return the exit status."""
    try:
        from fastdecode.terminal import guarded
    except KeyboardInterrupt:
        return 130  # `terminal.INTERRUPTED`, which is not there yet
    words = [*before, *sys.argv[1:]]
    known = bool(words) and words[0] in COMMANDS
    return guarded(lambda: main(words, prog), _called(prog, words[0]) if known else prog)
