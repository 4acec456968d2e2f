from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from trainplan_models import catalog
from trainplan_models.base import InputError
from trainplan_models.hf_config import from_hf_config
from trainplan_models.workload import (
    Adapter,
    ModelShape,
    active_params,
    check_shape,
    embedding_params,
    flops_per_token,
    lora_params,
    shape_of,
    total_params,
)

SHARED = Path(__file__).resolve().parents[3] / "shared" / "data" / "hf_configs"

LLAMA_7B: dict[str, Any] = {
    "model_type": "llama",
    "hidden_size": 4096,
    "intermediate_size": 11008,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "vocab_size": 32000,
}

DEFAULTS: dict[str, dict[str, Any]] = {
    "llama": LLAMA_7B,
    "mistral": {**LLAMA_7B, "intermediate_size": 14336, "num_key_value_heads": 8},
    "mixtral": {
        **LLAMA_7B,
        "intermediate_size": 14336,
        "num_key_value_heads": 8,
        "num_local_experts": 8,
        "num_experts_per_tok": 2,
    },
    "qwen2": {**LLAMA_7B, "intermediate_size": 22016, "vocab_size": 151936},
    "qwen3": {**LLAMA_7B, "intermediate_size": 22016, "vocab_size": 151936, "head_dim": 128},
    "qwen3_moe": {
        "hidden_size": 2048,
        "intermediate_size": 6144,
        "moe_intermediate_size": 768,
        "num_hidden_layers": 24,
        "num_attention_heads": 32,
        "num_key_value_heads": 4,
        "num_experts": 128,
        "num_experts_per_tok": 8,
        "vocab_size": 151936,
    },
    "gpt_neox": {
        "hidden_size": 6144,
        "intermediate_size": 24576,
        "num_hidden_layers": 44,
        "num_attention_heads": 64,
        "vocab_size": 50432,
    },
    "gpt_oss": {
        "hidden_size": 2880,
        "intermediate_size": 2880,
        "num_hidden_layers": 36,
        "num_attention_heads": 64,
        "num_key_value_heads": 8,
        "head_dim": 64,
        "num_local_experts": 128,
        "num_experts_per_tok": 4,
        "vocab_size": 201088,
    },
    "gemma3_text": {
        "hidden_size": 2304,
        "intermediate_size": 9216,
        "num_hidden_layers": 26,
        "num_attention_heads": 8,
        "num_key_value_heads": 4,
        "head_dim": 256,
        "vocab_size": 262208,
    },
    "phi3": {
        "hidden_size": 3072,
        "intermediate_size": 8192,
        "num_hidden_layers": 32,
        "num_attention_heads": 32,
        "vocab_size": 32064,
    },
    "olmo2": {**LLAMA_7B, "vocab_size": 50304},
}
"""The sizes that the configuration class of each family has when nothing is given."""

COUNTED: dict[str, tuple[dict[str, Any], int]] = {
    "gpt2": (
        {"n_embd": 768, "n_layer": 12, "n_head": 12, "n_positions": 1024, "vocab_size": 50257},
        124439808,
    ),
    "opt": (
        {
            "hidden_size": 768,
            "ffn_dim": 3072,
            "num_hidden_layers": 12,
            "num_attention_heads": 12,
            "max_position_embeddings": 2048,
            "vocab_size": 50272,
        },
        125239296,
    ),
    "bloom": ({"hidden_size": 1024, "n_layer": 24, "n_head": 16, "vocab_size": 250880}, 559214592),
    "gemma": (
        {
            "hidden_size": 2048,
            "intermediate_size": 16384,
            "num_hidden_layers": 18,
            "num_attention_heads": 8,
            "num_key_value_heads": 1,
            "head_dim": 256,
            "vocab_size": 256000,
        },
        2506172416,
    ),
    "gemma2": (
        {
            "hidden_size": 2304,
            "intermediate_size": 9216,
            "num_hidden_layers": 26,
            "num_attention_heads": 8,
            "num_key_value_heads": 4,
            "head_dim": 256,
            "vocab_size": 256000,
        },
        2614341888,
    ),
    "falcon": (
        {"hidden_size": 4544, "num_hidden_layers": 32, "num_attention_heads": 71, "vocab_size": 65024},
        6921720704,
    ),
    "mpt": ({"d_model": 4096, "n_layers": 32, "n_heads": 32, "vocab_size": 50432}, 6649286656),
    "deepseek_v2": (
        {
            "hidden_size": 2048,
            "intermediate_size": 10944,
            "moe_intermediate_size": 1408,
            "num_hidden_layers": 27,
            "num_attention_heads": 16,
            "n_routed_experts": 64,
            "n_shared_experts": 2,
            "num_experts_per_tok": 6,
            "kv_lora_rank": 512,
            "q_lora_rank": None,
            "first_k_dense_replace": 1,
            "vocab_size": 102400,
        },
        15706484224,
    ),
}
"""Published parameter counts of checkpoints."""


