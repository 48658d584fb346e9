"""Decodes every file of the collection, and thousands of damaged copies, in every way.

    FASTDECODE_CORPUS=... python tests/support/sweep.py --mutants 20000

Each file must give pixels or one of the package's errors. A child process decodes groups of files.
If a group crashes or hangs it, the sweep repeats the group file by file, so that the report names
the case. The number of a damage alone determines it.
"""

from __future__ import annotations

import argparse
import faulthandler
import re
import sys
import tempfile
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from corpus import CORPUS, usable_backends
from deep import FILES as DEEP
from PIL import Image

import fastdecode
from fastdecode import DecodeError, FastDecodeError, decode, decode_batch, decode_file, probe
from fastdecode._backends import registry
from fastdecode._system.process import Child, ChildDied
from fastdecode.packing import pack
from fastdecode.packing._survey import survey
from fastdecode.stores import open_store
from fastdecode.stores._scan import EXTENSIONS
from fastdecode.testing import drawing
from fastdecode.types import Box, Header
from fastdecode.types import Image as Pixels

__all__ = ["Case", "Report", "Sweeper", "cases", "main", "sweep"]

MAX_PIXELS = 4_000_000
"""Limit on the pixels that a damaged header may promise, so that the sweep ends in time."""
MAX_FILE_BYTES = 60_000
"""Limit on the size of the files to damage: a few mutants hit every part of a small file."""
TIMEOUT_S = 120
"""Time for one group of files, after which the process counts as hung."""
_GROUP_SIZE = 40
_BACKENDS = (None, *registry.BUILTIN)
_SETTINGS = 14
"""How many sets of options `Sweeper.each` tries for each case."""
_ODD_BYTES = (0, 1, 2, 3, 5, 7, 8, 9, 16, 17, 32, 64, 127, 128, 254, 255)


class Case(NamedTuple):
    """A file and the number of its damage; 0 means undamaged."""

    path: str
    number: int

    def __str__(self) -> str:
        name = Path(self.path).name
        return f"{name}, damage {self.number}" if self.number else name

    def read(self) -> bytes:
        data = Path(self.path).read_bytes()
        return _damage(data, np.random.default_rng(self.number)) if self.number else data


class Report(NamedTuple):
    """How often each answer occurred, and a line for each fault with its case and setting."""

    answers: Counter[str]
    faults: list[str]

    def add(self, other: Report) -> None:
        self.answers.update(other.answers)
        self.faults.extend(other.faults)


def _damage(data: bytes, random: np.random.Generator) -> bytes:
    """Damage the data one to four times, half of the times in the first 256 bytes."""
    changed = bytearray(data)
    for _ in range(random.integers(1, 5)):
        if len(changed) < 8:
            break
        near = min(len(changed), 256 if random.random() < 0.5 else len(changed))
        at = int(random.integers(2, near))
        length = int(random.integers(1, 64))
        kind = random.choice(["flip", "set", "copy", "remove", "zeros", "cut"], p=_DAMAGE_SHARES)
        if kind == "flip":
            changed[at] ^= 1 << int(random.integers(8))
        elif kind == "set":
            changed[at] = random.choice(_ODD_BYTES)
        elif kind == "copy":
            start = int(random.integers(len(changed)))
            changed[at:at] = changed[start : start + length]
        elif kind == "remove":
            del changed[at : at + length]
        elif kind == "zeros":
            changed[at : at + length] = bytes(min(length, len(changed) - at))
        else:
            del changed[int(random.integers(at, len(changed))) :]
    return bytes(changed)


_DAMAGE_SHARES = (0.3, 0.4, 0.08, 0.08, 0.08, 0.06)


