"""`Backend`, which decodes, and `Support`, which declares what a backend can do."""

from __future__ import annotations

import importlib.metadata
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar, get_args

from fastdecode._arguments import shown
from fastdecode.errors import DecodeError
from fastdecode.types import (
    REDUCES,
    Box,
    Buffer,
    Coding,
    Color,
    Format,
    Header,
    Image,
    PixelLayout,
    Reduce,
    Sample,
)


class CodecWarning(DecodeError):
    """The codec gave a warning while ``strict`` was set; the message is the codec's."""


_WORDS = {
    "layouts": get_args(PixelLayout),
    "reduces": REDUCES,
    "colors": get_args(Color),
    "codings": get_args(Coding),
    "samples": get_args(Sample),
}


@dataclass(frozen=True)
class Support:
    """What a backend can do itself with one kind of file; the package asks for nothing else.

    Attributes
    ----------
    layouts : frozenset of PixelLayout
        Pixel layouts that it can return. The package converts ``"stored"``. ``"L"`` of a JPEG must
        be its Y plane, not a grey computed from RGB, and ``"RGB"`` must drop alpha without
        compositing; leave out a layout that the library cannot return in this way.
    reduces : frozenset of {1, 2, 4, 8}
        Reductions done inside the decoder. For the others the package uses its box filter, and only
        if the caller names the backend.
    reduces_from : int
        The smallest longer side, in pixels, for which these reductions are reliable. A library that
        takes a size instead of a factor cannot tell 1/2 from 3/8 of a tiny image. At most 64.
    region : bool
        It decodes only the requested window.
    out : bool
        It writes straight into the caller's array.
    warnings : bool
        It reports every warning of the codec, so that ``strict=True`` can be promised.
    skips : bool
        It leaves out data that the pixels do not need. Where damage in that data must be noticed,
        the package calls `Backend.decode` with a further argument, ``thorough=True``.
    checks : bool
        It refuses a file in which anything is damaged, also what most libraries pass over: the
        metadata of a PNG, or zeros in place of a JPEG's data. For the others the package looks.
    bits : frozenset of int
        Bits per sample that it reads.
    channels : frozenset of int, or None for all
        Samples per stored pixel that it reads.
    colors, codings, subsamplings : frozenset, or None for all
        Kinds of the format that it reads.
    samples : frozenset of Sample
        Number types that it reads.
    progressive : bool
        It reads progressive JPEGs, and interlaced files of other formats.
    animated : bool
        It reads files with several frames, and returns the complete first frame.
    partial_scans : bool
        It decodes a progressive JPEG whose last scans are missing as libjpeg-turbo 3 does.

    Raises
    ------
    ValueError
        A set has a word that names nothing: no file would ever be of that kind.

    Examples
    --------
    >>> from fastdecode import Support, probe
    >>> colour = Support(layouts=frozenset({"RGB", "L"}), colors=frozenset({"ycc", "gray"}))
    >>> colour.refusal(probe(data))
    ''
    >>> Support(bits=frozenset({16})).refusal(probe(data))
    '8 bits a sample'
    """

    layouts: frozenset[PixelLayout] = frozenset({"RGB"})
    reduces: frozenset[Reduce] = frozenset({1})
    reduces_from: int = 1
    region: bool = False
    out: bool = False
    warnings: bool = False
    skips: bool = False
    checks: bool = False
    bits: frozenset[int] | None = frozenset({8})
    channels: frozenset[int] | None = None
    colors: frozenset[Color] | None = None
    codings: frozenset[Coding] | None = None
    subsamplings: frozenset[str] | None = None
    samples: frozenset[Sample] = frozenset({"unsigned"})
    progressive: bool = True
    animated: bool = True
    partial_scans: bool = True

    def __post_init__(self) -> None:
        for name, words in _WORDS.items():
            given = getattr(self, name)
            if isinstance(given, str) or (given is not None and not {*given} <= {*words}):
                known = ", ".join(map(repr, words))
                raise ValueError(f"{name} must be a set of {known}, not {shown(given)}")

    def refusal(self, header: Header, *, complete: bool = True) -> str:
        """Return in words why a file of this kind is not read; empty if it is."""
        if self.bits is not None and header.bits not in self.bits:
            return f"{header.bits} bits a sample"
        if self.channels is not None and header.channels not in self.channels:
            return f"{header.channels} channels"
        if self.colors is not None and header.color not in self.colors:
            return f"{header.color} colour"
        if self.codings is not None and header.coding not in self.codings:
            return f"{header.coding} coding"
        if self.subsamplings is not None and header.subsampling not in self.subsamplings:
            return f"chroma subsampling {header.subsampling}"
        if header.sample not in self.samples:
            return f"{header.sample} samples"
        if header.progressive and not self.progressive:
            return "progressive scans" if header.format == "jpeg" else "interlaced rows"
        if header.animated and not self.animated:
            return "several frames"
        if not (complete or self.partial_scans):
            return "a progressive file without its last scans"
        return ""

    def reduces_natively(self, header: Header, reduce: Reduce) -> bool:
        """Return whether the decoder itself reduces an image of this size by `reduce`."""
        return reduce == 1 or (
            reduce in self.reduces and max(header.width, header.height) >= self.reduces_from
        )


