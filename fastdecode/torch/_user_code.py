"""The user's own code: where it runs, and what it draws from.

Nothing is known about it. It is called as it is written, in worker processes, whose global
generators a `Loader` seeds for each sample; or in threads, if the user has said ``thread_safe =
True``.
"""

from __future__ import annotations

import inspect
import random
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch.overrides import TorchFunctionMode

from fastdecode._system.process import ForkLock

_OURS = __name__.partition(".")[0]
_LIKE = {"rand_like": torch.rand, "randn_like": torch.randn}
_NAMES_IN_TORCH = (
    "bernoulli bernoulli_ exponential_ multinomial normal normal_ rand randint randn random_ "
    "randperm uniform_ _sample_dirichlet"
)
_DRAW_IN_TORCH = frozenset(_NAMES_IN_TORCH.split())
"""torch's functions that draw, all of which take a generator."""
_generators = ForkLock()  # who seeds the global ones for a sample


class DrawingFrom(TorchFunctionMode):
    """Lets torch's functions, called in this thread, draw from a generator and not the global one.

    So transforms of torchvision's v2, which draw by torch alone, may run in several threads.
    """

    def __init__(self, generator: torch.Generator) -> None:
        super().__init__()
        self._generator = generator

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Call a function; give it the generator if it draws, and has none."""
        name, named = getattr(func, "__name__", ""), dict(kwargs or {})
        if name in _LIKE:
            like, func, args = args[0], _LIKE[name], (args[0].shape, *args[1:])
            given = {key: value for key, value in named.items() if value is not None}
            named = {"dtype": like.dtype, "device": like.device, **given}
            name = func.__name__
        if name in _DRAW_IN_TORCH and named.get("generator") is None:
            named["generator"] = self._generator
        return func(*args, **named)


def is_thread_safe(owner: Any, *methods: str) -> bool:
    """Return whether these methods may run in several threads at once.

    They may if they are ours, or if the class that has the method, one below it or the object says
    ``thread_safe = True``.
    """
    return all(_method_is_safe(owner, method) for method in methods)


def _method_is_safe(owner: Any, method: str) -> bool:
    own = getattr(owner, "__dict__", {})
    found = own.get(method, inspect.getattr_static(owner, method, None))
    if found is None or belongs_to(found, _OURS):
        return True
    if "thread_safe" in own or method in own:
        return own.get("thread_safe") is True
    for one in type(owner).__mro__:
        ours = belongs_to(one, _OURS)
        if "thread_safe" in vars(one) and not ours:
            return vars(one)["thread_safe"] is True
        if method in vars(one):
            return False
    return False


def says_thread_safe(owner: Any) -> bool:
    """Return whether an object or its class says ``thread_safe = True``."""
    return inspect.getattr_static(owner, "thread_safe", False) is True


def is_isolated(transform: Any) -> bool:
    """Return whether a transform of bytes draws from its generator alone, in any thread.

    Of a class of the user's that class must say so.
    """
    for kind in type(transform).__mro__:
        if belongs_to(kind, _OURS):
            break
        for said in ("isolated", "thread_safe"):
            if said in vars(kind):
                return vars(kind)[said] is True
    return belongs_to(type(transform), _OURS) and transform.isolated is True


def belongs_to(found: Any, library: str) -> bool:
    """Return whether a function, or the class of an object, is defined in a library."""
    module = getattr(found, "__module__", None) or type(found).__module__
    return isinstance(module, str) and module.partition(".")[0] == library


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
    with _generators, preserve_generators():
        seed_global_generators(seed)
        yield
