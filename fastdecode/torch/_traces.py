"""What a step of the user's that draws does to Pillow images, found out by drawing for it.

Its code runs with an image that only notes what is done to it, and with draws that it can only
compare, scale and hand on. Whenever the code asks which is less, or chooses, it runs once for each
answer. So every way through it is known, with its probability: the step is a choice among known
operations, of which some numbers are drawn. What looks at anything else fails, and is called.
"""

from __future__ import annotations

import copy
import dis
from collections.abc import Callable, Sequence
from collections.abc import Set as AbstractSet
from types import CodeType, FunctionType, ModuleType
from typing import Any, NoReturn

import torch
from PIL import Image as PillowImage
from PIL import ImageFilter

from fastdecode.native._augment import NOTHING, Draw, Operation, Program, do, group
from fastdecode.torch._probes import ATTRIBUTES, STORES, used_by
from fastdecode.torch._programs import Size, Unsupported, is_unmodified, size_after
from fastdecode.torch._twins import is_global_draw, twin_of
from fastdecode.torch._user_code import (
    DRAW_IN_TORCH,
    GLOBALS,
    DrawingFrom,
    code_of,
    codes_in,
    is_of_library,
    root_of,
)

_SETTING = (bool, int, float, str, list, tuple, dict)
_MOST_PATHS, _MOST_CHOICES = 64, 16
_LARGEST_RADIUS = 1000
_LIBRARIES = {"PIL", "numpy", "random", "torch", "torchvision"}
_SPECIAL = {"__copy__", "__getattr__", "__getattribute__", "__getstate__", "__reduce__"}
_SPECIAL |= {"__reduce_ex__", "__setattr__", "__setstate__", "__slots__"}
"""Methods by which an object is not what its attributes say."""
_REFUSED = STORES | {"IMPORT_NAME", "PUSH_EXC_INFO", "SETUP_FINALLY", "SETUP_WITH"}
"""What sets something that outlives a call, or might catch what is raised for the unknown."""
_DRAWS = "random uniform choice randint rand random_sample empty uniform_ item"
_DOES = (
    "FLIP_LEFT_RIGHT FLIP_TOP_BOTTOM GaussianBlur Image ImageFilter ImageOps PIL "
    "Transpose convert copy filter flip functional height hflip invert mirror posterize "
    "size solarize transforms transpose vflip width"
)
_COUNTS = "abs bool enumerate float int isinstance len list max min range round tuple zip"
_NAMES = frozenset(f"{_DRAWS} {_DOES} {_COUNTS} np numpy torch __call__".split())
"""Names in code that can draw, or note what is done to an image, or count."""

Make = Callable[[Any, Size], Program]
"""Returns the program of a known transform for an image of this size."""


class _Path:
    """One way through a step: the answers that it gets, and the others that it could get."""

    def __init__(self, answers: tuple[int, ...]) -> None:
        self._answers, self._given = answers, 0
        self.probability = 1.0
        self.others: list[tuple[int, ...]] = []

    def decide(self, shares: Sequence[float]) -> int:
        """Return the number of an answer, of which each has a share."""
        possible = [at for at, share in enumerate(shares) if share > 0]
        if len(self._answers) == self._given:
            if len(self._answers) == _MOST_CHOICES:
                raise Unsupported("it asks too often")
            self.others += [(*self._answers, at) for at in possible[1:]]
            self._answers += (possible[0],)
        answer = self._answers[self._given]
        self._given += 1
        self.probability *= shares[answer]
        return answer

    def choose(self, among: Sequence[Any]) -> Any:
        if not 0 < len(among) <= _MOST_CHOICES:
            raise Unsupported("it chooses among too many")
        return among[self.decide([1 / len(among)] * len(among))]


class _Share:
    """What a generator gives: as far as is known, uniform from `low` to `high`."""

    low, high, used = 0.0, 1.0, False


