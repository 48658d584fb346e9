"""Builds the native core: a plain shared library, without Python's headers, and its declarations.

This file is the build backend named in ``pyproject.toml``: setuptools, which is also given a
compiler where the machine has none. ``setup.py`` runs it by its path, because the package cannot be
imported yet. One library serves every Python on its platform: cffi binds it in its ABI mode.
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path
from typing import Any

from setuptools import Command, build_meta
from setuptools.build_meta import *  # noqa: F403 - the backend's other functions
from setuptools.errors import CompileError

FOLDER = Path(__file__).parent
SOURCES = sorted(FOLDER.rglob("*.c"))
HEADERS = sorted(FOLDER.rglob("*.h"))
DECLARATIONS = "_core.py"
_FROM, _TO = "// cffi: from here", "// cffi: to here"
_ZIG = "ziglang"  # on PyPI: clang, with the C libraries of every platform
_PROBE = """\
#include <math.h>
#include <pthread.h>
#include <stdint.h>
double fd_probe(double x) { return pow(x, 0.5); }
"""


def get_requires_for_build_wheel(config_settings: Any = None) -> list[str]:
    """Return what to install before a wheel is built: also a compiler, if none works here."""
    return [*build_meta.get_requires_for_build_wheel(config_settings), *_compiler_wheel()]


def get_requires_for_build_editable(config_settings: Any = None) -> list[str]:
    """Return the same for an editable installation."""
    return [*build_meta.get_requires_for_build_editable(config_settings), *_compiler_wheel()]


def _compiler_wheel() -> list[str]:
    return [] if os.environ.get("CC") or _found() else [_ZIG]


def compiler() -> list[str]:
    """Return the command of a C compiler that works: ``CC``, that of the system, or zig's.

    Raises `CompileError` with what the compiler says, if there is none.
    """
    if asked := os.environ.get("CC"):
        command = shlex.split(asked)
        if said := _complaint(command):
            raise CompileError(f"the compiler that CC names does not work: {asked}\n{said}")
        return command
    # By itself zig compiles for this machine's processor, but pip keeps the wheel for others, too.
    zig = [sys.executable, "-m", _ZIG, "cc", "-mcpu=baseline"]
    command = _found() or zig
    if command == zig and (said := _complaint(zig)):
        raise CompileError(
            "no C compiler works here (cc, gcc and clang were tried). Install one, or "
            f"`pip install {_ZIG}` and build again\n{said}"
        )
    return command


@cache
def _found() -> list[str]:
    """Return the system's compiler; empty if none works."""
    return next(([name] for name in ("cc", "gcc", "clang") if not _complaint([name])), [])


def _complaint(command: list[str]) -> str:
    """Return what a compiler says if it cannot make a shared library; empty if it can."""
    with tempfile.TemporaryDirectory() as folder:
        source, library = Path(folder, "probe.c"), Path(folder, "probe.so")
        source.write_text(_PROBE, encoding="utf-8")
        try:
            _run([*command, *_COMPILING, *_LINKING, str(source), "-o", str(library), "-lm"])
        except CompileError as error:
            return str(error)
    return ""


# Every processor gives the same floats: no contraction, and not ISO's own mode, in which gcc
# computes them as doubles on s390x.
_COMPILING = (
    *("-std=gnu11", "-fPIC", "-fvisibility=hidden", "-pthread"),
    *("-ffp-contract=off", "-fno-trapping-math", "-fno-math-errno"),
    "-Werror=implicit-function-declaration",
    *(f"-I{folder}" for folder in sorted({path.parent for path in HEADERS})),
)
_LINKING = ("-shared", "-pthread")
_SPEED = ("-O3", "-g0")
_ZIG_SPEED = ("-fno-sanitize=all", "-fno-stack-protector")  # zig switches both on by itself


