"""The command line: ``fastdecode`` or, equivalently, ``python -m fastdecode``.

A subcommand is a module with two functions, ``add_arguments(parser)`` and ``run(options, parser)``;
the latter returns the exit status. Only the module of the subcommand that runs is imported, because
some need PyTorch. This module imports almost nothing at its top: Ctrl-C and a closed terminal end a
command cleanly only once `run` has been called.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import fastdecode

if TYPE_CHECKING:
    from fastdecode.cli.terminal import Parser


class Command(NamedTuple):
    """The module of a subcommand, and its purpose in a few words."""

    module: str
    purpose: str


COMMANDS = {
    "info": Command("fastdecode.cli.info", "show which decoders are chosen here (the default)"),
    "bench": Command("fastdecode.measure._command", "compare the decoders on your own images"),
    "check": Command("fastdecode.packing._check", "find damaged and oversized images"),
    "pack": Command("fastdecode.packing._pack_command", "put images into tar shards or LMDB"),
    "samples": Command("fastdecode.cli.samples", "copy sample photos, to try things on"),
}

BENCH = "python -m fastdecode.bench"
"""The name under which the benchmark runs without the word ``bench``."""

_USAGE = "%(prog)s [COMMAND] [ARGUMENT ...]"


def main(arguments: Sequence[str], prog: str = "fastdecode") -> int:
    """Run the subcommand that the first word names, and return the exit status.

    Raises SystemExit after ``--help`` and ``--version``, and for a wrong argument.
    """
    from fastdecode.cli.terminal import silent_interrupt
    from fastdecode.errors import near_miss

    words = list(arguments)
    if words[:1] == ["help"]:
        words = [*words[1:2], "--help"]
    if words and words[0] in ("-h", "--help", "--version"):
        _overview(prog).parse_args(words[:1])  # exits
    bare = not words or words[0].startswith("-")
    if bare:
        words.insert(0, "info")
    name = words.pop(0)
    if name not in COMMANDS:
        way_out = near_miss(name, COMMANDS) or f"; the commands are {', '.join(COMMANDS)}"
        _overview(prog).error(f"there is no command {name!r}{way_out}")
    with silent_interrupt():
        try:
            importlib.import_module("fastdecode.native._library")
        except ImportError as error:  # in a source tree, say
            _parser(prog).fail(error)
        command = importlib.import_module(COMMANDS[name].module)
    parser = _parser(prog, usage=_USAGE) if bare else _parser(_command_name(prog, name))
    command.add_arguments(parser)
    return int(command.run(parser.parse_args(words), parser))


def _command_name(prog: str, name: str) -> str:
    """Return the words with which the user called a subcommand."""
    return prog if (prog, name) == (BENCH, "bench") else f"{prog} {name}"


def _overview(prog: str) -> Parser:
    """Return the parser for what concerns no single subcommand, such as the list of commands."""
    listed = "\n".join(f"  {name:<11}{command.purpose}" for name, command in COMMANDS.items())
    parser = _parser(prog, usage=_USAGE)
    parser.description = (fastdecode.__doc__ or "").partition("\n")[0]
    parser.epilog = f"commands:\n{listed}\n\n%(prog)s COMMAND --help explains a command."
    return parser


def _parser(prog: str, **arguments: Any) -> Parser:
    from fastdecode.cli.terminal import Parser

    parser = Parser(prog=prog, **arguments)
    version = f"fastdecode {fastdecode.__version__}"
    parser.add_argument(
        "--version", action="version", version=version, help="show the version and exit"
    )
    return parser


def run(prog: str = "fastdecode", before: Sequence[str] = ()) -> int:
    """Run the command line of this process, after the words `before`; return the exit status."""
    try:
        from fastdecode.cli.terminal import run_guarded
    except KeyboardInterrupt:
        return 130  # `terminal.INTERRUPTED`, which is not imported yet
    words = [*before, *sys.argv[1:]]
    known = bool(words) and words[0] in COMMANDS
    return run_guarded(lambda: main(words, prog), _command_name(prog, words[0]) if known else prog)
