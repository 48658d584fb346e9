"""Doubles of torchvision's and timm's transforms that also do what these do.

`v1`, `v2` and `timm` have the classes that the tests of pipelines need. Pillow images get Pillow's
results, and tensors those of torchvision's functions for tensors.
"""

from __future__ import annotations

from types import ModuleType, SimpleNamespace
from typing import Any

import torch
from PIL import Image as PillowImage
from PIL import ImageEnhance, ImageOps
from torch_reference import center_crop, crop_params
from torchvision_doubles import BICUBIC, BILINEAR


class Image(torch.Tensor):
    """torchvision's class of images, which of all operations only a copy keeps."""

    @classmethod
    def __torch_function__(
        cls, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        with torch._C.DisableTorchFunctionSubclass():
            made = function(*args, **(kwargs or {}))
            if not isinstance(made, torch.Tensor):
                return made
            return made.as_subclass(cls if function is torch.Tensor.clone else torch.Tensor)

    def __deepcopy__(self, _: Any) -> Any:
        return self.clone()


TV_TENSORS = ModuleType("torchvision.tv_tensors")
TV_TENSORS.Image = Image  # type: ignore[attr-defined]
Mode = SimpleNamespace(BILINEAR=BILINEAR, BICUBIC=BICUBIC)


def as_tensor(image: PillowImage.Image) -> torch.Tensor:
    """Return a Pillow image as bytes (C, H, W)."""
    pixels = torch.frombuffer(bytearray(image.tobytes()), dtype=torch.uint8)
    return pixels.view(image.height, image.width, -1).permute(2, 0, 1).contiguous()


def as_pillow(pixels: torch.Tensor) -> PillowImage.Image:
    """Return bytes (3, H, W) as a Pillow image."""
    return PillowImage.fromarray(pixels.permute(1, 2, 0).contiguous().numpy())


def is_pillow(image: Any) -> bool:
    """Return whether it is a Pillow image; raise if it is no image at all."""
    if not isinstance(image, (PillowImage.Image, torch.Tensor)):
        raise TypeError(f"{type(image).__name__} is no image")
    return isinstance(image, PillowImage.Image)


def _plain(image: torch.Tensor) -> torch.Tensor:
    return image.as_subclass(torch.Tensor)


def _bytes(image: torch.Tensor) -> torch.Tensor:
    if image.dtype != torch.uint8:
        raise TypeError("this double takes bytes only")
    return _plain(image)


class _Double:
    """A transform; `pillow` and `tensor` are what it does to an image of either form."""

    _transformed_types: Any = (PillowImage.Image, torch.Tensor)

    def __init__(self, **attributes: Any) -> None:
        vars(self).update(attributes)

    def __call__(self, image: Any) -> Any:
        """Return the result, of torchvision's class if `image` is and the transform is of v2."""
        return self.forward(image)

    def forward(self, image: Any) -> Any:
        """Do it; a subclass may override this."""
        if is_pillow(image) and isinstance(image, self._transformed_types):
            return self.pillow(image)
        if not isinstance(image, self._transformed_types):
            return image
        made = self.tensor(_plain(image))
        keeps = type(self).__module__.startswith(_V2) and type(image) is Image
        return made.as_subclass(Image) if keeps and isinstance(made, torch.Tensor) else made

    def pillow(self, image: PillowImage.Image) -> Any:
        return as_pillow(self.tensor(as_tensor(image)))

    def tensor(self, image: torch.Tensor) -> Any:
        raise TypeError(f"{type(self).__name__} takes no tensors")


class _PillowOnly(_Double):
    """One that v2 does not apply to tensors, and v1 refuses there."""

    def tensor(self, image: torch.Tensor) -> Any:
        if not type(self).__module__.startswith(_V2):
            raise TypeError(f"{type(self).__name__} takes no tensors")
        return image


class Resize(_Double):
    def __init__(
        self, size: Any, interpolation: Any = BILINEAR, max_size: Any = None, antialias: Any = True
    ) -> None:
        super().__init__(
            size=size, interpolation=interpolation, max_size=max_size, antialias=antialias
        )

    def _sides(self, height: int, width: int) -> tuple[int, int]:
        if isinstance(self.size, tuple):
            return self.size
        short, long = sorted((height, width))
        new_short, new_long = self.size, int(self.size * long / short)
        if self.max_size is not None and new_long > self.max_size:
            new_short, new_long = int(self.max_size * new_short / new_long), self.max_size
        return (new_short, new_long) if height <= width else (new_long, new_short)

    def pillow(self, image: PillowImage.Image) -> Any:
        sides = self._sides(image.height, image.width)
        return image.resize(sides[::-1], PillowImage.Resampling[self.interpolation.value.upper()])

    def tensor(self, image: torch.Tensor) -> Any:
        sides, mode = self._sides(*image.shape[1:]), self.interpolation.value
        if image.shape[1:] == sides:
            return image
        return torch.nn.functional.interpolate(image[None], sides, mode=mode, antialias=True)[0]


class RandomResizedCrop(Resize):
    def __init__(
        self, size: Any, scale: Any, ratio: Any, interpolation: Any = BILINEAR, **options: Any
    ) -> None:
        super().__init__(size, interpolation, **options)
        vars(self).update(scale=scale, ratio=ratio, _log_ratio=torch.log(torch.tensor(ratio)))

    def pillow(self, image: PillowImage.Image) -> Any:
        top, left, height, width = crop_params(image.height, image.width, self.scale, self.ratio)
        return super().pillow(image.crop((left, top, left + width, top + height)))

    def tensor(self, image: torch.Tensor) -> Any:
        top, left, height, width = crop_params(*image.shape[1:], self.scale, self.ratio)
        return super().tensor(image[:, top : top + height, left : left + width])


class CenterCrop(_Double):
    def __init__(self, size: Any) -> None:
        super().__init__(size=size)

    def tensor(self, image: torch.Tensor) -> Any:
        return center_crop(image, self.size)


class RandomCrop(_Double):
    """Without padding."""

    def __init__(self, size: Any) -> None:
        super().__init__(
            size=size, padding=None, pad_if_needed=False, fill=0, padding_mode="constant"
        )

    def tensor(self, image: torch.Tensor) -> Any:
        (height, width), (rows, columns) = self.size, image.shape[1:]
        if rows < height or columns < width:
            raise ValueError(f"a crop of {self.size} is larger than {(rows, columns)}")
        top, left = (int(torch.randint(0, n + 1, (1,))) for n in (rows - height, columns - width))
        return image[:, top : top + height, left : left + width]


class _Random(_Double):
    def __init__(self, p: float, **attributes: Any) -> None:
        super().__init__(p=p, **attributes)

    def forward(self, image: Any) -> Any:
        return super().forward(image) if torch.rand(1) < self.p else image


class RandomHorizontalFlip(_Random):
    def tensor(self, image: torch.Tensor) -> Any:
        return image.flip(-1)


class RandomVerticalFlip(_Random):
    def tensor(self, image: torch.Tensor) -> Any:
        return image.flip(-2)


class RandomInvert(_Random):
    def tensor(self, image: torch.Tensor) -> Any:
        return 255 - _bytes(image)


class RandomPosterize(_Random):
    def __init__(self, bits: int, p: float) -> None:
        super().__init__(p, bits=bits)

    def tensor(self, image: torch.Tensor) -> Any:
        return _bytes(image) & (256 - 2 ** (8 - self.bits))


class RandomSolarize(_Random):
    def __init__(self, threshold: float, p: float) -> None:
        super().__init__(p, threshold=threshold)

    def tensor(self, image: torch.Tensor) -> Any:
        return torch.where(_bytes(image) >= self.threshold, 255 - image, image)


class RandomEqualize(_Random):
    def pillow(self, image: PillowImage.Image) -> Any:
        return ImageOps.equalize(image)


class ColorJitter(_Double):
    def __init__(self, brightness: tuple[float, float]) -> None:
        super().__init__(brightness=brightness, contrast=None, saturation=None, hue=None)

    def pillow(self, image: PillowImage.Image) -> Any:
        return ImageEnhance.Brightness(image).enhance(self._factor())

    def tensor(self, image: torch.Tensor) -> Any:
        return (_bytes(image) * self._factor()).clamp(0, 255).to(torch.uint8)

    def _factor(self) -> float:
        torch.randperm(4)
        return float(torch.empty(1).uniform_(*self.brightness))


class Grayscale(_Double):
    def __init__(self, num_output_channels: int) -> None:
        super().__init__(num_output_channels=num_output_channels)

    def pillow(self, image: PillowImage.Image) -> Any:
        grey = image.convert("L")
        return PillowImage.merge("RGB", [grey] * 3) if self.num_output_channels == 3 else grey

    def tensor(self, image: torch.Tensor) -> Any:
        shares = torch.tensor([0.2989, 0.587, 0.114]).view(3, 1, 1)
        grey = (_bytes(image) * shares).sum(0, keepdim=True).to(torch.uint8)
        return grey.expand(self.num_output_channels, -1, -1)


class ToTensor(_PillowOnly):
    def pillow(self, image: PillowImage.Image) -> Any:
        return as_tensor(image) / 255


class PILToTensor(_PillowOnly):
    def pillow(self, image: PillowImage.Image) -> Any:
        return as_tensor(image)


class ToImage(_Double):
    def forward(self, image: Any) -> Any:
        return (as_tensor(image) if is_pillow(image) else image).as_subclass(Image)


class Identity(_Double):
    def forward(self, image: Any) -> Any:
        return image


class RGB(Identity):
    pass


class ToPureTensor(_Double):
    def forward(self, image: Any) -> Any:
        return image if is_pillow(image) else _plain(image)


class ToDtype(_Double):
    def __init__(self, dtype: torch.dtype, scale: bool = False) -> None:
        super().__init__(dtype=dtype, scale=scale)

    def pillow(self, image: PillowImage.Image) -> Any:
        return image

    def tensor(self, image: torch.Tensor) -> Any:
        made = image.to(self.dtype)
        from_bytes = self.scale and image.dtype == torch.uint8 and made.is_floating_point()
        return made / 255 if from_bytes else made


class ConvertImageDtype(ToDtype):
    def __init__(self, dtype: torch.dtype) -> None:
        super().__init__(dtype, scale=True)
        del self.scale

    scale = True

    def pillow(self, image: PillowImage.Image) -> Any:
        raise TypeError("ConvertImageDtype takes no Pillow images")


class Normalize(_Double):
    def __init__(self, mean: Any, std: Any) -> None:
        super().__init__(mean=mean, std=std, inplace=False)

    def pillow(self, image: PillowImage.Image) -> Any:
        raise TypeError("Normalize takes no Pillow images")

    def tensor(self, image: torch.Tensor) -> Any:
        if not image.is_floating_point():
            raise TypeError("Normalize takes floats")
        mean, std = (torch.tensor(values).view(-1, 1, 1) for values in (self.mean, self.std))
        return (image - mean) / std


class RandomErasing(_Random):
    def __init__(self, p: float, scale: Any, ratio: Any, value: float) -> None:
        super().__init__(p, scale=scale, ratio=ratio, value=value, inplace=False)

    def pillow(self, image: PillowImage.Image) -> Any:
        raise TypeError("RandomErasing takes no Pillow images")

    def tensor(self, image: torch.Tensor) -> Any:
        (height, width), (share, ratio) = image.shape[1:], (self.scale[0], self.ratio[0])
        h, w = (round((height * width * share * r) ** 0.5) for r in (ratio, 1 / ratio))
        if h >= height or w >= width:
            return image
        top, left = int(torch.randint(height - h + 1, ())), int(torch.randint(width - w + 1, ()))
        image = image.clone()
        image[:, top : top + h, left : left + w] = self.value
        return image


class Compose(_Double):
    def __init__(self, transforms: Any) -> None:
        super().__init__(transforms=transforms)

    def forward(self, image: Any) -> Any:
        for part in self.transforms:
            image = part(image)
        return image


class RandomApply(Compose):
    def __init__(self, transforms: Any, p: float) -> None:
        super().__init__(transforms)
        self.p = p

    def forward(self, image: Any) -> Any:
        return super().forward(image) if torch.rand(1) < self.p else image


class RandomOrder(Compose):
    """It is only used with one part."""


class RandomChoice(Compose):
    """It is only used where the first is chosen."""

    def __init__(self, transforms: Any, p: Any = None) -> None:
        super().__init__(transforms)
        self.p = p or [1.0]

    def forward(self, image: Any) -> Any:
        return self.transforms[0](image)


class MaybeToTensor(ToTensor):
    _transformed_types = PillowImage.Image


class MaybePILToTensor(PILToTensor):
    _transformed_types = PillowImage.Image


class TimmToTensor(PILToTensor):
    def __init__(self) -> None:
        super().__init__(dtype=torch.float32)

    def pillow(self, image: PillowImage.Image) -> Any:
        return as_tensor(image).float()


_V2 = "torchvision.transforms.v2."
_ONLY_V2 = (Identity, RGB, ToDtype, ToImage, ToPureTensor)
_BOTH = {
    "_color": (ColorJitter, Grayscale, RandomEqualize, RandomInvert, RandomPosterize,
               RandomSolarize),
    "_container": (Compose, RandomApply, RandomChoice, RandomOrder),
    "_geometry": (CenterCrop, RandomCrop, RandomHorizontalFlip, RandomResizedCrop,
                  RandomVerticalFlip, Resize),
    "_augment": (RandomErasing,),
    "_misc": (ConvertImageDtype, Normalize, PILToTensor, ToTensor),
}  # fmt: skip


def _in(module: str, kinds: Any) -> dict[str, Any]:
    """Return classes as if they were those of a module."""
    names = {kind: kind.__name__.removeprefix("Timm") for kind in kinds}
    return {
        name: type(name, (kind,), {"__module__": module, "__qualname__": name})
        for kind, name in names.items()
    }


_PARTS = [(f"{_V2}{name}", kinds) for name, kinds in {**_BOTH, "_type": _ONLY_V2}.items()]
v1 = SimpleNamespace(
    **_in("torchvision.transforms.transforms", [kind for kinds in _BOTH.values() for kind in kinds])
)
v2 = SimpleNamespace(**{k: v for module, kinds in _PARTS for k, v in _in(module, kinds).items()})
timm = SimpleNamespace(
    **_in("timm.data.transforms", (MaybeToTensor, MaybePILToTensor, TimmToTensor))
)
