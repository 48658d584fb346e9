"""The user's own code: which of it may run in several threads, and what it draws from.

A `Loader` cannot know whether a user's ``read`` seeks in a file that all threads share, or whether
a ``target_transform`` draws from a global generator. It calls the one in one thread at a time,
unless its class says ``thread_safe = True``, and looks for the other in the code.
"""

from __future__ import annotations

import dis
import inspect
import random
import sys
import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import cached_property, lru_cache, partial
from types import BuiltinMethodType, CodeType, FunctionType, MethodType, ModuleType
from typing import Any

import numpy as np
import torch
from torch.overrides import TorchFunctionMode

from fastdecode._system.process import ForkLock

# One for the whole process, because datasets may share what they read from.
_lock = ForkLock()
_free: AbstractContextManager[Any] = nullcontext()
_MOST = 2000
_OURS = __name__.partition(".")[0]
_LIBRARIES = {*sys.stdlib_module_names, "numpy", "torch", "PIL", "cv2", _OURS} - {"__main__"}
_GENERATORS = (random.Random, np.random.Generator, np.random.RandomState, torch.Generator)
_RANDOM_MODULES = ("random", "secrets", "numpy.random")
_NAMES_OF_DRAWS = (
    "bernoulli bernoulli_ betavariate choices default_rng exponential_ gauss getrandbits integers "
    "multinomial normal_ normalvariate permutation rand rand_like randbytes randint randint_like "
    "randn randn_like random random_ randperm randrange shuffle standard_normal uniform_"
)
_RANDOM_NAMES = frozenset(_NAMES_OF_DRAWS.split())
_LIKE = {"rand_like": torch.rand, "randn_like": torch.randn}
_NAMES_IN_TORCH = (
    "bernoulli bernoulli_ exponential_ multinomial normal normal_ rand randint randn random_ "
    "randperm uniform_ _sample_dirichlet"
)
DRAW_IN_TORCH = frozenset(_NAMES_IN_TORCH.split())
"""torch's functions that draw, all of which take a generator."""


GLOBALS = frozenset(["LOAD_GLOBAL", "LOAD_NAME"])


class _DrawnFrom(threading.local):
    generator: Any = None
    by: Any = None


drawn_from = _DrawnFrom()
"""What the transform of a dataset that is not ours draws from in this thread, in a `Loader`; and
`by` what the twin of a step draws, which is the innermost `DrawingFrom`."""


class DrawingFrom(TorchFunctionMode):
    """Lets torch's functions, called in this thread, draw from a generator and not the global one.

    So torchvision's steps may run in several threads, and a sample's draws depend on its seed.
    A step's twin (`_twins.py`) draws from `python` and `numpy`, which are seeded from it.
    """

    def __init__(self, generator: torch.Generator) -> None:
        super().__init__()
        self._generator = generator

    def __enter__(self) -> Any:
        """Begin it in this thread."""
        self._before, drawn_from.by = drawn_from.by, self
        return super().__enter__()  # type: ignore[no-untyped-call]

    def __exit__(self, *raised: object) -> None:
        """End it; one around it is in effect again."""
        drawn_from.by = self._before
        super().__exit__(*raised)  # type: ignore[no-untyped-call]

    @cached_property
    def python(self) -> random.Random:
        """What takes the place of `random`."""
        return random.Random(self._seed())  # noqa: S311 - nothing secret

    @cached_property
    def numpy(self) -> np.random.RandomState:
        """What takes the place of `numpy.random`."""
        return np.random.RandomState(self._seed())

    def _seed(self) -> int:
        return int(torch.randint(2**32, (), generator=self._generator))

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Call a function; give it the generator if it draws, and has none."""
        name, named = getattr(func, "__name__", ""), dict(kwargs or {})
        if name in _LIKE:
            like, func, args = args[0], _LIKE[name], (args[0].shape, *args[1:])
            given = {key: value for key, value in named.items() if value is not None}
            named = {"dtype": like.dtype, "device": like.device, **given}
            name = func.__name__
        if name in DRAW_IN_TORCH and named.get("generator") is None:
            named["generator"] = self._generator
        return func(*args, **named)


def alone(*, thread_safe: bool) -> AbstractContextManager[Any]:
    """Return the lock under which to call code of the user's; none if it is thread-safe."""
    return _free if thread_safe else _lock


