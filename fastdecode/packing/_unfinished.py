"""`Unfinished`: the folder ``.DST.partial``, in which a pack makes the files of a store.

Each line of its ``journal`` is JSON. The first one says what is packed, and how. Each object after
it says what a complete shard holds; each string names a file of a folder that has been begun. Once
the manifest is in the folder, all files are made, and only have to be renamed.

A folder that no pack of this user has made, or that holds anything else, is an error, and is not
touched. Only regular files are ever removed whose names are in the journal or follow from that of
the store, and folders only when they are empty. No link is followed.
"""

from __future__ import annotations

import json
import os
import re
import stat
from collections.abc import Collection, Iterator
from contextlib import suppress
from dataclasses import asdict
from itertools import takewhile
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any, BinaryIO

from fastdecode._system.files import remove_empty_folders, sync_folder
from fastdecode.packing._output import OutputPaths, ShardRecord, check_missing, file_sha256
from fastdecode.stores.folder import INDEX
from fastdecode.stores.tar.store import SUFFIX

if TYPE_CHECKING:
    from typing_extensions import Self

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

_MARK = b'{"fastdecode": '
"""What a journal begins with."""

_OWNER_ONLY = 0o700


class CannotResume(ValueError):
    """An earlier pack to the same place was begun in another way, or another one is at work."""


