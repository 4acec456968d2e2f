"""What an engine that generates text achieves (``catalog/rollout.csv``), and how older ones compare."""

from __future__ import annotations

import csv
from dataclasses import dataclass, fields
from functools import lru_cache
from importlib.resources import files


@dataclass(frozen=True, slots=True)
class Engine:
    """Physical parameters of generation and of the steps around it; meanings and bounds are in the table."""

    decode_bandwidth_frac: float
    exchange_inside_s: float
    exchange_across_s: float
    token_host_s: float
    layer_gap_s: float
    update_frac: float
    refit_frac: float
    step_overhead_s: float


@lru_cache(maxsize=1)
def engine_rows() -> dict[str, dict[str, str]]:
    """The table of parameters, by name."""
    text = files("trainplan_models.catalog").joinpath("rollout.csv").read_text(encoding="utf-8")
    return {row["parameter"]: row for row in csv.DictReader(text.splitlines())}


@lru_cache(maxsize=1)
def engine() -> Engine:
    """The current values."""
    rows = engine_rows()
    return Engine(**{field.name: float(rows[field.name]["value"]) for field in fields(Engine)})
