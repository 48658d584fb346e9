"""Which backend gets a file: the preference first, then what each backend declares.

``FASTDECODE_DISABLE=a,b`` leaves backends out of the automatic choice.
"""

from __future__ import annotations

import os
from bisect import bisect
from collections.abc import Iterable, Iterator
from operator import itemgetter
from typing import TYPE_CHECKING, NamedTuple

from fastdecode import _preference, ranking, registry
from fastdecode._process import context
from fastdecode.errors import BackendUnavailable, UnknownBackend, UnsupportedFormat
from fastdecode.ranking import SIZE_LIMITS, size_class
from fastdecode.types import Header

if TYPE_CHECKING:
    from fastdecode._preference import Preference
    from fastdecode.adapters.base import Backend, Support
    from fastdecode.ranking import Ranking
    from fastdecode.types import Mode, PixelLayout, Reduce

__all__ = ["Choice", "Want", "candidates", "disabled", "first"]

_LARGEST_REDUCES_FROM = 64
_MOST_KINDS = 4096
_MOST_COLOURED = 4
_UNKNOWN = ("jpeg2000", "other")
_first_choices: dict[object, Choice] = {}
_kind = itemgetter(
    *map(
        Header._fields.index,
        ("format", "bits", "channels", "color", "coding", "subsampling", "animated"),
    )
)
"""What the choice depends on of a header, but for its size."""


class Want(NamedTuple):
    """What is to be decoded, as far as the choice of a backend depends on it."""

    mode: Mode
    reduce: Reduce
    strict: bool
    complete: bool  # all scans of a progressive JPEG are there
    part: bool = False  # only a part of the image is wanted


class Choice(NamedTuple):
    """A backend that can do the work, and how it is to be asked; the package makes the rest."""

    name: str
    backend: Backend
    support: Support  # the declaration that applies
    layout: PixelLayout
    reduce: Reduce


def first(backend: str | None, header: Header, want: Want) -> Choice:
    """Choose the backend to try first. The answer for each kind of file is remembered.

    That a backend which is named does not exist, or cannot be used, and that nothing usable reads
    such a file, are errors of the package.
    """
    # Written for speed: this is in every call.
    width, height = header.width, header.height
    key = (
        registry.generation,
        _preference.generation,
        backend,
        want,
        _kind(header),
        min(_LARGEST_REDUCES_FROM, max(height, width)),
        bisect(SIZE_LIMITS, width * height),
        context(),
    )
    choice = _first_choices.get(key)
    if choice is None:
        choice = next(candidates(backend, header, want), None)
        if choice is None:
            raise _unsupported(backend, header, want)
        if len(_first_choices) >= _MOST_KINDS:  # old generations are of no use
            _first_choices.clear()
        _first_choices[key] = choice
    return choice


def candidates(backend: str | None, header: Header, want: Want) -> Iterator[Choice]:
    """Yield every choice for a file, best first, importing each backend only when it is reached."""
    preferred: Preference = backend if backend is not None else _preference.preferred()
    if not isinstance(preferred, str):
        yield from _automatic(preferred, header, want)
        return
    named = _preference.load_named(preferred)
    choice = _fit(preferred, named, header, want)
    if isinstance(choice, Choice):
        yield choice


def _automatic(ranked: Ranking | None, header: Header, want: Want) -> Iterator[Choice]:
    """Yield the choices among all backends; only those that give exact pixels are chosen so."""
    found = False
    # A JPEG is reduced by a decoder that reduces inside its DCT, if there is any at all.
    for natively in (True, False):
        for name in _ordered(ranked, header, want):
            usable = _usable(name)
            if usable is not None and usable.exact:
                choice = _fit(name, usable, header, want, natively=natively)
                if isinstance(choice, Choice):
                    found = True
                    yield choice
        if found:
            return


def disabled() -> list[str]:
    """Names that ``FASTDECODE_DISABLE`` leaves out of the automatic choice."""
    return [
        name
        for name in os.environ.get("FASTDECODE_DISABLE", "").replace(" ", "").split(",")
        if name
    ]


