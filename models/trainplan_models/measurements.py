"""Published measurements as layouts the physics can judge.

Tables of many origins leave cells empty. A cell that decides the result and is not printed is filled in the one
way that needs no knowledge of the result: the fastest layout that fits among those that agree with the printed
cells. What was filled is kept beside the row.
"""

from __future__ import annotations

import csv
import re
from dataclasses import dataclass, field
from pathlib import Path

from trainplan_models.base import InputError, Problem
from trainplan_models.catalog.records import Accelerator, NodeType
from trainplan_models.efficiency import precision_on
from trainplan_models.measurement_cells import (
    Known,
    NotJudged,
    Row,
    accelerator_of,
    count,
    first_match,
    model_shape,
    node_of,
    number,
    port_bytes_per_s,
    table,
    typical_shape,
)
from trainplan_models.workload import Adapter, ModelShape, TrainSetup, flops_per_token, total_params

__all__ = [
    "Known",
    "Reading",
    "Unread",
    "normalized",
    "port_bytes_per_s",
    "read",
    "read_rows",
    "typical_shape",
]


@dataclass(frozen=True, slots=True)
class Reading:
    """One row, understood."""

    row_id: str
    setup: TrainSetup
    accelerator: Accelerator
    node: NodeType
    nodes: int
    partial: dict[str, int]
    """Printed layout cells; what is missing is searched."""
    recompute: str
    """Empty when not printed."""
    measured: float | None
    """Tokens per second and accelerator."""
    labels: dict[str, str]
    assumed: tuple[str, ...] = ()
    peak_gib: float | None = None
    outcome: str = ""


@dataclass(frozen=True, slots=True)
class Unread:
    """A row that cannot be judged, and why."""

    row_id: str
    reason: str
    measured: float | None = None
    labels: dict[str, str] = field(default_factory=dict)


def read_rows(path: Path | str) -> list[dict[str, str]]:
    """Rows of a CSV file of measurements.

    Raises:
        InputError: the file cannot be read or has no header.
    """
    try:
        with Path(path).open(encoding="utf-8", newline="") as stream:
            reader = csv.DictReader(stream)
            if not reader.fieldnames:
                raise InputError(Problem("is empty", file=str(path), fix="the first line names the columns"))
            return [{key: value or "" for key, value in row.items() if key is not None} for row in reader]
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(Problem(f"cannot be read: {error}", file=str(path))) from error


VTRAIN = {
    "Parameters (billion)": "params_b",
    "# GPUs": "num_accelerators",
    "global batch": "global_batch_seqs",
    "micro batch": "micro_batch",
    "hidden size": "hidden",
    "attention heads": "heads",
    "# layers": "layers",
    "sequence length": "seq_len",
    "tensor parallelism": "tp",
    "data parallelism": "dp",
    "pipeline parallelism": "pp",
}
"""Columns of the vTrain validation files (github.com/VIA-Research/vTrain) in the words of the other tables."""


def normalized(row: Row) -> dict[str, str]:
    """A row in the columns of the throughput table, whichever of the known tables it comes from."""
    if "iteration time (ms)" not in row:
        return dict(row)
    out = {VTRAIN[key]: value for key, value in row.items() if key in VTRAIN}
    iteration_ms = number(row, "iteration time (ms)")
    out |= {
        "row_id": row.get("row_id", ""),
        "step_time_s": "" if iteration_ms is None else str(iteration_ms / 1000.0),
        "vocab": "51200",
        "accelerator": "A100-80GB-SXM",
        "accelerators_per_node": "8",
        "interconnect": "4x HDR 200Gb per node",
        "precision": "fp16",
        "recompute": "full",
        "framework": "Megatron-DeepSpeed (vTrain)",
        "zero_stage": "zero0",
        "source_group": "vtrain",
        "task": "pretrain",
        "year": "2022",
    }
    return out


PRECISIONS = (("fp4", "fp4"), ("fp8", "fp8"), ("fp16", "fp16"), ("bf16", "bf16"), ("fp32", "fp32"))


def _precision(row: Row) -> str:
    text = row.get("precision", "").lower()
    return next((word for part, word in PRECISIONS if part in text), "")


def _zero(row: Row, framework: str) -> tuple[int | None, int, bool]:
    """Stage, shard group and optimizer offload; stage None when not printed."""
    text = row.get("zero_stage", "").lower()
    if not text:
        return ({"fsdp": 3, "torchtitan": 3, "maxtext": 3}.get(framework)), 0, False
    group = re.search(r"\((\d+)-(?:gpu|way)", text) or re.search(r"fsdp\((\d+)\)", text)
    stage = next((int(digit) for digit in re.findall(r"(?:zero)?([0-3])(?:$|\D)", text.split("(")[0])), None)
    if "fsdp" in text or "hsdp" in text:
        stage = 2 if "zero2" in text else 3
    size = int(group.group(1)) if group else (8 if "hsdp" in text else 0)
    return stage, size, "offload" in text


