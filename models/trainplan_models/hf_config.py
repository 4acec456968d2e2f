"""Reads a Hugging Face ``config.json`` as a model shape."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from trainplan_models.base import InputError, Problem
from trainplan_models.workload import ModelShape, check_shape, families, family_of

_SUPPORTED = [
    "llama",
    "qwen2",
    "qwen2_moe",
    "qwen3",
    "qwen3_moe",
    "mistral",
    "mixtral",
    "gemma",
    "gemma2",
    "gemma3",
    "gpt_neox",
    "gpt2",
    "deepseek_v2",
    "deepseek_v3",
    "falcon",
    "mpt",
    "bloom",
    "opt",
    "olmo2",
    "phi3",
    "gpt_oss",
]

_NAMES: dict[str, tuple[str, ...]] = {
    "layers": ("num_hidden_layers", "n_layer", "n_layers", "num_layers"),
    "hidden": ("hidden_size", "n_embd", "d_model"),
    "heads": ("num_attention_heads", "n_head", "n_heads"),
    "vocab": ("vocab_size",),
    "experts": ("n_routed_experts", "num_local_experts", "num_experts"),
    "experts_per_token": ("num_experts_per_tok", "experts_per_token"),
    "expert_ffn": ("moe_intermediate_size",),
}
"""What a size is called, by family habit; the first key present counts."""

_ALWAYS_TIED = {"gpt2", "bloom", "opt", "mpt", "falcon", "gemma", "gemma2", "gemma3"}
_LEARNED_POSITIONS = {"gpt2": "n_positions", "opt": "max_position_embeddings"}


def from_hf_config(source: str | Path | Mapping[str, Any]) -> ModelShape:
    """The shape that a ``config.json`` (a path, or its parsed content) describes.

    Raises:
        InputError: unreadable file, unknown ``model_type`` or a size that is missing.
    """
    config, place = _load(source)
    if "text_config" in config:
        config = {**config, **config["text_config"]}
    family = str(config.get("model_type", "")).removesuffix("_text")
    if family not in _SUPPORTED:
        known = ", ".join(_SUPPORTED)
        raise InputError(
            Problem(
                f"model_type {family!r} is not known", key="model_type", file=place, fix=f"known: {known}"
            )
        )
    shape = _shape(config, family, place)
    check_shape(shape, place or "model")
    return shape


def _load(source: str | Path | Mapping[str, Any]) -> tuple[dict[str, Any], str]:
    if isinstance(source, Mapping):
        return dict(source), ""
    path = Path(source)
    try:
        config = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(Problem(f"cannot be read: {error.strerror}", file=str(path))) from error
    except ValueError as error:
        raise InputError(Problem(f"is not JSON: {error}", file=str(path))) from error
    if not isinstance(config, dict):
        raise InputError(Problem("is not a JSON object", file=str(path)))
    return config, str(path)


def _size(config: Mapping[str, Any], what: str, place: str, default: int | None = None) -> int:
    for key in _NAMES[what]:
        if config.get(key) is not None:
            return int(config[key])
    if default is None:
        keys = " or ".join(_NAMES[what])
        raise InputError(Problem("is missing", key=_NAMES[what][0], file=place, fix=f"give {keys}"))
    return default


def _ffn(config: Mapping[str, Any], family: str, hidden: int) -> int:
    for key in ("intermediate_size", "ffn_dim", "n_inner", "ffn_hidden_size"):
        if config.get(key):
            return int(config[key])
    if family == "mpt":
        return int(config.get("expansion_ratio", 4) * hidden)
    return 4 * hidden


def _kv_heads(config: Mapping[str, Any], family: str, heads: int) -> int:
    if family == "falcon":
        if config.get("new_decoder_architecture"):
            return int(config.get("num_kv_heads") or heads)
        return 1 if config.get("multi_query", True) else heads
    if family == "mpt":
        attention = config.get("attn_config") or {}
        return int(attention.get("kv_n_heads") or heads)
    return int(config.get("num_key_value_heads") or heads)


def _experts(config: Mapping[str, Any], family: str, layers: int, ffn: int, place: str) -> dict[str, int]:
    experts = _size(config, "experts", place, 0)
    if experts < 2:
        return {}
    width = _size(config, "expert_ffn", place, ffn)
    dense = int(config.get("first_k_dense_replace") or 0)
    step = int(config.get("decoder_sparse_step") or 1)
    only = len(config.get("mlp_only_layers") or [])
    if step > 1 or only:
        dense = layers - sum(
            (i + 1) % step == 0 and i not in (config.get("mlp_only_layers") or []) for i in range(layers)
        )
    shared = int(config.get("n_shared_experts") or 0)
    shared_ffn = width
    if family == "qwen2_moe":
        shared, shared_ffn = 1, int(config.get("shared_expert_intermediate_size") or ffn)
    return {
        "experts": experts,
        "experts_per_token": _size(config, "experts_per_token", place, 2),
        "expert_ffn": width,
        "dense_layers": dense,
        "shared_experts": shared,
        "shared_expert_ffn": shared_ffn if shared else 0,
    }


def _latent(config: Mapping[str, Any], family: str) -> dict[str, int]:
    if not family.startswith("deepseek"):
        return {}
    return {
        "q_lora_rank": int(config.get("q_lora_rank") or 0),
        "kv_lora_rank": int(config.get("kv_lora_rank") or 512),
        "rope_head_dim": int(config.get("qk_rope_head_dim") or 64),
        "v_head_dim": int(config.get("v_head_dim") or 128),
        "head_dim": int(config.get("qk_nope_head_dim") or 128),
    }


def _shape(config: Mapping[str, Any], family: str, place: str) -> ModelShape:
    layers, hidden = _size(config, "layers", place), _size(config, "hidden", place)
    heads, ffn = _size(config, "heads", place), _ffn(config, family, hidden)
    traits = family_of(family)
    new_falcon = family == "falcon" and bool(config.get("new_decoder_architecture"))
    values: dict[str, Any] = {
        "layers": layers,
        "hidden": hidden,
        "heads": heads,
        "kv_heads": _kv_heads(config, family, heads),
        "head_dim": int(config.get("head_dim") or hidden // heads),
        "ffn": ffn,
        "vocab": _size(config, "vocab", place),
        "gated_mlp": traits.gated_mlp,
        "tied_embeddings": bool(config.get("tie_word_embeddings", family in _ALWAYS_TIED)),
        "max_positions": int(config.get(_LEARNED_POSITIONS.get(family, ""), 0) or 0),
        "qkv_bias": traits.qkv_bias or bool(config.get("attention_bias", False)),
        "linear_bias": bool(config.get("bias", traits.linear_bias))
        if family == "falcon"
        else traits.linear_bias,
        "norm_bias": traits.norm_bias,
        "parallel_block": bool(config.get("use_parallel_residual") or config.get("parallel_attn")),
        "sliding_window": int(config.get("sliding_window") or 0)
        if config.get("use_sliding_window", True)
        else 0,
        "family": "falcon_new" if new_falcon and "falcon_new" in families() else family,
    }
    values |= _experts(config, family, layers, ffn, place)
    values |= _latent(config, family)
    return ModelShape(**values)
