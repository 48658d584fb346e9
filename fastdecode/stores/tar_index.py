"""The index beside a tar shard, ``SHARD.tar.fdx``: random access without reading all headers."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from fastdecode.errors import StoreError
from fastdecode.stores.index import Index, IndexBuilder, header_of
from fastdecode.stores.mapped import Mapped, is_uri, local_path
from fastdecode.stores.tar_members import FileSource, MappedSource, Source
from fastdecode.stores.tar_samples import Choice, choice, samples

__all__ = [
    "COLUMNS",
    "LABELS",
    "SUFFIX",
    "Summary",
    "index_tar",
    "load_index",
    "made_for",
    "scanned",
    "summary",
    "way_out",
]

SUFFIX = ".fdx"

COLUMNS = ("offset", "size", "head", "check")
"""Where a picture's bytes lie; and how long its headers before them are, and their CRC-32."""

LABELS = ("label", "label_check")
"""Where the bytes of a target lie, 0 where there is none; and how many they are, times 2**32, and
their CRC-32."""

_VERSION = 1
_LEAST_PER_ITEM = 8
"""Bytes of an index that each item takes at least: those of one column."""


class Summary(NamedTuple):
    """What an index says first.

    Attributes
    ----------
    items : int
    classes : list of str
    about : dict
    """

    items: int
    classes: list[str]
    about: dict[str, Any]


def index_tar(
    location: str | os.PathLike[str],
    *,
    index: str | os.PathLike[str] | None = None,
    classes: Sequence[str] | None = None,
    image: str | Sequence[str] | None = None,
    target: str | None = None,
    storage_options: Mapping[str, Any] | None = None,
) -> Index:
    """Make the index of a shard.

    Parameters
    ----------
    location : path or URI
        A shard behind a URI is read once, from its beginning to its end.
    index : path, optional
        Where to write it; by default beside the shard, which therefore is local.
    classes : sequence of str, optional
        Names of the classes; by default those of the index that is there.
    image, target : optional
        See `TarStore`.
    storage_options : mapping, optional
        For a URI.

    Returns
    -------
    Index

    Raises
    ------
    OSError
        If the shard cannot be read, or the index not written.
    StoreError
        If the shard is no tar, or damaged.
    ValueError
        If the shard is behind a URI, and nothing says where to write.

    Examples
    --------
    >>> index_tar("train-00000.tar")  # doctest: +SKIP
    """
    where = os.fspath(location)
    if index is None and is_uri(where):
        raise ValueError(f"{where} is not local: say by index= where to write the index")
    path = Path(local_path(where) + SUFFIX if index is None else index)
    if classes is None:
        classes = _classes_at(path)
    builder, about = scanned(where, choice(image, target), storage_options, classes)
    builder.write(path, about)
    return Index.load(path)


def scanned(
    location: str,
    wanted: Choice,
    storage_options: Mapping[str, Any] | None = None,
    classes: Sequence[str] = (),
) -> tuple[IndexBuilder, dict[str, Any]]:
    """Go through a shard's headers, and note what is where.

    Returns
    -------
    builder : IndexBuilder
    about : dict
        What the index says of itself.

    Raises
    ------
    OSError, StoreError
        See `index_tar`.
    """
    if not is_uri(location):
        file = Mapped(location)
        builder = _built(MappedSource(file), wanted, classes)
        return builder, _about(file.size, wanted)
    from fastdecode.stores.remote import open_stream

    with open_stream(location, storage_options) as stream:
        source = FileSource(stream, location)
        builder = _built(source, wanted, classes)
        while source.take(1 << 20):
            pass  # what follows the end counts, too
    return builder, _about(source.position, wanted)


def load_index(path: str, storage_options: Mapping[str, Any] | None = None) -> Index:
    """Open the index of a shard: a local one is mapped, one behind a URI is read.

    Raises
    ------
    OSError
        If it cannot be read.
    StoreError
        If it is damaged, or not of a tar shard.
    """
    if is_uri(path):
        file = Mapped(path, storage_options)
        index = Index(bytes(file.read(0, file.size)), path)
    else:
        index = Index.load(local_path(path))
    if index.about.get("kind") != "tar" or not all(map(index.has, COLUMNS)):
        raise StoreError(f"{path} is no index of a tar shard: remove it, and {way_out('SHARD')}")
    return index


def summary(path: str, storage_options: Mapping[str, Any] | None = None) -> Summary:
    """Read the beginning of an index, without its columns.

    Raises
    ------
    OSError
        If it cannot be read.
    StoreError
        If it is none.
    """
    file = Mapped(path, storage_options)
    header = header_of(file.read, file.size, path)
    try:
        count, classes = int(header["count"]), [str(name) for name in header["classes"]]
        about = dict(header["about"])
    except (KeyError, OverflowError, TypeError, ValueError) as error:
        raise StoreError(f"{path} is no index of a tar shard: {way_out('SHARD')}") from error
    if not 0 <= count * _LEAST_PER_ITEM <= file.size:
        raise StoreError(f"{path} cannot hold {count} items: {way_out('SHARD')}")
    return Summary(count, classes, about)


def made_for(about: Mapping[str, Any]) -> Choice:
    """Return which members an index was made for, by what it says of itself."""
    return Choice(tuple(about.get("image") or ()), str(about.get("target") or ""))


def way_out(shard: str) -> str:
    """Say how an index is made."""
    return f"make the index by `python -m fastdecode index {shard}`"


def _built(source: Source, wanted: Choice, classes: Sequence[str]) -> IndexBuilder:
    builder = IndexBuilder(classes, (*COLUMNS, *LABELS))
    pictures: dict[int, int] = {}  # a stem's hash, and how often it came
    others: set[int] = set()
    for sample in samples(source, wanted, with_data=False):
        stem = sample if isinstance(sample, str) else sample.stem
        name = hash(stem)  # a tenth of the memory that the names take
        if isinstance(sample, str):
            others.add(name)
        else:
            times = pictures[name] = pictures.get(name, 0) + 1
            member, beside = sample.member, sample.beside
            key = sample.key if times == 1 else _again(sample.key, times)
            builder.add(
                key,
                sample.target,
                offset=member.offset,
                size=member.size,
                head=member.head,
                check=member.check,
                label=0 if beside is None else beside.offset,
                label_check=0 if beside is None else beside.size << 32 | sample.beside_check,
            )
        if others and name in others and name in pictures:
            raise StoreError(
                f"{source.location}: the files of sample {stem!r} do not follow one another, so "
                "that its target would be lost: make the tar with --sort=name"
            )
    if others and not pictures:
        named = ", ".join(wanted.image) or "the extension of a picture"
        raise StoreError(
            f"{source.location}: none of its {len(others)} samples has a file with {named}: "
            "say which it is by image="
        )
    return builder


def _again(key: str, times: int) -> str:
    """Make a key unique that a shard has several times."""
    stem, _, extension = key.rpartition(".")
    return f"{stem}~{times}.{extension}"


def _about(size: int, wanted: Choice) -> dict[str, Any]:
    return {
        "kind": "tar",
        "version": _VERSION,
        "shard_size": size,
        "image": list(wanted.image),
        "target": wanted.target,
    }


def _classes_at(path: Path) -> list[str]:
    """Return the classes of an index that is there; none if it is damaged, or nothing is."""
    try:
        return summary(str(path)).classes
    except (FileNotFoundError, StoreError):
        return []
