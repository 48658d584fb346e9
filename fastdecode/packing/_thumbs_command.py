"""``fastdecode thumbs``: make a folder of thumbnails."""

from __future__ import annotations

import argparse
import errno
import os
import sys
import time
import warnings
from array import array
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias

from fastdecode._arrays import map_in_order
from fastdecode._error_policy import ITEM_ERRORS, is_item_error
from fastdecode._files import check_writable, name_in_errors, read_regular, write_bytes
from fastdecode._system import usable_cores
from fastdecode.errors import FastDecodeError, StoreError, visible
from fastdecode.packing._rewrite import Names, thumbnail
from fastdecode.packing._verify import reason
from fastdecode.stores import kind_of, open_store
from fastdecode.stores._items import is_below
from fastdecode.terminal import (
    INTERRUPTED,
    Parser,
    count,
    positive,
    progress,
    quality,
    say,
    worker_count,
)

if TYPE_CHECKING:
    from fastdecode.stores import Store

_EXAMPLES = """\
examples:
  %(prog)s photos/ thumbs/
  %(prog)s photos/ thumbs/ --size 512 --quality 90
  %(prog)s train.tar thumbs/

photos/2024/cat.jpg becomes thumbs/2024/cat.jpg, upright, at most --size pixels
wide and high, and never enlarged. Thumbnails are JPEG files, or PNG files if
the image is transparent: logo.png becomes logo.jpg or logo.png. If two
thumbnails would get the same name, the suffix is added: a.png and a.bmp become
a.png.jpg and a.bmp.jpg. Thumbnails keep the colour profile, but no other
metadata, such as the place where a photo was taken.

A thumbnail is left as it is if it is newer than its image and has the same size
and quality, so after a crash or Ctrl-C the same command goes on. The command
replaces only files that it has made itself. In a folder, it leaves out hidden
files, and DST if that lies in SRC.

exit status: 0; 1 if an image has no thumbnail (each one is listed with the
reason); 2 for a wrong argument, nothing at SRC, something that cannot be
reached, or a DST that cannot be written; 130 after Ctrl-C"""
_OURS = "fastdecode thumbnail"
"""How the comment in every thumbnail begins. A file without it is not one of this command."""

_SHOWN = 3

_Status: TypeAlias = Literal["made", "kept", "failed"]


class _Outcome(NamedTuple):
    """The result for one image."""

    key: str
    status: _Status
    why: str = ""
    longer: str = ""  # the thumbnail's name, if it has both suffixes


@dataclass(frozen=True)
class _Work:
    """Makes the thumbnail of one image, in any thread."""

    store: Store
    names: Names
    to: Path
    side: int
    quality: int

    @property
    def comment(self) -> str:
        return f"{_OURS}, at most {self.side} pixels, quality {self.quality}"

    def __call__(self, index: int) -> _Outcome:
        """Make the thumbnail unless it exists; raise errors that are not of this image alone."""
        key = self.store.key(index)
        try:
            status: _Status = "made" if self._make(index, key) else "kept"
            name = self.names.rename_key(key, ".jpg")
            both = name.startswith(f"{key}.") and "." in key.rpartition("/")[2].strip(".")
            return _Outcome(key, status, longer=name if both else "")
        except (FastDecodeError, OSError, ValueError) as error:
            taken = isinstance(error, FileExistsError)
            if isinstance(error, ITEM_ERRORS) and not is_item_error(error) and not taken:
                raise
            return _Outcome(key, "failed", reason(error))

    def _make(self, index: int, key: str) -> bool:
        """Write the thumbnail; return False if it exists."""
        if not is_below(key):
            raise ValueError("its name leads out of the folder")
        places = {
            suffix: self.to / self.names.rename_key(key, suffix) for suffix in (".jpg", ".png")
        }
        changed = _modified_at(self.store, index)
        if any(self._is_done(place, changed) for place in places.values()):
            return False
        made = thumbnail(self.store.read(index), self.side, self.quality, self.comment)
        place = places[made.suffix]
        found = _read_existing(place)
        if found is not None and _OURS.encode() not in found[0]:
            raise FileExistsError(
                errno.EEXIST, "there is a file that this command has not made", str(place)
            )
        place.parent.mkdir(parents=True, exist_ok=True)
        write_bytes(place, made.data, follow=False)
        return True

    def _is_done(self, place: Path, changed: int) -> bool:
        found = _read_existing(place)
        return found is not None and self.comment.encode() in found[0] and found[1] >= changed


def _read_existing(place: Path) -> tuple[bytes, int] | None:
    """Return the content of a file and its modification time; None if there is no file."""
    try:
        return read_regular(place), place.stat().st_mtime_ns
    except FileNotFoundError:
        return None


def _modified_at(store: Store, index: int) -> int:
    """Return the modification time of an image or its store; 0 if it is not known."""
    path = store.source(index) if store.folder else store.location
    try:
        state = os.stat(path) if isinstance(path, str) else None  # noqa: PTH116
    except (OSError, ValueError):  # reading the image reports the error
        return 0
    return 0 if state is None else state.st_mtime_ns


