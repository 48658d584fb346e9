"""Transforms of images, and of the bytes of an image file, that torchvision does not have."""

from fastdecode.torch.transforms.base import EncodedTransform
from fastdecode.torch.transforms.blur import GaussianBlur
from fastdecode.torch.transforms.compose import Compose, ToTensor
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
    "Compose",
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
    "ToTensor",
]
