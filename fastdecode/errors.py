"""The exceptions of fastdecode.

::

    FastDecodeError
    ├── DecodeError (ValueError)            the bytes are damaged
    ├── UnsupportedFormat (ValueError)      no usable backend reads the format
    ├── ImageTooLarge (ValueError)          the header promises more than max_pixels
    ├── StoreError (ValueError)             a store, or its index, is damaged
    ├── UnknownBackend (LookupError)        no backend has that name
    ├── BackendUnavailable (ImportError)    the library behind it is missing or broken
    ├── DeviceUnavailable (RuntimeError)    there is no such device here, or no driver for it
    └── ThreadsUnavailable (RuntimeError)   the system starts no more threads

A wrong argument (a path instead of bytes, ``reduce=3``, a region outside the image) raises a plain
`TypeError` or `ValueError`, as in NumPy, because the caller is wrong and not the file.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TypeVar

_Error = TypeVar("_Error", bound=BaseException)


def visible(text: str) -> str:
    """Escape unprintable characters, which may act on a terminal; file names may contain them."""
    return "".join(letter if letter.isprintable() else ascii(letter)[1:-1] for letter in text)


def begin_with(error: _Error, name: object) -> _Error:
    """Begin the message of an error with what it is about."""
    error.args = (f"{name}: {error.args[0]}", *error.args[1:])
    return error


def with_advice(error: _Error, advice: str) -> _Error:
    """Add advice about keyword arguments to a message; `without_advice` drops it for commands."""
    error.args = (f"{error.args[0]}{advice}", *error.args[1:])
    error.advice = advice  # type: ignore[attr-defined]
    return error


def without_advice(error: BaseException) -> str:
    """Return the message without the advice that it, or an error that caused it, was given."""
    text = str(error)
    one: BaseException | None = error
    while one is not None:
        text = text.replace(getattr(one, "advice", ""), "")
        one = one.__cause__ or one.__context__
    return text


def near_miss(word: str, known: Iterable[str]) -> str:
    """Return a question that suggests a similar known word; empty if there is none."""
    import difflib  # needed only after a mistake

    alike = difflib.get_close_matches(word, known, 1)
    return f"; did you mean {alike[0]}?" if alike else ""


class FastDecodeError(Exception):
    """Base class of fastdecode's errors: ``except FastDecodeError`` catches a bad image.

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
        The backend that refused the data; None if the header already shows the damage, or if
        several backends refused.
    errors : Mapping[str, str]
        The message of each backend that was tried, by name, in the order in which they were tried.

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
        # The default drops the keyword arguments, but loaders send errors between processes.
        return _rebuild, (type(self), self.args[0], self.backend, self.errors)


def _rebuild(
    kind: type[DecodeError], message: str, backend: str | None, errors: dict[str, str]
) -> DecodeError:
    return kind(message, backend=backend, errors=errors)


class UnsupportedFormat(FastDecodeError, ValueError):
    """No usable backend reads this format; the message says which would, if installed.

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

    Also raised for a file that does not fit into memory.

    Examples
    --------
    >>> from fastdecode import decode
    >>> decode(data, max_pixels=1000)
    Traceback (most recent call last):
    ...
    fastdecode.errors.ImageTooLarge: the jpeg header promises 640 x 480 = 307,200 pixels, ...
    """


class StoreError(FastDecodeError, ValueError):
    """A store or its index is damaged or truncated; the message names the store and the item.

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
    """The backend is known but cannot run here; the message says why, and how to install it.

    Also raised if PyTorch, Ray or another library is missing that a part of the package needs.

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
    >>> from fastdecode.torch import Loader
    >>> Loader([data], device="cuda:99")
    Traceback (most recent call last):
    ...
    fastdecode.errors.DeviceUnavailable: ...
    """


class ThreadsUnavailable(FastDecodeError, RuntimeError):
    """The system starts no more threads; the message says how many were asked for.

    The limit is that of the user (``ulimit -u``), of the container, or of the memory.

    Examples
    --------
    >>> from fastdecode import ThreadsUnavailable, decode_batch
    >>> try:
    ...     images = decode_batch([data, data], threads=2)
    ... except ThreadsUnavailable:
    ...     images = decode_batch([data, data], threads=1)  # in this thread
    """

    def __init__(self, count: int) -> None:
        super().__init__(f"cannot start {count} thread{'s' * (count != 1)}")
        self._count = count

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self._count,)
