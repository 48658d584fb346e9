"""`WorkFolder`: where a pack makes its files, and how it goes on after its last complete shard.

Everything is made in the folder ``.DST.partial``. In its ``records``, ``begun`` says what is packed
and how, ``0`` and so on what each complete shard holds, and ``keys`` which files of a folder have
been begun. Once the manifest is there, all files are made, and only have to be renamed to their
final places.

The folder is made here, or an earlier pack of this user has begun it; then all in it has a name
that is recorded or follows from that of the store, and nothing is a link. Any other is an error.
Only such files are ever removed, and folders only when they are empty.
"""

from __future__ import annotations

import json
import os
import re
import stat
from collections.abc import Collection, Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

from fastdecode._system.files import remove_empty_folders, write_bytes
from fastdecode.stores.folder import INDEX
from fastdecode.stores.tar.store import SUFFIX

if TYPE_CHECKING:
    from typing_extensions import Self

try:
    import fcntl
except ImportError:  # Windows, where no other process can remove the files that this one has opened
    fcntl = None  # type: ignore[assignment]

_RECORDS = "records"
_MARK = b'{"fastdecode": '
"""What ``begun`` begins with."""

_OWNER_ONLY = 0o700


class CannotResume(ValueError):
    """An earlier pack to the same place was begun in another way, or another one is at work."""


@dataclass
class ShardRecord:
    """What one shard holds, or all of a store that has no shards."""

    next: int = 0  # the first item of the source after it
    items: int = 0
    bytes_in: int = 0  # size of the encoded images in the source
    bytes_out: int = 0  # and in the store
    notes: dict[str, int] = field(default_factory=dict)  # see `Packed`
    bad: list[tuple[str, str]] = field(default_factory=list)
    bytes: int = 0  # size of the shard
    sha256: str = ""


