"""`WorkFolder`: where a pack makes its files, and how it goes on after its last complete shard.

Everything is made in the folder ``.DST.partial``. Its file ``state`` has lines of JSON: the first
says what is packed and how, each further one describes a complete shard, and the last one says that
all files are made. From then on they are only renamed to their final places, and the next run
finishes that if it was interrupted. The disk has a line before the pack goes on. If a kill leaves a
line incomplete, its shard is made again.
"""

from __future__ import annotations

import json
import os
import shutil
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from typing_extensions import Self

try:
    import fcntl
except ImportError:  # Windows, where no other process can remove the files that this one has opened
    fcntl = None  # type: ignore[assignment]

_STATE = "state"


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
        self._ends = [0]  # of the lines, in bytes
        self._handle = _open_state(path)
        with open(self._handle, "rb", closefd=False) as file:
            for line in file:
                if not line.endswith(b"\n"):  # a kill, or a full disk, has left it incomplete
                    break
                self._take(json.loads(line))
                self._ends.append(self._ends[-1] + len(line))
        os.ftruncate(self._handle, self._ends[-1])

    def _take(self, record: dict[str, Any]) -> None:
        if "part" in record:
            self.parts.append(ShardRecord(**record["part"]))
        elif "result" in record:
            self.result = record["result"]
        else:
            self.begun = record["begun"]

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
                "as it was begun, or begin again with --start-over"
            )
        if not self.parts:
            self._cut(0)
            self._append({"begun": how})
            self.begun = how

    def keep(self, count: int) -> None:
        """Discard all complete shards but the first ones."""
        del self.parts[count:]
        if self.begun:
            self._cut(1 + count)

    def add(self, part: ShardRecord) -> None:
        """Record a shard that is complete and on the disk."""
        self._append({"part": asdict(part)})
        self.parts.append(part)

    def finish(self, result: dict[str, Any]) -> None:
        """Record that all files are made."""
        self._append({"result": result})
        self.result = result

    def files(self) -> list[Path]:
        """List what is in the folder, without its own state."""
        return sorted(path for path in self.path.iterdir() if path.name != _STATE)

    def _append(self, record: dict[str, Any]) -> None:
        line = json.dumps(record).encode() + b"\n"
        left = memoryview(line)
        while left:  # a disk that is nearly full may take only a part
            left = left[os.write(self._handle, left) :]
        os.fsync(self._handle)
        self._ends.append(self._ends[-1] + len(line))

    def _cut(self, lines: int) -> None:
        self.result = None
        del self._ends[lines + 1 :]
        os.ftruncate(self._handle, self._ends[-1])

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        """Remove the folder, unless it holds complete shards, or files that are to be renamed."""
        if not (self.parts if self.result is None else self.files()):
            shutil.rmtree(self.path, ignore_errors=True)
        os.close(self._handle)


def _open_state(folder: Path) -> int:
    """Create the folder unless it exists, and open its state for this process alone."""
    path = folder / _STATE
    while True:
        with suppress(FileExistsError):
            folder.mkdir(mode=0o700, parents=True)
        with suppress(FileNotFoundError):  # another pack that ends now has removed the folder
            # Anybody could have made it before, with links that lead to files of this user.
            if folder.is_symlink() or folder.stat().st_uid != getattr(os, "geteuid", int)():
                raise CannotResume(
                    f"{folder} is not a folder of this user: remove it, or choose another place"
                )
            handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600)
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
