"""The backends by name, and how to load one without importing the others.

To add a backend, add one file in ``fastdecode/_backends/`` and one line in `BUILTIN`. Another
package adds one with an entry point ``name = "module:Class"`` in the group ``fastdecode.backends``.
"""

from __future__ import annotations

import importlib.metadata
import pkgutil
import re
from collections.abc import Callable, Mapping
from functools import cache
from shlex import quote
from typing import TYPE_CHECKING, NamedTuple, cast

from fastdecode._arguments import shown
from fastdecode._system.process import ForkLock
from fastdecode.errors import BackendUnavailable, UnknownBackend
from fastdecode.types import FORMATS, BackendInfo

if TYPE_CHECKING:
    from fastdecode._backends.base import Backend
    from fastdecode._backends.batch_base import BatchBackend
    from fastdecode.types import Format

ENTRY_POINT_GROUP = "fastdecode.backends"


class Entry(NamedTuple):
    """What is known of a backend before it is imported; a test compares this with the backend."""

    target: str | Callable[[], Backend]  # "module:Class", or the class itself
    distribution: str  # the library's name on PyPI
    formats: str = ""  # that it reads, so that errors can say which library is missing
    batch: str | Callable[..., BatchBackend] = ""  # its `BatchBackend`, if it has one
    devices: str = ""  # PyTorch's names of the devices on which that decodes


def _builtin(where: str, distribution: str, formats: str, devices: str = "", **more: str) -> Entry:
    """Describe an adapter of the package: a `Backend`, and a `BatchBackend` if it has devices."""
    target = f"fastdecode._backends.{where}"
    batch = f"{target}Batch" if devices else ""
    return Entry(target, distribution, formats, batch=batch, devices=devices, **more)


BUILTIN: dict[str, Entry] = {
    "pillow": _builtin("pillow:Pillow", "pillow", "jpeg png webp gif bmp tiff avif jpeg2000 pnm"),
    "native": _builtin("native:Native", "fastdecode", "jpeg png"),
    "simplejpeg": _builtin("simplejpeg:Simplejpeg", "simplejpeg", "jpeg"),
    "opencv": _builtin("opencv:Opencv", "opencv-python-headless", "jpeg png webp bmp pnm"),
    "turbojpeg": _builtin("turbojpeg:Turbojpeg", "PyTurboJPEG", "jpeg"),
    "jpeg4py": _builtin("jpeg4py:Jpeg4py", "jpeg4py", "jpeg"),
    "imagecodecs": _builtin("imagecodecs:Imagecodecs", "imagecodecs", "jpeg jpeg2000 jxl avif"),
    "tifffile": _builtin("tifffile:Tifffile", "tifffile", "tiff"),
    "torchvision": _builtin("torchvision:Torchvision", "torchvision", "jpeg"),
    "torchcodec": _builtin("torchcodec:Torchcodec", "torchcodec", "jpeg png"),
    "kornia_rs": _builtin("kornia_rs:KorniaRs", "kornia-rs", "jpeg"),
    "pillow_heif": _builtin("pillow_heif:PillowHeif", "pillow-heif", "heic"),
    "nvimgcodec": _builtin("nvimgcodec:Nvimgcodec", "nvidia-nvimgcodec-cu13", "jpeg", "cpu cuda"),
    "dali": _builtin("dali:Dali", "nvidia-dali-cuda130", "jpeg", "cpu cuda"),
}

_FOR_ONE_TORCH = re.compile(r"\b(torchvision|torchcodec|timm)\b")  # timm needs torchvision
_registered: dict[str, Entry] = {}
_loaded: dict[str, Backend] = {}
_failed: dict[str, str] = {}
_lock = ForkLock()
generation = 0
"""Grows with every `register`, which makes earlier conclusions from the registry invalid."""


@cache
def _entry_points() -> dict[str, Entry]:
    """Return the backends of other packages; scanning takes tens of milliseconds, hence cached."""
    return {
        point.name: Entry(point.value, point.dist.name if point.dist else "")
        for point in importlib.metadata.entry_points(group=ENTRY_POINT_GROUP)
        if point.name not in BUILTIN
    }


def names() -> list[str]:
    """Return every known name: built in, registered, and of installed packages, in that order."""
    return [*dict.fromkeys((*BUILTIN, *_registered, *_entry_points()))]


def targets() -> dict[str, str]:
    """Return backends registered as ``"module:Class"``, which other processes can register too."""
    return {
        name: it.target for name, it in _registered.copy().items() if isinstance(it.target, str)
    }


def entry(name: str) -> Entry:
    """Look a name up; scan installed packages only if the name is not known otherwise."""
    found = _registered.get(name) or BUILTIN.get(name) or _entry_points().get(name)
    if found is None:
        raise UnknownBackend(f"no backend is called {name!r}; there are: {', '.join(names())}")
    return found


def install_line(name: str) -> str:
    """Return the command that installs the backend's library."""
    found = entry(name)
    if name in BUILTIN and name not in _registered and found.distribution != "fastdecode":
        return pip_install(f"fastdecode[{name}]")
    return pip_install(found.distribution) if found.distribution else ""


def pip_install(what: str) -> str:
    """Return the command that installs a requirement, and leaves an installed PyTorch as it is.

    A release of torchvision fits one of PyTorch. Without being told which is there, pip takes the
    latest of both, in the build for CUDA, whatever build somebody chose before.
    """
    line = f"pip install {quote(what)}"
    if not _FOR_ONE_TORCH.search(what):
        return line
    try:
        torch = importlib.metadata.version("torch")
    except importlib.metadata.PackageNotFoundError:
        return line
    build = "  # on torch's index" if "+" in torch else ""
    return f"{line} torch=={torch}{build}"


