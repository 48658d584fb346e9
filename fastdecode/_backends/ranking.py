"""An order of preference among backends, as plain data: what `calibrate` measures and saves."""

from __future__ import annotations

import hashlib
import importlib.metadata
import json
import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import fastdecode
from fastdecode._backends.registry import BUILTIN
from fastdecode._system import files
from fastdecode._system.processor import cpu_model
from fastdecode.types import FORMATS, REDUCES, Format, Reduce

if TYPE_CHECKING:
    from typing_extensions import Self

SCHEMA = 2
MARK = b'{\n "schema": '
"""What a saved ranking begins with, and a saved result of the benchmark: no other is replaced."""


_DAMAGE = ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError
"""What reading JSON, and looking for names in it, raises."""


class Cell(NamedTuple):
    """The kind of work that an order of backends applies to."""

    format: Format
    reduce: Reduce


@dataclass(frozen=True)
class Ranking:
    """An order of preference among backends, as plain data.

    Attributes
    ----------
    orders : Mapping of (format, reduce) to sequence of str
        Backend names, fastest first, for each kind of work, such as ``("jpeg", 1)``. A `reduce`
        that is missing has the order of ``reduce=1``. Backends that are not named come last, in the
        default order.
    cpu : str
        Model of the processor that it was measured on; empty if it was not measured.
    libraries : Mapping of str to str
        Versions of the libraries that were installed when it was measured.
    measured : str
        Time of the measurement, in ISO 8601, UTC.

    Raises
    ------
    ValueError, TypeError
        A key is not a pair of format and `reduce`, or an order is not a sequence of names.

    Examples
    --------
    >>> from fastdecode import Ranking, decode, use
    >>> ranking = Ranking({("jpeg", 1): ("opencv", "pillow")})
    >>> ranking.order("jpeg", 8)
    ('opencv', 'pillow')
    >>> with use(ranking):
    ...     image = decode(data)
    """

    orders: Mapping[Any, Sequence[str]] = field(default_factory=dict)
    cpu: str = ""
    libraries: Mapping[str, str] = field(default_factory=dict)
    measured: str = ""

    def __post_init__(self) -> None:
        if not isinstance(self.orders, Mapping):
            raise TypeError(
                "orders must be a mapping such as {('jpeg', 1): ('simplejpeg', 'pillow')}, not "
                f"{self.orders!r}"
            )
        orders = {_cell(key): _names(names) for key, names in self.orders.items()}
        object.__setattr__(self, "orders", orders)

    def order(self, format: Format, reduce: Reduce) -> tuple[str, ...]:
        """Return the names for one kind of work, fastest first; empty if nothing is known."""
        return tuple(self.orders.get((format, reduce)) or self.orders.get((format, 1), ()))

    def stale(self) -> str:
        """Return why it is out of date here; empty if it is not, or was not measured."""
        if not self.cpu:
            return ""
        if self.cpu != cpu_model():
            return f"it was measured on another processor ({self.cpu})"
        then, now = self.libraries, libraries()
        changes = "; ".join(
            f"{name} {then.get(name, 'missing')} then, {now.get(name, 'missing')} now"
            for name in sorted({*then, *now})
            if then.get(name) != now.get(name)
        )
        return f"libraries have changed since it was measured ({changes})" if changes else ""

    def save(self, path: str | os.PathLike[str] | None = None) -> Path:
        """Save the ranking to a file, atomically.

        Parameters
        ----------
        path : path, optional
            By default the place where every later process of this user looks for it.

        Returns
        -------
        Path
            The file.

        Raises
        ------
        OSError
            The file cannot be written.
        """
        target = ranking_path() if path is None else Path(path)
        content = {
            "schema": SCHEMA,
            "cpu": self.cpu,
            "libraries": dict(self.libraries),
            "measured": self.measured,
            "orders": [[*cell, names] for cell, names in self.orders.items()],
        }
        files.check_writable(target, MARK, parents=True)
        files.write_text(target, json.dumps(content, indent=1), MARK)
        return target

    @classmethod
    def load(cls, path: str | os.PathLike[str] | None = None) -> Self:
        """Load a ranking from a file.

        Parameters
        ----------
        path : path, optional
            By default the ranking saved on this machine.

        Raises
        ------
        OSError
            The file cannot be read.
        ValueError
            The file is damaged, or an earlier version wrote it.
        """
        place = ranking_path() if path is None else path
        if not isinstance(place, (str, os.PathLike)):
            raise TypeError(f"path must be a path, not {place!r}")
        with files.open_regular(place) as file:
            data = file.readall()
        try:
            return cls._from_text(data.decode())
        except _DAMAGE as error:
            raise ValueError(f"{place} is no ranking that fastdecode wrote: {error}") from error

    @classmethod
    def _from_text(cls, text: str) -> Self:
        content = json.loads(text)
        if content["schema"] != SCHEMA:
            raise ValueError(f"its schema is {content['schema']}, and this version reads {SCHEMA}")
        orders = {(format, reduce): names for format, reduce, names in content["orders"]}
        cpu, known, measured = (content[name] for name in ("cpu", "libraries", "measured"))
        for word in (cpu, measured, *known.values()):
            if not (isinstance(word, str) and (word.isprintable() or not word)):
                raise ValueError("what should be text is none")
        return cls(orders, cpu, known, measured)

    def __str__(self) -> str:
        """Return a table with a row per kind of work and the backends in order."""
        rows = [("format", "reduce", "fastest first")]
        rows += [(c.format, str(c.reduce), ", ".join(names)) for c, names in self.orders.items()]
        wide = max(len(row[0]) for row in rows)
        return "\n".join(f"{row[0]:<{wide}}  {row[1]:<6}  {row[2]}" for row in rows)


