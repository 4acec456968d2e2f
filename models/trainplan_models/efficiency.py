"""The fitted side of the physics: what hardware and software generations achieve (``catalog/efficiency*.csv``).

Every parameter is physical, has a unit and bounds (``catalog/efficiency_bounds.csv``) and belongs to an accelerator
generation or a software generation, never to a model or a measurement.
"""

from __future__ import annotations

import csv
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from functools import lru_cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any, TypeVar

from trainplan_models.base import InputError, Problem
from trainplan_models.collectives import Links

if TYPE_CHECKING:
    from trainplan_models.catalog.records import Accelerator, NodeType

Row = TypeVar("Row")


@dataclass(frozen=True, slots=True)
class Hardware:
    """What an accelerator generation achieves."""

    generation: str
    matmul_frac: float
    fp8_frac: float
    fp4_frac: float
    tail_elements: float
    attention_frac: float
    attention_half_tokens: float
    memory_frac: float
    gap_s: float
    host_s: float
    scaleup_frac: float
    scaleup_latency_s: float
    scaleout_frac: float
    scaleout_latency_s: float
    half_message_bytes: float
    overlap_slowdown: float
    straggler_frac: float
    power_exponent: float
    """How the matmul rate goes with the power limit: 1/3 where voltage falls with the clock, 1 where it cannot."""
    watts_per_tflops: float
    """Power per peak rate at which the matmul rate was measured; parts with less run slower."""
    measured: bool = True
    """Whether measurements of this generation went into the numbers; otherwise they are scaled from a relative."""


@dataclass(frozen=True, slots=True)
class Software:
    """What a generation of a training framework makes of the hardware."""

    software: str
    framework: str
    current: bool
    compute_factor: float
    attention_factor: float
    moe_factor: float
    elementwise_factor: float
    cast_factor: float
    launch_factor: float
    tp_overlap: float
    dp_overlap: float
    cp_overlap: float
    ep_overlap: float
    pp_overlap: float
    stall_frac: float
    step_overhead_s: float
    fused_attention: bool
    selective_recompute: float
    """Share of the forward matmuls that selective recompute repeats."""
    buckets_per_layer: float
    grad_sync_bytes: float
    accumulate_bytes: float
    """Memory traffic per parameter for adding the gradients of a micro-batch to those of the ones before."""
    expert_kernels: float
    """Kernels per local expert and layer, forward."""
    dispatch_once: bool
    """Whether a token goes once to each domain that holds any of its experts, and not once to each of them."""
    logits_bytes: float
    """Bytes held per logit at the loss."""
    logits_split: bool
    """Whether the logits are spread over tensor parallelism."""
    norm_bytes: float
    """Bytes per token and channel that unfused norms and rotations keep beside a fused implementation."""
    buffer_gb: float
    """Communication buckets and flattened copies, GB."""
    fragmentation_frac: float
    """Share of activations and transient buffers that the caching allocator loses."""
    since: str
    note: str = ""


@dataclass(frozen=True, slots=True)
class Optimizer:
    """Bytes per trainable parameter of an optimizer recipe, before any sharding."""

    recipe: str
    weight_bytes: float
    """The copy that the matmuls read (shared by master weights where these are the same tensor)."""
    grad_bytes: float
    master_bytes: float
    state_bytes: float
    host_bytes: float
    """Kept in host memory instead."""
    disk_bytes: float
    """In a checkpoint that can be resumed."""
    step_bytes: float
    """Read and written by one optimizer step."""


def _read(name: str) -> list[dict[str, str]]:
    text = files("trainplan_models.catalog").joinpath(name).read_text(encoding="utf-8")
    return list(csv.DictReader(text.splitlines()))


def _typed(record: type, row: Mapping[str, str]) -> Any:
    values: dict[str, Any] = {}
    for field in fields(record):
        if field.type == "float":
            values[field.name] = float(row[field.name])
        elif field.type == "bool":
            values[field.name] = row[field.name] == "1"
        else:
            values[field.name] = row[field.name]
    return record(**values)


def hardware_from(rows: Iterable[Mapping[str, str]]) -> dict[str, Hardware]:
    """Hardware parameters by generation, from rows in the columns of ``efficiency.csv``."""
    return {row["generation"]: _typed(Hardware, row) for row in rows}


def software_from(rows: Iterable[Mapping[str, str]]) -> dict[str, Software]:
    """Software parameters by name, from rows in the columns of ``efficiency_software.csv``."""
    return {row["software"]: _typed(Software, row) for row in rows}


