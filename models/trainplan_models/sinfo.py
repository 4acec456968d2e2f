"""The nodes of a Slurm cluster as owned pools, read from the output of ``sinfo``."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from trainplan_models.base import InputError, Problem
from trainplan_models.case_resources import Owned
from trainplan_models.units import CANONICAL

if TYPE_CHECKING:
    from trainplan_models.catalog import Catalog

SINFO_COMMAND = "sinfo -N -h -o '%N|%P|%T|%c|%m|%G|%f|%E'"
"""The command whose output ``owned_from_sinfo`` reads."""

_GRES = re.compile(r"gpu:(?:(?P<type>[^:,()]+):)?(?P<count>\d+)")
_RANGE = re.compile(r"(?P<prefix>[^\[\]]*)\[(?P<list>[\d,\-]+)\](?P<suffix>.*)$")
_BROKEN = ("down", "drain", "fail", "maint", "unknown", "inval", "not_responding", "*")
_IDLE = ("idle",)


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
    without_accelerators: int = 0
    """Nodes that have none; not in any pool."""


def owned_from_sinfo(
    text: str,
    name: str = "cluster",
    accelerators: Mapping[str, str] | None = None,
    known: Catalog | None = None,
    file: str = "sinfo",
) -> SlurmCluster:
    """Owned pools from the output of ``SINFO_COMMAND``, one for each kind of accelerator node.

    Args:
        text: one line per node and partition, fields parted by ``|``; a header line is skipped.
        name: of the pools; with several kinds of node the accelerator is added to it.
        accelerators: what a GPU type of the cluster is called in the catalogue, where the catalogue does not know it.
        known: the catalogue; None for the one that ships.
        file: what the text is called in messages.

    Raises:
        InputError: no line has accelerators, a line cannot be read, or a GPU type is not known.
    """
    if known is None:
        from trainplan_models.catalog import builtin

        known = builtin()
    nodes, problems, warnings = _slurm_nodes(text, file)
    kinds = _by_kind(nodes.values())
    if not kinds and not problems:
        problems.append(Problem("no node has accelerators", file=file, fix=f"Make it with: {SINFO_COMMAND}"))
    pools = []
    for (gpu, count), members in sorted(kinds.items()):
        chip = _slurm_chip(gpu, accelerators or {}, known, file, problems, warnings)
        usable = [node for node in members if not node.broken]
        if not usable:
            warnings.append(
                Problem(f"all {len(members)} nodes with {count} x {gpu} are down or drained", file=file)
            )
        if chip and usable:
            full = name if len(kinds) == 1 else f"{name}-{gpu}-{count}"
            values = {"name": full, "accelerator": chip, "nodes": len(usable), "accelerators_per_node": count}
            owned = Owned.model_validate(values, context=CANONICAL)
            partitions = tuple(sorted({name for node in members for name in node.partitions}))
            idle = sum(node.idle for node in usable)
            pools.append(SlurmPool(owned, idle, len(members) - len(usable), partitions))
    if problems:
        raise InputError(problems)
    return SlurmCluster(tuple(pools), tuple(warnings), sum(not node.count for node in nodes.values()))


def _by_kind(nodes: Iterable[_SlurmNode]) -> dict[tuple[str, int], list[_SlurmNode]]:
    """Nodes that have accelerators, by their type and number."""
    kinds: dict[tuple[str, int], list[_SlurmNode]] = {}
    for node in nodes:
        if node.count:
            kinds.setdefault((node.gpu, node.count), []).append(node)
    return kinds


@dataclass(slots=True)
class _SlurmNode:
    gpu: str
    count: int
    broken: bool
    idle: bool
    partitions: set[str]


def _slurm_nodes(text: str, file: str) -> tuple[dict[str, _SlurmNode], list[Problem], list[Problem]]:
    nodes: dict[str, _SlurmNode] = {}
    problems: list[Problem] = []
    warnings: list[Problem] = []
    for number, line in enumerate(text.splitlines(), 1):
        fields = [field.strip() for field in line.split("|")]
        if not line.strip() or fields[0].upper() in ("NODELIST", "HOSTNAMES"):
            continue
        if len(fields) < 6:
            message = f"{len(fields)} fields, six are needed: {line.strip()[:60]!r}"
            problems.append(Problem(message, file=file, line=number, fix=f"Make it with: {SINFO_COMMAND}"))
            continue
        names, partition, state, gres = fields[0], fields[1].rstrip("*"), fields[2].lower(), fields[5]
        kinds = _GRES.findall(gres)
        if len(kinds) > 1:
            warnings.append(
                Problem(f"{names} has several kinds of GPU ({gres}); left out", file=file, line=number)
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
    gpu: str,
    names: Mapping[str, str],
    known: Catalog,
    file: str,
    problems: list[Problem],
    warnings: list[Problem],
) -> str:
    chip = known.find_accelerator(names.get(gpu, gpu))
    if chip is None:
        close = difflib.get_close_matches(gpu, [n.lower() for n in known.accelerators], n=3, cutoff=0.3)
        fix = f"Say which it is, e.g. --accelerator {gpu}={close[0] if close else 'H100-SXM'}"
        problems.append(
            Problem(f"GPU type {gpu!r} is not in the catalogue", file=file, key="--accelerator", fix=fix)
        )
        return ""
    word = chip.name.split("-")[0]
    others = [n for n in known.accelerators if n.split("-")[0] == word and n != chip.name]
    if gpu not in names and others:
        message = f"GPU type {gpu!r} is taken as {chip.name}; it could be {', '.join(others)}"
        warnings.append(Problem(message, file=file, fix=f"Say which, e.g. --accelerator {gpu}={chip.name}"))
    return chip.name