def register(
    name: str,
    backend: str | Callable[[], Backend],
    *,
    distribution: str = "",
    batch: str | Callable[..., BatchBackend] = "",
    replace: bool = False,
) -> None:
    """Register a backend under a name, in this process.

    Parameters
    ----------
    name : str
        A Python identifier.
    backend : str or type
        A `Backend` subclass, or ``"module:Class"``, which is imported on first use.
    distribution : str, optional
        The library's name on PyPI, for the install command.
    batch : str or type, optional
        Its `BatchBackend` in the same form, if it also decodes batches of images on a device.
    replace : bool, default False
        Allow a name that is already taken.

    Raises
    ------
    TypeError, ValueError
        The name is not an identifier, or is taken and `replace` is false; or `backend` is neither a
        class nor ``"module:Class"``.

    Examples
    --------
    >>> from fastdecode import backends, register
    >>> register("mine", "mypackage.mine:Mine", distribution="mypackage")
    >>> backends()[-1].install
    'pip install mypackage'
    """
    if not isinstance(name, str):
        raise TypeError(f"the name of a backend must be text, not {name!r}")
    if not name.isidentifier():
        raise ValueError(f"the name of a backend must be an identifier, not {name!r}")
    if not (isinstance(distribution, str) and isinstance(replace, bool)):
        raise TypeError("distribution must be a string, and replace True or False")
    for argument, target in (("backend", backend), ("batch", batch)):
        if not (isinstance(target, str) or callable(target)):
            raise TypeError(f"{argument} must be a class or 'module:Class', not {target!r}")
        left_out = argument == "batch" and target == ""
        if isinstance(target, str) and not (left_out or all(target.partition(":"))):
            raise ValueError(f"{argument} in words must be 'module:Class', not {target!r}")
    global generation
    with _lock:
        if name in names() and not replace:
            raise ValueError(f"there is a backend {name!r} already: pass replace=True to take over")
        _registered[name] = Entry(backend, distribution, batch=batch)
        _loaded.pop(name, None)
        _failed.pop(name, None)
        generation += 1


def load(name: str) -> Backend:
    """Return this process's instance of a backend, which is created on first use."""
    backend = _loaded.get(name)
    if backend is not None:
        return backend
    with _lock:
        if name not in _loaded and name not in _failed:
            found = entry(name)
            try:
                _loaded[name] = _construct(found)
            except (Exception, SystemExit) as error:  # a broken plugin may raise anything
                _failed[name] = reason(error)
        if name in _failed:
            hint = f"\nInstall it with: {line}" if (line := install_line(name)) else ""
            raise BackendUnavailable(f"the backend {name!r} is not usable: {_failed[name]}{hint}")
        return _loaded[name]


def _construct(found: Entry) -> Backend:
    from fastdecode._backends.base import Backend

    target = found.target
    backend = (pkgutil.resolve_name(target) if isinstance(target, str) else target)()
    if not isinstance(backend, Backend):
        raise TypeError(f"{found.target!r} is not a fastdecode Backend but {type(backend)}")
    if not isinstance(getattr(backend, "supports", None), Mapping):
        raise TypeError(f"{found.target!r} does not declare what it supports")
    if unknown := {*backend.supports} - {*FORMATS}:
        raise ValueError(f"{found.target!r} supports {shown(unknown)}, which is no format")
    return backend


def reason(error: BaseException) -> str:
    if isinstance(error, ModuleNotFoundError):
        return f"the Python package {error.name!r} is not installed"
    kind = "" if isinstance(error, BackendUnavailable) else f"{type(error).__name__}: "
    return f"{kind}{error}"


def backends() -> list[BackendInfo]:
    """Describe every known backend, and whether it works here.

    This imports every installed library, which may take seconds (PyTorch).

    Returns
    -------
    list of BackendInfo
        Built-in backends first, in the order of the documentation.

    Examples
    --------
    >>> from fastdecode import backends
    >>> for backend in backends():
    ...     print(backend.name, backend.version or backend.install)
    pillow ...
    """
    return [describe(name) for name in names()]


def describe(name: str) -> BackendInfo:
    """Describe one backend; this imports its library."""
    try:
        backend = load(name)
    except BackendUnavailable:
        formats = cast("tuple[Format, ...]", tuple(entry(name).formats.split()))
        return BackendInfo(
            name, False, _failed[name], install_line(name), formats=formats, devices=_devices(name)
        )
    jpeg = backend.supports.get("jpeg", ())
    return BackendInfo(
        name=name,
        usable=True,
        reason="",
        install=install_line(name),
        version=_ask_backend(backend.version),
        codec=_ask_backend(backend.codec),
        exact=backend.exact,
        formats=tuple(backend.supports),
        reduces=tuple(sorted({reduce for support in jpeg for reduce in support.reduces})),
        releases_gil=backend.releases_gil,
        holds_gil=tuple(
            format
            for format in backend.supports
            if format in backend.holds_gil or not backend.releases_gil
        ),
        fork_safe=backend.fork_safe,
        devices=_devices(name),
    )


def _devices(name: str) -> tuple[str, ...]:
    """Return the devices on which a backend decodes batches, without importing it."""
    found = entry(name)
    declared = getattr(found.batch, "devices", ()) if isinstance(found.batch, type) else ()
    return tuple(found.devices.split()) or tuple(sorted(declared))


def _ask_backend(question: Callable[[], str]) -> str:
    """Return a backend's answer about itself, or its error, which must not hide other backends."""
    try:
        return question()
    except (Exception, SystemExit) as error:  # a broken plugin may raise anything
        return f"unknown ({type(error).__name__}: {error})"