def is_thread_safe(owner: Any, *methods: str) -> bool:
    """Return whether these methods may run in several threads at once.

    They may if they are ours, or if the class that has the method, one below or the object says so.
    """
    kind: Any = type(owner)
    own = getattr(owner, "__dict__", {})
    if "thread_safe" in own or not own.keys().isdisjoint(methods):
        return bool(own.get("thread_safe"))
    declared = getattr(kind, "thread_safe", None), "thread_safe" in vars(kind)
    return _class_is_safe(kind, methods, declared)


@lru_cache(maxsize=256)
def _class_is_safe(kind: type, methods: tuple[str, ...], _declared: object) -> bool:
    """Return `is_thread_safe` for a class; `_declared` lets it be found anew if that changes."""
    return all(_method_is_safe(kind, method) for method in methods)


def _method_is_safe(kind: type, method: str) -> bool:
    for one in kind.__mro__:
        ours = root_of(one) == _OURS
        if "thread_safe" in vars(one) and not ours:
            return bool(vars(one)["thread_safe"])
        if method in vars(one):
            return ours
    return True


def users_methods(owner: Any, *names: str) -> list[Any]:
    """Return those of the methods that are not ours."""
    found = [getattr(owner, name, None) for name in names]
    return [method for method in found if method is not None and root_of(method) != _OURS]


def global_states() -> Any:
    """Return the states of the global generators of torch, Python and NumPy."""
    return torch.default_generator.get_state(), random.getstate(), np.random.get_state()  # noqa: NPY002


def set_global_states(states: Any) -> None:
    """Set the states that `global_states` returned."""
    torch.default_generator.set_state(states[0])
    random.setstate(states[1])
    np.random.set_state(states[2])  # noqa: NPY002


@contextmanager
def preserve_generators() -> Iterator[None]:
    """Restore the global generators, from which the training code draws."""
    states = global_states()
    try:
        yield
    finally:
        set_global_states(states)


def seed_global_generators(seed: int) -> None:
    """Seed the global generators of torch, Python and NumPy."""
    # `torch.manual_seed` would also seed every other device, and takes 0.1 ms.
    torch.default_generator.manual_seed(seed)
    random.seed(seed)
    np.random.seed(seed % 2**32)  # noqa: NPY002 - user code may draw from the global generator


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Seed the global generators for a block, in one thread at a time; then restore them.

    What the training code draws in another thread meanwhile is drawn again later, so this is for
    samples that are rare.
    """
    with _lock, preserve_generators():
        seed_global_generators(seed)
        yield


def code_of(part: Any) -> list[FunctionType]:
    """Return the Python function that a step runs first; none if it is not certain."""
    kind, own = type(part), getattr(part, "__dict__", {})
    is_module = isinstance(part, torch.nn.Module) and kind.__call__ is torch.nn.Module.__call__
    method = "forward" if is_module else "__call__"
    if isinstance(part, type) or method in own or _has_hooks(own):
        return []
    is_lambda = kind.__name__ == "Lambda" and root_of(kind) == "torchvision"
    held = own.get("lambd") if is_lambda else None
    functions = [
        one for one in (part, held, getattr(kind, method, None)) if isinstance(one, FunctionType)
    ]
    return functions[:1]


def _has_hooks(own: dict[str, Any]) -> bool:
    """Return whether a module's own attributes hold functions that are called around its own."""
    return bool(own.get("_forward_hooks") or own.get("_forward_pre_hooks"))


def codes_in(code: CodeType) -> Iterator[CodeType]:
    """Yield a piece of code, and those inside it."""
    yield code
    for one in code.co_consts:
        if isinstance(one, CodeType):
            yield from codes_in(one)


def may_draw(*code: Any) -> bool:
    """Return whether the user's code seems to draw from random generators of its own or global."""
    return any(map(_draws, _reached(code)))


def draws_in_torch(*code: Any) -> bool:
    """Return whether torch's functions draw all that the code seems to draw."""
    drawing = [found for found in _reached(code) if _draws(found)]
    return all(isinstance(one, FunctionType) and _drawn_by(one) <= _IN_TORCH for one in drawing)


_IN_TORCH = DRAW_IN_TORCH | _LIKE.keys()


def seedable(*code: Any) -> list[Any]:
    """Return what the user's code uses that owns generators and can be seeded (albumentations)."""
    return [one for one in _reached(code) if _is_seedable(one)]


def _is_seedable(found: Any) -> bool:
    return inspect.getattr_static(type(found), "set_random_seed", None) is not None


