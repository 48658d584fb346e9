"""Choose the backend for a file, by preference and by what each backend declares.

The order of precedence is ``backend=`` of the call, then `use`, then the environment variable
``FASTDECODE_BACKEND``, then the default order (`DEFAULT`). ``FASTDECODE_DISABLE=a,b`` excludes
backends from the automatic choice.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from operator import itemgetter
from typing import TYPE_CHECKING, NamedTuple

from fastdecode._backends import registry
from fastdecode._system.process import ForkLock
from fastdecode.errors import (
    BackendUnavailable,
    UnknownBackend,
    UnsupportedFormat,
    with_advice,
)
from fastdecode.types import Header

if TYPE_CHECKING:
    from fastdecode._backends.base import Backend, Support
    from fastdecode.types import Format, Mode, PixelLayout, Reduce

# Fastest first on real photos, from bench/results/default_order.json, and decoder_px500.json for
# `native`. There are two exceptions: PyTorch's decoders come last, because choosing one would
# import PyTorch into programs that do not need it otherwise; kornia_rs comes after Pillow, and
# Pillow comes last for JPEG 2000, because they hold the GIL.
_REDUCING = ("native", "simplejpeg", "turbojpeg", "jpeg4py", "opencv", "pillow")
DEFAULT: Mapping[tuple[Format, Reduce], tuple[str, ...]] = {
    ("jpeg", 1): (
        *("native", "simplejpeg", "turbojpeg", "jpeg4py", "imagecodecs", "opencv", "pillow"),
        *("kornia_rs", "torchcodec", "torchvision"),
    ),
    ("jpeg", 2): _REDUCING,
    ("jpeg", 4): _REDUCING,
    ("jpeg", 8): _REDUCING,
    ("png", 1): ("native", "opencv", "pillow", "torchcodec"),
    ("webp", 1): ("opencv", "pillow"),
    ("pnm", 1): ("opencv", "pillow"),
    ("jpeg2000", 1): ("imagecodecs", "pillow"),
}
"""Backends by format and reduction, fastest first. All others follow, in the registry's order."""


def default_order(format: Format, reduce: Reduce) -> tuple[str, ...]:
    """Return the backends for one kind of work; without an entry, those of the full size."""
    return DEFAULT.get((format, reduce)) or DEFAULT.get((format, 1), ())


generation = 0
"""Grows with every `use`, which makes earlier conclusions from the preference invalid."""


class _Level:
    """A preference that holds until its `with` block ends, or until the next plain `use`."""

    def __init__(self, preference: str | None, *, block: bool = False) -> None:
        self.preference, self.block = preference, block


_lock = ForkLock()
_levels = [_Level(None, block=True)]  # the last one decides
_MAX_PLAIN = 64


class use:  # noqa: N801 - users call it like a function
    """Set the backend for every later `decode` of this process.

    A plain call stays in effect; as a context manager, `use` ends with the block. If blocks of
    several threads overlap, the one that began last decides for all threads.

    Parameters
    ----------
    preference : str or None
        The name of the only backend to use, or None for the choice that is made without `use`.

    Raises
    ------
    UnknownBackend
        No backend has that name.
    BackendUnavailable
        The library of the backend is missing or broken.

    Notes
    -----
    Forked children inherit the setting, and the datasets of `fastdecode.torch` carry it into
    workers. Other spawned processes start without it, so call `use` in each of them.

    Examples
    --------
    >>> from fastdecode import decode, use
    >>> with use("pillow"):
    ...     image = decode(data)
    """

    def __init__(self, preference: str | None) -> None:
        if isinstance(preference, str):
            load_named(preference)
        elif preference is not None:
            raise TypeError(f"use() takes a backend's name or None, not {preference!r}")
        self._own = _Level(preference)
        with _lock:
            _levels.append(self._own)
            plain = [level for level in _levels if not level.block]
            if len(plain) > _MAX_PLAIN:  # many later calls have replaced the oldest
                _levels.remove(plain[0])
            _invalidate()

    def __enter__(self) -> None:
        with _lock:
            if self._own in _levels:
                _levels.remove(self._own)
            self._own.block = True
            _levels.append(self._own)
            _invalidate()

    def __exit__(self, *error: object) -> None:
        with _lock:
            at = _levels.index(self._own)
            end = at + 1
            while end < len(_levels) and not _levels[end].block:
                end += 1  # plain calls inside the block end with it
            del _levels[at:end]
            _invalidate()


