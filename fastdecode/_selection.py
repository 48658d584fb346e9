"""Which backend gets a file: the preference first, then what each backend declares.

The order of precedence is ``backend=`` of the call, then `use`, then the environment variable
``FASTDECODE_BACKEND``, then the ranking that ``fastdecode calibrate`` saved, then the
default order. ``FASTDECODE_DISABLE=a,b`` leaves backends out of the automatic choice.
"""

from __future__ import annotations

import os
import warnings
from bisect import bisect
from collections.abc import Iterable, Iterator
from operator import itemgetter
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from fastdecode import ranking, registry
from fastdecode._process import ForkLock, context, speaks_for_all
from fastdecode.errors import BackendUnavailable, UnknownBackend, UnsupportedFormat
from fastdecode.ranking import SIZE_LIMITS, Ranking, size_class
from fastdecode.types import Header

if TYPE_CHECKING:
    from fastdecode.adapters.base import Backend, Support
    from fastdecode.types import Mode, PixelLayout, Reduce

Preference: TypeAlias = "str | Ranking | None"
"""The one backend that is to answer, a ranking to choose by, or neither."""

generation = 0
"""Grows with every `use`: what was concluded from the preference before is out of date."""


class _Level:
    """A preference that holds until the end of a `with` block; if there is none, for good."""

    def __init__(self, preference: Preference, *, block: bool = False) -> None:
        self.preference, self.block = preference, block


_lock = ForkLock()
_levels = [_Level(None, block=True)]  # the last one decides
_MOST_PLAIN = 64
_NOT_READ = object()
_saved: object = _NOT_READ


class use:  # noqa: N801 - to its users it is a function
    """Set the backend, or the ranking, for every later `decode` of this process.

    As a plain call it stays set; as a context manager it ends with the block. Blocks of several
    threads may overlap: the one that began last decides, for all threads.

    Parameters
    ----------
    preference : str, Ranking or None
        A backend's name (it then answers alone), a ranking to choose by, or None for what would
        decide without `use`.

    Raises
    ------
    UnknownBackend
        If no backend has that name.
    BackendUnavailable
        If its library is missing or broken.

    Notes
    -----
    Forked children inherit it, and the datasets of `fastdecode.torch` carry it into workers. Other
    spawned children begin anew, with the saved ranking: call `use` in each.

    Examples
    --------
    >>> from fastdecode import decode, use
    >>> with use("pillow"):
    ...     image = decode(data)
    """

    def __init__(self, preference: str | Ranking | None) -> None:
        if isinstance(preference, str):
            load_named(preference)
        elif not (preference is None or isinstance(preference, Ranking)):
            raise TypeError(f"use() takes a backend's name, a Ranking or None, not {preference!r}")
        self._own = _Level(preference)
        with _lock:
            _levels.append(self._own)
            plain = [level for level in _levels if not level.block]
            if len(plain) > _MOST_PLAIN:  # many later calls have replaced the oldest
                _levels.remove(plain[0])
            _count_change()

    def __enter__(self) -> None:
        with _lock:
            if self._own in _levels:
                _levels.remove(self._own)
            self._own.block = True
            _levels.append(self._own)
            _count_change()

    def __exit__(self, *error: object) -> None:
        with _lock:
            at = _levels.index(self._own)
            end = at + 1
            while end < len(_levels) and not _levels[end].block:
                end += 1  # what was set inside the block ends with it
            del _levels[at:end]
            _count_change()


def _count_change() -> None:
    """Come after every change, so that nothing concluded before it is taken for new."""
    global generation
    generation += 1


def used_here() -> Preference:
    """Return what `use` has set in this process, if anything."""
    return _levels[-1].preference


def preferred(backend: str | None = None) -> Preference:
    """Return what decides, also when the call names no backend; None is the default order.

    The environment is looked at when a kind of file is met for the first time, not at each call.
    """
    set_before = backend if backend is not None else used_here()
    if set_before is not None:
        return set_before
    name = os.environ.get("FASTDECODE_BACKEND", "").strip()
    if not name:
        return saved()
    try:
        load_named(name)
    except (UnknownBackend, BackendUnavailable) as error:
        raise type(error)(f"FASTDECODE_BACKEND={name}: {error}") from error
    return name


def saved() -> Ranking | None:
    """Return the ranking that was measured and saved for this machine; None if there is none.

    The file is read once a process. One that is damaged or out of date is ignored, with a warning.
    """
    global _saved
    if _saved is _NOT_READ:
        found, problem = look_up()
        with _lock:
            first, _saved = _saved is _NOT_READ, found
        if first and problem and speaks_for_all():  # outside the lock: a warning may run anything
            warnings.warn(
                f"the saved ranking of the backends is ignored: {problem}. The default order "
                "serves; to measure anew: fastdecode calibrate",
                stacklevel=2,
            )
    return _saved if isinstance(_saved, Ranking) else None


def look_up() -> tuple[Ranking | None, str]:
    """Read the saved ranking; return it, or None and what is wrong with it, if there is one."""
    return ranking.look_up(Ranking.load, Ranking.stale)


def forget_saved() -> None:
    """Read the saved ranking again when it is needed next."""
    global _saved
    with _lock:
        _saved = _NOT_READ
        _count_change()


def load_named(name: str) -> Backend:
    """Load a backend that somebody asked for; if it cannot be used, say which can."""
    try:
        return registry.load(name)
    except (BackendUnavailable, UnknownBackend) as error:
        usable = [info.name for info in registry.backends() if info.usable]
        raise type(error)(f"{error}\nUsable here: {', '.join(usable)}") from error


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
        generation,
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
    decides = preferred(backend)
    if not isinstance(decides, str):
        yield from _automatic(decides, header, want)
        return
    choice = _fit(decides, load_named(decides), header, want)
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
    decides = preferred(backend)
    if isinstance(decides, str):
        why = _fit(decides, registry.load(decides), header, want)
        able = [choice.name for choice in _automatic(None, header, want)]
        hint = f"; {', '.join(able)} can" if able else ""
        return UnsupportedFormat(f"{decides} {why}{hint}")
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
