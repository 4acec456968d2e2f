"""The report between its numbers and its looks: sections of facts, paragraphs and tables of text.

Every renderer reads this one structure, so a number is computed and worded once.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Column:
    """One column of a table."""

    name: str
    numeric: bool = False
    """Aligned right, never wrapped."""
    wraps: bool = False
    """Prose that may be broken over lines where the output has a width."""


@dataclass(frozen=True, slots=True)
class Table:
    """Rows of text, one cell a column."""

    title: str
    columns: tuple[Column, ...]
    rows: tuple[tuple[str, ...], ...]
    total: tuple[str, ...] = ()
    """A closing row, set apart; as long as ``columns``, or empty."""
    note: str = ""
    """How to read the table."""

    def __post_init__(self) -> None:
        width = len(self.columns)
        for row in (*self.rows, self.total or ("",) * width):
            if len(row) != width:
                raise ValueError(f"table {self.title!r} has {width} columns, a row has {len(row)} cells")


@dataclass(frozen=True, slots=True)
class Section:
    """One part of the report; printed as facts, then paragraphs, then tables."""

    title: str
    facts: tuple[tuple[str, str], ...] = ()
    """Name and value, a line each."""
    paragraphs: tuple[str, ...] = ()
    tables: tuple[Table, ...] = ()


@dataclass(frozen=True, slots=True)
class Document:
    """A whole report."""

    title: str
    sections: tuple[Section, ...]