def _invalidate() -> None:
    """Count a change; called after it, so that no conclusion from before seems up to date."""
    global generation
    generation += 1


def preference_in_process() -> str | None:
    """Return the preference that `use` has set in this process, or None."""
    with _lock:  # without the GIL, the list may shrink between a look at its size and at its end
        return _levels[-1].preference


def preferred(backend: str | None = None) -> str | None:
    """Return the only backend that a call may use; None is the default order.

    The environment is read when a kind of file is first decoded, not at each call.
    """
    set_before = backend if backend is not None else preference_in_process()
    if set_before is not None:
        return set_before
    name = os.environ.get("FASTDECODE_BACKEND", "").strip()
    if not name:
        return None
    try:
        load_named(name)
    except (UnknownBackend, BackendUnavailable) as error:
        raise type(error)(f"FASTDECODE_BACKEND={name}: {error}") from error
    return name


def load_named(name: str) -> Backend:
    """Load a backend that the caller named; if it cannot be used, say which ones can."""
    try:
        return registry.load(name)
    except (BackendUnavailable, UnknownBackend) as error:
        usable = [info.name for info in registry.backends() if info.usable]
        raise type(error)(f"{error}\nUsable here: {', '.join(usable)}") from error


_LARGEST_REDUCES_FROM = 64
_MAX_CACHED = 4096
_MAX_CHANNELS = 4
_NO_COLOUR = (("jpeg2000", "other"), ("tiff", "other"))
_MAX_BITS = 16
_first_choices: dict[object, Choice] = {}
_kind = itemgetter(
    *map(
        Header._fields.index,
        (
            *("format", "bits", "channels", "color", "coding", "subsampling"),
            *("progressive", "animated", "sample"),
        ),
    )
)
"""Returns the fields of a header on which the choice depends, except the size."""


class Want(NamedTuple):
    """The options of a decode on which the choice of a backend depends."""

    mode: Mode
    reduce: Reduce
    strict: bool
    complete: bool  # all scans of a progressive JPEG are there


class Choice(NamedTuple):
    """A backend that can do the work, and what to ask it for; the package does the rest."""

    name: str
    backend: Backend
    support: Support  # the declaration that applies
    layout: PixelLayout
    reduce: Reduce


def first(backend: str | None, header: Header, want: Want) -> Choice:
    """Choose the backend to try first; the answer for each kind of file is cached.

    Raise `UnknownBackend` or `BackendUnavailable` for a named backend, and `UnsupportedFormat` if
    no usable backend reads such a file.
    """
    # Written for speed, because every call runs it.
    key = (
        registry.generation,
        generation,
        backend,
        want,
        _kind(header),
        min(_LARGEST_REDUCES_FROM, max(header.height, header.width)),
    )
    choice = _first_choices.get(key)
    if choice is None:
        choice = next(candidates(backend, header, want), None)
        if choice is None:
            raise _unsupported(backend, header, want)
        if len(_first_choices) >= _MAX_CACHED:  # also drops the entries of old generations
            _first_choices.clear()
        _first_choices[key] = choice
    return choice


def candidates(backend: str | None, header: Header, want: Want) -> Iterator[Choice]:
    """Yield every choice for a file, best first; import each backend only when it is reached."""
    name = preferred(backend)
    if name is None:
        yield from able(header, want)
        return
    choice = _fit(name, load_named(name), header, want)
    if isinstance(choice, Choice):
        yield choice


