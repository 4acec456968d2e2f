"""verl: Hydra overrides for supervised fine-tuning and for reinforcement learning with rollout."""

from __future__ import annotations

from trainplan.export.devices import runs_on
from trainplan.export.launch import LaunchUnit
from trainplan.export.target import header_of, render
from trainplan.export.trainer import Trainer, exporter_of

_RECOMPUTE_FSDP = {"none": "False", "full": "True"}

Overrides = list[tuple[str, str]]


def engine(unit: LaunchUnit) -> str:
    """``megatron`` where the layout needs tensor, pipeline or expert parallelism, else ``fsdp``."""
    layout = unit.segment.layout
    beyond = layout.tp > 1 or layout.pp > 1 or layout.ep > 1
    return "megatron" if beyond or unit.task.framework == "megatron" else "fsdp"


def rollout_tensor_degree(unit: LaunchUnit) -> int:
    """Tensor parallel degree of generation: that of training, within a node; its own on nodes of its own."""
    if unit.beside:
        return unit.beside[0].layout.tp
    return min(unit.segment.layout.tp, unit.segment.accelerators_per_node)


def overrides(unit: LaunchUnit) -> Overrides:
    """Hydra overrides of the unit, key and value."""
    return _rl(unit) if unit.task.kind == "rl" else _sft(unit)


def _rl(unit: LaunchUnit) -> Overrides:
    rollout, layout = unit.task.rollout, unit.segment.layout
    assert rollout is not None, "refused before"
    actor = "actor_rollout_ref.actor"
    found: Overrides = [
        ("data.train_files", "$DATA/train.parquet"),
        ("data.val_files", "$DATA/val.parquet"),
        ("data.train_batch_size", str(rollout.prompts)),
        ("data.max_prompt_length", str(round(rollout.prompt_tokens))),
        ("data.max_response_length", str(round(rollout.response_tokens))),
        ("algorithm.adv_estimator", "grpo" if rollout.samples_per_prompt > 1 else "reinforce_plus_plus"),
        ("actor_rollout_ref.model.path", "$MODEL"),
        ("actor_rollout_ref.rollout.name", "${ROLLOUT_ENGINE:-vllm}"),
        ("actor_rollout_ref.rollout.n", str(rollout.samples_per_prompt)),
        ("actor_rollout_ref.rollout.tensor_model_parallel_size", str(rollout_tensor_degree(unit))),
        (f"{actor}.ppo_mini_batch_size", str(rollout.prompts)),
        (f"{actor}.ppo_micro_batch_size_per_gpu", str(layout.micro_batch)),
        ("actor_rollout_ref.rollout.log_prob_micro_batch_size_per_gpu", str(layout.micro_batch)),
        (f"{actor}.optim.lr", "$LEARNING_RATE"),
    ]
    found += _engine(unit, f"{actor}.{'megatron' if engine(unit) == 'megatron' else 'fsdp_config'}")
    found += _model(unit, "actor_rollout_ref.model")
    for other in unit.beside:
        found += [
            ("actor_rollout_ref.hybrid_engine", "False"),
            ("rollout.nnodes", str(other.nodes)),
            ("rollout.n_gpus_per_node", str(other.accelerators_per_node)),
            # The files its own builds on are looked for in the working folder otherwise.
            ("hydra.searchpath", "[file://$VERL_FOLDER/trainer/config]"),
        ]
    found += [
        ("critic.enable", "False"),
        ("trainer.nnodes", str(unit.segment.nodes)),
        ("trainer.n_gpus_per_node", str(unit.processes_per_node)),
        ("trainer.total_training_steps", str(unit.total_steps)),
        ("trainer.max_actor_ckpt_to_keep", str(unit.keep_last)),
    ]
    return found + _trainer(unit)


