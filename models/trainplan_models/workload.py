"""Model shapes: how many parameters they have and how much arithmetic one token costs."""

from __future__ import annotations

import csv
from dataclasses import dataclass, fields, replace
from functools import lru_cache
from importlib.resources import files
from typing import TYPE_CHECKING, Literal

from trainplan_models.base import InputError, Problem

if TYPE_CHECKING:
    from trainplan_models.case import Lora, Shape
    from trainplan_models.catalog.records import Model


@dataclass(frozen=True, slots=True)
class Family:
    """What sets the layers of a model family apart beyond its sizes (``catalog/families.csv``)."""

    family: str
    norms_per_layer: int
    qk_norm: Literal["none", "head", "full"]
    """``head``: one gain per head dimension; ``full``: one per query and key channel."""
    embedding_norm: bool
    attention_sinks: bool
    expert_bias: bool
    shared_gate: bool
    position_offset: int
    sliding_frac: float
    """Share of the layers whose attention is limited to the sliding window."""
    norm_bias: bool
    linear_bias: bool
    qkv_bias: bool
    gated_mlp: bool


@dataclass(frozen=True, slots=True)
class ModelShape:
    """The sizes of a decoder-only transformer; the same fields as a catalogue row, without provenance."""

    layers: int
    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    """For multi-head latent attention: the part without rotary embedding."""
    ffn: int
    vocab: int
    gated_mlp: bool = True
    tied_embeddings: bool = False
    max_positions: int = 0
    qkv_bias: bool = False
    linear_bias: bool = False
    norm_bias: bool = False
    parallel_block: bool = False
    experts: int = 0
    experts_per_token: int = 0
    expert_ffn: int = 0
    shared_experts: int = 0
    shared_expert_ffn: int = 0
    dense_layers: int = 0
    q_lora_rank: int = 0
    kv_lora_rank: int = 0
    rope_head_dim: int = 0
    v_head_dim: int = 0
    sliding_window: int = 0
    family: str = "llama"
    name: str = ""

    @property
    def is_moe(self) -> bool:
        """Whether at least one layer is a mixture of experts."""
        return self.experts > 1 and self.moe_layers > 0

    @property
    def moe_layers(self) -> int:
        """Layers with experts."""
        return self.layers - self.dense_layers if self.experts > 1 else 0

    @property
    def query_dim(self) -> int:
        """Channels of all query heads together."""
        return self.heads * (self.head_dim + self.rope_head_dim)

    @property
    def value_dim(self) -> int:
        """Channels of the attention output before the output projection."""
        return self.heads * (self.v_head_dim or self.head_dim)

    @property
    def kv_dim(self) -> int:
        """Channels of keys and values together, as the attention kernel reads them."""
        if self.kv_lora_rank:
            return self.query_dim + self.value_dim
        return 2 * self.kv_heads * self.head_dim

    @property
    def routed_ffn(self) -> int:
        """Hidden width of one routed expert."""
        return self.expert_ffn or self.ffn

    @property
    def shared_ffn(self) -> int:
        """Hidden width of all shared experts together."""
        return self.shared_experts * (self.shared_expert_ffn or self.routed_ffn)


@dataclass(frozen=True, slots=True)
class Adapter:
    """Low-rank adapters, for callers that have no case record at hand."""

    rank: int = 16
    quantized_base: bool = False


@dataclass(frozen=True, slots=True)
class TrainSetup:
    """One training task as the physics sees it: the model and everything that does not depend on the layout."""

    shape: ModelShape
    sequence_length: int
    global_batch_sequences: int
    precision: str = "bf16"
    """fp32, bf16, fp16, fp8 or fp4."""
    optimizer: str = "adamw"
    """A recipe of ``catalog/optimizers.csv``."""
    lora: Lora | Adapter | None = None
    kind: str = "pretrain"
    framework: str = "megatron"
    software: str = ""
    """A row of ``catalog/efficiency_software.csv``; empty: the current generation of the framework."""
    activation_offload: bool = False
    """Block inputs kept for the backward pass go to host memory."""
    causal: bool = True
    document_tokens: int = 0
    """Mean length of documents packed into a sequence that do not attend to each other; 0: attention spans all."""
    ramp: tuple[tuple[float, int], ...] = ()
    """Smaller batches that training starts with: the share of the tokens done with each, and its sequences."""

    @property
    def phases(self) -> tuple[tuple[float, TrainSetup], ...]:
        """The stretches with one batch each: share of the tokens, and the setup with that batch alone."""
        rest = 1.0 - sum(share for share, _ in self.ramp)
        steps = (*self.ramp, (rest, self.global_batch_sequences))
        return tuple((share, replace(self, global_batch_sequences=count, ramp=())) for share, count in steps)

    @property
    def span(self) -> int:
        """Tokens that attention reaches over."""
        if not self.document_tokens:
            return self.sequence_length
        return min(self.document_tokens, self.sequence_length)

    @property
    def tokens_per_step(self) -> float:
        """Tokens in one global batch."""
        return 1.0 * self.sequence_length * self.global_batch_sequences


