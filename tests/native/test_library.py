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


@pytest.mark.parametrize("made", [False, True], ids=["not compiled", "for another system"])
def test_a_source_tree_without_its_library_says_so(made: bool, tmp_path: Path) -> None:
    """One sentence names the folder and the command; nothing decodes without the core."""
    clone = tmp_path / "clone"
    ignored = shutil.ignore_patterns("libfastdecode.*", "__pycache__", *["_core.py"] * (not made))
    shutil.copytree(PACKAGE, clone / PACKAGE.name, ignore=ignored)
    (clone / "setup.py").touch()
    if made:
        name = next((PACKAGE / "native").glob("libfastdecode.*")).name
        (clone / PACKAGE.name / "native" / name).write_bytes(b"MZ of another system")
    for words, before in (
        (("-c", "from fastdecode import decode"), "ImportError: "),
        (("-m", "fastdecode"), "python -m fastdecode: error: "),
        (("-m", "fastdecode.bench"), "python -m fastdecode.bench: error: "),
    )[: 1 if made else 3]:
        done = python(*words, cwd=clone, PYTHONPATH=str(clone))

        assert done.returncode
        assert done.stdout == ""
        said = " ".join(done.stderr[done.stderr.index(before) + len(before) :].split())
        assert said.startswith("fastdecode's native core cannot be loaded") or said == (
            f"fastdecode is imported from {clone}, where its native core has not been "
            f"compiled: run `pip install -e {clone}`, or start Python in another folder "
            "to use an installed copy"
        )
        assert made == said.startswith("fastdecode's native")
        assert words[0] == "-c" or "Traceback" not in done.stderr
