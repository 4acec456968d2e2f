"""What is there already (clusters, quotas, reservations), as a case writes it."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ruamel.yaml.comments import CommentedMap

    from trainplan_models.base import Problem
    from trainplan_models.case_resources import Owned, Quota
    from trainplan_models.catalog import Catalog
    from trainplan_models.imports import Holding
    from trainplan_models.sinfo import SlurmCluster


def clusters(
    file: Path, names: dict[str, str], known: Catalog, *, name: str = "", source: str = "", as_of: str = ""
) -> list[Holding[Owned]]:
    """The owned pools in the output of ``sinfo``; what they are is told on stderr.

    Raises:
        InputError: the file cannot be read, or is no such output.
    """
    from trainplan_models.imports import Holding
    from trainplan_models.sinfo import owned_from_sinfo

    text = read_text(file)
    cluster = owned_from_sinfo(text, name or file.stem, accelerators=names, known=known, file=str(file))
    _tell(cluster)
    return [Holding(pool.owned, source or file.name, as_of) for pool in cluster.pools]


def _tell(cluster: SlurmCluster) -> None:
    for pool in cluster.pools:
        owned = pool.owned
        broken = f", {pool.broken} out of order" if pool.broken else ""
        machines = f"{owned.nodes} nodes of {owned.accelerators_per_node} {owned.accelerator}"
        sys.stderr.write(f"{owned.name}: {machines}, {pool.idle} idle now{broken}\n")
    if cluster.without_accelerators:
        sys.stderr.write(f"left out: {cluster.without_accelerators} nodes without accelerators\n")
    sys.stderr.writelines(f"warning: {warning}\n" for warning in cluster.warnings)


def accelerator_names(words: list[str]) -> dict[str, str]:
    """``TYPE=NAME`` words as a mapping.

    Raises:
        InputError: a word is something else.
    """
    from trainplan_models.base import InputError, Problem

    wrong = [word for word in words if word.count("=") != 1]
    if wrong:
        raise InputError(
            Problem(f"{wrong[0]!r} is not TYPE=NAME", key="--accelerator", fix="Write h100=H100-SXM")
        )
    return dict(word.split("=") for word in words)


def tell_left_out(problems: Iterable[Problem]) -> None:
    """How many lines are no use, and each with its reason."""
    lines = list(problems)
    if lines:
        sys.stderr.write(f"left out: {len(lines)} {'line' if len(lines) == 1 else 'lines'}\n")
        sys.stderr.writelines(f"  {line}\n" for line in lines)


def quota_entry(holding: Holding[Quota]) -> CommentedMap:
    """A quota as an entry of ``resources.quotas``, with where it is from."""
    record = holding.record.model_dump(by_alias=True, exclude_none=True)
    entry = {key: value if key == "pool" else f"{value} nodes" for key, value in record.items()}
    return _commented(entry, "pool", holding)


def owned_entry(holding: Holding[Owned]) -> CommentedMap:
    """A cluster or reservation as an entry of ``resources.owned``, with where it is from."""
    return _commented(_written(holding.record.model_dump(exclude_defaults=True)), "name", holding)


def _commented(entry: dict[str, Any], key: str, holding: Holding[Any]) -> CommentedMap:
    from ruamel.yaml.comments import CommentedMap

    found = CommentedMap(entry)
    when = f", {holding.as_of}" if holding.as_of else ""
    found.yaml_add_eol_comment(f"from {holding.source}{when}", key)
    return found


def _written(record: dict[str, Any]) -> dict[str, Any]:
    """A record of the case with units, as a person would write it."""
    from trainplan_models.units import format_quantity

    units: dict[str, Any] = {"network": "bytes_per_s", "node_usd_per_h": "usd_per_h"}
    names = {"node_usd_per_h": "node_price"}
    found: dict[str, Any] = {}
    for key, value in record.items():
        if key == "nodes":
            found[key] = f"{value} nodes"
        elif key == "free":
            found[key] = [{"from": _moment(one["since"]), "nodes": f"{one['nodes']} nodes"} for one in value]
        elif key in units:
            found[names.get(key, key)] = format_quantity(value, units[key])
        else:
            found[key] = value
    return found


def _moment(since: str | float) -> str:
    return since if isinstance(since, str) else f"day {since / 86400.0:g}"


def read_text(path: Path) -> str:
    """The text of a file.

    Raises:
        InputError: it cannot be read.
    """
    from trainplan_models.base import InputError, Problem

    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise InputError(Problem(f"cannot be read: {error.strerror or error}", file=str(path))) from None
    except UnicodeDecodeError as error:
        raise InputError(Problem(f"cannot be read as UTF-8: {error}", file=str(path))) from None
