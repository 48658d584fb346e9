"""Building the native core: if it is impossible, the package is installed with the reason."""

from __future__ import annotations

import importlib.metadata
import os
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest
from corpus import TESTS

import fastdecode

ROOT = TESTS.parent
REASON = "fastdecode/native/_missing.txt"
_TAKEN = ("setup.py", "setup.cfg", "pyproject.toml", "MANIFEST.in", "README.md", "LICENSE")


def _has_setuptools() -> bool:
    """Return whether setuptools is installed, and builds wheels without the wheel package."""
    try:
        found = importlib.metadata.version("setuptools").split(".")
    except importlib.metadata.PackageNotFoundError:
        return False
    return (int(found[0]), int(found[1])) >= (70, 1)


pytestmark = [
    pytest.mark.skipif(not _has_setuptools(), reason="setuptools 70.1 or later is not installed"),
    pytest.mark.skipif(not (ROOT / "setup.py").exists(), reason="the sources are not here"),
]


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """Copy the source tree, so that the build leaves no files in this one."""
    folder = tmp_path / "source"
    shutil.copytree(
        ROOT / "fastdecode",
        folder / "fastdecode",
        ignore=shutil.ignore_patterns("__pycache__", "_core.*", "_missing.txt"),
    )
    for name in _TAKEN:
        shutil.copy(ROOT / name, folder)
    return folder


def _setup(source: Path, *words: str, **variables: str) -> subprocess.CompletedProcess[str]:
    kept = {k: v for k, v in os.environ.items() if k not in ("FASTDECODE_NATIVE", "PYTHONPATH")}
    return subprocess.run(
        [sys.executable, "setup.py", "-q", *words],
        cwd=source,
        capture_output=True,
        check=False,
        text=True,
        env={**kept, **variables},
    )


def _wheel(source: Path, **variables: str) -> Path:
    """Build a wheel as an installation does, and return it."""
    done = _setup(source, "bdist_wheel", "-d", "made", **variables)
    assert done.returncode == 0, done.stderr
    (wheel,) = (source / "made").iterdir()
    return wheel


def _built(source: Path, **variables: str) -> tuple[str, str]:
    """Build without the core; return the recorded reason and the output."""
    done = _setup(source, "build", "--build-lib", "built", **variables)
    assert done.returncode == 0, done.stderr
    return (source / "built" / REASON).read_text(), done.stderr


def _told(package: Path) -> str:
    """Return why the fastdecode in a folder says that it has no core."""
    code = "from fastdecode.native import _library; print(_library.problem())"
    return subprocess.run(
        [sys.executable, "-c", code],
        cwd=package,
        capture_output=True,
        check=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(package)},
    ).stdout


def _needs(source: Path) -> None:
    """Skip if something else is missing to build the core."""
    done = _setup(source, "--version", FASTDECODE_NATIVE="require")
    if done.returncode:
        pytest.skip(done.stderr.strip().splitlines()[-1])


def test_without_a_compiler(source: Path) -> None:
    """Without a compiler, the wheel is for every system, has the reason, and needs no cffi."""
    wheel = _wheel(source, CC="/there/is/no/cc")

    assert wheel.name.endswith("-py3-none-any.whl")
    with zipfile.ZipFile(wheel) as file:
        assert "no C compiler that works (/there/is/no/cc)" in file.read(REASON).decode()
        metadata = next(name for name in file.namelist() if name.endswith("METADATA"))
        wanted = file.read(metadata).decode().splitlines()
        assert not [line for line in wanted if "cffi" in line and "extra" not in line]
        file.extractall(source / "unpacked")
    assert "left out when fastdecode was built: there is no C compiler" in _told(
        source / "unpacked"
    )


