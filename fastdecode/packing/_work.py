"""`WorkFolder`: where a pack makes its files, and how it goes on after its last complete shard.

Everything is made in the folder ``.DST.partial``. Its records are files of JSON, each written
atomically, before the pack goes on: ``begun`` says what is packed and how, ``0`` and so on describe
the complete shards, and ``result`` says that all files are made. From then on they are only renamed
to their final places, and the next run finishes that if it was interrupted.
"""

from __future__ import annotations

import json
import os
import shutil
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fastdecode._files import sync_folder, write_bytes

if TYPE_CHECKING:
    from typing_extensions import Self

try:
    import fcntl
except ImportError:  # Windows, where no other process can remove the files that this one has opened
    fcntl = None  # type: ignore[assignment]

_LOCK, _RECORDS = "lock", "records"


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
    stamps: str = ""  # a checksum of the size and time of each local file that it was made from
    bytes: int = 0  # size of the shard
    sha256: str = ""


class WorkFolder:
    """The folder for the unfinished files of a store, for one process at a time."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.begun: dict[str, Any] = {}
        self.parts: list[ShardRecord] = []  # the complete shards
        self.result: dict[str, Any] | None = None  # a `Packed`, once all files are made
        self._records = path / _RECORDS
        self._handle = _open_lock(path)
        self._records.mkdir(exist_ok=True)
        self.begun = self._load("begun") or {}
        self.result = self._load("result")
        while (part := self._load(f"{len(self.parts)}")) is not None:
            self.parts.append(ShardRecord(**part))

    def begin(self, how: dict[str, Any]) -> None:
        """Begin anew, or go on if an earlier run was begun in the same way."""
        if self.parts and self.begun != how:
            words = [
                f"{key} was {self.begun.get(key)!r} and is {now!r}"
                for key, now in how.items()
                if self.begun.get(key) != now
            ]
            raise CannotResume(
                f"an earlier pack was not finished ({self.path}), and {'; '.join(words)}: go on "
                "as it was begun, or remove that folder"
            )
        if not self.parts:
            self._discard("result")
            self._save("begun", how)
            self.begun, self.result = how, None

    def keep(self, count: int) -> None:
        """Discard all complete shards but the first ones."""
        self._discard("result", *map(str, reversed(range(count, len(self.parts)))))
        self.result = None
        del self.parts[count:]

    def add(self, part: ShardRecord) -> None:
        """Record a shard that is complete and on the disk."""
        self._save(f"{len(self.parts)}", asdict(part))
        self.parts.append(part)

    def finish(self, result: dict[str, Any]) -> None:
        """Record that all files are made."""
        self._save("result", result)
        self.result = result

    def files(self) -> list[Path]:
        """List what is in the folder, without its own records."""
        return sorted(path for path in self.path.iterdir() if path.name not in (_LOCK, _RECORDS))

    def record(self, name: str) -> Path:
        """Return the path of a file that is not one of the store's."""
        return self._records / name

    def _load(self, name: str) -> Any:
        with suppress(FileNotFoundError):
            return json.loads(self.record(name).read_bytes())

    def _save(self, name: str, record: dict[str, Any]) -> None:
        data = json.dumps(record).encode()
        write_bytes(self.record(name), data, durable=True)
        sync_folder(self.record(name))

    def _discard(self, *names: str) -> None:
        for name in names:
            self.record(name).unlink(missing_ok=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        """Remove the folder, unless it holds complete shards, or files that are to be renamed."""
        if not (self.parts if self.result is None else self.files()):
            shutil.rmtree(self.path, ignore_errors=True)
        os.close(self._handle)


def _open_lock(folder: Path) -> int:
    """Create the folder unless it exists, and lock it for this process alone."""
    path = folder / _LOCK
    while True:
        with suppress(FileExistsError):
            folder.mkdir(mode=0o700, parents=True)
        with suppress(FileNotFoundError):  # another pack that ends now has removed the folder
            # Anybody could have made it before, with links that lead to files of this user.
            if folder.is_symlink() or folder.stat().st_uid != getattr(os, "geteuid", int)():
                raise CannotResume(
                    f"{folder} is not a folder of this user: remove it, or choose another place"
                )
            handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
            try:
                _lock(handle, folder)
                if os.path.samestat(os.fstat(handle), path.stat()):
                    return handle
            except BaseException:
                os.close(handle)
                raise
            os.close(handle)


def _lock(handle: int, folder: Path) -> None:
    """Lock a file until this process closes it or ends, where the file system can."""
    if fcntl is not None:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise CannotResume(f"another process is at work in {folder}") from None
        except OSError:  # some network file systems have no locks
            return
