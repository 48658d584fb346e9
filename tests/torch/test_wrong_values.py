"""Every argument of every public function, with values of every wrong type."""

from __future__ import annotations

import inspect
import math
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import fastdecode
from fastdecode import FastDecodeError, Geometry, native, probe, stores, types
from fastdecode.testing import drawing, encode
from fastdecode.torch import (
    DecodeOptions,
    DevicePrefetcher,
    ImageFolder,
    ImageList,
    Loader,
    Normalize,
    ShardStream,
    StoreDataset,
    Views,
    fuse,
    transforms,
)

JPEG = encode(drawing(45, 30))
WRONG: list[Any] = [
    *([], {}, 3, 0, -1, 10**30, 1.5, math.nan, math.inf, True, None, "x", b"x", object()),
    *(np.arange(3.0), torch.ones(2, 2)),
    *([value] for value in ("x", 1.5, 10**30, -1, None)),
]
CALLED = {
    **dict.fromkeys(("data", "jpeg"), "data|bytes of an image"),
    **dict.fromkeys(("path_column", "target_column", "delimiter"), "column"),
    **dict.fromkeys(("store", "location"), "location|the list"),
    "items": "item 0|iterable",
    "preference": r"use\(\)",
    "index": "indices",
    "batch_sampler": "sampler",
    "mean": "std",
}
"""What an error calls an argument instead of its name."""
GIVEN: dict[str, Any] = {
    "size": 8,
    "resize": 9,
    "transforms": [transforms.ToTensor()],
}
"""Valid values of what the transforms need."""


class Call:
    """A call with valid arguments, and what its result is asked for."""

    def __init__(
        self, takes: Callable[..., Any], use: Callable[[Any], object] = type, **given: Any
    ) -> None:
        self.takes, self.use, self.given = takes, use, given

    def names(self) -> list[str]:
        """Return the names of all arguments, also of the ``**options``."""
        found: list[str] = []
        home = self.takes.__init__ if inspect.isclass(self.takes) else self.takes
        for each in inspect.signature(self.takes).parameters.values():
            if each.name == "dataset":  # which may be anything
                continue
            if each.kind in (each.POSITIONAL_OR_KEYWORD, each.KEYWORD_ONLY):
                found.append(each.name)
            elif unpacked := re.fullmatch(r"Unpack\[(\w+)\]", str(each.annotation)):
                options = inspect.unwrap(home).__globals__.get(unpacked[1])
                found += (options or getattr(types, unpacked[1])).__annotations__
        return list(dict.fromkeys(found))


def first(items: Any) -> object:
    return next(iter(items), None)