@pytest.mark.parametrize(
    ("header", "reason"),
    [
        ('#error "there is none"\n', "libjpeg-turbo's headers (jpeglib.h) are missing"),
        ("#define JPEG_LIB_VERSION 90\n", "the libjpeg here is not libjpeg-turbo"),
    ],
    ids=["none", "plain libjpeg"],
)
def test_without_the_headers_of_libjpeg_turbo(source: Path, header: str, reason: str) -> None:
    """A missing or foreign ``jpeglib.h`` is named as the reason."""
    _needs(source)
    (source / "jpeglib.h").write_text(header)  # where the compiler looks first

    kept, said = _built(source, CPPFLAGS=f"-I{source}")

    assert reason in kept
    assert f"the native core is left out: {reason}" in said


def test_left_out_on_purpose(source: Path) -> None:
    """``FASTDECODE_NATIVE=0`` leaves the core out, also after an earlier build."""
    package = source / "built" / "fastdecode" / "native"
    package.mkdir(parents=True)
    (package / "_core.abi3.so").write_bytes(b"old")

    _built(source, FASTDECODE_NATIVE="0")

    assert not (package / "_core.abi3.so").exists()
    assert "FASTDECODE_NATIVE=0 was set" in _told(source / "built")


def test_what_does_not_compile_is_left_out(source: Path) -> None:
    """After a compiler error the package is installed without the core, unless it is required."""
    _needs(source)
    for path in (source / "fastdecode" / "native").glob("*.c"):
        path.unlink()
    (source / "fastdecode" / "native" / "decode.c").write_text("#error of some compiler\n")

    kept, _ = _built(source)
    required = _setup(source, "build", "--build-lib", "other", FASTDECODE_NATIVE="require")

    assert "it did not compile" in kept
    assert "did not compile" in _told(source / "built")
    assert required.returncode != 0


@pytest.mark.parametrize(("wish", "reason"), [("require", "no C compiler"), ("no", "'no'")])
def test_impossible_wishes_are_errors(source: Path, wish: str, reason: str) -> None:
    """A required core that cannot be built, and any other value, end a build with the reason."""
    done = _setup(source, "build", CC="/there/is/no/cc", FASTDECODE_NATIVE=wish)

    assert done.returncode != 0
    assert "FASTDECODE_NATIVE" in done.stderr
    assert reason in done.stderr


def test_the_source_archive_holds_the_c_files(source: Path) -> None:
    """The sdist contains the C files of the repository."""
    done = _setup(source, "sdist", "-d", "made", FASTDECODE_NATIVE="0")
    assert done.returncode == 0, done.stderr
    (archive,) = (source / "made").iterdir()
    with tarfile.open(archive) as file:
        held = {Path(name).name for name in file.getnames()}
    ours = {path.name for path in (ROOT / "fastdecode" / "native").glob("*.[ch]")}

    assert ours <= held
    assert "setup.py" in held
    assert "_missing.txt" not in held


def test_one_wheel_for_all_pythons(source: Path) -> None:
    """With compiler and headers the wheel has the core, for every CPython from 3.10 on."""
    pytest.importorskip("cffi")
    _needs(source)
    wheel = _wheel(source)
    with zipfile.ZipFile(wheel) as file:
        names = file.namelist()
        file.extractall(source / "unpacked")
        metadata = next(name for name in names if name.endswith("METADATA"))

        assert "\nRequires-Dist: cffi" in file.read(metadata).decode()

    assert [name for name in names if "native/_core." in name]
    assert REASON not in names
    assert _told(source / "unpacked").strip() == ""
    if "_core.abi3.so" in " ".join(names):  # neither free-threaded nor a debug build
        assert "-cp310-abi3-" in wheel.name


def test_every_file_that_names_the_version_has_the_same() -> None:
    """The citation, the conda recipe and the changelog have the version of the package."""
    for name, form in (
        ("CITATION.cff", r"^version: (.+)$"),
        ("conda/recipe.yaml", r'^  version: "(.+)"$'),
        ("CHANGELOG.md", r"^## \[(\d.*)\]"),
    ):
        found = re.search(form, (ROOT / name).read_text(encoding="utf-8"), re.MULTILINE)
        assert found, name
        assert found[1] == fastdecode.__version__, name
