"""Reads the small tables people keep, and says what is wrong with them by file and line."""

from __future__ import annotations

import csv
import difflib
import math
from collections.abc import Mapping, Sequence
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING

from trainplan_models.base import InputError, Problem
from trainplan_models.catalog.dates import last_day

if TYPE_CHECKING:
    from trainplan_models.catalog import Catalog
    from trainplan_models.catalog.records import NodeType


PLACE = ("pool", "cloud", "region", "instance_type")
PROVENANCE = ("source", "as_of", "note")
"""Columns every table may have: where a row is from, of when it is, what else there is to say."""


def read_table(path: Path, columns: Sequence[str]) -> list[tuple[int, dict[str, str]]]:
    """Line number and cells of every row that is not empty; header names in lower case with underscores.

    Args:
        path: a CSV file in UTF-8.
        columns: the columns it may have.

    Raises:
        InputError: it cannot be read, has no rows, a column it may not have, or a row that does not fit its header.
    """
    file = str(path)
    header, rows = _rows(path)
    problems = [
        Problem("no such column", key=name, file=file, line=1, fix=_near_column(name, columns))
        for name in header
        if name not in columns
    ]
    problems += [
        Problem("this column is there twice", key=name, file=file, line=1, fix="Keep one of them")
        for name in sorted({name for name in header if header.count(name) > 1})
    ]
    problems += [
        Problem(
            f"{len(cells)} cells where the header has {len(header)} columns",
            file=file,
            line=line,
            fix="Put text that contains a comma between double quotes",
        )
        for line, cells in rows
        if len(cells) != len(header)
    ]
    if problems:
        raise InputError(problems)
    if not rows:
        raise InputError(Problem("has no rows", file=file, fix=f"Columns are {', '.join(columns)}"))
    return [(line, dict(zip(header, cells, strict=True))) for line, cells in rows]


def _rows(path: Path) -> tuple[list[str], list[tuple[int, list[str]]]]:
    try:
        with path.open(encoding="utf-8-sig", newline="") as stream:
            reader = csv.reader(stream, strict=True)
            header = [column_name(name) for name in next(reader, [])]
            rows = [(reader.line_num, [cell.strip() for cell in cells]) for cells in reader]
    except OSError as error:
        raise InputError(Problem(f"cannot be read: {error.strerror or error}", file=str(path))) from error
    except (UnicodeDecodeError, csv.Error) as error:
        raise InputError(Problem(f"cannot be read as CSV in UTF-8: {error}", file=str(path))) from error
    return header, [(line, cells) for line, cells in rows if any(cells)]


def column_name(text: str) -> str:
    """A column's name as ``read_table`` gives it: ``On-Demand`` is ``on_demand``."""
    return text.strip().lower().replace(" ", "_").replace("-", "_")


def _near_column(name: str, columns: Sequence[str]) -> str:
    near = difflib.get_close_matches(name, columns, n=1)
    return f"Did you mean {near[0]}?" if near else f"Columns are {', '.join(columns)}"


def pool_of(row: Mapping[str, str]) -> str:
    """The pool a row is about, from one column or three."""
    if row.get("pool"):
        return row["pool"]
    return "/".join(row.get(key, "") for key in ("cloud", "region", "instance_type"))


def machine_of(pool: str, known: Catalog, path: Path, line: int, problems: list[Problem]) -> NodeType | None:
    """The machine of a pool; a mistake is added to ``problems`` when the catalogue does not know it."""
    cloud, _, rest = pool.partition("/")
    machine = rest.partition("/")[2]
    node = known.nodes.get((cloud, machine))
    if node is None or not rest.partition("/")[0]:
        near = difflib.get_close_matches(f"{cloud}/{machine}", ["/".join(key) for key in known.nodes], n=1)
        fix = (
            f"Did you mean {near[0].replace('/', '/REGION/')}?"
            if near
            else "Write cloud/region/instance_type"
        )
        problems.append(
            Problem(f"no machine {pool!r} in the catalogue", key="pool", file=str(path), line=line, fix=fix)
        )
        return None
    return node


def node_count(text: str, key: str, path: Path, line: int, problems: list[Problem]) -> int:
    """A number of nodes; a mistake is added to ``problems`` when it is none."""
    word = text.strip().removesuffix("nodes").removesuffix("node").strip()
    if word.isdigit() and (int(word) > 0 or key != "nodes"):
        return int(word)
    problems.append(
        Problem(f"{text!r} is no number of nodes", key=key, file=str(path), line=line, fix="Write it like 8")
    )
    return 0


def amount_of(text: str, key: str, path: Path, line: int, problems: list[Problem]) -> float:
    """A price, or a discount as a share; a mistake is added to ``problems`` when it is none."""
    word = text.strip().lstrip("$")
    try:
        value = float(word.removesuffix("%")) / (100.0 if word.endswith("%") else 1.0)
    except ValueError:
        value = math.nan
    share = key == "discount"
    if not math.isfinite(value) or value < 0 or (share and (value >= 1 or not word.endswith("%"))):
        fix = "Write it like 12%" if share else "Write it like 31.5"
        problems.append(
            Problem(
                f"{text!r} is no {'discount' if share else 'price'}",
                key=key,
                file=str(path),
                line=line,
                fix=fix,
            )
        )
    return value


def day_of(text: str, key: str, path: Path, line: int, problems: list[Problem]) -> str:
    """An ISO date, empty for an empty cell; a mistake is added to ``problems`` when it is none."""
    word = text.strip()
    try:
        return date.fromisoformat(word).isoformat() if word else ""
    except ValueError:
        problems.append(
            Problem(f"{word!r} is no date", key=key, file=str(path), line=line, fix="Write it as 2026-08-31")
        )
        return ""


def provenance_day(row: Mapping[str, str], as_of: str, path: Path, line: int, problems: list[Problem]) -> str:
    """Of when a row is, by its own column or ``as_of``: a day, a month or a span; empty where nothing says it.

    A mistake is added to ``problems`` when it is none of them.
    """
    text = row.get("as_of") or as_of
    if text and last_day(text) is None:
        fix = "Write it as 2026-08-31 or 2026-08"
        problems.append(Problem(f"{text!r} is no date", key="as_of", file=str(path), line=line, fix=fix))
    return text
