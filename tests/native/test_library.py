"""The binding of the core: its errors, its own decoder, and what is said if it is missing."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from corpus import native_core
from processes import answers

import fastdecode
from fastdecode import DecodeError, ImageTooLarge, UnsupportedFormat, decode, registry, stats
from fastdecode.errors import BackendUnavailable
from fastdecode.testing import drawing, encode

PACKAGE = Path(fastdecode.__file__).parent
DECODED = """
from fastdecode import stats
answers["pixels"] = call(decode, encode(drawing(61, 43)), backend="native")
answers["left"] = stats().left_to_libjpeg
answers["codec"] = next(info.codec for info in backends() if info.name == "native")
"""


@pytest.fixture
def native() -> Any:
    """Return the module, or skip if the core is not built."""
    return native_core()


def test_every_status_has_its_error(native: Any) -> None:
    """A failure of the core becomes the package's exception with the core's message."""
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


def test_it_says_what_it_is(native: Any) -> None:
    """Version and codec are the package's and libjpeg-turbo's, and there is no problem."""
    backend = registry.load("native")

    assert backend.version() == fastdecode.__version__
    assert "libjpeg-turbo " in backend.codec()
    assert native.problem() == ""


def left_to_libjpeg(data: bytes, **options: Any) -> int:
    """Return how many files one call of `decode` left to libjpeg-turbo."""
    stats(reset=True)
    decode(data, backend="native", **options)
    return stats().left_to_libjpeg


@pytest.mark.usefixtures("native")
@pytest.mark.parametrize("subsampling", [0, 1, 2])
@pytest.mark.parametrize("reduce", [1, 2, 4, 8])
@pytest.mark.parametrize("mode", ["RGB", "L", "RGBA"])
def test_baseline_is_decoded_by_the_core_itself(subsampling: int, reduce: Any, mode: Any) -> None:
    """The core's own decoder decodes a baseline JPEG with Pillow's pixels."""
    data = encode(drawing(61, 43), "jpeg", subsampling=subsampling)

    assert left_to_libjpeg(data, reduce=reduce, mode=mode) == 0
    np.testing.assert_array_equal(
        decode(data, reduce, mode=mode, backend="native"),
        decode(data, reduce, mode=mode, backend="pillow"),
    )


@pytest.mark.usefixtures("native")
@pytest.mark.parametrize(
    ("coding", "options", "left"),
    [
        ({}, {"region": (7, 9, 40, 33)}, 0),
        ({"progressive": True}, {}, 0),
        ({"progressive": True}, {"reduce": 8, "strict": True}, 0),
        ({"keep_rgb": True}, {}, 1),
    ],
    ids=str,
)
def test_what_is_left_to_libjpeg_turbo(coding: Any, options: Any, left: int) -> None:
    """Kinds that the core's own decoder does not support are counted, and decode."""
    assert left_to_libjpeg(encode(drawing(61, 43), "jpeg", **coding), **options) == left


@pytest.mark.usefixtures("native")
def test_damage_is_judged_by_libjpeg_turbo() -> None:
    """libjpeg-turbo decodes a truncated file, and the error has its message."""
    whole = encode(drawing(61, 43), "jpeg")
    stats(reset=True)
    with pytest.raises(DecodeError, match="premature end"):
        decode(whole[: len(whole) * 2 // 3] + b"\xff\xd9", backend="native")

    assert stats().left_to_libjpeg >= 1


@pytest.mark.usefixtures("native")
def test_its_own_decoder_can_be_switched_off() -> None:
    """FASTDECODE_NATIVE_DECODER=libjpeg switches the own decoder off, with the same pixels."""
    own = answers(DECODED, FASTDECODE_NATIVE_DECODER="")
    other = answers(DECODED, FASTDECODE_NATIVE_DECODER="libjpeg")

    assert own["pixels"] == other["pixels"]
    assert (own["left"], other["left"]) == (0, 1)
    assert own["codec"].startswith("its own for PNG, and baseline and progressive JPEG;")
    assert other["codec"].startswith("libjpeg-turbo")


@pytest.mark.usefixtures("native")
def test_an_unknown_decoder_is_refused() -> None:
    """Another name in the variable makes the backend unusable, and the reason names it."""
    kind, message = answers(DECODED, FASTDECODE_NATIVE_DECODER="mine")["pixels"]

    assert kind == BackendUnavailable.__name__
    assert "FASTDECODE_NATIVE_DECODER=mine" in message


MISSING = {
    "not built": ("'fastdecode.native._core'", "the native core", "pip install "),
    "no cffi": ("'_cffi_backend'", "'cffi' is not installed", "pip install 'fastdecode[native]'"),
}


@pytest.mark.parametrize(("module", "reason", "line"), MISSING.values(), ids=MISSING)
def test_without_it_all_else_works(module: str, reason: str, line: str) -> None:
    """Without the core or cffi, only the backend is missing, with the reason and advice."""
    if "cffi" in module:
        native_core()
    found = answers(
        f"""
sys.modules[{module}] = None
from fastdecode.native import add_restart_markers
answers["chosen"] = call(decode, encode(image)) == call(decode, encode(image), backend="pillow")
answers["named"] = call(decode, encode(image), backend="native")
answers["add_restart_markers"] = call(add_restart_markers, encode(image))
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


def test_a_clone_that_hides_an_installed_core_is_named(native: Any, tmp_path: Path) -> None:
    """`python -m` in a clone says that the installed copy has a core, and how to run it."""
    built = Path(native._core.__file__).name
    for name, left_out in (("clone", built), ("installed", "")):
        ignored = shutil.ignore_patterns(left_out)
        shutil.copytree(PACKAGE, tmp_path / name / PACKAGE.name, ignore=ignored)

    def told(module: str, *words: str, folder: str) -> str:
        done = subprocess.run(
            [sys.executable, "-m", module, *words],
            cwd=tmp_path / folder,
            capture_output=True,
            check=True,
            text=True,
            env={**os.environ, "PYTHONPATH": str(tmp_path / "installed"), "COLUMNS": "80"},
        )
        return "".join(done.stderr.split())  # a long path is cut at the end of a line

    for command in (("fastdecode", "info", "--help"), ("fastdecode.bench", "--help")):
        said = told(*command, folder="clone")
        assert f"from{tmp_path / 'clone'},wherethenativecorehasnotbeencompiled" in said
        assert f"notfrom{tmp_path / 'installed'},whereithasbeen:usethecommand`fastdecode`" in said
        assert "hasnotbeencompiled" not in told(*command, folder=".")
