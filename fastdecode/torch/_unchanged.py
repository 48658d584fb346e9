"""Whether the classes and functions of a library are still its own: a patched one is not known.

What a table says of a class holds for the code that the library came with. Whoever replaces
``RandomHorizontalFlip.forward`` or ``functional.hflip`` wants that called.
"""

from __future__ import annotations

import os
import sys
import sysconfig
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from types import BuiltinFunctionType, FunctionType, ModuleType
from typing import Any

import numpy as np
import torch
from PIL import Image as PillowImage

from fastdecode.torch._user_code import belongs_to

_MODULES: Mapping[str, tuple[str, ...]] = {
    "torchvision": ("torchvision.transforms.", "PIL.ImageOps", "PIL.ImageEnhance"),
    "timm": ("timm.data.auto_augment", "timm.data.random_erasing", "timm.data.transforms"),
    "albumentations": ("albumentations.augmentations.", "albumentations.core.transforms_"),
    "fastdecode": (),
}
"""The modules, or the beginnings of their names, whose functions a library's transforms call."""
_ALIASES = {
    "hflip": "horizontal_flip",
    "vflip": "vertical_flip",
    "to_grayscale": "rgb_to_grayscale",
    "elastic_transform": "elastic",
    "get_image_num_channels": "get_num_channels",
}
"""Names by which torchvision's v2 has functions with other names of their own."""
_CALLS = ("__call__", "__getattr__", "__getattribute__")
_ENDS = ("object", "Module", "ABC")
"""Classes that end the search for methods, whose own are called by all others."""


def forget() -> None:
    """Look again at what has been looked at: somebody may have patched it since."""
    for looked_up in (change_of, _replaced_method, _folders):
        looked_up.cache_clear()


def is_unchanged(transform: Any) -> bool:
    """Return whether a transform's class, and the functions that it calls, are the library's."""
    kind = type(transform)
    library = kind.__module__.partition(".")[0]
    if library not in _MODULES:
        return True
    if getattr(sys.modules.get(kind.__module__), kind.__name__, None) is not kind:
        return False
    replaced = _replaced_method(kind) or _replaced_method(PillowImage.Image)
    return not (replaced or change_of(library) or _is_hooked())


@cache
def change_of(library: str) -> str:
    """Return the name of a function of a loaded library that has been replaced, or nothing."""
    for name in [one for one in tuple(sys.modules) if one.startswith(_MODULES[library])]:
        module = sys.modules.get(name)
        if isinstance(module, ModuleType):
            for attribute, value in vars(module).items():
                if not attribute.startswith("__") and _is_replaced(attribute, value, library):
                    return f"{name}.{attribute}"
    return ""


def _is_replaced(attribute: str, value: Any, library: str) -> bool:
    """Return whether a module has something under a name that its library did not put there."""
    if isinstance(value, FunctionType):
        named = value.__name__ in (attribute, _ALIASES.get(attribute))
        # A library gives private names to functions of its other modules and of torch's.
        named = named or attribute.startswith("_") or not belongs_to(value, library)
        return not (named and _is_librarys(value))
    if isinstance(value, dict):  # such as timm's NAME_TO_OP
        return any(
            isinstance(one, FunctionType) and not _is_librarys(one) for one in value.values()
        )
    plain = isinstance(value, (type, ModuleType, BuiltinFunctionType, np.ufunc))
    if plain or not callable(value):
        return False
    return type(value).__module__.partition(".")[0] not in _CALLABLES


_CALLABLES = {"typing", "types", "torch", "torchvision", "timm", "albumentations", "pydantic"}
_CALLABLES |= {"annotated_types", "numpy", "cv2", "albucore"}
"""Whose objects in a library's module may be called: types, and what decorators made."""


@cache
def _replaced_method(kind: type) -> str:
    """Return the name of a method of a class that is not its library's; empty if there is none."""
    names = {one.__name__ for one in kind.__mro__}
    for one in kind.__mro__:
        if one.__name__ in _ENDS:
            break
        for name, value in vars(one).items():
            if name.startswith("__") and name not in _CALLS:
                continue
            for function in _functions_of(value):
                owner, _, own_name = function.__qualname__.rpartition(".")
                # What a decorator or a metaclass made is called otherwise.
                moved = "<locals>" not in owner and (
                    owner.rpartition(".")[2] not in names or not name.endswith(own_name)
                )
                if moved or not _is_librarys(function):
                    return f"{one.__name__}.{name}"
            if callable(value) and type(value).__module__.startswith("unittest."):
                return f"{one.__name__}.{name}"
    return ""


def _functions_of(value: Any) -> Iterator[FunctionType]:
    found = value.fget if isinstance(value, property) else getattr(value, "__func__", value)
    if isinstance(found, FunctionType):
        yield found


def _is_librarys(function: FunctionType) -> bool:
    """Return whether the code of a function is in a file of a known library."""
    file = function.__code__.co_filename
    standard = file.startswith(_STANDARD) and not file.startswith(_INSTALLED)
    inner = getattr(function, "__wrapped__", None)  # of what a decorator made
    known = file.startswith(_folders()) or standard
    return known and (not isinstance(inner, FunctionType) or _is_librarys(inner))


_STANDARD = (sysconfig.get_path("stdlib"), "<frozen")
_INSTALLED = (sysconfig.get_path("purelib"), sysconfig.get_path("platlib"))


@cache
def _folders() -> tuple[str, ...]:
    """Return the folders of the libraries that are loaded, and of those that they call."""
    files = (getattr(sys.modules.get(name), "__file__", None) for name in _LIBRARIES)
    return tuple(str(Path(file).parent) + os.sep for file in files if file)


_LIBRARIES = (*_MODULES, "PIL", "albucore", "cv2", "numpy", "pydantic", "scipy", "torch")


def _is_hooked() -> bool:
    """Return whether functions of the user's are called around or in place of those of modules."""
    module: Any = torch.nn.modules.module
    hooks = module._global_forward_hooks or module._global_forward_pre_hooks
    return bool(hooks) or not _is_librarys(torch.nn.Module.__call__)  # type: ignore[arg-type]