def able(header: Header, want: Want) -> Iterator[Choice]:
    """Yield every choice for a file among the backends with exact pixels, whatever is preferred."""
    found = False
    # Decoders that reduce a JPEG inside the DCT exclude all others, also those that `strict` rules
    # out: with and without it, the pixels are the same.
    for natively in (True, False):
        if want.strict and not natively:
            lenient = next(able(header, want._replace(strict=False)), None)
            if lenient is not None and lenient.reduce > 1:
                return
        for name in _ordered(header, want):
            usable = _usable(name)
            if usable is not None and usable.exact:
                choice = _fit(name, usable, header, want, natively=natively)
                if isinstance(choice, Choice):
                    found = True
                    yield choice
        if found:
            return


def disabled() -> list[str]:
    """Return the names that ``FASTDECODE_DISABLE`` excludes from the automatic choice."""
    return [
        name
        for name in os.environ.get("FASTDECODE_DISABLE", "").replace(" ", "").split(",")
        if name
    ]


def _ordered(header: Header, want: Want) -> Iterator[str]:
    """Yield the names to try, best first; scan installed packages only at the end."""
    seen = set(disabled())
    for names in (default_order(header.format, want.reduce), registry.BUILTIN, None):
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
    """Return how a backend would do it, or why not; with `natively` it must reduce JPEGs itself."""
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
    """Return the layouts from which a mode can be made without loss, least work first."""
    if mode != "stored" and not _has_eight_bits(header):
        return ()
    if header.format == "jpeg":
        eight = header.bits == 8
        if header.color == "cmyk":
            return ("CMYK",) if eight else ("stored",) if mode == "stored" else ()
        if mode == "stored":
            return (("L" if header.color == "gray" else "RGB"), "stored") if eight else ("stored",)
        return ("RGBA", "RGB", "stored") if mode == "RGBA" else (mode, "stored")
    if header.color == "palette":  # indices are no colours
        opaque = mode == "L" or (mode == "RGBA" and header.format == "bmp")
        return (mode, "RGB") if opaque else (mode,)
    if mode == "L" and header.color in ("gray", "rgb"):
        return ("L", "RGB", "stored")
    if mode == "stored":
        return (mode,)
    # More than four channels, or channels of an unknown kind, cannot be converted to colours; and
    # libavif converts a deep AVIF to 8 bits in its own way, not by taking the high byte.
    known = header.channels <= _MAX_CHANNELS and (header.format, header.color) not in _NO_COLOUR
    deep = header.format == "avif" and header.bits > 8
    return (mode, "stored") if known and not deep else (mode,)


def _has_eight_bits(header: Header) -> bool:
    """Return whether there is a rule that makes 8 bits of the samples."""
    return header.sample == "unsigned" and header.bits <= _MAX_BITS


def _unsupported(backend: str | None, header: Header, want: Want) -> UnsupportedFormat:
    """Return an error that says why no backend reads the file, and which one would."""
    if want.mode != "stored" and not _has_eight_bits(header):
        problem = UnsupportedFormat(
            f"no rule makes {want.mode} of {header.sample} samples of {header.bits} bits"
        )
        return with_advice(problem, ": mode='stored' gives them, for you to scale")
    kind = f"{header.format} ({header.width}x{header.height})"
    named = preferred(backend)
    if named is not None:
        why = _fit(named, registry.load(named), header, want)
        others = [choice.name for choice in able(header, want)]
        hint = f"; {', '.join(others)} can" if others else ""
        return UnsupportedFormat(f"{named} {why}{hint}")
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
    """Return why a usable backend was not chosen automatically."""
    if name in disabled():
        return "is left out by FASTDECODE_DISABLE"
    fit = _fit(name, backend, header, want)
    return fit if isinstance(fit, str) else "gives other pixels, so it must be asked for by name"