def _sft(unit: LaunchUnit) -> Overrides:
    layout = unit.segment.layout
    found: Overrides = [
        ("data.train_files", "$DATA/train.parquet"),
        ("data.train_batch_size", str(unit.batch_sequences)),
        ("data.micro_batch_size_per_gpu", str(layout.micro_batch)),
        ("data.use_dynamic_bsz", "False"),
        ("data.max_length", str(unit.segment.sequence_length)),
        ("model.path", "$MODEL"),
        ("engine", engine(unit)),
        ("optim", engine(unit)),
        ("optim.lr", "$LEARNING_RATE"),
    ]
    found += _engine(unit, "engine") + _model(unit, "model")
    found += [
        ("trainer.nnodes", str(unit.segment.nodes)),
        ("trainer.n_gpus_per_node", str(unit.processes_per_node)),
        ("trainer.total_training_steps", str(unit.total_steps)),
        ("trainer.max_ckpt_to_keep", str(unit.keep_last)),
    ]
    return found + _trainer(unit)


def _trainer(unit: LaunchUnit) -> Overrides:
    return [
        ("trainer.save_freq", str(unit.interval_steps)),
        ("trainer.default_local_dir", "$CHECKPOINT_DIR"),
        ("trainer.resume_mode", "auto"),
        ("trainer.project_name", unit.plan_id),
        ("trainer.experiment_name", unit.name),
        ("trainer.logger", "[console]"),
    ]


def _engine(unit: LaunchUnit, key: str) -> Overrides:
    layout = unit.segment.layout
    if engine(unit) == "fsdp":
        size = layout.shard_group or -1
        return [
            (f"{key}.fsdp_size", str(size)),
            (f"{key}.reshard_after_forward", str(layout.zero_stage == 3)),
            (f"{key.removesuffix('.fsdp_config')}.ulysses_sequence_parallel_size", str(layout.cp)),
        ]
    found: Overrides = [
        (f"{key}.tensor_model_parallel_size", str(layout.tp)),
        (f"{key}.pipeline_model_parallel_size", str(layout.pp)),
        (f"{key}.context_parallel_size", str(layout.cp)),
        (f"{key}.expert_model_parallel_size", str(layout.ep)),
        (f"{key}.sequence_parallel", str(layout.sequence_parallel and layout.tp > 1)),
        (f"{key}.use_distributed_optimizer", str(layout.zero_stage > 0)),
    ]
    if layout.vp > 1:
        found.append((f"{key}.virtual_pipeline_model_parallel_size", str(layout.vp)))
    if layout.ep > 1:
        found.append((f"{key}.expert_tensor_parallel_size", "1"))
    transformer = f"{key}.override_transformer_config"
    if layout.recompute != "none":
        found.append((f"{transformer}.recompute_granularity", layout.recompute))
    if layout.recompute == "full":
        found += [
            (f"{transformer}.recompute_method", "uniform"),
            (f"{transformer}.recompute_num_layers", "1"),
        ]
    return found


def _model(unit: LaunchUnit, key: str) -> Overrides:
    found: Overrides = []
    if engine(unit) == "fsdp":
        full = unit.segment.layout.recompute == "full"
        found.append((f"{key}.enable_gradient_checkpointing", str(full)))
    if unit.task.lora_rank:
        found += [
            (f"{key}.lora_rank", str(unit.task.lora_rank)),
            (f"{key}.lora_alpha", str(2 * unit.task.lora_rank)),
        ]
    return found


def config_name(unit: LaunchUnit) -> str:
    """The verl configuration the overrides apply to."""
    if unit.task.kind != "rl":
        return "sft_trainer_engine"
    name = "ppo_megatron_trainer" if engine(unit) == "megatron" else "ppo_trainer"
    return f"one_step_off_{name}" if unit.beside else name


def module_of(unit: LaunchUnit) -> str:
    """The verl program that runs the unit."""
    if unit.task.kind != "rl":
        return "verl.trainer.sft_trainer"
    return "verl.experimental.one_step_off_policy.main_ppo" if unit.beside else "verl.trainer.main_ppo"


def _files(unit: LaunchUnit) -> dict[str, str]:
    text = render(
        "verl.overrides.j2",
        header=header_of(unit),
        unit=unit,
        config_name=config_name(unit),
        module=module_of(unit),
        starter="" if unit.task.kind == "rl" else "torchrun",
        overrides=overrides(unit),
    )
    return {f"{unit.name}.verl.sh": text}


