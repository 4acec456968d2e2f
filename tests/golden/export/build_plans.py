"""Writes the plans the export tests read: ``python tests/golden/export/build_plans.py [--cases]``, sources on the path.

Each of ``BUILDERS`` stands for a kind of answer a case can have; its numbers are plausible, not computed. With
``--cases`` every case that ships is solved as well and written as ``case-NAME.plan.json``.
"""

from __future__ import annotations

import runpy
import sys
from pathlib import Path
from typing import Any

from trainplan_models.casefile import case_from_text
from trainplan_models.plan import CheckpointPlan, Layout, Plan, Purchase, Segment, SolverInfo, TaskTime

DAY_S = 86400.0

LLAMA_8B = "{layers: 32, hidden: 4096, heads: 32, kv_heads: 8, ffn: 14336, vocab: 128256}"
LLAMA_7B_LIKE = "{layers: 30, hidden: 4096, heads: 32, ffn: 11008, vocab: 50304}"
LLAMA_70B = "{layers: 80, hidden: 8192, heads: 64, kv_heads: 8, ffn: 28672, vocab: 128256}"
LLAMA_405B = "{layers: 126, hidden: 16384, heads: 128, kv_heads: 8, ffn: 53248, vocab: 128256}"
MIXTRAL = (
    "{layers: 32, hidden: 4096, heads: 32, kv_heads: 8, ffn: 14336, vocab: 32000, experts: 8, "
    "experts_per_token: 2, expert_ffn: 14336}"
)

MOE_LIKE = (
    "{layers: 24, hidden: 2048, heads: 16, kv_heads: 8, ffn: 5632, vocab: 64000, experts: 16, "
    "experts_per_token: 2, expert_ffn: 2816}"
)
DENSE_LIKE = "{layers: 48, hidden: 6144, heads: 48, kv_heads: 8, ffn: 16384, vocab: 64000}"

PLACES: dict[str, tuple[str, str, str, str, int]] = {
    "p5": ("aws", "us-east-1", "p5.48xlarge", "H100-SXM", 8),
    "p5en": ("aws", "us-east-2", "p5en.48xlarge", "H200-SXM", 8),
    "a3": ("gcp", "us-central1", "a3-highgpu-8g", "H100-SXM", 8),
    "v5p": ("gcp", "us-east5", "tpu-v5p-8", "TPU-v5p", 4),
    "lambda": ("lambda", "us-west-1", "gpu_8x_h100_sxm5", "H100-SXM", 8),
    "dc1": ("dc1", "dc1", "dc1", "A100-SXM-80GB", 8),
}


