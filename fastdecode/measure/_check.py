"""Check without timing how a backend decodes a file: refused, the same pixels, or others."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from fastdecode import _selection
from fastdecode._process import ChildDied
from fastdecode._stats import stats
from fastdecode.api import decode
from fastdecode.errors import FastDecodeError, without_advice
from fastdecode.measure.result import AUTOMATIC

if TYPE_CHECKING:
    from fastdecode.measure._collection import Photo
    from fastdecode.types import Header, Image, Reduce

_REFERENCE = "pillow"


class Finding(NamedTuple):
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
    differing: set[int] = field(default_factory=set)  # differing, averaged: as in `Finding`
    averaged: set[int] = field(default_factory=set)
    fallbacks: int = 0
    max_difference: int = 0  # over all files

    def add(self, index: int, finding: Finding) -> None:
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


def backend_argument(name: str) -> str | None:
    """Return the ``backend`` argument of `decode` for a name: None for the automatic choice."""
    return None if name == AUTOMATIC else name


def reference_digest(data: bytes, reduce: Reduce) -> bytes | None:
    """Return the digest of the reference pixels; None if nothing reads the file."""
    image = _reference(data, reduce)
    return None if image is None else _digest(image)


def examine(photo: Photo, reduce: Reduce, backend: str, right: bytes | None) -> Finding:
    """Decode a file once, and compare the pixels with the reference."""
    stats(reset=True)
    try:
        data = bytes(photo.read())
        image = decode(data, reduce, backend=backend_argument(backend))
        fell_back = bool(stats().fallbacks)
        averaged = not _reduces_itself(backend, photo.header, reduce)
        # An averaged image is right if the full image is.
        whole = decode(data, backend=backend_argument(backend)) if averaged else image
    except Exception as error:  # a broken backend must not end the run
        return Finding(refused=reason(error))
    if right is None or _digest(image) == right:
        return Finding(fell_back=fell_back, averaged=averaged)
    difference = _difference_from_reference(image, data, reduce)
    wrong = _difference_from_reference(whole, data, 1) if averaged else difference
    return Finding("", fell_back, averaged, wrong > _tolerance(photo.header), difference)


def reason(error: Exception) -> str:
    """Return the reason of a refusal in words."""
    if isinstance(error, (FastDecodeError, ChildDied)):
        return without_advice(error)
    if "Original Traceback" in str(error):  # from PyTorch's worker process: the error comes last
        return str(error).strip().splitlines()[-1]
    return f"{type(error).__name__}: {error}"


def _difference_from_reference(image: Image, data: bytes, reduce: Reduce) -> int:
    """Return the largest difference from the reference pixels; 0 if there are none."""
    reference = _reference(data, reduce)
    return 0 if reference is None else _difference(image, reference)


def _reference(data: bytes, reduce: Reduce) -> Image | None:
    """Return Pillow's pixels, else those of the automatic choice, else None."""
    for backend in (_REFERENCE, None):
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


def _reduces_itself(name: str, header: Header, reduce: Reduce) -> bool:
    """Return whether the backend makes this reduction itself, or the pixels do not depend on it."""
    if reduce == 1 or header.format != "jpeg":
        return True
    want = _selection.Want("RGB", reduce, strict=False, complete=True)
    return _selection.first(backend_argument(name), header, want).reduce == reduce


def _difference(image: Image, reference: Image) -> int:
    """Return the largest difference of a value, in levels; 255 if the shapes differ."""
    if image.shape != reference.shape:
        return 255
    # Subtract the smaller from the larger: a signed type would need more memory.
    return int((np.maximum(image, reference) - np.minimum(image, reference)).max())


def _tolerance(header: Header) -> int:
    """Return the difference that still counts as the same pixels, in levels."""
    # CMYK becomes RGB by a formula that rounds; the contract of `decode` allows one level.
    return 1 if header.color == "cmyk" else 0
