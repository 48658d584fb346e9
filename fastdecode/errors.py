"""Every error that fastdecode raises on purpose.

::

    FastDecodeError
    ├── DecodeError (ValueError)            the bytes are damaged
    ├── UnsupportedFormat (ValueError)      nothing usable reads them
    ├── ImageTooLarge (ValueError)          the header promises more than max_pixels
    ├── StoreError (ValueError)             a store, or its index, is damaged
    ├── UnknownBackend (LookupError)        no backend has that name
    ├── BackendUnavailable (ImportError)    the library behind it is missing or broken
    └── DeviceUnavailable (RuntimeError)    there is no such device here, or no driver for it

A wrong argument (a path instead of bytes, ``reduce=3``, a region outside the image) is a plain
`TypeError` or `ValueError`, as in NumPy: it is the caller's mistake, not the file's.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

__all__ = [
    "BackendUnavailable",
    "DecodeError",
    "DeviceUnavailable",
    "FastDecodeError",
    "ImageTooLarge",
    "StoreError",
    "UnknownBackend",
    "UnsupportedFormat",
    "advised",
    "visible",
    "without_advice",
]

_Error = TypeVar("_Error", bound=BaseException)


def visible(text: str) -> str:
    """Write out what acts on a terminal, or has no letter there; names of files may have both."""
    return "".join(letter if letter.isprintable() else ascii(letter)[1:-1] for letter in text)


def advised(error: _Error, advice: str) -> _Error:
    """Add to a message what a caller can do by keywords, which a command line does not have."""
    error.args = (f"{error.args[0]}{advice}", *error.args[1:])
    error.advice = advice  # type: ignore[attr-defined]
    return error


def without_advice(error: BaseException) -> str:
    """Return the message as a command line says it; the advice may be of what caused the error."""
    text = str(error)
    one: BaseException | None = error
    while one is not None:
        text = text.replace(getattr(one, "advice", ""), "")
        one = one.__cause__ or one.__context__
    return text


class FastDecodeError(Exception):
    """Base class: ``except FastDecodeError`` skips a bad image and nothing else.

    Examples
    --------
    >>> from fastdecode import FastDecodeError, decode
    >>> for file in (data, data[:5000], b"a text"):
    ...     try:
    ...         print(decode(file).shape)
    ...     except FastDecodeError as error:
    ...         print(type(error).__name__)
    (480, 640, 3)
    DecodeError
    UnsupportedFormat
    """


class DecodeError(FastDecodeError, ValueError):
    """The bytes are damaged, or end before the image does.

    Attributes
    ----------
    backend : str or None
        The backend that said so; None when the header alone already shows it, or when several did.
    errors : Mapping[str, str]
        What each backend that was tried answered, by name, in the order they were tried.

    Examples
    --------
    >>> from fastdecode import decode
    >>> decode(data[:5000])
    Traceback (most recent call last):
    ...
    fastdecode.errors.DecodeError: ...
    """

    def __init__(
        self, message: str, *, backend: str | None = None, errors: Mapping[str, str] | None = None
    ) -> None:
        super().__init__(message)
        self.backend = backend
        self.errors: dict[str, str] = dict(errors or {})

    def __reduce__(self) -> tuple[object, ...]:
        # The default would drop the keyword arguments: errors cross process borders in loaders.
        return _rebuild, (type(self), self.args[0], self.backend, self.errors)


def _rebuild(
    kind: type[DecodeError], message: str, backend: str | None, errors: dict[str, str]
) -> DecodeError:
    return kind(message, backend=backend, errors=errors)


class UnsupportedFormat(FastDecodeError, ValueError):
    """No usable backend reads these bytes; the message says which would, if installed.

    Examples
    --------
    >>> from fastdecode import decode
    >>> decode(b"a text")
    Traceback (most recent call last):
    ...
    fastdecode.errors.UnsupportedFormat: ...
    """


class ImageTooLarge(FastDecodeError, ValueError):
    """The header promises more pixels than ``max_pixels``; nothing was allocated.

    So it is for a file of more bytes than there is memory for.

    Examples
    --------
    >>> from fastdecode import decode
    >>> decode(data, max_pixels=1000)
    Traceback (most recent call last):
    ...
    fastdecode.errors.ImageTooLarge: the jpeg header promises 640 x 480 = 307,200 pixels, ...
    """


class StoreError(FastDecodeError, ValueError):
    """A store or its index is damaged, or truncated; the message names the store and the item.

    Examples
    --------
    >>> from fastdecode.stores import open_store
    >>> with open("half.tar", "wb") as file:
    ...     size = file.write(open("train.tar", "rb").read()[:20_000])
    >>> open_store("half.tar")
    Traceback (most recent call last):
    ...
    fastdecode.errors.StoreError: half.tar...
    """


class UnknownBackend(FastDecodeError, LookupError):
    """No backend has that name; the message lists the known ones.

    Examples
    --------
    >>> from fastdecode import decode
    >>> decode(data, backend="pilow")
    Traceback (most recent call last):
    ...
    fastdecode.errors.UnknownBackend: no backend is called 'pilow'; there are: pillow, ...
    """


class BackendUnavailable(FastDecodeError, ImportError):
    """The backend is known but cannot run here; the message has the reason and the install line.

    So it is for PyTorch, Ray and the other libraries that a part of this package is made for.

    Examples
    --------
    >>> from fastdecode import decode, register
    >>> register("mine", "no_such_package:Backend")
    >>> decode(data, backend="mine")
    Traceback (most recent call last):
    ...
    fastdecode.errors.BackendUnavailable: the backend 'mine' is not usable: ...
    """


class DeviceUnavailable(FastDecodeError, RuntimeError):
    """The device cannot be used; the message says what is missing.

    Examples
    --------
    >>> from fastdecode import decode_batch
    >>> decode_batch([data], device="cuda:99")
    Traceback (most recent call last):
    ...
    fastdecode.errors.DeviceUnavailable: ...
    """
