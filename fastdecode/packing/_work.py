"""`WorkFolder`: where a pack makes its files, and how it goes on after its last complete shard.

Everything is made in the folder ``.DST.partial``. ``begun`` in it says what is packed and how, and
``0`` and so on say what each complete shard holds. Once the manifest is there, all files are made,
and only have to be renamed to their final places.
"""

from __future__ import annotations

import json
import os
import shutil
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fastdecode._system.files import write_bytes

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
    bytes: int = 0  # size of the shard
    sha256: str = ""


class WorkFolder:
    """The folder for the unfinished files of a store, for one process at a time."""

    def __init__(self, path: Path, manifest: str) -> None:
        self.path = path
        self.manifest = path / manifest
        self._records = path / _RECORDS
        self._handle = _open_lock(path)
        self._records.mkdir(exist_ok=True)

    def begin(self, how: dict[str, Any]) -> list[ShardRecord]:
        """Return the complete shards of an earlier run, which was begun in the same way."""
        before, found = self._load("begun"), list[ShardRecord]()
        while (part := self._load(f"{len(found)}")) is not None:
            found.append(ShardRecord(**part))
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
        write_bytes(self.record(name), json.dumps(record).encode(), durable=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        """Remove the folder, unless it holds complete shards, or files that are to be renamed."""
        of_use = self.manifest.exists() or self.record("0").exists()
        if not (of_use and self.files()):
            shutil.rmtree(self.path, ignore_errors=True)
        os.close(self._handle)


def _open_lock(folder: Path) -> int:
    """Create the folder unless it exists, and lock it for this process alone."""
    path = folder / _LOCK
    while True:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        with suppress(FileNotFoundError):  # another pack that ends now has removed the folder
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
