"""Dataclasses out of decoded JSON: each value is checked against the type that its field has."""

from __future__ import annotations

import types
import typing
from dataclasses import MISSING, fields, is_dataclass
from typing import Any

__all__ = ["read"]


def read(kind: Any, value: Any, where: str) -> Any:
    """Make a value of a type out of what `json.loads` gave.

    Parameters
    ----------
    kind : type
        A dataclass, ``tuple[X, ...]``, ``dict[str, X]``, a `Literal`, a union, or a plain type.
    value : object
    where : str
        What the value is called in errors.

    Returns
    -------
    object
        Of that type. Keys that a dataclass has no field for are passed over.

    Raises
    ------
    ValueError
        If the value does not fit; says where.
    """
    origin, inner = typing.get_origin(kind), typing.get_args(kind)
    if kind is Any:
        return value
    if is_dataclass(kind):
        return _record(kind, _of(dict, value, where), where)
    if origin is tuple:
        items = _of(list, value, where)
        return tuple(read(inner[0], item, f"{where}[{n}]") for n, item in enumerate(items))
    if origin is dict:
        entries = _of(dict, value, where)
        return {key: read(inner[1], item, f"{where}.{key}") for key, item in entries.items()}
    if origin is typing.Literal:
        if value not in inner:
            raise ValueError(f"{where} is {value!r}, none of {', '.join(map(str, inner))}")
        return value
    if origin in (types.UnionType, typing.Union):
        given = [one for one in inner if one is not type(None)]
        return None if value is None else read(given[0], value, where)
    return _of(kind, value, where)


def _record(kind: Any, values: dict[str, Any], where: str) -> Any:
    hints = typing.get_type_hints(kind)
    found = {}
    for one in fields(kind):
        if one.name in values:
            found[one.name] = read(hints[one.name], values[one.name], f"{where}.{one.name}")
        elif one.default is MISSING and one.default_factory is MISSING:
            raise ValueError(f"{where} has no {one.name!r}")
    return kind(**found)


def _of(kind: type, value: Any, where: str) -> Any:
    """Return the value if it is of a plain type; a whole number may stand for a float."""
    if kind is float and type(value) is int:
        return float(value)
    if type(value) is not kind:  # not isinstance: true is no number
        raise ValueError(f"{where} is {type(value).__name__}, not {kind.__name__}")
    return value