def _benchmark_round(row: Row) -> Row | None:
    """What is public about the submissions to a round of an audited benchmark; its tables leave those cells empty."""
    source, maker = row.get("source_group", ""), row.get("accelerator", "")
    return next(
        (
            item
            for item in table("benchmark_rounds.csv")
            if re.match(item["rows"], source) and re.search(item["accelerators"], maker)
        ),
        None,
    )


def _software(row: Row) -> dict[str, str]:
    text = f"{row.get('framework', '')} {row.get('status_note', '')}"
    if "Megatron-DeepSpeed" in text and "vTrain" not in text and _precision(row) == "bf16":
        text = text.replace("Megatron-DeepSpeed", "Megatron-DeepSpeed BF16")
    if round_of := _benchmark_round(row):
        text = round_of["framework"]
    match = first_match("software_labels.csv", text)
    if match is None:
        raise NotJudged(f"framework {row.get('framework', '')!r} is not known")
    return match


def _batch(
    row: Row, dp: int | None, micro: int | None, devices: int, seq: int
) -> tuple[int, tuple[str, ...]]:
    if batch := count(row, "global_batch_seqs"):
        return batch, ()
    note = row.get("status_note", "")
    counted = re.search(r"micro-batch count (\d+)", note)
    if dp and counted:
        return dp * (micro or 1) * int(counted.group(1)), ("micro_batch",) if not micro else ()
    per_device = re.search(r"(?:pdb|per_device_batch) (\d+)", note)
    if per_device:
        return devices * int(per_device.group(1)), ()
    if dp and micro:
        return dp * micro, ("global_batch",)
    each = max(round(16384 / seq), 1)
    return max((dp or devices) * each, 1), ("global_batch",)


def _measured(row: Row, setup: TrainSetup, accelerator: Accelerator, devices: int) -> float | None:
    if rate := number(row, "tokens_per_s_per_accel"):
        return rate
    if (step := number(row, "step_time_s")) and row.get("task", "").startswith(("pretrain", "sft", "lora")):
        return setup.tokens_per_step / step / devices
    flops = number(row, "metric_value") or 0.0
    metric, convention = row.get("metric_name", ""), row.get("attention_flops", "")
    if metric == "MFU_pct":
        flops = flops / 100.0 * accelerator.bf16_flops / 1e12
    elif "FLOP" not in metric and "TFLOPS" not in metric:
        return None
    if not flops:
        return None
    causal = convention == "causal" or row.get("source_group") == "nemo-longseq"
    work = flops_per_token(setup.shape, setup.sequence_length, causal, setup.lora)
    hardware = metric.startswith("hardware") or "achieved" in metric
    if hardware and row.get("recompute") == "full":
        work *= 4.0 / 3.0
    return flops * 1e12 / work


def _sequence(row: Row) -> tuple[int, tuple[str, ...]]:
    if seq := count(row, "seq_len"):
        return seq, ()
    if "SimuMax" in row.get("framework", ""):
        return 4096, ("sequence_length",)
    if row.get("source_group") == "levanter":
        return 1024, ("sequence_length",)
    raise NotJudged("sequence length not given")


def _labels(
    row: Row, shape: ModelShape, accelerator: Accelerator, software: str, precision: str
) -> dict[str, str]:
    params = total_params(shape) / 1e9
    size = next(
        name
        for bound, name in ((2, "<2B"), (20, "2-20B"), (100, "20-100B"), (float("inf"), ">100B"))
        if params < bound
    )
    return {
        "accelerator": accelerator.name,
        "generation": accelerator.generation,
        "precision": precision,
        "source": row.get("source_group", "") or "yours",
        "size": size,
        "model": "moe" if shape.is_moe else "dense",
        "task": row.get("task", "") or "pretrain",
        "software": software,
        "framework": row.get("framework", ""),
        "year": row.get("year", ""),
    }


def read(row: Row, known: Known) -> Reading | Unread:
    """A row as something that can be predicted, or the reason why it cannot."""
    row = normalized(row)
    row_id = row.get("row_id", "")
    try:
        return _read(row, row_id, known)
    except NotJudged as reason:
        return Unread(
            row_id,
            str(reason),
            number(row, "tokens_per_s_per_accel"),
            {"source": row.get("source_group", "")},
        )