class WorkFolder:
    """The folder for the unfinished files of a store, for one process at a time."""

    def __init__(self, path: Path, manifest: str) -> None:
        self.path = path
        self.manifest = path / manifest
        self._records = path / _RECORDS
        store = Path(manifest.removesuffix(".json"))
        shard = rf"{re.escape(store.stem)}(-\d{{5,}})?{re.escape(store.suffix)}"
        self._names = _written(rf"{shard}({re.escape(SUFFIX)})?|{re.escape(manifest)}")
        self._record_names = _written(rf"begun|keys|\d+|{re.escape(store.name)}\.bad\.csv")
        self._handle = _open_locked(self._records)
        try:
            self._check_own()
        except BaseException:
            _close(self._handle)
            raise

    def _check_own(self) -> None:
        """Raise CannotResume unless a pack of this user has made the folder and all in it."""
        begun = self.record("begun")
        self._keys = self._load_keys()
        for path in self._walk():
            if not self._is_own(path):
                raise CannotResume(
                    f"{path} is no work of pack: move it away, remove {self.path}, or choose "
                    "another place"
                )
        if begun.exists():
            with begun.open("rb") as file:
                is_begun = file.read(len(_MARK)) == _MARK
        else:  # it is new, or a pack was killed before it wrote this, or after it removed it
            left = (path.name for path in self._walk() if path != self._records)
            is_begun = all(name.startswith(".begun.") for name in left)
        if not is_begun:
            raise _foreign_error(self.path)

    def _walk(self) -> Iterator[Path]:
        """Yield the folders in this one, and all files and links in them and here."""
        for folder, folders, files in os.walk(self.path):
            here = Path(folder)
            top = here == self.path
            yield from (here / name for name in folders if top or (here / name).is_symlink())
            yield from (here / name for name in files)

    def _is_own(self, path: Path) -> bool:
        """Return whether a pack to this place has made this file, or folder in the work folder."""
        top, _, name = path.relative_to(self.path).as_posix().partition("/")
        if not name:
            return _is_of_user(path) and (top == _RECORDS or bool(self._names.fullmatch(top)))
        if top == _RECORDS:
            known = bool(self._record_names.fullmatch(name))
        else:
            known = name in self._keys or bool(_written(re.escape(INDEX)).fullmatch(name))
        return known and _is_of_user(path)

    def begin(self, how: dict[str, Any]) -> list[ShardRecord]:
        """Return the complete shards of an earlier run, which was begun in the same way."""
        before, found = self._load("begun"), list[ShardRecord]()
        while (part := self._load(f"{len(found)}")) is not None:
            try:
                found.append(ShardRecord(**part))
            except TypeError:
                raise self._damaged_error(f"{len(found)}") from None
        if found and before != how:
            words = [
                f"{key} was {before.get(key)!r} and is {now!r}"
                for key, now in how.items()
                if before.get(key) != now
            ]
            raise CannotResume(
                f"an earlier pack was not finished ({self.path}), and {'; '.join(words)}: go on "
                "as it was begun, or remove that folder"
            )
        if not found:
            self._save("begun", how)
        return found

    def add(self, number: int, part: ShardRecord) -> None:
        """Record a shard that is complete and on the disk."""
        self._save(f"{number}", asdict(part))

    def add_key(self, key: str) -> None:
        """Record a file that is about to be made in a folder."""
        with self.record("keys").open("ab") as file:
            file.write(json.dumps(str(PurePosixPath(key))).encode() + b"\n")

    def files(self) -> list[Path]:
        """List the files of the store that are complete."""
        found = (path for path in self.path.iterdir() if path.name[0] != ".")
        return sorted(path for path in found if path != self._records and self._is_own(path))

    def discard(self, kept: Collection[str]) -> None:
        """Remove the files that a pack has made, except those of these names and the records."""
        self._keys = self._load_keys()
        for path in [*self._walk()]:
            if self._records not in (path, path.parent) and path.name not in kept:
                self._remove(path)
        for path in self.path.iterdir():
            if path.is_dir() and path != self._records:
                remove_empty_folders(path)
        self.record("keys").unlink(missing_ok=True)

    def _remove(self, path: Path) -> None:
        if not path.is_dir() and self._is_own(path):
            path.unlink(missing_ok=True)

    def record(self, name: str) -> Path:
        """Return the path of a file that is not one of the store's."""
        return self._records / name

    def _load_keys(self) -> set[str]:
        with suppress(FileNotFoundError):
            lines = self.record("keys").read_bytes().splitlines(keepends=True)
            return {json.loads(line) for line in lines if line.endswith(b"\n")}
        return set()

    def _load(self, name: str) -> Any:
        with suppress(FileNotFoundError):
            try:
                return json.loads(self.record(name).read_bytes())
            except ValueError:
                raise self._damaged_error(name) from None

    def _damaged_error(self, name: str) -> CannotResume:
        return CannotResume(
            f"{self.record(name)}, of an earlier pack, is damaged: remove {self.path}, and begin "
            "again"
        )

    def _save(self, name: str, record: dict[str, Any]) -> None:
        write_bytes(self.record(name), json.dumps(record).encode(), b'{"', durable=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        """Remove the folder, unless it holds complete shards, or files that are to be renamed."""
        of_use = self.manifest.exists() or self.record("0").exists()
        if not (of_use and self.files()):
            self.discard(())
            begun = self.record("begun")  # the last: without it, the rest would not be known
            for path in sorted(self._records.iterdir(), key=lambda path: path == begun):
                self._remove(path)
            remove_empty_folders(self.path)
        _close(self._handle)


def _written(names: str) -> re.Pattern[str]:
    """Return a pattern of names, and of what `Writer` and `write_bytes` call unfinished files."""
    return re.compile(rf"(?:{names})|\.(?:{names})\.[0-9a-f]{{8}}(?:\.partial)?")


def _is_of_user(path: Path) -> bool:
    """Return whether this is a regular file or a folder of this user, and no link."""
    found = path.lstat()
    is_plain = stat.S_ISREG(found.st_mode) or stat.S_ISDIR(found.st_mode)
    return is_plain and found.st_uid == getattr(os, "geteuid", int)()


def _is_private(folder: Path) -> bool:
    """Return whether an empty folder is one that a pack was killed in, as its mode tells."""
    return stat.S_IMODE(folder.stat().st_mode) & 0o777 == _OWNER_ONLY


def _is_folder_of_user(path: Path) -> bool:
    return _is_of_user(path) and path.is_dir()


def _open_locked(records: Path) -> int | None:
    """Lock the records in a folder for this process alone; make both, unless they are there."""
    folder = records.parent
    while True:
        is_new = not os.path.lexists(folder)
        with suppress(FileExistsError):
            folder.mkdir(mode=_OWNER_ONLY, parents=True)
        with suppress(FileNotFoundError):  # another pack that ends now has removed the folder
            if not _is_folder_of_user(folder):
                raise CannotResume(
                    f"{folder} is not a folder of this user: remove it, or choose another place"
                )
            if is_new or (not any(folder.iterdir()) and _is_private(folder)):
                records.mkdir(exist_ok=True)
            if not (os.path.lexists(records) and _is_folder_of_user(records)):
                raise _foreign_error(folder)
            if fcntl is None:
                return None
            handle = os.open(records, os.O_RDONLY)
            try:
                _lock(handle, folder)
                if os.path.samestat(os.fstat(handle), records.lstat()):
                    return handle
            except BaseException:
                os.close(handle)
                raise
            os.close(handle)


def _foreign_error(folder: Path) -> CannotResume:
    return CannotResume(
        f"{folder} is not the unfinished work of a pack: remove it, or choose another place"
    )


def _close(handle: int | None) -> None:
    if handle is not None:
        os.close(handle)


def _lock(handle: int, folder: Path) -> None:
    """Lock a folder until this process closes it or ends, where the file system can."""
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise CannotResume(f"another process is at work in {folder}") from None
    except OSError:  # some network file systems have no locks
        return
