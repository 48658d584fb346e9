"""Names of images in a tar: WebDataset's rule, and the names of keys that break it."""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from fastdecode._error_policy import mark_fatal
from fastdecode._formats import sniff
from fastdecode.errors import StoreError, with_advice
from fastdecode.stores._items import check_key, parse_target, relative
from fastdecode.stores._scan import EXTENSIONS
from fastdecode.stores.tar.format import Member, TarSource, members
from fastdecode.types import Buffer

IMAGES = frozenset((*(each[1:] for each in EXTENSIONS), "ico", "img", "pcx", "tga"))
"""Extensions of images, in lower case; "img" is for images of an unknown format."""

_META = re.compile(r"__[^/]*__($|/)")
_SUFFIXES = {"jpeg": "jpg", "jpeg2000": "jp2"}  # else the format's own name


_TARGETS = ("cls", "json", "txt")
_NUMBERS = ("cls", "cls2", "index", "inx", "id")
"""Extensions of whole numbers, as WebDataset decodes them."""


def split(name: str) -> tuple[str, str] | None:
    """Split a member's name into stem and extension; None if it belongs to no sample.

    A name belongs to no sample if its last part has no dot or begins with one, or if WebDataset
    uses the name itself ("__name__").

    The rule is WebDataset's (``base_plus_ext`` in its ``tariterators.py``): a name is split at the
    first dot after the last slash. WebDataset keeps a leading "./"; keys here do not have it.
    """
    if name[:1] in ("/", "."):
        while name.startswith(("./", "/")):
            name = name[1:] if name.startswith("/") else name[2:]
    folder, slash, last = name.rpartition("/")
    base, dot, extension = last.partition(".")
    if not base or not dot or (name[:2] == "__" and _META.match(name)):
        return None
    return folder + slash + base, extension


def member_name(key: str, data: Buffer) -> tuple[str, str]:
    """Return the stem and the extension of the member for a key, as WebDataset splits it.

    "dogs/a.jpg" stays as it is. WebDataset would split the name at any other dot, so other dots
    become "%2E". The data gives the extension of a key without one.
    """
    check_key(key)
    folder, slash, last = key.rpartition("/")
    base, dot, extension = last.rpartition(".")
    if not base or not dot or extension.lower() not in IMAGES:
        base, extension = last, _extension(data)
    stem = folder + slash + base.replace(".", "%2E")
    return ("%5F" + stem[1:] if _META.match(stem + ".") else stem), extension


def _extension(data: Buffer) -> str:
    """Return the extension of the data's format; "img" if the format is unknown."""
    name = (len(data) and sniff(data)) or "img"
    extension = _SUFFIXES.get(name, name)
    return extension if extension in IMAGES else "img"


class WantedMembers(NamedTuple):
    """Which members of a sample the caller wants."""

    # extensions of the image in order of preference; empty for any known one
    image: tuple[str, ...] = ()
    # the extension of the target; empty for the first of cls, json and txt that the sample has
    target: str = ""

    def is_image(self, extension: str) -> bool:
        """Return whether an extension, in lower case, is one of images."""
        if self.image:
            return extension in self.image and extension != self.target
        return extension.rpartition(".")[2] in IMAGES and extension != self.target

    def is_target(self, extension: str) -> bool:
        return extension == self.target if self.target else extension in _TARGETS


def wanted_members(image: str | Sequence[str] | None, target: str | None) -> WantedMembers:
    """Convert the options ``image`` and ``target``; extensions may begin with a dot."""
    images = [image] if isinstance(image, str) else list(image or ())
    return WantedMembers(
        tuple(each.lower().lstrip(".") for each in images), (target or "").lower().lstrip(".")
    )


class TarSample(NamedTuple):
    """The image and the target among the members with one stem."""

    stem: str
    key: str = ""
    member: Member | None = None  # the image's; None if the sample has none
    data: Buffer = b""  # the image; empty without `with_data`
    target: Any = None
    beside: Member | None = None  # the target's
    beside_check: int = 0  # the CRC-32 of its bytes


