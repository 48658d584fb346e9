"""`help`, `dir` and attribute access of the package."""

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
    "fastdecode.native": "",
    "fastdecode.packing": "",
    "fastdecode.ray": "ray.data",
    "fastdecode.samples": "",
    "fastdecode.stores": "",
    "fastdecode.stores.tar": "",
    "fastdecode.testing": "",
    "fastdecode.torch": "torch",
    "fastdecode.torch.transforms": "torch",
    "fastdecode.transformers": "transformers",
}
"""What users import from, and the library that it needs."""


def importable(library: str) -> bool:
    try:
        importlib.import_module(library)
    except ImportError:
        return False
    return True


LONG = [pytest.param("fastdecode", marks=pytest.mark.thorough)]  # it imports Ray and transformers


@pytest.mark.parametrize("module", [*LONG, *[name for name in MODULES if "." in name]])
def test_help_shows_no_internals(module: str) -> None:
    """The help of public names contains no doctest directives and no addresses of objects."""
    pytest.importorskip(MODULES[module] or "fastdecode")
    package = importlib.import_module(module)

    for name in (None, *package.__all__):
        thing = package if name is None else getattr(package, name)
        if not callable(thing) and not inspect.ismodule(thing):
            continue  # a value, or a type alias
        text = pydoc.plain(pydoc.render_doc(thing))
        found = re.findall(r".*(?:doctest:|\bat 0x[0-9a-f]+|<object object).*", text)
        assert not found, f"{module}.{name}"


def test_modules_come_by_attribute() -> None:
    """After ``import fastdecode`` every public module is an attribute, and `dir` lists it."""
    # Ray and transformers take long to import.
    there = [name for name, library in MODULES.items() if library in ("", "torch")]
    there = [name for name in there if not MODULES[name] or importable("torch")]

    answer = answers(
        f"""
for name in {there}:
    for loaded in [one for one in sys.modules if one.split(".")[0] == "fastdecode"]:
        del sys.modules[loaded]  # each module is the first that is asked for
    import fastdecode
    top = name.split(".")[1:2]
    listed = top == [one for one in dir(fastdecode) if one in top]
    answers[name] = [eval(name).__name__, listed]
"""
    )

    assert answer == {name: [name, True] for name in there}


def test_listed_names_are_there_and_unknown_ones_are_not() -> None:
    """`dir` lists all public names, sorted; an unknown one, also of a private module, is none."""
    listed = dir(fastdecode)

    assert listed == sorted(listed)
    assert {*fastdecode.__all__} < {*listed}
    assert {name for name, _ in inspect.getmembers(fastdecode)} == {*listed}
    for name in ("decode_all", "_arrays_", "torch_", "__wrapped__"):
        assert not hasattr(fastdecode, name)
        with pytest.raises(AttributeError, match=name):
            getattr(fastdecode, name)
