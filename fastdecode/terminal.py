"""What all subcommands share: parser, kinds of arguments, paragraphs, progress, and how they end.

They end in good order on Ctrl-C, and where nobody reads what they print; no letter of anybody's
names acts on the terminal.
"""

from __future__ import annotations

import argparse
import csv
import importlib
import importlib.util
import io
import os
import re
import shutil
import signal
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NoReturn, Protocol

from fastdecode.errors import visible, without_advice

__all__ = [
    "INTERRUPTED",
    "Notify",
    "Parser",
    "at_once",
    "brief",
    "count",
    "counts",
    "csv_text",
    "ending_at_once",
    "guarded",
    "has_rich",
    "near_miss",
    "paragraph",
    "positive",
    "progress",
    "quality",
    "say",
    "seconds",
    "width",
]

INTERRUPTED = 130
"""Exit status after Ctrl-C, as shells have it: 128 and the signal's number."""

_LOST = 1
_MOST_AT_ONCE = 1024  # threads or workers: what is more is a slip of the finger
_EVERY_S = 0.2
_LONGEST = 110
_WIDEST = 80
_ACTING = re.compile(
    "[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]"
)
"""Control characters, those that turn the direction of the rest, and what no file in UTF-8 has."""

_FORMULAS = ("=", "+", "-", "@", "＝", "＋", "－", "＠")  # noqa: RUF001 - some take the wide ones, too


class Parser(argparse.ArgumentParser):
    """A parser of which every message is plain text, whatever names it quotes."""

    def __init__(self, **arguments: Any) -> None:
        super().__init__(formatter_class=argparse.RawDescriptionHelpFormatter, **arguments)

    def parse_args(  # type: ignore[override]
        self, args: Sequence[str] | None = None, namespace: None = None
    ) -> argparse.Namespace:
        """Parse the words; of an unknown option, say which one it resembles."""
        if any(not word or (word[:2] == "--" and word[-1] == "=") for word in args or ()):
            self.error("an argument is empty: is a variable unset?")
        options, unknown = self.parse_known_args(args, namespace)
        if unknown:
            named = next((word.partition("=")[0] for word in unknown if word[:1] == "-"), "")
            alike = near_miss(named, self._option_string_actions)
            self.error(f"unrecognized arguments: {' '.join(unknown)}{alike}")
        return options

    def complain(self, problem: BaseException | str) -> None:
        """Say on standard error what is wrong."""
        words = problem if isinstance(problem, str) else without_advice(problem)
        self._print_message(_plain(f"{self.prog}: error: {words}\n"), sys.stderr)

    def fail(self, problem: BaseException | str) -> NoReturn:
        """End the command with exit status 2, and say why."""
        self.complain(problem)
        self.exit(2)

    def need(self, library: str, option: str, extra: str) -> None:
        """End with status 2, and the line that installs it, if a library cannot be imported."""
        try:
            importlib.import_module(library)
        except ImportError as error:
            self.error(f"{option} needs {library} ({error}): pip install '{extra}'")

    def exit(self, status: int = 0, message: str | None = None) -> NoReturn:
        """End the command, with a message on standard error."""
        super().exit(status, message and _plain(message))


def _plain(message: str) -> str:
    return "\n".join(map(visible, message.split("\n")))


def near_miss(word: str, known: Iterable[str]) -> str:
    """Ask whether one of the words was meant that are known; empty if none is alike."""
    import difflib  # only over a mistake

    alike = difflib.get_close_matches(word, known, 1)
    return f"; did you mean {alike[0]}?" if alike else ""


def positive(text: str) -> int:
    """Read a whole number from 1."""
    if not (text.isascii() and text.isdecimal() and int(text) > 0):
        raise argparse.ArgumentTypeError(f"{text!r} is not a positive whole number")
    return int(text)


def at_once(text: str) -> int:
    """Read how many threads or workers there are to be."""
    number = positive(text)
    if number > _MOST_AT_ONCE:
        raise argparse.ArgumentTypeError(
            f"{number:,} at once are too many: at most {_MOST_AT_ONCE:,}"
        )
    return number


