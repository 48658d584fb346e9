"""What all subcommands share: the parser, types of arguments, paragraphs, progress, exit statuses.

Commands end cleanly on Ctrl-C, and when the reader of their output has gone. Control characters in
names, such as those of files, never reach the terminal.
"""

from __future__ import annotations

import argparse
import csv
import importlib
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
from itertools import zip_longest
from typing import Any, NamedTuple, NoReturn, TypeAlias

from fastdecode.errors import near_miss, visible, without_advice

INTERRUPTED = 130
"""Exit status after Ctrl-C, as in shells: 128 plus the number of the signal."""

_LOST = 1
_MAX_AT_ONCE = 1024  # threads or workers; a larger number is probably a typing error
_EVERY_S = 0.2
_LONGEST = 110
_WIDEST = 80
_GAP = "  "
_NARROWEST = 8
_ACTING = re.compile(
    "[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]"
)
"""Control characters, characters that change the direction of text, and surrogates."""

_FORMULAS = ("=", "+", "-", "@", "＝", "＋", "－", "＠")  # noqa: RUF001 - some programs accept the wide ones too


class Parser(argparse.ArgumentParser):
    """A parser whose messages are safe to print, whatever names they quote."""

    def __init__(self, **arguments: Any) -> None:
        super().__init__(formatter_class=argparse.RawDescriptionHelpFormatter, **arguments)

    def parse_args(  # type: ignore[override]
        self, args: Sequence[str] | None = None, namespace: None = None
    ) -> argparse.Namespace:
        """Parse the words; for an unknown option, suggest a similar one."""
        if any(not word or (word[:2] == "--" and word[-1] == "=") for word in args or ()):
            self.error("an argument is empty: is a variable unset?")
        options, unknown = self.parse_known_args(args, namespace)
        if unknown:
            named = next((word.partition("=")[0] for word in unknown if word[:1] == "-"), "")
            alike = near_miss(named, self._option_string_actions)
            self.error(f"unrecognized arguments: {' '.join(unknown)}{alike}")
        return options

    def print_error(self, problem: BaseException | str) -> None:
        """Print an error on standard error."""
        words = problem if isinstance(problem, str) else without_advice(problem)
        self._print_message(_plain(f"{self.prog}: error: {words}\n"), sys.stderr)

    def fail(self, problem: BaseException | str) -> NoReturn:
        """Print an error and end the command with exit status 2."""
        self.print_error(problem)
        self.exit(2)

    def need(self, library: str, option: str, install: str) -> None:
        """If `library` cannot be imported, say what installs it and exit with status 2."""
        try:
            importlib.import_module(library)
        except ImportError as error:
            self.error(f"{option} needs {library} ({error}): {install}")

    def exit(self, status: int = 0, message: str | None = None) -> NoReturn:
        """End the command; print the message, if any, on standard error."""
        super().exit(status, message and _plain(message))


def _plain(message: str) -> str:
    return "\n".join(map(visible, message.split("\n")))


def positive(text: str) -> int:
    """Parse a whole number of at least 1."""
    if not (text.isascii() and text.isdecimal() and int(text) > 0):
        raise argparse.ArgumentTypeError(f"{text!r} is not a positive whole number")
    return int(text)


def worker_count(text: str) -> int:
    """Parse a number of threads or workers."""
    number = positive(text)
    if number > _MAX_AT_ONCE:
        raise argparse.ArgumentTypeError(
            f"{number:,} at once are too many: at most {_MAX_AT_ONCE:,}"
        )
    return number


def quality(text: str) -> int:
    """Parse a JPEG quality, 1 to 100."""
    number = positive(text)
    if number > 100:
        raise argparse.ArgumentTypeError(f"{text} is beyond 100, the best quality of a JPEG")
    return number


def seconds(text: str) -> float:
    """Parse a finite number of at least 0."""
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value < float("inf"):
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds")
    return value


def width(most: int | None = None) -> int:
    """Return the width of the terminal in characters: ``COLUMNS``, the real width, or 80."""
    columns = shutil.get_terminal_size((80, 24)).columns
    return max(40, columns if most is None else min(most, columns))


