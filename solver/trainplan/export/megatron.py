"""Megatron-LM: an argument file per unit, and the same numbers as a Megatron-Bridge override."""

from __future__ import annotations

from trainplan.export import megatron_bridge
from trainplan.export.devices import runs_on
from trainplan.export.launch import LaunchUnit
from trainplan.export.target import header_of, render
from trainplan.export.trainer import Trainer, exporter_of
from trainplan_models.plan import Layout
from trainplan_models.workload import ModelShape

_PRECISION: dict[str, tuple[str, ...]] = {
    "fp32": (),
    "bf16": ("--bf16",),
    "fp16": ("--fp16",),
    "fp8": ("--bf16", "--fp8-format", "hybrid"),
    "fp4": ("--bf16", "--fp4-format", "e2m1"),
}
_RECOMPUTE: dict[str, tuple[str, ...]] = {
    "none": (),
    "selective": ("--recompute-granularity", "selective", "--recompute-modules", "core_attn"),
    "full": (
        "--recompute-granularity",
        "full",
        "--recompute-method",
        "uniform",
        "--recompute-num-layers",
        "1",
    ),
}
_OPTIMIZERS: dict[str, tuple[str, ...]] = {
    "adamw": ("--optimizer", "adam"),
    "adamw-grad16": ("--optimizer", "adam", "--use-precision-aware-optimizer", "--main-grads-dtype", "bf16"),
    "adamw-offload": ("--optimizer", "adam", "--optimizer-cpu-offload", "--overlap-cpu-optimizer-d2h-h2d"),
    "sgd": ("--optimizer", "sgd"),
    "muon": ("--optimizer", "muon"),
}
_SHARDING = {2: "optim_grads", 3: "optim_grads_params"}

Pairs = list[tuple[str, ...]]


def parallel_arguments(unit: LaunchUnit) -> Pairs:
    """Degrees of parallelism, pipeline split and sharding."""
    layout, shape = unit.segment.layout, unit.task.shape
    found: Pairs = [
        ("--tensor-model-parallel-size", str(layout.tp)),
        ("--pipeline-model-parallel-size", str(layout.pp)),
        ("--context-parallel-size", str(layout.cp)),
    ]
    if layout.vp > 1:
        found.append(("--num-virtual-stages-per-pipeline-rank", str(layout.vp)))
    if shape is not None:
        found += [(flag,) for flag in _uneven(shape, layout)]
    if layout.sequence_parallel and layout.tp > 1:
        found.append(("--sequence-parallel",))
    if shape is not None and shape.is_moe:
        found.append(("--expert-model-parallel-size", str(layout.ep)))
        if layout.ep > 1:
            found.append(("--expert-tensor-parallel-size", "1"))
    if layout.zero_stage == 1:
        found += [("--use-distributed-optimizer",), ("--overlap-grad-reduce",), ("--overlap-param-gather",)]
    if layout.zero_stage > 1:
        strategy = _SHARDING[layout.zero_stage]
        found += [("--use-distributed-optimizer",), ("--use-megatron-fsdp",)]
        found.append(("--data-parallel-sharding-strategy", strategy))
    if layout.shard_group and layout.shard_group < layout.dp * layout.cp:
        instances = layout.dp * layout.cp // layout.shard_group
        found.append(("--num-distributed-optimizer-instances", str(instances)))
    return found


def _uneven(shape: ModelShape, layout: Layout) -> tuple[str, ...]:
    """Which of embedding and loss count as a layer so that the layers split evenly."""
    layers, stages = shape.layers, layout.pp * layout.vp
    embedding, loss = "--account-for-embedding-in-pipeline-split", "--account-for-loss-in-pipeline-split"
    for extra, flags in ((0, ()), (1, (loss,)), (2, (embedding, loss))):
        if (layers + extra) % stages == 0:
            return flags
    return ()


def model_arguments(shape: ModelShape, sequence_length: int) -> Pairs:
    """The model as written out on the command line."""
    learned = shape.max_positions > 0
    found: Pairs = [
        ("--num-layers", str(shape.layers)),
        ("--hidden-size", str(shape.hidden)),
        ("--ffn-hidden-size", str(shape.ffn or shape.routed_ffn)),
        ("--num-attention-heads", str(shape.heads)),
        ("--kv-channels", str(shape.head_dim)),
        ("--max-position-embeddings", str(max(sequence_length, shape.max_positions))),
        ("--position-embedding-type", "learned_absolute" if learned else "rope"),
        ("--normalization", "LayerNorm" if shape.norm_bias else "RMSNorm"),
        ("--vocab-size", str(shape.vocab)),
        ("--make-vocab-size-divisible-by", "1"),
    ]
    if shape.kv_heads != shape.heads and not shape.kv_lora_rank:
        found += [("--group-query-attention",), ("--num-query-groups", str(shape.kv_heads))]
    flags = {
        "--swiglu": shape.gated_mlp,
        "--untie-embeddings-and-output-weights": not shape.tied_embeddings,
        "--disable-bias-linear": not shape.linear_bias,
        "--add-qkv-bias": shape.qkv_bias and not shape.linear_bias,
    }
    found += [(flag,) for flag, wanted in flags.items() if wanted]
    return found + _attention_arguments(shape) + _expert_arguments(shape)


