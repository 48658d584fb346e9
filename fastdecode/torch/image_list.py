"""`ImageList`: a dataset of image paths, from a list or a CSV file."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from fastdecode._arguments import check_kinds, check_names, is_int, is_iterable, wrong_kind
from fastdecode.stores.file_list import Table, convert_targets, read_table
from fastdecode.torch._options import DatasetOptions
from fastdecode.torch.dataset import DecodeDataset, Sample_co

if TYPE_CHECKING:
    from typing_extensions import Self, Unpack


class ImageList(DecodeDataset[Sample_co]):
    """A list of image files, with or without targets.

    Parameters
    ----------
    paths : sequence of paths
    targets : sequence, optional
        One target per path, of any type. Without `targets`, ``dataset[index]`` is the image alone.
    transform, target_transform, transforms : callable, optional
        As for `DecodeDataset`.
    root : path, optional
        The folder that relative paths start from; by default the current one.
    class_to_idx : mapping of str to int, optional
        The class names and their indices, if the targets are class indices.
    **options
        Those of `DecodeOptions`, by name: reduce, min_size, mode, orient, max_pixels, backend,
        output, on_error, fuse, quality, headroom.

    Attributes
    ----------
    samples, imgs : list of (path, target)
        The same list under two names. Each target is None if there are no targets.
    targets : list
        The target of each sample; empty if there are no targets.
    classes : list of str
        Names of the classes, in the order of their indices; empty if there are no class names.
    class_to_idx : dict of str to int
        The index of each class.
    root : path or None

    Raises
    ------
    TypeError
        `paths` is a single path, or an item of it is not a path.
    ValueError
        The number of targets differs from the number of paths, or options contradict each other.

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
        transforms: Callable[..., Any] | None = None,
        root: str | os.PathLike[str] | None = None,
        class_to_idx: Mapping[str, int] | None = None,
        **options: Unpack[DatasetOptions],
    ) -> None:
        check_kinds({"root": root, "class_to_idx": class_to_idx})
        if targets is not None and not is_iterable(targets):
            raise wrong_kind("targets", "a sequence", targets)
        self.root = root
        super().__init__(transform, target_transform, transforms=transforms, **options)
        located = _as_paths(paths, root)
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
        """Read paths and targets from a CSV file in UTF-8.

        Parameters
        ----------
        file : path
        path_column, target_column : int or str
            The columns, by number from 0 or by the name in the header. ``target_column=None``
            means that there are no targets.
        transform, target_transform : callable, optional
            As for `DecodeDataset`.
        root : path, optional
            The folder that relative paths start from; by default the folder of the CSV file.
        header : bool, optional
            Whether the first line names the columns. By default it does if you name a column, or if
            the path in the first line has no extension and the path in the second line has one,
            such as "path" above "a.jpg".
        delimiter : str
            The character between two cells.
        class_to_idx : mapping of str to int, optional
            Read the targets as names of these classes, such as the classes of the training set.
        **options
            As for the constructor.

        Returns
        -------
        ImageList

        Raises
        ------
        OSError
            The file cannot be read.
        ValueError
            A line lacks a column, a cell is empty, a class is not in `class_to_idx`, or no column
            has that name. The message names the file and the line.

        Notes
        -----
        If all targets are integers they become int; if all are numbers they become float. Otherwise
        they are class names, and each becomes its index among the sorted names (`class_to_idx`).
        """
        check_names(cls.from_csv, options, DatasetOptions)
        own = {"root": root, "class_to_idx": class_to_idx, "delimiter": delimiter}
        check_kinds({**own, "header": header})
        if not isinstance(file, (str, os.PathLike)):
            raise wrong_kind("file", "a path", file)
        columns = {"path_column": path_column, "target_column": target_column}
        for name, column in columns.items():
            if not (is_int(column) or isinstance(column, str) or column is None is target_column):
                raise wrong_kind(name, "a column's number or name", column)
        table = read_table(file, path_column, target_column, header=header, delimiter=delimiter)
        targets, names = _convert_targets(table, class_to_idx)
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


def _convert_targets(
    table: Table, class_to_idx: Mapping[str, int] | None
) -> tuple[list[Any] | None, Mapping[str, int]]:
    if table.targets is None:
        return None, class_to_idx or {}
    return convert_targets(table, class_to_idx)


def _as_paths(
    paths: Sequence[str | os.PathLike[str]], root: str | os.PathLike[str] | None
) -> list[str]:
    """Return the paths as strings, with `root` in front of relative ones."""
    if isinstance(paths, (str, bytes, os.PathLike)):
        raise TypeError(
            f"ImageList takes several paths, not one: [{paths!r}]. For a folder there is "
            "ImageFolder, for a CSV file ImageList.from_csv, for a store StoreDataset"
        )
    if not is_iterable(paths):
        raise TypeError(f"paths must be a sequence of paths, not {type(paths).__name__}")
    located = []
    for index, path in enumerate(paths):
        if not isinstance(path, (str, os.PathLike)):
            raise TypeError(f"paths[{index}] must be a path, not {type(path).__name__}")
        # Strings, because a million Path objects would be slow and would normalise the spelling.
        located.append(os.path.join(root or "", os.fspath(path)))  # noqa: PTH118
    return located


def _as_list(targets: Any) -> list[Any]:
    """Copy the targets; the numbers of a vector are collated to a vector of the same type."""
    if getattr(targets, "ndim", None) != 1:
        return list(targets)
    try:
        vector = np.asarray(targets)
    except (TypeError, RuntimeError):  # a type that only torch has, or on another device
        return list(targets)
    as_python = vector.dtype in (np.int64, np.float64) or vector.dtype.kind in "OUSb"
    return vector.tolist() if as_python else list(vector)
