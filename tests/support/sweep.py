"""Decode every file of the collection, and thousands of damaged ones, in every way.

    FASTDECODE_CORPUS=... python tests/support/sweep.py --mutants 20000

Each must return a result or raise an error of the package. A child process decodes the files in
groups. If it dies or hangs, the sweep repeats the group file by file, and then setting by setting,
so that the report can name the cause. The damage depends only on its number.
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
from fastdecode import (
    DecodeError,
    FastDecodeError,
    decode,
    decode_batch,
    decode_file,
    probe,
    registry,
)
from fastdecode._process import Child, ChildDied
from fastdecode.packing import pack
from fastdecode.packing._check import survey
from fastdecode.stores import open_store
from fastdecode.testing import drawing
from fastdecode.types import Box, Header
from fastdecode.types import Image as Pixels

__all__ = ["Case", "Report", "Sweeper", "cases", "judged", "main", "sweep"]

PIXELS = 4_000_000
"""What a damaged header may promise: more is refused, so that the sweep ends some day."""
LONGEST = 60_000
"""Of the files that are damaged, in bytes: every part of small ones is hit soon."""
PATIENCE_S = 120
"""For one group of files, after which the process is hung."""
_TOGETHER = 40
_BACKENDS = (None, *registry.BUILTIN)
_SETTINGS = {"each": range(14), "together": range(0), "agree": range(len(_BACKENDS))}
"""What there is to ask of a child, and the numbers of the settings of that."""
_ODD_BYTES = (0, 1, 2, 3, 5, 7, 8, 9, 16, 17, 32, 64, 127, 128, 254, 255)


_LISTED = (
    ".jpg", ".jpeg", ".png", ".ppm", ".bmp", ".pgm", ".tif", ".tiff", ".webp", ".gif", ".jp2",
    ".j2k", ".avif", ".heic", ".heif",
)  # fmt: skip


class Case(NamedTuple):
    """A file, and the number of its damage; 0 is the intact file."""

    path: str
    number: int

    def __str__(self) -> str:
        name = Path(self.path).name
        return f"{name}, damage {self.number}" if self.number else name

    def read(self) -> bytes:
        data = Path(self.path).read_bytes()
        return _damaged(data, np.random.default_rng(self.number)) if self.number else data


class Report(NamedTuple):
    """How often each answer came, and the faults by case and setting."""

    answers: Counter[str]
    faults: list[str]

    def add(self, other: Report) -> None:
        self.answers.update(other.answers)
        self.faults.extend(other.faults)


def _damaged(data: bytes, random: np.random.Generator) -> bytes:
    """Flip, overwrite, insert, remove or cut one to four times, half of them near the start."""
    changed = bytearray(data)
    for _ in range(random.integers(1, 5)):
        if len(changed) < 8:
            break
        near = min(len(changed), 256 if random.random() < 0.5 else len(changed))
        at = int(random.integers(2, near))
        length = int(random.integers(1, 64))
        kind = random.choice(["flip", "set", "copy", "remove", "zeros", "cut"], p=_SHARES)
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


_SHARES = (0.3, 0.4, 0.08, 0.08, 0.08, 0.06)


def kinds(folder: Path) -> list[Path]:
    """Write a small file of every format, mode, depth and number of channels that is available."""
    for form, mode in product(_PILLOW_FORMATS, _PILLOW_MODES):
        with suppress(Exception):  # what Pillow does not write in that format
            _saved(folder / f"pillow_{mode.replace(';', '_')}.{form}", drawing(23, 17), mode)
    with suppress(ImportError):
        import imagecodecs

        for channels, bits in product((1, 2, 3, 4, 5, 9), (1, 4, 8, 10, 12, 16)):
            dtype = np.uint8 if bits <= 8 else np.uint16
            shape = (17, 23, channels) if channels > 1 else (17, 23)
            image = np.random.default_rng(bits).integers(0, 1 << bits, shape, dtype)
            for suffix, options in _CODECS.items():
                name, more = options
                with suppress(Exception):  # what the codec does not have
                    data = getattr(imagecodecs, name)(image, bitspersample=bits, **more)
                    (folder / f"codec_{channels}_{bits}.{suffix}").write_bytes(data)
    for name, (_, data) in DEEP.items():
        suffix = "png" if "PNG" in name else "tif"
        (folder / f"deep_{len(name)}_{name.split()[-1]}.{suffix}").write_bytes(data)
    return sorted(folder.iterdir())


def _saved(path: Path, image: Image.Image, mode: str) -> None:
    if mode == "I;16":
        deep = np.asarray(image.convert("L")).astype(np.uint16) * 257
        Image.fromarray(deep).save(path)
    else:
        image.convert(mode).save(path)


_PILLOW_FORMATS = (
    "png", "tif", "bmp", "gif", "webp", "avif", "jp2", "j2k", "jpg", "tga", "ppm", "ico", "sgi",
    "pcx", "dds", "im", "qoi", "icns", "msp", "xbm", "dib", "pfm",
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
    """Yield all files of the collection and of `kinds`, or some of them, and damaged ones.

    The files of `kinds` are written into the folder; `first` is the number of the first damage.
    """
    found = sorted(p for p in CORPUS.rglob("*") if p.is_file() and p.suffix not in (".csv", ".md"))
    found = [path for path in found if "licenses" not in path.parts] + kinds(folder)
    yield from (
        Case(str(path), 0) for path in found[:: max(1, len(found) // (files or len(found)))]
    )
    small = [path for path in found if 8 < path.stat().st_size <= LONGEST]
    for number in range(first, first + mutants):
        yield Case(str(small[number % len(small)]), number)


class Sweeper:
    """Runs in the child: decodes cases in all settings, and reports only faults."""

    def __init__(self) -> None:
        warnings.simplefilter("ignore")
        self._names = usable_backends()
        self._folder = tempfile.TemporaryDirectory()

    def each(self, group: Sequence[Case], settings: Sequence[int]) -> Report:
        """Decode each case in all settings, with the automatic choice and with a named backend."""
        report = Report(Counter(), [])
        with _patience():
            for case in group:
                data = case.read()
                for setting in settings:
                    options = self._options(setting, data, case)
                    shown = {k: "an array" if k == "out" else v for k, v in options.items()}
                    with _noted(report, f"{case}, {shown}"):
                        report.answers[_named(judged(data, options))] += 1
        return report

    def agree(self, group: Sequence[Case], settings: Sequence[int]) -> Report:
        """Decode each case with every backend, which must agree on JPEGs."""
        report = Report(Counter(), [])
        plain: tuple[dict[str, Any], ...] = (
            {"reduce": 4, "mode": "L"}, {"mode": "stored", "strict": True}, {},
        )  # fmt: skip
        for case in group:
            data, found = case.read(), {}
            with _patience():
                for name in [_BACKENDS[setting] for setting in settings]:
                    for options in plain if name in (None, *self._names) else ():
                        with _noted(report, f"{case}, {name}, {options}"):
                            found[name] = judged(data, {"backend": name, **options})
                            report.answers[_named(found[name])] += 1
            header = _probed(data)
            if header and header.format == "jpeg":
                with _noted(report, str(case)):
                    _compare(found, 1 if header.color == "cmyk" else 0)
        return report

    def together(self, group: Sequence[Case], settings: Sequence[int]) -> Report:
        """Run `decode_batch`, `Loader`, `check` and `pack` on all cases."""
        del settings
        report = Report(Counter(), [])
        named = ", ".join(map(str, group)) if len(group) < 4 else f"{len(group)} files"
        with _patience(), tempfile.TemporaryDirectory(dir=self._folder.name) as folder:
            source = Path(folder, "files")
            source.mkdir()
            paths = []
            for index, case in enumerate(group):
                data = case.read()
                if case.number and _promised(data) > PIXELS:
                    continue
                suffix = Path(case.path).suffix
                known = suffix.lower() in _LISTED  # else a folder would pass it over
                paths.append(source / f"{index:03}{suffix if known else '.jpg'}")
                paths[-1].write_bytes(data)
            for use in (_batch, _loader, _check, _pack) if paths else ():
                with _noted(report, f"{use.__name__} of {named}"):
                    report.answers.update(use(paths, source))
        return report

    def _options(self, setting: int, data: bytes, case: Case) -> dict[str, Any]:
        """Choose one of ten settings of the automatic choice, or one of four of a named backend."""
        region = _somewhere(data, case.number + setting)
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
        return {**chosen, "max_pixels": PIXELS} if case.number else chosen


@contextmanager
def _patience() -> Iterator[None]:
    """End the process if it hangs."""
    faulthandler.dump_traceback_later(PATIENCE_S, exit=True)
    yield
    faulthandler.cancel_dump_traceback_later()


@contextmanager
def _noted(report: Report, what: str) -> Iterator[None]:
    """Record an exception that should not be raised."""
    try:
        yield
    except MemoryError:
        report.answers["out of memory"] += 1
    except Exception as error:
        last = traceback.extract_tb(error.__traceback__)[-1]
        where = f"{Path(last.filename).name}:{last.lineno}"
        report.faults.append(f"{what}: {type(error).__name__}: {error} ({where})")


def judged(data: bytes, options: dict[str, Any]) -> Pixels | ValueError:
    """Return the pixels or an allowed error; raise any other error."""
    try:
        image = decode(data, **options)
    except FastDecodeError as error:
        culprit = _our_own(error)
        if culprit:
            raise AssertionError(f"the edge hid a fault of ours: {culprit}") from error
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


def _compare(found: dict[str | None, Pixels | ValueError], limit: int) -> None:
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


def _our_own(error: BaseException) -> str:
    """Name an exception behind a DecodeError that our code, not a library, has raised."""
    home = str(Path(fastdecode.__file__).parent)
    one: BaseException | None = error.__cause__
    while one is not None:
        last = traceback.extract_tb(one.__traceback__)[-1:] if one.__traceback__ else []
        ours = last and last[0].filename.startswith(home) and "adapters" not in last[0].filename
        if ours and not isinstance(one, FastDecodeError):
            return f"{type(one).__name__}: {one} ({last[0].filename}:{last[0].lineno})"
        one = one.__cause__
    return ""


def _probed(data: bytes) -> Header | None:
    with suppress(FastDecodeError):
        return probe(data)
    return None


def _promised(data: bytes) -> int:
    header = _probed(data)
    return header.width * header.height if header else 0


def _somewhere(data: bytes, number: int) -> Box:
    """Choose a region inside the size in the header."""
    header = _probed(data)
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


def _named(found: Pixels | ValueError) -> str:
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
            raise AssertionError(f"{given} and {loader.skipped} skipped of {len(paths)}")
        answers.update({"loader: pixels": given, "loader: skipped": loader.skipped})
    return answers


def _check(paths: Sequence[Path], source: Path) -> Counter[str]:
    del paths
    with open_store(source) as store:
        found, number = list(survey(store, 2)), len(store)
    if len(found) != number:
        raise AssertionError(f"check tells of {len(found)} of {number}")
    return Counter(f"check: {finding.status}" for finding in found)


def _pack(paths: Sequence[Path], source: Path) -> Counter[str]:
    del paths
    answers: Counter[str] = Counter()
    with open_store(source) as store:  # not every suffix is an image's
        number = len(store)
    for options in ({}, {"max_side": 24, "restart_markers": True}):
        target = source.parent / f"out{len(options)}.tar"
        try:
            packed = pack(source, target, skip_bad=True, threads=2, **options)
        except FastDecodeError:  # there is nothing good to pack
            answers["pack: nothing good"] += 1
            continue
        if packed.items + len(packed.bad) != number:
            raise AssertionError(f"{packed.items} packed, {len(packed.bad)} bad of {number}")
        answers.update({"pack: packed": packed.items, "pack: bad": len(packed.bad)})
    return answers


class _Process:
    """The child process, which is started again after it died."""

    def __init__(self, target: str) -> None:
        self._target = target
        self._child: Child | None = None

    def ask(self, method: str, group: Sequence[Case], settings: Sequence[int]) -> Report:
        """Run a method in the child; if it dies, find the case and the setting."""
        try:
            if self._child is None:
                self._child = Child(self._target)
                self._child.receive()
            answer: Report = self._child.ask(method, group, settings)
            return answer
        except ChildDied as died:
            self.close()
            if len(group) == 1 and len(settings) < 2:
                which = f" setting {settings[0]}" if settings else ""
                return Report(Counter(), [f"{group[0]},{which} {method}: {died}"])
            parts = [((case,), settings) for case in group]
            if len(group) == 1:
                parts = [((group[0],), (setting,)) for setting in settings]
            report = Report(Counter(), [])
            for part, chosen in parts:
                report.add(self.ask(method, part, chosen))
            if not report.faults:  # together they die, and alone they do not
                report.faults.append(f"{method} of {', '.join(map(str, group))}: {died}")
            return report

    def close(self) -> None:
        if self._child is not None:
            self._child.close()
            self._child = None


def sweep(
    todo: Sequence[Case],
    say: Callable[[str], object] | None = None,
    target: str = "sweep:Sweeper",
    methods: Sequence[str] = ("each", "together"),
) -> Report:
    """Run all methods on all cases, in children of the class `target`.

    `say` is called with the progress and with each fault.
    """
    report, process, begun = Report(Counter(), []), _Process(target), time.monotonic()
    try:
        for at in range(0, len(todo), _TOGETHER):
            group = todo[at : at + _TOGETHER]
            for method in methods:
                answer = process.ask(method, group, _SETTINGS[method])
                if method == "together" and answer.faults and len(group) > 1:
                    for case in group:
                        answer.faults.extend(process.ask(method, (case,), ()).faults)
                report.add(answer)
                for fault in answer.faults if say else ():
                    say(f"FAULT {fault}")
            if say and at // _TOGETHER % 10 == 0:
                done = min(at + _TOGETHER, len(todo))
                say(f"{done} of {len(todo)}, {time.monotonic() - begun:.0f} s")
    finally:
        process.close()
    return report


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def main(arguments: Sequence[str] | None = None) -> int:
    """Sweep with the options of the command line; the exit status is 1 if there is a fault."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None)
    parser.add_argument("--mutants", type=int, default=20_000, help="how many damaged files")
    parser.add_argument("--first", type=int, default=1, help="number of the first of them")
    parser.add_argument("--files", type=int, help="so many of the sound files (default: all)")
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
    import sweep as itself  # by the name that the child knows it by

    sys.exit(itself.main())