@lru_cache(maxsize=1)
def hardware_rows() -> dict[str, Hardware]:
    """Hardware parameters by generation."""
    return hardware_from(_read("efficiency.csv"))


@lru_cache(maxsize=1)
def software_rows() -> dict[str, Software]:
    """Software parameters by name."""
    return software_from(_read("efficiency_software.csv"))


@lru_cache(maxsize=1)
def optimizers() -> dict[str, Optimizer]:
    """Optimizer recipes by name."""
    return {row["recipe"]: _typed(Optimizer, row) for row in _read("optimizers.csv")}


@lru_cache(maxsize=1)
def bounds() -> dict[str, tuple[float, float]]:
    """Allowed range of every fitted parameter."""
    return {
        row["parameter"]: (float(row["low"]), float(row["high"])) for row in _read("efficiency_bounds.csv")
    }


def hardware_of(generation: str) -> Hardware:
    """Parameters of a generation.

    Raises:
        InputError: no parameters for it.
    """
    return _lookup(hardware_rows(), generation, "generation")


def software_of(framework: str, software: str = "") -> Software:
    """The named software generation, or the current one of the framework.

    Raises:
        InputError: unknown name.
    """
    if software:
        return _lookup(software_rows(), software, "software")
    for row in software_rows().values():
        if row.framework == framework and row.current:
            return row
    return _lookup(software_rows(), framework, "framework")


def optimizer_of(recipe: str) -> Optimizer:
    """The optimizer recipe.

    Raises:
        InputError: unknown name.
    """
    return _lookup(optimizers(), recipe, "optimizer")


def _lookup(rows: dict[str, Row], name: str, key: str) -> Row:
    try:
        return rows[name]
    except KeyError:
        known = ", ".join(rows)
        raise InputError(Problem(f"{name!r} is not known", key=key, fix=f"known: {known}")) from None


def links_of(hardware: Hardware, accelerator: Accelerator, node: NodeType) -> Links:
    """Achieved link rates of an accelerator in a machine."""
    nic = node.nic_bytes_per_s or accelerator.nic_bytes_per_s or 0.0
    scaleup = accelerator.scaleup_bytes_per_s * hardware.scaleup_frac
    scaleout = nic * hardware.scaleout_frac
    return Links(
        scaleup_bytes_per_s=max(scaleup, 1e9),
        scaleup_latency_s=hardware.scaleup_latency_s,
        scaleout_bytes_per_s=max(scaleout, 1e8),
        scaleout_latency_s=hardware.scaleout_latency_s,
        domain=max(node.scaleup_devices, 1),
        half_message_bytes=hardware.half_message_bytes,
    )


def power_factor(hardware: Hardware, accelerator: Accelerator) -> float:
    """Rate of a part against the measured ones by its power per peak rate (``Hardware.power_exponent``)."""
    if not hardware.watts_per_tflops or not accelerator.tdp_w:
        return 1.0
    share = accelerator.tdp_w / (accelerator.bf16_flops / 1e12) / hardware.watts_per_tflops
    return float(min(max(share, 0.2), 1.6) ** hardware.power_exponent)


def precision_on(wanted: str, accelerator: Accelerator) -> str | None:
    """The precision a chip trains in when ``wanted`` is asked; None where it has no such format.

    Chips without bf16 train in fp16, which has its size and its rate.
    """
    rates = {"fp8": accelerator.fp8_flops, "fp4": accelerator.fp4_flops}
    if wanted in rates and not rates[wanted]:
        return None
    return "fp16" if wanted == "bf16" and not accelerator.has_bf16 else wanted


def matmul_flops(hardware: Hardware, accelerator: Accelerator, precision: str) -> float:
    """Sustained matmul rate in a precision, FLOP/s; a format the chip lacks runs in the next wider one."""
    power = power_factor(hardware, accelerator)
    if precision == "fp32":
        return 0.5 * accelerator.bf16_flops * hardware.matmul_frac * power
    if precision == "fp4" and accelerator.fp4_flops and hardware.fp4_frac:
        return accelerator.fp4_flops * hardware.fp4_frac * power
    if precision in ("fp4", "fp8") and accelerator.fp8_flops and hardware.fp8_frac:
        return accelerator.fp8_flops * hardware.fp8_frac * power
    return accelerator.bf16_flops * hardware.matmul_frac * power
