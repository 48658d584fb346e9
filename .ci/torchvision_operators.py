"""Declares the operators that torchvision's Python code describes, where it has not compiled them.

torchvision's wheels are built for CUDA: beside the CPU build of PyTorch their extensions cannot be
loaded. Transforms, datasets and models do without, but the import stops where two operators get
their shapes. `vision.sh` puts this file into an environment, for every interpreter to run; it loads
nothing until somebody imports torchvision.
"""

from __future__ import annotations

import sys
from typing import Any


class _BeforeTorchvision:
    """Finds no module, but sees that torchvision is looked for."""

    operators: Any = None  # they end with it

    def find_spec(self, name: str, _path: Any, _target: Any = None) -> None:
        if name == "torchvision":
            sys.meta_path.remove(self)  # type: ignore[arg-type]
            from torch.library import Library

            _BeforeTorchvision.operators = Library("torchvision", "DEF")
            for operator in ("nms", "qnms"):
                arguments = "(Tensor dets, Tensor scores, float iou_threshold)"
                self.operators.define(f"{operator}{arguments} -> Tensor")


sys.meta_path.insert(0, _BeforeTorchvision())  # type: ignore[arg-type]
