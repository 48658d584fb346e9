"""What does the core's own decoder of baseline JPEG gain?

    python bench/decoder.py FOLDER [--rounds 9] [--limit N] [--json FILE]

FOLDER holds JPEG photos. One thread, bytes in memory, three questions:

- Stages: where the decoder's time goes, and its entropy decoding beside libjpeg-turbo's
  `decode_mcu` (`decoder_stages.c`, compiled with the flags of the core).
- Calls: ``decode(data, reduce=...)`` beside every other backend that decodes JPEG, by name, and
  beside the core when it leaves all files to libjpeg-turbo. Photos of 4:4:4 are made of the others
  by Pillow, at quality 90, because few cameras write them.
- Left: the same photos as kinds of file that the decoder leaves to libjpeg-turbo (progressive,
  CMYK), with the decoder switched on and off.

In each round all take turns, file by file, in an order drawn anew. Quoted are medians of the
rounds, and of the ratios within a round. `limit.py` measures tensors, `pipeline.py` the `Loader`.
"""

from __future__ import annotations

import argparse
import gc
import io
import json
import os
import random
import shlex
import subprocess
import sysconfig
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

import simplejpeg
from PIL import Image
from record import record
from reference import photos_in

from fastdecode import backends, decode
from fastdecode.native import _build, library

_REDUCES = (1, 2, 4, 8)
_OWN, _LIBJPEG = "decode()", "decode(), libjpeg-turbo"
_WITHOUT = frozenset({"torchvision", "torchcodec", "nvimgcodec", "dali"})  # for tensors, or batches


def stages(photos: Sequence[Path], rounds: int) -> dict[str, Any]:
    """Compile and run `decoder_stages.c`: microseconds, the mean of the files."""
    how = _build.options()
    native = Path(_build.__file__).parent
    source = Path(__file__).with_name("decoder_stages.c")
    compiler = shlex.split(os.environ.get("CC") or sysconfig.get_config_var("CC") or "cc")
    with tempfile.TemporaryDirectory() as folder:
        program = Path(folder, "stages")
        command = [
            *compiler,
            *how["extra_compile_args"],
            *(f"-I{path}" for path in how["include_dirs"]),
            str(source),
            *(str(path) for path in sorted(native.glob("*.c")) if path.name[0] != "_"),
            *(f"-L{path}" for path in how["library_dirs"]),
            *(f"-l{name}" for name in how["libraries"]),
            *("-o", str(program)),
        ]
        command.remove(str(native / "rows.c"))  # it includes that one
        subprocess.run(command, check=True)
        done = subprocess.run(
            [program, str(rounds), *photos], check=True, capture_output=True, text=True
        )
    found: dict[str, Any] = json.loads(done.stdout)
    found["entropy_ratio"] = round(found["mcus"] / (found["entropy"] - found["prepared"]), 3)
    found["entropy_ratio_prepared"] = round(found["mcus"] / found["entropy"], 3)
    found["whole_ratio"] = round(found["libjpeg"] / found["pixels"], 3)
    return found


def _again(photo: bytes, **options: Any) -> bytes:
    """Encode a photo anew."""
    file = io.BytesIO()
    with Image.open(io.BytesIO(photo)) as image:
        image.convert(options.pop("mode", "RGB")).save(file, "JPEG", **options)
    return file.getvalue()


def by_sampling(files: Sequence[bytes]) -> dict[str, list[bytes]]:
    """Group photos by how their chroma is sampled."""
    found: dict[str, list[bytes]] = {}
    for data in files:
        found.setdefault(simplejpeg.decode_jpeg_header(data)[3], []).append(data)
    if len(found.get("444", ())) < len(found["420"]):
        found["444"] = [_again(data, quality=90, subsampling=0) for data in found["420"]]
    return {name: found[name] for name in ("444", "420")}


Call = Callable[[bytes], object]


