"""How pictures are called in a tar: WebDataset's rule, and what is done for keys that break it."""

from __future__ import annotations

import re
from typing import NamedTuple
from urllib.parse import unquote

from fastdecode.formats import sniff
from fastdecode.stores.keys import check_key
from fastdecode.stores.tar_members import Member
from fastdecode.types import Buffer

__all__ = ["IMAGES", "OWNER", "MemberName", "Names", "key_of", "split", "stem_of"]

IMAGES = frozenset(
    (
        *("apng", "avif", "avifs", "bmp", "dib", "gif", "heic", "heif", "ico", "img", "j2c"),
        *("j2k", "jfif", "jp2", "jpe", "jpeg", "jpf", "jpg", "jpx", "jxl", "pbm", "pcx", "pgm"),
        *("png", "pnm", "ppm", "tga", "tif", "tiff", "webp"),
    )
)
"""Extensions of pictures, in lower case; "img" is for those of no known format."""

OWNER = b"fastdecode"
"""Who owns members whose names are escaped, so that they are told from names with a "%" in them."""

_META = re.compile(r"__[^/]*__($|/)")
_NUMBER = re.compile(r"%~\d+$")
_NO_SUFFIX = "%-"
_SUFFIXES = {"jpeg": "jpg", "jpeg2000": "jp2"}  # else the format's own name


def split(name: str) -> tuple[str, str] | None:
    """Split a member's name.

    Parameters
    ----------
    name : str

    Returns
    -------
    stem, extension : str, or None
        None if it belongs to no sample: it has no dot, begins with one, or is WebDataset's own.

    Notes
    -----
    The rule is WebDataset's (``base_plus_ext`` in its ``tariterators.py``): the first dot after
    the last slash. Its samples keep a leading "./"; keys here are paths without.
    """
    if name[:1] in ("/", "."):
        while name.startswith(("./", "/")):
            name = name[1:] if name.startswith("/") else name[2:]
    folder, slash, last = name.rpartition("/")
    base, dot, extension = last.partition(".")
    if not base or not dot or (name[:2] == "__" and _META.match(name)):
        return None
    return folder + slash + base, extension


class MemberName(NamedTuple):
    """How a picture's member is called.

    Attributes
    ----------
    stem, extension : str
    owner : bytes
        `OWNER` if the stem is escaped, else empty.
    """

    stem: str
    extension: str
    owner: bytes


def stem_of(key: str, data: Buffer) -> MemberName:
    """Find the member's name for a key.

    Parameters
    ----------
    key : str
        See `Store.key`.
    data : bytes-like
        The picture, for the format of which an extension is made if the key has none.

    Returns
    -------
    MemberName

    Raises
    ------
    ValueError
        If the key cannot be one; see `check_key`.

    Notes
    -----
    "dogs/a.jpg" stays as it is. Dots in the rest of the name, where WebDataset would cut it, are
    written "%2E", and "%" then is "%25"; "%-" at the end says that the extension is not the key's.
    `key_of` takes that back; it knows such members by their owner.
    """
    check_key(key)
    folder, slash, last = key.rpartition("/")
    base, dot, extension = last.rpartition(".")
    end = ""
    if not base or not dot or extension.lower() not in IMAGES:
        base, extension, end = last, _extension(data), _NO_SUFFIX
    stem = folder + slash + base
    if not end and "." not in base and not _META.match(stem + "." + extension):
        return MemberName(stem, extension, b"")
    base = base.replace("%", "%25").replace(".", "%2E")
    stem = folder.replace("%", "%25") + slash + base
    if _META.match(stem + "."):
        stem = "%5F" + stem[1:]
    return MemberName(stem + end, extension, OWNER)


def key_of(stem: str, extension: str, owner: bytes) -> str:
    """Return the key of a picture's member: the opposite of `stem_of`."""
    if owner != OWNER:
        return f"{stem}.{extension}"
    stem = _NUMBER.sub("", stem)
    if stem.endswith(_NO_SUFFIX):
        return unquote(stem[: -len(_NO_SUFFIX)])
    return f"{unquote(stem)}.{extension}"


class Names:
    """The names in one tar, so that none comes twice.

    WebDataset takes "a.jpg" and "a.png" for two files of one sample: the second becomes "a%~2.png".
    """

    def __init__(self) -> None:
        self._taken: dict[str, tuple[str, bytes]] = {}

    def __len__(self) -> int:
        return len(self._taken)

    def take(self, key: str, data: Buffer) -> MemberName:
        """Find a name that is not taken, and take it; see `stem_of`.

        Raises
        ------
        ValueError
            If the key is there already, or cannot be one.
        """
        stem, extension, owner = stem_of(key, data)
        escaped = stem if owner else stem.replace("%", "%25")
        number = 1
        while stem in self._taken:
            if key_of(stem, *self._taken[stem]) == key:
                raise ValueError(f"the key {key!r} is there already")
            number += 1
            stem, owner = f"{escaped}%~{number}", OWNER
        self._taken[stem] = extension, owner
        return MemberName(stem, extension, owner)

    def add(self, member: Member) -> None:
        """Take the name of a member that is there, as when going on with a tar."""
        parts = split(member.name)
        if parts is not None and parts[1].lower() in IMAGES:
            self._taken[parts[0]] = parts[1], member.owner


def _extension(data: Buffer) -> str:
    """Return the extension of what the bytes are."""
    name = sniff(data) if len(data) else "other"
    extension = _SUFFIXES.get(name, name)
    return extension if extension in IMAGES else "img"
