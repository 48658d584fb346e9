"""The messages of Pillow's libtiff, which would go to stderr without the name of a file.

libtiff has one handler of errors for the process. The one here keeps the messages of a thread that
has asked for them, and leaves all others to the handler that was there. Where Pillow is linked with
libtiff statically (on Windows), the handler cannot be reached, and the messages stay on stderr.
"""

from __future__ import annotations

import atexit
import ctypes
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from PIL import _imaging

_LONGEST = 500

_asked = threading.local()


@contextmanager
def errors() -> Iterator[list[str]]:
    """Collect the errors that libtiff tells in this thread."""
    _asked.words = []
    try:
        yield _asked.words
    finally:
        del _asked.words


# The arguments are the name of a function, and what `vprintf` takes: a format and a va_list, which
# is passed on as a pointer on all systems.
_Handler = ctypes.CFUNCTYPE(None, ctypes.c_char_p, ctypes.c_char_p, ctypes.c_void_p)


def _install() -> _Handler | None:  # type: ignore[valid-type]  # a class that ctypes makes
    try:
        set_handler = ctypes.CDLL(_imaging.__file__).TIFFSetErrorHandler
        write = ctypes.CDLL(None).vsnprintf
    except (AttributeError, OSError, TypeError):
        return None
    set_handler.argtypes, set_handler.restype = [ctypes.c_void_p], ctypes.c_void_p
    write.argtypes = [ctypes.c_char_p, ctypes.c_size_t, ctypes.c_char_p, ctypes.c_void_p]

    def tell(name: bytes, form: bytes, values: int) -> None:
        words = getattr(_asked, "words", None)
        if words is not None:
            text = ctypes.create_string_buffer(_LONGEST)
            write(text, _LONGEST, form, values)
            words.append(f"{(name or b'').decode()}: {text.value.decode(errors='replace')}")
        elif before:
            _Handler(before)(name, form, values)

    handler = _Handler(tell)
    before = set_handler(ctypes.cast(handler, ctypes.c_void_p))
    atexit.register(set_handler, before)  # this module ends before libtiff does
    return handler


_handler = _install()
