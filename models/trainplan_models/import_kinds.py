"""What a file to import is, told from its first lines."""

from __future__ import annotations

import csv
from pathlib import Path

from trainplan_models.base import InputError, Problem
from trainplan_models.import_tables import column_name
from trainplan_models.imports import QUOTA_COLUMNS
from trainplan_models.private_prices import AMOUNTS
from trainplan_models.sinfo import SINFO_COMMAND

KINDS = {
    "price-list": "a price list in the columns of SkyPilot's catalogues: InstanceType, AcceleratorName, ...",
    "prices": f"private prices: cloud, instance_type, region, mode, and {', '.join(AMOUNTS[:2])} or {AMOUNTS[2]}",
    "quotas": f"quotas: pool, and any of {', '.join(QUOTA_COLUMNS)}",
    "reservations": "reservations that are paid for: name, pool, nodes, start, end",
    "sinfo": f"the nodes of a Slurm cluster, printed by {SINFO_COMMAND}",
}
"""Kinds of file by name, and what each has in it."""

_HEAD_CHARS = 100_000
_SINFO_FIELDS = 6


def kind_of(path: Path) -> str:
    """The kind of a file, a key of ``KINDS``.

    Raises:
        InputError: it cannot be read, or is none of them.
    """
    try:
        with path.open(encoding="utf-8-sig", newline="") as stream:
            head = stream.read(_HEAD_CHARS)
    except OSError as error:
        raise InputError(Problem(f"cannot be read: {error.strerror or error}", file=str(path))) from None
    except UnicodeDecodeError as error:
        raise InputError(Problem(f"cannot be read as UTF-8: {error}", file=str(path))) from None
    lines = [line for line in head.splitlines() if line.strip()]
    if not lines:
        raise InputError(Problem("is empty", file=str(path), fix=_choices()))
    if lines[0].count("|") >= _SINFO_FIELDS - 1:
        return "sinfo"
    columns = {column_name(name) for name in next(csv.reader(lines[:1]))}
    if "instancetype" in columns:
        return "price-list"
    if columns & {"mode", *AMOUNTS[1:]}:
        return "prices"
    if columns & set(QUOTA_COLUMNS):
        return "quotas"
    if columns & {"nodes", "start", "end"}:
        return "reservations"
    message = f"its first line tells no kind of import: {lines[0][:80]!r}"
    raise InputError(Problem(message, file=str(path), line=1, fix=_choices()))


def _choices() -> str:
    return "Known are " + "; ".join(f"{name} ({what})" for name, what in KINDS.items())