class _File(NamedTuple):
    """A member of a sample; the data of what is not wanted is not read."""

    extension: str
    member: Member
    data: Buffer = b""


def samples(source: TarSource, wanted: WantedMembers, *, with_data: bool) -> Iterator[TarSample]:
    """Yield the samples of a tar, including those without an image.

    The rules are WebDataset's (``group_by_keys`` in its ``tariterators.py``): the files of a sample
    follow one another, and extensions are compared in lower case. If files of a sample come apart
    from its image, a StoreError is raised.
    """
    seen: tuple[set[int], set[int]] = set(), set()  # hashes: a tenth of the names' memory
    for stem, files in _grouped(source, wanted, with_data=with_data):
        sample = _as_sample(source.location, stem, files, wanted)
        has_image = sample.member is not None
        seen[has_image].add(hash(stem))
        if hash(stem) in seen[not has_image]:
            raise mark_fatal(
                StoreError(
                    f"{source.location}: the files of sample {stem!r} do not follow one another, "
                    "so that its target would be lost: make the tar with --sort=name"
                )
            )
        yield sample


def _grouped(
    source: TarSource, wanted: WantedMembers, *, with_data: bool
) -> Iterator[tuple[str, dict[str, _File]]]:
    """Yield the stem of each sample, and its files by their extensions in lower case."""
    name, files = "", dict[str, _File]()
    for member in members(source):
        parts = split(member.name)
        if parts is None:
            continue
        stem, extension = parts
        if stem != name:
            if files:
                yield name, files
            name, files = stem, {}
        lower = extension.lower()
        if lower in files:
            raise StoreError(f"{source.location}: member {member.name!r} is in its sample twice")
        if wanted.is_target(lower) or (with_data and wanted.is_image(lower)):
            files[lower] = _File(extension, member, _member_data(source, member))
        else:
            files[lower] = _File(extension, member)
    if files:
        yield name, files


def _as_sample(
    location: str, stem: str, files: dict[str, _File], wanted: WantedMembers
) -> TarSample:
    """Find the image and the target among the files of a sample."""
    images = {name: file for name, file in files.items() if wanted.is_image(name)}
    if not images:
        return TarSample(stem)
    extension, member, data = images[_choose_image(location, stem, images, wanted)]
    key = relative(f"{stem}.{extension}")
    for name in (wanted.target,) if wanted.target else _TARGETS:
        if name in files:
            text = bytes(files[name].data)
            target = _parse_target(location, stem, name, text)
            return TarSample(stem, key, member, data, target, files[name].member, zlib.crc32(text))
    return TarSample(stem, key, member, data)


def _choose_image(location: str, stem: str, images: dict[str, _File], wanted: WantedMembers) -> str:
    """Return the extension of the image."""
    if wanted.image:
        return min(images, key=wanted.image.index)
    plain = [extension for extension in images if "." not in extension]
    if len(images) == 1 or len(plain) == 1:  # "jpg" next to "mask.png"
        return (plain or [*images])[0]
    listed = ", ".join(images)
    raise StoreError(
        f"{location}: sample {stem!r} has more than one image ({listed}): say which one with "
        f"image={next(iter(images))!r}"
    )


def _parse_target(location: str, stem: str, extension: str, data: bytes) -> Any:
    try:
        text = data.decode()
        if extension in _NUMBERS:
            return int(text)
        if extension.rpartition(".")[2] == "json":
            return parse_target(text)
    except (ValueError, RecursionError) as error:
        wrong = StoreError(
            f"{location}: the .{extension} of sample {stem!r} cannot be read ({error})"
        )
        raise with_advice(wrong, ": say which is the target with target=") from error
    return text


def _member_data(source: TarSource, member: Member) -> Buffer:
    data = source.take(member.size)
    if len(data) < member.size:
        raise StoreError(
            f"{source.location}: member {member.name!r} is truncated: {len(data)} bytes of "
            f"{member.size} are there"
        )
    return data