def kinds(folder: Path) -> list[Path]:
    """Write a small file in every format, mode, depth and channel count that can be encoded."""
    for form, mode in product(_PILLOW_FORMATS, _PILLOW_MODES):
        with suppress(Exception):  # Pillow cannot write every mode in every format
            _save(folder / f"pillow_{mode.replace(';', '_')}.{form}", drawing(23, 17), mode)
    with suppress(ImportError):
        import imagecodecs

        for channels, bits in product((1, 2, 3, 4, 5, 9), (1, 4, 8, 10, 12, 16)):
            dtype = np.uint8 if bits <= 8 else np.uint16
            shape = (17, 23, channels) if channels > 1 else (17, 23)
            image = np.random.default_rng(bits).integers(0, 1 << bits, shape, dtype)
            for suffix, options in _CODECS.items():
                name, more = options
                with suppress(Exception):  # no codec has all depths and channel counts
                    data = getattr(imagecodecs, name)(image, bitspersample=bits, **more)
                    (folder / f"codec_{channels}_{bits}.{suffix}").write_bytes(data)
    for name, (_, data) in DEEP.items():
        suffix = "png" if "PNG" in name else "tif"
        (folder / f"deep_{len(name)}_{name.split()[-1]}.{suffix}").write_bytes(data)
    return sorted(folder.iterdir())


def _save(path: Path, image: Image.Image, mode: str) -> None:
    if mode == "I;16":
        deep = np.asarray(image.convert("L")).astype(np.uint16) * 257
        Image.fromarray(deep).save(path)
    else:
        image.convert(mode).save(path)


_PILLOW_FORMATS = (
    "png", "tif", "bmp", "gif", "webp", "avif", "jp2", "j2k", "jpg", "ppm", "dib", "ico", "tga",
)  # fmt: skip
_PILLOW_MODES = (
    "1", "L", "LA", "La", "P", "PA", "RGB", "RGBA", "RGBa", "RGBX", "CMYK", "YCbCr", "LAB", "HSV",
    "I", "I;16", "F",
)  # fmt: skip
_CODECS: dict[str, tuple[str, dict[str, Any]]] = {
    "j2k": ("jpeg2k_encode", {"codecformat": "j2k", "level": 0}),
    "jp2": ("jpeg2k_encode", {"codecformat": "jp2", "level": 0}),
    "jxl": ("jpegxl_encode", {"lossless": True}),
    "avif": ("avif_encode", {"level": 90}),
    "jls": ("jpegls_encode", {}),
    "jpg": ("jpeg_encode", {}),
}


