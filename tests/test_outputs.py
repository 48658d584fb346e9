"""What pixels are handed out as."""

from __future__ import annotations

import numpy as np
import pytest
from PIL import Image as PillowImage

from fastdecode._pixels import converter
from fastdecode.testing import picture


def test_array_is_the_array() -> None:
    """An array is handed out as it is."""
    image = np.asarray(picture(13, 7))

    assert converter("array")(image) is image


def test_pillow_image_has_the_pixels() -> None:
    """A Pillow image has the same pixels, and its own memory."""
    image = np.array(picture(13, 7))
    made = converter("pil")(image)

    assert isinstance(made, PillowImage.Image)
    assert (np.asarray(made) == image).all()
    assert made.size == (13, 7)


def test_tensor_shares_the_memory() -> None:
    """A tensor has the channels first, and is a view of the array."""
    torch = pytest.importorskip("torch", reason="tensors are PyTorch's")
    image = np.array(picture(13, 7))
    made, gray = converter("tensor")(image), converter("tensor")(image[:, :, 0])

    assert isinstance(made, torch.Tensor)
    assert tuple(made.shape) == (3, 7, 13)
    assert tuple(gray.shape) == (7, 13)
    image[2, 5] = 77
    assert made[:, 2, 5].tolist() == [77, 77, 77]
