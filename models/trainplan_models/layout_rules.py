"""What launcher frameworks can express (``catalog/layout_rules.csv``) and which degrees divide a model."""

from __future__ import annotations

import csv
from dataclasses import dataclass
from functools import lru_cache
from importlib.resources import files
from typing import Literal

from trainplan_models.base import InputError, Problem
from trainplan_models.workload import ModelShape

Recompute = Literal["none", "selective", "full"]
RECOMPUTE: tuple[Recompute, ...] = ("none", "selective", "full")
"""Codes of ``LayoutGrid.recompute`` are positions in this tuple."""

MAX_TENSOR = 64
"""Tensor parallelism beyond this is not looked at, even in bigger scale-up domains."""


@dataclass(frozen=True, slots=True)
class Rules:
    """What a launcher framework can express (``catalog/layout_rules.csv``)."""

    framework: str
    tensor: bool
    pipeline: bool
    interleaved: bool
    context: bool
    expert: bool
    zero_stages: tuple[int, ...]
    hybrid_shard: bool
    uneven_pipeline: bool
    """Embedding and loss may count as one layer each when layers are dealt to stages."""
    kv_replication: bool
    recompute: tuple[Recompute, ...]
    sequence_parallel: bool


@lru_cache(maxsize=1)
def all_rules() -> dict[str, Rules]:
    """Rules by framework."""
    text = files("trainplan_models.catalog").joinpath("layout_rules.csv").read_text(encoding="utf-8")
    found: dict[str, Rules] = {}
    for row in csv.DictReader(text.splitlines()):
        flags = {
            key: row[key] == "1"
            for key in [
                "tensor",
                "pipeline",
                "interleaved",
                "context",
                "expert",
                "hybrid_shard",
                "uneven_pipeline",
                "kv_replication",
                "sequence_parallel",
            ]
        }
        recompute: tuple[Recompute, ...] = tuple(
            word for word in RECOMPUTE if word in row["recompute"].split("|")
        )
        stages = tuple(int(stage) for stage in row["zero_stages"].split("|"))
        found[row["framework"]] = Rules(row["framework"], zero_stages=stages, recompute=recompute, **flags)
    return found


def rules_of(framework: str) -> Rules:
    """The rules of a framework.

    Raises:
        InputError: the framework is not known.
    """
    try:
        return all_rules()[framework]
    except KeyError:
        known = ", ".join(all_rules())
        raise InputError(
            Problem(f"{framework!r} is not a known framework", key="framework", fix=f"known: {known}")
        ) from None


def divisors(number: int) -> list[int]:
    """All divisors in ascending order."""
    small = [i for i in range(1, int(number**0.5) + 1) if number % i == 0]
    return sorted({*small, *(number // i for i in small)})


def tensor_degrees(shape: ModelShape, rules: Rules, limit: int) -> list[int]:
    """Tensor-parallel degrees that split heads, key-value heads and MLP evenly, up to ``limit`` devices."""
    if not rules.tensor:
        return [1]

    def splits(degree: int) -> bool:
        kv = shape.kv_heads % degree == 0 or (rules.kv_replication and degree % shape.kv_heads == 0)
        return (kv or bool(shape.kv_lora_rank)) and shape.ffn % degree == 0 and shape.hidden % degree == 0

    return [degree for degree in divisors(shape.heads) if degree <= limit and splits(degree)]


def pipeline_splits(shape: ModelShape, rules: Rules) -> list[int]:
    """Numbers of chunks (stages times virtual stages) the layers can be dealt to."""
    if not rules.pipeline:
        return [1]
    chunks = set(divisors(shape.layers))
    if rules.uneven_pipeline:
        dealt = ((shape.layers + extra, d) for extra in (1, 2) for d in divisors(shape.layers + extra))
        chunks |= {d for count, d in dealt if d > 1 and count // d >= 2}
    return sorted(chunks)


def context_degrees(sequence_length: int, rules: Rules) -> list[int]:
    """Context-parallel degrees: powers of two that leave two chunks of at least 128 tokens to each device."""
    degrees = [1]
    while (
        rules.context and sequence_length % (4 * degrees[-1]) == 0 and sequence_length // degrees[-1] >= 4096
    ):
        degrees.append(2 * degrees[-1])
    return degrees


def expert_degrees(shape: ModelShape, rules: Rules) -> list[int]:
    """Expert-parallel degrees: divisors of the number of experts."""
    return divisors(shape.experts) if shape.is_moe and rules.expert else [1]
