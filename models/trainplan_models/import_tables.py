"""Reads the small tables people keep, and says what is wrong with them by file and line."""

from __future__ import annotations

import csv
import difflib
import math
from collections.abc import Mapping
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING

from trainplan_models.base import InputError, Problem

if TYPE_CHECKING:
    from trainplan_models.catalog import Catalog
    from trainplan_models.catalog.records import NodeType


def read_table(path: Path) -> list[tuple[int, dict[str, str]]]:
    """Line number and cells of every row that is not empty; header names in lower case with underscores."""
    try:
        with path.open(encoding="utf-8-sig", newline="") as stream:
            reader = csv.reader(stream)
            header = [name.strip().lower().replace(" ", "_").replace("-", "_") for name in next(reader, [])]
            rows = [(reader.line_num, cells) for cells in reader if any(cell.strip() for cell in cells)]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise InputError(Problem(f"cannot be read as CSV in UTF-8: {error}", file=str(path))) from error
    if not rows:
        raise InputError(Problem("has no rows", file=str(path)))
    return [(line, dict(zip(header, cells, strict=False))) for line, cells in rows]


def pool_of(row: Mapping[str, str]) -> str:
    """The pool a row is about, from one column or three."""
    if row.get("pool"):
        return row["pool"].strip()
    return "/".join(row.get(key, "").strip() for key in ("cloud", "region", "instance_type"))


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