def _read(row: Row, row_id: str, known: Known) -> Reading:
    task = row.get("task", "") or "pretrain"
    if task.startswith("rl"):
        raise NotJudged("reinforcement learning: rollout and update placement not given")
    accelerator, shape = accelerator_of(row, known), model_shape(row, known)
    software = _software(row)
    seq, assumed = _sequence(row)
    devices = count(row, "num_accelerators")
    if devices is None:
        raise NotJudged("number of accelerators not given")
    node, nodes = node_of(row, accelerator, devices)
    partial, offload = _degrees(row, devices, software)
    batch, filled = _batch(row, partial.get("dp"), partial.get("micro_batch"), devices, seq)
    _settle(row, partial, software, filled)
    if partial.get("dp", 1) > batch:
        raise NotJudged(f"printed degrees need {partial['dp']} replicas for a global batch of {batch}")
    precision = _precision(row) or _default_precision(row, accelerator)
    setup = TrainSetup(
        shape=shape,
        sequence_length=seq,
        global_batch_sequences=batch,
        precision=precision,
        optimizer="adamw-offload" if offload else software["optimizer"],
        lora=_lora(task),
        kind="sft" if task in ("lora", "qlora", "sft") else "pretrain",
        framework=software["framework"],
        software=software["software"],
        document_tokens=512 if "packed" in row.get("status_note", "") or _finetune(row, task) else 0,
    )
    missing = tuple(key for key in ("micro_batch", "tp") if key not in partial)
    recompute = _recompute(row, software)
    return Reading(
        row_id, setup, accelerator, node, nodes, partial, recompute,
        _measured(row, setup, accelerator, devices),
        _labels(row, shape, accelerator, software["software"], precision),
        (*assumed, *filled, *missing, *(() if recompute else ("recompute",))),
        number(row, "peak_gib"), row.get("outcome", ""),
    )  # fmt: skip


def _degrees(row: Row, devices: int, software: Row) -> tuple[dict[str, int], bool]:
    """Printed degrees with what follows from them, and whether the optimizer is offloaded."""
    names = ("tp", "pp", "vp", "cp", "ep", "micro_batch")
    partial = {key: value for key in names if (value := count(row, key))}
    if "tp" in partial or "pp" in partial:
        for key in ("tp", "pp", "vp", "cp"):
            partial.setdefault(key, 1)
    model_parallel = partial.get("tp", 1) * partial.get("pp", 1) * partial.get("cp", 1)
    if "tp" in partial and devices % model_parallel == 0:
        partial["dp"] = devices // model_parallel
    stage, group, offload = _zero(row, software["framework"])
    if stage is not None:
        partial["zero_stage"], partial["shard_group"] = stage, group
    return partial, offload


INTERLEAVING = ("mlperf", "published-run", "dgxc-bench", "megatron-lm-readme")
"""Sources that interleave their pipelines and have tables that leave the cell empty."""


def _settle(row: Row, partial: dict[str, int], software: Row, filled: tuple[str, ...]) -> None:
    """Habits of frameworks and tables that change what a printed degree means."""
    piped = partial.get("pp", 1) > 1
    if "micro_batch" in filled or (software["framework"] == "torchtitan" and piped):
        # torchtitan's local batch of a pipeline is cut into micro-batches of one sequence.
        partial["micro_batch"] = 1
    if row.get("source_group", "").startswith(INTERLEAVING) and not row.get("vp"):
        partial.pop("vp", None)
    if spread := re.search(r"sequence_parallel=(True|False)", row.get("status_note", "")):
        partial["sequence_parallel"] = int(spread.group(1) == "True")
    elif "seqpar" in row.get("recompute", ""):
        partial["sequence_parallel"] = 1
    elif software["software"].startswith("megatron-2023-"):
        partial["sequence_parallel"] = 0


def _recompute(row: Row, software: Row) -> str:
    """The printed recompute kind; empty when it is open."""
    printed = row.get("recompute", "").split("+")[0].replace("selective-op", "selective")
    if not printed and software["software"] == "hf-2024":
        # Fine-tuning scripts recompute nothing unless told to.
        return "none"
    return printed


def _finetune(row: Row, task: str) -> bool:
    """Fine-tuning benchmarks that pack short documents."""
    return task in ("sft", "lora") and row.get("source_group", "") in (
        "dgxc-bench",
        "megatron-bridge",
        "nemo-24.0x",
    )


def _default_precision(row: Row, accelerator: Accelerator) -> str:
    """What is trained in where the table does not say."""
    round_of = _benchmark_round(row)
    precision = round_of["precision"] if round_of else "bf16"
    return precision_on(precision, accelerator) or "bf16"


def _lora(task: str) -> Adapter | None:
    return Adapter(rank=16, quantized_base=task == "qlora") if task in ("lora", "qlora") else None
