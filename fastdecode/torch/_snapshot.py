"""What a pipeline's objects held when it was compiled: if that changes, so must the program."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from enum import Enum
from typing import Any

import numpy as np
import torch

from fastdecode.torch import _unchanged
from fastdecode.torch._user_code import belongs_to

_READ = ("torchvision", "timm", "albumentations", "fastdecode", "transformers")
"""Whose objects are read, and not called; those of torch are containers."""
_SMALL = 64  # values: a mean has three
_BY_CALLS = ("params", "plan", "program", "py_random", "random_generator", "seed")
"""Attributes that calls set: albumentations' draws, and what follows from other attributes."""


class Snapshot:
    """The attributes of a pipeline, of its steps, and of what these hold."""

    def __init__(self, pipeline: Any) -> None:
        self._objects = list(_objects(pipeline, set()))
        # The objects and not their attributes, of which copies of the objects have others.
        self._held = [(one, _attributes(one)) for one in self._objects]
        held = (array for one in self._objects for array in _arrays(vars(one)))
        self._arrays = [(one, _contents(one)) for one in held]
        self._unchanged = self._look_at_classes()

    def is_current(self) -> bool:
        """Return whether all attributes are as they were."""
        try:
            held = all(_are_same(vars(one), then) for one, then in self._held)
            return held and all(_contents(one) == then for one, then in self._arrays)
        except (RuntimeError, ValueError):  # an array in the place of another
            return False

    def is_current_for_epoch(self) -> bool:
        """Return whether the classes are as they were, too: somebody may have patched one.

        The caller lets `_unchanged` forget what it knows of them.
        """
        return self.is_current() and self._unchanged == self._look_at_classes()

    def _look_at_classes(self) -> list[bool]:
        return [_unchanged.is_unchanged(one) for one in self._objects]


def _objects(found: Any, seen: set[int]) -> Iterator[Any]:
    """Yield an object and those that it holds whose attributes a program is made of."""
    if id(found) in seen:
        return
    seen.add(id(found))
    if isinstance(found, Mapping):
        held: Any = found.values()
    elif isinstance(found, (list, tuple)):
        held = found
    elif _is_read(found):
        yield found
        held = _attributes_read(found).values()
    else:
        return
    for one in held:
        yield from _objects(one, seen)


def _is_read(found: Any) -> bool:
    if isinstance(found, (type, Enum)) or not hasattr(found, "__dict__"):
        return False
    container = isinstance(found, torch.nn.Module) and belongs_to(type(found), "torch")
    return container or any(belongs_to(type(found), library) for library in _READ)


def _copied(value: Any) -> Any:
    """Return a value with copies of its containers."""
    if isinstance(value, dict):
        return {name: _copied(one) for name, one in value.items()}
    if type(value) in (list, tuple):
        return type(value)(map(_copied, value))
    return value


def _attributes_read(found: Any) -> dict[str, Any]:
    return {name: one for name, one in vars(found).items() if name not in _BY_CALLS}


def _attributes(found: Any) -> dict[str, Any]:
    return {name: _copied(one) for name, one in _attributes_read(found).items()}


def _are_same(now: dict[str, Any], then: dict[str, Any]) -> bool:
    if [*now] == [*then] and [*now.values()] == [*then.values()]:  # in C: every image asks
        return True
    by_calls = sum(name in now for name in _BY_CALLS)
    return len(now) - by_calls == len(then) and all(
        name in now and (now[name] is one or now[name] == one) for name, one in then.items()
    )


def _arrays(value: Any) -> Iterator[Any]:
    if isinstance(value, (np.ndarray, torch.Tensor)):
        yield value
    elif isinstance(value, (dict, list, tuple)):
        for one in value.values() if isinstance(value, dict) else value:
            yield from _arrays(one)


def _contents(array: Any) -> Any:
    """Return what tells that an array has been changed in place; of a large tensor its version."""
    if isinstance(array, np.ndarray):
        return array.tobytes()
    if array.numel() <= _SMALL:
        return array.tolist()
    return None if array.is_inference() else array._version
