"""Transforms of images, and of the bytes of an image file, with torchvision's names."""

from fastdecode.torch.transforms.base import EncodedTransform
from fastdecode.torch.transforms.blur import GaussianBlur
from fastdecode.torch.transforms.colours import (
    ColorJitter,
    Grayscale,
    RandomAdjustSharpness,
    RandomAutocontrast,
    RandomEqualize,
    RandomGrayscale,
    RandomInvert,
    RandomPosterize,
    RandomSolarize,
)
from fastdecode.torch.transforms.containers import Compose, RandomApply, RandomChoice, RandomOrder
from fastdecode.torch.transforms.conversions import (
    ConvertImageDtype,
    PILToTensor,
    RandomErasing,
    ToDtype,
    ToTensor,
)
from fastdecode.torch.transforms.crops import (
    RandomResizedCrop,
    RandomResizedCropFlipNormalize,
    Resize,
    ResizeCenterCrop,
    ResizeCenterCropNormalize,
)
from fastdecode.torch.transforms.geometry import (
    CenterCrop,
    Pad,
    RandomAffine,
    RandomCrop,
    RandomHorizontalFlip,
    RandomPerspective,
    RandomRotation,
    RandomVerticalFlip,
)
from fastdecode.torch.transforms.images import ImageTransform, InterpolationMode
from fastdecode.torch.transforms.multimodal import PadToSquare, SmartResize
from fastdecode.torch.transforms.normalize import IMAGENET_MEAN, IMAGENET_STD, Normalize
from fastdecode.torch.transforms.opencv import LetterBox, OpenCVResize
from fastdecode.torch.transforms.policies import (
    AugMix,
    AutoAugment,
    AutoAugmentPolicy,
    RandAugment,
    TrivialAugmentWide,
)

__all__ = [
    "IMAGENET_MEAN",
    "IMAGENET_STD",
    "AugMix",
    "AutoAugment",
    "AutoAugmentPolicy",
    "CenterCrop",
    "ColorJitter",
    "Compose",
    "ConvertImageDtype",
    "EncodedTransform",
    "GaussianBlur",
    "Grayscale",
    "ImageTransform",
    "InterpolationMode",
    "LetterBox",
    "Normalize",
    "OpenCVResize",
    "PILToTensor",
    "Pad",
    "PadToSquare",
    "RandAugment",
    "RandomAdjustSharpness",
    "RandomAffine",
    "RandomApply",
    "RandomAutocontrast",
    "RandomChoice",
    "RandomCrop",
    "RandomEqualize",
    "RandomErasing",
    "RandomGrayscale",
    "RandomHorizontalFlip",
    "RandomInvert",
    "RandomOrder",
    "RandomPerspective",
    "RandomPosterize",
    "RandomResizedCrop",
    "RandomResizedCropFlipNormalize",
    "RandomRotation",
    "RandomSolarize",
    "RandomVerticalFlip",
    "Resize",
    "ResizeCenterCrop",
    "ResizeCenterCropNormalize",
    "SmartResize",
    "ToDtype",
    "ToTensor",
    "TrivialAugmentWide",
]