def paragraph(
    text: str, indent: str = "", first: str | None = None, most: int | None = None
) -> str:
    """Wrap each line of a text to the width of the terminal; break words that are too long.

    Every line begins with `indent`, except that the first one begins with `first` if it is given.
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


class Column(NamedTuple):
    """One column of a table."""

    title: str
    right: bool = False  # align to the right, for numbers
    # wrap cells that are wider, in characters; 0: never. The last column wraps at the line's end.
    widest: int = 0


def table(columns: Sequence[Column], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """Yield the lines of a table, none wider than `width` if its columns can be wrapped enough."""
    titles = [column.title for column in columns]
    natural = [max(map(len, cells)) for cells in zip(titles, *rows, strict=True)]
    widths = [
        min(wide, column.widest or wide) for wide, column in zip(natural, columns, strict=True)
    ]
    room = width() - sum(widths[:-1]) - len(_GAP) * (len(widths) - 1)
    widths[-1] = max(min(widths[-1], _NARROWEST), min(widths[-1], room))
    soft = [index for index, column in enumerate(columns) if column.widest]
    while soft and sum(widths) + len(_GAP) * (len(widths) - 1) > width():
        widest = max(soft, key=lambda index: widths[index])
        if widths[widest] <= _NARROWEST:
            break
        widths[widest] -= 1
    for row in (titles, ["-" * size for size in widths], *rows):
        cells = [
            textwrap.wrap(cell, size, break_on_hyphens=False) or [""]
            for cell, size in zip(row, widths, strict=True)
        ]
        for parts in zip_longest(*cells, fillvalue=""):
            aligned = [
                part.rjust(size) if column.right else part.ljust(size)
                for part, column, size in zip(parts, columns, widths, strict=True)
            ]
            yield _GAP.join(aligned).rstrip()


def say(text: str, *, indent: str = "", error: bool = False) -> None:
    """Print a paragraph of at most 80 columns, with unprintable characters made visible."""
    stream = sys.stderr if error else sys.stdout
    stream.write(paragraph(visible(text), indent, first="", most=_WIDEST) + "\n")


def brief(text: str) -> str:
    """Shorten a line that is too long for the terminal. Files contain the whole line."""
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 4].rstrip()} ..."


def count(amount: int, noun: str) -> str:
    """Return a number with its noun, in the plural unless the number is 1."""
    return f"{amount:,} {noun}{'' if amount == 1 else 's'}"


def csv_text(rows: Iterable[Sequence[str | int]]) -> str:
    """Return the rows as CSV.

    Keys may contain anything. Control characters are therefore escaped, and a cell that a
    spreadsheet would take for a formula gets an apostrophe in front (OWASP, CSV Injection).
    """
    lines = io.StringIO()
    writer = csv.writer(lines, lineterminator="\n")
    for row in rows:
        writer.writerow([_cell(cell) if isinstance(cell, str) else cell for cell in row])
    return lines.getvalue()


def _cell(text: str) -> str:
    text = _ACTING.sub(lambda found: ascii(found[0])[1:-1], text)
    return f"'{text}" if text.startswith(_FORMULAS) else text


Notify: TypeAlias = Callable[[str, float, float], object]
"""A callback for progress: what is being done, how much of it is done, and the total."""


@contextmanager
def progress(*, counted: bool = False) -> Iterator[Notify]:
    """Show progress on standard error for as long as the block runs.

    Counted work gets one line that is overwritten, on a terminal only. Other work gets a new line
    for each step, in a file too.
    """
    if not counted:
        yield _line_per_step()
    elif sys.stderr.isatty():
        try:
            yield _one_line()
        finally:  # also before an error
            sys.stderr.write("\n")
    else:
        yield lambda _what, _done, _total: None


def _line_per_step() -> Notify:
    """Return a callback that writes a line for each new step."""
    last = ""

    def notify(what: str, _done: float, _total: float) -> None:
        nonlocal last
        if what != last:
            last = what
            sys.stderr.write(f"{what} ...\n")
            sys.stderr.flush()

    return notify


def _one_line() -> Notify:
    """Return a callback that overwrites one line, a few times a second at most."""
    shown = 0.0

    def notify(what: str, done: float, total: float) -> None:
        nonlocal shown
        now = time.monotonic()
        if now - shown >= _EVERY_S or done == total:
            shown = now
            sys.stderr.write(f"\r{what} {done:,} of {total:,}")
            sys.stderr.flush()

    return notify


def run_guarded(command: Callable[[], int], prog: str) -> int:
    """Run a command and return its exit status, also after Ctrl-C or a failed write.

    The status is 130 after Ctrl-C, and 1 if standard output is full or its reader has gone.
    """
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        stream = getattr(sys, name)
        if stream is None:  # the caller has closed it: no other file may get its number
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: SIM115
        elif mode == "w":  # names may hold characters that the encoding of a terminal lacks
            stream.reconfigure(errors="backslashreplace")
    try:
        status = _exit_status(command)
        sys.stdout.flush()
    except KeyboardInterrupt:
        return INTERRUPTED
    except OSError as error:
        if not isinstance(error, BrokenPipeError):
            sys.stderr.write(f"{prog}: error: standard output: {error.strerror or error}\n")
        # Python flushes it again when it exits, and would report the same error.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return _LOST
    return status


def _exit_status(command: Callable[[], int]) -> int:
    try:
        return command()
    except SystemExit as end:  # argparse raises it after --help or a wrong argument
        return end.code if isinstance(end.code, int) else 0


@contextmanager
def silent_interrupt() -> Iterator[None]:
    """Within the block, let Ctrl-C end the process at once and silently. For imports.

    There is no work yet that could be lost, and C libraries turn KeyboardInterrupt into other
    errors while they are imported.
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