def take_turns(
    files: Sequence[bytes], calls: Mapping[str, Call], rounds: int
) -> dict[str, list[float]]:
    """Time calls, file by file: milliseconds a file, by call and round."""
    found: dict[str, list[float]] = {name: [] for name in calls}
    names = list(calls)
    gc.collect()
    gc.disable()
    for turn in range(rounds + 1):
        spent = dict.fromkeys(names, 0.0)
        for data in files:
            random.shuffle(names)
            for name in names:
                # Who left a file to libjpeg-turbo does so by a switch that holds for all.
                library.lib.fd_use_decoder(b"libjpeg" if name == _LIBJPEG else b"")
                start = perf_counter()
                calls[name](data)
                spent[name] += perf_counter() - start
        if turn:  # the first is the warm-up
            for name in names:
                found[name].append(1000 * spent[name] / len(files))
    library.lib.fd_use_decoder(b"")
    gc.enable()
    return found


def summary(found: Mapping[str, Sequence[float]]) -> dict[str, Any]:
    """Sum up: milliseconds, and how many times as long as `decode()` the others take."""
    return {
        name: {
            "ms": round(median(spent), 4),
            "ratio": round(
                median(other / own for other, own in zip(spent, found[_OWN], strict=True)), 3
            ),
        }
        for name, spent in sorted(found.items(), key=lambda pair: median(pair[1]))
    }


def _call(backend: str | None, reduce: int) -> Call:
    options: dict[str, Any] = {"reduce": reduce} | ({"backend": backend} if backend else {})
    return lambda data: decode(data, **options)


def calls(files: Sequence[bytes], rounds: int) -> dict[str, Any]:
    """Compare `decode()` with every backend by name, at each reduction."""
    others = [
        info.name
        for info in backends()
        if info.usable and "jpeg" in info.formats and info.name not in _WITHOUT | {"native"}
    ]
    result: dict[str, Any] = {}
    for sampling, group in by_sampling(files).items():
        for reduce in _REDUCES:
            lanes = {_OWN: _call("native", reduce), _LIBJPEG: _call("native", reduce)}
            lanes |= {name: _call(name, reduce) for name in others}
            found = summary(take_turns(group, lanes, rounds))
            fastest = next(name for name in found if name in others)
            title = f"4:{sampling[1]}:{sampling[2]}, 1/{reduce}"
            result[title] = {"files": len(group), "fastest_other": fastest, **found}
            print(
                f"{title:<12}{found[_OWN]['ms']:8.3f} ms;  {fastest} {found[fastest]['ratio']:.2f},"
                f"  the core by libjpeg-turbo {found[_LIBJPEG]['ratio']:.2f} times as long",
                flush=True,
            )
    return result


def left(files: Sequence[bytes], rounds: int) -> dict[str, Any]:
    """Compare files that are left to libjpeg-turbo, with and without the decoder."""
    kinds = {
        "progressive": [_again(data, quality=90, progressive=True) for data in files],
        "CMYK": [_again(data, mode="CMYK", quality=90) for data in files],
    }
    result = {}
    for kind, group in kinds.items():
        lanes = {_OWN: _call("native", 1), _LIBJPEG: _call("native", 1)}
        result[kind] = summary(take_turns(group, lanes, rounds))
        ratio = result[kind][_LIBJPEG]["ratio"]
        print(f"{kind}: {100 / ratio - 100:+.2f} % of time for files that are left", flush=True)
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("folder", type=Path, metavar="FOLDER")
    parser.add_argument("--rounds", type=int, default=9, help="after the warm-up")
    parser.add_argument("--limit", type=int, metavar="N", help="photos")
    parser.add_argument("--json", type=Path, metavar="FILE")
    options = parser.parse_args()
    library.require()
    photos = photos_in(options.folder)[: options.limit]
    files = [photo.read_bytes() for photo in photos]
    result: dict[str, Any] = {"stages": stages(photos, options.rounds)}
    print(json.dumps(result["stages"]), flush=True)
    result["calls"] = calls(files, options.rounds)
    result["left"] = left(files, options.rounds)
    if options.json:
        settings = {"photos": options.folder.resolve().name, "rounds": options.rounds}
        settings["core"] = library.codec()
        print(record(str(options.json.resolve().with_suffix("")), result, **settings))


if __name__ == "__main__":
    main()