@lru_cache(maxsize=1)
def families() -> dict[str, Family]:
    """Model families by name, in lower case."""
    text = files("trainplan_models.catalog").joinpath("families.csv").read_text(encoding="utf-8")
    found: dict[str, Family] = {}
    for row in csv.DictReader(text.splitlines()):
        qk_norm: Literal["none", "head", "full"] = "none"
        if row["qk_norm"] == "head":
            qk_norm = "head"
        elif row["qk_norm"] == "full":
            qk_norm = "full"
        flags = {
            key: row[key] == "1"
            for key in [
                "embedding_norm",
                "attention_sinks",
                "expert_bias",
                "shared_gate",
                "norm_bias",
                "linear_bias",
                "qkv_bias",
                "gated_mlp",
            ]
        }
        found[row["family"]] = Family(
            family=row["family"],
            norms_per_layer=int(row["norms_per_layer"]),
            qk_norm=qk_norm,
            position_offset=int(row["position_offset"]),
            sliding_frac=float(row["sliding_frac"]),
            **flags,
        )
    return found


def family_of(name: str) -> Family:
    """Traits of a family; unknown families are taken as ``llama`` (pre-norm, no biases)."""
    key = name.lower().replace("-", "_").replace(".", "_").removesuffix("_text")
    return families().get(key, families()["llama"])


def shape_of(model: Model | Shape | ModelShape) -> ModelShape:
    """The shape of a catalogue row or of a shape written out in the case."""
    if isinstance(model, ModelShape):
        return model
    values = {
        field.name: getattr(model, field.name) for field in fields(ModelShape) if hasattr(model, field.name)
    }
    heads = int(values["heads"])
    values["kv_heads"] = values.get("kv_heads") or heads
    values["head_dim"] = values.get("head_dim") or int(values["hidden"]) // heads
    return replace(ModelShape(**values), sliding_window=int(values.get("sliding_window") or 0))


def attention_params(shape: ModelShape) -> int:
    """Weights of the attention linear layers of one layer, without biases and norms."""
    hidden = shape.hidden
    if shape.kv_lora_rank:
        rank = shape.q_lora_rank
        query = rank * (hidden + shape.query_dim) if rank else hidden * shape.query_dim
        value = shape.v_head_dim or shape.head_dim
        up = shape.kv_lora_rank * shape.heads * (shape.head_dim + value)
        return query + hidden * (shape.kv_lora_rank + shape.rope_head_dim) + up + shape.value_dim * hidden
    return hidden * (shape.query_dim + shape.kv_dim) + shape.value_dim * hidden


def mlp_params(shape: ModelShape, ffn: int) -> int:
    """Weights of an MLP of width ``ffn``, without biases."""
    return (3 if shape.gated_mlp else 2) * shape.hidden * ffn


def expert_params(shape: ModelShape) -> int:
    """Parameters of the routed experts of one layer, biases included."""
    bias = (2 if shape.gated_mlp else 1) * shape.routed_ffn + shape.hidden
    one = mlp_params(shape, shape.routed_ffn) + bias * family_of(shape.family).expert_bias
    return shape.experts * one if shape.experts > 1 else 0


def _small_params(shape: ModelShape) -> int:
    """Norms and attention biases of one layer."""
    family = family_of(shape.family)
    hidden, count = shape.hidden, family.norms_per_layer * shape.hidden * (2 if shape.norm_bias else 1)
    if family.qk_norm == "head":
        count += 2 * shape.head_dim
    elif family.qk_norm == "full":
        count += shape.query_dim + shape.kv_dim // 2
    if shape.kv_lora_rank:
        count += shape.q_lora_rank + shape.kv_lora_rank
    if shape.qkv_bias or shape.linear_bias:
        count += shape.query_dim + shape.kv_dim
    if shape.linear_bias or family.expert_bias:
        count += hidden
    return count + shape.heads * family.attention_sinks


def layer_params(shape: ModelShape, moe: bool) -> int:
    """All parameters of one layer; ``moe`` chooses the layer with experts."""
    common = attention_params(shape) + _small_params(shape)
    if not moe:
        bias = shape.hidden + (2 if shape.gated_mlp else 1) * shape.ffn
        return common + mlp_params(shape, shape.ffn) + bias * shape.linear_bias
    family = family_of(shape.family)
    router = shape.hidden * shape.experts + shape.experts * family.expert_bias
    shared = mlp_params(shape, shape.shared_ffn) if shape.shared_experts else 0
    return common + expert_params(shape) + router + shared + shape.hidden * family.shared_gate


