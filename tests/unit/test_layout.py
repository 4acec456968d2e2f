from __future__ import annotations

import numpy as np
import pytest
from tests.unit.training_setups import grid, machine, setup

from trainplan_models.base import InputError
from trainplan_models.layout import check_layout, enumerate_layouts, join, rules_of
from trainplan_models.plan import Layout


def test_every_enumerated_layout_is_legal_and_spans_its_nodes() -> None:
    accelerator, node = machine()
    for model in ("llama-3-8b", "mixtral-8x7b"):
        task = setup(model)
        found, _ = enumerate_layouts(task, accelerator, node, [1, 4, 12])
        assert len(found) > 100
        assert (found.accelerators == found.nodes * node.accelerators).all()
        for i in np.linspace(0, len(found) - 1, 200).astype(int):
            assert check_layout(task, found.record(int(i)), accelerator, node) == []


def test_no_layout_is_enumerated_twice() -> None:
    accelerator, node = machine()
    for framework in ("megatron", "torchtitan", "fsdp", "deepspeed", "maxtext"):
        found, _ = enumerate_layouts(setup(framework=framework), accelerator, node, [1, 2, 4, 16])
        records = {found.record(i).model_dump_json() + str(found.nodes[i]) for i in range(len(found))}
        assert len(records) == len(found), framework


def test_rules_say_what_they_removed() -> None:
    accelerator, node = machine()
    _, removed = enumerate_layouts(setup(batch=96), accelerator, node, [1, 2, 3, 5, 7])
    assert removed["devices must be a multiple of tp*pp*cp"] > 0
    assert removed["global batch must be a multiple of dp*micro_batch"] > 0
    assert all(count > 0 for count in removed.values())


@pytest.mark.parametrize(
    ("layout", "words", "valid"),
    [
        (Layout(dp=8, tp=3), "tp=3", "1, 2, 4, 8"),
        (Layout(dp=8, tp=16), "tp=16", "1, 2, 4, 8"),
        (Layout(dp=1, pp=5), "pp=5", "1, 2, 3, 4"),
        (Layout(dp=8, ep=2), "ep=2", "1"),
        (Layout(dp=8, zero_stage=3), "zero_stage=3", "1"),
        (Layout(dp=8, micro_batch=3), "global batch of 512", "1, 2, 4"),
        (Layout(dp=7), "dp must divide the global batch", "4, 8, 16"),
        (Layout(dp=8, vp=2), "needs a pipeline", "1"),
    ],
)
def test_illegal_degree_comes_with_the_valid_ones(layout: Layout, words: str, valid: str) -> None:
    accelerator, node = machine()
    problems = check_layout(setup(), layout, accelerator, node)
    assert any(words in problem and valid in problem for problem in problems), problems


def test_tensor_parallelism_may_leave_the_domain_when_asked() -> None:
    accelerator, node = machine()
    task = setup("llama-3.1-405b", batch=256)
    layout = Layout(dp=4, tp=16, sequence_parallel=True)
    assert any("tp=16" in problem for problem in check_layout(task, layout, accelerator, node))
    wide = setup("gpt3-175b", 2048, batch=256)
    assert check_layout(wide, layout, accelerator, node, tensor_across_domains=True) == []


def test_uneven_pipelines_count_embedding_and_loss_as_layers() -> None:
    accelerator, node = machine()
    layout = Layout(dp=2, tp=8, pp=8, vp=8)
    assert check_layout(setup("llama-3.1-405b", batch=128), layout, accelerator, node) == []


def test_unknown_framework_is_refused() -> None:
    with pytest.raises(InputError, match="not a known framework"):
        rules_of("nonesuch")


def test_grid_of_records_and_join_keep_order() -> None:
    layouts = [Layout(dp=8), Layout(dp=2, tp=4, recompute="full", micro_batch=2)]
    both = grid(*layouts)
    assert [both.record(i) for i in range(2)] == layouts
    assert len(join([both, both])) == 4
    assert both.take(np.array([1])).record(0) == layouts[1]
