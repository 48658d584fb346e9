"""Which backend gets a file: the caller's word first, then a ranking, then what each can do.

The order of precedence is ``backend=`` of the call, then `use`, then the environment variable
``FASTDECODE_BACKEND``, then the default ranking. ``FASTDECODE_DISABLE=a,b`` leaves backends out.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, NamedTuple

from fastdecode import registry
from fastdecode.errors import BackendUnavailable, UnknownBackend, UnsupportedFormat

if TYPE_CHECKING:
    from types import TracebackType

    from fastdecode.adapters.base import Backend, Support
    from fastdecode.types import Format, Header, Mode, PixelLayout, Reduce

__all__ = ["DEFAULT", "Choice", "Ranking", "Want", "candidates", "chosen", "first", "use"]


@dataclass(frozen=True)
class Ranking:
    """An order of preference among backends: plain data.

    Attributes
    ----------
    orders : Mapping
        Backend names, fastest first, by ``(format, reduce)``. A key that is missing falls back to
        ``(format, 1)``, then to the default ranking; names that are missing come last.
    """

    orders: Mapping[tuple[Format, Reduce], tuple[str, ...]] = field(default_factory=dict)

    def order(self, format: Format, reduce: Reduce) -> tuple[str, ...]:
        """Names for one format and reduction, fastest first."""
        return self.orders.get((format, reduce)) or self.orders.get((format, 1)) or ()


_JPEG = (
    "simplejpeg",
    "turbojpeg",
    "opencv",
    "jpeg4py",
    "pillow",
    "imagecodecs",
    "torchcodec",
    "torchvision",
    "kornia_rs",
)
_PILLOW_FIRST = ("pillow", "imagecodecs", "opencv", "torchcodec", "torchvision")
DEFAULT = Ranking({("jpeg", 1): _JPEG, ("png", 1): ("opencv", *_PILLOW_FIRST)})


class Want(NamedTuple):
    """What is to be decoded, as far as the choice of a backend depends on it.

    Attributes
    ----------
    mode : Mode
    reduce : Reduce
    strict : bool
    complete : bool
        All scans of a progressive JPEG are there.
    """

    mode: Mode
    reduce: Reduce
    strict: bool
    complete: bool


class Choice(NamedTuple):
    """A backend that can do the work, and how it is to be asked.

    Attributes
    ----------
    name : str
    backend : Backend
    support : Support
        The declaration that applies.
    layout : PixelLayout
        What to ask it for; the package converts it to the mode that is wanted.
    reduce : Reduce
        What to ask it for; the package makes the rest.
    """

    name: str
    backend: Backend
    support: Support
    layout: PixelLayout
    reduce: Reduce


_Preference = str | Ranking | None
_used: _Preference = None
_first_choices: dict[object, Choice] = {}


class use:  # noqa: N801 - to its users it is a function
    """Set the backend, or the ranking, for every later `decode` of this process.

    As a plain call it stays set; as a context manager it is set back at the end.

    Parameters
    ----------
    preference : str, Ranking or None
        A backend's name (it then answers alone), a ranking to choose by, or None for the default.

    Raises
    ------
    UnknownBackend
        If no backend has that name.
    BackendUnavailable
        If its library is missing or broken.

    Examples
    --------
    >>> with use("pillow"):
    ...     image = decode(data)  # doctest: +SKIP
    """

    def __init__(self, preference: str | Ranking | None) -> None:
        if isinstance(preference, str):
            _load_named(preference)
        elif not (preference is None or isinstance(preference, Ranking)):
            raise TypeError(f"use() takes a backend's name, a Ranking or None, not {preference!r}")
        self._before = _used
        _set(preference)

    def __enter__(self) -> None:
        return None

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        traceback: TracebackType | None,
    ) -> Literal[False]:
        _set(self._before)
        return False


def _set(preference: _Preference) -> None:
    global _used
    _used = preference
    forget()


def forget() -> None:
    """Choose anew from now on: backends, preferences or the environment have changed."""
    _first_choices.clear()


def chosen() -> _Preference:
    """Return what decides when the call names no backend; None is the default ranking.

    Raises
    ------
    UnknownBackend, BackendUnavailable
        If ``FASTDECODE_BACKEND`` names a backend that cannot be used.
    """
    if _used is not None:
        return _used
    name = os.environ.get("FASTDECODE_BACKEND")
    if not name:
        return None
    try:
        _load_named(name)
    except (UnknownBackend, BackendUnavailable) as error:
        raise type(error)(f"FASTDECODE_BACKEND={name}: {error}") from error
    return name


def _load_named(name: str) -> Backend:
    """Load a backend that somebody asked for; if it cannot be used, say which can."""
    try:
        return registry.load(name)
    except BackendUnavailable as error:
        usable = [info.name for info in registry.backends() if info.usable]
        raise BackendUnavailable(f"{error}\nUsable here: {', '.join(usable)}") from error


def first(backend: str | None, header: Header, want: Want) -> Choice:
    """Choose the backend to try first. The answer for each kind of file is remembered.

    Raises
    ------
    UnknownBackend, BackendUnavailable
        If a backend is named that does not exist or cannot be used.
    UnsupportedFormat
        If no usable backend reads such a file, or the named one does not.
    """
    key = (
        registry.generation,
        backend,
        want,
        header.format,
        header.bits,
        header.color,
        header.coding,
        header.subsampling,
        header.animated,
        header.width >= 8 or header.height >= 8,
    )
    choice = _first_choices.get(key)
    if choice is None:
        choice = next(candidates(backend, header, want), None)
        if choice is None:
            raise _unsupported(backend, header, want)
        _first_choices[key] = choice
    return choice


def candidates(backend: str | None, header: Header, want: Want) -> Iterator[Choice]:
    """Yield every choice for a file, best first, importing each backend only when it is reached."""
    preference: _Preference = backend if backend is not None else chosen()
    if isinstance(preference, str):
        choice = _fit(preference, _load_named(preference), header, want, any_reduce=True)
        if isinstance(choice, Choice):
            yield choice
        return
    names = _ordered(preference, header.format, want.reduce)
    found = False
    # A JPEG is reduced by a decoder that reduces inside its DCT, if there is any at all.
    for any_reduce in (False, True):
        for name in names:
            if found and any_reduce:
                return
            usable = _usable(name)
            if usable is None or not usable.exact:
                continue
            choice = _fit(name, usable, header, want, any_reduce=any_reduce)
            if isinstance(choice, Choice):
                found = True
                yield choice


def _ordered(ranking: Ranking | None, format: Format, reduce: Reduce) -> list[str]:
    disabled = set(os.environ.get("FASTDECODE_DISABLE", "").replace(" ", "").split(","))
    order = (*(ranking.order(format, reduce) if ranking else ()), *DEFAULT.order(format, reduce))
    return [
        name
        for name in dict.fromkeys((*order, *_PILLOW_FIRST, *registry.names()))
        if name not in disabled
    ]


def _usable(name: str) -> Backend | None:
    try:
        return registry.load(name)
    except (BackendUnavailable, UnknownBackend):
        return None


def _fit(
    name: str, backend: Backend, header: Header, want: Want, *, any_reduce: bool
) -> Choice | str:
    """How a backend would do it, or why it would not."""
    supports = backend.supports.get(header.format, ())
    refusal = "" if supports else f"does not read {header.format}"
    for layout in _layouts(header, want.mode):
        for support in supports:
            if layout not in support.layouts:
                refusal = refusal or f"does not give {want.mode} of {header.format}"
                continue
            why = support.refusal(header, complete=want.complete)
            if why:
                refusal = f"does not read {header.format} with {why}"
            elif want.strict and not support.warnings:
                refusal = f"cannot report warnings of {header.format}, which strict=True needs"
            else:
                native = support.reduces_natively(header, want.reduce)
                if native or any_reduce or header.format != "jpeg":
                    return Choice(name, backend, support, layout, want.reduce if native else 1)
    return refusal


def _layouts(header: Header, mode: Mode) -> tuple[PixelLayout, ...]:
    """Layouts from which a mode can be made without loss, the one with the least work first."""
    if header.format == "jpeg":
        eight = header.bits == 8 and header.coding != "jpeg-ls"
        if header.color == "cmyk":
            return ("CMYK",) if eight else ("native",) if mode == "native" else ()
        if mode == "native":
            return (("L" if header.color == "gray" else "RGB"), "native") if eight else ("native",)
        return ("RGBA", "RGB", "native") if mode == "RGBA" else (mode, "native")
    if mode == "L" and header.color in ("gray", "rgb"):
        return ("L", "RGB", "native")
    return (mode,) if mode == "native" else (mode, "native")


def _unsupported(backend: str | None, header: Header, want: Want) -> UnsupportedFormat:
    """Say why nothing reads the file, and what would."""
    kind = f"{header.format} ({header.width}x{header.height})"
    preference: _Preference = backend if backend is not None else chosen()
    if isinstance(preference, str):
        why = _fit(preference, registry.load(preference), header, want, any_reduce=True)
        able = [choice.name for choice in candidates_by_ability(header, want)]
        hint = f"; {', '.join(able)} can" if able else ""
        return UnsupportedFormat(f"{preference} {why}{hint}")
    reasons = []
    missing = []
    for name in registry.names():
        usable = _usable(name)
        if usable is None:
            if header.format in registry.entry(name).formats.split():
                missing.append(registry.install_line(name))
        elif header.format in usable.supports:
            reasons.append(f"{name} {_fit(name, usable, header, want, any_reduce=True)}")
    message = f"no usable backend reads this {kind}"
    if reasons:
        message += f": {'; '.join(reasons)}"
    if missing:
        message += f". What could, if installed: {' or '.join(missing)}"
    return UnsupportedFormat(message)


def candidates_by_ability(header: Header, want: Want) -> Iterator[Choice]:
    """Yield the choices that there would be if no backend were named."""
    for name in _ordered(None, header.format, want.reduce):
        usable = _usable(name)
        if usable is not None and usable.exact:
            choice = _fit(name, usable, header, want, any_reduce=False)
            if isinstance(choice, Choice):
                yield choice