def quality(text: str) -> int:
    """Read the quality of a JPEG, 1 to 100."""
    number = positive(text)
    if number > 100:
        raise argparse.ArgumentTypeError(f"{text} is beyond 100, the best quality of a JPEG")
    return number


def counts(text: str) -> tuple[int, ...]:
    """Read whole numbers from 1, with commas between them; sort them."""
    words = [word.strip() for word in text.split(",") if word.strip()]
    if not words or not all(word.isascii() and word.isdecimal() and int(word) for word in words):
        raise argparse.ArgumentTypeError(f"{text!r} is not a list of positive whole numbers")
    return tuple(sorted({int(word) for word in words}))


def seconds(text: str) -> float:
    """Read a finite number from 0."""
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value < float("inf"):
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds")
    return value


def width(most: int | None = None) -> int:
    """Return the width of the terminal in characters: ``COLUMNS``, else as it is, else 80."""
    columns = shutil.get_terminal_size((80, 24)).columns
    return max(40, columns if most is None else min(most, columns))


def paragraph(
    text: str, indent: str = "", first: str | None = None, most: int | None = None
) -> str:
    """Wrap text for the terminal, line by line; words that are too long are cut, not left over.

    `indent` stands before every line, and `first` before the first one instead.
    """
    lines: list[str] = []
    for line in text.splitlines() or [""]:
        before = first if first is not None and not lines else indent
        lines += textwrap.wrap(
            line,
            width(most),
            initial_indent=before,
            subsequent_indent=indent,
            break_on_hyphens=False,
        ) or [before.rstrip()]
    return "\n".join(lines)


def say(text: str, *, indent: str = "", error: bool = False) -> None:
    """Print a paragraph of at most 80 columns, in which anybody's names may be."""
    stream = sys.stderr if error else sys.stdout
    stream.write(paragraph(visible(text), indent, first="", most=_WIDEST) + "\n")


def brief(text: str) -> str:
    """Shorten a line of several that is too long: the files have it whole."""
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 4].rstrip()} ..."


def count(amount: int, noun: str) -> str:
    """Say how many of something there are."""
    return f"{amount:,} {noun}{'' if amount == 1 else 's'}"


def csv_text(rows: Iterable[Sequence[str | int]]) -> str:
    """Return a table as a file of CSV has it.

    Keys are anybody's words: what acts on a terminal is written out, and a cell that spreadsheets
    would take for a formula begins with an apostrophe (OWASP, CSV Injection).
    """
    lines = io.StringIO()
    writer = csv.writer(lines, lineterminator="\n")
    for row in rows:
        writer.writerow([_cell(cell) if isinstance(cell, str) else cell for cell in row])
    return lines.getvalue()


def _cell(text: str) -> str:
    text = _ACTING.sub(lambda found: ascii(found[0])[1:-1], text)
    return f"'{text}" if text.startswith(_FORMULAS) else text


class Notify(Protocol):
    """Called with what is being done, and how much of it is: a share, or so many of a total."""

    def __call__(self, what: str, done: float, total: float = 1.0, /) -> None:
        """Take note."""


@contextmanager
def progress(*, counted: bool = False) -> Iterator[Notify]:
    """Show progress on standard error for as long as the block runs.

    On a terminal it is a bar, if rich is installed. Without, what is counted has a line that is
    written over; of what is not, each new thing that is done is told in a line, also in a file.
    """
    on_terminal = sys.stderr.isatty()
    if on_terminal and has_rich():
        with _bar(counted=counted) as notify:
            yield notify
    elif counted and on_terminal:
        try:
            yield _one_line()
        finally:  # also before an error
            sys.stderr.write("\n")
    elif counted:
        yield lambda _what, _done, _total=1.0: None
    else:
        yield _a_line_each()


def has_rich() -> bool:
    """Whether rich is installed."""
    return importlib.util.find_spec("rich") is not None