def _attention_arguments(shape: ModelShape) -> Pairs:
    found: Pairs = []
    if shape.sliding_window:
        found.append(("--window-size", f"{shape.sliding_window},0"))
    if shape.kv_lora_rank:
        found += [("--multi-latent-attention",), ("--kv-lora-rank", str(shape.kv_lora_rank))]
        if shape.q_lora_rank:
            found.append(("--q-lora-rank", str(shape.q_lora_rank)))
        found += [
            ("--qk-head-dim", str(shape.head_dim)),
            ("--qk-pos-emb-head-dim", str(shape.rope_head_dim)),
            ("--v-head-dim", str(shape.v_head_dim or shape.head_dim)),
        ]
    return found


def _expert_arguments(shape: ModelShape) -> Pairs:
    if not shape.is_moe:
        return []
    found: Pairs = [
        ("--num-experts", str(shape.experts)),
        ("--moe-router-topk", str(shape.experts_per_token)),
        ("--moe-ffn-hidden-size", str(shape.routed_ffn)),
        ("--moe-token-dispatcher-type", "alltoall"),
        ("--moe-grouped-gemm",),
    ]
    if shape.dense_layers:
        found.append(("--moe-layer-freq", f"([0]*{shape.dense_layers}+[1]*{shape.moe_layers})"))
    if shape.shared_experts:
        found.append(("--moe-shared-expert-intermediate-size", str(shape.shared_ffn)))
    return found


def training_arguments(unit: LaunchUnit) -> Pairs:
    """Batch, steps, precision and recompute."""
    layout = unit.segment.layout
    (batch, length), decay = _batch_arguments(unit)
    found: Pairs = [
        ("--micro-batch-size", str(layout.micro_batch)),
        batch,
        ("--seq-length", str(unit.segment.sequence_length)),
        length,
        ("--lr", "$LEARNING_RATE"),
        *decay,
        ("--lr-decay-style", "cosine"),
        ("--distributed-timeout-minutes", "30"),
        ("--use-mcore-models",),
        ("--transformer-impl", "transformer_engine"),
    ]
    found += _grouped(_PRECISION[layout.precision])
    found += _grouped(_RECOMPUTE[layout.recompute])
    found += _grouped(_OPTIMIZERS[unit.task.optimizer])
    if unit.task.kind == "sft":
        found += [("--sft",), ("--pretrained-checkpoint", "$MODEL")]
    elif unit.task.kind == "continue":
        found.append(("--pretrained-checkpoint", "$MODEL"))
    return found


def _batch_arguments(unit: LaunchUnit) -> tuple[Pairs, Pairs]:
    """Batch and length of the training, and of the decay of its rate; one whose batch grows is told in samples."""
    if not unit.batch_schedule:
        steps = str(unit.total_steps)
        batch: Pairs = [("--global-batch-size", str(unit.batch_sequences))]
        return [*batch, ("--train-iters", steps)], [("--lr-decay-iters", steps)]
    schedule = " ".join(f"{tokens:.0f}:{sequences}" for tokens, sequences in unit.batch_schedule)
    samples = str(round(unit.task_tokens / unit.segment.sequence_length))
    return (
        [("--step-batch-size-schedule", schedule), ("--train-samples", samples)],
        [("--lr-decay-samples", samples)],
    )


def checkpoint_arguments(unit: LaunchUnit) -> Pairs:
    """Interval, place and form of checkpoints."""
    sharded = unit.segment.layout.zero_stage > 1
    found: Pairs = [
        ("--save", "$CHECKPOINT_DIR"),
        ("--load", "$CHECKPOINT_DIR"),
        ("--save-interval", str(unit.interval_steps)),
        ("--ckpt-format", "fsdp_dtensor" if sharded else "torch_dist"),
        ("--exit-signal-handler",),
        ("--log-throughput",),
    ]
    if unit.asynchronous and not sharded:
        found.append(("--async-save",))
    return found


def data_arguments() -> Pairs:
    """Data and tokenizer, from the environment."""
    return [
        ("--data-path", "$DATA"),
        ("--tokenizer-type", "HuggingFaceTokenizer"),
        ("--tokenizer-model", "$TOKENIZER"),
    ]


def _grouped(words: tuple[str, ...]) -> Pairs:
    """A flat list of words as one tuple per flag."""
    found: Pairs = []
    for word in words:
        if word.startswith("--"):
            found.append((word,))
        else:
            found[-1] += (word,)
    return found