def embedding_params(shape: ModelShape) -> int:
    """Input embedding with learned positions and its norm."""
    family = family_of(shape.family)
    positions = shape.max_positions + family.position_offset if shape.max_positions else 0
    norm = shape.hidden * (2 if shape.norm_bias else 1) * family.embedding_norm
    return (shape.vocab + positions) * shape.hidden + norm


def head_params(shape: ModelShape) -> int:
    """Output projection (0 when tied) and final norm."""
    head = 0 if shape.tied_embeddings else shape.vocab * shape.hidden
    return head + shape.hidden * (2 if shape.norm_bias else 1)


def total_params(shape: ModelShape) -> int:
    """All trainable parameters."""
    moe = shape.moe_layers
    layers = moe * layer_params(shape, True) if moe else 0
    layers += (shape.layers - moe) * layer_params(shape, False)
    return layers + embedding_params(shape) + head_params(shape)


def active_params(shape: ModelShape) -> int:
    """Parameters that take part in the computation of one token."""
    if not shape.is_moe:
        return total_params(shape)
    one = expert_params(shape) // shape.experts
    return total_params(shape) - shape.moe_layers * (shape.experts - shape.experts_per_token) * one


def lora_params(shape: ModelShape, rank: int) -> int:
    """Adapter parameters with rank ``rank`` on every attention and MLP linear layer."""
    hidden, ffn = shape.hidden, shape.ffn if not shape.is_moe else shape.routed_ffn
    attention = 2 * hidden + shape.query_dim + shape.kv_dim + shape.value_dim + hidden
    mlp = (2 if shape.gated_mlp else 1) * (hidden + ffn) + hidden + ffn
    return rank * (attention + mlp) * shape.layers


def matmul_params(shape: ModelShape) -> int:
    """Weights that multiply every token: active linear layers and the output projection."""
    mlp = (shape.layers - shape.moe_layers) * mlp_params(shape, shape.ffn)
    if shape.is_moe:
        routed = shape.experts_per_token * mlp_params(shape, shape.routed_ffn)
        shared = mlp_params(shape, shape.shared_ffn) + shape.hidden * shape.experts
        mlp += shape.moe_layers * (routed + shared)
    return shape.layers * attention_params(shape) + mlp + shape.vocab * shape.hidden


def attended_tokens(shape: ModelShape, sequence_length: int, causal: bool = True) -> float:
    """Mean number of tokens one query reads, over layers with and without a sliding window."""

    def span(window: float) -> float:
        if not causal:
            return window
        return window - 0.5 * window * window / sequence_length

    full = span(1.0 * sequence_length)
    if not shape.sliding_window or shape.sliding_window >= sequence_length:
        return full
    sliding = family_of(shape.family).sliding_frac
    return sliding * span(float(shape.sliding_window)) + (1.0 - sliding) * full


def flops_per_token(
    shape: ModelShape, sequence_length: int, causal: bool = True, lora: Lora | Adapter | None = None
) -> float:
    """Model FLOPs of forward and backward for one token (PaLM appendix B, arXiv 2204.02311).

    Six per active matmul weight and ``3 * 2 * (query + value channels) * attended tokens`` per layer, halved by
    the causal mask. With adapters the frozen weights need no weight gradient.
    """
    attended = attended_tokens(shape, sequence_length, causal)
    attention = 6.0 * shape.layers * (shape.query_dim + shape.value_dim) * attended
    if lora is None:
        return 6.0 * matmul_params(shape) + attention
    return 4.0 * matmul_params(shape) + 6.0 * lora_params(shape, lora.rank) + attention


def check_shape(shape: ModelShape, key: str = "model") -> None:
    """Refuse a shape that no model can have.

    Raises:
        InputError: with every contradiction found.
    """
    problems: list[Problem] = []

    def refuse(message: str, fix: str) -> None:
        problems.append(Problem(message, key=key, fix=fix))

    for name in ("layers", "hidden", "heads", "kv_heads", "head_dim", "ffn", "vocab"):
        if getattr(shape, name) <= 0 and not (name == "ffn" and shape.expert_ffn):
            refuse(f"{name} is {getattr(shape, name)}", "give a positive number")
    if shape.kv_heads > 0 and shape.heads % shape.kv_heads:
        refuse(f"{shape.heads} heads cannot share {shape.kv_heads} kv_heads", "kv_heads must divide heads")
    if shape.experts and not 0 < shape.experts_per_token <= shape.experts:
        refuse(
            f"experts_per_token is {shape.experts_per_token} of {shape.experts} experts",
            f"give 1 to {shape.experts}",
        )
    if shape.dense_layers > shape.layers:
        refuse(f"dense_layers {shape.dense_layers} exceeds layers {shape.layers}", "give at most layers")
    if problems:
        raise InputError(problems)
