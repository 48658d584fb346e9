"""`decode_file`: which paths it takes, and what it says of those that cannot be read."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from fastdecode import decode, decode_file
from fastdecode.testing import encode, picture

JPEG = encode(picture(45, 30))


@pytest.mark.parametrize("kind", [str, Path])
def test_decode_file_takes_both_kinds_of_path(kind, tmp_path: Path) -> None:
    """`decode_file` reads a path given as text or as an object, and passes the options on."""
    path = tmp_path / "photo.jpg"
    path.write_bytes(JPEG)

    image = decode_file(kind(path), 2, mode="L")

    np.testing.assert_array_equal(image, decode(JPEG, 2, mode="L"))


def test_file_descriptor_is_refused_and_left_open(tmp_path: Path) -> None:
    """A number is no path: the file behind it is neither read nor closed."""
    path = tmp_path / "photo.jpg"
    path.write_bytes(JPEG)

    with path.open("rb") as file:
        with pytest.raises(TypeError, match="not int"):
            decode_file(file.fileno())

        assert os.fstat(file.fileno()).st_size == len(JPEG)
        assert file.read() == JPEG


@pytest.mark.parametrize("path", ["no\0file.jpg", Path("no\0file.jpg")], ids=["str", "PathLike"])
def test_name_that_no_file_can_have_is_an_os_error(path) -> None:
    """A NUL byte in a path is an OSError that names it, as for any file that cannot be read."""
    with pytest.raises(OSError, match="null byte") as caught:
        decode_file(path)

    assert caught.value.filename == "no\0file.jpg"
