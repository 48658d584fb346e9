"""`ImageFolder`: torchvision's dataset of that name, decoded with fastdecode."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from fastdecode._arguments import check_kinds, wrong_kind
from fastdecode._error_policy import mark_if_folder_vanished
from fastdecode.stores import _scan
from fastdecode.stores._scan import EXTENSIONS
from fastdecode.torch._options import DatasetOptions
from fastdecode.torch.dataset import DecodeDataset, Settings, standard_transform

if TYPE_CHECKING:
    from typing_extensions import TypeVar, Unpack

    from fastdecode.geometry import Geometry

    Target = TypeVar("Target", default=int)
else:
    from typing import TypeVar

    Target = TypeVar("Target")


class ImageFolder(DecodeDataset["tuple[Any, Target]"]):
    """A folder of images with one subfolder per class, like torchvision's ``ImageFolder``.

    Parameters
    ----------
    root : path
        The folder whose subfolders are the classes. Files may lie in them at any depth.
    transform : callable, optional
        As for `DecodeDataset`. torchvision transforms get Pillow images, or run while decoding.
    target_transform : callable, optional
        Called with the class index.
    loader : callable, optional
        Called with the path; it returns the image. fastdecode then neither decodes nor fuses.
    is_valid_file : callable, optional
        Called with a path; it returns whether to include the file. Use it instead of `extensions`.
    allow_empty : bool
        Accept class folders without files.
    extensions : sequence of str, optional
        The extensions of files to include, in lower case; by default torchvision's
        `IMG_EXTENSIONS`, and those of the other formats that `decode` reads, as for `StoreDataset`.
    **options
        Those of `DecodeOptions`, by name: reduce, min_size, mode, orient, max_pixels, backend,
        output, on_error, fuse, quality, headroom.

    Attributes
    ----------
    classes : list of str
        Names of the classes, in the order of their indices.
    class_to_idx : dict of str to int
        The index of each class.
    samples, imgs : list of (path, class index)
        The same list under two names.
    targets : list of int
        The class index of each sample.
    root, loader, extensions, is_valid_file, allow_empty, transform, target_transform, transforms
        As given, or torchvision's defaults; `extensions` has more by default, such as .gif, .avif
        and .jxl.

    Raises
    ------
    FileNotFoundError
        `root` has no class folder, or a class has no files.
    TypeError
        `root` is no path, or a transform or the loader cannot be called.
    ValueError
        Both `extensions` and `is_valid_file` are given, or options contradict each other.

    Examples
    --------
    >>> from fastdecode.torch import ImageFolder
    >>> from fastdecode.torch.transforms import ResizeCenterCropNormalize
    >>> dataset = ImageFolder("train", transform=ResizeCenterCropNormalize(256, 224))
    >>> image, target = dataset[0]
    >>> image.shape, dataset.classes[target]
    (torch.Size([3, 224, 224]), 'bird')
    """

    _loader: Callable[[str], Any] | None = None
    _torchvision_class = "ImageFolder"

    def __init__(
        self,
        root: str | os.PathLike[str],
        transform: Callable[..., Any] | None = None,
        target_transform: Callable[[int], Target] | None = None,
        loader: Callable[[str], Any] | None = None,
        is_valid_file: Callable[[str], bool] | None = None,
        allow_empty: bool = False,
        *,
        extensions: Sequence[str] | None = None,
        **options: Unpack[DatasetOptions],
    ) -> None:
        if not isinstance(root, (str, os.PathLike)):
            raise wrong_kind("root", "the path of a folder", root)
        check_kinds(
            {
                "loader": loader,
                "is_valid_file": is_valid_file,
                "allow_empty": allow_empty,
                "extensions": extensions,
            }
        )
        # A string stays a string, as in torchvision.
        self.root = os.path.expanduser(root) if isinstance(root, str) else root  # noqa: PTH111
        self._loader = loader
        super().__init__(transform, target_transform, **options)
        if extensions is None and is_valid_file is None:
            extensions = EXTENSIONS
        self.extensions = extensions
        self.is_valid_file = is_valid_file
        self.allow_empty = allow_empty
        self.classes, self.class_to_idx = self.find_classes(self.root)
        self.samples = self.make_dataset(
            self.root,
            class_to_idx=self.class_to_idx,
            extensions=extensions,
            is_valid_file=is_valid_file,
            allow_empty=allow_empty,
        )
        self.imgs = self.samples
        self.targets = [target for _, target in self.samples]

    def find_classes(self, directory: str | os.PathLike[str]) -> tuple[list[str], dict[str, int]]:
        """Return the class names and the index of each; a subclass may override this."""
        return _scan.find_classes(directory)

    @staticmethod
    def make_dataset(
        directory: str | os.PathLike[str],
        class_to_idx: dict[str, int],
        extensions: str | Sequence[str] | None = None,
        is_valid_file: Callable[[str], bool] | None = None,
        allow_empty: bool = False,
    ) -> list[tuple[str, int]]:
        """Return (path, class index) of every sample; a subclass may override this.

        Raises
        ------
        FileNotFoundError
            A class has no files, and `allow_empty` is false.
        ValueError
            `class_to_idx` is None or empty, or not exactly one of `extensions` and `is_valid_file`
            is given.
        """
        if class_to_idx is None:  # listing classes here would ignore a subclass's find_classes
            raise ValueError("The class_to_idx parameter cannot be None.")
        return _scan.make_dataset(directory, class_to_idx, extensions, is_valid_file, allow_empty)

    def __len__(self) -> int:
        return len(self.samples)

    def read(self, index: int) -> tuple[str, Any]:
        """Return the path of a sample and its class index."""
        return self.samples[index]

    @property
    def loader(self) -> Callable[[str], Any]:
        """The caller's loader, or a function that decodes a path as `output` says."""
        return self._loader or self._decode_for_loader

    @loader.setter
    def loader(self, loader: Callable[[str], Any] | None) -> None:
        self._loader = None if loader == self._decode_for_loader else loader
        self.__dict__.pop("_resolved", None)  # whether a transform may be fused depends on it

    def __setattr__(self, name: str, value: Any) -> None:
        super().__setattr__(name, value)
        if name in ("transform", "target_transform") and value is not None:
            self.transforms = standard_transform(self)

    @property
    def transforms(self) -> Any:
        """Both transforms as one, called with an image and a target; None if there is neither.

        As in torchvision, it keeps its value when both are set to None: torchvision's wrapper for
        v2 relies on that.
        """
        return self.__dict__.get("_transforms", standard_transform(self))

    @transforms.setter
    def transforms(self, transforms: Any) -> None:
        self.__dict__["_transforms"] = transforms

    def _joint(self) -> None:
        """Return None: as in torchvision, `transforms` follows from the other two."""

    def _mark_if_folder_vanished(self, error: Exception) -> None:
        mark_if_folder_vanished(error, os.fspath(self.root), listed=True)

    def _decode_source(self, source: Any, settings: Settings) -> tuple[Any, Geometry | None]:
        loader = settings.loader
        if loader is None:
            return super()._decode_source(source, settings)
        if self._maps_targets():
            raise ValueError("map_target needs fastdecode's own decoding: leave out loader")
        return loader(source), None

    def _describe_decoding(self) -> str:
        return super()._describe_decoding() if self._loader is None else f"by {self._loader!r}"
