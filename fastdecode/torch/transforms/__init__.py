"""Transforms that take the bytes of an image file and decode only the part that is used."""

from fastdecode.torch.transforms.base import EncodedTransform
from fastdecode.torch.transforms.blur import GaussianBlur
from fastdecode.torch.transforms.crops import (
    RandomResizedCrop,
    RandomResizedCropFlipNormalize,
    Resize,
    ResizeCenterCrop,
    ResizeCenterCropNormalize,
)
from fastdecode.torch.transforms.multimodal import PadToSquare, SmartResize
from fastdecode.torch.transforms.normalize import IMAGENET_MEAN, IMAGENET_STD, Normalize
from fastdecode.torch.transforms.opencv import LetterBox, OpenCVResize

__all__ = [
    "IMAGENET_MEAN",
    "IMAGENET_STD",
    "EncodedTransform",
    "GaussianBlur",
    "LetterBox",
    "Normalize",
    "OpenCVResize",
    "PadToSquare",
    "RandomResizedCrop",
    "RandomResizedCropFlipNormalize",
    "Resize",
    "ResizeCenterCrop",
    "ResizeCenterCropNormalize",
    "SmartResize",
]