def _unsuited(unit: LaunchUnit) -> str:
    if unit.task.kind not in ("sft", "rl"):
        return f"verl is exported for sft and rl, not for a task of kind {unit.task.kind}"
    return ""


def _refusals(unit: LaunchUnit) -> list[str]:
    layout = unit.segment.layout
    found = []
    if not runs_on(unit.segment.accelerator, "nvidia", "amd"):
        found.append(f"verl is exported for NVIDIA and AMD GPUs, not for {unit.segment.accelerator}")
    if unit.task.kind == "rl" and unit.task.rollout is None:
        found.append("an rl task needs `rollout:` in the case (prompts, samples_per_prompt, lengths)")
    if engine(unit) == "megatron" and layout.zero_stage > 1:
        found.append(
            f"verl's Megatron engine shards the optimizer (ZeRO stage 1), not stage {layout.zero_stage}"
        )
    if engine(unit) == "fsdp" and layout.zero_stage < 2:
        found.append(
            f"verl's FSDP engine shards weights and gradients; the plan has ZeRO stage {layout.zero_stage}"
        )
    if engine(unit) == "fsdp" and layout.recompute == "selective":
        found.append(
            "verl's FSDP engine recomputes whole blocks or nothing; the plan has selective recompute"
        )
    if layout.precision not in ("bf16", "fp16"):
        found.append(f"verl is exported in bf16 and fp16, not {layout.precision}")
    return found + _role_refusals(unit)


def _role_refusals(unit: LaunchUnit) -> list[str]:
    """Why verl cannot generate on the nodes that the plan has for it."""
    found, lead, rollout = [], unit.segment, unit.task.rollout
    for other in unit.beside:
        if (other.pool, other.mode) != (lead.pool, lead.mode):
            found.append(
                f"verl's resource pools are parts of one Ray cluster of like nodes; the plan trains on {lead.pool} "
                f"({lead.mode}) and generates on {other.pool} ({other.mode}); `rollout: {{placement: together}}` in "
                "the case plans for one group of nodes"
            )
        if other.layout.tp > other.accelerators_per_node:
            found.append(
                f"a replica of {other.layout.tp} accelerators spans nodes of {other.accelerators_per_node}"
            )
    if unit.beside and rollout is not None and not rollout.max_staleness_steps:
        found.append(
            "verl generates on separate nodes one update ahead; the plan lets both take turns "
            "(`rollout: {max_staleness: 1}` in the case allows it)"
        )
    return found


def _cannot_express(unit: LaunchUnit) -> list[str]:
    found = []
    if unit.milestone_steps:
        found.append(
            f"{unit.name}: no milestones; copy every {unit.milestone_steps}th `global_step_N` away yourself."
        )
    if unit.task.kind == "rl":
        found.append(
            f"{unit.name}: the reward (function or model) is not part of a plan; add it to the command line."
        )
    if unit.task.rounds > 1:
        found.append(
            f"{unit.task.name}: {unit.task.rounds} rounds of {unit.round_steps} steps are one run of "
            f"{unit.total_steps}."
        )
    if unit.beside:
        found.append(
            f"{unit.name}: verl takes log-probabilities from the generating nodes and keeps a reference model, where "
            "the loss needs one, with the training nodes."
        )
    if unit.task.quantized_base:
        found.append(f"{unit.name}: 4-bit frozen weights are not exported to verl; it keeps them in 16 bits.")
    return found


VERL = Trainer(
    name="verl",
    title="verl",
    checked="verl 0.9.1",
    starter=lambda unit: "ray" if unit.task.kind == "rl" else "direct",
    files=_files,
    command=lambda unit: ["bash", f"{unit.name}.verl.sh"],
    unsuited=_unsuited,
    refusals=_refusals,
    cannot_express=_cannot_express,
    separate_roles=True,
)
EXPORTER = exporter_of(VERL)
