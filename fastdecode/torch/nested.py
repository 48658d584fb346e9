"""Batches as they come: tensors inside dicts, lists, tuples, dataclasses and other objects."""

from __future__ import annotations

import array
import copy
import dataclasses
import inspect
from collections.abc import Callable, Iterable, Mapping, MutableMapping, MutableSequence, Sequence
from typing import Any

import torch

__all__ = ["map_leaves", "moved"]

# Sequences that hold no tensors, and may be long.
_FLAT = (str, bytes, bytearray, memoryview, range, array.array)


def map_leaves(data: Any, method: str, change: Callable[[Any], Any]) -> Any:
    """Rebuild a batch with every tensor in it replaced; all containers keep their types.

    Parameters
    ----------
    data : object
        A tensor, an object with a method of that name, or a mapping, sequence, named tuple or
        dataclass instance of such, to any depth. Strings, bytes and everything else stay.
    method : str
        ``"pin_memory"`` or ``"to"``. An object that has it is handed to `change` as a whole,
        although it may be a container as well, such as a PackedSequence.
    change : callable
        Gets each tensor and each such object, and returns what takes its place. It may return the
        same object.

    Returns
    -------
    object
        Of the same structure. A container in which nothing was replaced is the very same object;
        any other is a copy, so that the loader's own is left as it was.

    Notes
    -----
    The order of the cases is that of PyTorch's ``pin_memory``, which knows no dataclasses.
    """
    if isinstance(data, torch.Tensor) or _has(data, method):
        return change(data)
    if isinstance(data, _FLAT):
        return data

    def inner(item: Any) -> Any:
        return map_leaves(item, method, change)

    if isinstance(data, Mapping):
        return _with_items(data, _replaced(data.items(), inner))
    if isinstance(data, Sequence):
        return _with_elements(data, _replaced(enumerate(data), inner))
    if dataclasses.is_dataclass(data):
        return _with_fields(data, _replaced(_fields(data), inner))
    return data


def moved(thing: Any, device: torch.device, *, non_blocking: bool) -> Any:
    """Call the ``to`` of a tensor, or of an object that has one of its own.

    Parameters
    ----------
    thing : tensor or object with ``to``
    device : torch.device
    non_blocking : bool
        Passed on to tensors, and to methods that have a parameter of that name.

    Returns
    -------
    object
        What ``to`` returned; the object itself where that was None, as of a method that changes
        the object in place.
    """
    if not non_blocking:
        result = thing.to(device)
    elif isinstance(thing, torch.Tensor) or _takes(thing.to, "non_blocking"):
        result = thing.to(device, non_blocking=True)
    else:
        result = thing.to(device)
    return thing if result is None else result


def _has(data: Any, method: str) -> bool:
    return not isinstance(data, type) and callable(getattr(data, method, None))


def _takes(function: Callable[..., Any], parameter: str) -> bool:
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):  # of a compiled one that does not tell
        return False
    return any(one.name == parameter or one.kind is one.VAR_KEYWORD for one in parameters)


def _replaced(items: Iterable[tuple[Any, Any]], change: Callable[[Any], Any]) -> dict[Any, Any]:
    """Collect by key, index or field what is not the same object as before."""
    found = {}
    for key, value in items:
        changed = change(value)
        if changed is not value:
            found[key] = changed
    return found


def _with_items(data: Mapping[Any, Any], replaced: dict[Any, Any]) -> Any:
    if not replaced:
        return data
    if isinstance(data, MutableMapping):
        clone = copy.copy(data)  # the type may hold more than its items
        for key, value in replaced.items():
            clone[key] = value
        return clone
    return _rebuilt(data, {key: replaced.get(key, value) for key, value in data.items()})


def _with_elements(data: Sequence[Any], replaced: dict[int, Any]) -> Any:
    if not replaced:
        return data
    if isinstance(data, MutableSequence):
        clone = copy.copy(data)
        for index, value in replaced.items():
            clone[index] = value
        return clone
    elements = [replaced.get(index, value) for index, value in enumerate(data)]
    if isinstance(data, tuple) and hasattr(data, "_make"):  # a named tuple
        return data._make(elements)
    return _rebuilt(data, elements)


def _rebuilt(data: Any, contents: Any) -> Any:
    """Make another of the same type; a type that cannot be made so becomes a plain dict or list."""
    try:
        return type(data)(contents)
    except TypeError:
        return contents


def _fields(data: Any) -> list[tuple[str, Any]]:
    names = [field.name for field in dataclasses.fields(data)]
    return [(name, getattr(data, name)) for name in names if hasattr(data, name)]


def _with_fields(data: Any, replaced: dict[str, Any]) -> Any:
    if not replaced:
        return data
    # Neither `replace`, which runs the constructor again, nor plain assignment, which a frozen
    # class refuses.
    clone = copy.copy(data)
    for name, value in replaced.items():
        object.__setattr__(clone, name, value)
    return clone
