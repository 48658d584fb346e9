"""Building the native core: its sources and compiler options, and whether it can be built here.

``setup.py`` runs this file by its path, because the package cannot be imported yet. The file needs
the standard library and setuptools, and cffi only in `builder`.
"""

from __future__ import annotations

import os
import shlex
import sys
import sysconfig
import tempfile
from pathlib import Path
from typing import Any

MODULE = "fastdecode.native._core"
_FOLDER = Path(__file__).parent
_FROM, _TO = "// cffi: from here", "// cffi: to here"
_BREW = Path(os.environ.get("HOMEBREW_PREFIX", "/opt/homebrew"))

_EMPTY = "int main(void) { return 0; }\n"
_HEADERS = "#include <stddef.h>\n#include <stdio.h>\n#include <jpeglib.h>\n"
_TURBO = "#ifndef LIBJPEG_TURBO_VERSION_NUMBER\n#error this is not libjpeg-turbo\n#endif\n"
_CALLS = """\
int main(int count, char **words) {
    struct jpeg_decompress_struct jpeg;
    JDIMENSION left = 0, width = 8;
    (void)words;
    if (count > 1000) {
        jpeg_crop_scanline(&jpeg, &left, &width);
        return (int)jpeg_skip_scanlines(&jpeg, 8);
    }
    return 0;
}
"""
# What may be missing, each with a program that needs it. The last program needs all of them.
_STEPS = (
    ("there is no C compiler that works ({compiler})", _EMPTY),
    ("Python's own headers (Python.h) are missing", "#include <Python.h>\n" + _EMPTY),
    ("libjpeg-turbo's headers (jpeglib.h) are missing", _HEADERS + _EMPTY),
    ("the libjpeg here is not libjpeg-turbo, and cannot decode a part", _HEADERS + _TURBO + _EMPTY),
    ("libjpeg-turbo is older than 1.5, or cannot be linked", _HEADERS + _TURBO + _CALLS),
)


def declarations() -> str:
    """Return the part of ``fastdecode.h`` that cffi reads."""
    text = (_FOLDER / "fastdecode.h").read_text(encoding="utf-8")
    return text[text.index(_FROM) + len(_FROM) : text.index(_TO)]


def sources() -> list[str]:
    """Return every C file of the core, relative to the current folder."""
    return sorted(os.path.relpath(path) for path in _FOLDER.glob("*.c"))


def is_limited() -> bool:
    """Return whether one binary can serve every later CPython (abi3).

    Free-threaded CPython has no limited API, and debug builds cannot be combined with it.
    """
    return not (sysconfig.get_config_var("Py_GIL_DISABLED") or hasattr(sys, "gettotalrefcount"))


def options() -> dict[str, Any]:
    """Return the arguments of the `setuptools.Extension`, except its name and sources.

    ``FASTDECODE_SANITIZE=address,undefined`` builds with those sanitizers, to search for bugs.
    setuptools itself reads CPPFLAGS, CFLAGS and LDFLAGS from the environment.
    """
    sanitize = os.environ.get("FASTDECODE_SANITIZE", "").strip()
    checks = [f"-fsanitize={sanitize}"] if sanitize else []
    speed = ["-g", "-O1", "-fno-omit-frame-pointer", "-fno-sanitize-recover"] if checks else ["-O3"]
    brew = sys.platform == "darwin" and _BREW.is_dir()
    return {
        "include_dirs": [str(_FOLDER)] + ([str(_BREW / "include")] if brew else []),
        "library_dirs": [str(_BREW / "lib")] if brew else [],
        "libraries": ["jpeg", "m"],
        "depends": [os.path.relpath(path) for path in _FOLDER.glob("*.h")],
        # Every processor gives the same floats: no contraction, and not ISO's own mode, in which
        # gcc computes them as doubles on s390x.
        "extra_compile_args": [
            *("-std=gnu11", "-ffp-contract=off", "-fno-trapping-math", "-fno-math-errno"),
            *("-fvisibility=hidden", "-pthread"),
            "-Werror=implicit-function-declaration",
            *speed,
            *checks,
        ],
        "extra_link_args": ["-pthread", *checks],
        "define_macros": [] if is_limited() else [("_CFFI_NO_LIMITED_API", None)],
        "py_limited_api": is_limited(),
    }


def builder() -> Any:
    """Return the `cffi.FFI` that writes the module's C code."""
    from cffi import FFI

    ffi = FFI()
    ffi.cdef(declarations())
    ffi.set_source(MODULE, '#include "fastdecode.h"\n')
    return ffi


def hindrance() -> str:
    """Return why the core cannot be built here; empty if it can."""
    if os.environ.get("FASTDECODE_NATIVE") == "0":
        return "FASTDECODE_NATIVE=0 was set"
    if os.name == "nt":
        return "it does not support Windows yet"
    if sysconfig.get_config_var("Py_GIL_DISABLED") and sys.version_info < (3, 14):
        return "on free-threaded Python, cffi needs Python 3.14"
    if _links(_STEPS[-1][1]) and _links(_STEPS[1][1]):
        return ""
    compiler = os.environ.get("CC") or sysconfig.get_config_var("CC") or "cc"
    words = next((words for words, program in _STEPS if not _links(program)), _STEPS[-1][0])
    return words.format(compiler=shlex.split(compiler)[0])


def _links(program: str) -> bool:
    """Return whether a C program compiles and links with the flags of the core."""
    import setuptools  # noqa: F401, I001 - provides distutils if Python lacks it
    from distutils.ccompiler import new_compiler
    from distutils.errors import CCompilerError, DistutilsError
    from distutils.sysconfig import customize_compiler

    how = options()
    compiler = new_compiler()
    customize_compiler(compiler)
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder, "probe.c")
        source.write_text(program, encoding="utf-8")
        try:
            objects = compiler.compile(
                [str(source)],
                output_dir="/",  # puts the objects next to the source, whose path is absolute
                include_dirs=[*how["include_dirs"], sysconfig.get_paths()["include"]],
                extra_postargs=how["extra_compile_args"],
            )
            compiler.link_executable(
                objects,
                str(Path(folder, "probe")),
                libraries=how["libraries"] if "jpeglib.h" in program else [],
                library_dirs=how["library_dirs"],
                extra_postargs=how["extra_link_args"],
            )
        except (CCompilerError, DistutilsError, OSError):
            return False
    return True
