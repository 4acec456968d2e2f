"""Mangled case files: a case, or mistakes told by place; never another error."""

from __future__ import annotations

import json
import re

from hypothesis import given
from hypothesis import strategies as st

from trainplan_models.base import InputError
from trainplan_models.case import Case
from trainplan_models.casefile import case_from_text

TEXT = """\
name: llama-8b
question: cheapest
start: 2026-01-01
deadline: 2026-03-01
budget: 600k USD
reliability: high
tasks:
  - name: pretrain
    kind: pretrain
    model: {layers: 32, hidden: 4096, heads: 32, ffn: 14336, vocab: 128256}
    tokens: 300B tokens
    sequence_length: 8192
    global_batch: 512 sequences
    dataset: {size: 1.2 TB, at: aws/us-east-1}
  - name: rl
    kind: rl
    after: [pretrain]
    rollout: {prompts: 512, steps: 100}
resources:
  billing: [on-demand, spot]
  max_nodes: 64
  quotas: [{pool: aws/us-east-1/p5.48xlarge, on-demand: 8 nodes}]
  owned: [{name: dc1, accelerator: A100, nodes: 12, free: [{from: day 0, nodes: 4}]}]
  discounts: {aws: 12%}
checkpoints: {keep_last: 3, keep_every: 1 day}
overheads: {experiments: 15%, delay: 5k USD/day, logs: {per_node: 2 GB/day, keep: 30 days}}
labels: {project: assistant}
"""
LINES = TEXT.splitlines()
SPANS = [match.span() for match in re.finditer(r"[\w.%/-]+", TEXT)]
KEYS = (
    "deadline",
    "tasks",
    "tasks.rl.after",
    "tasks[0].model",
    "tasks[1]",
    "resources.owned.dc1.free",
    "labels.x",
    "x.y",
)

values = st.one_of(
    st.sampled_from(
        [
            "",
            "~",
            "null",
            "[]",
            "{}",
            "- a",
            "{a: 1}",
            "[[1]]",
            "true",
            "-1",
            "1e400",
            ".nan",
            "0",
            "*x",
            "&x 1",
            "!t",
        ]
        + [
            "<<",
            "'",
            '"',
            "\t",
            "%",
            "@",
            "day 3",
            "2026-02-30",
            "30",
            "80 Gb",
            "9" * 400,
            "a: b",
            "#",
            "\x07",
            "é",
        ]
    ),
    st.text(max_size=12),
)


def is_told(text: str, *overrides: str) -> None:
    """Reads a case that is JSON all through, or is refused with a place for every mistake."""
    try:
        case = case_from_text(text, "case.yaml", overrides)
    except InputError as refused:
        assert refused.problems
        for problem in refused.problems:
            assert problem.message
            assert problem.file in ("case.yaml", "--set")
            assert 0 <= problem.line <= text.count("\n") + 1
    else:
        assert Case.from_canonical(json.loads(json.dumps(case.canonical(), allow_nan=False))) == case


def test_the_text_that_is_mangled_is_a_case() -> None:
    assert case_from_text(TEXT).tasks[0].global_batch_tokens == 2**22


@given(span=st.sampled_from(SPANS), value=values)
def test_any_word_may_be_something_else(span: tuple[int, int], value: str) -> None:
    is_told(TEXT[: span[0]] + value + TEXT[span[1] :])


@given(
    first=st.integers(0, len(LINES) - 1), second=st.integers(0, len(LINES) - 1), line=st.sampled_from(LINES)
)
def test_any_lines_may_be_lost_or_doubled(first: int, second: int, line: str) -> None:
    left = [text for index, text in enumerate(LINES) if index != first]
    is_told("\n".join([*left[:second], line, *left[second:]]))


@given(cut=st.integers(0, len(TEXT)))
def test_a_file_may_be_cut_anywhere(cut: int) -> None:
    is_told(TEXT[:cut])


@given(key=st.one_of(st.sampled_from(KEYS), st.text(max_size=12)), value=values)
def test_any_override_may_be_given(key: str, value: str) -> None:
    is_told(TEXT, f"{key}={value}")


@given(text=st.text(max_size=60))
def test_any_text_may_be_given(text: str) -> None:
    is_told(text)
