"""New rows for a user's own catalogue, together with the rows that are in it already."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trainplan_models.catalog.overlay import read_directory
from trainplan_models.catalog.reading import Table, write_records
from trainplan_models.catalog.records import Commitment, Row
from trainplan_models.catalog.tables import COMMITMENTS, TABLES

if TYPE_CHECKING:
    from trainplan_models.catalog import Catalog

NewRows = Mapping[str, Sequence[Row]]
"""Rows by the name of their table."""


@dataclass(frozen=True, slots=True)
class Joined:
    """The files of a catalogue directory, and what became of the rows it is made of."""

    texts: dict[str, str]
    """Content by file name."""
    kept: int
    """Rows of the user's that stand where there is a new one for the same thing."""
    replaced: int
    """Rows of the user's that a new one takes the place of."""


def joined(new: NewRows, directory: Path | None, *, new_ones_win: bool) -> Joined:
    """A directory's tables with new rows in them; the directory itself is only read.

    Args:
        new: the rows to add.
        directory: the user's own catalogue; None for none.
        new_ones_win: whether a new row takes the place of one with the same key, or gives way to it.

    Raises:
        InputError: a file or row of the directory is wrong.
    """
    own = {} if directory is None else read_directory(directory, files("trainplan_models.catalog")).sheets
    texts: dict[str, str] = {}
    kept = replaced = 0
    for kind in TABLES:
        table: Table[Any] = TABLES[kind]
        there = {table.key_of(row): row for row in (own[kind].rows if kind in own else ())}
        added = {table.key_of(row): row for row in new.get(kind, ())}
        differ = sum(there[key] != row for key, row in added.items() if key in there)
        kept, replaced = (kept, replaced + differ) if new_ones_win else (kept + differ, replaced)
        loser, winner = (there, added) if new_ones_win else (added, there)
        left = {key: row for key, row in loser.items() if key not in winner}
        # What is new comes last: of rows that say as much about a pool the last one holds.
        rows = [*left.values(), *winner.values()] if new_ones_win else [*winner.values(), *left.values()]
        if rows:
            texts[table.file_name] = write_records(table.record, rows)
    return Joined(texts, kept, replaced)


def with_siblings(commitments: Sequence[Commitment], known: Catalog) -> tuple[Commitment, ...]:
    """Commitments, and before them those of the catalogue that their group would otherwise replace.

    A user's row replaces every row of its mode, cloud and machine; the price of one region must not take the others'
    away. Rows that say the region come last and win.
    """
    groups = {COMMITMENTS.group_of(row) for row in commitments}
    keys = {COMMITMENTS.key_of(row) for row in commitments}
    siblings = [
        row
        for row in known.commitments
        if COMMITMENTS.group_of(row) in groups and COMMITMENTS.key_of(row) not in keys
    ]
    return (*siblings, *commitments)
