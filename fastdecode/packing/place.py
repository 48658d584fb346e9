"""`Place`: the files that a pack makes, and where they are until it is done."""

from __future__ import annotations

import glob
import os
from collections.abc import Collection
from pathlib import Path

from fastdecode.stores.opening import KINDS

__all__ = ["Place", "kind_for"]


def kind_for(location: str) -> str:
    """Return the kind of store that a location's suffix asks for; a folder where it says nothing.

    Examples
    --------
    >>> kind_for("photos.lmdb"), kind_for("photos")
    ('lmdb', 'folder')
    """
    for kind, entry in KINDS.items():
        if entry.suffixes and location.rstrip("/").lower().endswith(entry.suffixes):
            return kind
    return "folder"


class Place:
    """Where the store is to be, and what goes with it.

    Parameters
    ----------
    location : str
        Local path.
    kind : str
    sharded : bool
        Several shards, named after it.

    Attributes
    ----------
    path : Path
        Of the store.
    manifest, bad : Path
        Of the manifest, and of the list of bad items.
    partial : Path
        The folder for all that is not done.
    out : Path
        The folder in it for what is.

    Raises
    ------
    ValueError
        If it can be no local path of a store.
    """

    def __init__(self, location: str, kind: str, *, sharded: bool) -> None:
        if "://" in location:
            raise ValueError(f"{location} is no local path: pack to one, and copy the result there")
        self.path = Path(location)
        name = self.path.name
        if not name or name == "..":
            raise ValueError(f"{location!r} does not end in the name of a store")
        named = kind_for(location)
        if named not in ("folder", kind):
            raise ValueError(
                f"{location} ends as a {named} store does, so nobody could open it as a {kind} "
                "store: choose another name"
            )
        self.kind = kind
        self.sharded = sharded
        self.manifest = self.path.with_name(f"{name}.json")
        self.bad = self.path.with_name(f"{name}.bad.csv")
        self.partial = self.path.with_name(f".{name}.partial")
        self.out = self.partial / "out"

    def shard(self, number: int) -> str:
        """Return the name of a shard."""
        if not self.sharded:
            return self.path.name
        return f"{self.path.stem}-{number:05d}{self.path.suffix}"

    def check_free(self, *, new: bool = True, ours: Collection[Path] = ()) -> None:
        """Make sure that nothing would be overwritten.

        Parameters
        ----------
        new : bool
            No earlier run has begun: a list of bad items is not its.
        ours : collection of Path
            What an earlier run has put there.

        Raises
        ------
        FileExistsError
            If it would.
        """
        others = [self.path, self.manifest, self.path.with_name(f"{self.path.name}.fdx")]
        if new:
            others.append(self.bad)
        if self.kind == "recordio":
            others.append(self.path.with_suffix(".idx"))
        if self.sharded:
            shards = f"{glob.escape(self.path.stem)}-[0-9]*{glob.escape(self.path.suffix)}"
            others += self.path.parent.glob(shards)
            others += self.path.parent.glob(f"{shards}.fdx")
        if self.manifest.exists() and (self.sharded or self.path.exists()):
            raise FileExistsError(  # one of the two is what comes last
                f"{self.path} has been packed already, and is whole: to do it again, remove it and "
                f"{self.manifest}, or choose another place"
            )
        for other in others:
            if os.path.lexists(other) and other not in ours:
                raise FileExistsError(
                    f"{other} is there already: remove it, or choose another place"
                )

    def check_apart(self, source: str) -> None:
        """Make sure that the result does not become part of its own source.

        Raises
        ------
        ValueError
            If it would.
        """
        if "://" in source or not Path(source).is_dir():
            return
        if Path(os.path.realpath(self.path)).is_relative_to(os.path.realpath(source)):
            raise ValueError(f"{self.path} lies inside {source}, which is packed: choose another")
