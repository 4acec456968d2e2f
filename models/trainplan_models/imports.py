"""What is there already, read from the tables people keep of it: quotas and reservations.

Slurm's node list is read by ``sinfo``, price lists in SkyPilot's columns by ``prices``, negotiated prices by
``private_prices``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from trainplan_models.base import InputError, Problem
from trainplan_models.case_resources import Owned, Quota
from trainplan_models.import_tables import (
    PLACE,
    PROVENANCE,
    amount_of,
    day_of,
    machine_of,
    node_count,
    pool_of,
    provenance_day,
    read_table,
)
from trainplan_models.units import CANONICAL

if TYPE_CHECKING:
    from trainplan_models.catalog import Catalog
    from trainplan_models.catalog.records import NodeType

QUOTA_COLUMNS = ("on_demand", "spot", "reserved", "capacity_block")
RESERVATION_COLUMNS = ("name", "nodes", "start", "end", "usd_per_node_h")

_AMOUNT = re.compile(r"(?P<count>\d+)\s*(?P<unit>vcpus?|gpus?|accelerators?|chips?)", re.IGNORECASE)

T = TypeVar("T", Quota, Owned)


@dataclass(frozen=True, slots=True)
class Holding(Generic[T]):
    """A record for a case, and where it is from."""

    record: T
    source: str
    as_of: str
    """ISO date; empty when nothing says of when it is."""


@dataclass(frozen=True, slots=True)
class Holdings(Generic[T]):
    """What a table gives, and which lines of it are no use and why."""

    found: tuple[Holding[T], ...]
    left_out: tuple[Problem, ...] = ()

    @property
    def records(self) -> tuple[T, ...]:
        """The records alone."""
        return tuple(holding.record for holding in self.found)


def quotas_from_csv(
    path: Path, known: Catalog | None = None, *, source: str = "", as_of: str = ""
) -> Holdings[Quota]:
    """Quotas from a table with the columns ``pool`` and any of ``on_demand``, ``spot``, ``reserved``,
    ``capacity_block``; an empty cell is no limit.

    ``pool`` is ``cloud/region/instance_type``; three columns of these names may stand in its place. Amounts are in
    nodes (``8``), or as clouds give them in ``768 vCPUs`` or ``64 GPUs``, of which whole nodes are taken. Pools
    without a price in the catalogue are left out, as nothing can be rented there.

    Args:
        path: the table; its columns ``source`` and ``as_of`` win over the arguments.
        known: the catalogue; None for the one that ships.
        source: where the table is from; empty for the name of the file.
        as_of: of when it is.

    Raises:
        InputError: with every mistake of the file, by line.
    """
    known = known or _builtin()
    problems: list[Problem] = []
    left_out: list[Problem] = []
    found: list[Holding[Quota]] = []
    lines: dict[str, int] = {}
    for line, row in read_table(path, (*PLACE, *QUOTA_COLUMNS, *PROVENANCE)):
        pool = pool_of(row)
        node = machine_of(pool, known, path, line, problems)
        limits = _limits(row, node, path, line, problems)
        day = provenance_day(row, as_of, path, line, problems)
        if node is not None and not limits:
            fix = f"Fill in one of {', '.join(QUOTA_COLUMNS)}"
            problems.append(Problem(f"{pool} limits nothing", file=str(path), line=line, fix=fix))
        if pool in lines:
            message = f"{pool} is there twice, first in line {lines[pool]}"
            problems.append(Problem(message, key="pool", file=str(path), line=line, fix="Keep one of them"))
        lines.setdefault(pool, line)
        if problems:
            continue
        if pool not in known.pools():
            message = f"{pool} has no price in the catalogue, so nothing can be rented there"
            left_out.append(Problem(message, key="pool", file=str(path), line=line))
            continue
        quota = Quota.model_validate({"pool": pool, **limits}, context=CANONICAL)
        found.append(Holding(quota, row.get("source", "") or source or path.name, day))
    if problems:
        raise InputError(problems)
    return Holdings(tuple(found), tuple(left_out))


def _limits(
    row: Mapping[str, str], node: NodeType | None, path: Path, line: int, problems: list[Problem]
) -> dict[str, int]:
    found = {}
    for column in QUOTA_COLUMNS:
        text = row.get(column, "")
        if text:
            found[column] = _quota_nodes(text, node, column, path, line, problems)
    return found


def _quota_nodes(
    text: str, node: NodeType | None, column: str, path: Path, line: int, problems: list[Problem]
) -> int:
    """Whole nodes of an amount in nodes, virtual CPUs or accelerators; 0 with a mistake when it is none."""
    amount = _AMOUNT.fullmatch(text)
    if amount is None or node is None:
        return node_count(text, column, path, line, problems) if amount is None else 0
    per_node = node.vcpus if amount["unit"].lower().startswith("v") else node.accelerators
    if not per_node:
        message = f"{text!r}: the catalogue does not say how many vCPUs {node.instance_type} has"
        fix = "Write it in nodes, like 8"
        problems.append(Problem(message, key=column, file=str(path), line=line, fix=fix))
        return 0
    return int(int(amount["count"]) // per_node)


def reservations_from_csv(
    path: Path,
    known: Catalog | None = None,
    *,
    start: date | None = None,
    source: str = "",
    as_of: str = "",
) -> Holdings[Owned]:
    """Reservations that are already paid for, as owned pools that are there from ``start`` to ``end``.

    Columns: ``name``, ``pool`` (or cloud, region, instance_type), ``nodes``, ``start`` and ``end`` (ISO dates, either
    may be empty), and ``usd_per_node_h`` where using them still costs something.

    With ``start``, day 0 of the case, what began before it is there from day 0, and what ended before it is left out.
    The other arguments are those of ``quotas_from_csv``.

    Raises:
        InputError: with every mistake of the file, by line.
    """
    known = known or _builtin()
    problems: list[Problem] = []
    left_out: list[Problem] = []
    found: list[Holding[Owned]] = []
    lines: dict[str, int] = {}
    day0 = start.isoformat() if start is not None else ""
    for line, row in read_table(path, (*PLACE, *RESERVATION_COLUMNS, *PROVENANCE)):
        name = row.get("name", "") or f"reservation-{line}"
        owned, end = _reserved(row, name, day0, known, path, line, problems)
        day = provenance_day(row, as_of, path, line, problems)
        if name in lines:
            message = f"{name} is there twice, first in line {lines[name]}"
            problems.append(Problem(message, key="name", file=str(path), line=line, fix="Name it otherwise"))
        lines.setdefault(name, line)
        if owned is None:
            continue
        if end and end <= day0:
            message = f"{name} ended on {end}, before day 0"
            left_out.append(Problem(message, key="end", file=str(path), line=line))
            continue
        found.append(Holding(owned, row.get("source", "") or source or path.name, day))
    if problems:
        raise InputError(problems)
    return Holdings(tuple(found), tuple(left_out))


def _reserved(
    row: Mapping[str, str],
    name: str,
    day0: str,
    known: Catalog,
    path: Path,
    line: int,
    problems: list[Problem],
) -> tuple[Owned | None, str]:
    """The pool of a reservation, None with a mistake, and the day it ends on."""
    before = len(problems)
    node = machine_of(pool_of(row), known, path, line, problems)
    nodes = node_count(row.get("nodes", ""), "nodes", path, line, problems)
    start, end = (day_of(row.get(key, ""), key, path, line, problems) for key in ("start", "end"))
    price = row.get("usd_per_node_h", "")
    usd = amount_of(price, "usd_per_node_h", path, line, problems) if price else 0.0
    if start and end and end <= start:
        message = f"ends on {end}, before it starts"
        problems.append(Problem(message, key="end", file=str(path), line=line, fix="Write a later day"))
    if len(problems) > before or node is None:
        return None, end
    since = "" if start <= day0 else start
    free: list[dict[str, str | float]] = [{"since": since or 0.0, "nodes": nodes}]
    free += [{"since": end, "nodes": 0}] if end else []
    values: dict[str, Any] = {
        "name": name,
        "accelerator": known.accelerator(node.accelerator).name,
        "nodes": nodes,
        "accelerators_per_node": node.accelerators,
        "free": free if since or end else [],
        "node_usd_per_h": usd,
        "network": node.nic_bytes_per_s or None,
    }
    return Owned.model_validate(values, context=CANONICAL), end


def _builtin() -> Catalog:
    from trainplan_models.catalog import builtin

    return builtin()
