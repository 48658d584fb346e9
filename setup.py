"""What setup.cfg cannot say: the native core is built where it can be, and left out where not.

``FASTDECODE_NATIVE=0`` leaves it out; with ``FASTDECODE_NATIVE=require`` it is an error that it
cannot be built. Without either, the installation succeeds, and keeps the reason in ``_missing.txt``
for ``python -m fastdecode`` to tell.
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
# pip asks first what a build needs, and only then brings it.
ASKED_FOR_NEEDS = "egg_info" in sys.argv


def hindrance() -> str:
    """Say why the core is left out; empty if it is not."""
    reason: str = CORE["hindrance"]()
    if not reason and not ASKED_FOR_NEEDS and importlib.util.find_spec("cffi") is None:
        reason = "the Python package 'cffi' was not there to build it with"
    if reason and REQUIRED:
        sys.exit(f"FASTDECODE_NATIVE=require is set, and {reason}")
    return reason


def needs(*extras: str) -> list[str]:
    """Return what setup.cfg says that every installation needs, and with these extras."""
    config = configparser.ConfigParser()
    config.read("setup.cfg")
    found = [config["options.extras_require"][extra] for extra in extras]
    return "\n".join([config["options"]["install_requires"], *found]).split("\n")


def leave_out(folder: Path, reason: str) -> None:
    """Remove what an earlier build has left, and write down why there is no core."""
    logging.getLogger("fastdecode").warning("the native core is left out: %s", reason)
    for stale in folder.glob("_core.*"):
        stale.unlink()
    (folder / "_missing.txt").write_text(f"{reason}\n", encoding="utf-8")


class BuildPackage(build_py):
    """Copy the Python files, and beside them the reason why there is no core, or none any more."""

    def run(self) -> None:
        super().run()
        folder = PACKAGE if self.editable_mode else Path(self.build_lib) / PACKAGE
        if REASON:
            leave_out(folder, REASON)
        else:
            (folder / "_missing.txt").unlink(missing_ok=True)


class BuildCore(build_ext):
    """Have cffi write the module's C code, and compile; what fails then is left out as well."""

    def run(self) -> None:
        self.force = True  # flags may have changed where no file has
        self.for_tree = bool(self.inplace)  # the base class forgets it while it builds
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
        except Exception as error:  # a compiler, a linker and cffi fail in ways of their own
            if REQUIRED:
                raise
            leave_out(folder, f"it did not compile; pip -v shows why ({type(error).__name__})")


REASON = hindrance()
LIMITED = CORE["is_limited"]()
EXTENSION = Extension(CORE["MODULE"], [], optional=not REQUIRED, **CORE["options"]())

setup(
    cmdclass={"build_py": BuildPackage, "build_ext": BuildCore},
    ext_modules=[] if REASON else [EXTENSION],
    # What only the core needs is asked for only where there will be one.
    install_requires=needs() if REASON else needs("native"),
    setup_requires=[] if REASON or not ASKED_FOR_NEEDS else ["cffi>=1.15"],
    options={"bdist_wheel": {"py_limited_api": "cp310"}} if LIMITED and not REASON else {},
)
