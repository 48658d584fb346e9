"""Hugging Face's image processors as `transform=`, compared with their own results."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import pytest
import torch
from PIL import Image as PillowImage
from same import assert_same

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
    "MobileNet": ("MobileNetV1", {}),
    "MobileNet V2": ("MobileNetV2", {}),
    "PVT": ("Pvt", {}),
    "SegFormer": ("Segformer", {"size": {"height": 150, "width": 190}}),
    "SegFormer, labels": ("Segformer", {"do_reduce_labels": True}),
}
OF_ANY_SIZE: dict[str, dict[str, Any]] = {
    "DETR": {},
    "DETR, limited": {"size": {"shortest_edge": 301, "longest_edge": 333}},
    "DETR, of the same size": {"size": {"shortest_edge": 480, "longest_edge": 900}},
}
OF_PATCHES: dict[str, dict[str, Any]] = {
    "Qwen2-VL": {},
    "Qwen2-VL, small": {"size": {"shortest_edge": 28 * 28, "longest_edge": 100 * 28 * 28}},
    "Qwen2-VL, large": {"size": {"shortest_edge": 3000 * 784, "longest_edge": 9000 * 784}},
    "Qwen2-VL, bilinear": {"resample": 2, "do_normalize": False},
    "Qwen3-VL": {"patch_size": 16, "image_mean": [0.5] * 3, "image_std": [0.5] * 3},
    "other patches": {"patch_size": 10, "merge_size": 3, "temporal_patch_size": 1},
}
PADDED: dict[str, dict[str, Any]] = {
    "LLaVA": {},
    "LLaVA, 336": {"size": {"shortest_edge": 336}, "crop_size": {"height": 336, "width": 336}},
    "LLaVA, not cropped": {"size": {"height": 300, "width": 200}, "do_center_crop": False},
    "LLaVA, bilinear": {"resample": 2, "image_mean": [0.1, 0.5, 0.9]},
}
NOT_FUSED: dict[str, tuple[str, dict[str, Any]]] = {
    "another filter": ("ViT", {"resample": 1}),
    "another scale": ("ViT", {"rescale_factor": 1 / 127.5}),
    "a crop that exceeds the image": ("CLIP", {"crop_size": {"height": 300, "width": 300}}),
    "no crop": ("CLIP", {"do_center_crop": False}),
    "another class": ("PoolFormer", {}),
    "multiples": ("DPT", {"ensure_multiple_of": 14}),
    "the aspect ratio": ("DPT", {"keep_aspect_ratio": True}),
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

    assert "PixelValues" in repr(dataset)
    assert dataset.isolated
    [(batch, _)] = Loader(dataset, len(PHOTOS), threads=2)
    level = torch.tensor(processor.image_std).view(3, 1, 1) if processor.do_normalize else 1
    for photo, image in zip(PHOTOS, batch, strict=True):
        expected = _own_result(processor, photo)
        assert image.dtype == torch.float32
        assert image.shape == expected.shape
        assert (255 * level * (image - expected)).abs().max() < 1.01
    assert_same(dataset[0][0], batch[0])


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

    assert_same(dataset[0][0], _own_result(processor, PHOTOS[0]))


@pytest.mark.parametrize("way", ["", "Pil"])
@pytest.mark.parametrize("name", OF_PATCHES)
def test_patches_are_the_processors(name: str, way: str) -> None:
    """Qwen2-VL's processor makes patches of images of any size, of which none is left out."""
    processor = _processor("Qwen2VL", way, OF_PATCHES[name])
    dataset = pickle.loads(pickle.dumps(ImageList(PHOTOS, [0] * len(PHOTOS), processor)))

    assert "PixelValues" in repr(dataset)
    assert dataset.isolated
    made = [batch[0] for batch in Loader(dataset, 1, threads=2)]
    for at, photo in enumerate(PHOTOS):
        with PillowImage.open(photo) as file:
            expected = processor(file.convert("RGB"), return_tensors="pt")["pixel_values"]
        assert made[at].shape[1:] == expected.shape == dataset[at][0].shape
        assert_same(made[at][0], dataset[at][0], photo)
        level = min(processor.image_std) if processor.do_normalize else 1
        assert (255 * level * (made[at][0] - expected)).abs().max() < 1.01


def test_an_image_that_is_too_narrow_is_an_error_as_written(tmp_path: Path) -> None:
    """Qwen2-VL refuses a side of more than 200 times the other one."""
    PillowImage.new("RGB", (2010, 10)).save(tmp_path / "narrow.png")
    dataset = ImageList([tmp_path / "narrow.png"], [0], _processor("Qwen2VL", "Pil", {}))
    for read in (lambda: dataset[0], lambda: next(iter(Loader(dataset, 1)))):
        with pytest.raises(ValueError, match=r"aspect ratio"):
            read()


@pytest.mark.parametrize("way", ["", "Pil"])
@pytest.mark.parametrize("name", PADDED)
def test_padded_squares_are_the_processors(name: str, way: str) -> None:
    """LLaVA's processor pads an image with its mean to a square, which the core does, too."""
    processor = _processor("Llava", way, {**PADDED[name], "do_pad": True})
    dataset = pickle.loads(pickle.dumps(ImageList(PHOTOS, [0] * len(PHOTOS), processor)))

    assert "PadToSquare" in repr(dataset)
    assert dataset.isolated
    [(batch, _)] = Loader(dataset, len(PHOTOS), threads=2)
    level = torch.tensor(processor.image_std).view(3, 1, 1)
    for at, photo in enumerate(PHOTOS):
        expected = _own_result(processor, photo)
        assert batch[at].shape == expected.shape
        for image in (batch[at], dataset[at][0]):
            assert (255 * level * (image - expected)).abs().max() < 1.01


@pytest.mark.parametrize("name", NOT_FUSED)
def test_others_are_called_with_the_image(name: str) -> None:
    """The result is the pixel values in any case, and never a dictionary."""
    processor = _processor(NOT_FUSED[name][0], "", NOT_FUSED[name][1])
    expected = _own_result(processor, PHOTOS[0])

    assert not isinstance(fuse(processor), Fused)
    assert_same(ImageList(PHOTOS[:1], [0], processor)[0][0], expected)


def test_not_fused_on_request() -> None:
    """With ``fuse=False``, the processor itself is called."""
    processor = transformers.CLIPImageProcessor()
    dataset = ImageList(PHOTOS[:1], [0], processor, fuse=False)
    assert_same(dataset[0][0], _own_result(processor, PHOTOS[0]))
    assert dataset.sample_shape is None
