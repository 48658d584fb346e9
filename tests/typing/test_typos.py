"""A typo in any option of any public function is an error for a type checker.

`python tests/typing/test_typos.py` writes `typos.py`, with one call for each. `.ci/lint.sh` does so
before mypy and pyright, which complain of every comment there that hides no error.
"""

from __future__ import annotations

import importlib
import inspect
import re
from pathlib import Path
from typing import Any

_FILE = Path(__file__).with_name("typos.py")
_CALLS = {
    "fastdecode": (
        'decode(b"")',
        'decode_file("a.jpg")',
        "decode_batch([])",
        "decode_iter([])",
        'reduce_for(fastdecode.probe(b""), 1)',
        "stats()",
        'Geometry.of_decode(fastdecode.probe(b""))',
    ),
    "fastdecode.torch": (
        'ImageFolder("train")',
        'ImageList(["a.jpg"])',
        'ImageList.from_csv("a.csv")',
        'StoreDataset("a.tar")',
        "DecodeDataset()",
        "DecodeOptions()",
        'ShardStream("a.tar")',
        'Loader(fastdecode.torch.ImageFolder("train"))',
        'DevicePrefetcher([1], "cuda")',
        "fuse(None)",
    ),
    "fastdecode.torch.transforms": (
        "RandomResizedCrop(8)",
        "RandomResizedCropFlipNormalize(8)",
        "Resize(8)",
        "ResizeCenterCrop(8, 8)",
        "ResizeCenterCropNormalize(8, 8)",
    ),
    "fastdecode.stores": ('open_store("a.tar")', 'create_store("a.tar")'),
    "fastdecode.packing": ('pack("a", "b.tar")',),
    "fastdecode.ray": ('read_images("train")', "decode_images(None)"),
}
"""Public functions and classes with options, each in a call that is right."""

_OVERLOADED = ("decode_batch", "decode_iter")
_OPTIONS = {
    "DecodeKeywords": "fastdecode.types",
    "BatchOptions": "fastdecode.types",
    "DatasetOptions": "fastdecode.torch._options",
    "DataLoaderOptions": "fastdecode.torch._loader.arguments",
    "CropOptions": "fastdecode.torch.transforms.crops",
    "QualityOptions": "fastdecode.torch.transforms.crops",
    "StoreOptions": "fastdecode.stores.base",
    "RowOptions": "fastdecode.ray.images",
}
"""Where the types of ``**options`` are."""


def _options(function: Any) -> list[str]:
    """List what may be given by name, and may be left out."""
    names = []
    for name, parameter in inspect.signature(function).parameters.items():
        if parameter.kind is parameter.VAR_KEYWORD:
            kind = re.fullmatch(r"Unpack\[(\w+)\]", parameter.annotation)
            assert kind, f"{function.__name__} takes any option: {parameter.annotation}"
            module = importlib.import_module(_OPTIONS[kind[1]])
            names += getattr(module, kind[1]).__annotations__
        elif parameter.default is not parameter.empty:
            names.append(name)
    return names


def program() -> str:
    """Write a program with a call for each option, whose name is wrong by one character."""
    lines = [
        '"""Every call is an error; `test_typos.py` wrote this, and says what it is for."""',
        "",
        *(f"import {module}" for module in sorted(_CALLS)),
        "",
    ]
    for module, calls in _CALLS.items():
        for call in calls:
            name = call.split("(")[0]
            function: Any = importlib.import_module(module)
            for part in name.split("."):
                function = getattr(function, part)
            code = "call-overload" if name in _OVERLOADED else "call-arg"
            before = "" if call.endswith("()") else ", "
            lines += (
                f"{module}.{call[:-1]}{before}{option}_=None)  # type: ignore[{code}]"
                for option in _options(function)
            )
    return "\n".join([*lines, ""])


if __name__ == "__main__":
    _FILE.write_text(program(), encoding="utf-8")