def cases(
    mutants: int, folder: Path, *, files: int | None = None, first: int = 1
) -> Iterator[Case]:
    """Yield the files of the collection and of `kinds`, then damaged ones.

    `files` limits the former to about that many; `mutants` is the number of the latter, and
    `first` the number of the first damage. The files of `kinds` are written into the folder.
    """
    found = sorted(p for p in CORPUS.rglob("*") if p.is_file() and p.suffix not in (".csv", ".md"))
    found = [path for path in found if "licenses" not in path.parts] + kinds(folder)
    yield from (
        Case(str(path), 0) for path in found[:: max(1, len(found) // (files or len(found)))]
    )
    small = [path for path in found if 8 < path.stat().st_size <= MAX_FILE_BYTES]
    for number in range(first, first + mutants):
        yield Case(str(small[number % len(small)]), number)


class Sweeper:
    """The child's side of the sweep: decodes cases in settings and reports faults."""

    def __init__(self) -> None:
        warnings.simplefilter("ignore")
        self._names = usable_backends()
        self._folder = tempfile.TemporaryDirectory()

    def each(self, group: Sequence[Case]) -> Report:
        """Decode each case in every setting, with the automatic choice or one named backend."""
        report = Report(Counter(), [])
        with _exit_on_hang():
            for case in group:
                data = case.read()
                for setting in range(_SETTINGS):
                    options = self._options(setting, data, case)
                    shown = {k: "an array" if k == "out" else v for k, v in options.items()}
                    with _record_faults(report, f"{case}, {shown}"):
                        report.answers[_answer_name(decode_checked(data, options))] += 1
        return report

    def agree(self, group: Sequence[Case]) -> Report:
        """Decode each case with every backend; those that decode a JPEG must agree on it."""
        report = Report(Counter(), [])
        plain: tuple[dict[str, Any], ...] = (
            {"reduce": 4, "mode": "L"}, {"mode": "stored", "strict": True}, {},
        )  # fmt: skip
        for case in group:
            data, found = case.read(), {}
            with _exit_on_hang():
                for name in _BACKENDS:
                    for options in plain if name in (None, *self._names) else ():
                        with _record_faults(report, f"{case}, {name}, {options}"):
                            found[name] = decode_checked(data, {"backend": name, **options})
                            report.answers[_answer_name(found[name])] += 1
            header = _header_or_none(data)
            if header and header.format == "jpeg":
                with _record_faults(report, str(case)):
                    _check_agreement(found, 1 if header.color == "cmyk" else 0)
        return report

    def together(self, group: Sequence[Case]) -> Report:
        """Give the whole group to `decode_batch`, `Loader`, `check` and `pack`."""
        report = Report(Counter(), [])
        named = ", ".join(map(str, group)) if len(group) < 4 else f"{len(group)} files"
        with _exit_on_hang(), tempfile.TemporaryDirectory(dir=self._folder.name) as folder:
            source = Path(folder, "files")
            source.mkdir()
            paths = []
            for index, case in enumerate(group):
                data = case.read()
                if case.number and _pixel_count(data) > MAX_PIXELS:
                    continue
                suffix = Path(case.path).suffix
                known = suffix.lower() in EXTENSIONS  # else a folder would pass it over
                paths.append(source / f"{index:03}{suffix if known else '.jpg'}")
                paths[-1].write_bytes(data)
            for use in (_batch, _loader, _check, _pack) if paths else ():
                with _record_faults(report, f"{use.__name__} of {named}"):
                    report.answers.update(use(paths, source))
        return report

    def _options(self, setting: int, data: bytes, case: Case) -> dict[str, Any]:
        """Return the options of a setting; the last four name a backend."""
        region = _random_region(data, case.number + setting)
        named = self._names[(case.number + setting) % len(self._names)]
        chosen: dict[str, Any] = (
            {},
            {"reduce": 4, "mode": "L"},
            {"reduce": 2, "mode": "stored"},
            {"mode": "stored", "strict": True},
            {"mode": "RGBA", "orient": True},
            {"min_size": 9, "orient": True},
            {"region": region},
            {"region": region, "reduce": 8, "mode": "stored", "orient": True},
            {"reduce": 8, "strict": True},
            {"mode": "stored", "out": np.zeros((16, 16, 3), np.uint8)},
            {"backend": named},
            {"backend": named, "mode": "stored"},
            {"backend": named, "mode": "RGBA", "reduce": 2},
            {"backend": named, "mode": "L", "reduce": 8, "orient": True},
        )[setting]
        return {**chosen, "max_pixels": MAX_PIXELS} if case.number else chosen


@contextmanager
def _exit_on_hang() -> Iterator[None]:
    """End the process if it hangs."""
    faulthandler.dump_traceback_later(TIMEOUT_S, exit=True)
    yield
    faulthandler.cancel_dump_traceback_later()


@contextmanager
def _record_faults(report: Report, what: str) -> Iterator[None]:
    """Record an unexpected exception as a fault."""
    try:
        yield
    except MemoryError:
        report.answers["out of memory"] += 1
    except Exception as error:
        last = traceback.extract_tb(error.__traceback__)[-1]
        where = f"{Path(last.filename).name}:{last.lineno}"
        report.faults.append(f"{what}: {type(error).__name__}: {error} ({where})")


def decode_checked(data: bytes, options: dict[str, Any]) -> Pixels | ValueError:
    """Return the pixels or an allowed error; raise AssertionError for a wrong result."""
    try:
        image = decode(data, **options)
    except FastDecodeError as error:
        culprit = _internal_cause(error)
        if culprit:
            raise AssertionError(f"a DecodeError hides an internal error: {culprit}") from error
        return error
    except ValueError as error:
        if ("region" in options and "outside" in str(error)) or "out must have" in str(error):
            return error
        raise
    if not (image.flags.c_contiguous and image.flags.writeable and image.dtype.kind in "buif"):
        raise AssertionError(f"an array with {image.flags}, {image.dtype}")
    if options.get("mode") != "stored" and image.dtype != np.uint8:
        raise AssertionError(f"{image.dtype} for {options.get('mode', 'RGB')}")
    header = probe(data)
    sides = [-(-side // options.get("reduce", 1)) for side in (header.height, header.width)]
    if options.get("orient") and header.orientation > 4:
        sides.reverse()
    if not {"region", "min_size", "out"} & {*options} and list(image.shape[:2]) != sides:
        raise AssertionError(f"an array {image.shape}, where the header promises {sides}")
    return image


def _check_agreement(found: dict[str | None, Pixels | ValueError], limit: int) -> None:
    """Check that exact backends agree on a JPEG, and none decodes it if one misses pixels."""
    images = {name: one for name, one in found.items() if isinstance(one, np.ndarray)}
    said = {name: str(one) for name, one in found.items() if isinstance(one, DecodeError)}
    missing = [name for name in said if re.search("missing|remature end", said[name])]
    if images and missing:
        raise AssertionError(f"{missing} miss pixels that {[*images]} show")
    exact = {name: one for name, one in images.items() if not name or registry.load(name).exact}
    for name, image in exact.items():
        first = next(iter(exact.values()))
        if np.abs(image.astype(int) - first).max() > limit:
            raise AssertionError(f"{name} shows other pixels than {next(iter(exact))}")


def _internal_cause(error: BaseException) -> str:
    """Describe an exception of the package itself, not of an adapter, that a DecodeError hides."""
    home = str(Path(fastdecode.__file__).parent)
    one: BaseException | None = error.__cause__
    while one is not None:
        last = traceback.extract_tb(one.__traceback__)[-1:] if one.__traceback__ else []
        ours = last and last[0].filename.startswith(home)
        ours = ours and Path(last[0].filename).stem not in registry.BUILTIN
        if ours and not isinstance(one, FastDecodeError):
            return f"{type(one).__name__}: {one} ({last[0].filename}:{last[0].lineno})"
        one = one.__cause__
    return ""


def _header_or_none(data: bytes) -> Header | None:
    with suppress(FastDecodeError):
        return probe(data)
    return None


def _pixel_count(data: bytes) -> int:
    header = _header_or_none(data)
    return header.width * header.height if header else 0


def _random_region(data: bytes, number: int) -> Box:
    """Draw a region within the size that the header gives."""
    header = _header_or_none(data)
    if header is None:
        return 0, 0, 1, 1
    random = np.random.default_rng(number)
    left, top = (int(random.integers(side)) for side in (header.width, header.height))
    right = int(random.integers(left, header.width)) + 1
    return left, top, right, int(random.integers(top, header.height)) + 1


def _batch(paths: Sequence[Path], source: Path) -> Counter[str]:
    del source
    answers: Counter[str] = Counter()
    data = [path.read_bytes() for path in paths]
    for items in (paths, data):
        for options in ({}, {"mode": "stored", "reduce": 2}, {"mode": "L", "strict": True}):
            given = decode_batch(items, on_error="return", threads=2, **options)
            answers.update(f"batch: {_kind(one)}" for one in given)
            if any(not isinstance(one, (np.ndarray, FastDecodeError)) for one in given):
                raise AssertionError(f"a batch of {Counter(map(_kind, given))}")
    for path in paths:
        with suppress(FastDecodeError):
            decode_file(path, 2)
    return answers


def _kind(one: Any) -> str:
    return type(one).__name__


def _answer_name(found: Pixels | ValueError) -> str:
    return {"ndarray": "pixels", "ValueError": "wrong argument"}.get(_kind(found), _kind(found))


def _loader(paths: Sequence[Path], source: Path) -> Counter[str]:
    del source
    try:
        from fastdecode.torch import ImageList, Loader
        from fastdecode.torch.transforms import RandomResizedCrop, ResizeCenterCrop
    except ImportError:
        return Counter({"no torch": 1})
    answers: Counter[str] = Counter()
    for transform in (ResizeCenterCrop(32, 24), RandomResizedCrop(24)):
        dataset = ImageList([str(path) for path in paths], transform=transform, on_error="skip")
        loader = Loader(dataset, 16, threads=2)
        given = sum(
            len(batch[0] if isinstance(batch, (tuple, list)) else batch) for batch in loader
        )
        if given + loader.skipped != len(paths):
            raise AssertionError(f"{given} given and {loader.skipped} skipped of {len(paths)}")
        answers.update({"loader: pixels": given, "loader: skipped": loader.skipped})
    return answers


def _check(paths: Sequence[Path], source: Path) -> Counter[str]:
    del paths
    with open_store(source) as store:
        found, number = list(survey(store, 2)), len(store)
    if len(found) != number:
        raise AssertionError(f"check reports {len(found)} of {number} files")
    return Counter(f"check: {finding.status}" for finding in found)


def _pack(paths: Sequence[Path], source: Path) -> Counter[str]:
    del paths
    answers: Counter[str] = Counter()
    with open_store(source) as store:  # it may list fewer files than the folder holds
        number = len(store)
    for options in ({}, {"max_side": 24, "restart_markers": True}):
        target = source.parent / f"out{len(options)}.tar"
        try:
            packed = pack(source, target, skip_bad=True, threads=2, **options)
        except FastDecodeError:  # every file is bad
            answers["pack: nothing good"] += 1
            continue
        if packed.items + len(packed.bad) != number:
            raise AssertionError(f"{packed.items} packed, {len(packed.bad)} bad of {number}")
        answers.update({"pack: packed": packed.items, "pack: bad": len(packed.bad)})
    return answers


class _Process:
    """The child process, replaced by a new one after it dies."""

    def __init__(self) -> None:
        self._child: Child | None = None

    def ask(self, method: str, group: Sequence[Case]) -> Report:
        """Run a method in the child; narrow a crash down to one case."""
        try:
            if self._child is None:
                self._child = Child("sweep:Sweeper")
                self._child.receive()
            answer: Report = self._child.ask(method, group)
            return answer
        except ChildDied as died:
            self.close()
            report = Report(Counter(), [])
            for case in group if len(group) > 1 else ():
                report.add(self.ask(method, (case,)))
            if not report.faults:  # a single case, or the group crashes and no case alone
                report.faults.append(f"{method} of {', '.join(map(str, group))}: {died}")
            return report

    def close(self) -> None:
        if self._child is not None:
            self._child.close()
            self._child = None


def sweep(
    todo: Sequence[Case],
    say: Callable[[str], object] | None = None,
    methods: Sequence[str] = ("each", "together"),
) -> Report:
    """Run all cases through all methods; `say` receives the progress and each fault."""
    report, process, begun = Report(Counter(), []), _Process(), time.monotonic()
    try:
        for at in range(0, len(todo), _GROUP_SIZE):
            group = todo[at : at + _GROUP_SIZE]
            for method in methods:
                answer = process.ask(method, group)
                if method == "together" and answer.faults and len(group) > 1:
                    for case in group:
                        answer.faults.extend(process.ask(method, (case,)).faults)
                report.add(answer)
                for fault in answer.faults if say else ():
                    say(f"FAULT {fault}")
            if say and at // _GROUP_SIZE % 10 == 0:
                done = min(at + _GROUP_SIZE, len(todo))
                say(f"{done} of {len(todo)}, {time.monotonic() - begun:.0f} s")
    finally:
        process.close()
    return report


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the sweep with the options of the command line; return 1 if there is any fault."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None)
    parser.add_argument("--mutants", type=int, default=20_000, help="number of damaged files")
    parser.add_argument("--first", type=int, default=1, help="number of the first damage")
    parser.add_argument("--files", type=int, help="about how many intact files (default: all)")
    options = parser.parse_args(arguments)

    with tempfile.TemporaryDirectory() as folder:
        todo = list(cases(options.mutants, Path(folder), files=options.files, first=options.first))
        report = sweep(todo, _say)

    for answer, count in sorted(report.answers.items()):
        _say(f"{count:>10,} {answer}")
    answers = sum(report.answers.values())
    _say(f"{len(todo):,} files, {answers:,} answers, {len(report.faults)} faults")
    return int(bool(report.faults))


if __name__ == "__main__":
    import sweep as itself  # so that classes have the module name that the child imports

    sys.exit(itself.main())
