"""Candidates of tasks that generate: reinforcement learning, evaluation, data generation.

Reinforcement learning trains on what it has just generated, on the same nodes; its speed is that of a
whole step of generation, scoring, update and weight transfer. Evaluation and data generation only decode
(or, where only tokens are given, only score).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from trainplan.candidates import Candidate
from trainplan_models.catalog.records import Accelerator, NodeType
from trainplan_models.plan import Layout
from trainplan_models.rollout import Samples, Serving, generate, rollout_step, score_s
from trainplan_models.workload import TrainSetup


def with_rollout(
    trained: Sequence[Candidate],
    setup: TrainSetup,
    samples: Samples,
    accelerator: Accelerator,
    node: NodeType,
) -> tuple[Candidate, ...]:
    """Training candidates at the speed of whole reinforcement-learning steps."""
    if not trained:
        return ()
    nodes = np.array([candidate.nodes for candidate in trained])
    rates = np.array([candidate.tokens_per_s for candidate in trained])
    step = rollout_step(setup, samples, accelerator, node, nodes, rates)
    return tuple(
        replace(
            candidate,
            step_s=float(step.step_s[row]),
            tokens_per_s=samples.tokens / float(step.step_s[row]),
            mfu_frac=candidate.mfu_frac * float(step.update_s[row] / step.step_s[row]),
        )
        for row, candidate in enumerate(trained)
        if np.isfinite(step.step_s[row])
    )


def decoding(
    setup: TrainSetup, samples: Samples, accelerator: Accelerator, node: NodeType, counts: Sequence[int]
) -> tuple[Candidate, ...]:
    """Candidates that decode all samples, each node count with its best replica size."""
    nodes = np.array(counts)
    serving = Serving(sequence_tokens=setup.sequence_length)
    made = generate(setup.shape, samples, accelerator, node, nodes, serving)
    return tuple(
        Candidate(
            nodes=int(count),
            layout=Layout(
                dp=max(int(count) * node.accelerators // int(made.tensor[row]), 1), tp=int(made.tensor[row])
            ),
            step_s=float(made.seconds[row]),
            tokens_per_s=samples.tokens / float(made.seconds[row]),
            mfu_frac=0.0,
            peak_memory_bytes=0.0,
        )
        for row, count in enumerate(nodes)
        if np.isfinite(made.seconds[row])
    )


def scoring(
    setup: TrainSetup, tokens: float, accelerator: Accelerator, node: NodeType, counts: Sequence[int]
) -> tuple[Candidate, ...]:
    """Candidates that read tokens once, without training on them."""
    nodes = np.array(counts)
    samples = Samples(1, 1, tokens, 0.0)
    seconds = score_s(setup.shape, samples, accelerator, node, nodes, passes=1.0)
    return tuple(
        Candidate(
            nodes=int(count),
            layout=Layout(dp=int(count) * node.accelerators),
            step_s=float(seconds[row]),
            tokens_per_s=tokens / float(seconds[row]),
            mfu_frac=0.0,
            peak_memory_bytes=0.0,
        )
        for row, count in enumerate(nodes)
    )
