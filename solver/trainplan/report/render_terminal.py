"""Document -> text for a terminal, a pipe or a log."""

from __future__ import annotations

import io

from rich import box
from rich.console import Console
from rich.measure import Measurement
from rich.padding import Padding
from rich.table import Column as RichColumn
from rich.table import Table as RichTable
from rich.text import Text

from trainplan.report.document import Column, Document, Section, Table

UNLIMITED = 100_000
"""Columns of a console on which nothing is ever broken or cut."""

NARROWEST_PROSE = 24
"""Prose in fewer columns than this is harder to read than a list."""


def render(document: Document, *, width: int | None, colour: bool, ascii_only: bool) -> str:
    """The report as text; see :func:`trainplan.report.text_of` for the parameters."""
    stream = io.StringIO()
    console = Console(
        file=stream,
        width=width or UNLIMITED,
        force_terminal=colour,
        color_system="standard" if colour else None,
        no_color=not colour,
        highlight=False,
        markup=False,
        emoji=False,
        legacy_windows=False,
    )
    console.print(Text(document.title, style="bold"))
    for section in document.sections:
        _print_section(console, section, ascii_only=ascii_only)
    return "\n".join(line.rstrip() for line in stream.getvalue().splitlines()) + "\n"


def _print_section(console: Console, section: Section, *, ascii_only: bool) -> None:
    console.print()
    console.print(Text(section.title, style="bold cyan"))
    console.print(Text(("-" if ascii_only else "\N{BOX DRAWINGS LIGHT HORIZONTAL}") * len(section.title)))
    if section.facts:
        console.print(_pairs(section.facts))
    for paragraph in section.paragraphs:
        console.print(Text(paragraph))
    for table in section.tables:
        console.print()
        console.print(Text(table.title, style="bold"))
        grid = _grid(table, ascii_only=ascii_only)
        if _fits(console, table, grid):
            console.print(grid)
        else:
            _print_records(console, table)
        if table.note:
            console.print(Text(table.note, style="dim"))


def _grid(table: Table, *, ascii_only: bool) -> RichTable:
    grid = RichTable(
        *(_column(column) for column in table.columns),
        box=box.ASCII2 if ascii_only else box.SIMPLE_HEAD,
        show_edge=ascii_only,
        pad_edge=ascii_only,
        header_style="bold",
        show_footer=False,
    )
    for row in table.rows:
        grid.add_row(*(Text(cell) for cell in row))
    if table.total:
        grid.add_section()
        grid.add_row(*(Text(cell, style="bold") for cell in table.total))
    return grid


def _column(column: Column) -> RichColumn:
    return RichColumn(
        header=Text(column.name),
        justify="right" if column.numeric else "left",
        no_wrap=not column.wraps,
        overflow="fold",
        min_width=min(NARROWEST_PROSE, len(column.name)) if column.wraps else None,
    )


def _fits(console: Console, table: Table, grid: RichTable) -> bool:
    natural = Measurement.get(console, console.options.update_width(UNLIMITED), grid).maximum
    spare = sum(
        max(0, _prose_width(table, index) - NARROWEST_PROSE)
        for index, column in enumerate(table.columns)
        if column.wraps
    )
    return natural - spare <= console.width


def _prose_width(table: Table, index: int) -> int:
    return max((Text(row[index]).cell_len for row in table.rows), default=0)


def _print_records(console: Console, table: Table) -> None:
    """A table that is too wide, as one list of names and values a row."""
    for row in (*table.rows, *((table.total,) if table.total else ())):
        pairs = tuple((c.name, cell) for c, cell in zip(table.columns, row, strict=True) if cell)
        console.print(Padding(_pairs(pairs), (1, 0, 0, 2)))


def _pairs(pairs: tuple[tuple[str, str], ...]) -> RichTable:
    grid = RichTable.grid(padding=(0, 2))
    grid.add_column(no_wrap=True)
    grid.add_column(overflow="fold")
    for name, value in pairs:
        grid.add_row(Text(name, style="dim"), Text(value))
    return grid