JPEG = Support(
    layouts=frozenset({"RGB", "L"}),
    codings=frozenset({"baseline", "progressive", "arithmetic"}),
    colors=frozenset({"gray", "ycc", "rgb"}),
)
"""The kinds of JPEG that most libraries read: neither lossless nor CMYK."""

_SUBSAMPLINGS = frozenset({"", "4:4:4", "4:2:2", "4:2:0", "4:4:0", "4:1:1"})
JPEG_TURBO_2 = replace(
    JPEG,  # lossless JPEG ignores scaling inside libjpeg-turbo, and would overrun the buffer
    layouts=frozenset({"RGB", "L", "RGBA"}),
    reduces=frozenset({1, 2, 4, 8}),
    out=True,
    warnings=True,
    subsamplings=_SUBSAMPLINGS,
    partial_scans=False,
)
"""What libjpeg-turbo can do through its TurboJPEG API."""

JPEG_TURBO_3 = replace(JPEG_TURBO_2, subsamplings=_SUBSAMPLINGS | {"4:4:1"}, partial_scans=True)
"""What libjpeg-turbo 3.0 and later can do through it."""


class Backend(ABC):
    """Base class of an adapter for one decoding library.

    A subclass declares what it supports and implements `decode`. It imports its library at the top
    of its own module, and is created once per process, on first use. Its constructor raises
    `BackendUnavailable` if the library is installed but does not work. The package decides which
    files it gets and which backend is tried next, and does all conversions that are not declared.

    Attributes
    ----------
    supports : Mapping[Format, tuple of Support]
        What it can do, per format; several entries, best first, if kinds of a format differ.
    exact : bool
        Its pixels are those of libjpeg-turbo's default IDCT with fancy upsampling (and exact for
        lossless formats). A backend that is not exact is used only if the caller names it.
    releases_gil : bool
        It releases the GIL while it decodes.
    holds_gil : frozenset of Format
        Formats for which it does not.
    fork_safe : bool
        It works in a child process that was forked after the parent used it.
    distribution : str
        The library's name on PyPI.

    Examples
    --------
    >>> import io
    >>> import numpy as np
    >>> from PIL import Image
    >>> from fastdecode import Backend, Support, decode, register
    >>> class Mine(Backend):
    ...     supports = {"jpeg": (Support(layouts=frozenset({"RGB", "L"})),)}
    ...
    ...     def decode(self, data, header, *, reduce, layout, window, out, strict):
    ...         return np.array(Image.open(io.BytesIO(data)).convert(layout))
    >>> register("mine", Mine)
    >>> decode(data, backend="mine", mode="L").shape
    (480, 640)
    """

    supports: Mapping[Format, tuple[Support, ...]]
    exact: ClassVar[bool] = True
    releases_gil: ClassVar[bool] = True
    holds_gil: ClassVar[frozenset[Format]] = frozenset()
    fork_safe: ClassVar[bool] = True
    distribution: ClassVar[str] = ""

    @abstractmethod
    def decode(
        self,
        data: Buffer,
        header: Header,
        *,
        reduce: Reduce,
        layout: PixelLayout,
        window: Box | None,
        out: Image | None,
        strict: bool,
    ) -> Image:
        """Decode one image.

        Parameters
        ----------
        data : bytes or memoryview
            The whole file, one dimension of unsigned bytes. It must not be changed or kept.
        header : Header
            The header that the package read from `data`.
        reduce : {1, 2, 4, 8}
            One of the declared `Support.reduces`.
        layout : PixelLayout
            One of the declared `Support.layouts`. ``"CMYK"``: four inks, 0 = no ink.
        window : tuple or None
            (left, top, right, bottom) in pixels of the reduced image, or None for all of it. Always
            None unless `Support.region`.
        out : ndarray or None
            The array to write into: uint8, C-contiguous, of the exact shape. Always None unless
            `Support.out`. The backend may ignore it and return another array.
        strict : bool
            Raise `CodecWarning` for any warning; always False unless `Support.warnings`.

        Returns
        -------
        ndarray
            (H, W) for ``"L"``, else (H, W, C), in stored orientation. The package copies it if it
            is not contiguous, writable and unshared.

        Raises
        ------
        Exception
            Any exception of the library; the package turns it into a `DecodeError`.
        """

    def version(self) -> str:
        """Return the installed version of the library; empty if unknown."""
        return installed_version(self.distribution)

    def codec(self) -> str:
        """Return the codec that it is linked to, such as ``"libjpeg-turbo 3.1.2"``; or empty."""
        return ""


def installed_version(*distributions: str) -> str:
    """Return the version of the first of these that is installed; empty if none is."""
    for distribution in filter(None, distributions):
        try:
            return importlib.metadata.version(distribution)
        except importlib.metadata.PackageNotFoundError:
            continue
    return ""
