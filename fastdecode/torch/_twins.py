"""Twins of the user's steps, which draw from generators that a thread is given.

All threads share Python's and NumPy's global generators, so what a step draws from them does not
follow from the sample's seed. A twin is the same code with the same `self`; only the names by which
it gets at `random` and `numpy.random` mean others, which ask the generators of `DrawingFrom`.
"""

from __future__ import annotations

import dis
import inspect
import random
from collections.abc import Callable, Iterator
from functools import partial
from types import CellType, FunctionType, MethodType, ModuleType
from typing import Any, TypeAlias

import numpy as np

from fastdecode.torch._programs import is_unmodified
from fastdecode.torch._user_code import (
    code_of,
    codes_in,
    drawn_from,
    draws_in_torch,
    globals_in,
    is_of_library,
    may_draw,
    names_in,
)

Others: TypeAlias = dict[int, tuple[Any, Any]]
"""Values, by their `id`, each with what stands for it in a twin."""
_UNKNOWN = frozenset(["IMPORT_NAME", "STORE_GLOBAL", "DELETE_GLOBAL"])


class _Module:
    """Stands for a module of which some functions draw, or which has such a module inside."""

    def __init__(self, module: ModuleType, given: str = "") -> None:
        self._module, self._given = module, given

    def __getattr__(self, name: str) -> Any:
        own = getattr(drawn_from.by, self._given) if self._given else None
        if hasattr(own, name):
            return getattr(own, name)
        found = getattr(self._module, name)
        return _MODULES.get(id(found), found)


_OF_PYTHON, _OF_NUMPY = _Module(random, "python"), _Module(np.random, "numpy")
_MODULES = {id(np): _Module(np), id(np.random): _OF_NUMPY, id(random): _OF_PYTHON}
_GLOBAL = {
    id(random.random.__self__): _OF_PYTHON,  # type: ignore[attr-defined]
    id(np.random.rand.__self__): _OF_NUMPY,  # type: ignore[attr-defined]
}
"""The global generators, whose methods are the functions of these modules."""


class _Names(dict[str, Any]):
    """The global names of a function, as they are now, but for those by which it draws."""

    def __init__(self, function: FunctionType, others: Others) -> None:
        made: Any = function
        super().__init__(__builtins__=made.__builtins__)
        self._names, self._others = function.__globals__, others

    def __getitem__(self, name: str) -> Any:
        value = self._names[name]
        return self._others.get(id(value), (None, value))[1]


class _Unknown(Exception):
    """It is not certain what a function draws from."""


def twin_of(part: Any, others: Others | None = None) -> Callable[..., Any] | None:
    """Return a step's twin, or itself if torch's functions draw all that it draws.

    None if it may draw in another way: from a generator of its own, or where it gets at one by
    another path than the names in its function, and in those that it calls by such names. `others`
    are more values that mean others there.
    """
    if not others and draws_in_torch(part):
        return part  # type: ignore[no-any-return]
    code = code_of(part)
    if not code or not is_unmodified(part):
        return None
    function, others = code[0], {} if others is None else others
    is_method = function is not part and function is not vars(part).get("lambd")
    try:
        made = _copied(function, others)
        for name in names_in(function.__code__) if is_method else ():
            held = inspect.getattr_static(part, name, None)
            held = held.fget if isinstance(held, property) else held
            _check_apart(MethodType(held, part) if isinstance(held, FunctionType) else held)
    except _Unknown:
        return None
    return partial(made, part) if is_method else made


def _copied(function: FunctionType, others: Others) -> FunctionType:
    """Return a function of the same code; `others` gets what its names mean there."""
    codes = list(codes_in(function.__code__))
    if not _UNKNOWN.isdisjoint(one.opname for code in codes for one in dis.get_instructions(code)):
        raise _Unknown
    given = [*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values()]
    for value in given:
        _check_apart(value)
    closure = list(function.__closure__ or ())
    cells = [CellType() if _is_replaced(one.cell_contents, others) else one for one in closure]
    names = _Names(function, others)
    made = FunctionType(
        function.__code__, names, function.__name__, function.__defaults__, tuple(cells)
    )
    made.__kwdefaults__, made.__dict__ = function.__kwdefaults__, function.__dict__
    others[id(function)] = function, made  # kept, so that the number stays its own
    for old, new in zip(closure, cells, strict=True):
        other = _stand_in(old.cell_contents, others)
        if new is not old:
            new.cell_contents = other
    code = function.__code__
    for value in _named(function.__globals__, globals_in(code), names_in(code)):
        _stand_in(value, others)
    return made


def _named(names: dict[str, Any], wanted: set[str], inside: set[str]) -> Iterator[Any]:
    """Yield what has the wanted names; check what modules of the user's have inside."""
    for value in (names[name] for name in wanted if name in names):
        if isinstance(value, ModuleType) and not is_of_library(value):
            rest = inside - {value.__name__}
            for inner in _named(vars(value), rest, rest):
                _check_apart(inner)
        yield value


def is_global_draw(value: Any) -> bool:
    """Return whether something is a function of `random` or `numpy.random`."""
    return id(getattr(value, "__self__", None)) in _GLOBAL


def _is_replaced(value: Any, others: Others) -> bool:
    if id(value) in _MODULES or id(value) in others or is_global_draw(value):
        return True
    is_users = isinstance(value, FunctionType) and not is_of_library(value)
    return is_users and may_draw(value)


def _stand_in(value: Any, others: Others) -> Any:
    """Return what stands for a value in a twin, and note it; the value itself if it may."""
    if not _is_replaced(value, others):
        _check_apart(value)
        return value
    if id(value) not in others:
        owner = _GLOBAL.get(id(getattr(value, "__self__", None)))
        if isinstance(value, FunctionType):
            _copied(value, others)
        else:
            made = _MODULES[id(value)] if owner is None else partial(_call, owner, value.__name__)
            others[id(value)] = value, made
    return others[id(value)][1]


def _call(owner: _Module, name: str, *arguments: Any, **named: Any) -> Any:
    return getattr(owner, name)(*arguments, **named)


def _check_apart(value: Any) -> None:
    """Raise unless a value that a twin shares draws by torch's functions alone, if at all."""
    if id(value) in _MODULES or not draws_in_torch(value):
        raise _Unknown
