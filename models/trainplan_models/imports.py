"""What is there already, read from the files people have: Slurm's node list, quotas, reservations.

Price lists in SkyPilot's columns are read by ``trainplan_models.prices``, negotiated prices by ``private_prices``.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trainplan_models.base import InputError, Problem
from trainplan_models.case_resources import Owned, Quota
from trainplan_models.import_tables import amount_of, day_of, machine_of, node_count, pool_of, read_table
from trainplan_models.units import CANONICAL

if TYPE_CHECKING:
    from trainplan_models.catalog import Catalog

SINFO_COMMAND = "sinfo --Node --noheader --format='%N|%P|%T|%c|%m|%G|%f|%E'"
"""The command whose output ``owned_from_sinfo`` reads."""

_GRES = re.compile(r"gpu:(?:(?P<type>[^:,()]+):)?(?P<count>\d+)")
_RANGE = re.compile(r"(?P<prefix>[^\[\]]*)\[(?P<list>[\d,\-]+)\](?P<suffix>.*)$")
_BROKEN = ("down", "drain", "fail", "maint", "unknown", "inval", "not_responding", "*")
_IDLE = ("idle",)

QUOTA_COLUMNS = ("on_demand", "spot", "reserved", "capacity_block")


@dataclass(frozen=True, slots=True)
class SlurmPool:
    """The nodes of a Slurm cluster that have the same accelerators."""

    owned: Owned
    """Every node that is not broken."""
    idle: int
    """Nodes without a job at the moment."""
    broken: int
    """Nodes that are down, drained or in maintenance; not counted in ``owned``."""
    partitions: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class SlurmCluster:
    """What a node list describes."""

    pools: tuple[SlurmPool, ...]
    warnings: tuple[Problem, ...]


def owned_from_sinfo(
    text: str,
    name: str = "cluster",
    accelerators: Mapping[str, str] | None = None,
    known: Catalog | None = None,
) -> SlurmCluster:
    """Owned pools from the output of ``SINFO_COMMAND``, one for each kind of accelerator node.

    Args:
        text: one line per node and partition, fields parted by ``|``; a header line is skipped.
        name: of the pools; with several kinds of node the accelerator is added to it.
        accelerators: what a GPU type of the cluster is called in the catalogue, where the catalogue does not know it.
        known: the catalogue; None for the one that ships.

    Raises:
        InputError: no line has accelerators, a line cannot be read, or a GPU type is not known.
    """
    known = known or _builtin()
    nodes, problems, warnings = _slurm_nodes(text)
    kinds: dict[tuple[str, int], list[_SlurmNode]] = {}
    for node in nodes.values():
        if node.count:
            kinds.setdefault((node.gpu, node.count), []).append(node)
    if not kinds and not problems:
        problems.append(
            Problem("no node has accelerators", file="sinfo", fix=f"Make it with: {SINFO_COMMAND}")
        )
    pools = []
    for (gpu, count), members in sorted(kinds.items()):
        chip = _slurm_chip(gpu, accelerators or {}, known, problems, warnings)
        usable = [node for node in members if not node.broken]
        if not usable:
            warnings.append(
                Problem(f"all {len(members)} nodes with {count} x {gpu} are down or drained", file="sinfo")
            )
        if chip and usable:
            full = name if len(kinds) == 1 else f"{name}-{gpu}-{count}"
            owned = _owned(name=full, accelerator=chip, nodes=len(usable), accelerators_per_node=count)
            partitions = tuple(sorted({name for node in members for name in node.partitions}))
            idle = sum(node.idle for node in usable)
            pools.append(SlurmPool(owned, idle, len(members) - len(usable), partitions))
    if problems:
        raise InputError(problems)
    return SlurmCluster(tuple(pools), tuple(warnings))


@dataclass(slots=True)
class _SlurmNode:
    gpu: str
    count: int
    broken: bool
    idle: bool
    partitions: set[str]


def _slurm_nodes(text: str) -> tuple[dict[str, _SlurmNode], list[Problem], list[Problem]]:
    nodes: dict[str, _SlurmNode] = {}
    problems: list[Problem] = []
    warnings: list[Problem] = []
    for number, line in enumerate(text.splitlines(), 1):
        fields = [field.strip() for field in line.split("|")]
        if not line.strip() or fields[0].upper() in ("NODELIST", "HOSTNAMES"):
            continue
        if len(fields) < 6:
            message = f"{len(fields)} fields, six are needed: {line.strip()[:60]!r}"
            problems.append(Problem(message, file="sinfo", line=number, fix=f"Make it with: {SINFO_COMMAND}"))
            continue
        names, partition, state, gres = fields[0], fields[1].rstrip("*"), fields[2].lower(), fields[5]
        kinds = _GRES.findall(gres)
        if len(kinds) > 1:
            warnings.append(
                Problem(f"{names} has several kinds of GPU ({gres}); left out", file="sinfo", line=number)
            )
            kinds = []
        gpu, count = (kinds[0][0] or "gpu", int(kinds[0][1])) if kinds else ("", 0)
        for node in _hosts(names):
            found = nodes.setdefault(node, _SlurmNode(gpu, count, False, False, set()))
            found.broken = found.broken or any(word in state for word in _BROKEN)
            found.idle = state in _IDLE
            found.partitions.add(partition)
    return nodes, problems, warnings


def _hosts(names: str) -> Iterator[str]:
    """The hosts of ``n[1-3,7]``, or the one host."""
    for part in re.split(r",(?![^\[]*\])", names):
        match = _RANGE.match(part)
        if match is None:
            yield part
            continue
        for span in match["list"].split(","):
            first, _, last = span.partition("-")
            for number in range(int(first), int(last or first) + 1):
                yield f"{match['prefix']}{number:0{len(first)}d}{match['suffix']}"


def _slurm_chip(
    gpu: str, names: Mapping[str, str], known: Catalog, problems: list[Problem], warnings: list[Problem]
) -> str:
    chip = known.find_accelerator(names.get(gpu, gpu))
    if chip is None:
        close = difflib.get_close_matches(gpu, [n.lower() for n in known.accelerators], n=3, cutoff=0.3)
        fix = f"Say which it is, e.g. {gpu}={close[0] if close else 'H100-SXM'}"
        problems.append(
            Problem(f"GPU type {gpu!r} is not in the catalogue", file="sinfo", key="accelerators", fix=fix)
        )
        return ""
    word = chip.name.split("-")[0]
    others = [n for n in known.accelerators if n.split("-")[0] == word and n != chip.name]
    if gpu not in names and others:
        message = f"GPU type {gpu!r} is taken as {chip.name}; it could be {', '.join(others)}"
        warnings.append(Problem(message, file="sinfo", fix=f"Say which, e.g. {gpu}={chip.name}"))
    return chip.name


def quotas_from_csv(path: Path, known: Catalog | None = None) -> tuple[Quota, ...]:
    """Quotas from a table with the columns ``pool`` and any of ``on_demand``, ``spot``, ``reserved``,
    ``capacity_block``, in nodes; an empty cell is no limit.

    ``pool`` is ``cloud/region/instance_type``; three columns of these names may stand in its place.

    Raises:
        InputError: with every mistake of the file, by line.
    """
    known = known or _builtin()
    problems: list[Problem] = []
    found = []
    for line, row in read_table(path):
        pool = pool_of(row)
        place = f"{pool}: " if pool else ""
        limits = {}
        for column in QUOTA_COLUMNS:
            text = (row.get(column) or row.get(column.replace("_", "-")) or "").strip()
            if text:
                limits[column] = node_count(text, f"{place}{column}", path, line, problems)
        if machine_of(pool, known, path, line, problems) is not None and not limits:
            fix = f"Fill in one of {', '.join(QUOTA_COLUMNS)}"
            problems.append(Problem(f"{place}limits nothing", file=str(path), line=line, fix=fix))
        if not problems:
            found.append(Quota.model_validate({"pool": pool, **limits}, context=CANONICAL))
    if problems:
        raise InputError(problems)
    return tuple(found)


def reservations_from_csv(
    path: Path, known: Catalog | None = None, *, start: date | None = None
) -> tuple[Owned, ...]:
    """Reservations that are already paid for, as owned pools that are there from ``start`` to ``end``.

    Columns: ``name``, ``pool`` (or cloud, region, instance_type), ``nodes``, ``start`` and ``end`` (ISO dates, either
    may be empty), and ``usd_per_node_h`` where using them still costs something.

    With ``start``, day 0 of the case, what began before it is there from day 0, and what ended before it is a mistake.

    Raises:
        InputError: with every mistake of the file, by line.
    """
    known = known or _builtin()
    problems: list[Problem] = []
    day0 = start.isoformat() if start is not None else ""
    found = []
    for line, row in read_table(path):
        node = machine_of(pool_of(row), known, path, line, problems)
        nodes = node_count(row.get("nodes", ""), "nodes", path, line, problems)
        days = {key: day_of(row.get(key, ""), key, path, line, problems) for key in ("start", "end")}
        price = row.get("usd_per_node_h", "").strip()
        usd = amount_of(price, "usd_per_node_h", path, line, problems) if price else 0.0
        if days["start"] and days["end"] and days["end"] <= days["start"]:
            problems.append(
                Problem(f"ends on {days['end']}, before it starts", key="end", file=str(path), line=line)
            )
        if days["end"] and days["end"] <= day0:
            message = f"ended on {days['end']}, before day 0"
            problems.append(Problem(message, key="end", file=str(path), line=line, fix="Remove the line"))
        if problems or node is None:
            continue
        days["start"] = "" if days["start"] <= day0 else days["start"]
        free: list[dict[str, str | float]] = [{"since": days["start"] or 0.0, "nodes": nodes}]
        free += [{"since": days["end"], "nodes": 0}] if days["end"] else []
        found.append(
            _owned(
                name=row.get("name", "").strip() or f"reservation-{line}",
                accelerator=known.accelerator(node.accelerator).name,
                nodes=nodes,
                accelerators_per_node=node.accelerators,
                free=free if days["start"] or days["end"] else [],
                node_usd_per_h=usd,
                network=node.nic_bytes_per_s or None,
            )
        )
    if problems:
        raise InputError(problems)
    return tuple(found)


def _builtin() -> Catalog:
    from trainplan_models.catalog import builtin

    return builtin()


def _owned(**values: Any) -> Owned:
    return Owned.model_validate(values, context=CANONICAL)