@contextmanager
def _bar(*, counted: bool) -> Iterator[Notify]:
    from rich import progress as bars
    from rich.console import Console

    columns = [bars.TextColumn("{task.description}"), bars.BarColumn()]
    columns += [bars.MofNCompleteColumn()] if counted else []
    console = Console(stderr=True)
    with bars.Progress(
        *columns, bars.TimeRemainingColumn(), console=console, transient=True
    ) as bar:
        task = bar.add_task("")
        yield lambda what, done, total=1.0: bar.update(
            task, description=what, completed=done, total=total
        )


def _a_line_each() -> Notify:
    """Write a line for each thing that is done."""
    last = ""

    def notify(what: str, _done: float, _total: float = 1.0, /) -> None:
        nonlocal last
        if what != last:
            last = what
            sys.stderr.write(f"{what} ...\n")
            sys.stderr.flush()

    return notify


def _one_line() -> Notify:
    """Write a line over and over, not too often."""
    shown = 0.0

    def notify(what: str, done: float, total: float = 1.0, /) -> None:
        nonlocal shown
        now = time.monotonic()
        if now - shown >= _EVERY_S or done == total:
            shown = now
            sys.stderr.write(f"\r{what} {done:,} of {total:,}")
            sys.stderr.flush()

    return notify


class _Output(io.FileIO):
    """A standard file that remembers that it could not be written to, and from then on takes all.

    Python writes what is left in its buffers once more when it ends, and would complain again. A
    silent one takes all from the beginning: errors that cannot be printed are no further errors.
    """

    def __init__(self, number: int, *, silent: bool) -> None:
        super().__init__(number, "w", closefd=False)
        self.lost: OSError | None = None
        self.silent = silent

    def write(self, data: Any, /) -> int:
        if self.lost is None:
            try:
                return super().write(data)
            except OSError as error:
                self.lost = error
                if not self.silent:
                    raise
        return len(data)


def guarded(command: Callable[[], int], prog: str) -> int:
    """Run a command to its exit status, and end in good order however that ends.

    The status is 130 after Ctrl-C, and 1 if standard output is closed, full, or read no more.
    """
    _open_what_is_closed()
    output = _replaced("stdout", 1)
    _replaced("stderr", 2)
    try:
        status = _status(command)
        sys.stdout.flush()
    except KeyboardInterrupt:
        return INTERRUPTED
    except OSError:
        if output.lost is None:
            raise  # it is not about the terminal: a mistake of ours, which should be seen
    finally:
        output.silent = True
    if output.lost is None:
        return status
    if not isinstance(output.lost, BrokenPipeError):
        sys.stderr.write(f"{prog}: error: standard output: {output.lost.strerror}\n")
    return _LOST


def _replaced(name: str, number: int) -> _Output:
    """Have a standard file noticed when it fails; it takes letters that its encoding lacks, too."""
    usual = getattr(sys, name)
    raw = _Output(number, silent=number == 2)
    encoding = "utf-8" if usual is None else usual.encoding
    lines = number == 2 or raw.isatty()
    buffered = io.BufferedWriter(raw)
    new = io.TextIOWrapper(buffered, encoding, "backslashreplace", line_buffering=lines)
    setattr(sys, name, new)
    return raw


def _status(command: Callable[[], int]) -> int:
    try:
        return command()
    except SystemExit as end:  # argparse's, after --help or a wrong argument
        return end.code if isinstance(end.code, int) else 0


@contextmanager
def ending_at_once() -> Iterator[None]:
    """End the process on Ctrl-C, without a word, for as long as modules are imported.

    Nothing has been done yet that would be lost; and libraries in C make other errors of it.
    """
    usual = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if not usual or threading.current_thread() is not threading.main_thread():
        yield
        return
    signal.signal(signal.SIGINT, lambda *_: os._exit(INTERRUPTED))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def _open_what_is_closed() -> None:
    """Put something into the place of standard files that the caller closed (``>&-``).

    Else the next file that is opened, a store that is written, say, would be standard output.
    """
    for number, mode in enumerate((os.O_RDONLY, os.O_RDONLY, os.O_WRONLY)):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, mode)  # it takes the lowest number that is free