def _draws(found: Any) -> bool:
    if isinstance(found, ModuleType):
        return found.__name__ in _RANDOM_MODULES
    if isinstance(found, FunctionType):
        return bool(_drawn_by(found))
    if isinstance(found, BuiltinMethodType):
        return found.__name__ in _RANDOM_NAMES or isinstance(found.__self__, _GENERATORS)
    return isinstance(found, _GENERATORS) or _is_seedable(found)


def _drawn_by(function: FunctionType) -> frozenset[str]:
    """Return the names in a function that are those of draws."""
    known = root_of(function) in _LIBRARIES
    return _RANDOM_NAMES & ({function.__name__} if known else names_in(function.__code__))


def _reached(roots: Any) -> Iterator[Any]:
    """Yield the user's code, and whatever it names: functions, objects, modules."""
    todo = [(root, None) for root in roots]
    seen: set[tuple[int, int]] = set()
    while todo and len(seen) < _MOST:
        found, owner = todo.pop()
        if found is not None and (id(found), id(owner)) not in seen:
            seen.add((id(found), id(owner)))
            yield found
            todo += _parts(found, owner)


def _parts(found: Any, owner: Any) -> list[tuple[Any, Any]]:
    """Return what an object calls or holds, each with the object whose method it is."""
    if isinstance(found, partial):
        return [(one, None) for one in (found.func, *found.args, *found.keywords.values())]
    if isinstance(found, MethodType):
        return [(found.__func__, found.__self__), (_if_generator(found.__self__), None)]
    if isinstance(found, (staticmethod, classmethod)):
        return [(found.__func__, owner)]
    if isinstance(found, property):
        return [(found.fget, owner)]
    if isinstance(found, (list, tuple, set, frozenset, dict)):
        values = found.values() if isinstance(found, dict) else found
        return [(value, None) for value in values] if len(found) <= _MOST // 20 else []
    if isinstance(found, (ModuleType, FunctionType, type)):
        if root_of(found) in _LIBRARIES or isinstance(found, ModuleType):
            return []
        if isinstance(found, FunctionType):
            return _named(found, owner)
        return [(one, None) for one in vars(found).values() if isinstance(one, FunctionType)]
    modules = vars(found).get("_modules") or {} if hasattr(found, "__dict__") else {}
    called = (getattr(type(found), name, None) for name in ("forward", "__call__"))
    return [*((one, found) for one in called), *((one, None) for one in modules.values())]


def _named(function: FunctionType, owner: Any) -> list[tuple[Any, Any]]:
    """Return what the code of a function names: global, enclosed, or an attribute of its owner."""
    parts: list[tuple[Any, Any]] = []
    for cell in function.__closure__ or ():
        try:
            parts.append((cell.cell_contents, None))
        except ValueError:  # it is still empty
            continue
    names, loaded = names_in(function.__code__), globals_in(function.__code__)
    for name in names:
        found = function.__globals__.get(name) if name in loaded else None
        parts.append((found, None))
        if isinstance(found, ModuleType) and root_of(found) not in _LIBRARIES:
            parts += [(vars(found).get(inner), None) for inner in names]
        held = [] if owner is None else [inspect.getattr_static(owner, name, None)]
        if "super" in names:
            held += [vars(kind).get(name) for kind in type(owner).__mro__[1:]]
        parts += [(one, owner if _is_method(one) else None) for one in held]
    return parts


def _is_method(attribute: Any) -> bool:
    return isinstance(attribute, (FunctionType, property, classmethod, staticmethod))


def _if_generator(found: Any) -> Any:
    return found if isinstance(found, _GENERATORS) else None


def names_in(code: CodeType) -> set[str]:
    """Return the names that a piece of code uses, also in functions inside it."""
    inner = (names_in(one) for one in code.co_consts if isinstance(one, CodeType))
    return set(code.co_names).union(*inner)


def globals_in(code: CodeType) -> set[str]:
    """Return those of the names that are not only attributes, which a script may have as well."""
    instructions = (one for inner in codes_in(code) for one in dis.get_instructions(inner))
    return {one.argval for one in instructions if one.opname in {*GLOBALS, "IMPORT_NAME"}}


def is_of_library(found: Any) -> bool:
    """Return whether something belongs to a library that is known to draw only by its names."""
    return root_of(found) in _LIBRARIES


def root_of(found: Any) -> str:
    """Return the name of the package that something belongs to; empty if unknown."""
    name = found.__name__ if isinstance(found, ModuleType) else None
    name = name or getattr(found, "__module__", None) or type(found).__module__
    return name.partition(".")[0] if isinstance(name, str) else ""
