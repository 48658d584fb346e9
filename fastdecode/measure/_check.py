"""Check without timing how a backend decodes a file: refused, the same pixels, or others."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from fastdecode._backends import selection
from fastdecode._decode.api import decode
from fastdecode._decode.engine import DecodeRequest, decode_unchecked
from fastdecode._decode.stats import stats
from fastdecode._system.process import ChildDied
from fastdecode.errors import FastDecodeError, without_advice
from fastdecode.measure.result import OWN, PILLOW

if TYPE_CHECKING:
    from fastdecode.measure._collection import Photo
    from fastdecode.types import Header, Image, Reduce

_MIN_SHARE = 0.5  # a backend that reads a smaller share of the files is not compared


class Examination(NamedTuple):
    """The result of one backend for one file."""

    refused: str = ""  # why it did not decode the file; empty if it did
    # the first backend of the automatic choice refused the file, and another one decoded it
    fell_back: bool = False
    # the backend does not reduce this JPEG in its decoder: the package averages the full image,
    # whose values differ by design
    averaged: bool = False
    differs: bool = False  # the pixels are wrong: not those of the reference
    # largest difference of a value from the reference, in levels; 255 if the shapes differ
    difference: int = 0


@dataclass
class Check:
    """The results of one backend for one format at one reduction, by index of the file."""

    read: set[int] = field(default_factory=set)  # files that it decoded
    refused: dict[int, str] = field(default_factory=dict)  # reasons
    differing: set[int] = field(default_factory=set)  # differing, averaged: as in `Examination`
    averaged: set[int] = field(default_factory=set)
    fallbacks: int = 0
    max_difference: int = 0  # over all files

    def add(self, index: int, finding: Examination) -> None:
        """Add the result for one file."""
        if finding.refused:
            self.refused[index] = finding.refused
            return
        self.read.add(index)
        self.fallbacks += finding.fell_back
        self.max_difference = max(self.max_difference, finding.difference)
        if finding.averaged:
            self.averaged.add(index)
        if finding.differs:
            self.differing.add(index)


def comparable_files(read: Mapping[str, set[int]]) -> tuple[tuple[str, ...], tuple[int, ...]]:
    """Return the backends to compare, and the files that all of these read.

    A backend that reads less than half of the readable files is left out, because it would leave
    hardly any files for the comparison. So a single odd file excludes no fast backend.
    """
    readable: set[int] = set().union(*read.values())
    able = tuple(
        name for name, own in read.items() if readable and len(own) >= _MIN_SHARE * len(readable)
    )
    return able, tuple(sorted(set.intersection(readable, *(read[name] for name in able))))


def backend_argument(name: str) -> str | None:
    """Return the ``backend`` argument of `decode` for a name: None for the automatic choice."""
    return None if name == OWN else name


def chosen(name: str, header: Header, reduce: Reduce) -> selection.Choice | None:
    """Return what `decode` tries first for a file; None if nothing reads it."""
    try:
        return selection.first(backend_argument(name), header, _want(reduce))
    except FastDecodeError:  # the check reports the reason
        return None


def decode_alone(data: bytes, header: Header, reduce: Reduce, name: str) -> Image:
    """Decode with a library alone: without what `decode` checks, if it can do without repairs."""
    try:
        choice = selection.first(name, header, _want(reduce))
        request = DecodeRequest(data, header, _want(reduce), None, 1, None, name)
        return decode_unchecked(choice, request)
    except FastDecodeError:  # such as a JPEG without an end marker, which `decode` adds for some
        return decode(data, reduce, backend=name)


def _want(reduce: Reduce) -> selection.Want:
    return selection.Want("RGB", reduce, strict=False, complete=True)


def reference_digest(data: bytes, reduce: Reduce) -> bytes | None:
    """Return the digest of the reference pixels; None if nothing reads the file."""
    image = _reference(data, reduce)
    return None if image is None else _digest(image)


def examine(photo: Photo, reduce: Reduce, backend: str, right: bytes | None) -> Examination:
    """Decode a file once, and compare the pixels with the reference."""
    stats(reset=True)
    named = backend_argument(backend)
    try:
        data = bytes(photo.read())
        image = decode(data, reduce, backend=named)
        fell_back = bool(stats().fallbacks)
        choice = chosen(backend, photo.header, reduce)
        averaged = photo.header.format == "jpeg" and choice is not None and choice.reduce != reduce
        # An averaged image is right if the full image is.
        whole = decode(data, backend=named) if averaged else image
    except Exception as error:  # a broken backend must not end the run
        return Examination(refused=reason(error))
    if right is None or _digest(image) == right:
        return Examination(fell_back=fell_back, averaged=averaged)
    difference = _difference(image, _reference(data, reduce))
    wrong = _difference(whole, _reference(data, 1)) if averaged else difference
    # CMYK becomes RGB by a formula that rounds; the contract of `decode` allows one level.
    tolerance = 1 if photo.header.color == "cmyk" else 0
    return Examination("", fell_back, averaged, wrong > tolerance, difference)


def reason(error: Exception) -> str:
    """Return the reason of a refusal in words."""
    if isinstance(error, (FastDecodeError, ChildDied)):
        return without_advice(error)
    if "Original Traceback" in str(error):  # from PyTorch's worker process: the error comes last
        return str(error).strip().splitlines()[-1]
    return f"{type(error).__name__}: {error}"


def _reference(data: bytes, reduce: Reduce) -> Image | None:
    """Return Pillow's pixels, else those of the automatic choice, else None."""
    for backend in (PILLOW, None):
        try:
            return decode(data, reduce, backend=backend)
        except FastDecodeError:  # the next one may read it; if none does, all refuse and say why
            continue
    return None


def _digest(image: Image) -> bytes:
    """Return a digest of pixels, because sending and keeping all pixels would take much memory."""
    digest = hashlib.blake2b(repr(image.shape).encode(), digest_size=16)
    digest.update(np.ascontiguousarray(image).data)
    return digest.digest()


def _difference(image: Image, reference: Image | None) -> int:
    """Return the largest difference of a value, in levels; 255 if the shapes differ."""
    if reference is None:
        return 0
    if image.shape != reference.shape:
        return 255
    # Subtract the smaller from the larger: a signed type would need more memory.
    return int((np.maximum(image, reference) - np.minimum(image, reference)).max())