def sort_by_default(names: Iterable[str], format: Format, reduce: Reduce) -> list[str]:
    """Sort backends into the default order, with unknown ones last."""
    known = DEFAULT.order(format, reduce)
    return sorted(names, key=lambda name: known.index(name) if name in known else len(known))


def _cell(key: Any) -> Cell:
    """Return the cell of a key; raise if it is none."""
    if not isinstance(key, tuple) or len(key) != len(Cell._fields):
        raise TypeError(f"a ranking's keys are pairs such as ('jpeg', 1), not {key!r}")
    cell = Cell(*key)
    for value, allowed in ((cell.format, FORMATS), (cell.reduce, REDUCES)):
        if value not in allowed:
            raise ValueError(f"{value!r} in {key!r} is none of {', '.join(map(str, allowed))}")
    return cell


def _names(names: object) -> tuple[str, ...]:
    if isinstance(names, str) or not isinstance(names, Sequence):
        raise TypeError(f"an order is a sequence of backends' names, not {names!r}")
    if not all(isinstance(name, str) for name in names):
        raise TypeError(f"backends are given by name, not {names!r}")
    return tuple(names)


# Fastest first on real photos, from bench/results/default_order.json, and decoder_px500.json for
# `native`. There are two exceptions: PyTorch's decoders come last, because choosing one would
# import PyTorch into programs that do not need it otherwise; kornia_rs comes after Pillow, and
# Pillow comes last for JPEG 2000, because they hold the GIL.
DEFAULT = Ranking(
    {
        ("jpeg", 1): (
            "native",
            "simplejpeg",
            "turbojpeg",
            "jpeg4py",
            "imagecodecs",
            "opencv",
            "pillow",
            "kornia_rs",
            "torchcodec",
            "torchvision",
        ),
        ("jpeg", 2): ("native", "simplejpeg", "turbojpeg", "jpeg4py", "opencv", "pillow"),
        ("jpeg", 4): ("native", "simplejpeg", "turbojpeg", "jpeg4py", "opencv", "pillow"),
        ("jpeg", 8): ("native", "simplejpeg", "turbojpeg", "jpeg4py", "opencv", "pillow"),
        ("png", 1): ("native", "opencv", "pillow", "torchcodec"),
        ("webp", 1): ("opencv", "pillow"),
        ("pnm", 1): ("opencv", "pillow"),
        ("jpeg2000", 1): ("imagecodecs", "pillow"),
    }
)


_OTHER_OPENCV = ("opencv-python", "opencv-contrib-python", "opencv-contrib-python-headless")


def libraries() -> dict[str, str]:
    """Return the version of every installed decoding library, and of fastdecode, by PyPI name.

    Nothing is imported.
    """
    return {
        "fastdecode": fastdecode.__version__,
        **_versions(*(entry.distribution for entry in BUILTIN.values()), *_OTHER_OPENCV),
    }


def _versions(*names: str) -> dict[str, str]:
    found = {}
    for name in names:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:  # not installed
            continue
    return found


def ranking_path() -> Path:
    """Return the file of this machine's ranking.

    ``FASTDECODE_RANKING`` may name it. Otherwise it is in the user's cache directory. There is one
    file per processor model, because the machines of a cluster often share a home directory, and
    per Python installation, because their libraries differ.
    """
    named = os.environ.get("FASTDECODE_RANKING")
    if named:
        return Path(named)
    import platformdirs  # only here: it is needed once a process

    key = hashlib.sha256(f"{cpu_model()}\n{sys.prefix}".encode()).hexdigest()[:12]
    return platformdirs.user_cache_path("fastdecode", appauthor=False) / f"ranking-{key}.json"
