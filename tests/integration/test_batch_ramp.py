"""A global batch that grows while a task trains, from the case to the files of a launcher."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest

from trainplan.export import export
from trainplan.planning import plan
from trainplan.report.build import document
from trainplan.report.render_markdown import render
from trainplan.works import works_of
from trainplan_models.base import InputError
from trainplan_models.case import Case
from trainplan_models.casefile import case_from_text
from trainplan_models.catalog import builtin
from trainplan_models.layout import check_layout, enumerate_layouts, grid_of
from trainplan_models.plan import Plan
from trainplan_models.step_time import step_time
from trainplan_models.workload import TrainSetup

RAMP = "batch_ramp: [{global_batch: 512k tokens, until: 10B tokens}, {global_batch: 1M tokens, until: 40B tokens}]"


def asked(
    ramp: str = "",
    *,
    batch: str = "global_batch: 4M tokens",
    more: str = "",
    resources: str = "",
    framework: str = "megatron",
    deadline: str = "60 days",
) -> Case:
    return case_from_text(
        f"""
name: ramp
deadline: {deadline}
tasks:
  - name: train
    kind: pretrain
    model: llama-3-8b
    tokens: 100B tokens
    sequence_length: 8192
    framework: {framework}
    {batch}
    {ramp}
    {more}
resources:
  accelerators: [H100-SXM]
  clouds: [aws]
  regions: [us-east-1]
  billing: [on-demand]
  node_counts: [16 nodes]
  {resources}