def build(folder: Path) -> list[Path]:
    """Compile the core into a folder, next to its declarations; return both files.

    ``CPPFLAGS``, ``CFLAGS`` and ``LDFLAGS`` are added to the command lines.
    ``FASTDECODE_SANITIZE=address,undefined`` builds with those sanitizers, to search for bugs.
    """
    command = compiler()
    flags = [word for name in ("CPPFLAGS", "CFLAGS") for word in _words(name)]
    if sanitize := os.environ.get("FASTDECODE_SANITIZE", "").strip():
        checks = [f"-fsanitize={sanitize}"]
        speed = ["-g", "-O1", "-fno-omit-frame-pointer", "-fno-sanitize-recover", *checks]
        ending = checks
    else:
        speed = [*_SPEED, *(_ZIG_SPEED if _ZIG in command else ())]
        ending = ["-s"]
    with tempfile.TemporaryDirectory() as work:

        def compiled(source: Path) -> str:
            made = str(Path(work, source.stem + ".o"))
            _run([*command, *_COMPILING, *speed, *flags, "-c", str(source), "-o", made])
            return made

        with ThreadPoolExecutor(os.cpu_count()) as pool:
            objects = list(pool.map(compiled, SOURCES))
        linked, declared = Path(work, _file_name(command, Path(work))), Path(work, DECLARATIONS)
        if linked.suffix == ".dylib":  # says of itself where it lies: not in this folder
            ending.append(f"-Wl,-install_name,@rpath/{linked.name}")
        ending += _words("LDFLAGS")
        _run([*command, *_LINKING, *objects, "-o", str(linked), "-lm", *ending])
        _declare(declared)
        return _put(folder, [linked, declared])


def _put(folder: Path, made: list[Path]) -> list[Path]:
    """Put files into a folder in place of those of earlier builds, which may be in use."""
    folder.mkdir(parents=True, exist_ok=True)
    places = [folder / path.name for path in made]
    for path, place in zip(made, places, strict=True):
        Path(shutil.copy(path, folder / f".{path.name}")).replace(place)
    for stale in {*_built(folder)}.difference(places):
        stale.unlink()
    return places


def _words(variable: str) -> list[str]:
    return shlex.split(os.environ.get(variable, ""))


def _built(folder: Path) -> list[Path]:
    """Return what earlier builds left in a folder."""
    return [*folder.glob("libfastdecode.*"), *folder.glob(DECLARATIONS)]


def _file_name(command: list[str], folder: Path) -> str:
    """Return the library's name on the system for which a compiler compiles."""
    empty = folder / "empty.c"
    empty.touch()
    macros = _run([*command, "-dM", "-E", str(empty)])
    if "#define _WIN32 " in macros:
        return "libfastdecode.dll"
    return "libfastdecode.dylib" if "#define __APPLE__ " in macros else "libfastdecode.so"


def _run(command: list[str]) -> str:
    """Run a command and return its output; raise `CompileError`, with what it says, if it fails."""
    try:
        done = subprocess.run(  # noqa: S603 - a compiler
            command, capture_output=True, text=True, check=False
        )
    except OSError as error:
        raise CompileError(f"{shlex.join(command)}\n{error}") from error
    if done.returncode:
        raise CompileError(f"{shlex.join(command)}\n{done.stderr or done.stdout}")
    return done.stdout


def declarations() -> str:
    """Return the part of ``fastdecode.h`` that cffi reads."""
    text = (FOLDER / "fastdecode.h").read_text(encoding="utf-8")
    return text[text.index(_FROM) + len(_FROM) : text.index(_TO)]


def _declare(file: Path) -> None:
    """Write the module that tells cffi what is in the library."""
    from cffi import FFI

    ffi = FFI()
    ffi.cdef(declarations())
    ffi.set_source("fastdecode.native._core", None)
    ffi.emit_python_code(str(file))


class BuildCore(Command):  # type: ignore[misc] # setuptools has no types
    """The command ``build_core``, which setuptools runs as a part of ``build``."""

    description = "compile the native core"
    user_options = [("inplace", "i", "put the library into the source tree")]
    boolean_options = ["inplace"]

    def initialize_options(self) -> None:
        self.inplace = False
        self.build_lib: str | None = None
        self.editable_mode = False

    def finalize_options(self) -> None:
        self.set_undefined_options("build_py", ("build_lib", "build_lib"))

    def run(self) -> None:
        build(self._folder())

    def _folder(self) -> Path:
        if self.inplace or self.editable_mode:
            return FOLDER
        return Path(self.build_lib or "", "fastdecode", "native")

    # What setuptools asks of a part of `build` (setuptools.command.build.SubCommand).

    def get_source_files(self) -> list[str]:
        return sorted(os.path.relpath(path) for path in (*SOURCES, *HEADERS))

    def get_outputs(self) -> list[str]:
        return [str(path) for path in _built(self._folder())]

    def get_output_mapping(self) -> dict[str, str]:
        return {}
