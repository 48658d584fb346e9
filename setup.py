"""Build the native core where possible, and install the package without it elsewhere.

``FASTDECODE_NATIVE=0`` leaves the core out; with ``FASTDECODE_NATIVE=require`` a failed build is an
error. By default the installation succeeds without the core, and writes the reason to
``_missing.txt``, which ``fastdecode info`` shows.
"""

from __future__ import annotations

import configparser
import importlib.util
import logging
import os
import runpy
import sys
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext
from setuptools.command.build_py import build_py

CORE = runpy.run_path("fastdecode/native/_build.py")
PACKAGE = Path("fastdecode", "native")
WISH = os.environ.get("FASTDECODE_NATIVE", "1")
if WISH not in ("0", "1", "require"):
    sys.exit(f"FASTDECODE_NATIVE must be 0, 1 or require, not {WISH!r}")
REQUIRED = WISH == "require"
# pip first asks for the requirements of the build, before it installs them.
ASKED_FOR_NEEDS = "egg_info" in sys.argv


def hindrance() -> str:
    """Return why the core is left out; empty if it is built."""
    reason: str = CORE["hindrance"]()
    if not reason and not ASKED_FOR_NEEDS and importlib.util.find_spec("cffi") is None:
        reason = "the Python package 'cffi' was not there to build it with"
    if reason and REQUIRED:
        sys.exit(f"FASTDECODE_NATIVE=require is set, and {reason}")
    return reason


def needs(*extras: str) -> list[str]:
    """Return the requirements in setup.cfg: those of every installation, and of these extras."""
    config = configparser.ConfigParser()
    config.read("setup.cfg")
    found = [config["options.extras_require"][extra] for extra in extras]
    return "\n".join([config["options"]["install_requires"], *found]).split("\n")


def leave_out(folder: Path, reason: str) -> None:
    """Remove the core of an earlier build, and write the reason why there is none."""
    logging.getLogger("fastdecode").warning("the native core is left out: %s", reason)
    for stale in folder.glob("_core.*"):
        stale.unlink()
    (folder / "_missing.txt").write_text(f"{reason}\n", encoding="utf-8")


class BuildPackage(build_py):
    """Copies the Python files, and writes or removes the reason why there is no core."""

    def run(self) -> None:
        super().run()
        folder = PACKAGE if self.editable_mode else Path(self.build_lib) / PACKAGE
        if REASON:
            leave_out(folder, REASON)
        else:
            (folder / "_missing.txt").unlink(missing_ok=True)


class BuildCore(build_ext):
    """Generates and compiles the C code of the module; if that fails, leaves the core out."""

    def run(self) -> None:
        self.force = True  # flags may have changed although no file has
        self.for_tree = bool(self.inplace)  # the base class resets it while it builds
        super().run()

    def build_extension(self, extension: Extension) -> None:
        folder = PACKAGE if self.for_tree else Path(self.build_lib) / PACKAGE
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "_missing.txt").unlink(missing_ok=True)
        built = Path(self.get_ext_fullpath(extension.name))
        built.unlink(missing_ok=True)
        generated = Path(self.build_temp, "_core.c")
        generated.parent.mkdir(parents=True, exist_ok=True)
        try:
            CORE["builder"]().emit_c_code(str(generated))
            extension.sources = [str(generated), *CORE["sources"]()]
            super().build_extension(extension)
        except Exception as error:  # compilers, linkers and cffi raise different errors
            if REQUIRED:
                raise
            leave_out(folder, f"it did not compile; pip -v shows why ({type(error).__name__})")


REASON = hindrance()
LIMITED = CORE["is_limited"]()
EXTENSION = Extension(CORE["MODULE"], [], optional=not REQUIRED, **CORE["options"]())

setup(
    cmdclass={"build_py": BuildPackage, "build_ext": BuildCore},
    ext_modules=[] if REASON else [EXTENSION],
    # The core's requirements apply only if the core is built.
    install_requires=needs() if REASON else needs("native"),
    setup_requires=[] if REASON or not ASKED_FOR_NEEDS else ["cffi>=1.15"],
    options={"bdist_wheel": {"py_limited_api": "cp310"}} if LIMITED and not REASON else {},
)