"""
    )


def setup_of(case: Case) -> TrainSetup:
    (work,) = works_of(case, builtin())
    assert work.setup is not None
    return replace(work.setup, framework="megatron")


def planned(case: Case) -> Plan:
    return plan(case, builtin(), compare=False, promise=False)


def test_a_ramp_is_shares_of_the_tokens_with_whole_batches() -> None:
    setup = setup_of(asked(RAMP))
    assert [count for _, count in setup.ramp] == [64, 128]
    assert [share for share, _ in setup.ramp] == pytest.approx([0.1, 0.3])
    assert [one.global_batch_sequences for _, one in setup.phases] == [64, 128, 512]
    assert [share for share, _ in setup.phases] == pytest.approx([0.1, 0.3, 0.6])


def test_layouts_that_one_of_the_batches_does_not_divide_are_removed_and_counted() -> None:
    chip, node = builtin().accelerator("H100-SXM"), builtin().node("aws", "p5.48xlarge")
    ramped, plain = setup_of(asked(RAMP)), setup_of(asked())
    every, _ = enumerate_layouts(plain, chip, node, [4, 16])
    kept, removed = enumerate_layouts(ramped, chip, node, [4, 16])
    at_once = every.dp * every.micro_batch
    legal = np.ones(len(every), dtype=bool)
    for batch in (64, 128):
        legal &= (batch % at_once == 0) & ((every.vp == 1) | (batch // at_once % every.pp == 0))
    assert 0 < np.count_nonzero(legal) < len(every)
    assert sorted(map(str, (every.record(int(i)) for i in np.flatnonzero(legal)))) == sorted(
        map(str, (kept.record(i) for i in range(len(kept))))
    )
    assert removed["every batch of the ramp must be a multiple of dp*micro_batch"] > 0
    lost = every.record(int(np.flatnonzero(~legal & (every.vp == 1))[0]))
    assert any("global batch of" in text for text in check_layout(ramped, lost, chip, node))
    assert check_layout(plain, lost, chip, node) == []


def test_the_speed_of_a_ramp_is_its_tokens_over_the_time_of_its_parts() -> None:
    chip, node = builtin().accelerator("H100-SXM"), builtin().node("aws", "p5.48xlarge")
    ramped = setup_of(asked(RAMP))
    grid, _ = enumerate_layouts(ramped, chip, node, [4])
    rates = [
        np.asarray(
            step_time(replace(ramped, ramp=(), global_batch_sequences=n), chip, node, grid).tokens_per_s
        )
        for n in (64, 128, 512)
    ]
    seconds = 10e9 / rates[0] + 30e9 / rates[1] + 60e9 / rates[2]
    found = step_time(ramped, chip, node, grid)
    assert found.tokens_per_s == pytest.approx(100e9 / seconds)
    last = step_time(replace(ramped, ramp=()), chip, node, grid)
    assert found.step_s == pytest.approx(last.step_s)
    assert found.mfu_frac / last.mfu_frac == pytest.approx(found.tokens_per_s / last.tokens_per_s)
    assert np.all(found.tokens_per_s < last.tokens_per_s)


def test_a_plan_takes_the_time_of_every_phase() -> None:
    found, without = planned(asked(RAMP)), planned(asked())
    (segment,) = found.segments
    assert [phase.tokens for phase in segment.batches] == pytest.approx([10e9, 30e9, 60e9])
    assert [phase.global_batch_tokens / 8192 for phase in segment.batches] == [64, 128, 512]
    assert segment.layout.dp * segment.layout.micro_batch <= 64
    chip, node = builtin().accelerator("H100-SXM"), builtin().node("aws", "p5.48xlarge")
    grid = grid_of([segment.layout], 8)
    for phase, sequences in zip(segment.batches, (64, 128, 512), strict=True):
        one = replace(setup_of(asked(RAMP)), ramp=(), global_batch_sequences=sequences)
        assert phase.tokens_per_s == pytest.approx(float(step_time(one, chip, node, grid).tokens_per_s[0]))
    train_s = sum(phase.tokens / phase.tokens_per_s for phase in segment.batches)
    lasted_s = segment.end_s - segment.start_s - segment.setup_s
    assert lasted_s == pytest.approx(train_s / segment.goodput_frac, rel=1e-4)
    assert found.finish_s > without.finish_s and found.total_usd > without.total_usd
    text = render(document(found))
    assert "for 10B tokens, then" in text
    assert "one layout for all batches" in text


def test_the_phases_of_a_task_in_several_stretches_are_shared_out_in_order_of_time() -> None:
    found = planned(asked(RAMP, resources="freezes: [{from: 6 hours, to: 20 hours}]", deadline="40 hours"))
    assert len(found.segments) > 1
    batches = [phase for s in sorted(found.segments, key=lambda s: s.start_s) for phase in s.batches]
    assert sum(phase.tokens for phase in batches) == pytest.approx(100e9)
    sizes = [phase.global_batch_tokens for phase in batches]
    assert sizes == sorted(sizes)
    for size, tokens in ((64, 10e9), (128, 30e9), (512, 60e9)):
        assert sum(p.tokens for p in batches if p.global_batch_tokens == size * 8192) == pytest.approx(tokens)


def test_megatron_is_told_how_the_batch_grows() -> None:
    files = export(planned(asked(RAMP)), "megatron")
    (text,) = (text for name, text in files.items() if name.endswith(".args.sh"))
    assert "--step-batch-size-schedule '0:64 10000000000:128 40000000000:512'" in text
    assert f"--train-samples {round(100e9 / 8192)}" in text
    assert f"--lr-decay-samples {round(100e9 / 8192)}" in text
    assert "--global-batch-size" not in text and "--train-iters" not in text
    steps = 10e9 / (64 * 8192) + 30e9 / (128 * 8192) + 60e9 / (512 * 8192)
    readme = files["README.md"]
    assert re.search(rf"of {round(steps)}\b|of {round(steps) + 1}\b", readme)


def test_programs_that_know_one_batch_say_so() -> None:
    readme = export(planned(asked(RAMP, framework="torchtitan")), "torchtitan")["README.md"]
    assert "the global batch grows (64 sequences to step" in readme


@pytest.mark.parametrize(
    ("ramp", "batch", "more", "message"),
    [
        ("batch_ramp: [{global_batch: 8M tokens, until: 10B tokens}]", None, "", "does not grow to"),
        ("batch_ramp: [{global_batch: 1M tokens, until: 100B tokens}]", None, "", "lasts until"),
        ("batch_ramp: [{global_batch: 4k tokens, until: 10B tokens}]", None, "", "less than one sequence"),
        ("batch_ramp: [{global_batch: 1M tokens, until: 1B tokens}]", "", "", "the batch it ends at"),
        ("batch_ramp: [{global_batch: 1M tokens, until: 1B tokens}]", None, "rounds: 2", "is for one round"),
        ("batch_ramp: [{global_batch: 1M tokens}]", None, "", "until"),
        ("batch_ramp: [{global_batch: 64 sequences, until: 1B tokens}]", None, "", "global_batch"),
    ],
)
def test_a_wrong_ramp_is_told(ramp: str, batch: str | None, more: str, message: str) -> None:
    with pytest.raises(InputError) as caught:
        asked(ramp, more=more, **({} if batch is None else {"batch": batch}))
    assert message in str(caught.value)
    assert "tasks[0].batch_ramp" in str(caught.value)