def _ordered(first: Ranking | None, header: Header, want: Want) -> Iterator[str]:
    """Yield the names to try; installed packages are scanned only when it comes to that.

    Who decodes only the part that is wanted comes first: rankings are of whole images.
    """
    format, size = header.format, size_class(header.width * header.height)
    orders: list[Iterable[str] | None] = [
        ranked.order(format, want.reduce, size, context=context())
        for ranked in (first, ranking.DEFAULT)
        if ranked is not None
    ]
    if want.part:
        orders.insert(0, [n for n, it in registry.BUILTIN.items() if format in it.regions.split()])
    seen = set(disabled())
    for names in (*orders, registry.BUILTIN, None):
        for name in registry.names() if names is None else names:
            if name not in seen:
                seen.add(name)
                yield name


def _usable(name: str) -> Backend | None:
    try:
        return registry.load(name)
    except (BackendUnavailable, UnknownBackend):
        return None


def _fit(
    name: str, backend: Backend, header: Header, want: Want, *, natively: bool = False
) -> Choice | str:
    """How a backend would do it, or why it would not; a JPEG may have to be reduced natively."""
    supports = backend.supports.get(header.format, ())
    if not supports:
        return f"does not read {header.format}"
    refusals: list[str] = []
    for layout in _layouts(header, want.mode):
        for support in supports:
            why = support.refusal(header, complete=want.complete)
            native = support.reduces_natively(header, want.reduce)
            if why:
                refusals.append(f"does not read {header.format} with {why}")
            elif want.strict and not support.warnings:
                refusals.append(
                    f"cannot report warnings of {header.format}, which strict=True needs"
                )
            elif layout not in support.layouts:
                refusals.append(f"does not give {want.mode} of such a {header.format}")
            elif native or not natively or header.format != "jpeg":
                return Choice(name, backend, support, layout, want.reduce if native else 1)
            else:
                refusals.append(f"does not reduce {header.format} by {want.reduce}")
    return refusals[0] if refusals else f"does not give {want.mode} of such a {header.format}"


def _layouts(header: Header, mode: Mode) -> tuple[PixelLayout, ...]:
    """Layouts from which a mode can be made without loss, the one with the least work first."""
    if header.format == "jpeg":
        eight = header.bits == 8 and header.coding != "jpeg-ls"
        if header.color == "cmyk":
            return ("CMYK",) if eight else ("stored",) if mode == "stored" else ()
        if mode == "stored":
            return (("L" if header.color == "gray" else "RGB"), "stored") if eight else ("stored",)
        return ("RGBA", "RGB", "stored") if mode == "RGBA" else (mode, "stored")
    if mode == "L" and header.color in ("gray", "rgb"):
        return ("L", "RGB", "stored")
    if mode == "stored":
        return (mode,)
    # What colours more than four channels make, or those of an unknown kind, nobody can tell; and
    # 8 bits of a deep AVIF are what libavif makes of it, which is not the high byte.
    known = header.channels <= _MOST_COLOURED and (header.format, header.color) != _UNKNOWN
    deep = header.format == "avif" and header.bits > 8
    return (mode, "stored") if known and not deep else (mode,)


def _unsupported(backend: str | None, header: Header, want: Want) -> UnsupportedFormat:
    """Say why nothing reads the file, and what would."""
    kind = f"{header.format} ({header.width}x{header.height})"
    preferred: Preference = backend if backend is not None else _preference.preferred()
    if isinstance(preferred, str):
        why = _fit(preferred, registry.load(preferred), header, want)
        able = [choice.name for choice in _automatic(None, header, want)]
        hint = f"; {', '.join(able)} can" if able else ""
        return UnsupportedFormat(f"{preferred} {why}{hint}")
    reasons, missing = [], []
    for name in registry.names():
        usable = _usable(name)
        if usable is None:
            if header.format in registry.entry(name).formats.split():
                missing.append(registry.install_line(name))
        elif header.format in usable.supports:
            reasons.append(f"{name} {_why_not(name, usable, header, want)}")
    message = f"no usable backend reads this {kind}"
    if reasons:
        message += f": {'; '.join(reasons)}"
    if missing:
        message += f". What could, if installed: {' or '.join(missing)}"
    return UnsupportedFormat(message)


def _why_not(name: str, backend: Backend, header: Header, want: Want) -> str:
    """Why a backend that works was not chosen by itself."""
    if name in disabled():
        return "is left out by FASTDECODE_DISABLE"
    fit = _fit(name, backend, header, want)
    return fit if isinstance(fit, str) else "gives other pixels, so it must be asked for by name"
