"""Check without timing how a backend decodes a file: refused, the same pixels, or others."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from fastdecode._backends import selection
from fastdecode._decode.api import decode
from fastdecode._decode.engine import DecodeRequest, decode_unchecked
from fastdecode._system.process import ChildDied
from fastdecode.errors import FastDecodeError, without_advice
from fastdecode.measure.result import OWN, PILLOW

if TYPE_CHECKING:
    from fastdecode.measure._collection import Photo
    from fastdecode.types import Header, Image, Reduce


class Examination(NamedTuple):
    """The result of one backend for one file."""

    refused: str = ""  # why it did not decode the file; empty if it did
    chosen: str = ""  # the backend that `decode` tries first
    # the backend does not reduce this JPEG in its decoder: the package averages the full image,
    # whose values differ by design
    averaged: bool = False
    differs: bool = False  # the pixels are wrong: not those of the reference
    # largest difference of a value from the reference, in levels; 255 if the shapes differ
    difference: int = 0


def backend_argument(name: str) -> str | None:
    """Return the ``backend`` argument of `decode` for a name: None for the automatic choice."""
    return None if name == OWN else name


def decode_alone(data: bytes, header: Header, reduce: Reduce, name: str) -> Image:
    """Decode with a library alone: without what `decode` checks, if it can do without repairs."""
    try:
        choice = selection.first(name, header, _want(reduce))
        request = DecodeRequest(data, header, _want(reduce), None, 1, None, name)
        return decode_unchecked(choice, request)
    except FastDecodeError:  # such as a JPEG without an end marker, which `decode` adds for some
        return decode(data, reduce, backend=name)


def examine(photo: Photo, reduce: Reduce, backend: str) -> Examination:
    """Decode a file once, and compare the pixels with the reference."""
    named = backend_argument(backend)
    try:
        data = bytes(photo.read())
        image = decode(data, reduce, backend=named)
        choice = selection.first(named, photo.header, _want(reduce))
        averaged = photo.header.format == "jpeg" and choice.reduce != reduce
        # An averaged image is right if the full image is.
        whole = decode(data, backend=named) if averaged else image
    except Exception as error:  # a broken backend must not end the run
        return Examination(refused=reason(error))
    difference = _difference(image, _reference(data, reduce))
    wrong = _difference(whole, _reference(data, 1)) if averaged else difference
    # CMYK becomes RGB by a formula that rounds; the contract of `decode` allows one level.
    tolerance = 1 if photo.header.color == "cmyk" else 0
    return Examination("", choice.name, averaged, wrong > tolerance, difference)


def reason(error: Exception) -> str:
    """Return the reason of a refusal in words."""
    if isinstance(error, (FastDecodeError, ChildDied)):
        return without_advice(error)
    if "Original Traceback" in str(error):  # from PyTorch's worker process: the error comes last
        return str(error).strip().splitlines()[-1]
    return f"{type(error).__name__}: {error}"


def _want(reduce: Reduce) -> selection.Want:
    return selection.Want("RGB", reduce, strict=False, complete=True)


def _reference(data: bytes, reduce: Reduce) -> Image | None:
    """Return Pillow's pixels, else those of the automatic choice, else None."""
    for backend in (PILLOW, None):
        try:
            return decode(data, reduce, backend=backend)
        except FastDecodeError:  # the next one may read it; if none does, nothing is compared
            continue
    return None


def _difference(image: Image, reference: Image | None) -> int:
    """Return the largest difference of a value, in levels; 255 if the shapes differ."""
    if reference is None:
        return 0
    if image.shape != reference.shape:
        return 255
    # Subtract the smaller from the larger: a signed type would need more memory.
    return int((np.maximum(image, reference) - np.minimum(image, reference)).max())
