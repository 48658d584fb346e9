"""The core's library: its errors, `add_restart_markers`, and what is said where it is missing."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import native_core
from processes import answers

import fastdecode
from fastdecode import DecodeError, ImageTooLarge, UnsupportedFormat, decode, registry
from fastdecode.errors import BackendUnavailable
from fastdecode.native import add_restart_markers
from fastdecode.testing import encode, picture

PHOTO = (Path(fastdecode.__file__).parent / "samples" / "canyon-wren.jpg").read_bytes()


@pytest.fixture
def native() -> Any:
    """Return the module, or skip where the core is not built."""
    return native_core()


def test_every_status_has_its_error(native: Any) -> None:
    """A failure of the core becomes the package's own exception, with the core's words."""
    kinds = {
        native.lib.FD_DAMAGED: DecodeError,
        native.lib.FD_WARNED: DecodeError,
        native.lib.FD_IO: DecodeError,
        native.lib.FD_UNSUPPORTED: UnsupportedFormat,
        native.lib.FD_TOO_LARGE: ImageTooLarge,
        native.lib.FD_NO_MEMORY: MemoryError,
        native.lib.FD_ARGUMENT: ValueError,
    }
    for status, kind in kinds.items():
        error = native.failure(status, "words")

        assert type(error) is kind
        assert str(error) == "words"


def test_each_thread_has_a_decoder_of_its_own(native: Any) -> None:
    """Two threads never share a decoder, and one thread keeps its own."""
    seen = []
    thread = threading.Thread(target=lambda: seen.append(native.decoder()))
    thread.start()
    thread.join()

    assert seen[0] != native.decoder()
    assert native.decoder() == native.decoder()


def test_it_says_what_it_is(native: Any) -> None:
    """Version and codec are the package's and libjpeg-turbo's, and nothing is in the way."""
    backend = registry.load("native")

    assert backend.version() == fastdecode.__version__
    assert "libjpeg-turbo " in backend.codec()
    assert native.problem() == ""


@pytest.mark.usefixtures("native")
def test_restart_markers_takes_any_buffer() -> None:
    """Bytes, a bytearray, a view and an array give the same new file, of the same pixels."""
    new = add_restart_markers(PHOTO)

    for given in (bytearray(PHOTO), memoryview(PHOTO), np.frombuffer(PHOTO, np.uint8)):
        assert add_restart_markers(given) == new
    np.testing.assert_array_equal(decode(new), decode(PHOTO))


@pytest.mark.usefixtures("native")
def test_restart_markers_refuses_in_the_packages_words(tmp_path: Path) -> None:
    """What is no JPEG, too large, damaged or no bytes at all has the error that `decode` gives."""
    with pytest.raises(UnsupportedFormat):
        add_restart_markers(encode(picture(13, 7), "png"))
    with pytest.raises(ImageTooLarge):
        add_restart_markers(PHOTO, max_pixels=500 * 333 - 1)
    with pytest.raises(DecodeError):
        add_restart_markers(PHOTO[: len(PHOTO) // 2])
    for wrong in (str(tmp_path), tmp_path, 3, None, np.zeros(9, np.float32)):
        with pytest.raises(TypeError):
            add_restart_markers(wrong)  # type: ignore[arg-type]
    for limit, kind in ((0, ValueError), (True, TypeError), ("many", TypeError)):
        with pytest.raises(kind, match="max_pixels"):
            add_restart_markers(PHOTO, max_pixels=limit)  # type: ignore[arg-type]
    unlimited = add_restart_markers(PHOTO, max_pixels=None)
    for enough in (500 * 333, np.int64(500 * 333), 1 << 70):
        assert add_restart_markers(PHOTO, max_pixels=enough) == unlimited


MISSING = {
    "not built": ("'fastdecode.native._core'", "the native core", "pip install "),
    "no cffi": ("'_cffi_backend'", "'cffi' is not installed", "pip install 'fastdecode[native]'"),
}


@pytest.mark.parametrize(("module", "reason", "line"), MISSING.values(), ids=MISSING)
def test_without_it_all_else_works(module: str, reason: str, line: str) -> None:
    """Where the core or cffi is missing, only it is: named with the reason and what brings it."""
    if "cffi" in module:
        native_core()
    found = answers(
        f"""
sys.modules[{module}] = None
from fastdecode.native import add_restart_markers
answers["chosen"] = said(decode, encode(image)) == said(decode, encode(image), backend="pillow")
answers["named"] = said(decode, encode(image), backend="native")
answers["add_restart_markers"] = said(add_restart_markers, encode(image))
answers["info"] = next(vars(info) for info in backends() if info.name == "native")
"""
    )

    assert found["chosen"] is True
    assert not found["info"]["usable"]
    assert reason in found["info"]["reason"]
    assert line in found["info"]["install"]
    for kind, message in (found["named"], found["add_restart_markers"]):
        assert kind == BackendUnavailable.__name__
        assert reason in message
        assert f"Install it with: {found['info']['install']}" in message


def test_importing_the_package_does_not_load_it() -> None:
    """Neither `import fastdecode` nor `import fastdecode.native` loads the compiled core."""
    found = answers("""
import fastdecode.native
from importlib.machinery import EXTENSION_SUFFIXES
answers["compiled"] = [
    name for name, module in sys.modules.items()
    if name.startswith("fastdecode.") and module.__file__.endswith(tuple(EXTENSION_SUFFIXES))
]
""")

    assert found["compiled"] == []
