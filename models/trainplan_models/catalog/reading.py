"""CSV files into records, with the file and the line of every mistake."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cache
from importlib.resources.abc import Traversable
from typing import Any, Generic, TypeVar, get_origin

from pydantic import TypeAdapter, ValidationError

from trainplan_models.base import InputError, Problem
from trainplan_models.catalog.records import Row

R = TypeVar("R", bound=Row)

SEPARATOR = ";"
"""Between the items of a cell that holds several."""

Key = tuple[object, ...]


@dataclass(frozen=True, slots=True)
class Table(Generic[R]):
    """One CSV file of the catalogue."""

    kind: str
    """Name of the file without ``.csv``, and of the attribute of the catalogue."""
    record: type[R]
    key: tuple[str, ...]
    """Fields that tell its rows apart."""
    replaced_by: tuple[str, ...] = ()
    """Fields in which rows of a user's file replace built-in ones; empty: the key. Shorter than the key
    where rows belong together, as the volume brackets of one price do."""

    @property
    def file_name(self) -> str:
        """Name of the file in a catalogue directory."""
        return f"{self.kind}.csv"

    def key_of(self, row: R) -> Key:
        """What no two rows may share."""
        return tuple(getattr(row, name) for name in self.key)

    def group_of(self, row: R) -> Key:
        """What a user's row replaces."""
        return tuple(getattr(row, name) for name in self.replaced_by or self.key)


@dataclass(frozen=True, slots=True)
class Sheet(Generic[R]):
    """The rows of one file and where they stood in it."""

    rows: list[R]
    lines: list[int]
    file: str

    def line_of(self, row: R) -> int:
        """Line of a row of this sheet; 0 for a row of another one."""
        for own, line in zip(self.rows, self.lines, strict=True):
            if own is row:
                return line
        return 0


def read_table(table: Table[R], directory: Traversable) -> Sheet[R] | None:
    """Read one table of a catalogue directory; None when it has no such file.

    Raises:
        InputError: with every mistake of the file.
    """
    file = directory.joinpath(table.file_name)
    if not file.is_file():
        return None
    sheet = read_records(file, table.record)
    problems = _duplicates(table, sheet)
    if problems:
        raise InputError(problems)
    return sheet


def read_records(file: Traversable, record: type[R]) -> Sheet[R]:
    """Read a CSV file whose columns are the fields of ``record``; an empty cell means the default.

    Raises:
        InputError: with every mistake of the file: columns, or rows when the columns are right.
    """
    name = str(file)
    cells, lines = _cells(file, record, name)
    try:
        return Sheet(_adapter(record).validate_python(cells), lines, name)
    except ValidationError as error:
        raise InputError(list(_row_problems(error, cells, lines, name))) from error


@cache
def _adapter(record: type[R]) -> TypeAdapter[list[R]]:
    return TypeAdapter(list[record])  # type: ignore[valid-type]


@cache
def _tuple_fields(record: type[Row]) -> frozenset[str]:
    fields = record.model_fields.items()
    return frozenset(name for name, field in fields if get_origin(field.annotation) is tuple)


def _cells(file: Traversable, record: type[Row], name: str) -> tuple[list[dict[str, object]], list[int]]:
    """The non-empty cells of each row by column, and the line of each row."""
    listed = _tuple_fields(record)
    rows: list[dict[str, object]] = []
    lines: list[int] = []
    try:
        text = file.read_text(encoding="utf-8-sig")
        reader = csv.reader(io.StringIO(text, newline=""), strict=True)
        header = [column.strip() for column in next(reader, [])]
        _check_columns(header, record, name)
        for values in reader:
            if not values:
                continue
            if len(values) != len(header):
                raise InputError(_uneven(values, header, name, reader.line_num))
            texts = {k: v.strip() for k, v in zip(header, values, strict=True) if v and not v.isspace()}
            row: dict[str, object] = {**texts}
            for column in listed & texts.keys():
                row[column] = [item.strip() for item in texts[column].split(SEPARATOR)]
            rows.append(row)
            lines.append(reader.line_num)
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise InputError(Problem(f"cannot be read as CSV in UTF-8: {error}", file=name)) from error
    return rows, lines


def _uneven(values: Sequence[str], header: Sequence[str], name: str, line: int) -> Problem:
    return Problem(
        f"{len(values)} cells where the header has {len(header)} columns",
        file=name,
        line=line,
        fix="Put text that contains a comma between double quotes",
    )


def _check_columns(header: list[str], record: type[Row], name: str) -> None:
    fields = record.model_fields
    problems = [
        Problem("no such column", key=column, file=name, line=1, fix=_nearest(column, fields))
        for column in header
        if column not in fields
    ]
    problems += [
        Problem("this column is missing", key=field, file=name, line=1, fix=info.description or "")
        for field, info in fields.items()
        if info.is_required() and field not in header
    ]
    problems += [
        Problem("this column is there twice", key=column, file=name, line=1)
        for column in sorted({c for c in header if header.count(c) > 1})
    ]
    if problems:
        raise InputError(problems)


def _nearest(word: str, words: Mapping[str, object] | Sequence[str]) -> str:
    near = get_close_matches(word, list(words), n=1)
    return f"Did you mean {near[0]}?" if near else f"Columns are {', '.join(words)}"


def _row_problems(
    error: ValidationError, cells: list[dict[str, object]], lines: list[int], name: str
) -> Iterator[Problem]:
    for mistake in error.errors(include_url=False):
        index, *path = mistake["loc"]
        place: dict[str, Any] = {"file": name, "line": lines[int(index)]}
        key = str(path[0]) if path else ""
        if mistake["type"] == "missing":
            yield Problem("this cell is empty", key=key, **place)
        else:
            yield Problem(f"{mistake['msg'].lower()}, got {cells[int(index)].get(key)!r}", key=key, **place)


def _duplicates(table: Table[R], sheet: Sheet[R]) -> list[Problem]:
    first: dict[Key, int] = {}
    problems = []
    for row, line in zip(sheet.rows, sheet.lines, strict=True):
        key = table.key_of(row)
        before = first.setdefault(key, line)
        if before != line:
            words = " ".join(f"{name}={value}" for name, value in zip(table.key, key, strict=True))
            problems.append(
                Problem(f"{words} is there twice, first in line {before}", file=sheet.file, line=line)
            )
    return problems


def write_records(record: type[R], rows: Iterable[R]) -> str:
    """The text of a CSV file with these rows, as ``read_records`` reads it; defaults are left empty."""
    fields = record.model_fields
    stream = io.StringIO(newline="")
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow(fields)
    for row in rows:
        writer.writerow(
            "" if value == info.default and not info.is_required() else _cell(value)
            for value, info in ((getattr(row, name), info) for name, info in fields.items())
        )
    return stream.getvalue()


def _cell(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, tuple):
        return SEPARATOR.join(_cell(item) for item in value)
    return str(value)