def segment(
    task: str, place: str, mode: str, days: tuple[float, float], layout: Layout, **numbers: Any
) -> Segment:
    """A segment with plausible numbers where none are given."""
    cloud, region, instance_type, accelerator, per_node = PLACES[place]
    nodes = -(-layout.accelerators // per_node)
    sequence_length = numbers.pop("sequence_length", 8192)
    sequences = numbers.pop("sequences", 512)
    tokens = numbers.pop("tokens")
    target = numbers.pop("target", f"{cloud}/s3/standard" if cloud == "aws" else f"{cloud}/gcs/standard")
    checkpoint = CheckpointPlan(
        interval_s=numbers.pop("interval_s", 1800.0),
        target=target,
        size_bytes=112e9,
        blocking_s=8.0,
        persist_s=90.0,
        restart_s=420.0,
        mtbf_s=numbers.pop("mtbf_s", 2.5 * DAY_S),
        lost_work_s=1890.0,
    )
    goodput = numbers.pop("goodput_frac", 0.94)
    length_s = (days[1] - days[0]) * DAY_S
    return Segment(
        task=task,
        pool=cloud if cloud == region else f"{cloud}/{region}/{instance_type}",
        cloud=cloud,
        region=region,
        instance_type=instance_type,
        accelerator=accelerator,
        accelerators_per_node=per_node,
        nodes=nodes,
        spare_nodes=numbers.pop("spare_nodes", 0),
        mode=mode,
        start_s=days[0] * DAY_S,
        end_s=days[1] * DAY_S,
        setup_s=1200.0,
        work_frac=numbers.pop("work_frac", 1.0),
        tokens=tokens,
        tokens_per_s=tokens / (length_s * goodput),
        goodput_frac=goodput,
        mfu_frac=0.41,
        peak_memory_bytes=58e9,
        layout=layout,
        global_batch_tokens=float(sequence_length * sequences),
        sequence_length=sequence_length,
        checkpoint=checkpoint,
        usd_per_node_h=numbers.pop("usd_per_node_h", 40.0),
    )


def plan(case: str, segments: list[Segment], purchases: tuple[Purchase, ...] = ()) -> Plan:
    """A plan of the segments for a case in YAML."""
    read = case_from_text(case)
    tasks = tuple(
        TaskTime(
            task=name,
            start_s=min(s.start_s for s in segments if s.task == name),
            end_s=max(s.end_s for s in segments if s.task == name),
        )
        for name in dict.fromkeys(s.task for s in segments)
    )
    total = sum(s.nodes * s.usd_per_node_h * (s.end_s - s.start_s) / 3600.0 for s in segments)
    return Plan(
        trainplan_version="0.1.0",
        name=read.name,
        question=read.question,
        status="optimal",
        start=read.start,
        total_usd=round(total, 2),
        finish_s=max(s.end_s for s in segments),
        tokens=sum(s.tokens for s in segments),
        price_dates=("2026-08",),
        segments=tuple(segments),
        tasks=tasks,
        purchases=purchases,
        solver=SolverInfo(
            objective_usd=round(total, 2),
            bound_usd=round(total, 2),
            gap_frac=0.0,
            columns=100,
            rows=80,
            nodes=1,
            seconds=0.5,
            highs_version="1.15.1",
            scope="the time-indexed model",
        ),
        labels=dict(read.labels),
        case=read.canonical(),
    )


def dense_spot() -> Plan:
    """Pretraining on spot with on-demand for what is left."""
    case = f"""
name: llama-8b
start: 2027-03-01
deadline: 30 days
tasks: [{{name: pretrain, kind: pretrain, model: {LLAMA_8B}, tokens: 300B tokens, sequence_length: 8192,
  global_batch: 4194304 tokens}}]
checkpoints: {{keep_last: 3, keep_every: 1 day}}
labels: {{project: assistant, team: base-models}}
"""
    layout = Layout(dp=32, tp=2, micro_batch=2, sequence_parallel=True, recompute="selective")
    spot = segment(
        "pretrain", "p5", "spot", (0, 16.5), layout, tokens=180e9, work_frac=0.6, interval_s=1500.0
    )
    safe = segment(
        "pretrain", "p5", "on-demand", (16.5, 26.0), layout, tokens=120e9, work_frac=0.4, spare_nodes=1
    )
    return plan(case, [spot, safe])


def owned_growing() -> Plan:
    """An owned cluster that grows: two segments with different node counts."""
    case = f"""
name: grow
deadline: 60 days
tasks: [{{name: pretrain, kind: pretrain, model: {LLAMA_70B}, tokens: 100B tokens, sequence_length: 4096,
  global_batch: 3145728 tokens}}]
resources:
  accelerators: [A100-SXM-80GB]
  owned:
    - name: dc1
      accelerator: A100-SXM-80GB
      nodes: 12
      free: [{{from: day 0, nodes: 4}}, {{from: day 20, nodes: 12}}]
  billing: [owned]
labels: {{team: research}}
"""
    small = Layout(dp=1, tp=8, pp=4, vp=2, micro_batch=1, sequence_parallel=True, recompute="full")
    wide = Layout(dp=3, tp=8, pp=4, vp=2, micro_batch=1, sequence_parallel=True, recompute="full")
    shared = {"sequence_length": 4096, "sequences": 768, "target": "dc1/nfs", "usd_per_node_h": 0.0}
    first = segment("pretrain", "dc1", "owned", (0, 20), small, tokens=25e9, work_frac=0.25, **shared)
    second = segment("pretrain", "dc1", "owned", (20, 41.25), wide, tokens=75e9, work_frac=0.75, **shared)
    return plan(case, [first, second])


def moe_expert_parallel() -> Plan:
    """A mixture of experts with expert parallelism on H200."""
    case = f"""
name: mixtral-h200
tasks: [{{name: pretrain, kind: pretrain, model: {MIXTRAL}, tokens: 200B tokens, sequence_length: 4096,
  global_batch: 4194304 tokens, precision: bf16}}]
checkpoints: {{keep_last: 5}}
"""
    layout = Layout(dp=16, tp=2, pp=4, ep=8, micro_batch=1, sequence_parallel=True)
    one = segment(
        "pretrain", "p5en", "on-demand", (0, 12), layout, tokens=200e9, sequence_length=4096, sequences=1024
    )
    return plan(case, [one])


def fsdp_titan() -> Plan:
    """FSDP2 with tensor and context parallelism under torchtitan, in groups of shards."""
    case = f"""
name: titan-70b
tasks: [{{name: pretrain, kind: pretrain, model: {LLAMA_70B}, tokens: 50B tokens, sequence_length: 8192,
  global_batch: 2097152 tokens, framework: torchtitan}}]
"""
    layout = Layout(
        dp=16, tp=4, cp=2, zero_stage=3, shard_group=16, micro_batch=1, recompute="full", sequence_parallel=True
    )  # fmt: skip
    one = segment("pretrain", "a3", "on-demand", (0, 15), layout, tokens=50e9, sequences=256)
    return plan(case, [one])


def fsdp_pretrain() -> Plan:
    """FSDP of a model that few trainers have a name for, on an owned cluster for a while, then rented."""
    case = f"""
name: fsdp-7b
tasks: [{{name: pretrain, kind: pretrain, model: {LLAMA_7B_LIKE}, tokens: 20B tokens, sequence_length: 4096,
  global_batch: 1048576 tokens, framework: fsdp}}]
resources:
  owned: [{{name: dc1, accelerator: A100-SXM-80GB, nodes: 4}}]
  billing: [owned, on-demand]
"""
    layout = Layout(dp=32, zero_stage=2, micro_batch=2, recompute="none")
    shared = {"sequence_length": 4096, "sequences": 256, "tokens": 10e9, "work_frac": 0.5}
    first = segment(
        "pretrain", "dc1", "owned", (0, 4), layout, target="dc1/nfs", usd_per_node_h=0.0, **shared
    )
    second = segment("pretrain", "lambda", "on-demand", (4, 5.5), layout, target="any/nvme/local", **shared)
    return plan(case, [first, second])


def titan_pipeline() -> Plan:
    """torchtitan with an interleaved pipeline, continued pretraining and another number of checkpoints."""
    case = f"""
name: titan-405b
tasks: [{{name: longer, kind: continue, model: {LLAMA_405B}, tokens: 20B tokens, sequence_length: 8192,
  global_batch: 2097152 tokens, framework: torchtitan, precision: fp8}}]
checkpoints: {{keep_last: 2, asynchronous: false}}
"""
    layout = Layout(
        dp=8, tp=8, pp=8, vp=2, zero_stage=3, micro_batch=1, recompute="full", sequence_parallel=True, precision="fp8"
    )  # fmt: skip
    one = segment("longer", "p5", "on-demand", (2, 12), layout, tokens=20e9, sequences=256, interval_s=3600.0)
    return plan(case, [one])


def lora_one_node() -> Plan:
    """LoRA fine-tuning on one node, from given weights."""
    case = f"""
name: lora
tasks: [{{name: tune, kind: sft, model: {LLAMA_8B}, tokens: 400M tokens, sequence_length: 4096,
  global_batch: 262144 tokens, framework: fsdp, lora: {{rank: 32}}}}]
"""
    layout = Layout(dp=8, zero_stage=3, micro_batch=2, recompute="full")
    one = segment(
        "tune", "lambda", "on-demand", (0, 0.25), layout, tokens=400e6, sequence_length=4096, sequences=64,
        target="any/nvme/local", interval_s=600.0,
    )  # fmt: skip
    return plan(case, [one])


def tpu_maxtext() -> Plan:
    """Pretraining on a TPU slice."""
    case = f"""
name: tpu
start: 2027-01-04
tasks: [{{name: pretrain, kind: pretrain, model: {LLAMA_8B}, tokens: 300B tokens, sequence_length: 8192,
  global_batch: 4194304 tokens, framework: maxtext}}]
"""
    layout = Layout(dp=64, tp=2, zero_stage=3, micro_batch=2, recompute="full")
    one = segment("pretrain", "v5p", "on-demand", (0, 21), layout, tokens=300e9)
    return plan(case, [one])


def tpu_experts() -> Plan:
    """A mixture of experts that no trainer has a name for, expert parallel on a TPU slice."""
    case = f"""
name: tpu-moe
start: 2027-01-04
tasks: [{{name: pretrain, kind: pretrain, model: {MOE_LIKE}, tokens: 100B tokens, sequence_length: 4096,
  global_batch: 2097152 tokens, framework: maxtext}}]
checkpoints: {{keep_last: 4}}
"""
    layout = Layout(dp=64, ep=8, zero_stage=3, micro_batch=2, recompute="selective")
    one = segment(
        "pretrain", "v5p", "spot", (0, 9), layout, tokens=100e9, sequence_length=4096, sequences=512,
        target="gcp/gcs/standard", interval_s=1200.0,
    )  # fmt: skip
    return plan(case, [one])


def gpu_pipeline() -> Plan:
    """An interleaved pipeline over nodes with sharded weights, of a model that no trainer has a name for."""
    case = f"""
name: gpu-pipeline
tasks: [{{name: pretrain, kind: pretrain, model: {DENSE_LIKE}, tokens: 60B tokens, sequence_length: 4096,
  global_batch: 2097152 tokens, framework: maxtext}}]
checkpoints: {{keep_last: 2, asynchronous: false}}
"""
    layout = Layout(dp=8, tp=4, pp=4, vp=2, zero_stage=3, micro_batch=1, recompute="full")
    one = segment("pretrain", "p5", "on-demand", (0, 11), layout, tokens=60e9, sequence_length=4096)
    return plan(case, [one])


def capacity_block() -> Plan:
    """A capacity block that has to be bought, used by DeepSpeed with ZeRO 3."""
    case = f"""
name: block
start: 2027-02-01
deadline: 20 days
tasks: [{{name: pretrain, kind: pretrain, model: {LLAMA_8B}, tokens: 60B tokens, sequence_length: 8192,
  global_batch: 4194304 tokens, framework: deepspeed}}]
resources: {{billing: [capacity-block]}}
"""
    layout = Layout(dp=64, zero_stage=3, micro_batch=1, recompute="full")
    one = segment("pretrain", "p5", "capacity-block", (3, 10), layout, tokens=60e9, usd_per_node_h=0.0)
    purchase = Purchase(
        pool="aws/us-east-1/p5.48xlarge",
        mode="capacity-block",
        nodes=8,
        start_s=3 * DAY_S,
        end_s=10 * DAY_S,
        usd=52861.0,
        upfront_usd=52861.0,
        used_node_h=1344.0,
        bought_node_h=1344.0,
    )
    return plan(case, [one], (purchase,))


def programme() -> Plan:
    """Four tasks one after the other: continued pretraining, fine-tuning in rounds, preference, reinforcement."""
    case = f"""
name: programme
start: 2027-03-01
deadline: 45 days
tasks:
  - {{name: base, kind: continue, model: {LLAMA_8B}, tokens: 100B tokens, sequence_length: 8192,
      global_batch: 4194304 tokens}}
  - {{name: sft, kind: sft, after: [base], rounds: 3, tokens: 400M tokens, sequence_length: 4096,
      global_batch: 524288 tokens, framework: megatron}}
  - {{name: dpo, kind: preference, after: [sft], tokens: 100M tokens, sequence_length: 4096,
      global_batch: 262144 tokens, framework: deepspeed}}
  - name: rl
    kind: rl
    after: [dpo]
    framework: megatron
    sequence_length: 4096
    rollout:
      {{prompts: 256, samples_per_prompt: 8, prompt_tokens: 512 tokens, response_tokens: 2048 tokens, steps: 300}}
checkpoints: {{keep_last: 4}}
labels: {{project: assistant}}
"""
    pair = Layout(dp=32, tp=2, micro_batch=2, sequence_parallel=True)
    base = segment("base", "p5", "on-demand", (0, 9), pair, tokens=100e9)
    sft = segment(
        "sft", "p5", "on-demand", (9, 9.5), Layout(dp=8, tp=2, micro_batch=1, sequence_parallel=True), tokens=1.2e9,
        sequence_length=4096, sequences=128, interval_s=900.0,
    )  # fmt: skip
    dpo = segment(
        "dpo", "p5", "on-demand", (9.5, 9.7), Layout(dp=16, zero_stage=2, micro_batch=1), tokens=1e8,
        sequence_length=4096, sequences=64, interval_s=900.0,
    )  # fmt: skip
    wide = Layout(dp=16, tp=4, micro_batch=2, sequence_parallel=True, recompute="full")
    rl = segment(
        "rl", "p5", "on-demand", (9.7, 14), wide,
        tokens=1.6e9, sequence_length=4096, sequences=2048, interval_s=3000.0,
    )  # fmt: skip
    return plan(case, [base, sft, dpo, rl])


BUILDERS = (
    dense_spot,
    owned_growing,
    moe_expert_parallel,
    fsdp_titan,
    fsdp_pretrain,
    titan_pipeline,
    lora_one_node,
    tpu_maxtext,
    tpu_experts,
    gpu_pipeline,
    capacity_block,
    programme,
)


def main() -> None:
    """Write every plan beside this file."""
    folder = Path(__file__).parent
    for builder in BUILDERS:
        text = builder().model_dump_json(indent=1, exclude_defaults=False) + "\n"
        (folder / f"{builder.__name__}.plan.json").write_text(text, encoding="utf-8")
    sys.stdout.write(f"{len(BUILDERS)} plans\n")
    if "--cases" in sys.argv[1:]:
        runpy.run_path(str(folder / "solve_cases.py"), run_name="__main__")


if __name__ == "__main__":
    main()
