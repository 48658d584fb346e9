"""What `help`, `dir` and attributes show of the package."""

from __future__ import annotations

import importlib
import inspect
import pydoc
import re

import pytest
from processes import answers

import fastdecode

MODULES = {
    "fastdecode": "",
    "fastdecode.errors": "",
    "fastdecode.native": "",
    "fastdecode.packing": "",
    "fastdecode.ray": "ray.data",
    "fastdecode.samples": "",
    "fastdecode.stores": "",
    "fastdecode.stores.tar": "",
    "fastdecode.testing": "",
    "fastdecode.torch": "torch",
    "fastdecode.torch.transforms": "torch",
    "fastdecode.types": "",
}
"""What users import from, and the library that it needs."""


@pytest.mark.parametrize("module", MODULES)
def test_help_shows_no_internals(module: str) -> None:
    """No directive of doctest, and no address of an object, is in the help of a public name."""
    pytest.importorskip(MODULES[module] or "fastdecode")
    package = importlib.import_module(module)

    for name in (None, *package.__all__):
        thing = package if name is None else getattr(package, name)
        if not callable(thing) and not inspect.ismodule(thing):
            continue  # a value, or a type alias
        text = pydoc.plain(pydoc.render_doc(thing))
        found = re.findall(r".*(?:doctest:|\bat 0x[0-9a-f]+|<object object).*", text)
        assert not found, f"{module}.{name}"


@pytest.mark.parametrize("module", MODULES)
def test_modules_come_by_attribute(module: str) -> None:
    """``import fastdecode`` is enough to use any public module, and `dir` lists it."""
    pytest.importorskip(MODULES[module] or "fastdecode")
    top = module.split(".")[1:2]

    answer = answers(
        f"""
answers["name"] = {module}.__name__
answers["listed"] = {top!r} == [name for name in dir(fastdecode) if name in {top!r}]
"""
    )

    assert answer == {"name": module, "listed": True}


def test_every_listed_name_is_there() -> None:
    """`dir` names all that is public, sorted, and going through it raises nothing."""
    listed = dir(fastdecode)

    assert listed == sorted(listed)
    assert {*fastdecode.__all__} < {*listed}
    assert {name for name, _ in inspect.getmembers(fastdecode)} == {*listed}


@pytest.mark.parametrize(("module", "library"), [("torch", "PyTorch"), ("ray", "Ray Data")])
def test_a_library_that_is_missing(module: str, library: str) -> None:
    """Its module is not listed, and who names it is told what to install."""
    answer = answers(
        f"""
import inspect
sys.path[:] = [path for path in sys.path if "site-packages" not in path]
try:
    fastdecode.{module}
except fastdecode.BackendUnavailable as error:
    answers["said"] = str(error)
answers["listed"] = {module!r} in dir(fastdecode)
answers["members"] = {module!r} in dict(inspect.getmembers(fastdecode, inspect.isclass))
"""
    )

    assert library in answer["said"]
    assert f"pip install 'fastdecode[{module}]'" in answer["said"]
    assert not answer["listed"]
    assert not answer["members"]


def test_no_other_name_is_there() -> None:
    """A name that nobody gave is an AttributeError, also one of a private module."""
    for name in ("decode_all", "_arrays_", "torch_", "__wrapped__"):
        assert not hasattr(fastdecode, name)
        with pytest.raises(AttributeError, match=name):
            getattr(fastdecode, name)
