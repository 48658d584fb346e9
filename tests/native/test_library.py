"""The binding of the core: its errors, what it decodes, and what is said where it is missing."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from processes import python
from same import assert_same

import fastdecode
from fastdecode import DecodeError, ImageTooLarge, UnsupportedFormat, decode, stats
from fastdecode.native import _library as native
from fastdecode.testing import drawing, encode

PACKAGE = Path(fastdecode.__file__).parent


def test_every_status_has_its_error() -> None:
    """A failure of the core becomes the package's exception with the core's message."""
    kinds = {
        native.lib.FD_DAMAGED: DecodeError,
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


def test_what_it_does_not_declare_is_no_fallback() -> None:
    """A CMYK JPEG goes to another backend at once; a file with stray bytes after it gave up."""
    stats(reset=True)
    decode(encode(drawing(61, 43, "CMYK"), "jpeg"))
    assert stats().fallbacks == {}

    data = encode(drawing(61, 43), "jpeg")
    odd = decode(data[:-2] + b"\x11" * 40 + data[-2:])

    assert_same(odd, decode(data))
    assert [first for first, _ in stats(reset=True).fallbacks] == ["native"]


@pytest.mark.parametrize(
    ("words", "before"),
    [
        (("-c", "from fastdecode import decode"), "ImportError: "),
        (("-m", "fastdecode"), "python -m fastdecode: error: "),
        (("-m", "fastdecode.bench"), "python -m fastdecode.bench: error: "),
    ],
)
def test_a_source_tree_without_its_library_says_so(
    words: tuple[str, ...], before: str, tmp_path: Path
) -> None:
    """One sentence names the folder and the command; nothing decodes without the core."""
    ignored = shutil.ignore_patterns("libfastdecode.*", "_core.py", "__pycache__")
    shutil.copytree(PACKAGE, tmp_path / "clone" / PACKAGE.name, ignore=ignored)
    (tmp_path / "clone" / "setup.py").touch()

    done = python(*words, cwd=tmp_path / "clone", PYTHONPATH=str(tmp_path / "clone"))

    assert done.returncode
    assert done.stdout == ""
    said = done.stderr[done.stderr.index(before) + len(before) :]
    assert " ".join(said.split()) == (
        f"fastdecode is imported from {tmp_path / 'clone'}, where its native core has not been "
        f"compiled: run `pip install -e {tmp_path / 'clone'}`, or start Python in another folder "
        "to use an installed copy"
    )
    if words[0] == "-m":
        assert "Traceback" not in done.stderr


def test_a_library_for_another_system_says_so(tmp_path: Path) -> None:
    """A file that is no library of this system is an ImportError with the system's words."""
    ignored = shutil.ignore_patterns("libfastdecode.*", "__pycache__")
    shutil.copytree(PACKAGE, tmp_path / PACKAGE.name, ignore=ignored)
    name = next((PACKAGE / "native").glob("libfastdecode.*")).name
    (tmp_path / PACKAGE.name / "native" / name).write_bytes(b"MZ of another system")

    code = "from fastdecode import decode"
    done = python("-c", code, cwd=tmp_path, PYTHONPATH=str(tmp_path))

    assert "ImportError: fastdecode's native core cannot be loaded" in done.stderr
