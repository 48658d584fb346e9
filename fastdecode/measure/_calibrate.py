"""`calibrate`: find the fastest backends on this machine, and return them as a ranking."""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from io import BytesIO
from typing import TYPE_CHECKING, Any, cast

from PIL import Image as PillowImage

from fastdecode._backends import registry, selection
from fastdecode._backends.ranking import Ranking, libraries, sort_by_default
from fastdecode._decode.api import read_item
from fastdecode._system.processor import cpu_model
from fastdecode.errors import FastDecodeError, begin_with
from fastdecode.measure._collection import Photo
from fastdecode.measure._run import Run, RunPlan, measure
from fastdecode.measure.result import OWN, now
from fastdecode.samples import photos
from fastdecode.types import REDUCES

if TYPE_CHECKING:
    from fastdecode._decode.api import Data
    from fastdecode.cli.terminal import Notify
    from fastdecode.measure.result import Measurement
    from fastdecode.types import Format, Reduce

USUAL_S = 20.0
_ROUNDS_S = 0.5  # of each backend at each kind of work
_NEED_PYTORCH = ("torchvision", "torchcodec")
_MADE: dict[Format, dict[str, Any]] = {"png": {}, "webp": {"quality": 80}, "jpeg2000": {}}
"""Options of Pillow for the formats, besides JPEG, that several backends read."""


def calibrate(
    samples: Iterable[Data | str | os.PathLike[str]] | None = None,
    *,
    seconds: float = USUAL_S,
    notify: Callable[[float], object] | None = None,
) -> Ranking:
    """Measure which backend is fastest on this machine, for each format and `reduce`.

    Parameters
    ----------
    samples : iterable of encoded bytes or paths, optional
        What to decode. By default the package's own photos: as JPEG, and as PNG, WebP and JPEG 2000
        made from them.
    seconds : float, default 20
        About how long to measure. Starting the processes, and one pass over the samples for each
        kind of work, take their time in any case.
    notify : callable, optional
        Called with the share of the work that is done, from 0 to 1.

    Returns
    -------
    Ranking
        Pass it to `use`, or call its `save` for every later process of this user.

    Raises
    ------
    FastDecodeError, OSError
        A sample cannot be read; the message names it.
    TypeError, ValueError
        An argument is wrong, or there are no samples.

    Notes
    -----
    This is the engine of ``fastdecode bench``: each backend decodes the same files from memory in a
    process of its own, in one thread, in rounds of random order. The default order changes only for
    backends whose lead is larger than the spread of their own rounds, so other work on the machine
    does not change it by chance.

    Only backends that `decode` may choose by itself are measured. Those of PyTorch take part if the
    caller has imported it. Backends that hold the GIL keep their place in the default order. A
    backend that crashes is left out, with a warning. Backends that were registered as classes, and
    not as ``"module:Class"``, exist only in the caller's process and cannot take part.

    Examples
    --------
    >>> from fastdecode import calibrate, decode, use
    >>> ranking = calibrate(["cat.jpg"], seconds=0.5)
    >>> with use(ranking):  # or `ranking.save()`, for every later process
    ...     image = decode(data)
    """
    if not (isinstance(seconds, (int, float)) and 0 < seconds < float("inf")):
        raise ValueError(f"seconds must be a positive number, not {seconds!r}")
    if isinstance(samples, (str, bytes)):
        raise TypeError("samples are several files: pass a list of paths, or of encoded bytes")
    own = sample_photos() if samples is None else _photos_of(samples)
    if not own:
        raise ValueError("there are no samples to measure with")

    def report(_what: str, done: float, _total: float) -> None:
        if notify is not None:
            notify(done)

    ranking, notes = rank(own, seconds, report)
    for note in notes:
        warnings.warn(note, stacklevel=2)
    return ranking


def rank(found: Sequence[Photo], seconds: float, notify: Notify) -> tuple[Ranking, list[str]]:
    """Measure backends on these photos; return the ranking, and what could not be measured."""
    plan = RunPlan(
        backends=tuple(_eligible()),
        reduces=REDUCES,
        every_format=True,
        automatic=True,
        seconds=_ROUNDS_S,
        within=seconds,
    )
    run = Run()
    measure(found, plan, run, notify)
    holding = {(name, form) for name, info in run.infos.items() for form in info.holds_gil}
    return make_ranking(run.measurements(), holding), run.notes


def make_ranking(
    measurements: Iterable[Measurement], holding: Container[tuple[str, Format]] = ()
) -> Ranking:
    """Turn figures into orders of backends with right pixels.

    The order is the default one, except that backends move forward whose lead is larger than the
    spread of their own rounds. Those that are `holding` the GIL for a format do not: alone they are
    as fast as others, next to threads they are not.
    """
    found: dict[tuple[Format, Reduce], dict[str, Measurement]] = {}
    for one in measurements:
        usable = one.images_per_s.median and not (one.differing or one.averaged)
        if one.protocol == "decode" and one.backend != OWN and usable:
            cell = cast("tuple[Format, Reduce]", (one.format, one.reduce))
            found.setdefault(cell, {})[one.backend] = one

    def order(cell: tuple[Format, Reduce], own: Mapping[str, Measurement]) -> tuple[str, ...]:
        def beats(one: str, other: str) -> bool:
            return (one, cell[0]) not in holding and own[one].ratio.low > own[other].ratio.high

        left, names = sort_by_default(own, *cell), list[str]()
        while left:
            unbeaten = (name for name in left if not any(beats(other, name) for other in left))
            names.append(next(unbeaten, left[0]))
            left.remove(names[-1])
        return tuple(names)

    orders = {cell: order(cell, own) for cell, own in found.items() if len(own) > 1}
    return Ranking(orders, cpu_model(), libraries(), now())


def _eligible() -> list[str]:
    """Return the backends that may take part: other processes cannot load the caller's classes."""
    off = set(selection.disabled())
    if "torch" not in sys.modules:
        off.update(_NEED_PYTORCH)
    return [
        name
        for name in registry.names()
        if name not in off and isinstance(registry.entry(name).target, str)
    ]


def sample_photos() -> list[Photo]:
    """Return the package's photos, and the same in other formats that several backends read."""
    found = [Photo.of(path.read_bytes()) for path in photos]
    # Only colour photos, because grey ones are a third of the work, and few: these take longer.
    colours = [path for path in photos if not path.stem.endswith("_gray")][:2]
    for format, options in _MADE.items():
        for path in colours:
            image = PillowImage.open(path).convert("RGB")
            file = BytesIO()
            image.save(file, format.upper(), **options)
            found.append(Photo.of(file.getvalue()))
    return found


def _photos_of(samples: Iterable[Any]) -> list[Photo]:
    found = []
    for index, sample in enumerate(samples):
        data = bytes(read_item(sample))
        try:
            found.append(Photo.of(data))
        except FastDecodeError as error:
            is_path = isinstance(sample, (str, os.PathLike))
            name = os.fspath(sample) if is_path else f"sample {index}"
            begin_with(error, name)
            raise
    return found