class Unfinished:
    """The folder for the unfinished files of a store; other packs are locked out meanwhile."""

    def __init__(self, place: OutputPaths) -> None:
        self.path = path = place.partial
        self.manifest = path / place.manifest.name
        self._place = place
        self._journal_at = path / "journal"
        store = place.path
        shard = rf"{re.escape(store.stem)}(-\d{{5,}})?{re.escape(store.suffix)}"
        beside = rf"{re.escape(store.name)}\.(json|bad\.csv)"
        self._names = _with_temporaries(rf"{shard}({re.escape(SUFFIX)})?|{beside}")
        self._index_names = _with_temporaries(re.escape(INDEX))
        self._journal = _open_locked(self._journal_at)
        try:
            self._read_journal()
            self._check_files()
        except BaseException:
            self._journal.close()
            raise

    def _check_files(self) -> None:
        for file in self._files():
            if not self._is_own(file):
                raise CannotResume(
                    f"{file} was not made by pack: move it away, remove {self.path}, or choose "
                    "another place"
                )

    def _read_journal(self) -> None:
        self._journal.seek(0)
        data = self._journal.read()
        self._lines = [line for line in data.splitlines(keepends=True) if line.endswith(b"\n")]
        begins_as_ours = data[: len(_MARK)] == _MARK[: len(data)]
        if not begins_as_ours or (not self._lines and any(self._files())):
            raise _foreign_error(self.path)
        try:
            found = [json.loads(line) for line in self._lines]
            self._keys = {line for line in found if isinstance(line, str)}
            self._how, *shards = [line for line in found if isinstance(line, dict)] or [{}]
            self.shards = [ShardRecord(**line) for line in shards]
        except (TypeError, ValueError):
            raise CannotResume(
                f"{self._journal_at}, of an earlier pack, is damaged: remove {self.path}, and "
                "begin again"
            ) from None

    def begin(self, how: dict[str, Any]) -> list[ShardRecord]:
        """Return the first shards of an earlier run while they are whole; remove all other files.

        With such shards, the earlier run must have been begun in the same way.
        """
        if self.shards and self._how != how:
            words = [
                f"{name} was {self._how.get(name)!r} and is {now!r}"
                for name, now in how.items()
                if self._how.get(name) != now
            ]
            raise CannotResume(
                f"an earlier pack was not finished ({self.path}), and {'; '.join(words)}: go on "
                "as it was begun, or remove that folder"
            )
        whole = takewhile(lambda each: self._is_whole(*each), enumerate(self.shards))
        self.shards = [part for _, part in whole]
        names = [self._place.shard(number) for number in range(len(self.shards))]
        self._clear({*names, *(f"{name}{SUFFIX}" for name in names)})
        if names:
            self._journal.truncate(sum(map(len, self._lines[: len(names) + 1])))
        else:
            self._journal.truncate(0)
            self._write(how)
        return [*self.shards]

    def _is_whole(self, number: int, part: ShardRecord) -> bool:
        path = self.path / self._place.shard(number)
        return path.is_file() and file_sha256(path) == part.sha256

    def add(self, part: ShardRecord) -> None:
        """Record a shard that is complete and on the disk."""
        self.shards.append(part)
        self._write(asdict(part))

    def add_key(self, key: str) -> None:
        """Record a file of a folder before it is made."""
        name = str(PurePosixPath(key))
        self._keys.add(name)
        self._journal.write(json.dumps(name).encode() + b"\n")
        self._journal.flush()

    def _write(self, line: dict[str, Any]) -> None:
        self._journal.write(json.dumps(line).encode() + b"\n")
        self._journal.flush()
        os.fsync(self._journal.fileno())

    def complete_files(self) -> list[Path]:
        """List the files of the store that are complete; the folder of a store counts as one."""
        found = (path for path in self.path.iterdir() if path.name[0] != ".")
        return sorted(path for path in found if path != self._journal_at and self._is_own(path))

    def describe_files(self) -> list[dict[str, Any]]:
        """Return the name, size and checksum of each file of a store that is not a tar.

        For a folder, only the index is listed, because `content_sha256` is about all images.
        """
        index = self.path / self._place.path.name / INDEX
        made = [path for path in (*self.complete_files(), index) if path.is_file()]
        return [
            {
                "name": path.relative_to(self.path).as_posix(),
                "bytes": path.stat().st_size,
                "sha256": file_sha256(path),
            }
            for path in made
        ]

    def publish(self) -> None:
        """Rename the files to their final places, except those that an earlier run has renamed.

        The manifest comes last: while it is in this folder, the next run goes on here, and shards
        without it do not count as a store.
        """
        store = self._place.path
        rank = {store.name: 1, self.manifest.name: 2}
        for made in sorted(self.complete_files(), key=lambda path: rank.get(path.name, 0)):
            final = store.with_name(made.name)
            check_missing(final)
            made.replace(final)
        sync_folder(store)

    def _files(self) -> Iterator[Path]:
        """Yield the files in this folder and below, and the folders and links directly in it."""
        for place, folders, files in os.walk(self.path):
            here = Path(place)
            top = here == self.path
            yield from (here / name for name in folders if top or (here / name).is_symlink())
            yield from (here / name for name in files if not top or name != self._journal_at.name)

    def _is_own(self, path: Path) -> bool:
        """Return whether a pack to this place has made this file, or folder directly in here."""
        top, _, name = path.relative_to(self.path).as_posix().partition("/")
        if not _is_of_user(path):
            return False
        if not name:
            return bool(self._names.fullmatch(top))
        return name in self._keys or bool(self._index_names.fullmatch(name))

    def _clear(self, kept: Collection[str] = ()) -> None:
        """Remove the files that a pack has made, except those of these names."""
        for path in [*self._files()]:
            if path.name not in kept and not path.is_dir() and self._is_own(path):
                path.unlink()
        for path in [*self.path.iterdir()]:
            if path.is_dir() and self._is_own(path):
                remove_empty_folders(path)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Remove the folder, unless it holds complete shards, or files that are to be renamed."""
        with self._journal:
            if (self.shards or self.manifest.exists()) and self.complete_files():
                return
            self._clear()
            if any(self._files()):  # files of others: without the journal, ours are not known
                return
            if fcntl is not None:
                self._journal_at.unlink()
        if fcntl is None:  # Windows does not remove open files
            self._journal_at.unlink()
        remove_empty_folders(self.path)  # now, because NFS keeps a file until it is closed


def _with_temporaries(names: str) -> re.Pattern[str]:
    """Return a pattern of names, and of what `Writer` and `write_bytes` call unfinished files."""
    return re.compile(rf"(?:{names})|\.(?:{names})\.[0-9a-f]{{8}}(?:\.partial)?")


def _is_of_user(path: Path) -> bool:
    """Return whether this is a regular file or a folder of this user, and no link."""
    found = path.lstat()
    is_plain = stat.S_ISREG(found.st_mode) or stat.S_ISDIR(found.st_mode)
    return is_plain and found.st_uid == getattr(os, "geteuid", int)()


def _is_left_empty(folder: Path) -> bool:
    """Return whether a pack was killed before it began the journal: the mode says that it did."""
    is_private = folder.stat().st_mode & 0o777 == _OWNER_ONLY
    return is_private and not any(folder.iterdir())


def _open_locked(journal: Path) -> BinaryIO:
    """Open a journal, and lock it for this process; make it and its folder if both are missing."""
    folder = journal.parent
    while True:
        is_new = not os.path.lexists(folder)
        with suppress(FileExistsError):
            folder.mkdir(mode=_OWNER_ONLY, parents=True)
        with suppress(FileNotFoundError):  # another pack that ends now has removed the folder
            if not (_is_of_user(folder) and folder.is_dir()):
                raise CannotResume(
                    f"{folder} is not a folder of this user: remove it, or choose another place"
                )
            if os.path.lexists(journal):
                is_ours = _is_of_user(journal) and journal.is_file()
            else:
                is_ours = is_new or _is_left_empty(folder)
            if not is_ours:
                raise _foreign_error(folder)
            file = journal.open("ab+")
            try:
                _lock(file, folder)
                if os.path.samestat(os.fstat(file.fileno()), journal.lstat()):
                    return file
            except BaseException:
                file.close()
                raise
            file.close()


def _foreign_error(folder: Path) -> CannotResume:
    return CannotResume(
        f"{folder} is not the unfinished work of a pack: remove it, or choose another place"
    )


def _lock(file: BinaryIO, folder: Path) -> None:
    """Lock a file until this process closes it or ends, where the file system can."""
    if fcntl is None:
        return
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise CannotResume(f"another process is at work in {folder}") from None
    except OSError:  # some network file systems have no locks
        return
