"""Doubles of torchvision's transforms: the names and attributes of its classes, no behaviour."""

from __future__ import annotations

from typing import Any

import torch

MEAN, STD = (0.4, 0.5, 0.6), (0.2, 0.3, 0.4)


def double(module: str, name: str, **attributes: Any) -> Any:
    """Make an object whose class has the module and name of torchvision's."""
    made = type(name, (), {"__module__": module, "__call__": _not_run, "forward": _not_run})()
    vars(made).update(attributes)
    return made


def _not_run(self: Any, *_: object) -> Any:
    raise AssertionError(f"{type(self).__name__} is a double: it was to be fused, not run")


def v1(name: str, **attributes: Any) -> Any:
    return double("torchvision.transforms.transforms", name, **attributes)


def v2(name: str, **attributes: Any) -> Any:
    return double(f"torchvision.transforms.v2._{name.lower()}", name, **attributes)


def timm(name: str, **attributes: Any) -> Any:
    return double("timm.data.transforms", name, **attributes)


BILINEAR = double("torchvision.transforms.functional", "InterpolationMode", value="bilinear")
NEAREST = double("torchvision.transforms.functional", "InterpolationMode", value="nearest")
BICUBIC = double("torchvision.transforms.functional", "InterpolationMode", value="bicubic")


def crop(make: Any = v1, **changed: Any) -> Any:
    ratio = changed.get("ratio", (0.75, 4 / 3))
    attributes = {
        "size": (64, 64),
        "scale": (0.08, 1.0),
        "ratio": ratio,
        "interpolation": BILINEAR,
        "antialias": True,
        **({"_log_ratio": torch.log(torch.tensor(ratio))} if make is v2 else {}),
    }
    return make("RandomResizedCrop", **attributes | changed)


def resize(size: Any = 64, make: Any = v1, **changed: Any) -> Any:
    attributes = {"size": size, "interpolation": BILINEAR, "max_size": None, "antialias": True}
    return make("Resize", **attributes | changed)


def center(size: Any = (48, 48)) -> Any:
    return v1("CenterCrop", size=size)


def flip(p: float = 0.5) -> Any:
    return v1("RandomHorizontalFlip", p=p)


def normalize(mean: Any = MEAN, std: Any = STD) -> Any:
    return v1("Normalize", mean=mean, std=std, inplace=False)


def compose(*parts: Any) -> Any:
    return v1("Compose", transforms=list(parts))


TENSOR = v1("ToTensor")
FLOAT = v2("ToDtype", dtype=torch.float32, scale=True)
