"""Building the native core: with which compiler, into which wheel, and what is said if it fails."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import re
import runpy
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest
from corpus import TESTS
from processes import python

import fastdecode

ROOT = TESTS.parent
_TAKEN = ("setup.py", "setup.cfg", "pyproject.toml", "MANIFEST.in", "README.md", "LICENSE")


def _has_setuptools() -> bool:
    """Return whether setuptools is installed, and builds wheels without the wheel package."""
    try:
        found = importlib.metadata.version("setuptools").split(".")
    except importlib.metadata.PackageNotFoundError:
        return False
    return (int(found[0]), int(found[1])) >= (70, 1)


def _compiles(name: str) -> bool:
    """Return whether a compiler of the system is there with the headers of a C library."""
    words = [name, "-fsyntax-only", "-include", "math.h", "-x", "c", os.devnull]
    return shutil.which(name) is not None and subprocess.call(words, stderr=subprocess.DEVNULL) == 0


pytestmark = [
    pytest.mark.skipif(not _has_setuptools(), reason="setuptools 70.1 or later is not installed"),
    pytest.mark.skipif(not (ROOT / "setup.py").exists(), reason="the sources are not here"),
]
_with_compiler = pytest.mark.skipif(
    not importlib.util.find_spec("ziglang") and not any(map(_compiles, ("cc", "gcc", "clang"))),
    reason="there is no C compiler (install gcc, or ziglang with pip)",
)


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """Copy the source tree, so that the build leaves no files in this one."""
    folder = tmp_path / "source"
    shutil.copytree(
        ROOT / "fastdecode",
        folder / "fastdecode",
        ignore=shutil.ignore_patterns("__pycache__", "_core.py", "libfastdecode.*"),
    )
    for name in _TAKEN:
        shutil.copy(ROOT / name, folder)
    return folder


def _setup(source: Path, *words: str, **variables: str) -> subprocess.CompletedProcess[str]:
    kept = {k: v for k, v in os.environ.items() if k not in ("CC", "CFLAGS", "PYTHONPATH")}
    return subprocess.run(
        [sys.executable, "setup.py", "-q", *words],
        cwd=source,
        capture_output=True,
        check=False,
        text=True,
        env={**kept, **variables},
    )


@pytest.mark.thorough
@_with_compiler
def test_one_wheel_for_all_pythons(source: Path) -> None:
    """The wheel is for this platform and any Python, and decodes without anything beside it.

    Its library needs neither Python nor libjpeg, and is stripped.
    """
    done = _setup(source, "bdist_wheel", "-d", "made")
    assert done.returncode == 0, done.stderr
    (wheel,) = (source / "made").iterdir()

    assert wheel.name.startswith(f"fastdecode-{fastdecode.__version__}-py3-none-")
    assert not wheel.name.endswith("-any.whl")
    with zipfile.ZipFile(wheel) as file:
        file.extractall(source / "unpacked")
    photo = ROOT / "fastdecode" / "samples" / "casa-mila.jpg"
    code = (
        f"import fastdecode; print(fastdecode.decode_file({str(photo)!r}, backend='native').shape)"
    )
    place = source / "unpacked"
    decoded = python("-c", code, cwd=place, PYTHONPATH=str(place))
    assert decoded.stdout.endswith("3)\n"), decoded.stderr
    if shutil.which("readelf"):
        library = place / "fastdecode" / "native" / "libfastdecode.so"
        words = ["readelf", "--dynamic", "--sections", str(library)]
        told = subprocess.run(words, capture_output=True, check=True, text=True).stdout
        needed = set(re.findall(r"NEEDED.*\[(.+?)\.so", told))
        assert needed <= {"libc", "libm", "libpthread", "ld-linux-x86-64", "ld-linux-aarch64"}
        assert ".symtab" not in told


@pytest.mark.parametrize(
    ("variables", "words"),
    [
        ({"CC": "/there/is/no/cc"}, "/there/is/no/cc"),  # the only one that is tried
        ({"CFLAGS": "-Dint=#error_of_some_compiler"}, "error_of_some_compiler"),
        ({"CFLAGS": "-U__SIZE_TYPE__ -D__SIZE_TYPE__=__UINT32_TYPE__"}, "64 bits"),
        ({"CFLAGS": "-U__FLT_EVAL_METHOD__ -D__FLT_EVAL_METHOD__=2"}, "floats as floats"),
    ],
    ids=str,
)
def test_what_does_not_compile_ends_the_build(
    source: Path, variables: dict[str, str], words: str
) -> None:
    """The compiler's words are shown, and no package without the core is made.

    Nor does the core compile for 32 bits, or where floats are computed as something wider.
    """
    done = _setup(source, "bdist_wheel", "-d", "made", **variables)

    assert done.returncode != 0
    assert words in done.stderr
    assert not (source / "made").exists()


@pytest.mark.parametrize(("compilers", "needed"), [((), ["ziglang"]), (("gcc",), [])])
def test_a_compiler_is_asked_for_where_there_is_none(
    source: Path, tmp_path: Path, compilers: tuple[str, ...], needed: list[str]
) -> None:
    """The build backend names a wheel with a compiler, unless one of the machine works."""
    folder = tmp_path / "bin"
    folder.mkdir()
    for name in (*compilers, "as", "ld"):
        found = shutil.which(name)
        if found is None or (name in compilers and not _compiles(name)):
            pytest.skip(f"there is no {name} that works")
        (folder / name).symlink_to(found)
    code = "import _build; print(_build.get_requires_for_build_wheel()[-1:])"
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=source,
        capture_output=True,
        check=True,
        text=True,
        env={"PATH": str(folder), "PYTHONPATH": str(source / "fastdecode" / "native")},
    )

    assert done.stdout.splitlines()[-1] == str(needed)


def test_the_source_archive_holds_the_c_files(source: Path) -> None:
    """The sdist contains the C files of the repository, and nothing that was built."""
    done = _setup(source, "sdist", "-d", "made")
    assert done.returncode == 0, done.stderr
    (archive,) = (source / "made").iterdir()
    with tarfile.open(archive) as file:
        held = {Path(name).name for name in file.getnames()}
    ours = {path.name for path in (ROOT / "fastdecode" / "native").rglob("*.[ch]")}

    assert ours <= held
    assert "setup.py" in held
    assert not {"_core.py", "libfastdecode.so"} & held


def test_the_documents_say_what_was_run_of_each_wheel() -> None:
    """The table of the platforms has each wheel once; `.ci/release.sh` makes its notes of it."""
    if not (script := ROOT / ".ci" / "wheels.py").exists():
        pytest.skip("the source archive has no scripts that make wheels")
    page = (ROOT / "docs" / "installing.md").read_text(encoding="utf-8")
    _, _, table = page.partition("\n## Platforms\n")
    rows = re.findall(r"^\| (`.*`) \| .+ \|$", table, re.MULTILINE)

    told = [wheel for row in rows for wheel in re.findall(r"`([^`]+)`", row)]
    assert sorted(told) == sorted(runpy.run_path(str(script))["TARGETS"])


def test_every_file_that_names_the_version_agrees() -> None:
    """A released tree has one version everywhere; any other is a ``.dev`` before the next one.

    Between releases the citation names the last one, the newest with a date in the changelog.
    """

    def told(name: str, form: str) -> str:
        found = re.search(form, (ROOT / name).read_text(encoding="utf-8"), re.MULTILINE)
        assert found, name
        return found[1]

    released = told("CHANGELOG.md", r"^## \[(\d.*)\] - \d{4}-\d\d-\d\d$")
    next_one, dev, _ = fastdecode.__version__.partition(".dev")

    assert told("conda/recipe.yaml", r'^  version: "(.+)"$') == fastdecode.__version__
    assert told("CITATION.cff", r"^version: (.+)$") == released
    assert told("CHANGELOG.md", r"^## \[(.+?)\]") == ("Unreleased" if dev else released)
    numbers = ([*map(int, version.split("."))] for version in (next_one, released))
    assert (next(numbers) > next(numbers)) == bool(dev)
