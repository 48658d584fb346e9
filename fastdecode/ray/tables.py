"""Arrow tables of pictures: what Ray Data's blocks are made of."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from ray.data.extensions import ArrowTensorArray, ArrowVariableShapedTensorArray

if TYPE_CHECKING:
    from fastdecode.ray.options import Options

__all__ = ["image_column", "label_column", "label_type", "nothing"]


def image_column(images: Any, options: Options) -> Any:
    """Make a tensor column.

    Parameters
    ----------
    images : ndarray of uint8, (N, H, W[, C]), or list of N ndarrays
        At least one. An array is not copied.
    options : Options

    Returns
    -------
    pyarrow.Array
        Of one fixed shape if the options have a size, else of variable shapes, even if all of them
        happen to be equal: so all blocks have one schema.
    """
    if options.size is not None:
        return ArrowTensorArray.from_numpy(images)
    return ArrowVariableShapedTensorArray.from_numpy(images)


def nothing(options: Options) -> Any:
    """Make an image column of no rows, with the type of the others."""
    size = options.size or (1, 1)
    return image_column(np.zeros((1, *size, *options.channels), np.uint8), options)[:0]


def label_type(target: Any) -> Any:
    """Choose the type of a label column by its first target.

    Returns
    -------
    pyarrow.DataType or None
        None leaves it to pyarrow: for lists and dicts.
    """
    # A bool is an int to Python.
    kinds = ((bool, pa.bool_()), (int, pa.int64()), (float, pa.float64()), (str, pa.string()))
    return next((arrow for kind, arrow in kinds if isinstance(target, kind)), None)


def label_column(targets: Sequence[Any], kind: Any) -> Any:
    """Make a label column.

    Raises
    ------
    ValueError
        If a target is of another kind than the first one of the store.
    """
    try:
        return pa.array(targets, kind)
    except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
        raise ValueError(
            f"the targets are of several kinds, and a column has one ({error}): "
            "include_labels=False leaves them out"
        ) from error
