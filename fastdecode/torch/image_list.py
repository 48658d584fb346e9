"""`ImageList`: images by their paths, from a list or a CSV file."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from fastdecode._arguments import is_iterable
from fastdecode.stores.file_list import Table, as_targets, read_table
from fastdecode.torch._errors import Sample_co
from fastdecode.torch.dataset import DatasetOptions, DecodeDataset

if TYPE_CHECKING:
    from typing_extensions import Self, Unpack

__all__ = ["ImageList"]


class ImageList(DecodeDataset[Sample_co]):
    """Images by their paths, with a target each or without.

    Parameters
    ----------
    paths : sequence of paths
    targets : sequence, optional
        One for each path, of any kind. Without, ``dataset[index]`` is the image alone.
    transform, target_transform : callable, optional
        As for `DecodeDataset`.
    root : path, optional
        The folder that relative paths begin in; by default the current one.
    class_to_idx : mapping of str to int, optional
        Names of the classes, if the targets are class indices.
    **options
        By name, the attributes of `DecodeDataset` and `DecodeMixin`: reduce, min_size, mode,
        orient, backend, output, on_error, fuse, quality, headroom.

    Attributes
    ----------
    samples, imgs : list of (path, target)
        The same list. The target is None where there are none.
    targets : list
        Empty where there are none.
    classes : list of str
        In the order of their indices; empty where the targets have no names.
    class_to_idx : dict of str to int
    root : path or None

    Raises
    ------
    TypeError
        If `paths` is a single path, or holds anything but paths.
    ValueError
        If there are not as many targets as paths, or options contradict each other.

    Examples
    --------
    >>> from fastdecode.torch import ImageList
    >>> names = ["canyon-wren.jpg", "perched-osprey.jpg"]
    >>> dataset = ImageList(names, [0, 1], root="train/bird")
    >>> dataset[1]
    (<PIL.Image.Image image mode=RGB size=375x500 ...>, 1)
    >>> dataset = ImageList.from_csv("train.csv")
    >>> len(dataset), dataset.classes
    (6, ['bird', 'place'])
    """

    def __init__(
        self,
        paths: Sequence[str | os.PathLike[str]],
        targets: Sequence[Any] | None = None,
        transform: Callable[..., Any] | None = None,
        target_transform: Callable[..., Any] | None = None,
        *,
        root: str | os.PathLike[str] | None = None,
        class_to_idx: Mapping[str, int] | None = None,
        **options: Unpack[DatasetOptions],
    ) -> None:
        self.root = root
        super().__init__(transform, target_transform, **options)
        located = _located(paths, root)
        self.has_targets = targets is not None
        self.targets = [] if targets is None else _as_list(targets)
        if self.has_targets and len(self.targets) != len(located):
            raise ValueError(f"there are {len(located)} paths, but {len(self.targets)} targets")
        each = self.targets if self.has_targets else [None] * len(located)
        self.samples = list(zip(located, each, strict=True))
        self.imgs = self.samples
        self.class_to_idx = dict(class_to_idx or {})
        self.classes = sorted(self.class_to_idx, key=self.class_to_idx.__getitem__)

    @classmethod
    def from_csv(
        cls,
        file: str | os.PathLike[str],
        path_column: int | str = 0,
        target_column: int | str | None = 1,
        transform: Callable[..., Any] | None = None,
        target_transform: Callable[..., Any] | None = None,
        *,
        root: str | os.PathLike[str] | None = None,
        header: bool | None = None,
        delimiter: str = ",",
        class_to_idx: Mapping[str, int] | None = None,
        **options: Unpack[DatasetOptions],
    ) -> Self:
        """Read paths and targets from a CSV file, in UTF-8.

        Parameters
        ----------
        file : path
        path_column, target_column : int or str
            Counted from 0, or as the header names them. ``target_column=None``: there are none.
        transform, target_transform : callable, optional
        root : path, optional
            The folder that relative paths begin in; by default that of the CSV file.
        header : bool, optional
            Whether the first line names the columns. By default it does where a column is asked for
            by name, or where its path has no extension and that of the second line has one, as
            "path" above "a.jpg".
        delimiter : str
        class_to_idx : mapping of str to int, optional
            Take the targets for names of these classes, such as those of the training set.
        **options
            As for the constructor.

        Returns
        -------
        ImageList

        Raises
        ------
        OSError
            If the file cannot be read.
        ValueError
            If a line lacks a column, a cell is empty, a class is not in `class_to_idx`, or there is
            no column of that name. The message has the file and the line.

        Notes
        -----
        Targets that are all integers become int, those that are all numbers float. Any others are
        class names, and become their places among the sorted names (`class_to_idx`).
        """
        table = read_table(file, path_column, target_column, header=header, delimiter=delimiter)
        targets, names = _targets_of(table, class_to_idx)
        return cls(
            table.paths,
            targets,
            transform,
            target_transform,
            root=os.path.dirname(os.fspath(file)) if root is None else root,  # noqa: PTH120 - str
            class_to_idx=names,
            **options,
        )

    def __len__(self) -> int:
        return len(self.samples)

    def read(self, index: int) -> tuple[str, Any]:
        """Return the path of a sample and its target."""
        return self.samples[index]


def _targets_of(
    table: Table, class_to_idx: Mapping[str, int] | None
) -> tuple[list[Any] | None, Mapping[str, int]]:
    if table.targets is None:
        return None, class_to_idx or {}
    return as_targets(table, class_to_idx)


def _located(
    paths: Sequence[str | os.PathLike[str]], root: str | os.PathLike[str] | None
) -> list[str]:
    """Make strings of the paths, relative ones below the root."""
    if isinstance(paths, (str, bytes, os.PathLike)):
        raise TypeError(
            f"ImageList takes several paths, not one: [{paths!r}]. For a folder there is "
            "ImageFolder, for a CSV file ImageList.from_csv, for a store StoreDataset"
        )
    if not is_iterable(paths):
        raise TypeError(f"ImageList takes a sequence of paths, not {type(paths).__name__}")
    located = []
    for index, path in enumerate(paths):
        if not isinstance(path, (str, os.PathLike)):
            raise TypeError(f"paths[{index}] must be a path, not {type(path).__name__}")
        # Strings, and as they were written: a path of a million would be slow, and normalise.
        located.append(os.path.join(root or "", os.fspath(path)))  # noqa: PTH118
    return located


def _as_list(targets: Any) -> list[Any]:
    """Make plain numbers of a vector, so that they collate as any list's; copy any other."""
    if getattr(targets, "ndim", None) == 1:
        numbers: list[Any] = targets.tolist()
        return numbers
    return list(targets)