class _Drawn:
    """A number that is drawn: `start` plus `range` times a share."""

    def __init__(self, path: _Path, start: float, range: float, share: Any = None) -> None:
        self._path, self._start, self._range = path, _plain(start), _plain(range)
        self._share = share or _Share()

    def __add__(self, other: Any) -> _Drawn:
        return _Drawn(self._path, self._start + _plain(other), self._range, self._share)

    def __mul__(self, other: Any) -> _Drawn:
        factor = _plain(other)
        return _Drawn(self._path, self._start * factor, self._range * factor, self._share)

    def __sub__(self, other: Any) -> _Drawn:
        return self + -_plain(other)

    def __rsub__(self, other: Any) -> _Drawn:
        return (self * -1).__add__(other)

    def __truediv__(self, other: Any) -> _Drawn:
        return self * (1 / _plain(other))

    __radd__, __rmul__ = __add__, __mul__

    @property  # type: ignore[misc]
    def __class__(self) -> Any:  # to `isinstance`
        return float

    def __lt__(self, other: Any) -> bool:
        """Decide it, and remember that: the share is on that side from now on."""
        share, other = self._share, _plain(other)
        if not self._range:
            return bool(self._start < other)
        at = min(max((other - self._start) / self._range, share.low), share.high)
        below = (at - share.low) / (share.high - share.low)
        is_below = self._path.decide([below, 1 - below]) == 0
        share.low, share.high = (share.low, at) if is_below else (at, share.high)
        return is_below == (self._range > 0)

    __le__ = __lt__

    def __gt__(self, other: Any) -> bool:
        return not self < other

    __ge__ = __gt__
    __hash__ = None  # type: ignore[assignment]

    def __eq__(self, other: object) -> NoReturn:
        raise Unsupported("it asks for equality")

    def __bool__(self) -> NoReturn:
        raise Unsupported("it asks whether a draw is 0")

    def item(self) -> _Drawn:
        return self

    def draw_for(self, at: int) -> Draw:
        """Return this as a number of an operation; no other may be made of the same share."""
        share = self._share
        if share.used:
            raise Unsupported("two of its numbers are the same draw")
        share.used = True
        start = self._start + self._range * share.low
        return Draw(at, start, self._range * (share.high - share.low))


def _plain(number: Any) -> float:
    if type(number) in (_Drawn, bool) or not isinstance(number, (int, float)):
        raise Unsupported("it calculates with something else than numbers")
    return float(number)


# ---- what it draws from ----


class _Draws:
    """Stands for a generator of Python's or NumPy's; what it has not is not known."""

    def __init__(self, path: _Path) -> None:
        self._path = path

    def uniform(self, low: float = 0.0, high: float = 1.0) -> _Drawn:
        return _Drawn(self._path, low, high - low)

    def random(self) -> _Drawn:
        return self.uniform()

    def choice(self, among: Any) -> Any:
        return self._path.choose(range(among) if isinstance(among, int) else among)

    def __getattr__(self, name: str) -> NoReturn:
        raise Unsupported(f"it draws by {name}")


class _PythonsDraws(_Draws):
    def randint(self, low: int, high: int) -> Any:
        return self._path.choose(range(low, high + 1))


class _NumpysDraws(_Draws):
    def randint(self, low: int, high: int | None = None) -> Any:
        return self._path.choose(range(low) if high is None else range(low, high))

    def rand(self) -> _Drawn:
        return self.uniform()

    random_sample = rand