def _files(unit: LaunchUnit) -> dict[str, str]:
    shape = unit.task.shape
    assert shape is not None, "refused before"
    groups = {
        "parallel layout": parallel_arguments(unit),
        "model": model_arguments(shape, unit.segment.sequence_length),
        "training": training_arguments(unit),
        "checkpoints": checkpoint_arguments(unit),
        "data": data_arguments(),
    }
    return {
        f"{unit.name}.args.sh": render(
            "megatron.args.sh.j2", header=header_of(unit), unit=unit, groups=groups
        ),
        f"{unit.name}.bridge.py": render(
            "megatron_bridge.py.j2",
            header=header_of(unit),
            checked=megatron_bridge.CHECKED,
            values=megatron_bridge.values(unit, _uneven(shape, unit.segment.layout)),
        ),
    }


def _environment(unit: LaunchUnit) -> dict[str, str]:
    layout = unit.segment.layout
    found = {"TOKENIZER": "${TOKENIZER:?set TOKENIZER to a tokenizer folder or Hugging Face name}"}
    if (layout.tp > 1 or layout.cp > 1) and layout.zero_stage < 2:
        found["CUDA_DEVICE_MAX_CONNECTIONS"] = "1"
    return found


def _unsuited(unit: LaunchUnit) -> str:
    if unit.task.kind not in ("pretrain", "continue", "sft"):
        return f"Megatron-LM has no program for a task of kind {unit.task.kind}"
    if unit.task.lora_rank:
        return "Megatron-LM trains no adapters; verl with its Megatron engine does"
    return ""


def _refusals(unit: LaunchUnit) -> list[str]:
    layout, shape = unit.segment.layout, unit.task.shape
    found = []
    if shape is None:
        found.append(
            f"the model {unit.task.model!r} is not in the plan, the catalogue or a file that is here"
        )
    if not runs_on(unit.segment.accelerator, "nvidia", "amd"):
        found.append(f"Megatron-LM does not run on {unit.segment.accelerator}")
    if unit.task.optimizer not in _OPTIMIZERS:
        found.append(f"Megatron-LM has no optimizer {unit.task.optimizer}; it has: {', '.join(_OPTIMIZERS)}")
    if layout.zero_stage > 1 and layout.pp > 1 and layout.vp == 1:
        found.append("Megatron-FSDP (ZeRO stage 2 and 3) needs a pipeline of one stage")
    if shape is not None and layout.pp > 1:
        stages = layout.pp * layout.vp
        if all((shape.layers + extra) % stages for extra in (0, 1, 2)):
            found.append(f"{shape.layers} layers do not split over {stages} pipeline chunks")
    if layout.vp > 1 and unit.accumulation % layout.pp:
        found.append(
            f"an interleaved pipeline needs micro-batches ({unit.accumulation}) in multiples of {layout.pp}"
        )
    if layout.ep > 1 and (layout.dp * layout.cp * layout.tp) % layout.ep:
        found.append(
            f"expert parallel {layout.ep} does not divide data, context and tensor parallel together"
        )
    return found


def _cannot_express(unit: LaunchUnit) -> list[str]:
    found = [
        "Megatron-LM cannot keep the last k checkpoints by itself: the start script removes older ones "
        f"(keeps {unit.keep_last}); Megatron-Bridge can, and the `.bridge.py` files have it.",
        "Megatron-Bridge: the start scripts run Megatron-LM. For Megatron-Bridge give a recipe's configuration to "
        f"`apply_plan` of the `.bridge.py` file (checked with {megatron_bridge.CHECKED}); the recipe's own model, "
        "data and learning rate stay.",
        "Rotary base, norm epsilon and router loss are not in a plan: add them after the script's name, "
        "they are passed on.",
    ]
    if unit.batch_schedule:
        found.append(
            f"{unit.name}: the argument file makes the batch grow (`--step-batch-size-schedule`, in tokens); the "
            "Megatron-Bridge file has the last batch only."
        )
    if unit.task.rounds > 1:
        found.append(
            f"{unit.task.name}: {unit.task.rounds} rounds of {unit.round_steps} steps; Megatron-LM knows one run of "
            f"{unit.total_steps} steps. Give each round its own data by starting it with `--train-iters`."
        )
    return found


MEGATRON = Trainer(
    name="megatron",
    title="Megatron-LM",
    checked="megatron-core 0.19.2",
    starter=lambda _unit: "torchrun",
    files=_files,
    command=lambda _unit: ["${MEGATRON_LM:-/workspace/Megatron-LM}/pretrain_gpt.py", "${MEGATRON_ARGS[@]}"],
    unsuited=_unsuited,
    refusals=_refusals,
    cannot_express=_cannot_express,
    environment=_environment,
    keep_pattern="iter_*",
    keep_tracker="latest_checkpointed_iteration.txt",
    grows_batch=True,
)
EXPORTER = exporter_of(MEGATRON)
