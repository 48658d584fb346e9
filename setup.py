"""Build the package with its native core; everything else is in ``setup.cfg``."""

from __future__ import annotations

import runpy

from setuptools import Distribution, setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build import build

BUILD = runpy.run_path("fastdecode/native/_build.py")


class Wheel(bdist_wheel):
    """One wheel a platform, which serves every Python: the core does not use Python's headers."""

    def get_tag(self) -> tuple[str, str, str]:
        return "py3", "none", super().get_tag()[2]


class Binary(Distribution):
    """A distribution for one platform, although it has no extension module."""

    def has_ext_modules(self) -> bool:
        return True


build.sub_commands.append(("build_core", None))
setup(cmdclass={"build_core": BUILD["BuildCore"], "bdist_wheel": Wheel}, distclass=Binary)
