"""The tasks of a case: what is trained, on what, in which order."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import Annotated, Literal, Self

from pydantic import BeforeValidator, Field, ValidationInfo, model_validator

from trainplan_models.base import Record
from trainplan_models.case_rules import KINDS
from trainplan_models.places import Path
from trainplan_models.units import (
    AcceleratorHours,
    Bytes,
    Count,
    DateOrDuration,
    Fraction,
    Names,
    Number,
    Positive,
    PositiveCount,
    Seconds,
    SequenceTokens,
    Tokens,
    Usd,
    mistake,
    refuse_all,
    shown,
)

TaskKind = Literal[
    "pretrain",
    "continue",
    "sft",
    "reward-model",
    "preference",
    "rl",
    "evaluate",
    "generate-data",
    "prepare-data",
]
Precision = Literal["fp32", "bf16", "fp16", "fp8", "fp4"]
TRAINING_KINDS = frozenset(name for name, kind in KINDS.items() if kind.trains)
"""Kinds of tasks that change weights."""
RAMPED = ("pretrain", "continue", "sft", "reward-model", "preference")
"""Kinds whose global batch may grow while they train."""


class Shape(Record):
    """A model written out in the case; the same fields as a catalogue row, without provenance."""

    layers: PositiveCount
    hidden: PositiveCount
    heads: PositiveCount
    kv_heads: PositiveCount | None = None
    """Key and value heads (grouped-query attention); absent: as many as ``heads``."""
    head_dim: PositiveCount | None = None
    """Absent: ``hidden / heads``."""
    ffn: PositiveCount
    """Hidden width of the MLP of a dense layer."""
    vocab: PositiveCount
    gated_mlp: bool = True
    tied_embeddings: bool = False
    max_positions: Count = 0
    """Learned position embeddings; 0 for rotary or ALiBi."""
    experts: Count = 0
    """Routed experts per layer; 0: dense."""
    experts_per_token: Count = 0
    expert_ffn: Count = 0
    shared_experts: Count = 0
    shared_expert_ffn: Count = 0
    dense_layers: Count = 0
    """Layers with a dense MLP in a mixture-of-experts model."""
    q_lora_rank: Count = 0
    kv_lora_rank: Count = 0
    """Rank of the compressed keys and values (multi-head latent attention); 0: none."""
    rope_head_dim: Count = 0
    v_head_dim: Count = 0
    sliding_window: Count = 0
    """Tokens a sliding layer looks back; 0: full attention."""

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        wrong: list[tuple[str, str, str]] = []
        if self.head_dim is None and self.hidden % self.heads:
            message = f"{self.heads} heads do not divide hidden {self.hidden}"
            wrong.append(("heads", message, "Write another number of heads, or add `head_dim`."))
        if self.kv_heads and self.heads % self.kv_heads:
            message = f"{self.kv_heads} kv_heads do not divide {self.heads} heads"
            wrong.append(("kv_heads", message, "Write a divisor of heads."))
        if self.experts and not 0 < self.experts_per_token <= self.experts:
            message = f"{self.experts_per_token} of {self.experts} experts cannot be active"
            wrong.append(("experts_per_token", message, "Write how many experts a token visits."))
        if not self.experts and self.experts_per_token:
            wrong.append(("experts_per_token", "there are no experts", "Add `experts`, or remove it."))
        if self.dense_layers > self.layers:
            message = f"{self.dense_layers} dense_layers are more than {self.layers} layers"
            wrong.append(("dense_layers", message, "Write at most as many as layers."))
        refuse_all("Shape", [((key,), message, fix) for key, message, fix in wrong])
        return self


class Dataset(Record):
    """Where the training data lies and how big it is."""

    size_bytes: Bytes = Field(alias="size")
    at: str = ""
    """``cloud/region`` or the name of an owned pool; empty: wherever the task runs."""
    format_factor: Annotated[Number, Positive] = 1.0
    """Bytes read per byte of content (small files and random reads make it larger than 1)."""


class Lora(Record):
    """Low-rank adapters: only they are trained."""

    rank: PositiveCount = 16
    quantized_base: bool = False
    """QLoRA: the frozen weights are kept in 4 bits."""


class Rollout(Record):
    """What an ``rl`` (or ``generate-data``, ``evaluate``) task generates."""

    prompts: PositiveCount
    """Prompts per step (rl) or in all."""
    samples_per_prompt: PositiveCount = 1
    prompt_tokens: SequenceTokens = 512
    response_tokens: Annotated[SequenceTokens, Positive] = 1024
    """Mean length of what is generated."""
    steps: PositiveCount = 1
    placement: Literal["any", "together", "separate"] = "any"
    """Where an rl task generates: ``together`` on the nodes that train, which take turns; ``separate`` on nodes of
    its own, of the same pool or of another one in the same region; ``any``: whichever is better."""
    accelerators: Names = ()
    """Chips of nodes that only generate; absent: those of the task."""
    billing: Names = ()
    """Billing modes of nodes that only generate, a part of ``resources.billing``; absent: those of the task."""
    max_staleness_steps: Annotated[int, Field(strict=True, ge=0, le=1)] = Field(
        default=0, alias="max_staleness"
    )
    """Updates by which samples may be older than the weights they train (rl). 0: generation and update take turns.
    1: on separate nodes the next samples are generated during the update."""


def _model(value: object, info: ValidationInfo) -> object:
    """A shape written out becomes one here, so that its mistakes are told without those of the other form."""
    if isinstance(value, Mapping):
        return Shape.model_validate(value, context=info.context)
    if isinstance(value, (str, Shape)) and value != "":
        return value
    raise mistake(
        f"{shown(value)} is not a model", "Write a catalogue name, a path to a config.json, or the shape."
    )


def _batch(value: object, info: ValidationInfo) -> object:
    """``512 sequences`` becomes tokens."""
    if isinstance(value, (int, float)) and not (info.context or {}).get("canonical"):
        message = f"{shown(value)} could be tokens or sequences"
        raise mistake(message, f"Write {shown(value)} sequences, or tokens like 4M tokens.")
    match = (
        re.fullmatch(r"\s*(\d[\d_,]*)\s*(?:sequences?|seqs?)\s*", value) if isinstance(value, str) else None
    )
    if match is None:
        return value
    length = info.data.get("sequence_length")
    if length is None:
        message = f"{value!r} needs a sequence_length to be a number of tokens"
        raise mistake(message, "Add `sequence_length: 8192`, or write tokens like 4M tokens.")
    return f"{int(match[1].replace(',', '')) * length} tokens"


class BatchStep(Record):
    """A smaller global batch that training starts with."""

    global_batch_tokens: Annotated[Tokens, Positive] = Field(alias="global_batch")
    """Tokens per optimizer step."""
    until_tokens: Annotated[Tokens, Positive] = Field(alias="until")
    """Tokens of the task after which the next step of the ramp, at last ``global_batch`` itself, follows."""


class Task(Record):
    """One unit of training work."""

    name: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]*$", examples=["pretrain", "sft-1"])
    kind: TaskKind
    model: Annotated[str | Shape, BeforeValidator(_model)] | None = None
    """A catalogue name, a path to a Hugging Face config.json, or the shape written out. Absent for
    ``prepare-data``; absent elsewhere: the model of the first task it follows."""
    tokens: Annotated[Tokens, Positive] | None = None
    """Tokens trained on in one round."""
    sequence_length: Annotated[SequenceTokens, Positive] | None = None
    """Tokens per sequence."""
    global_batch_tokens: Annotated[Tokens, Positive, BeforeValidator(_batch)] | None = Field(
        default=None, alias="global_batch"
    )
    """Tokens per optimizer step; in a file also a number of sequences, like ``512 sequences``."""
    batch_ramp: tuple[BatchStep, ...] = ()
    """Smaller global batches in order of time, before ``global_batch``: a ramp-up of the batch."""
    precision: Precision = "bf16"
    optimizer: str = "adamw"
    """A recipe of the catalogue: adamw, adamw-8bit, adamw-bf16, sgd, muon."""
    lora: Lora | None = None
    rollout: Rollout | None = None
    dataset: Dataset | None = None
    after: Names = ()
    """Tasks that have to be done before this one begins."""
    rounds: PositiveCount = 1
    """How many times the work is done, one after the other; with ``stop_chance``, at most."""
    stop_chance_frac: Annotated[Fraction, Positive] | None = Field(default=None, alias="stop_chance")
    """Chance, after each round but the last, that no further round is needed."""
    chance_frac: Annotated[Fraction, Positive] = Field(default=1.0, alias="chance")
    """Chance that the task is done at all; time is kept for it all the same, and what follows it is done anyway."""
    framework: str = "auto"
    """Which launcher's divisibility rules bind the layout: megatron, torchtitan, fsdp, deepspeed, maxtext."""
    accelerator_hours: Annotated[AcceleratorHours, Positive] | None = None
    """For tasks that train nothing and whose work is known in hours, on the slowest allowed chip."""
    duration_s: Seconds | None = Field(default=None, alias="duration")
    """Fixed length, for work that takes no accelerators."""
    cost_usd: Usd | None = Field(default=None, alias="cost")
    """Fixed price per round (bought data, labelling)."""
    release: DateOrDuration | None = None
    """Not to begin before."""
    due: DateOrDuration | None = None
    """To be done by; absent: the deadline of the case (see ``Case.due_s``)."""
    priority: Annotated[int, Field(strict=True)] = 0
    """Where tasks compete for nodes, the higher goes first."""
    accelerators: Names = ()
    """Narrows ``resources.accelerators`` for this task."""
    billing: Names = ()
    """Narrows ``resources.billing`` for this task."""
    labels: dict[str, str] = {}

    @model_validator(mode="after")
    def _batch_holds_a_sequence(self) -> Self:
        batch, length = self.global_batch_tokens, self.sequence_length
        if batch is not None and length is not None and batch < length:
            message = f"a batch of {batch:.15g} tokens is less than one sequence of {length}"
            fix = "The global batch is in tokens: sequences times sequence_length, or `512 sequences`."
            refuse_all("Task", [(("global_batch",), message, fix)])
        return self

    @model_validator(mode="after")
    def _chances_are_chances(self) -> Self:
        wrong: list[tuple[Path, str, str]] = []
        stop = self.stop_chance_frac
        if stop is not None and self.rounds == 1:
            message = "a task of one round has no further round that could be left out"
            wrong.append(
                (("stop_chance",), message, "Add `rounds: 5`, or write `chance: 40%` of doing it at all.")
            )
        if stop is not None and stop >= 1:
            message = f"a chance of {stop:.0%} to stop means one round"
            wrong.append((("stop_chance",), message, "Write `rounds: 1`, or a chance below 100%."))
        if self.chance_frac > 1:
            message = f"{self.chance_frac:.0%} is more than certain"
            wrong.append((("chance",), message, "Write a chance up to 100%."))
        refuse_all("Task", wrong)
        return self

    @model_validator(mode="after")
    def _ramp_rises(self) -> Self:
        if self.batch_ramp:
            wrong = self._ramp_mistakes()
            refuse_all("Task", [(("batch_ramp", *path), message, fix) for path, message, fix in wrong])
        return self

    def _ramp_mistakes(self) -> Iterator[tuple[Path, str, str]]:
        last, tokens = self.global_batch_tokens, self.tokens
        if last is None or tokens is None or self.kind not in RAMPED:
            fix = f"Add `global_batch` and `tokens`; kinds with a ramp are {', '.join(RAMPED)}."
            yield (), "a batch ramp needs tokens and the batch it ends at", fix
            return
        if self.rounds > 1:
            yield (), "a batch ramp is for one round", "Make the first round a task of its own."
        steps = [(step.global_batch_tokens, step.until_tokens) for step in self.batch_ramp]
        for index, ((batch, until), (after, end)) in enumerate(pairwise([*steps, (last, tokens)])):
            if batch >= after:
                message = f"a batch of {batch:.15g} tokens does not grow to {after:.15g}"
                yield (index, "global_batch"), message, "Write the batches from small to large."
            if until >= end:
                message = f"this batch lasts until {until:.15g} tokens, the next one until {end:.15g}"
                yield (index, "until"), message, "Write tokens since the start of the task, in rising order."
        if self.sequence_length is not None and steps[0][0] < self.sequence_length:
            message = (
                f"a batch of {steps[0][0]:.15g} tokens is less than one sequence of {self.sequence_length}"
            )
            yield (0, "global_batch"), message, "The global batch is in tokens."

    @property
    def trains(self) -> bool:
        """Whether the task changes weights."""
        return self.kind in TRAINING_KINDS

    @property
    def expected_rounds(self) -> float:
        """Mean number of rounds that are done: ``c (1 - (1-p)^n) / p`` of ``n``, with ``p`` the chance to stop."""
        stop = self.stop_chance_frac
        rounds = float(self.rounds) if stop is None else (1.0 - (1.0 - stop) ** self.rounds) / stop
        return self.chance_frac * rounds

    @property
    def expected_frac(self) -> float:
        """Share of the work that is expected to be done."""
        return self.expected_rounds / self.rounds
