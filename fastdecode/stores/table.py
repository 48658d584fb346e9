"""Reading paths and targets from a CSV file, with the line in every complaint."""

from __future__ import annotations

import csv
import io
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, TextIO

from fastdecode.files import open_regular
from fastdecode.stores.mapped import is_uri, local_path

__all__ = ["Table", "as_targets", "read_table"]


class Table(NamedTuple):
    """Two columns of a CSV file.

    Attributes
    ----------
    file : str
    paths : list of str
    targets : list of str or None
        As they are written.
    lines : list of int
        Where each row ends in the file, counted from 1.
    """

    file: str
    paths: list[str]
    targets: list[str] | None
    lines: list[int]


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
    """Read the columns; `ImageList.from_csv` says what the parameters mean.

    Without `targets_needed`, a table of one column has none. It may be behind a URI.

    Returns
    -------
    Table

    Raises
    ------
    OSError
        If the file cannot be read.
    ValueError
        If a column or a cell is missing.
    """
    name = os.fspath(file)
    rows = _rows(name, delimiter, storage_options)
    if not targets_needed and all(len(row) == 1 for _, row in rows):
        target_column = None
    wanted = [path_column] if target_column is None else [path_column, target_column]
    if header is None:
        header = any(isinstance(column, str) for column in wanted) or _names_columns(
            rows, path_column
        )
    names = rows.pop(0)[1] if header and rows else []
    columns = [_place(column, names, name) for column in wanted]
    lines = [line for line, _ in rows]
    cells = [[_cell(row, column, name, line) for line, row in rows] for column in columns]
    return Table(name, cells[0], cells[1] if len(cells) > 1 else None, lines)


def as_targets(
    table: Table, class_to_idx: Mapping[str, int] | None
) -> tuple[list[Any], Mapping[str, int]]:
    """Make integers, numbers or class indices of the targets.

    Parameters
    ----------
    table : Table
        With targets.
    class_to_idx : mapping of str to int, optional
        The classes, if they are known.

    Returns
    -------
    targets : list of int or float
    class_to_idx : mapping of str to int
        Empty where the targets are numbers.

    Raises
    ------
    ValueError
        If a class is not among the known ones.
    """
    written = table.targets or []
    if class_to_idx is None:
        for kind in (int, float):
            numbers = _all_as(kind, written)
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
    """Read all rows that are not empty, with their line numbers."""
    with _text(file, storage_options) as stream:
        reader = csv.reader(stream, delimiter=delimiter)
        try:
            rows = [(reader.line_num, row) for row in reader if any(row)]
        except (csv.Error, UnicodeDecodeError) as error:
            raise ValueError(f"{file}, line {reader.line_num + 1}: {error}") from error
    for line, row in rows:
        if "\0" in "".join(row):  # which no path has, and no line that Python 3.10 takes
            raise ValueError(f"{file}, line {line}: there is a NUL character in it")
    return rows


def _text(file: str, storage_options: Mapping[str, Any] | None) -> TextIO:
    """Open a file, also one behind a URI."""
    if not is_uri(file):
        content = io.BufferedReader(open_regular(local_path(file)))
        return io.TextIOWrapper(content, "utf-8-sig", newline="")
    from fastdecode.stores.remote import open_stream

    return io.TextIOWrapper(open_stream(file, storage_options), "utf-8-sig", newline="")


def _names_columns(rows: list[tuple[int, list[str]]], path_column: int | str) -> bool:
    """Whether the first row is a header: its path has no extension, but that of the second has."""
    if len(rows) < 2 or not isinstance(path_column, int):
        return False
    try:
        first, second = (row[path_column] for _, row in rows[:2])
    except IndexError:
        return False
    return not os.path.splitext(first)[1] and bool(os.path.splitext(second)[1])  # noqa: PTH122


def _place(column: int | str, names: Sequence[str], file: str) -> int:
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


def _all_as(kind: Callable[[str], Any], written: Sequence[str]) -> list[Any] | None:
    """Convert all, or say by None that one is no such number; "1_0" is none, unlike in Python."""
    try:
        return None if any("_" in cell for cell in written) else [kind(cell) for cell in written]
    except ValueError:
        return None
