"""The model shapes give the parameter counts that were published for them."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

import pytest

from trainplan_models import catalog, workload
from trainplan_models.base import InputError
from trainplan_models.catalog.records import Model

HF_CONFIGS = Path(__file__).resolve().parents[3] / "shared" / "data" / "hf_configs"
MODELS = catalog.builtin().models
MIXTURES = {name: model for name, model in MODELS.items() if model.experts}

EXACT = {
    "gpt2-xl": 1_557_611_200,
    "llama-2-7b": 6_738_415_616,
    "llama-2-70b": 68_976_648_192,
    "llama-3-8b": 8_030_261_248,
    "llama-3-70b": 70_553_706_496,
    "llama-3.1-405b": 405_853_388_800,
    "mistral-7b": 7_241_732_096,
    "mixtral-8x7b": 46_702_792_704,
    "qwen2.5-7b": 7_615_616_512,
    "qwen3-30b-a3b": 30_532_122_624,
    "gemma-2-9b": 9_241_705_984,
    "bloom-176b": 176_247_271_424,
    "gpt-neox-20b": 20_554_567_680,
    "pythia-6.9b": 6_857_302_016,
    "deepseek-v3": 671_026_404_352,
    "gpt-oss-120b": 116_829_156_672,
    "phi-3-mini": 3_821_079_552,
    "falcon-180b": 179_522_565_120,
}
"""Counts of the released weights."""


@pytest.mark.parametrize("name", MODELS)
def test_the_shape_gives_the_published_number_of_parameters(name: str) -> None:
    counted = workload.total_params(workload.shape_of(MODELS[name]))
    assert counted == pytest.approx(MODELS[name].published_params, rel=0.01)


@pytest.mark.parametrize(("name", "params"), EXACT.items())
def test_open_models_are_counted_to_the_last_weight(name: str, params: int) -> None:
    assert workload.total_params(workload.shape_of(MODELS[name])) == params
    assert MODELS[name].published_params == params


@pytest.mark.parametrize("name", [n for n, m in MIXTURES.items() if m.published_active_params])
def test_the_shape_gives_the_published_number_of_active_parameters(name: str) -> None:
    active = workload.active_params(workload.shape_of(MIXTURES[name]))
    assert active == pytest.approx(MIXTURES[name].published_active_params, rel=0.02)


@pytest.mark.parametrize("model", MODELS.values(), ids=lambda model: model.name)
def test_shapes_are_possible(model: Model) -> None:
    workload.check_shape(workload.shape_of(model))
    assert model.heads % model.kv_heads == 0
    assert (model.experts > 0) == (model.experts_per_token > 0) == (model.expert_ffn > 0)
    assert (model.shared_experts > 0) == (model.shared_expert_ffn > 0)
    assert model.dense_layers < model.layers
    if model.published_active_params is not None:
        assert model.experts and model.published_active_params < model.published_params


def test_mixtures_say_how_much_is_active() -> None:
    assert {name for name, model in MIXTURES.items() if model.published_active_params is None} == {"grok-1"}
    assert len(MIXTURES) >= 10


ASKED_FOR = """
gpt2 gpt3-175b gpt3-13b llama-7b llama-33b llama-65b llama-2-13b llama-3-8b llama-3.2-3b llama-4-scout
llama-4-maverick qwen2-72b qwen2.5-32b qwen3-235b-a22b mistral-nemo-12b mixtral-8x22b deepseek-v2
deepseek-v2-lite gemma-7b gemma-2-27b gemma-3-27b falcon-40b bloom-7b1 opt-175b pythia-12b mpt-30b
olmo-7b olmo-2-13b tinyllama-1.1b gpt-j-6b gpt-oss-20b starcoder-15b
"""


def test_models_people_ask_for_are_there() -> None:
    assert set(ASKED_FOR.split()) - set(MODELS) == set()


def test_there_are_enough_of_them() -> None:
    assert len(MODELS) >= 45


@pytest.mark.parametrize(
    ("said", "name"),
    [
        ("Llama-3.1-8B", "llama-3-8b"),
        ("meta-llama/Meta-Llama-3-70B", "llama-3-70b"),
        ("LLAMA2_70B", "llama-2-70b"),
        ("DeepSeek V3", "deepseek-v3"),
        ("DeepSeek-V3 (w/o MTP)", "deepseek-v3"),
        ("mistralai/Mixtral-8x7B-v0.1", "mixtral-8x7b"),
        ("Qwen3-30B3A", "qwen3-30b-a3b"),
        ("google/gemma-2-9b", "gemma-2-9b"),
        ("bloom", "bloom-176b"),
    ],
)
def test_models_go_by_the_names_people_use(said: str, name: str) -> None:
    assert catalog.builtin().model(said).name == name


def test_an_unknown_model_is_refused_with_the_nearest() -> None:
    with pytest.raises(InputError, match="Did you mean .*llama-3-8b"):
        catalog.builtin().model("llama-3-9b")


CONFIGS = {
    "deepseek-v3": "deepseek-v3",
    "gpt-neox-20b": "gpt-neox-20b",
    "llama-3-70b": "llama-3-70b",
    "llama-3.1-8b": "llama-3-8b",
    "mistral-7b": "mistral-7b",
    "mixtral-8x7b": "mixtral-8x7b",
    "qwen2.5-1.5b": "qwen2.5-1.5b",
    "qwen3-30b-a3b": "qwen3-30b-a3b",
}
PROVENANCE_FREE = ("name", "family", "max_positions", "sliding_window", "ffn")
"""Fields in which a config and a row may differ: labels, and the width of dense layers that are not there."""


@pytest.mark.shared
@pytest.mark.skipif(not HF_CONFIGS.is_dir(), reason="no reference data")
@pytest.mark.parametrize(("file", "name"), CONFIGS.items())
def test_rows_agree_with_the_configs_of_the_models(file: str, name: str) -> None:
    from trainplan_models.hf_config import from_hf_config

    config = json.loads((HF_CONFIGS / f"{file}.json").read_text(encoding="utf-8"))
    read, shipped = asdict(from_hf_config(config)), asdict(workload.shape_of(MODELS[name]))
    differ = {k for k in read if read[k] != shipped[k] and k not in PROVENANCE_FREE}
    assert differ == set()