@pytest.mark.shared
@pytest.mark.skipif(not SHARED.exists(), reason="the shared data is not beside the checkout")
def test_counts_of_every_reference_configuration_are_exact() -> None:
    for family, total, embedding in json.loads(
        (SHARED / "PARAMETER_COUNTS.json").read_text(encoding="utf-8")
    ):
        if family == "deepseek_v3":
            shape = from_hf_config(SHARED / "deepseek-v3.json")
        else:
            shape = from_hf_config({**DEFAULTS[family], "model_type": family})
        assert total_params(shape) == total, family
        assert shape.vocab * shape.hidden == embedding, family


@pytest.mark.parametrize("family", COUNTED)
def test_published_checkpoint_is_counted_exactly(family: str) -> None:
    config, published = COUNTED[family]
    assert total_params(from_hf_config({**config, "model_type": family})) == published


def test_most_catalogue_models_have_their_published_size() -> None:
    off = {
        name: total_params(shape_of(model)) / model.published_params - 1.0
        for name, model in catalog.builtin().models.items()
    }
    wrong = {name: error for name, error in off.items() if abs(error) > 0.02}
    assert len(wrong) <= len(off) * 0.05, wrong


def test_mixture_counts_only_chosen_experts_as_active() -> None:
    shape = from_hf_config({**DEFAULTS["mixtral"], "model_type": "mixtral"})
    assert active_params(shape) == 12879925248
    assert active_params(from_hf_config(LLAMA_7B)) == total_params(from_hf_config(LLAMA_7B))


def test_flops_of_a_dense_model_are_six_per_weight_and_causal_attention() -> None:
    shape = from_hf_config(LLAMA_7B)
    weights = total_params(shape) - embedding_params(shape) - 65 * 4096
    attention = 6 * 32 * 2 * 4096 * 2048 / 2
    assert flops_per_token(shape, 2048) == pytest.approx(6 * weights + attention)
    assert flops_per_token(shape, 2048, causal=False) == pytest.approx(6 * weights + 2 * attention)


def test_adapters_skip_the_weight_gradient_of_frozen_weights() -> None:
    shape = from_hf_config(LLAMA_7B)
    ratio = flops_per_token(shape, 1, lora=Adapter(8)) / flops_per_token(shape, 1)
    assert ratio == pytest.approx(2 / 3, abs=0.01)
    assert lora_params(shape, 16) == 2 * lora_params(shape, 8)


def test_sliding_window_bounds_attention() -> None:
    config = {**DEFAULTS["mistral"], "model_type": "mistral"}
    long, slid = (from_hf_config({**config, "sliding_window": window}) for window in (None, 4096))
    assert flops_per_token(slid, 32768) < flops_per_token(long, 32768)
    assert flops_per_token(slid, 2048) == flops_per_token(long, 2048)


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"model_type": "nonsense"}, "not known"),
        ({"model_type": "llama"}, "is missing"),
        ({**LLAMA_7B, "num_key_value_heads": 5}, "cannot share"),
    ],
)
def test_bad_configuration_is_refused(config: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        from_hf_config(config)


def test_unreadable_configuration_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot be read"):
        from_hf_config(tmp_path / "absent.json")
    broken = tmp_path / "config.json"
    broken.write_text("{", encoding="utf-8")
    with pytest.raises(InputError, match="not JSON"):
        from_hf_config(broken)


def test_every_contradiction_of_a_shape_is_reported() -> None:
    shape = ModelShape(0, 64, 4, 3, 16, 64, 100, experts=4, experts_per_token=9)
    with pytest.raises(InputError) as caught:
        check_shape(shape)
    assert len(caught.value.problems) == 3