class _Tracing(DrawingFrom):
    """Lets a step draw what it can only compare, scale and hand on."""

    def __init__(self, path: _Path) -> None:
        super().__init__(torch.Generator())
        self._path = path
        own: Any = _PythonsDraws(path), _NumpysDraws(path)
        self.python, self.numpy = own

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Draw one number by ``torch.rand(1)`` or ``torch.empty(1).uniform_()``."""
        name = getattr(func, "__name__", "")
        if name == "rand" and args in ((1,), ((1,),), ([1],), ((),), ([],)) and not kwargs:
            return _Drawn(self._path, 0.0, 1.0)
        if name == "uniform_" and args[0].numel() == 1 and not kwargs:
            low, high = args[1:] or (0.0, 1.0)
            return _Drawn(self._path, low, high - low)
        if name in DRAW_IN_TORCH or name.endswith("_like"):
            raise Unsupported(f"it draws by {name}")
        return func(*args, **(kwargs or {}))


# ---- what it does ----


class _Noted:
    """Stands for a Pillow image of three channels, and notes what is done to it."""

    mode = "RGB"

    def __init__(self, size: Size, *done: Callable[[], Program]) -> None:
        self._size, self._done = size, done

    @property  # type: ignore[misc]
    def __class__(self) -> Any:  # to `isinstance`
        return PillowImage.Image

    @property
    def size(self) -> tuple[int, int]:
        """(width, height), if all images have the same there."""
        if self._size is None:
            raise Unsupported("it looks at the size of an image")
        return self._size[::-1]

    @property
    def width(self) -> int:
        return self.size[0]

    @property
    def height(self) -> int:
        return self.size[1]

    def after(self, make: Callable[[], Program], size: Size) -> _Noted:
        return _Noted(size, *self._done, make)

    def program(self) -> Program:
        """Return what has been done, once all is known of the draws."""
        return Program(step for make in self._done for step in make())

    def convert(self, mode: str) -> _Noted:
        if mode != "RGB":
            raise Unsupported(f"it converts to {mode}")
        return self

    def copy(self) -> _Noted:
        return self

    def filter(self, kernel: Any) -> _Noted:
        if type(kernel) is not ImageFilter.GaussianBlur:
            raise Unsupported("it has another filter")
        return self.after(lambda: _blurred(kernel.radius), self._size)

    def transpose(self, method: int) -> _Noted:
        operation = Operation("mirror" if method == 0 else "turn_over")
        if method not in (0, 1):
            raise Unsupported("it turns the image")
        return self.after(lambda: do(operation), self._size)

    def point(self, table: Any) -> _Noted:
        operation = _by_table(list(table))
        return self.after(lambda: do(operation), self._size)


def _blurred(radius: Any) -> Program:
    draws = [radius.draw_for(0)] if type(radius) is _Drawn else []
    start = draws[0].start if draws else _plain(radius)
    ends = [start, *(start + one.range for one in draws)]
    if not 0 <= min(ends) <= max(ends) <= _LARGEST_RADIUS:
        raise Unsupported("its radius is negative or very large")
    return do(Operation("box_blur", (start,)), *draws)


def _by_table(table: list[Any]) -> Operation:
    """Return the operation that replaces each level by that of a table."""
    for least in range(257):
        if table == [at if at < least else 255 - at for at in range(256)] * 3:
            return Operation("solarize", (float(least),))
    for bits in range(9):
        if table == [at & ~(2 ** (8 - bits) - 1) for at in range(256)] * 3:
            return Operation("posterize", (float(bits),))
    raise Unsupported("its table is of no operation that is known")


class _Known:
    """Stands for a known transform, which it notes."""

    def __init__(self, transform: Any, make: Make) -> None:
        self._transform, self._make = transform, make

    def __call__(self, image: Any) -> Any:
        if type(image) is not _Noted:
            raise Unsupported("a transform gets something else than the image")
        made = self._make(self._transform, image._size)
        return image.after(lambda: made, size_after(made, image._size))


def traced(part: Any, size: Size, is_known: Callable[[Any], bool], make: Make) -> Program:
    """Return the program of a step, or raise `Unsupported`.

    `is_known` says of which transforms `make` makes programs.
    """
    try:
        noting = _noting(part, is_known, make) if is_open(part, is_known) else None
        ways = _ways_through(noting, size) if noting else []
    except Unsupported:
        raise
    except Exception as error:  # of any kind: whatever the user's code raises
        raise Unsupported("it does what is not known") from error
    if not ways:
        raise Unsupported("it uses what is not known")
    programs = [program or NOTHING for _, program in ways]
    if len(ways) == 1:
        return ways[0][1]
    return group("choice", programs, weights=[probability for probability, _ in ways])


def _ways_through(noting: Callable[[Any], Any], size: Size) -> list[tuple[float, Program]]:
    """Return what a step may do, each with its probability."""
    todo: list[tuple[int, ...]] = [()]
    ways = []
    while todo:
        path = _Path(todo.pop())
        with _Tracing(path):
            made = noting(_Noted(size))
        if type(made) is not _Noted:
            raise Unsupported("it returns something else than the image")
        todo += path.others
        ways.append((path.probability, made.program()))
        if len(ways) + len(todo) > _MOST_PATHS:
            raise Unsupported("there are too many ways through it")
    return ways


def _noting(part: Any, is_known: Callable[[Any], bool], make: Make) -> Any:
    """Return what does the same as a step, but only notes what known transforms would do."""
    seen: dict[int, tuple[Any, Any]] = {}

    def noted(value: Any) -> Any:
        if type(value) in (list, tuple):
            return type(value)(map(noted, value))
        if isinstance(value, FunctionType) or not is_known(value):
            return value
        return seen.setdefault(id(value), (value, _Known(value, make)))[1]

    for value in used_by(code_of(part)[0], part):
        noted(value)
    if not isinstance(part, FunctionType):
        part, own = copy.copy(part), vars(part)
        held = {**own, **own.get("_modules", {})}
        vars(part).update({name: noted(value) for name, value in held.items()})
    return twin_of(part, seen)


# ---- what its code may use ----


def is_open(part: Any, is_known: Callable[[Any], bool], depth: int = 3) -> bool:
    """Return whether the code of a step uses nothing but what is known, and changes nothing."""
    code = code_of(part)
    if not depth or not code or not is_unmodified(part) or _does(code[0], _REFUSED):
        return False
    is_method = code[0] is not part
    own = {*vars(part), *vars(part).get("_modules", ())} if is_method else set()
    for one in (one for inner in codes_in(code[0].__code__) for one in dis.get_instructions(inner)):
        if one.opname in GLOBALS and isinstance(code[0].__globals__.get(one.argval), _SETTING):
            return False
        held = {GLOBALS: code[0].__globals__, ATTRIBUTES: own}
        known = next((where for names, where in held.items() if one.opname in names), None)
        if known is not None and one.argval not in known and one.argval not in _NAMES:
            return False
    kinds = type(part).__mro__ if is_method else ()
    users = [vars(kind) for kind in kinds if not is_of_library(kind) and kind is not object]
    if any(not _SPECIAL.isdisjoint(one) for one in users):
        return False
    later = [value for one in users for name, value in one.items() if name != "__init__"]
    if any(_does(one, STORES) for value in later for one in _functions_of(value)):
        return False
    return all(_is_fixed(one, is_known, depth - 1) for one in used_by(code[0], part))


def _functions_of(value: Any) -> list[FunctionType]:
    """Return the functions of an attribute of a class."""
    found = [value, *(getattr(value, name, None) for name in ("__func__", "fget", "fset"))]
    return [one for one in found if isinstance(one, FunctionType)]


def _does(function: FunctionType, operations: AbstractSet[str]) -> bool:
    """Return whether a function does any of these, but to its own variables."""
    return any(
        one.opname in operations and one.argval not in code.co_cellvars
        for code in codes_in(function.__code__)
        for one in dis.get_instructions(code)
    )


def _is_fixed(one: Any, is_known: Callable[[Any], bool], depth: int) -> bool:
    """Return whether something is data, a library's, a known transform, or such a function."""
    if isinstance(one, (list, tuple)):
        return all(_is_fixed(inner, is_known, depth) for inner in one)
    if isinstance(one, (ModuleType, type, FunctionType)) and root_of(one) in _LIBRARIES:
        return True
    if isinstance(one, FunctionType):
        return is_open(one, is_known, depth)
    plain = one is None or isinstance(one, (bool, int, float, str, CodeType))
    return plain or is_global_draw(one) or is_known(one)
