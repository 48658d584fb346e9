"""Lists of images: paths, or a CSV file with paths and targets."""

from __future__ import annotations

import csv
import io
import math
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from fastdecode.stores._index import Index, IndexBuilder
from fastdecode.stores._ranges import is_uri, local_path, read_file
from fastdecode.stores.folder import FileStore


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
    """Open a list of images.

    Parameters
    ----------
    location : str or sequence of str
        A CSV file in UTF-8; or the paths or URIs themselves, which have no targets.
    path_column, target_column : int or str
        The number of the column, from 0, or its name in the header. ``target_column=None`` means
        that there are no targets. By default, a table with a single column has none either.
    header : bool, optional
        Whether the first line names the columns; by default as for `ImageList.from_csv`.
    delimiter : str, optional
        By default a tab for ``.tsv``, else a comma.
    root : str, optional
        The folder, or its URI, to which relative paths are relative. By default it is the folder of
        the CSV file; for paths without a CSV file it is the current folder.
    storage_options : mapping, optional
        For a URI; see `open_folder`.

    Notes
    -----
    If all targets are integers, they become int; if all are numbers, float. Otherwise they are
    names of classes, which are sorted.
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
        name, paths = location, table.paths
        here = None if is_uri(location) else Path(local_path(location)).parent
        base = location.rpartition("/")[0] if here is None else str(here)
        if table.targets is None:
            targets = [None] * len(paths)
        else:
            targets, classes = convert_targets(table, None)
            _check_finite(table, targets)
    if not paths:
        raise ValueError(f"{name} has no images in it")
    builder = IndexBuilder(sorted(classes, key=lambda each: classes[each]))
    for path, target in zip(paths, targets, strict=True):
        builder.add(path, target)
    root = base if root is None else os.fspath(root)
    return FileStore(name, root, Index(builder.to_bytes(), name), "list", storage_options)


def _check_finite(table: Table, targets: Sequence[Any]) -> None:
    """Raise a ValueError that names the line if a target is NaN or infinite."""
    for line, target in zip(table.lines, targets, strict=True):
        if isinstance(target, float) and not math.isfinite(target):
            raise ValueError(
                f"{table.file}, line {line}: the target {target} is not a finite number"
            )


class Table(NamedTuple):
    """Two columns of a CSV file."""

    file: str
    paths: list[str]
    targets: list[str] | None  # as written in the file
    lines: list[int]  # where each row ends in the file, counted from 1


def read_table(
    file: str | os.PathLike[str],
    path_column: int | str,
    target_column: int | str | None,
    *,
    header: bool | None,
    delimiter: str,
    targets_needed: bool = True,
    storage_options: Mapping[str, Any] | None = None,
) -> Table:
    """Read the columns of a local or remote file; for the parameters see `ImageList.from_csv`.

    Unless `targets_needed`, a table with a single column has no targets.
    """
    name = os.fspath(file)
    rows = _rows(name, delimiter, storage_options)
    if not targets_needed and all(len(row) == 1 for _, row in rows):
        target_column = None
    wanted = [path_column] if target_column is None else [path_column, target_column]
    if header is None:
        header = any(isinstance(column, str) for column in wanted) or _is_header(rows, path_column)
    names = rows.pop(0)[1] if header and rows else []
    columns = [_column_index(column, names, name) for column in wanted]
    lines = [line for line, _ in rows]
    cells = [[_cell(row, column, name, line) for line, row in rows] for column in columns]
    return Table(name, cells[0], cells[1] if len(cells) > 1 else None, lines)


def convert_targets(
    table: Table, class_to_idx: Mapping[str, int] | None
) -> tuple[list[Any], Mapping[str, int]]:
    """Convert the targets to int, float or class indices; return them and the classes."""
    written = table.targets or []
    if class_to_idx is None:
        for kind in (int, float):
            numbers = _convert_all(kind, written)
            if numbers is not None:
                return numbers, {}
        class_to_idx = {name: index for index, name in enumerate(sorted(set(written)))}
    for line, name in zip(table.lines, written, strict=True):
        if name not in class_to_idx:
            raise ValueError(f"{table.file}, line {line}: {name!r} is not in class_to_idx")
    return [class_to_idx[name] for name in written], class_to_idx


def _rows(
    file: str, delimiter: str, storage_options: Mapping[str, Any] | None
) -> list[tuple[int, list[str]]]:
    """Return all rows that are not empty, with their line numbers."""
    content = io.BytesIO(read_file(file, storage_options))
    with io.TextIOWrapper(content, "utf-8-sig", newline="") as stream:
        reader = csv.reader(stream, delimiter=delimiter)
        try:
            rows = [(reader.line_num, row) for row in reader if any(row)]
        except (csv.Error, UnicodeDecodeError) as error:
            encoded = isinstance(error, UnicodeDecodeError)
            what = "it is not UTF-8: save it as UTF-8" if encoded else error
            raise ValueError(f"{file}, line {reader.line_num + 1}: {what}") from error
    for line, row in rows:
        if "\0" in "".join(row):  # not valid in a path, and refused by csv in Python 3.10
            raise ValueError(f"{file}, line {line}: there is a NUL character in it")
    return rows


def _is_header(rows: list[tuple[int, list[str]]], path_column: int | str) -> bool:
    """Return whether the first row is a header: its path has no extension, the second's has."""
    if len(rows) < 2 or not isinstance(path_column, int):
        return False
    try:
        first, second = (row[path_column] for _, row in rows[:2])
    except IndexError:
        return False
    return not os.path.splitext(first)[1] and bool(os.path.splitext(second)[1])  # noqa: PTH122


def _column_index(column: int | str, names: Sequence[str], file: str) -> int:
    if isinstance(column, int):
        return column
    if column not in names:
        listed = ", ".join(names) or "none"
        raise ValueError(f"{file} has no column {column!r}; its header names: {listed}")
    return names.index(column)


def _cell(row: Sequence[str], column: int, file: str, line: int) -> str:
    try:
        cell = row[column].strip()
    except IndexError:
        raise ValueError(
            f"{file}, line {line}: there is no column {column}, only {len(row)} in all"
        ) from None
    if not cell:
        raise ValueError(f"{file}, line {line}: column {column} is empty")
    return cell


def _convert_all(kind: Callable[[str], Any], written: Sequence[str]) -> list[Any] | None:
    """Convert all cells; None if one is not such a number. Unlike in Python, "1_0" is not one."""
    try:
        return None if any("_" in cell for cell in written) else [kind(cell) for cell in written]
    except ValueError:
        return None
