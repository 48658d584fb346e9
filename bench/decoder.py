"""What does the core's own decoder of baseline JPEG gain?

PHOTOS contains JPEG photos. One thread decodes bytes in memory. There are three measurements:

- Stages: where the decoder spends its time, and its entropy decoding compared with libjpeg-turbo's
  `decode_mcu` (`decoder_stages.c`, compiled with the flags of the core).
- Calls: ``decode(data, reduce=...)`` compared with every other backend that decodes JPEG, by name,
  and with the core when it leaves all files to libjpeg-turbo. Few cameras write 4:4:4, so Pillow
  makes such photos from the others, at quality 90. It also makes those of 4:2:0 if there are none.
- Left: the same photos in forms that the decoder leaves to libjpeg-turbo (progressive, CMYK), with
  the decoder switched on and off.

In each round all take turns, file by file, in a new random order. The figures are medians of the
rounds, and medians of the ratios within a round. `limit.py` measures tensors, `pipeline.py` the
`Loader`.
"""

from __future__ import annotations

import ctypes
import io
import json
import os
import shlex
import subprocess
import sysconfig
import tempfile
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from statistics import mean
from typing import Any

import _common as bench
import simplejpeg
from PIL import Image

from fastdecode import backends, decode, probe
from fastdecode.native import _build, _library

_STAGES = ("prepared", "entropy", "samples", "pixels", "mcus")  # in the order of decoder_stages.c
_REDUCES = (1, 2, 4, 8)
_OWN, _LIBJPEG = "decode()", "decode(), libjpeg-turbo"
_WITHOUT = frozenset({"torchvision", "torchcodec", "nvimgcodec", "dali"})  # of tensors, or batches


def stages(files: Sequence[bytes], rounds: int) -> dict[str, Any]:
    """Compile `decoder_stages.c` and time its stages in turn; return microseconds.

    A figure is the mean over the files that the decoder accepts, of the fastest round of each file.
    """
    how = _build.options()
    native = Path(_build.__file__).parent
    source = Path(__file__).with_name("decoder_stages.c")
    compiler = shlex.split(os.environ.get("CC") or sysconfig.get_config_var("CC") or "cc")
    others = {*native.glob("*.c")} - {*native.glob("_*.c"), native / "rows.c"}  # it includes that
    with tempfile.TemporaryDirectory() as folder:
        library = Path(folder, "stages.so")
        command = [
            *(*compiler, "-shared", "-fPIC", *how["extra_compile_args"], "-fvisibility=default"),
            *(f"-I{path}" for path in how["include_dirs"]),
            *map(str, (source, *sorted(others))),
            *(f"-L{path}" for path in how["library_dirs"]),
            *(f"-l{name}" for name in how["libraries"]),
            *("-o", str(library)),
        ]
        subprocess.run(command, check=True)
        time_of = ctypes.CDLL(str(library)).stage_us
    time_of.restype = ctypes.c_double
    taken = []
    for data in files:
        header = probe(data)
        out = ctypes.create_string_buffer(3 * header.width * header.height)
        spent = [
            [time_of(stage, data, len(data), out) for stage in range(len(_STAGES))]
            for _ in range(rounds + 1)
        ]
        if min(map(min, spent)) >= 0:  # it is not left to libjpeg-turbo
            taken.append([min(times) for times in zip(*spent[1:], strict=True)])
    means = (round(mean(times), 2) for times in zip(*taken, strict=True))
    found: dict[str, Any] = {"files": len(taken), **dict(zip(_STAGES, means, strict=True))}
    found["entropy_ratio"] = round(found["mcus"] / (found["entropy"] - found["prepared"]), 3)
    return found


def _again(photo: bytes, **options: Any) -> bytes:
    """Encode a photo again."""
    file = io.BytesIO()
    with Image.open(io.BytesIO(photo)) as image:
        image.convert(options.pop("mode", "RGB")).save(file, "JPEG", **options)
    return file.getvalue()


def by_sampling(files: Sequence[bytes]) -> dict[str, list[bytes]]:
    """Group photos by chroma sampling; make photos of a sampling that has too few."""
    found: dict[str, list[bytes]] = {}
    for data in files:
        found.setdefault(simplejpeg.decode_jpeg_header(data)[3], []).append(data)
    photos = found.get("420") or [_again(data, quality=90, subsampling=2) for data in files]
    full = found.get("444", [])
    if len(full) < len(photos):
        full = [_again(data, quality=90, subsampling=0) for data in photos]
    return {"444": full, "420": photos}


Call = Callable[[bytes], object]


def compare(files: Sequence[bytes], calls: Mapping[str, Call], rounds: int) -> dict[str, Any]:
    """Time calls: milliseconds per file, and how many times as long as `decode()` each takes."""

    def switch(name: str) -> None:
        # The switch is global, so it is set before each turn.
        _library.lib.fd_use_decoder(b"libjpeg" if name == _LIBJPEG else b"")

    turns = bench.time_each(lambda _: files, calls, rounds, before=switch)
    switch(_OWN)
    found = bench.sum_up(turns, "ms", ratio=_OWN)
    return dict(sorted(found.items(), key=lambda pair: pair[1]["ms"]))


def _calls(names: Sequence[str], reduce: int) -> dict[str, Call]:
    """Return the calls: the core with its own decoder and without it, and the other backends."""
    core = partial(decode, reduce=reduce, backend="native")
    others = {name: partial(decode, reduce=reduce, backend=name) for name in names}
    return {_OWN: core, _LIBJPEG: core, **others}


def all_calls(files: Sequence[bytes], rounds: int) -> dict[str, Any]:
    """Compare `decode()` with each named backend, at each reduction."""
    others = [
        info.name
        for info in backends()
        if info.usable and "jpeg" in info.formats and info.name not in _WITHOUT | {"native"}
    ]
    result: dict[str, Any] = {}
    for sampling, group in by_sampling(files).items():
        for reduce in _REDUCES:
            found = compare(group, _calls(others, reduce), rounds)
            fastest = next(name for name in found if name in others)
            title = f"4:{sampling[1]}:{sampling[2]}, 1/{reduce}"
            result[title] = {"files": len(group), "fastest_other": fastest, **found}
            bench.show(title, found)
    return result


def left(files: Sequence[bytes], rounds: int) -> dict[str, Any]:
    """Time files that are left to libjpeg-turbo, with and without the core's own decoder."""
    kinds = {
        "progressive": [_again(data, quality=90, progressive=True) for data in files],
        "CMYK": [_again(data, mode="CMYK", quality=90) for data in files],
    }
    result = {kind: compare(group, _calls([], 1), rounds) for kind, group in kinds.items()}
    for kind, found in result.items():
        bench.show(f"{kind}, left to libjpeg-turbo", found)
    return result


@bench.command(rounds=(9, "after the warm-up"), limit=(None, "photos"))
def main(options: Any) -> Any:
    _library.require()
    photos = bench.photos_in(options.photos)[: options.limit]
    files = [photo.read_bytes() for photo in photos]
    result: dict[str, Any] = {"stages": stages(files, options.rounds)}
    print(json.dumps(result["stages"]), flush=True)
    result["calls"] = all_calls(files, options.rounds)
    result["left"] = left(files, options.rounds)
    return result


if __name__ == "__main__":
    main()
