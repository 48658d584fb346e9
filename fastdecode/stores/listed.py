"""Lists of pictures: paths, or a CSV file of them with targets."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from fastdecode.stores.files import FileStore
from fastdecode.stores.index import Index, IndexBuilder
from fastdecode.stores.mapped import is_uri, local_path
from fastdecode.stores.table import Table, as_targets, read_table

__all__ = ["open_list"]


def open_list(
    location: str | Sequence[str],
    *,
    path_column: int | str = 0,
    target_column: int | str | None = 1,
    header: bool | None = None,
    delimiter: str | None = None,
    root: str | None = None,
    storage_options: Mapping[str, Any] | None = None,
) -> FileStore:
    """Open a list of pictures.

    Parameters
    ----------
    location : str or sequence of str
        A CSV file in UTF-8, or the paths or URIs themselves, which then have no targets.
    path_column, target_column : int or str
        Counted from 0, or as the header names them. ``target_column=None``: there are no targets;
        nor by default where the table has one column alone.
    header : bool, optional
        Whether the first line names the columns; by default as for `ImageList.from_csv`.
    delimiter : str, optional
        By default a tab for ``.tsv``, else a comma.
    root : str, optional
        The folder, or URI of one, that relative paths begin in; by default that of the CSV file, or
        the current one.
    storage_options : mapping, optional
        For a URI; see `open_folder`.

    Returns
    -------
    FileStore

    Raises
    ------
    OSError
        If the file cannot be read.
    ValueError
        If there is nothing in it, or a line is wrong; the message has the file and the line.

    Notes
    -----
    Targets that are all integers become int, those that are all numbers float; any others are names
    of classes, which are put in order.
    """
    targets: Sequence[Any]
    classes: Mapping[str, int] = {}
    if not isinstance(location, str):
        name, paths, base = "the list", list(location), ""
        targets = [None] * len(paths)
    else:
        tabs = location.lower().endswith(".tsv")
        table = read_table(
            location,
            path_column,
            target_column,
            header=header,
            targets_needed=target_column != 1,
            delimiter=delimiter or ("\t" if tabs else ","),
            storage_options=storage_options,
        )
        name, paths, base = location, table.paths, _folder_of(location)
        if table.targets is None:
            targets = [None] * len(paths)
        else:
            targets, classes = as_targets(table, None)
            _check_finite(table, targets)
    if not paths:
        raise ValueError(f"{name} has no pictures in it")
    builder = IndexBuilder(sorted(classes, key=lambda each: classes[each]))
    for path, target in zip(paths, targets, strict=True):
        builder.add(path, target)
    root = base if root is None else os.fspath(root)
    return FileStore(name, root, Index(builder.to_bytes(), name), "list", storage_options)


def _folder_of(location: str) -> str:
    """Return the folder that a file lies in."""
    if is_uri(location):
        return location.rpartition("/")[0]
    return str(Path(local_path(location)).parent)


def _check_finite(table: Table, targets: Sequence[Any]) -> None:
    """Make sure that targets are numbers that a store can hold."""
    for line, target in zip(table.lines, targets, strict=True):
        if isinstance(target, float) and not math.isfinite(target):
            raise ValueError(f"{table.file}, line {line}: the target {target} is no finite number")
