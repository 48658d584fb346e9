"""What users read when something goes wrong: golden texts, which ``--regenerate`` writes anew."""

from __future__ import annotations

import io
import re
import struct
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from corpus import leave_only
from doubles import double, refuse, restore_registry
from PIL import Image
from tars import numbered, write_tar

import fastdecode
from fastdecode import (
    Geometry,
    decode,
    decode_batch,
    decode_file,
    decode_iter,
    probe,
    reduce_for,
    register,
    use,
)
from fastdecode.packing import pack
from fastdecode.stores import create_store, open_store
from fastdecode.testing import drawing, encode

JPEG, PNG = encode(drawing(64, 48)), encode(drawing(64, 48), "png")
CUT = JPEG[: len(JPEG) // 2] + b"\xff\xd9"
HUGE = JPEG.replace(struct.pack(">HH", 48, 64), struct.pack(">HH", 60_000, 60_000))
READ_ONLY = np.zeros((48, 64, 3), np.uint8)
READ_ONLY.flags.writeable = False
Calls = dict[str, Callable[[], Any]]


def damaged(data: bytes) -> bytes:
    """Change a byte in the middle."""
    return data[: len(data) // 2] + bytes([data[len(data) // 2] ^ 1]) + data[len(data) // 2 + 1 :]


def saved(form: str, mode: str = "RGB") -> bytes:
    return encode(Image.new(mode, (16, 16)), form)


FILES: Calls = {
    "a cut JPEG": lambda: decode_file("cut.jpg"),
    "a cut JPEG, by name": lambda: decode_file("cut.jpg", backend="pillow"),
    "a cut JPEG, in a batch": lambda: decode_batch(["good.jpg", "cut.jpg"]),
    "a damaged PNG": lambda: decode(damaged(PNG)),
    "a missing file": lambda: decode_file("missing.jpg"),
    "a folder": lambda: decode_file("."),
    "an empty file": lambda: decode(b""),
    "no image": lambda: decode(b"no image at all"),
    "a page of HTML": lambda: decode(b"<!DOCTYPE html><html>"),
    "a header alone": lambda: decode(JPEG[:30]),
    "a header alone, probed": lambda: probe(PNG[:20]),
    "another format": lambda: decode(saved("ICO")),
    "no format of images": lambda: decode(b"%PDF-1.7\n"),
    "too many pixels": lambda: decode(HUGE),
    "a limit of one's own": lambda: decode_file("good.jpg", max_pixels=100),
    "a backend of another format": lambda: decode(saved("GIF"), backend="refusing"),
    "floats as colours": lambda: decode(saved("TIFF", "F")),
    "imread": lambda: fastdecode.imread("cut.jpg"),
}
ARGUMENTS: Calls = {
    "a path in the place of bytes": lambda: decode("photo.jpg"),
    "bytes in the place of a path": lambda: decode_file(JPEG),
    "an open file": lambda: decode(io.BytesIO(JPEG)),
    "a decoded image": lambda: decode(np.zeros((30, 45, 3), np.uint8)),
    "a wrong reduce": lambda: decode(JPEG, 3),
    "a wrong mode": lambda: decode(JPEG, mode="BGR"),
    "a wrong min_size": lambda: decode(JPEG, min_size=(1, 2, 3)),
    "min_size and reduce": lambda: decode(JPEG, 2, min_size=8),
    "a wrong max_pixels": lambda: decode(JPEG, max_pixels=0),
    "a region of three": lambda: decode(JPEG, region=(0, 0, 5)),
    "a region without pixels": lambda: decode(JPEG, region=(5, 5, 5, 9)),
    "a region beyond the image": lambda: decode(JPEG, region=(0, 0, 65, 5)),
    "an out of another shape": lambda: decode(JPEG, out=np.zeros((3, 3, 3), np.uint8)),
    "an out that is read-only": lambda: decode(JPEG, out=READ_ONLY),
    "an unknown backend": lambda: decode(JPEG, backend="pilow"),
    "a misspelt option": lambda: decode(JPEG, regoin=(0, 0, 5, 5)),
    "another library's option": lambda: decode_batch([JPEG], num_workers=2),
    "an unknown option": lambda: decode_file("cat.jpg", colour="grey"),
    "no header": lambda: reduce_for(JPEG, 3),
    "one image for a batch": lambda: decode_batch(JPEG),
    "no threads": lambda: decode_batch([JPEG], threads=0),
    "an unknown on_error": lambda: decode_batch([JPEG], on_error="ignore"),
    "a size and a side": lambda: decode_batch([JPEG], size=8, max_side=8),
    "too little room": lambda: decode_batch([JPEG] * 2, out=[READ_ONLY]),
    "outs that overlap": lambda: decode_batch([JPEG] * 2, out=[np.zeros((48, 64, 3), "u1")] * 2),
    "an item of another kind": lambda: decode_batch([JPEG, 5]),
    "nothing ahead": lambda: decode_iter([JPEG], ahead=0),
    "boxes of three": lambda: Geometry((0, 0, 8, 8), (8, 8)).boxes([1, 2, 3]),
    "a mask of another size": lambda: Geometry((0, 0, 8, 8), (8, 8), full_size=(9, 9)).mask(
        np.zeros((3, 3))
    ),
    "a region of no image": lambda: Geometry((0, 0, 8, 8), (8, 8)).region,
    "an unknown preference": lambda: use("pilow"),
    "a missing library": lambda: decode(JPEG, backend="absent"),
    "a name that is taken": lambda: register("pillow", "module:Class"),
    "no class named": lambda: register("mine", "module"),
    "when all refuse": lambda: decode(PNG, backend="refusing"),
}
STORES: Calls = {
    "a missing store": lambda: open_store("missing.tar"),
    "an unknown kind": lambda: open_store("good.jpg"),
    "an unknown kind to write": lambda: create_store("out.xyz"),
    "a store that is there": lambda: create_store("three.tar"),
    "an item beyond the end": lambda: open_store("three.tar").read(3),
    "a cut tar": lambda: open_store("cut.tar"),
    "a list of a missing file": lambda: open_store("list.csv").read(0),
    "a list in UTF-16": lambda: open_store("utf16.csv"),
    "an empty folder": lambda: open_store("empty"),
    "pack of a damaged file": lambda: pack("photos", "out.tar"),
    "pack over a store": lambda: pack("photos", "three.tar"),
}


def _loader(**options: Any) -> Callable[[], Any]:
    def call() -> Any:
        from fastdecode.torch import ImageList, Loader

        dataset = options.pop("dataset", None) or ImageList(["good.jpg", "cut.jpg"], [0, 1])
        with Loader(dataset, **{"seed": 0, "threads": 1, **options}) as loader:
            return list(loader)

    return call


LOADER: Calls = {
    "a damaged file": _loader(collate_fn=list),
    "images without a transform": _loader(),
    "a path for a dataset": _loader(dataset="train"),
    "no batch size": _loader(batch_size=0),
    "a misspelt argument": _loader(batchsize=4),
    "a text for shuffle": _loader(shuffle="no"),
    "shuffle and a sampler": _loader(shuffle=True, sampler=[1]),
    "a rank alone": _loader(rank=1),
    "threads and workers": _loader(workers=1),
    "a wrong timeout": _loader(timeout=-1),
    "what has no meaning": _loader(in_order=False),
    "worker_init_fn and threads": _loader(worker_init_fn=len),
    "normalize_on and collate_fn": _loader(normalize_on="device", device="meta"),
    "a device that is none": _loader(device=1.5),
    "an empty batch": _loader(batch_sampler=[[]]),
    "a transform of another size": _loader(decode="pillow"),
}


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make the files that the calls name, in the current folder; leave Pillow and two doubles."""
    leave_only(monkeypatch, "pillow")
    restore_registry(monkeypatch)
    register("absent", "no_such_module:Thing", distribution="absent-plugin")
    register("refusing", double(refuse(ValueError("too odd"))))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "good.jpg").write_bytes(JPEG)
    (tmp_path / "cut.jpg").write_bytes(CUT)
    for folder in ("photos", "empty"):
        (tmp_path / folder).mkdir()
    (tmp_path / "photos" / "1.jpg").write_bytes(CUT)
    write_tar(tmp_path / "three.tar", numbered(3))
    (tmp_path / "cut.tar").write_bytes((tmp_path / "three.tar").read_bytes()[:700])
    (tmp_path / "list.csv").write_text("path,label\nnone.jpg,cat\n")
    (tmp_path / "utf16.csv").write_text("path\na.jpg\n", encoding="utf-16")


@pytest.mark.usefixtures("place")
@pytest.mark.parametrize(
    ("name", "calls"),
    [("files", FILES), ("arguments", ARGUMENTS), ("stores", STORES), ("loader", LOADER)],
    ids=lambda given: given if isinstance(given, str) else "",
)
def test_messages(name: str, calls: Calls, golden: Callable[..., None], tmp_path: Path) -> None:
    """Each error has its type and the words of the golden text, which name the file or argument."""
    if name == "loader":
        pytest.importorskip("torch")
    lines = []
    for what, call in calls.items():
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                call()
        except Exception as error:
            words = re.sub(r"(there are|Usable here): .*", r"\1: …", str(error))
            words = words.replace(f"{tmp_path}/", "")
            lines.append(f"{what}\n    {type(error).__name__}: {words}\n")
        else:
            pytest.fail(f"{what} is no error")
    golden(f"{name}.txt", "\n".join(lines))