def run(options: argparse.Namespace, parser: Parser) -> int:
    """Make the thumbnails, print what was made, and return the exit status."""
    begun = time.monotonic()
    counts: dict[_Status, int] = {"made": 0, "kept": 0, "failed": 0}
    failed: list[_Outcome] = []
    longer: list[str] = []
    ended: BaseException | None = None
    try:
        with warnings.catch_warnings():  # those of Pillow would appear between the lines
            warnings.simplefilter("ignore")
            for outcome in _outcomes(options):
                counts[outcome.status] += 1
                if outcome.status == "failed":
                    failed.append(outcome)
                if outcome.longer and len(longer) <= _SHOWN:
                    longer.append(outcome.longer)
    except KeyboardInterrupt:
        say("Interrupted: what is made is kept, and the same command goes on.", error=True)
        return INTERRUPTED
    except (FastDecodeError, ImportError, MemoryError, OSError, ValueError) as error:
        ended = error
    for one in failed:
        print(visible(f"{one.key}: {one.why}"))
    if failed or not ended:
        _report(counts, longer, time.monotonic() - begun)
    if ended:
        sys.stdout.flush()
        parser.print_error(_message(ended, options.dst))
        return 2
    return int(bool(failed))


def _outcomes(options: argparse.Namespace) -> Iterator[_Outcome]:
    to = Path(options.dst)
    if "://" in options.dst:
        raise ValueError(f"{options.dst}: thumbnails are written to local paths")
    whole: dict[str, Any] = {} if _is_store(options.src) else {"targets": False}
    with open_store(options.src, **whole) as store:
        wanted = _list_images(store, to)
        if not wanted:
            raise StoreError(f"there is nothing in {options.src}")
        if to.exists() and not to.is_dir():
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), options.dst)
        with name_in_errors(to):
            check_writable(to / _OURS, parents=True)
        work = _Work(store, Names(map(store.key, wanted)), to, options.size, options.quality)
        threads = options.threads or usable_cores()
        with (
            progress(counted=True) as notify,
            closing(map_in_order(work, wanted, threads)) as outcomes,
        ):
            for done, outcome in enumerate(outcomes, 1):
                notify("thumbnails", done, len(wanted))
                yield outcome


def _is_store(location: str) -> bool:
    return kind_of(location) != "folder"


def _list_images(store: Store, to: Path) -> array[int]:
    """List the images; in a folder, leave out hidden files and the thumbnails."""
    if store.kind != "folder" or not store.folder:
        return array("q", range(len(store)))
    source, target = _canonical(store.folder), _canonical(to)
    if source == target or _is_inside(source, target):
        raise ValueError(
            f"{to} is the folder of the images, or holds it: thumbnails need a separate folder"
        )
    found = array("q")
    known: dict[str, bool] = {}
    for index in range(len(store)):
        folder, _, name = store.key(index).rpartition("/")
        if folder not in known:
            there = _canonical(os.path.join(source, folder))  # noqa: PTH118
            hidden = any(part.startswith(".") for part in folder.split("/"))
            known[folder] = not hidden and there != target and not _is_inside(there, target)
        if known[folder] and not name.startswith("."):
            found.append(index)
    return found


def _canonical(path: str | Path) -> str:
    """Return a path without links, in a form that can be compared on this system."""
    return os.path.normcase(os.path.realpath(path))


def _is_inside(path: str, folder: str) -> bool:
    return path.startswith(folder.rstrip(os.sep) + os.sep)


def _message(error: BaseException, to: str) -> str:
    """Return the message for an error that ended the command; a full disk names no file."""
    if isinstance(error, OSError) and error.strerror and not error.filename:
        return f"{to}: {error.strerror}"
    return reason(error)


def _report(counts: dict[_Status, int], longer: list[str], seconds: float) -> None:
    if longer:
        more = " ..." if len(longer) > _SHOWN else ""
        say(f"Some names would have been the same: see {', '.join(longer[:_SHOWN])}{more}")
    if counts["failed"]:
        many = counts["failed"] > 1
        say(f"{counts['failed']:,} image{'s have' if many else ' has'} no thumbnail.")
    kept = f"; {counts['kept']:,} were there" if counts["kept"] else ""
    done = sum(counts.values())
    rate = done / max(seconds, 1e-9)
    say(f"{count(counts['made'], 'thumbnail')} in {seconds:.1f} s, {rate:,.0f} images/s{kept}")


def add_arguments(parser: Parser) -> None:
    parser.description = "Make a thumbnail of every image in a folder or a store."
    parser.epilog = _EXAMPLES
    add = parser.add_argument
    add("src", metavar="SRC", help="a folder, .csv, .tar, .lmdb, .h5, .rec, or a URI of one")
    add("dst", metavar="DST", help="the folder of the thumbnails")
    add(
        "--size",
        type=positive,
        default=256,
        metavar="N",
        help="the longest side, in pixels (default: %(default)s)",
    )
    add(
        "--quality",
        type=quality,
        default=85,
        metavar="Q",
        help="quality of the JPEGs, 1 to 100 (default: %(default)s)",
    )
    add("--threads", type=worker_count, metavar="N", help="threads to use (default: one per core)")