def transform_of(name: str) -> Call:
    """Return the call of a class, with what it needs and its own default of all else."""
    takes = getattr(transforms, name)
    if not callable(takes) or inspect.isabstract(takes):
        return Call(type)
    needed = inspect.signature(takes).parameters.values()
    return Call(takes, **{one.name: GIVEN[one.name] for one in needed if one.name in GIVEN})


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make a folder with images in two classes, a tar of them, and a table."""
    made = tmp_path_factory.mktemp("images")
    for name in ("a/1.jpg", "b/2.jpg"):
        (made / "train" / name).parent.mkdir(parents=True)
        (made / "train" / name).write_bytes(JPEG)
    with stores.create_store(made / "train.tar") as writer:
        writer.add("1.jpg", JPEG, 0)
    (made / "train.csv").write_text("train/a/1.jpg,0\ntrain/b/2.jpg,1\n")
    return made


def calls(folder: Path) -> dict[str, Call]:
    """Return the calls: of functions, of methods, and of classes with what they are used for."""
    paths = sorted(map(str, folder.glob("train/*/*")))
    dataset = ImageList(paths, output="tensor")
    loader, header = Loader(dataset, 2), probe(JPEG)
    geometry, tar = Geometry.of_decode(header), folder / "train.tar"
    several: dict[str, Any] = {"items": [JPEG, JPEG]}
    found = [
        Call(fastdecode.decode, data=JPEG),
        Call(fastdecode.decode_file, path=paths[0]),
        Call(fastdecode.decode_batch, **several),
        Call(fastdecode.decode_batch, **several, size=8),
        Call(fastdecode.decode_iter, list, **several),
        Call(fastdecode.probe, data=JPEG),
        Call(fastdecode.reduce_for, header=header, min_size=3),
        Call(fastdecode.use, preference=None),
        Call(fastdecode.stats),
        Call(fastdecode.register, name="never_used", backend="a:b", replace=True),
        Call(native.add_restart_markers, jpeg=JPEG),
        Call(Geometry.of_decode, header=header),
        Call(geometry.points, points=[(1, 2)]),
        Call(geometry.boxes, boxes=[(1, 2, 3, 4)]),
        Call(geometry.mask, mask=np.zeros((30, 45), np.uint8)),
        Call(stores.open_store, location=tar),
        Call(stores.kind_of, location=str(tar)),
        Call(ImageList, first, paths=paths),
        Call(ImageList.from_csv, first, file=folder / "train.csv"),
        Call(ImageFolder, first, root=folder / "train"),
        Call(StoreDataset, first, store=tar),
        Call(ShardStream, first, shards=tar, output="tensor"),
        Call(Loader, first, dataset=dataset, threads=0),  # processes end slowly after an error
        Call(DevicePrefetcher, loader=loader, device="cpu"),
        Call(dataset.__getitem__, index=0),
        Call(loader.set_epoch, epoch=1),
        Call(loader.load_state_dict, state=loader.state_dict()),
        Call(DecodeOptions),
        Call(Normalize),
        Call(fuse, transform=transforms.Resize(8)),
        Call(Views, views=transforms.Resize(8), count=2),
        *map(transform_of, transforms.__all__),
    ]
    found = [call for call in found if call.takes is not type]
    return {f"{at} {call.takes.__qualname__}": call for at, call in enumerate(found)}


def outcome(call: Call, name: str, value: Any) -> str:
    """Return what is wrong with what happens; empty if there is a result or a clear error."""
    allowed = TypeError, ValueError, FastDecodeError, OSError, IndexError
    try:
        call.use(call.takes(**{**call.given, name: value}))
    except allowed as error:
        words = f"{error} {getattr(error, 'filename', '')}"
        if isinstance(error, IndexError) and name not in ("index", "sampler", "batch_sampler"):
            return f"IndexError: {words}"
        known = rf"\b{name}\b|{CALLED.get(name, name)}"
        plain = isinstance(error, (FastDecodeError, OSError))
        return "" if plain or re.search(known, words) else f"{type(error).__name__}: {words}"
    except BaseException as error:
        return f"{type(error).__name__}: {error}"
    return ""


@pytest.mark.filterwarnings("ignore")
def test_a_wrong_value_gives_a_result_or_an_error_that_names_it(folder: Path) -> None:
    """An error names the argument that is wrong: none comes from deep inside."""
    tried = 0
    for called, call in calls(folder).items():
        for name in call.names():
            found = [(value, outcome(call, name, value)) for value in WRONG]
            tried += len(found)
            assert [pair for pair in found if pair[1]] == [], f"{called}({name}=)"
    fastdecode.use(None)
    assert tried > 4000


@pytest.mark.parametrize("how", [{}, {"threads": 0}, {"workers": 1}])
@pytest.mark.parametrize("batches", [False, True])
@pytest.mark.parametrize("index", [2, -3, 10**30, 0.0, 1.5, "x"])
def test_what_only_a_sampler_can_have_given_is_said_so(
    folder: Path, index: Any, batches: bool, how: dict[str, Any]
) -> None:
    """An index out of range, or none at all, is an error that names the sampler, in all workers."""
    dataset = ImageFolder(folder / "train", output="array")
    given: dict[str, Any]
    given = {"batch_sampler": [[0, index]]} if batches else {"sampler": [0, index], "batch_size": 2}

    with pytest.raises((IndexError, TypeError), match=r"sampler gave"):
        next(iter(Loader(dataset, **given, **how)))
