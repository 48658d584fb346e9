"""Hugging Face's image processors as `transform=`, compared with their own results."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import pytest
import torch
from PIL import Image as PillowImage

import fastdecode
from fastdecode.torch import Fused, ImageList, Loader, fuse

pytest.importorskip("torchvision")
transformers = pytest.importorskip("transformers")

PHOTOS = sorted((Path(fastdecode.__file__).parent / "samples").glob("*.jpg"))
ODD = {"shortest_edge": 225}, {"height": 200, "width": 222}

FUSED: dict[str, tuple[str, dict[str, Any]]] = {
    "CLIP": ("CLIP", {}),
    "CLIP, odd margins": ("CLIP", {"size": ODD[0], "crop_size": ODD[1]}),
    "ViT": ("ViT", {}),
    "ViT, bicubic, not normalised": ("ViT", {"resample": 3, "do_normalize": False}),
    "SigLIP": ("Siglip", {"size": {"height": 150, "width": 190}}),
    "ConvNeXT": ("ConvNext", {"size": {"shortest_edge": 224}, "crop_pct": 0.875}),
    "ConvNeXT, large": ("ConvNext", {}),
    "DINOv2": ("Bit", {"size": {"shortest_edge": 256}}),
    "DeiT": ("DeiT", {}),
    "BEiT": ("Beit", {}),
    "BEiT, cropped": (
        "Beit",
        {"size": {"height": 256, "width": 256}, "do_center_crop": True},
    ),
    "DPT": ("DPT", {}),
    "LLaVA": ("Llava", {}),
}
OF_ANY_SIZE: dict[str, dict[str, Any]] = {
    "DETR": {},
    "DETR, limited": {"size": {"shortest_edge": 301, "longest_edge": 333}},
    "DETR, of the same size": {"size": {"shortest_edge": 480, "longest_edge": 900}},
}
NOT_FUSED: dict[str, tuple[str, dict[str, Any]]] = {
    "another filter": ("ViT", {"resample": 1}),
    "another scale": ("ViT", {"rescale_factor": 1 / 127.5}),
    "a crop that exceeds the image": ("CLIP", {"crop_size": {"height": 300, "width": 300}}),
    "no crop": ("CLIP", {"do_center_crop": False}),
    "another class": ("MobileNetV2", {}),
    "multiples": ("DPT", {"ensure_multiple_of": 14}),
    "the aspect ratio": ("DPT", {"keep_aspect_ratio": True}),
    "a square": ("Llava", {"do_pad": True}),
    "a fixed size": ("Detr", {"size": {"height": 300, "width": 200}}),
}


def _processor(model: str, way: str, options: dict[str, Any]) -> Any:
    kind = getattr(transformers, f"{model}ImageProcessor{way}", None)
    if kind is None:
        pytest.skip(f"no {model}ImageProcessor{way} in this version")
    return kind(**options)


def _own_result(processor: Any, path: Path) -> torch.Tensor:
    with PillowImage.open(path) as file:
        return processor(file.convert("RGB"), return_tensors="pt")["pixel_values"][0]


@pytest.mark.parametrize("way", ["", "Pil"])
@pytest.mark.parametrize("name", FUSED)
def test_pixels_are_the_processors(name: str, way: str) -> None:
    """Within one level of 255, from `dataset[i]` and in a batch of `Loader`."""
    processor = _processor(FUSED[name][0], way, FUSED[name][1])
    dataset = pickle.loads(pickle.dumps(ImageList(PHOTOS, [0] * len(PHOTOS), processor)))

    assert "fused: PixelValues" in repr(dataset)
    assert dataset.isolated
    [(batch, _)] = Loader(dataset, len(PHOTOS), threads=2)
    level = torch.tensor(processor.image_std).view(3, 1, 1) if processor.do_normalize else 1
    for photo, image in zip(PHOTOS, batch, strict=True):
        expected = _own_result(processor, photo)
        assert image.dtype == torch.float32
        assert image.shape == expected.shape
        assert (255 * level * (image - expected)).abs().max() < 1.01
    assert torch.equal(dataset[0][0], batch[0])


@pytest.mark.parametrize("way", ["", "Pil"])
@pytest.mark.parametrize("name", OF_ANY_SIZE)
def test_results_of_any_size_are_the_processors(name: str, way: str) -> None:
    """DETR's sides depend on the image; it rounds them in a way of its own."""
    processor = _processor("Detr", way, OF_ANY_SIZE[name])
    dataset = ImageList(PHOTOS, [0] * len(PHOTOS), processor)
    level = torch.tensor(processor.image_std).view(3, 1, 1)

    assert dataset.isolated
    for at, photo in enumerate(PHOTOS):
        expected = _own_result(processor, photo)
        assert dataset[at][0].shape == expected.shape
        assert (255 * level * (dataset[at][0] - expected)).abs().max() < 1.01


def test_a_replaced_method_is_called() -> None:
    """A processor that has one of its own is called with the image."""
    processor = _processor("CLIP", "Pil", {})
    made = processor.normalize
    processor.normalize = lambda *arguments, **options: -made(*arguments, **options)
    dataset = ImageList(PHOTOS[:1], [0], processor)

    assert torch.equal(dataset[0][0], _own_result(processor, PHOTOS[0]))


def test_all_patches_of_an_image_are_returned() -> None:
    """Qwen2-VL's processor makes patches, of which none is left out."""
    processor = _processor("Qwen2VL", "", {})
    with PillowImage.open(PHOTOS[0]) as file:
        expected = processor(file.convert("RGB"), return_tensors="pt")["pixel_values"]

    assert torch.equal(ImageList(PHOTOS[:1], [0], processor)[0][0], expected)


@pytest.mark.parametrize("name", NOT_FUSED)
def test_others_are_called_with_the_image(name: str) -> None:
    """The result is the pixel values in any case, and never a dictionary."""
    processor = _processor(NOT_FUSED[name][0], "", NOT_FUSED[name][1])
    expected = _own_result(processor, PHOTOS[0])

    assert not isinstance(fuse(processor), Fused)
    assert torch.equal(ImageList(PHOTOS[:1], [0], processor)[0][0], expected)


def test_not_fused_on_request() -> None:
    """With ``fuse=False``, the processor itself is called."""
    processor = transformers.CLIPImageProcessor()
    dataset = ImageList(PHOTOS[:1], [0], processor, fuse=False)
    assert torch.equal(dataset[0][0], _own_result(processor, PHOTOS[0]))
    assert dataset.sample_shape is None
