"""Which members of a tar are one sample, and which of these is the picture and which the target."""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from fastdecode.errors import StoreError
from fastdecode.stores.keys import relative
from fastdecode.stores.tar_members import Member, Source, members
from fastdecode.stores.tar_names import IMAGES, key_of, split
from fastdecode.stores.targets import from_json
from fastdecode.types import Buffer

__all__ = ["Choice", "Picture", "choice", "samples"]

_TARGETS = ("cls", "json", "txt")
_NUMBERS = ("cls", "cls2", "index", "inx", "id")
"""Extensions of whole numbers, as WebDataset decodes them."""


class Choice(NamedTuple):
    """Which members are wanted, as the caller says it.

    Attributes
    ----------
    image : tuple of str
        Extensions of the picture, the first that is there; empty for any known one.
    target : str
        The extension of the target; empty for the first of cls, json and txt that is there.
    """

    image: tuple[str, ...] = ()
    target: str = ""


class Picture(NamedTuple):
    """A sample that has a picture.

    Attributes
    ----------
    stem : str
    key : str
    member : Member
        The picture's.
    data : bytes-like
        The picture; empty unless it was asked for.
    target : object
    beside : Member or None
        The target's.
    beside_check : int
        The CRC-32 of its bytes.
    """

    stem: str
    key: str
    member: Member
    data: Buffer
    target: Any
    beside: Member | None
    beside_check: int


def choice(image: str | Sequence[str] | None, target: str | None) -> Choice:
    """Make a `Choice` of the options ``image`` and ``target``, with or without dots."""
    images = [image] if isinstance(image, str) else list(image or ())
    return Choice(
        tuple(each.lower().lstrip(".") for each in images), (target or "").lower().lstrip(".")
    )


def samples(source: Source, wanted: Choice, *, with_data: bool) -> Iterator[Picture | str]:
    """Go through the samples of a tar.

    Parameters
    ----------
    source : Source
    wanted : Choice
    with_data : bool
        Read the pictures, too.

    Yields
    ------
    Picture or str
        The stem alone of a sample that has no picture.

    Raises
    ------
    StoreError
        If the tar is damaged or cut short, a sample has a file twice or more pictures than one,
        or a target cannot be read. The message names the member or the sample.

    Notes
    -----
    The rules are WebDataset's (``group_by_keys`` in its ``tariterators.py``): files of a sample
    follow one another, and extensions are compared in lower case.
    """
    sample: _Sample | None = None
    targets = (wanted.target,) if wanted.target else _TARGETS
    for member in members(source):
        parts = split(member.name)
        if parts is None:
            continue
        stem, extension = parts
        if sample is None or stem != sample.stem:
            if sample is not None:
                yield sample.finished(wanted)
            sample = _Sample(stem, source.location)
        lower = extension.lower()
        if lower in sample.seen:
            raise StoreError(f"{source.location}: member {member.name!r} comes twice in its sample")
        sample.seen.add(lower)
        if lower in targets:
            sample.targets[lower] = member, bytes(_whole(source, member))
        elif lower in wanted.image if wanted.image else lower.rpartition(".")[2] in IMAGES:
            data = _whole(source, member) if with_data else b""
            sample.pictures[lower] = (extension, member, data)
    if sample is not None:
        yield sample.finished(wanted)


class _Sample:
    """What has been found of a sample."""

    __slots__ = ("location", "pictures", "seen", "stem", "targets")

    def __init__(self, stem: str, location: str) -> None:
        self.stem = stem
        self.location = location
        self.seen: set[str] = set()
        self.pictures: dict[str, tuple[str, Member, Buffer]] = {}
        self.targets: dict[str, tuple[Member, bytes]] = {}

    def finished(self, wanted: Choice) -> Picture | str:
        """Choose the picture and the target."""
        if not self.pictures:
            return self.stem
        extension, member, data = self.pictures[self._chosen(wanted)]
        target, beside, check = None, None, 0
        for name in (wanted.target,) if wanted.target else _TARGETS:
            if name in self.targets:
                beside, written = self.targets[name]
                target, check = self._parsed(name, written), zlib.crc32(written)
                break
        key = relative(key_of(self.stem, extension, member.owner))
        return Picture(self.stem, key, member, data, target, beside, check)

    def _chosen(self, wanted: Choice) -> str:
        """Return the extension of the picture."""
        if len(self.pictures) == 1:
            return next(iter(self.pictures))
        if wanted.image:
            return min(self.pictures, key=wanted.image.index)
        plain = [extension for extension in self.pictures if "." not in extension]
        if len(plain) == 1:  # "jpg" beside "mask.png"
            return plain[0]
        listed = ", ".join(self.pictures)
        raise StoreError(
            f"{self.location}: sample {self.stem!r} has more pictures than one ({listed}): "
            f"say which by image={next(iter(self.pictures))!r}"
        )

    def _parsed(self, extension: str, data: bytes) -> Any:
        """Read a target."""
        try:
            text = data.decode()
            if extension in _NUMBERS:
                return int(text)
            if extension.rpartition(".")[2] == "json":
                return from_json(text)
        except (ValueError, RecursionError) as error:
            raise StoreError(
                f"{self.location}: the .{extension} of sample {self.stem!r} cannot be read "
                f"({error}): say which is the target by target="
            ) from error
        return text


def _whole(source: Source, member: Member) -> Buffer:
    data = source.take(member.size)
    if len(data) < member.size:
        raise StoreError(
            f"{source.location}: member {member.name!r} is cut short: {len(data)} bytes of "
            f"{member.size} are there"
        )
    return data
