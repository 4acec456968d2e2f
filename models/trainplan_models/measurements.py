"""Published measurements as layouts the physics can judge.

Tables of many origins leave cells empty. A cell that decides the result and is not printed is filled in the one
way that needs no knowledge of the result: the fastest layout that fits among those that agree with the printed
cells. What was filled is kept beside the row.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from importlib.resources import files
from pathlib import Path
from typing import Protocol

from trainplan_models.base import InputError, Problem
from trainplan_models.catalog.records import Accelerator, Model, NodeType
from trainplan_models.plan import Layout
from trainplan_models.workload import (
    Adapter,
    ModelShape,
    TrainSetup,
    active_params,
    flops_per_token,
    matmul_params,
    shape_of,
    total_params,
)

Row = Mapping[str, str]


class Known(Protocol):
    """The part of the catalogue that reading measurements needs."""

    @property
    def accelerators(self) -> Mapping[str, Accelerator]: ...

    @property
    def models(self) -> Mapping[str, Model]: ...


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


class NotJudged(Exception):
    """Raised inside this module with the reason."""


def _number(row: Row, key: str) -> float | None:
    text = (row.get(key) or "").strip()
    try:
        return float(text) if text else None
    except ValueError:
        return None


def _count(row: Row, key: str) -> int | None:
    value = _number(row, key)
    return int(value) if value is not None and value > 0 else None


@lru_cache(maxsize=4)
def _table(name: str) -> list[dict[str, str]]:
    text = files("trainplan_models.catalog").joinpath(name).read_text(encoding="utf-8")
    return list(csv.DictReader(text.splitlines()))


def _first(name: str, text: str) -> dict[str, str] | None:
    return next((row for row in _table(name) if re.search(row["pattern"], text)), None)


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
    out |= {
        "row_id": row.get("row_id", ""),
        "step_time_s": str(float(row["iteration time (ms)"]) / 1000.0),
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


def _accelerator(row: Row, known: Known) -> Accelerator:
    label = row.get("accelerator", "")
    match = _first("accelerator_labels.csv", label)
    if not label or match is None:
        raise NotJudged(f"accelerator {label!r} is not in the catalogue" if label else "accelerator not given")
    if match["accelerator"] not in known.accelerators:
        raise NotJudged(f"accelerator {match['accelerator']!r} is not in the catalogue")
    found = known.accelerators[match["accelerator"]]
    factor = float(match["rate_factor"])
    update: dict[str, float | None] = {}
    if factor != 1.0:
        update["bf16_flops"] = found.bf16_flops * factor
        update["fp8_flops"] = found.fp8_flops and found.fp8_flops * factor
        update["fp4_flops"] = found.fp4_flops and found.fp4_flops * factor
    for key in ("memory_bytes", "memory_bytes_per_s"):
        if match[key]:
            update[key] = float(match[key])
    return found.model_copy(update=update) if update else found


def port_bytes_per_s(text: str, per_node: int) -> float | None:
    """Scale-out bandwidth per accelerator that an interconnect description states; None when it states none."""
    compute = re.search(r"Compute:([^|]*)", text)
    text = compute.group(1) if compute else text
    text = "|".join(part for part in text.split("|") if not re.search("Management|Gig|Storage", part)) or text
    if match := re.search(r"(\d+)\s*G(?:bps|b/s)?\s*/\s*(?:GPU|s per GPU)", text):
        return float(match.group(1)) * 1e9 / 8.0
    if match := re.search(r"400\s?Gb/s per GPU", text):
        return 50e9
    if match := re.search(r"(\d+)\s*Gbps/node", text):
        return float(match.group(1)) * 1e9 / 8.0 / per_node
    if match := re.search(r"(\d+)x\s*HDR", text):
        return float(match.group(1)) * 200e9 / 8.0 / per_node
    found = [
        float(count) * float(rate)
        for count, between, rate in re.findall(r"(\d+)\s*x\s([^x|]*?)(\d+)\s*G(?:b|B)", text)
        if "NVLINK" not in between.upper()
    ]
    return max(found) * 1e9 / 8.0 / per_node if found else None


def _node(row: Row, accelerator: Accelerator, devices: int) -> tuple[NodeType, int]:
    per_node = _count(row, "accelerators_per_node") or min(accelerator.scaleup_devices, 8)
    per_node = max(1, min(per_node, devices))
    domain = accelerator.scaleup_devices
    slices = re.search(r"(\d+) slice", row.get("interconnect", ""))
    if slices:
        domain = max(devices // int(slices.group(1)), 1)
    nic = port_bytes_per_s(row.get("interconnect", ""), max(_count(row, "accelerators_per_node") or 8, 1))
    nic = nic or accelerator.nic_bytes_per_s or 3.1e9
    node = NodeType(
        source="row",
        as_of=row.get("year", ""),
        cloud="measured",
        instance_type=f"{per_node}x{accelerator.name}",
        accelerator=accelerator.name,
        accelerators=per_node,
        nic_bytes_per_s=nic,
        scaleup_devices=domain,
    )
    return node, -(-devices // per_node)


def _plain(name: str) -> str:
    return re.sub(r"[^a-z0-9]", "", re.sub(r"\(.*?\)", "", name.lower()))


def _from_catalogue(row: Row, known: Known) -> ModelShape | None:
    """The catalogue's model of the row's name, or of the longest name that the row's begins with."""
    name = _plain(row.get("model_name", ""))
    params = (_number(row, "params_b") or 0.0) * 1e9
    best, length = None, 0
    for model in known.models.values():
        for alias in (model.name, *model.aliases):
            own = _plain(alias)
            if own == name and name:
                return shape_of(model)
            begins = len(own) > max(length, 4) and name.startswith(own) and not name[len(own)].isdigit()
            if begins and params and 0.8 < model.published_params / params < 1.25:
                best, length = model, len(own)
    return shape_of(best) if best else None


def typical_shape(params: float, vocab: int = 50304) -> ModelShape:
    """A dense GPT shape with about ``params`` parameters, as deep and wide as models of that size are."""
    depth_of = ((1e9, 24), (4e9, 32), (2e10, 40), (4.5e10, 48), (8e10, 64), (2e11, 96), (6e11, 105))
    layers = next((depth for size, depth in depth_of if params <= size), 128)
    hidden = max(int(round((params / (12.0 * layers)) ** 0.5 / 128.0)) * 128, 256)
    return ModelShape(
        layers, hidden, hidden // 128, hidden // 128, 128, 4 * hidden, vocab, False, linear_bias=True,
        norm_bias=True, family="gpt3", name="typical",
    )  # fmt: skip


def _from_columns(row: Row) -> ModelShape:
    hidden, vocab = _count(row, "hidden"), _count(row, "vocab") or 50304
    params = (_number(row, "params_b") or 0.0) * 1e9
    if hidden is None:
        if params and not _count(row, "experts"):
            return typical_shape(params, vocab)
        raise NotJudged("model shape not given and not in the catalogue")
    heads = _count(row, "heads") or max(hidden // 128, 1)
    layers = _count(row, "layers")
    base = ModelShape(
        layers or 1, hidden, heads, _count(row, "kv_heads") or heads, hidden // heads, _count(row, "ffn") or 4 * hidden,
        vocab, family="gpt3", name=row.get("model_name", ""),
    )  # fmt: skip
    experts = _count(row, "experts") or 0
    if experts:
        base = replace(base, experts=experts, experts_per_token=_count(row, "topk") or 2, expert_ffn=base.ffn)
    full = re.search(r"of (\d+) layers", row.get("model_scale", ""))
    depth = int(full.group(1)) if full else layers
    if layers is None:
        one = total_params(replace(base, gated_mlp=False)) - total_params(replace(base, gated_mlp=False, layers=0))
        if not params:
            raise NotJudged("neither layers nor parameters given")
        rest = total_params(replace(base, gated_mlp=False, layers=0, tied_embeddings=True))
        return replace(base, layers=max(round((params - rest) / one), 1), gated_mlp=False, tied_embeddings=True)
    if "reduced" in row.get("model_scale", ""):
        return replace(base, gated_mlp=True, family="llama")
    best = min(_variants(replace(base, layers=depth or 1)), key=lambda shape: abs(total_params(shape) - params))
    return replace(best, layers=layers, dense_layers=min(best.dense_layers, layers))


def _variants(base: ModelShape) -> Iterable[ModelShape]:
    """Shapes that share the printed columns: gated or plain MLP, tied or untied embeddings, LLaMA's width."""
    widths = {base.ffn}
    if base.ffn == 4 * base.hidden and not base.experts:
        widths.add(-(-8 * base.hidden // 3 // 256) * 256)
    for width in sorted(widths):
        for gated in (False, True):
            for tied in (False, True):
                shape = replace(base, ffn=width, gated_mlp=gated, tied_embeddings=tied)
                yield shape if not gated else replace(shape, family="llama")


def model_shape(row: Row, known: Known) -> ModelShape:
    """The model of a row: its columns, completed from the catalogue.

    Raises:
        NotJudged: neither tells the shape.
    """
    if "Nemotron-H" in row.get("model_name", ""):
        raise NotJudged("hybrid state-space models are not modelled")
    found = _from_catalogue(row, known)
    if found is None or _contradicts(found, row):
        return _from_columns(row)
    found = replace(found, vocab=_count(row, "vocab") or found.vocab)
    layers = _count(row, "layers")
    if layers and layers != found.layers:
        dense = round(found.dense_layers * layers / found.layers)
        found = replace(found, layers=layers, dense_layers=dense)
    return found


def _contradicts(shape: ModelShape, row: Row) -> bool:
    """Whether the printed sizes are not those of the catalogue's model of that name."""
    sizes = {"hidden": shape.hidden, "heads": shape.heads}
    if not shape.is_moe:
        sizes["ffn"] = shape.ffn
    return any(value != size for key, size in sizes.items() if (value := _count(row, key)))


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


def _software(row: Row) -> dict[str, str]:
    text = f"{row.get('framework', '')} {row.get('status_note', '')}"
    if "Megatron-DeepSpeed" in text and "vTrain" not in text and _precision(row) == "bf16":
        text = text.replace("Megatron-DeepSpeed", "Megatron-DeepSpeed BF16")
    if row.get("source_group", "").startswith("mlperf"):
        maker = row.get("accelerator", "")
        year = "23" if row["source_group"] in ("mlperf-v3.0", "mlperf-v3.1") else "24"
        text = "maxtext" if re.search("(?i)tpu", maker) else f"MLPERF-NVIDIA-{year}"
        text = "Gaudi" if "audi" in maker else text
    match = _first("software_labels.csv", text)
    if match is None:
        raise NotJudged(f"framework {row.get('framework', '')!r} is not known")
    return match


def _batch(row: Row, dp: int | None, micro: int | None, devices: int, seq: int) -> tuple[int, tuple[str, ...]]:
    if batch := _count(row, "global_batch_seqs"):
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
    if rate := _number(row, "tokens_per_s_per_accel"):
        return rate
    if (step := _number(row, "step_time_s")) and row.get("task", "").startswith(("pretrain", "sft", "lora")):
        return setup.tokens_per_step / step / devices
    flops = _number(row, "metric_value") or 0.0
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
    if seq := _count(row, "seq_len"):
        return seq, ()
    if "SimuMax" in row.get("framework", ""):
        return 4096, ("sequence_length",)
    if row.get("source_group") == "levanter":
        return 1024, ("sequence_length",)
    raise NotJudged("sequence length not given")


def _labels(row: Row, shape: ModelShape, accelerator: Accelerator, software: str, precision: str) -> dict[str, str]:
    params = total_params(shape) / 1e9
    size = next(name for bound, name in ((2, "<2B"), (20, "2-20B"), (100, "20-100B"), (1e9, ">100B")) if params < bound)
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
        return Unread(row_id, str(reason), _number(row, "tokens_per_s_per_accel"), {"source": row.get("source_group", "")})


def _read(row: Row, row_id: str, known: Known) -> Reading:
    task = row.get("task", "") or "pretrain"
    if task.startswith("rl"):
        raise NotJudged("reinforcement learning: rollout and update placement not given")
    accelerator, shape = _accelerator(row, known), model_shape(row, known)
    software = _software(row)
    seq, assumed = _sequence(row)
    devices = _count(row, "num_accelerators")
    if devices is None:
        raise NotJudged("number of accelerators not given")
    node, nodes = _node(row, accelerator, devices)
    partial = {key: value for key in ("tp", "pp", "vp", "cp", "ep", "micro_batch") if (value := _count(row, key))}
    if "tp" in partial or "pp" in partial:
        for key in ("tp", "pp", "vp", "cp"):
            partial.setdefault(key, 1)
    model_parallel = partial.get("tp", 1) * partial.get("pp", 1) * partial.get("cp", 1)
    if "tp" in partial and devices % model_parallel == 0:
        partial["dp"] = devices // model_parallel
    stage, group, offload = _zero(row, software["framework"])
    if stage is not None:
        partial["zero_stage"], partial["shard_group"] = stage, group
    batch, filled = _batch(row, partial.get("dp"), partial.get("micro_batch"), devices, seq)
    if software["framework"] == "torchtitan" and partial.get("pp", 1) > 1:
        # The local batch of a pipeline is cut into micro-batches of one sequence.
        partial["micro_batch"] = 1
    if row.get("source_group", "").startswith(("mlperf", "published-run")) and not row.get("vp"):
        # These interleave their pipelines; the tables leave the cell empty.
        partial.pop("vp", None)
    if "micro_batch" in filled:
        partial["micro_batch"] = 1
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
    if spread := re.search(r"sequence_parallel=(True|False)", row.get("status_note", "")):
        partial["sequence_parallel"] = int(spread.group(1) == "True")
    elif "seqpar" in row.get("recompute", ""):
        partial["sequence_parallel"] = 1
    elif software["software"].startswith("aleph-alpha"):
        partial["sequence_parallel"] = 0
    missing = tuple(key for key in ("micro_batch", "tp") if key not in partial)
    recompute = row.get("recompute", "").split("+")[0].replace("selective-op", "selective")
    return Reading(
        row_id, setup, accelerator, node, nodes, partial, recompute,
        _measured(row, setup, accelerator, devices),
        _labels(row, shape, accelerator, software["software"], precision),
        (*assumed, *filled, *missing, *(() if recompute else ("recompute",))),
        _number(row, "peak_gib"), row.get("outcome", ""),
    )  # fmt: skip


def _finetune(row: Row, task: str) -> bool:
    """Fine-tuning benchmarks that pack short documents."""
    return task in ("sft", "lora") and row.get("source_group", "") in ("dgxc-bench", "megatron-bridge", "nemo-24.0x")


def _default_precision(row: Row, accelerator: Accelerator) -> str:
    """What is trained in where the table does not say."""
    audited = row.get("source_group", "").startswith("mlperf") and accelerator.vendor == "NVIDIA"
    return "fp8" if audited and accelerator.fp8_flops and row.get("year", "") >= "2023" else "bf16"


def _lora(task: str) -> Adapter | None:
    return Adapter(rank=16, quantized_base=task == "qlora") if task in ("lora", "qlora") else None


def layout_of(reading: Reading, **cells: int) -> Layout:
    """The layout of a reading whose open cells are given."""
    values = {"dp": 1, "vp": 1, "zero_stage": 1, **reading.partial, **cells}
    return Layout(recompute="none", **values)


__all__ = ["Known", "Reading", "Unread", "active_params", "matmul_params", "read", "read_rows", "typical_shape"]
